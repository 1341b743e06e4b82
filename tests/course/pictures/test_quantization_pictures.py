"""Pictures of 4-bit weights show the numbers of the layers and tables that they are drawn from."""

import pandas as pd
import pytest
import torch
from figure_checks import collisions

from course.lesson09.pictures import four_bit_layer, levels_chart, output_error_chart, rounding_chart
from tlkit.models import load_model
from tlkit.strategies import apply_strategy

LEVELS = torch.tensor([-1.0, -0.4, 0.0, 0.3, 1.0])


def test_a_layer_is_drawn_with_its_own_shapes_and_bytes():
    model = apply_strategy(load_model("tiny").model, "qlora").model.get_base_model()
    chart = four_bit_layer(model.model.layers[0].mlp.gate_proj)
    words = " ".join(text.get_text() for text in chart.axes[0].texts)
    # 512 x 192 codes of half a byte, 1536 scales of a byte
    assert "512 x 192 of 4 bits" in words and "1536 of 8 bits" in words and "50.7 kB" in words and "393.2 kB" in words
    assert "8 x 192" in words and "512 x 8" in words and "= 2" in words
    assert "x has 192 values and h has 512" in chart.alt
    assert chart.finding == "The frozen weights take 50.7 kB, and 393.2 kB only while the layer computes"
    assert "adapter: trained, in 32 bits" in words


def test_the_way_of_x_leads_from_its_box_to_the_weights_and_to_the_adapter():
    model = apply_strategy(load_model("tiny").model, "qlora").model.get_base_model()
    chart = four_bit_layer(model.model.layers[0].self_attn.q_proj)
    (axes,) = chart.axes
    boxes = {text.get_text().split("\n")[0]: text.get_position() for text in axes.texts}
    first, fork = (line.get_xydata() for line in axes.lines[:2])
    x = next(patch for patch in axes.patches if patch.get_x() == 0)
    assert first[0][0] == pytest.approx(x.get_x() + x.get_width()) and first[1][0] == fork[0][0]
    ends = {tuple(text.xy) for text in axes.texts if hasattr(text, "arrow_patch") and text.xyann[0] == fork[0][0]}
    heights = sorted(end[1] for end in ends)
    assert heights == pytest.approx(sorted(place[1] for name, place in boxes.items() if name[:2] in ("$A", "$\\")))
    assert collisions(chart) == []


def test_nothing_else_is_drawn_in_4_bits():
    model = apply_strategy(load_model("tiny").model, "qlora").model.get_base_model()
    with pytest.raises(ValueError, match="Embedding: expected a linear layer in 4 bits"):
        four_bit_layer(model.get_input_embeddings())


def test_each_weight_is_drawn_at_its_nearest_level():
    weights = torch.tensor([0.1, 0.5, -0.3, 2.0])
    (axes,) = rounding_chart(weights, LEVELS).axes
    drawn = {marker: [line.get_ydata()[0] for line in axes.lines if line.get_marker() == marker] for marker in "o_"}
    assert drawn["o"] == pytest.approx(weights.tolist())
    assert drawn["_"] == pytest.approx([0.0, 0.6, 0.0, 2.0])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["2", "3", "2", "4"]


def test_levels_carry_the_share_of_the_weights_that_goes_to_them():
    scaled = torch.tensor([-1.0, -0.9, 0.05, 0.1, 0.01, 0.2, 1.0, 0.9, 0.8, -0.3])
    chart = levels_chart(scaled, {"few": LEVELS, "two": torch.tensor([-1.0, 1.0])}, "a finding")
    shares = [[text.get_text() for text in axes.texts] for axes in chart.axes]
    assert shares == [["20", "10", "30", "10", "30"], ["30", "70"]]
    assert "few: from 10% to 30% of the weights at a level" in chart.alt
    places = [line.get_xdata()[0] for line in chart.axes[0].lines]
    assert places == pytest.approx(LEVELS.tolist())


def test_errors_are_drawn_in_percent_beside_that_of_the_weights():
    table = pd.DataFrame({"layer": ["q", "q", "v"], "block": [0, 1, 0], "error": [0.05, 0.06, 0.11]})
    (axes,) = output_error_chart(table, 0.09, "a finding").axes
    points = [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "o"]
    assert points == [pytest.approx([5, 6]), pytest.approx([11])]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["q", "v"]
    assert "error of the weights: 9.0%" in {text.get_text() for text in axes.texts}
    assert axes.figure.finding == "a finding"
