"""What to choose for a device, justified by its estimate."""

from collections.abc import Iterator
from dataclasses import dataclass

from tlkit.devices import Device, bf16_speed
from tlkit.fitting.estimate import CARD_SHARE, MemoryEstimate, estimate_memory
from tlkit.fitting.fallback import walk
from tlkit.memory import VirtualDevice, in_units
from tlkit.models import architecture
from tlkit.settings import Plan

# Strategies and the precision of their weights, from the most thorough to the most frugal. Weights in bf16 lose small
# updates; so full precision comes first where it fits, and with bf16 weights only adapters, which stay in fp32, are
# trained. A processor is short of speed, not of memory: the first, whose backward pass is the longest, is not for it.
THOROUGH = (("full", "fp32"), ("last_layers", "fp32"))
CHOICES = (*THOROUGH, ("lora", "bf16"), ("qlora", "bf16"))  # where bf16 is faster
IN_FP32 = (*THOROUGH, ("lora", "fp32"), ("qlora", "fp32"), ("lora", "bf16"), ("qlora", "bf16"))  # where it is slower
SAME_RESULT = ("chunked loss", "smaller micro-batch", "activation checkpointing")  # rungs, all on the device


@dataclass(frozen=True)
class Recommendation:
    """A way to adapt a model on a device."""

    strategy: str
    dtype: str  # of the weights
    batch_size: int  # blocks in an optimizer step
    plan: Plan
    estimate: MemoryEstimate
    available: int  # bytes it may use there
    note: str = ""

    @property
    def micro_batch_size(self) -> int:
        """Blocks in one forward pass."""
        return self.plan.micro_batch_size or self.batch_size

    def __str__(self) -> str:
        checkpointing = "with" if self.plan.activation_checkpointing else "without"
        loss = ", chunked loss" if self.plan.chunked_loss else ""
        text = (
            f"{self.strategy}, weights in {self.dtype}, micro-batches of {self.micro_batch_size}, {checkpointing} "
            f"activation checkpointing{loss}: {in_units(self.estimate.peak)} of {in_units(self.available)}"
        )
        return f"{text} ({self.note})" if self.note else text


def recommend(
    device: Device | VirtualDevice,
    model: str = "qwen2-0.5b",
    strategy: str | None = None,
    *,
    dtype: str = "fp32",
    plan: Plan | None = None,
    batch_size: int = 8,
    sequence_length: int = 512,
) -> Recommendation:
    """Choose the most thorough way to adapt `model` that fits `device`, and of its plans the cheapest.

    Each strategy goes down those rungs of the ladder that leave the step on the device and its result as it is. Where
    `device` is slower in bf16 than in fp32, bf16 is chosen only if nothing else fits, and the note says so.

    Args:
        device: real or virtual; a virtual card counts as fast in bf16.
        model: a preset, folder or hub id.
        strategy: the only one to consider, by default those of `choices_for`.
        dtype: of the weights, with that strategy.
        plan: how the step is carried out at first; what it already does to save memory is kept.
        batch_size: blocks in an optimizer step.
        sequence_length: tokens in a block.

    Raises:
        MemoryError: with numbers, where nothing fits.
        ValueError: for an unknown model, and where nothing can be estimated for this one.
    """
    if isinstance(device, VirtualDevice):
        memory = device.budget
    else:
        memory = device.total_memory if device.has_host else device.free_memory
    available, fewest, problem = int(memory * CARD_SHARE), None, None
    shape = {"batch_size": batch_size, "sequence_length": sequence_length}
    architecture(model)  # an unknown one is refused once, not for each choice
    for choice in [(strategy, dtype)] if strategy else choices_for(device):
        slower = choice[1] == "bf16" and not _bf16_is_faster(device)
        note = "slower than fp32 on this device, but fp32 does not fit" if slower and strategy is None else ""
        try:
            for lower, estimate in _plans(model, *choice, plan or Plan(), shape):
                if estimate.peak <= available:
                    return Recommendation(*choice, batch_size, lower, estimate, available, note)
                fewest = min(fewest or estimate.peak, estimate.peak)
        except ValueError as error:  # this strategy is not for this model, or cannot be estimated for it
            problem = error
    if fewest is None:
        raise problem
    raise MemoryError(
        f"{model} needs at least {in_units(fewest)} on {device.name}, which has {in_units(available)} to give: "
        "use a smaller model or shorter blocks"
    )


def choices_for(device: Device | VirtualDevice) -> list[tuple[str, str]]:
    """The ways to adapt a model on `device`, the most preferable first: strategy and precision of the weights."""
    choices = CHOICES if _bf16_is_faster(device) else IN_FP32
    return list(choices if device.has_host else choices[1:])


def _bf16_is_faster(device: Device | VirtualDevice) -> bool:
    return isinstance(device, VirtualDevice) or bf16_speed(device) > 1


def _plans(
    model: str, strategy: str, dtype: str, plan: Plan, shape: dict[str, int]
) -> Iterator[tuple[Plan, MemoryEstimate]]:
    """The plan and what needs less, one estimate at a time."""
    estimates = {}

    def need(lower: Plan) -> int:
        estimates[lower] = estimate_memory(model, strategy, dtype=dtype, plan=lower, **shape)
        return estimates[lower].peak

    for rung in walk(plan, shape["batch_size"], SAME_RESULT, need):
        yield rung.plan, estimates[rung.plan]
