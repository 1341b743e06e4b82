"""Runs that are killed, damaged, refused: what is resumed ends as if nothing had happened."""

import json
import os
import subprocess
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from interrupted import assert_goes_on_bit_for_bit
from safetensors.torch import load_file
from small_models import weights_of
from transformers import AutoModelForCausalLM, Qwen2Config

from tlkit.checkpoints import Checkpoints, identity_of
from tlkit.files import CheckpointError, lock_folder, write_atomically
from tlkit.strategies import apply_strategy
from tlkit.training import TrainingConfig, TrainingState, train

BLOCKS = torch.randint(64, (20, 16), generator=torch.Generator().manual_seed(1))
HELD_OUT = torch.randint(64, (4, 16), generator=torch.Generator().manual_seed(2))
CONFIG = TrainingConfig(learning_rate=1e-2, batch_size=2, evaluate_every=2, patience=2)  # ten steps, early stopping


RESUMED = ["full", "last_layers", "lora", "qlora", "vera", "lora_plus", "prefix_tuning", "gradual_unfreezing"]


class PowerCut(BaseException):
    """Nothing in the package can catch it."""


def small_report(strategy="full", **options):
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3}
    config = Qwen2Config(**sizes, num_attention_heads=4, num_key_value_heads=2, attention_dropout=0.1)
    return apply_strategy(AutoModelForCausalLM.from_config(config, dtype=torch.float32), strategy, **options)


def small_model(strategy="full", **options):
    return small_report(strategy, **options).model


def until(step, folder, model=None, config=CONFIG, **options):
    """A run that is cut off in the forward pass of `step`."""
    model, passes = model or small_model(), []

    def cut(module, inputs):
        passes.append(module.training)
        if sum(passes) == step:
            raise PowerCut

    model.register_forward_pre_hook(cut)
    with pytest.raises(PowerCut):
        train(model, BLOCKS, config, validation=HELD_OUT, checkpoint_dir=folder, every=2, **options)
    return model


def resumed(folder, model=None, config=CONFIG, blocks=BLOCKS):
    model = model or small_model()
    return model, train(model, blocks, config, validation=HELD_OUT, checkpoint_dir=folder, every=2, resume=True)


def undisturbed(model=None, config=CONFIG):
    model = model or small_model()
    return model, train(model, BLOCKS, config, validation=HELD_OUT)


