"""Scores of many draws, as histograms."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from tlkit.reports.drawing import INK
from tlkit.reports.figure import COLOURS

RESULT = COLOURS[1]  # the one number that the many make


def draw_draws(
    axes: Axes, draws: Mapping[str, np.ndarray], labels: Sequence[str], *, shades=(RESULT,), digits: int = 1
) -> dict[str, tuple[float, float]]:
    """Draw scores as histograms below one another, each with a bar over the middle 95% of its scores.

    Args:
        axes: to draw on, with the scores on its horizontal axis.
        draws: by name the scores of all draws.
        labels: of the histograms; each is 1 high.
        shades: of the histograms, in turns.
        digits: behind the decimal point of the ends of a bar.

    Returns:
        The ends of each bar.
    """
    edges = np.linspace(min(map(np.min, draws.values())), max(map(np.max, draws.values())), 60)
    spans = {name: tuple(np.quantile(scores, [0.025, 0.975])) for name, scores in draws.items()}
    for place, (name, scores) in enumerate(draws.items()):
        counts, _ = np.histogram(scores, edges)
        base, shade, (low, high) = -1.5 * place, shades[place % len(shades)], spans[name]
        axes.bar(edges[:-1], counts / counts.max(), np.diff(edges), base, align="edge", color=shade, alpha=0.6)
        axes.plot((low, high), [base - 0.12] * 2, color=INK, linewidth=3, solid_capstyle="butt")
        told = f"  95%: {low:.{digits}f} to {high:.{digits}f}"
        axes.text(high, base - 0.12, told, va="center", fontweight="bold", color=INK)
    axes.set_yticks([0.5 - 1.5 * place for place in range(len(draws))], labels)
    return spans
