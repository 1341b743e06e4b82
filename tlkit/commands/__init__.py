"""The commands; and what one answers, and how a table is put for people."""

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
    """Lay a table out for a terminal.

    Args:
        table: what to show; empty where a value is missing.

    Returns:
        Lines of at most `WIDTH` characters: columns that find no room go on below, with the first one repeated.
    """
    first, *_ = table.columns
    return table.apply(_as_text).set_index(first).rename_axis(index=None, columns=first).to_string(line_width=WIDTH)


def _as_text(values: "pd.Series") -> "pd.Series":
    """Cells as text; numbers that are not whole with two decimals, or with three digits where two decimals hide one."""
    form = "{}"
    if values.dtype.kind in "iuf":
        given, sizes = values.dropna(), values[values != 0].abs()
        form = "{:,.0f}" if (given % 1 == 0).all() else "{:,.2f}"
        form = "{:.3g}" if sizes.min() < 0.01 and sizes.max() < 1000 else form
    return values.map(form.format).where(values.notna(), "")
