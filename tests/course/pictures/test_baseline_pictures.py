"""Pictures of a baseline show what was measured: losses, windows, draws, and where a score lies."""

import math

import pytest
import torch
from matplotlib.colors import to_hex

from course.lesson03.pictures import (
    RESULT,
    TRAINED,
    perplexity_ruler,
    resampling_chart,
    small_tests_chart,
    splits_chart,
    surprise_chart,
    window_chart,
    windows_of,
)
from tlkit.corpus import load_corpus
from tlkit.evaluation import _windows, perplexity
from tlkit.models import load_model


@pytest.fixture(scope="module")
def score():
    tiny = load_model("tiny")
    return perplexity(tiny.model, tiny.tokenizer, load_corpus("rust").validation[:8])


def test_surprise_draws_each_loss_and_their_mean():
    nats = [1.0, 8.0, 0.5, 2.5]
    chart = surprise_chart(["The", " heap", "\n", "."], nats)
    axes = chart.axes[0]
    assert [bar.get_height() for bar in axes.patches] == nats
    assert axes.lines[0].get_ydata()[0] == 3.0
    assert [text.get_text() for text in axes.get_xticklabels()] == ["The", "␣heap", "⏎", "."]
    assert f"perplexity {math.exp(3):.0f}" in chart.alt and "'heap' with 8.0 nats" in chart.alt
    assert chart.finding.startswith("1 of these 4 tokens")
    with pytest.raises(ValueError, match="2 tokens and 1 losses"):
        surprise_chart(["a", "b"], [1.0])


@pytest.mark.parametrize("context, stride", [(8, 8), (8, 4), (8, 3), (5, 1), (40, 40)])
def test_windows_are_those_that_perplexity_scores(context, stride):
    """Its windows read the token before each that they score, so a place there is one further."""
    tokens = 24
    stream = torch.arange(tokens + 1)
    expected = [
        (int(row[0]), int(scored[0]) - 1, int(row[-1]) + 1)
        for inputs, _, places in _windows(stream, context, stride, 4)
        for row, scored in zip(inputs, places, strict=True)
    ]
    assert windows_of(tokens, context, stride) == expected


def test_every_token_is_scored_once_in_every_way():
    chart = window_chart(24, (8, 8), (8, 4))
    scored = [box.get_x() for box in chart.axes[0].patches if to_hex(box.get_facecolor()) == TRAINED.lower()]
    assert sorted(scored) == sorted(2 * [*range(24)])
    assert "windows of 8 tokens, stride 4: 5 windows read 24 tokens" in chart.alt
    with pytest.raises(ValueError, match="stride=9"):
        window_chart(24, (8, 9))


def test_a_split_is_as_wide_as_it_has_documents():
    chart = splits_chart({"training": (30, "learn"), "validation": (10, "choose")})
    first, second = (box.get_width() for box in chart.axes[0].patches)
    assert first / second == pytest.approx(3, rel=0.05)
    assert "75% of the documents" in chart.finding and "validation: 10 documents, choose" in chart.alt


def test_the_draws_in_the_picture_have_the_interval_of_the_result(score):
    chart = resampling_chart(score)
    interval = next(line for line in chart.axes[0].lines if len(line.get_xdata()) == 2)
    assert list(interval.get_xdata()) == [score.low, score.high]
    axes = chart.axes[0]
    histogram = sum(bar.get_height() for bar in axes.patches)
    weighted = sum(bar.get_height() * (score.low <= bar.get_x() <= score.high) for bar in axes.patches)
    assert 0.85 < weighted / histogram < 1  # the bars of the draws, of which 95% lie in the interval
    assert f"95%: {score.low:.0f} to {score.high:.0f}" in chart.alt


def test_one_document_cannot_be_resampled():
    tiny = load_model("tiny")
    with pytest.raises(ValueError, match="one document"):
        resampling_chart(perplexity(tiny.model, tiny.tokenizer, load_corpus("rust").validation[:1]))


def test_small_tests_scatter_more(score):
    chart = small_tests_chart(score, (1, 4, 8))
    bars = [line.get_xdata() for line in chart.axes[0].lines if line.get_linewidth() == 2.5]
    widths = [high / low for low, high in bars]
    assert len(widths) == 3 and widths == sorted(widths, reverse=True)
    assert bars[-1] == pytest.approx([score.low, score.high])  # a draw of as many documents is the interval itself
    assert "1 document:" in chart.alt and "8 documents:" in chart.alt


def test_a_ruler_marks_what_is_worse_than_guessing():
    chart = perplexity_ruler({"random": 4249.0, "pretrained": 133.0}, 4096)
    points = {
        float(line.get_xdata()[0]): to_hex(line.get_color()) for line in chart.axes[0].lines if line.get_marker() == "D"
    }
    assert points == {133.0: TRAINED.lower(), 4249.0: RESULT.lower()}
    assert "uniform guess: 4,096" in chart.alt and "pretrained: 133" in chart.alt
