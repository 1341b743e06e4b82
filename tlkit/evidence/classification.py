"""How well texts are put into classes: balanced accuracy, and its interval."""

import torch

DRAWS = 1000


def balanced_accuracy(predicted: torch.Tensor, labels: torch.Tensor) -> float:
    """The mean over classes of the share of its texts that are put into it; one over their number for a guess.

    Args:
        predicted: classes, shape (texts,).
        labels: the true ones.
    """
    return float(torch.stack([(predicted[labels == c] == c).double().mean() for c in labels.unique()]).mean())


def balanced_interval(predicted: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """A 95% interval of balanced accuracy, had other texts been asked, and had other seeds been drawn.

    Texts are resampled within their class, so that no class is ever missing; where there are several runs, these are
    resampled too.

    Args:
        predicted: classes, shape (texts,) of one run or (runs, texts) of runs with several seeds.
        labels: the true ones, shape (texts,).
    """
    runs = predicted if predicted.ndim == 2 else predicted[None]
    right, generator = (runs == labels).double(), torch.Generator().manual_seed(0)
    means = torch.zeros(DRAWS, dtype=torch.float64)
    drawn = torch.randint(len(runs), (DRAWS, len(runs)), generator=generator)
    classes = labels.unique()
    for c in classes:
        texts = (labels == c).nonzero().flatten()
        chosen = texts[torch.randint(len(texts), (DRAWS, len(texts)), generator=generator)]
        means += right[drawn[:, :, None], chosen[:, None, :]].mean((1, 2)) / len(classes)
    low, high = torch.quantile(means, torch.tensor([0.025, 0.975], dtype=means.dtype)).tolist()
    return low, high
