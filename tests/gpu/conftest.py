"""A device is put to the checks of this folder by `make gpu [DEVICE=…] [ONLY=…]`; other test runs leave them out."""

import datetime
import os
import traceback
from importlib.metadata import version

import device_counters as counters
import pytest
import torch
from device_bench import bench_for
from torch.utils.collect_env import get_env_info

from tlkit.devices import probe
from tlkit.memory import virtual_device

VIRTUAL = "virtual:"
PACKAGES = ("transformers", "peft", "accelerate")


def pytest_addoption(parser):
    parser.addoption("--device", help="cuda, mps, xpu, cpu or virtual:96MiB; default: the accelerator that is here")


def _is_asked_for(config):
    return bool(config.getoption("device", None)) or config.getoption("markexpr") == "gpu"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Unless another record was asked for, pytest's own is in `results/devices`: each check with its figures."""
    if _is_asked_for(config) and not config.option.xmlpath:
        config.option.xmlpath = f"results/devices/{datetime.date.today()}.xml"


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


def pytest_terminal_summary(terminalreporter, config):
    for report in terminalreporter.getreports("passed") if _is_asked_for(config) else ():
        figures = "; ".join(f"{name}: {value}" for name, value in report.user_properties)
        terminalreporter.write_line(f"{report.nodeid.partition('::test_')[2]}: {figures}")


@pytest.fixture(scope="session")
def whole_bench(pytestconfig, record_testsuite_property):
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
    here = get_env_info()
    found = {"device": device.name, "driver": here.nvidia_driver_version, "system": here.os, "torch": torch.__version__}
    for about, value in (found | {package: version(package) for package in PACKAGES}).items():
        record_testsuite_property(about, str(value))
    torch.set_float32_matmul_precision("highest")
    return bench


@pytest.fixture
def bench(whole_bench):
    """The device is given back what a check has left there."""
    yield whole_bench
    counters.give_back(whole_bench.device.kind)
