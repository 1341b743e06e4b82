"""Copies to work in, and a server whose saving leaves nothing behind that was not changed."""

import json
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from jupyter_server.services.contents.largefilemanager import LargeFileManager
from jupytext import TextFileContentsManager
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tlkit.classroom.desk import (
    _load_jupyter_server_extension,
    copy_lessons,
    jupyterlab,
    own_places,
    save_whole,
    serving,
)
from tlkit.classroom.notebooks import FOLDER, PAIRED
from tlkit.classroom.stills import BEGINS, VIEW
from tlkit.cli import main

ANOTHER = {"name": "x", "display_name": "X"}
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.fixture
def original(tmp_path):
    """A course of one lesson."""
    folder = tmp_path / "notebooks"
    (folder / "images").mkdir(parents=True)
    for name in ("05_freeze_lower_layers.py", "05_freeze_lower_layers.ipynb", "glossary.md", "images/forgetting.png"):
        shutil.copy(FOLDER / name, folder / name)
    return folder


def test_a_copy_is_a_lesson_that_nobody_has_run_and_that_has_no_script(original, tmp_path):
    kept = {path: path.read_bytes() for path in original.rglob("*") if path.is_file()}
    (copy,) = copy_lessons(tmp_path / "mine", original)
    assert {path: path.read_bytes() for path in original.rglob("*") if path.is_file()} == kept
    notebook, lesson = nbformat.read(copy, 4), nbformat.read(original / copy.name, 4)
    nbformat.validate(notebook)
    assert [(c.id, c.source, c.metadata) for c in notebook.cells] == [
        (c.id, c.source, c.metadata) for c in lesson.cells
    ]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}, "not paired, and with this machine's Python"
    there = {str(path.relative_to(tmp_path / "mine")) for path in (tmp_path / "mine").rglob("*") if path.is_file()}
    assert there == {copy.name, "glossary.md", str(Path("images") / "forgetting.png")}


def test_a_copy_that_is_there_stays_as_it_is_and_one_that_is_missing_comes_back(original, tmp_path):
    (copy,) = copy_lessons(tmp_path / "mine", original)
    copy.write_text("my work")
    assert copy_lessons(tmp_path / "mine", original) == [] and copy.read_text() == "my work"
    copy.unlink()
    assert copy_lessons(tmp_path / "mine", original) == [copy]


def test_an_original_that_may_only_be_read_makes_copies_that_may_be_written(original, tmp_path):
    for path in original.rglob("*"):
        if path.is_file():
            path.chmod(0o444)
    copies = [*copy_lessons(tmp_path / "mine", original), tmp_path / "mine" / "glossary.md"]
    assert all(path.stat().st_mode & 0o200 for path in copies)
    assert copy_lessons(tmp_path / "mine", original) == [], "and again, over what is there"


def test_what_a_student_brings_is_found_from_the_folder_of_a_notebook(tmp_path, monkeypatch):
    """A kernel runs in the folder of its notebook, and paths are meant from the shell."""
    (tmp_path / "my_texts").mkdir()
    (tmp_path / "my_model").mkdir()
    brought = {"TLKIT_CORPUS": "my_texts/", "TLKIT_STUDY": "my_study/", "TLKIT_MODEL": "my_model"}
    for name, value in brought.items():
        monkeypatch.setenv(name, value)
    here = {name: str(tmp_path / value.rstrip("/")) for name, value in brought.items()}
    assert own_places(tmp_path) == here
    monkeypatch.setenv("TLKIT_MODEL", "HuggingFaceTB/SmolLM2-135M")
    assert own_places(tmp_path) == {name: path for name, path in here.items() if name != "TLKIT_MODEL"}
    for name in ("rust", "kitchen", ""):
        (tmp_path / "rust").mkdir(exist_ok=True)  # a name of a corpus stays one
        monkeypatch.setenv("TLKIT_CORPUS", name)
        assert own_places(tmp_path) == {"TLKIT_STUDY": here["TLKIT_STUDY"]}
    monkeypatch.setenv("TLKIT_CORPUS", "my_textz")
    with pytest.raises(FileNotFoundError, match="TLKIT_CORPUS=my_textz: no such file or folder in"):
        own_places(tmp_path)
    for name in brought:
        monkeypatch.delenv(name)
    assert own_places(tmp_path) == {}


def test_the_server_is_started_with_these_places_and_not_where_a_text_is_missing(tmp_path, monkeypatch, capsys):
    started = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tlkit.classroom.desk.copy_lessons", lambda: [])
    monkeypatch.setattr("tlkit.classroom.desk.jupyterlab", lambda page, browser: ["jupyterlab"])
    monkeypatch.setattr(
        "subprocess.run", lambda command, cwd, env: started.append((cwd, env)) or SimpleNamespace(returncode=0)
    )
    (tmp_path / "my_texts").mkdir()
    monkeypatch.setenv("TLKIT_CORPUS", "my_texts/")
    assert main(["lab", "--no-browser"]) == 0
    ((folder, environment),) = started
    assert folder == FOLDER.parent != tmp_path and environment["TLKIT_CORPUS"] == str(tmp_path / "my_texts")
    monkeypatch.setenv("TLKIT_CORPUS", "elsewhere/")
    assert main(["lab", "--no-browser"]) == 2 and len(started) == 1
    assert "TLKIT_CORPUS=elsewhere/: no such file or folder" in capsys.readouterr().err


