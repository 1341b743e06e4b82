"""Many strategies and seeds into one table, from freshly loaded models, with a baseline and a control."""

import math
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import pandas as pd
import torch

from tlkit.corpus import Corpus, load_corpus, pack
from tlkit.devices import Device, probe
from tlkit.evaluation import PerplexityResult, perplexity
from tlkit.evidence.learning_rates import CONTROL, default_rates, load_with_strategy
from tlkit.evidence.statistics import (
    compare_pairs,
    document_scores,
    paired_differences,
    rank_intervals,
    seed_intervals,
)
from tlkit.fitting.attempts import HOST, FallbackLog
from tlkit.fitting.fallback import evaluate_with_fallback, train_with_fallback
from tlkit.fitting.placement import device_context, move_to_device
from tlkit.memory import VirtualDevice, parse_size, virtual_device
from tlkit.models import load_model, meta_model
from tlkit.scaling.processes import gathered
from tlkit.settings import Profile
from tlkit.strategies import STRATEGIES, StrategyReport, apply_strategy
from tlkit.team import ALONE, Team
from tlkit.training import TrainingConfig, TrainingResult, train

ZERO_SHOT = "zero-shot"


@dataclass(frozen=True)
class Comparison:
    """`runs` has a row for each strategy and seed, `table` a row for each strategy, `curves` each training step.

    `attempts` has a row for each try of a run with fallback, and is empty without. `failures` maps what could not
    run to its traceback: nothing is silently missing.
    """

    table: pd.DataFrame
    runs: pd.DataFrame
    curves: pd.DataFrame
    attempts: pd.DataFrame
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
    device_memory: str | None = None,
    fallback: bool = False,
    against: str | None = None,
    learning_rates: dict[str, float] | None = None,
    progress: bool = False,
    team: Team = ALONE,
    spread_over: Team = ALONE,
) -> Comparison:
    """Adapt `model` by each strategy, once for every seed, and measure what each gained and forgot.

    Every run starts from a freshly loaded model; seeds change the order of the batches and the adapters'
    initial values. Full fine-tuning of random weights, once, is the control, no training at all the baseline.
    `learning_rates` are by strategy; what is missing there is as recorded for the bundled model (`sweeps`). All
    others are compared seed by seed with the strategy `against`, by default full fine-tuning where it runs.
    `device_memory` ("48MB") plays a card of that size on the CPU. With `fallback` the strategies run from the
    lightest to the heaviest, each from a fresh model on the first choice of device, and what runs out of memory goes
    on with less; without, it is a failure. The processes of a `team` share every batch, those of `spread_over` the
    runs, and each returns the whole comparison. Raises ValueError for an unknown strategy or fewer than one seed,
    before any work.
    """
    strategies = list(STRATEGIES) if strategies is None else strategies
    seeds = profile.seeds if seeds is None else seeds
    against = against or ("full" if "full" in strategies else next(iter(strategies), ""))
    _refuse(strategies, against, seeds)
    if device_memory:
        parse_size(device_memory)
    rates = default_rates() | (learning_rates or {})
    corpus = (corpus or load_corpus()).limited(profile.train_passages, profile.test_passages)
    general = load_corpus("general").limited(test=profile.test_passages)
    device = probe("cpu" if device_memory else None)

    # On the host: what is compared later has the device for itself.
    base = load_model(model)
    context = min(256, base.model.config.max_position_embeddings)
    texts = {"": corpus.test, "general_": general.test}
    before = {key: perplexity(base.model, base.tokenizer, part, context=context) for key, part in texts.items()}
    total = sum(p.numel() for p in base.model.parameters())
    data = _Data(pack(corpus.train, base.tokenizer, block_size), texts, base.tokenizer, context, before)
    if fallback:
        strategies = sorted(strategies, key=lambda name: _weight(name, base.model))
    planned = [(name, seed) for name in strategies for seed in range(seeds)] + [(CONTROL, 0)]
    outcomes = []
    for number in range(spread_over.rank, len(planned), spread_over.size):
        name, seed = planned[number]
        if progress:
            print(f"{name}, seed {seed}", flush=True)
        card = virtual_device(memory=device_memory) if device_memory else device
        config = TrainingConfig(rates[name], epochs=profile.epochs, batch_size=batch_size, seed=seed)
        outcomes.append({"number": number} | _outcome(name, model, data, config, card, fallback, team))
    outcomes = sorted(gathered(spread_over, outcomes), key=lambda outcome: outcome["number"])

    runs = [_row(ZERO_SHOT, None, 0, total, before, before, None)]
    runs = pd.DataFrame(runs + [outcome["row"] for outcome in outcomes if "row" in outcome])
    failures = {f"{o['strategy']}, seed {o['seed']}": o["failure"] for o in outcomes if "failure" in o}
    curves, attempts = _each_step(outcomes, "curve"), _each_step(outcomes, "attempts", FallbackLog().table.columns)
    command = f"python -m tlkit compare --profile {profile.name} --model {base.name} --seeds {seeds}"
    if device_memory:
        command += f" --device-memory {device_memory}"
    command += " --fallback" if fallback else ""
    documents = _each_step(outcomes, "documents", ["document", "nats", "tokens"])
    pairs = compare_pairs(documents[documents.strategy != CONTROL])
    where = f"virtual card of {device_memory}" if device_memory else device.kind
    table = _summary(runs, pairs, against, where, command)
    provenance = _provenance(base.name, corpus, device, profile, seeds) | {"learning_rates": rates, "against": against}
    return Comparison(table, runs, curves, attempts, failures, provenance)


