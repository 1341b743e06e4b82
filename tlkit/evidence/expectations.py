"""What is expected of a training run, judged by what it measured."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch.optim.optimizer import register_optimizer_step_post_hook

from tlkit.memory import in_units, parse_size, track_memory
from tlkit.options import is_a
from tlkit.settings import TrainingConfig
from tlkit.steps import NothingToTrain, TrainingState, take_step
from tlkit.strategies import StrategyReport

WARM_UP = 2  # steps: the optimizer's state is made in the first
LEARNING_RATE = 1e-3  # of the steps that show what moves


@dataclass(frozen=True)
class Seen:
    """What a run measured; a method for each expectation says whether it holds, and the figures."""

    history: pd.DataFrame  # as in `TrainingResult`
    peak_bytes: float
    held: Sequence[int] = ()  # bytes held after each step
    flow: pd.DataFrame | None = None  # of `gradient_flow`
    reload_problem: str = ""  # how a checkpoint that was read back differs

    def losses_finite(self, wanted: bool) -> tuple[bool, str]:
        finite = np.isfinite(self.history.loss)
        return bool(finite.all()), f"{finite.sum()} of {len(finite)} steps"

    def loss_falls_percent(self, wanted: float) -> tuple[bool, str]:
        """Between means of the first and last fiftieth of the steps, at least three."""
        losses, few = self.history.loss, max(3, len(self.history) // 50)
        first, last = losses.head(few).mean(), losses.tail(few).mean()
        fall = 100 * (1 - last / first)
        return bool(fall >= wanted), f"{first:.2f} to {last:.2f} nats per token, {fall:.0f}% (wanted {wanted:g}%)"

    def smoothed_loss_decreases(self, wanted: bool) -> tuple[bool, str]:
        means = [some.mean() for some in np.array_split(self.history.loss.to_numpy(), 5)]
        return bool((np.diff(means) < 0).all()), "means of five parts: " + ", ".join(f"{mean:.2f}" for mean in means)

    def peak_memory(self, wanted: str) -> tuple[bool, str]:
        return self.peak_bytes <= parse_size(wanted), f"{in_units(self.peak_bytes)} (wanted at most {wanted})"

    def memory_growth_percent(self, wanted: float) -> tuple[bool, str]:
        """The upper end of the 95% interval of the slope of bytes held."""
        held = self.held[WARM_UP:]
        if len(held) < 3:
            return False, f"{len(self.held)} steps: expected at least {WARM_UP + 3}"
        line = stats.linregress(range(len(held)), held)
        error = line.stderr if len(set(held)) > 1 else 0.0  # a flat line has none
        margin = stats.t.ppf(0.975, len(held) - 2) * error
        low, high = (100 * 100 * a_step / self.peak_bytes for a_step in (line.slope - margin, line.slope + margin))
        return bool(high < wanted), f"{low:.3f}% to {high:.3f}% of the peak per 100 steps (wanted below {wanted:g}%)"

    def throughput_varies_percent(self, wanted: float) -> tuple[bool, str]:
        timed = self.history.iloc[WARM_UP:]
        timed = timed[~timed.memory_counted]  # counting takes time
        speeds, third = timed.tokens / timed.seconds, max(1, len(timed) // 3)
        first, last = speeds.head(third).median(), speeds.tail(third).median()
        change = 100 * abs(last / first - 1)
        measured = f"{first:,.0f} tokens/s in the first third, {last:,.0f} in the last: {change:.0f}%"
        return bool(change < wanted), f"{measured} (wanted below {wanted:g}%)"

    def gradients_flow(self, wanted: bool) -> tuple[bool, str]:
        faulty = self.flow[self.flow.fault != ""].groupby("fault").tensor.agg(["first", "size"])
        faults = "; ".join(f"{row.size} tensors such as {row.first}: {row.Index}" for row in faulty.itertuples())
        return faulty.empty, faults or "all that is trainable moves, nothing else does"

    def checkpoint_reloads(self, wanted: bool) -> tuple[bool, str]:
        return not self.reload_problem, self.reload_problem or "bit for bit"


EXPECTATIONS = [name for name, member in vars(Seen).items() if callable(member) and not name.startswith("_")]


@dataclass(frozen=True)
class Verdict:
    """Whether one expectation holds, and the figures."""

    expectation: str
    holds: bool
    figures: str

    def __str__(self) -> str:
        return f"[{'OK' if self.holds else 'FAIL'}] {self.expectation}: {self.figures}"


def check_expectations(expected: Mapping[str, object]) -> None:
    """Refuse unknown expectations and values, before any work."""
    for name, wanted in expected.items():
        if name not in EXPECTATIONS:
            raise ValueError(f"expect: {name!r} is unknown: expected some of {', '.join(EXPECTATIONS)}")
        kind = getattr(Seen, name).__annotations__["wanted"]
        if kind is str:
            parse_size(str(wanted))
        elif not is_a(kind, wanted) or not wanted > 0:
            raise ValueError(f"expect: {name}={wanted!r}: expected {'true' if kind is bool else 'a number above 0'}")


def judge(expected: Mapping[str, object], seen: Seen) -> list[Verdict]:
    """A verdict for each expectation."""
    return [Verdict(name, *getattr(seen, name)(wanted)) for name, wanted in expected.items()]


@contextmanager
def memory_watched(model: torch.nn.Module) -> Iterator[list[int]]:
    """Note the bytes of tensors that are held after each step of an optimizer."""
    held = []
    with track_memory(model) as track:
        noting = register_optimizer_step_post_hook(lambda *_: held.append(track.current))
        try:
            yield held
        finally:
            noting.remove()


def gradient_flow(report: StrategyReport, blocks: torch.Tensor) -> pd.DataFrame:
    """Take two steps, compare what moved with what a strategy declared trainable, and put the weights back.

    Args:
        blocks: token ids, shape (blocks, tokens).

    Returns:
        A row for each tensor. `norm_1` and `norm_2` are of the two gradients before clipping, NaN where none arrived.
    """
    # Weight decay would move what has no gradient.
    model, state = report.model, TrainingState(report.model, TrainingConfig(weight_decay=0.0), report.groups)
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    table = pd.DataFrame({"declared": {name: name in report.trainable for name in before}})
    table["trains"] = {name: tensor.requires_grad for name, tensor in model.named_parameters()}
    norms: dict[str, float] = {}
    hooks = [  # before clipping, once all micro-batches have been added up
        tensor.register_post_accumulate_grad_hook(lambda t, name=name: norms.update({name: t.grad.norm().item()}))
        for name, tensor in model.named_parameters()
        if tensor.requires_grad
    ]
    try:
        for step in (1, 2):
            start = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
            norms.clear()
            with suppress(NothingToTrain):  # then no gradient arrives anywhere
                take_step(state, blocks, LEARNING_RATE)
            table[f"norm_{step}"] = pd.Series(norms, dtype=float)
            table[f"moved_{step}"] = {name: not torch.equal(start[name], t) for name, t in model.named_parameters()}
    finally:
        for hook in hooks:
            hook.remove()
        with torch.no_grad():
            for name, tensor in model.named_parameters():
                tensor.copy_(before[name])
    norms, moved = table[["norm_1", "norm_2"]].to_numpy(), table[["moved_1", "moved_2"]].to_numpy()
    reached, trains = (norms > 0).any(axis=1), table.declared & table.trains
    faults = {
        "declared trainable, but frozen since": table.declared & ~table.trains,
        "trainable, but no gradient reaches it": trains & ~reached,
        "has a gradient, but a step is lost in its rounding": trains & ((norms > 0) & ~moved).any(axis=1),
        "declared frozen, but receives a gradient or moves": ~table.declared & (reached | moved.any(axis=1)),
    }
    table["fault"] = np.select(list(faults.values()), list(faults), default="")
    return table.rename_axis("tensor").reset_index()
