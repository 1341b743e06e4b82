"""A picture of one block of a transformer."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from torch import nn

from course.drawing import TRAINED, arrow, box
from tlkit.models.parts import find_blocks
from tlkit.reports.figure import INK, Chart, described, headline, new_figure, short


@described
def transformer_block(model: nn.Module) -> Chart:
    """One block of a transformer, with the shape and the number of parameters of each of its parts.

    Args:
        model: a causal language model of the Llama family (Qwen, Mistral, SmolLM).
    """
    block, config = find_blocks(model)[0], model.config
    attend, mlp = block.self_attn, block.mlp
    width, inner = config.hidden_size, config.intermediate_size
    queries, keys = attend.q_proj.out_features, attend.k_proj.out_features
    heads = f"rotary positions\n{config.num_attention_heads} query heads\n{config.num_key_value_heads} key/value\nheads"
    learned_in_qkv = _parameters(attend.q_proj, attend.k_proj, attend.v_proj)
    boxes = [  # name, what stands above it, left edge, width, learned
        ("RMSNorm", f"{width}", 3, 8, True),
        ("Q K V", f"Q {width} → {queries}\nK {width} → {keys}\nV {width} → {keys}\n{learned_in_qkv}", 14, 13, True),
        ("attention", f"{heads}, causal", 29.5, 13, False),
        ("O", f"{queries} → {width}\n{_parameters(attend.o_proj)}", 45, 8, True),
        ("RMSNorm", f"{width}", 59, 8, True),
        ("gate, up", f"2 × {width} → {inner}\n{_parameters(mlp.gate_proj, mlp.up_proj)}", 69, 11, True),
        ("SiLU(gate)\n× up", f"{inner}", 81.5, 8, False),
        ("down", f"{inner} → {width}\n{_parameters(mlp.down_proj)}", 91, 8, True),
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
    told = f"one block: {_parameters(block)} parameters"
    axes.text(99, 2.5, told, fontsize="small", color=INK, ha="right", va="center")
    figure.words = tuple(f"{name.replace(chr(10), ' ')} ({told.replace(chr(10), ', ')})" for name, told, *_ in boxes)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 48)
    axes.axis("off")
    headline(figure, "In a block, attention and the MLP each add a change to every token's vector")
    return figure


def _parameters(*modules: nn.Module) -> str:
    return short(sum(p.numel() for module in modules for p in module.parameters()))


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
