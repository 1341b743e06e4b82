"""Pictures of lesson 7: what a training step computes, block by block, and what a frozen block saves."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from tlkit.reports.diagrams import places_of
from tlkit.reports.drawing import GRADIENT, INK, TRAINED
from tlkit.reports.figure import COLOURS, SIZE, Chart, described, headline, new_figure
from tlkit.strategies import StrategyReport

FORWARD, FAINT = "#BBBBBB", "#666666"
PRODUCTS = {"forward": FORWARD, "gradient of the input": GRADIENT, "gradient of the weights": TRAINED}


def products_of(report: StrategyReport) -> dict[str, tuple[bool, ...]]:
    """Which of the three matrix products a training step computes in each block.

    Args:
        report: what `apply_strategy` or `describe` returned; its blocks are trained whole or not at all.

    Returns:
        For each of `PRODUCTS` a truth value a block, the lowest block first.
    """
    blocks = [place for place in places_of(report) if place.name.isdigit()]
    return {
        "forward": tuple(True for _ in blocks),
        "gradient of the input": tuple(place.reached for place in blocks),
        "gradient of the weights": tuple(place.trained > 0 for place in blocks),
    }


@described
def products_chart(*reports: StrategyReport) -> Chart:
    """The three matrix products of a training step in every block: which are computed, and which are saved.

    Args:
        *reports: what `apply_strategy` or `describe` returned; one grid each, the first as the reference.
    """
    figure, axes = new_figure(height=0.8 + 1.5 * len(reports))
    words = []
    for place, report in enumerate(reports):
        done = products_of(report)
        computed, whole = sum(map(sum, done.values())), 3 * len(done["forward"])
        words.append(f"{report.strategy}: {computed} of {whole} products are computed ({computed / whole:.0%})")
        _draw_products(axes, done, -4.6 * place, words[-1])
    depth = len(done["forward"])
    figure.words = tuple(words)
    axes.set_xlim(-0.1, depth + 0.1)
    axes.set_ylim(-4.6 * (len(reports) - 1) - 1.0, 4.1)
    axes.axis("off")
    kinds = {name: Patch(facecolor=shade, edgecolor=INK) for name, shade in PRODUCTS.items()}
    kinds["not needed"] = Patch(facecolor="white", edgecolor=FAINT, linestyle=":")
    figure.legend(kinds.values(), kinds, loc="outside lower center", ncols=4, fontsize="small", frameon=False)
    headline(figure, "A frozen block needs no gradient of its weights, and none of its input if all below is frozen")
    return figure


def _draw_products(axes: Axes, done: dict[str, tuple[bool, ...]], base: float, title: str) -> None:
    """A grid three cells high, one column a block; a product that is not computed is an empty cell."""
    axes.text(0, base + 3.45, title, fontweight="bold", color=INK, va="center")
    for row, (name, blocks) in enumerate(done.items()):
        for number, computed in enumerate(blocks):
            style = {"facecolor": PRODUCTS[name], "edgecolor": INK} if computed else {}
            style = style or {"facecolor": "white", "edgecolor": FAINT, "linestyle": ":"}
            axes.add_patch(Rectangle((number + 0.04, base + 2 - row + 0.06), 0.92, 0.88, **style))
    for number in range(len(blocks)):
        axes.text(number + 0.5, base - 0.12, f"block {number}", ha="center", va="top", fontsize="small", color=INK)


@described
def frozen_depth_chart(costs: pd.DataFrame, runs: pd.DataFrame) -> Chart:
    """What freezing more of the lower blocks saves in arithmetic and memory, and what it costs in perplexity.

    Args:
        costs: a row for each choice, with columns frozen (blocks), embedding ("trained" or "frozen"), arithmetic
            (percent of full fine-tuning) and memory_mb.
        runs: a row for each run, with columns frozen, seed and perplexity, the embedding trained.
    """
    figure, panels = plt.subplots(1, 3, FigureClass=Chart, figsize=SIZE, layout="constrained")
    plt.close(figure)
    for axes, column, label in (
        (panels[0], "arithmetic", "arithmetic (% of full fine-tuning)"),
        (panels[1], "memory_mb", "peak memory of tensors (MB)"),
    ):
        for (name, part), shade, symbol in zip(costs.groupby("embedding"), (COLOURS[1], COLOURS[0]), "so", strict=True):
            axes.plot(part.frozen, part[column], color=shade, marker=symbol, label=f"embedding {name}")
        axes.set_ylim(0, 1.05 * costs[column].max())
        axes.set_title(label, fontsize="medium")
    mean = runs.groupby("frozen").perplexity.mean()
    panels[2].plot(mean.index, mean, color=COLOURS[0], linewidth=1, alpha=0.5)
    for number, (_, part) in enumerate(runs.groupby("seed")):
        panels[2].plot(part.frozen, part.perplexity, "o^s"[number % 3], color=COLOURS[0], markersize=5)
    panels[2].set_title("perplexity (one mark per seed)", fontsize="medium")
    for axes in panels:
        axes.set_xlabel("lower blocks frozen")
        axes.set_xticks(sorted(costs.frozen.unique()))
        axes.grid(alpha=0.3)
    deepest = costs[costs.frozen == costs.frozen.max()].set_index("embedding").arithmetic
    left, cut = (f"{deepest[name]:.0f}%" for name in ("trained", "frozen"))
    finding = (
        f"Freezing {costs.frozen.max()} blocks leaves {left} of the arithmetic, {cut} with the embedding frozen too"
    )
    headline(figure, finding)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, fontsize="small", frameon=False)
    return figure
