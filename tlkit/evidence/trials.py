"""The runs that a sweep consists of: planned beforehand, or one after the other as a search goes on."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

import pandas as pd

from tlkit.evidence.learning_rates import default_rates, next_rate
from tlkit.names import CLASSIC, CONTROL

SEEDS = 2  # of each setting, where nothing else is said
SIZES_STEPS = 120  # of every run of `passages`: more text is repeated less often, the work is the same
# What each sweep tries, where nothing else is said; and of passages all there are.
VALUES = {"epochs": (0.5, 1, 2, 4, 8), "passages": (25, 50, 100, 200, 400), "general": (0.0, 0.1, 0.25, 0.5)}
COMPARED = ("full", "last_layers", "lora")
# Of each sweep the strategies that it is about, where none are named.
SWEPT = {"rates": (*CLASSIC, CONTROL), "epochs": COMPARED, "passages": COMPARED, "general": ("full",)}
SWEEPS = tuple(SWEPT)


@dataclass(frozen=True)
class Trial:
    """One training run on the first `passages` documents (None: as the profile says).

    It takes `steps` steps where they are given, and else `epochs`; `general_share` of its blocks are general text.
    """

    strategy: str
    learning_rate: float
    epochs: float = 1
    steps: int | None = None
    passages: int | None = None
    general_share: float = 0.0
    seed: int = 0

    @property
    def name(self) -> str:
        """Its settings in one line, so that a record says what was done already."""
        return " ".join(f"{key}={value}" for key, value in asdict(self).items() if value is not None)


def planned(
    sweep: str,
    rates: dict[str, float] | None = None,
    documents: int = 503,
    *,
    strategies: Iterable[str] | None = None,
    seeds: int = SEEDS,
    values: Iterable[float] | None = None,
    steps: int = SIZES_STEPS,
) -> list[Trial]:
    """List the trials of a sweep whose settings are known beforehand.

    Args:
        sweep: `epochs`, `passages` or `general`; the rates that `rates` tries depend on what it finds.
        rates: the learning rate of each strategy; default: those recorded for the bundled model.
        documents: that the corpus has for training.
        strategies: those to sweep; default: those in `SWEPT`.
        seeds: of each setting.
        values: epochs, numbers of passages, or shares of general text to try; default: those in `VALUES`.
        steps: optimizer steps of each run of `passages`.

    Raises:
        ValueError: for a value that no run could have.
    """
    rates = rates or default_rates()
    if values is None:
        values = VALUES[sweep]
        if sweep == "passages":
            values = (*(size for size in values if size < documents), documents)
    settings = [_setting(sweep, value, documents, steps) for value in values]
    return [
        Trial(name, rates[name], seed=seed, **setting)
        for name in (SWEPT[sweep] if strategies is None else strategies)
        for setting in settings
        for seed in range(seeds)
    ]


def _setting(sweep: str, value: float, documents: int, steps: int) -> dict[str, float]:
    """What one value of a sweep is to a trial."""
    if sweep == "epochs" and 0 < value < math.inf:
        return {"epochs": value}
    if sweep == "passages" and value in range(1, documents + 1):
        return {"steps": steps, "passages": int(value)}
    if sweep == "general" and 0 <= value < 1:
        return {"general_share": value}
    expected = {"epochs": "above 0", "passages": f"whole, from 1 to {documents}", "general": "from 0 to below 1"}
    raise ValueError(f"a value of {value:g} in a sweep of {sweep}: expected values {expected[sweep]}")


def rate_trials(record: pd.DataFrame, strategies: Iterable[str], seeds: int, like: Trial) -> list[Trial]:
    """Say which trials the search for the best rates wants next; none where it is over.

    Args:
        record: the trials done so far.
        strategies: those to search for, each by `next_rates`.
        seeds: of every rate.
        like: what all trials have in common.
    """
    wanted = []
    for strategy in strategies:
        part = record[record.strategy == strategy]
        if part.error.notna().any():
            continue  # it cannot run at all
        rates = part.groupby("learning_rate").validation_perplexity
        begun = [rate for rate, count in rates.size().items() if count < seeds]
        rate = begun[0] if begun else next_rate(rates.mean().to_dict())
        if rate is not None:
            trials = [replace(like, strategy=strategy, learning_rate=float(rate), seed=seed) for seed in range(seeds)]
            wanted += [trial for trial in trials if trial.name not in set(part.trial)]
    return wanted
