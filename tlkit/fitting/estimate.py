"""What a training step will need, before it is taken: the real step, traced on tensors without contents."""

import copy
import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from unittest.mock import patch

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes
from transformers import PretrainedConfig

from tlkit.memory import MemoryTrack, in_units
from tlkit.models import PRESETS, architecture, meta_model
from tlkit.quantization import tensors_of
from tlkit.steps import OPTIMIZERS, Plan, TrainingState, accumulate_gradients
from tlkit.strategies import apply_strategy

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# What a process grows by beyond its tensors: kernels' scratch space and libraries loaded on the way. Measured on
# processors, 13 to 22 MiB in each of 56 configurations (tests/benchmarks/memory_accuracy.csv). A card's driver takes
# more, see `CARD_SHARE`.
PROCESS_OVERHEAD_BYTES = 20 * 2**20
CATEGORIES = ("weights", "gradients", "optimizer state", "activations", "logits and loss", "temporary")


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes at the moment of the step that needs most, by category; `phase` says which moment that is.

    `phases` has the peak of each part of the step; `process_overhead` is what a process needs besides its tensors.
    """

    categories: dict[str, int]
    phases: dict[str, int]
    process_overhead: int = PROCESS_OVERHEAD_BYTES

    @property
    def peak(self) -> int:
        return sum(self.categories.values())

    @property
    def resident(self) -> int:
        """What a process grows by: to compare with the free memory of a processor."""
        return self.peak + self.process_overhead

    @property
    def phase(self) -> str:
        return max(self.phases, key=self.phases.get)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {in_units(size)}" for name, size in self.categories.items())
        return f"{in_units(self.peak)} in the {self.phase}: {parts}; and {in_units(self.process_overhead)} on top"


class _StepTrace(MemoryTrack):
    """Tells the categories apart, and keeps the peak of each phase."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.phase = ""
        self.by_category: dict[str, int] = {}
        self._category_of: dict[int, str] = {}
        self.peaks: dict[str, tuple[int, dict[str, int]]] = {}

    def classify(self, tensor: torch.Tensor) -> str:
        """The category of a new tensor, by its shape and by when it is made."""
        if tensor.ndim > 1 and tensor.shape[-1] == self.vocabulary:
            return "logits and loss"
        return "activations" if self.phase == "forward pass" and not _in_backward() else "temporary"

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.prim.device.default:  # two thirds of all calls: answered without asking further
            return args[0].fake_device
        return super().__torch_dispatch__(function, types, args, kwargs)

    def hold(self, tensors, category: str = "weights") -> None:
        """Count tensors under a category, from now on also those that are counted under another."""
        tensors = list(tensors)
        super().hold(tensors)
        for tensor in tensors if not self._on_host else ():
            key = tensor.untyped_storage()._cdata
            self._classify(key, category)

    def _classify(self, key: int, category: str | None) -> None:
        size, before = self._known[key][0], self._category_of.pop(key, None)
        for name, change in ((before, -size), (category, size)):
            if name is not None:
                self.by_category[name] = self.by_category.get(name, 0) + change
        if category is not None:
            self._category_of[key] = category

    def _forget(self, key: int, reference=None) -> None:
        self._classify(key, None)
        super()._forget(key)

    def _count(self, storage, key: int, tensor: torch.Tensor) -> None:
        super()._count(storage, key, tensor)
        self._classify(key, self.classify(tensor))
        phase = "backward pass" if self.phase == "forward pass" and _in_backward() else self.phase
        if self.current > self.peaks.get(phase, (0, {}))[0]:
            self.peaks[phase] = self.current, dict(self.by_category)


def estimate_memory(
    model: str | PretrainedConfig | nn.Module,
    strategy: str | None = None,
    *,
    dtype: str = "fp32",
    batch_size: int = 1,
    sequence_length: int = 512,
    plan: Plan | None = None,
    optimizer: str = "adamw",
    **options,
) -> MemoryEstimate:
    """Bytes that one training step will need at its peak; nothing of that size is made.

    A preset, folder, hub id or configuration is built without weights and adapted by `strategy` (and its
    `options`); a model that is here already is copied as it is, without contents. `dtype` is that of the weights;
    `plan` says how the step is carried out. Raises ValueError for an unknown model, strategy, dtype or size,
    before any work.
    """
    plan = plan or Plan()
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r}: expected one of {', '.join(DTYPES)}")
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer {optimizer!r} is unknown: expected one of {', '.join(OPTIMIZERS)}")
    if batch_size < 1 or sequence_length < 2:
        raise ValueError(f"{batch_size} blocks of {sequence_length} tokens: expected at least 1 of at least 2")
    if isinstance(model, str) and model in PRESETS and not options:
        return _of_preset(model, strategy, dtype, batch_size, sequence_length, plan, optimizer)
    if not isinstance(model, nn.Module):
        model = apply_strategy(meta_model(model).to(DTYPES[dtype]), strategy or "full", **options).model
    # The second micro-batch finds the gradients of the first; a third would find nothing new.
    rows = min(batch_size, 2 * (plan.micro_batch_size or batch_size))
    trace = trace_step(model, (rows, sequence_length), plan, optimizer)
    phases = {phase: sum(categories.values()) for phase, categories in trace.items()}
    if not phases:
        return MemoryEstimate(dict.fromkeys(CATEGORIES, 0), {"nothing on the device": 0})
    highest = trace[max(phases, key=phases.get)]
    return MemoryEstimate({name: highest.get(name, 0) for name in CATEGORIES}, phases)


