"""What fits where: strategies against cards, and what to choose for a device, each justified by its estimate."""

from dataclasses import dataclass

import pandas as pd

from tlkit.devices import Device
from tlkit.fitting.estimate import MemoryEstimate, estimate_memory
from tlkit.memory import CARDS, VirtualDevice, in_units
from tlkit.steps import Plan
from tlkit.strategies import STRATEGIES

# A card is never all ours: the driver's context, library workspaces, the screen, and the allocator's rounding.
CARD_SHARE = 0.85

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
    """A way to adapt a model on a device; `estimate` is what it will need there, `available` what it may use."""

    strategy: str
    dtype: str
    micro_batch_size: int
    plan: Plan
    estimate: MemoryEstimate
    available: int

    def __str__(self) -> str:
        checkpointing = "with" if self.plan.activation_checkpointing else "without"
        return (
            f"{self.strategy}, weights in {self.dtype}, micro-batches of {self.micro_batch_size}, {checkpointing} "
            f"activation checkpointing: {in_units(self.estimate.peak)} of {in_units(self.available)}"
        )


def recommend(
    device: Device | VirtualDevice, model: str = "qwen2-0.5b", *, batch_size: int = 8, sequence_length: int = 512
) -> Recommendation:
    """The most thorough way to adapt `model` on `device`: strategy, precision, micro-batch, checkpointing.

    The effective batch is `batch_size`; its micro-batches are as large as fits. Raises MemoryError, with numbers,
    where nothing fits.
    """
    if isinstance(device, VirtualDevice):
        memory = device.budget
    else:
        memory = device.total_memory if device.has_host else device.free_memory
    available = int(memory * CARD_SHARE)
    for strategy, dtype, plan in CHOICES if device.has_host else CHOICES_CPU:
        best = None
        for size in [1 << power for power in range(batch_size.bit_length())]:
            question = {"dtype": dtype, "batch_size": size, "sequence_length": sequence_length, "plan": plan}
            estimate = estimate_memory(model, strategy, **question)
            if estimate.peak > available:
                break
            best = Recommendation(strategy, dtype, size, plan, estimate, available)
        if best is not None:
            return best
    raise MemoryError(
        f"{model} needs at least {in_units(estimate.peak)} on {device.name}, which has {in_units(available)} to give: "
        "use a smaller model or shorter blocks"
    )


def fit_table(
    model: str, *, dtype: str = "fp32", batch_size: int = 1, sequence_length: int = 512, plan: Plan | None = None
) -> pd.DataFrame:
    """One row a strategy: its estimate in GiB, and for each size of card whether it fits there."""
    sizes = sorted(set(CARDS.values()))
    rows = []
    for strategy in STRATEGIES:
        try:
            question = {"dtype": dtype, "batch_size": batch_size, "sequence_length": sequence_length, "plan": plan}
            peak = estimate_memory(model, strategy, **question).peak
        except ValueError as error:
            rows.append({"strategy": strategy, "gib": float("nan"), "why": str(error)})
            continue
        fits = {f"{size} GB": peak <= CARD_SHARE * size * 2**30 for size in sizes}
        rows.append({"strategy": strategy, "gib": peak / 2**30, "why": "", **fits})
    return pd.DataFrame(rows)
