"""Whether a training step fits a card, and what would make it fit."""

from dataclasses import dataclass
from functools import cached_property

import ipywidgets as ipw
from matplotlib.figure import Figure

from course.panels.recommendation import Recommendation, recommend
from course.panels.views import Panel, View, button, choice, new_figure, on_change, row
from tlkit.fitting.estimate import CARD_SHARE, DTYPES, MemoryEstimate, estimate_memory
from tlkit.memory import VirtualDevice, in_units
from tlkit.names import CLASSIC
from tlkit.presets import PRESETS
from tlkit.reports.figure import COLOURS, INK
from tlkit.settings import Plan

# Kinds of bytes, from bottom to top: what is there all the time lies lowest. The numbers are places in `COLOURS`.
KINDS = {"weights": 0, "optimizer state": 2, "gradients": 1, "activations": 3, "logits and loss": 4, "temporary": 5}
# Gigabytes of common cards, each of which has as many bytes as a GiB.
CARDS = {"RTX 4060 8GB": 8, "RTX 4060 Ti 8GB": 8, "RTX 3060 12GB": 12, "RTX 4060 Ti 16GB": 16}
CARDS |= {"RTX 4090 24GB": 24, "A100 40GB": 40, "A100 80GB": 80}
SWITCHES = {"activation_checkpointing": "Activation checkpointing", "chunked_loss": "Chunked loss"}


@dataclass(frozen=True)
class Step:
    """One training step with AdamW, and the card that it should fit.

    Attributes:
        model: a preset.
        strategy: what is trained.
        dtype: of the weights: fp32, bf16 or fp16.
        batch_size: rows in the step.
        sequence_length: tokens in a row.
        micro_batch_size: rows in one forward pass; 0 for all of them.
        activation_checkpointing: whether activations are computed again in the backward pass.
        chunked_loss: whether head and loss are computed for a few tokens at a time.
        card: one of `CARDS`.
    """

    model: str = "qwen2-0.5b"
    strategy: str = "full"
    dtype: str = "fp32"
    batch_size: int = 1
    sequence_length: int = 512
    micro_batch_size: int = 0
    activation_checkpointing: bool = False
    chunked_loss: bool = False
    card: str = "RTX 4060 8GB"

    @property
    def plan(self) -> Plan:
        """How the step is carried out."""
        micro = self.micro_batch_size if 0 < self.micro_batch_size < self.batch_size else None
        return Plan(micro, chunked_loss=self.chunked_loss, activation_checkpointing=self.activation_checkpointing)

    @property
    def device(self) -> VirtualDevice:
        """The card, played."""
        return VirtualDevice(f"{self.card}, virtual", CARDS[self.card] * 2**30)

    @cached_property
    def estimate(self) -> MemoryEstimate:
        """Bytes that the step needs; a few seconds for a large model, and at once when it is asked for again."""
        shape = {"batch_size": self.batch_size, "sequence_length": self.sequence_length}
        return estimate_memory(self.model, self.strategy, dtype=self.dtype, plan=self.plan, **shape)


def memory_view(step: Step, before: MemoryEstimate | None = None) -> View:
    """Compare the bytes of a step with what a card can give.

    Args:
        step: what is to be done, and where.
        before: of another step, drawn above it for comparison.
    """
    usable, estimate = int(CARD_SHARE * step.device.budget), step.estimate
    largest = max(estimate.categories, key=estimate.categories.get)
    share = f"{100 * estimate.categories[largest] / estimate.peak:.0f}% of it {largest}"
    needs = f"{step.strategy} on {step.model} needs {in_units(estimate.peak)}, {share}."
    fits, apart = estimate.peak <= usable, in_units(abs(usable - estimate.peak))
    verdict = f"Fits {step.card}: {apart} are left of" if fits else f"Does not fit {step.card}: {apart} more than"
    bars = ({"before": before} if before else {}) | {"now": estimate}
    return View(f"{verdict} the {in_units(usable)} it can give. {needs}", memory_figure(bars, step.card, usable))


