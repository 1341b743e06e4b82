"""Record how well the bundled model and one of another diet predict text that neither has read.

    python data/build/record_diets.py build-work wider-work wider-work/exported

Writes `pretraining.csv` and `training_record.json` into `data/comparisons/tiny-wider`: both models on the bundled
model's held-out paragraphs, on held-out paragraphs of packages that only the other model read, and on the workbook's
general text (validation).
"""

import argparse
import json
import shutil
from pathlib import Path

import pandas as pd
from extract import SOURCES

import tlkit as tl
from tlkit.evidence.carry_over import RECORDED

MODEL = "tiny-wider"


def paragraphs(work: Path, without: tuple[str, ...] = ()) -> list[str]:
    rows = map(json.loads, (work / "heldout.jsonl").read_text(encoding="utf-8").splitlines())
    return [row["text"] for row in rows if row["source"] not in without]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path, help="the folder of the bundled model's build")
    parser.add_argument("wider", type=Path, help="the folder of the other model's build")
    parser.add_argument("exported", type=Path, help="where `export.py` wrote the other model")
    arguments = parser.parse_args()
    tl.setup()
    texts = {
        "held out of three packages": paragraphs(arguments.work),
        "held out of the other packages": paragraphs(arguments.wider, tuple(SOURCES)),
        "Python reference": list(tl.load_corpus("general").validation),
    }
    rows = []
    for name, folder in (("tiny", "tiny"), (MODEL, str(arguments.exported))):
        loaded = tl.load_model(folder)
        for text, documents in texts.items():
            score = tl.perplexity(loaded.model, loaded.tokenizer, documents, context=256, stride=256)
            rows.append(
                {
                    "model": name,
                    "text": text,
                    "documents": len(documents),
                    "tokens": score.tokens,
                    "nats_per_token": score.nats_per_token,
                    "bits_per_byte": score.bits_per_byte,
                }
            )
    folder = RECORDED / MODEL
    folder.mkdir(exist_ok=True)
    table = pd.DataFrame(rows)
    table.to_csv(folder / "pretraining.csv", index=False, float_format="%.5f", lineterminator="\n")
    shutil.copy(arguments.exported / "training_record.json", folder)
    print(table.to_string())


if __name__ == "__main__":
    main()
