"""Schematic pictures of processes: a training step, and the choice of a strategy.

The colours mean what they mean in `diagrams`: blue is trained, orange is what backpropagation brings.
"""

from tlkit.reports.drawing import GRADIENT, PASSED, SPARED, TRAINED, arrow, box, paper
from tlkit.reports.figure import COLOURS, Chart, described, headline
from tlkit.reports.findings import short


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
