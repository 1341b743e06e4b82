"""Grading of handed-in lessons: their exercises are run anew, and judged by judges that the notebook cannot name.

Grading runs the students' code, with the rights of whoever grades. `confinement` says what keeps it apart, and what is
missing on a system. Where walls are missing, grade in a container or from an account of its own.

A verdict counts only if it comes from the real `check`. What a notebook has stored or prints, a `check` of its own,
and changes to `tlkit.classroom.exercises` or to its judges make nothing right. Code that attacks the running
interpreter itself (a judge's stack frames, say, or the torch that it computes with) is not kept out.
"""

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

import tlkit
from tlkit.classroom.exercises import Exercise, tasks_of
from tlkit.classroom.grading.confinement import Limits, run_confined, walls_here
from tlkit.classroom.grading.submissions import NotGraded, code_to_run, lesson_of, read_cells, students_of
from tlkit.classroom.lab.experiments import experiments_of
from tlkit.classroom.lab.records import judged_again
from tlkit.classroom.notebooks import EXERCISES_IMPORT
from tlkit.jobs import Job

NEEDED = ("tlkit", "data")  # copied for each notebook, so that no notebook changes them for the next
WITHIN = Limits()
COLUMNS = ("notebook", "student", "name", "lesson", "exercise", "right", "reason", "seconds")


@dataclass(frozen=True)
class Mark:
    """Whether one exercise is right, and if it is not, why."""

    exercise: str
    right: bool
    reason: str = ""


@dataclass(frozen=True)
class Graded:
    """The lesson ("03") that a notebook is, and a mark for every exercise of it."""

    lesson: str
    marks: tuple[Mark, ...]


def grade_all(
    paths: Iterable[Path],
    *,
    lesson: str | None = None,
    variants: int | None = None,
    limits: Limits = WITHIN,
    jobs: int = 1,
) -> pd.DataFrame:
    """Grade handed-in lessons; this runs the students' code.

    A file that cannot be graded is one row without an exercise, whose reason says why; the others go on.

    Args:
        paths: notebooks (.ipynb), whatever their names are.
        lesson: the one that was asked for ("03"); another one is not graded. None: every file says which it is.
        variants: a seed; right answers are tried again on cases that are drawn by it.
        limits: what each notebook may take.
        jobs: notebooks at a time.

    Returns:
        Columns notebook, student, name (as `students_of` reads them), lesson, exercise, right (True, False, or missing
        where a file was not graded), reason (empty where the exercise is right) and seconds (of the whole notebook),
        with a row for every exercise that the notebook's lesson has, in the order of the paths.
    """
    paths = [Path(path) for path in paths]
    threads = max(1, (os.cpu_count() or 1) // jobs) if jobs > 1 else None

    def one(path: Path) -> list[dict]:
        began, said = time.monotonic(), ""
        try:
            with job.part(path.name):
                graded = grade(path, lesson=lesson, variants=variants, limits=limits, threads=threads)
            said, rows = graded.lesson, [vars(mark) for mark in graded.marks]
        except NotGraded as error:
            rows = [{"exercise": "", "right": None, "reason": str(error)}]
        except Exception as error:  # of one file's making, and it must not cost the others their marks
            rows = [{"exercise": "", "right": None, "reason": f"grading it failed: {type(error).__name__}: {error}"}]
        seconds = round(time.monotonic() - began, 2)
        return [{"lesson": said} | row | {"seconds": seconds} for row in rows]

    with Job(len(paths), "notebook") as job, ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(one, paths))
    rows = [
        {"notebook": str(path), "student": student.id, "name": student.name} | row
        for path, student, of in zip(paths, students_of(paths), found, strict=True)
        for row in of
    ]
    table = pd.DataFrame(rows, columns=list(COLUMNS)).astype({"right": "boolean"})
    texts = ("notebook", "student", "name", "reason")
    return table.assign(**{column: table[column].map(_writable) for column in texts})


def grade(
    path: Path,
    *,
    lesson: str | None = None,
    variants: int | None = None,
    limits: Limits = WITHIN,
    threads: int | None = None,
) -> Graded:
    """Grade one handed-in lesson; this runs the student's code.

    The cells from the heading "Exercises" on are run, and those before it that name an exercise. Where an exercise is
    checked more than once, the last verdict counts.

    Args:
        path: a notebook (.ipynb).
        lesson: as in `grade_all`.
        variants: as in `grade_all`.
        limits: what it may take.
        threads: that torch computes on (None: all cores).

    Returns:
        A mark for every exercise that the lesson has, those that are missing in the notebook included, and one for its
        experiment where a decision is stored: its method is judged again, from the runs as they were logged.

    Raises:
        NotGraded: for a file that is no notebook of a lesson, or of another one, or where no notebook can be run here.
    """
    cells = read_cells(path)
    found = lesson_of(cells)
    if lesson not in (None, found):
        raise NotGraded(f"is lesson {found}, and lesson {lesson} was asked for")
    expected = [task.name for task in tasks_of(found).values() if isinstance(task, Exercise)]
    code = code_to_run(cells)
    try:
        messages, ending = _run_apart({"lesson": found, "cells": code, "variants": variants}, limits, threads)
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
    marks += [Mark(name, *judged) for name, judged in decided.items() if name in experiments_of(found)]
    return Graded(found, tuple(marks))


def _why_without_verdict(name: str, code: list[str], errors: dict[int, str], ending: str) -> str:
    asking = [number for number, source in enumerate(code) if re.search(rf"\b{name}\b", source)]
    if not asking:
        return "missing: no cell checks it"
    if asking[-1] not in errors:
        return f"not reached: {ending}"
    if error := errors[asking[-1]]:
        return f"its cell stopped with {error}"
    return "its cell ran without asking tlkit's `check`: was `check` redefined, or not called?"


def _run_apart(job: dict, limits: Limits, threads: int | None) -> tuple[list[dict], str]:
    """What a notebook's process said, and how it ended. Raises NotGraded where it could not even begin."""
    seal = secrets.token_hex(16)
    program = "from tlkit.classroom.grading.handed_in import run_cells; run_cells()"
    with TemporaryDirectory(prefix="grading-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder).resolve()
        root = Path(tlkit.__file__).resolve().parent.parent
        for needed in NEEDED:
            if (root / needed).is_dir():
                shutil.copytree(root / needed, scratch / needed)
        (scratch / "notebooks").mkdir()
        apart = {"scratch": str(scratch), "walls": walls_here(), "memory": limits.memory}
        given = {"before": EXERCISES_IMPORT, "seal": seal, "apart": apart, "cell_seconds": limits.cell_seconds} | job
        ended = run_confined(program, json.dumps(given).encode(), scratch, limits, threads=threads)
    messages = _sealed(ended.said, seal)
    if not messages:
        reason = ended.complaints.strip().splitlines()[-1:] or [ended.how]
        raise NotGraded(f"no notebook can be run here: {reason[0]}")
    return messages, ended.how


def _sealed(text: str, seal: str) -> list[dict]:
    """The messages that carry the seal and are whole; whatever else found its way there is not ours."""
    return [json.loads(found) for found in re.findall(rf"^{seal} (.+)\n", text, re.MULTILINE)]


def _writable(text: str) -> str:
    """What a file can hold on one line, of a text that may have come from a student."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
