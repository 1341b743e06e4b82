"""What a command answers, and how it is put for people and for machines."""

import dataclasses
import math
import re
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING
from unicodedata import combining, east_asian_width

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 100  # columns of a terminal or a projector
WORDS, HEADING = 24, 8  # of these, what a column of words may be cut down to, and its heading
GAP = "  "  # between columns
NUMBER = r"[-+]?(\d[\d,]*(\.\d*)?(e[-+]?\d+)?|inf)"
FIGURES = re.compile(rf"({NUMBER}( (to|of) {NUMBER})?)?")


@dataclass(frozen=True)
class Outcome:
    """What a command found: `data` for machines, `text` for people, and the exit code."""

    data: object = None
    text: str = ""
    code: int = 0


def as_columns(table: "pd.DataFrame") -> str:
    """Lay a table out for a terminal.

    Figures are aligned to the right, with as many decimals in all rows of a column; words to the left, and where they
    are long, on several lines. What is too wide all the same goes on below, with its first column repeated.

    Args:
        table: what to show; empty where a value is missing.

    Returns:
        Lines of at most `WIDTH` characters.
    """
    columns = [_Column(str(name), table[name]) for name in table]
    first, *others = columns
    lines, row = [], [first]
    for column in others:
        if len(row) > 1 and _width([*row, column]) > WIDTH:
            lines += [_laid_out(row), ""]
            row = [first]
        row.append(column)
    return "\n".join([*lines, _laid_out(row)])


class _Column:
    """A column as text, and how wide it would like to be and has to be."""

    def __init__(self, name: str, values: "pd.Series") -> None:
        self.name, self.cells = name, _as_text(values)
        self.of_figures = all(FIGURES.fullmatch(cell) for cell in self.cells)
        self.most = max(map(_columns_of, (*self.cells, *name.split(), name[:HEADING], " ")))
        self.least = self.most if self.of_figures else min(self.most, WORDS)

    def lines_of(self, text: str, room: int) -> list[str]:
        """A cell or the heading, cut into lines that are as wide as the column."""
        columns = _columns_of(text)
        # textwrap counts characters: where some are wide, as many as fit even if all are.
        lines = textwrap.wrap(text, room // 2 if len(text) < columns > room else room, break_on_hyphens=False)
        filled = [" " * (room - _columns_of(line)) for line in lines]
        return [fill + line if self.of_figures else line + fill for line, fill in zip(lines, filled, strict=True)]


def _columns_of(text: str) -> int:
    """How wide a terminal shows a text: Chinese, Japanese and Korean characters take two columns, accents none."""
    return sum((east_asian_width(sign) in "WF") + (not combining(sign)) for sign in text)


def _width(columns: list[_Column]) -> int:
    return sum(column.least for column in columns) + len(GAP) * (len(columns) - 1)


def _laid_out(columns: list[_Column]) -> str:
    """Columns side by side; those of words share what room there is."""
    spare, rooms = WIDTH - _width(columns), []
    for column in columns:
        rooms.append(min(column.most, column.least + max(0, spare)))
        spare -= rooms[-1] - column.least
    lines = []
    for row in zip(*((column.name, *column.cells) for column in columns), strict=True):
        cut = [column.lines_of(text, room) for column, text, room in zip(columns, row, rooms, strict=True)]
        for parts in zip_longest(*cut):
            padded = (part or " " * room for part, room in zip(parts, rooms, strict=True))
            lines.append(GAP.join(padded).rstrip())
    return "\n".join(lines)


def _as_text(values: "pd.Series") -> list[str]:
    """Cells as text; numbers that are not whole with two decimals, or with three digits where two decimals hide one."""
    import pandas as pd

    form, given = "{}", values.dropna()
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
        form = "{:,.0f}" if all(float(value).is_integer() for value in given) else "{:,.2f}"
        sizes = [abs(value) for value in given if value]
        form = "{:.3g}" if sizes and min(sizes) < 0.01 and max(sizes) < 1000 else form
    return ["" if pd.isna(value) else form.format(value) for value in values]


def fitted(text: str) -> str:
    """Lines for stdout: no longer than a terminal is wide; a pipe gets them as they are."""
    return wrapped(text) if sys.stdout.isatty() else text


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
