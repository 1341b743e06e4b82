"""Record the seeds of lesson 14: losses, rates and betas, three seeds of each, by the functions of the lesson's page.

    python data/build/record_preference_seeds.py data/answers/preference_seeds.csv

The code cells of the lesson run up to the one that defines `measure`; it is called here with the lesson's `LOSSES` and
their sum, DPO + SFT. A line is one run. The test is read for the three settings that validation chose, and only for
them.
On one thread, in about four minutes.
"""

import sys
from functools import partial

import pandas as pd
import torch
from lesson_page import names_of

SETTINGS = {"SFT": (3e-4, 6e-4, 1.2e-3), "DPO": (1e-4, 3e-4, 1e-3), "DPO + SFT": (3e-4, 1e-3)}
BETAS = {"DPO, beta 0.02": 0.02, "DPO, beta 0.5": 0.5}  # beside the lesson's 0.1, at its good rate
GOOD, SEEDS = {("SFT", 6e-4), ("DPO", 3e-4), ("DPO + SFT", 3e-4)}, 3


def main() -> None:
    torch.set_num_threads(1)
    names, rows = names_of("14_preferences", "measure"), []
    dpo, sft = names["dpo_loss"], names["answer_loss"]
    losses = names["LOSSES"] | {"DPO + SFT": lambda model, pairs: dpo(model, pairs) + sft(model, pairs)}
    losses |= {method: partial(dpo, beta=beta) for method, beta in BETAS.items()}
    for method, rates in (SETTINGS | dict.fromkeys(BETAS, (3e-4,))).items():
        for rate in rates:
            for seed in range(SEEDS):
                model, numbers = names["measure"](losses[method], rate, seed)
                row = {"method": method, "rate": rate, "seed": seed} | dict(zip(names["COLUMNS"], numbers, strict=True))
                if (method, rate) in GOOD:
                    row["test habit"], _ = names["read_off"](model, "test")
                rows.append(row)
                print(row, flush=True)
    table = pd.DataFrame(rows).astype({"test habit": "Int64"})
    table.round(6).to_csv(sys.argv[1], index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
