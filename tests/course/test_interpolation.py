"""Weights between two models, from one end to the other."""

import pytest
import torch

from course.lesson15.interpolation import interpolate
from tlkit.models import load_model
from tlkit.models.parts import is_tied


def test_weights_in_between():
    base, other = load_model("tiny").model, load_model("tiny", random_init=True).model
    before = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    start, middle, end = (interpolate(base, other, share).state_dict() for share in (0, 0.5, 1))
    for name, tensor in other.state_dict().items():
        assert torch.equal(start[name], before[name]) and torch.equal(end[name], tensor)
        assert torch.allclose(
            middle[name], (before[name] + tensor) / 2, atol=1e-6
        )  # two fp32 roundings of values near 1
        assert torch.equal(base.state_dict()[name], before[name])
    assert is_tied(interpolate(base, other, 0.5))
    with pytest.raises(ValueError, match="share=1.5"):
        interpolate(base, other, 1.5)
