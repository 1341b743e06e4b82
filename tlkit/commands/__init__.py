"""The commands, each described by its options (`options.py`), and what they share."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 100  # columns of a terminal or a projector


@dataclass(frozen=True)
class Outcome:
    """What a command returns, and the exit code."""

    data: object = None  # for machines
    text: str = ""
    code: int = 0


def as_columns(table: "pd.DataFrame") -> str:
    """Lay texts out in lines of at most `WIDTH`; columns without room go below, behind the first again."""
    first, *_ = table.columns
    return table.fillna("").set_index(first).rename_axis(index=None, columns=first).to_string(line_width=WIDTH)
