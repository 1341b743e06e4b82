"""What the panel recommends for a card: the most thorough way that fits, by its estimate."""

import dataclasses

import pytest

from course.panels.recommendation import recommend
from tlkit.devices import probe
from tlkit.fitting.estimate import CannotEstimate, MemoryEstimate
from tlkit.memory import virtual_device
from tlkit.steps import Plan


@pytest.fixture
def slow_in_bf16(monkeypatch):
    monkeypatch.setattr("course.panels.recommendation.bf16_speed", lambda device: 0.5)


def by_choice(model, strategy, *, dtype, **question):
    """qlora needs 10 MiB, lora 20, all others 40; half of it in bf16."""
    size = {"qlora": 10, "lora": 20}.get(strategy, 40) * 2**20 // (2 if dtype == "bf16" else 1)
    return MemoryEstimate({"weights": size}, {"forward pass": size})


def test_recommendations_leave_bf16_until_nothing_else_fits(slow_in_bf16, monkeypatch):
    monkeypatch.setattr("course.panels.recommendation.estimate_memory", by_choice)
    found = {}
    for size in (50, 25, 15, 7):
        here = dataclasses.replace(probe("cpu"), free_memory=size * 2**20)
        found[size] = recommend(here, "tiny")
        assert (size == 7) is ("slower than fp32" in str(found[size]))
    chosen = [(choice.strategy, choice.dtype) for choice in found.values()]
    assert chosen == [("last_layers", "fp32"), ("lora", "fp32"), ("qlora", "fp32"), ("qlora", "bf16")]
    card = recommend(virtual_device(memory="15MiB"), "tiny")
    assert (card.strategy, card.dtype, card.note) == ("lora", "bf16", "")
    with pytest.raises(MemoryError, match=r"tiny needs at least 5\.\d+ MiB on virtual card of 4MiB"):
        recommend(virtual_device(memory="4MiB"), "tiny")


def by_plan(model, strategy, *, plan, **question):
    """64 MiB; each row of a micro-batch is 2 of them, and checkpointing and the chunked loss save 8 each."""
    size = 48 + 2 * (plan.micro_batch_size or 8) - 8 * plan.chunked_loss - 8 * plan.activation_checkpointing
    return MemoryEstimate({"weights": size * 2**20}, {"forward pass": size * 2**20})


def test_a_strategy_goes_down_the_ladder_as_far_as_it_must_and_keeps_what_was_asked_for(monkeypatch):
    monkeypatch.setattr("course.panels.recommendation.estimate_memory", by_plan)
    found = {size: recommend(virtual_device(memory=f"{size / 0.85}MiB"), "tiny", "lora") for size in (65, 57, 45, 35)}
    assert [way.plan for way in found.values()] == [
        Plan(),
        Plan(chunked_loss=True),
        Plan(2, chunked_loss=True),
        Plan(1, chunked_loss=True, activation_checkpointing=True),
    ]
    assert {way.strategy for way in found.values()} == {"lora"} and found[45].micro_batch_size == 2
    asked = Plan(activation_checkpointing=True)
    assert recommend(virtual_device(memory="70MiB"), "tiny", "lora", plan=asked).plan == asked
    with pytest.raises(MemoryError, match="needs at least 34.00 MiB"):
        recommend(virtual_device(memory="39MiB"), "tiny", "lora")


def test_recommendations_go_on_without_what_cannot_be_estimated(monkeypatch):
    def some(model, strategy, *, dtype, **question):
        if strategy == "full" or model == "tinyllama-1.1b":
            raise CannotEstimate("planted")
        return by_choice(model, strategy, dtype=dtype)

    monkeypatch.setattr("course.panels.recommendation.estimate_memory", some)
    assert recommend(virtual_device(memory="1GiB"), "tiny").strategy == "last_layers"
    with pytest.raises(CannotEstimate, match="planted"):
        recommend(virtual_device(memory="1GiB"), "tinyllama-1.1b")
