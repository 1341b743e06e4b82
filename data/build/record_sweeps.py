"""Record a search for learning rates, as `compare` makes it where none are recorded: judged on validation text.

    python data/build/record_sweeps.py FILE --model smollm2-135m-instruct --profile real --strategies full,lora

Each run is added to the file as it ends, and what was added is not run again.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import pandas as pd

import tlkit as tl
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.evidence.experiment import allowed, load_experiment
from tlkit.evidence.learning_rates import next_rates, run_trial

COLUMNS = ("strategy", "learning_rate", "seed", "validation_perplexity", "error")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    for name, default in (("model", "tiny"), ("task", "text"), ("profile", "ci"), ("strategies", "full,lora")):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    experiment, base = load_experiment(given.model, tl.setup(given.profile), ComparisonSettings(task=given.task))
    strategies, _ = allowed(given.strategies.split(","), base.model.config, experiment.class_count)
    record = pd.read_csv(given.output) if given.output.is_file() else pd.DataFrame(columns=COLUMNS)
    # A rate that has fewer seeds than are wanted was broken off, and is finished first.
    begun = record[record.groupby(["strategy", "learning_rate"]).seed.transform("size") < given.seeds]
    wanted = dict(zip(begun.strategy, begun.learning_rate, strict=True)) or next_rates(record, strategies)
    while wanted:
        for strategy, rate in wanted.items():
            there = record[(record.strategy == strategy) & (record.learning_rate == rate)].seed
            for seed in sorted(set(range(given.seeds)) - set(there)):
                print(f"{strategy}, {rate:g}, seed {seed}", flush=True)
                row = run_trial(experiment, strategy, replace(experiment.config, learning_rate=rate, seed=seed))
                record = pd.DataFrame([*record.to_dict("records"), row])
                record.to_csv(given.output, index=False)
        wanted = next_rates(record, strategies)


if __name__ == "__main__":
    main()
