"""The device beside others: the same steps by the transformers Trainer, and by two processes."""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from tlkit.acceptance import counters
from tlkit.acceptance.bench import ROWS, STEPS, Bench, Check, apart, bench_for, judged, largest_gap, skipped
from tlkit.devices import Device, probe
from tlkit.fitting.placement import COUNT_THEIR_PEAK, move_to_device
from tlkit.memory import in_units
from tlkit.scaling.processes import joined
from tlkit.settings import setup
from tlkit.steps import TrainingState, take_step
from tlkit.training import train

RATE, ROUNDS = 1e-3, 4  # of the bench's blocks, the first of which loads kernels
TOO_LONG = 300  # seconds
# From a process of its own, as in `tlkit.scaling.rehearsal`.
LAUNCH = """
import sys
from tlkit.scaling.processes import launch
launch(2, "tlkit.acceptance.company:take_part", *sys.argv[1:])
"""


def beside_trainer(bench: Bench) -> Check:
    """The transformers Trainer takes the same steps with the same losses; how long both take, and what they hold."""
    if bench.is_virtual:
        return skipped("a virtual card counts every tensor, and that takes time: --device cpu measures this processor")
    reference = bench.reference("full")
    rows = torch.cat([bench.blocks] * ROUNDS)
    losses, seconds, peaks = {}, {}, {}
    for name, by in (("tlkit", _by_tlkit), ("Trainer", _by_trainer)):
        model = bench.adapted("full")
        losses[name], seconds[name], peaks[name] = by(model, rows, bench.device)
        del model
        counters.give_back(bench.device.kind)
    gap = largest_gap(losses["tlkit"], losses["Trainer"])
    step = {name: statistics.median(times[STEPS:]) for name, times in seconds.items()}
    peaks = {name: peak for name, peak in peaks.items() if not math.isnan(peak)}
    held = "".join(f"; {name} holds {in_units(peak)}" for name, peak in peaks.items())
    # Twelve steps instead of the reference's three: what rounding does grows with them.
    tolerance = ROUNDS * reference.tolerance
    return judged(
        gap <= tolerance,
        f"losses {apart(gap)}; {step['tlkit'] * 1e3:.1f} ms a step, the Trainer {step['Trainer'] * 1e3:.1f} ms{held}",
        "the same losses, so that it is the same work; how fast is only reported",
        f"{tolerance:.1e} nats: {ROUNDS} times that of {STEPS} steps",
        difference=gap,
        **{f"{name} seconds of a step": seconds for name, seconds in step.items()},
        **{f"{name} peak in bytes": peak for name, peak in peaks.items()},
    )


Measured = tuple[list[float], list[float], float]  # losses, seconds, bytes


def _by_tlkit(model: torch.nn.Module, rows: torch.Tensor, device: Device) -> Measured:
    move_to_device(model, device)
    state = TrainingState(model, weight_decay=0.0)
    with _peak(device) as counted:
        records = [take_step(state, batch, RATE) for batch in rows.split(ROWS)]
        peak = counted()
    return [record.loss for record in records], [record.seconds for record in records], peak


def _by_trainer(model: torch.nn.Module, rows: torch.Tensor, device: Device) -> Measured:
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    losses, seconds = [], []
    synchronize = torch.get_device_module(device.kind).synchronize

    class Watch(TrainerCallback):
        begun = 0.0

        def on_step_begin(self, *_, **__):
            synchronize()
            self.begun = time.perf_counter()

        def on_step_end(self, *_, **__):
            synchronize()
            seconds.append(time.perf_counter() - self.begun)

        def on_log(self, *_, logs, **__):
            if "loss" in logs:
                losses.append(float(logs["loss"]))

    with tempfile.TemporaryDirectory() as folder:
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
        trainer.remove_callback(PrinterCallback)
        with _peak(device) as counted:
            trainer.train()
            peak = counted()
    return losses, seconds, peak


@contextmanager
def _peak(device: Device) -> Iterator[Callable[[], float]]:
    """Yield what says the most bytes of tensors that a device held; NaN where counting them would take time."""
    if device.kind not in COUNT_THEIR_PEAK:
        yield lambda: math.nan
        return
    with counters.peak_counted(device) as peak:
        yield peak


def two_processes(bench: Bench) -> Check:
    """Two processes take the steps of one with the same losses: two cards over NCCL, or two processors over gloo."""
    if bench.is_virtual:
        return skipped("a virtual card is played inside one process: --device cpu takes two")
    if bench.device.kind not in ("cuda", "cpu"):
        return skipped(f"one process uses one {bench.device.kind} device; several are joined for cuda (NCCL) only")
    cards = torch.cuda.device_count() if bench.device.kind == "cuda" else 0
    if bench.device.kind == "cuda" and cards < 2:
        return skipped(f"this needs two cards, and there is {cards}")
    reference, gaps = bench.reference("full"), {}
    found = _run_two(bench.device.kind, bench.tokens)
    for exchange, losses in found["losses"].items():
        gaps[exchange] = largest_gap(losses, reference.losses[:-1])
    return judged(
        max(gaps.values()) <= reference.tolerance and found["processes"] == 2,
        f"{found['processes']} processes, {found['backend']}: "
        + ", ".join(f"{name} losses {apart(gap)}" for name, gap in gaps.items()),
        "the losses of one process",
        reference.in_words,
        **gaps,
    )


def _run_two(kind: str, tokens: int) -> dict:
    environment = os.environ | ({"CUDA_VISIBLE_DEVICES": ""} if kind == "cpu" else {})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        command = [sys.executable, "-c", LAUNCH, kind, str(tokens), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TOO_LONG)
        if done.returncode:
            raise RuntimeError(f"the two processes ended with {done.returncode}: {_last_error(done.stderr)}")
        return json.loads(file.read_text(encoding="utf-8"))


def _last_error(text: str) -> str:
    """The last line that names an error: what torchrun says around it is long."""
    named = [line.strip() for line in text.splitlines() if "Error" in line]
    return named[-1] if named else (text.strip().splitlines() or ["nothing was said"])[-1]


def take_part(kind: str, tokens: str, file: str) -> None:
    """Be one of the two processes.

    Args:
        kind: of the devices.
        tokens: in a block.
        file: for what was found, which the first process writes.
    """
    setup()
    found = {}
    with joined() as team:
        bench = bench_for(probe(kind), int(tokens))
        backend = torch.distributed.get_backend_config()
        for exchange in ("ddp", "fsdp"):
            model, config = bench.adapted("full"), bench.config("full")
            one_of_two = replace(team, exchange=exchange)
            move_to_device(model, bench.device, one_of_two)
            found[exchange] = train(model, bench.blocks, config, team=one_of_two).history.loss.tolist()
        if team.rank == 0:
            content = {"processes": team.size, "backend": backend, "losses": found}
            Path(file).write_text(json.dumps(content), encoding="utf-8")
