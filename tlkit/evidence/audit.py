"""What a published table can show: which of its rows can be told apart, by the sampling of test items alone.

A leaderboard prints a score for each row and seldom how sure it is. The number of test items says a good part of it.
What it leaves open (the pairs' covariance, the luck of training) is said in `Audit.assumptions`.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri, stdtrit

from tlkit.evidence.published_tables import scores_of
from tlkit.evidence.statistics import CONFIDENCE, PAIR_COLUMNS, SMALLEST_P, bonferroni, rank_intervals

POINT = 0.01  # of shares
Z = float(ndtri((1 + CONFIDENCE) / 2))
ENOUGH_ITEMS = 100  # from here on two equal rows are separated in at most 6% of all tables, with 44 items in 7%
FARTHEST = 1e6  # so many times larger or smaller than the spread, a difference is no plan
FEW = 5  # as few right or wrong answers make the normal approximation rough
POWER = 0.8  # how often a difference that is there should be found, as is usual in planning
MOST_SEEDS = 10_000
TIE = 1e-6  # of an item: so far may a product of two numbers be off


@dataclass(frozen=True)
class Audit:
    """What can be said of a published table.

    Attributes:
        table: a row for each row, best first: name, value, spread (the standard deviation over items), error (the
            standard error), low and high (95%, of this row alone), items, rank.
        pairs: a row for each pair, as `compare_pairs` has them, and `possible`: whether the pair could be separated
            if the answers to each item were published and were as favourable as they can be. `p` is of the normal
            distribution alone; `p_adjusted` is corrected, and no smaller than the most favourable answers allow.
        detectable: the smallest difference that is found 80% of the time in the pair with the largest standard error:
            `one_pair`, which was chosen beforehand, and `all_pairs`, corrected for all of them. NaN where every row is
            0 or 1.
        least_certain: the names of that pair.
        shares: whether the values are shares; otherwise they are means.
        percent: whether the shares were given as percentages; then so are the differences to plan for.
        assumptions: a sentence each.
    """

    table: pd.DataFrame
    pairs: pd.DataFrame
    detectable: dict[str, float]
    least_certain: tuple[str, str]
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
            raise ValueError(f"difference={difference:g}: expected {unit * least:.3g} to {unit * most:.3g}")
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
        detectable = (
            f"A difference is found {POWER:.0%} of the time from {one} on in one pair that is chosen beforehand, and "
            f"from {every} on where all pairs are compared. These are the figures of the pair that is known least "
            f"exactly, {' and '.join(self.least_certain)}."
        )
        if not self.table.spread.any():
            detectable = "Every row is 0% or 100%, so what difference these or more items would find cannot be said."
        ends = {"items": "to say that two models differ", "seeds": "of each, to say that two methods do"}
        wanted = f"A difference of {self._said(float(plan.difference.iloc[0]))} in one pair would need"
        plans = [
            f"{wanted} {' or '.join(f'{row.needed:,} {of} ({row.assumed})' for row in part.itertuples())} {ends[of]}."
            for of, part in plan.groupby("of")
        ]
        return [
            f"{len(self.table)} rows of {tested}: {self.separated:,} of {pairs:,} pairs can be told apart by test "
            f"sampling alone ({1 - CONFIDENCE:.0%} for all pairs together, Bonferroni). With --json each is there.",
            f"Of the others, {self.undecided:,} could perhaps be, if the answers to each item were published; "
            f"{self.out_of_reach:,} could not, whatever the answers were.",
            detectable,
            *plans,
            "Assumed:",
            *(f"- {line}" for line in self.assumptions),
        ]

    def _said(self, difference: float) -> str:
        if not self.shares:
            return f"{difference:.3g}"
        points = 100 * difference
        return f"{points:.1f} points" if points >= 0.1 else f"{points:.2g} points"


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
        name: the column of the rows' names; default: the first of the others that is not all numbers, else the first.
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
        Miller 2024, Adding error bars to evals (arXiv 2411.00640). Dunn 1961, Multiple comparisons among means
        (Bonferroni's intervals). Brown and Heathers 2017, The GRIM test (shares that no number of items gives).
    """
    if not 0 <= correlation < 1:
        raise ValueError(f"correlation={correlation:g}: expected a number from 0 up to below 1")
    shares = deviation is None
    rows = scores_of(table, metric, items, name, deviation, percent)
    rows = rows.sort_values("value", ascending=lower_is_better, kind="stable", ignore_index=True)
    rows["error"] = rows.spread / np.sqrt(rows["items"])
    rows["low"], rows["high"] = _wilson(rows) if shares else (rows.value - Z * rows.error, rows.value + Z * rows.error)
    pairs = _pairs(rows, correlation, shares)
    better = pairs if lower_is_better else pairs.assign(difference=-pairs.difference)
    rows["rank"] = rank_intervals(better, rows.name.tolist()).to_numpy()
    least = pairs.loc[pairs.error.idxmax()]
    counts = {"one_pair": 1, "all_pairs": len(pairs)}
    detectable = {key: reach(count) * (least.error or math.nan) for key, count in counts.items()}
    assumptions = _assumptions(rows, correlation, deviation, unit=100 if percent else 1)
    columns = ["name", "value", "spread", "error", "low", "high", "items", "rank"]
    least_certain = (least["first"], least["second"])
    return Audit(
        rows[columns], pairs.drop(columns="error"), detectable, least_certain, shares, shares and percent, assumptions
    )


