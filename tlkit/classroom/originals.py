"""Bring a lesson back as it was; what a student has made of it is kept under another name."""

import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path

from tlkit.classroom.exercises import Words
from tlkit.classroom.notebooks import COPIES, FOLDER, KERNEL, number_of, sources

RELOAD = (
    "If it is open, choose *File → Reload Notebook from Disk*; if JupyterLab asks first, *Revert*, not *Overwrite*."
)


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
    if _cells(file.read_bytes()) == _cells(original):
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
        return unanswered((FOLDER / f"{stem}.ipynb").read_text(encoding="utf-8")).encode()
    command = ["git", "-C", str(FOLDER), "show", f"HEAD:./{stem}.ipynb"]
    try:
        return subprocess.run(command, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        said = f"{folder} holds the originals themselves, and there is no other copy of them here"
        raise ValueError(f"{said}; unpack the lessons anew, and work in {COPIES.name}") from error


def unanswered(text: str) -> str:
    """Take from an executed lesson what it has printed, and what ties it to a script.

    Args:
        text: a notebook, as JSON.

    Returns:
        The same notebook as nobody has run it. It names this machine's Python as JupyterLab would: where it is opened
        with the same, opening it changes nothing; elsewhere JupyterLab notes the other one.
    """
    notebook = json.loads(text)
    notebook["metadata"] = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    with suppress(ImportError):  # without JupyterLab nobody opens it here
        from ipykernel.ipkernel import IPythonKernel
        from jupyter_client.kernelspec import KernelSpecManager

        name = KernelSpecManager().get_kernel_spec(KERNEL["name"]).display_name
        notebook["metadata"]["kernelspec"] = KERNEL | {"display_name": name}
        notebook["metadata"]["language_info"] = IPythonKernel.language_info
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
        cell["metadata"].pop("execution", None)
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _cells(text: bytes) -> object:
    """What a notebook is to its reader; of a file that is none, all of it."""
    try:
        return json.loads(text)["cells"]
    except (ValueError, LookupError, TypeError):
        return text


def _free(folder: Path, stem: str) -> Path:
    """A name that no file has yet."""
    file, number = folder / f"{stem}.ipynb", 1
    while file.exists():
        number += 1
        file = folder / f"{stem}-{number}.ipynb"
    return file
