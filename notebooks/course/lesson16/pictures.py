"""Pictures of published numbers beside what can be counted: perplexities, shifted labels, speed-ups, single blocks."""

import pandas as pd
from matplotlib.patches import Rectangle

from tlkit.reports.drawing import ADAPTER, GRADIENT, INK, PASSED, SPARED, TRAINED
from tlkit.reports.figure import FAINT, Chart, dark, described, headline, height_for, new_figure
from tlkit.reports.labels import beside_rows


@described
def published_chart(perplexities: dict[str, float], vocabulary: int) -> Chart:
    """Published perplexities, a point each, beside that of a model that guesses at random.

    Args:
        perplexities: by the name of the measurement.
        vocabulary: tokens of the model; guessing among them at random has this perplexity.
    """
    figure, axes = new_figure(height_for(len(perplexities), 0.3))
    values = list(perplexities.values())
    worse = [value > vocabulary for value in values]
    shades = [GRADIENT if above else TRAINED for above in worse]
    axes.hlines(range(len(values)), vocabulary, values, color=shades, linewidth=2, alpha=0.5)
    axes.scatter(values, range(len(values)), s=45, c=shades, edgecolors=INK, zorder=3)
    axes.axvline(vocabulary, color=INK, linestyle="--")
    axes.set_xscale("log")
    axes.set_yticks(range(len(values)), perplexities)
    axes.set_ylim(len(values) - 0.4, -1.3)
    axes.text(vocabulary, -0.75, f"  guessing: {vocabulary:,}", color=INK, va="center", fontsize="small")
    axes.set_xlabel("perplexity (logarithmic scale; lower is better)")
    beside_rows(axes, range(len(values)), [f"{value:,.0f}" for value in values])
    headline(figure, f"{sum(worse)} of {len(values)} published perplexities are worse than guessing at random")
    return figure


@described
def label_shift_scheme(tokens: list[str]) -> Chart:
    """What the model is asked to predict at each token: in training, and where labels are shifted twice.

    Args:
        tokens: of a text, at least 3 and at most 10.
    """
    figure, axes = new_figure(2.7)
    axes.axis("off")
    axes.set_xlim(-2.6, len(tokens))
    axes.set_ylim(-0.1, 3.05)
    rows = {
        "input": (0, SPARED),
        "to predict,\nlabels shifted once": (1, TRAINED),
        "to predict,\nlabels shifted twice": (2, GRADIENT),
    }
    for name, (shift, shade) in rows.items():
        base = 2 - shift
        axes.text(-0.15, base + 0.4, name, ha="right", va="center", fontsize="small", color=INK)
        for place in range(len(tokens)):
            text = tokens[place + shift] if place + shift < len(tokens) else ""
            # A place without a token stays an outline: nothing is scored there.
            face, ink = (shade, INK if shade == SPARED else "white") if text else ("none", FAINT)
            edge = INK if text else PASSED
            axes.add_patch(Rectangle((place + 0.03, base), 0.94, 0.8, facecolor=face, edgecolor=edge))
            axes.text(place + 0.5, base + 0.4, text, ha="center", va="center", fontsize="small", color=ink)
    figure.words = (f"after {tokens[0]!r} the token {tokens[1]!r} is right, and shifted twice {tokens[2]!r} is asked",)
    headline(
        figure, f"After {tokens[0].strip()!r} comes {tokens[1].strip()!r}; the report asked for the one after that"
    )
    return figure


@described
def margins_chart(losses: pd.DataFrame, first: str, second: str) -> Chart:
    """How far apart two strategies are on each single block of text, from the first one's best block to its worst.

    Args:
        losses: nats a token, a row a block, a column a strategy.
        first: the strategy whose lead points down.
        second: the other one.
    """
    figure, axes = new_figure(3.6)
    margin = (losses[first] - losses[second]).sort_values().reset_index(drop=True)
    shades = [TRAINED if value < 0 else ADAPTER for value in margin]
    axes.bar(margin.index, margin, color=shades, edgecolor=INK, linewidth=0.4, width=0.85)
    axes.axhline(0, color=INK, linewidth=1)
    axes.axhline(margin.mean(), color=INK, linestyle="--", linewidth=1)
    axes.set_xticks([])
    axes.set_xlabel(f"{len(margin)} blocks, sorted (dashed: their mean, {margin.mean():+.3f} nats)")
    axes.set_ylabel("difference in loss (nats per token)")
    wins = int((margin < 0).sum())
    axes.text(0.3, 0.08, f"{first} is better", transform=axes.transAxes, color=TRAINED)
    axes.text(0.6, 0.9, f"{second} is better", transform=axes.transAxes, ha="right", color=dark(ADAPTER))
    if wins in (0, len(margin)):
        headline(figure, f"{first if wins else second} wins on all {len(margin)} blocks")
    else:
        others = f"{second} on {len(margin) - wins}"
        headline(figure, f"{first} wins on {wins} blocks and {others}, so one block may name either")
    return figure
