"""What a published table can show: which of its rows can be told apart, by the sampling of test items alone.

A leaderboard prints a score for each row and seldom how sure it is. The number of test items says a good part of it.
What it leaves open (the pairs' covariance, the luck of training) is said in `Audit.assumptions`.
"""

import csv
import io
import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from tlkit.evidence.planning import POWER, detectable_difference, items_needed, seeds_needed
from tlkit.evidence.statistics import CONFIDENCE, PAIR_COLUMNS, SMALLEST_P, holm, rank_intervals

POINT = 0.01  # of shares
FEWEST_ITEMS = 30  # below, a normal distribution is a poor picture of a mean
ENOUGH_ITEMS = 100  # from here on two equal rows are separated in at most 6% of all tables, with 44 items in 7%
MOST_ITEMS = 10**12  # more than any test has
LARGEST = 1e100  # of numbers, and its inverse the smallest, so that their squares are numbers, too
FARTHEST = 1e6  # so many times larger or smaller than the spread, a difference is no plan
FEW = 5  # as few right or wrong answers make the normal approximation rough


@dataclass(frozen=True)
class Audit:
    """What can be said of a published table.

    Attributes:
        table: a row for each row, best first: name, value, spread (the standard deviation over items), error (the
            standard error), low and high (95%, of this row alone), items, rank.
        pairs: a row for each pair, as `compare_pairs` has them, and `possible`: whether the pair could be separated
            if the answers to each item were published and were as favourable as they can be. `p` is of the normal
            distribution alone; `p_adjusted` is corrected, and no smaller than the most favourable answers allow.
        detectable: the smallest difference that is found 80% of the time, for rows with the largest spread and the
            fewest items: `one_pair`, which was chosen beforehand, and `all_pairs`, corrected for all of them. NaN
            where every row is 0 or 1.
        shares: whether the values are shares; otherwise they are means.
        percent: whether the shares were given as percentages; then so are the differences to plan for.
        assumptions: a sentence each.
    """

    table: pd.DataFrame
    pairs: pd.DataFrame
    detectable: dict[str, float]
    shares: bool
    percent: bool
    assumptions: tuple[str, ...]

    @property
    def separated(self) -> int:
        """How many pairs can be told apart."""
        return int(self.pairs.separated.sum())

    @property
    def undecided(self) -> int:
        """How many pairs cannot, but could be if the answers to each item were published."""
        return int((self.pairs.possible & ~self.pairs.separated).sum())

    @property
    def out_of_reach(self) -> int:
        """How many pairs cannot be told apart with these items, whatever the answers to each were."""
        return int((~self.pairs.possible & ~self.pairs.separated).sum())

    def plan(self, difference: float | None = None) -> pd.DataFrame:
        """Say how many items or seeds one difference takes, for a pair that is chosen beforehand.

        Args:
            difference: in units of the metric as it was given, so that 2 of percentages is two points; default: one
                point of shares, of means a tenth of the items' spread.

        Returns:
            A row for each assumption, with columns difference (of shares, where the metric was in percent), of
            ("items" or "seeds"), assumed and needed. Nobody knows the spread between seeds from such a table, so three
            are tried: half the difference, the difference, and twice as much. Where every row is 0 or 1, nobody knows
            the spread over items either, and those rows are left out.

        Raises:
            ValueError: for a difference larger than two rows can have, or far too small to be found.
        """
        widest, unit = float(self.table.spread.max()), 100 if self.percent else 1
        wanted = (POINT if self.shares else widest / 10) if difference is None else difference / unit
        least, most = widest / FARTHEST, 1 if self.shares else widest * FARTHEST
        if not least <= wanted <= most:
            of = "percentages" if self.percent else "shares" if self.shares else "means"
            raise ValueError(
                f"difference={difference:g}: expected {unit * least:.3g} to {unit * most:.3g}, as of two {of}"
            )
        rows = [
            ("items", f"answers that correlate by {shared:g}", items_needed(wanted, widest, correlation=shared))
            for shared in (0, 0.5)
            if widest > 0
        ]
        rows += [
            ("seeds", f"deviation between seeds of {self._said(times * wanted)}", seeds_needed(wanted, times * wanted))
            for times in (0.5, 1, 2)
        ]
        return pd.DataFrame(rows, columns=["of", "assumed", "needed"]).assign(difference=wanted)

    def sentences(self, difference: float | None = None) -> list[str]:
        """Say it in words, for a terminal.

        Args:
            difference: to plan for, as in `plan`.

        Raises:
            ValueError: as in `plan`.
        """
        plan, pairs = self.plan(difference), len(self.pairs)
        items = self.table["items"]
        tested = f"{items.min():,} items" if items.nunique() == 1 else f"{items.min():,} to {items.max():,} items"
        one, every = (self._said(self.detectable[key]) for key in ("one_pair", "all_pairs"))
        found = (
            f"A difference is found {POWER:.0%} of the time from {one} on in one pair that is chosen beforehand, and "
            f"from {every} on where all pairs are compared."
        )
        if not self.table.spread.any():
            found = "Every row is 0% or 100%, so what difference these or more items would find cannot be said."
        needed = "; ".join(f"{row.needed:,} {row.of} ({row.assumed})" for row in plan.itertuples())
        return [
            f"{len(self.table)} rows of {tested}: {self.separated:,} of {pairs:,} pairs can be told apart by test "
            f"sampling alone (Holm, {1 - CONFIDENCE:.0%} for all pairs together).",
            f"Of the others, {self.undecided:,} could perhaps be, if the answers to each item were published; "
            f"{self.out_of_reach:,} could not, whatever the answers were.",
            found,
            f"A difference of {self._said(float(plan.difference.iloc[0]))} in one pair would need {needed}.",
            "Assumed:",
            *(f"- {line}" for line in self.assumptions),
        ]

    def _said(self, difference: float) -> str:
        if not self.shares:
            return f"{difference:.3g}"
        points = 100 * difference
        return f"{points:.1f} points" if points >= 0.1 else f"{points:.2g} points"


