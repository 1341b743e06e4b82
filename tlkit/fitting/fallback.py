"""Survive running out of memory: the same step again, carried out with less, and no step lost or repeated."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pandas as pd
import torch

from tlkit.devices import Device, probe
from tlkit.fitting.estimate import estimate_memory
from tlkit.fitting.ladder import LADDER, Rung, descend
from tlkit.fitting.out_of_memory import Failure, catch_out_of_memory
from tlkit.memory import VirtualDevice, in_units
from tlkit.quantization import tensors_of
from tlkit.steps import CPU, Plan, StepRecord, TrainingState, mean_loss, move_weights
from tlkit.team import ALONE, Team
from tlkit.training import TrainingConfig, TrainingResult, check_settings, new_state, run_steps, training_steps

T = TypeVar("T")
HOST = "the host"


@dataclass(frozen=True)
class Attempt:
    """One try: what was done where, or where it failed and what for. Sizes are in bytes, NaN where unknown."""

    action: str
    device: str
    rung: str
    first_step: int = 0
    steps_done: int = 0
    failed_in: str = ""  # empty where nothing failed
    bytes_asked: float = math.nan
    bytes_available: float = math.nan
    peak: float = math.nan
    seconds: float = math.nan
    changes_numerics: bool = False
    error: str = ""


@dataclass
class FallbackLog:
    """Every attempt, in order; `table` is the same for people."""

    attempts: list[Attempt] = field(default_factory=list)

    @property
    def table(self) -> pd.DataFrame:
        return pd.DataFrame([vars(attempt) for attempt in self.attempts], columns=list(Attempt.__dataclass_fields__))


def train_with_fallback(
    model: torch.nn.Module,
    blocks: torch.Tensor,
    config: TrainingConfig | None = None,
    *,
    device: Device | VirtualDevice | None = None,
    plan: Plan | None = None,
    order: tuple[str, ...] | None = None,
    validation: torch.Tensor | None = None,
    log: FallbackLog | None = None,
    progress: bool = False,
    team: Team = ALONE,
) -> tuple[TrainingResult, FallbackLog]:
    """`train`, on a device that may be too small: what does not fit is carried out with less memory.

    An estimate picks the first rung of `LADDER` that should fit, and skips those that save nothing. With `order`,
    names of rungs, nothing is estimated: each is tried in turn, after a real failure. The tokens of an optimizer
    step never change. What is tried is added to `log`, also where it fails. Where one process of a `team` runs out of
    memory, all of them go down. Raises MemoryError, with numbers, where no rung fits, and ValueError as `train` does,
    and for a team that keeps its weights in parts: in the middle of a gather, nobody can leave.
    """
    config, plan, device = config or TrainingConfig(), plan or Plan(), device or probe()
    check_settings(model, blocks, config, plan, validation)
    if team.in_parts:
        raise ValueError("fallback with weights in parts (fsdp) is not possible: expected the exchange ddp")
    team = replace(team, exchange="afterwards")
    for name in order or ():
        if name not in LADDER:
            raise ValueError(f"rung {name!r} is unknown: expected some of {', '.join(LADDER)}")
    log = log if log is not None else FallbackLog()
    with device_context(device):
        share = blocks[: math.ceil(config.batch_size / team.size)]
        rungs = descend(model, share, plan, device, order)
        first = choose_first_rung(model, rungs, share, device, log, team)
        state = new_state(model, config, device.host, team)
        steps = steps_with_fallback(state, blocks, config, first, rungs, device, log)
        score = None if validation is None else lambda: score_with_fallback(state, validation, device, log)
        with closing(steps):
            result = run_steps(steps, state, len(blocks), config, score, progress)
        if isinstance(device, VirtualDevice):
            result = replace(result, peak_memory=int(_last(log, "training").peak))
        if state.plan.train_on_host and not state.plan.evaluate_on_host:
            catch_out_of_memory(lambda: move_weights(model, device.torch))
    return result, log


def choose_first_rung(
    model: torch.nn.Module,
    rungs: Iterator[Rung],
    batch: torch.Tensor,
    device: Device | VirtualDevice,
    log: FallbackLog,
    team: Team = ALONE,
) -> Rung:
    """The first rung that should fit; the model is then where training begins. Raises MemoryError where none fits."""
    rung, available = next(rungs), memory_for(model, device)
    while rung.estimate is not None and team.any_rank(rung.estimate > available):
        log.attempts.append(_foreseen(rung, device, available))
        lower = next(rungs, None)
        if lower is None:
            raise MemoryError(
                f"training needs at least {in_units(rung.estimate)} on {device.name}, which has {in_units(available)}: "
                "use a strategy with less to train, a smaller model, or shorter blocks"
            )
        rung = lower
    if not rung.plan.train_on_host:
        failure, _ = catch_out_of_memory(lambda: move_to_device(model, device))
        if team.any_rank(failure is not None):
            log.attempts.append(_tried("loading", device, rung, failure))
            move_weights(model, CPU, device.host)
            rung = Rung("everything on the host", LADDER["everything on the host"](rung.plan, len(batch)))
    return rung


def steps_with_fallback(
    state: TrainingState,
    blocks: torch.Tensor,
    config: TrainingConfig,
    rung: Rung,
    rungs: Iterator[Rung],
    device: Device | VirtualDevice,
    log: FallbackLog,
) -> Iterator[StepRecord]:
    """`training_steps`, going down the rungs while memory runs out. Raises MemoryError after the last."""
    while True:
        with device.host():
            refuse_what_the_host_cannot_hold(state.model, blocks[: config.batch_size], rung.plan)
        state.apply_plan(rung.plan)
        steps = training_steps(state, blocks, config)
        first, seconds, failure = state.step, 0.0, None
        _reset_peak(device)
        try:
            while True:
                begun = time.perf_counter()
                failure, record = catch_out_of_memory(lambda: next(steps, None))  # noqa: B023 - called at once
                seconds += time.perf_counter() - begun
                if record is None:
                    break
                yield record
        finally:
            row = _tried("training", device, rung, failure)
            taken = {"first_step": first + 1, "steps_done": state.step - first}
            log.attempts.append(replace(row, **taken, seconds=seconds, peak=_peak(device)))
        if failure is None:
            return
        lower = next(rungs, None)
        if lower is None:
            raise MemoryError(f"no rung is left after {rung.name!r} at step {state.step + 1}: {failure.message}")
        rung = lower


def score_with_fallback(
    state: TrainingState, validation: torch.Tensor, device: Device | VirtualDevice, log: FallbackLog
) -> float:
    """Validation loss, on the device where it fits; the weights are then where training wants them."""
    plan = state.plan
    if plan.evaluate_on_host:
        with device.host():
            return mean_loss(state.model, validation, plan)
    return evaluate_with_fallback(
        lambda size: mean_loss(state.model, validation, replace(plan, micro_batch_size=size)),
        state.model,
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
    """`action(batch_size)`, in smaller and smaller batches while memory runs out, at last on the host.

    For what changes no weights: `lambda n: perplexity(model, tokenizer, texts, batch_size=n)`, or generation.
    Afterwards the model is where it was. Raises MemoryError where the host was the device.
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
                    log.attempts.append(_tried(name, device, Rung(f"batches of {size}", Plan()), failure))
                if failure is None:
                    return result
            if not device.has_host:
                raise MemoryError(f"{name} does not fit even one block at a time: {failure.message}")
            on_device = False
            move_weights(model, CPU, device.host)
            with device.host():
                result = action(1)
            log.attempts.append(_tried(name, device, Rung("on the host", Plan()), None))
            return result
        finally:
            if weights_on_host:
                move_weights(model, CPU, device.host)
            elif not on_device:
                move_weights(model, device.torch)


