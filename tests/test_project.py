"""The files that install the project agree with one another, and the command line behaves."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from tlkit.cli import main
from tlkit.strategies import STRATEGIES

ROOT = Path(__file__).resolve().parent.parent
KEPT = {"tlkit", "data", "pyproject.toml", "README.md", "LICENSE"}


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def requirements(extra: str) -> set[str]:
    """The packages of an extra, those of the extras that it names included."""
    found = set()
    for line in project()["optional-dependencies"][extra]:
        if named := re.fullmatch(r"tlkit\[([\w,]+)\]", line):
            found |= set().union(*(requirements(other) for other in named[1].split(",")))
        else:
            found.add(line)
    return found


def test_environment_installs_the_package_with_the_extras_the_makefile_installs():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    by_pip = next(part["pip"] for part in environment["dependencies"] if isinstance(part, dict))
    assert by_pip[-1] == "-e .[test]" and "-c constraints.txt" in by_pip
    assert any("whl/cpu" in line for line in by_pip), "it says where a small torch comes from"
    assert '-e ".[test]"' in (ROOT / "Makefile").read_text()


def test_every_dependency_is_pinned_within_its_bounds():
    lines = (ROOT / "constraints.txt").read_text().lower().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    for line in {*project()["dependencies"], *requirements("test")}:
        wanted = Requirement(line)
        assert wanted.specifier.contains(pins[wanted.name.lower()]), line


def test_students_need_no_jupyterlab_and_keep_the_torch_they_have():
    """Where the workbook is installed beside others' packages (Colab, a cluster), it must not replace their torch."""
    bounds = {Requirement(line).name: Requirement(line).specifier for line in project()["dependencies"]}
    assert not {"jupyterlab", "notebook"} & set(bounds)
    colab = {"torch": "2.11.0", "transformers": "5.15.0", "peft": "0.20.0", "ipywidgets": "7.7.1", "psutil": "5.9.5"}
    assert all(bounds[name].contains(version) for name, version in colab.items())
    assert bounds["torch"].contains("2.9.0")


def test_a_wheel_carries_what_the_package_reads(tmp_path):
    """Installed without the repository, the bundled model and the corpora are inside."""
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(ROOT, source, ignore=lambda folder, names: set(names) - KEPT if Path(folder) == ROOT else ())
    build = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(site)

    def modules(package: Path) -> set[str]:
        return {str(path.relative_to(package)) for path in package.rglob("*.py")}

    assert modules(site / "tlkit") == modules(ROOT / "tlkit"), "those that made the data stay in the repository"
    data = [path for path in (ROOT / "data").rglob("*") if path.suffix in (".jsonl", ".json", ".csv", ".yaml")]
    carried = {str(path.relative_to(ROOT / "data")) for path in data}
    inside = {str(path.relative_to(site / "tlkit" / "data")) for path in (site / "tlkit" / "data").rglob("*")}
    assert carried <= inside, "every corpus, record and setting is in the wheel"
    program, there = "from tlkit.settings import DATA; print(DATA)", os.environ | {"PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=there, capture_output=True, text=True)
    assert done.stdout.strip() == str(site / "tlkit" / "data"), done.stderr


@pytest.mark.usefixtures("registry_as_before")
def test_params_prints_the_published_counts(capsys):
    for name in STRATEGIES.keys() - {"full", "last_layers"}:  # each is applied to all 24 blocks
        del STRATEGIES[name]
    assert main(["params", "--model", "qwen2-0.5b", "--json"]) == 0
    counts = {row["strategy"]: row.get("trainable_parameters") for row in json.loads(capsys.readouterr().out)}
    assert counts["full"] == 494_032_768 and counts["last_layers"] == 29_865_088
