"""Tiny models of many architectures, random and without dropout, for the tests beside this file."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tlkit.models import continue_tokens, prompt_tokens

GPT2_WITHOUT_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
WIDE = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64}
GPT = {"n_embd": 32, "n_layer": 3, "n_head": 2, "n_positions": 32}
KEYS = {"num_key_value_heads": 2}
ARCHITECTURES = {
    "gpt2": GPT | GPT2_WITHOUT_DROPOUT,
    "opt": WIDE | {"ffn_dim": 64, "word_embed_proj_dim": 32, "dropout": 0.0},
    "llama": WIDE,
    "qwen2": WIDE | KEYS,
    "gpt_neox": WIDE | {"hidden_dropout": 0.0, "attention_dropout": 0.0},
    "phi": WIDE,
    "falcon": WIDE,
    "gptj": GPT | {"rotary_dim": 8},
    "gpt_neo": {
        "hidden_size": 32,
        "num_layers": 3,
        "num_heads": 2,
        "attention_types": [[["global", "local", "global"], 1]],
    },
    "codegen": GPT | {"rotary_dim": 4, "n_head": 4},
    "bloom": {"hidden_size": 32, "n_layer": 3, "n_head": 2},
    "mpt": {"d_model": 32, "n_layers": 3, "n_heads": 2},
    "gemma2": WIDE | KEYS | {"head_dim": 16},
    "mixtral": WIDE | KEYS | {"num_local_experts": 4},
}


def small_model(kind: str, **changes) -> torch.nn.Module:
    """Three blocks of width 32 and a vocabulary of 64.

    Args:
        kind: transformers' name of the architecture; those in `ARCHITECTURES` have been tried.
        changes: of its configuration.
    """
    torch.manual_seed(0)
    tokens = {"vocab_size": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = AutoConfig.for_model(kind, **tokens | ARCHITECTURES.get(kind, WIDE | KEYS) | changes)
    return AutoModelForCausalLM.from_config(config)


def weights_of(model: torch.nn.Module) -> torch.Tensor:
    """All weights in one row."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@torch.no_grad()
def greedy(model: torch.nn.Module, ids: list[int], count: int) -> list[int]:
    """One token after the other, each the likeliest after all before it: nothing padded, nothing cached."""
    row = torch.tensor([ids])
    for _ in range(count):
        row = torch.cat([row, model.eval()(input_ids=row, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    return row[0, len(ids) :].tolist()


def generate(model: torch.nn.Module, tokenizer, prompts: list[str], **settings: float) -> list[str]:
    """Each prompt and what a model writes behind it; settings as for `continue_tokens`."""
    encoded = [prompt_tokens(tokenizer, prompt) for prompt in prompts]
    written = continue_tokens(model, tokenizer, encoded, **settings)
    return [prompt + one.text for prompt, one in zip(prompts, written, strict=True)]
