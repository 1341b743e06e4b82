"""A real task: what a program can see of a wrong answer, and what constrained decoding cannot do."""

import re
from functools import partial

from course.exercises import Quiz, Wrong, function_exercise, kind

GOOD = {"crate": "tokio", "version": "1.4", "system": "Debian 12", "kind": "crash"}


def _unsupported(answer, report, *, before=r"(?<!\d)(?<!\d\.)", after=r"(?!\d|\.\d)", escape=re.escape, **options):
    """The copied fields without a source in the report; the options make it wrong, each as somebody does."""
    fields = options.get("fields", ("version", "system"))
    flags = re.IGNORECASE * options.get("any_case", False)
    missing = []
    for field in fields:
        value = answer[field]
        if value is None:
            missing += [field] * options.get("nulls", False)
        elif not re.search(before + escape(value) + after, report, flags):
            missing.append(field)
    return missing


def _cases():
    for story, report, changes in (
        ("for a report that names both", "On Debian 12 tokio 1.4 hangs.", {}),
        ("for a version that stands nowhere", "On Debian 12 tokio hangs since 1.38.", {}),
        ("for a version that is the beginning of another", "Since Tuesday tokio 1.40.0 hangs on Debian 12.", {}),
        ("for a version that lacks its last number", "Since Tuesday tokio 1.4.2 hangs on Debian 12.", {}),
        ("for a version inside another", "Debian 12, tokio 0.1.4 hangs.", {}),
        ("for a version at the end of a sentence", "Debian 12. It hangs with tokio 1.4. Help!", {}),
        ("for a version with a v", "tokio v1.4 on Debian 12: hangs.", {}),
        ("for a version of which the dot is a digit", "tokio 124 hangs on Debian 12.", {}),
        ("for a system that is written otherwise", "debian 12, tokio 1.4: hangs", {}),
        ("for null", "It hangs.", {"version": None, "system": None}),
        ("for a crate that the report spells otherwise", "actix_web 1.4 hangs. Debian 12.", {"crate": "actix-web"}),
    ):
        yield story, GOOD | changes, report


def _names(given, *_):
    if isinstance(given, str | dict) or not isinstance(given, list | set | tuple | frozenset):
        raise Wrong(f"a list of names is asked for, and this is {kind(given)}.")
    if not all(isinstance(name, str) for name in given):
        raise Wrong("each entry is to be the name of a field.")
    return sorted(given)


unsupported = function_exercise(
    "ex12_1",
    "the fields that your function names for eleven answers and reports",
    "`value in report` is nearly right. For which version does it say yes, although another one stands there?",
    r"In a regular expression `(?<!\d)` says that no digit stands before, and `(?!\d|\.\d)` that neither a digit nor a "
    "dot with a digit follows.",
    r"Put `re.escape(value)` between the two, since a dot in a pattern stands for any character. `(?<!\d\.)` is "
    "needed, too.",
    right=_unsupported,
    cases=_cases,
    mistakes={
        "a digit stands before it, so this is another version.": partial(_unsupported, before=r"(?<!\d)"),
        "1.4 is a part of another version there, which does not support it.": partial(
            _unsupported, before="", after=""
        ),
        "a dot at the end of a sentence is no part of a version.": partial(_unsupported, after=r"(?![\d.])"),
        "a version may have a v before it.": partial(_unsupported, before=r"(?<![\w.])"),
        "a dot in a pattern stands for any character: use `re.escape`.": partial(_unsupported, escape=str),
        "letter by letter means that capitals count.": partial(_unsupported, any_case=True),
        "null needs no source.": partial(_unsupported, nulls=True),
        "the crate is not copied letter by letter, so leave it out.": partial(
            _unsupported, fields=("crate", "version", "system")
        ),
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
