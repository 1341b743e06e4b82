"""What the pictures of a model's inside show is what the model has: shapes, masks, probabilities and moments."""

import math

import pandas as pd
import pytest
import torch
from matplotlib.patches import Rectangle

from course.lesson02.pictures import (
    LINE,
    attention_chart,
    layer_losses_chart,
    lens_chart,
    next_token_chart,
    token_losses_chart,
    token_strip,
    transformer_block,
)
from course.lesson02.steps import borders_chart, moments_chart, training_chart
from course.small import small_model
from tlkit.models import load_model
from tlkit.reports.drawing import TRAINED

VOCABULARY = ["<|endoftext|>", "The", " file", " is", " new", "."]


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_a_strip_has_a_box_for_each_token_and_breaks_long_lines():
    tokens = ["The", *[" file"] * 30, "."]
    figure = token_strip(tokens, ["A", " b"])
    boxes = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert len(boxes) == len(tokens) + 2
    assert max(box.get_x() + box.get_width() for box in boxes) <= LINE
    assert len({box.get_y() for box in boxes}) > 2
    assert texts(figure).count("·file") == 30 and "32 tokens: The |" in figure.alt


@pytest.mark.parametrize("kind", ["qwen2", "llama", "qwen3"])
def test_a_block_is_drawn_with_the_shapes_of_the_model_on_paper_too(kind):
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
    assert [name for name in texts(figure) if name.isdigit() and len(name) == 1] == list("01234567")


def test_a_deep_model_is_drawn_with_its_last_block_named():
    names = texts(transformer_block(small_model(depth=24)))
    assert "23" in names and "…" in names and "15" not in names


def test_a_block_of_other_parts_is_refused_by_name():
    with pytest.raises(ValueError, match=r"GPT2Block has no input_layernorm, .*expected a block of the Llama family"):
        transformer_block(load_other("gpt2"))


def load_other(kind):
    from transformers import AutoConfig

    from tlkit.models import meta_model

    return meta_model(AutoConfig.for_model(kind, n_embd=16, n_layer=2, n_head=2, vocab_size=64))


def test_attention_hides_the_future_and_nothing_else():
    weights = torch.rand(2, 3, 3)
    figure = attention_chart(weights, ["<|endoftext|>", " a", " b"], ["one", "two"], "What they do", [(1, 2, 0)])
    panels = [axes for axes in figure.axes if axes.images and axes.get_title()]
    assert [panel.get_title() for panel in panels] == ["one", "two"]
    for panel, head in zip(panels, weights, strict=True):
        shown = torch.as_tensor(panel.images[0].get_array().filled(math.nan))
        assert shown.isnan().equal(torch.ones(3, 3, dtype=torch.bool).triu(1))
        assert torch.allclose(shown.nan_to_num(), head.tril())
    assert [len(panel.patches) for panel in panels] == [0, 1]
    assert f"two: b looks at [end] with weight {weights[1, 2, 0]:.1f}" in figure.alt


def test_next_tokens_are_ordered_and_the_right_one_is_always_there():
    probabilities = torch.arange(1.0, 13.0) / 78
    figure = next_token_chart(probabilities, [f" w{n}" for n in range(12)], right=0, title="t")
    bars = figure.axes[0].patches
    widths = [bar.get_width() for bar in bars]
    assert len(bars) == 9 and widths == sorted(widths, reverse=True)
    assert [bar.get_facecolor()[:3] for bar in bars].count(bars[-1].get_facecolor()[:3]) == 1
    assert math.isclose(widths[-1], 100 / 78, rel_tol=1e-5)


def test_losses_are_drawn_with_their_mean():
    figure = token_losses_chart(["a", "b"], [1.0, 4.0], "t")
    assert [bar.get_height() for bar in figure.axes[0].patches] == [1.0, 4.0] and "mean 2.50" in texts(figure)


def test_a_lens_frames_what_is_right_and_only_that():
    probabilities = torch.full((3, 2, 6), 0.05)
    probabilities[0, :, 1] = probabilities[1, 0, 2] = probabilities[2, 0, 2] = probabilities[2, 1, 3] = 0.75
    probabilities[1, 1, 4] = 0.75
    figure = lens_chart(probabilities, [2, 3], VOCABULARY, "t")
    frames = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert len(frames) == 3
    assert texts(figure)[:2] == ["The", "The"] and "new" in texts(figure)
    assert figure.axes[0].images[0].get_array().tolist() == probabilities[:, [0, 1], [2, 3]].tolist()


def test_a_loss_off_the_scale_is_written_down():
    figure = layer_losses_chart([30.0, 5.0, 4.0], 4096, "t")
    assert "30.0\n(off the scale)" in texts(figure) and "5.0" in texts(figure)
    assert "guessing among 4,096 tokens: 8.3" in texts(figure)


def test_moments_are_drawn_as_a_gradient_a_root_and_their_ratio():
    table = pd.DataFrame({"gradient": [2.0, -2.0], "first": [2.0, 0.5], "second": [4.0, 1.0]})
    top, bottom = moments_chart(table).axes
    assert list(top.lines[1].get_ydata()) == [2.0, 1.0]
    assert [bar.get_height() for bar in bottom.patches] == [1.0, 0.5]


def test_a_gradient_is_drawn_dark_up_to_the_limit():
    history = pd.DataFrame(
        {"step": [1, 2], "learning_rate": [0.1, 0.2], "gradient_norm": [3.0, 0.5], "loss": [2.0, 1.0]}
    )
    chart = training_chart(history, max_gradient_norm=1.0, warmup_steps=1)
    assert "and 1 of 2 gradients are clipped" in chart.finding
    _, norm, loss = chart.axes
    assert [bar.get_height() for bar in norm.patches] == [3.0, 0.5, 1.0, 0.5]
    assert list(loss.lines[0].get_ydata()) == [2.0, 1.0]
    assert norm.patches[2].get_facecolor() == pytest.approx(
        tuple(int(TRAINED[n : n + 2], 16) / 255 for n in (1, 3, 5)) + (1,)
    )


def test_an_interval_over_documents_is_that_of_their_mean():
    figure = borders_chart({"before": [0.0, 2.0], "none": [1.0, 1.0]}, "t")
    assert texts(figure) == ["+1.00 ± 1.96", "+1.00 ± 0.00", "the document alone"]
