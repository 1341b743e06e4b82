"""Pictures of what happens inside a language model: tokens, a block, attention, probabilities, depth."""

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Polygon, Rectangle
from torch import nn

from tlkit.models.adapters import base_model
from tlkit.models.parts import find_blocks
from tlkit.reports.drawing import GRADIENT, INK, PASSED, TRAINED, arrow, box
from tlkit.reports.figure import Chart, described, headline, new_figure
from tlkit.reports.findings import short

TINTS = ["#CFE5F3", "#FBDCC8", "#CBEBDD", "#F3DFEA", "#FBEFC6"]  # neighbours in a strip of tokens
LINE = 78  # characters of a strip in one line
# What a block of the Llama family (Qwen, Mistral, SmolLM) names its parts.
NORMS, ATTENTION, MLP = (
    ("input_layernorm", "post_attention_layernorm"),
    ("q_proj", "k_proj", "v_proj", "o_proj"),
    ("gate_proj", "up_proj", "down_proj"),
)


@described
def token_strip(*texts: Sequence[str]) -> Chart:
    """Texts cut into tokens, each token in a box of its own.

    Args:
        *texts: the tokens of a text, as text; a space at the beginning of one is drawn as a dot.
    """
    rows = [row for text in texts for row in [*_lines(text), []]][:-1]
    figure, axes = new_figure(height=0.55 + 0.36 * len(rows))
    number = 0
    for line, row in enumerate(rows):
        left = 0.0
        for token in row:
            width = _width(token)
            tint = TINTS[number % len(TINTS)]
            axes.add_patch(Rectangle((left, -line), width - 0.15, 0.78, facecolor=tint, edgecolor=INK))
            shown = token.replace(" ", "·").replace("\n", "⏎")
            axes.text(left + width / 2, -line + 0.37, shown, ha="center", va="center", family="monospace", fontsize=9)
            left, number = left + width, number + 1
    figure.words = tuple(f"{len(text)} tokens: {' | '.join(text)}" for text in texts)
    axes.set_xlim(-0.2, LINE)
    axes.set_ylim(-len(rows) + 0.9, 0.9)
    axes.axis("off")
    headline(figure, "Each box is one token; a dot stands for a space")
    return figure


@described
def transformer_block(model: nn.Module) -> Chart:
    """One block of a transformer, with the shape and the number of values of each of its parts.

    Args:
        model: a causal language model of the Llama family, with adapters or without, also one on paper.

    Raises:
        ValueError: where the blocks are built from other parts.
    """
    blocks = find_blocks(base_model(model))
    parts = _parts(blocks[0])
    config = base_model(model).config.get_text_config()
    width, inner = config.hidden_size, parts["gate_proj"].weight.shape[0]
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    figure, axes = new_figure(height=4.3)
    _draw_stack(axes, len(blocks))
    arrow(axes, (1, 8), (99, 8), shade=TRAINED, linewidth=5)
    axes.text(1, 2.5, f"residual stream: {width} numbers a token", fontsize="small", color=TRAINED, va="center")
    size = {
        name: short(sum(value.numel() for part in names for value in parts[part].parameters()))
        for name, names in _groups(parts).items()
    }
    boxes = [
        ("RMSNorm", f"{width}", 0, 3, 8),
        ("Q K V", f"Q {width} → {parts['q_proj'].weight.shape[0]}\nK {width} → {parts['k_proj'].weight.shape[0]}\n"
         f"V {width} → {parts['v_proj'].weight.shape[0]}\n{size['qkv']}", 1, 14, 13),
        ("attention", f"rotary positions\n{heads} query heads\n{groups} key/value\nheads, causal", 2, 29.5, 13),
        ("O", f"{parts['o_proj'].weight.shape[1]} → {width}\n{size['o']}", 3, 45, 8),
        ("RMSNorm", f"{width}", 0, 59, 8),
        ("gate, up", f"2 × {width} → {inner}\n{size['gate up']}", 4, 69, 11),
        ("SiLU(gate)\n× up", f"{inner}", 2, 81.5, 8),
        ("down", f"{inner} → {width}\n{size['down']}", 5, 91, 8),
    ]  # fmt: skip
    for name, told, kind, left, wide in boxes:
        _draw_part(axes, name, told, left, wide, learned=kind != 2)
    for begin, end, name in ((0, 3, "attention: mixes tokens"), (4, 7, "MLP: works on each token alone")):
        _draw_branch(axes, [(left, wide) for _, _, _, left, wide in boxes[begin : end + 1]], name)
    total = sum(part.numel() for part in blocks[0].parameters())
    axes.text(99, 2.5, f"one block: {short(total)} values", fontsize="small", color=INK, ha="right", va="center")
    figure.words = tuple(f"{name.replace(chr(10), ' ')} ({told.replace(chr(10), ', ')})" for name, told, *_ in boxes)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 62)
    axes.axis("off")
    headline(figure, "In a block, attention and the MLP each add a change to every token's vector")
    return figure


