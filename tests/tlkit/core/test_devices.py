"""Devices: whether bf16 pays is measured, once, and in bf16; a broken driver is reported; memory is counted exactly."""

import dataclasses
import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tlkit import devices
from tlkit.devices import bf16_speed, probe, settled_precision
from tlkit.memory import track_memory


@pytest.fixture
def products(monkeypatch):
    """Products that take as long as the test says; returns the seconds of each precision and a list of those timed."""
    seconds, timed = {True: 1.0, False: 1.0}, []

    def pretended(kind, in_bf16):
        timed.append(in_bf16)
        return seconds[in_bf16]

    monkeypatch.setattr(devices, "_seconds_of_product", pretended)
    devices._measured_bf16_speed.cache_clear()
    yield seconds, timed
    devices._measured_bf16_speed.cache_clear()


@pytest.mark.parametrize(("in_bf16", "in_fp32", "pays"), [(0.5, 1.0, True), (2.0, 1.0, False), (1.0, 1.0, False)])
def test_bf16_pays_where_its_product_is_faster(products, in_bf16, in_fp32, pays):
    seconds, timed = products
    seconds |= {True: in_bf16, False: in_fp32}
    assert (bf16_speed(probe("cpu")) > 1) is pays and (bf16_speed(probe("cpu")) > 1) is pays
    assert timed.count(True) == timed.count(False) == 1, "measured once"


@pytest.mark.parametrize(("times_as_fast", "expected"), [(6.0, "bf16"), (1.3, "fp32"), (0.1, "fp32")])
def test_auto_is_bf16_only_where_a_whole_step_gains(products, times_as_fast, expected, monkeypatch):
    seconds, timed = products
    seconds[True] = 1 / times_as_fast
    assert settled_precision("auto", probe("cpu")) == expected and timed
    timed.clear()
    assert [settled_precision(asked, probe("cpu")) for asked in ("bf16", "fp32")] == ["bf16", "fp32"] and not timed
    card = dataclasses.replace(probe("cpu"), kind="cuda")
    for native in (True, False):  # taken at its word
        monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda *, including_emulation: native)  # noqa: B023
        assert settled_precision("auto", card) == ("bf16" if native else "fp32")
        assert (bf16_speed(card) > 1) is native and not timed


class _Products(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.types = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.mm.default:
            self.types.append(args[0].dtype)
        return function(*args, **kwargs or {})


def test_the_products_are_of_the_types_that_are_compared():
    with _Products() as seen:
        for in_bf16 in (True, False):
            assert devices._seconds_of_product("cpu", in_bf16) > 0
    assert list(dict.fromkeys(seen.types)) == [torch.bfloat16, torch.float32]


def test_a_broken_driver_is_reported_and_the_cpu_used(monkeypatch):
    monkeypatch.delenv("TLKIT_DEVICE", raising=False)
    monkeypatch.setattr(devices, "_try_out", lambda kind: None if kind == "cpu" else "present but broken (planted)")
    device = devices.probe()
    assert device.kind == "cpu" and device.notes[0] == "cuda: present but broken (planted)"
    assert 0 < device.free_memory <= device.total_memory and device.cores >= 1


@pytest.mark.parametrize(
    ("limit", "used", "cache"),
    [
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ],
)
def test_a_containers_limit_is_known_and_its_file_cache_is_no_use(limit, used, cache, tmp_path):
    (tmp_path / "memory").mkdir()
    assert devices.container_memory(tmp_path) == (math.inf, 0)
    (tmp_path / limit).write_text("max\n")
    assert devices.container_memory(tmp_path) == (math.inf, 0)
    (tmp_path / limit).write_text("8000\n")
    (tmp_path / used).write_text("5000\n")
    ((tmp_path / used).parent / "memory.stat").write_text(f"anon 1\n{cache} 2000\n")
    assert devices.container_memory(tmp_path) == (8000, 3000)


def test_track_memory_counts_exactly():
    model = torch.nn.Linear(10, 10, bias=False)
    with track_memory(model) as track:
        assert track.current == 400
        extra = torch.zeros(1000)
        view = extra[10:]  # shares the storage
        assert track.current == 4400
        del extra, view
        assert track.current == 400 and track.peak == 4400
