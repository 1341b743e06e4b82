"""A chart draws the numbers that it was given: read back from its axes."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from tlkit.evidence.flops import StepFlops
from tlkit.evidence.learning_rates import CONTROL
from tlkit.fitting.estimate import MemoryEstimate
from tlkit.reports import charts, memory_charts, model_charts, training_charts
from tlkit.reports.charts import CHARTS, accuracy_chart, differences_chart, pairs_chart
from tlkit.reports.model_charts import flops_chart
from tlkit.reports.training_charts import overfitting_chart, sweep_chart, tradeoff_chart

TABLE = pd.DataFrame(
    {
        "strategy": ["zero-shot", "full", "lora", "bitfit"],
        "difference": [math.nan, math.nan, 4.0, 30.0],
        "difference_low": [math.nan, math.nan, -1.0, 25.0],
        "difference_high": [math.nan, math.nan, 9.0, 35.0],
    }
)


def test_differences_have_their_intervals_and_the_reference_its_line():
    axes = differences_chart(TABLE, "full").axes[0]
    points, _, (bars,) = axes.containers[0]
    assert dict(zip([t.get_text() for t in axes.get_yticklabels()], points.get_xdata(), strict=True)) == {
        "bitfit": 30.0,
        "lora": 4.0,
    }
    assert [(start[0], end[0]) for start, end in bars.get_segments()] == [(25.0, 35.0), (-1.0, 9.0)]
    assert any(line.get_xdata()[0] == 0 for line in axes.lines)
    alone = SimpleNamespace(table=TABLE[:2], provenance={"against": "full"})
    assert CHARTS["differences"](alone) is None


def test_accuracies_are_drawn_in_percent_beside_what_guessing_gives():
    table = pd.DataFrame({"strategy": ["zero-shot", "lora", CONTROL]})
    for name, accuracy in (("rust", [0.5, 0.6, 0.2]), ("general", [0.4, 0.3, 0.2])):
        table[f"{name}_accuracy"] = accuracy
        table[f"{name}_accuracy_low"] = [value - 0.1 for value in accuracy]
        table[f"{name}_accuracy_high"] = [value + 0.2 for value in accuracy]
    axes = accuracy_chart(table).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["lora", "zero-shot"]  # the first row on top
    drawn = {series.get_label(): series for series in axes.containers}
    for name, values in (("rust questions", [60, 50]), ("general questions", [30, 40])):
        points, _, (bars,) = drawn[name]
        assert points.get_xdata() == pytest.approx(values)
        ends = [(start[0], end[0]) for start, end in bars.get_segments()]
        assert ends == [pytest.approx((value - 10, value + 20)) for value in values]
    chance = next(line for line in axes.lines if line.get_label() == "guessing")
    assert list(chance.get_xdata()) == [25, 25]
    assert CHARTS["accuracy"](SimpleNamespace(table=table, answers=pd.DataFrame())) is None


def test_every_pair_has_two_fields_and_only_the_separated_ones_a_colour():
    pairs = pd.DataFrame(
        [("full", "lora", -8.0, True), ("full", "qlora", -9.0, True), ("lora", "qlora", -1.0, False)],
        columns=["first", "second", "difference", "separated"],
    )
    axes = pairs_chart(pairs).axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [label.get_text() for label in axes.get_xticklabels()] == ["full", "lora", "qlora"]
    shown = {text.get_position(): text.get_text() for text in axes.texts}
    assert shown == {(1, 0): "-8.0", (0, 1): "+8.0", (2, 0): "-9.0", (0, 2): "+9.0", (2, 1): "-1.0", (1, 2): "+1.0"}
    shades = {(field.get_x() + 0.5, field.get_y() + 0.5): to_hex(field.get_facecolor()) for field in axes.patches}
    assert shades[1, 0] == shades[2, 0] != shades[0, 1] == shades[0, 2]
    assert shades[2, 1] == shades[1, 2] == "#ffffff" not in (shades[1, 0], shades[0, 1])


def test_a_sweep_is_drawn_through_the_means_of_its_seeds_and_without_what_diverged():
    rows = [("a", 0.1, 10.0), ("a", 0.1, 20.0), ("a", 1.0, 40.0), ("a", 10.0, math.inf), ("b", 0.1, 5.0)]
    axes = sweep_chart(pd.DataFrame(rows, columns=["strategy", "rate", "validation_perplexity"]), "rate", "rate").axes[
        0
    ]
    means = {
        line.get_label(): line.get_xydata().tolist() for line in axes.lines if not line.get_label().startswith("_")
    }
    assert means == {"a": [[0.1, 15.0], [1.0, 40.0]], "b": [[0.1, 5.0]]}
    assert sorted(y for line in axes.lines if line.get_marker() == "." for y in line.get_ydata()) == [5, 10, 20, 40]


def test_a_path_has_a_label_at_every_point():
    path = pd.DataFrame({"label": ["0", "0.5", "1"], "rust": [3.0, 2.0, 1.0], "general": [1.0, 1.5, 4.0]})
    axes = tradeoff_chart({"way back": path}).axes[0]
    assert axes.lines[0].get_xydata().tolist() == [[3, 1], [2, 1.5], [1, 4]]
    assert [text.get_text() for text in axes.texts if text.xyann != (6, 6)] == ["0", "0.5", "1"]


def test_two_paths_are_compared_at_the_labels_that_both_have():
    first = pd.DataFrame({"label": ["rate 1", "rate 2", "rate 3"], "rust": [5.0, 2.0, 4.0], "general": [3, 4, 9]})
    second = pd.DataFrame({"label": ["rate 1", "rate 2", "rate 3"], "rust": [7.0, 4.5, 3.0], "general": [2.0, 3.5, 8]})
    same = "At the same rate, b forgets less than a"
    for paths in ({"a": first, "b": second}, {"b": second, "a": first}):
        chart = tradeoff_chart(paths)
        assert chart.finding == f"{same}, but at the rate that is best for it on Rust it forgets more"
        assert "b, rate 3" in [text.get_text() for text in chart.axes[0].texts]
    assert tradeoff_chart({"a": first, "b": second.assign(rust=[7.0, 4.5, 6.0])}).finding == same
    numbers = {name: path.assign(label=["1", "2", "3"]) for name, path in (("a", first), ("b", second))}
    assert "same" not in tradeoff_chart(numbers).finding  # nobody knows what these labels count


def test_of_three_steps_the_title_has_both_shares():
    steps = {"a": StepFlops(20, 40), "b": StepFlops(20, 10), "c": StepFlops(20, 25)}
    assert flops_chart(steps).finding == "Of the arithmetic of a, b needs 50% and c 75%"


def test_training_and_validation_are_on_one_axis_of_epochs():
    history = pd.DataFrame({"step": [1, 2, 3, 4], "epoch": [0.5, 1.0, 1.5, 2.0], "loss": [4.0, 3.0, 2.0, 1.0]})
    validation = pd.DataFrame({"step": [2, 4], "validation_loss": [3.5, 5.0]})
    training, held_out, best = (
        overfitting_chart({"run": SimpleNamespace(history=history, validation=validation)}).axes[0].lines
    )
    assert training.get_xydata().tolist() == history[["epoch", "loss"]].values.tolist()
    assert np.array_equal(held_out.get_xydata(), [[1.0, 3.5], [2.0, 5.0]])
    assert best.get_xydata().tolist() == [[1.0, 3.5]]


def test_arithmetic_is_stacked():
    axes = flops_chart({"full": StepFlops(2_000_000_000, 4_000_000_000)}).axes[0]
    forward, backward = axes.patches
    assert (forward.get_width(), backward.get_x(), backward.get_width()) == pytest.approx((2, 2, 4))


def test_every_chart_says_in_words_what_it_shows():
    chart = differences_chart(TABLE, "full")
    assert chart.alt.startswith("Each strategy's perplexity minus that of one other; where")
    assert "bitfit, lora" in chart.alt and "perplexity more than full" in chart.alt
    logarithmic = charts.parameters_chart(
        pd.DataFrame({"strategy": ["full", "lora"], "trainable_values": [4e6, 2e5], "perplexity": [70.0, 80.0]})
    )
    logarithmic.png()  # the marks of a scale have their text once they are drawn
    assert "full, lora" in logarithmic.alt and "$" not in logarithmic.alt
    data, metadata = chart._repr_mimebundle_()
    assert metadata["image/png"]["alt"] == chart.alt and data["text/plain"].startswith("<Chart size 800x")
    named = {**vars(charts), **vars(memory_charts), **vars(training_charts), **vars(model_charts)}
    drawers = [drawer for name, drawer in named.items() if name.endswith("_chart") or name == "learning_curves"]
    assert len(drawers) >= 15 and all(hasattr(drawer, "__wrapped__") and drawer.__doc__ for drawer in drawers)


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [(60, 130, {"60", "100", "120"}), (70, 800, {"100", "200", "500"}), (100, 390_000, {"1,000"})],
)
def test_numbers_on_a_log_scale_do_not_crowd(low, high, marks):
    rows = {
        "strategy": ["a", "b"],
        "perplexity": [low, high],
        "perplexity_low": [low] * 2,
        "perplexity_high": [high] * 2,
    }
    chart = charts.perplexity_chart(pd.DataFrame(rows))
    chart.draw_without_rendering()
    boxes = [
        text.get_window_extent() for text in chart.axes[0].get_xticklabels(which="both") if text.get_text().strip("$")
    ]
    shown = {text.get_text() for text in chart.axes[0].get_xticklabels(which="both")}
    assert marks <= shown
    boxes = sorted(
        (box for box in boxes if chart.axes[0].bbox.x0 <= box.x0 <= chart.axes[0].bbox.x1), key=lambda b: b.x0
    )
    assert all(left.x1 <= right.x0 for left, right in zip(boxes, boxes[1:], strict=False)), "labels lie over each other"


def test_a_bar_of_memory_is_as_long_as_its_categories_together():
    """Also where only one of the estimates has a category of its own."""
    one = MemoryEstimate({"weights": 2**30, "gradients": 2**29}, {"forward pass": 3 * 2**29})
    parted = MemoryEstimate({"weights": 2**29, "gradients": 2**28, "gathered": 2**28}, {"forward pass": 2**30})
    axes = memory_charts.memory_chart({"1 card": one, "2 cards": parted}, {"8 GB": 8 * 2**30}).axes[0]
    ends = [[bar.get_x() + bar.get_width() for bar in bars] for bars in zip(*axes.containers, strict=True)]
    assert [max(bar) for bar in ends] == [1.5, 1.0]
    assert [bars.get_label() for bars in axes.containers] == ["weights", "gradients", "gathered"]
    assert axes.lines[0].get_xdata()[0] == pytest.approx(0.85 * 8)
