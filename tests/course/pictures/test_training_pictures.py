"""The pictures of a training step show what autograd computes, and those of a run what it recorded."""

from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from course.lesson04.pictures import run_chart
from course.lesson05.pictures import frozen_depth_chart, products_chart, products_of
from tlkit.models import load_model, meta_model
from tlkit.models.parts import find_blocks
from tlkit.strategies import apply_strategy, describe


def frozen_below(count, embedding):
    """The bundled model with its lowest blocks frozen, and the embedding too or not."""
    model = load_model("tiny").model
    for block in find_blocks(model)[:count]:
        block.requires_grad_(False)
    model.get_input_embeddings().requires_grad_(embedding)
    return model


@pytest.mark.parametrize("count, embedding", [(0, True), (4, True), (4, False), (7, False)])
def test_the_products_are_those_that_autograd_computes(count, embedding):
    model = frozen_below(count, embedding)
    reached = {}
    for number, block in enumerate(find_blocks(model)):
        block.register_full_backward_hook(lambda *_, number=number: reached.update({number: True}))
    text = torch.arange(8)[None]
    model(input_ids=text, labels=text, use_cache=False).loss.backward()
    products = products_of(describe(model))
    assert products["gradient of the input"] == tuple(reached.get(number, False) for number in range(8))
    given = tuple(all(p.grad is not None for p in block.parameters()) for block in find_blocks(model))
    assert products["gradient of the weights"] == given
    assert products["forward"] == (True,) * 8


def test_the_grid_leaves_empty_what_is_not_computed():
    half = apply_strategy(meta_model("tiny"), "freeze_lower")
    deeper = apply_strategy(meta_model("tiny"), "freeze_lower", freeze_embeddings=True)
    chart = products_chart(half, deeper)
    cells = [to_hex(patch.get_facecolor()) for patch in chart.axes[0].patches if isinstance(patch, Rectangle)]
    assert len(cells) == 48
    assert [cells[:24].count("#ffffff"), cells[24:].count("#ffffff")] == [4, 8]
    assert "freeze_lower: 20 of 24 products are computed (83%)" in chart.alt
    assert "freeze_lower: 16 of 24 products are computed (67%)" in chart.alt


def test_a_run_is_drawn_with_every_step_its_rate_and_the_loss_before_it():
    history = pd.DataFrame({"step": [1, 2, 3], "loss": [5.0, 4.0, 3.0], "learning_rate": [1e-3, 5e-4, 0.0]})
    chart = run_chart(SimpleNamespace(history=history), 4.9)
    upper, lower = chart.axes
    single, mean, before = (line.get_ydata() for line in upper.lines)
    assert list(single) == [5, 4, 3] and list(mean) == [5, 4.5, 4] and set(before) == {4.9}
    assert list(lower.lines[0].get_ydata()) == [1e-3, 5e-4, 0]
    title = "The last batches average 4.00 nats per token, 0.90 below the untouched model"
    assert chart.finding == title


def test_the_depths_are_drawn_with_both_embeddings_and_every_seed():
    costs = pd.DataFrame(
        {
            "frozen": [0, 4, 0, 4],
            "embedding": ["trained", "trained", "frozen", "frozen"],
            "arithmetic": [100, 87, 95, 65],
            "memory_mb": [130, 110, 120, 70],
        }
    )
    runs = pd.DataFrame({"frozen": [0, 0, 4, 4], "seed": [0, 1, 0, 1], "perplexity": [80, 82, 86, 88]})
    chart = frozen_depth_chart(costs, runs)
    title = "Freezing 4 blocks leaves 87% of the arithmetic, 65% with the embedding frozen too"
    assert chart.finding == title
    work, memory, score = chart.axes
    assert {line.get_label(): list(line.get_ydata()) for line in work.lines} == {
        "embedding frozen": [95, 65],
        "embedding trained": [100, 87],
    }
    assert [list(line.get_ydata()) for line in memory.lines] == [[120, 70], [130, 110]]
    assert [list(line.get_ydata()) for line in score.lines] == [[81, 87], [80, 86], [82, 88]]
