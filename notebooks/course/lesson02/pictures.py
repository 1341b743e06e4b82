"""Pictures of what happens inside a language model: a block, attention, and predictions at every depth."""

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import nn

from tlkit.models.parts import find_blocks
from tlkit.reports.drawing import GRADIENT, INK, TRAINED, arrow, box
from tlkit.reports.figure import Chart, described, headline, new_figure
from tlkit.reports.findings import short


@described
def transformer_block(model: nn.Module) -> Chart:
    """One block of a transformer, with the shape and the number of values of each of its parts.

    Args:
        model: a causal language model of the Llama family (Qwen, Mistral, SmolLM).
    """
    block, config = find_blocks(model)[0], model.config
    attend, mlp = block.self_attn, block.mlp
    width, inner = config.hidden_size, config.intermediate_size
    queries, keys = attend.q_proj.out_features, attend.k_proj.out_features
    heads = f"rotary positions\n{config.num_attention_heads} query heads\n{config.num_key_value_heads} key/value\nheads"
    learned_in_qkv = _values(attend.q_proj, attend.k_proj, attend.v_proj)
    boxes = [  # name, what stands above it, left edge, width, learned
        ("RMSNorm", f"{width}", 3, 8, True),
        ("Q K V", f"Q {width} → {queries}\nK {width} → {keys}\nV {width} → {keys}\n{learned_in_qkv}", 14, 13, True),
        ("attention", f"{heads}, causal", 29.5, 13, False),
        ("O", f"{queries} → {width}\n{_values(attend.o_proj)}", 45, 8, True),
        ("RMSNorm", f"{width}", 59, 8, True),
        ("gate, up", f"2 × {width} → {inner}\n{_values(mlp.gate_proj, mlp.up_proj)}", 69, 11, True),
        ("SiLU(gate)\n× up", f"{inner}", 81.5, 8, False),
        ("down", f"{inner} → {width}\n{_values(mlp.down_proj)}", 91, 8, True),
    ]
    figure, axes = new_figure(height=3.4)
    arrow(axes, (1, 8), (99, 8), shade=TRAINED, linewidth=5)
    axes.text(1, 2.5, f"residual stream: {width} numbers a token", fontsize="small", color=TRAINED, va="center")
    for name, told, left, wide, learned in boxes:
        box(axes, (left, 20), wide, 9, name, facecolor="#CFE5F3" if learned else "white", rounding=0.8, fontsize=7.5)
        axes.text(left + wide / 2, 30, told, ha="center", va="bottom", fontsize=7, color=INK)
    places = [(left, wide) for _, _, left, wide, _ in boxes]
    _draw_branch(axes, places[:4], "attention: mixes tokens")
    _draw_branch(axes, places[4:], "MLP: works on each token alone")
    told = f"one block: {_values(block)} values"
    axes.text(99, 2.5, told, fontsize="small", color=INK, ha="right", va="center")
    figure.words = tuple(f"{name.replace(chr(10), ' ')} ({told.replace(chr(10), ', ')})" for name, told, *_ in boxes)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 48)
    axes.axis("off")
    headline(figure, "In a block, attention and the MLP each add a change to every token's vector")
    return figure


def _values(*modules: nn.Module) -> str:
    return short(sum(value.numel() for module in modules for value in module.parameters()))


def _draw_branch(axes: Axes, places: Sequence[tuple[float, float]], name: str) -> None:
    """The way from the residual stream through the boxes of a branch and back, where it is added."""
    (first, wide), (last, last_wide) = places[0], places[-1]
    end = last + last_wide / 2
    arrow(axes, (first + wide / 2, 8.8), (first + wide / 2, 20), linewidth=1)
    for (left, across), (right, _) in zip(places, places[1:], strict=False):
        arrow(axes, (left + across, 24.5), (right, 24.5), linewidth=1)
    arrow(axes, (end, 20), (end, 10.2), linewidth=1)
    axes.plot(end, 8, marker="o", markersize=15, markerfacecolor="white", markeredgecolor=INK, zorder=5)
    axes.text(end, 7.9, "+", ha="center", va="center", fontsize=13, zorder=6)
    axes.text((first + last + last_wide) / 2, 45, name, ha="center", va="center", fontsize=10, fontweight="bold")


