"""Which strategy is ahead: intervals over seeds, every pair compared, and ranks only where they are earned.

Two strategies are compared on the same documents and the same seeds. Both are samples: other documents or other
seeds would have given another difference. `compare_pairs` measures the two sources of chance apart and lets each
count with the certainty that its number of values allows, forty documents or three seeds.

A bootstrap over documents and seeds is the usual tool, but not with three seeds. Those can be drawn in only ten
different ways, their resampled variance is a third too small, and 21 pairs need probabilities near 0.002. Student's t
accounts for three values. `tests/benchmarks/identical_strategies.csv` records how often each method errs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from tlkit.names import CONTROL, ZERO_SHOT

CONFIDENCE = 0.95
FEWEST_DOCUMENTS = 5
SMALLEST_P = 1e-15  # beyond it the tails of the distributions are not to be trusted
PAIR_COLUMNS = ["first", "second", "difference", "low", "high", "p", "p_adjusted", "separated"]


def compare_pairs(scores: pd.DataFrame) -> pd.DataFrame:
    """Compare every pair of strategies on the same documents and seeds.

    The logarithm of the ratio of two perplexities is the difference of their nats per token, averaged over seeds. Its
    standard error has two parts, one from documents and one from seeds. Each part is multiplied by its own quantile
    of Student's t, and the half-width of the interval is the root of the sum of their squares. Such an interval
    covers at least as often as it says, whichever of the two parts is the larger.

    By Bonferroni each of m intervals is at the confidence 1 - 5%/m, so at most one table in twenty has any interval
    that misses, and a pair is separated if and only if its interval excludes zero. With one seed, fewer than five
    documents, or a score that is not finite, p is NaN and nothing is separated, because the spread cannot be known.

    Args:
        scores: a row for each strategy, seed and document, with columns strategy, seed, document, nats, tokens. All
            runs have the same documents; a pair is compared on the seeds that both have. Leave out what is trained in
            another way, such as a control: the seeds of all strategies together say how much a seed matters.

    Returns:
        A row for each pair, with columns first, second; difference, the perplexity of the first minus that of the
        second, each a geometric mean over seeds; low and high, its interval, at 95% for all pairs together; p, at least
        1e-15; p_adjusted, by Bonferroni; separated, whether the interval excludes zero.

    Raises:
        ValueError: where a run has a document twice or lacks one, or has other token counts.

    Source:
        Banerjee 1960, Approximate confidence interval for linear functions of means of k populations when the
        population variances are not equal (the two parts). Owen 2007, The pigeonhole bootstrap (two-way samples).
        Dunn 1961, Multiple comparisons among means (Bonferroni's intervals).
    """
    runs = _by_run(scores)
    pairs = list(combinations(runs.names, 2))
    differences = [_compare(runs, *pair) for pair in pairs]
    p = np.array([difference.p for difference in differences])
    level = (1 - CONFIDENCE) / max(1, np.isfinite(p).sum())
    rows = []
    for (first, second), difference, chance, adjusted in zip(pairs, differences, p, bonferroni(p), strict=True):
        low, high = difference.interval(level)
        rows.append((first, second, difference.estimate, low, high, chance, adjusted, low > 0 or high < 0))
    kinds = dict.fromkeys(PAIR_COLUMNS[2:7], float) | {"separated": bool}
    return pd.DataFrame(rows, columns=PAIR_COLUMNS).astype(kinds)


def rank_intervals(pairs: pd.DataFrame, names: list[str]) -> pd.Series:
    """Rank each strategy, 1 the lowest perplexity, as far as the pairs that are separated allow.

    Args:
        pairs: what `compare_pairs` returned.
        names: the strategies to rank; pairs with any other are left out.

    Returns:
        By name "3" where it is separated from all others, "tied 2-4" where these ranks are left open, and "" where
        it has no rank: no other strategy to compare it with, only one seed, or too few documents. Two seeds give
        hardly more than "tied".
    """
    pairs = pairs[pairs["first"].isin(names) & pairs["second"].isin(names)]
    compared = set(pairs["first"]) | set(pairs["second"])
    judged = pairs.dropna(subset="p")
    ranked = set(judged["first"]) | set(judged["second"])
    apart = pairs[pairs.separated]
    ahead = pd.Series(np.where(apart.difference < 0, apart["first"], apart["second"]), dtype=object).value_counts()
    behind = pd.Series(np.where(apart.difference < 0, apart["second"], apart["first"]), dtype=object).value_counts()
    ranks = {}
    for name in names:
        best, last = 1 + behind.get(name, 0), len(compared) - ahead.get(name, 0)
        ranks[name] = "" if name not in ranked else str(best) if best == last else f"tied {best}-{last}"
    return pd.Series(ranks, dtype=object)


def bonferroni(p: np.ndarray) -> np.ndarray:
    """Correct p values for their number, so that any false alarm among them is as rare as one of them would be.

    Args:
        p: one for each pair; NaN for a pair that cannot be judged, which stays and is not counted.

    Returns:
        Each p times the number of pairs, at most 1.
    """
    return np.minimum(p * np.isfinite(p).sum(), 1)


def seed_intervals(runs: pd.DataFrame, column: str = "perplexity") -> pd.DataFrame:
    """Average each strategy over its seeds, with a 95% t-interval.

    The interval is about the luck of training alone: the documents of the test set are taken as they are.

    Args:
        runs: a row for each strategy and seed, with columns strategy and `column`.
        column: what is averaged.

    Returns:
        Columns mean, low, high, seeds, by strategy. With one seed there is no interval: low and high are NaN.
    """
    return _intervals({name: part[column] for name, part in runs.groupby("strategy", sort=False)})


def relative_perplexities(documents: pd.DataFrame, start: str, names: Iterable[str]) -> pd.DataFrame:
    """How far each strategy's perplexity lies from another's, as a share of it.

    Args:
        documents: of a comparison.
        start: the other strategy, or the untouched model. That has one run, which stands beside every seed: nothing in
            it was left to chance.
        names: of the strategies.

    Returns:
        By strategy the columns value, negative where the strategy's perplexity is lower, and low and high, its
        interval, at 95% for all names together (Bonferroni).
    """
    scores = documents[documents.strategy != CONTROL]
    untouched = scores[scores.strategy == ZERO_SHOT]
    repeated = [untouched.assign(seed=seed) for seed in scores[scores.strategy != ZERO_SHOT].seed.unique()]
    scores = pd.concat([scores[scores.strategy != ZERO_SHOT], *repeated])
    names, rows = list(names), {}
    for name in names:
        difference = _compare(_by_run(scores[scores.strategy.isin([name, start])]), name, start)
        half = difference.half_width((1 - CONFIDENCE) / len(names))
        rows[name] = np.expm1(difference.log_ratio + half * np.array([0, -1, 1]))
    return pd.DataFrame.from_dict(rows, orient="index", columns=["value", "low", "high"], dtype=float)


def _intervals(values: dict[str, pd.Series]) -> pd.DataFrame:
    """The mean of each and its 95% t-interval, by the formula: a test of the mean warns where all values are equal."""
    from scipy import stats

    rows = {}
    for name, column in values.items():
        mean, half = float(column.mean()), float("nan")
        if len(column) > 1:
            half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(column) - 1) * stats.sem(column))
        rows[name] = (mean, mean - half, mean + half, len(column))
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "low", "high", "seeds"])
    return table.astype({"seeds": int})


@dataclass(frozen=True)
class _Runs:
    """Nats of every run, shape (documents, strategies, seeds), which runs are there, and each document's tokens."""

    names: list[str]
    nats: np.ndarray
    present: np.ndarray
    tokens: np.ndarray


@dataclass(frozen=True)
class _Difference:
    """The logarithm of the ratio of two perplexities, and for each source of chance (error, degrees of freedom)."""

    log_mean: float
    log_ratio: float
    parts: tuple[tuple[float, float], ...] = ()

    @property
    def estimate(self) -> float:
        return self._in_perplexity(self.log_ratio)

    @property
    def p(self) -> float:
        """The level at which the interval just reaches zero."""
        from scipy.optimize import bisect

        if not self.parts or self.log_ratio == 0:
            return 1.0 if self.parts else np.nan

        def excess(log_level: float) -> float:
            return self.half_width(np.exp(log_level)) - abs(self.log_ratio)

        lowest = np.log(SMALLEST_P)
        return SMALLEST_P if excess(lowest) <= 0 else float(np.exp(bisect(excess, lowest, 0.0)))

    def interval(self, level: float) -> tuple[float, float]:
        """The differences of perplexity that are not refused at this level."""
        half = self.half_width(level)
        return self._in_perplexity(self.log_ratio - half), self._in_perplexity(self.log_ratio + half)

    def half_width(self, level: float) -> float:
        """Of the interval of the logarithm; NaN where the spread is not known."""
        if not self.parts:
            return np.nan
        widths = [stdtrit(freedom, level / 2) * error for error, freedom in self.parts if error > 0]
        return float(np.hypot.reduce(widths))

    def _in_perplexity(self, log_ratio: float) -> float:
        """Two perplexities with this ratio and this geometric mean differ by so much."""
        with np.errstate(over="ignore"):
            return float(2 * np.exp(self.log_mean) * np.sinh(log_ratio / 2))


def _compare(runs: _Runs, first: str, second: str) -> _Difference:
    pair = [runs.names.index(name) for name in (first, second)]
    seeds = runs.present[pair].all(axis=0)
    nats, total = runs.nats[:, :, seeds], runs.tokens.sum()
    per_token = nats.sum(axis=0) / total if total else np.full(nats.shape[1:], np.nan)
    if not seeds.any() or not np.isfinite(per_token[pair]).all():
        return _Difference(np.nan, np.nan)
    one, other = per_token[pair].mean(axis=1)
    parts = ()
    if seeds.sum() > 1 and len(runs.tokens) >= FEWEST_DOCUMENTS:
        apart = (nats[:, pair[0]] - nats[:, pair[1]]).mean(axis=1)
        parts = (_over_documents(apart, runs.tokens), over_seeds(per_token, pair))
    return _Difference((one + other) / 2, one - other, parts)


def _over_documents(apart: np.ndarray, tokens: np.ndarray) -> tuple[float, float]:
    """Jackknife error of sum(apart) / sum(tokens): it is computed without each document in turn.

    The degrees of freedom are Kish's effective number of documents less one: long documents count for more than
    short ones, so there are fewer than there seem.
    """
    without = (apart.sum() - apart) / (tokens.sum() - tokens)
    error = np.sqrt((len(apart) - 1) * without.var())
    return float(error), float(tokens.sum() ** 2 / (tokens**2).sum() - 1)


def over_seeds(per_token: np.ndarray, pair: Sequence[int]) -> tuple[float, float]:
    """Compute how uncertain the difference of two strategies' means over seeds is.

    Three seeds of two strategies hardly say how much a seed matters; the seeds of all strategies say more. The variance
    is the mean of all pairs' or the pair's own, whichever is larger. The mean's degrees of freedom are as Box (1954)
    and Greenhouse and Geisser (1959) have them, so they fall to those of one pair where one strategy varies most.

    Args:
        per_token: nats a token, shape (strategies, seeds), NaN where a strategy lacks a seed; at least two seeds.
        pair: places of the two strategies.

    Returns:
        The standard error in nats a token, and its degrees of freedom.
    """
    seeds = per_token.shape[1]
    of_pair = (per_token[pair[0]] - per_token[pair[1]]).var(ddof=1)
    finite = per_token[np.isfinite(per_token).all(axis=1)]
    rest = finite - finite.mean(axis=0) - finite.mean(axis=1, keepdims=True) + finite.mean()
    products = rest.T @ rest  # between seeds: smaller than the covariances of strategies, with the same eigenvalues
    mean = 2 * products.trace() / (len(finite) - 1) / (seeds - 1)
    share = products.trace() ** 2 / (products**2).sum() if mean > 0 else 1.0
    return float(np.sqrt(max(of_pair, mean) / seeds)), float((seeds - 1) * share)


def _by_run(scores: pd.DataFrame) -> _Runs:
    """Scores as arrays, once it is sure that all runs have been measured on the same documents."""
    names, seeds, documents = (scores[column].unique().tolist() for column in ("strategy", "seed", "document"))
    every = pd.MultiIndex.from_product([documents, names, seeds])
    by_place = scores.set_index(["document", "strategy", "seed"]).reindex(every)
    shape = (len(documents), len(names), len(seeds))
    nats, counts = (by_place[column].to_numpy(dtype=float).reshape(shape) for column in ("nats", "tokens"))
    present = ~np.isnan(counts).all(axis=0)
    tokens = counts[:, 0, present[0].argmax()] if len(names) else np.empty(0)
    other = np.argwhere(present & (counts != tokens[:, None, None]))
    if len(other):
        document, name, seed = other[0]
        count = counts[document, name, seed]
        raise ValueError(
            f"document {documents[document]} has {'no score' if np.isnan(count) else f'{count:g} tokens'} in strategy "
            f"{names[name]!r}, seed {seeds[seed]}, and {tokens[document]:g} in {names[0]!r}: expected the same "
            "documents in each run, scored with one tokenizer"
        )
    scored = tokens > 0
    return _Runs(names, nats[scored], present, tokens[scored])
