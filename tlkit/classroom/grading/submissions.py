"""What students hand in: whose file it is, which lesson, and the code of its exercises. Nothing of it is run here."""

import json
import pkgutil
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tlkit.classroom import checks
from tlkit.classroom.notebooks import lessons

NAME = re.compile(r"\bex(\d\d)_\d+\b")
HEADING = re.compile(r"^## Exercises\b", re.MULTILINE)
LARGEST = 100 * 2**20  # bytes; a lesson with all its outputs has about one million
# What the platforms make of a file that a student has uploaded.
MOODLE = re.compile(r"(?P<name>.+)_(?P<id>\d+)_assignsubmission_\w+")
CANVAS = re.compile(r"(?P<name>[^\W_]+)(?:_LATE)?_(?P<id>\d+)_\d+_.+", re.IGNORECASE)


class NotGraded(Exception):
    """A file cannot be graded; the message says why."""


class Cell(NamedTuple):
    """What grading reads of a cell: "code" or "markdown", its text, its id where it has one, and what it has stored."""

    kind: str
    source: str
    id: str
    outputs: list = []


@dataclass(frozen=True)
class Student:
    """Who has handed in a file, as far as its place says.

    Args:
        id: what a platform or the name of a file or folder calls the student.
        name: the student's name, where a platform has written it; else empty.
    """

    id: str
    name: str = ""


def students_of(paths: Sequence[Path]) -> list[Student]:
    """Read from the places of files whose they are.

    Understood are downloads of nbgrader (`submitted/STUDENT/LESSON/lesson.ipynb`), Moodle (a folder for each student)
    and Canvas (the student's number in the name of the file). Else the name of the file says it; and where several
    files have the same name, that of the folder.

    Args:
        paths: all files of a batch.
    """
    often = Counter(path.name for path in paths)
    found = []
    for path in paths:
        folders = path.absolute().parts[:-1]
        if len(folders) > 2 and folders[-3] == "submitted":
            found.append(Student(folders[-2]))
        elif match := MOODLE.fullmatch(folders[-1]) or CANVAS.fullmatch(path.stem):
            found.append(Student(match["id"], match["name"]))
        else:
            found.append(Student(folders[-1] if often[path.name] > 1 else path.stem))
    return found


def read_cells(path: Path) -> list[Cell]:
    """Read the cells of a notebook; only what is needed here has to be sound, for hand-ins come from many tools.

    Raises:
        NotGraded: for a file that cannot be read or is no notebook.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise NotGraded(f"is larger than {LARGEST / 2**20:.0f} MB: ask for it without its outputs")
        cells = json.loads(path.read_text(encoding="utf-8-sig"))["cells"]
        return [
            Cell(cell["cell_type"], "".join(cell["source"]), str(cell.get("id", "")), list(cell.get("outputs") or []))
            for cell in cells
        ]
    except OSError as error:
        raise NotGraded(f"cannot be read: {error.strerror or error}") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NotGraded(f"is no notebook ({type(error).__name__}): expected a lesson as Jupyter saves it") from error


def lesson_of(cells: Sequence[Cell]) -> str:
    """The lesson ("03") that a notebook is, by its title, or else its exercises, or else the ids of its cells.

    Raises:
        NotGraded: where nothing in it says that it is a lesson.
    """
    titles = {lesson.title: lesson.stem[:2] for lesson in lessons()}
    numbers = {module.name.removeprefix("lesson") for module in pkgutil.iter_modules(checks.__path__)}
    headings = [match[1] for cell in cells for match in re.finditer(r"^# (.+?)\s*$", cell.source, re.MULTILINE)]
    evidence = (
        [titles[heading] for heading in headings if heading in titles],
        [number for cell in cells if cell.kind == "code" for number in NAME.findall(cell.source)],
        [cell.id[:2] for cell in cells if re.fullmatch(r"\d\d-\d{3}", cell.id)],
    )
    for found in evidence:
        known = Counter(lesson for lesson in found if lesson in numbers)
        if known:
            return known.most_common(1)[0][0]
    raise NotGraded("is none of the lessons: it has no lesson's title, exercises or cells")


def code_to_run(cells: Sequence[Cell]) -> list[str]:
    """The exercises' code: from their heading on, and what was moved above it. Lessons themselves take minutes."""
    begins = [n for n, cell in enumerate(cells) if cell.kind == "markdown" and HEADING.search(cell.source)]
    naming = [n for n, cell in enumerate(cells) if cell.kind == "code" and NAME.search(cell.source)]
    first = min(begins or naming, default=0)
    return [cell.source for n, cell in enumerate(cells) if cell.kind == "code" and (n >= first or n in naming)]
