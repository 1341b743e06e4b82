"""What a student has answered, kept in a file of their own, so that it outlives the notebook and the kernel."""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import pandas as pd

OFF = "off"
_while_off: list["Entry"] = []


@dataclass(frozen=True)
class Entry:
    """One answer that was judged.

    Args:
        name: of the exercise or quiz.
        right: whether it was.
        at: when, as ISO 8601 with the zone.
    """

    name: str
    right: bool
    at: str


def progress_file() -> Path | None:
    """The student's file: `TLKIT_PROGRESS`, else one in the platform's folder for the data of users.

    Returns:
        Its path; None where nothing is kept, because `TLKIT_PROGRESS` is "off" or tests are running.
    """
    from platformdirs import user_data_path

    said = os.environ.get("TLKIT_PROGRESS", OFF if "PYTEST_VERSION" in os.environ else "")
    if said == OFF:
        return None
    return Path(said).expanduser() if said else user_data_path("tlkit", appauthor=False) / "progress.jsonl"


def keep(name: str, right: bool) -> str:
    """Add a judged answer to the student's file.

    Args:
        name: of the exercise or quiz.
        right: whether the answer was.

    Returns:
        Nothing; or, where the file cannot be read or written, one sentence that says so.
    """
    entry, file = Entry(name, right, datetime.now().astimezone().isoformat(timespec="seconds")), progress_file()
    if file is None:
        _while_off.append(entry)
        return ""
    from filelock import FileLock

    from tlkit.checkpoints.files import write_atomically

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_name(file.name + ".lock")):
            lines = [json.dumps(asdict(one)) for one in (*_read(file), entry)]
            write_atomically(file, lambda part: part.write_text("\n".join([*lines, ""]), encoding="utf-8"))
    except (OSError, ValueError) as error:
        return f"This answer is not kept with your progress: {error}."
    return ""


def kept() -> tuple[Entry, ...]:
    """Every answer that was judged, in order.

    Raises:
        ValueError: where the student's file is not one; nothing is changed in it.
        OSError: where it cannot be read.
    """
    file = progress_file()
    return tuple(_while_off) if file is None else _read(file)


def progress(lesson: str | int | None = None) -> pd.DataFrame:
    """List what has been answered, in this notebook and before.

    Args:
        lesson: such as "04"; None for all.

    Returns:
        For one lesson a row for each of its quizzes and exercises: its name, how many answers were judged, and whether
        it is solved. For all a row for each lesson: how many are solved, of how many, and the date of the last answer.

    Raises:
        ValueError: for a lesson that has no exercises, and as `kept`.
        OSError: as `kept`.
    """
    from tlkit.classroom.exercises import tasks_of
    from tlkit.classroom.notebooks import lessons

    answers = pd.DataFrame([asdict(one) for one in kept()], columns=["name", "right", "at"])
    if lesson is not None:
        number = f"{lesson:0>2}"
        try:
            table = _of_tasks(tasks_of(number), answers)
        except ModuleNotFoundError:
            raise ValueError(f"lesson {lesson!r} has no exercises: expected a number such as '04'") from None
        return table.assign(solved=table.solved.map({True: "yes", False: "not yet"}))
    rows = []
    for found in lessons():
        part = _of_tasks(tasks := tasks_of(f"{found.number:02d}"), answers)
        last = answers[answers.name.isin(list(tasks))]["at"].max()
        row = {"lesson": found.title, "solved": int(part.solved.sum()), "of": len(part)}
        rows.append(row | {"last answer": "" if pd.isna(last) else last[:10]})
    return pd.DataFrame(rows)


def where_was_i() -> str:
    """Say in one sentence which lesson to go on with.

    Raises:
        ValueError: as `kept`.
        OSError: as `kept`.
    """
    from tlkit.classroom.notebooks import lessons

    answers, found = kept(), lessons()
    if not answers:
        return f"No answer is kept yet: begin with lesson {_named(found[0].title)}."
    last = answers[-1]
    number = int(last.name.removeprefix("quiz").removeprefix("ex")[:2])
    open_tasks = progress(number).query("solved != 'yes'").exercise.tolist()
    here = next(lesson for lesson in found if lesson.number == number)
    after = next((lesson for lesson in found if lesson.number > number), None)
    said = f"Your last answer was to {last.name}, on {last.at[:10]}."
    if open_tasks:
        return f"{said} In lesson {_named(here.title)} this is open: {', '.join(open_tasks)}."
    on = f"; go on with {_named(after.title)}." if after else ", the last one."
    return f"{said} Lesson {_named(here.title)} is done{on}"


def _named(title: str) -> str:
    """A lesson's number, and its name in brackets, for that may end with a question mark."""
    number, name = title.split(" · ", 1)
    return f"{number} ({name})"


def _of_tasks(tasks: Iterable[str], answers: pd.DataFrame) -> pd.DataFrame:
    given = answers.groupby("name").right.agg(["size", "any"])
    rows = [
        {"exercise": name, "answers": int(given["size"].get(name, 0)), "solved": bool(given["any"].get(name, False))}
        for name in tasks
    ]
    return pd.DataFrame(rows)


def _read(file: Path) -> tuple[Entry, ...]:
    if not file.exists():
        return ()
    entries = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            entry = Entry(**json.loads(line))
        except (ValueError, TypeError):
            entry = None
        if entry is None or not (isinstance(entry.name, str) and isinstance(entry.right, bool)):
            raise ValueError(
                f"line {number} of {file} is no answer: expected a name, right and at; mend or move the file"
            )
        entries.append(entry)
    return tuple(entries)
