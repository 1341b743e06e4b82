"""The edition for students holds no answer and all that lessons need, and each of its lessons can be brought back."""

import json
import os
import re
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tlkit as tl
from tlkit.classroom import originals
from tlkit.classroom.notebooks import lessons, sources
from tlkit.classroom.pages import SOLUTION
from tlkit.classroom.student import write_student_edition
from tlkit.cli import main

ROOT = Path(__file__).resolve().parents[2]
CHECK = re.compile(r'^tl\.check\("(\w+)"', re.MULTILINE)


@pytest.fixture(scope="module")
def edition(tmp_path_factory):
    return write_student_edition(tmp_path_factory.mktemp("class") / "edition")


def notebooks(edition):
    return {path: json.loads(path.read_text(encoding="utf-8")) for path in sorted(edition.glob("*/[0-9]*.ipynb"))}


def as_lines(text):
    """Lines without their indentation, and no empty ones, of a script or of the JSON of a notebook."""
    text = re.sub(r'(\\n",?)?\n\s*"?\s*', "\n", text)
    return re.sub(r"\n+", "\n", text).replace('\\"', '"').replace("\\\\", "\\")


def test_no_solution_no_output_and_no_script_is_in_it(edition):
    everything = [path for path in edition.rglob("*") if path.is_file()]
    texts = {path: path.read_text(encoding="utf-8") for path in everything if path.suffix in (".py", ".ipynb", ".md")}
    plain = {path: as_lines(text) for path, text in texts.items()}
    solved, solving = 0, {}
    for solution in (ROOT / "notebooks" / "solutions").glob("*.py"):
        text = solution.read_text(encoding="utf-8")
        for found in SOLUTION.finditer(text):
            lines = [line.strip() for line in found[0].splitlines()[1:-1] if line.strip()]
            solving[CHECK.search(text, found.end())[1]] = set(lines)
            if len(lines) < 2:  # `answer = math.exp(3.1)`: one line is in the course for other reasons, too
                continue
            solved += 1
            searched = "\n".join(lines)
            assert not [path for path, text in plain.items() if searched in text], solution.name
            planted = json.dumps({"source": found[0].splitlines(keepends=True)}, indent=1, ensure_ascii=False)
            assert searched in as_lines(planted) and searched in as_lines(found[0])
    assert solved >= 30
    assert not list(edition.glob("*/[0-9]*.py")) and not list(edition.rglob("solutions"))
    assert not {"places.md", "instructors.md", "demo.ipynb"} & {path.name for path in everything}
    for path, notebook in notebooks(edition).items():
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                assert cell["outputs"] == [] and cell["execution_count"] is None, path
                if asked := CHECK.search("".join(cell["source"])):
                    own = {line.strip() for line in cell["source"]}
                    assert "# your code here" in own and not own & solving[asked[1]], asked[1]
        assert set(notebook["metadata"]) == {"kernelspec", "language_info"}, path  # none of a paired script


def test_every_lesson_is_there_twice_and_the_copies_are_the_originals(edition):
    stems = [source.stem for source in sources()]
    assert [path.stem for path in sorted(edition.glob("notebooks/[0-9]*.ipynb"))] == stems
    for stem in stems:
        one, other = (edition / place / f"{stem}.ipynb" for place in ("notebooks", "my_lessons"))
        assert one.read_bytes() == other.read_bytes()


def test_what_lessons_show_link_and_read_is_there(edition):
    links = 0
    for path, notebook in notebooks(edition).items():
        for cell in notebook["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                for target in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", source):
                    links += 1
                    assert (path.parent / target).exists(), (path.name, target)
            else:
                assert '"../' not in source, f"{path.name} reads from where its folder lies: a copy elsewhere could not"
                for read in re.findall(r'tl\.DATA(\.parent)? / "([^"]+)"', source):
                    assert (edition / ("" if read[0] else "data") / read[1]).exists(), (path.name, read)
    assert links > 40
    readme = (edition / "README.md").read_text(encoding="utf-8")
    assert "restore 05" in readme and "## When something goes wrong" in readme
    for target in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", readme):
        assert (edition / target).exists(), target
    assert "somewhat slower |" in readme, "a link in brackets leaves no bracket behind"
    assert {".venv/", ".ipynb_checkpoints/"} <= set((edition / ".gitignore").read_text(encoding="utf-8").splitlines())


