"""Schematic pictures of processes: a training step, a choice of strategy, and cards that share the work.

The colours mean what they mean in `diagrams`: blue is trained, orange is what backpropagation brings.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle

from tlkit.reports.diagrams import GRADIENT, INK, PASSED, SPARED, TRAINED, human
from tlkit.reports.figure import COLOURS, FAINT, Chart, described, headline, new_figure

STATE = {"weights": (4, TRAINED), "gradients": (4, GRADIENT), "optimizer state": (8, COLOURS[2])}  # bytes a value, fp32


@dataclass(frozen=True)
class Question:
    """One row of a decision tree.

    Attributes:
        text: the question.
        answer: that leads to `strategy`; the other one, `otherwise`, leads to the next row.
        strategy: what to begin with then.
        reason: why, in a few words.
        otherwise: the other answer.
    """

    text: str
    answer: str
    strategy: str
    reason: str
    otherwise: str


QUESTIONS = (
    Question(
        "Is there a GPU?",
        "no",
        "last_layers, train_norms=False",
        "Backpropagation ends early: the least arithmetic.",
        "yes",
    ),
    Question(
        "Do the weights fit its memory in 16 bits, and a step beside them?",
        "no",
        "qlora",
        "Frozen weights in 4 bits, with a small adapter beside them.",
        "yes",
    ),
    Question(
        "Will one model serve several tasks?", "yes", "lora", "One base model, and an adapter of a few MB a task.", "no"
    ),
    Question(
        "Does full fine-tuning fit the memory?",
        "no",
        "lora",
        "Gradients and optimizer state of few values only.",
        "yes",
    ),
    Question(
        "Must it keep what it knew before?",
        "yes",
        "lora, or full with general text mixed in",
        "Both forgot less in this course. Measure it.",
        "no",
    ),
    Question(
        "Are there fewer than about a hundred passages of text?",
        "yes",
        "full, and stop early",
        "So little text overfits soon; validation text says when.",
        "no",
    ),
)
ELSE = ("full", "Nothing gained more in this course's comparison of the small model.")


@described
def decision_tree(questions: Sequence[Question] = QUESTIONS, otherwise: tuple[str, str] = ELSE) -> Chart:
    """Which strategy to begin with: questions from top to bottom, each with an answer that ends the search.

    Args:
        questions: in the order in which they are asked.
        otherwise: strategy and reason where every question was answered so that the next was asked.
    """
    figure, axes = _canvas(0.8 + 0.86 * (len(questions) + 1), 100, 10 * (len(questions) + 1))
    for row, question in enumerate(questions):
        y = 10 * (len(questions) - row)
        _box(axes, 1, y + 1, 40, 7, textwrap.fill(f"{row + 1}. {question.text}", 38), PASSED)
        _arrow(axes, (41, y + 4.5), (53, y + 4.5), question.answer)
        _choice(axes, y, question.strategy, question.reason)
        _arrow(axes, (10, y + 1), (10, y - 2), question.otherwise)
    _box(axes, 1, 1, 40, 7, "none of these holds you back", SPARED)
    _arrow(axes, (41, 4.5), (53, 4.5))
    _choice(axes, 0, *otherwise)
    figure.words = tuple(f"{q.text} {q.answer.capitalize()}: {q.strategy}" for q in questions)
    figure.words += (f"Otherwise: {otherwise[0]}",)
    headline(figure, "Which strategy for my case? A place to begin, before you measure")
    return figure


@described
def step_flow(batch_size: int = 4, tokens: int = 128, vocabulary: int = 4096, values: int = 4_036_800) -> Chart:
    """The data flow of one training step, from a batch to changed weights, with the shapes of what is handed on.

    Args:
        batch_size: blocks in a step.
        tokens: in a block.
        vocabulary: logits of a token.
        values: of the model that are trained.
    """
    figure, axes = _canvas(4.1, 100, 44)
    shape, many = f"({batch_size}, {tokens})", human(values)
    top = {
        "batch": ("batch", f"token ids {shape}", SPARED),
        "forward": ("forward pass", f"weights: {many} values", PASSED),
        "logits": ("logits", f"({batch_size}, {tokens - 1}, {vocabulary})", SPARED),  # the last token only is a label
        "loss": ("loss", "one number, mean\nover the tokens", SPARED),
    }
    bottom = {
        "rate": ("learning rate", "schedule: warm-up,\nthen down", SPARED),
        "optimizer": ("optimizer", f"AdamW: {many} means,\n{many} mean squares", COLOURS[2]),
        "clip": ("clip", "norm of all gradients\nat most 1", GRADIENT),
        "backward": ("backward pass", f"one gradient per weight:\n{many} values", GRADIENT),
    }
    for row, y in ((top, 28), (bottom, 3)):
        for place, (name, told, shade) in enumerate(row.values()):
            _box(axes, 26 * place + 1, y, 20, 13, f"{name}\n", shade, bold=True, below=told)
    for place in range(3):
        _arrow(axes, (26 * place + 21, 34.5), (26 * place + 27, 34.5))
    _arrow(axes, (89, 28), (89, 16), shade=GRADIENT)
    for place in (2, 1):
        _arrow(axes, (26 * place + 27, 9.5), (26 * place + 21, 9.5), shade=GRADIENT)
    _arrow(axes, (21, 9.5), (27, 9.5))
    _arrow(axes, (37, 16), (37, 28), "changed weights,\nfor the next step", shade=TRAINED)
    figure.words = (
        "batch, forward pass, logits, loss, backward pass, clip, optimizer, changed weights, in this order",
    )
    headline(figure, f"One training step: {batch_size * tokens} tokens in, every one of {many} values moved a little")
    return figure


def ring_states(cards: int) -> list[list[list[int]]]:
    """Play an all-reduce in a ring.

    Args:
        cards: how many, at least 2.

    Returns:
        For the start and after each step, for each card and each part of the gradients, how many cards' gradients are
        added up in what it holds.

    Raises:
        ValueError: for fewer than two cards.
    """
    if cards < 2:
        raise ValueError(f"cards={cards}: a ring needs at least 2")
    held = [[1] * cards for _ in range(cards)]
    states = [[list(parts) for parts in held]]
    for step in range(2 * (cards - 1)):
        adding = step < cards - 1
        # What each card sends to the next one: first what it has just received and added to, then finished sums.
        sent = [(card - step if adding else card + 1 - (step - cards + 1)) % cards for card in range(cards)]
        amounts = [held[card][sent[card]] for card in range(cards)]
        for card in range(cards):
            after = (card + 1) % cards
            held[after][sent[card]] = amounts[card] + held[after][sent[card]] if adding else amounts[card]
        states.append([list(parts) for parts in held])
    return states


@described
def ring_scheme(cards: int = 4) -> Chart:
    """How cards add up their gradients in a ring: before, when every part is summed somewhere, and when all have all.

    Args:
        cards: how many, 2 to 8.
    """
    if not 2 <= cards <= 8:
        raise ValueError(f"cards={cards}: expected 2 to 8, more are not legible")
    states = ring_states(cards)
    figure, axes = _canvas(1.2 + 0.62 * cards, 100, 10 * cards + 5)
    panels = {
        "at the start": states[0],
        f"after {cards - 1} step{'s' * (cards > 2)} of adding": states[cards - 1],
        f"after {cards - 1} more, handing out": states[-1],
    }
    width = 18 / cards
    for panel, (title, state) in enumerate(panels.items()):
        left = 36 * panel + 1
        axes.text(left + 13, 10 * cards + 1, title, ha="center", fontsize="medium", fontweight="bold", color=INK)
        for card, parts in enumerate(state):
            y = 10 * (cards - 1 - card) + 2
            axes.text(left + 6.6, y + 3, f"card {card + 1}", ha="right", va="center", fontsize="small", color=INK)
            for part, count in enumerate(parts):
                shade = GRADIENT if count == cards else PASSED
                axes.add_patch(Rectangle((left + 8 + part * width, y), width, 6, facecolor=shade, edgecolor=INK))
                ink = "white" if count == cards else INK
                where = (left + 8 + (part + 0.5) * width, y + 3)
                axes.text(*where, count, ha="center", va="center", fontsize="small", color=ink)
            if card < cards - 1:
                _arrow(axes, (left + 17, y), (left + 17, y - 4))
        if panel < 2:
            _ring_back(axes, left, cards)
    axes.set_ylim(-3, 10 * cards + 5)
    share = 2 * (cards - 1) / cards
    times = "once" if share == 1 else f"{share:.3g} times"
    axes.text(
        50,
        -2.5,
        "each box: a part of the gradients; the number says how many cards' gradients are added up in it",
        ha="center",
        fontsize="small",
        color=FAINT,
    )
    figure.words = (f"in {2 * (cards - 1)} steps each card sends one part of the gradients a step to the next card",)
    headline(
        figure,
        f"In a ring of {cards}, each card sends {times} the size of the gradients, and in no ring more than twice",
    )
    return figure


@described
def sharding_scheme(cards: int = 4, values: int = 6_738_415_616) -> Chart:
    """What each card holds of weights, gradients and optimizer state with DDP and with FSDP, in fp32 with AdamW.

    Args:
        cards: how many, 2 to 8.
        values: of the model, all trained; by default those of llama2-7b.
    """
    if not 2 <= cards <= 8:
        raise ValueError(f"cards={cards}: expected 2 to 8, more are not legible")
    figure, axes = _canvas(4.6, 100, 64)
    whole = sum(size for size, _ in STATE.values()) * values
    wide = 88 / cards
    for base, (name, parts, told) in {
        34: ("DDP", 1, "a whole copy each"),
        2: ("FSDP", cards, f"1 of {cards} parts each, the rest gathered block by block"),
    }.items():
        held = whole / parts
        axes.text(1, base + 26.5, f"{name}: {told}", fontsize="medium", fontweight="bold", color=INK, va="center")
        axes.text(99, base + 26.5, f"{_gib(held)} on every card", fontsize="medium", color=INK, va="center", ha="right")
        for card in range(cards):
            left = 1 + card * (wide + 10 / (cards - 1))
            axes.add_patch(
                FancyBboxPatch(
                    (left, base), wide, 24, boxstyle="round,pad=0,rounding_size=1", facecolor="white", edgecolor=INK
                )
            )
            axes.text(left + wide / 2, base + 21.5, f"card {card + 1}", ha="center", va="center", fontsize="small")
            for row, (size, shade) in enumerate(STATE.values()):
                full = (wide - 3) * size / max(size for size, _ in STATE.values())
                y, step = base + 14 - 6 * row, full / parts
                outline = {"facecolor": "none", "edgecolor": FAINT, "linestyle": ":"}
                axes.add_patch(Rectangle((left + 1.5, y), full, 4.5, **outline))
                at = card * step if parts > 1 else 0
                axes.add_patch(Rectangle((left + 1.5 + at, y), step, 4.5, facecolor=shade, edgecolor=INK))
    kinds = {
        f"{kind} ({_gib(size * values)} in all)": Patch(facecolor=shade, edgecolor=INK)
        for kind, (size, shade) in STATE.items()
    }
    figure.legend(kinds.values(), kinds, loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    figure.words = (
        f"DDP: {_gib(whole)} on each of {cards} cards",
        f"FSDP: {_gib(whole / cards)} on each, and activations",
    )
    headline(
        figure,
        f"FSDP leaves each of {cards} cards {_gib(whole / cards)} of the {_gib(whole)} that DDP keeps on every card "
        "(activations come on top of both)",
    )
    return figure


def _gib(size: float) -> str:
    return f"{size / 2**30:.3g} GiB" if size >= 2**30 else f"{size / 2**20:.3g} MiB"


def _canvas(height: float, width: float, top: float) -> tuple[Chart, Axes]:
    """An empty chart whose axes are only paper."""
    figure, axes = new_figure(height)
    axes.set_xlim(0, width)
    axes.set_ylim(0, top)
    axes.axis("off")
    return figure, axes


def _box(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    text: str,
    shade: str,
    bold: bool = False,
    below: str = "",
) -> None:
    """A rounded box with its name, and under the name what is in it."""
    shape = FancyBboxPatch(
        (x, y), width, height, boxstyle="round,pad=0,rounding_size=1", facecolor=shade, edgecolor=INK
    )
    axes.add_patch(shape)
    dark_ground = shade in (TRAINED, GRADIENT, COLOURS[2])
    style = {"ha": "center", "color": "white" if dark_ground else INK}
    if below:
        axes.text(
            x + width / 2, y + 0.82 * height, text.strip(), va="center", fontweight="bold" if bold else None, **style
        )
        axes.text(x + width / 2, y + 0.38 * height, below, va="center", fontsize="small", **style)
    else:
        axes.text(x + width / 2, y + height / 2, text, va="center", fontsize="small", **style)


def _choice(axes: Axes, y: float, strategy: str, reason: str) -> None:
    """The box of a strategy, with the reason for it."""
    shape = FancyBboxPatch(
        (53, y + 0.4),
        46,
        8.2,
        boxstyle="round,pad=0,rounding_size=1",
        facecolor="white",
        edgecolor=TRAINED,
        linewidth=2,
    )
    axes.add_patch(shape)
    axes.text(55, y + 6.3, strategy, fontweight="bold", fontsize="small", color=TRAINED, va="center")
    axes.text(55, y + 2.9, textwrap.fill(reason, 50), fontsize="small", color=INK, va="center")


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], text: str = "", shade: str = INK) -> None:
    """An arrow with a word beside it: over one that lies, to the right of one that stands."""
    style = {"arrowstyle": "-|>", "color": shade, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=style)
    if text:
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        lies = start[1] == end[1]
        offset = {"xytext": (0, 3) if lies else (6, 0), "textcoords": "offset points", "fontsize": "small"}
        offset |= {"ha": "center" if lies else "left", "va": "bottom" if lies else "center"}
        axes.annotate(text, middle, color=shade, **offset)


def _ring_back(axes: Axes, left: float, cards: int) -> None:
    """The way from the last card back to the first."""
    style = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.2, "connectionstyle": "arc3,rad=0.35", "shrinkA": 0}
    axes.annotate("", (left + 26.5, 10 * (cards - 1) + 5), (left + 26.5, 5), arrowprops=style)
