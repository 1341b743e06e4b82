"""Runs that are killed, damaged, refused: what is resumed ends as if nothing had happened."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Qwen2Config

from tlkit.checkpoints import CheckpointError
from tlkit.cli import main
from tlkit.models import load_model
from tlkit.strategies import STRATEGIES, apply_strategy
from tlkit.training import TrainingConfig, train

BLOCKS = torch.randint(64, (20, 16), generator=torch.Generator().manual_seed(1))
HELD_OUT = torch.randint(64, (4, 16), generator=torch.Generator().manual_seed(2))
CONFIG = TrainingConfig(learning_rate=1e-2, batch_size=2, evaluate_every=2, patience=2)  # ten steps, early stopping


class PowerCut(BaseException):
    """Nothing in the package can catch it."""


def small_model(strategy="full", **options):
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4}
    config = Qwen2Config(**sizes, num_attention_heads=4, num_key_value_heads=2, attention_dropout=0.1)
    return apply_strategy(AutoModelForCausalLM.from_config(config, dtype=torch.float32), strategy, **options).model


def weights_of(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


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


def test_thirty_runs_killed_at_any_moment_end_bit_identical(tmp_path):
    """Half of them inside a write, spread over the run's checkpoints, or little is shown."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    script = Path(__file__).with_name("killed_runs.py")
    done = subprocess.run([sys.executable, script, tmp_path, "30"], capture_output=True, text=True, check=True)
    whole, *runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(runs) == 30
    assert [run["hash"] for run in runs] == [whole["hash"]] * 30
    inside = [run["reached"] for run in runs if run["inside a write"]]  # seeded, so that these never change
    assert len(inside) == 15 and len(set(inside)) >= 5


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_resumed_run_is_the_undisturbed_one(tmp_path, strategy, optimizer):
    """Weights bit for bit, the records of all steps, the validation scores, the early stop."""
    config = TrainingConfig(learning_rate=1e-2, batch_size=2, evaluate_every=2, patience=2, optimizer=optimizer)
    options = {"dropout": 0.1} if strategy == "lora" else {}
    expected, reference = undisturbed(small_model(strategy, **options), config)
    until(6, tmp_path, small_model(strategy, **options), config)
    model, result = resumed(tmp_path, small_model(strategy, **options), config)
    assert torch.equal(weights_of(model), weights_of(expected))
    same = [name for name in reference.history.columns if name not in ("seconds", "memory_counted")]
    assert result.history[same].equals(reference.history[same])
    assert result.validation.equals(reference.validation)
    assert result.stopped_early == reference.stopped_early
    assert reference.stopped_early or strategy == "bitfit"


def test_a_run_that_is_done_is_not_done_again(tmp_path):
    config = TrainingConfig(learning_rate=1e-2, batch_size=2)
    first = small_model()
    train(first, BLOCKS, config, checkpoint_dir=tmp_path, every=4)
    again = small_model()
    again.register_forward_pre_hook(lambda *_: pytest.fail("trained again"))
    result = train(again, BLOCKS, config, checkpoint_dir=tmp_path, every=4, resume=True)
    assert torch.equal(weights_of(again), weights_of(first))
    assert len(result.history) == 10


def test_only_what_is_trainable_is_saved_and_only_the_newest_two(tmp_path):
    until(10, tmp_path, small_model("last_layers"), TrainingConfig(batch_size=2))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"step-0000000{step}.{suffix}" for step in (6, 8) for suffix in ("json", "safetensors")
    ]
    saved = load_file(tmp_path / "step-00000008.safetensors")
    trainable = [p for p in small_model("last_layers").parameters() if p.requires_grad]
    weights = [tensor for name, tensor in saved.items() if name.startswith("weights.")]
    assert sum(t.numel() for t in weights) == sum(p.numel() for p in trainable)
    assert len([name for name in saved if name.startswith("optimizer.")]) == 3 * len(trainable)


