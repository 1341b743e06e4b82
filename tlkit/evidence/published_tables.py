"""Tables as they are published: read as they are written, or refused where a number may mean two things."""

import csv
import io
import math
import re
from collections.abc import Collection
from itertools import dropwhile
from pathlib import Path

import numpy as np
import pandas as pd

THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,]\d{3})+")  # such as 1,240, which may be 1240 or 1.24
FEWEST_ITEMS = 30  # below, a normal distribution is a poor picture of a mean
MOST_ITEMS = 10**12  # more than any test has
SINGLE = 6e-8  # how far a number of 32 bits is from what it stands for, as a share of it


def read_table(path: Path) -> pd.DataFrame:
    """Read a table from a CSV file as it is written: every field stays a text, so that 007 and None are names.

    Fields are separated by commas, semicolons or tabs, by what the line of column names has most of. Lines without
    content do not count, nor do comments that begin with "# " before the first line.

    Raises:
        ValueError: where a line does not have as many fields as there are column names.
        OSError: where the file cannot be read.
    """
    wanted = "expected a CSV file with a line of column names, as plain text in UTF-8"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {wanted} ({error})") from None
    lines = list(dropwhile(lambda line: line.startswith("# ") or not line.strip(), io.StringIO(text)))
    if not lines:
        raise ValueError(f"{path}: is empty, {wanted}")
    mark = max(",;\t", key=lines[0].count)
    rows = [[field.strip() for field in fields] for fields in csv.reader(lines, delimiter=mark, skipinitialspace=True)]
    header, *rows = [fields for fields in rows if any(fields)]
    for fields in rows:
        if len(fields) != len(header):
            raise ValueError(
                f"{path}: the line {mark.join(fields)!r} has {len(fields)} fields, expected {len(header)}, one for "
                f"each column name (write decimals behind a point, and quote a field that holds {mark!r})"
            )
    return pd.DataFrame(rows, columns=header, dtype=str)


def scores_of(
    table: pd.DataFrame, metric: str, items: float | str, name: str | None, deviation: str | None, percent: bool
) -> pd.DataFrame:
    """What a table says of each row, as numbers; the arguments are those of `audit`.

    Returns:
        Columns name, value, spread (the standard deviation over items), items and rounding: half a unit of the last
        decimal that a share in the table has, 0 for means.
    """
    columns, counted = table.columns.tolist(), isinstance(items, str)
    name = _names_column(table, {metric, items, deviation}) if name is None else name
    for column in (metric, name, *([items] if counted else []), *([deviation] if deviation else [])):
        if (count := columns.count(column)) != 1:
            column_names = ", ".join(map(repr, columns))
            raise ValueError(
                f"the table has {count or 'no'} column{'s' * (count > 1)} {column!r}: expected one of {column_names}"
            )
    if len(table) < 2:
        raise ValueError(f"the table has {len(table)} row(s): expected at least 2 to compare")
    names = table[name].astype(str).mask(table[name].isna(), "")
    if (unclear := names.duplicated() | (names.str.strip() == "")).any():
        raise ValueError(
            f"column {name!r} has {names[unclear].iloc[0]!r}, which is no row's name or that of several: expected a "
            "name of its own in each row (name, --name)"
        )
    n = _items(table[items] if counted else pd.Series(items, table.index, name="items"), names)
    if deviation is None:
        value, rounding = _shares(table[metric], n, names, percent)
        spread = np.sqrt(value * (1 - value))
    else:
        value, spread, rounding = _numbers(table[metric], names), _numbers(table[deviation], names), 0.0
        _refuse(spread < 0, table[deviation], names, "at least 0")
        if not spread.any():
            raise ValueError(f"{deviation} is 0 in every row: expected standard deviations over items")
    scores = {"name": names.to_numpy(), "value": value, "spread": spread, "items": n.astype(int), "rounding": rounding}
    return pd.DataFrame(scores)


def _names_column(table: pd.DataFrame, others: Collection[object]) -> str | None:
    """The first column that is not asked for otherwise and has not only numbers, as places and years are."""
    left = [place for place, column in enumerate(table.columns) if column not in others]
    named = [place for place in left if any(math.isnan(_number(given)) for given in table.iloc[:, place])]
    return table.columns[(named or left or [0])[0]] if len(table.columns) else None


def _refuse(where: np.ndarray, column: pd.Series, names: pd.Series, expected: str) -> None:
    if where.any():
        row = int(np.argmax(where))
        raise ValueError(f"row {names.iloc[row]!r}: {column.name} is {str(column.iloc[row])!r}, expected {expected}")


def _number(given: object) -> float:
    """By way of its text, as which True is none, nor is 1_000."""
    try:
        return math.nan if "_" in str(given) else float(str(given))
    except ValueError:
        return math.nan


def _numbers(column: pd.Series, names: pd.Series) -> np.ndarray:
    numbers = np.array([_number(given) for given in column])
    _refuse(~np.isfinite(numbers), column, names, "a number such as 1062.5, without comma")
    return numbers


def _items(column: pd.Series, names: pd.Series) -> np.ndarray:
    marked = column.astype(str).str.fullmatch(THOUSANDS.pattern).to_numpy(dtype=bool)
    _refuse(marked, column, names, "a whole number without a mark for thousands")
    n = _numbers(column, names)
    wanted = f"a whole number of at least {FEWEST_ITEMS} and at most {MOST_ITEMS:.0e}"
    _refuse((n < FEWEST_ITEMS) | (n > MOST_ITEMS) | (n % 1 != 0), column, names, wanted)
    return n


def _shares(column: pd.Series, n: np.ndarray, names: pd.Series, percent: bool) -> tuple[np.ndarray, float]:
    """Shares from 0 to 1, and half a unit of the last decimal that one of them has.

    A share of n items is a whole number of them divided by n, up to the rounding of what was printed.
    """
    printed = column.astype(str).str.strip()
    if pd.api.types.is_numeric_dtype(column):
        printed = printed.str.removesuffix(".0")
    if percent:
        printed = printed.str.removesuffix("%").str.strip()
        value = _numbers(printed, names)
        unclear = (value < 0) | ((value > 0) & (value <= 1)) | (value > 100)
        _refuse(unclear, column, names, "0, or above 1 to 100 (what is 1 or less may be a share: leave percent out)")
    else:
        value = _numbers(printed, names)
        _refuse(
            (value < 0) | (value > 1), column, names, "0 to 1, or percent (--percent), or a deviation (--deviation)"
        )
    unit = 100 if percent else 1
    value, rounding = value / unit, 0.5 * 10.0 ** -printed.map(_decimals).to_numpy(dtype=float) / unit
    off = np.abs(value - np.round(value * n) / n) > np.maximum(rounding, SINGLE * value) + 1e-9
    _refuse(off, column, names, "what a whole number of items gives (is their number right? else give a --deviation)")
    return value, float(rounding.min())


def _decimals(printed: str) -> int:
    return 15 if "e" in printed.lower() else len(printed.partition(".")[2])
