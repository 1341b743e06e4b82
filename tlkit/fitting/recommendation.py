"""What fits where: strategies against cards, and what to choose for a device, each justified by its estimate."""

from dataclasses import dataclass

import pandas as pd

from tlkit.devices import Device
from tlkit.fitting.estimate import MemoryEstimate, estimate_memory
from tlkit.fitting.ladder import bf16_is_faster
from tlkit.memory import CARDS, VirtualDevice, in_units
from tlkit.models import architecture
from tlkit.names import CARD_SHARE, CLASSIC
from tlkit.settings import Plan

# From the most thorough to the most frugal. Weights in bf16 lose small updates; so full precision comes first where
# it fits, and with bf16 weights only adapters, which stay in fp32, are trained.
CHOICES = (
    ("full", "fp32", Plan()),
    ("full", "fp32", Plan(activation_checkpointing=True)),
    ("last_layers", "fp32", Plan()),
    ("lora", "fp32", Plan(activation_checkpointing=True)),
    ("lora", "bf16", Plan(activation_checkpointing=True)),
    ("qlora", "bf16", Plan(activation_checkpointing=True)),
)
# A processor is short of speed, not of memory: the strategies whose backward pass ends early come first.
CHOICES_CPU = (("last_layers", "fp32", Plan()), *CHOICES[3:])


@dataclass(frozen=True)
class Recommendation:
    """A way to adapt a model on a device.

    Attributes:
        strategy: a name of `STRATEGIES`.
        dtype: of the weights.
        micro_batch_size: blocks in one forward pass.
        plan: how the step is carried out otherwise.
        estimate: what it will need there.
        available: bytes it may use there.
        note: what else there is to know, or empty.
    """

    strategy: str
    dtype: str
    micro_batch_size: int
    plan: Plan
    estimate: MemoryEstimate
    available: int
    note: str = ""

    def __str__(self) -> str:
        checkpointing = "with" if self.plan.activation_checkpointing else "without"
        text = (
            f"{self.strategy}, weights in {self.dtype}, micro-batches of {self.micro_batch_size}, {checkpointing} "
            f"activation checkpointing: {in_units(self.estimate.peak)} of {in_units(self.available)}"
        )
        return f"{text} ({self.note})" if self.note else text


def recommend(
    device: Device | VirtualDevice, model: str = "qwen2-0.5b", *, batch_size: int = 8, sequence_length: int = 512
) -> Recommendation:
    """Choose the most thorough way to adapt `model` that fits `device`.

    Where `device` is slower in bf16 than in fp32, bf16 is chosen only if nothing else fits, and the note says so.

    Args:
        device: real or virtual; a virtual card counts as fast in bf16.
        model: a preset, folder or hub id.
        batch_size: blocks in an optimizer step; its micro-batches are as large as fits.
        sequence_length: tokens in a block.

    Returns:
        Strategy, precision, micro-batch, checkpointing, and the estimate that justifies them.

    Raises:
        MemoryError: with numbers, where nothing fits.
        ValueError: for an unknown model, and where nothing can be estimated for this one.
    """
    if isinstance(device, VirtualDevice):
        memory = device.budget
    else:
        memory = device.total_memory if device.has_host else device.free_memory
    available, fewest, problem = int(memory * CARD_SHARE), None, None
    architecture(model)  # an unknown one is refused once, not for each choice
    for strategy, dtype, plan in choices_for(device):
        best = None
        for size in [1 << power for power in range(batch_size.bit_length())]:
            question = {"dtype": dtype, "batch_size": size, "sequence_length": sequence_length, "plan": plan}
            try:
                estimate = estimate_memory(model, strategy, **question)
            except ValueError as error:  # this strategy is not for this model, or cannot be estimated for it
                problem = error
                break
            fewest = min(fewest or estimate.peak, estimate.peak)
            if estimate.peak > available:
                break
            slower = dtype == "bf16" and not bf16_is_faster(device)
            note = "slower than fp32 on this device, but fp32 does not fit" if slower else ""
            best = Recommendation(strategy, dtype, size, plan, estimate, available, note)
        if best is not None:
            return best
    if fewest is None:
        raise problem
    raise MemoryError(
        f"{model} needs at least {in_units(fewest)} on {device.name}, which has {in_units(available)} to give: "
        "use a smaller model or shorter blocks"
    )


def choices_for(device: Device | VirtualDevice) -> tuple[tuple[str, str, Plan], ...]:
    """The ways to adapt a model on `device`, the most preferable first: strategy, precision of the weights, plan."""
    choices = CHOICES if device.has_host else CHOICES_CPU
    if bf16_is_faster(device):
        return choices
    in_fp32 = [choice for choice in choices if choice[1] == "fp32"]
    in_bf16 = [choice for choice in choices if choice[1] == "bf16"]
    return (*in_fp32, ("qlora", "fp32", Plan(activation_checkpointing=True)), *in_bf16)


def fit_table(
    model: str, *, dtype: str = "fp32", batch_size: int = 1, sequence_length: int = 512, plan: Plan | None = None
) -> pd.DataFrame:
    """Estimate every strategy for a model, and say on which sizes of card it fits.

    Args:
        model: a preset, folder or hub id.
        dtype: of the weights.
        batch_size: blocks in a step.
        sequence_length: tokens in a block.
        plan: how the step is carried out.

    Returns:
        A row a strategy: `gib` (NaN where it cannot be estimated, and `why`), and a column for each size of card.
    """
    sizes = sorted(set(CARDS.values()))
    rows = []
    for strategy in CLASSIC:
        try:
            question = {"dtype": dtype, "batch_size": batch_size, "sequence_length": sequence_length, "plan": plan}
            peak = estimate_memory(model, strategy, **question).peak
        except ValueError as error:
            rows.append({"strategy": strategy, "gib": float("nan"), "why": str(error)})
            continue
        fits = {f"{size} GB": peak <= CARD_SHARE * size * 2**30 for size in sizes}
        rows.append({"strategy": strategy, "gib": peak / 2**30, "why": "", **fits})
    return pd.DataFrame(rows)
