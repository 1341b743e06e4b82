"""The picture of a step's memory draws what the timeline counts."""

import pandas as pd
import pytest

from course.lesson12.pictures import KINDS, memory_timeline, phase_borders

MIB = 2**20


def timeline(*rows):
    """Rows of a phase, and MiB of each kind in the order of `KINDS`."""
    return pd.DataFrame([{"phase": phase} | dict(zip(KINDS, sizes, strict=True)) for phase, *sizes in rows]).assign(
        **{kind: lambda table, kind=kind: table[kind] * MIB for kind in KINDS}
    )


STEP = timeline(
    ("forward pass", 4, 8, 0, 0, 0, 0),
    ("forward pass", 4, 8, 0, 6, 2, 0),
    ("backward pass", 4, 8, 0, 6, 4, 0),
    ("backward pass", 4, 8, 3, 1, 0, 1),
    ("optimizer step", 4, 8, 4, 0, 0, 0),
    ("optimizer step", 4, 8, 0, 0, 0, 0),
)


def test_parts_of_a_step_begin_and_end_where_the_phase_changes():
    assert phase_borders(STEP) == [("forward pass", 0, 2), ("backward pass", 2, 4), ("optimizer step", 4, 6)]
    twice = pd.concat([STEP[:4], STEP]).reset_index(drop=True)
    names = [name for name, _, _ in phase_borders(twice)]
    assert names == ["forward pass", "backward pass", "forward pass", "backward pass", "optimizer step"]


def test_layers_lie_on_one_another_and_the_dot_is_at_the_peak():
    (axes,) = memory_timeline(STEP, "a finding").axes
    heights = {}
    for layer in axes.collections:
        heights[layer.get_label()] = layer.get_paths()[0].vertices[:, 1].max()
    assert heights["weights"] == 4 and heights["optimizer state"] == 12 and heights["temporary"] == 22
    (dot,) = [line for line in axes.lines if line.get_marker() == "o"]
    assert (dot.get_xdata()[0], dot.get_ydata()[0]) == (2, 22)
    told = " ".join(text.get_text() for text in axes.texts)
    assert "peak: 22 MiB" in told and "of which logits and loss: 4 MiB" in told
    assert {"weights", "optimizer state", "forward\npass"} <= {text.get_text() for text in axes.texts}


def test_it_is_said_in_words_and_a_part_is_drawn_as_well_as_the_whole():
    chart = memory_timeline({"all": STEP, "a part": STEP.iloc[2:4]}, "a finding")
    assert "all: the peak, 22.00 MiB, is in the backward pass and mostly optimizer state" in chart.alt
    assert "optimizer step ends with 12.00 MiB" in chart.alt
    left, right = chart.axes
    assert left.get_ylim() == right.get_ylim() and right.get_xlim() == (0, 1)
    assert chart.get_suptitle() == "a finding"


@pytest.mark.parametrize("panels", [1, 3])
def test_it_can_be_saved(panels, tmp_path):
    memory_timeline({str(number): STEP for number in range(panels)}).savefig(tmp_path / "step.svg")
    assert (tmp_path / "step.svg").stat().st_size > 1000
