"""Pictures of lesson 7: the token table and its two uses."""

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import nn

from tlkit.models.parts import find_blocks
from tlkit.reports.drawing import INK, PASSED, SPARED, arrow, box, paper
from tlkit.reports.figure import COLOURS, FAINT, Chart, dark, described, headline

LOOKED_UP, SCORED, LINE = COLOURS[4], COLOURS[3], "#D0D0D0"


@described
def table_uses(model: nn.Module, tokens: dict[int, str]) -> Chart:
    """Where a model uses its token table: read row by row to look tokens up, and multiplied whole to score them.

    Args:
        model: with a tied head; only shapes are read.
        tokens: two to six tokens of a text, by number.
    """
    rows, width = model.get_input_embeddings().weight.shape
    figure, axes = paper(5.9, 8, 5.9)
    read = _draw_table(axes, 0.25, 4.6, f"E: {rows:,} rows\n× {width:,}", rows, tokens)
    # All of the table is used to score.
    axes.add_patch(Rectangle((0.44, 0.19), 1.22, 4.72, facecolor="none", edgecolor=SCORED, linewidth=2))
    words = {"fontsize": "small", "ha": "center", "va": "center", "fontweight": "bold"}
    meet = (2.35, sum(read) / len(read))
    for at in read:
        axes.plot([1.6, meet[0]], [at, meet[1]], color=LOOKED_UP, linewidth=1.2)
    arrow(axes, meet, (3.78, 1.15), shade=LOOKED_UP)
    axes.text(2.62, 0.75, "1. look up:\nread one row a token", color=dark(LOOKED_UP), **words)
    arrow(axes, (1.65, 4.6), (3.78, 4.75), shade=SCORED)
    axes.text(2.75, 5.05, "2. score: multiply\nby every row", color=dark(SCORED), **words)
    names = ("logits", "hidden states", "embeddings", "tokens")
    formulas = ("Z = H Eᵀ", "H", "X = E[t]", "t")
    places = ((4.1, 1.3), (3.2, 0.44), (0.95, 0.44), (0.1, 0.44))
    for name, formula, size, (low, height) in zip(names, formulas, (rows, width, width, 0), places, strict=True):
        _draw_vectors(axes, low, height, list(tokens.items()), size, broken=name == "logits")
        label = f"{name}\n{formula}: T × {size:,}" if size else f"{name}\nt: T numbers"
        axes.text(6.35, low + height / 2, label, fontsize="small", color=INK, va="center")
    blocks = len(find_blocks(model))
    box(axes, (3.95, 1.78), 2.1, 1.0, f"{blocks} blocks\nand the final norm", facecolor=PASSED, rounding=0.08)
    for low, high in ((0.57, 0.92), (1.42, 1.76), (2.8, 3.17), (3.67, 4.07)):
        arrow(axes, (5.0, low), (5.0, high))
    headline(figure, "One matrix, two uses: the head is tied")
    figure.words = (
        f"{len(tokens)} rows of the table of {rows:,} x {width:,} are read at the bottom",
        "the same table is multiplied with the hidden states at the top",
        f"a hidden state has {width:,} numbers, the logits of a token {rows:,}",
    )
    return figure


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
    lookup: torch.Tensor, head: torch.Tensor, answers: torch.Tensor, named: dict[str, range]
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
    found = answers.unique()
    panels[1].plot(found, head.norm(dim=1)[found], "o", color=INK, markersize=4)
    panels[1].set_title(f"{panels[1].get_title()} (dark: right answers)", fontsize="medium")
    for name, rows in named.items():
        panels[1].axvspan(rows.start, rows.stop - 1, color=SPARED, zorder=0)
        middle = ((rows.start + rows.stop - 1) / 2, head.norm(dim=1)[rows.start : rows.stop].median() * 4)
        style = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": "x-small", "color": INK}
        panels[1].text(*middle, name, **style)
    panels[0].set_ylabel("length of the row's gradient (log scale)")
    headline(figure, f"The gradient reaches {counts[0]} rows through the lookup and {counts[1]} rows through the head")
    return figure
