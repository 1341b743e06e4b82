"""Estimate against the peak resident memory of fresh processes: `python tests/benchmarks/memory_accuracy.py`.

Writes `memory_accuracy.csv` beside this file. Each configuration takes three real steps in a process of its own; what
the process held before the model was made is subtracted. The C library of Linux keeps freed memory in a heap that
grows ragged: with its usual settings a process holds up to two thirds more than its tensors. So the processes run with
MALLOC_MMAP_THRESHOLD_=131072, as the README advises, which gives every larger tensor a place of its own.
"""

import gc
import itertools
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pandas as pd
import psutil
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from tlkit.fitting.estimate import DTYPES, estimate_memory
from tlkit.settings import setup
from tlkit.steps import Plan, TrainingState, take_step
from tlkit.strategies import apply_strategy

SHAPES = {
    # name: (vocabulary, width, width of the MLP, blocks, heads, key/value heads, batch, tokens)
    "small vocabulary": (4096, 512, 1536, 8, 8, 2, 8, 256),
    "large vocabulary": (151_936, 256, 768, 4, 4, 2, 2, 256),
}
STRATEGIES = ("full", "freeze_lower", "freeze_embeddings", "last_layers", "lora", "qlora", "bitfit")


def one(strategy: str, dtype: str, checkpointing: bool, shape: str) -> dict:
    """Estimate and measure one configuration, in this process, which does nothing else."""
    setup()
    vocabulary, width, mlp, blocks, heads, kv, batch, tokens = SHAPES[shape]
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=mlp,
        num_hidden_layers=blocks,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        tie_word_embeddings=True,
    )
    plan = Plan(activation_checkpointing=checkpointing)
    question = {"dtype": dtype, "batch_size": batch, "sequence_length": tokens, "plan": plan}
    estimate = estimate_memory(config, strategy, **question)
    gc.collect()
    before = psutil.Process().memory_info().rss
    model = AutoModelForCausalLM.from_config(config, dtype=DTYPES[dtype])
    state = TrainingState(apply_strategy(model, strategy).model)
    state.apply_plan(plan)
    for _ in range(3):
        take_step(state, torch.randint(vocabulary, (batch, tokens)), 1e-4)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "strategy": strategy,
        "dtype": dtype,
        "checkpointing": checkpointing,
        "shape": shape,
        "estimate_mib": estimate.peak / 2**20,
        "measured_mib": (peak - before) / 2**20,
        "before_mib": before / 2**20,
    }


def main() -> None:
    rows = []
    for setting in itertools.product(STRATEGIES, ("fp32", "bf16"), (False, True), SHAPES):
        done = subprocess.run(
            [sys.executable, __file__, json.dumps(setting)],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072"},
        )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        row = rows[-1]
        print(*setting, f"{row['estimate_mib']:.0f} {row['measured_mib']:.0f} MiB", flush=True)
    table = pd.DataFrame(rows)
    table["estimate_over_measured"] = table.estimate_mib / table.measured_mib
    table["with_20_mib_on_top"] = (table.estimate_mib + 20) / table.measured_mib  # PROCESS_OVERHEAD_BYTES
    table.round(3).to_csv(Path(__file__).with_suffix(".csv"), index=False)
    print(table.estimate_over_measured.describe())


if __name__ == "__main__":
    if len(sys.argv) > 1:  # a process of `main`
        print(json.dumps(one(*json.loads(sys.argv[1]))))
    else:
        main()
