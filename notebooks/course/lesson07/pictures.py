"""The picture of lesson 7: which products of a training step are computed, part by part."""

from matplotlib.patches import Patch, Rectangle
from torch import nn

from course.drawing import GRADIENT, TRAINED
from tlkit.reports.figure import FAINT, INK, Chart, described, headline, new_figure

PRODUCTS = {"forward": "#BBBBBB", "gradient of the input": GRADIENT, "gradient of the weights": TRAINED}
NOT_NEEDED = {"facecolor": "white", "edgecolor": FAINT, "linestyle": ":"}


def products_of(model: nn.Module) -> dict[str, tuple[bool, bool, bool]]:
    """For each block and the head, which of the three products of `PRODUCTS` a training step computes.

    Args:
        model: transformers' Qwen2 or Llama; only shapes and `requires_grad` are read.
    """
    parts = {f"block {number}": list(block.parameters()) for number, block in enumerate(model.model.layers)}
    parts["head"] = [*model.model.norm.parameters(), *model.get_output_embeddings().parameters()]
    below, found = model.get_input_embeddings().weight.requires_grad, {}
    for name, parameters in parts.items():
        below = below or any(parameter.requires_grad for parameter in parameters)
        found[name] = (True, below, any(p.requires_grad and p.ndim == 2 for p in parameters))
    return found


@described
def products_chart(models: dict[str, nn.Module], finding: str) -> Chart:
    """The three matrix products of every block and of the head, one row of boxes for each model, `finding` above."""
    figure, axes = new_figure(height=1.0 + 1.25 * len(models))
    figure.words = ()
    for place, (title, model) in enumerate(models.items()):
        base, parts = -4.6 * place, products_of(model)
        axes.text(0, base + 3.5, title, fontweight="bold", color=INK, va="center")
        block, head = model.model.layers[0].parameters(), model.get_output_embeddings().weight
        wide = head.numel() / sum(weights.numel() for weights in block)  # a block's boxes are 1 wide
        for column, (name, done) in enumerate(parts.items()):
            width = wide if name == "head" else 1
            axes.text(column + width / 2, base - 0.12, name, ha="center", va="top", fontsize="small", color=INK)
            for row, (shade, computed) in enumerate(zip(PRODUCTS.values(), done, strict=True)):
                style = {"facecolor": shade, "edgecolor": INK} if computed else NOT_NEEDED
                axes.add_patch(Rectangle((column + 0.04, base + 2.06 - row), width - 0.08, 0.88, **style))
        figure.words += (f"{title}: {sum(map(sum, parts.values()))} of {3 * len(parts)} products are computed",)
    axes.set(xlim=(-0.1, column + wide + 0.1), ylim=(base - 1.0, 4.1))
    axes.axis("off")
    kinds = {name: Patch(facecolor=shade, edgecolor=INK) for name, shade in PRODUCTS.items()}
    kinds["not needed"] = Patch(**NOT_NEEDED)
    figure.legend(kinds.values(), kinds, loc="outside lower center", ncols=4, fontsize="small", frameon=False)
    headline(figure, finding)
    return figure
