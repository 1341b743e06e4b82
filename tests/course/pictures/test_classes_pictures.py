"""The head reads the last token of a text, and curves show the numbers that they are given."""

import pandas as pd
import pytest
from figure_checks import collisions, struck

from course.lesson18.pictures import class_head_picture, depth_chart, examples_chart
from tlkit.models import meta_model
from tlkit.reports.drawing import TRAINED

TEXTS = [["A", " channel", " send", "s", " values", "."], ["An", " owner", "."]]
CURVES = {"pretrained, mean": [0.5, 0.6, 0.55], "pretrained, last token": [0.13, 0.2, 0.41]}


def record(**ends):
    """Two runs for each strategy and size, from a guess to where it ends."""
    rows = [
        (name, size, 0.11 + share * (end - 0.11) + 0.02 * seed)
        for name, end in ends.items()
        for size, share in ((8, 0.0), (32, 0.4), (503, 1.0))
        for seed in (0, 1)
    ]
    return pd.DataFrame(rows, columns=["strategy", "passages", "balanced_accuracy"])


def test_the_head_reads_the_last_token_and_not_the_padding():
    chart = class_head_picture(meta_model("tiny", classes=9), TEXTS)
    axes = chart.axes[0]
    shown = [text.get_text() for text in axes.texts]
    assert shown.count("pad") == 3 and "(9, 192)" in shown and "9 logits" in shown
    boxes = [patch for patch in axes.patches if patch.get_facecolor() == _rgba(TRAINED)]
    assert len(boxes) == 3  # the head, and one hidden state of each text
    step = 66 / 6
    for state, place in zip(boxes[1:], (5, 2), strict=True):
        left = state.get_x()
        assert place * step < left < (place + 1) * step
    assert chart.words[1] == "text 2 has 3 tokens and 3 of padding; the head reads the hidden state of '.'"
    assert not collisions(chart)


def test_a_curve_over_depth_has_a_point_for_each_layer_and_a_ring_at_its_best():
    chart = depth_chart(CURVES, classes=9)
    axes = chart.axes[0]
    for name, values in CURVES.items():
        expected = [100 * value for value in values]
        assert any(
            list(line.get_ydata()) == pytest.approx(expected) for line in axes.lines if len(line.get_xdata()) == 3
        )
        ring = [line for line in axes.lines if line.get_markersize() == 15 and line.get_ydata()[0] in expected]
        assert [line.get_xdata()[0] for line in ring] == [expected.index(max(expected))], name
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["embed-\nding", "block\n0", "block\n1"]
    assert chart.finding == "The best features here, 60%: pretrained, mean, out of block 0"
    assert not collisions(chart) and not struck(chart)
    flat = depth_chart({"mean": [0.5, 0.4]}, classes=9)
    assert flat.finding.endswith("mean, out of the embedding")


def test_a_line_of_sizes_goes_through_the_means_and_every_run_is_a_dot():
    table = record(full=0.4, lora=0.3)
    chart = examples_chart(table, classes=9)
    axes = chart.axes[0]
    means = 100 * table[table.strategy == "full"].groupby("passages").balanced_accuracy.mean()
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines["full"].get_ydata()) == pytest.approx(list(means))
    dots = [line for line in axes.lines if line.get_marker() == "." and len(line.get_xdata()) == 6]
    assert len(dots) == 2
    assert [label.get_text() for label in axes.get_xticklabels()] == ["8", "32", "503"]
    assert not collisions(chart)


def test_the_title_names_the_highest_at_each_size():
    assert examples_chart(record(full=0.4, lora=0.3), classes=9).finding == ("Highest: full (all sizes)")
    crossing = record(full=0.4, lora=0.3)
    crossing.loc[(crossing.strategy == "lora") & (crossing.passages == 8), "balanced_accuracy"] = 0.3
    assert examples_chart(crossing, classes=9).finding == ("Highest: lora (8 texts); full (32 and 503 texts)")


def _rgba(shade):
    from matplotlib.colors import to_rgba

    return to_rgba(shade)