def read_table(path: Path, numbers: Collection[str] = ()) -> pd.DataFrame:
    """Read a table from a CSV file as it is written: every field stays a text, so that 007 and None are names.

    Fields are separated by commas, semicolons or tabs, whichever the line of column names has most of. Spaces before a
    field and around a column name do not count, nor do lines without any content.

    Args:
        path: a text file in UTF-8.
        numbers: the columns of numbers, where they are there. Between semicolons a comma is their decimal point.

    Returns:
        A row for each line.

    Raises:
        ValueError: naming the file, and the line where one does not have as many fields as there are column names.
        OSError: where the file cannot be read.
    """
    wanted = "expected a CSV file with a line of column names, as plain text in UTF-8 (not compressed)"
    try:
        text = path.read_text(encoding="utf-8-sig")
        if re.match(r"\s*(\{|\[\s*[\[{])", text):
            raise ValueError(f"{path}: begins as JSON does, {wanted}")
        first = next((line for line in text.splitlines() if line.strip()), "")
        mark = max(",;\t", key=lambda mark: len(next(csv.reader([first], delimiter=mark), [])))
        reader = csv.reader(io.StringIO(text), delimiter=mark, skipinitialspace=True, strict=True)
        lines = [(reader.line_num, fields) for fields in reader if any(fields)]
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {wanted} ({error})") from None
    if not lines:
        raise ValueError(f"{path}: is empty, {wanted}")
    header, *rows = (fields for _, fields in lines)
    header = [column.strip() for column in header]
    for number, fields in lines:
        if len(fields) != len(header):
            raise ValueError(
                f"{path}: line {number} has {len(fields)} field{'s' * (len(fields) != 1)}, expected {len(header)}, one "
                "for each column name "
                f"(write decimals behind a point, quote a field that holds {mark!r}, and end no line with it)"
            )
    places = [place for place, column in enumerate(header) if mark == ";" and column in numbers]
    for fields in rows:
        for place in places:
            fields[place] = re.sub(r"^([+-]?\d+),(\d+)$", r"\1.\2", fields[place])
    return pd.DataFrame(rows, columns=header, dtype=str)


