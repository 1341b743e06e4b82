"""What the picture and the table of two models say is what was measured."""

import pandas as pd
import pytest

from tests.reports.pictures import collisions, struck
from tlkit.evidence.carry_over import carry_over, recorded_carry_over
from tlkit.reports.two_models import carried_over, carry_over_chart, gained_and_forgotten

MEASURED = ["claim", "strategy", "value", "low", "high"]
SMALL = pd.DataFrame(
    [
        ("gain", "full", 40.0, 35.0, 45.0),
        ("gain", "lora", 30.0, 25.0, 35.0),
        ("forgetting", "full", 30.0, 20.0, 40.0),
        ("forgetting", "lora", 20.0, 10.0, 30.0),
    ],
    columns=MEASURED,
)
LARGE = SMALL.assign(value=[50.0, 32.0, -5.0, 0.5], low=[47.0, 26.0, -8.0, -1.0], high=[53.0, 38.0, -2.0, 2.0])
TABLE = carry_over({"tiny": SMALL, "real": LARGE})


def test_every_value_and_interval_is_drawn_for_both_models():
    chart = carry_over_chart(TABLE)
    gain, forgetting = chart.axes
    assert gain.get_title(loc="left") == "gain: 2 of 2 alike"
    assert forgetting.get_title(loc="left") == "forgetting: 0 of 2 alike"
    for axes, rows in ((gain, slice(0, 2)), (forgetting, slice(2, 4))):
        assert [label.get_text() for label in axes.get_yticklabels()] == ["lora", "full"]
        for drawn, model in zip(axes.containers, (SMALL, LARGE), strict=True):
            points, _, (bars,) = drawn
            part = model.iloc[rows].iloc[::-1]
            assert points.get_xdata() == pytest.approx(part.value.to_numpy())
            ends = [(start[0], end[0]) for start, end in bars.get_segments()]
            assert ends == [pytest.approx(pair) for pair in zip(part.low, part.high, strict=True)]
    assert "small and on a large model" in chart.alt and "lora" in chart.alt


def test_the_table_says_it_in_words():
    shown = carried_over(TABLE, "lora")
    assert shown.tiny.tolist() == ["+30 (+25 to +35)", "+20 (+10 to +30)"]
    assert shown.real.tolist() == ["+32 (+26 to +38)", "+0 (-1 to +2)"]
    assert shown.verdict.tolist() == ["same", "only on tiny"] and "strategy" not in shown
    assert carried_over(TABLE).strategy.tolist() == ["full", "lora", "full", "lora"]
    with pytest.raises(ValueError, match="'dora': expected one of full, lora"):
        carried_over(TABLE, "dora")


def test_gain_stands_against_forgetting_on_one_scale_for_both_models():
    chart = gained_and_forgotten(TABLE)
    small, large = chart.axes
    assert small.get_xlim() == large.get_xlim() and small.get_ylim() == large.get_ylim()
    for axes, model in ((small, SMALL), (large, LARGE)):
        drawn = [(line[0].get_xdata()[0], line[0].get_ydata()[0]) for line in axes.containers]
        assert drawn == list(zip(model.value[:2], model.value[2:], strict=True))
    assert [text.get_text() for text in chart.legends[0].get_texts()] == ["full", "lora"]
    assert chart.finding == "All 2 strategies forget less on real than on tiny, and gain 41% on average against 35%"
    assert "lora on real: gains 32%, forgets 0%" in chart.alt


def test_no_name_lies_over_an_interval_in_the_picture_of_readme():
    chart = gained_and_forgotten(recorded_carry_over("tiny", "smollm2-135m-instruct"))
    assert struck(chart) == [] == collisions(chart)
