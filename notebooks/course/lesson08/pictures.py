"""Where the methods of parameter-efficient fine-tuning put their numbers: one small scheme and one equation each."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from tlkit.reports.drawing import ADAPTER, BEHIND, INK, PASSED, TRAINED, arrow
from tlkit.reports.figure import SIZE, Chart, described, headline

FAMILY = {
    "LoRA": (r"$h = W x + b + \frac{\alpha}{r} B A x$", "two thin matrices beside W"),
    "DoRA": (
        r"$h = m \odot \frac{W + \frac{\alpha}{r} B A}{\|W + \frac{\alpha}{r} B A\|}\, x + b$",
        "LoRA, and the length of each row",
    ),
    "VeRA": (r"$h = W x + b + e \odot B\,(d \odot A x)$", "two vectors; A and B are random and shared"),
    "IA3": (r"$h = \ell \odot (W x + b)$", "a factor for each output"),
    "OFT": (r"$h = W R\, x + b$", "small rotations of the inputs"),
    "BitFit": (r"$h = W x + b$", "the bias vectors that are there"),
    "LN tuning": (r"$h = W\,(\gamma \odot \frac{x}{\mathrm{rms}(x)}) + b$", "the norms' scales (peft trains a copy)"),
    "prompt tuning": (r"$X' = [\,p_1 \ldots p_k,\ x_1 \ldots x_n\,]$", "vectors before the embedded text"),
    "prefix tuning": (r"$K' = [P_K, K],\ \ V' = [P_V, V]$", "keys and values, in every block"),
}
SIGN = {"boxstyle": "circle,pad=0.12", "facecolor": "white", "edgecolor": INK, "linewidth": 0.8}


@described
def family_picture() -> Chart:
    """Where nine methods of parameter-efficient fine-tuning train numbers; orange ones are added, blue ones are not."""
    figure, panels = plt.subplots(3, 3, FigureClass=Chart, figsize=(SIZE[0] + 2, 8.6), layout="constrained")
    plt.close(figure)
    figure.get_layout_engine().set(hspace=0.1)
    draw = {
        "DoRA": _dora,
        "prompt tuning": _prompt,
        "prefix tuning": _prefix,
        "VeRA": _vera,
        "OFT": _oft,
        "LN tuning": _norm,
    }
    for axes, (name, (equation, where)) in zip(panels.flat, FAMILY.items(), strict=True):
        draw.get(name, _beside_matrix)(axes, name)
        axes.set_title(name, fontweight="bold", loc="left")
        axes.text(0.5, 0.06, equation, ha="center", va="center", size=12, color=INK)
        axes.text(0.5, -0.09, where, ha="center", va="center", size="small", color=INK)
        axes.set_xlim(0, 1)
        axes.set_ylim(-0.14, 1.0)
        axes.axis("off")
    kinds = {
        "added and trained": Patch(facecolor=ADAPTER, edgecolor=INK),
        "part of the model, trained": Patch(facecolor=TRAINED, edgecolor=INK),
        "frozen": Patch(facecolor=PASSED, edgecolor=INK, hatch="//"),
        "computed": Patch(facecolor="white", edgecolor=INK),
    }
    figure.legend(kinds.values(), kinds, loc="outside lower center", ncols=4, fontsize="small", frameon=False)
    headline(figure, "Seven methods add numbers and train only these; BitFit and LN tuning train what the model has")
    figure.words = tuple(f"{name}: {where}" for name, (_, where) in FAMILY.items())
    return figure


def _ends(axes: Axes) -> None:
    """x at the left, h at the right."""
    axes.text(0.03, 0.6, "$x$", ha="center", va="center", size=13)
    axes.text(0.97, 0.6, "$h$", ha="center", va="center", size=13)


def _vera(axes: Axes, name: str) -> None:
    """LoRA's two matrices, frozen, each with a trained vector behind it."""
    _ends(axes)
    _box(axes, 0.2, 0.42, 0.34, 0.36, "$W$")
    _box(axes, 0.68, 0.42, 0.05, 0.36, "$b$")
    for begin, end in (((0.06, 0.6), (0.2, 0.6)), ((0.54, 0.6), (0.68, 0.6)), ((0.73, 0.6), (0.94, 0.6))):
        arrow(axes, begin, end)
    _box(axes, 0.2, 0.2, 0.26, 0.07, "$A$")
    _box(axes, 0.5, 0.19, 0.025, 0.09, "$d$", ADAPTER)
    _box(axes, 0.57, 0.165, 0.07, 0.14, "$B$")
    _box(axes, 0.69, 0.165, 0.025, 0.14, "$e$", ADAPTER)
    arrow(axes, (0.1, 0.6), (0.2, 0.235))
    for begin, end in ((0.46, 0.5), (0.525, 0.57), (0.64, 0.69)):
        arrow(axes, (begin, 0.235), (end, 0.235))
    arrow(axes, (0.715, 0.235), (0.83, 0.56))
    axes.text(0.84, 0.6, "+", ha="center", va="center", color=INK, bbox=SIGN, zorder=4)