@functools.lru_cache
def _of_preset(model: str, strategy, dtype, batch_size, sequence_length, plan, optimizer) -> MemoryEstimate:
    """A preset does not change, and tables ask for the same estimate more than once."""
    shape = {"batch_size": batch_size, "sequence_length": sequence_length}
    config = architecture(model)
    return estimate_memory(config, strategy, dtype=dtype, **shape, plan=plan, optimizer=optimizer)


Trace = dict[str, dict[str, int]]  # phase -> category -> bytes at the peak of that phase


def closed_form(model: str, *, batch_size: int = 1, sequence_length: int = 512) -> dict[str, int]:
    """The same bytes by hand, for full fine-tuning of a Qwen2 or Llama preset in fp32 with AdamW.

    A step has two high moments: when the loss has been computed (all activations are kept, and the logits are there
    three times: themselves, as log-probabilities, as gradients) and when the backward pass ends (all gradients are
    there, and for a tied embedding those of its two uses and their sum). The larger one is the peak.
    """
    config = architecture(model)
    values = sum(p.numel() for p in meta_model(config).parameters())
    tokens, width = batch_size * (sequence_length - 1), config.hidden_size  # the last one of a row is only a label
    heads = config.num_attention_heads
    keys = getattr(config, "head_dim", None) or width // heads
    # What a block keeps of every token: residuals, norms and projections; keys and values; the gated MLP; two norms'
    # scales and the softmax sums of the heads.
    kept = 8 * width + 2 * keys * config.num_key_value_heads + 4 * config.intermediate_size + heads + 2
    table = config.vocab_size * width
    parts = {
        "weights": 4 * values,
        "optimizer state": 8 * values,
        "gradients": 4 * values,
        "activations": 4 * tokens * config.num_hidden_layers * kept,
        "logits and loss": 4 * tokens * config.vocab_size * 3,
        "second and third embedding gradient": 4 * table * (2 if config.tie_word_embeddings else 0),
    }
    lasting = parts["weights"] + parts["optimizer state"]
    at_the_loss = lasting + parts["activations"] + parts["logits and loss"]
    at_the_end = lasting + parts["gradients"] + parts["second and third embedding gradient"]
    return parts | {"at the loss": at_the_loss, "at the end": at_the_end, "peak": max(at_the_loss, at_the_end)}


def trace_step(model: nn.Module, shape: tuple[int, int], plan: Plan, optimizer: str = "adamw") -> Trace:
    """Carry out a step on a copy of `model` whose tensors have shapes and no contents, and count them.

    It is not the very first step of a training: the optimizer's state is there already.
    """
    with as_if_real():
        twin = twin_of(model)
        with _StepTrace(model.config.vocab_size) as trace:
            trace.hold(tensors_of(twin))
            state = TrainingState(twin, optimizer=optimizer, host=trace.host)
            for parameter in state.parameters:
                parameter.grad = torch.zeros_like(parameter)
            state.update_weights(0.0)
            state.drop_gradients()
            trace.hold(
                [v for s in state.optimizer.state.values() for v in s.values() if v is not None], "optimizer state"
            )
            state.apply_plan(plan)

            for parameter in state.parameters:
                parameter.register_post_accumulate_grad_hook(lambda p: trace.hold([p.grad], "gradients"))
            blocks = torch.zeros(shape, dtype=torch.long, device=state.home)
            trace.peaks = {}
            with trace.host() if plan.train_on_host else nullcontext():
                trace.phase = "forward pass"
                accumulate_gradients(twin, blocks, plan, trace.host)
                trace.phase = "optimizer step"
                nn.utils.clip_grad_norm_(state.parameters, 1.0)
                state.update_weights(1e-3)
                state.drop_gradients()
            return {phase: categories for phase, (_, categories) in trace.peaks.items()}


def twin_of(model: nn.Module) -> nn.Module:
    """A deep copy in which every tensor is a fake one, tied where the original is tied."""
    copies = {}
    for tensor in tensors_of(model):
        device = "cpu" if tensor.is_meta else tensor.device
        fake = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        is_weight = isinstance(tensor, nn.Parameter)
        copies[id(tensor)] = nn.Parameter(fake, requires_grad=tensor.requires_grad) if is_weight else fake
    for tensor in model.parameters():
        if hasattr(tensor, "quant_state"):  # how to read it is written on the packed weight itself
            copies[id(tensor)].quant_state = copy.deepcopy(tensor.quant_state, copies)
    return copy.deepcopy(model, copies)


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


@contextmanager
def as_if_real() -> Iterator[None]:
    """Let the model do with tensors that have no contents exactly what it does with real ones."""
    with ExitStack() as stack:
        # A virtual device must not count them.
        stack.enter_context(_disable_current_modes())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        # transformers looks at contents to see whether a row holds several sequences (ours never does); where it
        # cannot look, it makes an attention mask that a real step does without.
        stack.enter_context(patch("transformers.masking_utils.find_packed_sequence_indices", return_value=None))
        yield
