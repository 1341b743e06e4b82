"""Record the search for rate and epochs of lesson 13, by folds of its training texts and functions of its page.

    python data/build/record_classifier_rates.py data/sweeps/tiny/classify/folds.csv

The code cells of the lesson run up to the one that defines `fine_tuned`. A line is one setting and one fold: how
many of the fold's texts are named rightly, of how many. With 0 epochs it is the probe. No test text is read.
On one thread, in about ten minutes.
"""

import sys

import pandas as pd
import torch
from lesson_page import names_of
from sklearn.base import clone

SETTINGS = ((0, 0), (1, 3e-4), (1, 1e-3), (1, 3e-3), (1, 1e-2), (3, 1e-3), (3, 3e-3))  # epochs and rate


def main() -> None:
    torch.set_num_threads(1)
    page, rows = names_of("13_classification", "fine_tuned", cut="\nrecorded ="), []
    train, x = page["train"], page["x"]
    for epochs, rate in SETTINGS:
        for fold, (fitted, left) in enumerate(page["folds"].split(train.text, train.label)):
            some, others = train.iloc[fitted], train.iloc[left]
            model = page["as_model"](clone(page["probe"]).fit(x[fitted], some.label))
            model = page["fine_tuned"](model, some, rate, epochs) if epochs else model.eval()
            right = page["hits"](page["predicted"](model, others.text), others.label).sum()
            rows.append({"epochs": epochs, "rate": rate, "fold": fold, "right": right, "texts": len(left)})
            print(rows[-1], flush=True)
    pd.DataFrame(rows).to_csv(sys.argv[1], index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
