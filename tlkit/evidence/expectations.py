"""What a training run must show before it is believed, judged by what the run itself measured."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch.optim.optimizer import register_optimizer_step_post_hook

from tlkit.devices import Device
from tlkit.memory import in_units, parse_size, track_memory
from tlkit.options import checked_by_name, option, option_fields

WARM_UP = 2  # steps before memory and speed are steady: the optimizer's state is made in the first
SMOOTHING = 5  # parts of a run whose mean losses are compared


@dataclass(frozen=True)
class Expectations:
    """What a run must show; what has no value is not judged."""

    losses_finite: bool = option(False, "every loss is a number")
    loss_falls_percent: float | None = option(None, "from the first steps to the last, at least", above=0, at_most=100)
    smoothed_loss_decreases: bool = option(False, "the mean losses of five parts of the run fall one after the other")
    peak_memory: str | None = option(None, "what a step may hold in tensors, such as 512MB")
    memory_growth_percent: float | None = option(None, "of the peak in 100 steps, less than", above=0)
    throughput_varies_percent: float | None = option(None, "from the first third to the last, less than", above=0)
    gradients_flow: bool = option(False, "all that is trainable gets a gradient and moves, nothing else does")
    checkpoint_reloads: bool = option(False, "the last checkpoint brings weights and loss back bit for bit")


@dataclass(frozen=True)
class Seen:
    """What a run measured; a method for each expectation says whether it holds, and by which figures."""

    history: pd.DataFrame  # a row for each step, as in `TrainingResult`
    peak_bytes: float  # most that a step held
    held: Sequence[int] = ()  # bytes held after each step; empty where nobody asked
    gradient_problems: tuple[str, ...] = ()  # faults that `check_gradient_flow` found
    reload_problem: str = ""  # how a checkpoint that was read back differs; empty where it does not

    def losses_finite(self, _: bool) -> tuple[bool, str]:
        finite = np.isfinite(self.history.loss)
        return bool(finite.all()), f"{finite.sum()} of {len(finite)} steps"

    def loss_falls_percent(self, wanted: float) -> tuple[bool, str]:
        """Means of the first and the last fiftieth of the steps, at least three: one batch proves nothing."""
        losses, few = self.history.loss, max(3, len(self.history) // 50)
        first, last = losses.head(few).mean(), losses.tail(few).mean()
        fall = 100 * (1 - last / first)
        return bool(fall >= wanted), f"{first:.2f} to {last:.2f} nats per token, {fall:.0f}% (wanted {wanted:g}%)"

    def smoothed_loss_decreases(self, _: bool) -> tuple[bool, str]:
        means = [some.mean() for some in np.array_split(self.history.loss.to_numpy(), SMOOTHING)]
        return bool((np.diff(means) < 0).all()), "means of five parts: " + ", ".join(f"{mean:.2f}" for mean in means)

    def peak_memory(self, wanted: str) -> tuple[bool, str]:
        return self.peak_bytes <= parse_size(wanted), f"{in_units(self.peak_bytes)} (wanted at most {wanted})"

    def memory_growth_percent(self, wanted: float) -> tuple[bool, str]:
        """Slope of a straight line through the bytes held after each step; the upper end of its 95% interval counts."""
        held = self.held[WARM_UP:]
        if len(held) < 3:
            return False, f"{len(self.held)} steps are too few: expected at least {WARM_UP + 3}"
        line = stats.linregress(range(len(held)), held)
        error = line.stderr if len(set(held)) > 1 else 0.0  # a flat line has no correlation to compute an error from
        margin = stats.t.ppf(0.975, len(held) - 2) * error
        low, high = (100 * 100 * a_step / self.peak_bytes for a_step in (line.slope - margin, line.slope + margin))
        return bool(high < wanted), f"{low:.3f}% to {high:.3f}% of the peak per 100 steps (wanted below {wanted:g}%)"

    def throughput_varies_percent(self, wanted: float) -> tuple[bool, str]:
        """A step in which memory is counted takes longer for it, and says nothing of the speed."""
        timed = self.history.iloc[WARM_UP:]
        timed = timed[~timed.memory_counted]
        speeds, third = timed.tokens / timed.seconds, max(1, len(timed) // 3)
        first, last = speeds.head(third).median(), speeds.tail(third).median()
        change = 100 * abs(last / first - 1)
        measured = f"{first:,.0f} tokens/s in the first third, {last:,.0f} in the last: {change:.0f}%"
        return bool(change < wanted), f"{measured} (wanted below {wanted:g}%)"

    def gradients_flow(self, _: bool) -> tuple[bool, str]:
        problems = "; ".join(self.gradient_problems)
        return not problems, problems or "all that is trainable moves, nothing else does"

    def checkpoint_reloads(self, _: bool) -> tuple[bool, str]:
        return not self.reload_problem, self.reload_problem or "bit for bit, the loss too"


@dataclass(frozen=True)
class Verdict:
    """Whether an expectation holds, and the figures that say so."""

    expectation: str
    holds: bool
    found: str

    def __str__(self) -> str:
        return f"[{'OK' if self.holds else 'FAIL'}] {self.expectation}: {self.found}"


def expectations_of(wanted: Mapping[str, object]) -> Expectations:
    """Read expectations as a run file has them, by name; an unknown name or an impossible value is a ValueError."""
    try:
        expected = Expectations(**checked_by_name({s.name: s for s in option_fields(Expectations)}, wanted))
        if expected.peak_memory:
            parse_size(expected.peak_memory)
    except ValueError as error:
        raise ValueError(f"expect: {error}") from None
    return expected


def judge(expected: Expectations, seen: Seen) -> list[Verdict]:
    """Judge a run by each expectation that has a value."""
    wanted = {name: value for name, value in vars(expected).items() if value}
    return [Verdict(name, *getattr(seen, name)(value)) for name, value in wanted.items()]


@contextmanager
def memory_watched(model: torch.nn.Module, device: Device) -> Iterator[list[int]]:
    """Note after each step of an optimizer how many bytes of tensors are held.

    On CUDA the allocator counts, elsewhere every tensor is counted, which takes time.
    """
    held, on_card = [], device.kind == "cuda"
    with nullcontext() if on_card else track_memory(model) as track:
        noting = register_optimizer_step_post_hook(
            lambda *_: held.append(torch.cuda.memory_allocated() if on_card else track.current)
        )
        try:
            yield held
        finally:
            noting.remove()
