"""A merged model computes what base model and adapter compute, or it is not there."""

import multiprocessing
import os
import signal
import sys
from pathlib import Path

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from test_models import CAUSAL, small
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

from tlkit.adapters import adapter_names
from tlkit.checkpoints import CheckpointError, hold_folder
from tlkit.models import load_model, merging, save_model
from tlkit.models.checks import logits_of
from tlkit.models.merging import AGREES_TO, merge_adapter
from tlkit.strategies import apply_strategy

IDS = torch.arange(100, 140)[None]
ADAPTED = [kind for kind in CAUSAL if kind != "mamba"]  # peft adapts no recurrent layers by these names
QUANTISED = ("llama", "mixtral", "gpt_neo")
LORA = {"task_type": "CAUSAL_LM", "target_modules": "all-linear"}
METHODS = {
    "dropout": peft.LoraConfig(lora_dropout=0.5, **LORA),
    "bias all": peft.LoraConfig(bias="all", **LORA),
    "bias of its layers": peft.LoraConfig(bias="lora_only", **LORA),
    "its own bias": peft.LoraConfig(lora_bias=True, task_type="CAUSAL_LM", target_modules=["q_proj"]),
    "rslora": peft.LoraConfig(use_rslora=True, **LORA),
    "DoRA": peft.LoraConfig(use_dora=True, **LORA),
    "PiSSA": peft.LoraConfig(init_lora_weights="pissa", **LORA),
    "ranks": peft.LoraConfig(rank_pattern={"q_proj": 4}, alpha_pattern={"q_proj": 32}, **LORA),
    "one block": peft.LoraConfig(layers_to_transform=[1], task_type="CAUSAL_LM", target_modules=["q_proj"]),
    "embedding": peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["embed_tokens"]),
    "head": peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["lm_head"]),
    "whole head": peft.LoraConfig(modules_to_save=["lm_head"], **LORA),
    "some tokens": peft.LoraConfig(trainable_token_indices=[100, 105], **LORA),
    "IA3": peft.IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]),
}


def disturbed(adapted: torch.nn.Module) -> torch.nn.Module:
    """An adapter with values as if trained: everything in it moves the logits."""
    names = adapter_names(adapted)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if name in names or parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return adapted


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tiny):
    """A small tied base model, and a LoRA adapter for it."""
    folder = tmp_path_factory.mktemp("models")
    save_model(small("qwen2", CAUSAL["qwen2"][0], tie_word_embeddings=True), tiny.tokenizer, folder / "base")
    adapted = disturbed(apply_strategy(load_model(folder / "base").model, "lora").model)
    save_model(adapted, tiny.tokenizer, folder / "lora")
    return folder


@pytest.mark.parametrize(
    ("kind", "strategy"), [*((kind, "lora") for kind in ADAPTED), *((kind, "qlora") for kind in QUANTISED)]
)
def test_every_architecture_is_merged_and_read_by_transformers_alone(kind, strategy, tiny, tmp_path):
    save_model(small(kind, CAUSAL[kind][0]), tiny.tokenizer, tmp_path / "base")
    adapted = disturbed(apply_strategy(load_model(tmp_path / "base").model, strategy).model)
    save_model(adapted, tiny.tokenizer, tmp_path / "adapter")
    expected = logits_of(adapted, IDS)
    merged = merge_adapter(tmp_path / "adapter", tmp_path / "merged")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    # By the sums of another program than `merge_adapter` compares, in fp32.
    assert (logits_of(plain, IDS) - expected).abs().max() <= AGREES_TO
    assert (logits_of(load_model(tmp_path / "base").model, IDS) - expected).abs().max() > 100 * AGREES_TO
    assert merged.difference <= AGREES_TO and merged.values == sum(p.numel() for p in plain.parameters())
    assert merged.tokens > 200 and merged.texts >= 4
    assert merged.four_bit_base == (strategy == "qlora") == ("was in 4 bits" in str(merged))
    assert not (tmp_path / "merged.part").exists()


@pytest.mark.parametrize(("method", "tied"), [*((m, True) for m in METHODS), ("head", False), ("some tokens", False)])
def test_what_peft_alone_made_is_merged(method, tied, tiny, tmp_path):
    """A head that is tied to the embedding must not change with it."""
    save_model(small("qwen2", CAUSAL["qwen2"][0], tie_word_embeddings=tied), tiny.tokenizer, tmp_path / "base")
    adapted = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(tmp_path / "base"), METHODS[method])
    disturbed(adapted).save_pretrained(tmp_path / "adapter")
    expected = logits_of(adapted, IDS)
    merge_adapter(tmp_path / "adapter", tmp_path / "merged")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert (logits_of(plain, IDS) - expected).abs().max() <= AGREES_TO
    assert (logits_of(load_model(tmp_path / "base").model, IDS) - expected).abs().max() > 10 * AGREES_TO


