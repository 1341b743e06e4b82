"""Pictures of lessons 6 and 7: the token table and its two uses, and what training only the last blocks costs."""

import matplotlib.pyplot as plt
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from torch import nn

from tlkit.reports.diagrams import human
from tlkit.reports.drawing import BEHIND, GRADIENT, INK, PASSED, SPARED, TRAINED, arrow, box, paper
from tlkit.reports.figure import COLOURS, Chart, described, headline, new_figure
from tlkit.strategies import StrategyReport, find_blocks, is_tied

STORED, LOOKED_UP, LINE, FADED = COLOURS[2], COLOURS[4], "#D0D0D0", "#BBBBBB"


@described
def table_uses(model: nn.Module, tokens: dict[int, str]) -> Chart:
    """Where a model uses its token table: read row by row to look tokens up, and multiplied whole to score them.

    Args:
        model: tied or not; only shapes are read.
        tokens: two to six tokens of a text, by number.
    """
    rows, width = model.get_input_embeddings().weight.shape
    figure, axes = paper(5.4, 8, 5.4)
    tied = is_tied(model)
    shape = f"{rows:,} rows\n× {width:,}"
    if tied:
        _draw_table(axes, 0.55, 4.4, f"E\n{shape}", rows, tokens)
    else:
        _draw_table(axes, 0.55, 2.3, f"E\n{shape}", rows, tokens)
        _draw_table(axes, 3.05, 1.9, f"head W\n{shape}", rows, {})
    read = 0.55 + 0.35 * (4.4 if tied else 2.3)
    words = {"color": INK, "fontsize": "small", "ha": "center", "va": "center", "fontweight": "bold"}
    arrow(axes, (1.6, read), (3.75, 1.12), shade=LOOKED_UP)
    axes.text(2.62, 0.95, "1. look up:\nread one row a token", **words)
    arrow(axes, (1.6, 4.0), (3.75, 4.35), shade=GRADIENT)
    axes.text(2.7, 4.72, "2. score: multiply\nby every row", **words)
    names = ("logits", "hidden states", "embeddings", "tokens")
    formulas = (f"Z = H {'E' if tied else 'W'}ᵀ", "H", "X = E[t]", "t")
    for name, formula, size, bottom in zip(names, formulas, (rows, width, width, 0), (4.1, 3.2, 0.9, 0.1), strict=True):
        _draw_vectors(axes, bottom, list(tokens.items()), size)
        label = f"{name}\n{formula}: T × {size:,}" if size else f"{name}\nt: T numbers"
        axes.text(6.35, bottom + 0.22, label, fontsize="small", color=INK, va="center")
    blocks = len(find_blocks(model))
    box(axes, (3.95, 1.75), 2.1, 1.0, f"{blocks} blocks\nand the final norm", facecolor=PASSED, rounding=0.08)
    for low, high in ((0.55, 0.88), (1.36, 1.73), (2.77, 3.18), (3.66, 4.08)):
        arrow(axes, (5.0, low), (5.0, high))
    finding = "One matrix, two uses: the head is tied" if tied else "Two matrices, one for each use: nothing is tied"
    headline(figure, finding)
    figure.words = (
        f"{len(tokens)} rows of the table of {rows:,} x {width:,} are read at the bottom",
        f"{'the same table' if tied else 'another table'} is multiplied with the hidden states at the top",
    )
    return figure


def _draw_table(axes: Axes, bottom: float, height: float, name: str, rows: int, tokens: dict[int, str]) -> None:
    """A tall matrix between 0.5 and 1.6 on the horizontal axis, the rows of the tokens marked."""
    axes.add_patch(Rectangle((0.5, bottom), 1.1, height, facecolor="white", edgecolor=INK, linewidth=1.5))
    for line in range(1, 20):
        axes.plot([0.52, 1.58], 2 * [bottom + height * line / 20], color=LINE, linewidth=0.8)
    for place, number in enumerate(sorted(tokens, reverse=True)):
        at = bottom + height * (0.06 + 0.58 * place / max(1, len(tokens) - 1))
        axes.add_patch(Rectangle((0.5, at), 1.1, 0.09, facecolor=LOOKED_UP, edgecolor="none", zorder=3))
        axes.text(0.45, at + 0.045, f"{number}", fontsize="x-small", ha="right", va="center", color=INK)
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 2}
    axes.text(1.05, bottom + 0.84 * height, name, ha="center", va="center", color=INK, zorder=3, bbox=behind)


def _draw_vectors(axes: Axes, bottom: float, tokens: list[tuple[int, str]], size: int) -> None:
    """One box for each token, side by side around the middle of the network."""
    step = 2.4 / len(tokens)
    for place, (number, text) in enumerate(tokens):
        left = 3.8 + step * place
        style = {"facecolor": "white" if size else SPARED, "edgecolor": INK}
        axes.add_patch(Rectangle((left + 0.05, bottom), step - 0.1, 0.44, **style))
        if size:
            for line in range(1, 5):
                at = left + 0.05 + (step - 0.1) * line / 5
                axes.plot([at, at], [bottom + 0.03, bottom + 0.41], color=LINE, linewidth=0.8)
        else:
            told = f"{text if text.strip() else '␣'}\n{number}"
            axes.text(left + step / 2, bottom + 0.22, told, ha="center", va="center", fontsize="x-small")