def _oft(axes: Axes, name: str) -> None:
    """Small trained rotations along the diagonal, before W."""
    _ends(axes)
    arrow(axes, (0.06, 0.6), (0.13, 0.6))
    axes.add_patch(Rectangle((0.13, 0.46), 0.2, 0.28, facecolor="white", edgecolor=INK, linewidth=0.8))
    for number in range(3):
        left, low = 0.13 + 0.2 / 3 * number, 0.74 - 0.28 / 3 * (number + 1)
        axes.add_patch(Rectangle((left, low), 0.2 / 3, 0.28 / 3, facecolor=ADAPTER, edgecolor=INK, linewidth=0.8))
    axes.text(0.23, 0.79, "$R$", ha="center", va="center", color=INK, size="small")
    arrow(axes, (0.33, 0.6), (0.4, 0.6))
    _box(axes, 0.4, 0.42, 0.34, 0.36, "$W$")
    arrow(axes, (0.74, 0.6), (0.8, 0.6))
    _box(axes, 0.8, 0.42, 0.05, 0.36, "$b$")
    arrow(axes, (0.85, 0.6), (0.94, 0.6))


def _norm(axes: Axes, name: str) -> None:
    """The norm before W divides by the size of x; its scales are trained as a copy."""
    _ends(axes)
    arrow(axes, (0.06, 0.6), (0.11, 0.6))
    _computed(axes, 0.11, 0.2, "rms\nnorm")
    arrow(axes, (0.31, 0.6), (0.35, 0.6))
    _box(axes, 0.35, 0.42, 0.05, 0.36, r"$\gamma$", TRAINED)
    arrow(axes, (0.4, 0.6), (0.46, 0.6))
    _box(axes, 0.46, 0.42, 0.3, 0.36, "$W$")
    arrow(axes, (0.76, 0.6), (0.81, 0.6))
    _box(axes, 0.81, 0.42, 0.05, 0.36, "$b$")
    arrow(axes, (0.86, 0.6), (0.94, 0.6))


def _box(axes: Axes, left: float, low: float, width: float, height: float, text: str, shade: str = PASSED) -> None:
    hatch, behind = ("//", BEHIND) if shade == PASSED else ("", None)
    axes.add_patch(Rectangle((left, low), width, height, facecolor=shade, edgecolor=INK, hatch=hatch, linewidth=0.8))
    # A vector is too narrow for its name, which stands above it.
    middle, behind = (low + height + 0.05, None) if width < height / 3 else (low + height / 2, behind)
    axes.text(left + width / 2, middle, text, ha="center", va="center", color=INK, bbox=behind, size="small")


def _computed(axes: Axes, left: float, width: float, text: str) -> None:
    """What is computed and has no numbers of its own."""
    axes.add_patch(Rectangle((left, 0.48), width, 0.24, facecolor="white", edgecolor=INK, linewidth=0.8))
    axes.text(left + width / 2, 0.6, text, ha="center", va="center", size="x-small", color=INK)