def flip(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("suffix", "damage", "said"),
    [
        ("safetensors", lambda path: path.write_bytes(path.read_bytes()[:-100]), "is damaged"),
        ("safetensors", flip, "is damaged"),
        ("safetensors", Path.unlink, "is missing"),
        ("json", lambda path: path.write_text(path.read_text()[:-100]), "is damaged"),
        ("json", lambda path: path.write_text(path.read_text().replace('"step": 4', '"step": 5', 1)), "is damaged"),
        ("json", lambda path: path.write_text("[]"), "is damaged"),
    ],
)
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_it_used(tmp_path, suffix, damage, said):
    expected, _ = undisturbed()
    until(5, tmp_path)
    damage(tmp_path / f"step-00000004.{suffix}")
    with pytest.warns(UserWarning, match=rf"step-00000004\.{suffix} {said}: the checkpoint before it is used"):
        model, result = resumed(tmp_path)
    assert torch.equal(weights_of(model), weights_of(expected))
    assert result.history.step.tolist() == list(range(1, len(result.history) + 1))


def test_nothing_whole_is_an_error_and_no_new_beginning(tmp_path):
    until(5, tmp_path)
    for path in tmp_path.glob("*.safetensors"):
        flip(path)
    with pytest.warns(UserWarning, match="is damaged"), pytest.raises(CheckpointError, match="2 were found, all damag"):
        resumed(tmp_path)


@pytest.mark.parametrize(
    ("model", "config", "blocks", "said"),
    [
        ({}, {"learning_rate": 2e-2}, BLOCKS, "settings: learning_rate was 0.01 and is now 0.02"),
        ({}, {"batch_size": 4}, BLOCKS, "settings: batch_size was 2 and is now 4"),
        ({}, {}, BLOCKS.flip(0), "data was [0-9a-f]{12} and is now [0-9a-f]{12}"),
        ({"strategy": "full"}, {}, BLOCKS, "trainable tensors: "),
        ({"alpha": 32}, {}, BLOCKS, "adapter: lora_alpha was 16 and is now 32"),
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
    with pytest.raises(ValueError, match=f"step-00000004 in .* cannot be gone on with: .*{said}"):
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
        with pytest.raises(CheckpointError, match=f"no checkpoints can be kept in {folder}: "):
            train(model, BLOCKS, checkpoint_dir=folder)


def test_a_full_disk_is_one_error_and_loses_nothing(tmp_path):
    """A limit on the size of files, kept by the kernel, stands for the full disk."""
    resource = pytest.importorskip("resource")
    expected, _ = undisturbed()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    model, passes = small_model(), []

    def fill(module, inputs):
        passes.append(module.training)
        if sum(passes) == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))

    handle = model.register_forward_pre_hook(fill)
    try:
        with pytest.raises(CheckpointError, match=r"step 4 could not be .* \(.*\); step-00000002 is there and whole"):
            train(model, BLOCKS, CONFIG, validation=HELD_OUT, checkpoint_dir=tmp_path, every=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        handle.remove()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors"]
    assert not torch.equal(weights_of(model), weights_of(small_model())), "the model keeps what it has learned"
    again, _ = resumed(tmp_path)
    assert torch.equal(weights_of(again), weights_of(expected))


def test_the_command_resumes_and_its_adapter_is_read_by_others(tmp_path, capsys):
    """Plain peft on the base model, and plain transformers after merging: the same logits to 1e-5."""
    from peft import PeftModel

    command = ["train", "--strategy", "lora", "--corpus", "facts", "--sequence-length", "64", "--batch-size", "2"]
    command += ["--output", str(tmp_path / "out"), "--checkpoint-every", "2", "--json"]
    assert main(command) == 0
    assert main(command) == 1
    assert "of an earlier run" in capsys.readouterr().err
    assert main([*command, "--resume", "--learning-rate", "0.1"]) == 2
    assert "learning_rate was" in capsys.readouterr().err
    assert main([*command, "--resume"]) == 0

    tokens = torch.arange(40)[None]
    trained = PeftModel.from_pretrained(load_model("tiny").model, tmp_path / "out").eval()
    with torch.no_grad():
        adapted, plain = trained(tokens).logits, load_model("tiny").model(tokens).logits
        trained.merge_and_unload().save_pretrained(tmp_path / "merged")
        merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)(tokens).logits
    assert (adapted - plain).abs().max() > 1e-2
    assert (merged - adapted).abs().max() < 1e-5 * adapted.abs().max()
