"""What several processes need and send: on paper against closed forms, and the rehearsal against both."""

import pytest

from course.lesson18.on_paper import memory_in_parts, sent_per_step
from course.lesson18.rehearsal import rehearse
from tlkit.fitting.estimate import estimate_memory
from tlkit.models import meta_model
from tlkit.strategies import apply_strategy

VALUES = 4_036_800
OUTSIDE = 4096 * 192 + 192  # embedding, tied to the head, and the final norm


def on_paper(strategy: str):
    return apply_strategy(meta_model("tiny"), strategy).model


def test_a_ring_sends_every_gradient_almost_twice():
    model = on_paper("full")
    assert sent_per_step(model, 1) == 0
    assert sent_per_step(model, 2) == 4 * VALUES
    assert sent_per_step(model, 4) == 1.5 * 4 * VALUES
    assert sent_per_step(model, 1000) == pytest.approx(2 * 4 * VALUES, rel=0.01)
    adapters = on_paper("lora")
    trainable = sum(p.numel() for p in adapters.parameters() if p.requires_grad)
    assert sent_per_step(adapters, 2) == 4 * trainable < sent_per_step(model, 2) / 10


def test_parts_are_gathered_twice_in_blocks_and_once_outside():
    model = on_paper("full")
    gathered, added_up = 2 * VALUES - OUTSIDE, VALUES
    assert sent_per_step(model, 2, "fsdp") == 0.5 * 4 * (gathered + added_up)
    assert sent_per_step(model, 2, "fsdp", backend="gloo") == 0.5 * 4 * (gathered + 2 * added_up)
    frozen = sum(p.numel() for p in on_paper("last_layers").parameters() if not p.requires_grad)
    assert sent_per_step(on_paper("last_layers"), 2, "fsdp") == 0.5 * 4 * (gathered + VALUES - frozen)


def test_one_process_needs_what_the_estimate_says_and_more_need_less_each():
    whole = estimate_memory("tiny", "full", batch_size=2, sequence_length=64)
    found = memory_in_parts("tiny", batch_size=2, sequence_length=64, processes=(1, 2, 4))
    assert found[1].peak == whole.peak and found[1].categories["gathered"] == 0
    assert found[1].peak > found[2].peak > found[4].peak
    for name in ("weights", "optimizer state"):
        assert found[4].categories[name] == found[1].categories[name] // 4
    assert found[4].peak > found[1].peak / 4  # activations and what is gathered are not divided


def test_more_text_for_each_process_is_not_divided():
    short, long = (memory_in_parts("tiny", sequence_length=n, processes=(8,))[8] for n in (64, 256))
    assert long.categories["weights"] == short.categories["weights"]
    assert long.categories["activations"] > 2 * short.categories["activations"]


def test_a_rehearsal_that_fails_says_what_its_processes_said(monkeypatch):
    monkeypatch.setattr("course.lesson18.rehearsal.LAUNCH", "import sys; sys.exit('planted')")
    with pytest.raises(RuntimeError, match="ended with 1:\nplanted"):
        rehearse()
