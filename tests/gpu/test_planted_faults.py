"""A device with a planted fault is found by the check that is there for it; these run without a device."""

from dataclasses import replace

import pytest
import test_device_memory as memory
import test_device_numbers as numbers
import torch
from device_bench import bench_for
from torch.utils._python_dispatch import TorchDispatchMode

from tlkit.checkpoints import Checkpoints
from tlkit.fitting import fallback
from tlkit.memory import VirtualDevice

aten = torch.ops.aten


@pytest.fixture(scope="module")
def bench():
    """Three of the model's blocks on a virtual card, with what is expected computed before any fault is there."""
    small = bench_for(VirtualDevice("small", 96 * 2**20), tokens=16)
    model = small.loaded.model
    model.model.layers, model.config.num_hidden_layers = model.model.layers[:3], 3
    small.reference("full")
    return small


class Faulty(TorchDispatchMode):
    """A device that computes one operator wrongly."""

    def __init__(self, operator, fault):
        super().__init__()
        self.operator, self.fault = operator, fault

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is self.operator:
            return self.fault(function, *args, **kwargs or {})
        return function(*args, **kwargs or {})


def in_tf32(function, left, right):
    """10 of the 23 bits are left, as on a card with TF32."""
    return function(*((x.view(torch.int32) + 2**12 & -(2**13)).view(torch.float32) for x in (left, right)))


def in_seven_parts(function, left, right):
    """The same sums in another order, as kernels of cards add them up."""
    size = -(-left.shape[1] // 7)
    parts = zip(left.split(size, 1), right.split(size, 0), strict=True)
    return sum(function(x.contiguous(), y.contiguous()) for x, y in reversed(list(parts)))


def slightly_more(function, *args, **kwargs):
    loss, weight = function(*args, **kwargs)
    return loss * 1.0001, weight


@pytest.mark.parametrize(
    ("operator", "fault"),
    [
        (aten.mm.default, in_tf32),
        (aten.nll_loss_forward.default, slightly_more),
        (aten._fused_adamw_.default, lambda *_, **__: None),
    ],
)
def test_losses_that_are_wrong_are_found(bench, record_property, operator, fault):
    with Faulty(operator, fault), pytest.raises(AssertionError, match="losses differ by"):
        numbers.test_training(bench, record_property, "full")


def test_another_order_of_additions_is_no_fault(bench):
    """With room to spare: of the tolerance, it takes a tenth at most."""
    found = {}
    with Faulty(aten.mm.default, in_seven_parts):
        numbers.test_training(bench, found.__setitem__, "full")
        numbers.test_arithmetic(bench, found.__setitem__)
    reference = bench.reference("full")
    assert 0 < found["difference"] <= reference.tolerance / 10
    assert reference.tolerance <= 0.02 * reference.changed_by_training


def test_a_checkpoint_that_is_not_found_is_one_that_failed(bench, record_property, tmp_path, monkeypatch):
    """Otherwise all steps would be taken again, with the right losses."""
    monkeypatch.setattr(Checkpoints, "restore", lambda *_: None)
    with pytest.raises(AssertionError, match="the steps were taken anew"):
        numbers.test_checkpoints(bench, record_property, tmp_path, "device to processor")


def test_an_estimate_that_is_off_is_found(bench, record_property, monkeypatch):
    estimate = memory._estimate
    monkeypatch.setattr(memory, "_estimate", lambda *asked: 1.02 * estimate(*asked))
    with pytest.raises(AssertionError, match="estimated is 1.02"):
        memory.test_estimate_of_tensors(bench, record_property, "full", "as planned")


def test_a_step_that_is_taken_twice_is_found(bench, record_property, monkeypatch):
    """Each refusal costs a step that was done."""
    take = fallback.steps_with_fallback

    def repeating(*args, **named):
        return (replace(record, step=max(1, record.step - 1)) for record in take(*args, **named))

    monkeypatch.setattr(fallback, "steps_with_fallback", repeating)
    with pytest.raises(AssertionError, match="a step was lost, or taken twice"):
        memory.test_out_of_memory(bench, record_property, 0.25)
