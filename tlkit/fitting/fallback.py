"""Survive running out of memory: the same step again, carried out with less, and no step lost or repeated."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import torch

from tlkit.devices import Device, probe
from tlkit.examples import Batch
from tlkit.fitting.attempts import FallbackLog
from tlkit.fitting.ladder import LADDER, Rung, descend
from tlkit.fitting.out_of_memory import catch_out_of_memory
from tlkit.fitting.placement import (
    device_context,
    memory_for,
    move_to_device,
    peak_of,
    refuse_what_the_host_cannot_hold,
    reset_peak,
)
from tlkit.jobs import SILENT, Part, reported
from tlkit.memory import CPU, VirtualDevice, in_units, move_weights
from tlkit.settings import Plan, TrainingConfig
from tlkit.steps import StepRecord, TrainingState, draws_random_numbers, mean_loss
from tlkit.training import RunLog, TrainingResult, check_settings, new_state, run_steps, training_steps

T = TypeVar("T")


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
        config: what to train towards.
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
    with device_context(device), reported(progress, "training") as part:
        part.step(0, 0, "estimating what a step needs")
        batch = blocks[: config.batch_size]
        rungs = descend(model, batch, plan, device, order)
        first = _first_rung(model, rungs, batch, device, log)
        state = new_state(model, config, device.host)
        steps = steps_with_fallback(state, blocks, config, first, rungs, device, log, part)
        rows = min(8, config.batch_size)
        score = None if validation is None else lambda: _score(state, validation, rows, device, log)
        result = run_steps(steps, state, len(blocks), config, RunLog(), progress=part, score=score)
        if isinstance(device, VirtualDevice):
            result = replace(result, peak_memory=int(log.last("training").peak))
        if state.plan.train_on_host and not state.plan.evaluate_on_host:
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
    rung, available = next(rungs), memory_for(model, device)
    while rung.estimate is not None and rung.estimate > available:
        log.foreseen(rung, device, available)
        lower = next(rungs, None)
        if lower is None:
            raise MemoryError(
                f"training needs at least {in_units(rung.estimate)} on {device.name}, which has {in_units(available)}: "
                "use a strategy with less to train, a smaller model, or shorter blocks"
            )
        rung = lower
    if not rung.plan.train_on_host:
        failure, _ = catch_out_of_memory(lambda: move_to_device(model, device))
        if failure is not None:
            log.tried("loading", device, rung, failure)
            move_weights(model, CPU, device.host)
            name = "everything on the host"
            other_draws = device.torch != CPU and draws_random_numbers(model)
            changes = rung.changes_numerics or other_draws
            rung = Rung(name, LADDER[name](rung.plan, len(batch)), changes_numerics=changes)
    return rung


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
    """Take the steps of `training_steps`, going down the rungs while memory runs out.

    Args:
        state: with the model where `rung` wants it.
        blocks: token ids, shape (blocks, tokens), or examples.
        config: what to train towards.
        rung: the first.
        rungs: those below it.
        device: where to train.
        log: gets a row for each rung.
        progress: is told each rung.

    Raises:
        MemoryError: after the last rung.
    """
    while True:
        with device.host():
            refuse_what_the_host_cannot_hold(state.model, blocks[: config.batch_size], rung.plan)
        state.apply_plan(rung.plan)
        progress.go_on("" if rung.name == "as planned" else rung.name)
        steps = training_steps(state, blocks, config)
        first, seconds, failure = state.step, 0.0, None
        reset_peak(device)
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
            log.tried("training", device, rung, failure, **taken, seconds=seconds, peak=peak_of(device))
        if failure is None:
            return
        lower = next(rungs, None)
        if lower is None:
            raise MemoryError(f"no rung is left after {rung.name!r} at step {state.step + 1}: {failure.message}")
        rung = lower


def _score(
    state: TrainingState, validation: Batch, rows: int, device: Device | VirtualDevice, log: FallbackLog
) -> float:
    """Nats per token, on the device where the blocks fit; the weights are then where training wants them."""
    plan = state.plan
    if plan.evaluate_on_host:
        with device.host():
            return mean_loss(state.model, validation, plan)
    return evaluate_with_fallback(
        lambda size: mean_loss(state.model, validation, replace(plan, micro_batch_size=size)),
        state.model,
        batch_size=min(rows, plan.micro_batch_size or rows),
        device=device,
        log=log,
        name="validation",
        weights_on_host=plan.train_on_host,
    )


def evaluate_with_fallback(
    action: Callable[[int], T],
    model: torch.nn.Module,
    *,
    batch_size: int = 8,
    device: Device | VirtualDevice | None = None,
    log: FallbackLog | None = None,
    name: str = "evaluation",
    weights_on_host: bool = False,
) -> T:
    """Call `action(batch_size)`, in smaller and smaller batches while memory runs out, at last on the host.

    For what changes no weights: `lambda n: perplexity(model, tokenizer, texts, batch_size=n)`, or generation.
    Afterwards the model is where it was.

    Args:
        action: takes the number of rows to compute at a time.
        model: what it computes with.
        batch_size: rows at first.
        device: where to compute, by default the best device here.
        log: gets what fails, and what is done with less.
        name: of the action, for the log.
        weights_on_host: True where the model is there now, and shall be there afterwards.

    Returns:
        What `action` returns.

    Raises:
        MemoryError: where one row at a time is too much, and the device was the host.
    """
    device, log = device or probe(), log if log is not None else FallbackLog()
    with device_context(device):
        on_device = True
        try:
            if weights_on_host:
                failure, _ = catch_out_of_memory(lambda: move_weights(model, device.torch))
                on_device = failure is None
            for size in [batch_size >> halvings for halvings in range(batch_size.bit_length())] if on_device else ():
                failure, result = catch_out_of_memory(lambda: action(size))  # noqa: B023 - called at once
                if failure is not None or size != batch_size:
                    log.tried(name, device, Rung(f"batches of {size}", Plan()), failure)
                if failure is None:
                    return result
            if not device.has_host:
                raise MemoryError(f"{name} does not fit even one block at a time: {failure.message}")
            on_device = False
            move_weights(model, CPU, device.host)
            with device.host():
                result = action(1)
            log.tried(name, device, Rung("on the host", Plan()))
            return result
        finally:
            if weights_on_host:
                move_weights(model, CPU, device.host)
            elif not on_device:
                move_weights(model, device.torch)
