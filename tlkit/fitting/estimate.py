"""What a training step will need: it is taken on tensors without contents."""

import copy
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from unittest.mock import patch

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes
from transformers import PretrainedConfig

from tlkit.examples import Examples
from tlkit.memory import MemoryTrack, in_units, on_host
from tlkit.models import meta_model
from tlkit.models.parts import classifies, refuse_plan
from tlkit.names import BACKWARD, FORWARD, UPDATE
from tlkit.options import check
from tlkit.quantization import tensors_of
from tlkit.settings import Plan, TrainingConfig
from tlkit.steps import NothingToTrain, TrainingState, accumulate_gradients
from tlkit.strategies import apply_strategy

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# What a process grows by beyond its tensors: 13 to 22 MiB on processors, in 56 configurations
# (tests/benchmarks/memory_accuracy.csv).
PROCESS_OVERHEAD_BYTES = 20 * 2**20
# The rest is the driver's context, library workspaces, the screen, and the allocator's rounding.
CARD_SHARE = 0.85
CATEGORIES = ("weights", "gradients", "optimizer state", "activations", "logits and loss", "temporary")


class CannotEstimate(ValueError):
    """A step cannot be followed without contents; training may be possible."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes at the moment of the step that needs most."""

    categories: dict[str, int]  # of `CATEGORIES`, at that moment
    phases: dict[str, int]  # the peak of each part of the step, and of an evaluation

    @property
    def peak(self) -> int:
        return sum(self.categories.values())

    @property
    def resident(self) -> int:
        """Bytes a process grows by, to compare with the free memory of a processor."""
        return self.peak + PROCESS_OVERHEAD_BYTES

    @property
    def phase(self) -> str:
        """The one that needs most."""
        return max(self.phases, key=self.phases.get)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {in_units(size)}" for name, size in self.categories.items())
        return f"{in_units(self.peak)} in the {self.phase}: {parts}; and {in_units(PROCESS_OVERHEAD_BYTES)} on top"


def estimate_memory(
    model: str | PretrainedConfig | nn.Module,
    strategy: str = "full",
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
    """Bytes that one training step will need at its peak: it is carried out on tensors without contents.

    Args:
        model: a preset, folder, hub id or configuration, which is built without weights and adapted by `strategy`; or
            a model that is here already, which is copied without contents.
        strategy: a name of `STRATEGIES`.
        dtype: of the weights: "fp32", "bf16" or "fp16".
        plan: how the step is carried out, by default all blocks at once.
        evaluation: windows and tokens, if one follows with `windows_at_once`: the phase "evaluation".
        classes: of a classifier built from a name or configuration; None for a causal language model.

    Raises:
        CannotEstimate: where what the model does depends on contents, as routing to experts may.
    """
    plan = plan or Plan()
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r}: expected one of {', '.join(DTYPES)}")
    check(TrainingConfig(batch_size=batch_size, optimizer=optimizer))
    if sequence_length < 2:
        raise ValueError(f"{sequence_length} tokens: expected at least 2")
    if not isinstance(model, nn.Module):
        model = apply_strategy(meta_model(model, classes).to(DTYPES[dtype]), strategy, **options).model
    refuse_plan(model, plan)
    # The second micro-batch finds the gradients of the first; a third would find nothing new.
    rows = min(batch_size, 2 * (plan.micro_batch_size or batch_size))
    try:
        with as_if_real(), StepTrace(model.config.get_text_config().vocab_size) as trace:
            fake = fake_copy_of(model)
            trace.count(tensors_of(fake))
            train_one_step(fake, (rows, sequence_length), plan, optimizer, trace)  # what only it holds is gone then
            if evaluation is not None and not plan.train_on_host:
                trace.phase = "evaluation"
                _score(fake, evaluation)
            peaks = trace.peaks or {"nothing on the device": {}}
    except NothingToTrain:  # so it is with contents, too
        raise
    except Exception as error:  # a model's code may raise anything where it finds no contents
        reason = str(error).strip().partition("\n")[0]
        raise CannotEstimate(
            f"the memory of {type(model).__name__} cannot be estimated: its step depends on the contents of tensors "
            f"({type(error).__name__}: {reason}). `train_with_fallback` goes by real out-of-memory errors"
        ) from error
    phases = {phase: sum(categories.values()) for phase, categories in peaks.items()}
    highest = peaks[max(phases, key=phases.get)]
    return MemoryEstimate({name: highest.get(name, 0) for name in CATEGORIES}, phases)


