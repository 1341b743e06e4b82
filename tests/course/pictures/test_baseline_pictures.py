"""Pictures of a baseline show what was measured: losses, draws, and where a score lies."""

import math

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from course.lesson03.pictures import RESULT, TRAINED, draws_chart, perplexity_ruler, surprise_chart


def test_surprise_draws_each_loss_and_their_mean():
    nats = [1.0, 8.0, 0.5, 2.5]
    chart = surprise_chart(["The", " heap", "\n", "."], nats)
    axes = chart.axes[0]
    assert [bar.get_height() for bar in axes.patches] == nats
    assert axes.lines[0].get_ydata()[0] == 3.0
    assert [text.get_text() for text in axes.get_xticklabels()] == ["The", "␣heap", "⏎", "."]
    assert f"perplexity {math.exp(3):.3g}" in chart.alt and "'heap' with 8.0 nats" in chart.alt
    assert chart.finding.startswith("1 of these 4 tokens")


def test_draws_are_counted_once_and_their_middle_is_under_them():
    draws = {"1 document": torch.linspace(50, 150, 1000), "40 documents": torch.linspace(90, 110, 1000)}
    chart = draws_chart(draws)
    bars = [line.get_xdata() for line in chart.axes[0].lines]
    for (low, high), scores in zip(bars, draws.values(), strict=True):
        assert [low, high] == pytest.approx(np.quantile(scores, [0.025, 0.975]))
    for foot, scores in zip((0.0, -1.5), draws.values(), strict=True):
        heights = [bar.get_height() for bar in chart.axes[0].patches if bar.get_y() == foot]
        counts = np.histogram(scores, np.linspace(50, 150, 60))[0]
        assert heights == pytest.approx(counts / counts.max())
    assert chart.finding == "Tests of 1 document score 52 to 148, and tests of 40 documents 91 to 109"


def test_a_ruler_marks_what_is_worse_than_guessing():
    chart = perplexity_ruler({"random": 4249.0, "pretrained": 133.0}, 4096)
    points = {
        float(line.get_xdata()[0]): to_hex(line.get_color()) for line in chart.axes[0].lines if line.get_marker() == "D"
    }
    assert points == {133.0: TRAINED.lower(), 4249.0: RESULT.lower()}
    assert "uniform guess: 4,096" in chart.alt and "pretrained: 133" in chart.alt
