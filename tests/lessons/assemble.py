"""Put what guards a lesson's numbers into a copy of its notebook: `python tests/lessons/assemble.py FOLDER [NN …]`.

Beside this file lies, for each lesson, a script of plain asserts over the lesson's names. They run after the lesson's
last cell, where the names have their last values. Lines below `# after: TAG` run behind the cell with that tag, for
names that are used again later. `pytest --nbval` on the copies then runs each lesson once, and holds its stored outputs
and its numbers.
"""

import re
import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell

HERE = Path(__file__).resolve().parent
NOTEBOOKS = HERE.parents[1] / "notebooks"
AFTER = re.compile(r"^# after: (\S+)\n", re.MULTILINE)
ORDER = "slowest_first.txt"  # the copies; a long lesson that begins last would run alone
SLOWEST = ("12", "18", "19", "16", "15", "20", "14", "13", "10", "04", "09")


def with_checks(lesson: nbformat.NotebookNode, checks: str) -> nbformat.NotebookNode:
    """Insert checks into a lesson.

    Args:
        lesson: the notebook, changed in place.
        checks: the script of its checks.

    Returns:
        The notebook.

    Raises:
        ValueError: where checks are to follow a tag that no cell, or more than one, has.
    """
    at_the_end, *behind = AFTER.split(checks)
    for tag, text in zip(behind[::2], behind[1::2], strict=True):
        places = [n for n, cell in enumerate(lesson.cells) if tag in cell.metadata.get("tags", [])]
        if len(places) != 1:
            raise ValueError(f"checks are to run after {tag!r}: expected one cell with this tag, not {len(places)}")
        lesson.cells.insert(places[0] + 1, new_code_cell(text.strip()))
    if at_the_end.strip():
        exercises = [n for n, cell in enumerate(lesson.cells) if cell.source.startswith("## Exercises")]
        lesson.cells.insert(exercises[0] if exercises else len(lesson.cells), new_code_cell(at_the_end.strip()))
    return lesson


def assemble(folder: Path, numbers: list[str] | None = None) -> list[Path]:
    """Write a copy of each lesson with its checks.

    Args:
        folder: where the copies are written; made where it is not there.
        numbers: of the lessons, such as "05"; default: all notebooks but the demo, which its browser test runs.

    Returns:
        The copies.
    """
    folder.mkdir(parents=True, exist_ok=True)
    copies, slow = [], {number: place for place, number in enumerate(SLOWEST)}
    for source in sorted(NOTEBOOKS.glob("*.ipynb"), key=lambda path: (slow.get(path.stem[:2], len(slow)), path)):
        if source.stem == "demo" or (numbers and source.stem[:2] not in numbers):
            continue
        lesson, checks = nbformat.read(source, as_version=4), HERE / f"{source.stem}.py"
        if checks.is_file():
            lesson = with_checks(lesson, checks.read_text(encoding="utf-8"))
        copies.append(folder / source.name)
        nbformat.write(lesson, copies[-1])
    (folder / ORDER).write_text("".join(f"{copy}\n" for copy in copies), encoding="utf-8")
    return copies


if __name__ == "__main__":
    assemble(Path(sys.argv[1]), sys.argv[2:])
