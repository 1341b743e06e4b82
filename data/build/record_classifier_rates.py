"""Record the search for rate and epochs of lesson 13, by folds of its training texts and functions of its page.

    python data/build/record_classifier_rates.py data/sweeps/tiny/classify

The code cells of the lesson run up to the one that defines `fine_tuned`. A line of `folds.csv` is one setting and one
fold: how many of the fold's texts are named rightly, of how many. With 0 epochs it is the probe. `out_of_fold.csv` has
each training text's probabilities of the nine classes, in percent, at the best setting, by the model that did not
learn from it. No test text is read.
On one thread, in about ten minutes.
"""

import sys
from pathlib import Path

import pandas as pd
import torch
from lesson_page import names_of
from sklearn.base import clone

SETTINGS = ((0, 0), (1, 3e-4), (1, 1e-3), (1, 3e-3), (1, 1e-2), (3, 1e-3), (3, 3e-3))  # epochs and rate


def main() -> None:
    torch.set_num_threads(1)
    page = names_of("13_classification", "fine_tuned", cut="\nrecorded =")
    rows, parts, folder = [], {}, Path(sys.argv[1])
    train, x = page["train"], page["x"]
    for epochs, rate in SETTINGS:
        for fold, (fitted, left) in enumerate(page["folds"].split(train.text, train.label)):
            some, others = train.iloc[fitted], train.iloc[left]
            model = page["as_model"](clone(page["probe"]).fit(x[fitted], some.label))
            model = page["fine_tuned"](model, some, epochs, rate) if epochs else model.eval()
            predicted = pd.DataFrame(page["predicted"](model, others.text), others.index, page["classes"])
            parts.setdefault((epochs, rate), []).append(100 * predicted)
            right = page["hits"](predicted.to_numpy(), others.label).sum()
            rows.append({"epochs": epochs, "rate": rate, "fold": fold, "right": right, "texts": len(left)})
            print(rows[-1], flush=True)
    pd.DataFrame(rows).to_csv(folder / "folds.csv", index=False, lineterminator="\n")
    best = pd.DataFrame(rows).query("epochs > 0").groupby(["epochs", "rate"]).right.sum().idxmax()
    table = pd.concat(parts[best]).sort_index().round(2)
    table.to_csv(folder / "out_of_fold.csv", index_label="text", lineterminator="\n")


if __name__ == "__main__":
    main()
