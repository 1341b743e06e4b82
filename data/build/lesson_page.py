"""What a lesson's page defines, for records that are made by the page's own functions."""

import sys
from pathlib import Path

import jupytext

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "notebooks"), str(ROOT)]


def names_of(lesson: str, function: str, cut: str = "\0") -> dict:
    """The names after a lesson's code cells up to the one that defines a function, less what follows `cut`.

    Raises:
        ValueError: where no cell defines the function.
    """
    names = {}
    for cell in jupytext.read(ROOT / "notebooks" / f"{lesson}.py").cells:
        if cell.cell_type == "code":
            last = f"def {function}(" in cell.source
            source = cell.source.partition(cut)[0] if last else cell.source
            exec(compile(source, f"{lesson}.py", "exec"), names)  # noqa: S102
            if last:
                return names
    raise ValueError(f"the lesson {lesson} defines no {function}")
