"""Pictures of weights in few bits: a QLoRA layer, the levels that codes stand for, and the errors that they make."""

import pandas as pd
import torch
from torch import nn

from tlkit.quantization import logical_size
from tlkit.reports.drawing import ADAPTER, GRADIENT, INK, PASSED, arrow, box, paper
from tlkit.reports.figure import COLOURS, MARKERS, Chart, described, headline, new_figure


@described
def four_bit_layer(layer: nn.Module) -> Chart:
    """One layer of QLoRA: codes of 4 bits are unpacked while the layer is computed, and the adapter is not packed.

    Args:
        layer: a linear layer in 4 bits with an adapter of LoRA beside it, as `apply_strategy(model, "qlora")` makes.

    Raises:
        ValueError: for any other layer.
    """
    weight = getattr(getattr(layer, "base_layer", None), "weight", None)
    state = getattr(weight, "quant_state", None)
    if state is None:
        raise ValueError(f"{type(layer).__name__}: expected a linear layer in 4 bits with an adapter beside it")
    rows, columns = state.shape
    (name,) = layer.active_adapters
    rank, adapter_bits = (layer.r[name], torch.finfo(layer.lora_A[name].weight.dtype).bits)
    size = logical_size(weight)
    bits = torch.finfo(layer.base_layer.compute_dtype).bits
    held, whole = _bytes(size / 2 + size / state.blocksize), _bytes(size * bits / 8)
    kept = f"codes: {rows} x {columns} of 4 bits\nscales: {size // state.blocksize} of 8 bits"
    made = f"$\\tilde{{W}}$ = scale x level[code]\n{rows} x {columns} of {bits} bits"
    figure, axes = paper(4.8, 1.005, 1.0, left=-0.005, bottom=-0.12)
    middle, upper, lower, fork = (0.36, 0.53, 0.14, 0.135)  # heights of x, W and A, and where the way of x parts
    box(axes, (0.0, middle - 0.09), 0.08, 0.18, f"$x$\n{columns}", rounding=0.01)
    stored = {"facecolor": PASSED, "rounding": 0.01, "hatch": "//"}
    box(axes, (0.22, 0.77), 0.32, 0.22, f"{kept}\nalways in memory: {held}", **stored)
    unpacked = {"facecolor": "white", "rounding": 0.01, "linestyle": "--"}
    box(axes, (0.22, upper - 0.11), 0.32, 0.22, f"{made}\nonly while it is used: {whole}", **unpacked)
    box(axes, (0.22, lower - 0.09), 0.19, 0.18, f"$A$\n{rank} x {columns}", facecolor=ADAPTER, rounding=0.01)
    box(axes, (0.47, lower - 0.09), 0.13, 0.18, f"$B$\n{rows} x {rank}", facecolor=ADAPTER, rounding=0.01)
    box(axes, (0.66, lower - 0.08), 0.12, 0.16, f"times alpha/r\n= {layer.scaling[name]:g}", rounding=0.01)
    plus = 0.85
    box(axes, (plus - 0.0225, middle - 0.06), 0.045, 0.12, "+", rounding=0.01)
    box(axes, (0.935, middle - 0.09), 0.065, 0.18, f"$h$\n{rows}", rounding=0.01)
    way = {"color": INK, "linewidth": 1.5, "solid_capstyle": "round"}
    axes.plot([0.08, fork], [middle, middle], **way)
    axes.plot([fork, fork], [lower, upper], **way)
    axes.plot(fork, middle, "o", color=INK, markersize=5)
    axes.plot([0.54, plus], [upper, upper], **way)
    axes.plot([0.78, plus], [lower, lower], **way)
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
    beside = {"ha": "left", "va": "center", "fontweight": "bold", "color": INK}
    axes.text(0.57, 0.88, "weights: frozen, in 4 bits", **beside)
    axes.text(0.22, 0.27, f"adapter: trained, in {adapter_bits} bits", **beside)
    figure.words = (
        f"x has {columns} values and h has {rows}",
        f"{kept.replace(chr(10), ', ')}, {held} in memory, unpacked to {whole} while the layer is computed",
        f"beside it A, {rank} x {columns}, and B, {rows} x {rank}, which are trained in {adapter_bits} bits",
    )
    headline(figure, f"The frozen weights take {held}, and {whole} only while the layer computes")
    return figure


