"""A real task: when a tuned model pays, and what a program can see of a wrong answer."""

import json

from course.exercises import Quiz, Wrong, function_exercise, kind, number_exercise

TOKENS = 450, 120
SAVED = (TOKENS[0] - TOKENS[1]) * 0.10 / 1e6  # dollars a request

break_even = number_exercise(
    "ex12_1",
    "the number of requests after which tuning has paid for itself",
    "How many tokens does a request save, and what do they cost?",
    "Divide what tuning costs once by what a request saves.",
    right=6 / SAVED,
    mistakes={
        "only the tokens that the tuned model does *not* read are saved.": 6 / (TOKENS[0] * 0.10 / 1e6),
        "that is what the tuned model's own prompt costs; look at the difference of the two prompts.": 6
        / (TOKENS[1] * 0.10 / 1e6),
        "two hours at $3 each are paid.": 3 / SAVED,
        "the price is for a million tokens, not for a thousand.": 6 / SAVED / 1000,
        "that is what is saved on a million requests, in dollars.": SAVED * 1e6,
        "the tokens of both prompts are added; tuning saves their difference.": 6 / (sum(TOKENS) * 0.10 / 1e6),
    },
)

FIELDS = {"crate", "version", "system", "kind"}
KINDS = {"crash", "wrong result", "compile error", "slow", "documentation", "feature request"}
REPORT = "Since Tuesday tokio 1.40.0 hangs on Debian 12; 1.39 did not."
GOOD = {"crate": "tokio", "version": "1.40.0", "system": "Debian 12", "kind": "crash"}


def _problems(
    text, report, *, objects=True, missing=True, nulls=True, needed=True, of_kind=True, more=True, where="report"
):
    """What is wrong with an answer; each option that is off is a typical mistake."""
    try:
        answer = json.loads(text)
    except ValueError:
        return {"json"}
    if not isinstance(answer, dict):
        return {"json"} if objects else set()
    found = {field for field in FIELDS - answer.keys() if missing}
    if more:
        found |= answer.keys() - FIELDS
    for field in ("crate", "version", "system"):
        value = answer.get(field)
        if value is None:
            if (field == "crate" and needed and field in answer) or (not nulls and field in answer):
                found.add(field)
        elif not isinstance(value, str) or (field != "crate" and where and value not in report):
            found.add(field)
    if "kind" in answer and of_kind and answer["kind"] not in KINDS:
        found.add("kind")
    return found


def _case(story, text=None, **changes):
    answer = {field: value for field, value in (GOOD | changes).items() if value is not ...}
    return story, json.dumps(answer) if text is None else text, REPORT


def _names(given, *_):
    """What was returned, in order and each name once."""
    if isinstance(given, str | dict) or not isinstance(given, list | set | tuple | frozenset):
        raise Wrong(f"a list or a set of names is asked for, and this is {kind(given)}.")
    if not all(isinstance(name, str) for name in given):
        raise Wrong("each entry is to be the name of a field, or `json`.")
    return sorted(set(given))


problems = function_exercise(
    "ex12_2",
    "what your function returns for thirteen answers, right ones and wrong ones",
    "Begin with `try: answer = json.loads(text)`, and return `['json']` where that fails or gives no dictionary.",
    "A missing key is `field not in answer`, which is not the same as `answer[field] is None`.",
    "For version and system: `value is not None and (not isinstance(value, str) or value not in report)`.",
    right=_problems,
    cases=[
        _case("for a right answer"),
        _case("for a right answer with null", system=None, version=None),
        _case("for an answer that was cut off", text='{"crate": "tokio", "version": "1.4'),
        _case("for a list", text='["tokio", "1.40.0"]'),
        _case("for null alone", text="null"),
        _case("for an answer without a system", system=...),
        _case("for a version that is not in the report", version="1.41.0"),
        _case("for a system that is not in the report", system="Fedora 40"),
        _case("for a number in place of a version", version=1.39),
        _case("for a kind that does not exist", kind="bug"),
        _case("for a crate that is null", crate=None),
        _case("for an answer with a fifth field", severity="high"),
        _case("for two problems", version="2.0", kind="hang"),
    ],
    mistakes={
        "valid JSON that is no object, such as a list, has no fields either: the problem is `json`.": (
            lambda *case: _problems(*case, objects=False)
        ),
        "a field that is missing is a problem, even if it may be null.": lambda *case: _problems(*case, missing=False),
        "null is allowed for version and system.": lambda *case: _problems(*case, nulls=False),
        "the crate must not be null, because every report is about one.": lambda *case: _problems(*case, needed=False),
        "the kind is to be one of the six.": lambda *case: _problems(*case, of_kind=False),
        "a field that nobody asked for is a problem, too: name it.": lambda *case: _problems(*case, more=False),
        "version and system are to stand in the report, letter by letter.": lambda *case: _problems(*case, where=""),
    },
    read=_names,
    alike=lambda given, other: given == sorted(other),
)


QUIZ = Quiz(
    "quiz12",
    "A colleague uses constrained decoding, so that every answer is valid JSON with the four fields and one of the six "
    "kinds. What does this ensure?",
    {
        "a": "That the values are right, because wrong ones can no longer be written.",
        "b": "That a program can read every answer; how many are right has to be measured as before.",
        "c": "That the model needs neither examples nor fine-tuning.",
        "d": "Nothing, because the model could write valid JSON anyway.",
    },
    {
        "a": "No: a version that stands nowhere in the report has the right form, too.",
        "b": "Yes. It settles the form, and the form only. Exact match by field says what the values are worth.",
        "c": "No: untouched, the model then fills the right form with values of poor quality.",
        "d": "No: it ensures that no answer has to be thrown away, which no amount of training promises.",
    },
    "b",
)