def _refuse(strategies: list[str], against: str, seeds: int) -> None:
    """Before any work, what cannot be compared."""
    unknown = [s for s in strategies if s not in STRATEGIES]
    if unknown or not strategies:
        raise ValueError(f"strategies {unknown or strategies}: expected some of {', '.join(STRATEGIES)}")
    if against not in strategies:
        raise ValueError(f"against={against!r}: expected one of those compared, {', '.join(strategies)}")
    if seeds < 1:
        raise ValueError(f"seeds={seeds}: expected at least 1")


def _each_step(outcomes: list[dict], of: str, columns: Iterable[str] = ()) -> pd.DataFrame:
    """The rows that each run has noted, under its strategy and seed."""
    rows = [row | {key: run[key] for key in ("strategy", "seed")} for run in outcomes for row in run.get(of, ())]
    return pd.DataFrame(rows, columns=None if rows else [*columns, "strategy", "seed"])


@dataclass(frozen=True)
class _Data:
    """What every run trains on and is measured on, and what was measured before."""

    blocks: torch.Tensor
    texts: dict[str, tuple[str, ...]]
    tokenizer: object
    context: int
    before: dict[str, PerplexityResult]


def _outcome(
    name: str,
    model: str | None,
    data: _Data,
    config: TrainingConfig,
    device: Device | VirtualDevice,
    fallback: bool,
    team: Team,
) -> dict[str, object]:
    """A run as processes send it to each other: its row and its curve or its traceback, and what it tried."""
    log = FallbackLog()
    found = {"strategy": name, "seed": config.seed}
    try:
        report, result, after = _run(name, model, data, config, device, log if fallback else None, team)
        values, total = report.trainable_values, report.total_values
        found["row"] = _row(name, config.seed, values, total, data.before, after, result)
        found["documents"] = document_scores(name, config.seed, after[""]).to_dict("records")
        found["curve"] = result.history.to_dict("records")
    except (RuntimeError, ValueError, ArithmeticError, MemoryError):
        # One strategy that cannot run must not lose the others; its traceback is part of the result.
        found["failure"] = traceback.format_exc()
    return found | {"attempts": log.table.to_dict("records")}


