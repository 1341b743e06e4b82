"""A chart draws the numbers that it was given, in words that lie beside each other, on a ground of its own."""

from functools import cache

import matplotlib.image
import matplotlib.style
import numpy as np
import pandas as pd
import pytest
from figure_checks import collisions

from tlkit.names import CONTROL, ZERO_SHOT
from tlkit.reports import charts
from tlkit.reports.figure import short
from tlkit.settings import DATA


@cache
def table(name="comparison"):
    return pd.read_csv(DATA / "comparisons" / "tiny" / f"{name}.csv", comment="#")


def shares():
    """Three rows whose intervals reach a tenth down and two tenths up."""
    column, values = "balanced_accuracy", np.array([0.5, 0.6, 0.2])
    rows = {column: values, f"{column}_low": values - 0.1, f"{column}_high": values + 0.2}
    return pd.DataFrame({"strategy": [ZERO_SHOT, "lora", CONTROL]} | rows)


PICTURES = {
    "perplexity": lambda: charts.perplexity_chart(table()),
    "accuracy": lambda: charts.accuracy_chart(shares(), 1 / 9),
    "cost": lambda: charts.cost_chart(table()),
    "forgetting": lambda: charts.forgetting_chart(table()),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_described_and_no_text_lies_over_another(name):
    chart = PICTURES[name]()
    assert len(chart.finding.split()) >= 4 and " ".join(chart.get_suptitle().split()) == chart.finding
    assert chart.alt.startswith(f"{chart.about} {chart.finding}.") and "nan" not in chart.alt
    assert chart._repr_mimebundle_()[1]["image/png"]["alt"] == chart.alt
    assert collisions(chart) == []


def test_texts_that_lie_over_each_other_or_leave_the_picture_are_found():
    chart = PICTURES["cost"]()
    one, other = (chart.axes[0].text(0.9, 0.9, name, transform=chart.axes[0].transAxes) for name in ("one", "other"))
    assert ("one", "other") in collisions(chart)
    one.set_visible(False)
    other.set_text("far " * 60)
    assert (other.get_text(), "leaves the picture") in collisions(chart)


def test_a_picture_has_a_white_ground_and_dark_ink_whatever_style_is_set(tmp_path):
    for style in ("default", "dark_background"):
        with matplotlib.style.context(style):
            PICTURES["forgetting"]().savefig(tmp_path / f"{style}.png")
    light, dark = (matplotlib.image.imread(tmp_path / f"{style}.png") for style in ("default", "dark_background"))
    assert np.array_equal(light, dark) and (light[..., 3] == 1).all()
    assert np.array_equal(light[0, 0], [1, 1, 1, 1]) and light[..., :3].min() < 0.2


def names_of(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def points_of(series):
    """The values of points with intervals, and their ends."""
    points, _, (bars,) = series
    return list(points.get_xdata()), [(start[0], end[0]) for start, end in bars.get_segments()]


def test_scores_stay_in_order_and_the_control_is_left_out():
    axes = charts.perplexity_chart(table()).axes[0]
    scores = table().set_index("strategy").perplexity.drop(CONTROL)
    assert names_of(axes) == list(scores.index) and axes.get_ylim()[0] > axes.get_ylim()[1]  # the first one on top
    values, ends = points_of(axes.containers[0])
    assert values == list(scores) and [text.get_text() for text in axes.texts] == [f"{value:.1f}" for value in scores]
    assert ends[1] == pytest.approx(table()[["perplexity_low", "perplexity_high"]].iloc[1].tolist())


def test_accuracies_are_drawn_beside_what_guessing_gives():
    (axes,) = charts.accuracy_chart(shares(), 0.25).axes
    assert names_of(axes) == [ZERO_SHOT, "lora"]
    values, ends = points_of(axes.containers[0])
    assert values == pytest.approx([0.5, 0.6])
    assert ends == [pytest.approx((value - 0.1, value + 0.2)) for value in values]
    assert list(next(line for line in axes.lines if line.get_label() == "guessing").get_xdata()) == [0.25, 0.25]


def test_points_are_where_the_table_has_them():
    (axes,) = charts.forgetting_chart(table()).axes
    points = {line.get_label(): line.get_xydata()[0].tolist() for line in axes.lines if line.get_marker() != "None"}
    rows = table().set_index("strategy").drop(CONTROL)
    assert points == {name: [row.perplexity, row.general] for name, row in rows.iterrows()}


def test_bars_are_as_long_as_what_they_show():
    rows = pd.DataFrame({"strategy": ["a", "b", "c"], "seconds": [4, 1, 2], "peak_memory_mb": [10, 5, 4]})
    widths = [[bar.get_width() for bar in axes.patches] for axes in charts.cost_chart(rows).axes]
    assert widths == [[4, 1, 2], [10, 5, 4]]


def test_numbers_are_written_with_three_digits():
    written = [short(value) for value in (0, 0.0123, 384, 27_648, 999_999, 4_036_800, 7e9)]
    assert written == ["0", "0.0123", "384", "27.6k", "1M", "4.04M", "7B"]
