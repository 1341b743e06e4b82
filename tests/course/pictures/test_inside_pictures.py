"""What the pictures of a model's inside show is what the model has: shapes, masks and probabilities."""

import math

import pytest
import torch
from matplotlib.patches import Rectangle

from course.lesson02.pictures import attention_chart, lens_chart, transformer_block
from course.small import small_model
from tlkit.models import load_model

VOCABULARY = ["<|endoftext|>", "The", " file", " is", " new", "."]


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


@pytest.mark.parametrize("kind", ["qwen2", "llama", "qwen3"])
def test_a_block_is_drawn_with_the_shapes_of_the_model(kind):
    figure = transformer_block(small_model(kind))
    assert "2 × 16 → 32\n1.02k" in texts(figure) and "32 → 16\n512" in texts(figure)
    assert "rotary positions\n2 query heads\n2 key/value\nheads, causal" in texts(figure)


def test_the_bundled_blocks_values_are_those_of_its_parameters():
    model = load_model("tiny").model
    figure = transformer_block(model)
    counted = sum(parameter.numel() for parameter in model.model.layers[0].parameters())
    assert counted == 406_272 and "one block: 406k values" in texts(figure)
    assert "Q 192 → 192\nK 192 → 96\nV 192 → 96\n74.1k" in texts(figure)
    assert "4 query heads" in figure.alt


def test_attention_hides_the_future_and_nothing_else():
    heads = {"one": torch.rand(3, 3), "two": torch.rand(3, 3)}
    examples = {"one": (1, 0), "two": (2, 0)}
    figure = attention_chart(heads, ["<|endoftext|>", " a", " b"], "What they do", examples)
    panels = [axes for axes in figure.axes if axes.images and axes.get_title()]
    assert [panel.get_title() for panel in panels] == ["one", "two"]
    for panel, head in zip(panels, heads.values(), strict=True):
        shown = torch.as_tensor(panel.images[0].get_array().filled(math.nan))
        assert shown.isnan().equal(torch.ones(3, 3, dtype=torch.bool).triu(1))
        assert torch.allclose(shown.nan_to_num(), head.tril())
    assert [patch.get_xy() for panel in panels for patch in panel.patches] == [(-0.5, 0.5), (-0.5, 1.5)]
    assert f"two: b looks at [end] with weight {heads['two'][2, 0]:.1f}" in figure.alt


def test_a_lens_frames_what_is_right_and_only_that():
    probabilities = torch.full((3, 2, 6), 0.05)
    probabilities[0, :, 1] = probabilities[1, 0, 2] = probabilities[2, 0, 2] = probabilities[2, 1, 3] = 0.75
    probabilities[1, 1, 4] = 0.75
    figure = lens_chart(probabilities, [2, 3], VOCABULARY, "t")
    frames = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert len(frames) == 3
    assert texts(figure)[:2] == ["The", "The"] and "new" in texts(figure)
    assert figure.axes[0].images[0].get_array().tolist() == probabilities[:, [0, 1], [2, 3]].tolist()
