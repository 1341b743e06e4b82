"""Who is on a Pareto front, and how surely: of a published table, and of a comparison of ours."""

import numpy as np
import pandas as pd

DRAWS = 2000


def on_front(value: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Find the rows that no other row beats: none is as good in everything and better in something.

    Args:
        value: higher is better, shape (..., rows); every leading index is a table of its own.
        costs: lower is better, shape (rows, costs), or (..., rows, costs) where each table has its own.

    Returns:
        Whether each row is on the front, with the shape of `value`. Rows that are equal in everything are both on it.
    """
    value, costs = np.asarray(value, dtype=float), np.asarray(costs, dtype=float)
    others, mine = costs[..., :, None, :], costs[..., None, :, :]
    no_dearer = (others <= mine).all(axis=-1)  # [..., i, j]: i costs no more than j
    cheaper = no_dearer & (others < mine).any(axis=-1)
    better, equal = value[..., :, None] > value[..., None, :], value[..., :, None] == value[..., None, :]
    return ~(better & no_dearer | equal & cheaper).any(axis=-2)


def perplexity_front(
    documents: pd.DataFrame, runs: pd.DataFrame, cost: str, *, draws: int = DRAWS, seed: int = 0
) -> pd.DataFrame:
    """Say how often each strategy is on the front of perplexity and a cost, had documents and seeds been others.

    Each draw takes test documents with replacement, the same ones for all strategies, and moves each strategy's mean
    over seeds by Student's t, times the standard error that the seeds of all strategies together show. A cost that
    differs between the seeds of a strategy, such as what it forgets, moves in the same way; a count stays.

    Args:
        documents: columns strategy, seed, document, nats and tokens, as of a comparison.
        runs: a row for each strategy and seed, with columns strategy, seed, perplexity and `cost`.
        cost: a column of `runs` whose values are above 0, lower is better.
        draws: how many.
        seed: of the draws.

    Returns:
        A row for each strategy in the order of `runs`: strategy, perplexity (a geometric mean over seeds), the cost
        (likewise), `front`, whether these figures put it there, and `share`, of the draws; NaN where no strategy has
        two seeds.

    Raises:
        ValueError: for a cost that is no column, or not above 0.
    """
    if cost not in runs or not (runs[cost] > 0).all():
        raise ValueError(f"cost={cost!r}: expected a column of the runs with values above 0")
    generator, names = np.random.default_rng(seed), list(dict.fromkeys(runs.strategy))
    (score, score_error), (price, price_error) = (_over_seeds(runs, column, names) for column in ("perplexity", cost))
    found = pd.DataFrame({"strategy": names, "perplexity": np.exp(score), cost: np.exp(price)})
    found["front"] = on_front(-score, price[:, None])
    found["share"] = np.nan
    freedom = len(runs) - len(names)
    if freedom:
        part = documents[documents.strategy.isin(names)]
        nats = part.pivot_table(index=["strategy", "seed"], columns="document", values="nats")
        tokens = part.pivot_table(index=["strategy", "seed"], columns="document", values="tokens")
        count = nats.shape[1]
        weights = generator.multinomial(count, np.full(count, 1 / count), size=draws)
        scores = pd.DataFrame((nats.to_numpy() @ weights.T) / (tokens.to_numpy() @ weights.T), index=nats.index)
        drawn = scores.groupby("strategy", sort=False).mean().loc[names].to_numpy().T
        shape = (draws, len(names))
        drawn = drawn + generator.standard_t(freedom, shape) * score_error
        costs = price + generator.standard_t(freedom, shape) * price_error
        found["share"] = on_front(-drawn, costs[..., None]).mean(axis=0)
    return found


def _over_seeds(runs: pd.DataFrame, column: str, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Of a figure's logarithm each strategy's mean, and its standard error from the spread of all strategies' seeds."""
    grouped = np.log(runs[column]).groupby(runs.strategy)
    counts, freedom = grouped.count().loc[names].to_numpy(), len(runs) - len(names)
    squares = ((grouped.count() - 1) * grouped.var().fillna(0)).sum()
    spread = np.sqrt(squares / freedom) if freedom else np.nan
    return grouped.mean().loc[names].to_numpy(), spread / np.sqrt(counts)
