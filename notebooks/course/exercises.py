"""Exercises and quizzes: an answer is judged, what was looked at is said, and hints come one at a time."""

import importlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache

from course import cards

WHICH_LETTER = "Give the letter of your choice"


class Wrong(Exception):
    """An answer is not right; the message says why, to the one who gave it."""


class NotBegun(Wrong):
    """What is handed in is the exercise as it was: it is judged, but it is no try."""


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    Args:
        name: such as "ex04_1".
        looks_at: what the judge looks at, as students are told; it does not give the answer away.
        hints: each says more than the one before.
        judge: takes an answer and raises Wrong where it is not right.
        mistakes: what is said about a typical wrong answer, and that answer; tests hand each of them in.
    """

    name: str
    looks_at: str
    hints: tuple[str, ...]
    judge: Callable[..., None]
    mistakes: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Quiz:
    """One question with several choices.

    Args:
        name: such as "quiz04".
        question: what is asked.
        choices: from each choice's letter to its text.
        reasons: from each choice's letter to why it is right or not.
        right: the letter of the right choice.
    """

    name: str
    question: str
    choices: dict[str, str]
    reasons: dict[str, str]
    right: str

    def __str__(self) -> str:
        return "\n".join([self.question, *(f"  {letter}) {text}" for letter, text in self.choices.items())])


@dataclass(frozen=True)
class Verdict:
    """What came of one answer: a card in a notebook, with the hints folded up in it; a line of text elsewhere."""

    name: str
    passed: bool
    message: str
    hints: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"[{'RIGHT' if self.passed else 'NOT YET'}] {self.name}: {self.message}"

    def _repr_html_(self) -> str:
        return cards.card(self.passed, self.name, self.message, self.hints)


class Words(str):
    """A sentence that a notebook shows as such, without quotation marks."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return cards.rendered(self)


def check(name: str, answer: object) -> Verdict:
    """Judge an answer to an exercise or a quiz.

    Whatever is handed in, even a function that breaks, gets a verdict and raises no error. So does a mistyped name.

    Args:
        name: of an exercise ("ex04_1") or a quiz ("quiz04").
        answer: what the exercise asks for; for a quiz, the letter of a choice.

    Returns:
        The verdict; a notebook shows it as a card.
    """
    try:
        task = find(name)
    except ValueError as unknown:
        return Verdict(str(name), False, f"{unknown}.")
    if answer is None or answer is ...:
        wanted = f"It will be checked for {task.looks_at}" if isinstance(task, Exercise) else WHICH_LETTER
        return Verdict(name, False, f"no answer yet. {wanted}.", _hints(task))
    try:
        verdict = _judge_choice(task, answer) if isinstance(task, Quiz) else _judge(task, answer)
    except NotBegun as begin:
        verdict = _not_yet(task, str(begin))
    return verdict if verdict.passed else replace(verdict, hints=_hints(task))


def hint(name: str, level: int = 1) -> str:
    """Give a hint to an exercise; each level says more than the one before.

    Args:
        name: of an exercise ("ex04_1").
        level: 1 for the first hint.

    Returns:
        The hint, and how many there are; for a name or a level that does not exist, a sentence with those that do.
    """
    try:
        hints = _hints(find(name))
    except ValueError as unknown:
        return Words(f"{unknown}.")
    if level not in range(1, len(hints) + 1):
        return Words(f"{name} has hints 1 to {len(hints)}, and no hint {level}." if hints else f"{name} has no hints.")
    more = f" (hint {level} of {len(hints)})" if level < len(hints) else " (the last hint)"
    return Words(hints[level - 1] + more)


def find(name: str) -> Exercise | Quiz:
    """Find an exercise or a quiz by its name.

    Raises:
        ValueError: for an unknown name; the message lists those of the same lesson.
    """
    lesson = re.fullmatch(r"(?:ex|quiz)(\d\d|A\d)(?:_\d+)?", name) if isinstance(name, str) else None
    try:
        tasks = tasks_of(lesson[1]) if lesson else {}
    except ModuleNotFoundError:
        tasks = {}
    if name not in tasks:
        there = ", ".join(tasks) or 'names such as "ex04_1" or "quiz04"'
        raise ValueError(f"exercise {name!r} is unknown: expected {there}")
    return tasks[name]


def _hints(task: Exercise | Quiz) -> tuple[str, ...]:
    return task.hints if isinstance(task, Exercise) else ()


@cache
def tasks_of(lesson: str) -> dict[str, Exercise | Quiz]:
    """Load the exercises and quizzes of a lesson ("03"), by name."""
    module = importlib.import_module(f"course.lesson{lesson}.checks")
    return {task.name: task for task in vars(module).values() if isinstance(task, Exercise | Quiz)}


def exercise(name: str, looks_at: str, *hints: str, mistakes=None) -> Callable[[Callable], Exercise]:
    """Make an `Exercise` of the judge that is decorated.

    Args:
        name: such as "ex04_1".
        looks_at: what the judge looks at, as students are told.
        *hints: from the first push to nearly the answer.
        mistakes: what the judge says about a typical wrong answer, and that answer.
    """
    return lambda judge: Exercise(name, looks_at, hints, judge, mistakes or {})


