"""Survive running out of memory: the same step again with less, none lost or repeated."""

import gc
import math
import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple, TypeVar

import pandas as pd
import torch

from tlkit import training
from tlkit.devices import Device, probe
from tlkit.examples import Batch
from tlkit.fitting.estimate import CannotEstimate, MemoryEstimate, estimate_memory
from tlkit.jobs import Job, reported
from tlkit.memory import VirtualDevice, freed_memory_kept, in_units, move_to_host, move_weights, on_host
from tlkit.models.parts import ParameterGroup, learns_prefix
from tlkit.names import phase_of
from tlkit.settings import Plan, TrainingConfig
from tlkit.steps import StepRecord, TrainingState, chunked_loss_agrees, mean_loss

T = TypeVar("T")
AnyDevice = Device | VirtualDevice
OUT_OF_MEMORY = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|MPS backend out of memory|"
    r"XPU out of memory|UR_RESULT_ERROR_OUT_OF_(DEVICE|HOST|RESOURCES)|"
    r"DefaultCPUAllocator: (can't allocate memory|not enough memory)"
)
REMEDY = "use a strategy with less to train, a smaller model, or shorter blocks"
BYTES = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class Failure(NamedTuple):
    """What an error said, which itself would keep the step's tensors alive."""

    failed_in: str  # "forward pass", "backward pass" or "optimizer step"
    bytes_asked: float  # by the allocation that failed; NaN: unknown
    bytes_available: float  # then; NaN: unknown
    error: str  # its first line


def catch_out_of_memory(action: Callable[[], T]) -> tuple[Failure | None, T | None]:
    """None and what `action` returns; or how it ran out of memory, and None."""
    try:
        return None, action()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        failure = _failure_of(error)
        _let_go(error)
    gc.collect()  # out here, where nothing refers to the error
    if torch.accelerator.is_available():
        # Up to torch 2.12 `torch.accelerator.empty_cache` fails on Apple devices (pytorch issue 186430).
        torch.get_device_module(torch.accelerator.current_accelerator()).empty_cache()
    return failure, None


def is_out_of_memory(error: BaseException) -> bool:
    """Of CUDA, cuBLAS, MPS, XPU, the CPU allocators, and Python itself."""
    says_so = isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(str(error)) is not None
    return says_so or isinstance(error, torch.OutOfMemoryError | MemoryError)


def _let_go(error: BaseException | None) -> None:
    """Drop the tensors in frames of the failed calls."""
    seen = []
    while error is not None and error not in seen:
        traceback.clear_frames(error.__traceback__)
        seen.append(error)
        error = error.__cause__ or error.__context__


def _failure_of(error: BaseException) -> Failure:
    message = str(error).partition("\n")[0] or type(error).__name__

    def size(pattern: str) -> float:
        match = re.search(pattern, message)
        return float(match[1]) * BYTES[match[2]] if match else math.nan

    unit = r"([\d.]+) (bytes|KiB|MiB|GiB)"
    return Failure(phase_of(error), size(f"allocated? {unit}"), size(f"of which {unit} is free"), message)


def _smaller_micro_batch(plan: Plan, batch_size: int) -> Plan | None:
    """With the next divisor of the batch size, so that all micro-batches are of one size."""
    now = plan.micro_batch_size or batch_size
    smaller = [size for size in range(1, now) if batch_size % size == 0]
    return replace(plan, micro_batch_size=smaller[-1]) if smaller else None


# Cheapest first. A rung makes a plan need less; the same plan, or None: it has no more to give.
LADDER: dict[str, Callable[[Plan, int], Plan | None]] = {
    "chunked loss": lambda plan, batch: replace(plan, chunked_loss=True),
    "smaller micro-batch": _smaller_micro_batch,
    "activation checkpointing": lambda plan, batch: replace(plan, activation_checkpointing=True),
    "bf16 autocast": lambda plan, batch: replace(plan, precision="bf16"),
    "activations on the host": lambda plan, batch: replace(plan, offload_activations=True),
    "optimizer on the host": lambda plan, batch: replace(plan, offload_optimizer=True),
    "training on the host": lambda plan, batch: Plan(plan.micro_batch_size, train_on_host=True),
}
ON_HOST = "training on the host"


class Rung(NamedTuple):
    """One way to carry out a step."""

    name: str  # of the change that led here, or "as planned"
    plan: Plan
    estimate: int | None = None  # bytes at its peak; None: unknown
    note: str = ""


def walk(plan: Plan, batch_size: int, names: Iterable[str], need: Callable[[Plan], int | None]) -> Iterator[Rung]:
    """Yield a plan, then those below it on the ladder, unless they are known to save less than 1%."""
    size = need(plan)
    yield Rung("as planned", plan, size)
    for name in names:
        while (lower := LADDER[name](plan, batch_size)) not in (None, plan):
            less = need(lower)
            if None not in (less, size) and less > 0.99 * size:
                break
            plan, size = lower, less
            yield Rung(name, plan, size)


