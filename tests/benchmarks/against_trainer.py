"""tlkit beside the transformers Trainer on identical work: `python tests/benchmarks/against_trainer.py`.

Writes `against_trainer.csv` and `RESULTS.md` beside this file, or into the folder `--output`. Both train the same
weights on the same batches with the same optimizer, rate and dtype; that their losses agree to 1e-4 is asserted. Every
run is a process of its own, and the two take turns, so that a machine that slows down slows both. Times are medians
over the steps after the first epoch (where tlkit keeps a frozen prefix, those are the steps that find it); memory is
the highest resident size of the process. The ceiling is the rate at which this machine multiplies matrices, measured in
the same process before and after.

The cases of `real` need SmolLM2-135M-Instruct, by its name or with `--model` as a folder; where it is not here they are
left out, and a line says so.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from strategies_to_time import REAL, STRATEGIES, is_here, plan_for, ready, where

HERE = Path(__file__).parent
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


def one(who: str, folder: str | None, name: str, strategy: str, rows: int, tokens: int, batches: int) -> dict:
    """Train for three epochs, in this process, which does nothing else; then evaluate five times."""
    import resource
    import time
    from contextlib import nullcontext

    import torch

    from tlkit.models.prefix import cached_prefix
    from tlkit.settings import setup

    setup()
    ceiling = _matrix_product_rate()
    model, blocks = ready(name, folder, strategy, rows * batches, tokens)
    order = torch.cat([blocks] * EPOCHS)

    with cached_prefix(model) if who == "tlkit" and strategy in CACHED else nullcontext():
        if who == "tlkit":
            losses, seconds = _by_tlkit(model, order, rows, plan_for(model, rows, strategy))
        else:
            losses, seconds = _by_trainer(model, order, rows)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        evaluate = _evaluate_by_tlkit if who == "tlkit" else _evaluate_by_trainer
        evaluations = []
        for _ in range(5):
            begun = time.perf_counter()
            score = evaluate(model, blocks, rows)
            evaluations.append(time.perf_counter() - begun)
    return {
        "losses": losses,
        "seconds": seconds,
        "peak": peak,
        "score": score,
        "evaluations": evaluations,
        "ceiling": max(ceiling, _matrix_product_rate()),
    }


def _matrix_product_rate() -> float:
    """Floating-point operations a second, the best of five products."""
    import time

    import torch

    size, rates = 2048, []
    left, right = torch.rand(size, size), torch.rand(size, size)
    for _ in range(5):
        begun = time.perf_counter()
        left @ right
        rates.append(2 * size**3 / (time.perf_counter() - begun))
    return max(rates)


def _by_tlkit(model, order, rows: int, plan) -> tuple[list[float], list[float]]:
    from tlkit.memory import freed_memory_kept
    from tlkit.steps import TrainingState, take_step

    state = TrainingState(model, weight_decay=0.0)
    state.apply_plan(plan)
    with freed_memory_kept():  # as `train` does
        records = [take_step(state, batch, LEARNING_RATE) for batch in order.split(rows)]
    return [record.loss for record in records], [record.seconds for record in records]


def _by_trainer(model, order, rows: int) -> tuple[list[float], list[float]]:
    import tempfile
    import time

    from transformers import Trainer, TrainerCallback, TrainingArguments

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
            disable_tqdm=True,
        )
        watch = Watch()
        data = [{"input_ids": block, "labels": block} for block in order]
        Trainer(model, arguments, train_dataset=data, callbacks=[watch]).train()
    return watch.losses, watch.seconds


def _evaluate_by_tlkit(model, blocks, rows: int) -> float:
    from tlkit.steps import mean_loss

    return mean_loss(model, blocks, plan_for(model, rows))


def _evaluate_by_trainer(model, blocks, rows: int) -> float:
    import tempfile

    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        options = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "prediction_loss_only": True}
        arguments = TrainingArguments(folder, per_device_eval_batch_size=rows, **options)
        data = [{"input_ids": block, "labels": block} for block in blocks]
        return Trainer(model, arguments).evaluate(data)["eval_loss"]


def take_turns(case: tuple, folder: str | None = None) -> dict:
    """Both, alternating, in fresh processes; one row of the table."""
    model, strategy, rows, tokens, batches, turns = case
    found = {"tlkit": [], "trainer": []}
    for turn in range(turns):
        for who in ("tlkit", "trainer") if turn % 2 == 0 else ("trainer", "tlkit"):
            command = [sys.executable, __file__, "--one", who, json.dumps([folder, *case[:5]])]
            environment = os.environ | (GIVEN_BACK if "given back" in strategy else {})
            run = subprocess.run(command, capture_output=True, text=True, env=environment)
            if run.returncode:
                raise RuntimeError(f"{who} {case}: {run.stderr[-2000:]}")
            found[who].append(json.loads(run.stdout.splitlines()[-1]))
            print(f"  {who}: {statistics.median(found[who][-1]['seconds'][batches:]):.2f} s a step", flush=True)
    for ours, theirs in zip(found["tlkit"], found["trainer"], strict=True):
        gap = max(abs(a - b) for a, b in zip(ours["losses"], theirs["losses"], strict=True))
        if gap > 1e-4 or abs(ours["score"] - theirs["score"]) > 1e-4:
            raise RuntimeError(f"{case}: losses differ by {gap}: this is not the same work")

    def median(who: str, of) -> float:
        return statistics.median(of(run) for run in found[who])

    steps = {who: [statistics.median(run["seconds"][batches:]) for run in runs] for who, runs in found.items()}
    step = {who: statistics.median(times) for who, times in steps.items()}
    ratios = [theirs / ours for ours, theirs in zip(steps["tlkit"], steps["trainer"], strict=True)]
    whole = {who: median(who, lambda run: sum(run["seconds"])) for who in found}
    memory = {who: median(who, lambda run: run["peak"]) for who in found}
    work = _operations(where(model, folder), strategy, rows, tokens)
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
        "first_evaluation_ratio": median("trainer", lambda run: run["evaluations"][0])
        / median("tlkit", lambda run: run["evaluations"][0]),
        "evaluation_ratio": median("trainer", lambda run: statistics.median(run["evaluations"][1:]))
        / median("tlkit", lambda run: statistics.median(run["evaluations"][1:])),
        "ceiling_gflops": median("tlkit", lambda run: run["ceiling"]) / 1e9,
        "share_of_ceiling": median(
            "tlkit", lambda run: work / statistics.median(run["seconds"][batches:]) / run["ceiling"]
        ),
    }


def _operations(model: str, strategy: str, rows: int, tokens: int) -> int:
    """Floating-point operations of one step as the Trainer takes it, counted on tensors without contents."""
    import torch

    from tlkit.evidence.flops import count_flops
    from tlkit.models import meta_model
    from tlkit.strategies import apply_strategy

    kind, options = STRATEGIES[strategy]
    on_paper = apply_strategy(meta_model(model), kind, **options).model
    return count_flops(on_paper, torch.zeros(rows, tokens, dtype=torch.long)).total


def write(rows: list[dict], output: Path) -> None:
    """Put rows into the table that is there, and say it all in RESULTS.md."""
    import datetime
    import platform

    import pandas as pd
    import torch
    import transformers

    from tlkit.devices import probe

    path = output / "against_trainer.csv"
    today, processor = datetime.date.today().isoformat(), probe("cpu").name
    table = pd.DataFrame(rows).assign(recorded=today, processor=processor)
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
        "first_evaluation_ratio": "first evaluation",
        "evaluation_ratio": "evaluations after it",
        "share_of_ceiling": "share of ceiling",
        "recorded": "recorded",
        "processor": "processor",
    }
    lines = [
        f"| {' | '.join(columns.values())} |",
        f"|{'---|' * len(columns)}",
        *(
            "| " + " | ".join(f"{row[c]:,.2f}" if isinstance(row[c], float) else str(row[c]) for c in columns) + " |"
            for row in table.fillna({"speed_over_turns": "not recorded"}).to_dict("records")
        ),
    ]
    (output / "RESULTS.md").write_text(
        "# tlkit beside the transformers Trainer\n\n"
        + "Written by `make bench` (`against_trainer.py` says how it is measured). Ratios above 1 in speed and "
        + "evaluation, and below 1 in memory, are in tlkit's favour.\n\n"
        + "\n".join(lines)
        + f"\n\nCeiling: {table.ceiling_gflops.min():.0f} to {table.ceiling_gflops.max():.0f} GFLOP/s in products of "
        + f"2048 x 2048 fp32 matrices, each share by that of its own process. {platform.machine()}, "
        + f"{torch.get_num_threads()} threads, torch {torch.__version__}, transformers {transformers.__version__}. "
        + "Where a frozen prefix is kept, the share counts the operations that a step without it would take, so it may "
        + f"pass 1.\n\n## What bounds it\n\n{_bounds()}\n"
    )


def _bounds() -> str:
    """What arithmetic alone allows, where a target is near it or beyond."""
    from tlkit.fitting.estimate import estimate_memory
    from tlkit.steps import Plan

    plans = {"whole": Plan(), "in pieces": Plan(chunked_loss=True), "halves": Plan(2, chunked_loss=True)}
    needed = {
        name: estimate_memory("qwen2-0.5b", "lora", batch_size=4, sequence_length=512, plan=plan).peak
        for name, plan in plans.items()
    }
    return (
        f"- Memory of `lora` at 4 x 512, tensors alone (`estimate_memory`): {needed['whole'] / 2**30:.2f} GiB with all "
        f"logits, {needed['in pieces'] / 2**30:.2f} with the loss in pieces "
        f"({needed['in pieces'] / needed['whole']:.2f}x), {needed['halves'] / 2**30:.2f} in two micro-batches "
        f"({needed['halves'] / needed['whole']:.2f}x). With the logits gone, what remains are weights and "
        "activations, and a step keeps those, unless it computes them again or takes fewer rows at a time.\n"
        "- Processes are larger than their tensors. The GNU C library keeps freed memory in holes that the next tensor "
        "often does not fit, and the more so the smaller the tensors: two micro-batches need less than one, and yet "
        "their process may be larger. With *memory given back* both processes run with "
        f"MALLOC_MMAP_THRESHOLD_={GIVEN_BACK['MALLOC_MMAP_THRESHOLD_']}, and are as large as their tensors and "
        "libraries. That costs time: every new tensor is of pages that the system clears first.\n"
        "- Evaluation without a frozen prefix is the same arithmetic on both sides: about 1. The first one after "
        "training may be slower here because the memory of training has gone back to the system by then and pages are "
        "cleared anew; the Trainer keeps its optimizer, and with it the memory. Over a frozen prefix of "
        "half the blocks, the head is what remains: at a vocabulary of 151,936 it alone is 0.28 of the work, so 1.6 is "
        "the most that is to be had.\n"
        "- Share of the ceiling, `full`: whatever the batch, clipping and AdamW read and write every value's weight, "
        "gradient and two averages once more, 30 to 40 bytes a value, which is no matrix product. At 8 x 128 there is "
        "four times the arithmetic to the same traffic of 8 x 32.\n"
        "- *Over turns* are the lowest and the highest ratio of one turn. The machine of 2026-11-24 was shared: a step "
        "of the Trainer took 2.5 to 3.5 s there, so the ratio of one case may be off by a tenth."
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", default=list(CASES), help=", ".join(CASES))
    parser.add_argument("--model", help=f"the folder of {REAL}, where `load_model` does not find it by its name")
    parser.add_argument("--output", type=Path, default=HERE, help="where to write; default: beside this file")
    parser.add_argument("--turns", type=int, help="of each case; default: as CASES says")
    parser.add_argument("--one", nargs=2, help="for this file itself: who trains, and what")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one[0], *json.loads(options.one[1]))))
    else:
        options.output.mkdir(parents=True, exist_ok=True)
        left_out = "real" in options.sizes and not is_here(options.model)
        for size in options.sizes:
            for case in CASES[size] if size != "real" or not left_out else ():
                print(case, flush=True)
                write([take_turns((*case[:-1], options.turns or case[-1]), options.model)], options.output)
