"""tlkit beside the transformers Trainer on identical work: `python tests/benchmarks/against_trainer.py`.

Writes `against_trainer.csv` and `RESULTS.md` beside this file, or into the folder `--output`. Both train the same
weights on the same batches with the same optimizer, rate and precision; that their losses agree to 1e-4 is asserted, or
to 1e-2 in bf16, where either rounds to 8 bits. Every run is a process of its own, and the two take turns, so that a
machine that slows down slows both. Times are medians over the steps after the first epoch (where tlkit keeps a frozen
prefix, those are the steps that find it); memory is the highest resident size of the process.

The cases of `real` need SmolLM2-135M-Instruct (`make fetched`); where it is not here, they are left out.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM

from tlkit.devices import probe
from tlkit.memory import freed_memory_kept
from tlkit.models import architecture, load_model
from tlkit.models.prefix import cached_prefix
from tlkit.presets import fetched_folder
from tlkit.settings import TrainingConfig, setup
from tlkit.steps import Plan, TrainingState, take_step
from tlkit.strategies import apply_strategy, dtype_of_weights

HERE = Path(__file__).parent
REAL = "smollm2-135m-instruct"
EPOCHS = 3
LEARNING_RATE = 1e-4
# The GNU C library keeps freed memory in holes that the next tensor often does not fit. With this, as README advises,
# large tensors go back to the system at once, in both processes: slower, and they are as large as their tensors.
GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": "131072"}
CACHED = ("last_layers", "freeze_lower, embeddings frozen")
# model, strategy, blocks in a batch, tokens in a block, batches in an epoch, turns
CASES = {
    "tiny": [("tiny", strategy, 8, 128, 4, 3) for strategy in ("full", *CACHED, "lora")],
    "real": [(REAL, strategy, 4, 128, 3, 3) for strategy in ("full", "last_layers", "lora")],
    "bf16": [(REAL, strategy, 4, 128, 3, 3) for strategy in ("full in bf16", "lora in bf16")],
    "large": [
        ("qwen2-0.5b", "full", 8, 32, 2, 2),
        ("qwen2-0.5b", "last_layers", 8, 32, 2, 4),  # the shortest step, and so the one most easily disturbed
        ("qwen2-0.5b", "freeze_lower, embeddings frozen", 8, 32, 2, 2),
    ],
    "long": [
        ("qwen2-0.5b", "lora", 4, 512, 1, 1),
        ("qwen2-0.5b", "lora, two micro-batches", 4, 512, 1, 1),  # of tlkit; the Trainer's step is the same
        ("qwen2-0.5b", "lora, two micro-batches, memory given back", 4, 512, 1, 1),
        ("qwen2-0.5b", "full", 8, 128, 1, 1),
    ],
}


def one(who: str, name: str, strategy: str, rows: int, tokens: int, batches: int) -> dict:
    """Train for three epochs, in this process, which does nothing else."""
    import resource  # Windows has none

    setup()
    kind, *details = strategy.split(" in ")[0].split(", ")
    options = {"last_layers": {"train_norms": False}, "freeze_lower": {"freeze_embeddings": True}}.get(kind, {})
    torch.manual_seed(0)
    if name in ("tiny", REAL):
        dtype = dtype_of_weights(kind, precision_of(strategy))
        model = load_model(name, dtype=dtype).model
    else:
        model = AutoModelForCausalLM.from_config(architecture(name))
    vocabulary = model.config.vocab_size
    torch.manual_seed(0)
    model = apply_strategy(model, kind, **options).model
    blocks = torch.randint(vocabulary, (rows * batches, tokens), generator=torch.Generator().manual_seed(1))
    order = torch.cat([blocks] * EPOCHS)
    plan = Plan(
        micro_batch_size=rows // 2 if "two micro-batches" in details else rows,
        precision=precision_of(strategy),
        chunked_loss=vocabulary > 32_000,  # there the logits are the largest tensor of all: tlkit never has them whole
    )
    with cached_prefix(model) if who == "tlkit" and strategy in CACHED else nullcontext():
        if who == "tlkit":
            losses, seconds = _by_tlkit(model, order, rows, plan)
        else:
            losses, seconds = _by_trainer(model, order, rows, plan.precision)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"losses": losses, "seconds": seconds, "peak": peak}


def precision_of(strategy: str) -> str:
    """Of the arithmetic."""
    return "bf16" if "bf16" in strategy else "fp32"


def _by_tlkit(model, order, rows: int, plan: Plan) -> tuple[list[float], list[float]]:
    state = TrainingState(model, TrainingConfig(weight_decay=0.0))
    state.apply_plan(plan)
    with freed_memory_kept():  # as `train` does
        records = [take_step(state, batch, LEARNING_RATE) for batch in order.split(rows)]
    return [record.loss for record in records], [record.seconds for record in records]


def _by_trainer(model, order, rows: int, precision: str) -> tuple[list[float], list[float]]:
    from transformers import Trainer, TrainerCallback, TrainingArguments  # not in the process of the other

    class Watch(TrainerCallback):
        losses, seconds, begun = [], [], 0.0

        def on_step_begin(self, *_, **__):
            self.begun = time.perf_counter()

        def on_step_end(self, *_, **__):
            self.seconds.append(time.perf_counter() - self.begun)

        def on_log(self, *_, logs, **__):
            if "loss" in logs:
                self.losses.append(float(logs["loss"]))

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=rows,
            num_train_epochs=1,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            weight_decay=0.0,
            optim="adamw_torch_fused",
            max_grad_norm=1.0,
            train_sampling_strategy="sequential",
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=precision == "bf16",
            disable_tqdm=True,
        )
        watch = Watch()
        data = [{"input_ids": block, "labels": block} for block in order]
        Trainer(model, arguments, train_dataset=data, callbacks=[watch]).train()
    return watch.losses, watch.seconds


def take_turns(case: tuple) -> dict:
    """Both, alternating, in fresh processes; one row of the table."""
    model, strategy, rows, tokens, batches, turns = case
    found = {"tlkit": [], "trainer": []}
    for turn in range(turns):
        for who in ("tlkit", "trainer") if turn % 2 == 0 else ("trainer", "tlkit"):
            command = [sys.executable, __file__, "--one", who, json.dumps(case[:5])]
            environment = os.environ | (GIVEN_BACK if "given back" in strategy else {})
            run = subprocess.run(command, capture_output=True, text=True, env=environment)
            if run.returncode:
                raise RuntimeError(f"{who} {case}: {run.stderr[-2000:]}")
            found[who].append(json.loads(run.stdout.splitlines()[-1]))
            print(f"  {who}: {statistics.median(found[who][-1]['seconds'][batches:]):.2f} s a step", flush=True)
    for ours, theirs in zip(found["tlkit"], found["trainer"], strict=True):
        gap = max(abs(a - b) for a, b in zip(ours["losses"], theirs["losses"], strict=True))
        if gap > (1e-4 if precision_of(strategy) == "fp32" else 1e-2):
            raise RuntimeError(f"{case}: losses differ by {gap}: this is not the same work")

    def median(who: str, of) -> float:
        return statistics.median(of(run) for run in found[who])

    steps = {who: [statistics.median(run["seconds"][batches:]) for run in runs] for who, runs in found.items()}
    step = {who: statistics.median(times) for who, times in steps.items()}
    ratios = [theirs / ours for ours, theirs in zip(steps["tlkit"], steps["trainer"], strict=True)]
    whole = {who: median(who, lambda run: sum(run["seconds"])) for who in found}
    memory = {who: median(who, lambda run: run["peak"]) for who in found}
    return {
        "model": model,
        "strategy": strategy,
        "batch": f"{rows} x {tokens}",
        "step_seconds": step["tlkit"],
        "trainer_step_seconds": step["trainer"],
        "speed_ratio": step["trainer"] / step["tlkit"],
        "speed_over_turns": f"{min(ratios):.2f} to {max(ratios):.2f}",
        "speed_ratio_three_epochs": whole["trainer"] / whole["tlkit"],
        "tokens_per_second": rows * tokens / step["tlkit"],
        "peak_mib": memory["tlkit"] / 2**20,
        "trainer_peak_mib": memory["trainer"] / 2**20,
        "memory_ratio": memory["tlkit"] / memory["trainer"],
    }


def write(rows: list[dict], output: Path) -> None:
    """Put rows into the table that is there, and say it all in RESULTS.md."""
    import pandas as pd  # what a process imports that trains counts as its memory

    path, today = output / "against_trainer.csv", datetime.date.today().isoformat()
    table = pd.DataFrame(rows).assign(recorded=today, processor=probe("cpu").name)
    if path.is_file():  # cases that were not run again on such a processor stay
        keys = ["model", "strategy", "batch"]
        table = pd.concat([pd.read_csv(path), table]).drop_duplicates([*keys, "processor"], keep="last").set_index(keys)
        cases = [(case[0], case[1], f"{case[2]} x {case[3]}") for size in CASES.values() for case in size]
        table = table.loc[[case for case in cases if case in table.index]].reset_index()
    table.to_csv(path, index=False, float_format="%.4g")
    columns = {
        "model": "model",
        "strategy": "strategy",
        "batch": "batch",
        "speed_ratio": "speed, tlkit / Trainer",
        "speed_over_turns": "over turns",
        "speed_ratio_three_epochs": "three epochs",
        "tokens_per_second": "tokens/s",
        "memory_ratio": "peak memory, tlkit / Trainer",
        "recorded": "recorded",
        "processor": "processor",
    }
    shown = table.fillna({"speed_over_turns": "not recorded"})[list(columns)].rename(columns=columns)
    results, bounds = output / "RESULTS.md", ""
    if results.is_file():  # what bounds it is written by hand
        bounds = "## What bounds it" + results.read_text(encoding="utf-8").partition("## What bounds it")[2]
    results.write_text(
        "# tlkit beside the transformers Trainer\n\n"
        + "Written by `make bench` (`against_trainer.py` says how it is measured). Ratios above 1 in speed, and below "
        + "1 in memory, are in tlkit's favour.\n\n"
        + shown.to_markdown(index=False, floatfmt=",.2f")
        + f"\n\n{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, transformers "
        + f"{transformers.__version__}.\n\n{bounds}",
        encoding="utf-8",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", default=list(CASES), help=", ".join(CASES))
    parser.add_argument("--output", type=Path, default=HERE, help="where to write; default: beside this file")
    parser.add_argument("--turns", type=int, help="of each case; default: as CASES says")
    parser.add_argument("--one", nargs=2, help="for this file itself: who trains, and what")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one[0], *json.loads(options.one[1]))))
    else:
        options.output.mkdir(parents=True, exist_ok=True)
        for case in (case for size in options.sizes for case in CASES[size]):
            if case[0] == REAL and fetched_folder(REAL) is None:
                print(f"left out, as it was not fetched: {case}", flush=True)
                continue
            print(case, flush=True)
            write([take_turns((*case[:-1], options.turns or case[-1]))], options.output)
