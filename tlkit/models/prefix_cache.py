"""States that come out of frozen blocks: kept in memory up to a limit, and beyond it in files."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import torch

from tlkit.memory import in_units


@dataclass
class PrefixCache:
    """What comes out of the lowest blocks, by the tokens that went in.

    Attributes:
        blocks: how many of them are passed over; where a strategy trains in phases, fewer in a later one.
        limit: bytes kept in memory; what is beyond lies in files, which the operating system maps into memory.
        folder: of these files.
        rows_computed: sequences computed.
        rows_reused: sequences passed over.
        nbytes: bytes kept, in memory and in files.
    """

    blocks: int
    limit: int
    folder: Path
    rows_computed: int = 0
    rows_reused: int = 0
    nbytes: int = 0
    _states: dict[tuple, torch.Tensor] = field(default_factory=dict, repr=False)
    _weights: dict[int, torch.Tensor] = field(default_factory=dict, repr=False)
    _files: int = 0

    def __str__(self) -> str:
        blocks = "1 block" if self.blocks == 1 else f"{self.blocks} blocks"
        return (
            f"{blocks} computed for {self.rows_computed:,} sequences and passed over for "
            f"{self.rows_reused:,}; {in_units(self.nbytes)} kept"
        )

    def forget(self) -> None:
        """Drop all that is kept."""
        self._states.clear()
        self.nbytes = 0

    def come_down_to(self, blocks: int) -> None:
        """Pass over fewer blocks than before, and drop what came out of more.

        Args:
            blocks: how many from now on.
        """
        for key in [key for key in self._states if key[0] > blocks]:
            self.nbytes -= self._states.pop(key).nbytes
        self.blocks = blocks

    def keep(self, key: tuple, states: torch.Tensor) -> None:
        """Keep what comes out for a sequence.

        Args:
            key: how many blocks they have gone through, the type of the arithmetic, and the tokens.
            states: hidden states, shape (tokens, width).

        Raises:
            OSError: where they belong on the disk and it is full; nothing else is lost.
        """
        kept = states.to("cpu", copy=True)
        if self.nbytes + kept.nbytes > self.limit:
            self._files += 1
            kept = _in_a_file(kept, self.folder / f"{self._files}.states")
        self.nbytes += kept.nbytes
        self._states[key] = kept


def _in_a_file(states: torch.Tensor, path: Path) -> torch.Tensor:
    """A copy in a file, mapped into memory. Its place is taken first: a full disk would end the process later."""
    path.unlink(missing_ok=True)  # of weights that have changed since
    try:
        with path.open("wb") as file:
            _take_place(file, states.nbytes)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise OSError(
            error.errno,
            f"no room for {in_units(states.nbytes)} of the frozen prefix in {path.parent} ({error.strerror}): give "
            "cached_prefix a folder= on another disk, or a larger limit= of memory",
        ) from error
    mapped = torch.from_file(str(path), shared=True, size=states.numel(), dtype=states.dtype)
    return mapped.view(states.shape).copy_(states)


def _take_place(file, size: int) -> None:
    """Make the disk hold `size` bytes for an empty file, not only promise them."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)  # the C library writes zeros where a file system has no such call
    else:
        file.write(bytes(size))
