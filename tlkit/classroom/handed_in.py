"""Inside the process of one handed-in notebook: its cells are run, and what the real `check` says is told outside.

`grading` starts this, and reads the messages. It imports little, because it starts anew for each notebook.
"""

import importlib
import json
import os
import sys
import traceback

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config


def run_cells() -> None:
    """Run a notebook's cells in this process, as `grade` starts it: the job comes by stdin, messages go to stdout.

    The judges are loaded first and then taken out of `sys.modules`: the notebook imports copies of its own, in which
    `check` asks the judges out here.
    """
    job = json.loads(sys.stdin.read())
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
        tell(name=verdict.name, passed=verdict.passed, message=verdict.message)
        return exercises.Verdict(verdict.name, verdict.passed, verdict.message)

    exercises.check = check
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    shell.run_cell(job["before"]).raise_error()
    tell(ready=True)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    for number, source in enumerate(job["cells"]):
        done = shell.run_cell(source)
        error = done.error_before_exec or done.error_in_exec
        tell(cell=number, error="" if error is None else traceback.format_exception_only(error)[-1].strip())
    os._exit(0)  # threads that a notebook has left behind do not hold it up
