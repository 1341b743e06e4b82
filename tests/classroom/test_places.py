"""The links are those of the reader's own copy, and a lesson for Colab installs the workbook once, beside torch."""

import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml

from tlkit.classroom.notebooks import lessons
from tlkit.classroom.places import Address, address_of, write_for_colab
from tlkit.cli import COMMANDS, main
from tlkit.commands.parsing import parser_of

ROOT = Path(__file__).resolve().parents[2]
NEEDED = {"train": ["--strategy", "lora", "--output", "out"], "compare": ["--output", "out"]}
HERE = Address("github.com", "reader/course", "main")


def copy_of(folder, url: str | None, branch: str = "main"):
    """A repository with one commit and, perhaps, an origin."""
    for arguments in (
        ["init", "-q", "-b", branch],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first"],
        *([["remote", "add", "origin", url]] if url else []),
    ):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize(
    ("url", "host", "path"),
    [
        ("https://github.com/reader/course.git", "github.com", "reader/course"),
        ("https://github.com/reader/course", "github.com", "reader/course"),
        ("https://reader:secret@github.com/reader/course.git", "github.com", "reader/course"),
        ("git@github.com:reader/course.git", "github.com", "reader/course"),
        ("ssh://git@git.school.example:2222/group/sub/course.git", "git.school.example", "group/sub/course"),
        ("https://gitlab.com/group/sub/course/", "gitlab.com", "group/sub/course"),
    ],
)
def test_the_address_is_read_from_git(url, host, path, tmp_path):
    found = address_of(copy_of(tmp_path, url, "next/term"))
    assert found == Address(host, path, "next/term")
    assert "secret" not in str(found) and all("secret" not in link for link in found.links().values())
    assert set(found.links()) >= {"Binder"} and ("Colab" in found.links()) == (host == "github.com")


def test_without_a_branch_the_commit_is_named(tmp_path):
    copy_of(tmp_path, "https://github.com/reader/course")
    subprocess.run(["git", "checkout", "-q", "--detach"], cwd=tmp_path, check=True)
    assert len(address_of(tmp_path).revision) == 40


@pytest.mark.parametrize("url", [None, "/srv/git/course", "file:///srv/course", "../course"])
def test_a_copy_that_others_cannot_open_says_so(url, tmp_path):
    with pytest.raises(ValueError, match="has no address|others cannot open"):
        address_of(copy_of(tmp_path, url))


def test_a_folder_that_is_no_copy_says_so(tmp_path):
    with pytest.raises(ValueError, match="has no address: expected a clone"):
        address_of(tmp_path)


def test_each_place_gets_the_index_of_this_branch():
    found = Address("github.com", "reader/course", "next/term").links()
    assert found["Colab"].endswith("/github/reader/course/blob/next/term/notebooks/00_index.ipynb")
    assert "/gh/reader/course/next%2Fterm?urlpath=lab/tree/notebooks/00_index.ipynb" in found["Binder"]
    other = Address("git.school.example", "group/course", "main").links()
    assert "/git/https%3A%2F%2Fgit.school.example%2Fgroup%2Fcourse.git/main" in other["Binder"]
    assert "gl/group%2Fcourse/main" in Address("gitlab.com", "group/course", "main").links()["Binder"]


@pytest.fixture(scope="module")
def for_colab(tmp_path_factory):
    return write_for_colab(tmp_path_factory.mktemp("colab"), HERE)


def test_every_lesson_is_written_without_outputs_and_with_links_that_work_elsewhere(for_colab):
    assert [path.stem for path in for_colab] == [lesson.stem for lesson in lessons()]
    for path in for_colab:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        assert notebook.cells[0].id == "install" and HERE.clone in notebook.cells[0].source
        assert not any(cell.get("outputs") for cell in notebook.cells)
        text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        assert "](0" not in text and f"]({HERE.web}/blob/main/notebooks/0" in text and "](https://https" not in text


@pytest.mark.parametrize("there", [True, False])
def test_the_first_cell_installs_only_where_the_workbook_is_not(there, for_colab, monkeypatch, capsys):
    source, asked = nbformat.read(for_colab[0], as_version=4).cells[0].source, []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if there else None)
    monkeypatch.setattr(subprocess, "run", lambda command, check: asked.append(command))
    exec(compile(source, "first cell", "exec"), {})
    expected = [sys.executable, "-m", "pip", "install", "--quiet", f"tlkit[qlora] @ git+{HERE.clone}@main"]
    assert asked == ([] if there else [expected])
    assert ("Installed beside torch" in capsys.readouterr().out) == (not there)


def test_where_torch_was_replaced_the_first_cell_says_what_to_do(for_colab, monkeypatch):
    source, versions = nbformat.read(for_colab[0], as_version=4).cells[0].source, iter(["2.11.0", "2.13.0"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: next(versions))
    monkeypatch.setattr(subprocess, "run", lambda command, check: None)
    with pytest.raises(AssertionError, match="Restart session"):
        exec(compile(source, "first cell", "exec"), {})


def test_the_command_prints_links_or_what_is_missing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("tlkit.classroom.places.address_of", lambda folder: HERE)
    assert main(["links", "--output", str(tmp_path / "colab")]) == 0
    said = capsys.readouterr().out
    assert "Colab: https://colab" in said and "lessons that install themselves are in" in said

    def missing(folder):
        raise ValueError("it has no address")

    monkeypatch.setattr("tlkit.classroom.places.address_of", missing)
    assert main(["links", "--output", str(tmp_path / "other")]) == 2
    assert "no address" in capsys.readouterr().err and not (tmp_path / "other").exists()


def test_the_files_for_other_places_are_valid_and_name_commands_that_exist():
    """None of these places is here: this is all that can be known of them without one."""
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    assert "make " in container["postCreateCommand"] and ".venv/installed" in container["postCreateCommand"]
    hub = yaml.safe_load((ROOT / "places" / "jupyterhub.yaml").read_text(encoding="utf-8"))
    assert hub["singleuser"]["defaultUrl"].endswith("00_index.ipynb")
    for name, command in (("train", "train"), ("compare", "compare")):
        script = ROOT / "places" / f"{name}.sbatch"
        subprocess.run(["bash", "-n", str(script)], check=True)
        words = script.read_text(encoding="utf-8").replace("\\\n", " ").split(" -m tlkit ")[-1].split()
        assert words[0] == command and parser_of(COMMANDS).parse_args([*words[:-1], *NEEDED[command]])


def test_the_image_is_not_roots_and_keeps_the_token():
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    user = next(number for number, line in enumerate(lines) if line == "USER student")
    assert any(line.startswith("CMD ") for line in lines[user:]) and not any("USER root" in line for line in lines)
    told = " ".join(lines)
    assert not any(word in told for word in ("ServerApp.token", "--NotebookApp", "allow-root", "password"))
    for line in lines:  # what is copied has to be there
        if line.startswith("COPY ") and line != "COPY . .":
            assert all((ROOT / name).exists() for name in line.split()[1:-1]), line
