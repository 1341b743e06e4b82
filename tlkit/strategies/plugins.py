"""A reader's own strategies: from a file, known by their source, and in one line what they raise."""

import hashlib
import inspect
import sys
import traceback
import types
from pathlib import Path

import torch
from torch import nn

from tlkit.strategies.registry import FAMILIES, OWN, STRATEGIES, Selector

_of_files: dict[Selector, str] = {}  # of a strategy from a file, the SHA-256 of that file


def load_plugin(path: str | Path) -> list[str]:
    """Run a file of Python in which strategies are defined.

    It is a program like any other, and can do whatever you can: load only what you have read.

    Returns:
        The names of the strategies that it defines.

    Raises:
        FileNotFoundError: where there is no such file.
        ValueError: where it cannot be run, or defines no strategy.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected Python in which @strategy defines strategies")
    source, before = path.read_bytes(), dict(STRATEGIES)
    module = types.ModuleType(f"plugin_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where Python looks for the source of what it defines
    try:
        # Compiled here, and not by Python's own loader: that takes an older file of the same second and size from
        # its cache, and what is run has to be what is hashed.
        exec(compile(source, str(path), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        raise ValueError(f"{path}{_line_in(error)}: {type(error).__name__}: {error}") from error
    added = {name: select for name, select in STRATEGIES.items() if before.get(name) is not select}
    if not added:
        raise ValueError(f"{path} defines no strategy: expected a function under @strategy('name')")
    _of_files.update(dict.fromkeys(added.values(), hashlib.sha256(source).hexdigest()))
    return list(added)


def sha256_of_own(name: str) -> str | None:
    """The SHA-256 of the source of a strategy that a reader has added: a run with another source is another run.

    Returns:
        Of one from a file, that of the whole file. Of one from a notebook, that of its function alone: constants and
        other functions that it uses are no part of it, so what changes them belongs into a file. None for one of this
        package.
    """
    if FAMILIES.get(name) != OWN:
        return None
    select = STRATEGIES[name]
    return _of_files.get(select) or hashlib.sha256(inspect.getsource(select).encode()).hexdigest()


def call_strategy(name: str, model: nn.Module, options: dict[str, object]) -> object:
    """What the function of a strategy returns.

    Raises:
        ValueError: where a strategy of the reader's own raises anything but a lack of memory; names it, the line and
            the cause.
    """
    try:
        return STRATEGIES[name](model, **options)
    except Exception as error:
        if FAMILIES[name] != OWN or isinstance(error, MemoryError | torch.OutOfMemoryError):
            raise
        reason = " ".join(str(error).split())
        raise ValueError(f"strategy {name!r}{_line_in(error)}: {type(error).__name__}: {reason}") from error


def _line_in(error: BaseException) -> str:
    """The line of the called code, which is one call below the one that caught the error; nothing if it never ran."""
    frames = traceback.extract_tb(error.__traceback__)
    return f", line {frames[1].lineno}" if len(frames) > 1 else ""