class StepTrace(MemoryTrack):
    """Tells the categories apart, and keeps the peak of each phase."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.phase = ""
        self.by_category: Counter[str] = Counter()  # bytes
        self._category_of: dict[int, str] = {}
        self.peaks: dict[str, dict[str, int]] = {}  # phase -> category -> bytes

    def phase_now(self) -> str:
        in_backward = torch._C._current_graph_task_id() != -1
        return BACKWARD if self.phase == FORWARD and in_backward else self.phase

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.prim.device.default:  # two thirds of all calls
            return args[0].fake_device
        if function is torch.ops.aten._grouped_mm.default and isinstance(args[0], FakeTensor):
            # Mixtures of experts: torch's rule without contents accepts bf16 only.
            function, args, kwargs = torch.ops.aten.new_empty.default, *_grouped_product(*args, **kwargs or {})
        return super().__torch_dispatch__(function, types, args, kwargs)

    def count(self, tensors, category: str = "weights") -> None:
        """Count tensors under a category, whatever theirs was."""
        tensors = list(tensors)
        super().count(tensors)
        for tensor in tensors if not self.hosted else ():
            self._classify(tensor.untyped_storage()._cdata, category)

    def _classify(self, key: int, category: str | None) -> None:
        size, before = self._counted[key][0], self._category_of.pop(key, None)
        for name, change in ((before, -size), (category, size)):
            if name is not None:
                self.by_category[name] += change
        if category is not None:
            self._category_of[key] = category

    def _forget(self, key: int, reference=None) -> None:
        self._classify(key, None)
        super()._forget(key)

    def _count(self, storage, key: int, tensor: torch.Tensor) -> None:
        super()._count(storage, key, tensor)
        phase = self.phase_now()
        category = "activations" if phase == FORWARD else "temporary"
        if tensor.ndim > 1 and tensor.shape[-1] == self.vocabulary:
            category = "logits and loss"
        self._classify(key, category)
        if self.current > sum(self.peaks.get(phase, {}).values()):
            self.peaks[phase] = dict(self.by_category)


def _grouped_product(left, right, offsets=None, bias=None, out_dtype=None) -> tuple[tuple, dict]:
    """The arguments of `new_empty`."""
    groups = [] if left.ndim != right.ndim else [len(left) if left.ndim == 3 else len(offsets)]
    return (left, [*groups, left.shape[-2], right.shape[-1]]), {"dtype": out_dtype or left.dtype}


def train_one_step(model: nn.Module, shape: tuple[int, int], plan: Plan, optimizer: str, trace: StepTrace) -> None:
    """Take a step that is not the first: the optimizer's state is there."""
    state = TrainingState(model, TrainingConfig(optimizer=optimizer))
    for parameter in state.parameters:
        parameter.grad = torch.zeros_like(parameter)
    state.update_weights(0.0)
    state.drop_gradients()
    moments = (value for kept in state.optimizer.state.values() for value in kept.values() if value is not None)
    trace.count(moments, "optimizer state")
    state.apply_plan(plan)

    for parameter in state.parameters:
        parameter.register_post_accumulate_grad_hook(lambda p: trace.count([p.grad], "gradients"))
    batch = blank = torch.zeros(shape, dtype=torch.long, device=next(model.parameters()).device)
    if classifies(model):
        batch = Examples(blank, blank[:, 0], blank.bool())
    trace.peaks = {}
    with on_host() if plan.train_on_host else nullcontext():
        trace.phase = FORWARD
        accumulate_gradients(model, batch, plan)
        trace.phase = UPDATE
        nn.utils.clip_grad_norm_(state.parameters, 1.0)
        state.update_weights(1e-3)
        state.drop_gradients()
    trace.phase = ""  # what is freed from here on is no part of the step


@torch.no_grad()
def _score(model: nn.Module, shape: tuple[int, int]) -> None:
    """What `perplexity` does with windows of this shape."""
    model.eval()
    windows = torch.zeros(shape, dtype=torch.long, device=next(model.parameters()).device)
    logits = model(input_ids=windows, use_cache=False).logits.float()
    labels = windows[:, 0] if logits.ndim == 2 else windows.flatten()  # a classifier's are one for each row
    functional.cross_entropy(logits.flatten(0, -2), labels, reduction="none")


def fake_copy_of(model: nn.Module) -> nn.Module:
    """A deep copy with fake tensors, tied as in the original; for use inside `as_if_real`."""
    copies = {}
    prompts = getattr(model, "prompt_tokens", {}).values()  # peft's, which are no buffers
    # Some architectures keep results in attributes, which cannot be copied.
    plain = [value for module in model.modules() for value in vars(module).values() if isinstance(value, torch.Tensor)]
    for tensor in (*tensors_of(model), *prompts, *plain):
        fake = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu" if tensor.is_meta else tensor.device)
        is_weight = isinstance(tensor, nn.Parameter)
        copies[id(tensor)] = nn.Parameter(fake, requires_grad=tensor.requires_grad) if is_weight else fake
    for tensor in model.parameters():
        if hasattr(tensor, "quant_state"):  # of packed weights
            copies[id(tensor)].quant_state = copy.deepcopy(tensor.quant_state, copies)
    return copy.deepcopy(model, copies)


@contextmanager
def as_if_real() -> Iterator[None]:
    """Inside, a model does without contents what it does with real tensors."""
    # transformers looks for rows of several sequences, which ours never are; where it cannot look, it makes an
    # attention mask that a real step does without.
    one_sequence = patch("transformers.masking_utils.find_packed_sequence_indices", return_value=None)
    # torch would also print a page about what fails.
    silent = patch.object(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True)
    # A virtual device must not count them, so its mode is off.
    with _disable_current_modes(), FakeTensorMode(allow_non_fake_inputs=True), one_sequence, silent:
        yield
