"""Bring a lesson back as it was; what a student has made of it is kept under another name."""

import os
import subprocess
from pathlib import Path

from tlkit.classroom.exercises import Words
from tlkit.classroom.notebooks import COPIES, FOLDER, number_of, sources

RELOAD = "If it is open, choose *File → Reload Notebook from Disk*."


def restore(lesson: str | int, folder: Path | str | None = None, *, beside: bool = False) -> Words:
    """Write the original of a lesson over a student's file, or beside it.

    Args:
        lesson: such as "05" or 5.
        folder: where the student's file is; default: this folder; in the folder of the course, `my_lessons`.
        beside: leave the student's file as it is, and write the original under another name.

    Returns:
        A sentence that says what was written and where the student's own is, or why nothing was done.
    """
    try:
        return Words(_restore(lesson, _folder_of(folder), beside))
    except (ValueError, OSError) as error:
        return Words(f"Nothing was changed: {error}.")


def _restore(lesson: str | int, folder: Path, beside: bool) -> str:
    number = number_of(lesson)
    stem = next(source.stem for source in sources() if source.stem[:2] == number)
    original, file = _original(stem, folder), folder / f"{stem}.ipynb"
    if not file.exists():
        file.write_bytes(original)
        return f"{file.name} was not in {folder}; the original is there now."
    if file.read_bytes() == original:
        return f"{file.name} is as it was: there is nothing to bring back."
    if beside:
        new = _free(folder, f"{stem}.original")
        new.write_bytes(original)
        return f"The original is in {new.name}, beside yours."
    mine = _free(folder, f"{stem}.mine")
    os.replace(file, mine)  # first of all, so that nothing of the student's can be lost
    file.write_bytes(original)
    return f"{file.name} is the original again, and yours, as you last saved it, is {mine.name}. {RELOAD}"


def _folder_of(folder: Path | str | None) -> Path:
    """The folder of a student's lessons."""
    if folder is not None:
        if not Path(folder).is_dir():
            raise ValueError(f"{folder} is no folder")
        return Path(folder)
    here = Path.cwd()
    if any(here.glob("[0-9][0-9]_*.ipynb")) or not here.is_relative_to(COPIES.parent):
        return here  # on a hub, the folder of the course is nobody's own
    COPIES.mkdir(exist_ok=True)
    return COPIES


def _original(stem: str, folder: Path) -> bytes:
    """The lesson as it was handed out; where the student's file lies among the originals, as git has it."""
    if folder.resolve() != FOLDER.resolve():
        return (FOLDER / f"{stem}.ipynb").read_bytes()
    command = ["git", "-C", str(FOLDER), "show", f"HEAD:./{stem}.ipynb"]
    try:
        return subprocess.run(command, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        said = f"{folder} holds the originals themselves, and there is no other copy of them here"
        raise ValueError(f"{said}; unpack the lessons anew, and work in {COPIES.name}") from error


def _free(folder: Path, stem: str) -> Path:
    """A name that no file has yet."""
    file, number = folder / f"{stem}.ipynb", 1
    while file.exists():
        number += 1
        file = folder / f"{stem}-{number}.ipynb"
    return file
