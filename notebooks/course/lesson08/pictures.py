"""Where nine methods of parameter-efficient fine-tuning put their parameters: one scheme and one equation each."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from course.drawing import ADAPTER, BEHIND, PASSED, TRAINED, arrow
from tlkit.reports.figure import INK, SIZE, Chart, described, headline, new_figure

NEW, OWN, FROZEN, COMPUTED = ADAPTER, TRAINED, PASSED, "white"
METHODS = {
    **{"lora": "LoRA", "qlora": "QLoRA", "dora": "DoRA", "rslora": "rsLoRA", "pissa": "PiSSA", "lora_plus": "LoRA+"},
    **{"lora_fa": "LoRA-FA", "oft": "OFT", "vera": "VeRA", "ia3": "IA3", "ln_tuning": "LN tuning", "bitfit": "BitFit"},
    **{"prefix_tuning": "prefix tuning", "prompt_tuning": "prompt tuning"},
}
W, b, ADD = ("$W$", 0.28, FROZEN), ("$b$", 0.05, FROZEN), ("+", 0.05, COMPUTED)
A, B = ("$A$", 0.16, NEW), ("$B$", 0.05, NEW)
# Each method: what a layer's input passes, what it passes beside W, the equation, and what is trained.
FAMILY = {
    "LoRA": ((W, ADD, b), (A, B), r"$h = W x + \frac{\alpha}{r} B A x + b$", "two thin matrices beside W"),
    "DoRA": (
        (W, ADD, ("÷ row\nnorm", 0.13, COMPUTED), ("$m$", 0.05, NEW), b),
        (A, B),
        r"$h = m \odot \frac{W + (\alpha / r) B A}{\|W + (\alpha / r) B A\|}\, x + b$",
        "LoRA, and the norm of each row",
    ),
    "VeRA": (
        (W, ADD, b),
        (("$A$", 0.12, FROZEN), ("$d$", 0.03, NEW), ("$B$", 0.05, FROZEN), ("$e$", 0.03, NEW)),
        r"$h = W x + e \odot B\,(d \odot A x) + b$",
        "two vectors; A and B: random, the same in all layers",
    ),
    "IA3": ((W, b, (r"$\ell$", 0.05, NEW)), (), r"$h = \ell \odot (W x + b)$", "a factor for each output, or input"),
    "OFT": ((("$R$", 0.16, NEW), W, b), (), r"$h = W R\, x + b$", "small rotations of the inputs"),
    "BitFit": ((W, ("$b$", 0.05, OWN)), (), r"$h = W x + b$", "the biases that the model has"),
    "LN tuning": (
        (("rms\nnorm", 0.15, COMPUTED), (r"$\gamma$", 0.05, OWN), W, b),
        (),
        r"$h = W\,(\gamma \odot x\, /\, \mathrm{rms}(x)) + b$",
        "the scales of the norms",
    ),
    "prompt tuning": ((), (), r"$X' = [\,p_1 \ldots p_k,\ x_1 \ldots x_n\,]$", "vectors before the embedded text"),
    "prefix tuning": ((), (), r"$K' = [P_K, K],\ \ V' = [P_V, V]$", "keys and values, in every block"),
}


@described
def family_picture() -> Chart:
    """Where nine methods of parameter-efficient fine-tuning train parameters; orange ones are added, blue are not."""
    figure, panels = plt.subplots(3, 3, FigureClass=Chart, figsize=(SIZE[0] + 2, 7.6), layout="constrained")
    plt.close(figure)
    for axes, (name, (line, beside, equation, where)) in zip(panels.flat, FAMILY.items(), strict=True):
        axes.set(xlim=(0, 1), ylim=(-0.12, 1))
        axes.axis("off")
        axes.set_title(name, fontweight="bold", loc="left")
        axes.text(0.5, 0.06, equation, ha="center", va="center", size=12, color=INK)
        axes.text(0.5, -0.09, where, ha="center", va="center", size="small", color=INK)
        ends = _line(axes, 0.62, 0.34, line, (0.06, 0.94), ("$x$", "$h$")) if line else {}
        if beside:
            side = _line(axes, 0.26, 0.13, beside, (0.15, ends["+"] - 0.08), ("", ""))
            arrow(axes, (0.04, 0.57), (0.14, 0.28))
            arrow(axes, (max(side.values()), 0.26), (ends["+"] - 0.03, 0.56))
        for row in range(3) if not line else ():  # of prompt tuning, the input and two blocks; of prefix tuning, three
            prompt = name == "prompt tuning"
            cells = ("$p_1$", "$p_2$", "$x_1$", "$x_2$") if prompt else ("$P_K$", "$K$", "$P_V$", "$V$")
            whole = prompt and row > 0
            if not prompt:
                axes.text(0.12, 0.375 + 0.23 * row, f"block {row}", ha="right", va="center", color=INK, size="small")
            for place, text in enumerate((f"block {row - 1}",) if whole else cells):
                shade = FROZEN if whole else NEW if "p" in text.lower() else COMPUTED
                _box(axes, 0.14 + 0.2 * place, 0.3 + 0.23 * row, 0.78 if whole else 0.18, 0.15, text, shade)
    kinds = {"added and trained": NEW, "part of the model, trained": OWN, "frozen": FROZEN, "computed": COMPUTED}
    marks = [Patch(facecolor=shade, edgecolor=INK, hatch="//" * (shade == FROZEN)) for shade in kinds.values()]
    figure.legend(marks, kinds, loc="outside lower center", ncols=4, fontsize="small", frameon=False)
    headline(figure, "Seven methods train parameters that they add, two train the model's own")
    figure.words = tuple(f"{name}: {where}" for name, (*_, where) in FAMILY.items())
    return figure


def _line(axes: Axes, middle: float, height: float, parts, span, ends) -> dict[str, float]:
    """Boxes from left to right with arrows between them; returns where each of them ends."""
    gap = (span[1] - span[0] - sum(width for _, width, _ in parts)) / (len(parts) + bool(ends[0]) or 1)
    left, found = span[0], {}
    for text, x in zip(ends, (0.03, 0.97), strict=True):
        axes.text(x, middle, text, ha="center", va="center", size=13)
    for text, width, shade in parts:
        if ends[0] or found:
            arrow(axes, (left, middle), (left + gap, middle))
            left += gap
        tall = 0.1 if text == "+" else height
        _box(axes, left, middle - tall / 2, width, tall, text, shade)
        left += width
        found[text] = left
    if ends[1]:
        arrow(axes, (left, middle), (left + gap, middle))
    return found


def _box(axes: Axes, left: float, low: float, width: float, height: float, text: str, shade: str) -> None:
    hatch = "//" if shade == FROZEN else ""
    axes.add_patch(Rectangle((left, low), width, height, facecolor=shade, edgecolor=INK, hatch=hatch, linewidth=0.8))
    above = width < 0.06 and text != "+"  # too narrow for its name
    behind = BEHIND if hatch and not above else None
    y = low + height + 0.06 if above else low + height / 2
    axes.text(left + width / 2, y, text, ha="center", va="center", color=INK, bbox=behind, size="small")


@described
def intervals_chart(tables: dict[str, pd.DataFrame]) -> Chart:
    """Perplexity above LoRA's on two models, with corrected intervals."""
    figure, axes = new_figure(5.6)
    order = tables["bundled model"].difference.sort_values().index
    for shift, (model, table) in zip((-0.15, 0.15), tables.items(), strict=True):
        middle, low, high = table.reindex(order)[["difference", "low", "high"]].T.to_numpy()
        at = np.arange(len(order)) + shift
        axes.errorbar(middle, at, xerr=(middle - low, high - middle), fmt="o", elinewidth=2, label=model)
    axes.set_xscale("symlog", linthresh=10)
    ticks = (-10, -5, 0, 5, 10, 20, 50, 100)
    axes.set(xticks=ticks, xticklabels=ticks, yticks=range(len(order)), yticklabels=map(METHODS.get, order))
    axes.set_xlabel("perplexity above LoRA's (%; logarithmic beyond 10), with corrected 95% intervals")
    axes.axvline(0, color=INK)
    axes.invert_yaxis()
    axes.legend()
    headline(figure, "No method beats LoRA measurably, and four are worse on both models")
    return figure
