"""The ladder: ways to carry out the same step with less memory, from the cheapest to the dearest."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from tlkit.devices import Device
from tlkit.fitting.estimate import estimate_memory
from tlkit.losses import chunked_loss_agrees
from tlkit.memory import VirtualDevice
from tlkit.steps import Plan


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
    "everything on the host": lambda plan, batch: replace(plan, train_on_host=True, evaluate_on_host=True),
}
OFFLOADS = ("activations on the host", "optimizer on the host")
# The three tiers of the published guide.
FALLBACK_TIERS = {
    "less memory": ("as planned", "chunked loss", "smaller micro-batch", "activation checkpointing", "bf16 autocast"),
    "some of it on the host": (*OFFLOADS, "training on the host"),
    "all of it on the host": ("everything on the host",),
}
ON_HOST = ("training on the host", "everything on the host")


@dataclass(frozen=True)
class Rung:
    """A plan, how it came about, and the bytes it should need at its peak (None: not estimated)."""

    name: str
    plan: Plan
    estimate: int | None = None


def descend(
    model: torch.nn.Module,
    batch: torch.Tensor,
    plan: Plan,
    device: Device | VirtualDevice,
    order: tuple[str, ...] | None = None,
) -> Iterator[Rung]:
    """The rungs from `plan` downwards, one at a time; without `order`, only those that should need less."""
    if order is None:
        on_device = [name for name in LADDER if name not in ON_HOST and (device.has_host or name not in OFFLOADS)]
        # Twice: what saves nothing at first may do so once something else no longer sets the peak.
        names = [*on_device, *on_device, *(ON_HOST if device.has_host else ())]
    else:
        names = list(order)

    with device.host():
        if "chunked loss" in names and not chunked_loss_agrees(model):
            names = [name for name in names if name != "chunked loss"]

    def needs(candidate: Plan) -> int | None:
        if order is not None:
            return None
        if candidate.train_on_host:
            return 0
        return estimate_memory(model, batch_size=len(batch), sequence_length=batch.shape[1], plan=candidate).peak

    rung = Rung("as planned", plan, needs(plan))
    yield rung
    for name in names:
        while (lower := LADDER[name](rung.plan, len(batch))) not in (None, rung.plan):
            candidate = Rung(name, lower, needs(lower))
            if candidate.estimate is not None and candidate.estimate > 0.99 * rung.estimate and name not in ON_HOST:
                break
            rung = candidate
            yield rung
