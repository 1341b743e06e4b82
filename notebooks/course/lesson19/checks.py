"""Ship it: a parser between a model and a program."""

import json
from functools import partial

from course.exercises import Quiz, Wrong, function_exercise, kind

KEYS = ("crate", "version", "system", "kind")
KINDS = ["crash", "slow", "wrong result"]
GOOD = {"crate": "tokio", "version": "1.40.0", "system": None, "kind": "slow"}


def _cut(text):
    return text[text.find("{") : text.rfind("}") + 1]


def _ticket(text, kinds, *, cut=_cut, complete=True, allowed=True, typed=True, null=True, only=True):
    """The ticket in a text; the options make it wrong, each as somebody does."""
    try:
        ticket = json.loads(cut(text))
    except ValueError:
        return {}
    if not isinstance(ticket, dict) or (complete and not set(KEYS) <= set(ticket)):
        return {}
    if allowed and ticket.get("kind") not in kinds:
        return {}
    optional = (str, type(None)) if null else str
    if typed and not isinstance(ticket.get("crate"), str):
        return {}
    if typed and not all(isinstance(ticket.get(key), optional) for key in ("version", "system")):
        return {}
    return {key: ticket.get(key) for key in KEYS} if only else ticket


def _answers():
    def written(**changes):
        return json.dumps(GOOD | changes)

    fenced = f"Here is the ticket:\n```json\n{written()}\n```\nAnything else?"
    for story, text in (
        ("for an answer that is only JSON", written(version="0.9", system="Windows 11")),
        ("for a field that is null", written()),
        ("for JSON with text around it", fenced),
        ("for an answer without JSON", "I do not know."),
        ("for JSON that was cut off", written()[:-9]),
        ("for a missing key", json.dumps({key: GOOD[key] for key in KEYS if key != "system"})),
        ("for a kind that nobody allowed", written(kind="angry")),
        ("for a kind that is a list", written(kind=["slow"])),
        ("for a version that is a number", written(version=1.4)),
        ("for a crate that is null", written(crate=None)),
        ("for a key too many", written(mood="angry")),
    ):
        yield story, text, KINDS


def _read(given, text, kinds):
    if not isinstance(given, dict):
        raise Wrong(f"a dict is asked for, and this is {kind(given)}.")
    if not given and _ticket(text, kinds):
        raise Wrong("your function returns {}, and the answer can be used.")
    return given


def _alike(given, expected):
    """Whether two tickets agree; what an odd value says of itself does not count."""
    one, other = (json.dumps(ticket, sort_keys=True, default=lambda odd: "odd") for ticket in (given, expected))
    return one == other


read_ticket = function_exercise(
    "ex19_1",
    "the ticket, or an empty dict, for eleven answers that a model may write",
    "`text.find('{')` and `text.rfind('}')` say where the object begins and ends. `json.loads` raises ValueError if "
    "what lies between is no JSON.",
    "Check one rule after the other and return {} where it fails. `isinstance(field, str | None)` is a check, too.",
    "At the end build a new dict of the four keys, so that a fifth does not get through.",
    right=_ticket,
    cases=_answers,
    mistakes={
        "a key is missing, and your function fills it with None.": partial(_ticket, complete=False),
        "the kind is not one of those allowed.": partial(_ticket, allowed=False),
        "a field is of the wrong type.": partial(_ticket, typed=False),
        "a key that nobody asked for gets through.": partial(_ticket, only=False),
    },
    read=_read,
    alike=_alike,
)

QUIZ = Quiz(
    "quiz19",
    "A regression test asks 20 questions and needs 16 right answers. The old release had 18 right, and the new one has "
    "16, so the test passes. What do you know?",
    {
        "a": "The new release is worse: its accuracy is 10 points lower.",
        "b": "The new release is as good as the old one.",
        "c": "Nothing is badly broken. A drop of several points may be there, and this test could not see it.",
        "d": "The threshold is too low. It should be 18, the result of the old release.",
    },
    {
        "a": "not known: two answers of 20 are well within chance if the questions were drawn anew.",
        "b": "no: a test that passes has not shown that two releases are equal. With 20 questions a drop of 10 points "
        "usually passes.",
        "c": "yes. To see a smaller drop, ask several hundred questions, and ask both releases the same ones.",
        "d": "with 18 a release that is as good as the old one would fail often, by the draw of the questions alone.",
    },
    right="c",
)
