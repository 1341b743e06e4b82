"""One optimizer step: what it changes (the state) and how it is carried out (the plan), kept apart."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils._python_dispatch import _disable_current_modes

from tlkit.quantization import tensors_of
from tlkit.strategies import base_model, find_blocks, trainable_parameters
from tlkit.team import ALONE, Team, gather_full

Host = Callable[[], AbstractContextManager]
CPU = torch.device("cpu")
# Tokens whose logits are there at a time where the loss is computed in pieces: as fast as all at once. torch's own
# choice is the size of the hidden states, six tokens for a vocabulary of 151,936, and takes five times as long.
LOSS_CHUNK_TOKENS = 256
# Fused: one call changes all weights, after everything that can fail.
OPTIMIZERS = {"adamw": partial(torch.optim.AdamW, fused=True), "sgd": partial(torch.optim.SGD, fused=True)}


@dataclass(frozen=True)
class Plan:
    """How a step is carried out, never what it computes; `precision` alone rounds differently."""

    micro_batch_size: int | None = None  # blocks in one forward pass; None: the whole batch
    precision: str = "fp32"  # or "bf16": autocast, weights stay in fp32
    chunked_loss: bool = False  # head and loss in pieces, so that the logits are never all there
    activation_checkpointing: bool = False  # forget activations, compute them again in the backward pass
    offload_activations: bool = False  # keep them in the host's memory until the backward pass
    offload_optimizer: bool = False  # moments and update are the host's
    train_on_host: bool = False  # weights too: only evaluation is left to the device
    evaluate_on_host: bool = False


@dataclass(frozen=True)
class StepRecord:
    """One optimizer step: loss in nats per token, gradient norm before clipping, tokens scored, seconds."""

    step: int
    loss: float
    learning_rate: float
    gradient_norm: float
    samples: int
    tokens: int
    seconds: float


class TrainingState:
    """All that training changes: the trainable weights, the optimizer, and the number of steps done.

    Random numbers are no part of it: each step draws its own, from `seed` and its number. `host` makes a
    context in which new tensors lie in the host's memory; only virtual devices need one. With a `team`, each of its
    processes has such a state and takes the same steps.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: str = "adamw",
        weight_decay: float = 0.01,
        seed: int = 0,
        host: Host = nullcontext,
        team: Team = ALONE,
    ):
        self.model, self.seed, self.host, self.step = model, seed, host, 0
        self.team = team.wrap(SummedLoss(model), find_blocks(base_model(model)))
        self.parameters = trainable_parameters(model)
        self.home = self.parameters[0].device
        self.updated = self.parameters  # what the optimizer changes: these, or copies of them on the host
        self._new_optimizer = partial(OPTIMIZERS[optimizer], lr=0.0, weight_decay=weight_decay)
        self.optimizer = self._new_optimizer(self.updated)
        self.plan = Plan()

    def apply_plan(self, plan: Plan) -> None:
        """Bring weights and optimizer to where `plan` wants them; from the device to the host, never back."""
        self.plan = plan
        if plan.train_on_host:
            move_weights(self.model, CPU, self.host)
            self._give_optimizer_to_host(self.parameters)
        elif plan.offload_optimizer and self.updated is self.parameters:
            with self.host():
                copies = [p.detach().to(CPU, copy=True).requires_grad_() for p in self.parameters]
            self._give_optimizer_to_host(copies)

    def update_weights(self, learning_rate: float) -> None:
        """One step of the optimizer, by the gradients that lie in the weights."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        if self.updated is self.parameters:
            self.optimizer.step()
            return
        with self.host():
            for copy, parameter in zip(self.updated, self.parameters, strict=True):
                copy.grad = None if parameter.grad is None else parameter.grad.to(CPU, copy=True)
            self.optimizer.step()
        self._copy_back()

    def make_moments(self) -> None:
        """AdamW's moments, before its first step would: in a team, no process may run out of memory in between."""
        if self.team.size > 1 and not self.optimizer.state and isinstance(self.optimizer, torch.optim.AdamW):
            with self.host() if self.updated is not self.parameters else nullcontext():
                for tensor in self.updated:
                    self.optimizer.state[tensor] = {
                        "step": torch.zeros((), device=tensor.device),
                        "exp_avg": torch.zeros_like(tensor),
                        "exp_avg_sq": torch.zeros_like(tensor),
                    }

    def undo(self, done: int) -> None:
        """After a step that broke off before the weights changed: make the state whole, with `done` steps taken."""
        self.drop_gradients()
        if done == 0:
            self.optimizer.state.clear()  # the first step makes the moments, and may have made half of them
        for moments in self.optimizer.state.values():
            if "step" in moments:  # plain SGD keeps nothing
                moments["step"].fill_(done)

    def drop_gradients(self) -> None:
        for tensor in (*self.parameters, *self.updated):
            tensor.grad = None

    def _give_optimizer_to_host(self, updated: list[torch.Tensor]) -> None:
        settings = self.optimizer.state_dict()
        with self.host():
            for moments in settings["state"].values():
                moments |= {k: v.to(CPU, copy=True) for k, v in moments.items() if isinstance(v, torch.Tensor)}
            self.updated = updated
            self.optimizer = self._new_optimizer(updated)
            self.optimizer.load_state_dict(settings)

    @torch.no_grad()
    def _copy_back(self) -> None:
        for copy, parameter in zip(self.updated, self.parameters, strict=True):
            parameter.copy_(copy)


