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

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "notebooks"))

import tlkit as tl
from course.lesson13 import probing
from tlkit.checkpoints.identity import hash_of

SIZES = (8, 32, 128)  # labelled passages, beside all


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
        both = {split: probing.layer_features(loaded.model, part, pool="both") for split, part in texts.items()}
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
        linear = probing.best_linear(train, (features["validation"][depth], labels["validation"]))
        found = linear.predict(features["validation"][depth])
        row = {"depth": depth, "passages": passages, "penalty": linear.penalty}
        return row | {"balanced_accuracy": tl.balanced_accuracy(found, labels["validation"])}, linear

    all_of_them = len(labels["train"])
    found = [fitted(depth, all_of_them) for depth in range(len(features["train"]))]
    rows = [row for row, _ in found]
    best = max(range(len(rows)), key=lambda depth: rows[depth]["balanced_accuracy"])
    predicted = found[best][1].predict(features["test"][best])
    low, high = tl.balanced_interval(predicted, labels["test"])
    rows[best] |= {"test": tl.balanced_accuracy(predicted, labels["test"]), "test_low": low, "test_high": high}
    return rows + [fitted(best, size)[0] for size in SIZES]


if __name__ == "__main__":
    main()