@described
def attention_chart(
    heads: dict[str, torch.Tensor],
    tokens: Sequence[str],
    finding: str,
    examples: dict[str, tuple[int, int]] | None = None,
) -> Chart:
    """How much each token (row) looks at each token before it (column), for some heads.

    Args:
        heads: by name of a head its attention weights after the softmax, shape (tokens, tokens).
        tokens: as text.
        finding: title of the whole chart.
        examples: by name of a head the row and the column of a cell to frame.
    """
    figure, first = new_figure(height=5.6 if len(heads) == 1 else 1.7 + 7.2 / len(heads))
    first.remove()
    figure.get_layout_engine().set(h_pad=0.1)  # between the titles of the chart and of its panels
    panels = figure.subplots(1, len(heads), squeeze=False)[0]
    names = [token.replace("<|endoftext|>", "[end]").strip() or token for token in tokens]
    words = []
    for panel, (title, weights) in zip(panels, heads.items(), strict=True):
        future = torch.ones_like(weights, dtype=torch.bool).triu(1)
        panel.set_facecolor("#DDDDDD")
        picture = panel.imshow(weights.masked_fill(future, torch.nan).numpy(), cmap="Blues", vmin=0, vmax=1)
        panel.set_title(title, fontsize="medium")
        panel.set_xlabel("the token that it looks at")
        panel.grid(visible=False)
        panel.set_xticks(range(len(names)), names, rotation=90, fontsize=7.5)
        panel.set_yticks(range(len(names)), names, fontsize=7.5)
        panel.text(0.97, 0.93, "masked:\nthe future", transform=panel.transAxes, ha="right", va="top", fontsize=8)
        if examples:
            row, column = examples[title]
            frame = {"fill": False, "edgecolor": GRADIENT, "linewidth": 2}
            panel.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **frame))
            words.append(
                f"{title}: {names[row]} looks at {names[column]} with weight {float(weights[row, column]):.1f}"
            )
    panels[0].set_ylabel("the token that looks")
    bar = figure.colorbar(picture, ax=list(panels), location="bottom", shrink=0.5, aspect=40)
    bar.set_label("attention weight (a row adds up to 1)", fontsize="small")
    headline(figure, finding)
    figure.words = tuple(words)
    return figure


@described
def lens_chart(probabilities: torch.Tensor, targets: Sequence[int], vocabulary: Sequence[str], title: str) -> Chart:
    """What the model would predict if it stopped at each depth; darker: more probability for the true next token.

    Args:
        probabilities: shape (depths, places, vocabulary), from the embedding to the last block.
        targets: the token that follows at each place.
        vocabulary: every token as text.
        title: of the chart.
    """
    depths, places, _ = probabilities.shape
    right = torch.tensor(list(targets))
    shown = probabilities[:, torch.arange(places), right]
    figure, axes = new_figure(height=1.6 + 0.36 * depths)
    axes.imshow(shown.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto", origin="lower")
    for depth, row in enumerate(probabilities.argmax(-1)):
        for place, token in enumerate(row.tolist()):
            hit = token == right[place]
            style = {"fontweight": "bold" if hit else "normal", "ha": "center", "va": "center", "fontsize": 7}
            colour = "white" if shown[depth, place] > 0.55 else INK
            axes.text(place, depth, vocabulary[token].strip() or "·", color=colour, **style)
            if hit:
                frame = {"fill": False, "edgecolor": GRADIENT, "linewidth": 1.6}
                axes.add_patch(Rectangle((place - 0.47, depth - 0.45), 0.94, 0.9, **frame))
    axes.set_yticks(range(depths), ["embedding", *(f"after block {depth}" for depth in range(depths - 1))])
    axes.set_xticks(range(places), [vocabulary[token].strip() or "·" for token in targets], rotation=30, ha="right")
    axes.set_xlabel("the token that really comes next (orange frame: the prediction is right)")
    headline(figure, title)
    axes.grid(visible=False)
    return figure