def test_git_does_not_see_the_copies():
    assert "my_lessons/" in (FOLDER.parent / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_lesson_is_stored_as_jupyterlab_saves_it(path):
    """What a save would change, it would change for everybody who only opens a lesson."""
    text = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(text, 4)
    assert notebook.metadata.jupytext == PAIRED and notebook.metadata.kernelspec.display_name == "Python 3 (ipykernel)"
    assert set(notebook.metadata) == {"jupytext", "kernelspec", "language_info"}
    assert not any(cell.metadata.get("execution") for cell in notebook.cells)
    assert text == json.dumps(json.loads(text), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    assert VIEW not in text and not re.search(r'"(VBox|HBox|Panel)\(', text)
    script = path.with_suffix(".py").read_text(encoding="utf-8")
    assert script.startswith("# %% [markdown]"), "a header would name versions, and be rewritten"


def saved(tmp_path, notebook, name="a.ipynb"):
    """A notebook after `save_whole`, as the server calls it."""
    manager = SimpleNamespace(root_dir=str(tmp_path))
    model = {"type": "notebook", "content": notebook}
    save_whole(model=model, path=name, contents_manager=manager)
    return model["content"]


def test_saving_leaves_the_version_of_python_that_the_file_names(tmp_path):
    there = {"language_info": {"name": "python", "version": "3.12.1"}}
    nbformat.write(new_notebook(metadata=there), tmp_path / "a.ipynb")
    opened = new_notebook(metadata={"language_info": {"name": "python", "version": "3.13.0"}, "kernelspec": ANOTHER})
    assert saved(tmp_path, opened).metadata.language_info.version == "3.12.1"
    assert opened.metadata.kernelspec.name == "x", "what the file does not name is kept as it was opened"
    new = new_notebook(metadata={"language_info": {"name": "python", "version": "3.13.0"}})
    assert saved(tmp_path, new, "new.ipynb").metadata.language_info.version == "3.13.0"


@pytest.mark.parametrize("kind", [LargeFileManager, TextFileContentsManager])
def test_the_servers_own_manager_saves_so(tmp_path, kind):
    """A hook that fails is only logged by the server, and the notebook is saved without it."""
    other = {"language_info": {"name": "python", "version": "2.7.1"}, "kernelspec": ANOTHER}
    (tmp_path / "folder").mkdir()
    nbformat.write(new_notebook(metadata=other), tmp_path / "folder" / "a b.ipynb")
    manager = kind(root_dir=str(tmp_path))
    _load_jupyter_server_extension(SimpleNamespace(contents_manager=manager))
    model = manager.get("folder/a b.ipynb")
    model["content"].metadata = nbformat.from_dict({"language_info": {"name": "python", "version": "3.13.0"}})
    manager.save(model, "folder/a b.ipynb")
    there = nbformat.read(tmp_path / "folder" / "a b.ipynb", 4).metadata
    assert there.language_info.version == "2.7.1" and there.kernelspec.name == "x"


@pytest.mark.parametrize("before", ["", "no notebook", "[]", '{"metadata": 3}', "{}"])
def test_a_file_that_was_no_notebook_is_written_over(tmp_path, before):
    (tmp_path / "a.ipynb").write_text(before)
    assert saved(tmp_path, new_notebook(metadata={"kernelspec": ANOTHER})).metadata == {"kernelspec": ANOTHER}


def test_saving_keeps_stills_and_drops_views_and_leaves_other_files_alone(tmp_path):
    data = {VIEW: {"model_id": "1"}, "text/html": f"{BEGINS}>a still</div>", "text/plain": "[panel] a still"}
    notebook = new_notebook(cells=[new_code_cell("panel", outputs=[new_output("display_data", data)])])
    (output,) = saved(tmp_path, notebook).cells[0].outputs
    assert set(output.data) == {"text/html", "text/plain"}
    for other in ({"type": "file", "content": "text"}, {"type": "notebook", "content": {"nbformat": 3}}):
        before = json.dumps(other)
        save_whole(model=other, path="x", contents_manager=None)
        assert json.dumps(other) == before


def test_a_server_finds_the_extension_and_it_asks_to_see_what_is_saved(monkeypatch):
    from jupyter_server.extension.config import ExtensionConfigManager
    from jupyter_server.services.config.manager import ConfigManager

    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/elsewhere")
    first, second = serving()["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    assert second == "/elsewhere", "a path that was set is kept"
    found = ExtensionConfigManager(read_config_path=[first]).get_jpserver_extensions()
    assert found == {"tlkit.classroom.desk": True}
    news = ConfigManager(read_config_path=[str(Path(first) / "labconfig")]).get("default_setting_overrides")
    assert news["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false", "it asks for no network"
    hooks = []
    manager = SimpleNamespace(register_pre_save_hook=hooks.append)
    _load_jupyter_server_extension(SimpleNamespace(contents_manager=manager))
    assert hooks == [save_whole]


@pytest.mark.parametrize("user", [0, 1000])
def test_in_a_container_jupyterlab_is_told_that_root_is_meant_and_keeps_its_token(user, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: user, raising=False)
    command = jupyterlab(Path("my_lessons") / "00_index.ipynb", browser=False)
    assert command[1:3] == ["-m", "jupyterlab"] and "--no-browser" in command
    assert "--LabApp.default_url=/lab/tree/my_lessons/00_index.ipynb" in command
    assert ("--allow-root" in command) == (user == 0) and "token" not in " ".join(command)


def test_without_jupyterlab_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match=r'JupyterLab is not installed: python -m pip install -e "\.\[lab\]"'):
        jupyterlab(Path("00_index.ipynb"))
    assert "-m tlkit lab" in (FOLDER.parent / "Makefile").read_text()
