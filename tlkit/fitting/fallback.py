"""Survive running out of memory: the same step again, carried out with less, and no step lost or repeated."""

import gc
import math
import re
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import TypeVar

import pandas as pd
import torch

from tlkit.devices import Device, probe
from tlkit.examples import Batch, shape_of
from tlkit.fitting.estimate import CannotEstimate, estimate_memory
from tlkit.fitting.ladder import LADDER, ON_HOST, Rung, descend
from tlkit.jobs import SILENT, Part, reported
from tlkit.memory import CPU, VirtualDevice, in_units, move_to_host, move_weights, on_host
from tlkit.models.parts import ParameterGroup
from tlkit.names import HOST, phase_of
from tlkit.settings import Plan, TrainingConfig
from tlkit.steps import StepRecord, TrainingState, draws_random_numbers, mean_loss
from tlkit.training import TrainingResult, check_settings, plan_of_scoring, run_steps, training_steps

T = TypeVar("T")
OUT_OF_MEMORY = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|MPS backend out of memory|"
    r"XPU out of memory|UR_RESULT_ERROR_OUT_OF_(DEVICE|HOST|RESOURCES)|"
    r"DefaultCPUAllocator: (can't allocate memory|not enough memory)"
)
BYTES = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@dataclass(frozen=True)
class Failure:
    """What an out-of-memory error said; the error itself would keep the tensors of the failed step alive."""

    failed_in: str  # "forward pass", "backward pass" or "optimizer step"
    bytes_asked: float  # of the allocation that failed, NaN where unknown
    bytes_available: float  # that were free then, NaN where unknown
    error: str  # its first line


def catch_out_of_memory(action: Callable[[], T]) -> tuple[Failure | None, T | None]:
    """None and what `action` returns; or what it ran out of memory for, with all let go that it held, and None."""
    try:
        return None, action()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        failure = _failure_of(error)
        _let_go(error)
    # Out here nothing refers to the error any more, so that its tensors are gone.
    gc.collect()
    if torch.accelerator.is_available():
        # Not `torch.accelerator.empty_cache`: up to torch 2.12 it fails on Apple devices (pytorch issue 186430).
        torch.get_device_module(torch.accelerator.current_accelerator()).empty_cache()
    return failure, None


def is_out_of_memory(error: BaseException) -> bool:
    """Recognise the errors for want of memory of CUDA, cuBLAS, MPS, XPU, the CPU allocators, and Python itself."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(str(error)) is not None


def _let_go(error: BaseException | None) -> None:
    """Drop what the frames of the failed calls hold, and of those that the error came from: their tensors."""
    seen = []
    while error is not None and error not in seen:
        traceback.clear_frames(error.__traceback__)
        seen.append(error)
        error = error.__cause__ or error.__context__


def _failure_of(error: BaseException) -> Failure:
    message = str(error).splitlines()[0] if str(error) else type(error).__name__

    def size(pattern: str) -> float:
        match = re.search(pattern, message)
        return float(match[1]) * BYTES[match[2]] if match else math.nan

    unit = r"([\d.]+) (bytes|KiB|MiB|GiB)"
    return Failure(phase_of(error), size(f"allocated? {unit}"), size(f"of which {unit} is free"), message)


@dataclass(frozen=True)
class Attempt:
    """One try: what was done where, or where it failed and what for. Figures that are not known are NaN."""

    action: str  # "estimate", "loading", "training", "validation", or what else was tried
    device: str
    rung: str  # how: a name of `LADDER` or "as planned"
    first_step: int = 0  # of this try, from 1
    steps_done: int = 0
    failed_in: str = ""  # the part that failed; empty where none did
    bytes_asked: float = math.nan  # of the allocation that failed
    bytes_available: float = math.nan  # that were free then
    peak: float = math.nan  # most bytes held on the device
    seconds: float = math.nan  # that its steps took
    changes_numerics: bool = False  # whether more than the order of additions differs from the plan asked for
    error: str = ""  # what was said when it failed
    note: str = ""  # what else there is to know about the rung


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
        where = HOST if rung.plan.train_on_host else device.name
        about = {"changes_numerics": rung.changes_numerics, "note": rung.note} | (asdict(failure) if failure else {})
        self.attempts.append(Attempt(action, where, rung.name, **about | more))


def train_with_fallback(
    model: torch.nn.Module,
    blocks: Batch,
    config: TrainingConfig | None = None,
    *,
    device: Device | VirtualDevice | None = None,
    plan: Plan | None = None,
    groups: Sequence[ParameterGroup] = (),
    order: tuple[str, ...] | None = None,
    validation: Batch | None = None,
    log: FallbackLog | None = None,
    progress: bool | Part = False,
) -> tuple[TrainingResult, FallbackLog]:
    """Train as `train` does, on a device that may be too small: what does not fit is carried out with less memory.

    An estimate picks the first rung of `LADDER` that should fit, and skips those that save nothing; where a model
    cannot be estimated, its rungs say so and each is tried after a real failure. The tokens of an optimizer step
    never change.

    Args:
        model: changed in place, and to begin with on the host.
        device: real or virtual, by default the best one here.
        plan: how the steps should be carried out if there is room.
        groups: as for `train`.
        order: names of rungs, each to be tried in turn after a real failure; nothing is estimated then.
        log: what is tried is added to it, also where it fails, and it is returned.

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
        state = TrainingState(model, config, groups)
        result = run_steps(
            steps_with_fallback(state, blocks, chain([first], rungs), device, log, progress),
            state,
            len(blocks),
            progress=progress,
            score=None if validation is None else lambda: _score(state, validation, device, log),
            count_memory=math.isnan(device.peak),
        )
        peak = [attempt.peak for attempt in log.attempts if attempt.action == "training"][-1]
        if not math.isnan(peak):  # the device counts, and begins anew after a failure
            result = replace(result, peak_memory=int(peak))
        if state.plan.train_on_host:
            catch_out_of_memory(lambda: move_weights(model, device.torch))
    return result, log


