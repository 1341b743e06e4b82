"""Run the exercises of handed-in lessons anew: `python -m course grade FILES… --output marks.csv`.

Only the cells from a notebook's heading "Exercises" on are run, each file in a fresh process. What the file has stored
or prints counts for nothing: the verdict is that of our `check` on the answer, written to a pipe that the notebook's
code is not told of.

The limit of this: answer and verdict are in one process, so code that looks for the pipe can forge a verdict. Read a
notebook that surprises you. A container keeps the code of students away from your files and from the network; without
one it runs with your rights, and is held back only by limits of time and, on Linux, of memory.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import nbformat

import course
from course.exercises import Exercise, Verdict, check, tasks_of

FOLDER = Path(__file__).resolve().parents[1]  # of the lessons: a fresh process need not load what runs them
IMAGE = "tlkit"  # of the Dockerfile at the top of the repository
CHECKED = re.compile(r"""\bcheck\(\s*["'](ex(\d\d|A\d)_\d+)["']""")


@dataclass(frozen=True)
class Mark:
    """What came of one exercise of one file; a file that cannot be graded is one mark without an exercise."""

    file: str
    exercise: str
    passed: bool
    message: str


@dataclass(frozen=True)
class Limits:
    """What one notebook may use: seconds for each cell and for all of them, and gigabytes of memory."""

    cell: int = 60
    file: int = 300
    memory: int = 8


class OutOfTime(BaseException):
    """A cell ran past its limit. An answer that catches every `Exception` does not catch it."""


def container() -> str | None:
    """The program that runs containers here and has the workbook's image; None where there is none."""
    for name in filter(shutil.which, ("docker", "podman")):
        if subprocess.run([name, "image", "inspect", IMAGE], capture_output=True).returncode == 0:
            return name
    return None


def how(program: str | None, limits: Limits) -> str:
    """Say in a sentence what the code of students can reach."""
    within = f"at most {limits.cell} s a cell and {limits.file} s a file"
    if program:
        return (
            f"Each file runs in a container ({program}, image {IMAGE}) without network, {within}, {limits.memory} GB."
        )
    memory = f"{limits.memory} GB" if sys.platform == "linux" else "no limit of memory on this system"
    return (
        f"No container with the image {IMAGE} here: each file runs in a process with your rights, {within}, {memory}."
    )


def grade(files: list[Path], program: str | None, limits: Limits, jobs: int = 1) -> list[Mark]:
    """Run the exercises of files, and judge their answers.

    Args:
        files: as they were handed in.
        program: what runs containers, from `container`; None for a process.
        limits: for each file.
        jobs: files at a time.

    Returns:
        One mark for each exercise of each file's lesson, or one with the reason where a file cannot be graded.
    """
    with ThreadPoolExecutor(jobs) as pool:
        return [mark for marks in pool.map(lambda file: _grade_one(file, program, limits), files) for mark in marks]


def handed_in_cells(file: Path) -> list[str]:
    """The code from a notebook's heading "Exercises" on, or from its first answer where the heading is gone.

    Raises:
        ValueError: where there is no such cell.
        OSError: where the file cannot be read; other errors of nbformat where it is no notebook.
    """
    cells = nbformat.read(file, as_version=4).cells
    headings = [n for n, cell in enumerate(cells) if cell.source.startswith("## Exercises")]
    answers = [n for n, cell in enumerate(cells) if cell.cell_type == "code" and CHECKED.search(cell.source)]
    begins = [*headings[-1:], *answers[:1]]
    if not answers or begins[0] > answers[-1]:
        raise ValueError('no exercises in it: expected cells of a lesson that call course.check("ex…")')
    return [cell.source for cell in cells[begins[0] :] if cell.cell_type == "code"]


def _grade_one(file: Path, program: str | None, limits: Limits) -> list[Mark]:
    try:
        cells = handed_in_cells(file)
        names = dict(CHECKED.findall("\n".join(cells)))
        tasks = [task.name for task in tasks_of(next(iter(names.values()))).values() if isinstance(task, Exercise)]
        said, ended = _run(cells, program, limits)
    except Exception as error:  # whatever is wrong with one file, the others are graded
        return [Mark(str(file), "", False, f"cannot be graded: {type(error).__name__}: {' '.join(str(error).split())}")]
    without = {name: ended if name in names else "there is no cell with this exercise" for name in tasks}
    return [Mark(str(file), name, *said.get(name, (False, without[name]))) for name in tasks]


def _run(cells: list[str], program: str | None, limits: Limits) -> tuple[dict[str, tuple[bool, str]], str]:
    """Run cells in a container or a process; the verdicts by exercise, and what to say of those without one."""
    work = json.dumps({"cells": cells, "seconds": limits.cell, "gigabytes": None if program else limits.memory})
    environment, command, patience = dict(os.environ), [sys.executable], limits.file
    if program:  # the container ends itself: to end the program that started it would not
        command = [program, "run", "--rm", "--interactive", "--init", "--network=none", "--read-only", "--tmpfs=/tmp"]
        command += ["--workdir=/tmp", "--env=HOME=/tmp", "--env=PYTHONPATH=/srv/course/notebooks", "--cap-drop=ALL"]
        command += ["--pids-limit=256", f"--memory={limits.memory}g", IMAGE, "timeout", f"{limits.file}", "python"]
        patience += 60
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        if not program:  # nothing of yours, such as a key, is in its environment
            kept = ("PATH", "SYSTEMROOT", "TEMP", "TMP", "LANG")
            environment = {name: os.environ[name] for name in kept if name in os.environ}
            environment |= {"HOME": scratch, "PYTHONPATH": str(FOLDER), "PYTHONUTF8": "1", "HF_HUB_OFFLINE": "1"}
        command += ["-m", "course.grade"]
        try:
            run = subprocess.run(
                command, cwd=scratch, env=environment, input=work.encode(), capture_output=True, timeout=patience
            )
            output, last = run.stdout, (run.stderr.decode().strip().splitlines() or ["without a word"])[-1]
            ended = f"not reached: the process ended with code {run.returncode}, {last}"
            ended = ended if run.returncode else "its answer was not handed to course.check"
        except subprocess.TimeoutExpired as late:
            output, ended = late.stdout or b"", f"not reached: the exercises ran longer than {limits.file} s"
    rows = [json.loads(line) for line in output.decode().splitlines()]
    return {name: (passed, message) for name, passed, message in rows}, ended


def _run_cells() -> None:
    """In the fresh process: run the cells that stand in the standard input, and write a line for each verdict."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    work = json.load(sys.stdin)
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDWR)
    if work["gigabytes"] and sys.platform == "linux":
        import resource  # noqa: TID251

        resource.setrlimit(resource.RLIMIT_AS, (work["gigabytes"] * 10**9,) * 2)

    def tell(name: str, passed: bool, message: str) -> None:
        told.add(name)
        print(json.dumps([name, passed, message]), file=pipe, flush=True)

    def checked(name: object, answer: object) -> Verdict:
        verdict = check(name, answer)
        tell(str(name), verdict.passed, verdict.message)
        return verdict

    def stop(*_: object) -> None:
        raise OutOfTime(f"it ran longer than {work['seconds']} s")

    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    for standard in (0, 1, 2):  # what the notebook prints is nobody's reading
        os.dup2(nowhere, standard)
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, stop)  # noqa: TID251
    for source in work["cells"]:
        told: set[str] = set()
        course.check = course.exercises.check = checked  # also where a cell before has put something else there
        _ring_after(work["seconds"])
        result = shell.run_cell(source, store_history=False)
        _ring_after(0)
        error = result.error_before_exec or result.error_in_exec
        for name, _ in CHECKED.findall(source):
            if error is not None and name not in told:
                tell(name, False, f"its cell stopped with {type(error).__name__}: {error}")
    os._exit(0)  # threads that the notebook started do not keep the process


def _ring_after(seconds: int) -> None:
    """Set the alarm that stops a cell; 0 takes it back. On Windows, which has none, only the file's limit holds."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds, 1)  # noqa: TID251


if __name__ == "__main__":
    _run_cells()
