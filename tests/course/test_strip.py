"""A network strip draws what a strategy report counts, and goes as far down as gradients do."""

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch

from course.drawing import TRAINED
from course.strip import network_strip, places_of
from tlkit.models import load_model
from tlkit.strategies import apply_strategy, describe

ONE_OF_EACH_KIND = ("full", "freeze_lower", "last_layers", "bitfit", "lora", "qlora", "vera", "ia3")
ONE_OF_EACH_KIND += ("prompt_tuning", "prefix_tuning", "gradual_unfreezing")


def report_of(strategy, **options):
    return apply_strategy(load_model("tiny").model, strategy, **options)


@pytest.mark.parametrize("strategy", ONE_OF_EACH_KIND)
def test_the_places_hold_every_value_once_and_the_lowest_is_the_lowest_that_a_gradient_reaches(strategy, shallow):
    """Told by autograd: the output of each block asks for a gradient or does not."""
    report, seen = report_of(strategy), {}
    places = places_of(report)
    assert [place.name for place in places] == ["embedding", "0", "1", "2", "norm", "head"]
    assert sum(place.trained + place.adapter for place in places if place.name != "head") == report.trainable_parameters
    assert sum(place.total + place.adapter for place in places) == report.total_parameters
    for name, module in report.model.named_modules():
        if name.endswith("embed_tokens") or name.rpartition(".")[2].isdigit():
            short = name.rpartition(".")[2]
            module.register_forward_hook(
                lambda _, __, out, short=short: seen.update(
                    {short: (out[0] if isinstance(out, tuple) else out).requires_grad}
                )
            )
    report.model(load_model("tiny").tokenizer("fn main", return_tensors="pt").input_ids, use_cache=False)
    if strategy == "prompt_tuning":  # its vectors are beside the table, whose own output asks for nothing
        del seen["embed_tokens"]
    reached = {place.name.replace("embedding", "embed_tokens"): place.reached for place in places}
    assert {name: reached[name] for name in seen} == seen


def test_the_strip_fills_what_is_trained_and_says_it_in_words():
    chart = network_strip(report_of("freeze_lower"), report_of("last_layers", train_norms=False))
    boxes = [patch for patch in chart.axes[0].patches if isinstance(patch, FancyBboxPatch)]
    filled = [to_hex(box.get_facecolor()) == TRAINED.lower() for box in boxes]
    first = [True] + 4 * [False] + 6 * [True]
    assert filled == first + 7 * [False] + 2 * [True] + 2 * [False]
    assert (
        "last_layers trains 813k parameters (blocks 6 and 7); backpropagation goes down to blocks 6 and 7" in chart.alt
    )


def test_the_legend_explains_what_is_drawn_and_nothing_else():
    for strategy, kinds in (
        ("full", ["trained"]),
        ("lora", ["adapter, trained", "frozen, backpropagation passes through", "frozen, not reached"]),
    ):
        (legend,) = network_strip(report_of(strategy)).legends
        assert [text.get_text() for text in legend.get_texts()] == kinds


def test_the_title_says_how_much_is_trained_and_how_far_backpropagation_goes():
    full, lora = report_of("full"), report_of("lora")
    by_mistake = load_model("tiny").model
    for name, parameter in by_mistake.named_parameters():
        parameter.requires_grad_("layers." not in name)
    assert network_strip(full).finding == "full trains every parameter, and backpropagation passes through every part"
    assert network_strip(full, describe(by_mistake), lora, names=["full", "by mistake", "lora"]).finding == (
        "full trains every parameter, by mistake trains 19% of the parameters, lora trains 5.2% of the parameters; "
        "backpropagation passes through every part with full and by mistake, 10 of 11 parts with lora"
    )
