"""The record of a run: which device, driver and versions, which day, and every check with its figure."""

import datetime
import json
import math
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import pandas as pd
import torch

from tlkit.acceptance.bench import Check
from tlkit.checkpoints import write_text_atomically
from tlkit.devices import Device
from tlkit.memory import VirtualDevice, in_units
from tlkit.settings import DATA

CONTRIBUTED = DATA / "devices"
PACKAGES = ("torch", "transformers", "peft", "accelerate", "bitsandbytes", "tlkit")
FORMAT = 1
UNKNOWN = "unknown"
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Record:
    """What a run found, so far.

    Attributes:
        device: in figures and words: its kind, name, memory in bytes, bf16 and the driver.
        versions: of Python, the operating system, the packages and what torch was built for.
        date: on which the run began, ISO.
        command: that repeats it.
        complete: whether every check that was asked for came to an end.
        checks: in their order.
    """

    device: dict[str, object]
    versions: dict[str, str]
    date: str
    command: str
    complete: bool
    checks: tuple[Check, ...]

    @property
    def failed(self) -> int:
        """How many checks failed."""
        return self.count("failed")

    def count(self, status: str) -> int:
        """How many checks ended so."""
        return sum(check.status == status for check in self.checks)

    def __str__(self) -> str:
        counts = ", ".join(f"{self.count(status)} {status}" for status in ("passed", "failed", "skipped"))
        return f"{self.device['name']}: {counts}" + ("" if self.complete else "; the run did not come to its end")


def describe_device(device: Device | VirtualDevice) -> dict[str, object]:
    """What a record says about a device; nothing about the machine or the person it belongs to.

    Args:
        device: real or virtual.
    """
    if isinstance(device, VirtualDevice):
        return {
            "kind": "virtual",
            "name": device.name,
            "memory": device.budget,
            "driver": "none: played by a processor",
        }
    name = _name_of_apple(device) if device.kind == "mps" else device.name
    return {
        "kind": device.kind,
        "name": name,
        "memory": device.total_memory,
        "native_bf16": device.native_bf16,
        "cores": device.cores,
        "driver": _driver(device.kind),
    }


def versions_here() -> dict[str, str]:
    """Of everything that the figures depend on."""
    found = {"python": platform.python_version(), "system": f"{platform.system()} {platform.release()}"}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    for name in ("cuda", "hip", "xpu"):
        if built := getattr(torch.version, name, None):
            found[f"torch built for {name}"] = built
    return found


def write_record(record: Record, folder: Path) -> Path:
    """Write a record as JSON, and as a table in Markdown beside it.

    Args:
        record: complete or not; one of the same device and day is replaced.
        folder: is made where there is none.

    Returns:
        The path of the JSON file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(record, folder)
    checks = [vars(replace(check, figures=_finite(check.figures))) for check in record.checks]
    content = {"format": FORMAT} | vars(record) | {"checks": checks}
    text = json.dumps(content, indent=1, allow_nan=False, default=str)
    write_text_atomically(path, text)
    write_text_atomically(path.with_suffix(".md"), as_markdown(record))
    return path


def path_of(record: Record, folder: Path) -> Path:
    """Where a record is written: named by its device and day."""
    name = re.sub(r"[^a-z0-9]+", "-", str(record.device["name"]).lower()).strip("-") or "device"
    return folder / f"{name[:80]}-{record.date}.json"


def read_record(path: Path) -> Record:
    """Read what `write_record` wrote.

    Args:
        path: of the JSON file.

    Raises:
        ValueError: where it is no such record; says what is wrong.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("format") != FORMAT:
            raise ValueError(f"of another format than {FORMAT}")
        checks = tuple(Check(**check) for check in content.pop("checks"))
        return Record(**content, checks=checks)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not a record of `accept` ({error})") from error