def test_a_zip_file_is_the_same_each_time_and_unpacks_into_a_folder(edition, tmp_path, monkeypatch):
    assert main(["student", "--output", str(tmp_path / "course"), "--zip"]) == 0
    with zipfile.ZipFile(tmp_path / "course.zip") as archive:
        names = archive.namelist()
        assert archive.testzip() is None and len(set(names)) == len(names)
        assert {name.split("/")[0] for name in names} == {"transfer-learning"}
        inside = {name.removeprefix("transfer-learning/"): archive.read(name) for name in names}
    assert inside == {
        path.relative_to(edition).as_posix(): path.read_bytes() for path in edition.rglob("*") if path.is_file()
    }


def test_an_unpacked_edition_checks_answers_and_knows_its_lessons(edition, tmp_path):
    """In a process of its own, by the edition's own package, from a copy of the lessons in a home."""
    home = tmp_path / "home"
    home.mkdir()
    mine = home / "05_freeze_lower_layers.ipynb"
    mine.write_text('{"mine": true}')
    code = (
        "import tlkit as tl\nprint(tl.__file__)\n"
        "print(tl.check('ex04_1', 22.198)); print(tl.where_was_i()); print(len(tl.progress()))\n"
        "print(tl.restore('5'))\nprint(tl.restore(5))\nprint(tl.restore('5', beside=True))"
    )
    environment = {
        name: value for name, value in os.environ.items() if name not in ("TLKIT_PROGRESS", "PYTEST_VERSION")
    }
    environment |= {"PYTHONPATH": str(edition), "TLKIT_PROGRESS": str(home / "progress.jsonl")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=home, env=environment, capture_output=True, text=True, check=True
    )
    where, checked, going_on, count, first, second, third = done.stdout.splitlines()
    assert Path(where).is_relative_to(edition) and checked.startswith("[RIGHT] ex04_1")
    assert "In lesson 4 (Full fine-tuning) this is open: ex04_2, ex04_3, quiz04" in going_on
    assert int(count) == len(lessons())
    kept = home / "05_freeze_lower_layers.mine.ipynb"
    assert kept.read_text() == '{"mine": true}' and kept.name in first and "nothing to bring back" in second
    assert mine.read_bytes() == (edition / "notebooks" / mine.name).read_bytes() and "nothing to bring back" in third


@pytest.fixture
def hub(edition, tmp_path, monkeypatch):
    """The originals of the edition, which nobody may write, and a student's folder, in which the student is."""
    monkeypatch.setattr(originals, "FOLDER", edition / "notebooks")
    monkeypatch.setattr(originals, "COPIES", edition / "my_lessons")
    home = tmp_path / "lessons"
    home.mkdir()
    monkeypatch.chdir(home)
    return home


NAME = "04_full_fine_tuning"


def test_a_lesson_comes_back_and_every_own_version_is_kept(hub, edition):
    original = (edition / "notebooks" / f"{NAME}.ipynb").read_bytes()
    said = tl.restore(4, hub)
    assert "was not in" in said and (hub / f"{NAME}.ipynb").read_bytes() == original
    for number, own in (("", b"first"), ("-2", b"second")):
        (hub / f"{NAME}.ipynb").write_bytes(own)
        said = tl.restore("04")
        assert f"{NAME}.mine{number}.ipynb" in said and "Reload Notebook from Disk" in said
        assert (hub / f"{NAME}.mine{number}.ipynb").read_bytes() == own
        assert (hub / f"{NAME}.ipynb").read_bytes() == original
    (hub / f"{NAME}.ipynb").write_bytes(b"third")
    assert f"{NAME}.original.ipynb, beside yours" in tl.restore("04", beside=True)
    assert (hub / f"{NAME}.ipynb").read_bytes() == b"third"
    assert (hub / f"{NAME}.original.ipynb").read_bytes() == original
    assert "00_index.ipynb was not in" in tl.restore("00")


