"""What the pictures of intervals say is what scipy and numpy compute from the same scores."""

import numpy as np
import pandas as pd
import pytest
from figure_checks import collisions
from scipy import stats

from course.lesson14.pictures import bootstrap_chart, pairing_chart


def test_a_bootstrap_is_drawn_with_the_middle_of_its_draws():
    draws = {"documents": np.linspace(0, 100, 1001), "tokens": np.linspace(40, 60, 1001)}
    chart = bootstrap_chart(draws)
    assert chart.finding == "Drawing documents gives an interval 5.0 times as wide as drawing tokens"
    assert collisions(chart) == []
    assert "documents: 2.5 to 97.5. tokens: 40.5 to 59.5" in chart.alt


def test_one_way_of_drawing_is_nothing_to_compare():
    with pytest.raises(ValueError, match="at least two ways"):
        bootstrap_chart({"documents": np.zeros(3)})


def test_pairs_are_worth_what_scipy_says():
    hard = np.random.default_rng(0).normal(0, 1, 40)  # a hard document is hard for both
    scores = pd.DataFrame({"lora": hard + 0.1, "full": hard + np.random.default_rng(1).normal(0, 0.05, 40)})
    chart = pairing_chart(scores, "nats per token")
    low, high = stats.ttest_rel(scores.lora, scores.full).confidence_interval()
    wide_low, wide_high = stats.ttest_ind(scores.lora, scores.full, equal_var=False).confidence_interval()
    assert f"paired interval {low:+.3f} to {high:+.3f}" in chart.alt
    assert f"{(wide_high - wide_low) / (high - low):.1f} times narrower" in chart.finding
    assert len(chart.axes[0].lines) == 40 + 2 and collisions(chart) == []


def test_scores_that_are_no_pairs_are_refused():
    with pytest.raises(ValueError, match="at least two rows in two columns"):
        pairing_chart(pd.DataFrame({"full": [1.0, 2.0]}), "nats")