def audit(
    table: pd.DataFrame,
    metric: str,
    items: float | str,
    *,
    name: str | None = None,
    deviation: str | None = None,
    percent: bool = False,
    lower_is_better: bool = False,
    correlation: float = 0.0,
) -> Audit:
    """Say which rows of a published table differ by more than the sampling of test items explains.

    A share p of n items has the variance p (1 - p) / n, a mean of n items with standard deviation s the variance
    s² / n. The variance of a difference is the sum of both less twice their covariance. All rows have answered the same
    items, but a table does not say which, so the covariance is unknown; it is taken from `correlation`, and never
    larger than two shares allow. Zero is the cautious choice: hard items are hard for all rows, so answers nearly
    always correlate positively and the true error is smaller.

    Near 0 and 1 the normal distribution promises too much. So no pair of shares is separated where McNemar's exact test
    could not separate it with the most favourable answers, and of two rows with other items the variance is at least
    that of equal shares.

    Args:
        table: a row for each model or method, such as `read_table` or `pd.read_csv` returns.
        metric: the column that is compared: shares from 0 to 1, or means.
        items: how many items each row was tested on, or the column that says it. Rows with other numbers of items
            were tested on other items.
        name: the column of the rows' names; default: the first.
        deviation: the column of standard deviations over items. With it the metric is a mean, without it a share.
        percent: the shares are percentages, from 0 to 100; one such as 0.6 is refused, as it may be a share. A mean
            stays in its own unit.
        lower_is_better: of the metric.
        correlation: of two rows' answers over the items, from 0 up to below 1.

    Returns:
        The audit, in units of the metric; percentages have become shares.

    Raises:
        ValueError: naming column, row and what was expected, where the table cannot support an audit.

    Source:
        Miller 2024, Adding error bars to evals (arXiv 2411.00640). Holm 1979, A simple sequentially rejective multiple
        test procedure. Brown and Heathers 2017, The GRIM test (shares that no number of items gives).
    """
    if not 0 <= correlation < 1:
        raise ValueError(f"correlation={correlation:g}: expected a number from 0 up to below 1")
    rows = _rows(table, metric, items, name, deviation, percent)
    rows = rows.sort_values("value", ascending=lower_is_better, kind="stable", ignore_index=True)
    pairs = _pairs(rows, correlation, shares=deviation is None)
    better = pairs if lower_is_better else pairs.assign(difference=-pairs.difference)
    rows["rank"] = rank_intervals(better, rows.name.tolist()).to_numpy()
    widest, fewest = rows.spread.max(), int(rows["items"].min())
    detectable = {
        key: detectable_difference(widest or math.nan, fewest, correlation=correlation, pairs=count)
        for key, count in (("one_pair", 1), ("all_pairs", len(pairs)))
    }
    shares = deviation is None
    return Audit(rows, pairs, detectable, shares, shares and percent, _assumptions(rows, correlation, shares))


def _rows(
    table: pd.DataFrame, metric: str, items: float | str, name: str | None, deviation: str | None, percent: bool
) -> pd.DataFrame:
    """Name, value, spread over items, error, low, high and items of each row, once the table can support an audit."""
    counted, columns = isinstance(items, str), table.columns.tolist()
    name = columns[0] if name is None and columns else name
    for column in (metric, name, deviation, items if counted else None):
        if column is not None and column not in columns:
            also = ", or a plain number such as 1000" if column == items else ""
            raise ValueError(
                f"the table has no column {column!r}: expected one of {', '.join(map(repr, columns))}{also}"
            )
        if columns.count(column) > 1:
            raise ValueError(f"the table has {columns.count(column)} columns {column!r}: expected one of that name")
    if len(table) < 2:
        raise ValueError(f"the table has {len(table)} row{'s' * (len(table) != 1)}: expected at least 2 to compare")
    names = table[name].astype(str).mask(table[name].isna(), "")
    for place, row in enumerate(names, start=1):
        if not row.strip():
            raise ValueError(f"row {place} of {len(names)} has no name in column {name!r}: expected one (name, --name)")
    if twice := names[names.duplicated()].tolist():
        raise ValueError(f"row {twice[0]!r} is there twice: expected a column whose names differ (name, --name)")
    n = _numbers(table[items], names) if counted else np.full(len(table), _number(items))
    for row, number in zip(names, n, strict=True):
        if not (FEWEST_ITEMS <= number <= MOST_ITEMS and number == int(number)):
            raise ValueError(
                f"row {row!r}: items is {number:g}, expected a whole number of at least {FEWEST_ITEMS} and at most "
                f"{MOST_ITEMS:.0e}"
            )
    value = _numbers(table[metric], names)
    if deviation is None:
        printed = value
        value = _shares(printed, names, metric, percent)
        _refuse_impossible(value, n, names, metric, printed, percent)
        spread = np.sqrt(value * (1 - value))
        low, high = _wilson(value, n)
    else:
        spread = _numbers(table[deviation], names)
        if (spread < 0).any():
            row = int((spread < 0).argmax())
            raise ValueError(f"row {names.iloc[row]!r}: {deviation} is {spread[row]:g}, expected at least 0")
        if not spread.any():
            raise ValueError(f"{deviation} is 0 in every row: expected standard deviations over items")
        half = _normal((1 + CONFIDENCE) / 2) * spread / np.sqrt(n)
        low, high = value - half, value + half
    columns = {"name": names.to_numpy(), "value": value, "spread": spread, "error": spread / np.sqrt(n)}
    return pd.DataFrame(columns | {"low": low, "high": high, "items": n.astype(int)})