def _right_answers(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The fewest and the most items that each row of shares may have answered, as far as its score was rounded."""
    value, n, rounding = (rows[column].to_numpy() for column in ("value", "items", "rounding"))
    right = np.round(value * n)
    fewest, most = np.ceil((value - rounding) * n - TIE), np.floor((value + rounding) * n + TIE)
    return np.clip(fewest, 0, right), np.clip(most, right, n)


def _wilson(rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Wilson's interval of a share (1927), which stays within 0 and 1 and has a width at 0, too."""
    share, n = rows.value, rows["items"]
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z * np.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
    return np.maximum(middle - half, 0), np.minimum(middle + half, 1)


def _pairs(rows: pd.DataFrame, correlation: float, shares: bool) -> pd.DataFrame:
    """Every pair: difference, interval, p, corrected p, whether it is separated and whether it could be."""
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
    p = _two_sided(difference, wide)
    if shares:  # McNemar's exact test, where the better row answered all that the worse one did and more
        fewest, most = _right_answers(rows)
        more = np.maximum(most[one] - fewest[other], most[other] - fewest[one])
        best = np.maximum(np.minimum(2 * 0.5**more, 1), SMALLEST_P)
    else:  # where the scores of the items correlate as much as they can
        best = _two_sided(difference, np.abs(error[one] - error[other]))
    best = np.where(same, best, p)
    adjusted = bonferroni(np.maximum(p, best))
    separated = adjusted < 1 - CONFIDENCE
    half = -ndtri((1 - CONFIDENCE) / len(p) / 2) * wide
    half = np.where(separated, half, np.maximum(half, np.abs(difference)))  # holds 0 where McNemar's test decided, too
    names = rows.name.to_numpy()
    columns = (names[one], names[other], difference, difference - half, difference + half, p)
    pairs = pd.DataFrame(dict(zip(PAIR_COLUMNS, columns, strict=False)))
    pairs = pairs.assign(p_adjusted=adjusted, separated=separated, error=wide)
    return pairs.assign(possible=separated | (bonferroni(best) < 1 - CONFIDENCE))


def _two_sided(difference: np.ndarray, error: np.ndarray) -> np.ndarray:
    """The normal p of each difference; where there is no error, any difference is certain."""
    without = np.where(difference != 0, np.inf, 0.0)
    distance = np.divide(np.abs(difference), error, out=without, where=error > 0)
    return np.maximum(2 * ndtr(-distance), SMALLEST_P)


def _assumptions(rows: pd.DataFrame, correlation: float, deviation: str | None, unit: float) -> tuple[str, ...]:
    n, shares = rows["items"], deviation is None
    sentences = ["The items are independent of each other; where they come in groups, all intervals are too narrow."]
    if shares:
        sentences.append("Each item was right or wrong; means of something finer, such as F1, need a deviation.")
    else:
        sentences.append(
            f"{deviation} is the standard deviation over items. Where it is a standard error or the spread over seeds, "
            "as behind ± in many tables, far too many pairs are separated."
        )
    if n.nunique() > 1:
        sentences.append("Rows with other numbers of items were tested on other items, independent of each other.")
    if n.nunique() < len(n):
        same = "All rows" if n.nunique() == 1 else "Rows with the same number of items"
        sentences.append(f"{same} answered the same items, {_of_covariance(correlation)}")
    sentences.append(
        "Each row is one trained model. The table says nothing of other seeds, so a separated pair is two models that "
        "differ on items like these, and not yet two methods."
    )
    fewest, most = _right_answers(rows)
    if (spread := int((most - fewest).max())) > 0:
        sentences.append(
            f"If scores were rounded to {2 * rows.rounding[0] * unit:g}, a row may have answered up to {spread:,} "
            "items more than another with the same score."
        )
    rough = shares and (np.minimum(rows.value, 1 - rows.value) * n < FEW).any()
    if n.min() < ENOUGH_ITEMS or rough:
        sentences.append(
            f"With fewer than {ENOUGH_ITEMS} items, or fewer than {FEW} right or wrong answers, as here, a false alarm "
            f"may be somewhat more frequent than {1 - CONFIDENCE:.0%}."
        )
    return tuple(sentences)


def _of_covariance(correlation: float) -> str:
    if correlation == 0:
        return (
            "but who answered which is not known, so the covariance of a pair is taken as zero. This is cautious: "
            "answers nearly always correlate positively, which makes the true error smaller."
        )
    return (
        f"and two rows' answers correlate by {correlation:g} over the items, as far as two shares allow it. The table "
        "does not show this: where they correlate less, too many pairs are separated."
    )


def items_needed(difference: float, spread: float, *, correlation: float = 0.0) -> int:
    """Compute how many test items find a difference of one pair 80% of the time, at a level of 5%.

    Args:
        difference: in units of the metric, above 0.
        spread: the standard deviation over items, of a share p the root of p (1 - p).
        correlation: of two rows' answers over the items.
    """
    return math.ceil(2 * (1 - correlation) * (reach(1) * spread / difference) ** 2)


def seeds_needed(difference: float, deviation: float) -> int:
    """Compute how many seeds of each of two rows find a difference 80% of the time, at a level of 5%.

    The test items are taken as they are: more seeds say more about these, and nothing about others.

    Args:
        difference: in units of the metric, above 0.
        deviation: the standard deviation between seeds, in the same units, equal for both.

    Returns:
        The number of seeds by Student's t, at least 2.

    Raises:
        ValueError: for a difference so small that it takes more than 10,000 seeds.
    """
    for seeds in range(2, MOST_SEEDS):
        freedom = 2 * (seeds - 1)
        errors = stdtrit(freedom, (1 + CONFIDENCE) / 2) + stdtrit(freedom, POWER)
        if seeds >= 2 * (errors * deviation / difference) ** 2:
            return seeds
    raise ValueError(f"difference={difference:g} of deviation={deviation:g}: takes more than {MOST_SEEDS:,} seeds")


def reach(pairs: int) -> float:
    """Compute how many standard errors two rows have to be apart to be separated 80% of the time, at a level of 5%.

    Args:
        pairs: how many are compared, for the level of the most certain of them.
    """
    return float(-ndtri((1 - CONFIDENCE) / 2 / pairs) + ndtri(POWER))