def recorded_devices(folder: Path = CONTRIBUTED) -> list[Record]:
    """The records of devices that came with the workbook, the newest last.

    Args:
        folder: of JSON files; by default that to which records are contributed.

    Returns:
        None at all where nobody has contributed one.
    """
    return sorted((read_record(path) for path in sorted(folder.glob("*.json"))), key=lambda record: record.date)


def device_table(records: Iterable[Record] | None = None) -> pd.DataFrame:
    """One row for each record: which device it was, and what the run found there.

    Args:
        records: default: those that came with the workbook.

    Returns:
        Names, dates and counts of checks; by how many nats the losses of any strategy differ from the processor's; the
        memory that was estimated, as a share of what was counted, where it is furthest from 1; how many refusals of
        memory were survived; and the Trainer's seconds of a step, divided by tlkit's. "not measured" where a check was
        skipped or failed.
    """
    return pd.DataFrame([_row(record) for record in (recorded_devices() if records is None else records)])


def as_markdown(record: Record) -> str:
    """A record as a page: what it was run on, and a row for each check."""
    device, shown = record.device, {}
    for name, value in device.items():
        shown[name.replace("_", " ")] = in_units(value) if name == "memory" else value
    lines = [f"# {record}", "", f"Recorded on {record.date} by `{record.command}`.", ""]
    lines += [f"- {name}: {value}" for name, value in (shown | record.versions).items()]
    columns = ("name", "status", "found", "expected", "tolerance", "seconds", "reason")
    lines += ["", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for check in record.checks:
        values = vars(check) | {"seconds": f"{check.seconds:.1f}"}
        lines.append("| " + " | ".join(str(values[column]).replace("|", "\\|") for column in columns) + " |")
    return "\n".join(lines) + "\n"


def today() -> str:
    """The date, ISO."""
    return datetime.date.today().isoformat()


def _row(record: Record) -> dict[str, object]:
    passed = {check.name: check.figures for check in record.checks if check.status == "passed"}
    losses = [abs(found["difference"]) for name, found in passed.items() if name.startswith("training: ")]
    estimates = [passed.get(name, {}) for name in ("estimate of tensors", "estimate of device")]
    shares = [share for found in estimates for share in found.values()]
    refusals = passed.get("out of memory", {}).get("refusals")
    beside = passed.get("beside the Trainer", {})
    speed = beside["Trainer seconds of a step"] / beside["tlkit seconds of a step"] if beside else None
    return {
        "device": record.device["name"],
        "kind": record.device["kind"],
        "recorded": record.date,
        "passed": record.count("passed"),
        "failed": record.count("failed"),
        "skipped": record.count("skipped"),
        "losses differ by (nats)": f"{max(losses):.1g}" if losses else NOT_MEASURED,
        "estimated / counted": f"{max(shares, key=_from_one):.3f}" if shares else NOT_MEASURED,
        "refusals survived": NOT_MEASURED if refusals is None else str(int(refusals)),
        "speed, tlkit / Trainer": NOT_MEASURED if speed is None else f"{speed:.2f}",
    }


def _from_one(share: float) -> float:
    return abs(share - 1)


def _finite(figures: dict[str, float]) -> dict[str, float | None]:
    """JSON has no word for what is no number."""
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}


def _name_of_apple(device: Device) -> str:
    """The chip's own name, where this torch can tell it."""
    return torch.backends.mps.get_name() if hasattr(torch.backends.mps, "get_name") else device.name


def _driver(kind: str) -> str:
    """The version of the device's driver; of Apple's, that of the system that it comes with."""
    if kind == "mps":
        return f"macOS {platform.mac_ver()[0]}"
    if kind == "xpu":
        return str(getattr(torch.xpu.get_device_properties(), "driver_version", UNKNOWN))
    if kind == "cuda" and shutil.which("nvidia-smi"):
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return UNKNOWN
        lines = done.stdout.split()
        return lines[0] if done.returncode == 0 and lines else UNKNOWN
    return "none" if kind == "cpu" else UNKNOWN
