"""Pictures of intervals: what is drawn again and again in a bootstrap, and what subtracting in pairs is worth."""

import numpy as np
import pandas as pd
from scipy import stats

from tlkit.reports.figure import COLOURS, HATCHES, Chart, colour, described, headline, marker, new_figure

CONFIDENCE = 0.95


@described
def bootstrap_chart(draws: dict[str, np.ndarray], unit: str = "perplexity") -> Chart:
    """The scores that a bootstrap has drawn, a histogram for each way of drawing, with its 95% interval below.

    Args:
        draws: by name the scores of all draws.
        unit: of the scores.

    Raises:
        ValueError: for fewer than two ways of drawing.
    """
    if len(draws) < 2:
        raise ValueError(f"draws of {', '.join(draws) or 'nothing'}: expected at least two ways of drawing to compare")
    figure, axes = new_figure()
    spans = {name: np.quantile(scores, [0.025, 0.975]) for name, scores in draws.items()}
    edges = np.linspace(min(map(np.min, draws.values())), max(map(np.max, draws.values())), 60)
    tallest = max(np.histogram(scores, edges)[0].max() for scores in draws.values())
    for number, (name, scores) in enumerate(draws.items()):
        shade, (low, high) = COLOURS[number], spans[name]
        axes.hist(scores, edges, color=shade, alpha=0.55, hatch=HATCHES[number], edgecolor="white")
        y = -tallest * (0.15 * number + 0.14)
        axes.plot([low, high], [y, y], color=shade, linewidth=4, solid_capstyle="butt")
        axes.text((low + high) / 2, y + 0.02 * tallest, f"{name}: {low:.1f} to {high:.1f}", ha="center", va="bottom")
    widths = {name: high - low for name, (low, high) in spans.items()}
    narrow, wide = min(widths, key=widths.get), max(widths, key=widths.get)
    times = widths[wide] / widths[narrow]
    headline(figure, f"Drawing {wide} gives an interval {times:.1f} times as wide as drawing {narrow}")
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_ylim(bottom=-tallest * (0.15 * len(draws) + 0.04))
    axes.set_yticks([])
    axes.grid(False)
    axes.set_xlabel(f"{unit} of a draw (lines: the middle 95% of the draws)")
    figure.words = tuple(f"{name}: {low:.1f} to {high:.1f}" for name, (low, high) in spans.items())
    return figure


@described
def pairing_chart(scores: pd.DataFrame, unit: str) -> Chart:
    """Two columns of scores joined row by row, and the 95% interval of their difference, with and without the pairs.

    Args:
        scores: a row for each thing that both have scored (a document, a seed), with two columns, one for each.
        unit: of the scores.

    Raises:
        ValueError: where there are not two columns, or fewer than two rows.
    """
    if scores.shape[1] != 2 or len(scores) < 2:
        raise ValueError(f"scores of shape {scores.shape}: expected at least two rows in two columns")
    first, second = scores.columns
    one, other = scores[first], scores[second]
    spans = {
        "unpaired": stats.ttest_ind(one, other, equal_var=False).confidence_interval(CONFIDENCE),
        "paired": stats.ttest_rel(one, other).confidence_interval(CONFIDENCE),
    }
    figure, axes = new_figure()
    axes.remove()
    left, right = figure.subplots(1, 2)
    left.grid(alpha=0.3)
    for values in scores.itertuples(index=False):
        left.plot([0, 1], values, color="grey", alpha=0.5, linewidth=1)
    for place, (name, values) in enumerate(scores.items()):
        style = {"color": colour(place, name), "marker": marker(place, name), "linestyle": "none"}
        left.plot([place] * len(values), values, label=name, **style)
    left.set_xticks([0, 1], [first, second])
    left.set_xlim(-0.3, 1.3)
    left.set_ylabel(unit)
    left.set_title(f"{len(scores)} scores of each, joined in pairs", fontsize="medium")
    right.axvline(0, color="black", linestyle="--")
    for place, (name, (low, high)) in enumerate(spans.items()):
        shade = COLOURS[2 + place]
        right.plot([low, high], [place, place], color=shade, linewidth=4, solid_capstyle="butt")
        right.plot([(low + high) / 2], [place], "o", color=shade, markersize=10)
        right.text((low + high) / 2, place + 0.1, f"{name}: {low:+.3f} to {high:+.3f}", ha="center", va="bottom")
    right.set_ylim(-0.5, 1.6)
    right.set_yticks([])
    right.set_xlabel(f"{first} minus {second}")
    right.set_title("95% interval of the mean difference", fontsize="medium")
    width = {name: high - low for name, (low, high) in spans.items()}
    headline(figure, f"Pairing makes the interval {width['unpaired'] / width['paired']:.1f} times narrower")
    figure.words = tuple(f"{name} interval {low:+.3f} to {high:+.3f}" for name, (low, high) in spans.items())
    return figure