def _estimated(model: torch.nn.Module, batch: Batch, plan: Plan, optimizer: str) -> MemoryEstimate:
    return estimate_memory(model, batch_size=len(batch), sequence_length=batch.shape[1], plan=plan, optimizer=optimizer)


def descend(
    model: torch.nn.Module, batch: Batch, plan: Plan, device: AnyDevice, order: Sequence[str] | None, optimizer: str
) -> Iterator[Rung]:
    """Yield the rungs from `plan` downwards; without `order`, those that should need less.

    All but the last come twice: what saves nothing at first may save later on.
    """
    with on_host():
        unfit = {"chunked loss": not chunked_loss_agrees(model), "activation checkpointing": learns_prefix(model)}
    names, unknown = order, ""
    if order is None:
        possible = [name for name in LADDER if device.has_host or not name.endswith("on the host")]
        names = 2 * [name for name in possible if name != ON_HOST] + [ON_HOST] * device.has_host

    def need(lower: Plan) -> int | None:
        nonlocal unknown
        if order is not None or unknown:
            return None
        if lower.train_on_host:
            return 0
        try:
            return _estimated(model, batch, lower, optimizer).peak
        except CannotEstimate as error:
            unknown = str(error)
            return None

    for rung in walk(plan, len(batch), [name for name in names if not unfit.get(name)], need):
        yield rung._replace(note=unknown)


@dataclass(frozen=True)
class Attempt:
    """One try; figures that are not known are NaN."""

    action: str  # "estimate", "loading", "training", "validation", or what else was tried
    device: str
    rung: str  # a name of `LADDER` or "as planned"
    precision: str
    first_step: int = 0  # of this try, from 1
    steps_done: int = 0
    failed_in: str = ""  # as the next two and `error`, see `Failure`
    bytes_asked: float = math.nan
    bytes_available: float = math.nan
    peak: float = math.nan  # most bytes on the device
    seconds: float = math.nan  # of its steps
    error: str = ""
    note: str = ""  # on the rung


@dataclass
class FallbackLog:
    """Every attempt, in order."""

    attempts: list[Attempt] = field(default_factory=list)

    @property
    def table(self) -> pd.DataFrame:
        return pd.DataFrame(self.attempts, columns=list(Attempt.__dataclass_fields__))

    def add(self, action: str, device: AnyDevice, rung: Rung, failure: Failure | None = None, **more: float) -> None:
        """Add an attempt on a rung; `more` are its other attributes."""
        where, failed = "the host" if rung.plan.train_on_host else device.name, failure._asdict() if failure else {}
        self.attempts.append(Attempt(action, where, rung.name, rung.plan.precision, note=rung.note, **failed, **more))


@freed_memory_kept()
def train_with_fallback(
    model: torch.nn.Module,
    blocks: Batch,
    config: TrainingConfig | None = None,
    *,
    device: AnyDevice | None = None,
    plan: Plan | None = None,
    groups: Sequence[ParameterGroup] = (),
    order: tuple[str, ...] | None = None,
    validation: Batch | None = None,
    log: FallbackLog | None = None,
    progress: bool | Job = False,
) -> tuple[training.TrainingResult, FallbackLog]:
    """Train as `train` does; what does not fit on the device is carried out with less memory.

    An estimate picks the first rung of `LADDER` that should fit; a step that runs out of memory all the same goes on
    down from there. The tokens of an optimizer step never change.

    Args:
        model: changed in place; on the host to begin with.
        device: real or virtual, by default the best one here.
        plan: how to carry out the steps if there is room.
        order: rungs to try in turn after real failures, but those that the model cannot take; nothing is estimated.
        log: for what is tried, also where it fails; it is returned.

    Raises:
        MemoryError: no rung fits.
    """
    config, plan, device = config or TrainingConfig(), plan or Plan(), device or probe()
    training.check_settings(model, blocks, config, plan, validation)
    for name in order or ():
        if name not in LADDER:
            raise ValueError(f"rung {name!r} is unknown: expected some of {', '.join(LADDER)}")
    log = log if log is not None else FallbackLog()
    with device.counting(), reported(progress, "training") as progress:
        progress.step(0, 0, "estimating what a step needs")
        batch = blocks[: config.batch_size]
        rungs = descend(model, batch, plan, device, order, config.optimizer)
        first = _first_rung(model, rungs, batch, device, log)
        state, total = TrainingState(model, config, groups), training.total_steps(len(blocks), config)
        counts = not math.isnan(device.peak)
        steps = steps_with_fallback(state, blocks, chain([first], rungs), device, log)
        with closing(steps):  # so that the log has the last try, also where an evaluation fails
            for _ in training.recorded(steps, state, total, progress, count_memory=not counts):
                if validation is not None and training.is_due(state, config.evaluate_every, total):
                    training.note_score(_validation_loss(state, validation, device, log), state)
        if counts:  # the last try's, which fits
            state.peak_memory = [attempt.peak for attempt in log.attempts if attempt.action == "training"][-1]
        if state.plan.train_on_host:
            failure, _ = catch_out_of_memory(lambda: move_weights(model, device.torch))
            if failure is not None:  # with some of its weights there
                move_to_host(model)
    return training.finish_run(state, len(blocks)), log


