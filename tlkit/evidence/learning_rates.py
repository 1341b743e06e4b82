"""The learning rate of each strategy, and a model made ready to be trained with it."""

from functools import lru_cache

import pandas as pd
import torch

from tlkit.corpus import DATA
from tlkit.models import load_model
from tlkit.strategies import StrategyReport, apply_strategy

CONTROL = "random initialisation"
RECORDS = DATA / "sweeps"


def load_with_strategy(strategy: str, *, model: str | None = None, seed: int = 0) -> tuple[StrategyReport, object]:
    """A freshly loaded model, made trainable, and its tokenizer; `CONTROL` is full training of random weights."""
    fresh = load_model(model, random_init=strategy == CONTROL, seed=seed)
    torch.manual_seed(seed)  # an adapter's first values
    return apply_strategy(fresh.model, "full" if strategy == CONTROL else strategy), fresh.tokenizer


def best_rates(record: pd.DataFrame) -> dict[str, float]:
    """For each strategy the rate with the lowest mean validation perplexity over the seeds of a `rates` sweep."""
    means = record.groupby(["strategy", "learning_rate"]).validation_perplexity.mean()
    return {name: float(means[name].idxmin()) for name in means.index.get_level_values(0).unique()}


@lru_cache
def default_rates() -> dict[str, float]:
    """The learning rate of each strategy, as the recorded sweep found it for the bundled model."""
    return best_rates(pd.read_csv(RECORDS / "rates.csv"))
