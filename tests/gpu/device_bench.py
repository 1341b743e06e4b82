"""What the checks of a device have in common: the bundled model, a little text, and how far rounding alone may lead."""

import copy
import math
from dataclasses import dataclass, field

import torch

from tlkit.corpus import load_corpus, pack
from tlkit.devices import Device, probe
from tlkit.evidence.learning_rates import best_rates, recorded_rates
from tlkit.memory import VirtualDevice
from tlkit.models import load_model
from tlkit.models.loading import LoadedModel
from tlkit.settings import Plan, TrainingConfig, setup
from tlkit.steps import StepRecord, TrainingState, mean_loss
from tlkit.strategies import apply_strategy
from tlkit.training import training_steps

ROWS, TOKENS, STEPS = 4, 64, 3
# Where a device adds up in another order, the rounding errors of a sum of n terms grow like the root of n. The longest
# sum of the bundled model is that over its vocabulary of 4,096 tokens.
ROUNDINGS = math.isqrt(4096)
# A difference that small beside what training changes cannot hide that something else was computed.
LARGEST_SHARE = 0.02
UNKNOWN_RATE = 1e-2


@dataclass(frozen=True)
class Run:
    """A short training: the losses of its steps and, as the last one, of the validation text after them."""

    losses: tuple[float, ...]
    records: list[StepRecord]
    state: TrainingState


@dataclass(frozen=True)
class Reference:
    """The losses of a run on the processor, how far (in nats) another device may be from them, and why so far."""

    losses: tuple[float, ...]
    tolerance: float
    why: str
    changed_by_training: float

    def hold(self, losses, record, name="difference"):
        """Assert that losses are these, without the last one where nothing was scored; `record` gets the figures."""
        gap = largest_gap(losses, self.losses[: len(losses)])
        record(name, gap)
        record("tolerance", self.why)
        assert len(losses) >= STEPS and gap <= self.tolerance, f"losses differ by {gap:.1e}, allowed are {self.why}"


@dataclass(frozen=True)
class Bench:
    """One device, and all that the checks need."""

    device: Device | VirtualDevice
    loaded: LoadedModel  # the bundled model, on the processor; the checks work on copies
    blocks: torch.Tensor  # token ids, shape (`STEPS` x `ROWS`, tokens)
    validation: torch.Tensor  # token ids, shape (`ROWS`, tokens)
    host: Device  # the processor
    _references: dict[tuple, Reference] = field(default_factory=dict)

    @property
    def is_virtual(self):
        """Whether the device is played by the processor."""
        return isinstance(self.device, VirtualDevice)

    @property
    def is_real(self):
        """Whether the device has a memory of its own with a driver that counts it."""
        return not self.is_virtual and self.device.kind != "cpu"

    def adapted(self, strategy, **options):
        """A fresh copy of the model with a strategy applied, on the processor; the same one each time."""
        model = copy.deepcopy(self.loaded.model)
        torch.manual_seed(0)  # an adapter's first values
        return apply_strategy(model, strategy, **options).model

    def config(self, strategy, epochs=1):
        """What the checks train towards, at the rate that is recorded for a strategy."""
        rates = {name: rate.value for name, rate in best_rates(recorded_rates("tiny"))[0].items()}
        return TrainingConfig(rates.get(strategy, UNKNOWN_RATE), epochs=epochs, batch_size=ROWS)

    def run(self, model, config, plan=None, device=None) -> Run:
        """Bring a model of `adapted` to the device, train it there and score it."""
        device, plan = device or self.device, plan or Plan()
        with device.counting():
            device.place(model)
            state = TrainingState(model, config)
            state.apply_plan(plan)
            records = list(training_steps(state, self.blocks))
            score = mean_loss(model, self.validation, Plan(1, plan.precision))
        return Run((*(record.loss for record in records), score), records, state)

    def reference(self, strategy, **options) -> Reference:
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
            self._references[key] = Reference(losses, tolerance, f"{tolerance:.1e} nats: {why}", change)
        return self._references[key]


def bench_for(device, tokens=TOKENS) -> Bench:
    """Get everything ready for a device, real or virtual."""
    setup()
    loaded, corpus = load_model("tiny"), load_corpus("rust")
    blocks = pack(corpus.train[:60], loaded.tokenizer, tokens)[: STEPS * ROWS]
    validation = pack(corpus.validation[:20], loaded.tokenizer, tokens)[:ROWS]
    return Bench(device, loaded, blocks, validation, probe("cpu"))


def largest_gap(found, expected):
    """The largest difference between two rows of numbers; infinite where one of them is not finite."""
    gaps = [abs(a - b) for a, b in zip(found, expected, strict=True)]
    return max(gaps) if all(map(math.isfinite, gaps)) else math.inf


def _tolerance(spread, change, loss):
    """How far losses may be apart where a rounding moves them by `spread` and training by `change`, and why so far."""
    of_weights = ROUNDINGS * spread, f"{ROUNDINGS} times what one rounding of every weight changes"
    of_training = LARGEST_SHARE * change, f"{LARGEST_SHARE:.0%} of what training changes, although rounding may do more"
    of_loss = ROUNDINGS * torch.finfo(torch.float32).eps * loss, f"{ROUNDINGS} roundings of the loss itself"
    return max(of_loss, min(of_weights, of_training))


@torch.no_grad()
def _rounded_once(model):
    """Every weight moved up or down by one rounding, drawn at random."""
    draws = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.is_floating_point():
            signs = torch.randint(0, 2, parameter.shape, generator=draws) * 2 - 1
            parameter.mul_(1 + torch.finfo(parameter.dtype).eps * signs)
    return model
