"""Settings as fields of dataclasses, with help and limits; without torch, so that `--help` is there at once."""

import math
import numbers
import operator
import sys
from contextlib import suppress
from dataclasses import MISSING, Field, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args

LARGEST = {int: 2**31 - 1, float: sys.float_info.max}  # of numbers that name no limit
NUMBERS = {int: numbers.Integral, float: numbers.Real}  # numpy's are among them
LIMITS = {"above": operator.gt, "at_least": operator.ge, "at_most": operator.le}
IN_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", Path: "a path"}


def option(
    default: Any = MISSING, help: str = "", *, choices: tuple = (), positional: bool = False, **limits: float
) -> Any:
    """A field of a dataclass; it has to be given where it has no default.

    Args:
        positional: on the command line it is given without its name.
        limits: of a number, as named in `LIMITS`; infinity is refused without `at_most=math.inf`.
    """
    if not limits.keys() <= LIMITS.keys():
        raise TypeError(f"limits {', '.join(limits)}: expected some of {', '.join(LIMITS)}")
    start = {"default_factory": dict} if default == {} else {"default": default}
    return field(**start, metadata={"help": help, "choices": choices, "positional": positional, **limits})


def same_option(settings: type, name: str, default: Any = MISSING) -> Any:
    """A field as another dataclass defines it, perhaps with another default."""
    same = settings.__dataclass_fields__[name]
    return option(same.default if default is MISSING else default, **same.metadata)


def option_fields(settings: type) -> list[Field]:
    """Fields made by `option`; others cannot be given on the command line."""
    return [setting for setting in fields(settings) if "help" in setting.metadata]


def kind_of(setting: Field) -> type:
    """The type of one value: int of `int | None`, str of `tuple[str, ...]`."""
    parts = [part for part in get_args(setting.type) if part not in (NoneType, ...)]
    return parts[0] if parts else setting.type


def is_a(kind: type, value: object) -> bool:
    """Like `isinstance`, but a whole number is a number, and true is none."""
    return kind is bool if isinstance(value, bool) else isinstance(value, NUMBERS.get(kind, kind))


def checked(setting: Field, value: object, name: str | None = None) -> object:
    """Return the value in the setting's type; text may stand for a number or a path."""
    if value is None and NoneType in get_args(setting.type):
        return None
    kind, choices, given = kind_of(setting), setting.metadata["choices"], value
    limits = {word: setting.metadata[word] for word in LIMITS if word in setting.metadata}
    if isinstance(value, str) and kind in (int, float, Path):
        with suppress(ValueError):
            value = kind(value)
    allowed = is_a(kind, value) and given != "" and (not choices or value in choices)
    if allowed and kind in NUMBERS:
        allowed = all(LIMITS[word](value, limit) for word, limit in ({"at_most": LARGEST[kind]} | limits).items())
    if allowed:
        return float(value) if kind is float else value
    bounds = [f"{word} {limit:,}".replace("at_", "of at ") for word, limit in limits.items() if limit != math.inf]
    expected = " or ".join(choices) or f"{IN_WORDS.get(kind, 'names with values')} {' and '.join(bounds)}".strip()
    raise ValueError(f"{name or setting.name}={given!r}: expected {expected}")


def check(settings: object) -> None:
    """Refuse a dataclass with a value that its field may not have."""
    for setting in option_fields(type(settings)):
        checked(setting, getattr(settings, setting.name))
