"""Prove the window of versions: an environment at each end of it, with the tests of numbers and every lesson run there.

`make test-versions` builds them with uv below `.versions/`, one after the other, and writes a row for each into
`tests/versions.md`; rows of others stay as they were. A Python that uv does not find is a row that says so.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "versions.md"
PYTHONS = ("3.11", "3.13")
# Each end of the window, as uv is told to resolve it. Colab's versions are those of August 2026.
ENDS = {
    "lowest": ("--resolution", "lowest-direct"),
    "colab": ("torch==2.11.0", "transformers==5.15.0", "peft==0.20.0", "ipywidgets==7.7.1", "psutil==5.9.5"),
    "newest": ("--upgrade",),
}
TOOLS = ("pytest", "pytest-xdist", "nbval", "hypothesis")
CORE = "numerics strategies steps training_loop qlora models examples classifiers conversations generation fetching"
TESTS = [f"tests/tlkit/core/test_{name}.py" for name in CORE.split()]
TESTS += ["tests/tlkit/fitting/test_estimate.py", "tests/tlkit/evidence/test_statistics.py"]
SHOWN = ("torch", "transformers", "peft", "trl", "datasets", "scikit-learn", "accelerate", "pandas", "numpy")
WORKERS = ("-n", "logical", "--maxprocesses", "4", "--dist", "loadfile")
ABOUT = """# The window of versions

Written by `make test-versions` (`tests/versions.py`): the lowest versions that `pyproject.toml` allows, those of \
Colab in August 2026, and the newest that could be had. The tests of numbers and every cell of every lesson ran in each.
"""


def main() -> int:
    """Build, run and record every environment; exit 1 where anything failed in one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pythons", nargs="+", default=PYTHONS, help="versions or paths of interpreters")
    parser.add_argument("--ends", nargs="+", default=list(ENDS), choices=ENDS)
    options = parser.parse_args()
    all_passed = True
    for end in options.ends:
        for python in options.pythons:
            row, failed = tried(end, python, ROOT / ".versions" / f"{end}-{Path(python).name}")
            write({"end": end, "Python": python} | row | {"date": datetime.date.today().isoformat()})
            print("\n".join(failed), flush=True)
            all_passed = all_passed and not failed
    return 0 if all_passed else 1


def tried(end: str, python: str, folder: Path) -> tuple[dict[str, str], list[str]]:
    """A row of one environment, which is built first, and what failed in it."""
    print(f"{end}, Python {python}: building {folder}", flush=True)
    # With pip, as everywhere but in an environment of uv's own: models that come in a package are fetched by it.
    options = ("--quiet", "--clear", "--seed", "--no-python-downloads")
    here = uv("venv", *options, "--python", python, str(folder))
    if here.returncode:
        return {"tests": f"no such Python here: {here.stderr.strip().splitlines()[-1]}"}, []
    interpreter = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    for wanted in (("-e", ".[lab,qlora,serve]", *ENDS[end]), TOOLS):
        done = uv("pip", "install", "--quiet", "--python", interpreter, *wanted)
        if done.returncode:
            return {"tests": "could not be installed"}, [done.stderr.strip()]
    listed = json.loads(uv("pip", "list", "--python", interpreter, "--format", "json").stdout)
    versions = {package["name"].lower(): package["version"] for package in listed}
    notebooks = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "notebooks").glob("[0-9A]*.ipynb"))]
    tests, failed_tests = run_tests(interpreter, folder / "tests.xml", *TESTS)
    # Lax: each cell has to run and each claim to hold; what it prints may differ in its last digits.
    lessons, failed_cells = run_tests(interpreter, folder / "lessons.xml", "--nbval-lax", *notebooks)
    row = {name: versions.get(name, "") for name in SHOWN} | {"tests": tests, "lesson cells": lessons}
    return row, failed_tests + failed_cells


def uv(*arguments: str) -> subprocess.CompletedProcess:
    """Run uv, which comes with the extra `test`."""
    command = [sys.executable, "-m", "uv", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def run_tests(interpreter: str, report: Path, *what: str) -> tuple[str, list[str]]:
    """Run pytest there; returns the counts in words, and what failed."""
    command = [interpreter, "-m", "pytest", "-q", *WORKERS, f"--junit-xml={report}", *what]
    # Notebooks start `python3`, which has to be the environment's.
    path = os.pathsep.join([str(Path(interpreter).parent), os.environ["PATH"]])
    with open(report.with_suffix(".log"), "w", encoding="utf-8") as log:
        subprocess.run(command, cwd=ROOT, env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}, stdout=log)
    if not report.is_file():
        return "pytest ended early", [f"{report.stem}: see {report.with_suffix('.log').relative_to(ROOT)}"]
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    counts = f"{len(cases) - len(failed) - skipped} passed, {len(failed)} failed, {skipped} skipped"
    return counts, [f"{case.get('classname')}: {case.get('name')}" for case in failed]


def write(row: dict[str, str]) -> None:
    """Put a row into `tests/versions.md`, in place of the one of the same environment."""
    lines = [line.strip("|").split("|") for line in TABLE.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    columns, _, *cells = [[cell.strip() for cell in line] for line in lines]
    rows = {(of["end"], of["Python"]): of for of in [dict(zip(columns, one, strict=True)) for one in cells] + [row]}
    ordered = [rows[key] for key in sorted(rows, key=lambda key: (list(ENDS).index(key[0]), key[1]))]
    table = pd.DataFrame(ordered).fillna("").to_markdown(index=False, disable_numparse=True)
    TABLE.write_text(f"{ABOUT}\n{table}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
