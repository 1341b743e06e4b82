"""Validation tiers: what a training must show before it is believed, run and judged."""

import math
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from tlkit.checkpoints.folder import Checkpoints, Journal
from tlkit.checkpoints.identity import identity_of
from tlkit.corpus import load_corpus, pack
from tlkit.devices import Device, probe
from tlkit.evidence.gradient_flow import check_gradient_flow
from tlkit.evidence.tier_files import Tier
from tlkit.fitting.estimate import DTYPES, MemoryEstimate, estimate_memory
from tlkit.memory import in_units, track_memory
from tlkit.models import download_needed, load_model
from tlkit.steps import StepRecord, mean_loss, move_weights
from tlkit.strategies import StrategyReport, apply_strategy
from tlkit.training import TrainingConfig, check_settings, new_state, training_steps

WARM_UP = 2  # steps before memory and speed are steady: the optimizer's state is made in the first
SMOOTHING = 5  # parts of a run whose mean losses are compared


@dataclass(frozen=True)
class Run:
    """What a tier's training left behind.

    Args:
        records: one for each finished step.
        held: bytes of live tensors after each step.
        peak: most bytes held at any time.
        estimate: what the step was estimated to need.
        gradient_problems: faults that `check_gradient_flow` found; empty where it was not asked.
        reload_problem: how a checkpoint that was read back differs; empty where it does not.
        failure: why the run broke off; empty where it did not.
    """

    records: list[StepRecord]
    held: list[int]
    peak: int
    estimate: MemoryEstimate
    gradient_problems: tuple[str, ...]
    reload_problem: str
    failure: str = ""


@dataclass(frozen=True)
class CriterionResult:
    """The verdict on one criterion.

    Args:
        criterion: its name in the tier's file.
        holds: whether the run met it.
        found: the figures that say so, in words.
    """

    criterion: str
    holds: bool
    found: str

    def __str__(self) -> str:
        return f"[{'OK' if self.holds else 'FAIL'}] {self.criterion}: {self.found}"


class CannotRunHere(RuntimeError):
    """The machine or its files do not suffice; the message says what is needed and what was found."""


def run_tier(
    tier: Tier,
    *,
    device: Device | None = None,
    estimate: MemoryEstimate | None = None,
    on_step: Callable = lambda record: None,
) -> list[CriterionResult]:
    """Train as the tier says and judge every criterion.

    Args:
        tier: what to train and what to ask of it.
        device: where; default: what `probe` finds.
        estimate: what the tier needs, if `estimate_tier` has been asked already.
        on_step: called with the `StepRecord` of each step.

    Returns:
        A result for each criterion of the tier; a run that breaks off fails all, and the first says why.

    Raises:
        CannotRunHere: before any work, where memory or the model's files are missing.
    """
    device, estimate = device or probe(), estimate or estimate_tier(tier)
    refuse_what_does_not_fit(tier, estimate, device)
    if needed := download_needed(tier.model):
        raise CannotRunHere(f"{tier.name}: {needed}, or try the tier's logic with --model tiny")
    run = _train(tier, estimate, device, on_step)
    if run.failure:
        broken = CriterionResult("completes", False, f"{len(run.records)} of {tier.steps} steps: {run.failure}")
        return [broken, *(CriterionResult(n, False, "not judged") for n in tier.criteria if n != "completes")]
    return [JUDGES[name](wanted, tier, run) for name, wanted in tier.criteria.items() if wanted is not False]


def estimate_tier(tier: Tier) -> MemoryEstimate:
    """Estimate the memory of a tier's training step; no weights, no network for presets."""
    shape = {"batch_size": tier.batch_size, "sequence_length": tier.sequence_length}
    return estimate_memory(tier.model, tier.strategy, dtype=tier.dtype, **shape, plan=tier.plan, **(tier.lora or {}))


def refuse_what_does_not_fit(tier: Tier, estimate: MemoryEstimate, device: Device) -> None:
    """Refuse a tier that does not fit into the device's free memory.

    Args:
        tier: what is to run.
        estimate: what it needs; see `estimate_tier`.
        device: where it is to run.

    Raises:
        CannotRunHere: where less is free than the estimate; the message has both numbers.
    """
    if estimate.resident > device.free_memory:
        raise CannotRunHere(
            f"{tier.name} needs {in_units(estimate.resident)} and {device.name} has {in_units(device.free_memory)} "
            "free: a larger device, or --model tiny for the tier's logic alone"
        )


def _train(tier: Tier, estimate: MemoryEstimate, device: Device, on_step: Callable) -> Run:
    loaded, report = _prepare(tier, device)
    blocks = pack(load_corpus(tier.corpus).train, loaded.tokenizer, tier.sequence_length)
    epochs = tier.steps / math.ceil(len(blocks) / tier.batch_size)
    config = TrainingConfig(tier.learning_rate, epochs=epochs, batch_size=tier.batch_size)
    check_settings(report.model, blocks, config, tier.plan)
    identity = identity_of(report.model, [blocks], asdict(config))
    problems = check_gradient_flow(report, blocks[:1]).problems if "gradients_flow" in tier.criteria else ()

    state, journal = new_state(report.model, config), Journal()
    state.apply_plan(tier.plan)
    held, failure, on_card = [], "", device.kind == "cuda"
    if on_card:
        torch.cuda.reset_peak_memory_stats()
    try:
        with nullcontext() if on_card else track_memory(report.model) as track:
            for record in training_steps(state, blocks, config):
                journal.records.append(record)
                held.append(torch.cuda.memory_allocated() if on_card else track.current)
                on_step(record)
    except (RuntimeError, MemoryError, ArithmeticError) as error:  # the verdict says what happened
        failure = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    peak = torch.cuda.max_memory_allocated() if on_card else track.peak
    reload_problem = "" if failure else _reload(tier, state, journal, identity, blocks, config, device)
    return Run(journal.records, held, peak, estimate, problems, reload_problem, failure)