def memory_for(model: torch.nn.Module, device: Device | VirtualDevice) -> int:
    """Bytes that a step may use: what is free now, and what the model itself holds already."""
    if isinstance(device, VirtualDevice):
        return device.budget
    held = sum(p.nbytes for p in model.parameters() if p.device.type == device.kind)
    return probe(device.kind).free_memory + held


def refuse_what_the_host_cannot_hold(model: torch.nn.Module, batch: torch.Tensor, plan: Plan) -> None:
    """Raise MemoryError, with numbers: where the host's memory is exhausted, no exception comes, only the end."""
    if not plan.train_on_host:
        return
    there = replace(plan, train_on_host=False, evaluate_on_host=False)
    needed = estimate_memory(model, batch_size=len(batch), sequence_length=batch.shape[1], plan=there).resident
    free = memory_for(model, probe("cpu"))
    if needed > free:
        raise MemoryError(
            f"training on the host needs {in_units(needed)} and {in_units(free)} of its memory are free: use a "
            "strategy with less to train, a smaller model, or shorter blocks"
        )


def device_context(device: Device | VirtualDevice) -> AbstractContextManager:
    """A context in which a virtual device counts, and only once; a real device needs none."""
    return device if isinstance(device, VirtualDevice) and not device.active else nullcontext()


def move_to_device(model: torch.nn.Module, device: Device | VirtualDevice, team: Team = ALONE) -> None:
    """Bring the model to the device; not where FSDP will bring its parts there, for the whole may be too large."""
    if team.in_parts:
        return
    if isinstance(device, VirtualDevice):
        device.hold(tensors_of(model))
    elif next(model.parameters()).device.type != device.kind:
        move_weights(model, device.torch)


def _last(log: FallbackLog, action: str) -> Attempt:
    return [attempt for attempt in log.attempts if attempt.action == action][-1]


def _tried(action: str, device: Device | VirtualDevice, rung: Rung, failure: Failure | None) -> Attempt:
    where = HOST if rung.plan.train_on_host or rung.name == "on the host" else device.name
    row = Attempt(action, where, rung.name, changes_numerics=rung.plan.precision != "fp32")
    if failure is None:
        return row
    sizes = {"bytes_asked": failure.bytes_asked, "bytes_available": failure.bytes_available}
    return replace(row, failed_in=failure.failed_in, error=failure.message, **sizes)


def _foreseen(rung: Rung, device: Device | VirtualDevice, available: int) -> Attempt:
    needs = f"needs {in_units(rung.estimate)}, {in_units(available)} are there"
    return replace(
        _tried("estimate", device, rung, None),
        failed_in="not tried",
        bytes_asked=rung.estimate,
        bytes_available=available,
        error=needs,
    )


def _reset_peak(device: Device | VirtualDevice) -> None:
    if isinstance(device, VirtualDevice):
        device.peak = device.current
    elif device.kind == "cuda":
        torch.cuda.reset_peak_memory_stats()


def _peak(device: Device | VirtualDevice) -> float:
    if isinstance(device, VirtualDevice):
        return device.peak
    return torch.cuda.max_memory_allocated() if device.kind == "cuda" else math.nan
