"""Survive running out of memory: the same step again, carried out with less, and no step lost or repeated."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pandas as pd
import torch

from tlkit.devices import Device, probe
from tlkit.examples import Batch, shape_of
from tlkit.fitting.estimate import estimate_memory
from tlkit.fitting.ladder import LADDER, ON_HOST, Rung, descend
from tlkit.fitting.out_of_memory import Failure, catch_out_of_memory
from tlkit.fitting.trace import CannotEstimate
from tlkit.jobs import SILENT, Part, reported
from tlkit.memory import CPU, VirtualDevice, in_units, move_weights
from tlkit.names import HOST
from tlkit.settings import Plan, TrainingConfig
from tlkit.steps import StepRecord, TrainingState, draws_random_numbers, mean_loss
from tlkit.training import (
    RunLog,
    TrainingResult,
    check_settings,
    new_state,
    plan_of_scoring,
    run_steps,
    training_steps,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Attempt:
    """One try: what was done where, or where it failed and what for.

    Attributes:
        action: "estimate", "loading", "training", "validation", or what else was tried.
        device: where.
        rung: how, a name of `LADDER` or "as planned".
        first_step: the first optimizer step of this try, from 1.
        steps_done: how many it finished.
        failed_in: the part that failed; empty where none did.
        bytes_asked: of the allocation that failed, NaN where unknown.
        bytes_available: that were free then, NaN where unknown.
        peak: most bytes held on the device, NaN where unknown.
        seconds: that its steps took.
        changes_numerics: True where its result is not that of the plan asked for, beyond the order of additions.
        error: what was said when it failed.
        note: what else there is to know about the rung.
    """

    action: str
    device: str
    rung: str
    first_step: int = 0
    steps_done: int = 0
    failed_in: str = ""
    bytes_asked: float = math.nan
    bytes_available: float = math.nan
    peak: float = math.nan
    seconds: float = math.nan
    changes_numerics: bool = False
    error: str = ""
    note: str = ""


@dataclass
class FallbackLog:
    """Every attempt, in order."""

    attempts: list[Attempt] = field(default_factory=list)

    @property
    def table(self) -> pd.DataFrame:
        """A row for each attempt, a column for each of its attributes."""
        return pd.DataFrame([vars(attempt) for attempt in self.attempts], columns=list(Attempt.__dataclass_fields__))

    def add(
        self, action: str, device: Device | VirtualDevice, rung: Rung, failure: Failure | None = None, **more: float
    ) -> None:
        """Add an attempt, from its rung and from how it failed; `more` are other attributes of it."""
        where = HOST if rung.plan.train_on_host or rung.name == "on the host" else device.name
        row = Attempt(action, where, rung.name, changes_numerics=rung.changes_numerics, note=rung.note)
        if failure is not None:
            sizes = {"bytes_asked": failure.bytes_asked, "bytes_available": failure.bytes_available}
            row = replace(row, failed_in=failure.failed_in, error=failure.message, **sizes)
        self.attempts.append(replace(row, **more))


def train_with_fallback(
    model: torch.nn.Module,
    blocks: Batch,
    config: TrainingConfig | None = None,
    *,
    device: Device | VirtualDevice | None = None,
    plan: Plan | None = None,
    order: tuple[str, ...] | None = None,
    validation: Batch | None = None,
    log: FallbackLog | None = None,
    progress: bool | Part = False,
) -> tuple[TrainingResult, FallbackLog]:
    """Train as `train` does, on a device that may be too small: what does not fit is carried out with less memory.

    An estimate picks the first rung of `LADDER` that should fit, and skips those that save nothing; where a model
    cannot be estimated, its first rung says so and each is tried after a real failure. The tokens of an optimizer step
    never change.

    Args:
        model: changed in place; where nothing else is said, it is on the host.
        blocks: token ids, shape (blocks, tokens), or examples.
        device: real or virtual, by default the best one here.
        plan: how the steps should be carried out if there is room.
        order: names of rungs, each to be tried in turn after a real failure; nothing is estimated then.
        validation: to score, of the same kind.
        log: what is tried is added to it, also where it fails.
        progress: True to show step, loss and time left; or the part of a larger job to report the steps to.

    Returns:
        The result of the training, and the log.

    Raises:
        MemoryError: with numbers, where no rung fits.
        ValueError: as `train` does.
    """
    config, plan, device = config or TrainingConfig(), plan or Plan(), device or probe()
    check_settings(model, blocks, config, plan, validation)
    for name in order or ():
        if name not in LADDER:
            raise ValueError(f"rung {name!r} is unknown: expected some of {', '.join(LADDER)}")
    log = log if log is not None else FallbackLog()
    with device.counting(), reported(progress, "training") as progress:
        progress.step(0, 0, "estimating what a step needs")
        batch = blocks[: config.batch_size]
        rungs = descend(model, batch, plan, device, order, config.optimizer)
        first = _first_rung(model, rungs, batch, device, log)
        state = new_state(model, config, device.host)
        steps = steps_with_fallback(state, blocks, config, first, rungs, device, log, progress)
        score = None if validation is None else lambda: _score(state, validation, config, device, log)
        result = run_steps(steps, state, len(blocks), config, RunLog(), progress=progress, score=score)
        if isinstance(device, VirtualDevice):
            training = [attempt for attempt in log.attempts if attempt.action == "training"]
            result = replace(result, peak_memory=int(training[-1].peak))
        if state.plan.train_on_host:
            catch_out_of_memory(lambda: move_weights(model, device.torch))
    return result, log


def _first_rung(
    model: torch.nn.Module,
    rungs: Iterator[Rung],
    batch: Batch,
    device: Device | VirtualDevice,
    log: FallbackLog,
) -> Rung:
    """The first rung that should fit; those passed over are taken from `rungs`, and the model is where training begins.

    Raises:
        MemoryError: with numbers, where none fits.
    """
    rung, available = next(rungs), device.room_for(model)
    while rung.estimate is not None and rung.estimate > available:
        needs = f"needs {in_units(rung.estimate)}, {in_units(available)} are there"
        log.add("estimate", device, rung, Failure("not tried", rung.estimate, available, needs))
        lower = next(rungs, None)
        if lower is None:
            raise MemoryError(
                f"training needs at least {in_units(rung.estimate)} on {device.name}, which has {in_units(available)}: "
                "use a strategy with less to train, a smaller model, or shorter blocks"
            )
        rung = lower
    if not rung.plan.train_on_host:
        failure, _ = catch_out_of_memory(lambda: device.place(model))
        if failure is not None:
            log.add("loading", device, rung, failure)
            move_weights(model, CPU, device.host)
            other_draws = device.torch != CPU and draws_random_numbers(model)
            changes = rung.changes_numerics or other_draws
            rung = Rung(ON_HOST, LADDER[ON_HOST](rung.plan, len(batch)), changes_numerics=changes)
    return rung


def _refuse_small_host(model: torch.nn.Module, batch: Batch, plan: Plan, optimizer: str) -> None:
    """Refuse a training on the host for which its memory is too small: no exception would come, only the end."""
    if not plan.train_on_host:
        return
    there = replace(plan, train_on_host=False)
    try:
        needed = estimate_memory(model, **shape_of(batch), plan=there, optimizer=optimizer).resident
    except CannotEstimate:
        return
    free = probe("cpu").room_for(model)
    if needed > free:
        raise MemoryError(
            f"training on the host needs {in_units(needed)} and {in_units(free)} of its memory are free: use a "
            "strategy with less to train, a smaller model, or shorter blocks"
        )


def steps_with_fallback(
    state: TrainingState,
    blocks: Batch,
    config: TrainingConfig,
    rung: Rung,
    rungs: Iterator[Rung],
    device: Device | VirtualDevice,
    log: FallbackLog,
    progress: Part = SILENT,
) -> Iterator[StepRecord]:
    """Take the steps of `training_steps`, going down from `rung` to the `rungs` below while memory runs out.

    Raises:
        MemoryError: after the last rung.
    """
    while True:
        with device.host():
            _refuse_small_host(state.model, blocks[: config.batch_size], rung.plan, config.optimizer)
        state.apply_plan(rung.plan)
        progress.go_on("" if rung.name == "as planned" else rung.name)
        steps = training_steps(state, blocks, config)
        first, seconds, failure = state.step, 0.0, None
        device.reset_peak()
        try:
            while True:
                begun = time.perf_counter()
                failure, record = catch_out_of_memory(lambda: next(steps, None))  # noqa: B023 - called at once
                seconds += time.perf_counter() - begun
                if record is None:
                    break
                yield record
        finally:
            taken = {"first_step": first + 1, "steps_done": state.step - first}
            log.add("training", device, rung, failure, **taken, seconds=seconds, peak=device.peak)
        if failure is None:
            return
        lower = None if rung.plan.train_on_host else next(rungs, None)  # nothing is below it
        if lower is None:
            raise MemoryError(f"no rung is left after {rung.name!r} at step {state.step + 1}: {failure.message}")
        rung = lower


def _score(
    state: TrainingState, validation: Batch, config: TrainingConfig, device: Device | VirtualDevice, log: FallbackLog
) -> float:
    """Nats per token, where the weights are."""
    plan = state.plan
    if plan.train_on_host:
        with device.host():
            return mean_loss(state.model, validation, plan)
    return evaluate_with_fallback(
        lambda size: mean_loss(state.model, validation, replace(plan, micro_batch_size=size)),
        state.model,
        batch_size=plan_of_scoring(plan, config).micro_batch_size,
        device=device,
        log=log,
        name="validation",
    )


def evaluate_with_fallback(
    action: Callable[[int], T],
    model: torch.nn.Module,
    *,
    batch_size: int = 8,
    device: Device | VirtualDevice | None = None,
    log: FallbackLog | None = None,
    name: str = "evaluation",
) -> T:
    """Call `action(batch_size)`, in smaller and smaller batches while memory runs out, at last on the host.

    For what changes no weights: `lambda n: perplexity(model, tokenizer, texts, batch_size=n)`, or generation.
    Afterwards the model is where it was.

    Args:
        action: takes the number of rows to compute at a time.
        device: where to compute, by default the best device here.
        log: gets what fails, and what is done with less.

    Returns:
        What `action` returns.

    Raises:
        MemoryError: where one row at a time is too much, and the device was the host.
    """
    device, log = device or probe(), log if log is not None else FallbackLog()
    with device.counting():
        for size in [batch_size >> halvings for halvings in range(batch_size.bit_length())]:
            failure, result = catch_out_of_memory(lambda: action(size))  # noqa: B023 - called at once
            if failure is not None or size != batch_size:
                log.add(name, device, Rung(f"batches of {size}", Plan()), failure)
            if failure is None:
                return result
        if not device.has_host:
            raise MemoryError(f"{name} does not fit even one block at a time: {failure.message}")
        move_weights(model, CPU, device.host)
        try:
            with device.host():
                result = action(1)
            log.add(name, device, Rung("on the host", Plan()))
            return result
        finally:
            move_weights(model, device.torch)
