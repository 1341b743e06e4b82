"""The step on architectures other than the bundled one: gradients, chunked losses, random numbers, faults."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tlkit.memory import virtual_device
from tlkit.models import load_model, meta_model
from tlkit.steps import draws_random_numbers
from tlkit.strategies import apply_strategy

LLAMA = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GPT2 = {
    "vocab_size": 97,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WITHOUT_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def small(kind: str, device: str = "cpu", **settings) -> torch.nn.Module:
    """A model of that architecture with two blocks and random weights."""
    config = AutoConfig.for_model(kind, **(GPT2 if kind == "gpt2" else LLAMA) | settings)
    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize(
    ("kind", "settings", "draws"),
    [
        ("gpt2", {}, True),
        ("gpt2", WITHOUT_DROPOUT, False),
        ("gpt2", WITHOUT_DROPOUT | {"attn_pdrop": 0.1}, True),
        ("llama", {}, False),
        ("llama", {"attention_dropout": 0.1}, True),
        ("falcon", {"hidden_dropout": 0.1}, True),  # read from the configuration, in no module
        ("mixtral", {"num_local_experts": 4, "router_jitter_noise": 0.01}, True),  # no dropout at all
        ("opt", {"dropout": 0.0, "ffn_dim": 48, "word_embed_proj_dim": 32}, False),
        ("opt", {"dropout": 0.0, "layerdrop": 0.1, "ffn_dim": 48, "word_embed_proj_dim": 32}, True),
    ],
)
def test_the_model_is_asked_whether_it_draws_random_numbers(kind, settings, draws):
    model = small(kind, **settings)
    model.eval()
    next(model.modules()).training = True  # left as it was, module by module
    before = torch.get_rng_state()
    assert draws_random_numbers(model) is draws
    assert torch.equal(torch.get_rng_state(), before)
    assert [module.training for module in model.modules()] == [True] + [False] * (len(list(model.modules())) - 1)


def test_dropout_set_on_a_module_or_on_adapters_is_noticed():
    model = load_model("tiny").model
    assert not draws_random_numbers(model)
    with virtual_device(memory="1KB"):  # nothing is counted
        assert not draws_random_numbers(model)
    model.model.layers[3].self_attn.attention_dropout = 0.1
    assert draws_random_numbers(model)
    assert draws_random_numbers(apply_strategy(load_model("tiny").model, "lora", dropout=0.1).model)


def test_a_model_without_weights_is_not_asked():
    with pytest.raises(ValueError, match="meta"):
        draws_random_numbers(meta_model("tiny"))
