"""Record a search for learning rates, as `compare` makes it where none are recorded: judged on validation text.

    python data/build/record_sweeps.py FOLDER --model smollm2-135m-instruct --profile real --strategies full,lora

It is in FOLDER/rates.csv at the end. Each run is kept in FOLDER/runs as it ends, and is not run again.
"""

import argparse
from pathlib import Path

import tlkit as tl
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.evidence.experiment import allowed, load_experiment
from tlkit.evidence.finished_runs import FinishedRuns
from tlkit.evidence.learning_rates import tune


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    for name, default in (("model", "tiny"), ("task", "text"), ("profile", "ci"), ("strategies", "full,lora")):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    experiment, base = load_experiment(given.model, tl.setup(given.profile), ComparisonSettings(task=given.task))
    strategies, _ = allowed(given.strategies.split(","), base.model.config, experiment.data.class_count)
    kept = FinishedRuns(given.output, experiment.settings)
    tune(experiment, strategies, experiment.config, seeds=given.seeds, kept=kept, progress=True)


if __name__ == "__main__":
    main()
