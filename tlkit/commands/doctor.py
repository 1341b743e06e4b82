"""The command that says what is here, what is missing, and how to mend it: each check looks at one thing."""

import hashlib
import importlib.metadata as metadata
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement

from tlkit.commands.outcome import Outcome
from tlkit.settings import DATA, setup

ROOT = Path(__file__).resolve().parents[2]
INSTALL = 'python -m pip install -c constraints.txt -e ".[test]", in the folder of this repository'
KERNEL = "python -m ipykernel install --sys-prefix"
MEND_DATA = "git checkout -- data" if (ROOT / ".git").exists() else "install tlkit anew"
SHOWN = ("torch", "transformers", "peft")  # on which the figures depend
OPTIONAL = {
    "bitsandbytes": "qlora",
    "openai": "lesson 19",
    "fastapi": "lesson 19",
    "uvicorn": "lesson 19",
    "voila": "live demo",
    "jupyterlab": "JupyterLab (any Jupyter opens the lessons)",
    "jupyterlab_widgets": "panels (they will show as text)",
}
LEAST_MEMORY, LEAST_DISK = 2e9, 1e9  # bytes: what the lessons take at most, and what a download of a model would
Found = tuple[str, str] | tuple[str, str, str]  # status, what was found, how to mend it


@dataclass(frozen=True)
class Finding:
    """What one check found: `status` is OK, WARN (lessons run, but …) or FAIL; `fix` says what to do."""

    check: str
    status: str
    found: str
    fix: str = ""

    def __str__(self) -> str:
        return f"[{self.status}] {self.check}: {self.found}" + (f". To mend it: {self.fix}" if self.fix else "")


def doctor() -> Outcome:
    """Say what is here, what works, and how to mend what does not; exit 1 where a lesson would fail."""
    setup()
    findings = examine()
    code = 1 if any(finding.status == "FAIL" for finding in findings) else 0
    return Outcome(findings, "\n".join(map(str, findings)), code)


def examine() -> list[Finding]:
    """Make every check of `CHECKS`, in order.

    Returns:
        What each found; one that breaks is a FAIL, and the others go on.
    """
    findings = []
    for name, (check, fix) in CHECKS.items():
        try:
            findings.append(Finding(name, *check()))
        except (RuntimeError, ValueError, OSError, ImportError, KeyError) as error:
            findings.append(Finding(name, "FAIL", f"{type(error).__name__}: {error}", fix))
    return findings


def packages() -> Found:
    """All that tlkit needs is installed, in versions that it was made for."""
    missing, outside = [], []
    for requirement in (Requirement(line) for line in metadata.requires("tlkit") if "extra ==" not in line):
        try:
            version = metadata.version(requirement.name).split("+")[0]
        except metadata.PackageNotFoundError:
            missing.append(requirement.name)
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            outside.append(f"{requirement.name} {version} is outside {requirement.specifier}")
    if missing:
        return "FAIL", f"missing: {', '.join(missing)}", INSTALL
    if outside:
        return "WARN", "; ".join(outside), INSTALL
    return "OK", ", ".join(f"{package} {metadata.version(package)}" for package in SHOWN)


def kernel() -> Found:
    """Notebooks run in this Python, not in another one."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        runs = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        return "FAIL", "no kernel named python3", KERNEL
    if Path(runs).is_absolute() and Path(runs) != Path(sys.executable):
        return "WARN", f"notebooks run {runs}", KERNEL
    return "OK", "python3, this environment's"


def device() -> Found:
    """Where training will run, and what was found broken on the way there."""
    from tlkit.devices import probe

    here = probe()
    words = f"{here.kind}: {here.name}, {here.cores} cores"
    if here.notes:
        return "WARN", f"{words}; {'; '.join(here.notes)}", "update the driver, or set TLKIT_DEVICE=cpu"
    return "OK", words


def room() -> Found:
    """The computer's own memory, which the lessons need, and a disk for results and for a model that is fetched."""
    from tlkit.devices import probe

    here, disk = probe("cpu"), shutil.disk_usage(ROOT).free
    words = (
        f"{here.free_memory / 1e9:.1f} of {here.total_memory / 1e9:.1f} GB of memory, {disk / 1e9:.1f} GB of disk free"
    )
    if here.free_memory < LEAST_MEMORY or disk < LEAST_DISK:
        return "WARN", words, "close other programs and make room: the lessons take up to 2 GB, and 1 GB on the disk"
    return "OK", words


def data() -> Found:
    """Every file is the one that the lessons were recorded with."""
    lines = (DATA / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    recorded = dict(reversed(line.split(maxsplit=1)) for line in lines)
    here = {file: (DATA / file).read_bytes() for file in recorded if (DATA / file).is_file()}
    changed = [
        file for file in recorded if file not in here or hashlib.sha256(here[file]).hexdigest() != recorded[file]
    ]
    if changed:
        return "FAIL", f"missing or altered: {', '.join(changed)}", MEND_DATA
    return "OK", f"{len(lines)} files, hashes as recorded"


def model() -> Found:
    """The bundled model loads, and every weight arrives."""
    from tlkit.models import load_model

    return "OK", str(load_model("tiny"))


def fetched_models() -> Found:
    """Which models have been fetched, and which weights these are; no lesson needs one to run."""
    from tlkit.models.fetched import all_fetched, fetched_folder

    here = all_fetched()
    for one in here:
        fetched_folder(one.name)  # raises where it was removed since
        if damaged := one.damaged_files():
            raise ValueError(f"{damaged[0]} is damaged: `python -m tlkit fetch {one.name}` mends it")
    if not here:
        return "OK", "none on this machine (optional): `python -m tlkit fetch smollm2-135m-instruct` brings one"
    return "OK", "; ".join(map(str, here))


def extras() -> Found:
    """What single lessons need: without it, they say so and go on."""
    missing = {package: use for package, use in OPTIONAL.items() if find_spec(package) is None}
    if missing:
        words = ", ".join(f"{package} is missing: no {use}" for package, use in missing.items())
        return "WARN", words, f"python -m pip install {' '.join(missing)}"
    return "OK", ", ".join(OPTIONAL)


CHECKS: dict[str, tuple[Callable[[], Found], str]] = {
    "packages": (packages, INSTALL),
    "kernel": (kernel, INSTALL),
    "device": (device, "unset TLKIT_DEVICE, or set it to cpu"),
    "room": (room, ""),
    "data": (data, MEND_DATA),
    "bundled model": (model, MEND_DATA),
    "fetched models": (fetched_models, ""),
    "extras": (extras, ""),
}
