"""The picture of a linear layer and its adapter."""

from matplotlib.patches import Rectangle
from torch import Tensor

from course.drawing import ADAPTER, PASSED
from tlkit.reports.figure import INK, Chart, described, headline, new_figure


@described
def lora_picture(weight: Tensor, a: Tensor, b: Tensor) -> Chart:
    """A linear layer and its adapter: the frozen matrix W beside the thin B and A, drawn to scale."""
    (outputs, inputs), rank = weight.shape, len(a)
    gap = 0.09 * inputs
    figure, axes = new_figure(height=3.6)
    left = 0.0

    def box(symbol, rows, columns, told, colour="white", hatch=""):
        nonlocal left
        axes.add_patch(Rectangle((left, -rows / 2), columns, rows, facecolor=colour, edgecolor=INK, hatch=hatch))
        middle, large = left + columns / 2, min(rows, columns) > gap
        at = {"y": 0, "va": "center"} if large else {"y": rows / 2 + 0.03 * inputs, "va": "bottom"}
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 2} if large else None
        axes.text(x=middle, s=f"${symbol}$", ha="center", size=15, bbox=behind, **at)
        axes.text(middle, -rows / 2 - 0.03 * inputs, told, ha="center", va="top", size="small", color=INK)
        left += columns + gap

    def sign(text):
        nonlocal left
        axes.text(left, 0, text, ha="center", va="center", size=15, color=INK)
        left += gap

    vector = 0.012 * inputs
    box("h", outputs, vector, outputs)
    sign("=")
    box("W", outputs, inputs, f"{outputs} x {inputs} = {outputs * inputs:,} parameters, frozen", PASSED, "//")
    box("x", inputs, vector, inputs)
    sign("+")
    sign(r"$\frac{\alpha}{r}$")
    box("B", outputs, rank, f"{outputs} x {rank}", ADAPTER)
    box("A", rank, inputs, f"{rank} x {inputs}", ADAPTER)
    box("x", inputs, vector, inputs)
    count = a.numel() + b.numel()
    figure.words = (f"W is {outputs} x {inputs}; B is {outputs} x {rank} and A {rank} x {inputs}: {count:,} in all",)
    axes.set_xlim(-gap / 2, left)
    axes.set_ylim(-max(outputs, inputs) / 2 - 1.6 * gap, max(outputs, inputs) / 2 + gap)
    axes.set_aspect("equal")
    axes.axis("off")
    headline(figure, f"At rank {rank}, B and A have {count:,} parameters, {count / weight.numel():.1%} of those of W")
    return figure
