"""The strategies there are, by name: those of this package, and those that a reader adds."""

import importlib.util
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import get_args, get_origin

from torch import nn

from tlkit.options import is_a

Selector = Callable[..., nn.Module | None]
OWN = "own"  # the family of what a reader adds
STRATEGIES: dict[str, Selector] = {}
FAMILIES: dict[str, str] = {}  # of each strategy the family that it belongs to
# The experiment that this workbook teaches again, in the order of its lessons.
CLASSIC = ("full", "freeze_lower", "freeze_embeddings", "last_layers", "lora", "qlora", "bitfit")
RESERVED = ("all", "peft", "classic")


def strategy(name: str, family: str = OWN) -> Callable[[Selector], Selector]:
    """Make a function a strategy, known by its name to whatever asks for one.

    The function is given a model of which everything is frozen. It makes trainable what it wants (`requires_grad_`)
    and returns the model, or nothing; or puts adapters into it and returns peft's wrapper. Parameters behind the model
    are the strategy's options, and need defaults.

    Args:
        name: letters, digits and underscores, for the command line and for tables.
        family: leave it out; it groups the strategies of this package.

    Returns:
        A decorator, which returns the function as it is.

    Raises:
        ValueError: for a name that is taken or cannot be typed, or a function that could not be called.
    """

    def register(select: Selector) -> Selector:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in RESERVED:
            raise ValueError(f"strategy {name!r}: expected a name of small letters, digits and _, none of {RESERVED}")
        if FAMILIES.get(name, family) != family or family != OWN and name in STRATEGIES:
            raise ValueError(f"strategy {name!r} is there already: choose another name")
        first, *options = inspect.signature(select).parameters.values() or (None,)
        if first is None or any(o.default is o.empty and o.kind is not o.VAR_KEYWORD for o in options):
            raise ValueError(
                f"strategy {name!r}: expected a function of a model, and defaults for its other parameters"
            )
        STRATEGIES[name], FAMILIES[name] = select, family
        return select

    return register


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
    found = [known for name in (("classic",) if names is None else names) for known in groups.get(name, (name,))]
    return list(dict.fromkeys(found))


def load_plugin(path: str | Path) -> list[str]:
    """Run a file of Python in which strategies are defined.

    It is a program like any other, and can do whatever you can: load only what you have read.

    Args:
        path: a `.py` file that uses `@strategy("name")`.

    Returns:
        The names of the strategies that it defines.

    Raises:
        FileNotFoundError: where there is no such file.
        ValueError: where it cannot be run, or defines no strategy; says which line.
    """
    path = Path(path)
    if path.suffix != ".py":
        raise ValueError(f"{path}: expected a .py file in which @strategy defines strategies")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected Python in which @strategy defines strategies")
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(f"plugin_{path.stem}", path))
    sys.modules[module.__name__] = module  # where Python looks for the source of what it defines
    try:
        module.__spec__.loader.exec_module(module)
    except Exception as error:
        traced, line = error.__traceback__, None
        while traced is not None:
            line = traced.tb_lineno if traced.tb_frame.f_code.co_filename == str(path) else line
            traced = traced.tb_next
        line = line or getattr(error, "lineno", None)
        raise ValueError(f"{path}, line {line or '?'}: {type(error).__name__}: {error}") from error
    found = [name for name, select in STRATEGIES.items() if select.__module__ == module.__name__]
    if not found:
        raise ValueError(f"{path} defines no strategy: expected a function under @strategy('name')")
    return found


def check_strategy(name: str, options: dict[str, object]) -> None:
    """Refuse an unknown strategy and options that it does not have, before there is a model.

    Args:
        name: of `STRATEGIES`.
        options: its options by name, with values as a Python caller or YAML gives them.

    Raises:
        ValueError: naming what was given and what was expected.
    """
    known = options_of(name)
    if any(option.kind is option.VAR_KEYWORD for option in known.values()):
        # It hands on what is not its own to the strategy that it is made with.
        beside = options.get("method", known["method"].default)
        known = {n: o for n, o in known.items() if o.kind is not o.VAR_KEYWORD} | options_of(beside)
    if unknown := sorted(set(options) - set(known)):
        raise ValueError(f"{name} has no option {', '.join(unknown)}: expected {', '.join(known) or 'none'}")
    for option, value in options.items():
        expected = known[option].annotation
        allowed = () if expected is inspect.Parameter.empty else get_args(expected) or (expected,)
        finite = not isinstance(value, float) or math.isfinite(value)
        if not finite or allowed and not any(is_a(get_origin(kind) or kind, value) for kind in allowed):
            words = " or ".join(kind.__name__ for kind in allowed) or "number"
            raise ValueError(f"{name}: {option}={value!r}: expected a value of type {words}")


def options_of(name: str) -> dict[str, inspect.Parameter]:
    """The options of a strategy, with their defaults and types.

    Raises:
        ValueError: for a name that no strategy has.
    """
    if name not in STRATEGIES:
        raise ValueError(f"strategy {name!r} is unknown: expected one of {', '.join(STRATEGIES)}")
    return dict(list(inspect.signature(STRATEGIES[name]).parameters.items())[1:])


def source_of_own(names: Iterable[str]) -> dict[str, str]:
    """The text of each strategy that a reader has added: a run with another text is another run.

    Args:
        names: of strategies; those of this package are passed over.
    """
    found = {}
    for name in names:
        if FAMILIES.get(name) == OWN:
            try:
                found[name] = inspect.getsource(STRATEGIES[name])
            except (OSError, TypeError):  # typed where Python keeps no source
                found[name] = repr(STRATEGIES[name])
    return found
