"""Record how long a step of each strategy takes on one model, all strategies taking turns.

    python data/build/record_step_times.py --model smollm2-135m-instruct

Writes `data/comparisons/MODEL/step_times.csv`. Texts, blocks and batches are those of the recorded comparisons. In
every turn each strategy takes two steps, in an order that is drawn anew, and the second is timed: the first finds the
processor's caches full of another model. What disturbs the machine for longer than a turn disturbs all of them alike,
and so their ratios stay what they are. Run it on a machine that does nothing else.
"""

import argparse
import random
from pathlib import Path

import pandas as pd
import torch
from described_table import write_described

import tlkit as tl
from tlkit.evidence.carry_over import RECORDED, STEP_TIMES
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.evidence.experiment import Experiment, allowed, load_experiment
from tlkit.evidence.learning_rates import CONTROL
from tlkit.memory import freed_memory_kept
from tlkit.options import Plan
from tlkit.steps import TrainingState, take_step
from tlkit.training import TrainingConfig, batch_at, new_state

FIRST_TURNS = 2  # in which memory is taken and the optimizer makes its moments
LEARNING_RATE = 1e-5  # low: what is learned does not matter, and nothing may diverge


def prepared(experiment: Experiment, strategy: str) -> TrainingState:
    """A model of its own with the strategy applied, ready for its first step."""
    torch.manual_seed(0)
    model = tl.apply_strategy(tl.load_model(experiment.model).model, strategy).model
    state = new_state(model, TrainingConfig())
    state.apply_plan(Plan(micro_batch_size=experiment.batch_size))
    return state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--output", type=Path, help="default: beside the recorded comparison of the model")
    arguments = parser.parse_args()
    profile = tl.setup("real")
    experiment, loaded = load_experiment(arguments.model, profile, ComparisonSettings())
    names = [name for name in allowed(["classic"], loaded.model.config)[0] if name != CONTROL]
    config = TrainingConfig(batch_size=experiment.batch_size)
    states = {name: prepared(experiment, name) for name in names}
    chance, rows = random.Random(0), []
    with freed_memory_kept(), tl.Job(arguments.turns + FIRST_TURNS, "turn") as job:  # kept, as in training
        for turn in range(-FIRST_TURNS, arguments.turns):
            with job.part(str(turn)):
                for name in chance.sample(names, len(names)):
                    for _ in range(2):
                        state = states[name]
                        record = take_step(state, batch_at(state.step, experiment.blocks, config), LEARNING_RATE)
                    if turn >= 0:
                        rows.append((name, turn, record.seconds))
    table = pd.DataFrame(rows, columns=["strategy", "turn", "seconds"]).sort_values(["turn", "strategy"]).round(5)
    write_described(
        table,
        arguments.output or RECORDED / arguments.model / STEP_TIMES,
        f"python data/build/record_step_times.py --model {arguments.model} --turns {arguments.turns}",
        model=arguments.model,
        step=f"{experiment.batch_size} x {experiment.blocks.shape[1]} tokens, AdamW, fp32",
        device=f"{tl.probe().name}, {torch.get_num_threads()} threads",
    )
    print(table.groupby("strategy").seconds.describe().round(3).to_string())


if __name__ == "__main__":
    main()
