"""Pictures of lessons 6 and 7: the token table and its two uses, and what training only the last blocks costs."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from torch import nn

from tlkit.reports.drawing import BEHIND, GRADIENT, INK, PASSED, SPARED, TRAINED, arrow, box, paper
from tlkit.reports.figure import COLOURS, FAINT, Chart, dark, described, headline, new_figure
from tlkit.reports.findings import short
from tlkit.strategies import StrategyReport, find_blocks, is_tied

STORED, LOOKED_UP, SCORED, LINE, FADED = COLOURS[2], COLOURS[4], COLOURS[3], "#D0D0D0", "#BBBBBB"


@described
def table_uses(model: nn.Module, tokens: dict[int, str]) -> Chart:
    """Where a model uses its token table: read row by row to look tokens up, and multiplied whole to score them.

    Args:
        model: tied or not; only shapes are read.
        tokens: two to six tokens of a text, by number.
    """
    rows, width = model.get_input_embeddings().weight.shape
    figure, axes = paper(5.9, 8, 5.9)
    tied = is_tied(model)
    shape = f"{rows:,} rows\n× {width:,}"
    if tied:
        read = _draw_table(axes, 0.25, 4.6, f"E: {shape}", rows, tokens)
        _frame(axes, 0.25, 4.6)
    else:
        read = _draw_table(axes, 0.25, 2.35, f"E: {shape}", rows, tokens)
        _draw_table(axes, 3.5, 1.5, f"head W: {shape}", rows, {})
        _frame(axes, 3.5, 1.5)
    words = {"fontsize": "small", "ha": "center", "va": "center", "fontweight": "bold"}
    meet = (2.35, sum(read) / len(read))
    for at in read:
        axes.plot([1.6, meet[0]], [at, meet[1]], color=LOOKED_UP, linewidth=1.2)
    arrow(axes, meet, (3.78, 1.15), shade=LOOKED_UP)
    axes.text(2.62, 0.75, "1. look up:\nread one row a token", color=dark(LOOKED_UP), **words)
    arrow(axes, (1.65, 4.6), (3.78, 4.75), shade=SCORED)
    axes.text(2.75, 5.05, "2. score: multiply\nby every row", color=dark(SCORED), **words)
    names = ("logits", "hidden states", "embeddings", "tokens")
    formulas = (f"Z = H {'E' if tied else 'W'}ᵀ", "H", "X = E[t]", "t")
    places = ((4.1, 1.3), (3.2, 0.44), (0.95, 0.44), (0.1, 0.44))
    for name, formula, size, (low, height) in zip(names, formulas, (rows, width, width, 0), places, strict=True):
        _draw_vectors(axes, low, height, list(tokens.items()), size, broken=name == "logits")
        label = f"{name}\n{formula}: T × {size:,}" if size else f"{name}\nt: T numbers"
        axes.text(6.35, low + height / 2, label, fontsize="small", color=INK, va="center")
    blocks = len(find_blocks(model))
    box(axes, (3.95, 1.78), 2.1, 1.0, f"{blocks} blocks\nand the final norm", facecolor=PASSED, rounding=0.08)
    for low, high in ((0.57, 0.92), (1.42, 1.76), (2.8, 3.17), (3.67, 4.07)):
        arrow(axes, (5.0, low), (5.0, high))
    finding = "One matrix, two uses: the head is tied" if tied else "Two matrices, one for each use: nothing is tied"
    headline(figure, finding)
    figure.words = (
        f"{len(tokens)} rows of the table of {rows:,} x {width:,} are read at the bottom",
        f"{'the same table' if tied else 'another table'} is multiplied with the hidden states at the top",
        f"a hidden state has {width:,} numbers, the logits of a token {rows:,}",
    )
    return figure


def _frame(axes: Axes, bottom: float, height: float) -> None:
    """All of a table is used to score."""
    axes.add_patch(
        Rectangle((0.44, bottom - 0.06), 1.22, height + 0.12, facecolor="none", edgecolor=SCORED, linewidth=2)
    )


def _draw_table(axes: Axes, bottom: float, height: float, name: str, rows: int, tokens: dict[int, str]) -> list[float]:
    """A tall matrix between 0.5 and 1.6, with the rows of the tokens, the first and the last; returns their places."""
    axes.add_patch(Rectangle((0.5, bottom), 1.1, height, facecolor="white", edgecolor=INK, linewidth=1.5))
    axes.text(1.05, bottom + height + 0.12, name, ha="center", va="bottom", color=INK, fontsize="small")
    shown = sorted({0, rows - 1, *tokens})
    step = (height - 0.14) / (len(shown) - 1)
    read = []
    for place, (row, after) in enumerate(zip(shown, [*shown[1:], None], strict=True)):
        at = bottom + height - 0.07 - step * place
        marked = row in tokens
        style = {"facecolor": LOOKED_UP if marked else LINE, "edgecolor": "none", "zorder": 3}
        axes.add_patch(Rectangle((0.52, at - 0.05), 1.06, 0.1, **style))
        told = {"color": INK if marked else FAINT, "fontsize": "x-small", "ha": "right", "va": "center"}
        axes.text(0.4, at, f"{row:,}", **told)
        read += [at] * marked
        if after is not None and after > row + 1:
            _break(axes, 0.5, 1.6, at - step / 2)
    return read


def _break(axes: Axes, left: float, right: float, at: float, amplitude: float = 0.035) -> None:
    """Two wavy lines across what is drawn there, for what is left out."""
    along = np.linspace(left - 0.03, right + 0.03, 60)
    wave = at + amplitude * np.sin(2 * np.pi * (along - left) / max(0.22, (right - left) / 5))
    axes.fill_between(along, wave - 0.04, wave + 0.04, color="white", linewidth=0, zorder=4)
    for side in (-0.04, 0.04):
        axes.plot(along, wave + side, color=FAINT, linewidth=0.8, zorder=5)


def _draw_vectors(
    axes: Axes, bottom: float, height: float, tokens: list[tuple[int, str]], size: int, *, broken: bool = False
) -> None:
    """One column for each token, side by side around the middle of the network; a broken one is longer than drawn."""
    step = 2.4 / len(tokens)
    for place, (row, text) in enumerate(tokens):
        left = 3.8 + step * place
        style = {"facecolor": "white" if size else SPARED, "edgecolor": INK}
        axes.add_patch(Rectangle((left + 0.05, bottom), step - 0.1, height, **style))
        if size:
            for line in range(1, round(height / 0.088)):
                at = bottom + 0.088 * line
                axes.plot([left + 0.08, left + step - 0.08], [at, at], color=LINE, linewidth=0.8)
            if broken:
                _break(axes, left + 0.05, left + step - 0.05, bottom + height / 2, amplitude=0.02)
        else:
            told = f"{text if text.strip() else '␣'}\n{row}"
            axes.text(left + step / 2, bottom + 0.22, told, ha="center", va="center", fontsize="x-small")


@described
def row_gradients_chart(
    lookup: torch.Tensor, head: torch.Tensor, answers: torch.Tensor | None = None, named: dict[str, range] | None = None
) -> Chart:
    """Length of the gradient in each row of a tied token table, from its two uses apart; rows without one are left out.

    Args:
        lookup: the part of the gradient that comes through the lookup, shape (rows, width).
        head: the part that comes from the head, of the same shape.
        answers: numbers of the tokens that were right answers; they are marked among the rows of the head.
        named: rows of the head whose gradient is short, by what their tokens are.
    """
    figure, panels = plt.subplots(1, 2, FigureClass=Chart, figsize=(8, 3.8), sharey=True, layout="constrained")
    plt.close(figure)
    parts = {"from the lookup": (lookup, LOOKED_UP), "from the head": (head, SCORED)}
    counts = []
    for axes, (name, (gradient, shade)) in zip(panels, parts.items(), strict=True):
        norms = gradient.norm(dim=1)
        reached = norms.nonzero().flatten()
        axes.plot(reached, norms[reached], ".", color=shade, markersize=7 if len(reached) < 500 else 2)
        counts.append(f"{len(reached):,}")
        share = f"all {counts[-1]}" if len(reached) == len(norms) else f"{counts[-1]} of {len(norms):,}"
        axes.set_title(f"{name}: {share} rows", fontsize="medium")
        axes.set_xlabel("row of the table (token number)")
        axes.set_yscale("log")
        axes.set_xlim(-0.03 * len(norms), 1.03 * len(norms))
        axes.grid(alpha=0.3)
    if answers is not None:
        found = answers.unique()
        panels[1].plot(found, head.norm(dim=1)[found], "o", color=INK, markersize=4)
        panels[1].set_title(f"{panels[1].get_title()} (dark: right answers)", fontsize="medium")
    for name, rows in (named or {}).items():
        panels[1].axvspan(rows.start, rows.stop - 1, color=SPARED, zorder=0)
        middle = ((rows.start + rows.stop - 1) / 2, head.norm(dim=1)[rows.start : rows.stop].median() * 4)
        style = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": "x-small", "color": INK}
        panels[1].text(*middle, name, **style)
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
    names = [f"{name}\n{short(report.total_values)} values" for name, report in reports.items()]
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
    beside = {"textcoords": "offset points", "ha": "left", "va": "center", "fontsize": "small"}
    for place, value in enumerate(reached):
        right.annotate(f"{value:.0f}", (place, value), (8, 3), **beside)
    right.margins(x=0.12)
    right.set_ylabel("validation perplexity (a dot: one seed)")
    bottom, top = right.get_ylim()
    right.set_ylim(bottom, top + 0.25 * (top - bottom))
    # The value before training is far above what is compared, so it only stands at the edge.
    edge = {
        "xycoords": "axes fraction",
        "textcoords": "axes fraction",
        "ha": "center",
        "va": "top",
        "fontsize": "small",
    }
    upwards = {"arrowstyle": "-|>", "color": INK}
    right.annotate(f"before training: {untrained:.0f}", (0.7, 1.0), (0.7, 0.91), arrowprops=upwards, **edge)
    for axes in (left, right):
        axes.set_xticks(places, [str(depth) for depth in cost.index])
        axes.set_xlabel("last blocks that are trained")
        axes.grid(axis="y", alpha=0.3)
    gained = (untrained - reached) / (untrained - reached.iloc[-1])
    first = cost.index[0]
    subject, bring = ("The last block alone takes", "brings")
    if first > 1:
        subject, bring = f"The last {first} blocks take", "bring"
    headline(
        figure,
        f"{subject} {cost.iloc[0]:.0f}% of the arithmetic of {cost.index[-1]} blocks and {bring} "
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
