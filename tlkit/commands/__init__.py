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
    """Lay texts out in lines of at most `WIDTH`: columns without room go on below, with the first one repeated."""
    first, *_ = table.columns
    return table.fillna("").set_index(first).rename_axis(index=None, columns=first).to_string(line_width=WIDTH)