def _beside_matrix(axes: Axes, name: str) -> None:
    """x at the left goes through W and its bias to h at the right; what a method adds is orange."""
    _ends(axes)
    _box(axes, 0.2, 0.42, 0.34, 0.36, "$W$")
    _box(axes, 0.62, 0.42, 0.05, 0.36, "$b$", TRAINED if name == "BitFit" else PASSED)
    factor = 0.76 if name == "IA3" else 0.94  # where the arrow from b leads
    for begin, end in ((0.06, 0.2), (0.54, 0.62), (0.67, factor)):
        arrow(axes, (begin, 0.6), (end, 0.6))
    if name == "LoRA":
        _thin_matrices(axes, (0.81, 0.56))
        axes.text(0.83, 0.6, "+", ha="center", va="center", color=INK, bbox=SIGN, zorder=4)
    if name == "IA3":
        _box(axes, factor, 0.42, 0.05, 0.36, r"$\ell$", ADAPTER)
        arrow(axes, (factor + 0.05, 0.6), (0.94, 0.6))


def _dora(axes: Axes, name: str) -> None:
    """W and LoRA's product are added, each row is divided by its length and multiplied by its number in m."""
    _ends(axes)
    _box(axes, 0.16, 0.42, 0.3, 0.36, "$W$")
    _thin_matrices(axes, (0.545, 0.55), left=0.16)
    axes.text(0.55, 0.6, "+", ha="center", va="center", color=INK, bbox=SIGN, zorder=4)
    _computed(axes, 0.6, 0.12, "÷ row\nlength")
    _box(axes, 0.755, 0.42, 0.05, 0.36, "$m$", ADAPTER)
    _box(axes, 0.85, 0.42, 0.05, 0.36, "$b$")
    for begin, end in ((0.06, 0.16), (0.46, 0.53), (0.575, 0.6), (0.72, 0.755), (0.805, 0.85), (0.9, 0.95)):
        arrow(axes, (begin, 0.6), (end, 0.6))


def _thin_matrices(axes: Axes, joined: tuple[float, float], left: float = 0.2) -> None:
    """A and B below W, from x to where they are added."""
    _box(axes, left, 0.24, 0.3, 0.06, "$A$", ADAPTER)
    _box(axes, left + 0.34, 0.2, 0.05, 0.14, "$B$", ADAPTER)
    arrow(axes, (0.1, 0.6), (left, 0.27))
    arrow(axes, (left + 0.3, 0.27), (left + 0.34, 0.27))
    arrow(axes, (left + 0.39, 0.27), joined)


def _prompt(axes: Axes, name: str) -> None:
    """Trained vectors stand before the embedded tokens, below the first block."""
    for number, text in enumerate(("$p_1$", "$p_2$", "$x_1$", "$x_2$", "$x_3$")):
        _box(axes, 0.1 + 0.165 * number, 0.28, 0.14, 0.12, text, ADAPTER if number < 2 else "white")
    for number in range(3):
        _box(axes, 0.1, 0.5 + 0.15 * number, 0.8, 0.1, f"block {number}" if number < 2 else "…")
    arrow(axes, (0.5, 0.4), (0.5, 0.5))
    arrow(axes, (0.5, 0.6), (0.5, 0.65))
    arrow(axes, (0.5, 0.75), (0.5, 0.8))


def _prefix(axes: Axes, name: str) -> None:
    """Trained keys and values stand before those of the tokens, in each block."""
    for number in range(3):
        low = 0.28 + 0.22 * number
        axes.text(0.07, low + 0.07, f"block\n{number}", ha="center", va="center", size="x-small", color=INK)
        for place, (text, width) in enumerate((("$P_K$", 0.12), ("$K$", 0.26), ("$P_V$", 0.12), ("$V$", 0.26))):
            left = (0.15, 0.28, 0.58, 0.71)[place]
            _box(axes, left, low, width, 0.14, text, "white" if place % 2 else ADAPTER)
