"""Record which depth of a model tells the classes of the passages, with all weights as they are.

    python data/build/record_depth.py smollm2-135m-instruct data/sweeps/smollm2-135m-instruct/classify/depth.csv

A linear classifier is fitted to the hidden states behind each block: to that of the last token, and to the mean of
all of a text, of the pretrained model and of one with random weights. Depth and penalty are chosen on validation text;
the chosen depth of each alone is scored on test text, and there with fewer labelled passages on validation text.
"""

import datetime
import sys
from pathlib import Path

import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.nn import functional

import tlkit as tl
from tlkit.checkpoints.identity import hash_of
from tlkit.examples import PADDING, Examples, inputs_of
from tlkit.models.adapters import base_model
from tlkit.models.passes import evaluation_mode

SIZES = (8, 32, 128)  # labelled passages, beside all
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of squared weights, from which a probe's is chosen on validation text


def main() -> None:
    name, output = sys.argv[1], Path(sys.argv[2])
    tl.setup()
    rust = tl.load_labelled()
    rows = []
    for weights in ("pretrained", "random"):
        loaded = tl.load_model(name, random_init=weights == "random")
        about = {"model": name, "weights": weights, "weights_sha256": hash_of(loaded.model.parameters())}
        splits = {"train": rust.train, "validation": rust.validation, "test": rust.test}
        texts = {
            split: tl.class_examples(documents, loaded.tokenizer, tl.class_names(rust.train))
            for split, documents in splits.items()
        }
        labels = {split: part.labels for split, part in texts.items()}
        both = {split: layer_features(loaded.model, part, pool="both") for split, part in texts.items()}
        width = both["train"].shape[2] // 2
        del loaded
        for pool, half in (("last token", slice(0, width)), ("mean", slice(width, None))):
            rows += [
                about | {"pool": pool} | row
                for row in probed({split: part[..., half].double() for split, part in both.items()}, labels)
            ]
    today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    record = pd.DataFrame(rows).assign(corpus_sha256=rust.sha256, date=today, torch=torch.__version__)
    output.parent.mkdir(parents=True, exist_ok=True)
    record.to_csv(output, index=False)


def probed(features: dict[str, torch.Tensor], labels: dict[str, torch.Tensor]) -> list[dict[str, object]]:
    """A row for each depth, for the best one also its score on test text and rows for fewer passages."""

    def fitted(depth: int, passages: int) -> tuple[dict[str, object], object]:
        train = features["train"][depth][:passages], labels["train"][:passages]
        linear, penalty = best_linear(train, (features["validation"][depth], labels["validation"]))
        found = predict(linear, features["validation"][depth])
        row = {"depth": depth, "passages": passages, "penalty": penalty}
        return row | {"balanced_accuracy": tl.balanced_accuracy(found, labels["validation"])}, linear

    all_of_them = len(labels["train"])
    found = [fitted(depth, all_of_them) for depth in range(len(features["train"]))]
    rows = [row for row, _ in found]
    best = max(range(len(rows)), key=lambda depth: rows[depth]["balanced_accuracy"])
    predicted = predict(found[best][1], features["test"][best])
    low, high = tl.balanced_interval(predicted, labels["test"])
    rows[best] |= {"test": tl.balanced_accuracy(predicted, labels["test"]), "test_low": low, "test_high": high}
    return rows + [fitted(best, size)[0] for size in SIZES]


def fit_linear(features: torch.Tensor, labels: torch.Tensor, penalty: float) -> Pipeline:
    """Fit logistic regression to standardised features, to convergence.

    Args:
        features: shape (rows, features).
        labels: classes from 0, shape (rows,).
        penalty: times half the sum of the squared weights, added to the mean loss.
    """
    # scikit-learn adds up the losses where the penalty here stands beside their mean.
    regression = LogisticRegression(C=1 / (penalty * len(labels)), max_iter=10_000, tol=1e-6)
    return make_pipeline(StandardScaler(), regression).fit(features.double().numpy(), labels.numpy())


def predict(linear: Pipeline, features: torch.Tensor) -> torch.Tensor:
    """The class of each row of features."""
    return torch.from_numpy(linear.predict(features.double().numpy()))


def best_linear(
    train: tuple[torch.Tensor, torch.Tensor], validation: tuple[torch.Tensor, torch.Tensor]
) -> tuple[Pipeline, float]:
    """Fit linear classifiers with several penalties, and keep the one that does best on validation rows.

    Args:
        train: features and labels.
        validation: features and labels to choose the penalty with.

    Returns:
        The classifier and its penalty.
    """
    fitted = [(fit_linear(*train, penalty), penalty) for penalty in PENALTIES]
    return max(fitted, key=lambda one: tl.balanced_accuracy(predict(one[0], validation[0]), validation[1]))


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


if __name__ == "__main__":
    main()