@described
def row_gradients_chart(lookup: torch.Tensor, head: torch.Tensor, answers: torch.Tensor | None = None) -> Chart:
    """Length of the gradient in each row of a tied token table, from its two uses apart; rows without one are left out.

    Args:
        lookup: the part of the gradient that comes through the lookup, shape (rows, width).
        head: the part that comes from the head, of the same shape.
        answers: numbers of the tokens that were right answers; they are marked among the rows of the head.
    """
    figure, panels = plt.subplots(1, 2, FigureClass=Chart, figsize=(8, 3.8), sharey=True, layout="constrained")
    plt.close(figure)
    parts = {"from the lookup": (lookup, LOOKED_UP), "from the head": (head, GRADIENT)}
    counts = []
    for axes, (name, (gradient, shade)) in zip(panels, parts.items(), strict=True):
        norms = gradient.norm(dim=1)
        reached = norms.nonzero().flatten()
        axes.plot(reached, norms[reached], ".", color=shade, markersize=7 if len(reached) < 500 else 2)
        counts.append(f"{len(reached):,}")
        axes.set_title(f"{name}: {counts[-1]} of {len(norms):,} rows", fontsize="medium")
        axes.set_xlabel("row of the table (token number)")
        axes.set_yscale("log")
        axes.set_xlim(-0.03 * len(norms), 1.03 * len(norms))
        axes.grid(alpha=0.3)
    if answers is not None:
        found = answers.unique()
        panels[1].plot(found, head.norm(dim=1)[found], "o", color=INK, markersize=4)
        panels[1].set_title(f"{panels[1].get_title()} (dark: right answers)", fontsize="medium")
    panels[0].set_ylabel("length of the row's gradient (log scale)")
    headline(figure, f"The gradient reaches {counts[0]} rows through the lookup and {counts[1]} rows through the head")
    return figure


@described
def table_share_chart(reports: dict[str, StrategyReport]) -> Chart:
    """What part of a model's values is its token table, and its head where that is another matrix.

    Args:
        reports: by model what `describe` or `apply_strategy` returned.
    """
    figure, axes = new_figure(height=1.3 + 0.5 * len(reports))
    shares = []
    for place, report in enumerate(reports.values()):
        table, head = (
            100 * report.components[part].total_values / report.total_values if part in report.components else 0
            for part in ("embedding", "head")
        )
        axes.barh(place, table, color=TRAINED, edgecolor=INK)
        axes.barh(place, head, left=table, color=COLOURS[5], edgecolor=INK)
        told = f"{table:.1f}% + {head:.1f}% head" if head else f"{table:.1f}%"
        axes.text(table + head + 0.5, place, told, va="center", fontsize="small")
        shares.append(table)
    names = [f"{name}\n{human(report.total_values)} values" for name, report in reports.items()]
    axes.set_yticks(range(len(reports)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * max(shares))
    axes.set_xlabel("share of all values (%)")
    axes.grid(axis="y", visible=False)
    headline(figure, f"The token table holds between {min(shares):.0f}% and {max(shares):.0f}% of the values")
    kinds = {"token table": Patch(facecolor=TRAINED, edgecolor=INK)}
    kinds["head of its own"] = Patch(facecolor=COLOURS[5], edgecolor=INK)
    axes.legend(kinds.values(), kinds, loc="lower right", fontsize="small")
    return figure


@described
def trained_depth_chart(runs: pd.DataFrame, untrained: float) -> Chart:
    """What training more of the last blocks costs in arithmetic, and the perplexity it reaches; each dot is one seed.

    Args:
        runs: a row for each run, with columns blocks (how many were trained), arithmetic (of a step, in percent of
            training all blocks) and perplexity (on validation text).
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
    for place, value in enumerate(reached):
        right.annotate(
            f"{value:.0f}", (place, value), (0, 12), textcoords="offset points", ha="center", fontsize="small"
        )
    right.axhline(untrained, color=INK, linestyle="--")
    right.text(places[-1], untrained, f"before training: {untrained:.0f}", ha="right", va="bottom", fontsize="small")
    right.set_ylabel("perplexity on validation text (a dot: one seed)")
    bottom, top = right.get_ylim()
    right.set_ylim(bottom, top + 0.06 * (top - bottom))
    for axes in (left, right):
        axes.set_xticks(places, [str(depth) for depth in cost.index])
        axes.set_xlabel("last blocks that are trained")
        axes.grid(axis="y", alpha=0.3)
    gained = (untrained - reached) / (untrained - reached.iloc[-1])
    first = cost.index[0]
    figure.suptitle(
        f"{first} {'block' if first == 1 else 'blocks'} of {cost.index[-1]}: {cost.iloc[0]:.0f}% of the arithmetic, "
        f"{100 * gained.iloc[0]:.0f}% of the fall in perplexity"
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
    figure.suptitle(f"Embedding and blocks 0 to {kept - 1} are computed once for each text")
    figure.words = (
        f"the first pass computes everything and stores what leaves block {kept - 1}",
        f"a later pass reads it and begins at block {kept}",
    )
    return figure
