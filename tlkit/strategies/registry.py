"""The strategies by name: those of this package, and those that a reader adds in a notebook or a file."""

import hashlib
import inspect
import math
import re
import runpy
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from torch import nn

from tlkit.models.parts import ParameterGroup
from tlkit.names import CLASSIC
from tlkit.options import is_a

Groups = Sequence[ParameterGroup]
Selector = Callable[..., nn.Module | tuple[nn.Module, Groups] | None]
USER = "user"  # the family of what a reader adds
STRATEGIES: dict[str, Selector] = {}
FAMILIES: dict[str, str] = {}  # of each strategy
OPTIONS: dict[str, dict[str, object]] = {}  # of each strategy, with their defaults
KEPT_IN_MODEL_DTYPE = ("prompt_tuning", "prefix_tuning", "ln_tuning")  # peft keeps what they train in no other
RESERVED = ("all", "peft", "classic")


def strategy(name: str, family: str = USER, options: dict[str, object] | None = None) -> Callable[[Selector], Selector]:
    """Make a function a strategy.

    The function gets a frozen model. It makes trainable what it wants (`requires_grad_`) and returns the model, or
    nothing; or puts adapters into it and returns peft's wrapper. Where some weights learn faster or begin later, it
    returns the model and a list of `ParameterGroup`.

    Args:
        name: for the command line and for tables.
        family: "weights" of the model itself, "head" of a classifier, "peft" beside a base that may be
            in bf16 or 4 bits. Leave it out.
        options: with their defaults, where the function's parameters do not say them.
    """

    def register(select: Selector) -> Selector:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in RESERVED:
            raise ValueError(f"strategy {name!r}: expected a name of small letters, digits and _, none of {RESERVED}")
        if FAMILIES.get(name, USER) != USER:
            raise ValueError(f"strategy {name!r} is there already: choose another name")
        first, *others = inspect.signature(select).parameters.values() or (None,)
        defaults = {other.name: other.default for other in others if other.kind is not other.VAR_KEYWORD}
        if first is None or inspect.Parameter.empty in defaults.values():
            raise ValueError(f"strategy {name!r}: expected a function of a model, and defaults for other parameters")
        STRATEGIES[name], FAMILIES[name], OPTIONS[name] = select, family, options or defaults
        return select

    return register


def strategies_named(names: Iterable[str]) -> list[str]:
    """The strategies that names stand for, each once; "classic" (`CLASSIC`), "peft" and "all" stand for several."""
    groups = {
        "classic": CLASSIC,
        "peft": [name for name, family in FAMILIES.items() if family == "peft"],
        "all": [*CLASSIC, *(name for name, family in FAMILIES.items() if family != "head")],
    }
    return list(dict.fromkeys(member for name in names for member in groups.get(name, (name,))))


def dtype_of_weights(name: str, precision: str) -> torch.dtype:
    """bf16 for weights that stay frozen beside adapters; fp32 for others, whose small steps bf16 would round away."""
    frozen = FAMILIES.get(name) == "peft" and name not in KEPT_IN_MODEL_DTYPE
    return torch.bfloat16 if precision == "bf16" and frozen else torch.float32


def check_strategy(name: str, options: dict[str, object]) -> None:
    """Refuse an unknown strategy, and options or values that it does not have."""
    if name not in STRATEGIES:
        raise ValueError(f"strategy {name!r} is unknown: expected one of {', '.join(STRATEGIES)}")
    defaults = OPTIONS[name]
    if unknown := sorted(set(options) - set(defaults)):
        raise ValueError(f"{name} has no option {', '.join(unknown)}: expected {', '.join(defaults) or 'none'}")
    for option, value in options.items():
        kind = type(defaults[option])
        finite = not isinstance(value, float) or math.isfinite(value)
        if not finite or defaults[option] is not None and not is_a(kind, value):
            words = "number" if defaults[option] is None else kind.__name__
            raise ValueError(f"{name}: {option}={value!r}: expected a value of type {words}")


def load_plugin(path: str | Path | None) -> None:
    """Run a file of Python in which strategies are defined; it can do anything that a program can."""
    if path is None:
        return
    before = dict(STRATEGIES)
    try:
        runpy.run_path(str(path))
    except (Exception, SystemExit) as error:
        raise ValueError(f"{path}{line_in(error)}: {type(error).__name__}: {error}") from error
    if before == STRATEGIES:
        raise ValueError(f"{path} defines no strategy: expected a function under @strategy('name')")


def sha256_of_own(name: str) -> str | None:
    """The SHA-256 of the file in which a reader defines a strategy; in a notebook, of its function alone."""
    if FAMILIES.get(name) != USER:
        return None
    select = inspect.unwrap(STRATEGIES[name])  # a decorator may come from another file
    file = Path(inspect.getfile(select))
    source = file.read_bytes() if file.is_file() else inspect.getsource(select).encode()
    return hashlib.sha256(source).hexdigest()


def line_in(error: BaseException) -> str:
    """The line of the called code, one call below where the error was caught; nothing if it never ran."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)[1:] if "<frozen" not in frame.filename]
    return f", line {frames[0].lineno}" if frames else ""