def test_runs_killed_at_any_moment_end_bit_identical(tmp_path):
    """Inside a write, spread over the run's checkpoints."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    script = Path(__file__).with_name("killed_runs.py")
    done = subprocess.run([sys.executable, script, tmp_path, "6"], capture_output=True, text=True, check=True)
    whole, *runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert [run["hash"] for run in runs] == [whole["hash"]] * 6
    assert len({run["reached"] for run in runs}) >= 4


@pytest.mark.parametrize(("strategy", "optimizer"), [*((name, "adamw") for name in RESUMED), ("full", "sgd")])
def test_a_resumed_run_is_the_undisturbed_one(tmp_path, strategy, optimizer):
    """Dropout, scores and the early stop included."""
    config = TrainingConfig(learning_rate=1e-2, batch_size=2, evaluate_every=2, patience=2, optimizer=optimizer)
    options = {"dropout": 0.1} if strategy == "lora" else {}
    rows = BLOCKS if strategy == "full" else BLOCKS[:12]
    how = {"validation": HELD_OUT, "groups": small_report(strategy, **options).groups}
    result = assert_goes_on_bit_for_bit(lambda: small_model(strategy, **options), rows, config, 3, tmp_path, **how)
    assert result.stopped_early or (strategy, optimizer) != ("full", "adamw")


def test_only_what_is_trainable_is_saved_and_only_the_newest_two(tmp_path):
    until(10, tmp_path, small_model("last_layers"), TrainingConfig(batch_size=2))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"step-0000000{n}.safetensors" for n in (6, 8)]
    saved = load_file(tmp_path / "step-00000008.safetensors")
    trainable = [p for p in small_model("last_layers").parameters() if p.requires_grad]
    weights = [tensor for name, tensor in saved.items() if name.startswith("weights.")]
    assert sum(t.numel() for t in weights) == sum(p.numel() for p in trainable)
    assert len([name for name in saved if name.startswith("optimizer.")]) == 3 * len(trainable)


def test_a_damaged_checkpoint_is_noticed_and_the_one_before_it_used(tmp_path):
    expected, _ = undisturbed()
    until(5, tmp_path)
    newest = tmp_path / "step-00000004.safetensors"
    content = newest.read_bytes()
    newest.write_bytes(content.replace(b'{\\"step\\": 4', b'{\\"step\\": 5', 1))
    assert newest.read_bytes() != content
    with pytest.warns(UserWarning, match=r"step-00000004\.safetensors is damaged: step-00000002 is used"):
        model, result = resumed(tmp_path)
    assert torch.equal(weights_of(model), weights_of(expected))
    assert result.history.step.tolist() == list(range(1, len(result.history) + 1))


def flip(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def tear(path):
    path.write_bytes(path.read_bytes()[:-9])


STEPS = (3, 4, 99_999_999, 100_000_000)


@pytest.mark.parametrize(
    ("damages", "restored"),
    [
        ({}, 100_000_000),
        ({"step-100000000.safetensors": flip, "step-99999999.safetensors": tear}, 4),
        ({f"step-{step:08d}.safetensors": tear for step in STEPS}, None),
    ],
)
def test_the_newest_whole_checkpoint_is_restored_and_foreign_files_stay(tmp_path, damages, restored):
    """The last two of four sort the other way round by name."""
    state, checkpoints = TrainingState(small_model("last_layers", blocks=1), CONFIG), Checkpoints(tmp_path, {})
    for step in STEPS:
        state.step = step
        with torch.no_grad():
            state.parameters[0].fill_(step)
        (tmp_path / str(step)).mkdir()
        Checkpoints(tmp_path / str(step), {}).save(state)
        for path in (tmp_path / str(step)).iterdir():
            path.rename(tmp_path / path.name)
        (tmp_path / str(step)).rmdir()
    foreign = {"thesis.pdf.part", "step-1.safetensors", "step-00000004.json", "step-000000004.safetensors"}
    for name in {*foreign, "step-00000009.safetensors.part"}:
        (tmp_path / name).write_text("mine, or torn")
    for name, damage in damages.items():
        damage(tmp_path / name)
    before, state.step = {path.name for path in tmp_path.iterdir()}, 0
    if restored is None:
        with pytest.raises(CheckpointError, match="is whole"):
            checkpoints.restore(state)
        restored = 0
    else:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            checkpoints.restore(state)
        assert state.step == restored and bool((state.parameters[0] == restored).all())
        assert len(said) == bool(damages)
    assert {path.name for path in tmp_path.iterdir()} == before
    state.step += 1
    checkpoints.save(state)
    kept = {f"step-{step:08d}.safetensors" for step in {restored, restored + 1} - {0}}
    assert {path.name for path in tmp_path.iterdir()} == kept | foreign


@pytest.mark.parametrize(
    ("model", "config", "blocks", "said"),
    [
        ({}, {"learning_rate": 2e-2}, BLOCKS, "settings: learning_rate was 0.01 and is now 0.02"),
        ({}, {}, BLOCKS.flip(0), "data was [0-9a-f]{12} and is now [0-9a-f]{12}"),
        ({"alpha": 32}, {}, BLOCKS, "adapter: default: lora_alpha was 16 and is now 32"),
        ({"shift": 1e-3}, {}, BLOCKS, "base model was [0-9a-f]{12} and is now [0-9a-f]{12}"),
    ],
)
def test_another_run_is_refused_naming_the_difference(tmp_path, model, config, blocks, said):
    until(5, tmp_path, small_model("lora"))
    shift = model.pop("shift", 0)
    other = small_model(**({"strategy": "lora"} | model))
    with torch.no_grad():
        other.get_input_embeddings().weight += shift
    before = weights_of(other).clone()
    changed = TrainingConfig(**{"learning_rate": 1e-2, "batch_size": 2, "evaluate_every": 2, "patience": 2} | config)
    with pytest.raises(ValueError, match=f"step-00000004 in .* cannot be resumed: .*{said}"):
        resumed(tmp_path, other, changed, blocks)
    assert torch.equal(weights_of(other), before)


def test_an_earlier_run_is_not_written_over(tmp_path):
    until(5, tmp_path)
    with pytest.raises(CheckpointError, match="holds step-00000004 of an earlier run: resume it, or"):
        train(small_model(), BLOCKS, CONFIG, validation=HELD_OUT, checkpoint_dir=tmp_path)
    with pytest.raises(ValueError, match="expected checkpoint_dir"):
        train(small_model(), BLOCKS, resume=True)
    with pytest.raises(ValueError, match="every=0: expected at least 1"):
        train(small_model(), BLOCKS, checkpoint_dir=tmp_path, every=0, resume=True)


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(tmp_path):
    """Even the superuser cannot make files in /proc."""
    (tmp_path / "file").touch()
    for folder in [tmp_path / "file", *(place for place in [Path("/proc/self")] if place.is_dir())]:
        model = small_model()
        model.register_forward_pre_hook(lambda *_: pytest.fail("work was done"))
        with pytest.raises(CheckpointError, match=f"nothing can be written to {folder}: "):
            train(model, BLOCKS, checkpoint_dir=folder)


@contextmanager
def disk_full_from(model, step):
    """A limit on the size of files, kept by the kernel, stands for a disk that is full from that step on."""
    resource = pytest.importorskip("resource")
    limit, passes = resource.getrlimit(resource.RLIMIT_FSIZE), []

    def fill(module, inputs):
        passes.append(module.training)
        if sum(passes) == step:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))

    handle = model.register_forward_pre_hook(fill)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        handle.remove()


def test_a_full_disk_is_one_error_and_loses_nothing(tmp_path):
    expected, _ = undisturbed()
    model = small_model()
    said = r"step 4 could not be .* \(.*\); those before it are untouched"
    with disk_full_from(model, 3), pytest.raises(CheckpointError, match=said):
        train(model, BLOCKS, CONFIG, validation=HELD_OUT, checkpoint_dir=tmp_path, every=2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002.safetensors"]
    assert not torch.equal(weights_of(model), weights_of(small_model())), "the model keeps what it has learned"
    again, _ = resumed(tmp_path)
    assert torch.equal(weights_of(again), weights_of(expected))


def test_a_full_disk_at_the_last_save_leaves_the_trained_model_and_its_result(tmp_path):
    config = TrainingConfig(learning_rate=1e-2, batch_size=4, evaluate_every=2)
    expected, reference = undisturbed(config=config)
    model, last = small_model(), len(reference.history)
    said = rf"step {last} could not be .* Training is complete and the model is in me"
    with disk_full_from(model, last), pytest.warns(UserWarning, match=said):
        result = train(model, BLOCKS, config, validation=HELD_OUT, checkpoint_dir=tmp_path, every=2)
    assert torch.equal(weights_of(model), weights_of(expected))
    assert result.validation.equals(reference.validation)


def test_an_adapter_may_begin_at_other_random_weights_but_for_what_no_checkpoint_holds():
    """Its trainable weights come out of the checkpoint; LoRA-FA's first matrix does not."""

    def of(strategy, seed, **options):
        model = small_model("full")
        torch.manual_seed(seed)
        return identity_of(apply_strategy(model, strategy, **options).model, [BLOCKS], {})

    identity = of("lora", 1)
    assert identity == of("lora", 2) == json.loads(json.dumps(identity))
    assert identity["adapter"] != of("lora", 1, targets=["q_proj"])["adapter"]
    first, second = of("lora_fa", 1), of("lora_fa", 2)
    assert {key for key in first if first[key] != second[key]} == {
        "what the adapter has drawn and does not train (set the seed before)"
    }


def test_a_folder_is_held_by_one_run_until_it_ends_or_dies(tmp_path):
    """In this process and in another; a killed holder holds nothing, and nothing is left behind."""
    folder = tmp_path / "runs"
    refused = pytest.raises(CheckpointError, match=f"{folder} is in use by another run: wait for it, or")
    with lock_folder(folder), refused, lock_folder(folder):
        pass
    assert list(folder.iterdir()) == []
    script = "import sys, pathlib; from tlkit.files import lock_folder\n"
    script += "with lock_folder(pathlib.Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script, folder], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with refused, lock_folder(folder):
            pass
        other.kill()
    with lock_folder(folder):
        pass
    assert list(folder.iterdir()) == []


def test_what_is_written_is_whole_or_not_there(tmp_path):
    path = tmp_path / "table.csv"
    write_atomically(path, lambda part: part.write_text("old"))

    def torn(part):
        part.write_text("ne")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        write_atomically(path, torn)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    (tmp_path / "other.txt").write_text("mine")
    (tmp_path / "table.csv.part").symlink_to(tmp_path / "other.txt")
    write_atomically(path, lambda part: part.write_text("new"))
    assert path.read_text() == "new" and (tmp_path / "other.txt").read_text() == "mine"
