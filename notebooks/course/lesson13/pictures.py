"""Pictures of classes of texts: where the head reads, which depth knows them, how many texts it takes."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from torch import nn

from tlkit.models.adapters import base_model, class_head
from tlkit.models.parts import find_blocks
from tlkit.reports.drawing import INK, PASSED, SPARED, TRAINED, arrow, box, paper
from tlkit.reports.figure import FAINT, Chart, described, headline, new_figure, styles
from tlkit.reports.findings import listed
from tlkit.reports.labels import label_ends

GUESS = "one class for all"  # the dashed line
MOST_NAMED = 12  # of a deep model's blocks, below the axis


@described
def class_head_picture(model: nn.Module, texts: Sequence[Sequence[str]]) -> Chart:
    """A classifier reads the class of a text off the hidden state of its last token, and not off the padding behind it.

    Args:
        model: a classifier whose head is one matrix, also one on paper.
        texts: the tokens of two texts, as text; the shorter one is filled up with padding.
    """
    classes, width = class_head(model)[0].shape
    blocks = len(find_blocks(base_model(model)))
    columns = max(map(len, texts))
    step = 66 / columns
    figure, axes = paper(4.3, 100, 50, bottom=1)
    box(axes, (76, 20.5), 14, 9, "head W", f"({classes}, {width})", facecolor=TRAINED, rounding=0.8)
    axes.texts[-1].set_color("white")
    for row, tokens in enumerate(texts):
        base = 29 - 26 * row
        for place in range(columns):
            left, real = place * step, place < len(tokens)
            look = {"facecolor": PASSED if real else "white", "linestyle": "-" if real else ":", "rounding": 0.4}
            token = tokens[place].strip() if real else "pad"
            box(axes, (left + 0.4, base), step - 0.8, 4, token, fontsize="x-small", **look)
            arrow(axes, (left + step / 2, base + 4), (left + step / 2, base + 6), linewidth=0.8)
            shade = TRAINED if place == len(tokens) - 1 else PASSED if real else "white"
            box(axes, (left + 0.28 * step, base + 12.5), 0.44 * step, 3.5, **look | {"facecolor": shade})
            arrow(axes, (left + step / 2, base + 10.5), (left + step / 2, base + 12.5), linewidth=0.8)
        told = f"embedding and {blocks} blocks: a token sees itself and those before it"
        box(axes, (0.4, base + 6), columns * step - 0.8, 4.5, told, facecolor=SPARED, rounding=0.4)
        _read_off(axes, ((len(tokens) - 0.5) * step, base + 16), row)
        arrow(axes, (90, 27 - 4 * row), (94, 27 - 4 * row))
        axes.text(94.6, 27 - 4 * row, f"text {row + 1}", fontsize="small", va="center", color=INK)
    axes.text(96, 31.5, f"{classes} logits", fontsize="small", ha="center", va="bottom", color=INK)
    axes.text(0.4, 46, f"hidden states: {width} numbers for each token", fontsize="small", va="bottom", color=FAINT)
    figure.words = tuple(
        f"text {row + 1} has {len(tokens)} tokens and {columns - len(tokens)} of padding; the head reads the hidden "
        f"state of {tokens[-1].strip()!r}"
        for row, tokens in enumerate(texts)
    )
    headline(figure, "The class is read off the last token of the text, which alone has seen all of it")
    return figure


def _read_off(axes: Axes, start: tuple[float, float], row: int) -> None:
    """The way from a hidden state to the head: from above for the first text, from the left for the second."""
    corners = ([(start[0], 47.5), (83, 47.5), (83, 29.5)], [(start[0], 23), (76, 23)])[row]
    axes.plot(*zip(start, *corners[:-1], strict=True), color=TRAINED, linewidth=1.6)
    arrow(axes, corners[-2], corners[-1], shade=TRAINED)


@described
def depth_chart(curves: dict[str, Sequence[float]], classes: int) -> Chart:
    """How well a linear classifier tells the classes from the features at each depth of a model, by balanced accuracy.

    Args:
        curves: by the name of a line its balanced accuracies, from 0 to 1, from the embedding to the last block.
        classes: how many there are, for the dashed line of who always says the same.
    """
    figure, axes = new_figure()
    drawn, ends, shades = styles(curves), {}, {}
    for name, values in curves.items():
        percent = [100 * value for value in values]
        shades[name], form = drawn[name]
        axes.plot(range(len(percent)), percent, color=shades[name], marker=form)
        best = percent.index(max(percent))
        ring = {"markersize": 15, "markerfacecolor": "none", "markeredgecolor": shades[name], "markeredgewidth": 1.5}
        axes.plot(best, percent[best], "o", **ring)
        ends[name] = (len(percent) - 1, percent[-1])
    layers = max(map(len, curves.values()))
    _guess_line(axes, classes)
    axes.set_ylim(0, 5 + 100 * max(map(max, curves.values())))
    shown = range(0, layers, -(-layers // MOST_NAMED))
    axes.set_xticks(shown, ["embed-\nding", *(f"block\n{place - 1}" for place in shown[1:])])
    axes.set_xlabel("the features are what comes out of this part of the model")
    axes.set_ylabel("balanced accuracy (%)")
    label_ends(axes, ends, shades)
    best = max(curves, key=lambda name: max(curves[name]))
    place = list(curves[best]).index(max(curves[best]))
    where = "the embedding" if place == 0 else f"block {place - 1}"
    headline(figure, f"The best features here, {100 * max(curves[best]):.0f}%: {best}, out of {where}")
    return figure


@described
def examples_chart(record: pd.DataFrame, classes: int) -> Chart:
    """Balanced accuracy against how many labelled texts were trained on: a line through the means, a dot for each run.

    Args:
        record: a row for each run, with columns strategy, passages and balanced_accuracy, from 0 to 1.
        classes: how many there are, for the dashed line of who always says the same.
    """
    figure, axes = new_figure(4.8)
    drawn, ends, shades = styles(record.strategy), {}, {}
    for name, part in record.groupby("strategy", sort=False):
        mean = 100 * part.groupby("passages").balanced_accuracy.mean()
        shades[name], form = drawn[name]
        axes.plot(mean.index, mean, color=shades[name], marker=form, label=name)
        if len(part) > len(mean):
            axes.plot(part.passages, 100 * part.balanced_accuracy, ".", color=shades[name], alpha=0.5)
        ends[name] = (mean.index[-1], mean.iloc[-1])
    sizes = sorted(record.passages.unique())
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.set_xticks([], minor=True)
    _guess_line(axes, classes)
    axes.set_ylim(0, 5 + 100 * record.balanced_accuracy.max())
    axes.set_xlabel("labelled texts that were trained on (log scale)")
    axes.set_ylabel("balanced accuracy (%)")
    label_ends(axes, ends, shades)
    means = record.groupby(["passages", "strategy"]).balanced_accuracy.mean()
    best = {size: means[size].idxmax() for size in sizes}
    told = []
    for name in dict.fromkeys(best.values()):
        those = [f"{size:g}" for size in sizes if best[size] == name]
        told.append(f"{name} (all sizes)" if len(those) == len(sizes) else f"{name} ({listed(those)} texts)")
    headline(figure, f"Highest: {'; '.join(told)}")
    return figure


def _guess_line(axes: Axes, classes: int) -> None:
    """A dashed line at what someone reaches who puts every text into the same class."""
    axes.axhline(100 / classes, color=INK, linestyle="--", linewidth=1.2)
    beside = {"xytext": (4, -3), "textcoords": "offset points", "fontsize": "small", "va": "top"}
    told, where = f"{GUESS}: {100 / classes:.0f}%", axes.get_yaxis_transform()
    axes.annotate(told, (0, 100 / classes), xycoords=where, **beside)
