"""Schematic pictures of processes: a training step, and the choice of a strategy.

The colours mean what they mean in `diagrams`: blue is trained, orange is what backpropagation brings.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from tlkit.reports.drawing import GRADIENT, INK, PASSED, SPARED, TRAINED, arrow, box, paper
from tlkit.reports.figure import COLOURS, Chart, described, headline
from tlkit.reports.findings import short


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
    figure, axes = paper(0.8 + 0.86 * (len(questions) + 1), 100, 10 * (len(questions) + 1))
    for row, question in enumerate(questions):
        y = 10 * (len(questions) - row)
        words = textwrap.fill(f"{row + 1}. {question.text}", 38)
        box(axes, (1, y + 1), 40, 7, words, facecolor=PASSED)
        arrow(axes, (41, y + 4.5), (53, y + 4.5), question.answer)
        _choice(axes, y, question.strategy, question.reason)
        arrow(axes, (10, y + 1), (10, y - 2), question.otherwise)
    box(axes, (1, 1), 40, 7, "none of these holds you back", facecolor=SPARED)
    arrow(axes, (41, 4.5), (53, 4.5))
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
    figure, axes = paper(4.1, 100, 44)
    shape, many = f"({batch_size}, {tokens})", short(values)
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
            box(axes, (26 * place + 1, y), 20, 13, name, told, facecolor=shade)
    for place in range(3):
        arrow(axes, (26 * place + 21, 34.5), (26 * place + 27, 34.5))
    arrow(axes, (89, 28), (89, 16), shade=GRADIENT)
    for place in (2, 1):
        arrow(axes, (26 * place + 27, 9.5), (26 * place + 21, 9.5), shade=GRADIENT)
    arrow(axes, (21, 9.5), (27, 9.5))
    arrow(axes, (37, 16), (37, 28), "changed weights,\nfor the next step", shade=TRAINED)
    figure.words = (
        "batch, forward pass, logits, loss, backward pass, clip, optimizer, changed weights, in this order",
    )
    headline(figure, f"One training step: {batch_size * tokens} tokens in, every one of {many} values moved a little")
    return figure


def _choice(axes: Axes, y: float, strategy: str, reason: str) -> None:
    """The box of a strategy, with the reason for it."""
    box(axes, (53, y + 0.4), 46, 8.2, edgecolor=TRAINED, linewidth=2)
    axes.text(55, y + 6.3, strategy, fontweight="bold", fontsize="small", color=TRAINED, va="center")
    axes.text(55, y + 2.9, textwrap.fill(reason, 50), fontsize="small", color=INK, va="center")
