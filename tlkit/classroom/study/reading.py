"""Read the record of a study, which anybody may have written, and refuse what could not be computed with."""

import dataclasses
import json
import types
import typing
from pathlib import Path

from tlkit.classroom.study.datasheet import PAIRS
from tlkit.classroom.study.record import FORMAT, RECORD, Study
from tlkit.corpus import SPLITS

MOST_TOKENS = 10**9  # of a document
MOST_NATS = 100  # of a token: perplexities beyond exp(100) are no scores


def read_study(path: str | Path) -> Study:
    """Read a record that was written, by this program or by hand.

    Args:
        path: of `study.json`, or its folder.

    Raises:
        FileNotFoundError: where there is none.
        ValueError: where it is no record of a study, naming the place and what was expected.
    """
    path = Path(path)
    path = path / RECORD if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected the {RECORD} that a study writes, or its folder")
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({getattr(error, 'msg', error)})") from None
    try:
        found = _read(Study, content, "")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if problem := _contradiction(found):
        raise ValueError(f"{path}: {problem}")
    return found


def _contradiction(study: Study) -> str:
    """What would keep a record from being computed with."""
    if study.format != FORMAT:
        return f"format is {study.format}, expected {FORMAT}"
    if not study.runs:
        return "there are no runs; expected one at least"
    counts = study.document_tokens
    if not counts or min(counts) < 0 or not sum(counts) or max(counts) > MOST_TOKENS:
        return f"document_tokens: expected the tokens of each scored document, at most {MOST_TOKENS:,} each"
    for field, wanted in (("documents", SPLITS), ("tokens", SPLITS), ("copies", [f"{a} in {b}" for a, b in PAIRS])):
        if set(getattr(study.text, field)) != set(wanted):
            return f"text.{field}: expected {', '.join(wanted)}"
    names = [(run.strategy, run.seed, run.learning_rate, run.split) for run in study.runs]
    if twice := [name for name in names if names.count(name) > 1]:
        return f"the run {twice[0][0]}, seed {twice[0][1]} is there twice"
    for run in study.runs:
        if len(run.nats) != len(study.document_tokens):
            return (
                f"{run.strategy}, seed {run.seed} has {len(run.nats)} scores for {len(study.document_tokens)} documents"
            )
        for nats, tokens in zip(run.nats, study.document_tokens, strict=True):
            if not 0 <= nats <= MOST_NATS * tokens:
                named = f"{run.strategy}, seed {run.seed}"
                return f"{named}: {nats:g} nats for {tokens} tokens, expected 0 to {MOST_NATS} each"
    return ""


def _read(kind: object, value: object, where: str) -> object:
    """Make a value of a type of what JSON says.

    Raises:
        ValueError: naming the place, what is there and what was expected.
    """
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _read(next(one for one in inside if one is not type(None)), value, where)
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, value, where)
    if origin in (list, tuple) and isinstance(value, list):
        found = [_read(inside[0], one, f"{where}[{place}]") for place, one in enumerate(value)]
        return tuple(found) if origin is tuple else found
    if origin is dict and isinstance(value, dict):
        return {key: _read(inside[1], one, f"{where}.{key}") for key, one in value.items()}
    plain = {str: str, int: int, float: (int, float)}.get(kind)
    if plain is None or isinstance(value, bool) or not isinstance(value, plain):
        wanted = {str: "text", int: "a whole number", float: "a number"}.get(
            kind, getattr(origin, "__name__", "a list")
        )
        raise ValueError(f"{where} is {json.dumps(value)[:40]}, expected {wanted}")
    return float(value) if kind is float else value


def _read_fields(kind: type, value: object, where: str) -> object:
    if not isinstance(value, dict):
        raise ValueError(f"{where or 'the file'} is {json.dumps(value)[:40]}, expected an object")
    hints = typing.get_type_hints(kind)
    needed = {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    place = f"{where}." if where else ""
    if missing := sorted(needed - set(value)):
        raise ValueError(f"{place}{missing[0]} is missing")
    if unknown := sorted(set(value) - set(hints)):
        raise ValueError(f"{place}{unknown[0]} is unknown: expected {', '.join(hints)}")
    return kind(**{name: _read(hints[name], one, f"{place}{name}") for name, one in value.items()})
