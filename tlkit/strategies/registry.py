"""The strategies there are, by name: those of this package, and those that a reader adds in a notebook or a file."""

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
OWN = "own"  # the family of what a reader adds
STRATEGIES: dict[str, Selector] = {}
FAMILIES: dict[str, str] = {}  # of each strategy the family that it belongs to
OPTIONS: dict[str, dict[str, object]] = {}  # and its options with their defaults
KEPT_IN_MODEL_DTYPE = ("prompt_tuning", "prefix_tuning", "ln_tuning")  # peft keeps what they train in no other
RESERVED = ("all", "peft", "classic")
_of_files: dict[Selector, str] = {}  # of a strategy from a file, the SHA-256 of that file


def strategy(name: str, family: str = OWN, options: dict[str, object] | None = None) -> Callable[[Selector], Selector]:
    """Make a function a strategy.

    The function is given a model of which everything is frozen. It makes trainable what it wants (`requires_grad_`)
    and returns the model, or nothing; or puts adapters into it and returns peft's wrapper. Where some weights learn
    faster or begin later, it returns the model and a list of `ParameterGroup`.

    Args:
        name: for the command line and for tables.
        family: leave it out; it groups the strategies of this package.
        options: with their defaults, where the function's parameters do not say them. A value has to be of its
            default's type.
    """

    def register(select: Selector) -> Selector:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in RESERVED:
            raise ValueError(f"strategy {name!r}: expected a name of small letters, digits and _, none of {RESERVED}")
        if FAMILIES.get(name, OWN) != OWN:
            raise ValueError(f"strategy {name!r} is there already: choose another name")
        first, *others = inspect.signature(select).parameters.values() or (None,)
        defaults = {other.name: other.default for other in others if other.kind is not other.VAR_KEYWORD}
        if first is None or inspect.Parameter.empty in defaults.values():
            raise ValueError(f"strategy {name!r}: expected a function of a model, and defaults for other parameters")
        STRATEGIES[name], FAMILIES[name], OPTIONS[name] = select, family, options or defaults
        return select

    return register


def strategies_named(names: Iterable[str] | None) -> list[str]:
    """The strategies that names stand for, each once; "classic" (the default), "peft" and "all" stand for several."""
    groups = {
        "classic": CLASSIC,
        "peft": [name for name, family in FAMILIES.items() if family == "peft"],
        "all": [*CLASSIC, *(name for name, family in FAMILIES.items() if family != "head")],
    }
    chosen = [member for name in (("classic",) if names is None else names) for member in groups.get(name, (name,))]
    return list(dict.fromkeys(chosen))


def dtype_of_weights(name: str, precision: str) -> torch.dtype:
    """bf16 for weights that stay frozen beside adapters; fp32 for others, whose small steps bf16 would round away."""
    frozen = FAMILIES.get(name) == "peft" and name not in KEPT_IN_MODEL_DTYPE
    return torch.bfloat16 if precision == "bf16" and frozen else torch.float32


def check_strategy(name: str, options: dict[str, object]) -> None:
    """Refuse an unknown strategy, and options or values that it does not have, before there is a model."""
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
    source, before = Path(path).read_bytes(), dict(STRATEGIES)
    try:
        runpy.run_path(str(path))
    except (Exception, SystemExit) as error:
        raise ValueError(f"{path}{line_in(error)}: {type(error).__name__}: {error}") from error
    added = [select for name, select in STRATEGIES.items() if before.get(name) is not select]
    if not added:
        raise ValueError(f"{path} defines no strategy: expected a function under @strategy('name')")
    _of_files.update(dict.fromkeys(added, hashlib.sha256(source).hexdigest()))


def sha256_of_own(name: str) -> str | None:
    """The SHA-256 of the source of a strategy that a reader has added: a run with another source is another run.

    Of one from a notebook, the source is that of its function alone, without constants and functions that it uses.
    """
    if FAMILIES.get(name) != OWN:
        return None
    select = STRATEGIES[name]
    return _of_files.get(select) or hashlib.sha256(inspect.getsource(select).encode()).hexdigest()


def line_in(error: BaseException) -> str:
    """The line of the called code, which is one call below the one that caught the error; nothing if it never ran."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)[1:] if "<frozen" not in frame.filename]
    return f", line {frames[0].lineno}" if frames else ""
