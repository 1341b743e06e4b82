"""The picture of lesson 11: a padded batch."""

import torch

from tlkit.examples import IGNORED
from tlkit.reports.figure import Chart, described, headline, new_figure


@described
def batch_picture(batch: dict[str, torch.Tensor]) -> Chart:
    """A padded batch: which of its places are padding, only read, and learned.

    Args:
        batch: with `attention_mask` and `labels`, each of shape (rows, tokens).
    """
    learned = batch["labels"] != IGNORED
    figure, axes = new_figure(height=2.6)
    axes.imshow(batch["attention_mask"] + learned, aspect="auto", cmap="Blues", interpolation="nearest")
    axes.set(xlabel="place in the row (white: padding, light: only read, dark: learned)", ylabel="row")
    headline(figure, f"{learned.float().mean():.0%} of the places are learned: the end of each row, before its padding")
    return figure
