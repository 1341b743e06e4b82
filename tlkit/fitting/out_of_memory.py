"""Tell an out-of-memory error from every other, say where it happened, and let go of what it holds."""

import gc
import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch

from tlkit.names import phase_of

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """What an out-of-memory error said; the error itself would keep the tensors of the failed step alive.

    Attributes:
        failed_in: "forward pass", "backward pass" or "optimizer step".
        bytes_asked: of the allocation that failed, NaN where unknown.
        bytes_available: that were free, NaN where unknown.
        message: the first line of the error.
    """

    failed_in: str
    bytes_asked: float
    bytes_available: float
    message: str


def catch_out_of_memory(action: Callable[[], T]) -> tuple[Failure | None, T | None]:
    """Call `action`, and let go of all that it held if it runs out of memory.

    Returns:
        (None, what it returned), or (what it ran out of memory for, None).
    """
    try:
        return None, action()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        failure = _describe(error)
        _let_go(error)
    # Out here nothing refers to the error any more, so that its tensors are gone.
    gc.collect()
    if torch.accelerator.is_available():
        # Not `torch.accelerator.empty_cache`: up to torch 2.12 it fails on Apple devices (pytorch issue 186430).
        torch.get_device_module(torch.accelerator.current_accelerator()).empty_cache()
    return failure, None


MESSAGES = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|MPS backend out of memory|"
    r"XPU out of memory|UR_RESULT_ERROR_OUT_OF_(DEVICE|HOST|RESOURCES)|"
    r"DefaultCPUAllocator: (can't allocate memory|not enough memory)"
)


def is_out_of_memory(error: BaseException) -> bool:
    """Recognise the errors for want of memory of CUDA, cuBLAS, MPS, XPU, the CPU allocators, and Python itself."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and MESSAGES.search(str(error)) is not None


def _describe(error: BaseException) -> Failure:
    message = str(error).splitlines()[0] if str(error) else type(error).__name__
    asked = re.search(r"(?:allocate|allocated) ([\d.]+) (bytes|KiB|MiB|GiB)", message)
    free = re.search(r"of which ([\d.]+) (bytes|KiB|MiB|GiB) is free", message)
    return Failure(phase_of(error), _bytes(asked), _bytes(free), message)


def _let_go(error: BaseException) -> None:
    """Drop what the frames of the failed calls hold, and of those that the error came from: their tensors."""
    for link in _chain(error):
        traceback.clear_frames(link.__traceback__)


def _bytes(match: re.Match | None) -> float:
    if match is None:
        return float("nan")
    return float(match[1]) * {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[match[2]]


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
