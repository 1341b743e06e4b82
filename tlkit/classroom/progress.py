"""What a student has answered and guessed, kept in a file of their own: it outlives the notebook and the kernel."""

import json
import math
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path

import pandas as pd

OFF = "off"


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


@dataclass(frozen=True)
class Guess:
    """What was expected before a result, or after it: their order in the file says which.

    Args:
        name: of the prediction.
        guess: a number, or the name of a choice.
        at: as in `Entry`.
    """

    name: str
    guess: float | str
    at: str


@dataclass(frozen=True)
class Result:
    """The result that a prediction was about, when it was shown.

    Args:
        name: of the prediction.
        result: a number, or the name of a choice.
        at: as in `Entry`.
    """

    name: str
    result: float | str
    at: str


@dataclass(frozen=True)
class Logged:
    """A line of a lab notebook: a run, or a run that is struck out.

    Args:
        name: of the experiment.
        run: what `lab` wrote.
        at: as in `Entry`.
    """

    name: str
    run: dict
    at: str


Line = Entry | Guess | Result | Logged
_KINDS = {frozenset(field.name for field in fields(kind)): kind for kind in (Entry, Guess, Result, Logged)}
_while_off: list[Line] = []


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
    return _add(Entry(name, right, _now()), "answer")


def keep_guess(name: str, guess: float | str) -> str:
    """Add a guess to the student's file, unless it is the last one that was kept for this prediction.

    Args:
        name: of the prediction.
        guess: a number, or the name of a choice.

    Returns:
        As `keep`.
    """
    return _add(Guess(name, guess, _now()), "guess")


def keep_result(name: str, result: float | str) -> str:
    """Note in the student's file that a result was shown, unless the last one noted was the same.

    Args:
        name: of the prediction.
        result: a number, or the name of a choice.

    Returns:
        As `keep`.
    """
    return _add(Result(name, result, _now()), "result")


def keep_run(name: str, run: dict) -> str:
    """Add a line of a lab notebook to the student's file.

    Args:
        name: of the experiment.
        run: what is to be kept, as JSON knows it.

    Returns:
        As `keep`.
    """
    return _add(Logged(name, run, _now()), "run")


def kept() -> tuple[Entry, ...]:
    """Every answer that was judged, in order.

    Raises:
        ValueError: where the student's file is not one; nothing is changed in it.
        OSError: where it cannot be read.
    """
    return tuple(line for line in _lines() if isinstance(line, Entry))


def kept_guesses() -> tuple[Guess | Result, ...]:
    """Every guess, and every result that was shown, in order.

    Raises:
        ValueError: as `kept`.
        OSError: as `kept`.
    """
    return tuple(line for line in _lines() if isinstance(line, Guess | Result))


def kept_runs(name: str) -> tuple[dict, ...]:
    """Every line of an experiment's lab notebook, in order.

    Args:
        name: of the experiment.

    Raises:
        ValueError: as `kept`.
        OSError: as `kept`.
    """
    return tuple(line.run for line in _lines() if isinstance(line, Logged) and line.name == name)


def progress(lesson: str | int | None = None) -> pd.DataFrame:
    """List what has been answered, in this notebook and before.

    Args:
        lesson: such as "04"; None for all.

    Returns:
        For one lesson a row for each of its quizzes, exercises and experiments: its name, how many answers were judged,
        and whether it is solved. For all a row for each lesson: how many are solved, of how many, and the date of the
        last answer.

    Raises:
        ValueError: for a lesson that has no exercises, and as `kept`.
        OSError: as `kept`.
    """
    from tlkit.classroom.notebooks import lessons

    answers = pd.DataFrame([asdict(one) for one in kept()], columns=["name", "right", "at"])
    if lesson is not None:
        number = f"{lesson:0>2}"
        try:
            table = _of_tasks(_tasks(number), answers)
        except ModuleNotFoundError:
            raise ValueError(f"lesson {lesson!r} has no exercises: expected a number such as '04'") from None
        return table.assign(solved=table.solved.map({True: "yes", False: "not yet"}))
    rows = []
    for found in lessons():
        part = _of_tasks(tasks := _tasks(f"{found.number:02d}"), answers)
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
    number = int(re.search(r"\d\d", last.name)[0])
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


def _tasks(lesson: str) -> list[str]:
    """The names of all that is judged in a lesson ("05")."""
    from tlkit.classroom.exercises import tasks_of
    from tlkit.classroom.lab.experiments import experiments_of

    return [*tasks_of(lesson), *experiments_of(lesson)]


def _of_tasks(tasks: Iterable[str], answers: pd.DataFrame) -> pd.DataFrame:
    given = answers.groupby("name").right.agg(["size", "any"])
    rows = [
        {"exercise": name, "answers": int(given["size"].get(name, 0)), "solved": bool(given["any"].get(name, False))}
        for name in tasks
    ]
    return pd.DataFrame(rows)


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def _lines() -> tuple[Line, ...]:
    file = progress_file()
    return tuple(_while_off) if file is None else _read(file)


def _add(line: Line, what: str) -> str:
    file = progress_file()
    if file is None:
        _while_off.extend([line] if _is_news(line, _while_off) else [])
        return ""
    from filelock import FileLock

    from tlkit.checkpoints import write_text_atomically

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_name(file.name + ".lock")):
            if _is_news(line, before := _read(file)):
                lines = [json.dumps(asdict(one)) for one in (*before, line)]
                write_text_atomically(file, "\n".join([*lines, ""]))
    except (OSError, ValueError) as error:
        return f"This {what} is not kept with your progress: {error}."
    return ""


def _is_news(line: Line, before: Iterable[Line]) -> bool:
    """Each answer and run counts; a guess or a result that is only repeated, as when all cells run again, does not."""
    if isinstance(line, Entry | Logged):
        return True
    same = [one for one in before if type(one) is type(line) and one.name == line.name]
    return not same or _value(same[-1]) != _value(line)


def _value(line: Line) -> bool | float | str | dict:
    return next(value for name, value in asdict(line).items() if name not in ("name", "at"))


def _read(file: Path) -> tuple[Line, ...]:
    if not file.exists():
        return ()
    lines = []
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            lines.append(_line(json.loads(text)))
        except (ValueError, TypeError, KeyError):
            said = f"line {number} of {file} is no answer: expected a name, at, and right, guess, result or run"
            raise ValueError(f"{said}; mend or move the file") from None
    return tuple(lines)


def _line(read: dict) -> Line:
    """Make a line of what JSON says, or refuse it by an error."""
    line = _KINDS[frozenset(read)](**read)
    value = _value(line)
    kinds = {Entry: (bool,), Logged: (dict,)}.get(type(line), (str, int, float))
    fits = type(value) in kinds  # a bool is no int here
    if not (fits and isinstance(line.name, str) and isinstance(line.at, str)):
        raise TypeError
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError
    return line
