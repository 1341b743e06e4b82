"""Features of a model layer by layer, and two baselines on them: a linear probe, and a bag of words."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from tlkit.evidence.classification import balanced_accuracy
from tlkit.examples import PADDING, Examples, inputs_of
from tlkit.examples.labelled import Labelled
from tlkit.models.adapters import base_model
from tlkit.models.passes import evaluation_mode

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of squared weights, from which a probe's is chosen on validation text


@dataclass(frozen=True)
class LinearClassifier:
    """A class for each row of features: standardised, times a matrix, plus a bias; the largest number wins.

    Attributes:
        weight: shape (classes, features).
        bias: shape (classes,).
        mean: of each feature over the training rows.
        scale: of each feature.
        penalty: on squared weights, with which it was fitted.
    """

    weight: torch.Tensor
    bias: torch.Tensor
    mean: torch.Tensor
    scale: torch.Tensor
    penalty: float

    def predict(self, features: torch.Tensor) -> torch.Tensor:
        """The class of each row.

        Args:
            features: shape (rows, features).
        """
        return functional.linear((features - self.mean) / self.scale, self.weight, self.bias).argmax(1)


def fit_linear(features: torch.Tensor, labels: torch.Tensor, *, penalty: float = 1e-2) -> LinearClassifier:
    """Fit a linear classifier (logistic regression) to features, to convergence.

    Args:
        features: shape (rows, features).
        labels: classes from 0, shape (rows,).
        penalty: times the mean of the squared weights' sum, added to the mean loss.

    Returns:
        The classifier.
    """
    features = features.double()
    mean, scale = features.mean(0), features.std(0, unbiased=False)
    scale = scale.where(scale > 0, 1.0)
    standard, classes = (features - mean) / scale, int(labels.max()) + 1
    weight = torch.zeros(classes, features.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        fit = functional.cross_entropy(functional.linear(standard, weight, bias), labels)
        total = fit + penalty * weight.square().sum() / 2
        total.backward()
        return total

    optimizer.step(loss)
    return LinearClassifier(weight.detach(), bias.detach(), mean, scale, penalty)


def best_linear(
    train: tuple[torch.Tensor, torch.Tensor], validation: tuple[torch.Tensor, torch.Tensor]
) -> LinearClassifier:
    """Fit linear classifiers with several penalties, and keep the one that does best on validation rows.

    Args:
        train: features and labels.
        validation: features and labels to choose the penalty with.
    """
    fitted = [fit_linear(*train, penalty=penalty) for penalty in PENALTIES]
    return max(fitted, key=lambda found: balanced_accuracy(found.predict(validation[0].double()), validation[1]))


def bag_of_words(train: Sequence[Labelled], others: Sequence[Labelled]) -> tuple[torch.Tensor, torch.Tensor]:
    """Count which words are in a text, the classical features: no order, and no pretraining.

    Args:
        train: texts whose words are counted; one that is in fewer than two of them is left out.
        others: texts that the same words are looked for in.

    Returns:
        For each, 1 where a word is there, divided by the root of how many there are; shape (texts, words).
    """

    def words(document: Labelled) -> set[str]:
        return set("".join(c.lower() if c.isalnum() else " " for c in document.text).split())

    counts: dict[str, int] = {}
    for document in train:
        for word in words(document):
            counts[word] = counts.get(word, 0) + 1
    place = {word: number for number, word in enumerate(sorted(w for w, count in counts.items() if count > 1))}

    def features(documents: Sequence[Labelled]) -> torch.Tensor:
        found = torch.zeros(len(documents), len(place), dtype=torch.float64)
        for row, document in enumerate(documents):
            found[row, [place[word] for word in words(document) if word in place]] = 1.0
        return found / found.sum(1, keepdim=True).clamp(min=1).sqrt()

    return features(train), features(others)


@torch.no_grad()
def layer_features(model: nn.Module, examples: Examples, *, pool: str = "last", batch_size: int = 8) -> torch.Tensor:
    """What each layer of a model makes of a text, as one vector: a hidden state, or the mean of all of them.

    Args:
        model: a causal language model or a classifier, as it is.
        examples: a text in each row.
        pool: "last", the hidden state of the last token, which alone has seen the whole text, "mean" over the text's
            tokens, or "both", the one behind the other, in one pass. Padding counts in none of them.
        batch_size: rows at once.

    Returns:
        Shape (layers, rows, width), with "both" (layers, rows, 2 * width); the embedding first, in fp32 on the host.
    """
    device, dtype = next(model.parameters()).device, next(model.parameters()).dtype
    base = base_model(model)
    decoder = getattr(base, base.base_model_prefix)
    lengths = (examples.texts != PADDING).sum(1)
    order, found = lengths.argsort(), []  # texts of similar length together, so that little padding is read
    with evaluation_mode(model):
        for rows in order.split(batch_size):
            part = examples[rows].trimmed().to(device)
            states = decoder(**inputs_of(part, dtype), use_cache=False, output_hidden_states=True).hidden_states
            mean = (part.texts != PADDING).float()
            last = functional.one_hot(mean.sum(1).long() - 1, part.shape[1]).float()
            mean = mean / mean.sum(1, keepdim=True)
            weights = torch.stack({"last": [last], "mean": [mean], "both": [last, mean]}[pool], 1)
            found.append(torch.stack([(weights @ state.float()).flatten(1).cpu() for state in states]))
    return torch.cat(found, 1)[:, order.argsort()]
