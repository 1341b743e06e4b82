"""Which strategy is ahead: every pair compared with an interval, and ranks only where they are earned.

A bootstrap is the usual tool, but the resampled variance of three seeds is a third too small; Student's t accounts for
that. `tests/benchmarks/identical_strategies.csv` records how often each method errs.
"""

from itertools import combinations

import numpy as np
import pandas as pd
from scipy.special import stdtrit

CONFIDENCE = 0.95
FEWEST_DOCUMENTS = 5
Source = tuple[float, float]  # of chance: its standard error and its degrees of freedom


def compare_pairs(scores: pd.DataFrame) -> pd.DataFrame:
    """Compare every pair of strategies on the same documents and seeds.

    The logarithm of the ratio of two perplexities is the difference of their nats per token, averaged over seeds. Its
    standard error has two parts, from documents and from seeds. Each is multiplied by its quantile of Student's t,
    and the half-width of the interval is the root of the sum of squares, which covers at least as often as it
    says. With one seed, fewer than five documents, or a score that is not finite, there is no interval.

    Args:
        scores: a row for each strategy, seed and document, with columns strategy, seed, document, nats, tokens. All
            runs have the same documents; a pair is compared on the seeds that both have. Leave out what is trained in
            another way, such as a control: all strategies together say how much a seed matters.

    Returns:
        A row for each pair, with columns first, second; difference, the perplexity of the first minus that of the
        second, each a geometric mean over seeds; low and high, its interval, by Bonferroni at 95% for all pairs
        together, NaN where there is none; separated, whether the interval excludes zero.

    Source:
        Banerjee 1960, Approximate confidence interval for linear functions of means of k populations when the
        population variances are not equal (the two parts). Owen 2007, The pigeonhole bootstrap (two-way samples).
        Dunn 1961, Multiple comparisons among means (Bonferroni's intervals).
    """
    names, nats, present, tokens = _by_run(scores)
    differences = {
        (names[one], names[other]): _difference(nats, present, tokens, [one, other])
        for one, other in combinations(range(len(names)), 2)
    }
    level = (1 - CONFIDENCE) / max(1, sum(bool(sources) for *_, sources in differences.values()))
    rows = []
    for pair, (middle, log_ratio, sources) in differences.items():
        halves = [stdtrit(freedom, level / 2) * error for error, freedom in sources if error > 0]
        half = np.hypot.reduce(halves) if sources else np.nan
        ends = np.array([log_ratio, log_ratio - half, log_ratio + half])
        with np.errstate(over="ignore"):
            difference, low, high = 2 * np.exp(middle) * np.sinh(ends / 2)
        rows.append((*pair, difference, low, high, low > 0 or high < 0))
    kinds = {"difference": float, "low": float, "high": float, "separated": bool}
    return pd.DataFrame(rows, columns=["first", "second", *kinds]).astype(kinds)


def rank_intervals(pairs: pd.DataFrame, names: list[str]) -> pd.Series:
    """Rank strategies, 1 the lowest perplexity: "3", "tied 2-4" where pairs are not separated, "" without interval."""
    pairs = pairs[pairs["first"].isin(names) & pairs["second"].isin(names)]
    compared, apart = set(pairs["first"]) | set(pairs["second"]), pairs[pairs.separated]
    lower = apart["first"].where(apart.difference < 0, apart["second"]).value_counts()
    higher = apart["second"].where(apart.difference < 0, apart["first"]).value_counts()
    ranks = dict.fromkeys(names, "")
    for name in set(pairs[["first", "second"]][pairs.low.notna()].to_numpy().flat):
        best, last = 1 + higher.get(name, 0), len(compared) - lower.get(name, 0)
        ranks[name] = str(best) if best == last else f"tied {best}-{last}"
    return pd.Series(ranks, dtype=object)


def _difference(
    nats: np.ndarray, present: np.ndarray, tokens: np.ndarray, pair: list[int]
) -> tuple[float, float, tuple[Source, ...]]:
    """Logarithms of two perplexities' geometric mean and ratio, and what makes the ratio uncertain."""
    seeds = present[pair].all(axis=0)
    nats, total = nats[:, :, seeds], tokens.sum()
    per_token = nats.sum(axis=0) / total if total else np.full(nats.shape[1:], np.nan)
    if not seeds.any() or not np.isfinite(per_token[pair]).all():
        return np.nan, np.nan, ()
    one, other = per_token[pair].mean(axis=1)
    sources = ()
    if seeds.sum() > 1 and len(tokens) >= FEWEST_DOCUMENTS:
        apart = (nats[:, pair[0]] - nats[:, pair[1]]).mean(axis=1)
        sources = (_over_documents(apart, tokens), over_seeds(per_token, pair))
    return (one + other) / 2, one - other, sources


def _over_documents(apart: np.ndarray, tokens: np.ndarray) -> Source:
    """Jackknife error of sum(apart) / sum(tokens), with Kish's effective number of documents, less one, as freedom."""
    without = (apart.sum() - apart) / (tokens.sum() - tokens)
    error = np.sqrt((len(apart) - 1) * without.var())
    return float(error), float(tokens.sum() ** 2 / (tokens**2).sum() - 1)


def over_seeds(per_token: np.ndarray, pair: list[int] | tuple[int, int]) -> Source:
    """Compute how uncertain the difference of two strategies' means over seeds is.

    Three seeds of one pair hardly say how much a seed matters: the variance is the mean of all pairs' or the pair's
    own, whichever is larger, with the degrees of freedom of Box (1954) and Greenhouse and Geisser (1959).

    Args:
        per_token: nats a token, shape (strategies, seeds), NaN where a strategy lacks a seed.
    """
    seeds = per_token.shape[1]
    of_pair = (per_token[pair[0]] - per_token[pair[1]]).var(ddof=1)
    finite = per_token[np.isfinite(per_token).all(axis=1)]
    rest = finite - finite.mean(axis=0) - finite.mean(axis=1, keepdims=True) + finite.mean()
    products = rest.T @ rest  # between seeds: smaller than the covariances of strategies, with the same eigenvalues
    mean = 2 * products.trace() / (len(finite) - 1) / (seeds - 1)
    share = products.trace() ** 2 / (products**2).sum() if mean > 0 else 1.0
    return float(np.sqrt(max(of_pair, mean) / seeds)), float((seeds - 1) * share)


def _by_run(scores: pd.DataFrame) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
    """Scores as arrays, of runs that were measured on the same documents.

    Returns:
        The strategies; their nats, shape (documents, strategies, seeds); which runs there are, shape (strategies,
        seeds); and the tokens of each document.
    """
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
            f"{names[name]!r}, seed {seeds[seed]}, and {tokens[document]:g} in {names[0]!r}: expected the same tokens"
        )
    scored = tokens > 0
    return names, nats[scored], present, tokens[scored]
