"""What a command answers, and how it is put for people and for machines."""

import dataclasses
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 100  # columns of a terminal or a projector


@dataclass(frozen=True)
class Outcome:
    """What a command found: `data` for machines, `text` for people, and the exit code."""

    data: object = None
    text: str = ""
    code: int = 0


def as_columns(table: "pd.DataFrame") -> str:
    """A table for a terminal: aligned, its first column repeated where the others take more than one line.

    Args:
        table: what to show; empty where a value is missing.

    Returns:
        Lines of at most `WIDTH` characters, as far as single columns allow.
    """
    named = table.set_index(table.columns[0]).rename_axis(None)
    return named.to_string(na_rep="", line_width=WIDTH)


def wrapped(text: str) -> str:
    """Longer lines than a terminal shows, cut at a space; what follows is indented."""
    cut = textwrap.TextWrapper(WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(cut.fill(line) if len(line) > WIDTH else line for line in text.splitlines())


def plain(value: object) -> object:
    """What JSON can hold: dataclasses by field, paths and other things as text, numbers that are none as null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
