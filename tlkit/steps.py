"""One optimizer step, as a plan says: the state that it changes, and the loss."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from tlkit.examples import IGNORED, Batch, as_examples, count_labels, inputs_of
from tlkit.memory import CPU, move_to_host, on_host, saved_on_host
from tlkit.models.parts import ParameterGroup, base_model, evaluation_mode, trained_groups
from tlkit.names import BACKWARD, UPDATE, phase
from tlkit.settings import Plan, TrainingConfig

# The choices of `TrainingConfig.optimizer`. Their state is of tensors alone; `make_moments` and `undo` know AdamW's.
OPTIMIZERS = {"adamw": partial(torch.optim.AdamW, fused=True), "sgd": partial(torch.optim.SGD, fused=True)}
LOSS_CHUNK_TOKENS = 256  # whose logits are there at a time


class NothingToTrain(RuntimeError):
    """A step in which no gradient could arrive at any trainable tensor."""

    def __str__(self) -> str:
        return "the loss depends on no trainable tensor: the forward pass must use some, and detach nothing above them"


@dataclass(frozen=True)
class StepRecord:
    """What one optimizer step did."""

    step: int
    loss: float  # nats per label
    learning_rate: float
    gradient_norm: float  # before clipping
    samples: int
    tokens: int  # labels scored: of a classifier, texts
    seconds: float
    memory_counted: bool = False  # which slows a step down


class TrainingState:
    """All that a run must remember; no random numbers, for each step draws its own, from the seed and its number."""

    def __init__(
        self, model: nn.Module, config: TrainingConfig | None = None, groups: Sequence[ParameterGroup] = ()
    ) -> None:
        self.model, self.config, self.plan, self.step = model, config or TrainingConfig(), Plan(), 0
        self.groups = trained_groups(model, groups)
        self.parameters = [parameter for group in self.groups for parameter in group["params"]]
        self.master_parameters = self.parameters  # what the optimizer changes: these, or copies on the host
        self.optimizer = self._new_optimizer(self.master_parameters)
        self.accumulate = accumulate_gradients  # replaced where several processes share a batch
        self._updates = [0] * len(self.parameters)  # that each has had: none without a gradient
        self.records: list[StepRecord] = []
        self.scores: list[dict[str, float]] = []
        self.best_weights: list[torch.Tensor] | None = None
        self.peak_memory = math.nan  # bytes, in the step in which they were counted

    @contextmanager
    def frozen_until_due(self, total: int) -> Iterator[None]:
        """Freeze, inside, weights that begin later in a run of so many steps."""
        waiting = [group for group in self.groups if self.step < first_step(group["begins"], total)]
        early = [parameter for group in waiting for parameter in group["params"]]
        for parameter in early:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in early:
                parameter.requires_grad_(True)

    def apply_plan(self, plan: Plan) -> None:
        """Take over a plan; what it brings to the host, no later plan brings back."""
        self.plan = plan
        if plan.train_on_host:
            move_to_host(self.model)
            self._give_optimizer_to_host(self.parameters)
        elif plan.offload_optimizer and self.master_parameters is self.parameters:
            with on_host():
                copies = [p.detach().to(CPU, copy=True).requires_grad_() for p in self.parameters]
            self._give_optimizer_to_host(copies)

    def update_weights(self, learning_rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate * group["rate"]
        if self.master_parameters is self.parameters:
            self.optimizer.step()
        else:
            with on_host():
                for copy, parameter in zip(self.master_parameters, self.parameters, strict=True):
                    copy.grad = None if parameter.grad is None else parameter.grad.to(CPU, copy=True)
                self.optimizer.step()
            with torch.no_grad():
                for copy, parameter in zip(self.master_parameters, self.parameters, strict=True):
                    parameter.copy_(copy)
        self._updates = [n + (p.grad is not None) for n, p in zip(self._updates, self.parameters, strict=True)]

    def make_moments(self) -> None:
        """For all groups before any weight moves: AdamW makes them group after group, and may run out between."""
        if len(self.groups) > 1 and isinstance(self.optimizer, torch.optim.AdamW):
            pairs = zip(self.master_parameters, self.parameters, strict=True)
            new = [tensor for tensor, p in pairs if p.requires_grad and not self.optimizer.state.get(tensor)]
            with on_host() if self.master_parameters is not self.parameters else nullcontext():
                for tensor in new:
                    self.optimizer.state[tensor] = {
                        "step": torch.zeros((), device=tensor.device),
                        "exp_avg": torch.zeros_like(tensor),
                        "exp_avg_sq": torch.zeros_like(tensor),
                    }

    def undo(self) -> None:
        """Forget gradients and moments of a step that failed before the weights changed."""
        self.drop_gradients()
        for tensor, updates in zip(self.master_parameters, self._updates, strict=True):
            if updates == 0:
                self.optimizer.state.pop(tensor, None)  # its first update may have made half of the moments
            elif "step" in (moments := self.optimizer.state.get(tensor, {})):  # plain SGD keeps nothing
                moments["step"].fill_(updates)

    def tensors(self) -> dict[str, torch.Tensor]:
        """What a checkpoint holds: weights, the best ones, moments, by the number of a parameter in `groups`."""
        named = {f"weights.{number}": parameter.detach() for number, parameter in enumerate(self.parameters)}
        named |= {f"best.{number}": tensor for number, tensor in enumerate(self.best_weights or ())}
        for number, moments in self.optimizer.state_dict()["state"].items():
            named |= {f"optimizer.{number}.{key}": tensor for key, tensor in moments.items()}
        return named

    @torch.no_grad()
    def load_tensors(self, step: int, tensors: dict[str, torch.Tensor]) -> None:
        optimizer, numbers = self.optimizer.state_dict() | {"state": {}}, range(len(self.parameters))
        for name, tensor in tensors.items():
            kind, number, *key = name.split(".")
            if kind == "weights":
                self.parameters[int(number)].copy_(tensor)
                self.master_parameters[int(number)].copy_(tensor)
            elif kind == "optimizer":
                optimizer["state"].setdefault(int(number), {})[key[0]] = tensor
        self.optimizer.load_state_dict(optimizer)
        self._updates = [int(optimizer["state"].get(number, {}).get("step", 0)) for number in numbers]
        self.best_weights = [tensors[f"best.{number}"] for number in numbers] if "best.0" in tensors else None
        self.step = step

    def drop_gradients(self) -> None:
        for tensor in (*self.parameters, *self.master_parameters):
            tensor.grad = None

    def _new_optimizer(self, tensors: list[torch.Tensor]) -> torch.optim.Optimizer:
        """Of the parameters, or of copies in the same order."""
        left = iter(tensors)
        groups = [group | {"params": [next(left) for _ in group["params"]]} for group in self.groups]
        return OPTIMIZERS[self.config.optimizer](groups, lr=0.0, weight_decay=self.config.weight_decay)

    def _give_optimizer_to_host(self, masters: list[torch.Tensor]) -> None:
        settings = self.optimizer.state_dict()
        with on_host():
            for moments in settings["state"].values():
                moments |= {k: v.to(CPU, copy=True) for k, v in moments.items() if isinstance(v, torch.Tensor)}
            self.master_parameters = masters
            self.optimizer = self._new_optimizer(masters)
            self.optimizer.load_state_dict(settings)


def first_step(begins: float, total: int) -> int:
    """In which a group is first trained, from 0."""
    return math.floor(begins * total)


def prepare(model: nn.Module, plan: Plan) -> None:
    """Put a model into training mode, with activation checkpointing where the plan says so."""
    base = base_model(model)
    # Older releases of transformers call it gradient checkpointing.
    kind = "activation" if hasattr(base, "activation_checkpointing_enable") else "gradient"
    if plan.activation_checkpointing != getattr(base, f"is_{kind}_checkpointing"):
        getattr(base, f"{kind}_checkpointing_{'enable' if plan.activation_checkpointing else 'disable'}")()
    model.train()


def accumulate_gradients(model: nn.Module, batch: Batch, plan: Plan) -> list[torch.Tensor]:
    """Add up the gradients of all micro-batches; their losses sum to the batch's, in nats per label."""
    prepare(model, plan)
    device = next(model.parameters()).device
    label_count, losses = count_labels(batch), []
    with saved_on_host(model) if plan.offload_activations else nullcontext():
        for rows in batch.split(plan.micro_batch_size or len(batch)):
            # Divided by the labels of the whole batch: a label weighs the same in every micro-batch.
            loss = summed_loss(model, rows.to(device), plan) / label_count
            if not loss.requires_grad:
                raise NothingToTrain
            with phase(BACKWARD):
                loss.backward()
            losses.append(loss.detach())
    return losses