def _first_rung(
    model: torch.nn.Module, rungs: Iterator[Rung], batch: Batch, device: Device | VirtualDevice, log: FallbackLog
) -> Rung:
    """The first of `rungs` that should fit, or a MemoryError with numbers; the model is where training begins."""
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
            move_to_host(model)
            changes = rung.changes_numerics or device.torch != CPU and draws_random_numbers(model)
            rung = Rung(ON_HOST, LADDER[ON_HOST](rung.plan, len(batch)), changes_numerics=changes)
    return rung


def _refuse_small_host(state: TrainingState, blocks: Batch, plan: Plan) -> None:
    """Refuse a training on the host for which its memory is too small: no exception would come, only the end."""
    if not plan.train_on_host:
        return
    model, batch, there = state.model, blocks[: state.config.batch_size], replace(plan, train_on_host=False)
    try:
        with on_host():
            needed = estimate_memory(model, **shape_of(batch), plan=there, optimizer=state.config.optimizer).resident
    except CannotEstimate:
        return
    if needed > (free := probe("cpu").room_for(model)):
        raise MemoryError(
            f"training on the host needs {in_units(needed)} and {in_units(free)} of its memory are free: use a "
            "strategy with less to train, a smaller model, or shorter blocks"
        )


def steps_with_fallback(
    state: TrainingState,
    blocks: Batch,
    rungs: Iterator[Rung],
    device: Device | VirtualDevice,
    log: FallbackLog,
    progress: Part = SILENT,
) -> Iterator[StepRecord]:
    """Take the steps of `training_steps`, going down the `rungs` while memory runs out; after the last, MemoryError."""
    for rung in rungs:
        _refuse_small_host(state, blocks, rung.plan)
        state.apply_plan(rung.plan)
        progress.go_on("" if rung.name == "as planned" else rung.name)
        steps = training_steps(state, blocks)
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


def _score(state: TrainingState, validation: Batch, device: Device | VirtualDevice, log: FallbackLog) -> float:
    """Nats per token, where the weights are."""
    plan = state.plan
    if plan.train_on_host:
        with on_host():
            return mean_loss(state.model, validation, plan)
    return evaluate_with_fallback(
        lambda size: mean_loss(state.model, validation, replace(plan, micro_batch_size=size)),
        state.model,
        batch_size=plan_of_scoring(plan, state.config).micro_batch_size,
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
            raise MemoryError(f"{name} does not fit even one block at a time: {failure.error}")
        move_to_host(model)
        try:
            with on_host():
                result = action(1)
            log.add(name, device, Rung("on the host", Plan(train_on_host=True)))
            return result
        finally:
            move_weights(model, device.torch)
