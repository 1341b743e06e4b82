"""A chart draws the numbers that it was given: read back from its axes."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from tlkit.evidence.flops import StepFlops
from tlkit.fitting.estimate import MemoryEstimate
from tlkit.names import CONTROL
from tlkit.reports import charts, cost_charts, memory_charts, model_charts, training_charts
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


def test_every_pair_has_one_field_and_only_the_separated_ones_a_colour():
    pairs = pd.DataFrame(
        [("full", "lora", -8.0, True), ("full", "qlora", -9.0, True), ("lora", "qlora", -1.0, False)],
        columns=["first", "second", "difference", "separated"],
    )
    axes = pairs_chart(pairs).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["lora", "qlora"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["full", "lora"]
    *shown, key = axes.texts
    assert {text.get_position(): text.get_text() for text in shown} == {(0, 1): "+8.0", (0, 2): "+9.0", (1, 2): "+1.0"}
    shades = {(field.get_x() + 0.5, field.get_y() + 0.5): to_hex(field.get_facecolor()) for field in axes.patches}
    assert shades[0, 1] == shades[0, 2] != shades[1, 2] == "#ffffff" and "blue" not in key.get_text()


def test_a_pair_may_be_separated_against_the_order_of_the_means():
    pairs = pd.DataFrame(
        [("a", "b", 1.0, True), ("a", "c", -9.0, True), ("b", "c", -3.0, False)],
        columns=["first", "second", "difference", "separated"],
    )
    axes = pairs_chart(pairs).axes[0]
    *shown, key = axes.texts
    assert {text.get_position(): text.get_text() for text in shown}[0, 1] == "-1.0" and "blue" in key.get_text()


@pytest.mark.parametrize(
    ("tied", "finding"),
    [
        ((), "6 of 6 pairs are separated"),
        (("ab",), "5 of 6 pairs are separated; not separated: a and b"),
        (("ab", "ac", "bc", "ad"), "2 of 6 pairs are separated"),
        (("ab", "ac", "ad", "bc", "bd", "cd"), "0 of 6 pairs are separated"),
    ],
)
def test_the_title_of_pairs_counts_them_and_names_the_few_that_are_left(tied, finding):
    names = ["ab", "ac", "ad", "bc", "bd", "cd"]
    pairs = pd.DataFrame([(*name, -1.0, name not in tied) for name in names], columns=PAIR)
    assert pairs_chart(pairs).finding == finding


def test_the_title_of_pairs_names_a_strategy_that_is_separated_from_every_other():
    tied = ("ab", "ac", "ad", "bc", "bd", "cd")
    names = [*tied, "ae", "be", "ce", "de"]
    pairs = pd.DataFrame([(*name, -1.0, name not in tied) for name in names], columns=PAIR)
    assert pairs_chart(pairs).finding == "4 of 10 pairs are separated; e is separated from every other strategy"


PAIR = ["first", "second", "difference", "separated"]


def scored(**changes):
    """A table of strategies by what each gains on Rust and forgets of general text, from 100 and 30."""
    rows = [("zero-shot", 100.0, 30.0), *((name, 100.0 - gain, 30.0 + loss) for name, (gain, loss) in changes.items())]
    return pd.DataFrame([*rows, (CONTROL, 900.0, 800.0)], columns=["strategy", "perplexity", "general"])


ALL = "Every strategy gains on Rust and forgets general text"


@pytest.mark.parametrize(
    ("table", "finding"),
    [
        (scored(a=(30, 10), b=(10, 20), c=(20, 1)), f"{ALL}; b forgets most, c least"),
        (
            scored(a=(30, -1), b=(10, 20)),
            "Every strategy gains on Rust, and only b forgets general text; b forgets most",
        ),
        (scored(a=(30, -1), b=(10, -2)), "Every strategy gains on Rust, and none forgets general text"),
        (
            scored(a=(-5, 4), b=(10, 2)),
            "only b gains on Rust, and every strategy forgets general text; a forgets most, b least",
        ),
        (scored(a=(-5, -4), b=(-1, -2)), "No strategy gains on Rust, and none forgets general text"),
        (scored(a=(5, 4)), "a gains on Rust and forgets general text"),
        (scored(a=(-5, -4)), "a gains nothing on Rust and forgets nothing of general text"),
        (scored(), "What each strategy gains on Rust and forgets of general text"),
        (
            {"one": scored(a=(5, 4)), "two": scored(a=(5, -4))},
            "a gains on Rust with both models, and forgets general text with one only",
        ),
        (
            {"one": scored(a=(5, -4)), "two": scored(a=(-5, -4))},
            "a gains on Rust with one only, and forgets general text with neither model",
        ),
        (
            {"one": scored(a=(5, 4), b=(6, 7)), "two": scored(a=(5, 4), b=(6, 3))},
            f"{ALL}; one: b forgets most, a least; two: a forgets most, b least",
        ),
        (
            {"one": scored(a=(5, 4), b=(6, 7)), "two": scored(a=(5, -4), b=(6, -3))},
            "one: every strategy gains on Rust and forgets general text; "
            "two: every strategy gains on Rust, and none forgets general text",
        ),
    ],
)
def test_the_title_says_who_gains_who_forgets_and_who_forgets_most(table, finding):
    assert cost_charts.forgetting_chart(table).finding == finding


def test_a_text_that_is_not_about_rust_is_not_called_so():
    chart = cost_charts.forgetting_chart(scored(a=(5, 4)).assign(corpus="notes"))
    assert chart.finding == "a gains on the new text and forgets general text" and "Rust" not in chart.alt
    assert "perplexity on the new text" in chart.axes[0].get_xlabel()


@pytest.mark.parametrize(
    ("seconds", "memory", "finding"),
    [
        ([4, 2, 1], [10, 5, 4], "c needs the least time (25% of a's) and the least memory (40% of a's)"),
        ([4, 1, 2], [10, 5, 4], "b needs the least time (25% of a's), c needs the least memory (40% of a's)"),
    ],
)
def test_the_title_of_costs_names_who_needs_least(seconds, memory, finding):
    table = pd.DataFrame({"strategy": ["a", "b", "c"], "seconds": seconds, "peak_memory_mb": memory})
    assert cost_charts.cost_chart(table).finding == finding


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
    assert {text.get_text() for text in axes.texts if text.xyann != (6, 6)} == {"0", "0.5", "1"}


def test_two_paths_are_compared_at_the_labels_that_both_have():
    first = pd.DataFrame({"label": ["rate 1", "rate 2", "rate 3"], "rust": [5.0, 2.0, 4.0], "general": [3, 4, 9]})
    second = pd.DataFrame({"label": ["rate 1", "rate 2", "rate 3"], "rust": [7.0, 4.5, 3.0], "general": [2.0, 3.5, 8]})
    same = "At the same rate, b forgets less than a"
    for paths in ({"a": first, "b": second}, {"b": second, "a": first}):
        chart = tradeoff_chart(paths)
        assert chart.finding == f"{same}, but each at its best rate, it forgets more"
        assert "rate 3" in [text.get_text() for text in chart.axes[0].texts]
    assert tradeoff_chart({"a": first, "b": second.assign(rust=[7.0, 4.5, 6.0])}).finding == same
    numbers = {name: path.assign(label=["1", "2", "3"]) for name, path in (("a", first), ("b", second))}
    assert "same" not in tradeoff_chart(numbers).finding  # nobody knows what these labels count


def test_of_several_paths_the_title_says_how_far_they_lie_from_the_first():
    """By hand: between 2 and 4 on Rust one path is a tenth above the first, and another a twentieth below it."""
    first = pd.DataFrame({"label": list("abc"), "rust": [5.0, 4.0, 2.0], "general": [20.0, 10.0, 20.0]})
    above, below = first.assign(general=1.1 * first.general), first.iloc[1:].assign(general=[9.5, 19.0])
    said = "At the same perplexity on Rust, the others are"
    paths = {"lora": first, "b": above, "c": below}
    assert tradeoff_chart(paths).finding == f"{said} 5% below to 10% above lora on general text"
    assert tradeoff_chart(paths | {"c": above}).finding == f"{said} 10% above lora on general text"
    elsewhere = below.assign(rust=[9.0, 8.0])
    assert "same" not in tradeoff_chart(paths | {"c": elsewhere}).finding


def test_of_three_steps_the_title_has_both_shares():
    steps = {"a": StepFlops(20, 40), "b": StepFlops(20, 10), "c": StepFlops(20, 25)}
    assert flops_chart(steps).finding == "Of the arithmetic of a, b needs 50% and c 75%"


@pytest.mark.parametrize(
    ("general", "finding"),
    [
        (
            [1.0, 2.0, 4.0],
            "Perplexity on Rust is lowest at epochs = 2; with more, it rises on Rust and on general text",
        ),
        ([1.0, 2.0, 1.5], "Perplexity on Rust is lowest at epochs = 2"),
    ],
)
def test_the_title_of_a_path_says_where_it_turns(general, finding):
    path = pd.DataFrame({"label": ["1", "2", "3"], "rust": [3.0, 2.0, 2.5], "general": general})
    assert tradeoff_chart({"epochs": path}).finding == finding


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
    logarithmic = cost_charts.parameters_chart(
        pd.DataFrame({"strategy": ["full", "lora"], "trainable_values": [4e6, 2e5], "perplexity": [70.0, 80.0]})
    )
    logarithmic.png()  # the marks of a scale have their text once they are drawn
    assert "full, lora" in logarithmic.alt and "$" not in logarithmic.alt
    data, metadata = chart._repr_mimebundle_()
    assert metadata["image/png"]["alt"] == chart.alt and data["text/plain"].startswith("<Chart size 800x")
    named = {**vars(charts), **vars(cost_charts), **vars(memory_charts), **vars(training_charts), **vars(model_charts)}
    drawers = [drawer for name, drawer in named.items() if name.endswith("_chart")]
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


@pytest.mark.parametrize(
    ("names", "finding"),
    [
        (["1 card", "2 cards"], "2 cards of 8 GB, 1 card of 32 GB or more than 2 cards of 2 GB are enough"),
        (["full", "lora"], "8 GB is enough for lora; 32 GB for all of these, and 2 GB for none of these"),
    ],
)
def test_the_title_of_memory_says_what_fits_which_card(names, finding):
    sizes = [{"weights": 10 * 2**30}, {"weights": 5 * 2**30}]
    estimates = {
        name: MemoryEstimate(size, {"forward pass": size["weights"]}) for name, size in zip(names, sizes, strict=True)
    }
    cards = {f"{size} GB": size * 2**30 for size in (8, 32, 2)}
    assert memory_charts.memory_chart(estimates, cards).finding == finding
