"""Several processes do what one does: the same losses, weights and checkpoints, and they fail together."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from team_runs import BLOCKS, CASES, CONFIG, OTHERS, PLANS, STRATEGIES, adapted, run, weights_of

from tlkit.cli import main
from tlkit.steps import Plan
from tlkit.team import Team
from tlkit.training import TrainingConfig, train

ROOT = Path(__file__).resolve().parents[3]
SIZES = (2, 4)
# Sums over processes are added in another order. Where a gradient is near zero AdamW makes a visible part of a step of
# that rounding, so steps are small, 1e-4; each is still ten times the tolerance.
TOLERANCE = 1e-5

LAUNCH = """
import sys
from tlkit.scaling.processes import launch

imports = ("peft", "transformers.models.qwen2.modeling_qwen2")
launch(4, "team_runs:main", sys.argv[1], imports=imports)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("team")
    command = [sys.executable, "-c", LAUNCH, str(folder)]
    here = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=here)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def found(folder) -> dict[int, dict]:
    return {size: json.loads((folder / f"found-{size}.json").read_text()) for size in SIZES}


@pytest.fixture(scope="module")
def alone() -> dict[str, dict]:
    """The same runs in one process."""
    runs = [(name, "plain") for name in (*STRATEGIES, *OTHERS)] + [("full", "micro"), ("full", "chunked")]
    found = {f"{strategy} {plan}": run(strategy, PLANS[plan]) for strategy, plan in runs}
    return found | {"lora checkpointed": found["lora plain"]}  # each activation computed once


@pytest.mark.parametrize(("size", "exchange", "strategy", "plan"), [(n, *case) for n in SIZES for case in CASES[n]])
def test_losses_and_weights_are_those_of_one_process(found, alone, size, exchange, strategy, plan):
    together, single = found[size][f"{exchange} {strategy} {plan}"], alone[f"{strategy} {plan}"]
    assert len(single["losses"]) == 3 and single["weights"] != weights_of(adapted(strategy))
    for figure in ("losses", "validation", "weights"):
        assert together[figure] == pytest.approx(single[figure], abs=TOLERANCE), figure
    assert together["norms"] == pytest.approx(single["norms"], rel=1e-4)


def test_what_does_not_go_with_parts_is_refused_before_any_work():
    """The team has not even met: nothing is exchanged before the refusal."""
    parts = Team(size=2, exchange="fsdp")
    with pytest.raises(ValueError, match="what is trained changes between the phases, and fsdp settles it: expected"):
        train(adapted("gradual_unfreezing"), BLOCKS, CONFIG, team=parts)


@pytest.mark.parametrize("size", SIZES)
def test_fsdp_keeps_one_share_of_the_parameters(found, size):
    figures = found[size]["bytes"]
    # Rows are dealt out whole, so a tensor of few rows is uneven; here all but the norms divide by 4.
    assert sum(figures["held"]) == figures["total"]
    assert max(figures["held"]) <= 1.02 * figures["total"] / size


def test_out_of_memory_in_one_process_moves_all_down_together(found, alone):
    memory, size = found[2]["memory"], 2
    logs = {entry["rank"]: entry["rows"] for entry in memory["processes"]}
    assert sorted(logs) == list(range(size))
    taken = {rank: [(r["rung"], r["first_step"], r["steps_done"]) for r in rows] for rank, rows in logs.items()}
    assert all(steps == taken[0] for steps in taken.values())
    assert len(taken[0]) > 1 and sum(done for _, _, done in taken[0]) == 3  # it did fall, and lost no step
    assert "CUDA out of memory" in logs[0][0]["error"]
    assert all("another process" in logs[rank][0]["error"] for rank in range(1, size))
    assert {logs[rank][0]["failed_in"] for rank in range(1, size)} == {"other process"}
    assert memory["losses"] == pytest.approx(alone["full plain"]["losses"], abs=TOLERANCE)
    for entry in memory["processes"]:
        assert entry["weights"] == pytest.approx(alone["full plain"]["weights"], abs=TOLERANCE)


def test_a_checkpoint_of_two_processes_goes_on_with_one_and_with_four(folder, found, alone):
    options = {"checkpoint_dir": folder / "by two", "every": 1, "resume": True}
    by_one, by_four = run("full", Plan(), **options), found[4]["fsdp full resumed"]
    for resumed in (by_one, by_four):
        assert resumed["losses"] == pytest.approx(alone["full plain"]["losses"], abs=TOLERANCE)
        assert resumed["weights"] == pytest.approx(alone["full plain"]["weights"], abs=TOLERANCE)
    notes = json.loads((folder / "by two" / "step-00000002.json").read_text())
    assert notes["step"] == 2 and len(notes["records"]) == 2


def test_refuses_early_stopping_in_parts_and_four_bits_in_parts():
    config = TrainingConfig(1e-3, patience=1)
    with pytest.raises(ValueError, match="patience"):
        train(adapted("full"), BLOCKS, config, validation=BLOCKS[:2], team=Team(0, 2, "fsdp"))
    with pytest.raises(ValueError, match="4 bits"):
        train(adapted("qlora"), BLOCKS, CONFIG, team=Team(0, 2, "fsdp"))


def test_processes_that_would_go_on_from_different_steps_are_refused(tmp_path, monkeypatch):
    train(adapted("full"), BLOCKS, CONFIG, checkpoint_dir=tmp_path, every=1)
    monkeypatch.setattr(Team, "sum", lambda self, value: value)  # the other one has found nothing, and is at step 0
    with pytest.raises(ValueError, match="after step 3, another after a different one: expected .* the same folder"):
        train(adapted("full"), BLOCKS, CONFIG, checkpoint_dir=tmp_path, resume=True, team=Team(0, 2, "afterwards"))


def two_processes(*arguments: str) -> subprocess.Popen:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.Popen(
        [*torchrun, "-m", "tlkit", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )


TRAIN = ["train", "--strategy", "last_layers", "--corpus", "facts", "--sequence-length", "64", "--batch-size", "2"]
TRAIN += ["--epochs", "6"]


@pytest.mark.skipif(os.name != "posix", reason="needs kill -9")
def test_a_process_that_dies_ends_the_job_and_leaves_a_checkpoint(tmp_path, capsys, three_blocks):
    given = [*TRAIN, "--model", three_blocks, "--learning-rate", "1e-3"]
    job = two_processes(*given, "--checkpoint-every", "2", "--output", str(tmp_path))
    checkpoints = tmp_path / "checkpoints"
    until = time.monotonic() + 300
    while not list(checkpoints.glob("step-*.json")):
        assert job.poll() is None and time.monotonic() < until, job.communicate()
        time.sleep(0.05)
    workers = psutil.Process(job.pid).children()
    assert len(workers) == 2
    os.kill(workers[1].pid, signal.SIGKILL)
    out, err = job.communicate(timeout=120)
    assert job.returncode == 1
    assert "another process has ended" in err and "--resume" in err
    assert "SIGKILL" in err  # torchrun's own report says which, and how
    assert "saved in" not in out

    notes = sorted(checkpoints.glob("step-*.json"))[-1]
    reached = json.loads(notes.read_text())["step"]
    assert reached >= 2
    capsys.readouterr()
    assert main([*given, "--output", str(tmp_path), "--resume"]) == 0
    assert "saved in" in capsys.readouterr().out
