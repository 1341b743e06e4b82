"""The picture of a layer of QLoRA."""

from course.drawing import ADAPTER, GRADIENT, PASSED, arrow, box, paper
from tlkit.reports.figure import INK, Chart, described, headline


@described
def four_bit_layer(rows: int, columns: int, rank: int = 8) -> Chart:
    """One layer of QLoRA: codes of 4 bits are unpacked while the layer is computed, and the adapter is not packed.

    Args:
        rows: outputs of the layer.
        columns: its inputs.
        rank: of the adapter.
    """
    size = rows * columns
    held, whole = f"{(size / 2 + size / 64) / 1000:.1f} kB", f"{4 * size / 1000:.1f} kB"
    kept = f"codes: {rows} x {columns} of 4 bits\nscales: {size // 64} of 8 bits\nalways in memory: {held}"
    made = f"$\\tilde{{W}}$ = scale x level[code]\n{rows} x {columns} of 32 bits\nonly while it is used: {whole}"
    figure, axes = paper(4.8, 1.005, 1.0, left=-0.005, bottom=-0.12)
    middle, upper, lower, fork, plus = 0.36, 0.53, 0.14, 0.135, 0.85  # heights of x, W and A; where the ways part, join
    box(axes, (0.0, middle - 0.09), 0.08, 0.18, f"$x$\n{columns}", rounding=0.01)
    box(axes, (0.22, 0.77), 0.32, 0.22, kept, facecolor=PASSED, rounding=0.01, hatch="//")
    box(axes, (0.22, upper - 0.11), 0.32, 0.22, made, facecolor="white", rounding=0.01, linestyle="--")
    box(axes, (0.22, lower - 0.09), 0.19, 0.18, f"$A$\n{rank} x {columns}", facecolor=ADAPTER, rounding=0.01)
    box(axes, (0.47, lower - 0.09), 0.13, 0.18, f"$B$\n{rows} x {rank}", facecolor=ADAPTER, rounding=0.01)
    box(axes, (0.66, lower - 0.08), 0.12, 0.16, "times\n$\\alpha/r$", rounding=0.01)
    box(axes, (plus - 0.0225, middle - 0.06), 0.045, 0.12, "+", rounding=0.01)
    box(axes, (0.935, middle - 0.09), 0.065, 0.18, f"$h$\n{rows}", rounding=0.01)
    for across, up in (
        ((0.08, fork), (middle, middle)),
        ((fork, fork), (lower, upper)),
        ((0.54, plus), (upper, upper)),
        ((0.78, plus), (lower, lower)),
    ):
        axes.plot(across, up, color=INK, linewidth=1.5, solid_capstyle="round")
    for start, end in (
        ((fork, upper), (0.22, upper)),
        ((fork, lower), (0.22, lower)),
        ((0.38, 0.77), (0.38, upper + 0.11)),
        ((0.41, lower), (0.47, lower)),
        ((0.60, lower), (0.66, lower)),
        ((plus, upper), (plus, middle + 0.06)),
        ((plus, lower), (plus, middle - 0.06)),
        ((plus + 0.0225, middle), (0.935, middle)),
    ):
        arrow(axes, start, end, linewidth=1.5)
    axes.text(0.39, 0.705, "unpack", ha="left", va="center", fontsize="small", color=INK)
    arrow(axes, (0.98, -0.03), (0.02, -0.03), shade=GRADIENT, linewidth=2)
    told = "backpropagation passes through the unpacked weights; only A and B get gradients of their own"
    axes.text(0.98, -0.06, told, color=GRADIENT, fontsize="small", ha="right", va="top")
    for at, text in (((0.57, 0.88), "weights: frozen, in 4 bits"), ((0.22, 0.27), "adapter: trained, in 32 bits")):
        axes.text(*at, text, ha="left", va="center", fontweight="bold", color=INK)
    figure.words = (
        f"x has {columns} numbers and h has {rows}",
        f"{held} of codes and scales in memory, unpacked to {whole} while the layer is computed",
        f"beside them A, {rank} x {columns}, and B, {rows} x {rank}",
    )
    headline(figure, f"The frozen weights take {held}, and {whole} only while the layer computes")
    return figure
