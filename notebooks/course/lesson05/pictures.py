"""Pictures of adapters: their shapes, their first gradients, what a low rank keeps, and where other methods stand."""

import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import ListedColormap
from matplotlib.patches import Rectangle
from torch import nn

from tlkit.evidence.gradient_flow import GradientFlow
from tlkit.reports.drawing import ADAPTER, INK, PASSED, TRAINED
from tlkit.reports.figure import Chart, described, headline, new_figure, panels_beside

BAR = "#B8B8B8"  # of what is neither trained nor frozen
SHADES = [0.04 + 0.0076 * step for step in range(101)]  # of the colour map: not white, and not nearly black
GAP = 0.09  # between the parts of a picture, in widths of the widest matrix


@described
def lora_picture(layer: nn.Module) -> Chart:
    """A linear layer and its adapter: the frozen matrix W beside the thin B and A, drawn to scale.

    Args:
        layer: a linear layer that peft has given one adapter.
    """
    (name,) = layer.lora_A
    shapes = {
        "W": tuple(layer.base_layer.weight.shape),
        "B": tuple(layer.lora_B[name].weight.shape),
        "A": tuple(layer.lora_A[name].weight.shape),
    }
    outputs, inputs = shapes["W"]
    alpha, rank = layer.scaling[name] * layer.r[name], layer.r[name]
    vector, gap = 0.012 * inputs, GAP * inputs
    figure, axes = new_figure(height=3.6)
    left = 0.0

    def box(symbol: str, rows: float, columns: float, colour: str, hatch: str = "", told: str = "") -> None:
        nonlocal left
        axes.add_patch(Rectangle((left, -rows / 2), columns, rows, facecolor=colour, edgecolor=INK, hatch=hatch))
        middle = left + columns / 2
        inside = columns > gap and rows > gap
        behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 2} if inside else None
        up = 0 if inside else rows / 2 + 0.03 * inputs
        axes.text(middle, up, f"${symbol}$", ha="center", va="center" if inside else "bottom", size=15, bbox=behind)
        axes.text(middle, -rows / 2 - 0.03 * inputs, told, ha="center", va="top", size="small", color=INK)
        left += columns + gap

    def sign(text: str) -> None:
        nonlocal left
        axes.text(left, 0, text, ha="center", va="center", size=15, color=INK)
        left += gap

    box("h", outputs, vector, "white", told=f"{outputs}")
    sign("=")
    box("W", *shapes["W"], PASSED, "//", f"{outputs} x {inputs} = {outputs * inputs:,} values, frozen")
    left -= gap / 2
    box("x", inputs, vector, "white", told=f"{inputs}")
    left += gap / 4
    sign("+")
    left += gap / 4
    axes.text(left, -0.7 * gap, r"$\alpha/r$", ha="center", va="top", size="small", color=INK)
    sign(rf"$\frac{{{alpha:g}}}{{{rank}}}$")
    box("B", *shapes["B"], ADAPTER, told=f"{outputs} x {rank}")
    left -= gap / 2
    box("A", *shapes["A"], ADAPTER, told=f"{rank} x {inputs}")
    left -= gap / 2
    box("x", inputs, vector, "white", told=f"{inputs}")
    values = rank * (outputs + inputs)
    figure.words = (
        f"W has {outputs} x {inputs} = {outputs * inputs:,} values; B is {outputs} x {rank} and A {rank} x {inputs}",
    )
    share = values / (outputs * inputs)
    tallest = max(outputs, inputs)
    axes.set_xlim(-gap / 2, left)
    axes.set_ylim(-tallest / 2 - 1.6 * gap, tallest / 2 + gap)
    axes.set_aspect("equal")
    axes.axis("off")
    headline(figure, f"At rank {rank}, B and A together have {values:,} values, {share:.1%} of those of W")
    return figure


@described
def adapter_gradients_chart(flow: GradientFlow) -> Chart:
    """The gradient of every A and every B, block by block, in the first and in the second step.

    Args:
        flow: what `check_gradient_flow` returned for a model with LoRA.
    """
    table = flow.table[flow.table.tensor.str.contains(r"lora_[AB]\.")]
    matrix = table.tensor.str.extract(r"lora_([AB])\.")[0]
    norms = table.assign(matrix=matrix)[["place", "matrix", "norm_1", "norm_2"]]
    norms = norms.groupby(["place", "matrix"], sort=False)[["norm_1", "norm_2"]].agg(lambda n: n.pow(2).sum() ** 0.5)
    figure, panels = panels_beside(2)
    looks = {"A": ("white", "///"), "B": (ADAPTER, "")}
    told = []
    for step, axes in enumerate(panels, 1):
        column = norms[f"norm_{step}"].unstack()
        column = column.reindex(dict.fromkeys(table.place))
        for number, (name, (colour, hatch)) in enumerate(looks.items()):
            places = [place + 0.4 * number - 0.2 for place in range(len(column))]
            axes.bar(places, column[name], 0.4, color=colour, hatch=hatch, edgecolor=INK, linewidth=0.6, label=name)
        reached = [name for name in looks if (column[name] > 0).any()]
        said = " and ".join(reached) + (" alone receives a gradient" if len(reached) == 1 else " receive a gradient")
        told.append(f"step {step}: {said}" if reached else f"step {step}: neither receives a gradient")
        axes.set_title(told[-1])
        axes.set_xticks(range(len(column)), [place.removeprefix("block ") for place in column.index])
        axes.set_xlabel("block")
    panels[0].set_ylabel("norm of the gradient")
    panels[1].legend(title="matrix", fontsize="small")
    return figure