def _numbers(column: pd.Series, names: pd.Series) -> np.ndarray:
    numbers = np.array([_number(given) for given in column])
    for row, given, number in zip(names, column, numbers, strict=True):
        if number != 0 and not 1 / LARGEST <= abs(number) <= LARGEST:
            raise ValueError(
                f"row {row!r}: {column.name} is {given!r}, expected a number such as 1062.5, without comma "
                f"or % (but --percent), in size from {1 / LARGEST:g} to {LARGEST:g}"
            )
    return numbers


def _number(given: object) -> float:
    """By way of its text, as which True is none."""
    try:
        return float(str(given))
    except ValueError:
        return math.nan


def _shares(value: np.ndarray, names: pd.Series, metric: str, percent: bool) -> np.ndarray:
    most = 100 if percent else 1
    for row, number in zip(names, value, strict=True):
        if number < 0 or number > 100:
            raise ValueError(
                f"row {row!r}: {metric} is {number:g}, expected 0 to {most}, or means with a deviation (--deviation)"
            )
    small, large = (value > 0) & (value <= 1), value > 1
    if percent:
        if small.any():
            raise ValueError(
                f"row {names[small].iloc[0]!r}: {metric} is {value[small][0]:g} with percent, expected 0 or above "
                "1, as this may be a share (are all rows shares, leave percent out; else divide them all by 100 first)"
            )
        return value / 100
    if small.any() and large.any():
        raise ValueError(
            f"{metric} mixes shares and percentages: row {names[small].iloc[0]!r} has {value[small][0]:g}, "
            f"row {names[large].iloc[0]!r} {value[large][0]:g}: expected 0 to 1 in all rows"
        )
    if large.any():
        raise ValueError(
            f"row {names[large].iloc[0]!r}: {metric} is {value[large][0]:g}, expected 0 to 1, or percent (--percent)"
        )
    return value


def _refuse_impossible(
    value: np.ndarray, n: np.ndarray, names: pd.Series, metric: str, given: np.ndarray, percent: bool
) -> None:
    """A share of n items is a whole number of them divided by n, up to the rounding of what was printed."""
    for row, share, count, printed in zip(names, value, n, given, strict=True):
        digits = repr(float(printed))
        decimals = 15 if "e" in digits else len(digits.partition(".")[2].rstrip("0"))
        rounding = 0.5 * 10.0**-decimals / (100 if percent else 1)
        right = round(share * count)
        if abs(share - right / count) > rounding + 1e-9:
            raise ValueError(
                f"row {row!r}: {metric} is {printed:g}, which is {share * count:.6g} of {count:.0f} items, expected a "
                "whole number of them (is the number of items right? a mean of something else needs --deviation)"
            )