def memory_figure(bars: dict[str, MemoryEstimate], card: str, usable: int) -> Figure:
    """Draw the kinds of bytes of each step as a bar, and what the card can give as a line.

    Args:
        bars: from top to bottom; all but the last are pale.
        card: its name.
        usable: bytes that it can give.
    """
    figure, (axes,) = new_figure(1.5 + 0.35 * len(bars))
    unit, divisor = ("GiB", 2**30) if max(bar.peak for bar in bars.values()) >= 2**30 else ("MiB", 2**20)
    for name, estimate in bars.items():
        left, alpha = 0.0, 1 if name == list(bars)[-1] else 0.4
        for kind, place in KINDS.items():
            size = estimate.categories[kind] / divisor
            label = kind if alpha == 1 else None
            axes.barh(name, size, left=left, color=COLOURS[place], edgecolor="white", alpha=alpha, label=label)
            left += size
        axes.annotate(f" {left:.3g} {unit}", (left, name), va="center", fontweight="bold")
    axes.axvline(usable / divisor, color=INK, linestyle="--", linewidth=2)
    axes.set_title(f"{CARD_SHARE:.0%} of {card}: {in_units(usable)}", fontsize="medium", fontweight="bold")
    axes.set_xlim(0, 1.15 * max(usable, *(bar.peak for bar in bars.values())) / divisor)
    axes.invert_yaxis()
    axes.set_xlabel(f"peak of a training step ({unit})")
    figure.legend(loc="outside lower center", ncols=len(KINDS) // 2, frameon=False)
    return figure


def way_to_fit(step: Step) -> Recommendation:
    """Find what makes a step fit its card: another plan, which leaves the result as it is, or else another strategy.

    Raises:
        MemoryError: with numbers, where nothing fits.
    """
    card, shape = step.device, {"batch_size": step.batch_size, "sequence_length": step.sequence_length}
    try:
        return recommend(card, step.model, step.strategy, dtype=step.dtype, plan=step.plan, **shape)
    except MemoryError:
        return recommend(card, step.model, **shape)


def memory_explorer() -> Panel:
    """Turn the controls of a training step, and see whether it fits; from code: `memory_view(Step(...))`."""
    first = Step()
    sizes = [1, 2, 4, 8, 16, 32]
    controls = {
        "model": choice("Model", list(PRESETS), first.model),
        "strategy": choice("Strategy", list(CLASSIC), first.strategy),
        "dtype": choice("Weights in", list(DTYPES), first.dtype),
        "card": choice("Card", list(CARDS), first.card),
        "batch_size": choice("Batch size", sizes, first.batch_size),
        "sequence_length": choice("Sequence length", [32, 64, 128, 256, 512, 1024, 2048], first.sequence_length),
        "micro_batch_size": choice("Micro-batch", [("whole batch", 0), *((str(size), size) for size in sizes)], 0),
    }
    switches = {
        name: ipw.ToggleButton(value=False, description=label, layout={"width": "auto"})
        for name, label in SWITCHES.items()
    }
    settings, shown, setting = controls | switches, [], False

    def step() -> Step:
        return Step(**{name: control.value for name, control in settings.items()})

    def update() -> None:
        if setting:
            return
        with panel.working("estimating, a few seconds for a large model"):
            now = step()
            last = shown[-1] if shown and shown[-1].model == now.model else None
            panel.show(memory_view(now, last.estimate if last else None))
            shown.append(now)

    def propose() -> None:
        nonlocal setting
        with panel.working("trying one change after the other, up to half a minute for a large model"):
            way = way_to_fit(step())
            setting = True
            for name, value in {**vars(way.plan), "strategy": way.strategy, "dtype": way.dtype}.items():
                if name in settings:
                    settings[name].value = value or 0 if name == "micro_batch_size" else value
            setting = False
            update()

    ask = button("What would make it fit?", "Set the controls to the first way that fits", propose, space=True)
    panel = Panel(row(*controls.values(), *switches.values(), ask))
    on_change(update, *settings.values())
    update()
    return panel