def _run(
    name: str,
    model: str | None,
    data: _Data,
    config: TrainingConfig,
    device: Device | VirtualDevice,
    log: FallbackLog | None,
    team: Team,
) -> tuple[StrategyReport, TrainingResult, dict[str, PerplexityResult]]:
    """One strategy, one seed, from a freshly loaded model; with a log, it goes on where memory runs out."""
    report, _ = load_with_strategy(name, model=model, seed=config.seed)
    measure = partial(perplexity, report.model, data.tokenizer, context=data.context)
    if log is None:
        with device_context(device):
            move_to_device(report.model, device, team)
            result = train(report.model, data.blocks, config, team=team)
        return report, result, {key: measure(part) for key, part in data.texts.items()}
    result, _ = train_with_fallback(report.model, data.blocks, config, device=device, log=log, team=team)
    after = {
        key: evaluate_with_fallback(
            lambda size, part=part: measure(part, batch_size=size), report.model, device=device, log=log
        )
        for key, part in data.texts.items()
    }
    return report, result, after


def completion_table(comparison: Comparison) -> pd.DataFrame:
    """A row each run with fallback: what it tried where, whether it ran as planned, on the device, at all.

    The means of the three columns are the success rate as planned, on the device after falling back, and overall.
    """
    rows = []
    for (strategy, seed), part in comparison.attempts.groupby(["strategy", "seed"], sort=False):
        training = part[part.action == "training"]
        tried = part[part.action.isin(["estimate", "loading", "training"])]
        done = f"{strategy}, seed {seed}" not in comparison.failures
        last = training.iloc[-1] if len(training) else None
        on_device = done and last is not None and last.device != HOST
        rows.append(
            {
                "strategy": strategy,
                "seed": seed,
                "history": " > ".join(f"{row.rung} ({row.failed_in or 'done'})" for row in tried.itertuples()),
                "as_planned": on_device and last.rung == "as planned",
                "on_device": on_device,
                "completed": done,
            }
        )
    return pd.DataFrame(rows, columns=["strategy", "seed", "history", "as_planned", "on_device", "completed"])


def _weight(strategy: str, model) -> int:
    """Values it trains; what cannot be applied comes last and says why when it runs."""
    try:
        return apply_strategy(meta_model(model.config), strategy).trainable_values
    except ValueError:
        return sum(p.numel() for p in model.parameters())


def _row(name, seed, values, total, before, after, result) -> dict[str, object]:
    return {
        "strategy": name,
        "seed": seed,
        "trainable_values": values,
        "trainable_percent": 100 * values / total,
        "perplexity_before": before[""].perplexity,
        "perplexity_before_low": before[""].low,
        "perplexity_before_high": before[""].high,
        "perplexity": after[""].perplexity,
        "perplexity_low": after[""].low,
        "perplexity_high": after[""].high,
        "bits_per_byte": after[""].bits_per_byte,
        "general_before": before["general_"].perplexity,
        "general": after["general_"].perplexity,
        "seconds": result.seconds if result else 0.0,
        "tokens_per_second": result.tokens_per_second if result else math.nan,
        "samples_per_second": result.samples_per_second if result else math.nan,
        "peak_memory_mb": result.peak_memory / 1e6 if result else math.nan,
    }


def _summary(runs: pd.DataFrame, pairs: pd.DataFrame, against: str, device: str, command: str) -> pd.DataFrame:
    """One row a strategy: means, intervals over seeds, differences from `against`, improvement, rank."""
    grouped = runs.groupby("strategy", sort=False)
    table = grouped.mean(numeric_only=True).drop(columns="seed", errors="ignore")  # all None where every run failed
    table["improvement_percent"] = 100 * (1 - table["perplexity"] / table["perplexity_before"])
    trained = runs[~runs.strategy.isin([ZERO_SHOT, CONTROL])]
    intervals = seed_intervals(runs[runs.strategy != ZERO_SHOT])
    table["perplexity_seeds_low"], table["perplexity_seeds_high"] = intervals.low, intervals.high
    if against in set(trained.strategy):
        differences = paired_differences(trained, against)
        table["difference"], table["difference_low"] = differences["mean"], differences.low
        table["difference_high"] = differences.high
    else:  # its runs failed
        table[["difference", "difference_low", "difference_high"]] = math.nan
    table["rank"] = rank_intervals(pairs, list(trained.strategy.unique()))
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
