"""A reader's own strategies: from a file, known by their source, and in one line what they raise."""

import functools
import hashlib
import importlib.util
import inspect
import re
import sys
from pathlib import Path

import torch
from torch import nn

from tlkit.strategies.registry import FAMILIES, OWN, STRATEGIES, Selector, defined_in_one_file

_from_files: dict[str, tuple[Selector, str]] = {}  # by name: a strategy of a file, and the SHA-256 of that file
NO_CONTENTS = (
    "; strategies are first tried on a model without weights, where there are no values to ask for: choose by names "
    "and shapes, or, where next(model.parameters()).is_meta, any of the same size"
)


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
    source = path.read_bytes()
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(f"plugin_{path.stem}", path))
    sys.modules[module.__name__] = module  # where Python looks for the source of what it defines
    try:
        with defined_in_one_file() as found:
            # Compiled here, and not by Python's own loader: that takes an older file of the same second and size from
            # its cache, and what is run has to be what is hashed.
            exec(compile(source, str(path), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        line = _line_in(str(path), error) or getattr(error, "lineno", None)
        said = "it ends the whole program: take sys.exit() out" if isinstance(error, SystemExit) else error
        raise ValueError(f"{path}, line {line or '?'}: {type(error).__name__}: {said}") from error
    if not found:
        raise ValueError(f"{path} defines no strategy: expected a function under @strategy('name')")
    digest = hashlib.sha256(source).hexdigest()
    _from_files.update({name: (select, digest) for name, select in found.items()})
    return list(found)


def sha256_of_own(name: str) -> str | None:
    """The SHA-256 of the source of a strategy that a reader has added: a run with another source is another run.

    Args:
        name: of a strategy.

    Returns:
        Of one from a file, that of the whole file. Of one from a notebook, that of its function alone: constants and
        other functions that it uses are no part of it, so what changes them belongs into a file. None for one of this
        package.

    Raises:
        ValueError: for one whose source Python does not know.
    """
    if FAMILIES.get(name) != OWN:
        return None
    select, digest = _from_files.get(name, (None, ""))
    if select is STRATEGIES[name]:
        return digest
    return hashlib.sha256(_source_of(name, STRATEGIES[name]).encode()).hexdigest()


def _source_of(name: str, select: Selector) -> str:
    while isinstance(select, functools.partial):
        select = select.func
    try:
        return inspect.getsource(select if inspect.isroutine(select) else type(select))
    except (OSError, TypeError) as error:
        raise ValueError(
            f"strategy {name!r}: Python does not know its source, and runs could not be told from those of another "
            f"({error}): expected it in a file, for `load_plugin` or --plugin, or in a cell of a notebook"
        ) from error


def call_strategy(name: str, model: nn.Module, options: dict[str, object]) -> object:
    """What the function of a strategy returns.

    Args:
        name: of `STRATEGIES`.
        model: of which everything is frozen; it is changed.
        options: of the strategy.

    Raises:
        ValueError: where a strategy of the reader's own raises anything but a lack of memory; names it, the line and
            the cause.
    """
    if FAMILIES[name] != OWN:
        return STRATEGIES[name](model, **options)
    try:
        return STRATEGIES[name](model, **options)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except (Exception, SystemExit) as error:
        said, below = " ".join(str(error).split()), error.__traceback__.tb_next
        where = ""
        if below is not None:  # else Python could not even call it
            file = below.tb_frame.f_code.co_filename
            place = f"{Path(file).name}, " if Path(file).is_file() else ""  # a cell of a notebook has no file
            where = f" ({place}line {_line_in(file, error)})"
        asked = re.search(r"\bmeta\b", said, re.IGNORECASE) and any(p.is_meta for p in model.parameters())
        raise ValueError(
            f"strategy {name!r}{where} raised {type(error).__name__}: {said}{NO_CONTENTS if asked else ''}"
        ) from error


def _line_in(file: str, error: BaseException) -> int | None:
    """The line of a file that the error came through last."""
    traced, line = error.__traceback__, None
    while traced is not None:
        line = traced.tb_lineno if traced.tb_frame.f_code.co_filename == file else line
        traced = traced.tb_next
    return line
