"""Gradient accumulation: how much each token counts."""

from fractions import Fraction

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from course.drawing import SPARED, TRAINED, paper
from tlkit.reports.figure import INK, Chart, described, headline


@described
def micro_batch_picture(targets: torch.Tensor, size: int) -> Chart:
    """How much each token of a batch counts, with the right sum over micro-batches and with the mean of their means.

    Args:
        targets: token ids of the labels, shape (rows, tokens); -100 where a label does not count.
        size: rows of a micro-batch; each has a token that counts.
    """
    counted = targets != -100
    parts = counted.split(size)
    total = int(counted.sum())
    means = [Fraction(1, len(parts) * int(part.sum())) for part in parts]
    height = 0.42 * len(targets) + 0.35 * len(parts) + 1.2
    figure, axes = paper(height)
    width = targets.shape[1]
    gap, right = 0.8, width + 1.6
    deepest = max(float(share) for share in means)
    for left, shares, name in (
        (0, [Fraction(1, total)] * len(parts), "right: the sum of losses, divided once by all"),
        (right, means, "wrong: the mean of the means"),
    ):
        axes.text(left, -1.25, name, fontsize="medium", fontweight="bold", color=INK, va="center")
        for place, (part, share) in enumerate(zip(parts, shares, strict=True)):
            top = sum(len(one) for one in parts[:place]) + gap * place
            _token_rows(axes, part, left, top, share, float(share) / deepest)
            said = f"micro-batch {place + 1}: {int(part.sum())} tokens count"
            axes.text(left, top - 0.66, said, fontsize="small", color=INK, va="center")
            axes.plot([left - 0.2] * 2, [top - 0.42, top + len(part) - 0.58], color=INK, linewidth=3)
    axes.set_xlim(-0.5, right + width + 0.1)
    axes.set_ylim(len(targets) + gap * (len(parts) - 1) - 0.3, -1.6)
    most = max(means) / min(means)
    finding = "All tokens count the same"
    if most > 1:
        finding = f"With the mean of means, some tokens count {float(most):.3g} times as much as others"
    headline(figure, finding)
    sizes = ", ".join(str(int(part.sum())) for part in parts)
    figure.words = (f"{len(parts)} micro-batches with {sizes} tokens that count", finding)
    return figure


def _token_rows(axes: Axes, counted: torch.Tensor, left: float, top: float, share: Fraction, depth: float) -> None:
    """The tokens of a micro-batch as cells, deeper where one counts for more."""
    for row, tokens in enumerate(counted.tolist()):
        for column, counts in enumerate(tokens):
            place = (left + column + 0.04, top + row - 0.42)
            cell = Rectangle(place, 0.92, 0.84, facecolor=TRAINED if counts else SPARED, edgecolor="none")
            cell.set_alpha(0.15 + 0.85 * depth if counts else 1)
            axes.add_patch(cell)
            said = f"{share.numerator}/{share.denominator}" if counts else "–"
            colour = "white" if counts and depth > 0.75 else INK
            axes.text(left + column + 0.5, top + row, said, ha="center", va="center", fontsize="x-small", color=colour)