def _wilson(share: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval of a share (1927), which stays within 0 and 1 and has a width at 0, too."""
    z = _normal((1 + CONFIDENCE) / 2)
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return np.maximum(middle - half, 0), np.minimum(middle + half, 1)


def _normal(probability: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(probability))


def _pairs(rows: pd.DataFrame, correlation: float, shares: bool) -> pd.DataFrame:
    """Every pair: difference, interval, p, corrected p, whether it is separated and whether it could be."""
    from scipy.special import ndtr, ndtri

    one, other = np.triu_indices(len(rows), k=1)
    value, error, n = (rows[column].to_numpy() for column in ("value", "error", "items"))
    difference, same = value[one] - value[other], n[one] == n[other]
    shared = correlation * error[one] * error[other]
    if shares:  # the most that two rows can share: the items that the worse one got right are among the better one's
        low, high = np.minimum(value[one], value[other]), np.maximum(value[one], value[other])
        shared = np.minimum(shared, low * (1 - high) / n[one])
    squared = error[one] ** 2 + error[other] ** 2 - 2 * np.where(same, shared, 0)
    if shares:  # near 0 or 1 a row of few items shows too little variance: of other items, take at least that of all
        all_items = n[one] + n[other]
        both = (value[one] * n[one] + value[other] * n[other]) / all_items
        least = both * (1 - both) * (1 / n[one] + 1 / n[other])
        squared = np.where(same, squared, np.maximum(squared, least))
    wide = np.sqrt(np.maximum(squared, 0))
    apart = difference != 0
    distance = np.divide(np.abs(difference), wide, out=np.where(apart, np.inf, 0.0), where=wide > 0)
    p = np.maximum(2 * ndtr(-distance), SMALLEST_P)
    best = np.where(apart, SMALLEST_P, 1.0)
    if shares:  # McNemar's exact test, where the better row answered all that the worse one did and more
        best = np.maximum(np.minimum(2 * 0.5 ** np.round(np.abs(difference) * n[one]), 1), SMALLEST_P)
    best = np.where(same, best, p)
    adjusted = holm(np.maximum(p, best))
    separated = adjusted < 1 - CONFIDENCE
    half = -ndtri((1 - CONFIDENCE) * p / holm(p) / 2) * wide
    half = np.where(separated, half, np.maximum(half, np.abs(difference)))  # holds 0 where McNemar's test decided, too
    names = rows.name.to_numpy()
    columns = (names[one], names[other], difference, difference - half, difference + half, p)
    found = pd.DataFrame(dict(zip(PAIR_COLUMNS, columns, strict=False)))
    return found.assign(p_adjusted=np.minimum(adjusted, 1), separated=separated, possible=holm(best) < 1 - CONFIDENCE)


def _assumptions(rows: pd.DataFrame, correlation: float, shares: bool) -> tuple[str, ...]:
    same = rows["items"].nunique() == 1
    said = ["The items are independent of each other; where they come in groups, all intervals are too narrow."]
    if not same:
        said.append("Rows with other numbers of items were tested on other items, independent of each other.")
    elif correlation == 0:
        said.append(
            "All rows answered the same items, but who answered which is not known, so the covariance of a pair is "
            "taken as zero. This is cautious: answers nearly always correlate positively, which makes the true error "
            "smaller. It would not be cautious where one row fails on just the items that another gets right."
        )
    else:
        said.append(
            f"All rows answered the same items, and two rows' answers correlate by {correlation:g} over the items (by "
            "less where two shares do not allow it). The table does not show this: where they correlate less, too many "
            "pairs are separated."
        )
    said.append(
        "Each row is one trained model. The table says nothing of other seeds, so a separated pair is two models that "
        "differ on items like these, and not yet two methods."
    )
    if rows["items"].min() < ENOUGH_ITEMS:
        said.append(
            f"Fewer than {ENOUGH_ITEMS} items: the normal approximation is rough, and a false alarm may be somewhat "
            f"more frequent than {1 - CONFIDENCE:.0%}."
        )
    if shares:
        value, n = rows.value.to_numpy(), rows["items"].to_numpy()
        rough = int((np.minimum(value, 1 - value) * n < FEW).sum())
        if rough:
            said.append(
                f"Fewer than {FEW} right or wrong answers: {rough} row{'s' * (rough != 1)}; there the normal "
                "approximation is rough."
            )
    return tuple(said)