@described
def rank_chart(table: pd.DataFrame, title: str, y_label: str) -> Chart:
    """What several ranks keep or reach, in percent.

    Args:
        table: a row for each rank, and a column of shares (0 to 1, NaN where there is none) for each line, named as it
            should be read, from the highest line to the lowest.
        title: the finding.
        y_label: of what the shares are.
    """
    figure, axes = new_figure()
    looks = ((ADAPTER, "o", 1), (TRAINED, "s", -1), (INK, "^", -1))
    for (name, line), (colour, marker, side) in zip(table.items(), looks, strict=False):
        line = 100 * line.dropna()
        axes.plot(line.index, line, color=colour, marker=marker, label=name, linestyle="-" if colour != INK else "--")
        for rank, share in line.items():
            at = {"xytext": (0, 8 if side > 0 else -15), "textcoords": "offset points", "fontsize": "small"}
            axes.annotate(f"{share:.0f}%", (rank, share), ha="center", color=INK, **at)
        middle = line.index[len(line) // 2]
        lines_up = {"xytext": (-16, 24) if side > 0 else (16, -28), "textcoords": "offset points"}
        at = {"ha": "right" if side > 0 else "left", "va": "center", "color": INK, "fontweight": "bold"}
        axes.annotate(name, (middle, line[middle]), **lines_up, **at)
    axes.set_xscale("log", base=2)
    axes.set_xticks(table.index, [str(rank) for rank in table.index])
    axes.set_ylim(0, 112)
    axes.set_xlabel("rank (log scale)")
    axes.set_ylabel(y_label)
    headline(figure, title)
    return figure


@described
def grid_chart(table: pd.DataFrame, title: str, what: str, *, digits: int = 0, frame_lowest: bool = False) -> Chart:
    """A table of numbers, the larger the darker, with the scale beside it.

    Args:
        table: rows and columns named as they should be read; the names of both indexes become the axes' labels.
        title: the finding.
        what: the numbers are, with their unit; written at the scale of colours.
        digits: behind the decimal point.
        frame_lowest: draw a frame around the smallest number of each row.
    """
    figure, axes = new_figure(height=1.2 + 0.36 * len(table))
    numbers = table.to_numpy(float)
    shades = ListedColormap(colormaps["Blues"](SHADES))
    image = axes.imshow(numbers, cmap=shades, aspect="auto")
    dark = numbers.min() + 0.6 * (numbers.max() - numbers.min())
    for row, values in enumerate(numbers):
        for column, value in enumerate(values):
            lowest = frame_lowest and value == values.min()
            style = {"color": "white" if value > dark else INK, "fontweight": "bold" if lowest else "normal"}
            axes.text(column, row, f"{value:,.{digits}f}", ha="center", va="center", **style)
            if lowest:
                corner = (column - 0.47, row - 0.44)
                axes.add_patch(Rectangle(corner, 0.94, 0.88, fill=False, edgecolor=ADAPTER, linewidth=3))
    figure.colorbar(image, ax=axes, label=what, pad=0.02, aspect=12)
    axes.set_xticks(range(table.shape[1]), [str(name) for name in table.columns])
    axes.set_yticks(range(len(table)), [str(name) for name in table.index])
    axes.set_xlabel(table.columns.name or "")
    axes.set_ylabel(table.index.name or "")
    axes.grid(visible=False)
    headline(figure, title)
    return figure


@described
def shares_chart(shares: dict[str, float], title: str, x_label: str) -> Chart:
    """One bar for each share, in percent, the smallest at the top.

    Args:
        shares: by name, 0 to 1.
        title: the finding.
        x_label: of what they are shares.
    """
    figure, axes = new_figure(height=1.4 + 0.42 * len(shares))
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    bars = axes.barh([name for name, _ in ordered], [100 * share for _, share in ordered], color=BAR, edgecolor=INK)
    axes.bar_label(bars, [f"{share:.0%}" for _, share in ordered], padding=4)
    axes.axvline(100, color=INK, linestyle="--")
    axes.set_xlim(0, 108)
    axes.set_xlabel(x_label)
    headline(figure, title)
    return figure
