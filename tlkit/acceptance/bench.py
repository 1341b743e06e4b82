"""What the checks have in common: a device, the bundled model, a little text, and how far rounding alone may lead."""

import copy
import math
import os
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import nn

from tlkit.corpus import load_corpus, pack
from tlkit.devices import KINDS, Device, probe
from tlkit.evidence.learning_rates import default_rates
from tlkit.fitting.estimate import estimate_memory
from tlkit.fitting.placement import device_context, memory_for, move_to_device
from tlkit.memory import Host, VirtualDevice, in_units, virtual_device
from tlkit.models import load_model
from tlkit.models.loading import LoadedModel
from tlkit.steps import Plan, TrainingState, mean_loss
from tlkit.strategies import apply_strategy
from tlkit.training import TrainingConfig, new_state, training_steps

VIRTUAL = "virtual:"
ROWS, TOKENS, STEPS = 4, 64, 3
# Where a device adds up in another order, the rounding errors of a sum of n terms grow like the root of n. The longest
# sum of the bundled model is that over its vocabulary of 4,096 tokens.
ROUNDINGS = math.isqrt(4096)
# A difference that small beside what training changes cannot hide that something else was computed.
LARGEST_SHARE = 0.02
UNKNOWN_RATE = 1e-2


@dataclass(frozen=True)
class Check:
    """One row of the record.

    Attributes:
        name: of `CHECKS`.
        status: "passed", "failed" or "skipped"; "running" in a record whose run ended in the middle of it.
        found: the figure, in words.
        expected: what it should be.
        tolerance: how far from that it may be, and why so far.
        seconds: that the check took.
        reason: why it was skipped, or what ended it.
        figures: what was found, for machines.
    """

    name: str = ""
    status: str = "running"
    found: str = ""
    expected: str = ""
    tolerance: str = ""
    seconds: float = 0.0
    reason: str = ""
    figures: dict[str, float | None] = field(default_factory=dict)

    def __str__(self) -> str:
        told = [self.found, self.reason]
        if self.status == "failed" and self.expected:
            told += [f"expected: {self.expected}", f"tolerance: {self.tolerance}" if self.tolerance else ""]
        return f"[{self.status}] {self.name}: {'. '.join(filter(None, told))}"


def judged(passed: bool, found: str, expected: str, tolerance: str = "", **figures: float) -> Check:
    """A check that came to an end.

    Args:
        passed: whether what was found is what was expected.
        found: in words, with its figure.
        expected: in words.
        tolerance: in words, with its reason.
        figures: what was found, by name.
    """
    return Check("", "passed" if passed else "failed", found, expected, tolerance, figures=figures)


def skipped(reason: str) -> Check:
    """A check that this device cannot make, and why."""
    return Check(status="skipped", reason=reason)


@dataclass(frozen=True)
class Run:
    """A short training: the losses of its steps and, as the last one, of the validation text after them.

    Attributes:
        losses: in nats per token.
        seconds: of each step.
        state: as the last step left it, with the model.
    """

    losses: tuple[float, ...]
    seconds: tuple[float, ...]
    state: TrainingState = field(repr=False)


@dataclass(frozen=True)
class Reference:
    """The same training on the processor.

    Attributes:
        losses: as in `Run`.
        tolerance: how far the losses of another device may be from these, in nats.
        why: where that comes from, in words.
        change: by how much training changes the loss of the validation text, in nats.
    """

    losses: tuple[float, ...]
    tolerance: float
    why: str
    change: float

    @property
    def in_words(self) -> str:
        """The tolerance and where it comes from."""
        return f"{self.tolerance:.1e} nats: {self.why}"


@dataclass(frozen=True)
class Bench:
    """One device, and all that the checks need.

    Attributes:
        device: real or virtual.
        loaded: the bundled model, on the processor; the checks work on copies.
        blocks: token ids, shape (`STEPS` x `ROWS`, tokens).
        validation: token ids, shape (`ROWS`, tokens).
        host: the processor.
    """

    device: Device | VirtualDevice
    loaded: LoadedModel = field(repr=False)
    blocks: torch.Tensor = field(repr=False)
    validation: torch.Tensor = field(repr=False)
    host: Device = field(repr=False)
    _references: dict[tuple, Reference] = field(default_factory=dict, repr=False)

    @property
    def tokens(self) -> int:
        """In a block."""
        return self.blocks.shape[1]

    @property
    def is_virtual(self) -> bool:
        """Whether the device is played by the processor."""
        return isinstance(self.device, VirtualDevice)

    @property
    def is_real(self) -> bool:
        """Whether the device has a memory of its own with a driver that counts it."""
        return not self.is_virtual and self.device.kind != "cpu"

    def adapted(self, strategy: str, **options) -> nn.Module:
        """A fresh copy of the model with a strategy applied, on the processor; the same one each time."""
        model = copy.deepcopy(self.loaded.model)
        torch.manual_seed(0)  # an adapter's first values
        return apply_strategy(model, strategy, **options).model

    def config(self, strategy: str, epochs: float = 1) -> TrainingConfig:
        """What the checks train towards, at the rate that is recorded for a strategy."""
        rate = default_rates("tiny").get(strategy, UNKNOWN_RATE)
        return TrainingConfig(rate, epochs=epochs, batch_size=ROWS)

    def run(
        self,
        model: nn.Module,
        config: TrainingConfig,
        plan: Plan | None = None,
        device: Device | VirtualDevice | None = None,
        host: Host | None = None,
    ) -> Run:
        """Train a model of `adapted`, and score it.

        Args:
            model: is moved to the device, and changed.
            config: what to train towards.
            plan: how to carry out the steps.
            device: where, by default that of the bench.
            host: makes a context in which new tensors lie on the host, by default that of the device.
        """
        device, plan = device or self.device, plan or Plan()
        with device_context(device):
            move_to_device(model, device)
            state = new_state(model, config, host or device.host)
            state.apply_plan(plan)
            records = list(training_steps(state, self.blocks, config))
            with device.host() if plan.train_on_host else nullcontext():
                score = mean_loss(model, self.validation, Plan(1, plan.precision))
        return Run((*(record.loss for record in records), score), tuple(record.seconds for record in records), state)

    def reference(self, strategy: str, **options) -> Reference:
        """Train on the processor twice, the second time with every weight rounded once more.

        What that moves the losses by is how sensitive this training is to rounding. A device rounds in other places,
        `ROUNDINGS` times as much at most; nothing else may move its losses.
        """
        key = (strategy, *options.items())
        if key not in self._references:
            config = self.config(strategy)
            begin = mean_loss(self.adapted(strategy, **options), self.validation)
            losses = self.run(self.adapted(strategy, **options), config, device=self.host).losses
            moved = self.run(_rounded_once(self.adapted(strategy, **options)), config, device=self.host).losses
            change = abs(losses[-1] - begin)
            tolerance, why = _tolerance(largest_gap(losses, moved), change, max(losses))
            self._references[key] = Reference(losses, tolerance, why, change)
        return self._references[key]


