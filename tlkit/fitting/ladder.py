"""The ladder: ways to carry out the same step with less memory, from the cheapest to the dearest."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch

from tlkit.devices import Device, bf16_speed
from tlkit.examples import Batch, shape_of
from tlkit.fitting.estimate import CannotEstimate, estimate_memory
from tlkit.losses import chunked_loss_agrees
from tlkit.memory import CPU, VirtualDevice, on_host
from tlkit.models.parts import learns_prefix
from tlkit.settings import Plan
from tlkit.steps import draws_random_numbers


def _smaller_micro_batch(plan: Plan, batch: int) -> Plan | None:
    """The next divisor of the batch downwards, so that all micro-batches are of one size."""
    now = plan.micro_batch_size or batch
    smaller = [size for size in range(1, now) if batch % size == 0]
    return replace(plan, micro_batch_size=smaller[-1]) if smaller else None


# Each rung turns a plan into one that needs less, and a plan with nothing (more) to change there into itself or None.
LADDER: dict[str, Callable[[Plan, int], Plan | None]] = {
    "chunked loss": lambda plan, batch: replace(plan, chunked_loss=True),
    "smaller micro-batch": _smaller_micro_batch,
    "activation checkpointing": lambda plan, batch: replace(plan, activation_checkpointing=True),
    "bf16 autocast": lambda plan, batch: replace(plan, precision="bf16"),
    "activations on the host": lambda plan, batch: replace(plan, offload_activations=True),
    "optimizer on the host": lambda plan, batch: replace(plan, offload_optimizer=True),
    "training on the host": lambda plan, batch: Plan(plan.micro_batch_size, train_on_host=True),
}
SAME_RESULT = ("chunked loss", "smaller micro-batch", "activation checkpointing")  # and all on the device
OFFLOADS = ("activations on the host", "optimizer on the host")
ON_HOST = "training on the host"


@dataclass(frozen=True)
class Rung:
    """One way to carry out a step."""

    name: str  # of the change that led here, or "as planned"
    plan: Plan
    estimate: int | None = None  # bytes it should need at its peak; None where that is not known
    changes_numerics: bool = False  # whether more than the order of additions differs from the plan asked for
    note: str = ""  # what else there is to know


def bf16_is_faster(device: Device | VirtualDevice) -> bool:
    """Whether to compute in bf16 on `device` for its speed.

    Real devices are measured. A virtual card counts as one of today's cards, which compute in bf16 natively, although
    its products are really carried out by this machine's processor.
    """
    return isinstance(device, VirtualDevice) or bf16_speed(device) > 1


def descend(
    model: torch.nn.Module,
    batch: Batch,
    plan: Plan,
    device: Device | VirtualDevice,
    order: tuple[str, ...] | None = None,
    optimizer: str = "adamw",
) -> Iterator[Rung]:
    """Yield the rungs from `plan` downwards, one at a time.

    Without `order`, only those that should need less; where that cannot be estimated, all of them. On a device that
    is slower in bf16, that rung comes after all others that leave the step on the device.
    """
    with on_host():
        random = draws_random_numbers(model)
        unfit = {"chunked loss": not chunked_loss_agrees(model), "activation checkpointing": learns_prefix(model)}
    names = [name for name in (_usual_order(device) if order is None else order) if not unfit.get(name)]
    slow, unknown = "bf16 autocast" in names and not bf16_is_faster(device), ""

    def need(lower: Plan) -> int | None:
        nonlocal unknown
        if lower.train_on_host and order is None:
            return 0
        if order is None and not unknown:
            try:
                return estimate_memory(model, **shape_of(batch), plan=lower, optimizer=optimizer).peak
            except CannotEstimate as error:
                unknown = str(error)
        return None

    for name, lower, estimate in walk(plan, len(batch), names, need):
        # Each pass draws its own numbers, and the host draws others than a card.
        other_draws = lower.micro_batch_size != plan.micro_batch_size or lower.train_on_host and device.torch != CPU
        changes = lower.precision != plan.precision or random and other_draws
        in_slow_bf16 = lower.precision == "bf16" and slow
        note = f"slower: {device.name} computes in fp32 faster than in bf16" if in_slow_bf16 else unknown
        yield Rung(name, lower, estimate, changes, note)


def walk(
    plan: Plan, batch: int, names: Iterable[str], need: Callable[[Plan], int | None]
) -> Iterator[tuple[str, Plan, int | None]]:
    """Go down the ladder: yield a plan, then each one below it that is not known to save less than 1%.

    Each with its rung's name and the bytes that it needs, by `need`; None where they are not known.
    """
    size = need(plan)
    yield "as planned", plan, size
    for name in names:
        while (lower := LADDER[name](plan, batch)) not in (None, plan):
            less = need(lower)
            if None not in (less, size) and less > 0.99 * size:
                break
            plan, size = lower, less
            yield name, plan, size


def _usual_order(device: Device | VirtualDevice) -> list[str]:
    """The names of the rungs, those on the device twice: what saves nothing at first may do so later on."""
    on_device = [name for name in LADDER if name != ON_HOST and (device.has_host or name not in OFFLOADS)]
    if not bf16_is_faster(device):
        in_fp32 = [name for name in on_device if name != "bf16 autocast"]
        on_device = [*in_fp32, *in_fp32, "bf16 autocast"]
    return [*on_device, *on_device, *([ON_HOST] if device.has_host else [])]
