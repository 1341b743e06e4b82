"""What the picture and the table of two models say is what was measured."""

import pandas as pd
import pytest

from tlkit.evidence.carry_over import carry_over
from tlkit.reports.two_models import carried_over, carry_over_chart

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
    assert gain.get_title(loc="left") == "gain: same direction for 2 of 2"
    assert forgetting.get_title(loc="left") == "forgetting: same direction for 0 of 2"
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
