"""What a published table can show: which of its rows can be told apart, by the sampling of test items alone.

A leaderboard prints a score for each row and seldom how sure it is. The number of test items says a good part of it.
What it leaves open (the pairs' covariance, the luck of training) is said in `Audit.assumptions`.
"""

import io
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtrit

from tlkit.evidence.statistics import CONFIDENCE, rank_intervals
from tlkit.files import read_text

LEVEL = 1 - CONFIDENCE
Z = float(ndtri(1 - LEVEL / 2))
POWER = 0.8  # how often a difference that is there should be found, as is usual in planning
MOST_SEEDS = 10_000
FEWEST_ITEMS = 30  # below, a normal distribution is a poor picture of a mean
MOST_ITEMS = 10**12  # more than any test has
SINGLE = 6e-8  # how far a number of 32 bits is from what it stands for, as a share of it


@dataclass(frozen=True)
class Audit:
    """What can be said of a published table.

    Attributes:
        table: a row for each row, best first: name, value, spread (the standard deviation over items), error (the
            standard error), low and high (95%, of this row alone), items, rank.
        pairs: a row for each pair, as `compare_pairs` has them.
    """

    table: pd.DataFrame
    pairs: pd.DataFrame
    shares: bool  # whether the values are shares; otherwise they are means
    assumptions: tuple[str, ...]

    @property
    def separated(self) -> int:
        """How many pairs can be told apart."""
        return int(self.pairs.separated.sum())

    def plan(self, difference: float | None = None) -> pd.DataFrame:
        """Say how many items or seeds it takes to find one difference 80% of the time, in a pair chosen beforehand.

        Args:
            difference: default: one point of shares, of means a tenth of the items' spread.

        Returns:
            A row for each assumption: nobody knows correlation and spread between seeds from such a table.
        """
        spread = float(self.table.spread.max())
        wanted = (0.01 if self.shares else spread / 10) if difference is None else difference
        items = {shared: items_needed(wanted, spread, correlation=shared) for shared in (0, 0.5)}
        seeds = {times: seeds_needed(wanted, times * wanted) for times in (0.5, 1, 2)}
        rows = [("items", f"answers that correlate by {shared:g}", needed) for shared, needed in items.items()]
        rows += [("seeds", f"deviation between seeds {times:g} times as large", n) for times, n in seeds.items()]
        return pd.DataFrame(rows, columns=["of", "assumed", "needed"]).assign(difference=wanted)


def audit(
    table: pd.DataFrame,
    metric: str,
    items: float | str,
    *,
    name: str | None = None,
    deviation: str | None = None,
    percent: bool = False,
    lower_is_better: bool = False,
) -> Audit:
    """Say which rows of a published table differ by more than the sampling of test items explains.

    A share p of n items has the variance p (1 - p) / n, a mean of n items with standard deviation s the variance
    s² / n, and a difference the sum of both. All rows have answered the same items, but a table does not say who
    answered which, so their covariance is taken as zero. That is cautious: hard items are hard for all rows.

    Near 0 and 1 the normal distribution promises too much. So no pair of shares is separated where McNemar's exact test
    could not separate it with the most favourable answers, and of two rows with other items the variance is at least
    that of equal shares.

    Args:
        table: a row for each model or method, such as `read_table` or `pd.read_csv` returns.
        metric: the column that is compared: shares from 0 to 1, or means.
        items: how many items each row was tested on, or the column that says it. Rows with other numbers of items
            were tested on other items.
        name: the column of the rows' names; default: the first that is not all numbers.
        deviation: the column of standard deviations over items. With it the metric is a mean, without it a share.
        percent: the shares are percentages, from 0 to 100; one such as 0.6 is refused, as it may be a share.
        lower_is_better: of the metric.

    Raises:
        ValueError: naming column, row and what was expected, where the table cannot support an audit.

    Source:
        Miller 2024, Adding error bars to evals (arXiv 2411.00640). Dunn 1961, Multiple comparisons among means
        (Bonferroni's intervals). Brown and Heathers 2017, The GRIM test (shares that no number of items gives).
    """
    rows = _scores_of(table, metric, items, name, deviation, percent)
    rows = rows.sort_values("value", ascending=lower_is_better, kind="stable", ignore_index=True)
    rows["error"] = rows.spread / np.sqrt(rows["items"])
    rows["low"], rows["high"] = rows.value - Z * rows.error, rows.value + Z * rows.error
    if deviation is None:
        rows["low"], rows["high"] = _wilson(rows.value, rows["items"])
    pairs = _pairs(rows, deviation is None)
    better = pairs if lower_is_better else pairs.assign(difference=-pairs.difference)
    rows["rank"] = rank_intervals(better, rows.name.tolist()).to_numpy()
    return Audit(rows, pairs, deviation is None, _assumptions(rows["items"], deviation))


