"""Pictures of intervals: what is drawn again and again in a bootstrap, and what subtracting in pairs is worth."""

import numpy as np
import pandas as pd
from scipy import stats

from course.lesson03.pictures import RESULT, draw_draws
from tlkit.reports.drawing import TRAINED
from tlkit.reports.figure import COLOURS, Chart, described, headline, new_figure, styles

CONFIDENCE = 0.95


@described
def bootstrap_chart(draws: dict[str, np.ndarray]) -> Chart:
    """The scores that a bootstrap has drawn, a histogram for each way of drawing, with its 95% interval below.

    Args:
        draws: by name the perplexities of all draws.
    """
    figure, axes = new_figure(height=1.3 + 1.2 * len(draws))
    labels = [f"{len(scores):,} draws\nof {name}" for name, scores in draws.items()]
    spans = draw_draws(axes, draws, labels, shades=(RESULT, TRAINED))
    widths = {name: high - low for name, (low, high) in spans.items()}
    narrow, wide = min(widths, key=widths.get), max(widths, key=widths.get)
    times = widths[wide] / widths[narrow]
    headline(figure, f"Drawing {wide} gives an interval {times:.1f} times as wide as drawing {narrow}")
    axes.set_ylim(1.15 - 1.5 * len(draws), 1.1)
    axes.margins(x=0.12)
    axes.set_xlabel("perplexity of a draw (bar: the middle 95% of the draws)")
    figure.words = tuple(f"{name}: {low:.1f} to {high:.1f}" for name, (low, high) in spans.items())
    return figure


@described
def pairing_chart(scores: pd.DataFrame, unit: str) -> Chart:
    """Two columns of scores joined row by row, and the 95% interval of their difference, with and without the pairs.

    Args:
        scores: a row for each thing that both have scored (a document, a seed), with two columns, one for each.
        unit: of the scores.
    """
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
    drawn = styles(scores)
    for place, (name, values) in enumerate(scores.items()):
        style = {"color": drawn[name][0], "marker": drawn[name][1], "linestyle": "none"}
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
