"""The pictures of lessons 6 and 7 show what the models and tables that they are given hold, and no more."""

import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch, Rectangle

from course.lesson06.pictures import LOOKED_UP, row_gradients_chart, table_uses
from course.lesson07.pictures import prefix_picture, trained_depth_chart
from tlkit.models import load_model, meta_model
from tlkit.reports.drawing import TRAINED
from tlkit.strategies import apply_strategy


def written(chart):
    return [text.get_text() for axes in chart.axes for text in axes.texts]


@pytest.mark.parametrize("preset", ["tiny", "tinyllama-1.1b"])
def test_a_tied_table_is_drawn_once_and_an_untied_model_has_two(preset):
    model = meta_model(preset)
    chart = table_uses(model, {5: "a", 3: "b", 9: "c"})
    rows, width = model.get_input_embeddings().weight.shape
    tables = [text for text in written(chart) if f"{rows:,} rows\n× {width:,}" in text]
    assert len(tables) == (1 if model.config.tie_word_embeddings else 2)
    assert any(f"T × {rows:,}" in text for text in written(chart))
    assert f"{'the same' if preset == 'tiny' else 'another'} table is multiplied" in chart.alt


def test_rows_of_the_table_are_marked_from_the_first_to_the_last():
    places = {
        text.get_text(): text.get_position()[1]
        for text in table_uses(meta_model("tiny"), {7: "x", 90: "y"}).axes[0].texts
    }
    assert places["0"] > places["7"] > places["90"] > places["4,095"]


def test_lines_to_the_lookup_start_at_the_rows_that_are_read_and_logits_are_longer_than_hidden_states():
    axes = table_uses(meta_model("tiny"), {7: "x", 90: "y"}).axes[0]
    marked = {
        box.get_y() + box.get_height() / 2
        for box in axes.patches
        if isinstance(box, Rectangle) and to_hex(box.get_facecolor()) == LOOKED_UP.lower()
    }
    starts = [line.get_ydata()[0] for line in axes.lines if line.get_color() == LOOKED_UP]
    assert len(starts) == 2 and sorted(starts) == pytest.approx(sorted(marked))
    columns = [box for box in axes.patches if isinstance(box, Rectangle) and box.get_x() > 3.8]
    tallest = sorted(columns, key=lambda box: box.get_y())[-2:]
    assert all(box.get_height() > 2 * columns[-1].get_height() for box in tallest)


def test_only_rows_that_are_not_neighbours_have_a_break_between_them():
    def breaks(tokens):
        return len(table_uses(meta_model("tiny"), tokens).axes[0].collections) - len(tokens)  # one in each logit column

    assert breaks({7: "x", 90: "y"}) == 3
    assert breaks({0: "x", 1: "y", 4095: "z"}) == 1


def test_row_gradients_leave_out_rows_that_have_none():
    lookup, head = torch.zeros(10, 4), torch.ones(10, 4)
    lookup[[2, 7]] = 3.0
    chart = row_gradients_chart(lookup, head)
    first, second = (axes.lines[0] for axes in chart.axes)
    assert list(first.get_xdata()) == [2, 7] and list(first.get_ydata()) == [6.0, 6.0]
    assert len(second.get_xdata()) == 10
    marked = row_gradients_chart(lookup, head, torch.tensor([4, 4, 1])).axes[1].lines[1]
    assert list(marked.get_xdata()) == [1, 4]
    assert "rare" in written(row_gradients_chart(lookup, head, named={"rare": range(3, 6)}))
    assert chart.finding == "The gradient reaches 2 rows through the lookup and 10 rows through the head"


def test_the_depth_chart_shows_every_run_and_its_title_is_computed():
    rows = [
        (blocks, seed, cost, value + seed) for blocks, cost, value in ((1, 50, 99.5), (4, 100, 79.5)) for seed in (0, 1)
    ]
    chart = trained_depth_chart(pd.DataFrame(rows, columns=["blocks", "seed", "arithmetic", "perplexity"]), 120.0)
    dots = next(line for line in chart.axes[1].lines if line.get_marker() == "o")
    assert sorted(dots.get_ydata()) == [79.5, 80.5, 99.5, 100.5]
    assert [bar.get_height() for bar in chart.axes[0].patches] == [50, 100]
    assert chart.finding == (
        "The last block alone takes 50% of the arithmetic of 4 blocks and brings 50% of their fall in perplexity"
    )
    assert chart.axes[1].get_ylim()[1] < 120 and "before training: 120" in written(chart)


def test_the_prefix_picture_fills_what_is_trained_and_says_what_is_kept():
    report = apply_strategy(load_model("tiny").model, "last_layers", blocks=3, train_norms=False)
    chart = prefix_picture(report, 5)
    boxes = [patch for patch in chart.axes[0].patches if isinstance(patch, FancyBboxPatch)]
    filled = [to_hex(box.get_facecolor()) == TRAINED.lower() for box in boxes]
    assert filled == 2 * (6 * [False] + 3 * [True] + 2 * [False])
    assert [box.get_linestyle() for box in boxes].count("dotted") + [box.get_linestyle() for box in boxes].count(
        ":"
    ) == 6
    assert "stores what leaves block 4" in chart.alt and "begins at block 5" in chart.alt