def take_step(state: TrainingState, batch: Batch, learning_rate: float) -> StepRecord:
    """Take one optimizer step; where it fails before weights move, nothing has changed."""
    started, done = time.perf_counter(), state.step
    torch.manual_seed(state.config.seed * 1_000_003 + done)
    try:
        with on_host() if state.plan.train_on_host else nullcontext():
            losses = state.accumulate(state.model, batch, state.plan)
            if all(parameter.grad is None for parameter in state.parameters):
                raise NothingToTrain
            with phase(UPDATE):
                state.make_moments()
                loss = sum(part.item() for part in losses)
                norm = clip_gradients(state, loss)
                state.update_weights(learning_rate)
                state.drop_gradients()
                state.step += 1
    except BaseException:
        if state.step == done:
            state.undo()
        raise
    seconds = time.perf_counter() - started
    return StepRecord(done + 1, loss, learning_rate, norm, len(batch), count_labels(batch), seconds)


def clip_gradients(state: TrainingState, loss: float) -> float:
    """Scale gradients down to the longest that is allowed; returns their norm before, which must be finite."""
    max_norm = state.config.max_gradient_norm
    total_norm = nn.utils.get_total_norm(p.grad for p in state.parameters if p.grad is not None)
    if hasattr(total_norm, "full_tensor"):  # FSDP's parts
        total_norm = total_norm.full_tensor()
    norm = total_norm.item()
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise FloatingPointError(
            f"the loss became {loss} and the norm of the gradient {norm} at step {state.step + 1}; the weights are "
            f"those of step {state.step}: try a learning rate below {state.config.learning_rate:g}"
            + (", or the precision fp32" if state.plan.precision != "fp32" else "")
        )
    if norm > max_norm:  # else nothing to scale
        nn.utils.clip_grads_with_norm_(state.parameters, max_norm, total_norm)
    return norm


