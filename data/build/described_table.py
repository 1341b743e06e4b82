"""Write a recorded table below lines that say what it depends on."""

import datetime
from pathlib import Path

import pandas as pd
import torch
import transformers


def write_described(table: pd.DataFrame, path: Path, command: str, **about: str) -> None:
    """Write a table as CSV, with versions, date and command above it, a line each.

    Args:
        table: what was recorded.
        path: of the file.
        command: that records it again.
        about: what else it depends on.
    """
    about |= {"torch": torch.__version__, "transformers": transformers.__version__}
    about |= {"date": datetime.date.today().isoformat(), "command": command}
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"# - {name}: {value}\n" for name, value in about.items())
        table.to_csv(file, index=False, lineterminator="\n")
