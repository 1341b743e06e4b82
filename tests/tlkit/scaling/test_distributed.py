"""Several processes do what one does: the same losses, weights and checkpoints, and they fail together."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from weakref import WeakSet

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from team_runs import BLOCKS, CASES, CONFIG, PLANS, adapted, run, weights_of

from tlkit.checkpoints import newest_step
from tlkit.cli import main
from tlkit.distributed import _WholeState, joined, shares, train_together
from tlkit.settings import Plan, TrainingConfig

# Sums over processes are added in another order. Where a gradient is near zero AdamW makes a visible part of a step of
# that rounding, so steps are small, 1e-4; each is still ten times the tolerance.
TOLERANCE = 1e-5


TRAIN = ["train", "--strategy", "last_layers", "--corpus", "facts", "--sequence-length", "64", "--batch-size", "2"]
TRAIN += ["--epochs", "6", "--learning-rate", "1e-3", "--checkpoint-every", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, three_blocks) -> Path:
    """What two processes left behind: of a task that failed, why; the tasks run one after another."""
    folder = tmp_path_factory.mktemp("two")
    given = [*TRAIN, "--model", three_blocks, "--output", str(folder / "lost")]
    tasks = [["run_together", str(folder)], ["run_out_of_memory_in_one"], ["command_that_loses_one", *given]]
    command = [sys.executable, Path(__file__).with_name("team_runs.py"), folder, json.dumps(tasks)]
    env = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(command, env=env, timeout=600, check=True)
    return folder


@pytest.fixture(scope="module")
def found(folder) -> dict[str, dict]:
    assert not (folder / "run_together.failed").exists(), (folder / "run_together").read_text()
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize(("sharding", "strategy", "plan"), CASES)
def test_losses_and_weights_are_those_of_one_process(found, sharding, strategy, plan):
    together, single = found[f"{sharding} {strategy} {plan}"], run(strategy, PLANS[plan])
    assert len(single["losses"]) == 3 and single["weights"] != weights_of(adapted(strategy).model)
    for figure in ("losses", "validation", "weights"):
        assert together[figure] == pytest.approx(single[figure], abs=TOLERANCE), figure
    assert together["norms"] == pytest.approx(single["norms"], rel=1e-4)


def test_what_is_kept_in_parts_is_gathered_tensor_by_tensor_by_the_one_that_saves(monkeypatch):
    there, most = WeakSet(), []

    class Gathered:
        def __init__(self, tensor):
            self.cpu = tensor.clone
            there.add(self)
            most.append(len(there))

    monkeypatch.setattr("tlkit.distributed._whole", Gathered)
    state = _WholeState(adapted("full").model, CONFIG)
    assert len(state.tensors()) == len(most) > 20 and max(most) <= 2  # this one, and that before it
    state.saves = False
    assert state.tensors() == {}


def test_a_checkpoint_of_two_processes_goes_on_with_one_and_with_two(folder, found):
    (folder / "by two" / "step-00000003.safetensors").unlink()
    assert newest_step(folder / "by two") == 2
    by_one = run("full", Plan(), checkpoint_dir=folder / "by two", every=1, resume=True)
    whole = run("full", Plan())
    for resumed in (by_one, found["resumed"]):
        assert resumed["losses"] == pytest.approx(whole["losses"], abs=TOLERANCE)
        assert resumed["weights"] == pytest.approx(whole["weights"], abs=TOLERANCE)


@pytest.mark.parametrize(
    ("strategy", "config", "sharding"),
    [
        ("full", TrainingConfig(1e-3, patience=1), "ddp"),
        ("gradual_unfreezing", CONFIG, "ddp"),
        ("qlora", CONFIG, "fsdp"),
    ],
)
def test_what_needs_one_process_is_refused_before_any_work(strategy, config, sharding):
    """The processes have not even met."""
    report = adapted(strategy)
    how = {"groups": report.groups, "validation": BLOCKS[:2], "sharding": sharding}
    with pytest.raises(ValueError, match="patience.*phases.*4 bits"):
        train_together(None, report.model, BLOCKS, config, **how)


def test_a_sharding_needs_processes():
    with pytest.raises(ValueError, match="'fsdp' needs several processes"), joined("fsdp"):
        pass
    with joined() as accelerator:
        assert accelerator is None


def test_processes_that_would_go_on_from_different_steps_are_refused(tmp_path):
    """The other one has found nothing in its folder."""
    run("full", Plan(), checkpoint_dir=tmp_path, every=1)
    other = {"num_processes": 2, "process_index": 1, "is_main_process": False, "device": torch.device("cpu")}
    accelerator = SimpleNamespace(
        **other,
        prepare_model=lambda model: model,
        wait_for_everyone=lambda: None,
        gather=lambda mine: torch.cat([torch.tensor([0]), mine]),
    )
    with pytest.raises(ValueError, match=r"after steps \[0, 3\]: expected .* to be one folder"):
        run("full", Plan(), accelerator, checkpoint_dir=tmp_path, resume=True)


@settings(max_examples=100, deadline=None)
@given(blocks=st.integers(1, 30), size=st.integers(1, 12), rows=st.none() | st.integers(1, 31))
def test_any_number_of_processes_counts_each_row_once(blocks, size, rows):
    batch = torch.arange(blocks)[:, None]
    passes = [shares(batch, rank, size, rows) for rank in range(size)]
    assert len({len(share) for share in passes}) == 1  # all make as many passes, or one would wait for ever
    counted = [row for share in passes for part, weight in share if weight for row in part.flatten().tolist()]
    assert sorted(counted) == list(range(blocks))
    assert {weight for share in passes for _, weight in share} <= {0.0, 1.0}
    assert all(1 <= len(part) <= (rows or blocks) for share in passes for part, _ in share)


@pytest.mark.skipif(os.name != "posix", reason="needs kill -9")
def test_a_process_that_dies_ends_the_job_and_leaves_a_checkpoint(folder, capsys, three_blocks):
    output = folder / "lost"
    assert "saved in" not in (folder / "command_that_loses_one").read_text()
    assert "SIGKILL" in (folder / "command_that_loses_one.failed").read_text()  # torchrun's report says which, and how
    assert newest_step(output / "checkpoints") >= 2
    assert main([*TRAIN, "--model", three_blocks, "--output", str(output), "--resume"]) == 0
    assert "saved in" in capsys.readouterr().out


def test_a_process_that_runs_out_of_memory_ends_all_with_the_reason(folder):
    assert (folder / "run_out_of_memory_in_one.failed").is_file()
    assert "can't allocate memory" in (folder / "run_out_of_memory_in_one").read_text()
