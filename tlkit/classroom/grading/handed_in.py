"""Inside the process of one handed-in notebook: its cells are run, and what the real `check` says is told outside.

`grading` starts this, and reads the messages. It imports little, because it starts anew for each notebook.
"""

import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from tlkit.classroom.grading.confinement import confine_here


class Forgetful(dict):
    """A place for what cells print, in which nothing stays: IPython would keep all of it in memory."""

    def __missing__(self, key: object) -> list:
        return []


class TookTooLong(BaseException):
    """A cell has had its time; no exception that a student's code catches by `except Exception`."""


def run_cells() -> None:
    """Run a notebook's cells in this process, as `grade` starts it: the job comes by stdin, messages go to stdout.

    The process goes behind its walls before anything else. The judges are loaded first and then taken out of
    `sys.modules`: the notebook imports copies of its own, in which `check` asks the judges out here.
    """
    job = json.loads(sys.stdin.read())
    confine_here(**job["apart"])
    os.chdir("notebooks")
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    messages = os.fdopen(os.dup(1), "w", encoding="utf-8")

    def tell(**message) -> None:
        messages.write(f"\n{job['seal']} {json.dumps(message)}\n")  # on a line of its own, whatever was written before
        messages.flush()

    judging = importlib.import_module("tlkit.classroom.exercises")
    judging.tasks_of(job["lesson"])
    for name in [name for name in sys.modules if name.startswith("tlkit.classroom")]:
        del sys.modules[name]
    exercises = importlib.import_module("tlkit.classroom.exercises")

    def check(name: str, answer: object) -> object:
        verdict = judging.check(name, answer)
        if verdict.passed and job["variants"] is not None:
            verdict = judging.check_anew(name, answer, job["variants"])
        tell(name=verdict.name, passed=verdict.passed, message=verdict.message)
        return exercises.Verdict(verdict.name, verdict.passed, verdict.message)

    exercises.check = check
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    shell.history_manager.outputs = Forgetful()
    shell.run_cell(job["before"]).raise_error()
    tell(ready=True)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    for number, source in enumerate(job["cells"]):
        with _at_most(job["cell_seconds"]):
            done = shell.run_cell(source)
        error = done.error_before_exec or done.error_in_exec
        tell(cell=number, error=_told(error))
    os._exit(0)  # threads that a notebook has left behind do not hold it up


def _told(error: BaseException | None) -> str:
    """What a cell stopped with, for its student; the name of our own exception says nothing to one."""
    if error is None or isinstance(error, TookTooLong):
        return str(error or "")
    return traceback.format_exception_only(error)[-1].strip()


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Stop what is running after a time, where the system has an alarm, so that the next exercise has its turn."""

    def stop(*_: object) -> None:
        raise TookTooLong(f"no result within {seconds:g} s: does a loop go on without end?")

    if not hasattr(signal, "setitimer"):
        yield
        return
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