@described
def attention_chart(
    weights: torch.Tensor,
    tokens: Sequence[str],
    titles: Sequence[str],
    finding: str,
    examples: Sequence[tuple[int, int, int]] = (),
) -> Chart:
    """How much each token (row) looks at each token before it (column), for some heads.

    Args:
        weights: attention weights after the softmax, shape (heads, tokens, tokens).
        tokens: as text.
        titles: one for each head, drawn where there are several.
        finding: title of the whole chart.
        examples: cells to frame: the number of the panel, the row and the column.
    """
    count = len(titles)
    figure, first = new_figure(height=5.6 if count == 1 else 1.7 + 7.2 / count)
    first.remove()
    figure.get_layout_engine().set(h_pad=0.1)  # between the titles of the chart and of its panels
    panels = figure.subplots(1, count, squeeze=False)[0]
    names = [token.replace("<|endoftext|>", "[end]").strip() or token for token in tokens]
    for panel, head, title in zip(panels, weights, titles, strict=True):
        future = torch.ones_like(head, dtype=torch.bool).triu(1)
        panel.set_facecolor("#DDDDDD")
        shown = head.detach().masked_fill(future, torch.nan)
        picture = panel.imshow(shown.numpy(), cmap="Blues", vmin=0, vmax=1)
        if count > 1:
            panel.set_title(title, fontsize="medium")
        panel.set_xlabel("the token that it looks at")
        panel.grid(visible=False)
        fontsize = 8 if count == 1 else 7.5
        panel.set_xticks(range(len(names)), names, rotation=90, fontsize=fontsize)
        panel.set_yticks(range(len(names)), names, fontsize=fontsize)
        panel.text(0.97, 0.93, "masked:\nthe future", transform=panel.transAxes, ha="right", va="top", fontsize=8)
    for place, row, column in examples:
        frame = {"fill": False, "edgecolor": GRADIENT, "linewidth": 2}
        panels[place].add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **frame))
    panels[0].set_ylabel("the token that looks")
    where = {"shrink": 0.6} if count == 1 else {"location": "bottom", "shrink": 0.5, "aspect": 40}
    bar = figure.colorbar(picture, ax=list(panels), **where)
    bar.set_label("attention weight (a row adds up to 1)", fontsize="small")
    headline(figure, finding)
    figure.words = tuple(
        f"{titles[place]}: {names[row]} looks at {names[column]} with weight {float(weights[place][row, column]):.1f}"
        for place, row, column in examples
    )
    return figure


@described
def next_token_chart(probabilities: torch.Tensor, vocabulary: Sequence[str], right: int, title: str) -> Chart:
    """The likeliest next tokens and their probabilities; the one that the text has is filled.

    Args:
        probabilities: of every token of the vocabulary, shape (vocabulary,).
        vocabulary: every token as text.
        right: the token that the text goes on with.
        title: of the chart.
    """
    best = probabilities.topk(8).indices.tolist()
    best += [] if right in best else [right]
    figure, axes = new_figure(height=0.9 + 0.32 * len(best))
    values = [100 * float(probabilities[token]) for token in best]
    names = ["‘" + vocabulary[token].replace(" ", "·") + "’" for token in best]
    colours = [TRAINED if token == right else PASSED for token in best]
    axes.barh(range(len(best)), values, color=colours, edgecolor=INK)
    for place, value in enumerate(values):
        axes.text(value + 0.4, place, f"{value:.1f}%", va="center", fontsize="small")
    axes.set_yticks(range(len(best)), names, family="monospace")
    axes.invert_yaxis()
    axes.set_axisbelow(True)
    axes.set_xlim(0, 1.12 * max(values))
    axes.set_xlabel("probability of being the next token (%)")
    headline(figure, title)
    return figure


@described
def token_losses_chart(tokens: Sequence[str], losses: Sequence[float], title: str) -> Chart:
    """The loss of each token of a text, and their mean.

    Args:
        tokens: the tokens that were predicted, as text.
        losses: in nats, one for each.
        title: of the chart.
    """
    figure, axes = new_figure(height=3.6)
    axes.bar(range(len(tokens)), losses, color=TRAINED, edgecolor=INK)
    mean = sum(losses) / len(losses)
    axes.axhline(mean, color=GRADIENT, linestyle="--")
    axes.text(len(tokens) - 0.4, mean, f"mean {mean:.2f}", color=GRADIENT, va="bottom", fontsize="small")
    axes.set_xticks(range(len(tokens)), [token.strip() or token for token in tokens], rotation=60, ha="right")
    axes.set_xlim(-0.7, len(tokens) + 0.09 * len(tokens))
    axes.set_ylabel("loss (nats)")
    headline(figure, title)
    axes.grid(visible=False, axis="x")
    axes.set_axisbelow(True)
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


