"""Play several machines on one: the same short training by one, two and four processes, timed and counted."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import psutil
import torch
from torch import distributed

from course.lesson18.on_paper import sent_per_step
from tlkit.corpus import load_corpus, pack
from tlkit.jobs import Part, reported
from tlkit.models import load_model, meta_model
from tlkit.scaling.processes import joined, smaller
from tlkit.settings import TrainingConfig, setup
from tlkit.strategies import apply_strategy
from tlkit.team import Team
from tlkit.training import new_state, training_steps

STEPS, BATCH, BLOCK = 5, 8, 64
RUNS = (("ddp", 1), ("ddp", 2), ("ddp", 4), ("fsdp", 2), ("fsdp", 4))
TOO_LONG = 600  # seconds
# From a process of its own: nothing of the reader's, be it a notebook or a script, is imported again.
LAUNCH = f"""
import sys
from tlkit.scaling.processes import launch
qwen2 = "transformers.models.qwen2.modeling_qwen2"
launch({max(count for _, count in RUNS)}, "course.lesson18.rehearsal:take_part", *sys.argv[1:], imports=(qwen2,))
"""


def rehearse(*, progress: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Take the same five steps of the bundled model by 1, 2 and 4 processes of this machine by DDP, by 2 and 4 by FSDP.

    Args:
        progress: whether to show which of the trainings is running, and the time left.

    Returns:
        Two tables. The first has a row a step: exchange, processes, step, loss, seconds. The second has a row a run:
        `sent` (bytes the first process sent in a step, as the kernel of Linux counts them, NaN elsewhere), `predicted`
        (the same on paper, see `sent_per_step`), `exchange_seconds` (of adding up as many numbers, and nothing else),
        `step_seconds` (median) and `held` (bytes of parameters in the first process).

    Raises:
        RuntimeError: with what the processes said, where one fails.
    """
    model = meta_model("tiny")
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "runs.json"
        command = [sys.executable, "-c", LAUNCH, str(found)]
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": _with_this_package()}
        with reported(progress, "rehearsal") as part:
            _run_apart(command, environment, found, part)
        runs = json.loads(found.read_text(encoding="utf-8"))
    for run in runs:
        run["predicted"] = sent_per_step(model, run["processes"], run["exchange"], backend="gloo")
    named = [({key: run[key] for key in ("exchange", "processes")}, run.pop("steps")) for run in runs]
    steps = pd.DataFrame([name | step for name, steps in named for step in steps])
    return steps, pd.DataFrame(runs)


def _with_this_package() -> str:
    """PYTHONPATH for processes that are started in another folder than the lessons'."""
    return os.pathsep.join([str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])


def _run_apart(command: list[str], environment: dict[str, str], found: Path, part: Part) -> None:
    """Run the processes, and report which training goes on: they leave an empty file for each that has ended."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, text=True, env=environment)
        try:
            begun, before = time.monotonic(), None
            while process.poll() is None:
                ended = min(len(list(found.parent.glob(f"{found.name}.*"))), len(RUNS) - 1)
                if ended != before:
                    exchange, count = RUNS[ended]
                    part.step(ended, len(RUNS), f"training {ended + 1} of {len(RUNS)}, {exchange}, processes: {count}")
                    before = ended
                if time.monotonic() - begun > TOO_LONG:
                    raise RuntimeError(f"the rehearsal has not ended after {TOO_LONG} s")
                time.sleep(0.1)
        finally:
            process.kill()
            process.wait()
        said.seek(0)
        if process.returncode:
            raise RuntimeError(f"the rehearsal ended with {process.returncode}:\n{said.read()}")


def take_part(found: str) -> None:
    """Be one of the processes: in each run among the first so many, or waiting.

    Args:
        found: the file for the results, which the first process writes.
    """
    setup(threads=1)
    runs = []
    with joined() as everybody:
        for exchange, count in RUNS:
            team = smaller(everybody, count)
            if team is not None:
                runs.append(_run(replace(team, exchange=exchange)))
            distributed.barrier()
            if everybody.rank == 0:
                Path(f"{found}.{exchange}-{count}").touch()
        if everybody.rank == 0:
            Path(found).write_text(json.dumps(runs), encoding="utf-8")


def _run(team: Team) -> dict:
    loaded = load_model("tiny")
    report = apply_strategy(loaded.model, "full")
    blocks = pack(load_corpus("rust").train[:60], loaded.tokenizer, BLOCK)[: STEPS * BATCH]
    config = TrainingConfig(1e-3, batch_size=BATCH)
    state = new_state(report.model, config, team=team)
    steps = training_steps(state, blocks, config)
    records = [next(steps)]  # the first makes what the others find
    distributed.barrier(group=team.group)
    before = _written()
    records += list(steps)
    distributed.barrier(group=team.group)
    sent = (_written() - before) / (STEPS - 1)
    numbers = torch.zeros(report.trainable_values)
    return {
        "exchange": team.exchange,
        "processes": team.size,
        "sent": sent,
        "exchange_seconds": _median_seconds(lambda: distributed.all_reduce(numbers, group=team.group)),
        "step_seconds": statistics.median(record.seconds for record in records[1:]),
        "held": sum((p.to_local() if team.exchange == "fsdp" else p).nbytes for p in report.model.parameters()),
        "steps": [{"step": r.step, "loss": r.loss, "seconds": r.seconds} for r in records],
    }


def _written() -> float:
    """Bytes that this process has handed to the kernel: gloo writes what it sends as one writes to a file."""
    counters = getattr(psutil.Process(), "io_counters", lambda: None)()
    return float(getattr(counters, "write_chars", "nan"))


def _median_seconds(action) -> float:
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)