def test_an_adapter_on_an_adapter_keeps_both(folders, tiny, tmp_path):
    second = disturbed(apply_strategy(load_model(folders / "lora", adapter="merge").model, "lora", r=4).model)
    save_model(second, tiny.tokenizer, tmp_path / "second")
    merged = merge_adapter(tmp_path / "second", tmp_path / "merged")
    found = logits_of(AutoModelForCausalLM.from_pretrained(tmp_path / "merged"), IDS)
    assert (found - logits_of(second, IDS)).abs().max() <= AGREES_TO
    assert Path(merged.base) == (folders / "lora").resolve()


def test_it_is_a_model_for_a_pipeline(folders, tmp_path):
    merge_adapter(folders / "lora", tmp_path / "merged")
    write = pipeline("text-generation", model=str(tmp_path / "merged"))
    assert write("In Rust,", max_new_tokens=3)[0]["generated_text"].startswith("In Rust,")
    assert AutoTokenizer.from_pretrained(tmp_path / "merged")("In Rust,")["input_ids"]
    assert not any(str(folders).encode() in file.read_bytes() for file in (tmp_path / "merged").iterdir())


@pytest.mark.parametrize("fault", ["one weight", "half precision", "the base model's weights", "no weights"])
def test_a_wrong_file_is_refused_and_nothing_is_left(fault, folders, tmp_path, monkeypatch):
    def save_wrongly(model, tokenizer, folder):
        save_model(model, tokenizer, folder)
        file = folder / "model.safetensors"
        weights = load_file(file)
        if fault == "one weight":
            weights["model.layers.1.mlp.up_proj.weight"][3, 5] += 0.5
        elif fault == "half precision":
            weights = {name: tensor.bfloat16().float() for name, tensor in weights.items()}
        elif fault == "the base model's weights":
            weights = load_file(folders / "base" / "model.safetensors")
        else:
            weights.pop("model.norm.weight")
        save_file(weights, file, {"format": "pt"})

    monkeypatch.setattr(merging, "save_model", save_wrongly)
    with pytest.raises(RuntimeError, match="does not compute what|weights are not in the file") as caught:
        merge_adapter(folders / "lora", tmp_path / "merged")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_nothing_that_is_there_is_replaced(folders, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("mine", "file", "link"):
        with pytest.raises(ValueError, match="is there already and would be replaced"):
            merge_adapter(folders / "lora", tmp_path / name)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    with pytest.raises(ValueError, match="has no adapter to merge"):
        merge_adapter(folders / "base", tmp_path / "merged")
    (tmp_path / "empty").mkdir()
    assert merge_adapter(folders / "lora", tmp_path / "empty").folder.joinpath("model.safetensors").is_file()


def test_a_folder_that_appears_meanwhile_is_not_replaced(folders, tmp_path, monkeypatch):
    def save_slowly(model, tokenizer, folder):
        save_model(model, tokenizer, folder)
        (tmp_path / "merged").mkdir()
        (tmp_path / "merged" / "notes.txt").write_text("of somebody else")

    monkeypatch.setattr(merging, "save_model", save_slowly)
    with pytest.raises(ValueError, match="is there already"):
        merge_adapter(folders / "lora", tmp_path / "merged")
    assert [path.name for path in tmp_path.rglob("*")] == ["merged", "notes.txt"]


def test_two_at_once_do_not_write_to_one_place(folders, tmp_path):
    with hold_folder(tmp_path / "merged.part"), pytest.raises(CheckpointError, match="in use by another run"):
        merge_adapter(folders / "lora", tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def _merge_and_die(adapter: Path, output: Path, at: str) -> None:
    """In a child: killed before the call of `at`."""

    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    torch.set_num_threads(1)  # a forked child has no threads of its parent
    if at == "replace":
        merging.os.replace = die
    else:
        setattr(merging, at, die)
    merge_adapter(adapter, output)


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
@pytest.mark.parametrize("at", ["_largest_difference", "replace"])
def test_a_merge_that_is_killed_leaves_nothing_and_the_next_one_ends(at, folders, tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_merge_and_die, args=(folders / "lora", tmp_path / "merged", at))
    child.start()
    child.join(120)
    torch.set_num_threads(threads)
    assert child.exitcode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == ["merged.part"], "the work that was left, under its own name"
    merge_adapter(folders / "lora", tmp_path / "merged")
    assert [path.name for path in tmp_path.iterdir()] == ["merged"]
