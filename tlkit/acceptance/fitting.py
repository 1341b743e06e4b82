"""Is memory what was estimated, and does training survive without it?"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from tlkit.acceptance import counters
from tlkit.acceptance.bench import ROWS, STEPS, Bench, Check, apart, judged, largest_gap, skipped
from tlkit.devices import Device
from tlkit.fitting.attempts import FallbackLog
from tlkit.fitting.estimate import estimate_memory
from tlkit.fitting.fallback import train_with_fallback
from tlkit.fitting.ladder import LADDER, OFFLOADS
from tlkit.fitting.placement import move_to_device
from tlkit.memory import VirtualDevice, in_units, track_memory
from tlkit.steps import Plan
from tlkit.training import TrainingConfig

PLANS = {
    "as planned": Plan(),
    "chunked loss": Plan(chunked_loss=True),
    "micro-batches of 1": Plan(micro_batch_size=1),
    "activation checkpointing": Plan(activation_checkpointing=True),
    "activations on the host": Plan(offload_activations=True),
    "optimizer on the host": Plan(offload_optimizer=True),
}
ADAPTERS, ADAPTER_PLANS = "lora", ("as planned", "activation checkpointing")
# Estimates were 2 to 9% below the resident memory of processors (tests/benchmarks/memory_accuracy.csv): what kernels
# take for themselves is not traced. Tensors alone are counted to the byte, but for the labels and the batch.
KERNELS, TENSORS = 0.10, 0.01
# Bytes: an allocator hands out memory in pieces of 512 bytes to some kilobytes, so this is no leak.
PIECES = 2**20
# Of what a step takes besides the weights: with the first, the step is cut smaller; with the second, nothing helps but
# the host.
SHARES = (0.7, 0.25)
# Every rung that leaves the numbers as they are, in the order in which a step is to go down.
ORDER = tuple(name for name in LADDER if name != "bf16 autocast")


def estimate_of_tensors(bench: Bench) -> Check:
    """The bytes of live tensors at the peak of a step are those that were estimated, with each plan."""
    ratios = {}
    for strategy, name, plan in _cases():
        model, config = bench.adapted(strategy), _two_steps(bench, strategy)
        estimate = _estimate(bench, strategy, plan)
        if bench.is_virtual:
            counted = VirtualDevice(bench.device.name, bench.device.budget)
            bench.run(model, config, plan, counted)
        else:
            move_to_device(model, bench.device)
            with track_memory(model) as counted:
                bench.run(model, config, plan, host=counted.host)
        ratios[f"{strategy}, {name}"] = estimate / counted.peak
    if bench.is_real:
        return _within(ratios, KERNELS, "the tensors that were counted", "its attention keeps other tensors than ours")
    return _within(ratios, TENSORS, "the tensors that were counted", "the batch and its labels are not estimated")


def estimate_of_device(bench: Bench) -> Check:
    """The peak that the device's own counter shows is the one that was estimated, with each plan."""
    if not bench.is_real:
        return skipped("a processor and a virtual card have no counter of a driver; see the estimate of tensors")
    ratios = {}
    for strategy, name, plan in _cases():
        estimate, config = _estimate(bench, strategy, plan), _two_steps(bench, strategy)
        bench.run(bench.adapted(strategy), config, plan)  # loads kernels, which keep what they took
        kept = _held(bench)
        with counters.peak_counted(bench.device) as peak:
            bench.run(bench.adapted(strategy), config, plan)
            ratios[f"{strategy}, {name}"] = estimate / (peak() - kept)
    return _within(ratios, KERNELS, "the device's counter", "kernels' own scratch memory is not traced")


def offloading(bench: Bench) -> Check:
    """Activations and the optimizer's state go to the host and come back, and the losses stay what they were."""
    reference, gaps, misplaced = bench.reference("full"), {}, []
    both = replace(PLANS["optimizer on the host"], offload_activations=True, activation_checkpointing=True)
    plans = {name: PLANS[name] for name in OFFLOADS} | {"both": both}
    for name, plan in plans.items():
        losses, problems = _offloaded(bench, plan)
        gaps[name] = largest_gap(losses, reference.losses)
        misplaced += problems
    worst = max(gaps.values())
    return judged(
        worst <= reference.tolerance and not misplaced,
        f"losses {apart(worst)}" + "".join(f"; {words}" for words in misplaced),
        "the losses without it; weights on the device, the optimizer's moments on the host",
        reference.in_words,
        **{name.replace(" ", "_"): gap for name, gap in gaps.items()},
    )


