"""A setting as a field of a dataclass, with its help and its limits, and what it may therefore be.

The command line, run files (YAML) and the checks before a training are all made from such fields. Nothing here needs
torch, so that `--help` is there at once.
"""

import difflib
import math
import numbers
import operator
import reprlib
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args

LARGEST = {int: 2**31 - 1, float: sys.float_info.max}  # of numbers that name no limit of their own
NUMBERS = {int: numbers.Integral, float: numbers.Real}  # numpy's are among them
LIMITS = {"above": operator.gt, "of at least": operator.ge, "of at most": operator.le}
IN_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    Path: "a path",
    dict: "names with values",
}


def option(
    default: Any = MISSING,
    help: str = "",
    *,
    choices: tuple = (),
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    **notes: object,
) -> Any:
    """A field of a dataclass of settings, with all that is known of it.

    Args:
        default: the value where nothing is said; without one, a value has to be given.
        help: what it is, in one line. A field without help is no option of the command line.
        above: what a number has to be larger than.
        at_most: the largest number it may be; `math.inf` allows infinity too, which is refused otherwise.
        notes: more for the command line: `positional=True`, or `path="file"`, `"new folder"`.
    """
    limits = dict(zip(LIMITS, (above, at_least, at_most), strict=True))
    return _field(default, {"help": help, "choices": choices, "limits": limits, **notes})


def same_option(settings: type, name: str, default: Any = MISSING) -> Any:
    """A field as another dataclass defines it, with a default of its own."""
    return _field(default, settings.__dataclass_fields__[name].metadata)


def _field(default: Any, metadata: Mapping) -> Any:
    return field(**({"default_factory": dict} if default == {} else {"default": default}), metadata=metadata)


def option_fields(settings: type) -> list[Field]:
    """The fields of a dataclass that carry help."""
    return [setting for setting in fields(settings) if "help" in setting.metadata]


def kind_of(setting: Field) -> type:
    """The type of one value: int of `int | None`, Path of `tuple[Path, ...]`."""
    parts = [part for part in get_args(setting.type) if part not in (NoneType, ...)]
    return parts[0] if parts else setting.type


def is_a(kind: type, value: object) -> bool:
    """Whether a value has a type: a whole number is a number, and true is none."""
    return kind is bool if isinstance(value, bool) else isinstance(value, NUMBERS.get(kind, kind))


def checked(setting: Field, value: object) -> object:
    """The value in the setting's own type; text stands for a number or a path, as a command line or YAML has it.

    Raises:
        ValueError: the value and what was expected, for the caller to put a name before it.
    """
    if value is None and NoneType in get_args(setting.type):
        return None
    kind, choices, converted = kind_of(setting), setting.metadata["choices"], value
    limits = {word: limit for word, limit in setting.metadata["limits"].items() if limit is not None}
    if isinstance(value, str) and kind is bool:
        converted = {"true": True, "false": False}.get(value, value)
    elif isinstance(value, str) and kind in (int, float, Path) and value:
        with suppress(ValueError):
            converted = kind(value)
    allowed = is_a(kind, converted) and converted != "" and (not choices or converted in choices)
    if allowed and kind in LARGEST:
        bounds = {"of at most": LARGEST[kind]} | limits
        allowed = all(LIMITS[word](converted, limit) for word, limit in bounds.items())
    if allowed:
        return float(converted) if kind is float else converted
    bounds = " and ".join(f"{word} {limit:,}" for word, limit in limits.items() if limit != math.inf)
    expected = " or ".join(map(str, choices)) or f"{IN_WORDS[kind]} {bounds}".strip()
    raise ValueError(f"{reprlib.repr(value)}: expected {expected}")


def check(settings: object) -> None:
    """Refuse, with name, value and what was expected, a dataclass in which a field has a value that it may not have."""
    for setting in option_fields(type(settings)):
        try:
            checked(setting, getattr(settings, setting.name))
        except ValueError as error:
            raise ValueError(f"{setting.name}={error}") from None


def checked_by_name(settings: Mapping[str, Field], values: Mapping[str, object]) -> dict[str, object]:
    """Values by name, as a file has them, in the types of the settings there are.

    Raises:
        ValueError: naming the first setting that is unknown, or has a value that it may not have.
    """
    accepted = {}
    for name, value in values.items():
        if name not in settings:
            near = difflib.get_close_matches(str(name).replace("-", "_"), settings, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"expected some of {', '.join(settings)}"
            raise ValueError(f"{name!r} is unknown: {hint}")
        try:
            accepted[name] = checked(settings[name], value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return accepted