def move_weights(model: nn.Module, device: torch.device, host: Host = nullcontext) -> None:
    """Move a model, its tied weights still tied. With a virtual device, `CPU` is the host."""
    with host() if device == CPU else nullcontext():
        for tensor in tensors_of(model):
            tensor.data = tensor.data.to(device, copy=True)


def take_step(
    state: TrainingState, batch: torch.Tensor, learning_rate: float, *, max_gradient_norm: float = 1.0
) -> StepRecord:
    """Carry out one optimizer step on `batch`, shape (blocks, tokens), as `state.plan` says.

    Where it breaks off, be it out of memory or interrupted, the state is as it was before, or as it is after.

    Raises FloatingPointError where the loss is no number, and whatever torch raises.
    """
    plan = state.plan
    started, done = time.perf_counter(), state.step
    team = state.team
    torch.manual_seed((state.seed * 1_000_003 + done) * team.size + team.rank)
    try:
        with state.host() if plan.train_on_host else nullcontext():
            with team.sync_out_of_memory():
                losses = accumulate_gradients(state.model, batch, plan, state.host, team)
                state.make_moments()
            team.add_up_gradients(state.parameters)
            loss = team.sum(sum(part.item() for part in losses))
            if not math.isfinite(loss):
                raise FloatingPointError(
                    f"the loss became {loss} at step {done + 1}: try a learning rate below {learning_rate:g}"
                )
            gradients = [parameter.grad for parameter in state.parameters if parameter.grad is not None]
            total_norm = nn.utils.get_total_norm(gradients)
            norm = gather_full(total_norm).item()
            if norm > max_gradient_norm:  # else there is nothing to change, and no need to walk over all gradients
                nn.utils.clip_grads_with_norm_(state.parameters, max_gradient_norm, total_norm)
            with interrupts_wait():
                state.update_weights(learning_rate)
                state.drop_gradients()
                state.step = done + 1
    except BaseException:
        if state.step == done:
            state.undo(done)
        raise
    tokens = batch[:, 1:].numel()
    return StepRecord(done + 1, loss, learning_rate, norm, len(batch), tokens, time.perf_counter() - started)


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Inside, Ctrl+C (or a notebook's Stop) waits until the end, so that what is inside is done whole."""
    if threading.current_thread() is not threading.main_thread():  # where no signal arrives
        yield
        return
    waiting = []
    handler = signal.signal(signal.SIGINT, lambda *received: waiting.append(received))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if waiting and callable(handler):
        handler(*waiting[0])


def accumulate_gradients(
    model: nn.Module, batch: torch.Tensor, plan: Plan, host: Host = nullcontext, team: Team = ALONE
) -> list:
    """Add up the gradients of all micro-batches; returns their losses, which sum to the loss of the batch.

    In a team, those of this process' share.
    """
    base = base_model(model)
    # Releases of transformers before 5.20 call it gradient checkpointing.
    kind = "activation" if hasattr(base, "activation_checkpointing_enable") else "gradient"
    if plan.activation_checkpointing != getattr(base, f"is_{kind}_checkpointing"):
        getattr(base, f"{kind}_checkpointing_{'enable' if plan.activation_checkpointing else 'disable'}")()
    model.train()
    device = next(model.parameters()).device
    tokens = batch[:, 1:].numel()
    losses = []
    parts = team.shard_batch(batch, plan.micro_batch_size)
    with saved_on_host(model, host) if plan.offload_activations else nullcontext():
        for number, (part, weight) in enumerate(parts, 1):
            with team.exchange_in(last=number == len(parts)):
                # Divide by the tokens of the whole batch, not by the number of micro-batches: each counts the same.
                loss = loss_of(model, part.to(device), plan, team) * weight / tokens
                (loss * team.scale).backward()
            losses.append(loss.detach())
    return losses


def loss_of(model: nn.Module, blocks: torch.Tensor, plan: Plan, team: Team = ALONE) -> torch.Tensor:
    """`summed_loss`, through DDP or FSDP where the team has put one of them around it."""
    return summed_loss(model, blocks, plan) if team.module is None else team.module(blocks, plan)


class SummedLoss(nn.Module):
    """`summed_loss` as a module, for DDP and FSDP, which act where a module's forward pass begins and ends."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, blocks: torch.Tensor, plan: Plan) -> torch.Tensor:
        return summed_loss(self.model, blocks, plan)


def summed_loss(model: nn.Module, blocks: torch.Tensor, plan: Plan) -> torch.Tensor:
    """Loss in nats, summed over all tokens but the first of each block."""
    # The last token of a block predicts none, so it is only a label: no work is done for it.
    inputs, labels = blocks[:, :-1], blocks[:, 1:].contiguous()
    with torch.autocast(blocks.device.type, torch.bfloat16, enabled=plan.precision == "bf16"):
        if not plan.chunked_loss:
            shifted = {"labels": labels, "shift_labels": labels}  # the model need not shift them itself
            return model(input_ids=inputs, **shifted, num_items_in_batch=1, use_cache=False).loss
        base = base_model(model)
        head = base.get_output_embeddings()
        hidden = base.get_decoder()(input_ids=inputs, use_cache=False).last_hidden_state
    return _loss_in_chunks(hidden.flatten(0, 1).to(head.weight.dtype), head, labels.flatten())


def _loss_in_chunks(hidden: torch.Tensor, head: nn.Linear, labels: torch.Tensor) -> torch.Tensor:
    """Summed loss of the head's logits, of which no more than LOSS_CHUNK_TOKENS rows are there at a time."""
    if hasattr(functional, "linear_cross_entropy"):  # torch 2.13 and newer
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=LOSS_CHUNK_TOKENS)
        given = {"linear_bias": head.bias, "reduction": "sum", "options": options}
        return functional.linear_cross_entropy(hidden, head.weight, labels, **given)

    def of_chunk(rows: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(head(rows), targets, reduction="sum")

    chunks = zip(hidden.split(LOSS_CHUNK_TOKENS), labels.split(LOSS_CHUNK_TOKENS), strict=True)
    return sum(checkpoint(of_chunk, *chunk, use_reentrant=False) for chunk in chunks)


@torch.no_grad()
def chunked_loss_agrees(model: nn.Module, blocks: torch.Tensor) -> bool:
    """True where the loss in pieces is this model's loss: some scale or cap their logits behind the head."""
    if not isinstance(base_model(model).get_output_embeddings(), nn.Linear):
        return False
    if next(model.parameters()).is_meta:  # an architecture on paper: nothing to compute with
        return True
    was_training = model.training
    model.eval()
    few = blocks[:1, :8].to(next(model.parameters()).device)
    whole, pieces = (summed_loss(model, few, Plan(chunked_loss=chunked)).item() for chunked in (False, True))
    model.train(was_training)
    return math.isclose(whole, pieces, rel_tol=1e-4)


@torch.no_grad()
def draws_random_numbers(model: nn.Module) -> bool:
    """Whether a training pass of `model` draws random numbers, as dropout does.

    Such numbers are drawn for each pass in turn, so a batch that is cut into smaller micro-batches gets others and
    the result of the step is another. The model itself is asked: it reads two tokens in training mode, and the
    generators of torch are compared before and after. Nothing is changed by it.

    Args:
        model: with real weights, on any device.

    Raises:
        ValueError: for a model on the meta device, where nothing is ever drawn.
    """
    device = next(model.parameters()).device
    if device.type == "meta":
        raise ValueError("a model without weights (on the meta device) cannot be asked whether it draws random numbers")
    generators = [torch.random] if device.type == "cpu" else [torch.random, torch.get_device_module(device)]
    before = [generator.get_rng_state() for generator in generators]
    try:
        with _disable_current_modes(), mode(model, training=True):  # a virtual device does not count this
            model(input_ids=torch.zeros(1, 2, dtype=torch.long, device=device), use_cache=False)
        after = [generator.get_rng_state() for generator in generators]
        return not all(map(torch.equal, before, after))
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_rng_state(state)


@contextmanager
def mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Inside, the model is in training or in evaluation mode; afterwards each of its modules as it was."""
    before = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, trained in before:
            module.training = trained


def saved_on_host(model: nn.Module, host: Host) -> AbstractContextManager:
    """What the forward pass saves for the backward pass goes to the host's memory, weights excepted."""
    weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}

    def pack(tensor: torch.Tensor):
        if tensor.untyped_storage()._cdata in weights:
            return tensor, None
        with host():
            return tensor.to(CPU, copy=True), tensor.device

    def unpack(packed):
        tensor, device = packed
        return tensor if device is None else tensor.to(device, copy=True)

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


@torch.no_grad()
def mean_loss(model: nn.Module, blocks: torch.Tensor, plan: Plan | None = None, team: Team = ALONE) -> float:
    """Token-weighted loss in nats over blocks of equal length, shape (blocks, tokens)."""
    plan = plan or Plan()
    device = next(model.parameters()).device
    with mode(model, training=False):
        parts = [
            loss_of(model, part.to(device), plan, team).item() * weight
            for part, weight in team.shard_batch(blocks, plan.micro_batch_size or 8)
        ]
    return team.sum(sum(parts)) / blocks[:, 1:].numel()
