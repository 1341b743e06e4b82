"""A step's timeline against the estimate's peak, torch's own count, and what a step is known to keep."""

import pytest
import torch
from bytes_by_hand import closed_form

from course.lesson09.timeline import step_timeline
from tlkit.fitting.estimate import CATEGORIES, estimate_memory
from tlkit.models import load_model
from tlkit.names import PHASES
from tlkit.steps import Plan
from tlkit.strategies import apply_strategy

SHAPE = {"batch_size": 2, "sequence_length": 32}
KINDS = list(CATEGORIES)


def adapted(strategy="full", **options):
    return apply_strategy(load_model("tiny").model, strategy, **options).model


def peak(timeline):
    return timeline[KINDS].sum(axis=1).max()


@pytest.mark.parametrize("strategy", ["full", "qlora"])
def test_its_peak_is_the_estimate_and_the_model_stays_as_it_was(strategy, shallow):
    """0.2%, as the estimate promises of a real step."""
    model = adapted(strategy)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    generator = torch.random.get_rng_state()
    timeline = step_timeline(model, **SHAPE)
    assert peak(timeline) == pytest.approx(estimate_memory(model, **SHAPE).peak, rel=2e-3)
    assert all(map(torch.equal, before, model.parameters())) and all(p.grad is None for p in model.parameters())
    assert torch.equal(generator, torch.random.get_rng_state())


def test_kinds_are_there_when_they_should_be():
    timeline = step_timeline(adapted(), **SHAPE)
    by_hand = closed_form("tiny", **SHAPE)
    forward, backward, update = (timeline[timeline.phase == phase] for phase in PHASES)
    assert (forward.gradients == 0).all() and backward.gradients.iloc[-1] == by_hand["gradients"]
    assert update.gradients.iloc[-1] == 0 and backward.activations.iloc[-1] < 100
    assert timeline.weights.nunique() == 1 and timeline["optimizer state"].nunique() == 1
    for kind in ("weights", "optimizer state", "activations", "logits and loss"):
        assert timeline[kind].max() == pytest.approx(by_hand[kind], rel=0.03), kind
    # The head's gradient waits for that of the embedding, which is the same table.
    head = 4 * 4096 * 192
    assert backward.temporary.quantile(0.2) >= head


def test_micro_batches_come_one_after_the_other_and_each_finds_the_gradients_of_those_before(shallow):
    timeline = step_timeline("tiny", batch_size=4, sequence_length=32, plan=Plan(micro_batch_size=2))
    changes = timeline.phase[timeline.phase != timeline.phase.shift()]
    assert changes.tolist() == ["forward pass", "backward pass", "forward pass", "backward pass", "optimizer step"]
    assert timeline.gradients[changes.index[2]] == 4 * sum(p.numel() for p in adapted().parameters())