@described
def rounding_chart(weights: torch.Tensor, levels: torch.Tensor) -> Chart:
    """Neighbouring weights of one block, and the scaled level to which each is rounded.

    Args:
        weights: of one block, one dimension; the first 16 are drawn, the scale is that of all.
        levels: sorted, from -1 to 1.
    """
    figure, axes = new_figure(height=4.2)
    scale = weights.abs().max()
    codes = (weights[:, None] / scale - levels).abs().argmin(1)
    drawn = range(min(16, len(weights)))
    for number, level in enumerate((levels * scale).tolist()):
        axes.axhline(level, color="#BBBBBB", linewidth=0.8, zorder=1)
        axes.text(len(drawn) - 0.2, level, f"{number}", fontsize="x-small", va="center", color=INK)
    for place in drawn:
        old, new = float(weights[place]), float(levels[codes[place]] * scale)
        # A line with a mark at each end: most moves are shorter than an arrow's head.
        axes.plot([place, place], [old, new], color=COLOURS[1], linewidth=1.5, zorder=3)
        axes.plot(place, old, "o", color=COLOURS[0], markersize=5, zorder=4, label=None if place else "as trained")
        style = {"color": COLOURS[1], "markersize": 13, "markeredgewidth": 2.5, "zorder": 5}
        axes.plot(place, new, "_", label=None if place else "rounded", **style)
    axes.set_xticks(list(drawn), [f"{int(codes[place])}" for place in drawn])
    axes.text(len(drawn) - 0.35, 1.0, "code", transform=axes.get_xaxis_transform(), fontsize="x-small", color=INK)
    axes.set_xlabel("neighbouring weights, each with its code (its 4 bits, as a number)")
    axes.set_ylabel("weight; grey lines: scale x level")
    axes.set_xlim(-0.7, len(drawn) + 0.5)
    axes.grid(visible=False)
    figure.legend(loc="outside lower right", ncols=2, fontsize="small", frameon=False)
    headline(figure, f"Each weight goes to the nearest of {len(levels)} levels (scale of the block: {scale:.3f})")
    return figure


@described
def levels_chart(scaled: torch.Tensor, levels: dict[str, torch.Tensor], title: str) -> Chart:
    """Where levels lie in the histogram of scaled weights, and the share of the weights that goes to each level.

    Args:
        scaled: weights, each divided by the scale of its block, so from -1 to 1.
        levels: by name, sorted, from -1 to 1; a panel each.
        title: the finding, above the picture.
    """
    figure, axes = new_figure(height=1.1 + 2.1 * len(levels))
    figure.delaxes(axes)
    counts, edges = torch.histogram(scaled.flatten().float().cpu(), bins=120, range=(-1.0, 1.0))
    heights = counts / counts.max()
    panels = figure.subplots(len(levels), 1, sharex=True, squeeze=False)[:, 0]
    words = []
    for axes, (name, places) in zip(panels, levels.items(), strict=True):
        axes.stairs(heights, edges, fill=True, color="#D9D9D9")
        borders = (places[1:] + places[:-1]) / 2
        shares = torch.bincount(torch.bucketize(scaled.flatten(), borders), minlength=len(places)) / scaled.numel()
        for place, share in zip(places.tolist(), shares.tolist(), strict=True):
            axes.plot([place, place], [0, 1.05], color=COLOURS[0], linewidth=1.5)
            axes.text(place, 1.09, f"{100 * share:.0f}", ha="center", va="bottom", fontsize="x-small", color=INK)
        axes.set_ylim(0, 1.3)
        axes.set_yticks([])
        axes.set_ylabel(name, fontweight="bold")
        axes.grid(visible=False)
        words.append(f"{name}: from {100 * min(shares):.0f}% to {100 * max(shares):.0f}% of the weights at a level")
    panels[-1].set_xlabel("weight divided by the largest of its block; numbers: % of all weights at each level")
    figure.words = tuple(words)
    headline(figure, title)
    return figure


@described
def output_error_chart(table: pd.DataFrame, weight_error: float, title: str) -> Chart:
    """How far the output of each layer is off, a dot a block, against how far its weights are off.

    Args:
        table: a row for each linear layer, with columns `layer` (its name), `block` (a number) and `error` (of its
            output: the norm of the difference divided by the norm of the exact output).
        weight_error: the same ratio for the weights.
        title: the finding, above the picture.
    """
    figure, axes = new_figure(height=4.2)
    names = list(dict.fromkeys(table.layer))
    for number, name in enumerate(names):
        rows = table[table.layer == name].sort_values("block")
        spread = [0.04 * (place - (len(rows) - 1) / 2) for place in range(len(rows))]
        axes.plot(
            100 * rows.error,
            [number + shift for shift in spread],
            MARKERS[0],
            color=COLOURS[0],
            alpha=0.8,
            markersize=7,
        )
        first = rows.iloc[0]
        axes.annotate(
            f"{first.block}", (100 * first.error, number + spread[0]), (0, 6), textcoords="offset points", fontsize=7
        )
    axes.axvline(100 * weight_error, color=COLOURS[1], linestyle="--")
    behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1}
    told = f"error of the weights: {100 * weight_error:.1f}%"
    axes.text(100 * weight_error + 0.1, -0.75, told, color=COLOURS[1], va="center", bbox=behind, fontsize="small")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -1.1)
    axes.set_xlim(0, None)
    axes.set_xlabel("error of the layer's output (%); a dot for each block, 0 marks the lowest block")
    headline(figure, title)
    return figure


def _bytes(count: float) -> str:
    """Bytes as people say them, in thousands."""
    return f"{count / 1000:.1f} kB" if count < 1e6 else f"{count / 1e6:.1f} MB"
