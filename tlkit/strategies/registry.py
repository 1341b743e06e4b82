"""The strategies there are, by name: those of this package, and those that a reader adds."""

import inspect
import math
import re
import types
from collections.abc import Callable, Iterable
from typing import Union, get_args, get_origin

import torch
from torch import nn

from tlkit.names import CLASSIC
from tlkit.options import is_a

Selector = Callable[..., nn.Module | None]
OWN = "own"  # the family of what a reader adds
STRATEGIES: dict[str, Selector] = {}
FAMILIES: dict[str, str] = {}  # of each strategy the family that it belongs to
KEPT_IN_MODEL_DTYPE = ("prompt_tuning", "prefix_tuning", "ln_tuning")  # peft keeps what they train in no other
RESERVED = ("all", "peft", "classic")


def strategy(name: str, family: str = OWN) -> Callable[[Selector], Selector]:
    """Make a function a strategy, known by its name to whatever asks for one.

    The function is given a model of which everything is frozen. It makes trainable what it wants (`requires_grad_`)
    and returns the model, or nothing; or puts adapters into it and returns peft's wrapper. Parameters behind the model
    are the strategy's options, and need defaults; where one has a type, its values are checked.

    Args:
        name: letters, digits and underscores, for the command line and for tables.
        family: leave it out; it groups the strategies of this package.

    Raises:
        ValueError: for a name that is taken or cannot be typed, or a function that could not be called.
    """

    def register(select: Selector) -> Selector:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in RESERVED:
            raise ValueError(f"strategy {name!r}: expected a name of small letters, digits and _, none of {RESERVED}")
        if FAMILIES.get(name, family) != family or family != OWN and name in STRATEGIES:
            raise ValueError(f"strategy {name!r} is there already: choose another name")
        _refuse_signature(name, select)
        STRATEGIES[name], FAMILIES[name] = select, family
        return select

    return register


def _refuse_signature(name: str, select: Selector) -> None:
    """What could not be called with a model and options by their names."""
    first, *options = inspect.signature(select).parameters.values() or (None,)
    if first is None or any(o.default is o.empty and o.kind is not o.VAR_KEYWORD for o in options):
        raise ValueError(f"strategy {name!r}: expected a function of a model, and defaults for its other parameters")


def strategies_named(names: Iterable[str] | None) -> list[str]:
    """The strategies that a list of names stands for.

    Args:
        names: of strategies; "classic" stands for the experiment that this workbook teaches, "peft" for the methods
            of the library of that name, "all" for everything but what only a classifier has. None: classic.

    Returns:
        Each once, in the order in which they were named.
    """
    groups = {
        "classic": CLASSIC,
        "peft": [name for name, family in FAMILIES.items() if family == "peft"],
        "all": [*CLASSIC, *(name for name, family in FAMILIES.items() if name not in CLASSIC and family != "head")],
    }
    chosen = [member for name in (("classic",) if names is None else names) for member in groups.get(name, (name,))]
    return list(dict.fromkeys(chosen))


def dtype_of_weights(name: str, precision: str) -> torch.dtype:
    """The dtype in which a model's own weights are kept, where a step computes in `precision`.

    Returns:
        bf16 for weights that stay frozen beside adapters, which peft keeps in fp32; otherwise fp32, because the small
        steps of a training are lost in the rounding of bf16.
    """
    frozen = FAMILIES.get(name) == "peft" and name not in KEPT_IN_MODEL_DTYPE
    return torch.bfloat16 if precision == "bf16" and frozen else torch.float32


def check_strategy(name: str, options: dict[str, object]) -> None:
    """Refuse an unknown strategy and options that it does not have, before there is a model.

    Raises:
        ValueError: naming what was given and what was expected.
    """
    declared = strategy_options(name)
    if any(option.kind is option.VAR_KEYWORD for option in declared.values()):
        declared = {n: o for n, o in declared.items() if o.kind is not o.VAR_KEYWORD}
        if "method" in declared:  # it hands on what is not its own to the strategy that it is made with
            method = options.get("method", declared["method"].default)
            declared |= strategy_options(method) if isinstance(method, str) else {}
        else:  # it judges what it does not declare
            options = {name: value for name, value in options.items() if name in declared}
    if unknown := sorted(set(options) - set(declared)):
        raise ValueError(f"{name} has no option {', '.join(unknown)}: expected {', '.join(declared) or 'none'}")
    for option, value in options.items():
        allowed = _types_of(declared[option])
        finite = not isinstance(value, float) or math.isfinite(value)
        if not finite or allowed and not any(is_a(kind, value) for kind in allowed):
            words = " or ".join(kind.__name__ for kind in allowed) or "number"
            raise ValueError(f"{name}: {option}={value!r}: expected a value of type {words}")


def strategy_options(name: str) -> dict[str, inspect.Parameter]:
    """The options of a strategy, with their defaults and types.

    Raises:
        ValueError: for a name that no strategy has.
    """
    if name not in STRATEGIES:
        raise ValueError(f"strategy {name!r} is unknown: expected one of {', '.join(STRATEGIES)}")
    return dict(list(inspect.signature(STRATEGIES[name], eval_str=True).parameters.items())[1:])


def _types_of(option: inspect.Parameter) -> tuple[type, ...]:
    """Those that a value may have; none where its function says nothing that can be checked."""
    annotation = option.annotation
    parts = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    kinds = tuple(get_origin(part) or part for part in parts)
    return kinds if option.annotation is not option.empty and all(isinstance(kind, type) for kind in kinds) else ()
