"""Pictures of lesson 7: what training only the last blocks costs, and where a frozen prefix ends."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.patches import Rectangle

from tlkit.models.parts import find_blocks
from tlkit.reports.drawing import BEHIND, GRADIENT, INK, PASSED, SPARED, TRAINED, arrow, box, paper
from tlkit.reports.figure import COLOURS, Chart, described, headline
from tlkit.strategies import StrategyReport

STORED, FADED = COLOURS[2], "#BBBBBB"


@described
def trained_depth_chart(runs: pd.DataFrame, untrained: float) -> Chart:
    """What training more of the last blocks costs in arithmetic, and the perplexity it reaches; each dot is one seed.

    Args:
        runs: a row for each run, with columns blocks (how many were trained, from 1 on), arithmetic (of a step, in
            percent of training all blocks) and perplexity (on validation text).
        untrained: the perplexity before training.
    """
    figure, (left, right) = plt.subplots(1, 2, FigureClass=Chart, figsize=(8, 4), layout="constrained")
    plt.close(figure)
    by_depth = runs.groupby("blocks")
    cost, reached = by_depth.arithmetic.first(), by_depth.perplexity.mean()
    places = range(len(cost))
    left.bar(places, cost, color=TRAINED, edgecolor=INK)
    for place, percent in enumerate(cost):
        left.text(place, percent + 1.5, f"{percent:.0f}%", ha="center", fontsize="small")
    left.set_ylim(0, 1.12 * max(cost))
    left.set_ylabel(f"arithmetic of a step (% of training {cost.index[-1]} blocks)")
    right.plot(places, reached, color=TRAINED)
    right.plot(runs.blocks.map(list(cost.index).index), runs.perplexity, "o", color=TRAINED, alpha=0.6)
    beside = {"textcoords": "offset points", "ha": "left", "va": "center", "fontsize": "small"}
    for place, value in enumerate(reached):
        right.annotate(f"{value:.0f}", (place, value), (8, 3), **beside)
    right.margins(x=0.12)
    right.set_ylabel("validation perplexity (a dot: one seed)")
    bottom, top = right.get_ylim()
    right.set_ylim(bottom, top + 0.25 * (top - bottom))
    # The value before training is far above what is compared, so it only stands at the edge.
    edge = {"xycoords": "axes fraction", "textcoords": "axes fraction"}
    edge |= {"ha": "center", "va": "top", "fontsize": "small"}
    upwards = {"arrowstyle": "-|>", "color": INK}
    right.annotate(f"before training: {untrained:.0f}", (0.7, 1.0), (0.7, 0.91), arrowprops=upwards, **edge)
    for axes in (left, right):
        axes.set_xticks(places, [str(depth) for depth in cost.index])
        axes.set_xlabel("last blocks that are trained")
        axes.grid(axis="y", alpha=0.3)
    gained = (untrained - reached) / (untrained - reached.iloc[-1])
    headline(
        figure,
        f"The last block alone takes {cost.iloc[0]:.0f}% of the arithmetic of {cost.index[-1]} blocks and brings "
        f"{100 * gained.iloc[0]:.0f}% of their fall in perplexity",
    )
    return figure


@described
def prefix_picture(report: StrategyReport, kept: int) -> Chart:
    """What is computed in the first pass and in each later pass, where the output of the frozen lower part is stored.

    Args:
        report: what `apply_strategy` returned.
        kept: how many of the lowest blocks are passed over later.
    """
    figure, axes = paper(4.2, 1.01, 2.75, left=-0.01, bottom=-0.45)
    depth = len(find_blocks(report.model))
    names = ["embed-\nding", *map(str, range(depth)), "norm", "head"]
    trained = [bool(report.components.get(f"block {name}", (0,))[0]) for name in names]
    step = 1 / (len(names) + 1)  # a gap for the store
    for title, base, spared in (("first pass over a batch", 1.6, False), ("every later pass over it", 0, True)):
        axes.text(0, base + 1.0, title, fontweight="bold", color=INK, va="center")
        for place, name in enumerate(names):
            left = step * (place + (place > kept))
            skipped = spared and place <= kept
            shade = TRAINED if trained[place] else "white" if skipped else SPARED if place <= kept else PASSED
            colour = "white" if trained[place] else FADED if skipped else INK
            style = {"facecolor": shade, "edgecolor": FADED if skipped else INK, "linestyle": ":" if skipped else "-"}
            hatch = {} if trained[place] or place <= kept else {"hatch": "//"}
            box(axes, (left, base + 0.3), 0.88 * step, 0.45, rounding=0.008, **style, **hatch)
            middle = (left + 0.44 * step, base + 0.52)
            behind = BEHIND if hatch else None
            axes.text(*middle, name, ha="center", va="center", color=colour, fontsize="small", bbox=behind)
        store = step * (kept + 1)
        axes.add_patch(Rectangle((store + 0.02 * step, base + 0.2), 0.8 * step, 0.65, facecolor=STORED, edgecolor=INK))
        word = "read" if spared else "store"
        axes.text(store + 0.42 * step, base + 0.52, word, color="white", ha="center", va="center", fontsize="small")
        start = store + 0.5 * step if spared else 0
        arrow(axes, (start, base + 0.1), (1, base + 0.1))
        axes.text(start, base + 0.02, "forward pass", fontsize="small", color=INK, va="top")
        lowest = step * (trained.index(True) + 1)
        arrow(axes, (1, base - 0.15), (lowest, base - 0.15), shade=GRADIENT)
        axes.text(1, base - 0.2, "backpropagation", fontsize="small", color=GRADIENT, ha="right", va="top")
    headline(figure, f"Embedding and blocks 0 to {kept - 1} are computed once for each text")
    figure.words = (
        f"the first pass computes everything and stores what leaves block {kept - 1}",
        f"a later pass reads it and begins at block {kept}",
    )
    return figure
