"""How far strategies lie from one another, or from the untouched model, as a share of perplexity."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from tlkit.evidence.statistics import compare_pairs, holm
from tlkit.names import CONTROL, ZERO_SHOT


def relative_perplexities(documents: pd.DataFrame, start: str, names: Iterable[str]) -> pd.DataFrame:
    """How far each strategy's perplexity lies from another's, as a share of it.

    Args:
        documents: of a comparison.
        start: the other strategy, or the untouched model. That has one run, which stands beside every seed: nothing in
            it was left to chance.
        names: of the strategies.

    Returns:
        By strategy the columns value, low, high, negative where the strategy's perplexity is lower, each of one pair
        by itself; and p, corrected for the number of strategies by Holm.
    """
    scores = documents[documents.strategy != CONTROL]
    untouched = scores[scores.strategy == ZERO_SHOT]
    repeated = [untouched.assign(seed=seed) for seed in scores[scores.strategy != ZERO_SHOT].seed.unique()]
    scores = pd.concat([scores[scores.strategy != ZERO_SHOT], *repeated])
    means = scores.groupby("strategy")[["nats", "tokens"]].sum()
    perplexity = np.exp(means.nats / means.tokens)
    rows = {}
    for name in names:
        pair = compare_pairs(scores[scores.strategy.isin([name, start])]).iloc[0]
        ends = pair[["difference", "low", "high"]].to_numpy(float)
        if pair["first"] == start:
            ends = -ends[[0, 2, 1]]
        # A difference of two perplexities with this geometric mean, as the logarithm of their ratio.
        logs = 2 * np.arcsinh(ends / (2 * np.sqrt(perplexity[name] * perplexity[start])))
        rows[name] = [*np.expm1(logs), pair.p]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["value", "low", "high", "p"], dtype=float)
    return table.assign(p=holm(table.p.to_numpy()))
