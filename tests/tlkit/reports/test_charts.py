"""A chart draws the numbers that it was given, read back from its axes, and its title claims what they say."""

from types import SimpleNamespace

import pandas as pd
import pytest
from matplotlib.colors import to_hex
from test_pictures import table

from tlkit.names import CONTROL
from tlkit.reports.charts import CHARTS
from tlkit.reports.cost_charts import cost_chart
from tlkit.reports.findings import listed, number, short
from tlkit.reports.forgetting_charts import forgetting_chart
from tlkit.reports.score_charts import accuracy_chart, pairs_chart, perplexity_chart

PAIR = ["first", "second", "difference", "separated"]


def names_of(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def texts_of(axes):
    return [text.get_text() for text in axes.texts]


def points_of(series):
    """The values of points with intervals, and their ends."""
    points, _, (bars,) = series
    return list(points.get_xdata()), [(start[0], end[0]) for start, end in bars.get_segments()]


def test_scores_stay_in_order_and_the_control_is_left_to_its_figure():
    axes = perplexity_chart(table()).axes[0]
    scores = table().set_index("strategy").perplexity
    assert names_of(axes) == list(scores.index) and axes.get_ylim()[0] > axes.get_ylim()[1]  # the first one on top
    values, ends = points_of(axes.containers[0])
    assert values == list(scores.drop(CONTROL)) and axes.get_xlim()[1] < scores[CONTROL] / 2
    assert ends[1] == pytest.approx(table()[["perplexity_low", "perplexity_high"]].iloc[1].tolist())
    assert texts_of(axes)[-1].startswith(f"→ {scores[CONTROL]:.0f} (")


@pytest.mark.parametrize(
    ("rows", "finding"),
    [
        ({"a, before": 126, "a, after": 72}, "Perplexity falls from 126 to 72 on a"),
        ({"a": 3, "b": 2, "c": 4}, "b is lowest (2)"),
    ],
)
def test_without_ranks_the_title_tells_scores(rows, finding):
    scores = pd.DataFrame({"strategy": list(rows), "perplexity": list(rows.values())})
    scores = scores.assign(perplexity_low=0.9 * scores.perplexity, perplexity_high=1.1 * scores.perplexity)
    assert perplexity_chart(scores).finding == finding


@pytest.mark.parametrize(
    ("ranks", "finding"),
    [
        ([None, "1", *["tied 2-7"] * 6, None], "full is lowest (52.7), separated from all other strategies"),
        (
            [None, "tied 1-2", "tied 1-2", *["tied 3-7"] * 5, None],
            "full and freeze_lower have the lowest perplexity, and are not separated from each other",
        ),
    ],
)
def test_an_order_is_claimed_only_where_a_rank_allows_it(ranks, finding):
    assert perplexity_chart(table().assign(rank=ranks)).finding == finding


def test_accuracies_are_drawn_in_percent_beside_what_guessing_gives():
    asked = pd.DataFrame({"strategy": ["zero-shot", "lora", CONTROL]})
    for name, accuracy in (("rust", [0.5, 0.6, 0.2]), ("general", [0.4, 0.3, 0.2])):
        asked[f"{name}_accuracy"] = accuracy
        asked[f"{name}_accuracy_low"] = [value - 0.1 for value in accuracy]
        asked[f"{name}_accuracy_high"] = [value + 0.2 for value in accuracy]
    chart = accuracy_chart(asked)
    (axes,) = chart.axes
    assert names_of(axes) == ["zero-shot", "lora"]
    drawn = {series.get_label(): points_of(series) for series in axes.containers}
    for name, values in (("rust questions", [50, 60]), ("general questions", [40, 30])):
        assert drawn[name][0] == pytest.approx(values)
        assert drawn[name][1] == [pytest.approx((value - 10, value + 20)) for value in values]
    assert list(next(line for line in axes.lines if line.get_label() == "guessing").get_xdata()) == [25, 25]
    assert chart.finding.endswith("rust questions: 2 of 2, general questions: 1 of 2")
    assert CHARTS["accuracy"](SimpleNamespace(table=asked, answers=pd.DataFrame())) is None


def test_every_pair_has_one_field_and_only_the_separated_ones_a_colour():
    pairs = pd.DataFrame(
        [("a", "b", 1.0, True), ("a", "c", -9.0, True), ("b", "c", -3.0, False)], columns=PAIR
    )  # a and b are separated against the order of the means
    axes = pairs_chart(pairs).axes[0]
    assert names_of(axes) == ["b", "c"] and [label.get_text() for label in axes.get_xticklabels()] == ["a", "b"]
    *shown, _ = axes.texts
    assert {text.get_position(): text.get_text() for text in shown} == {(0, 1): "-1.0", (0, 2): "+9.0", (1, 2): "+3.0"}
    shades = {(field.get_x() + 0.5, field.get_y() + 0.5): to_hex(field.get_facecolor()) for field in axes.patches}
    assert len(set(shades.values())) == 3 and shades[1, 2] == "#ffffff"


@pytest.mark.parametrize(
    ("tied", "finding"),
    [
        ([], "6 of 6 pairs are separated"),
        (["ab", "ac", "bc", "ad"], "2 of 6 pairs are separated"),
        (["ab", "ac", "bc", "ba"], "2 of 6 pairs are separated; d is separated from every other strategy"),
    ],
)
def test_the_title_of_pairs_counts_them_and_names_the_few_that_are_left(tied, finding):
    names = ["ab", "ac", "ad", "bc", "bd", "cd"]
    if "ba" in tied:  # one more pair that is tied, without d
        names[names.index("ad")], names[names.index("bd")] = "ba", "da"
    pairs = pd.DataFrame([(*name, -1.0, name not in tied) for name in names], columns=PAIR)
    assert pairs_chart(pairs).finding == finding


def scored(**changes):
    """A table of strategies by what each gains on Rust and forgets of general text, from 100 and 30."""
    rows = [("zero-shot", 100.0, 30.0), *((name, 100.0 - gain, 30.0 + loss) for name, (gain, loss) in changes.items())]
    return pd.DataFrame([*rows, (CONTROL, 900.0, 800.0)], columns=["strategy", "perplexity", "general"])


@pytest.mark.parametrize(
    ("scores", "finding"),
    [
        (
            scored(a=(3, 10), b=(1, 20)),
            "Gained on Rust and forgot general text: all strategies; b forgot most, a least",
        ),
        (
            scored(a=(3, -1), b=(1, 2)),
            "Gained on Rust: all strategies; forgot general text: only b; b forgot most, a least",
        ),
        (
            {"one": scored(a=(5, 4)), "two": scored(a=(5, -4))},
            "one: gained on Rust and forgot general text: a; two: gained on Rust: a; forgot general text: none",
        ),
    ],
)
def test_the_title_says_who_gained_who_forgot_and_who_forgot_most(scores, finding):
    assert forgetting_chart(scores).finding == finding


def test_a_text_that_is_not_about_rust_is_not_called_so():
    chart = forgetting_chart(scored(a=(5, 4)).assign(corpus="notes"))
    assert "Rust" not in chart.alt and "perplexity on the new text" in chart.axes[0].get_xlabel()


@pytest.mark.parametrize(
    ("seconds", "memory", "finding"),
    [
        ([4, 1, 2], [10, 5, 4], "b needs the least time (25% of a's), c needs the least memory (40% of a's)"),
    ],
)
def test_the_title_of_costs_names_who_needs_least(seconds, memory, finding):
    chart = cost_chart(pd.DataFrame({"strategy": ["a", "b", "c"], "seconds": seconds, "peak_memory_mb": memory}))
    assert chart.finding == finding
    assert [[bar.get_width() for bar in axes.patches] for axes in chart.axes] == [seconds, memory]


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [(60, 130, {"60", "100", "120"}), (100, 390_000, {"1,000"})],
)
def test_marks_on_a_log_scale_are_those_that_people_write(low, high, marks):
    rows = {"strategy": ["a", "b"], "perplexity": [low, high]}
    rows |= {f"perplexity_{end}": rows["perplexity"] for end in ("low", "high")}
    chart = perplexity_chart(pd.DataFrame(rows))
    chart.draw_without_rendering()
    assert marks <= {text.get_text() for text in chart.axes[0].get_xticklabels(which="both")}


def test_numbers_are_written_as_people_say_them():
    values = (0.0123, 4.6, 72.28, 126.2, 4096, 4_036_800, 6_738_415_616)
    assert [number(value) for value in values] == [
        "0.0123",
        "4.6",
        "72.3",
        "126",
        "4,096",
        "4.04 million",
        "6.74 billion",
    ]
    brief = [short(value) for value in (0, 384, 27_648, 999_999, 4_036_800, 7e9)]
    assert brief == ["0", "384", "27.6k", "1M", "4.04M", "7B"]


def test_a_few_are_named_and_many_are_counted():
    assert [listed("abcd"[:count]) for count in range(5)] == ["", "a", "a and b", "a, b and c", "4 others"]