def bench_for(device: Device | VirtualDevice, tokens: int = TOKENS) -> Bench:
    """Get everything ready.

    Args:
        device: from `device_named`.
        tokens: in a block.

    Raises:
        ValueError: where the device has no room for the smallest of the checks.
    """
    loaded = load_model("tiny")
    corpus = load_corpus("rust")
    blocks = pack(corpus.train[:60], loaded.tokenizer, tokens)[: STEPS * ROWS]
    validation = pack(corpus.validation[:20], loaded.tokenizer, tokens)[:ROWS]
    bench = Bench(device, loaded, blocks, validation, probe("cpu"))
    needed = estimate_memory(bench.adapted("full"), batch_size=ROWS, sequence_length=tokens).peak
    room = memory_for(loaded.model, device)
    if needed > room:
        raise ValueError(
            f"{device.name} has {in_units(room)} free: expected at least {in_units(needed)}, which a step of the "
            "bundled model needs"
        )
    return bench


def device_named(name: str | None) -> Device | VirtualDevice:
    """The device to check.

    Args:
        name: one of `KINDS`, or a virtual card such as "virtual:96MB"; None: what `TLKIT_DEVICE` names, else the first
            accelerator that works.

    Raises:
        ValueError: for another name.
        RuntimeError: where there is no such device; says what was looked for and what to do.
    """
    name = os.environ.get("TLKIT_DEVICE") if name is None else name
    if name and name.startswith(VIRTUAL):
        return virtual_device(memory=name.removeprefix(VIRTUAL))
    if name and name not in KINDS:
        raise ValueError(f"device {name!r} is unknown: expected one of {', '.join(KINDS)}, or {VIRTUAL}96MB")
    found = probe(name or None)
    if not name and found.kind == "cpu":
        raise RuntimeError(
            "no accelerator works here: looked for cuda (NVIDIA and AMD), mps (Apple) and xpu (Intel), and found "
            f"{'; '.join(found.notes) or 'none'}. If this machine has one, torch {torch.__version__} may be built "
            "without it: pytorch.org names the build for your card. To run the same checks without one: --device cpu, "
            f"or --device {VIRTUAL}96MB"
        )
    return found


def _tolerance(spread: float, change: float, loss: float) -> tuple[float, str]:
    """How far losses may be apart, and why so far.

    Args:
        spread: what one rounding of every weight moves them by.
        change: what training moves them by.
        loss: the largest of them.
    """
    of_weights = ROUNDINGS * spread, f"{ROUNDINGS} times what one rounding of every weight changes"
    of_training = LARGEST_SHARE * change, f"{LARGEST_SHARE:.0%} of what training changes, although rounding may do more"
    of_loss = ROUNDINGS * torch.finfo(torch.float32).eps * loss, f"{ROUNDINGS} roundings of the loss itself"
    return max(of_loss, min(of_weights, of_training))


def largest_gap(found: Iterable[float], expected: Iterable[float]) -> float:
    """The largest difference between two rows of numbers; infinite where one of them is not finite."""
    gaps = [abs(a - b) for a, b in zip(found, expected, strict=True)]
    return max(gaps) if all(map(math.isfinite, gaps)) else math.inf


def apart(gap: float) -> str:
    """In words, how far two rows of losses are from each other."""
    return "are the same" if gap == 0 else f"differ by {gap:.1e} nats"


@torch.no_grad()
def _rounded_once(model: nn.Module) -> nn.Module:
    """Every weight moved up or down by one rounding, drawn at random."""
    draws = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.is_floating_point():
            signs = torch.randint(0, 2, parameter.shape, generator=draws) * 2 - 1
            parameter.mul_(1 + torch.finfo(parameter.dtype).eps * signs)
    return model
