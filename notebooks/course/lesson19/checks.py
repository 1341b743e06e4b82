"""Ship it: the last gate before a release goes out."""

from collections import Counter
from functools import partial
from operator import eq

from scipy.stats import binomtest

from course.exercises import Quiz, Wrong, function_exercise, kind

DESKS = ["other", "Rust", "Python", "Python", "Rust", "other"] * 6


def _reasons(old, new, desks, *, level=None, side="greater", unknown=True, total=True, pooled=False):
    """Why a release must not go out; the options make it wrong, each as somebody does."""
    names, reasons = sorted(set(desks)), []
    if unknown and new.count("unknown") > old.count("unknown"):
        reasons.append("unknown")
    for name in ["all"] * total + names:
        rows = [row for row in zip(old, new, desks, strict=True) if pooled or name in ("all", row[2])]
        lost = sum(before == desk != now for before, now, desk in rows)
        won = sum(now == desk != before for before, now, desk in rows)
        if lost + won and binomtest(lost, lost + won, alternative=side).pvalue < (level or 0.05 / (len(names) + 1)):
            reasons.append(name)
    return reasons


def _answers(said=None, **wrong):
    """The right answers, but for the first ones of some desks, as many as `wrong` says."""
    left, answers = Counter(wrong), []
    for desk in DESKS:
        answers.append((said or ("Rust" if desk == "other" else "other")) if left[desk] > 0 else desk)
        left[desk] -= 1
    return answers


def _cases():
    right, unsure = _answers(), _answers("unknown", other=3)
    for story, old, new in (
        ("for two releases that answer alike", _answers(Python=2), _answers(Python=2)),
        ("for a release that loses eight Rust questions", right, _answers(Rust=8)),
        ("for one that loses six", right, _answers(Rust=6)),
        ("for one that loses five at each desk", right, _answers(Python=5, Rust=5, other=5)),
        ("for one that loses eight and wins two", _answers(Rust=2)[::-1], _answers(Rust=8)),
        ("for one that wins eight", _answers(Rust=8), right),
        ("for one that wins eight of Python and loses eight of Rust", _answers(Python=8), _answers(Rust=8)),
        ("for one that knows three answers less", right, unsure),
        ("for other answers that are unknown, but no more", unsure[::-1], unsure),
        ("for one that knows nothing", right, _answers("unknown", Python=12, Rust=12, other=12)),
    ):
        yield story, old, new, DESKS


def _read(given, *lists):
    if not isinstance(given, list) or not all(isinstance(reason, str) for reason in given):
        raise Wrong(f"a list of names is asked for, and this is {kind(given)}.")
    return given


reasons_to_stop = function_exercise(
    "ex19_1",
    "the reasons to stop, for ten pairs of releases",
    "Go through `['all', *sorted(set(desks))]`. For each count two things with `zip(old, new, desks)`.",
    "Where neither alone is right, there is nothing to test, and `binomtest` stops for 0 throws.",
    "`binomtest(lost, lost + won, alternative='greater').pvalue < 0.05 / (len(set(desks)) + 1)` is a reason.",
    right=_reasons,
    cases=_cases,
    mistakes={
        "three desks and all together are four tests, so each gets a quarter of 0.05.": partial(_reasons, level=0.05),
        "small losses add up, so test all questions together.": partial(_reasons, total=False),
        "a desk at which the new release wins is no reason to stop.": partial(_reasons, side="two-sided"),
        "more `unknown` than before is a reason, too.": partial(_reasons, unknown=False),
        "each desk is judged by its own questions alone.": partial(_reasons, pooled=True),
    },
    read=_read,
    alike=eq,
)

QUIZ = Quiz(
    "quiz19",
    "A regression test asks 20 questions and needs 16 right answers. The old release had 18 right, and the new one has "
    "16, so the test passes. What do you know?",
    {
        "a": "The new release is worse: its accuracy is 10 points lower.",
        "b": "The new release is as good as the old one.",
        "c": "The answers are not ruined. A drop of 10 points, or even of 20, may be there.",
        "d": "The threshold is too low. It should be 18, the result of the old release.",
    },
    {
        "a": "not known: two answers of 20 are well within chance if the questions were drawn anew.",
        "b": "no: a test that passes has not shown that two releases are equal. A drop of 10 points usually passes.",
        "c": "yes: 58 to 92% is the interval of 16 of 20. To see a smaller drop, ask both releases the same several "
        "hundred questions.",
        "d": "with 18 a release that is as good as the old one would fail often, by the draw alone.",
    },
    right="c",
)
