"""Pictures of training, step by step: AdamW's two moments, learning rate, clipping, and documents in one block."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from tlkit.reports.drawing import ADAPTER, GRADIENT, INK, PASSED, TRAINED
from tlkit.reports.figure import Chart, described, headline, mark, new_figure


@described
def moments_chart(table: pd.DataFrame) -> Chart:
    """Of one weight, step by step: its gradient, AdamW's two moments of it, and how far the weight moves.

    Args:
        table: a row for each step, with columns gradient (after clipping), first and second (the two moments, corrected
            for their start at zero) and rate (the learning rate).
    """
    figure, (top, bottom) = _panels_above(2, height=5.2)
    steps = range(1, len(table) + 1)
    top.bar(steps, table.gradient, color=PASSED, edgecolor=INK, label="gradient")
    top.plot(steps, table["first"], color=TRAINED, marker="o", label="first moment (average)")
    root = "root of the second moment (typical size)"
    top.plot(steps, table.second**0.5, color=GRADIENT, marker="s", label=root)
    top.axhline(0, color=INK, linewidth=0.8)
    top.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    top.set_ylabel("gradient of one weight")
    ratio = table["first"] / table.second**0.5
    bottom.bar(steps, ratio, color=ADAPTER, edgecolor=INK)
    for limit in (-1, 1):
        bottom.axhline(limit, color=INK, linestyle="--", linewidth=0.8)
    bottom.set_ylim(-1.25, 1.25)
    bottom.set_ylabel("first moment ÷\nroot of the second")
    bottom.set_xlabel("optimizer step")
    bottom.xaxis.set_major_locator(MaxNLocator(integer=True))
    headline(figure, "The first step has full length, and later ones are shorter because gradients disagree")
    figure.align_ylabels()
    return figure


@described
def training_chart(history: pd.DataFrame, max_gradient_norm: float, warmup_steps: int) -> Chart:
    """Learning rate, gradient norm and loss of each step.

    Args:
        history: of a training result: a row for each step, with columns step, learning_rate, gradient_norm, loss.
        max_gradient_norm: to which longer gradients are cut.
        warmup_steps: in which the rate rises.
    """
    figure, (rate, norm, loss) = _panels_above(3, height=6)
    rate.plot(history.step, history.learning_rate, color=TRAINED, marker="o")
    rate.axvspan(history.step.min(), max(warmup_steps, 1), color=PASSED, alpha=0.7)
    highest = history.learning_rate.max()
    rate.text(warmup_steps + 0.2, 0.1 * highest, "← warm-up", fontsize="small")
    rate.text(history.step.max(), 0.75 * highest, "cosine", fontsize="small", ha="right")
    rate.set_ylabel("learning rate")
    norm.bar(history.step, history.gradient_norm, color=PASSED, edgecolor=INK)
    norm.bar(history.step, history.gradient_norm.clip(upper=max_gradient_norm), color=TRAINED, edgecolor=INK)
    norm.axhline(max_gradient_norm, color=GRADIENT, linestyle="--")
    norm.set_ylim(0, 1.35 * history.gradient_norm.max())
    told = f"dark: what is left after clipping to {max_gradient_norm:g}"
    norm.text(history.step.max(), 1.18 * history.gradient_norm.max(), told, fontsize="small", ha="right")
    norm.set_ylabel("gradient norm")
    loss.plot(history.step, history.loss, color=TRAINED, marker="o")
    loss.set_ylabel("loss (nats)")
    loss.set_xlabel("optimizer step")
    loss.xaxis.set_major_locator(MaxNLocator(integer=True))
    cut = int((history.gradient_norm > max_gradient_norm).sum())
    count = f"all {cut}" if cut == len(history) else f"{cut} of {len(history)}"
    headline(figure, f"The rate rises and falls, the loss jumps from batch to batch, and {count} gradients are clipped")
    figure.align_ylabels()
    return figure


@described
def borders_chart(differences: Mapping[str, Sequence[float]], title: str) -> Chart:
    """Change in the loss of a document's first tokens for what stands before it, with 95% intervals over documents.

    Args:
        differences: for each case, the change of every document in nats per token.
        title: of the chart.
    """
    figure, axes = new_figure(height=1.3 + 0.5 * len(differences))
    for place, values in enumerate(differences.values()):
        values = pd.Series(list(values), dtype=float)
        half = 1.96 * values.sem()
        axes.errorbar(values.mean(), place, xerr=half, fmt="o", color=TRAINED, ecolor=INK, capsize=4)
        told = f"{values.mean():+.2f} ± {half:.2f}"
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        axes.text(values.mean(), place - 0.15, told, ha="center", va="bottom", fontsize="small", bbox=behind)
    axes.set_yticks(range(len(differences)), list(differences))
    axes.set_ylim(len(differences) - 0.5, -0.7)
    axes.margins(x=0.2)
    axes.set_xlabel("change of its loss (nats per token; lines: 95% interval over documents)")
    axes.set_ylabel("what precedes the document")
    mark(axes, 0, "the document alone")
    headline(figure, title)
    return figure


def _panels_above(count: int, height: float) -> tuple[Chart, list[Axes]]:
    """Panels one above the other, on one horizontal axis."""
    figure, first = new_figure(height=height)
    first.remove()
    panels = list(figure.subplots(count, 1, sharex=True))
    for panel in panels:
        panel.grid(alpha=0.3)
        panel.set_axisbelow(True)
    return figure, panels