def summed_loss(model: nn.Module, batch: Batch, plan: Plan) -> torch.Tensor:
    """Loss in nats, summed over all labels: the tokens that count, but the first of each row; or the rows' classes.

    From the logits: some architectures take no shifted labels, and mixtures of experts add a term for their routers.
    """
    examples = as_examples(batch)
    with torch.autocast(examples.tokens.device.type, torch.bfloat16, enabled=plan.precision == "bf16"):
        if examples.classifies:
            logits = model(**inputs_of(examples), use_cache=False).logits
            return _nats(logits, examples.labels)
        # The last token of a row is only a label.
        read, labels = examples.columns(-1), examples.labels[:, 1:].flatten()
        inputs = inputs_of(read)
        if not plan.chunked_loss:
            logits = model(**inputs, use_cache=False).logits
            if logits.shape[1] > read.shape[1]:  # a learned prompt has some
                logits = logits[:, -read.shape[1] :]  # only then: its backward pass copies all logits
            return _nats(logits.flatten(0, 1), labels)
        base = base_model(model)
        head = base.get_output_embeddings()
        hidden = base.get_decoder()(**inputs, use_cache=False).last_hidden_state
        states = hidden.flatten(0, 1).to(head.weight.dtype)
        if torch.is_grad_enabled():
            return _LossInChunks.apply(head, states, labels, *head.parameters())
        chunks = zip(states.split(LOSS_CHUNK_TOKENS), labels.split(LOSS_CHUNK_TOKENS), strict=True)
        return sum(_nats(head(rows), targets) for rows, targets in chunks)


def _nats(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.float(), labels, reduction="sum", ignore_index=IGNORED)


class _LossInChunks(torch.autograd.Function):
    """Loss and gradients, chunk by chunk: logits are neither kept nor computed twice."""

    @staticmethod
    def forward(ctx, head, states, labels, *weights):
        trained = [w for w in weights if w.requires_grad]
        of_states, of_weights, loss = torch.empty_like(states), [], 0.0
        for begin in range(0, len(labels), LOSS_CHUNK_TOKENS):
            chunk = slice(begin, begin + LOSS_CHUNK_TOKENS)
            rows = states[chunk].detach().requires_grad_()
            with torch.enable_grad():
                part = _nats(head(rows), labels[chunk])
            of_states[chunk], *more = torch.autograd.grad(part, [rows, *trained])
            of_weights = [total.add_(new) for total, new in zip(of_weights, more, strict=True)] if begin else more
            loss += part.detach()
        ctx.gradients = [of_states, *of_weights]
        return loss

    @staticmethod
    def backward(ctx, upstream):
        gradients = (gradient.mul_(upstream) for gradient in vars(ctx).pop("gradients"))
        return None, next(gradients), None, *(next(gradients) if need else None for need in ctx.needs_input_grad[3:])


@torch.no_grad()
def chunked_loss_agrees(model: nn.Module) -> bool:
    """Whether `logits == head(decoder(tokens))`, to the bit; not if they are capped (Gemma 2) or scaled (Cohere)."""
    base = base_model(model)
    decoder, head = base.get_decoder(), base.get_output_embeddings()
    if not isinstance(head, nn.Linear) or type(head).forward is not nn.Linear.forward or decoder in (None, base):
        return False
    tokens = torch.arange(4, device=head.weight.device)[None]
    with evaluation_mode(model):
        logits = model(input_ids=tokens, use_cache=False).logits
        try:
            hidden = decoder(input_ids=tokens, use_cache=False).last_hidden_state
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
            return False  # it asks for more than tokens
    return torch.equal(head(hidden.to(head.weight.dtype)).to(logits.dtype), logits)


@torch.no_grad()
def mean_loss(model: nn.Module, blocks: Batch, plan: Plan | None = None) -> float:
    """In nats per label."""
    plan = plan or Plan()
    device = next(model.parameters()).device
    with evaluation_mode(model):
        parts = [summed_loss(model, rows.to(device), plan).item() for rows in blocks.split(plan.micro_batch_size or 8)]
    return sum(parts) / count_labels(blocks)
