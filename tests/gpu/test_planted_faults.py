"""A device with a planted fault is found by the check that is there for it; these run without a device."""

import gc
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import device_counters as counters
import pytest
import test_device_memory as memory
import test_device_numbers as numbers
import torch
from device_bench import Bench, bench_for
from torch.utils._python_dispatch import TorchDispatchMode

from tlkit.checkpoints.folder import Checkpoints
from tlkit.devices import Device, probe
from tlkit.fitting import fallback
from tlkit.memory import VirtualDevice

aten = torch.ops.aten
ROOT = Path(__file__).resolve().parents[2]
UNLIMITED = 2**40
# A device that rounds what it multiplies to bf16, and whose driver takes the process down as soon as a text is written.
BROKEN_DEVICE = """
import os, torch
from tlkit import models
product = torch.Tensor.__matmul__
def rounded(left, right):
    return product(left, right.bfloat16().float() if right.dtype == torch.float32 else right)
torch.Tensor.__matmul__ = rounded
models.generate = lambda *_, **__: os._exit(3)
"""


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


def test_the_record_names_what_failed_and_what_ended_the_run(tmp_path):
    (tmp_path / "broken_device.py").write_text(BROKEN_DEVICE)
    command = [sys.executable, "-m", "pytest", "-p", "broken_device", "tests/gpu", "--device", "virtual:96MB"]
    command += ["-k", "arithmetic or generation", "--records", tmp_path / "records"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 3, done.stdout
    (file,) = (tmp_path / "records").iterdir()
    record = json.loads(file.read_text(encoding="utf-8"))
    wrong, ended = record["checks"]
    assert (wrong["name"], wrong["status"]) == ("arithmetic", "failed") and wrong["found"]["relative error"] > 1e-4
    assert (ended["name"], ended["status"]) == ("generation", "running") and not record["complete"]
    assert record["command"] == 'make gpu DEVICE="virtual:96MB" ONLY="arithmetic or generation"'
    assert record["device"]["kind"] == "virtual" and record["versions"]["torch"] == torch.__version__


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


@dataclass(frozen=True)
class Card(Device):
    """What the checks take for a real device: a processor that has a host, and whose memory a mode counts."""

    driver: VirtualDevice = field(default_factory=lambda: VirtualDevice("pretended", UNLIMITED))
    has_host = True

    def host(self):
        return self.driver.host()


class BenchOfCard(Bench):
    is_real, is_virtual = True, False


@pytest.fixture
def card(bench, monkeypatch):
    """The bench of a card whose driver runs: its counters and its limit are there to be called."""
    device = Card(**vars(probe("cpu")))
    driver = device.driver

    def give_back(kind):
        gc.collect()
        driver.peak = driver.current

    @contextmanager
    def peak_counted(device):
        driver.peak = driver.current
        yield lambda: driver.peak

    @contextmanager
    def limited(device, most):
        give_back("cpu")
        driver.budget = most
        yield
        give_back("cpu")
        driver.budget = UNLIMITED

    monkeypatch.setattr(counters, "give_back", give_back)
    monkeypatch.setattr(counters, "held", lambda device: give_back("cpu") or driver.current)
    monkeypatch.setattr(counters, "reserved", lambda device: driver.peak)
    monkeypatch.setattr(counters, "peak_counted", peak_counted)
    monkeypatch.setattr(counters, "can_be_limited", lambda device: True)
    monkeypatch.setattr(counters, "limited", limited)
    with driver:
        yield BenchOfCard(device, *(getattr(bench, name) for name in ("loaded", "blocks", "validation", "host")))


def test_a_device_with_a_driver_is_counted_and_walks_the_ladder(card):
    """What runs on a real device and nowhere here: its memory is limited, counted, and given back."""
    found = {}
    memory.test_estimate_of_device(card, found.__setitem__, "full", "as planned")
    memory.test_out_of_memory(card, found.__setitem__, 0.25)
    assert found["refusals"] >= 6 and card.device.driver.budget == UNLIMITED


def test_a_driver_that_never_refuses_is_found(card, record_property, monkeypatch):
    monkeypatch.setattr(card.device.driver, "admit", lambda size: None)
    with pytest.raises(AssertionError, match="nothing was refused"):
        memory.test_out_of_memory(card, record_property, 0.25)


def test_a_limit_is_set_by_torch_and_taken_back(monkeypatch):
    fractions = []
    module = SimpleNamespace(
        get_device_properties=lambda: SimpleNamespace(total_memory=1000),
        get_per_process_memory_fraction=lambda: 0.8,
        set_per_process_memory_fraction=fractions.append,
        empty_cache=lambda: None,
    )
    monkeypatch.setattr(torch, "get_device_module", lambda kind: module)
    with pytest.raises(RuntimeError, match="planted"), counters.limited(replace(probe("cpu"), kind="cuda"), 250):
        raise RuntimeError("planted")
    assert fractions == [0.25, 0.8]
