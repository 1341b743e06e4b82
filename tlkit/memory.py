"""Measure memory during a step: every live tensor is counted, so the figure is the same on every machine."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only


@dataclass
class MemoryTrack:
    """Bytes of live tensors: now and at most since tracking began."""

    current: int = 0
    peak: int = 0


class _CountStorages(TorchDispatchMode):
    def __init__(self, track: MemoryTrack) -> None:
        super().__init__()
        self.track = track
        self.known: dict[int, int] = {}

    def count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.known:
            return
        self.known[key] = storage.nbytes()
        self.track.current += storage.nbytes()
        self.track.peak = max(self.track.peak, self.track.current)
        weakref.finalize(storage, self.forget, key)

    def forget(self, key: int) -> None:
        self.track.current -= self.known.pop(key)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tree_map_only(torch.Tensor, self.count, result)
        return result


@contextmanager
def track_memory(model: torch.nn.Module) -> Iterator[MemoryTrack]:
    """Count the model's tensors and every tensor made inside the block; `peak` is in bytes.

    It counts what torch holds, not what the process does: the Python interpreter and kernels' scratch space
    come on top.
    """
    track = MemoryTrack()
    mode = _CountStorages(track)
    for tensor in [*model.parameters(), *model.buffers()]:
        mode.count(tensor.detach())
    with mode:
        yield track