def function_exercise(
    name: str,
    looks_at: str,
    *hints: str,
    right: Callable,
    cases: Sequence[tuple] | Callable[[], Iterable[tuple]],
    mistakes: dict[str, Callable],
    read: Callable = lambda given, *arguments: number(given),
    alike: Callable[[object, object], bool] | None = None,
    keeps: bool = False,
) -> Exercise:
    """Make an exercise whose answer is a function: what it returns is compared with what another function returns.

    Args:
        name: as for `exercise`, and so are `looks_at` and `hints`.
        right: returns what is asked for.
        cases: each the words for it ("for a single document"), and the arguments of the call; or what makes them.
        mistakes: what is said about a typical mistake, and a function that makes it.
        read: takes a result and the arguments of its call, and raises Wrong where it is not of the kind asked for.
        alike: says whether two results are the same (None: `near`).
        keeps: whether the tensors that are handed in have to stay as they are.
    """

    def judge(answer: object) -> None:
        for story, *arguments in cases() if callable(cases) else cases:
            handed = deepcopy(arguments)
            try:
                given = read(called(answer, *handed), *arguments)
            except NotBegun:
                raise
            except Wrong as wrong:
                raise Wrong(f"{story}, {wrong}" if callable(answer) else str(wrong)) from wrong
            results = ((why, mistake(*arguments)) for why, mistake in mistakes.items())
            compare(given, right(*arguments), results, alike or near, f"{story}: ")
            tensors = (pair for pair in zip(handed, arguments, strict=True) if hasattr(pair[0], "all"))
            if keeps and not all(bool((one == other).all()) for one, other in tensors):
                raise Wrong(f"{story}, the result is right, but your function changes what it was given. Make a copy.")

    return Exercise(name, looks_at, hints, judge, mistakes)


def compare(
    given: object,
    right: object,
    mistakes: Iterable[tuple[str, object]],
    alike: Callable[[object, object], bool],
    story: str = "",
) -> None:
    """Let the right result pass, and say about another one what is known of it.

    Args:
        given: the result of an answer.
        right: the one that is asked for.
        mistakes: what is said about a typical mistake, and the result that it leads to.
        alike: says whether two results are the same.
        story: of which case this is.

    Raises:
        Wrong: where the result is not right.
    """
    if not alike(given, right):
        shown = ", ".join(f"{one:,.6g}" if isinstance(one, float) else f"{one!r:.60}" for one in _several(given))
        raise Wrong(story + next((why for why, result in mistakes if alike(given, result)), f"{shown} is not it."))


def _several(given: object) -> tuple:
    return given if isinstance(given, tuple) else (given,)


def number(answer: object) -> float:
    """Read an answer as a number.

    Raises:
        Wrong: for anything else, and for nan.
    """
    if isinstance(answer, bool) or not hasattr(answer, "__float__"):
        raise Wrong(f"a number is asked for, and this is {kind(answer)}.")
    if math.isnan(float(answer)):
        raise Wrong("a number is asked for, and this is nan, the result of a calculation without one.")
    return float(answer)


def numbers(answer: object, count: int) -> tuple[float, ...]:
    """Read an answer as a given count of numbers.

    Raises:
        Wrong: for anything else, and for another count.
    """
    if isinstance(answer, str | dict | set) or not hasattr(answer, "__len__") or len(answer) != count:
        raise Wrong(f"{count} numbers are asked for, and this is {kind(answer)}.")
    return tuple(number(value) for value in answer)


def near(answer: object, expected: float, *, within: float = 0.01) -> bool:
    """Say whether an answer is a number near the expected one.

    Args:
        answer: what was handed in.
        expected: the number that it should be.
        within: how far it may be off, as a share of `expected` (0.01: one percent).

    Raises:
        Wrong: where the answer is no number.
    """
    return abs(number(answer) - expected) <= within * abs(expected)


def called(function: object, *arguments, **named) -> object:
    """Call an answer that is to be a function.

    Args:
        function: what was handed in.
        *arguments: handed on to it.
        **named: handed on to it.

    Returns:
        What it returns.

    Raises:
        Wrong: where it is no function or raises an error.
        NotBegun: where it returns nothing.
    """
    if not callable(function):
        raise Wrong(f"a function is asked for, without calling it, and this is {kind(function)}.")
    try:
        result = function(*arguments, **named)
    except Exception as error:  # whatever a student's function raises is the answer's, and is told
        raise Wrong(f"your function stopped with {type(error).__name__}: {error}") from error
    if result is None:
        raise NotBegun("your function returns nothing yet: does it end with `return`?")
    return result


def _judge(task: Exercise, answer: object) -> Verdict:
    try:
        task.judge(answer)
    except NotBegun:
        raise
    except Wrong as wrong:
        return _not_yet(task, str(wrong))
    except Exception as error:  # an answer of a kind that nobody thought of is still not right
        said = f"this answer, {kind(answer)}, could not be read ({type(error).__name__}: {error})."
        return Verdict(task.name, False, f"{said} The check looks at {task.looks_at}.")
    return Verdict(task.name, True, f"checked was {task.looks_at}.")


def _not_yet(task: Exercise, reason: str) -> Verdict:
    reason = reason.rstrip(": ")
    reason += "" if reason.endswith((".", "?", "!")) else "."
    return Verdict(task.name, False, f"{reason} The check looks at {task.looks_at}.")


def _judge_choice(quiz: Quiz, answer: object) -> Verdict:
    letter = str(answer).strip().lower()
    if letter not in quiz.choices:
        return Verdict(quiz.name, False, f"{answer!r} is no choice: expected one of {', '.join(quiz.choices)}.")
    return Verdict(quiz.name, letter == quiz.right, quiz.reasons[letter])


def kind(answer: object) -> str:
    """Describe what was handed in, for a message: its type, and its beginning."""
    return f"{type(answer).__name__} {answer!r:.40}"
