"""The record of a run: which device, driver and versions, which day, and every check with its figures."""

import contextlib
import datetime
import json
import math
import platform
import re
import shutil
import subprocess
from importlib import metadata

import torch

from tlkit.files import write_text_atomically
from tlkit.memory import VirtualDevice

PACKAGES = ("torch", "transformers", "peft", "accelerate", "bitsandbytes", "tlkit")
UNKNOWN = "unknown"


class Record:
    """A plugin of pytest: what each check found, as JSON in `folder`, in a file named by the device and the day.

    It is written before and after each check: one that takes the process down with it is named there as running.
    """

    def __init__(self, folder, command):
        self.folder, self.path, self.checks = folder, None, []
        self.content = {"date": datetime.date.today().isoformat(), "command": command, "complete": False}

    def begin(self, device):
        """Say which device it is about; before that, nothing is written."""
        described = _describe(device)
        name = re.sub(r"[^a-z0-9]+", "-", described["name"].lower()).strip("-") or "device"
        self.path = self.folder / f"{name[:80]}-{self.content['date']}.json"
        self.content = {"device": described, "versions": _versions()} | self.content
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write()

    def write(self):
        if self.path is not None:
            text = json.dumps(self.content | {"checks": self.checks}, indent=1, allow_nan=False)
            write_text_atomically(self.path, text)

    def pytest_runtest_logstart(self, nodeid):
        self.checks.append({"name": nodeid.partition("::test_")[2], "status": "running"})
        self.write()

    def pytest_runtest_logreport(self, report):
        check = self.checks[-1]
        if report.when == "call":
            check |= {"seconds": report.duration, "found": {k: _plain(v) for k, v in report.user_properties}}
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            check |= {"status": "failed", "reason": crash.message if crash else str(report.longrepr)}
        elif report.skipped:
            check |= {"status": "skipped", "reason": report.longrepr[2].removeprefix("Skipped: ")}
        elif report.when == "teardown" and check["status"] == "running":
            check["status"] = "passed"
        self.write()

    def pytest_sessionfinish(self, session):
        self.content["complete"] = len(self.checks) == len(session.items)
        self.write()

    def pytest_terminal_summary(self, terminalreporter):
        for check in self.checks if self.path else self.checks[:1]:
            found = [f"{name}: {_in_words(value)}" for name, value in check.get("found", {}).items()]
            found += [check["reason"]] if "reason" in check else []
            terminalreporter.write_line(f"[{check['status']}] {check['name']}: {'; '.join(found)}")
        terminalreporter.write_line(f"The record is in {self.path}" if self.path else "No record was written")


def _describe(device):
    """What a record says about a device; nothing about the machine or the person it belongs to."""
    if isinstance(device, VirtualDevice):
        return {"kind": "virtual", "name": device.name, "memory": device.budget, "driver": "none"}
    described = {name: getattr(device, name) for name in ("kind", "name", "native_bf16", "cores")}
    if device.kind == "mps" and hasattr(torch.backends.mps, "get_name"):
        described["name"] = torch.backends.mps.get_name()  # the chip's own, where this torch can tell it
    return described | {"memory": device.total_memory, "driver": _driver(device.kind)}


def _versions():
    """Of everything that the figures depend on."""
    found = {"python": platform.python_version(), "system": f"{platform.system()} {platform.release()}"}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)  # of several on the path, the one that is imported
    built = {name: getattr(torch.version, name, None) for name in ("cuda", "hip", "xpu")}
    return found | {f"torch built for {name}": version for name, version in built.items() if version}


def _driver(kind):
    """The version of the device's driver; of Apple's, that of the system that it comes with."""
    if kind == "mps":
        return f"macOS {platform.mac_ver()[0]}"
    if kind == "xpu":
        return str(getattr(torch.xpu.get_device_properties(), "driver_version", UNKNOWN))
    if kind == "cuda" and shutil.which("nvidia-smi"):
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        return done.stdout.split()[0] if done.returncode == 0 and done.stdout.strip() else UNKNOWN
    return "none" if kind == "cpu" else UNKNOWN


def _plain(value):
    """JSON has no word for what is no finite number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _in_words(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)
