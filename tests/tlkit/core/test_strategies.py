"""Strategies select what they say, on every architecture, and the published counts come out exactly."""

import pytest
import torch
from small_models import ARCHITECTURES
from small_models import small_model as of_three_blocks
from transformers import AutoConfig, AutoModelForCausalLM

from tlkit.models import meta_model
from tlkit.models.parts import find_blocks, is_tied
from tlkit.names import CLASSIC
from tlkit.strategies import apply_strategy


def small_model(kind: str):
    return of_three_blocks(kind, **{"n_layer" if "n_layer" in ARCHITECTURES[kind] else "num_hidden_layers": 4})


@pytest.mark.parametrize(
    ("strategy", "values", "tensors"),
    [
        ("full", 494_032_768, 290),
        ("freeze_lower", 315_084_160, 146),
        ("freeze_embeddings", 357_898_112, 289),
        ("last_layers", 29_865_088, 69),
    ],
)
def test_published_counts_on_qwen2(strategy, values, tensors):
    report = apply_strategy(meta_model("qwen2-0.5b"), strategy)
    assert (report.trainable_parameters, report.trainable_tensors) == (values, tensors)
    assert (report.total_parameters, report.total_tensors) == (494_032_768, 290)


def test_training_the_tied_head_trains_the_embedding():
    report = apply_strategy(meta_model("qwen2-0.5b"), "last_layers", train_head=True)
    assert report.trainable_parameters == 29_865_088 + 151_936 * 896
    assert "tied" in report.tied


PAIRS = {(kind, strategy) for kind in ("qwen2", "gpt2") for strategy in (*CLASSIC, "gradual_unfreezing")}
PAIRS |= {(kind, strategy) for kind in ("opt", "gpt_neox", "phi") for strategy in ("freeze_lower", "last_layers")}
PAIRS |= {("llama", "bitfit"), ("opt", "discriminative_rates")}
REFUSED = {("llama", "bitfit"): "no bias vectors", ("gpt2", "qlora"): "no linear layers"}


@pytest.mark.parametrize(("kind", "strategy"), sorted(PAIRS))
def test_one_step_moves_what_is_trainable_and_nothing_else(kind, strategy):
    """Every strategy on two architectures, two strategies on every one."""
    model = small_model(kind)
    if said := REFUSED.get((kind, strategy)):
        with pytest.raises(ValueError, match=said):
            apply_strategy(model, strategy)
        return
    report = apply_strategy(model, strategy)
    before = {name: p.detach().clone() for name, p in report.model.named_parameters()}
    ids = torch.randint(3, 64, (4, 16), generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.AdamW([p for p in report.model.parameters() if p.requires_grad], lr=0.01)
    for _ in range(2):  # LoRA's A matrices receive a gradient from the second step on
        report.model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    for name, parameter in report.model.named_parameters():
        if not parameter.requires_grad:
            assert torch.equal(parameter, before[name]), name
    moved = sum(not torch.equal(p, before[name]) for name, p in report.model.named_parameters())
    assert moved >= 0.8 * report.trainable_tensors  # unused key biases and the like may keep a zero gradient
    for number, total in enumerate(
        (report.trainable_parameters, report.total_parameters, report.trainable_tensors, report.total_tensors)
    ):
        assert sum(component[number] for component in report.components.values()) == total
    assert report.trainable_parameters == sum(p.numel() for p in report.model.parameters() if p.requires_grad)
    if strategy == "freeze_lower":
        states = [{p.requires_grad for p in block.parameters()} for block in find_blocks(model)]
        assert states == [{False}, {False}, {True}, {True}]


def test_block_ten_is_not_block_one():
    """The reports matched `layers.1` inside `layers.10`; here twelve of 24 blocks are frozen, not all."""
    model = meta_model("qwen2-0.5b")
    apply_strategy(model, "freeze_lower")
    frozen = [n for n, block in enumerate(find_blocks(model)) if not next(block.parameters()).requires_grad]
    assert frozen == list(range(12))


def on_paper(kind: str, **sizes):
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes))


def test_the_blocks_are_those_of_the_decoder():
    """Beside an encoder of another depth, and where only a part of the configuration is about text."""
    sides = {f"{side}_{what}": 2 for side in ("encoder", "decoder") for what in ("attention_heads", "ffn_dim")}
    model = on_paper("bart", d_model=32, decoder_layers=3, encoder_layers=2, **sides)
    assert find_blocks(model) is model.get_decoder().layers and len(find_blocks(model)) == 3
    text = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64}
    seen = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = on_paper("gemma3", text_config=text | {"head_dim": 16, "num_key_value_heads": 1}, vision_config=seen)
    assert find_blocks(model) is model.get_decoder().layers and len(find_blocks(model)) == 3


def test_norms_with_a_gate_and_biases_of_experts_are_found():
    mamba = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "num_heads": 4, "head_dim": 16, "n_groups": 1}
    report = apply_strategy(on_paper("mamba2", **mamba), "last_layers", blocks=1)
    assert "backbone.layers.0.mixer.norm.weight" in report.trainable
    experts = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    experts |= {"intermediate_size": 64, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16}
    trainable = apply_strategy(on_paper("gpt_oss", **experts), "bitfit").trainable
    assert {f"model.layers.0.mlp.experts.{part}_proj_bias" for part in ("gate_up", "down")} < trainable
    assert all(name.endswith("bias") for name in trainable)


def test_freeze_embeddings_freezes_the_tied_head_and_learned_positions():
    model = small_model("gpt2")
    report = apply_strategy(model, "freeze_embeddings")
    assert is_tied(model) and report.components["embedding"].trainable_parameters == 0
    assert not model.transformer.wpe.weight.requires_grad
