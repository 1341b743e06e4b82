"""Prove the window of versions: an environment at each end of it, with the tests of numbers and every lesson run there.

`make test-versions` builds them with uv below `.versions/`, one after the other, and writes `tests/versions.md`. What
was run already is not run again until its folder is deleted. A Python that uv does not find is a row that says so.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".versions"
TABLE = ROOT / "tests" / "versions.md"
PYTHONS = ("3.11", "3.13")
# Each end of the window, as uv is told to resolve it. Colab's versions are those of August 2026.
ENDS = {
    "lowest": ("--resolution", "lowest-direct"),
    "colab": ("torch==2.11.0", "transformers==5.15.0", "peft==0.20.0", "ipywidgets==7.7.1", "psutil==5.9.5"),
    "newest": ("--upgrade",),
}
TOOLS = ("pytest", "pytest-xdist", "nbval", "hypothesis")
TESTS = tuple(
    f"tests/tlkit/{name}.py"
    for name in (
        "core/test_numerics",
        "core/test_strategies",
        "core/test_steps",
        "core/test_training_loop",
        "core/test_qlora",
        "core/test_models",
        "core/test_examples",
        "core/test_classifiers",
        "core/test_conversations",
        "core/test_generation",
        "core/test_fetching",
        "fitting/test_estimate",
        "evidence/test_statistics",
    )
)
SHOWN = ("torch", "transformers", "peft", "trl", "datasets", "scikit-learn", "accelerate", "pandas", "numpy")
WORKERS = ("-n", "logical", "--maxprocesses", "4", "--dist", "loadfile")


@dataclass(frozen=True)
class Outcome:
    """What came of one environment: the versions in it, and how many tests and lesson cells passed."""

    end: str
    python: str
    versions: dict[str, str] = field(default_factory=dict)
    tests: str = "not run"
    lessons: str = "not run"
    failed: tuple[str, ...] = ()
    date: str = ""


def main() -> int:
    """Build, run and record every environment; exit 1 where anything failed in one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pythons", nargs="+", default=PYTHONS, help="versions or paths of interpreters")
    parser.add_argument("--ends", nargs="+", default=list(ENDS), choices=ENDS)
    options = parser.parse_args()
    for end in options.ends:
        for python in options.pythons:
            kept = FOLDER / f"{end}-{Path(python).name}" / "outcome.json"
            if not kept.is_file():
                outcome = tried(end, python, kept.parent)
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(asdict(outcome), indent=1), encoding="utf-8")
            write_table()
    outcomes = recorded()
    return 1 if any(outcome.failed for outcome in outcomes) else 0


def tried(end: str, python: str, folder: Path) -> Outcome:
    """The outcome of one environment, which is built first."""
    print(f"{end}, Python {python}: building {folder}", flush=True)
    # With pip, as everywhere but in an environment of uv's own: models that come in a package are fetched by it.
    options = ("--quiet", "--clear", "--seed", "--no-python-downloads")
    here = uv("venv", *options, "--python", python, str(folder))
    if here.returncode:
        return Outcome(end, python, tests=f"no such Python here: {here.stderr.strip().splitlines()[-1]}")
    interpreter = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    for wanted in (("-e", ".[lab,qlora,serve]", *ENDS[end]), TOOLS):
        done = uv("pip", "install", "--quiet", "--python", interpreter, *wanted)
        if done.returncode:
            return Outcome(end, python, tests="could not be installed", failed=(done.stderr.strip(),), date=today())
    listed = json.loads(uv("pip", "list", "--python", interpreter, "--format", "json").stdout)
    versions = {package["name"].lower(): package["version"] for package in listed}
    notebooks = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "notebooks").glob("[0-9A]*.ipynb"))]
    tests, failed_tests = run_tests(interpreter, folder / "tests.xml", *TESTS)
    # Lax: each cell has to run and each claim to hold; what it prints may differ in its last digits.
    lessons, failed_cells = run_tests(interpreter, folder / "lessons.xml", "--nbval-lax", *notebooks)
    shown = {name: versions.get(name, "") for name in SHOWN}
    return Outcome(end, python, shown, tests, lessons, (*failed_tests, *failed_cells), today())


def uv(*arguments: str) -> subprocess.CompletedProcess:
    """Run uv, which comes with the extra `test`."""
    command = [sys.executable, "-m", "uv", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def run_tests(interpreter: str, report: Path, *what: str) -> tuple[str, tuple[str, ...]]:
    """Run pytest there; returns the counts in words, and what failed."""
    command = [interpreter, "-m", "pytest", "-q", *WORKERS, f"--junit-xml={report}", *what]
    # Notebooks start `python3`, which has to be the environment's.
    path = os.pathsep.join([str(Path(interpreter).parent), os.environ["PATH"]])
    with open(report.with_suffix(".log"), "w", encoding="utf-8") as log:
        subprocess.run(command, cwd=ROOT, env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}, stdout=log)
    if not report.is_file():
        return "pytest ended early", (f"{report.stem}: see {report.with_suffix('.log').relative_to(ROOT)}",)
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    counts = f"{len(cases) - len(failed) - skipped} passed, {len(failed)} failed, {skipped} skipped"
    return counts, tuple(f"{case.get('classname')}: {case.get('name')}" for case in failed)


def recorded() -> list[Outcome]:
    """The outcomes that are there, in the order of the window."""
    found = [Outcome(**json.loads(path.read_text(encoding="utf-8"))) for path in FOLDER.glob("*/outcome.json")]
    return sorted(found, key=lambda outcome: (list(ENDS).index(outcome.end), outcome.python))


def written() -> dict[tuple[str, str], dict[str, str]]:
    """The rows of `tests/versions.md`, by end and Python."""
    lines = TABLE.read_text(encoding="utf-8").splitlines() if TABLE.is_file() else []
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    rows = [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]
    return {(row["end"], row["Python"]): row for row in rows}


def write_table() -> None:
    """Write every outcome into `tests/versions.md`; a row of an environment that is not here stays as it was."""
    outcomes, rows = recorded(), written()
    for outcome in outcomes:
        counts = {"tests": outcome.tests, "lesson cells": outcome.lessons, "date": outcome.date}
        rows[outcome.end, outcome.python] = {"end": outcome.end, "Python": outcome.python} | outcome.versions | counts
    ordered = [rows[key] for key in sorted(rows, key=lambda key: (list(ENDS).index(key[0]), key[1]))]
    table = pd.DataFrame(ordered).fillna("").to_markdown(index=False, disable_numparse=True)
    failed = [f"- {o.end}, Python {o.python}: {what}" for o in outcomes for what in o.failed]
    about = (
        "# The window of versions\n\n"
        "Written by `make test-versions` (`tests/versions.py`): the lowest versions that `pyproject.toml` allows, "
        "those of Colab in August 2026, and the newest that could be had. The tests of numbers and every cell of "
        "every lesson ran in each.\n"
    )
    ending = "\n## What failed\n\n" + "\n".join(failed) + "\n" if failed else ""
    TABLE.write_text(f"{about}\n{table}\n{ending}", encoding="utf-8")


def today() -> str:
    """The date, as rows carry it."""
    return datetime.date.today().isoformat()


if __name__ == "__main__":
    sys.exit(main())
