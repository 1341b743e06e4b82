"""Counted arithmetic against the sum by hand, where heads of queries share keys and values."""

import pytest
import torch
from torch import nn

from tlkit.evidence.flops import count_flops
from tlkit.models import load_model


def test_the_forward_pass_is_the_sum_of_its_products():
    """A ten-thousandth: the angles of positions are a product too, and no linear layer."""
    model, (rows, tokens) = load_model("tiny").model, (2, 64)
    config = model.config
    assert config.num_key_value_heads < config.num_attention_heads
    weights = sum(module.weight.numel() for module in model.modules() if isinstance(module, nn.Linear))
    # Each head of queries multiplies every query with every key, and every row of those with every value.
    width = config.hidden_size // config.num_attention_heads
    attention = 2 * rows * config.num_attention_heads * tokens * tokens * width * config.num_hidden_layers
    by_hand = 2 * rows * tokens * weights + 2 * attention
    counted = count_flops(model, torch.arange(rows * tokens).view(rows, tokens))
    assert counted.forward == pytest.approx(by_hand, rel=1e-4)
    assert counted.backward > 2 * counted.forward
