"""Grading of handed-in lessons: their exercises are run anew, and judged by judges that the notebook cannot name.

Grading runs the students' code, with the rights of whoever grades. Each notebook runs in a process of its own, in a
scratch folder with a copy of tlkit, with a reduced environment and a time limit. That keeps accidents apart; it is no
sandbox, so grade in a container or from an account of its own.

A verdict counts only if it comes from the real `check`. What a notebook has stored or prints, a `check` of its own,
and changes to `tlkit.classroom.exercises` or to its judges make nothing right. Code that attacks the running
interpreter itself (a judge's stack frames, say, or the torch that it computes with) is not kept out.
"""

import json
import os
import pkgutil
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import NamedTuple

import pandas as pd

import tlkit
from tlkit.classroom import checks
from tlkit.classroom.exercises import Exercise, tasks_of
from tlkit.classroom.experiments import experiments_of
from tlkit.classroom.lab_records import judged_again
from tlkit.classroom.notebooks import EXERCISES_IMPORT, lessons
from tlkit.jobs import Job

NOTEBOOK_SECONDS = 600
NEEDED = ("tlkit", "data")  # copied for each notebook, so that no notebook changes them for the next
KEPT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "TLKIT_DEVICE")
KEPT += ("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT")  # without these no program starts on Windows
NAME = re.compile(r"\bex(\d\d)_\d+\b")
HEADING = re.compile(r"^## Exercises\b", re.MULTILINE)


class NotGraded(Exception):
    """A file cannot be graded; the message says why."""


class Cell(NamedTuple):
    """What grading reads of a cell: "code" or "markdown", its text, its id where it has one, and what it has stored."""

    kind: str
    source: str
    id: str
    outputs: list = []


@dataclass(frozen=True)
class Mark:
    """Whether one exercise is right, and if it is not, why."""

    exercise: str
    right: bool
    reason: str = ""


def grade_all(paths: Iterable[Path], *, seconds: float = NOTEBOOK_SECONDS) -> pd.DataFrame:
    """Grade handed-in lessons, one after the other; this runs the students' code.

    A file that cannot be graded is one row without an exercise, whose reason says why; the others go on.

    Args:
        paths: notebooks (.ipynb), whatever their names are.
        seconds: what the exercises of one notebook may take together.

    Returns:
        Columns notebook, exercise, right (True, False, or missing where a file was not graded) and reason (empty
        where the exercise is right), with a row for every exercise that the notebook's lesson has.
    """
    rows, paths = [], [Path(path) for path in paths]
    with Job(len(paths), "notebook") as job:
        for path in paths:
            try:
                with job.part(path.name):
                    marks = [vars(mark) for mark in grade(path, seconds=seconds)]
            except NotGraded as error:
                marks = [{"exercise": "", "right": None, "reason": str(error)}]
            rows += [{"notebook": str(path)} | mark for mark in marks]
    return pd.DataFrame(rows, columns=["notebook", "exercise", "right", "reason"]).astype({"right": "boolean"})


def grade(path: Path, *, seconds: float = NOTEBOOK_SECONDS) -> list[Mark]:
    """Grade one handed-in lesson; this runs the student's code.

    The cells from the heading "Exercises" on are run, and those before it that name an exercise. Where an exercise is
    checked more than once, the last verdict counts.

    Args:
        path: a notebook (.ipynb).
        seconds: what its exercises may take together.

    Returns:
        A mark for every exercise that the lesson has, those that are missing in the notebook included, and one for its
        experiment where a decision is stored: its method is judged again, from the runs as they were logged.

    Raises:
        NotGraded: for a file that is no notebook of a lesson, or where no notebook can be run here.
    """
    cells = _read(path)
    lesson = _lesson_of(cells)
    expected = [task.name for task in tasks_of(lesson).values() if isinstance(task, Exercise)]
    code = _code_to_run(cells)
    try:
        messages, ending = _run_apart(lesson, code, seconds)
    except OSError as error:  # a full disk, no more processes
        raise NotGraded(f"no notebook can be run here: {error}") from error
    verdicts = {message["name"]: message for message in messages if "name" in message}
    errors = {message["cell"]: message["error"] for message in messages if "cell" in message}
    marks = []
    for name in expected:
        if name in verdicts:
            passed = verdicts[name]["passed"]
            marks.append(Mark(name, passed, "" if passed else verdicts[name]["message"]))
        else:
            marks.append(Mark(name, False, _why_without_verdict(name, code, errors, ending)))
    decided = judged_again(output for cell in cells for output in cell.outputs)
    return marks + [Mark(name, *found) for name, found in decided.items() if name in experiments_of(lesson)]