@described
def layer_losses_chart(losses: Sequence[float], vocabulary: int, title: str) -> Chart:
    """Loss of the predictions that are read from each depth.

    Args:
        losses: nats per token, from the embedding to the last block.
        vocabulary: its size; a guess among all tokens costs the logarithm of it.
        title: of the chart.
    """
    figure, axes = new_figure(height=3.8)
    blind = float(torch.tensor(float(vocabulary)).log())
    axes.plot(range(len(losses)), losses, color=TRAINED, marker="o", linewidth=2, clip_on=True)
    axes.axhline(blind, color=INK, linestyle="--")
    axes.text(
        len(losses) - 1, blind + 0.1, f"guessing among {vocabulary:,} tokens: {blind:.1f}", ha="right", fontsize=9
    )
    top = blind + 1.2
    for depth, loss in enumerate(losses):
        if loss > top:
            told = f"{loss:.1f}\n(off the scale)"
            axes.text(depth + 0.05, top - 0.1, told, ha="center", va="top", fontsize="small")
        else:
            axes.text(depth + 0.08, loss + 0.15, f"{loss:.1f}")
    axes.set_ylim(0, top)
    axes.set_xlim(-0.6, len(losses) - 0.4)
    axes.set_xticks(
        range(len(losses)), ["embed-\nding", *(f"after\nblock {depth}" for depth in range(len(losses) - 1))]
    )
    axes.set_ylabel("loss (nats per token)")
    headline(figure, title)
    return figure


def _lines(text: Sequence[str]) -> list[list[str]]:
    """Tokens in lines that fit a strip."""
    rows, used = [[]], 0.0
    for token in text:
        if rows[-1] and used + _width(token) > LINE:
            rows, used = [*rows, []], 0.0
        rows[-1].append(token)
        used += _width(token)
    return rows


def _width(token: str) -> float:
    return len(token) + 0.9


def _parts(block: nn.Module) -> dict[str, nn.Module]:
    """Each part of a block, by its short name."""
    found = {name.split(".")[-1]: module for name, module in block.named_modules()}
    wanted = [*NORMS, *ATTENTION, *MLP]
    missing = [name for name in wanted if name not in found]
    if missing:
        raise ValueError(
            f"{type(block).__name__} has no {', '.join(missing)}: expected a block of the Llama family "
            f"({', '.join(wanted)})"
        )
    return {name: found[name] for name in wanted}


def _groups(parts: dict[str, nn.Module]) -> dict[str, tuple[str, ...]]:
    return {"qkv": ATTENTION[:3], "o": ATTENTION[3:], "gate up": MLP[:2], "down": MLP[2:]}


def _draw_stack(axes: Axes, count: int) -> None:
    """The whole model as a row of small boxes, and the lines from one of its blocks to the picture of it."""
    drawn = min(count, 12)
    names = ["embedding", *map(str, range(drawn - 1)), str(count - 1), "norm", "head"]
    if drawn < count:
        names[drawn - 1] = "…"
    widths = [10, *[4.6] * drawn, 6.5, 6.5]
    left = (100 - sum(widths)) / 2
    for place, (name, wide) in enumerate(zip(names, widths, strict=True)):
        chosen = place == 1
        axes.add_patch(Rectangle((left, 54), wide - 0.8, 7, facecolor=TRAINED if chosen else PASSED, edgecolor=INK))
        colour = "white" if chosen else INK
        axes.text(left + wide / 2 - 0.4, 57.5, name, ha="center", va="center", fontsize=8, color=colour)
        if chosen:
            zoom = Polygon([(left, 54), (left + wide - 0.8, 54), (99, 48), (1, 48)], facecolor=PASSED, alpha=0.4)
            axes.add_patch(zoom)
        left += wide


def _draw_part(axes: Axes, name: str, told: str, left: float, wide: float, learned: bool) -> None:
    """A box of a block: its name in it, its shape and values above it."""
    box(axes, (left, 20), wide, 9, name, facecolor=TINTS[0] if learned else "white", rounding=0.8, fontsize=7.5)
    axes.text(left + wide / 2, 30, told, ha="center", va="bottom", fontsize=7, color=INK)


def _draw_branch(axes: Axes, places: Sequence[tuple[float, float]], name: str) -> None:
    """The way from the residual stream through the boxes of a branch and back, where it is added."""
    (first, wide), (last, last_wide) = places[0], places[-1]
    begin, end = first + wide / 2, last + last_wide / 2
    arrow(axes, (begin, 8.8), (begin, 20), linewidth=1)
    for (left, across), (right, _) in zip(places, places[1:], strict=False):
        arrow(axes, (left + across, 24.5), (right, 24.5), linewidth=1)
    arrow(axes, (end, 20), (end, 10.2), linewidth=1)
    axes.plot(end, 8, marker="o", markersize=15, markerfacecolor="white", markeredgecolor=INK, zorder=5)
    axes.text(end, 7.9, "+", ha="center", va="center", fontsize=13, zorder=6)
    axes.text((first + last + last_wide) / 2, 45, name, ha="center", va="center", fontsize=10, fontweight="bold")
