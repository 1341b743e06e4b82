"""The device beside others: the same steps by the transformers Trainer, and by two processes."""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import device_counters as counters
import pytest
import torch
from device_bench import ROWS, STEPS, largest_gap
from transformers import Trainer, TrainerCallback, TrainingArguments

from tlkit.fitting.placement import move_to_device, peak_of, reset_peak
from tlkit.steps import TrainingState, take_step

pytestmark = pytest.mark.gpu
RATE, ROUNDS = 1e-3, 4  # of the bench's blocks, the first of which loads kernels
TOO_LONG = 300  # seconds


def test_beside_trainer(bench, record_property, tmp_path):
    """The transformers Trainer takes the same steps with the same losses; how fast both are is only reported."""
    if bench.is_virtual:
        pytest.skip("a virtual card counts every tensor, and that takes time: the device cpu measures this processor")
    rows, losses = torch.cat([bench.blocks] * ROUNDS), {}
    for name, take in (("tlkit", _by_tlkit), ("Trainer", _by_trainer)):
        model = bench.adapted("full")
        move_to_device(model, bench.device)
        reset_peak(bench.device)
        losses[name], seconds = take(model, rows, bench.device, tmp_path)
        record_property(f"{name}: seconds of a step", statistics.median(seconds[STEPS:]))
        record_property(f"{name}: peak in bytes", peak_of(bench.device))
        del model
        counters.give_back(bench.device.kind)
    gap = largest_gap(losses["tlkit"], losses["Trainer"])
    tolerance = ROUNDS * bench.reference("full").tolerance  # what rounding does grows with the steps
    record_property("difference", gap)
    record_property("tolerance", f"{tolerance:.1e} nats: {ROUNDS} times that of {STEPS} steps")
    assert gap <= tolerance


def _by_tlkit(model, rows, device, folder):
    state = TrainingState(model, weight_decay=0.0)
    records = [take_step(state, batch, RATE) for batch in rows.split(ROWS)]
    return [record.loss for record in records], [record.seconds for record in records]


def _by_trainer(model, rows, device, folder):
    synchronize, seconds = torch.get_device_module(device.kind).synchronize, []

    class Watch(TrainerCallback):
        def on_step_begin(self, *_, **__):
            synchronize()
            self.begun = time.perf_counter()

        def on_step_end(self, *_, **__):
            synchronize()
            seconds.append(time.perf_counter() - self.begun)

    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=ROWS,
        num_train_epochs=1,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        optim="adamw_torch_fused",
        train_sampling_strategy="sequential",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        use_cpu=device.kind == "cpu",
    )
    arguments._n_gpu = min(1, arguments.n_gpu)  # of several cards it would use all, by DataParallel
    data = [{"input_ids": row, "labels": row} for row in rows]
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[Watch()])
    trainer.train()
    return [float(row["loss"]) for row in trainer.state.log_history if "loss" in row], seconds


def test_two_processes(bench, record_property, tmp_path):
    """Two processes take the steps of one with the same losses: two cards over NCCL, or two processors over gloo."""
    kind, file = bench.device.kind, tmp_path / "found.json"
    if bench.is_virtual:
        pytest.skip("a virtual card is played inside one process: the device cpu takes two")
    if kind not in ("cuda", "cpu"):
        pytest.skip(f"one process uses one {kind} device; several are joined for cuda (NCCL) only")
    if kind == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("this needs two cards, and there is one")
    environment = os.environ | ({"CUDA_VISIBLE_DEVICES": ""} if kind == "cpu" else {})
    command = [sys.executable, Path(__file__).with_name("device_pair.py"), kind, str(bench.blocks.shape[1]), file]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TOO_LONG)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text(encoding="utf-8"))
    record_property("backend", found["backend"])
    assert found["processes"] == 2
    for exchange, losses in found["losses"].items():
        bench.reference("full").hold(losses, record_property, f"difference by {exchange}")