def _read(path: Path) -> list[Cell]:
    """The cells of a notebook; only what is read here need be sound, for hand-ins come from many tools."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8-sig"))["cells"]
        return [
            Cell(cell["cell_type"], "".join(cell["source"]), str(cell.get("id", "")), list(cell.get("outputs") or []))
            for cell in cells
        ]
    except OSError as error:
        raise NotGraded(f"cannot be read: {error.strerror or error}") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NotGraded(f"is no notebook ({type(error).__name__}): expected a lesson as Jupyter saves it") from error


def _lesson_of(cells: list[Cell]) -> str:
    """The lesson ("03") that a notebook is, by its title, or else its exercises, or else the ids of its cells."""
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


def _code_to_run(cells: list[Cell]) -> list[str]:
    """The exercises' code: from their heading on, and what was moved above it. Lessons themselves take minutes."""
    begins = [n for n, cell in enumerate(cells) if cell.kind == "markdown" and HEADING.search(cell.source)]
    naming = [n for n, cell in enumerate(cells) if cell.kind == "code" and NAME.search(cell.source)]
    first = min(begins or naming, default=0)
    return [cell.source for n, cell in enumerate(cells) if cell.kind == "code" and (n >= first or n in naming)]


def _why_without_verdict(name: str, code: list[str], errors: dict[int, str], ending: str) -> str:
    asking = [number for number, source in enumerate(code) if re.search(rf"\b{name}\b", source)]
    if not asking:
        return "missing: no cell checks it"
    if asking[-1] not in errors:
        return f"not reached: {ending}"
    if error := errors[asking[-1]]:
        return f"its cell stopped with {error}"
    return "its cell ran without asking tlkit's `check`: was `check` redefined, or not called?"


def _run_apart(lesson: str, code: list[str], seconds: float) -> tuple[list[dict], str]:
    """What a notebook's process said, and how it ended. Raises NotGraded where it could not even begin."""
    seal = secrets.token_hex(16)
    job = {"lesson": lesson, "cells": code, "before": EXERCISES_IMPORT, "seal": seal}
    program = "from tlkit.classroom.handed_in import run_cells; run_cells()"
    with TemporaryDirectory(prefix="grading-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder).resolve()
        root = Path(tlkit.__file__).resolve().parent.parent
        for needed in NEEDED:
            if (root / needed).is_dir():
                shutil.copytree(root / needed, scratch / needed)
        (scratch / "notebooks").mkdir()
        with TemporaryFile() as said, TemporaryFile() as complaints:
            process = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=complaints,
                cwd=scratch / "notebooks",
                env=_reduced_environment(scratch),
                start_new_session=True,
            )
            try:
                process.communicate(json.dumps(job).encode(), timeout=seconds)
                ending = f"Python ended before (exit code {process.returncode})"
            except subprocess.TimeoutExpired:
                ending = f"the notebook took more than {seconds:g} s"
            finally:
                _end(process)
            said.seek(0)
            complaints.seek(0)
            messages = _sealed(said.read().decode(errors="replace"), seal)
            if not messages:
                reason = complaints.read().decode(errors="replace").strip().splitlines()[-1:] or [ending]
                raise NotGraded(f"no notebook can be run here: {reason[0]}")
    return messages, ending


def _reduced_environment(scratch: Path) -> dict[str, str]:
    """Nobody's tokens, caches or home: only what starts Python, and finds the copy of tlkit before any other."""
    places = [str(scratch), *(place for place in sys.path if place)]
    own = dict.fromkeys(("HOME", "USERPROFILE", "IPYTHONDIR", "MPLCONFIGDIR", "TMPDIR", "TEMP", "TMP"), str(scratch))
    own |= {"PYTHONPATH": os.pathsep.join(places), "MPLBACKEND": "agg", "HF_HUB_OFFLINE": "1"}
    own |= {"TLKIT_PROGRESS": "off"}
    return {name: os.environ[name] for name in KEPT if name in os.environ} | own


def _end(process: subprocess.Popen) -> None:
    """End a notebook's process, and those that it has started."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):  # all of them have ended
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _sealed(text: str, seal: str) -> list[dict]:
    """The messages that carry the seal and are whole; whatever else found its way there is not ours."""
    return [json.loads(found) for found in re.findall(rf"^{seal} (.+)\n", text, re.MULTILINE)]
