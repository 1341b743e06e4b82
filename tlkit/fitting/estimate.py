"""What a training step will need, before it is taken."""

import functools
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PretrainedConfig

from tlkit.fitting.trace import trace_step
from tlkit.memory import in_units
from tlkit.models import PRESETS, architecture, meta_model
from tlkit.models.adapters import refuse_plan
from tlkit.settings import Plan
from tlkit.steps import OPTIMIZERS
from tlkit.strategies import FAMILIES, OWN, apply_strategy

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# What a process grows by beyond its tensors: kernels' scratch space and libraries loaded on the way. Measured on
# processors, 13 to 22 MiB in each of 56 configurations (tests/benchmarks/memory_accuracy.csv). A card's driver takes
# more, see `CARD_SHARE`.
PROCESS_OVERHEAD_BYTES = 20 * 2**20
CATEGORIES = ("weights", "gradients", "optimizer state", "activations", "logits and loss", "temporary")


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes at the moment of the step that needs most, by category.

    Attributes:
        categories: bytes of each of `CATEGORIES` at that moment.
        phases: the peak in bytes of each part of the step, and of the evaluation where one was asked for.
        process_overhead: bytes that a process needs besides its tensors.
    """

    categories: dict[str, int]
    phases: dict[str, int]
    process_overhead: int = PROCESS_OVERHEAD_BYTES

    @property
    def peak(self) -> int:
        """Bytes of tensors at the highest moment."""
        return sum(self.categories.values())

    @property
    def resident(self) -> int:
        """Bytes a process grows by: to compare with the free memory of a processor."""
        return self.peak + self.process_overhead

    @property
    def phase(self) -> str:
        """The part of the step that needs most."""
        return max(self.phases, key=self.phases.get)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {in_units(size)}" for name, size in self.categories.items())
        return f"{in_units(self.peak)} in the {self.phase}: {parts}; and {in_units(self.process_overhead)} on top"


def estimate_memory(
    model: str | PretrainedConfig | nn.Module,
    strategy: str | None = None,
    *,
    dtype: str = "fp32",
    batch_size: int = 1,
    sequence_length: int = 512,
    plan: Plan | None = None,
    optimizer: str = "adamw",
    evaluation: tuple[int, int] | None = None,
    classes: int | None = None,
    **options,
) -> MemoryEstimate:
    """Bytes that one training step will need at its peak; nothing of that size is made.

    The real step is carried out on tensors that have shapes and no contents, and every tensor is counted.

    Args:
        model: a preset, folder, hub id or configuration, which is built without weights and adapted by `strategy`; or
            a model that is here already, which is copied as it is, without contents.
        strategy: a name of `STRATEGIES`, by default full fine-tuning.
        dtype: of the weights: "fp32", "bf16" or "fp16".
        plan: how the step is carried out, by default all blocks at once.
        evaluation: windows and tokens of an evaluation after the training, where it is part of the job (`perplexity`
            takes `windows_at_once` windows); it becomes the phase "evaluation".
        classes: of a classifier that is built from a name or a configuration; None for a causal language model.

    Returns:
        The peak, by category and by phase.

    Raises:
        ValueError: for an unknown model, strategy, dtype or size, before any work.
        CannotEstimate: where what the model does depends on the contents of its tensors, as routing to experts may.
    """
    plan = plan or Plan()
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r}: expected one of {', '.join(DTYPES)}")
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer {optimizer!r} is unknown: expected one of {', '.join(OPTIMIZERS)}")
    if batch_size < 1 or sequence_length < 2:
        raise ValueError(f"{batch_size} blocks of {sequence_length} tokens: expected at least 1 of at least 2")
    fixed = FAMILIES.get(strategy) != OWN  # a reader's own strategy can be another one under the same name
    if isinstance(model, str) and model in PRESETS and fixed and not options and classes is None:
        shape = {"batch_size": batch_size, "sequence_length": sequence_length, "evaluation": evaluation}
        return _of_preset(model, strategy, dtype=dtype, plan=plan, optimizer=optimizer, **shape)
    if not isinstance(model, nn.Module):
        model = apply_strategy(meta_model(model, classes).to(DTYPES[dtype]), strategy or "full", **options).model
    refuse_plan(model, plan)
    # The second micro-batch finds the gradients of the first; a third would find nothing new.
    rows = min(batch_size, 2 * (plan.micro_batch_size or batch_size))
    trace = trace_step(model, (rows, sequence_length), plan, optimizer, evaluation)
    phases = {phase: sum(categories.values()) for phase, categories in trace.items()}
    if not phases:
        return MemoryEstimate(dict.fromkeys(CATEGORIES, 0), {"nothing on the device": 0})
    highest = trace[max(phases, key=phases.get)]
    return MemoryEstimate({name: highest.get(name, 0) for name in CATEGORIES}, phases)


@functools.lru_cache
def _of_preset(model: str, strategy: str | None, **question) -> MemoryEstimate:
    """Neither a preset nor a strategy of ours changes, and tables ask for the same estimate more than once."""
    return estimate_memory(architecture(model), strategy, **question)
