"""Many strategies and seeds into one table, from freshly loaded models, with a baseline and a control."""

import math
import traceback
from dataclasses import dataclass

import pandas as pd

from tlkit.corpus import Corpus, load_corpus, pack
from tlkit.devices import probe
from tlkit.evaluation import perplexity
from tlkit.models import load_model
from tlkit.settings import Profile
from tlkit.strategies import STRATEGIES, apply_strategy
from tlkit.training import TrainingConfig, train

ZERO_SHOT = "zero-shot"
CONTROL = "random initialisation"

# Few weights need large steps: each strategy starts from a rate that suits it.
LEARNING_RATES = {
    "full": 2e-3,
    "freeze_lower": 2e-3,
    "freeze_embeddings": 2e-3,
    "last_layers": 3e-3,
    "lora": 5e-3,
    "bitfit": 1e-2,
    CONTROL: 2e-3,
}


@dataclass(frozen=True)
class Comparison:
    """`runs` has a row for each strategy and seed, `table` a row for each strategy, `curves` each training step.

    `failures` maps what could not run to its traceback: nothing is silently missing.
    """

    table: pd.DataFrame
    runs: pd.DataFrame
    curves: pd.DataFrame
    failures: dict[str, str]
    provenance: dict[str, object]


def compare(
    model: str | None = None,
    strategies: list[str] | None = None,
    *,
    profile: Profile,
    seeds: int | None = None,
    corpus: Corpus | None = None,
    block_size: int = 128,
    batch_size: int = 4,
    progress: bool = False,
) -> Comparison:
    """Adapt `model` by each strategy, once for every seed, and measure what each gained and forgot.

    Every run starts from a freshly loaded model; seeds change the order of the batches and the adapters'
    initial values. Full fine-tuning of random weights is the control, no training at all the baseline.
    Raises ValueError for an unknown strategy or fewer than one seed, before any work.
    """
    strategies = list(STRATEGIES) if strategies is None else strategies
    unknown = [s for s in strategies if s not in STRATEGIES]
    if unknown or not strategies:
        raise ValueError(f"strategies {unknown or strategies}: expected some of {', '.join(STRATEGIES)}")
    seeds = profile.seeds if seeds is None else seeds
    if seeds < 1:
        raise ValueError(f"seeds={seeds}: expected at least 1")
    corpus = (corpus or load_corpus()).limited(profile.train_passages, profile.test_passages)
    general = load_corpus("general").limited(test=profile.test_passages)
    device = probe()

    base = load_model(model, device=device.kind)
    context = min(256, base.model.config.max_position_embeddings)
    blocks = pack(corpus.train, base.tokenizer, block_size)
    scores = {
        "before": perplexity(base.model, base.tokenizer, corpus.test, context=context),
        "general_before": perplexity(base.model, base.tokenizer, general.test, context=context),
    }
    total = sum(p.numel() for p in base.model.parameters())
    rows, curves, failures = [], [], {}
    rows.append(_row(ZERO_SHOT, None, 0, total, scores, scores["before"], scores["general_before"], None))
    for name in [*strategies, CONTROL]:
        for seed in range(seeds):
            if progress:
                print(f"{name}, seed {seed}", flush=True)
            try:
                fresh = load_model(model, device=device.kind, random_init=name == CONTROL, seed=seed)
                report = apply_strategy(fresh.model, "full" if name == CONTROL else name)
                config = TrainingConfig(LEARNING_RATES[name], epochs=profile.epochs, batch_size=batch_size, seed=seed)
                result = train(report.model, blocks, config)
                after = perplexity(report.model, fresh.tokenizer, corpus.test, context=context)
                forgotten = perplexity(report.model, fresh.tokenizer, general.test, context=context)
            except (RuntimeError, ValueError, ArithmeticError, MemoryError):
                # One strategy that cannot run must not lose the others; its traceback is part of the result.
                failures[f"{name}, seed {seed}"] = traceback.format_exc()
                continue
            values, of = report.trainable_values, report.total_values
            rows.append(_row(name, seed, values, of, scores, after, forgotten, result))
            curves.append(result.history.assign(strategy=name, seed=seed))
    runs = pd.DataFrame(rows)
    curve_table = pd.concat(curves, ignore_index=True) if curves else pd.DataFrame()
    command = f"python -m tlkit compare --profile {profile.name} --model {base.name} --seeds {seeds}"
    table = _summary(runs, device.kind, command)
    return Comparison(table, runs, curve_table, failures, _provenance(base.name, corpus, device, profile, seeds))


def _row(name, seed, values, total, scores, after, forgotten, result) -> dict[str, object]:
    return {
        "strategy": name,
        "seed": seed,
        "trainable_values": values,
        "trainable_percent": 100 * values / total,
        "perplexity_before": scores["before"].perplexity,
        "perplexity_before_low": scores["before"].low,
        "perplexity_before_high": scores["before"].high,
        "perplexity": after.perplexity,
        "perplexity_low": after.low,
        "perplexity_high": after.high,
        "bits_per_byte": after.bits_per_byte,
        "general_before": scores["general_before"].perplexity,
        "general": forgotten.perplexity,
        "seconds": result.seconds if result else 0.0,
        "tokens_per_second": result.tokens_per_second if result else math.nan,
        "samples_per_second": result.samples_per_second if result else math.nan,
        "peak_memory_mb": result.peak_memory / 1e6 if result else math.nan,
    }


def _summary(runs: pd.DataFrame, device: str, command: str) -> pd.DataFrame:
    """One row a strategy: means over seeds, the spread of perplexity over seeds, improvement, rank."""
    grouped = runs.groupby("strategy", sort=False)
    table = grouped.mean(numeric_only=True).drop(columns="seed")
    table["perplexity_seed_spread"] = grouped["perplexity"].max() - grouped["perplexity"].min()
    table["improvement_percent"] = 100 * (1 - table["perplexity"] / table["perplexity_before"])
    ranked = table.index.difference([ZERO_SHOT, CONTROL], sort=False)
    table["rank"] = table.loc[ranked, "perplexity"].rank().astype("Int64")
    table["seeds"] = grouped["seed"].count()
    table["device"] = device
    one = command.replace("compare", "compare --strategies {}")
    table["command"] = [one.format(s) if s in STRATEGIES else command for s in table.index]
    table["trainable_values"] = table["trainable_values"].astype(int)
    return table.reset_index()


def _provenance(name: str, corpus: Corpus, device, profile: Profile, seeds: int) -> dict[str, object]:
    import datetime
    import hashlib
    import platform
    from pathlib import Path

    import peft
    import torch
    import transformers

    from tlkit.models import PRESETS

    weights = Path(PRESETS[name].source if name in PRESETS else name) / "model.safetensors"
    return {
        "model": name,
        "model_sha256": hashlib.sha256(weights.read_bytes()).hexdigest() if weights.is_file() else "not a local file",
        "corpus": corpus.name,
        "corpus_sha256": corpus.sha256,
        "device": f"{device.kind}: {device.name}",
        "profile": profile.name,
        "seeds": seeds,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "peft": peft.__version__,
    }
