"""Checks of an installation; each imports what it looks at."""

import hashlib
import importlib.metadata as metadata
import sys
from pathlib import Path

from packaging.requirements import Requirement

from tlkit.commands import Outcome
from tlkit.commands.options import DoctorOptions
from tlkit.settings import DATA, setup

ROOT = Path(__file__).resolve().parents[2]
INSTALL = 'python -m pip install -c constraints.txt -e ".[test]", in the repository'
KERNEL = "python -m ipykernel install --sys-prefix"
MEND_DATA = "git checkout -- data" if (ROOT / ".git").exists() else "install tlkit anew"
LEAST_MEMORY = 2e9  # bytes: most that lessons take
Finding = tuple[str, str, str]  # OK, WARN (lessons run) or FAIL; what was found; how to mend it


def doctor(options: DoctorOptions) -> Outcome:
    """Make every check; one that breaks is a FAIL."""
    rows, lines = [], []
    for name, check in CHECKS.items():
        try:
            status, words, fix = check()
        except Exception as error:
            status, words, fix = "FAIL", f"{type(error).__name__}: {error}", INSTALL
        rows.append({"check": name, "status": status, "found": words, "fix": fix})
        lines.append(f"[{status}] {name}: {words}" + (f". To mend it: {fix}" if fix else ""))
    return Outcome(rows, "\n".join(lines), int(any(row["status"] == "FAIL" for row in rows)))


def packages() -> Finding:
    """All that tlkit needs is installed, in versions that it was made for."""
    missing, outside = [], []
    for requirement in (Requirement(line) for line in metadata.requires("tlkit") if "extra ==" not in line):
        try:
            installed = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            missing.append(f"{requirement.name} is missing")
        else:
            if not requirement.specifier.contains(installed.split("+")[0], prereleases=True):
                outside.append(f"{requirement.name} {installed} is outside {requirement.specifier}")
    if missing or outside:
        return "FAIL" if missing else "WARN", "; ".join(missing + outside), INSTALL
    return "OK", ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "peft")), ""


def kernel() -> Finding:
    """Notebooks run in this Python."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        runs = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        return "FAIL", "no kernel named python3", KERNEL
    if Path(runs).is_absolute() and Path(runs) != Path(sys.executable):
        return "WARN", f"notebooks run {runs}", KERNEL
    return "OK", "python3, this environment's", ""


def device() -> Finding:
    """Where training runs, what is broken there, and the computer's own memory."""
    from tlkit.devices import probe

    here, host = probe(), probe("cpu")
    memory = f"{host.free_memory / 1e9:.1f} of {host.total_memory / 1e9:.1f} GB of memory free"
    words = f"{here.kind}: {here.name}, {here.cores} cores, {memory}"
    if here.notes:
        return "WARN", f"{words}; {'; '.join(here.notes)}", "update the driver, or set TLKIT_DEVICE=cpu"
    if host.free_memory < LEAST_MEMORY:
        return "WARN", words, "close other programs: the lessons take up to 2 GB"
    return "OK", words, ""


def data() -> Finding:
    """Every file is the one that lessons were recorded with."""
    lines = [line.split(maxsplit=1) for line in (DATA / "SHA256SUMS").read_text(encoding="utf-8").splitlines()]
    here = {name: DATA / name for _, name in lines if (DATA / name).is_file()}
    hashes = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in here.items()}
    if changed := [name for recorded, name in lines if hashes.get(name) != recorded]:
        return "FAIL", f"missing or altered: {', '.join(changed)}", MEND_DATA
    return "OK", f"{len(lines)} files, hashes as recorded", ""


def model() -> Finding:
    """The bundled model loads, with every weight."""
    from tlkit.models import load_model

    setup()
    return "OK", str(load_model("tiny")), ""


CHECKS = {"packages": packages, "kernel": kernel, "device": device, "data": data, "bundled model": model}
