"""Is everything here? Each check looks at one thing that a lesson needs, and knows what to do where it is missing."""

import hashlib
import importlib.metadata as metadata
import shutil
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from tlkit.settings import DATA

ROOT = Path(__file__).resolve().parents[1]
INSTALL = 'python -m pip install -c constraints.txt -e ".[test]", in the folder of this repository'
MEND_DATA = "git checkout -- data" if (ROOT / ".git").exists() else "install tlkit anew"
SHOWN = ("torch", "transformers", "peft")  # on which the figures depend
REAL_MODEL = "smollm2-135m-instruct"
LEAST_MEMORY, LEAST_DISK = 2e9, 1e9  # bytes: what the lessons take at most, and what a download of a model would


@dataclass(frozen=True)
class Finding:
    """What one check found: `status` is OK, WARN (lessons run, but …) or FAIL; `fix` says what to do."""

    check: str
    status: str
    found: str
    fix: str = ""

    def __str__(self) -> str:
        return f"[{self.status}] {self.check}: {self.found}" + (f". To mend it: {self.fix}" if self.fix else "")


def examine() -> list[Finding]:
    """Make every check of `CHECKS`, in order.

    Returns:
        What each found; one that breaks is a FAIL, and the others go on.
    """
    findings = []
    for name, (check, fix) in CHECKS.items():
        try:
            findings.append(check(name))
        except (RuntimeError, ValueError, OSError, ImportError, KeyError) as error:
            findings.append(Finding(name, "FAIL", f"{type(error).__name__}: {error}", fix))
    return findings


def python(name: str) -> Finding:
    """New enough for this package."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036 - in a clone that was never installed, nobody else has refused it
        return Finding(name, "FAIL", version, "install Python 3.11 or newer, and make a new environment with it")
    return Finding(name, "OK", version)


def packages(name: str) -> Finding:
    """All that tlkit needs is installed, in versions that it was made for."""
    missing, outside = [], []
    for requirement in map(Requirement, needed()):
        try:
            version = metadata.version(requirement.name).split("+")[0]
        except metadata.PackageNotFoundError:
            missing.append(requirement.name)
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            outside.append(f"{requirement.name} {version} is outside {requirement.specifier}")
    if missing:
        return Finding(name, "FAIL", f"missing: {', '.join(missing)}", INSTALL)
    if outside:
        return Finding(name, "WARN", "; ".join(outside), INSTALL)
    return Finding(name, "OK", ", ".join(f"{package} {metadata.version(package)}" for package in SHOWN))


def needed() -> list[str]:
    """The requirements of tlkit: of the repository, or of the installed package."""
    project = ROOT / "pyproject.toml"
    if project.is_file():
        return tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]
    return [line for line in metadata.requires("tlkit") or () if "extra ==" not in line]


def kernel(name: str) -> Finding:
    """Notebooks run in this Python, not in another one."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        runs = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        return Finding(name, "FAIL", "no kernel named python3", "python -m ipykernel install --sys-prefix")
    if Path(runs).is_absolute() and Path(runs) != Path(sys.executable):
        return Finding(name, "WARN", f"notebooks run {runs}", "python -m ipykernel install --sys-prefix")
    return Finding(name, "OK", "python3, this environment's")


def device(name: str) -> Finding:
    """Where training will run, and what was found broken on the way there."""
    from tlkit.devices import probe

    found = probe()
    words = f"{found.kind}: {found.name}, {found.cores} cores"
    if found.notes:
        return Finding(name, "WARN", f"{words}; {'; '.join(found.notes)}", "update the driver, or set TLKIT_DEVICE=cpu")
    return Finding(name, "OK", words)


def memory(name: str) -> Finding:
    """The computer's own, which the lessons need."""
    from tlkit.devices import probe

    here = probe("cpu")
    words = f"{here.free_memory / 1e9:.1f} of {here.total_memory / 1e9:.1f} GB free"
    if here.free_memory < LEAST_MEMORY:
        return Finding(name, "WARN", words, "close other programs; the lessons take up to 2 GB")
    return Finding(name, "OK", words)


