"""The pictures of lessons draw what they are given without words over each other; what they count, others count too."""

from functools import cache

import pytest
import torch
from figure_checks import collisions
from matplotlib.patches import Rectangle

from course.lesson02 import pictures as inside
from course.lesson05 import pictures as adapters
from course.lesson06 import pictures as quantization
from course.lesson07.pictures import products_chart, products_of
from course.lesson08.pictures import family_picture
from course.lesson10.pictures import micro_batch_picture
from course.lesson11.pictures import token_view
from course.lesson16.pictures import label_shift_scheme
from course.lesson18 import pictures as scaling
from course.strip import network_strip
from tlkit.models import load_model
from tlkit.models.parts import find_blocks
from tlkit.strategies import apply_strategy, describe

TOKENS = ["In", " R", "ust", ",", " V", "ec", "<", "T"]
COUNTED = torch.zeros(4, 3, dtype=torch.long)  # targets of four rows, of which two have one token that counts
COUNTED[2, 1:] = COUNTED[3, 1:] = -100


def tiny(strategy="full", **options):
    return apply_strategy(load_model("tiny").model, strategy, **options)


PICTURES = {
    "block": lambda: inside.transformer_block(load_model("tiny").model),
    "products": lambda: products_chart({name: tiny(name).model for name in ("full", "freeze_lower")}, "Two strategies"),
    "lora": lambda: adapters.lora_picture(torch.zeros(192, 512), torch.zeros(8, 512), torch.zeros(192, 8)),
    "qlora": lambda: quantization.four_bit_layer(512, 192),
    "family": family_picture,
    "micro-batches": lambda: micro_batch_picture(COUNTED, 2),
    "label shift": lambda: label_shift_scheme(TOKENS),
    "ring": lambda: scaling.ring_scheme(8),
    "zero": scaling.zero_scheme,
    "strips": lambda: network_strip(*(describe(tiny(name).model, name) for name in ("full", "last_layers", "lora"))),
}


FINDINGS = {  # a part of what the title says
    "qlora": "The frozen weights take 50.7 kB, and 393.2 kB only while the layer computes",
    "micro-batches": "some tokens count 3 times as much as others",
    "label shift": "After 'In' comes 'R'; the report asked for the one after that",
    "ring": "each card sends 1.75 times",
    "zero": "a card of 4 holds 10 with stage 1 and 4 with stage 3",
}


@cache
def drawn(name):
    return PICTURES[name]()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_described_says_what_the_numbers_say_and_no_text_lies_over_another(name):
    chart = drawn(name)
    assert len(chart.about.split()) > 5 and chart.alt.startswith(chart.about)
    assert FINDINGS.get(name, "") in chart.alt
    assert collisions(chart) == []


def texts(chart):
    return [text.get_text() for axes in chart.axes for text in axes.texts]


def test_a_block_is_drawn_with_the_shapes_and_counts_of_its_parameters():
    chart = drawn("block")
    counted = sum(parameter.numel() for parameter in load_model("tiny").model.model.layers[0].parameters())
    assert counted == 406_272 and "one block: 406k parameters" in texts(chart)
    assert "Q 192 → 192\nK 192 → 96\nV 192 → 96\n74.1k" in texts(chart)


@pytest.mark.parametrize("count, embedding", [(0, True), (4, True), (4, False), (7, False)])
def test_the_products_of_a_step_are_those_that_autograd_computes(count, embedding):
    model, reached = load_model("tiny").model, {}
    for block in find_blocks(model)[:count]:
        block.requires_grad_(False)
    model.get_input_embeddings().requires_grad_(embedding)
    for number, block in enumerate(find_blocks(model)):
        block.register_full_backward_hook(lambda *_, number=number: reached.update({number: True}))
    text = torch.arange(8)[None]
    model(input_ids=text, labels=text, use_cache=False).loss.backward()
    blocks = list(products_of(model).values())[:-1]
    assert [block[1] for block in blocks] == [reached.get(number, False) for number in range(8)]
    assert [block[2] for block in blocks] == [
        all(p.grad is not None for p in one.parameters()) for one in find_blocks(model)
    ]
    assert all(block[0] for block in blocks)


@pytest.mark.parametrize(("outputs", "inputs"), [(96, 192), (512, 192), (192, 512)])
def test_a_layer_and_its_adapter_are_drawn_to_scale(outputs, inputs):
    chart = adapters.lora_picture(torch.zeros(outputs, inputs), torch.zeros(8, inputs), torch.zeros(outputs, 8))
    boxes = [box for box in chart.axes[0].patches if type(box) is Rectangle]
    sizes = [(box.get_height(), box.get_width()) for box in boxes]
    assert [sizes[1], sizes[3], sizes[4]] == [(outputs, inputs), (outputs, 8), (8, inputs)]


def test_a_token_counts_as_much_as_its_gradient_says():
    """The mean of two means, told by autograd: the derivative by each token's loss."""
    losses, counted = torch.ones(4, 3, requires_grad=True), COUNTED != -100
    (sum(losses[rows][counted[rows]].mean() for rows in (slice(0, 2), slice(2, 4))) / 2).backward()
    cells = [text.split("/") for text in texts(drawn("micro-batches")) if "/" in text]
    weights = [int(above) / int(below) for above, below in cells]
    assert weights == pytest.approx([1 / 8] * 8 + losses.grad[counted].tolist())


def test_a_conversation_shows_what_is_learned():
    view = token_view([5, 6, 0], [-100, 6, 0], load_model("tiny").tokenizer)
    assert [kind for _, kind in view.tokens] == ["only read (label -100)", "learned", "learned: the end"]
    assert view._repr_html_().count("<span") == 3 + 3
