"""What the answers to exercises are tried on and compared with: a small model, and tensors."""

import torch
from transformers import AutoConfig

from course.exercises import Wrong, kind
from tlkit.models import meta_model


def small_model(kind: str = "qwen2", *, depth: int = 2, tied: bool = True):
    """A model of an architecture, too small to wait for, on paper only."""
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": depth, "num_attention_heads": 2}
    tokens = {"vocab_size": 64, "bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": tied}
    return meta_model(AutoConfig.for_model(kind, num_key_value_heads=2, **shape, **tokens))


def tensor(given: object, like: torch.Tensor) -> torch.Tensor:
    """Read the result of an answer as a tensor of the shape of another one.

    Raises:
        Wrong: for anything else.
    """
    if not isinstance(given, torch.Tensor):
        raise Wrong(f"a tensor is asked for, and your function returns {kind(given)}.")
    if given.shape != like.shape:
        raise Wrong(f"the result has the shape {tuple(given.shape)}, not {tuple(like.shape)}.")
    return given.detach().float()


def close_tensors(given: torch.Tensor, expected: torch.Tensor) -> bool:
    """Say whether two tensors are the same but for rounding; nan is like nan."""
    return torch.allclose(given, expected.float(), rtol=1e-4, atol=1e-5, equal_nan=True)
