"""Record what one setting does to strategies, judged on validation text.

    python data/build/record_sweeps.py epochs FILE --strategies full,last_layers,lora --values 0.5,1,2,4
    python data/build/record_sweeps.py rates FILE --model smollm2-135m-instruct --profile real --strategies full,lora

`rates` searches for learning rates as `compare` does, `epochs`, `passages` and `general` try VALUES at the recorded
rates, or those that `--values` gives. Each run is added to the file as it ends, and what was added is not run again.
"""

import argparse
import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch

import tlkit as tl
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.evidence.experiment import Experiment, allowed, load_experiment
from tlkit.evidence.learning_rates import best_rates, next_rates, recorded_rates, run_trial

COLUMNS = ("trial", "strategy", "learning_rate", "seed", "validation_perplexity", "error")
VALUES = {"epochs": (0.5, 1, 2, 4, 8), "passages": (25, 50, 100, 200, 400, None), "general": (0.0, 0.1, 0.25, 0.5)}


def settings_of(sweep: str, value: float | None, steps: int, experiment: Experiment) -> tuple[dict, dict, object]:
    """What a value is to a trial, the columns that say so, and what is trained on."""
    texts, blocks = experiment.whole.train, experiment.blocks
    shape = (experiment.tokenizer, blocks.shape[1], experiment.classes)
    if sweep == "epochs":
        return {"epochs": value}, {}, blocks
    if sweep == "passages":
        count = min(int(value or len(texts)), len(texts))
        return {"steps": steps}, {"passages": count}, experiment.task.batch(texts[:count], *shape)
    others, wanted = experiment.task.batch(experiment.general.train, *shape), round(len(blocks) * value / (1 - value))
    if wanted > len(others):
        raise ValueError(
            f"general share {value}: {wanted} blocks of general text are wanted, and {len(others)} are there"
        )
    return {}, {"general_share": value}, torch.cat([blocks, others[:wanted]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", choices=("rates", *VALUES))
    parser.add_argument("output", type=Path)
    for name, default in (("model", "tiny"), ("task", "text"), ("profile", "ci"), ("strategies", "full,lora")):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=120, help="of a run of passages: the work is the same for all")
    parser.add_argument("--values", type=lambda text: [float(value) for value in text.split(",")])
    given = parser.parse_args()
    options = ComparisonSettings(task=given.task, questions=0)
    experiment, base = load_experiment(given.model, tl.setup(given.profile), options)
    strategies, _ = allowed(given.strategies.split(","), base.model.config, experiment.class_count)
    record = pd.read_csv(given.output) if given.output.is_file() else pd.DataFrame(columns=COLUMNS)

    def keep(strategy: str, rate: float, seed: int, settings: dict, columns: dict, blocks: object = None) -> None:
        nonlocal record
        epochs, rows = settings.get("epochs", 1), len(experiment.blocks if blocks is None else blocks)
        words = {"strategy": strategy, "learning_rate": rate, "epochs": epochs, **settings, "seed": seed, **columns}
        name = " ".join(f"{key}={value}" for key, value in words.items())
        if name in set(record.trial):
            return
        print(name, flush=True)
        if steps := settings.get("steps"):
            epochs = steps / math.ceil(rows / experiment.batch_size)
        config = replace(experiment.config, learning_rate=rate, epochs=epochs, seed=seed)
        row = run_trial(experiment, strategy, config, blocks=blocks) | words | {"trial": name}
        record = pd.DataFrame([*record.to_dict("records"), row])
        record.to_csv(given.output, index=False)

    if given.sweep == "rates":
        while wanted := next_rates(record, strategies):
            for strategy, rate in wanted.items():
                for seed in range(given.seeds):
                    keep(strategy, rate, seed, {}, {})
        return
    rates = best_rates(recorded_rates(given.model))
    for value in given.values or VALUES[given.sweep]:
        settings, columns, blocks = settings_of(given.sweep, value, given.steps, experiment)
        for strategy in strategies:
            for seed in range(given.seeds):
                keep(strategy, rates[strategy].value, seed, settings, columns, blocks)


if __name__ == "__main__":
    main()
