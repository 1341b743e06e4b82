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
    program = "from tlkit.corpus import load_corpus; from tlkit.models import BUNDLED, load_model; "
    program += "print(len(load_corpus('rust').train), load_model('tiny').tensors_loaded, BUNDLED)"
    there = os.environ | {"PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=there, capture_output=True, text=True)
    passages, tensors, folder = done.stdout.split()
    assert (passages, tensors) == ("503", "98") and folder.startswith(str(site)), done.stderr


@pytest.mark.usefixtures("registry_as_before")
def test_params_prints_the_published_counts(capsys):
    for name in STRATEGIES.keys() - {"full", "last_layers"}:  # each is applied to all 24 blocks
        del STRATEGIES[name]
    assert main(["params", "--model", "qwen2-0.5b", "--json"]) == 0
    counts = {row["strategy"]: row.get("trainable_values") for row in json.loads(capsys.readouterr().out)}
    assert counts["full"] == 494_032_768 and counts["last_layers"] == 29_865_088


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["params", "--model", "no such model"], "neither a preset nor a folder here"),
        (["evaluate", "--corpus", "nowhere.txt"], "nowhere.txt"),
        (["train", "--strategy", "adapter", "--output", "never"], "'adapter' is unknown"),
        (["compare", "--strategies", "full,adapter", "--output", "never"], "adapter"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, said, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr().err.strip()
    assert said in captured and "\n" not in captured
    assert not Path("never").exists()


def test_estimate_says_whether_it_fits(capsys):
    command = ["estimate", "--model", "tiny", "--batch-size", "4", "--sequence-length", "128"]
    assert main([*command, "--device-memory", "200MB"]) == 0
    assert "fits into 200.00 MiB" in capsys.readouterr().out
    assert main([*command, "--device-memory", "100MB", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["fits"] is False
    assert main([*command, "--device-memory", "big"]) == 2
    assert main([*command, "--dtype", "int4"]) == 2


def test_train_saves_a_model_that_loads_again(tmp_path, capsys, monkeypatch):
    from tlkit.models import load_model
    from tlkit.settings import PROFILES, Profile

    monkeypatch.setitem(PROFILES, "test", Profile("test", train_passages=12, test_passages=3, epochs=1, seeds=1))
    command = ["train", "--profile", "test", "--strategy", "last_layers", "--output", str(tmp_path / "adapted")]
    assert main([*command, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["after"]["perplexity"] < figures["before"]["perplexity"]
    assert load_model(tmp_path / "adapted").tensors_loaded == 98