def out_of_memory(bench: Bench) -> Check:
    """A real refusal of the driver leads down the ladder; no step is lost, and the memory comes back."""
    if not bench.is_virtual and not bench.is_real:
        return skipped(
            "where a processor's memory ends, the system ends the process and no error comes: --device virtual:96MB "
            "walks the same ladder"
        )
    if bench.is_real and not counters.can_be_limited(bench.device):
        return skipped(f"torch {torch.__version__} cannot limit the memory of {bench.device.kind}: a newer one can")
    fitted, loaded, most = _unlimited(bench)
    reference, found, problems, refusals, worst = bench.reference("full"), [], [], 0, 0.0
    for share in SHARES:
        walk = _walk_down(bench, loaded + int(share * (most - loaded)))
        worst = max(worst, largest_gap(walk.losses, fitted), largest_gap(walk.losses, reference.losses[:-1]))
        refused = sum(bool(attempt.failed_in) for attempt in walk.log.attempts)
        refusals += refused
        found.append(f"with {share:.0%} of what a step takes, {refused} refusals and then {walk.log.attempts[-1].rung}")
        problems += [f"with {share:.0%}, {problem}" for problem in problems_of(walk)]
    return judged(
        not problems and worst <= reference.tolerance,
        "; ".join([*found, f"losses {apart(worst)}", *problems]),
        f"refusals, every rung in turn, {STEPS} steps, the losses of a run that fitted, and the memory given back",
        reference.in_words,
        difference=worst,
        refusals=refusals,
    )


@dataclass(frozen=True)
class Walk:
    """A training that ran out of memory.

    Attributes:
        losses: of its steps.
        steps: their numbers.
        log: of what was tried.
        home: whether the weights were on the device afterwards.
        kept: bytes that stayed on the device when nobody referred to the training any more.
    """

    losses: list[float]
    steps: list[int]
    log: FallbackLog
    home: bool
    kept: int = 0


def problems_of(walk: Walk) -> list[str]:
    """What is wrong with a walk down the ladder, in words; the losses are judged elsewhere."""
    attempts, problems = walk.log.attempts, []
    tried = [attempt.rung for attempt in attempts]
    if not any(attempt.failed_in for attempt in attempts):
        problems.append("nothing was refused, so nothing was tested")
    if tried != list(rungs_in_turn())[: len(tried)]:
        problems.append(f"the rungs were {', '.join(tried)}")
    if walk.steps != list(range(1, STEPS + 1)) or sum(attempt.steps_done for attempt in attempts) != STEPS:
        problems.append(f"the steps were {', '.join(map(str, walk.steps))}")
    if not walk.home:
        problems.append("the weights are not on the device afterwards")
    if walk.kept > PIECES:
        problems.append(f"{in_units(walk.kept)} were not given back")
    return problems


def rungs_in_turn() -> Iterator[str]:
    """The names of all rungs in `ORDER`, smaller micro-batches as often as the batch can be cut."""
    yield "as planned"
    for name in ORDER:
        sizes = [size for size in range(1, ROWS) if ROWS % size == 0]
        yield from [name] * (len(sizes) if name == "smaller micro-batch" else 1)


def _unlimited(bench: Bench) -> tuple[tuple[float, ...], int, int]:
    """Losses of a run that fits, and the bytes that the device holds when the model is loaded, and at most."""
    model = bench.adapted("full")
    if bench.is_virtual:
        card = VirtualDevice(bench.device.name, bench.device.budget)
        run = bench.run(model, bench.config("full"), device=card)
        return run.losses[:-1], sum(p.nbytes for p in model.parameters()), card.peak
    bench.run(bench.adapted("full"), bench.config("full"))  # loads kernels, which keep what they took
    move_to_device(model, bench.device)
    counters.give_back(bench.device.kind)
    loaded = counters.reserved(bench.device)
    run = bench.run(model, bench.config("full"))
    return run.losses[:-1], loaded, counters.reserved(bench.device)


