"""Runs that differ in one setting, judged on validation data; the test split is for the comparison alone."""

import datetime
import math
import platform
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pandas as pd
import torch

from tlkit.corpus import load_corpus, pack
from tlkit.devices import probe
from tlkit.evaluation import perplexity
from tlkit.evidence.forgetting import mix_in
from tlkit.evidence.learning_rates import CONTROL, RECORDS, default_rates, load_with_strategy
from tlkit.models import chosen_model
from tlkit.settings import Profile
from tlkit.strategies import STRATEGIES
from tlkit.training import TrainingConfig, train

RATES = (5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 1e-1)
SIZES = (25, 50, 100, 200, 400)  # and all there are
SIZES_STEPS = 120  # of every run of that sweep: more text is repeated less often, the work is the same
BATCH, BLOCK = 4, 128


@dataclass(frozen=True)
class Trial:
    """One training run on the first `passages` of Rust (None: as the profile says); `steps`, where given, not epochs.

    `general_share` of its blocks are general text.
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


def planned(sweep: str, rates: dict[str, float] | None = None) -> list[Trial]:
    """The trials of a sweep: `rates`, `epochs`, `passages` or `general`, each with two seeds.

    `rates` are the learning rates of the strategies, by default those that were recorded. Raises ValueError for
    another sweep.
    """
    _refuse_unknown(sweep)
    rates = rates or (None if sweep == "rates" else default_rates())
    return [replace(trial, seed=seed) for trial in SWEEPS[sweep](rates) for seed in range(2)]


def _sizes(rates: dict[str, float]) -> list[Trial]:
    sizes = (*SIZES, len(load_corpus("rust").train))
    return [Trial(name, rates[name], steps=SIZES_STEPS, passages=size) for name in COMPARED for size in sizes]


COMPARED = ("full", "last_layers", "lora")
SWEEPS = {
    # One grid for all: an equal budget for tuning.
    "rates": lambda rates: [Trial(name, rate) for name in (*STRATEGIES, CONTROL) for rate in RATES],
    "epochs": lambda rates: [Trial(name, rates[name], epochs) for name in COMPARED for epochs in (0.5, 1, 2, 4, 8)],
    "passages": _sizes,
    "general": lambda rates: [Trial("full", rates["full"], general_share=share) for share in (0.0, 0.1, 0.25, 0.5)],
}


def run_sweep(
    sweep: str, output: str | Path, *, profile: Profile, model: str | None = None, progress: bool = False
) -> pd.DataFrame:
    """Run what the record `output` (CSV) lacks of a sweep, add it there trial by trial, and return the whole record.

    Raises ValueError where the record is of another model or profile, before any work.
    """
    output, trials, name = Path(output), planned(sweep), chosen_model(model)
    record = pd.read_csv(output) if output.is_file() else pd.DataFrame(columns=["trial", "model", "profile"])
    if set(record.model) - {name} or set(record.profile) - {profile.name}:
        raise ValueError(
            f"{output} holds runs of {record.model[0]}, profile {record.profile[0]}: choose another output for "
            f"{name}, profile {profile.name}"
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    for trial in trials:
        if trial.name in set(record.trial):
            continue
        row = run_trial(trial, profile=profile, model=model)
        record = pd.DataFrame([*record.to_dict("records"), row | {"model": name} | _provenance(profile)])
        record.to_csv(output, index=False)
        if progress:
            print(f"{trial.name}: validation perplexity {row['validation_perplexity']:.2f}", flush=True)
    return record


def run_trial(trial: Trial, *, profile: Profile, model: str | None = None) -> dict[str, object]:
    """Train as the trial says; perplexity on validation texts, Rust and general, infinite where training diverged."""
    rust = load_corpus("rust").limited(trial.passages or profile.train_passages, profile.test_passages)
    general = load_corpus("general").limited(test=profile.test_passages)
    report, tokenizer = load_with_strategy(trial.strategy, model=model, seed=trial.seed)
    blocks = pack(rust.train, tokenizer, BLOCK)
    if trial.general_share:
        blocks = mix_in(blocks, pack(general.train, tokenizer, BLOCK), trial.general_share)
    epochs = trial.epochs if trial.steps is None else trial.steps / math.ceil(len(blocks) / BATCH)
    config = TrainingConfig(trial.learning_rate, epochs=epochs, batch_size=BATCH, seed=trial.seed)
    found = dict.fromkeys(("validation_perplexity", "general_perplexity", "training_loss"), math.inf)
    try:
        result = train(report.model, blocks, config)
        scores = [perplexity(report.model, tokenizer, texts) for texts in (rust.validation, general.validation)]
        tail = result.history.loss.tail(max(1, len(result.history) // 10)).mean()
        found = dict(zip(found, (*(score.perplexity for score in scores), tail), strict=True))
    except FloatingPointError:
        pass  # a rate that is too high is a finding, and infinity is its name
    return {"trial": trial.name, **asdict(trial), **found}


def recorded(sweep: str) -> pd.DataFrame:
    """The record that comes with the workbook, of the bundled model; its columns say where and when it was made."""
    _refuse_unknown(sweep)
    return pd.read_csv(RECORDS / f"{sweep}.csv")


def _refuse_unknown(sweep: str) -> None:
    if sweep not in SWEEPS:
        raise ValueError(f"sweep {sweep!r} is unknown: expected one of {', '.join(SWEEPS)}")


def _provenance(profile: Profile) -> dict[str, str]:
    device = probe()
    return {
        "profile": profile.name,
        "device": f"{device.kind}: {device.name}",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
