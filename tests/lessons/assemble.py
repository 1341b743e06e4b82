"""Put what guards a lesson's numbers into a copy of its notebook: `python tests/lessons/assemble.py FOLDER [NN …]`.

Beside this file lies, for each lesson, a script of plain asserts over the lesson's names. They run after the lesson's
last cell, where the names have their last values. Lines below `# after: TAG` run behind the cell with that tag, for
names that are used again later. `pytest --nbval` on the copies then runs each lesson once, and holds its stored outputs
and its numbers.
"""

import json
import re
import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell

HERE = Path(__file__).resolve().parent
NOTEBOOKS = HERE.parents[1] / "notebooks"
AFTER = re.compile(r"^# after: (\S+)\n", re.MULTILINE)
# Around a lesson's imports: the garbage collector would look at a million objects of the libraries, all of which stay.
BEFORE_IMPORTS, AFTER_IMPORTS = "import gc\n\ngc.disable()", "gc.freeze()\ngc.enable()"
ORDER = "slowest_first.txt"  # the copies; a long lesson that begins last would run alone


def assemble(folder: Path, numbers: list[str]) -> None:
    """Write a copy of each lesson, or of those with the given numbers, with its checks; the demo has a browser test."""
    folder.mkdir(parents=True, exist_ok=True)
    copies, seconds = [], json.loads((NOTEBOOKS / "course/seconds.json").read_text(encoding="utf-8"))
    for source in sorted(NOTEBOOKS.glob("*.ipynb"), key=lambda path: (-seconds.get(path.stem, 0), path)):
        if source.stem == "demo" or (numbers and source.stem[:2] not in numbers):
            continue
        lesson, checks = nbformat.read(source, as_version=4), HERE / f"{source.stem}.py"
        if checks.is_file():
            insert_checks(lesson.cells, checks.read_text(encoding="utf-8"))
        imports = next(n for n, cell in enumerate(lesson.cells) if cell.cell_type == "code")
        lesson.cells.insert(imports + 1, new_code_cell(AFTER_IMPORTS))
        lesson.cells.insert(imports, new_code_cell(BEFORE_IMPORTS))
        copies.append(folder / source.name)
        nbformat.write(lesson, copies[-1])
    (folder / ORDER).write_text("".join(f"{copy}\n" for copy in copies), encoding="utf-8")


def insert_checks(cells: list, checks: str) -> None:
    """Insert a script of checks into a lesson's cells; a tag that no cell, or more than one, has is an error."""
    at_the_end, *behind = AFTER.split(checks)
    for tag, text in zip(behind[::2], behind[1::2], strict=True):
        (place,) = [n for n, cell in enumerate(cells) if tag in cell.metadata.get("tags", [])]
        cells.insert(place + 1, new_code_cell(text.strip()))
    exercises = [n for n, cell in enumerate(cells) if cell.source.startswith("## Exercises")]
    cells.insert(exercises[0] if exercises else len(cells), new_code_cell(at_the_end.strip()))


if __name__ == "__main__":
    assemble(Path(sys.argv[1]), sys.argv[2:])