def items_needed(difference: float, spread: float, *, correlation: float = 0.0) -> int:
    """Compute how many test items find a difference of one pair 80% of the time, at a level of 5%.

    Args:
        spread: the standard deviation over items, of a share p the root of p (1 - p).
        correlation: of two rows' answers over the items.
    """
    return math.ceil(2 * (1 - correlation) * ((Z + ndtri(POWER)) * spread / difference) ** 2)


def seeds_needed(difference: float, deviation: float) -> int:
    """Compute how many seeds of each of two rows find a difference 80% of the time, at a level of 5%.

    The test items are taken as they are: more seeds say more about these, and nothing about others. A difference so
    small that it takes more than 10,000 seeds is a ValueError.

    Args:
        deviation: the standard deviation between seeds, in the same units, equal for both.
    """
    for seeds in range(2, MOST_SEEDS):
        freedom = 2 * (seeds - 1)
        errors = stdtrit(freedom, 1 - LEVEL / 2) + stdtrit(freedom, POWER)
        if seeds >= 2 * (errors * deviation / difference) ** 2:
            return seeds
    raise ValueError(f"difference={difference:g} of deviation={deviation:g}: takes more than {MOST_SEEDS:,} seeds")


def _wilson(share: pd.Series, n: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Wilson's interval of a share (1927), which stays within 0 and 1 and has a width at 0, too."""
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z * np.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
    return np.maximum(middle - half, 0), np.minimum(middle + half, 1)


def _pairs(rows: pd.DataFrame, shares: bool) -> pd.DataFrame:
    """Every pair with the difference, its interval by Bonferroni, and whether that excludes zero."""
    one, other = np.triu_indices(len(rows), k=1)
    value, error, n = (rows[column].to_numpy() for column in ("value", "error", "items"))
    difference, same, level = value[one] - value[other], n[one] == n[other], LEVEL / len(one)
    squared, possible = error[one] ** 2 + error[other] ** 2, np.ones(len(one), dtype=bool)
    if shares:
        # Near 0 or 1 a row of few items shows too little variance: of other items, take at least that of all.
        both = (value[one] * n[one] + value[other] * n[other]) / (n[one] + n[other])
        squared = np.where(same, squared, np.maximum(squared, both * (1 - both) * (1 / n[one] + 1 / n[other])))
        # McNemar's exact test, where the better row answered all that the worse one did and more.
        more = np.round(np.abs(difference) * n[one])
        possible = ~same | (2 * 0.5**more < level)
    half = -ndtri(level / 2) * np.sqrt(squared)
    half = np.where(possible, half, np.maximum(half, np.abs(difference)))  # then zero is in the interval
    names = rows.name.to_numpy()
    columns = {"first": names[one], "second": names[other], "difference": difference}
    columns |= {"low": difference - half, "high": difference + half, "separated": np.abs(difference) > half}
    return pd.DataFrame(columns)


def _assumptions(n: pd.Series, deviation: str | None) -> tuple[str, ...]:
    sentences = ["The items are independent of each other; where they come in groups, all intervals are too narrow."]
    if deviation is None:
        sentences.append("Each item was right or wrong; means of something finer, such as F1, need a deviation.")
    else:
        sentences.append(
            f"{deviation} is the standard deviation over items. Where it is a standard error or the spread over seeds, "
            "as behind ± in many tables, far too many pairs are separated."
        )
    if n.nunique() > 1:
        sentences.append("Rows with other numbers of items were tested on other items, independent of each other.")
    sentences.append(
        "Who answered which item is not known, so the covariance of a pair is taken as zero. This is cautious: answers "
        "nearly always correlate positively, which makes the true error smaller."
    )
    sentences.append(
        "Each row is one trained model. The table says nothing of other seeds, so a separated pair is two models that "
        "differ on items like these, and not yet two methods."
    )
    return tuple(sentences)


def read_table(path: Path) -> pd.DataFrame:
    """Read a table from a CSV file as it is written: every field stays a text, so that 007 and None are names.

    Fields are separated by commas, semicolons or tabs, by what the line of column names has most of. Lines without
    content do not count, nor do comments that begin with "# ". What is no such table is a ValueError.
    """
    lines = [line for line in read_text(path).splitlines() if line.strip(" ,;") and not line.startswith("# ")]
    mark = max(",;\t", key=lines[0].count) if lines else ","
    try:
        table = pd.read_csv(
            io.StringIO("\n".join(lines)), sep=mark, dtype=str, keep_default_na=False, skipinitialspace=True
        )
    except ValueError as error:  # pandas' own
        raise ValueError(f"{path}: expected a CSV file with a line of column names ({error})") from None
    if not isinstance(table.index, pd.RangeIndex):
        raise ValueError(
            f"{path}: each line has more fields than the line of column names: write decimals behind a point, and "
            f"quote a field that holds {mark!r}"
        )
    table = table.rename(columns=str.strip)
    return table.apply(lambda column: column.str.strip())


def _scores_of(
    table: pd.DataFrame, metric: str, items: float | str, name: str | None, deviation: str | None, percent: bool
) -> pd.DataFrame:
    """What a table says of each row, as numbers: columns name, value, spread and items."""
    counted = isinstance(items, str)
    others = [column for column in table if column not in (metric, items, deviation)]
    name = name or next((column for column in others if _numbers(table[column]).isna().any()), (others or [None])[0])
    for column in (metric, name, *([items] if counted else []), *([deviation] if deviation else [])):
        if column not in table:
            raise ValueError(f"the table has no column {column!r}: expected one of {', '.join(map(repr, table))}")
    if len(table) < 2:
        raise ValueError(f"the table has {len(table)} row(s): expected at least 2 to compare")
    names = table[name].astype(str)
    if (unclear := names.duplicated() | (names.str.strip() == "")).any():
        raise ValueError(f"column {name!r} has {names[unclear].iloc[0]!r}: expected a name of its own in each row")

    def refuse(wrong: pd.Series, column: str, expected: str) -> None:
        if wrong.any():
            row = wrong.idxmax()
            raise ValueError(f"row {names[row]!r}: {column} is {str(table[column][row])!r}, expected {expected}")

    n = pd.Series(float(items), table.index) if not counted else _numbers(table[items])
    wrong = ~n.between(FEWEST_ITEMS, MOST_ITEMS) | (n % 1 != 0)
    expected = f"a whole number of at least {FEWEST_ITEMS}, without a mark for thousands"
    if counted:
        refuse(wrong, items, expected)
    elif wrong.any():
        raise ValueError(f"items={items:g}: expected {expected}")
    value = _numbers(table[metric], percent)
    refuse(~np.isfinite(value), metric, "a number such as 62.5, with a point")
    if deviation is None:
        if percent:
            unclear = (value < 0) | ((value > 0) & (value <= 1)) | (value > 100)
            refuse(unclear, metric, "0, or above 1 to 100 (what is 1 or less may be a share: leave percent out)")
            value = value / 100
        refuse((value < 0) | (value > 1), metric, "0 to 1, or percent (--percent), or a deviation (--deviation)")
        # A share of n items is a whole number of them divided by n, up to the rounding of what was printed.
        rounding = table[metric].map(_rounding) / (100 if percent else 1)
        off = (value - np.round(value * n) / n).abs() > np.maximum(rounding, SINGLE * value) + 1e-9
        refuse(off, metric, "what a whole number of items gives (is their number right? else give a --deviation)")
        spread = np.sqrt(value * (1 - value))
    else:
        spread = _numbers(table[deviation])
        refuse(~(spread > 0), deviation, "a standard deviation over items, above 0")
    return pd.DataFrame({"name": names, "value": value, "spread": spread, "items": n.astype(int)})


def _numbers(column: pd.Series, percent: bool = False) -> pd.Series:
    """By way of their texts, as which True is none."""
    texts = column.astype(str).str.strip()
    return pd.to_numeric(texts.str.removesuffix("%") if percent else texts, errors="coerce").astype(float)


def _rounding(given: object) -> float:
    """Half a unit of the last decimal that was printed."""
    printed = str(given).strip().removesuffix(".0")
    return 0.5 * 10.0 ** -(15 if "e" in printed.lower() else len(printed.rstrip("% ").partition(".")[2]))
