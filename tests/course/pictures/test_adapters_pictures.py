"""Pictures of adapters draw the shapes, gradients and shares that they are given, and say them in words."""

import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from course.lesson08.pictures import (
    adapter_gradients_chart,
    grid_chart,
    lora_picture,
    rank_chart,
    shares_chart,
)
from course.lesson10.pictures import FAMILY, family_picture
from tlkit.evidence.gradient_flow import check_gradient_flow
from tlkit.models import load_model
from tlkit.reports.drawing import ADAPTER, TRAINED
from tlkit.strategies import apply_strategy


@pytest.fixture
def lora():
    torch.manual_seed(0)
    return apply_strategy(load_model("tiny").model, "lora", r=4, alpha=12)


def boxes(axes):
    return [patch for patch in axes.patches if type(patch) is Rectangle]


@pytest.mark.parametrize("part", ["self_attn.k_proj", "mlp.gate_proj", "mlp.down_proj"])
def test_a_layer_and_its_adapter_are_drawn_to_scale(lora, part):
    layer = lora.model.get_base_model().model.layers[0].get_submodule(part)
    chart = lora_picture(layer)
    drawn = [(box.get_height(), box.get_width()) for box in boxes(chart.axes[0])]
    outputs, inputs = layer.base_layer.weight.shape
    assert drawn[1] == (outputs, inputs) and drawn[3] == (outputs, 4) and drawn[4] == (4, inputs)
    assert drawn[0][0] == outputs and drawn[2][0] == drawn[5][0] == inputs
    assert f"{4 * (outputs + inputs):,} values" in chart.alt and f"A 4 x {inputs}" in chart.alt
    assert any(r"\frac{12}{4}" in text.get_text() for text in chart.axes[0].texts)


def test_gradients_of_a_and_b_are_drawn_apart_and_the_titles_say_who_has_one(lora):
    flow = check_gradient_flow(lora, torch.arange(32).reshape(2, 16))
    chart = adapter_gradients_chart(flow)
    first, second = chart.axes
    assert first.get_title() == "step 1: B alone receives a gradient"
    assert second.get_title() == "step 2: A and B receive a gradient"
    table = flow.table.set_index("tensor")
    for axes, step in ((first, 1), (second, 2)):
        for name, bars in zip("AB", axes.containers, strict=True):
            norms = table.loc[table.index.str.contains(f"lora_{name}"), ["place", f"norm_{step}"]]
            expected = norms.groupby("place")[f"norm_{step}"].agg(lambda found: found.pow(2).sum() ** 0.5)
            assert [bar.get_height() for bar in bars] == pytest.approx(expected.tolist())


def test_an_adapter_that_never_learns_is_said_to(lora):
    for name, parameter in lora.model.named_parameters():
        if "lora_A" in name:
            torch.nn.init.zeros_(parameter)
    chart = adapter_gradients_chart(check_gradient_flow(lora, torch.arange(32).reshape(2, 16)))
    assert [axes.get_title() for axes in chart.axes] == [
        "step 1: neither receives a gradient",
        "step 2: neither receives a gradient",
    ]


def test_each_column_is_a_line_and_gaps_are_left_out():
    table = pd.DataFrame({"kept": [0.5, 0.75, 1.0], "reached": [0.2, None, 0.9]}, index=[1, 8, 64])
    chart = rank_chart(table, "the finding", "% of it")
    kept, reached = chart.axes[0].lines
    assert list(kept.get_ydata()) == [50, 75, 100] and list(kept.get_xdata()) == [1, 8, 64]
    assert list(reached.get_ydata()) == [20, 90] and list(reached.get_xdata()) == [1, 64]
    told = [text.get_text() for text in chart.axes[0].texts]
    assert {"50%", "75%", "100%", "20%", "90%", "kept", "reached"} == set(told)
    assert "the finding" in chart.alt and "% of it" in chart.alt


def test_a_grid_writes_every_number_and_shades_the_largest_darkest():
    table = pd.DataFrame([[1.25, 3.0], [2.0, 9.0]], index=pd.Index(["low", "high"], name="alpha"), columns=[1, 2])
    chart = grid_chart(table, "the finding", "nats per token", digits=2, frame_lowest=True)
    axes, scale = chart.axes
    assert [text.get_text() for text in axes.texts] == ["1.25", "3.00", "2.00", "9.00"]
    (image,) = axes.images
    luminance = image.to_rgba(image.get_array())[..., :3].sum(-1)
    assert luminance.argmin() == 3 and luminance.argmax() == 0
    assert scale.get_ylabel() == "nats per token" and "nats per token" in chart.alt
    assert [(round(frame.get_x()), round(frame.get_y())) for frame in axes.patches] == [(0, 0), (0, 1)]
    assert not grid_chart(table, "", "nats").axes[0].patches


def test_shares_are_bars_in_percent_in_order():
    chart = shares_chart({"file": 0.06, "work": 0.74, "memory": 0.5}, "the finding", "% of full")
    assert [bar.get_width() for bar in chart.axes[0].patches] == [74, 50, 6]
    assert [label.get_text() for label in chart.axes[0].get_yticklabels()] == ["work", "memory", "file"]


def test_the_family_has_a_panel_an_equation_and_trained_numbers_for_each_method():
    chart = family_picture()
    assert [axes.get_title(loc="left") for axes in chart.axes] == list(FAMILY)
    for axes, (equation, where) in zip(chart.axes, FAMILY.values(), strict=True):
        told = [text.get_text() for text in axes.texts]
        assert equation in told and where in told and where in chart.alt
    for shade, numbers in ((ADAPTER, (2, 3, 2, 1, 3, 0, 0, 2, 6)), (TRAINED, (0, 0, 0, 0, 0, 1, 1, 0, 0))):
        trained = [sum(to_hex(box.get_facecolor()) == shade.lower() for box in boxes(axes)) for axes in chart.axes]
        assert trained == list(numbers)
    joined = [axes.get_title(loc="left") for axes in chart.axes if "+" in [text.get_text() for text in axes.texts]]
    assert joined == ["LoRA", "DoRA", "VeRA"]


def test_dora_has_a_number_for_each_output_so_its_vector_is_as_tall_as_the_matrix():
    dora = next(axes for axes in family_picture().axes if axes.get_title(loc="left") == "DoRA")
    heights = [box.get_height() for box in boxes(dora)]
    tall = [box for box in boxes(dora) if box.get_height() == max(heights)]
    assert [to_hex(box.get_facecolor()) == ADAPTER.lower() for box in tall].count(True) == 1
    assert len(tall) == 3  # W, b and m
