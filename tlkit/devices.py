"""What this machine can compute on."""

import functools
import math
import os
import platform
import re
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.benchmark import Timer

from tlkit.memory import move_weights

COUNT_THEIR_PEAK = ("cuda", "xpu")
KINDS = ("cuda", "mps", "xpu", "cpu")
ABSENT = "not present on this machine"
# How much faster a product must be for a step to gain: with AMX, products are 3 to 8 times as fast, steps 1.7 to 2.
WORTHWHILE = 2.0


@dataclass(frozen=True)
class Device:
    """A place to train. Memory is in bytes; `notes` says what is broken."""

    kind: str
    name: str
    total_memory: int
    free_memory: int
    cores: int
    notes: tuple[str, ...] = ()
    counting = nullcontext  # a real device counts tensors by itself

    @property
    def torch(self) -> torch.device:
        return torch.device(self.kind)

    @property
    def has_host(self) -> bool:
        return self.kind != "cpu"  # which is its own host

    def place(self, model: nn.Module) -> None:
        if next(model.parameters()).device.type != self.kind:
            move_weights(model, self.torch)

    def room_for(self, model: nn.Module) -> int:
        """Bytes that a step may use: free ones, and what the model holds."""
        held = sum(p.nbytes for p in model.parameters() if p.device.type == self.kind)
        return probe(self.kind).free_memory + held

    def reset_peak(self) -> None:
        if self.kind in COUNT_THEIR_PEAK:
            torch.get_device_module(self.kind).reset_peak_memory_stats()

    @property
    def peak(self) -> float:
        """Most bytes since `reset_peak`; NaN: not counted."""
        counted = self.kind in COUNT_THEIR_PEAK
        return torch.get_device_module(self.kind).max_memory_allocated() if counted else math.nan


def probe(kind: str | None = None) -> Device:
    """Describe the device to train on; those that are present but broken are named in its `notes`.

    Args:
        kind: one of `KINDS`; None: `TLKIT_DEVICE` of the environment, else the best one that works.
    """
    asked = kind or os.environ.get("TLKIT_DEVICE")
    if asked and asked not in KINDS:
        raise ValueError(f"device {asked!r} is unknown: expected one of {', '.join(KINDS)}")
    notes: list[str] = []
    for candidate in [asked] if asked else KINDS:
        if (problem := _try_out(candidate)) is None:
            return _describe(candidate, tuple(notes))
        if asked or problem != ABSENT:
            notes.append(f"{candidate}: {problem}")
    raise RuntimeError(f"{'; '.join(notes)}. Ask for cpu (device, or TLKIT_DEVICE), which is always there")


def bf16_speed(device: Device) -> float:
    """How many times as fast as in fp32 a matrix product is under bf16 autocast; CUDA cards are not measured.

    A processor may have instructions for bf16 and be slower with them.
    """
    if device.kind == "cuda":
        return math.inf if torch.cuda.is_bf16_supported(including_emulation=False) else 0.0
    return _measured_bf16_speed(device.kind, torch.get_num_threads())


def settled_precision(asked: str, device: Device) -> str:
    """As asked; "auto" is bf16 where a step is faster in it."""
    if asked == "auto":
        return "bf16" if bf16_speed(device) >= WORTHWHILE else "fp32"
    return asked


def _try_out(kind: str) -> str | None:
    """Why a small product does not work there."""
    try:
        if kind != "cpu" and not (torch.backends.mps if kind == "mps" else getattr(torch, kind)).is_available():
            return ABSENT
        torch.ones(2, 2, device=kind).mm(torch.ones(2, 2, device=kind)).sum().item()
    except RuntimeError as error:  # what torch raises for every driver fault
        return f"present but broken ({str(error).splitlines()[0]})"
    return None


def _describe(kind: str, notes: tuple[str, ...]) -> Device:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if kind == "cuda":
        free, total = torch.cuda.mem_get_info()
        name = torch.cuda.get_device_name()
    elif kind == "xpu":
        total = torch.xpu.get_device_properties().total_memory
        free, name = total - torch.xpu.memory_reserved(), torch.xpu.get_device_name()
    elif kind == "mps":
        total = torch.mps.recommended_max_memory()
        free, name = total - torch.mps.driver_allocated_memory(), f"Apple {platform.machine()}"
    else:
        ram, (limit, used) = psutil.virtual_memory(), container_memory()
        total, free = min(ram.total, limit), min(ram.available, limit - used)
        info = Path("/proc/cpuinfo")
        text = info.read_text(encoding="utf-8") if info.is_file() else ""
        model_name = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
        name = model_name[1] if model_name else platform.processor() or platform.machine()
    return Device(kind, name, int(total), int(free), cores, notes)


def container_memory(root: Path = Path("/sys/fs/cgroup")) -> tuple[float, int]:
    """Bytes that the control group (v2, else v1) may use (inf: no limit), and uses beside file cache."""
    names = {"memory.max": ("memory.current", "inactive_file")}
    names["memory/memory.limit_in_bytes"] = ("memory/memory.usage_in_bytes", "total_inactive_file")
    for name, (current, cache) in names.items():
        # An unlimited v1 group shows a number near 2**63.
        if (root / name).is_file() and (text := (root / name).read_text().strip()).isdigit() and int(text) < 1 << 60:
            statistics = ((root / current).parent / "memory.stat").read_text().split()
            given_back = dict(zip(statistics[::2], statistics[1::2], strict=True)).get(cache, 0)
            return int(text), max(0, int((root / current).read_text()) - int(given_back))
    return math.inf, 0


@functools.cache
def _measured_bf16_speed(kind: str, threads: int) -> float:
    """Anew for another number of threads."""
    with _disable_current_modes(), torch.no_grad():  # no virtual device counts this, and no trace fakes it
        return _seconds_of_product(kind, False) / _seconds_of_product(kind, True)


def _seconds_of_product(kind: str, in_bf16: bool) -> float:
    """With the conversions that autocast makes."""
    factor = torch.ones(512, 512, device=kind)
    # Reading a value waits for the device.
    timer = Timer("factor.mm(factor)[0, 0].item()", globals={"factor": factor}, num_threads=torch.get_num_threads())
    with torch.autocast(kind, torch.bfloat16, enabled=in_bf16, cache_enabled=False):
        return timer.blocked_autorange(min_run_time=0.02).median