def _first_rung(
    model: torch.nn.Module, rungs: Iterator[Rung], batch: Batch, device: AnyDevice, log: FallbackLog
) -> Rung:
    """The first that should fit; brings the model to where training begins."""
    available = device.room_for(model)
    for rung in rungs:
        if rung.estimate is None or rung.estimate <= available:
            break
        needs = f"needs {in_units(rung.estimate)}, {in_units(available)} are there"
        log.add("estimate", device, rung, Failure("not tried", rung.estimate, available, needs))
    else:
        raise MemoryError(
            f"training needs at least {in_units(rung.estimate)} on {device.name}, which has {in_units(available)}: "
            f"{REMEDY}"
        )
    if not rung.plan.train_on_host:
        failure, _ = catch_out_of_memory(lambda: device.place(model))
        if failure is not None:
            log.add("loading", device, rung, failure)
            move_to_host(model)
            rung = Rung(ON_HOST, LADDER[ON_HOST](rung.plan, len(batch)))
    return rung


def _refuse_small_host(state: TrainingState, batch: Batch, plan: Plan) -> None:
    """The host would end the process, without an exception."""
    try:
        with on_host():
            needed = _estimated(state.model, batch, replace(plan, train_on_host=False), state.config.optimizer)
    except CannotEstimate:
        return
    if needed.resident > (free := probe("cpu").room_for(state.model)):
        raise MemoryError(
            f"training on the host needs {in_units(needed.resident)} and {in_units(free)} are free: {REMEDY}"
        )


def steps_with_fallback(
    state: TrainingState, blocks: Batch, rungs: Iterator[Rung], device: AnyDevice, log: FallbackLog
) -> Iterator[StepRecord]:
    """`training_steps`, going down the `rungs` while memory runs out."""
    for rung in rungs:
        if rung.plan.train_on_host:
            _refuse_small_host(state, blocks[: state.config.batch_size], rung.plan)
        state.apply_plan(rung.plan)
        steps = training.training_steps(state, blocks)
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
        if rung.plan.train_on_host:  # nothing is below it
            break
    raise MemoryError(f"no rung is left after {rung.name!r} at step {state.step + 1}: {failure.error}")


def _validation_loss(state: TrainingState, validation: Batch, device: AnyDevice, log: FallbackLog) -> float:
    """Nats per label, where the weights are."""
    plan = training.plan_of_scoring(state.plan, state.config)
    if plan.train_on_host:
        with on_host():
            return mean_loss(state.model, validation, plan)

    def score(size: int) -> float:
        return mean_loss(state.model, validation, replace(plan, micro_batch_size=size))

    how = {"batch_size": plan.micro_batch_size, "precision": plan.precision, "name": "validation"}
    return evaluate_with_fallback(score, state.model, device=device, log=log, **how)


def evaluate_with_fallback(
    action: Callable[[int], T],
    model: torch.nn.Module,
    *,
    batch_size: int = 8,
    device: AnyDevice,
    log: FallbackLog | None = None,
    precision: str = "fp32",
    name: str = "evaluation",
) -> T:
    """Call `action(batch_size)`, in smaller batches while memory runs out, at last on the host.

    For what changes no weights; afterwards the model is where it was. `precision` and `name` are for the log.
    """
    log = log if log is not None else FallbackLog()
    with device.counting():
        for size in [batch_size >> halvings for halvings in range(batch_size.bit_length())]:
            failure, result = catch_out_of_memory(lambda: action(size))  # noqa: B023 - called at once
            if failure is not None or size != batch_size:
                log.add(name, device, Rung(f"batches of {size}", Plan(precision=precision)), failure)
            if failure is None:
                return result
        if not device.has_host:
            raise MemoryError(f"{name} does not fit even one block at a time: {failure.error}")
        move_to_host(model)
        try:
            with on_host():
                result = action(1)
            log.add(name, device, Rung("on the host", Plan(precision=precision, train_on_host=True)))
            return result
        finally:
            move_weights(model, device.torch)
