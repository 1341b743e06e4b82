"""Follow a training step on tensors without contents, and count what it keeps, category by category."""

import copy
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from unittest.mock import patch

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

from tlkit.examples import Examples
from tlkit.memory import MemoryTrack
from tlkit.models.adapters import classifies
from tlkit.names import BACKWARD, FORWARD, UPDATE
from tlkit.quantization import tensors_of
from tlkit.settings import Plan
from tlkit.steps import NothingToTrain, TrainingState, accumulate_gradients

Trace = dict[str, dict[str, int]]  # phase -> category -> bytes at the peak of that phase


class CannotEstimate(ValueError):
    """A model whose step cannot be followed without its contents; training itself may well be possible."""


class StepTrace(MemoryTrack):
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
        return "activations" if self.phase == FORWARD and not _in_backward() else "temporary"

    def phase_now(self) -> str:
        """The part of the step that runs; autograd is asked where the forward pass ends."""
        return BACKWARD if self.phase == FORWARD and _in_backward() else self.phase

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.prim.device.default:  # two thirds of all calls: answered without asking further
            return args[0].fake_device
        if function is torch.ops.aten._grouped_mm.default and isinstance(args[0], FakeTensor):
            # Mixtures of experts. torch's own rule for tensors without contents accepts bf16 only; kernels take fp32.
            function, args, kwargs = torch.ops.aten.new_empty.default, *_grouped_product(*args, **kwargs or {})
        return super().__torch_dispatch__(function, types, args, kwargs)

    def count(self, tensors, category: str = "weights") -> None:
        """Count tensors under a category, from now on also those that are counted under another."""
        tensors = list(tensors)
        super().count(tensors)
        for tensor in tensors if not self._on_host else ():
            key = tensor.untyped_storage()._cdata
            self._classify(key, category)

    def _classify(self, key: int, category: str | None) -> None:
        size, before = self._counted[key][0], self._category_of.pop(key, None)
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
        phase = self.phase_now()
        if self.current > self.peaks.get(phase, (0, {}))[0]:
            self.peaks[phase] = self.current, dict(self.by_category)


def _grouped_product(left, right, offsets=None, bias=None, out_dtype=None) -> tuple[tuple, dict]:
    """What `new_empty` is to be given for the product of two tensors of which one or both hold several matrices."""
    groups = [] if left.ndim != right.ndim else [len(left) if left.ndim == 3 else len(offsets)]
    return (left, [*groups, left.shape[-2], right.shape[-1]]), {"dtype": out_dtype or left.dtype}


def trace_step(
    model: nn.Module,
    shape: tuple[int, int],
    plan: Plan,
    optimizer: str = "adamw",
    evaluation: tuple[int, int] | None = None,
) -> Trace:
    """Carry out a step on a copy of `model` whose tensors have shapes and no contents, and count them.

    It is not the very first step of a training: the optimizer's state is there already.

    Returns:
        For each phase the bytes by category at its peak; empty where nothing is on the device.

    Raises:
        CannotEstimate: where the model cannot be followed without contents.
    """
    with as_if_real():
        with _followed(model):
            fake = fake_copy_of(model)
        with StepTrace(model.config.get_text_config().vocab_size) as trace:
            trace.count(tensors_of(fake))
            train_one_step(fake, shape, plan, optimizer, trace, _followed)  # what only it holds is gone when it returns
            if evaluation is not None and not plan.train_on_host:
                trace.phase = "evaluation"
                _score(fake, evaluation)
            return {phase: categories for phase, (_, categories) in trace.peaks.items()}


def train_one_step(
    model: nn.Module,
    shape: tuple[int, int],
    plan: Plan,
    optimizer: str,
    trace: StepTrace,
    around: Callable[[nn.Module], AbstractContextManager] = nullcontext,
) -> None:
    """Take a step that is not the first, so that the optimizer's state is there already."""
    state = TrainingState(model, optimizer=optimizer, host=trace.host)
    for parameter in state.parameters:
        parameter.grad = torch.zeros_like(parameter)
    state.update_weights(0.0)
    state.drop_gradients()
    moments = (value for kept in state.optimizer.state.values() for value in kept.values() if value is not None)
    trace.count(moments, "optimizer state")
    state.apply_plan(plan)

    for parameter in state.parameters:
        parameter.register_post_accumulate_grad_hook(lambda p: trace.count([p.grad], "gradients"))
    blocks = _blank_batch(model, shape)
    trace.peaks = {}
    with trace.host() if plan.train_on_host else nullcontext():
        trace.phase = FORWARD
        with around(model):
            accumulate_gradients(model, blocks, plan, trace.host)
        trace.phase = UPDATE
        nn.utils.clip_grad_norm_(state.parameters, 1.0)
        state.update_weights(1e-3)
        state.drop_gradients()
    trace.phase = ""  # what is freed from here on is no part of the step


@torch.no_grad()
def _score(model: nn.Module, shape: tuple[int, int]) -> None:
    """What `perplexity` does with so many windows of so many tokens."""
    model.eval()
    windows = torch.zeros(shape, dtype=torch.long, device=next(model.parameters()).device)
    with _followed(model):
        logits = model(input_ids=windows, use_cache=False).logits.float()
    labels = windows[:, 0] if logits.ndim == 2 else windows.flatten()  # a classifier's are one for each row
    functional.cross_entropy(logits.flatten(0, -2), labels, reduction="none")


@contextmanager
def _followed(model: nn.Module) -> Iterator[None]:
    """Around a pass through `model`: a model's own code may raise anything where it finds no contents."""
    try:
        yield
    except NothingToTrain:  # so it is with contents, too
        raise
    except Exception as error:
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        raise CannotEstimate(
            f"the memory of {type(model).__name__} cannot be estimated: its step cannot be followed without the "
            f"contents of its tensors ({type(error).__name__}: {reason}). Training itself may work: "
            "`train_with_fallback` then goes by real out-of-memory errors"
        ) from error


def fake_copy_of(model: nn.Module) -> nn.Module:
    """A deep copy in which every tensor is a fake one, tied where the original is tied; inside `as_if_real`."""
    copies = {}
    prompts = getattr(model, "prompt_tokens", {}).values()  # peft's, which are no buffers
    # Some architectures keep states of the last pass in attributes, which may be results that cannot be copied.
    plain = [value for module in model.modules() for value in vars(module).values() if isinstance(value, torch.Tensor)]
    for tensor in (*tensors_of(model), *prompts, *plain):
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
    """Inside, a model does with tensors that have no contents exactly what it does with real ones."""
    with ExitStack() as stack:
        # A virtual device must not count them.
        stack.enter_context(_disable_current_modes())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        # What fails is raised; torch would also print a page about it.
        stack.enter_context(patch.object(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True))
        # transformers looks at contents to see whether a row holds several sequences (ours never does); where it
        # cannot look, it makes an attention mask that a real step does without.
        stack.enter_context(patch("transformers.masking_utils.find_packed_sequence_indices", return_value=None))
        yield


def _blank_batch(model: nn.Module, shape: tuple[int, int]) -> torch.Tensor | Examples:
    """A batch without contents, of the kind that a model is trained on."""
    blank = torch.zeros(shape, dtype=torch.long, device=next(model.parameters()).device)
    return Examples(blank, blank[:, 0], blank.bool()) if classifies(model) else blank
