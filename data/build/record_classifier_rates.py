"""Record the search for rate and epochs of lesson 13, by folds of its training texts and functions of its page.

    python data/build/record_classifier_rates.py data/sweeps/tiny/classify/folds.csv

The code cells of the lesson run up to the one that defines `fine_tuned`. A line is one setting and one fold: how
many of the fold's texts are named rightly, of how many. With 0 epochs it is the probe. No test text is read.
On one thread, in about ten minutes.
"""

import sys
from pathlib import Path

import jupytext
import pandas as pd
import torch
from sklearn.base import clone

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "notebooks"), str(ROOT)]
SETTINGS = ((0, 0), (1, 3e-4), (1, 1e-3), (1, 3e-3), (1, 1e-2), (3, 1e-3), (3, 3e-3))  # epochs and rate


def lesson() -> dict:
    """The names of the lesson up to its function `fine_tuned`."""
    names = {}
    for cell in jupytext.read(ROOT / "notebooks" / "13_classification.py").cells:
        if "def fine_tuned(" in cell.source:
            exec(cell.source.partition("\nrecorded =")[0], names)  # noqa: S102
            return names
        if cell.cell_type == "code":
            exec(compile(cell.source, "13_classification.py", "exec"), names)  # noqa: S102
    raise ValueError("the lesson defines no fine_tuned")


def main() -> None:
    torch.set_num_threads(1)
    page, rows = lesson(), []
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
