"""Where tensors lie and the bytes that they take: to measure a step, or to play a card."""

import ctypes
import platform
import re
import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import torch
from torch import nn
from torch.overrides import enable_reentrant_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from tlkit.quantization import tensors_of

CPU = torch.device("cpu")


@contextmanager
def on_host() -> Iterator[None]:
    """Inside, new tensors are on the host: virtual devices and traces do not count them."""
    tracks = [mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, MemoryTrack) and not mode.on]
    for track in tracks:
        track.hosted += 1
    try:
        yield
    finally:
        for track in tracks:
            track.hosted -= 1


class MemoryTrack(TorchDispatchMode):
    """Bytes of live tensors, also fake ones: now (`current`) and at most (`peak`)."""

    def __init__(self, on: str | None = None) -> None:
        super().__init__()
        self.on = on  # type of the device to count on; None: all, but what is made `on_host`
        self.current = self.peak = 0
        self._counted: dict[int, tuple[int, weakref.ref]] = {}
        self.hosted = 0  # how many `on_host` are open

    def count(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors if not self.hosted else ():
            storage = tensor.untyped_storage()
            if storage._cdata not in self._counted:
                self._count(storage, storage._cdata, tensor)

    def admit(self, size: int) -> None:
        """A device with a budget raises here, before bytes are counted."""

    def _count(self, storage: torch.UntypedStorage, key: int, tensor: torch.Tensor) -> None:
        """A thousand times a step: each line here is paid for."""
        if self.on is not None and storage.device.type != self.on:
            return
        size = storage.nbytes()
        self.admit(size)
        # Its callback comes when torch frees the storage, as long as the reference is kept.
        self._counted[key] = size, weakref.ref(storage, partial(self._forget, key))
        self.current += size
        if self.current > self.peak:
            self.peak = self.current

    def _forget(self, key: int, reference: weakref.ref | None = None) -> None:
        self.current -= self._counted.pop(key)[0]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled in here, and the guard costs more than the counting

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        # By identity: hashing an operator takes longer than all that follows.
        is_of_torch, allocates = _OPERATORS.get(id(function)) or _look_up(function)
        if is_of_torch:
            result = function(*args, **kwargs) if kwargs else function(*args)
        else:
            with _autocast_of_caller(args):
                result = function(*args, **kwargs or {})
        if allocates and not self.hosted:
            for tensor in result if isinstance(result, SEVERAL) else (result,):
                if isinstance(tensor, torch.Tensor):
                    storage = tensor.untyped_storage()
                    key = storage._cdata
                    if key not in self._counted:
                        self._count(storage, key, tensor)
        return result


SEVERAL = (tuple, list)
_OPERATORS: dict[int, tuple[bool, bool]] = {}


def _look_up(function: torch._ops.OpOverload) -> tuple[bool, bool]:
    """Whether an operator is torch's own, and whether it makes new tensors."""
    allocates = any(value.alias_info is None for value in function._schema.returns)
    entry = _OPERATORS[id(function)] = function.namespace in ("aten", "prim"), allocates
    return entry


def _autocast_of_caller(args: tuple) -> AbstractContextManager:
    """Autocast, which is off in here, as the caller had it: other libraries' operators call torch's in turn."""
    kind = next((value.device.type for value in args if isinstance(value, torch.Tensor)), "cpu")
    if not torch.amp.is_autocast_available(kind):
        return nullcontext()
    with enable_reentrant_dispatch():
        enabled = torch.is_autocast_enabled(kind)
    return torch.autocast(kind, torch.get_autocast_dtype(kind), enabled=enabled)


@contextmanager
def track_memory(model: torch.nn.Module) -> Iterator[MemoryTrack]:
    """Count a model's tensors and all that are made inside; `peak` is in bytes."""
    with MemoryTrack() as track:
        track.count(tensors_of(model))
        yield track


class VirtualDevice(MemoryTrack):
    """A card that is not there: tensors stay on the CPU, and what would pass the budget is refused inside."""

    kind = "cpu"
    torch = CPU
    has_host = True
    host = staticmethod(on_host)

    def __init__(self, name: str, budget: int) -> None:
        super().__init__()
        self.name, self.budget = name, budget

    def counting(self) -> AbstractContextManager:
        return nullcontext() if self in _get_current_dispatch_mode_stack() else self  # counted once only

    def place(self, model: nn.Module) -> None:
        self.count(tensors_of(model))

    def room_for(self, model: nn.Module) -> int:
        return self.budget

    def reset_peak(self) -> None:
        self.peak = self.current

    def admit(self, size: int) -> None:
        """In CUDA's words."""
        if self.current + size > self.budget:
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {in_units(size)}. GPU 0 ({self.name}) has a total capacity of "
                f"{in_units(self.budget)} of which {in_units(self.budget - self.current)} is free. Of the allocated "
                f"memory {in_units(self.current)} is allocated by PyTorch."
            )


def virtual_device(memory: str) -> VirtualDevice:
    """A card played on the CPU, with `memory` such as "48MiB"."""
    return VirtualDevice(f"virtual card of {memory}", parse_size(memory))


def parse_size(text: str) -> int:
    """Bytes of a size such as "48MB" (of 10**6) or "7.5GiB" (of 2**30)."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT])(i?)B\s*", str(text), re.IGNORECASE)
    base = 1024 if match and match[3] else 1000
    size = int(float(match[1]) * base ** ("KMGT".index(match[2].upper()) + 1)) if match else 0
    if size <= 0:
        raise ValueError(f"memory {text!r}: expected a size such as 48MiB or 8GB")
    return size


def in_units(count: float) -> str:
    """A number of bytes as torch's messages write it."""
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.2f} MiB"


def move_weights(model: torch.nn.Module, device: torch.device) -> None:
    """Move a model, its tied weights still tied."""
    for tensor in tensors_of(model):
        tensor.data = tensor.data.to(device, copy=True)


def move_to_host(model: torch.nn.Module) -> None:
    """Move a model's weights to the host, also from a virtual device."""
    with on_host():
        move_weights(model, CPU)


def saved_on_host(model: torch.nn.Module) -> AbstractContextManager:
    """What the forward pass saves for the backward pass goes to the host, weights excepted."""
    weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}

    def pack(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.device | None]:
        if tensor.untyped_storage()._cdata in weights:
            return tensor, None
        with on_host():
            return tensor.to(CPU, copy=True), tensor.device

    def unpack(packed: tuple[torch.Tensor, torch.device | None]) -> torch.Tensor:
        tensor, device = packed
        return tensor if device is None else tensor.to(device, copy=True)

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers that malloc.h gives to what `mallopt` sets


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Inside, memory that one step frees is kept for the next; afterwards all that is free goes back to the system.

    Else glibc gives large tensors back at each step, and the system clears the pages it hands out again.
    """
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    library = ctypes.CDLL(None)
    library.mallopt(_MMAP_THRESHOLD, 2**30)
    library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        # Where glibc's own adjustment, which any setting ends, would have ended.
        library.mallopt(_MMAP_THRESHOLD, 2**25)
        library.mallopt(_TRIM_THRESHOLD, 2**26)
        library.malloc_trim(0)
