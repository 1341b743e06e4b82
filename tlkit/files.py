"""Read text, write files and lock folders, so that a run that is killed, or not alone, loses nothing."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from filelock import FileLock, Timeout


class CheckpointError(OSError):
    """A checkpoint cannot be written or read."""


def read_text(path: Path) -> str:
    """UTF-8, with `\\n` for every line end."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, or not a file of text")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 text (byte {error.start})") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ValueError(f"{path}, line {line}: a zero byte; expected text in UTF-8")
    return text


def write_atomically(path: Path, fill: Callable[[Path], object]) -> None:
    """Write a file so that a reader, and a run killed at any moment, finds all of it or nothing."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)  # of a killed run; if it is a link, never written through
    try:
        fill(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_text_atomically(path: Path, text: str) -> None:
    """In UTF-8, with the same line ends on every system."""
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8", newline="\n"))


@contextmanager
def held(path: Path, patience: float = 0) -> Iterator[None]:
    """Hold a lock of the operating system, which ends with the process; Timeout after `patience` seconds."""
    with FileLock(path, timeout=patience):
        try:
            yield
        finally:
            # While it is held, so that nobody else's is removed; Windows refuses that and removes it on release.
            with suppress(OSError):  # left behind, it locks nothing
                path.unlink()


@contextmanager
def lock_folder(folder: Path, *, patience: float = 0) -> Iterator[None]:
    """Keep every other run out of a folder, which is made if need be."""
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=folder):  # the lock may be there already, in a folder that is read-only now
                stack.enter_context(held(folder / ".tlkit.lock", patience))
        except Timeout:
            raise CheckpointError(f"{folder} is in use by another run: wait for it, or name another folder") from None
        except (OSError, NotImplementedError) as error:
            raise CheckpointError(f"nothing can be written to {folder}: {reason_of(error)}") from error
        yield


def reason_of(error: Exception) -> str:
    """What the system says, without number and path."""
    return getattr(error, "strerror", None) or str(error)
