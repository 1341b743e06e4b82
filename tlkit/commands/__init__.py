"""The commands; and what one answers, and how that is put for people and for machines."""

import dataclasses
import math
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
    """Lay a table out for a terminal.

    Args:
        table: what to show; empty where a value is missing.

    Returns:
        Lines of at most `WIDTH` characters: columns that find no room go on below, with the first one repeated.
    """
    import pandas as pd

    cells = pd.DataFrame({str(name): _as_text(table[name]) for name in table})
    first = cells.columns[0]
    return cells.set_index(first).rename_axis(index=None, columns=first).to_string(line_width=WIDTH)


def _as_text(values: "pd.Series") -> list[str]:
    """Cells as text; numbers that are not whole with two decimals, or with three digits where two decimals hide one."""
    import pandas as pd

    form, given = "{}", values.dropna()
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
        form = "{:,.0f}" if all(float(value).is_integer() for value in given) else "{:,.2f}"
        sizes = [abs(value) for value in given if value]
        form = "{:.3g}" if sizes and min(sizes) < 0.01 and max(sizes) < 1000 else form
    return ["" if pd.isna(value) else form.format(value) for value in values]


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
