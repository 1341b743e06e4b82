"""Exercises and quizzes: an answer is judged, what was looked at is said, and hints come one at a time."""

import importlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pandas as pd

LEVELS = {1: "first steps", 2: "apply it", 3: "think further"}


class Wrong(Exception):
    """An answer is not right; the message says why, to the one who gave it."""


@dataclass(frozen=True)
class Exercise:
    """`judge` looks at an answer and raises Wrong, or returns; `looks_at` says what it looks at, and no more."""

    name: str
    level: int
    looks_at: str
    hints: tuple[str, ...]
    judge: Callable[[object], None]


@dataclass(frozen=True)
class Quiz:
    """One question, several choices; each choice has its reason why it is right or not."""

    name: str
    question: str
    choices: dict[str, str]  # letter -> text
    reasons: dict[str, str]
    right: str

    def __str__(self) -> str:
        return "\n".join([self.question, *(f"  {letter}) {text}" for letter, text in self.choices.items())])


@dataclass(frozen=True)
class Verdict:
    """What came of one answer; a notebook shows it as text."""

    name: str
    passed: bool
    message: str

    def __repr__(self) -> str:
        return f"[{'RIGHT' if self.passed else 'NOT YET'}] {self.name}: {self.message}"


def check(name: str, answer: object) -> Verdict:
    """Judge an answer to an exercise ("ex03_1") or a quiz ("quiz03": its letter).

    Whatever is handed in, even a function that breaks, is a verdict and no error. Raises ValueError for a name that
    there is not.
    """
    task = find(name)
    verdict = _judge_choice(task, answer) if isinstance(task, Quiz) else _judge(task, answer)
    _session[name] = verdict.passed or _session.get(name, False)
    return verdict


def hint(name: str, level: int = 1) -> str:
    """The first, second … hint to an exercise; each says more. Raises ValueError for one that there is not."""
    task = find(name)
    hints = task.hints if isinstance(task, Exercise) else ()
    if not 1 <= level <= len(hints):
        raise ValueError(f"hint({name!r}, {level}): this one has hints 1 to {len(hints)}" if hints else f"{name}: none")
    more = f" (hint {level} of {len(hints)})" if level < len(hints) else " (the last hint)"
    return hints[level - 1] + more


def progress() -> pd.DataFrame:
    """What has been checked since the notebook was started, a row each; right once is right."""
    return pd.DataFrame([{"exercise": name, "right": right} for name, right in _session.items()])


def find(name: str) -> Exercise | Quiz:
    """The exercise or quiz of that name. Raises ValueError, with those that there are in the lesson."""
    lesson = re.fullmatch(r"(?:ex|quiz)(\d\d)(?:_\d+)?", name) if isinstance(name, str) else None
    try:
        tasks = tasks_of(lesson[1]) if lesson else {}
    except ModuleNotFoundError:
        tasks = {}
    if name not in tasks:
        there = ", ".join(tasks) or 'names such as "ex03_1" or "quiz03"'
        raise ValueError(f"exercise {name!r} is unknown: expected {there}")
    return tasks[name]


@cache
def tasks_of(lesson: str) -> dict[str, Exercise | Quiz]:
    """Exercises and quizzes of a lesson ("03"), by name."""
    module = importlib.import_module(f"tlkit.classroom.checks.lesson{lesson}")
    return {task.name: task for task in module.TASKS}


def exercise(name: str, level: int, looks_at: str, *hints: str) -> Callable[[Callable], Exercise]:
    """Make an Exercise of the function below, which judges."""
    return lambda judge: Exercise(name, level, looks_at, hints, judge)


def number(answer: object) -> float:
    """The answer as a number. Raises Wrong for anything else."""
    if isinstance(answer, bool) or not hasattr(answer, "__float__"):
        raise Wrong(f"a number is asked for, and this is {kind(answer)}.")
    if math.isnan(float(answer)):
        raise Wrong("a number is asked for, and this is nan, the result of a calculation without one.")
    return float(answer)


def numbers(answer: object, count: int) -> tuple[float, ...]:
    """The answer as so many numbers. Raises Wrong for anything else."""
    if isinstance(answer, str | dict | set) or not hasattr(answer, "__len__") or len(answer) != count:
        raise Wrong(f"{count} numbers are asked for, and this is {kind(answer)}.")
    return tuple(number(value) for value in answer)


def near(answer: object, expected: float, *, within: float = 0.01) -> bool:
    """True for a number within a share (0.01: one percent) of what is expected. Raises Wrong where it is none."""
    return abs(number(answer) - expected) <= within * abs(expected)


def recognise(answer: float, mistakes: dict[float, str]) -> None:
    """Raise Wrong, with its reason, where the answer is the result of a known mistake, to half a percent."""
    for result, reason in mistakes.items():
        if near(answer, result, within=0.005):
            raise Wrong(reason)


def close(given: tuple[float, ...], expected: tuple[float, ...], *, within: float) -> bool:
    """True where every number is at most `within` away from the one expected in its place."""
    return all(math.isclose(one, other, abs_tol=within) for one, other in zip(given, expected, strict=True))


def called(function: object, *arguments, **named) -> object:
    """What the answer, a function, returns. Raises Wrong where it is none, breaks, or returns nothing."""
    if not callable(function):
        raise Wrong(f"a function is asked for, without calling it, and this is {kind(function)}.")
    try:
        result = function(*arguments, **named)
    except Exception as error:  # whatever a student's function raises is the answer's, and is told
        raise Wrong(f"your function stopped with {type(error).__name__}: {error}") from error
    if result is None:
        raise Wrong("your function returns nothing yet: does it end with `return`?")
    return result


def _judge(task: Exercise, answer: object) -> Verdict:
    if answer is None or answer is ...:
        return Verdict(task.name, False, f"no answer yet. It will be checked for {task.looks_at}.")
    try:
        task.judge(answer)
    except Wrong as wrong:
        reason = str(wrong).rstrip(": ")
        reason += "" if reason.endswith((".", "?", "!")) else "."
        return Verdict(task.name, False, f"{reason} Checked was {task.looks_at}.")
    except Exception as error:  # an answer of a kind that nobody thought of is still not right
        said = f"this answer, {kind(answer)}, could not be read ({type(error).__name__}: {error})."
        return Verdict(task.name, False, f"{said} Checked was {task.looks_at}.")
    return Verdict(task.name, True, f"checked was {task.looks_at}.")


def _judge_choice(quiz: Quiz, answer: object) -> Verdict:
    if answer is None or answer is ...:
        return Verdict(quiz.name, False, "no answer yet. Give the letter of your choice.")
    letter = str(answer).strip().lower()
    if letter not in quiz.choices:
        return Verdict(quiz.name, False, f"{answer!r} is no choice: expected one of {', '.join(quiz.choices)}.")
    return Verdict(quiz.name, letter == quiz.right, quiz.reasons[letter])


def kind(answer: object) -> str:
    """What was handed in, for a message: its type, and its beginning."""
    return f"{type(answer).__name__} {answer!r:.40}"


_session: dict[str, bool] = {}
