"""The picture of lesson 11: a padded batch."""

import matplotlib.pyplot as plt
import torch

from tlkit.examples import IGNORED


def batch_picture(batch: dict[str, torch.Tensor]) -> None:
    """Draw which places of a batch are padding, only read, and learned.

    Args:
        batch: with `attention_mask` and `labels`, each of shape (rows, tokens).
    """
    learned = batch["labels"] != IGNORED
    figure, axes = plt.subplots(figsize=(8, 2.4), layout="constrained")
    axes.imshow(batch["attention_mask"] + learned, aspect="auto", cmap="Blues", interpolation="nearest")
    axes.set(xlabel="place in the row (white: padding, light: only read, dark: learned)", ylabel="row")
    axes.set_title(f"{learned.float().mean():.0%} of the places are learned: the end of each row, before its padding")
    plt.show()
