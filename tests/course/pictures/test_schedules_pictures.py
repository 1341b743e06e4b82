"""A schedule is drawn as it is trained, and a phase costs what is counted."""

import numpy as np
import pytest
import torch

from course.lesson11.pictures import rates_by_part, schedule_chart
from tlkit.models import load_model, meta_model
from tlkit.strategies import apply_strategy, component_of
from tlkit.training import TrainingConfig, new_state, training_steps

CONFIG = TrainingConfig(1e-2, batch_size=2)
STEPS = 8
PARTS = ["embedding", *(f"block {number}" for number in range(8)), "norm"]


@pytest.mark.parametrize("strategy", ["full", "gradual_unfreezing", "discriminative_rates", "freeze_lower"])
def test_a_cell_is_coloured_where_the_part_moves_in_that_step(strategy):
    report = apply_strategy(load_model("tiny").model, strategy)
    rates = rates_by_part(report, CONFIG, STEPS)
    assert list(rates) == PARTS
    model, owners = report.model, component_of(report.model)
    blocks = torch.randint(4096, (2 * STEPS, 8), generator=torch.Generator().manual_seed(0))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for record in training_steps(new_state(model, CONFIG), blocks, CONFIG):
        moved = {owners[id(p)] for name, p in model.named_parameters() if not torch.equal(p, before[name])}
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        coloured = {name for name, rate in rates.items() if rate[record.step - 1] > 0}
        assert {name.replace("final norm and others", "norm") for name in moved} == coloured
        highest = max(rate[record.step - 1] for rate in rates.values())
        assert highest == pytest.approx(record.learning_rate)


def test_a_row_is_a_part_and_frozen_cells_are_left_out():
    names = ("full", "gradual_unfreezing")
    reports = {name: apply_strategy(meta_model("tiny"), name) for name in names}
    chart = schedule_chart(reports, CONFIG, STEPS)
    for axes, name in zip(chart.axes, names, strict=False):
        cells = axes.collections[0].get_array().reshape(len(PARTS), STEPS)
        expected = np.stack(list(rates_by_part(reports[name], CONFIG, STEPS).values()))
        assert np.ma.getmaskarray(cells).sum() == (expected == 0).sum()
    assert [label.get_text() for label in chart.axes[0].get_yticklabels()] == PARTS  # one axis for both
    assert list(chart.axes[1].get_xticks()) == [1, 3, 5, 7, 8]
    share = 100 * np.mean([rate > 0 for rate in rates_by_part(reports["gradual_unfreezing"], CONFIG, STEPS).values()])
    assert f"gradual_unfreezing trains in {share:.0f}% of the steps, full in all of them" in chart.finding
    alone = schedule_chart({"full": reports["full"]}, CONFIG, STEPS)
    assert alone.finding == "On average over the parts, full trains in every step"
