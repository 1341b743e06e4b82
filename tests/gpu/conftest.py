"""A device is put to the checks of this folder by `make gpu [DEVICE=…] [ONLY=…]`; other test runs leave them out."""

import os
import traceback
from pathlib import Path

import device_counters as counters
import pytest
import torch
from device_bench import bench_for
from device_record import Record

from tlkit.devices import probe
from tlkit.memory import virtual_device

VIRTUAL = "virtual:"
RECORD = pytest.StashKey[Record]()


def pytest_addoption(parser):
    parser.addoption("--device", help="cuda, mps, xpu, cpu or virtual:96MiB; default: the accelerator that is here")
    parser.addoption("--records", type=Path, default=Path("results/devices"), help="the folder for the record")


def _is_asked_for(config):
    return bool(config.getoption("device", None)) or config.getoption("markexpr") == "gpu"


def pytest_configure(config):
    if _is_asked_for(config):
        settings = {"DEVICE": config.getoption("device"), "ONLY": config.getoption("keyword")}
        words = ["make gpu", *(f'{name}="{value}"' for name, value in settings.items() if value)]
        config.stash[RECORD] = Record(config.getoption("records"), " ".join(words))
        config.pluginmanager.register(config.stash[RECORD])


def pytest_collection_modifyitems(config, items):
    if not _is_asked_for(config):
        left_out = [item for item in items if item.get_closest_marker("gpu")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Let go of what a failed check holds on the device, once its report is written."""
    report = yield
    if call.excinfo is not None and item.get_closest_marker("gpu"):
        traceback.clear_frames(call.excinfo.tb)
    return report


@pytest.fixture(scope="session")
def whole_bench(pytestconfig):
    """The device that was asked for, with all that the checks need; where there is none, they are skipped."""
    name = pytestconfig.getoption("device")
    try:
        device = virtual_device(memory=name.removeprefix(VIRTUAL)) if (name or "").startswith(VIRTUAL) else probe(name)
    except (ValueError, RuntimeError) as error:
        pytest.exit(f"device {name or 'of this machine'}: {error}", returncode=2)
    if not name and not os.environ.get("TLKIT_DEVICE") and device.kind == "cpu":
        pytest.skip(
            "no accelerator works here: looked for cuda (NVIDIA and AMD), mps (Apple) and xpu (Intel), and found "
            f"{'; '.join(device.notes) or 'none'}. If this machine has one, torch {torch.__version__} may be built "
            "without it: pytorch.org names the build for your card. To run the same checks without one: "
            "make gpu DEVICE=cpu, or DEVICE=virtual:96MiB"
        )
    bench = bench_for(device)
    pytestconfig.stash[RECORD].begin(device)
    torch.set_float32_matmul_precision("highest")
    return bench


@pytest.fixture
def bench(whole_bench):
    """The device is given back what a check has left there."""
    yield whole_bench
    counters.give_back(whole_bench.device.kind)