def disk(name: str) -> Finding:
    """Room for results, and for a model that is fetched."""
    free = shutil.disk_usage(ROOT).free
    words = f"{free / 1e9:.1f} GB free"
    return Finding(name, "OK", words) if free >= LEAST_DISK else Finding(name, "WARN", words, "make 1 GB of room")


def data(name: str) -> Finding:
    """Every file is the one that the lessons were recorded with."""
    lines = (DATA / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    changed = []
    for line in lines:
        digest, file = line.split(maxsplit=1)
        path = DATA / file
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            changed.append(file)
    if changed:
        return Finding(name, "FAIL", f"missing or altered: {', '.join(changed)}", MEND_DATA)
    return Finding(name, "OK", f"{len(lines)} files, hashes as recorded")


def model(name: str) -> Finding:
    """The bundled model loads, and every weight arrives."""
    from tlkit.models import load_model

    return Finding(name, "OK", str(load_model("tiny")))


def fetched_models(name: str) -> Finding:
    """Which models have been fetched, and which weights these are; no lesson needs one to run."""
    from tlkit.models.fetched import all_fetched, fetched_folder

    here = all_fetched()
    for model in here:
        fetched_folder(model.name)  # raises where it was removed since
        if damaged := model.damaged_files():
            raise ValueError(f"{damaged[0]} is damaged: `python -m tlkit fetch {model.name}` mends it")
    if not here:
        return Finding(name, "OK", f"none on this machine (optional): `python -m tlkit fetch {REAL_MODEL}` brings one")
    return Finding(name, "OK", "; ".join(map(str, here)))


def corpus(name: str) -> Finding:
    """The passages about Rust can be read."""
    from tlkit.corpus import load_corpus

    return Finding(name, "OK", f"{len(load_corpus('rust').train)} training passages")


def widgets(name: str) -> Finding:
    """Python's half of the widgets is installed with the packages; this is the browser's half."""
    from jupyter_core.paths import jupyter_path

    folders = [Path(place) / "@jupyter-widgets" / "jupyterlab-manager" for place in jupyter_path("labextensions")]
    if not any(folder.is_dir() for folder in folders):
        fix = "python -m pip install jupyterlab_widgets, then start JupyterLab anew"
        return Finding(name, "WARN", "panels and progress bars will show as text", fix)
    return Finding(name, "OK", f"jupyterlab_widgets {metadata.version('jupyterlab_widgets')}")


def extras(name: str) -> Finding:
    """What single lessons need: without it, they say so and go on."""
    wanted = {
        "bitsandbytes": "qlora",
        "voila": "live demo",
        "jupyterlab": "JupyterLab (any Jupyter opens the lessons)",
    }
    missing = {}
    for package, use in wanted.items():
        try:
            metadata.version(package)
        except metadata.PackageNotFoundError:
            missing[package] = use
    if missing:
        words = ", ".join(f"{package} is missing: no {use}" for package, use in missing.items())
        return Finding(name, "WARN", words, f"python -m pip install {' '.join(missing)}")
    return Finding(name, "OK", ", ".join(wanted))


CHECKS: dict[str, tuple[Callable[[str], Finding], str]] = {
    "python": (python, ""),
    "packages": (packages, INSTALL),
    "kernel": (kernel, INSTALL),
    "device": (device, "unset TLKIT_DEVICE, or set it to cpu"),
    "memory": (memory, ""),
    "disk": (disk, ""),
    "data": (data, MEND_DATA),
    "bundled model": (model, MEND_DATA),
    "fetched models": (fetched_models, ""),
    "rust corpus": (corpus, MEND_DATA),
    "widgets": (widgets, INSTALL),
    "extras": (extras, ""),
}
