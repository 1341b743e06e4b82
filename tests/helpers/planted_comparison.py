"""A comparison in which every effect is known, without any training, for the tests beside this file."""

import numpy as np
import pandas as pd

from tlkit.evidence.comparison import Comparison, summary
from tlkit.evidence.learning_rates import LearningRate
from tlkit.evidence.statistics import compare_pairs
from tlkit.names import CONTROL, ZERO_SHOT

DOCUMENTS = 40


def planted_comparison(
    effects: dict[str, tuple[float, float]],
    *,
    seeds: int = 3,
    tuned: bool = True,
    impossible: dict[str, str] | None = None,
    model: str = "planted",
    **more: float,
) -> Comparison:
    """Make a comparison whose runs differ by what is given, and by a hundredth of a nat of noise.

    Args:
        effects: by strategy the change of nats per token, and the share by which perplexity on general text rises.
        seeds: runs of each strategy.
        tuned: whether the learning rates count as tuned.
        impossible: strategies with the reason why they cannot run.
        model: its name.
        more: further columns of runs.
    """
    draw = np.random.default_rng(0)
    base, tokens = draw.normal(4.5, 0.2, DOCUMENTS), draw.integers(50, 150, DOCUMENTS)
    before = float(np.exp((base * tokens).sum() / tokens.sum()))
    runs, documents = [], []
    planted = {ZERO_SHOT: (0.0, 0.0), **effects, CONTROL: (2.0, 20.0)}
    for name, (change, general) in planted.items():
        for seed in range(1 if name in (ZERO_SHOT, CONTROL) else seeds):
            noise = 0.0 if name == ZERO_SHOT else draw.normal(0, 0.01, DOCUMENTS) + draw.normal(0, 0.01)
            nats = (base + change + noise) * tokens
            parts = {"document": range(DOCUMENTS), "nats": nats, "tokens": tokens}
            documents.append(pd.DataFrame({"strategy": name, "seed": seed} | parts))
            perplexity = float(np.exp(nats.sum() / tokens.sum()))
            untouched = name == ZERO_SHOT
            figures = {"perplexity_before": before, "perplexity": perplexity, "general_before": 20.0}
            figures |= {"general": 20.0 * (1 + general * (1 + draw.normal(0, 0.01))), "bits_per_byte": 1.0}
            ends = {f"{key}_{end}": figures[key] for key in ("perplexity",) for end in ("low", "high")}
            rest = {"trainable_values": 0 if untouched else 1000, "trainable_percent": 0.0 if untouched else 50.0}
            rest |= {"file_bytes": 4000, "seconds": 2.0, "peak_memory_mb": 20.0}
            rest |= {"learning_rate": np.nan if untouched else 1e-3, "context": 64.0} | more
            runs.append({"strategy": name, "seed": None if untouched else seed} | figures | ends | rest)
    runs, documents = pd.DataFrame(runs), pd.concat(documents)
    pairs = compare_pairs(documents[~documents.strategy.isin([ZERO_SHOT, CONTROL])])
    rates = {name: LearningRate(1e-3, "planted", tuned, 8) for name in (*effects, CONTROL)}
    table = summary(runs, pairs, rates, next(iter(effects)), impossible).assign(against=next(iter(effects)))
    made = {"model": model, "corpus": "rust", "profile": "test", "train_documents": 8, "epochs": 1, "seeds": seeds}
    made |= {
        "against": next(iter(effects)),
        "device": "cpu: planted",
        "date": "2026-11-23 05:00 UTC",
        "command": "python -m tlkit compare",
    }
    empty = pd.DataFrame()
    return Comparison(table, runs, documents, empty, pairs, empty, {}, made)