def _prepare(tier: Tier, device: Device) -> tuple[object, StrategyReport]:
    loaded = load_model(tier.model, dtype=DTYPES[tier.dtype])
    torch.manual_seed(0)
    report = apply_strategy(loaded.model, tier.strategy, **(tier.lora or {}))
    if device.has_host:
        move_weights(report.model, device.torch)
    return loaded, report


def _reload(tier: Tier, state, journal, identity: dict, blocks, config, device: Device) -> str:
    """Save, bring back into a fresh model, compare; empty where nothing differs."""
    if "checkpoint_reloads" not in tier.criteria:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder), 1, identity)
        checkpoints.save(state, journal)
        fresh = new_state(_prepare(tier, device)[1].model, config)
        checkpoints.restore(fresh, Journal())
    if fresh.step != state.step:
        return f"step {fresh.step} came back instead of {state.step}"
    if not all(torch.equal(a, b) for a, b in zip(fresh.parameters, state.parameters, strict=True)):
        return "other weights came back"
    before, after = (mean_loss(s.model, blocks[:4], tier.plan) for s in (state, fresh))
    return "" if before == after else f"the loss was {before} and is {after}"


def _completes(wanted, tier: Tier, run: Run) -> CriterionResult:
    return CriterionResult("completes", len(run.records) == tier.steps, f"{len(run.records)} of {tier.steps} steps")


def _gradients_flow(wanted, tier: Tier, run: Run) -> CriterionResult:
    found = "; ".join(run.gradient_problems) or "all that is trainable moves, nothing else does"
    return CriterionResult("gradients_flow", not run.gradient_problems, found)


def _loss_falls(wanted: float, tier: Tier, run: Run) -> CriterionResult:
    """Means of the first and the last fiftieth of the steps, at least three: one batch proves nothing."""
    few = max(3, len(run.records) // 50)
    first, last = (float(np.mean([r.loss for r in part])) for part in (run.records[:few], run.records[-few:]))
    fall = 100 * (1 - last / first)
    found = f"{first:.2f} to {last:.2f} nats per token, {fall:.0f}% (wanted {wanted}%)"
    return CriterionResult("loss_falls_percent", fall >= wanted, found)


def _smoothed_loss_decreases(wanted, tier: Tier, run: Run) -> CriterionResult:
    means = [float(np.mean(part)) for part in np.array_split([r.loss for r in run.records], SMOOTHING)]
    holds = all(later < earlier for earlier, later in zip(means, means[1:], strict=False))
    return CriterionResult(
        "smoothed_loss_decreases", holds, "means of five parts: " + ", ".join(f"{m:.2f}" for m in means)
    )


def _memory_within_limit(wanted, tier: Tier, run: Run) -> CriterionResult:
    found = (
        f"estimated {in_units(run.estimate.peak)}, measured {in_units(run.peak)} of {in_units(tier.required_memory)}"
    )
    return CriterionResult("memory_within_limit", max(run.estimate.peak, run.peak) <= tier.required_memory, found)


def _memory_growth(wanted: float, tier: Tier, run: Run) -> CriterionResult:
    """Slope of a straight line through the bytes held after each step; the upper end of its 95% interval counts."""
    from scipy import stats

    held = run.held[WARM_UP:]
    if len(held) < 3:
        found = f"{len(run.held)} steps are too few: expected at least {WARM_UP + 3}"
        return CriterionResult("memory_growth_percent", False, found)
    line = stats.linregress(range(len(held)), held)
    error = line.stderr if len(set(held)) > 1 else 0.0  # a flat line has no correlation to compute an error from
    margin = stats.t.ppf(0.975, len(held) - 2) * error
    low, high = (100 * 100 * bytes_a_step / run.peak for bytes_a_step in (line.slope - margin, line.slope + margin))
    found = f"{low:.3f}% to {high:.3f}% of the peak per 100 steps (wanted below {wanted}%)"
    return CriterionResult("memory_growth_percent", bool(high < wanted), found)


def _throughput(wanted: float, tier: Tier, run: Run) -> CriterionResult:
    speeds = [r.tokens / r.seconds for r in run.records[WARM_UP:]]
    third = max(1, len(speeds) // 3)
    first, last = float(np.median(speeds[:third])), float(np.median(speeds[-third:]))
    change = 100 * abs(last / first - 1)
    found = f"{first:,.0f} tokens/s in the first third, {last:,.0f} in the last: {change:.0f}% (wanted below {wanted}%)"
    return CriterionResult("throughput_varies_percent", change < wanted, found)


def _checkpoint_reloads(wanted, tier: Tier, run: Run) -> CriterionResult:
    return CriterionResult(
        "checkpoint_reloads", not run.reload_problem, run.reload_problem or "bit for bit, the loss too"
    )


# Each judges one criterion; those whose name ends in `percent` take a number.
JUDGES: dict[str, Callable[[float | bool, Tier, Run], CriterionResult]] = {
    "completes": _completes,
    "gradients_flow": _gradients_flow,
    "loss_falls_percent": _loss_falls,
    "smoothed_loss_decreases": _smoothed_loss_decreases,
    "memory_within_limit": _memory_within_limit,
    "memory_growth_percent": _memory_growth,
    "throughput_varies_percent": _throughput,
    "checkpoint_reloads": _checkpoint_reloads,
}
