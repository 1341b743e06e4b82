"""Which rows of a published table can be told apart, by the sampling of test items alone."""

import csv
import math
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtrit

from tlkit.evidence.statistics import CONFIDENCE, rank_intervals
from tlkit.files import read_text

LEVEL = 1 - CONFIDENCE
Z = float(ndtri(1 - LEVEL / 2))
POWER = 0.8  # how often a difference should be found
FEWEST_ITEMS = 30  # for a mean to be near normal
ASSUMED = (
    "Items are independent; where they come in groups, all intervals are too narrow.",
    "Each item was right or wrong; means of something finer, such as F1, cannot be judged so.",
    "The covariance of a pair is taken as zero, which is cautious: answers to the same items correlate positively.",
    "Each row is one trained model: a separated pair is two models that differ, not yet two methods.",
    "Rows with different numbers of items were tested on different, independent items.",
)


@dataclass(frozen=True)
class Audit:
    """What can be said of a published table."""

    # Best first: name, value, spread (the standard deviation over items), error (the standard error), low and high
    # (95%, of this row alone), items, rank.
    table: pd.DataFrame
    pairs: pd.DataFrame  # as of `compare_pairs`

    def plan(self, difference: float = 0.01) -> pd.DataFrame:
        """Say how many items or seeds find one difference 80% of the time, of a pair chosen beforehand."""
        spread = float(self.table.spread.max())
        items = {shared: items_needed(difference, spread, correlation=shared) for shared in (0, 0.5)}
        seeds = {times: seeds_needed(difference, times * difference) for times in (0.5, 1, 2)}
        rows = [("items", f"answers that correlate by {shared:g}", needed) for shared, needed in items.items()]
        rows += [("seeds", f"deviation between seeds {times:g} times as large", n) for times, n in seeds.items()]
        return pd.DataFrame(rows, columns=["of", "assumed", "needed"]).assign(difference=difference)


def audit(
    table: pd.DataFrame,
    metric: str,
    items: float | str,
    *,
    name: str | None = None,
    percent: bool = False,
) -> Audit:
    """Say which rows of a published table differ by more than the sampling of test items explains.

    A share p of n items has the variance p (1 - p) / n, and a difference the sum of both, as far as `ASSUMED` holds.

    Args:
        table: a row for each model or method.
        metric: the column that is compared: shares from 0 to 1, the more the better.
        items: how many items each row was tested on, or the column that says it.
        name: the column of the rows' names; default: the first that is not all numbers.
        percent: the shares are percentages, from 0 to 100; 0.6 is refused, as it may be a share.

    Source:
        Miller 2024, Adding error bars to evals (arXiv 2411.00640). Dunn 1961, Multiple comparisons among means
        (Bonferroni's intervals). Brown and Heathers 2017, The GRIM test (shares that no number of items gives).
        Wilson 1927, Probable inference (an interval of one share that stays within 0 and 1).
    """
    rows = _scores_of(table, metric, items, name, percent)
    rows = rows.sort_values("value", ascending=False, kind="stable", ignore_index=True)
    share, n = rows.value, rows["items"]
    rows["error"] = rows.spread / np.sqrt(n)
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z * np.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
    rows["low"], rows["high"] = np.maximum(middle - half, 0), np.minimum(middle + half, 1)
    pairs = _pairs(rows)
    # Ranks begin with the lowest.
    rows["rank"] = rank_intervals(pairs.assign(difference=-pairs.difference), rows.name.tolist()).to_numpy()
    return Audit(rows, pairs)


def items_needed(difference: float, spread: float, *, correlation: float = 0.0) -> int:
    """Compute how many test items find a difference of one pair 80% of the time, at a level of 5%.

    Args:
        spread: the standard deviation over items, of a share p the root of p (1 - p).
        correlation: of two rows' answers.
    """
    return math.ceil(2 * (1 - correlation) * ((Z + ndtri(POWER)) * spread / difference) ** 2)


def seeds_needed(difference: float, deviation: float) -> int:
    """Compute how many seeds of each of two rows find a difference 80% of the time, at a level of 5%, on these items.

    Args:
        deviation: the standard deviation between seeds, equal for both.
    """
    for seeds in count(2):
        freedom = 2 * (seeds - 1)
        errors = stdtrit(freedom, 1 - LEVEL / 2) + stdtrit(freedom, POWER)
        if seeds >= 2 * (errors * deviation / difference) ** 2:
            return seeds