def _walk_down(bench: Bench, most: int) -> Walk:
    """Train where the device holds at most so many bytes."""
    if bench.is_virtual:
        card = VirtualDevice(bench.device.name, most)
        walk = _trained(bench, card, bench.adapted("full"))
        counters.give_back("cpu")
        return replace(walk, kept=card.current)
    before, model = _held(bench), bench.adapted("full")
    # Loaded without a limit, so that what fails is a step: loading has no rung but the last.
    move_to_device(model, bench.device)
    with counters.limited(bench.device, most):
        walk = _trained(bench, bench.device, model)
    del model
    return replace(walk, kept=_held(bench) - before)


def _trained(bench: Bench, device: Device | VirtualDevice, model: torch.nn.Module) -> Walk:
    log = FallbackLog()
    settings = {"order": ORDER, "log": log, "device": device}
    history = train_with_fallback(model, bench.blocks, bench.config("full"), **settings)[0].history
    if bench.is_virtual:
        home = device.current >= sum(parameter.nbytes for parameter in model.parameters())
    else:
        home = next(model.parameters()).device.type == device.kind
    return Walk(history.loss.tolist(), history.step.tolist(), log, home)


def _held(bench: Bench) -> int:
    """Bytes of tensors on a real device, once all that nobody refers to is gone."""
    counters.give_back(bench.device.kind)
    return counters.held(bench.device)


def _offloaded(bench: Bench, plan: Plan) -> tuple[tuple[float, ...], list[str]]:
    """Train with a plan; the losses, and what is not where the plan wants it afterwards."""
    model, device, problems = bench.adapted("full"), bench.device, []
    weights = sum(parameter.nbytes for parameter in model.parameters())
    if bench.is_virtual:
        device = VirtualDevice(device.name, device.budget)
    run = bench.run(model, bench.config("full"), plan, device)
    if bench.is_virtual:
        moments = device.current - weights
        if (moments < weights) != plan.offload_optimizer:
            problems.append(f"{in_units(moments)} beside the weights on the card")
        return run.losses, problems
    # Where the count of steps lies is the optimizer's own affair.
    moments = [value for of in run.state.optimizer.state.values() for value in of.values() if value.ndim]
    for name, tensors, wanted in (
        ("moments", moments, "cpu" if plan.offload_optimizer else device.kind),
        ("weights", model.parameters(), device.kind),
    ):
        if (found := {tensor.device.type for tensor in tensors}) != {wanted}:
            problems.append(f"{name} on {', '.join(sorted(found)) or 'nothing'}")
    return run.losses, problems


def _cases() -> Iterator[tuple[str, str, Plan]]:
    yield from (("full", name, plan) for name, plan in PLANS.items())
    yield from ((ADAPTERS, name, PLANS[name]) for name in ADAPTER_PLANS)


def _two_steps(bench: Bench, strategy: str) -> TrainingConfig:
    """The second finds the optimizer's state, and nothing new comes after it."""
    return bench.config(strategy, epochs=2 / STEPS)


def _estimate(bench: Bench, strategy: str, plan: Plan) -> int:
    model = bench.adapted(strategy)
    return estimate_memory(model, batch_size=ROWS, sequence_length=bench.tokens, plan=plan).peak


def _within(ratios: dict[str, float], tolerance: float, counted: str, why: str) -> Check:
    worst = max(ratios, key=lambda case: abs(math.log(ratios[case])) if ratios[case] > 0 else math.inf)
    return judged(
        all(abs(ratio - 1) <= tolerance for ratio in ratios.values()),
        f"{min(ratios.values()):.3f} to {max(ratios.values()):.3f} of what was counted; furthest: {worst}",
        f"1, against {counted}, in {len(ratios)} cases",
        f"{tolerance:.0%}: {why}",
        **{case: ratio for case, ratio in ratios.items()},
    )