@pytest.mark.parametrize("lesson", ["99", "", None, "five", -1, 1.5, "../04"])
def test_a_mistyped_lesson_is_a_sentence(hub, lesson):
    said = tl.restore(lesson)
    assert said.startswith("Nothing was changed: lesson") and "expected one of 00, 01" in said
    assert not list(hub.iterdir())


def test_where_it_cannot_be_written_or_found_that_is_said_and_nothing_is_lost(hub, edition, monkeypatch, capsys):
    assert tl.restore("04", hub / "none").startswith("Nothing was changed: ") and main(["restore", "xx"]) == 2
    mine = hub / f"{NAME}.ipynb"
    mine.write_bytes(b"mine")

    def read_only(*_):
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr(originals.os, "replace", read_only)
    assert "Nothing was changed: [Errno 30] Read-only" in tl.restore("04") and mine.read_bytes() == b"mine"
    assert main(["restore", "04", "--folder", str(hub)]) == 1
    monkeypatch.undo()
    monkeypatch.setattr(originals, "FOLDER", edition / "notebooks")
    said = tl.restore("04", edition / "notebooks")  # an edition has no git
    assert "holds the originals themselves" in said and "work in my_lessons" in said


def test_in_a_clone_what_comes_back_has_no_recorded_answers(tmp_path):
    said = tl.restore("04", tmp_path)
    cells = json.loads((tmp_path / f"{NAME}.ipynb").read_text(encoding="utf-8"))["cells"]
    assert "was not in" in said and not any(cell.get("outputs") for cell in cells)
    recorded = json.loads((ROOT / "notebooks" / f"{NAME}.ipynb").read_text(encoding="utf-8"))["cells"]
    assert [cell["source"] for cell in cells] == [cell["source"] for cell in recorded]
    assert any(cell.get("outputs") for cell in recorded)


def test_from_the_edition_itself_the_copies_are_meant(edition, monkeypatch, tmp_path):
    monkeypatch.setattr(originals, "FOLDER", edition / "notebooks")
    monkeypatch.setattr(originals, "COPIES", edition / "my_lessons")
    monkeypatch.chdir(edition)
    assert "as it was: there is nothing to bring back" in tl.restore("20")


def test_in_a_clone_the_original_is_what_git_has(tmp_path, monkeypatch):
    folder = tmp_path / "clone" / "notebooks"
    folder.mkdir(parents=True)
    file = folder / f"{NAME}.ipynb"
    file.write_text("as committed")
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@x.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "lessons"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(originals, "FOLDER", folder)
    file.write_text("worked on")
    assert f"{NAME}.mine.ipynb" in tl.restore("04", folder) and file.read_text() == "as committed"


def test_an_edition_is_replaced_but_never_what_somebody_has_done(edition, tmp_path):
    with pytest.raises(FileExistsError, match="no edition for students"):
        write_student_edition(tmp_path_with(tmp_path, "thesis.md"))
    again = write_student_edition(tmp_path / "again")
    (again / "left.txt").write_text("from the edition before")
    assert write_student_edition(again) == again and not (again / "left.txt").exists()
    worked_on = again / "my_lessons" / f"{NAME}.ipynb"
    worked_on.write_text("mine")
    with pytest.raises(FileExistsError, match=f"somebody has worked in .*{NAME}"):
        write_student_edition(again)
    assert worked_on.read_text() == "mine"
    assert stat.S_ISREG(worked_on.stat().st_mode) and main(["student", "--output", str(again)]) == 2


def tmp_path_with(folder, name):
    (folder / "full").mkdir()
    (folder / "full" / name).write_text("mine")
    return folder / "full"