def _pairs(rows: pd.DataFrame) -> pd.DataFrame:
    one, other = np.triu_indices(len(rows), k=1)
    value, error, n = (rows[column].to_numpy() for column in ("value", "error", "items"))
    difference, same, level = value[one] - value[other], n[one] == n[other], LEVEL / len(one)
    # Near 0 or 1 few items show too little variance: of rows with other items, take at least that of equal shares.
    both = (value[one] * n[one] + value[other] * n[other]) / (n[one] + n[other])
    pooled = np.where(same, 0, both * (1 - both) * (1 / n[one] + 1 / n[other]))
    half = -ndtri(level / 2) * np.sqrt(np.maximum(error[one] ** 2 + error[other] ** 2, pooled))
    # McNemar's exact test must be able to separate them where the better row is right on all that the other is.
    more = np.round(np.abs(difference) * n[one])
    possible = ~same | (2 * 0.5**more < level)
    half = np.where(possible, half, np.maximum(half, np.abs(difference)))  # then zero is in the interval
    names = rows.name.to_numpy()
    columns = {"first": names[one], "second": names[other], "difference": difference}
    columns |= {"low": difference - half, "high": difference + half, "separated": np.abs(difference) > half}
    return pd.DataFrame(columns)


def read_table(path: Path) -> pd.DataFrame:
    """Read a CSV file as texts, so that 007 and None are names; comments begin with "# ".

    Fields are separated by commas, semicolons or tabs, whichever the first line has most of.
    """
    lines = [line for line in read_text(path).splitlines() if line.strip(" ,;") and not line.startswith("# ")]
    mark = max(",;\t", key=lines[0].count) if lines else ","
    rows = [[field.strip() for field in row] for row in csv.reader(lines, delimiter=mark, skipinitialspace=True)]
    if not rows or len(set(rows[0])) < len(rows[0]) or {len(row) for row in rows} != {len(rows[0])}:
        raise ValueError(
            f"{path}: expected a CSV file with a line of column names, no two alike, and as many fields in each line "
            f"(quote one that holds {mark!r})"
        )
    return pd.DataFrame(rows[1:], columns=rows[0])


def _scores_of(table: pd.DataFrame, metric: str, items: float | str, name: str | None, percent: bool) -> pd.DataFrame:
    """Columns name, value, spread and items, as numbers."""
    if items not in table and _numbers(pd.Series([items])).notna().all():
        table, items = table.assign(items=items), "items"
    others = [column for column in table if column not in (metric, items)]
    name = name or next((column for column in others if _numbers(table[column]).isna().any()), (others or [None])[0])
    for column in (metric, name, items):
        if column not in table:
            raise ValueError(f"the table has no column {column!r}: expected one of {', '.join(map(repr, table))}")
    if len(table) < 2:
        raise ValueError(f"the table has {len(table)} row(s): expected at least 2")
    names = table[name].astype(str)
    if (unclear := names.duplicated() | (names.str.strip() == "")).any():
        raise ValueError(f"column {name!r} has {names[unclear].iloc[0]!r}: expected a name of its own in each row")

    def refuse(wrong: pd.Series, column: str, expected: str) -> None:
        if wrong.any():
            row = wrong.idxmax()
            raise ValueError(f"row {names[row]!r}: {column} is {str(table[column][row])!r}, expected {expected}")

    n, value = _numbers(table[items]), _numbers(table[metric])
    refuse(~(n >= FEWEST_ITEMS) | (n % 1 != 0), items, f"a whole number of at least {FEWEST_ITEMS}, such as 1000")
    refuse(~np.isfinite(value), metric, "a number such as 62.5, with a point")
    rounding = table[metric].map(_rounding)
    if percent:
        refuse((value > 0) & (value <= 1), metric, "0, or above 1 to 100 (is it a share? then without percent)")
        value, rounding = value / 100, rounding / 100
    refuse((value < 0) | (value > 1), metric, "0 to 1, or 0 to 100 with --percent")
    # A share of n items is a whole number of them, up to rounding.
    off = (value - np.round(value * n) / n).abs() > rounding + 1e-7
    refuse(off, metric, "what a whole number of items gives (is their number right?)")
    spread = np.sqrt(value * (1 - value))
    return pd.DataFrame({"name": names, "value": value, "spread": spread, "items": n.astype(int)})


def _numbers(column: pd.Series) -> pd.Series:
    """Numbers by way of texts, as which True is none."""
    texts = column.astype(str).str.strip().str.removesuffix("%")
    return pd.to_numeric(texts, errors="coerce").astype(float)


def _rounding(given: object) -> float:
    """Half a unit of the last printed decimal."""
    printed = str(given).strip().removesuffix(".0")
    return 0.5 * 10.0 ** -(15 if "e" in printed.lower() else len(printed.rstrip("% ").partition(".")[2]))
