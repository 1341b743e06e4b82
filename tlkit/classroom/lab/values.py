"""What students hand to a lab notebook, read as it can be kept: settings, measurements, functions."""

import inspect
import math
from collections.abc import Callable
from types import CodeType, FunctionType

from tlkit.classroom.exercises import Wrong, kind
from tlkit.classroom.lab.experiments import Setting


def as_setting(name: str, value: object) -> Setting:
    """A setting's value as it can be kept and compared."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if value is not None and not isinstance(value, str | bool | int | float):
        raise Wrong(f"{name} must be one number, a word, True or False, not {kind(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise Wrong(f"{name} must be a finite number, not {value}")
    return value


def as_metric(name: str, value: object) -> float | None:
    """A metric as it is kept: a number, or None where it is not finite."""
    value = getattr(value, name, value)  # a result that carries it, such as that of `tl.perplexity`
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        raise Wrong(f"{name} must be a number, not {kind(value)}")
    try:
        number = float(value)
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        raise Wrong(f"{name} must be one number, not {kind(value)}") from error
    return number if math.isfinite(number) else None


def each_of(pairs: object, name: str) -> list[Setting]:
    """The seeds, or what else pairs runs, of one value or of several."""
    several = hasattr(pairs, "__iter__") and not isinstance(pairs, str)
    found = [as_setting(name, pair) for pair in (pairs if several else [pairs])]
    if not found or None in found:
        raise Wrong(f"say which {name}, such as {name}=1 or {name}=[0, 1, 2]")
    return found


def accepted(function: Callable, given: dict[str, object]) -> dict[str, object]:
    """Those of the named values that a function takes."""
    try:
        takes = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions that are not written in Python do not say
        return given
    if any(one.kind is one.VAR_KEYWORD for one in takes):
        return given
    names = {one.name for one in takes if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    return {name: value for name, value in given.items() if name in names}


def names_read(function: object) -> set[str]:
    """The names that a function's code reads, and that of the functions which it calls from the same notebook."""
    found, seen, waiting = set(), set(), [function]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, FunctionType) or one in seen:
            continue
        seen.add(one)
        codes = [one.__code__]
        while codes:
            code = codes.pop()
            found.update(code.co_names)
            codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
            here = (one.__globals__.get(name) for name in code.co_names)
            waiting += [f for f in here if isinstance(f, FunctionType) and f.__module__ == one.__module__]
    return found
