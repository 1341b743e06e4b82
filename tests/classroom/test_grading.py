"""Grading: every exercise of the lesson is counted, only tlkit's own check gives a verdict, no file ends the batch."""

import hashlib
import math
import os
import socket
import sys
import time
from pathlib import Path

import jupytext
import nbformat
import pandas as pd
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import tlkit
import tlkit.classroom.grading.confinement as confinement
import tlkit.classroom.grading.grade as grading
from tlkit.classroom.grading.confinement import Limits, walls_here
from tlkit.classroom.grading.grade import COLUMNS, Mark, grade, grade_all
from tlkit.classroom.grading.submissions import Cell, NotGraded, lesson_of, read_cells
from tlkit.cli import main

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
TITLE = new_markdown_cell("# 4 · Full fine-tuning")
HEADING = new_markdown_cell("## Exercises")
LESSON_ITSELF = new_code_cell("raise RuntimeError('the lesson itself is not run')")
NAMES = ["ex04_1", "ex04_2", "ex04_3"]
# Everything of the judging that a notebook can name, turned to its favour.
ALL_RIGHT = """
import tlkit.classroom.exercises as of_exercises
import tlkit.classroom.checks.lesson04 as of_lesson
import tlkit.classroom.progress as of_progress

of_progress._while_off.append(of_progress.Entry("ex04_2", True, "2026-01-02T03:04:05+00:00"))
of_exercises._judge = lambda task, answer: of_exercises.Verdict(task.name, True, "")
of_lesson.numbers = lambda answer, count: (50.0, 25.0)
for task in of_exercises.tasks_of("04").values():
    object.__setattr__(task, "judge", lambda answer: None)
"""
PIPES = """
import os

for pipe in range(3, 40):
    try:
        os.write(pipe, b'{"name": "ex04_3", "passed": true, "message": ""}\\n')
    except OSError:
        pass
"""


@pytest.fixture(scope="module")
def solved():
    """The cells of lesson 4's solved exercises, by name."""
    cells = jupytext.read(FOLDER / "solutions" / "04_full_fine_tuning.py").cells
    return {name: next(cell.source for cell in cells if f'"{name}"' in cell.source) for name in NAMES}


def handed_in(path: Path, *cells) -> Path:
    """A notebook of lesson 4 with these cells below its exercises; strings are code."""
    cells = [new_code_cell(cell) if isinstance(cell, str) else cell for cell in cells]
    nbformat.write(new_notebook(cells=[TITLE, LESSON_ITSELF, HEADING, *cells]), path)
    return path


def fingerprint(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return hashlib.sha256(b"".join(str(path).encode() + path.read_bytes() for path in files)).hexdigest()


def test_right_answers_in_whatever_form_count(tmp_path, solved, monkeypatch):
    """A verdict that is kept, printed or hidden; a cell that was moved up; a renamed file; magics and await.

    And what the notebook does to its surroundings stays in its scratch folder.
    """
    monkeypatch.setenv("PLANTED_TOKEN", "secret")
    one, two, three = solved.values()
    kept = one.replace("tl.check(", "verdict = tl.check(")
    by_another_name = two.replace("tl.check(", "from tlkit import check as ask\n\nfor _ in range(2):\n    ask(")
    surroundings = """%matplotlib inline
import asyncio, os, pathlib, tlkit
await asyncio.sleep(0)
assert "PLANTED_TOKEN" not in os.environ
package = pathlib.Path(tlkit.__file__).parent
pathlib.Path("left_behind.txt").write_text("here")
(package / "corpus.py").write_text("raise RuntimeError")
(package.parent / "data" / "SHA256SUMS").unlink()
"""
    hidden = "%%capture\n" + three
    moved_up = new_code_cell(kept)
    path = handed_in(tmp_path / "homework (1).ipynb", surroundings, by_another_name, hidden)
    notebook = nbformat.read(path, 4)
    notebook.cells.insert(1, moved_up)
    nbformat.write(notebook, path)
    package = Path(tlkit.__file__).parent
    before = fingerprint(package), fingerprint(FOLDER)
    assert grade(path).marks == tuple(Mark(name, True) for name in NAMES)
    assert before == (fingerprint(package), fingerprint(FOLDER)) and (package.parent / "data" / "SHA256SUMS").is_file()


def test_deleted_exercises_are_counted_and_said(tmp_path, solved):
    """One is left of three, the heading and the import are gone; the second stops, and is told with what."""
    cells = [solved["ex04_1"], solved["ex04_2"].replace("    return", "    return undefined +")]
    nbformat.write(new_notebook(cells=[LESSON_ITSELF, *map(new_code_cell, cells)]), tmp_path / "rest.ipynb")
    first, second, third = grade(tmp_path / "rest.ipynb").marks
    assert first.right and not second.right and not third.right
    assert "your function stopped with NameError" in second.reason
    assert third.reason == "missing: no cell checks it"


def test_only_the_real_check_gives_a_verdict(tmp_path, solved):
    """A redefined or patched check, an edited record, patched judges, printed and stored verdicts, a written pipe."""
    own = 'answer = 5\ncheck = lambda name, answer: print("[RIGHT] ex04_1: yes")\ncheck("ex04_1", answer)'
    boast = [new_output("execute_result", {"text/plain": "[RIGHT] ex04_1: yes"}, execution_count=1)]
    patched = ALL_RIGHT + 'of_exercises.check("ex04_2", print)'
    piped = PIPES + 'of_exercises.check = lambda name, answer: "[RIGHT]"\nof_exercises.check("ex04_3", print)'
    path = handed_in(tmp_path / "tricks.ipynb", new_code_cell(own, outputs=boast), patched, piped)
    marks = grade(path).marks
    assert [mark.exercise for mark in marks] == NAMES and not any(mark.right for mark in marks)
    assert "without asking tlkit's `check`" in marks[0].reason and "without asking" in marks[2].reason
    assert "returns nothing yet" in marks[1].reason


def test_the_last_answer_counts(tmp_path, solved):
    path = handed_in(tmp_path / "twice.ipynb", solved["ex04_1"], 'tl.check("ex04_1", 7)', solved["ex04_2"], "1 +")
    assert [mark.right for mark in grade(path).marks] == [False, True, False]


# What a notebook does to the machine, and what the teacher reads about its second exercise.
BAD = {
    "dies": ("import os; os._exit(3)", "not reached: Python ended before (exit code 3)"),
    "exits": ("import sys; sys.exit('enough')", None),
    "deletes": ("import pathlib, shutil; shutil.rmtree('..', ignore_errors=True); {outside}.unlink()", None),
    "talks": (
        "for _ in range(1000): print('x' * 2**20)\nloud = open('/dev/stderr', 'w')\n"
        "for _ in range(100): loud.write('x' * 2**20)",
        None,
    ),
    "fills the disk": ("with open('big', 'wb') as f:\n    for _ in range(300): f.write(bytes(2**20))", None),
    "eats memory": ("hog = bytearray(2 * 10**9)", None),
    "closes its walls' ears": (
        "import signal, time\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: time.sleep(1)",
        "not reached: the notebook took more than {enough} s",
    ),
    "many processes": (
        "import subprocess, sys\nfor _ in range(20):\n    subprocess.Popen(['sleep', '3617'], start_new_session=True)\n"
        "import time; time.sleep(9)",
        "not reached: the notebook started more than 16 processes",
    ),
    "many that share": (
        "import signal, subprocess, sys, time\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\n"
        "eat = 'import time; x = b\"1\" * (3 * 10**8); time.sleep(9)'\n"
        "for _ in range(5): subprocess.Popen([sys.executable, '-S', '-c', eat])\ntime.sleep(9)",
        "not reached: the notebook took more than 1 GB of memory",
    ),
    "never ends": ("while True:\n    try:\n        import time; time.sleep(1)\n    except Exception: pass", None),
}


@pytest.mark.skipif(sys.platform != "linux", reason="the system's own limits are Linux's")
def test_no_bad_file_stops_the_batch_and_each_has_its_reason(tmp_path, solved, monkeypatch):
    """Each does something bad between its first and its second exercise; the first one counts always."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    began = time.monotonic()
    assert grade(handed_in(tmp_path / "good.ipynb", solved["ex04_1"])).marks[0].right
    enough = 10 + math.ceil(3 * (time.monotonic() - began))  # two at a time, beside tests that may begin meanwhile
    (tmp_path / "outside").write_text("kept")
    paths = []
    for name, (code, _) in BAD.items():
        code = code.replace("{outside}", f"pathlib.Path({str(tmp_path / 'outside')!r})")
        paths.append(handed_in(tmp_path / f"{name}.ipynb", solved["ex04_1"], code, solved["ex04_2"]))
    marks = grade_all(paths, limits=Limits(seconds=enough, memory=1e9, processes=16), jobs=2).set_index("notebook")
    for path, (name, (_, reason)) in zip(paths, BAD.items(), strict=True):
        one, two, three = marks.loc[str(path)].itertuples()
        assert one.right and three.reason == "missing: no cell checks it", (name, one.reason)
        expected = (reason or "").replace("{enough}", str(enough))
        assert (two.right, two.reason) == (reason is None, expected), (name, two.reason)
    if "files" in walls_here():
        assert (tmp_path / "outside").read_text() == "kept"
    if "processes" in walls_here():
        assert not any("3617" in (process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))


@pytest.mark.skipif(sys.platform != "linux", reason="the system's own limits are Linux's")
def test_an_exercise_that_never_ends_says_so_to_its_student(tmp_path, solved):
    path = handed_in(tmp_path / "slow.ipynb", "while True: pass\ntl.check('ex04_1', 1)", solved["ex04_2"])
    slow, after, _ = grade(path, limits=Limits(seconds=30)).marks
    assert slow.reason == "its cell stopped with no result within 6 s: does a loop go on without end?"
    assert after.right


@pytest.mark.skipif("network" not in walls_here(), reason="this system lets nobody cut a network off")
def test_a_notebook_has_no_network_and_cannot_open_its_walls(tmp_path, solved):
    """A server of this machine, outside, is not reached, the teacher's processes are not read, and rights stay away."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        tries = f"""
import os, pathlib, socket, subprocess
try:
    socket.create_connection(("127.0.0.1", {port}), timeout=1)
except OSError:
    alone = True
assert alone and not pathlib.Path("/proc/{os.getpid()}/environ").exists()
assert subprocess.run(["mount", "-o", "remount,bind,rw", "/"], capture_output=True).returncode
"""
        path = handed_in(tmp_path / "out.ipynb", tries + solved["ex04_1"])
        assert grade(path).marks[0] == Mark("ex04_1", True)


def test_where_a_system_has_no_walls_that_is_said_and_notebooks_run(tmp_path, solved, monkeypatch, capsys):
    monkeypatch.setattr(confinement, "walls_here", lambda: ())
    monkeypatch.setattr(grading, "walls_here", lambda: ())
    path = handed_in(tmp_path / "plain.ipynb", solved["ex04_1"])
    assert main(["grade", str(path), "--seconds", "60"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "plain.ipynb: 1 of 3 right" in said and "60 s and 4 GB of memory at most" in said
    assert "does not let an ordinary user make sure that a notebook had no network" in said


def test_a_lesson_that_was_not_asked_for_is_a_row_that_says_so(tmp_path, solved):
    path = handed_in(tmp_path / "four.ipynb", solved["ex04_1"])
    (row,) = grade_all([path], lesson="05").itertuples()
    assert pd.isna(row.right) and row.reason == "is lesson 04, and lesson 05 was asked for" and row.lesson == ""


def test_a_failure_of_grading_itself_costs_one_file(tmp_path, solved, monkeypatch):
    def planted(cells):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(grading, "lesson_of", planted)
    (row,) = grade_all([handed_in(tmp_path / "four.ipynb", "1")]).itertuples()
    assert row.reason == "grading it failed: ZeroDivisionError: planted"


def test_a_foreign_file_is_a_row_with_its_reason_and_the_batch_goes_on(tmp_path, solved, capsys):
    (tmp_path / "text.ipynb").write_text("Dear teacher, my notebook is lost.")
    (tmp_path / "list.ipynb").write_text("[1, 2]")
    (tmp_path / "empty.ipynb").write_text("")
    (tmp_path / "bytes.ipynb").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "cells.ipynb").write_text('{"cells": 3, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}')
    nbformat.write(new_notebook(cells=[LESSON_ITSELF]), tmp_path / "other.ipynb")
    foreign = [tmp_path / f"{name}.ipynb" for name in ("text", "list", "empty", "bytes", "cells", "other")]
    good = handed_in(tmp_path / "good.ipynb", *solved.values())
    table = tmp_path / "marks.csv"
    assert main(["grade", *map(str, [*foreign, good]), "--output", str(table)]) == 1
    said = capsys.readouterr().out
    assert "good.ipynb: 3 of 3 right" in said and "text.ipynb: not graded: is no notebook" in said
    marks = pd.read_csv(table).set_index("notebook")
    assert list(marks.columns) == list(COLUMNS[1:]) and len(marks) == len(foreign) + 3
    for path in foreign:
        row = marks.loc[str(path)]
        assert pd.isna(row.right) and pd.isna(row.exercise)
        assert row.reason.startswith("is none of the lessons" if path.stem == "other" else "is no notebook")
    assert list(marks.loc[str(good)].right.astype(str)) == ["True"] * 3
    assert grade_all([tmp_path, tmp_path / "none.ipynb"]).reason.str.startswith("cannot be read: ").all()


def test_a_file_that_is_too_large_to_read_is_a_row_and_is_not_read(tmp_path):
    with (tmp_path / "outputs.ipynb").open("wb") as file:
        file.truncate(2**30)  # a gigabyte, of which the disk holds nothing
    (row,) = grade_all([tmp_path / "outputs.ipynb"]).itertuples()
    assert pd.isna(row.right) and row.reason == "is larger than 100 MB: ask for it without its outputs"


def test_what_a_student_names_things_can_be_written(tmp_path, solved):
    """Half a character in an error, and a cell's own text in several lines."""
    broken = "raise ValueError('half \\ud800 and\\ntwo lines')\n" + 'tl.check("ex04_1", 1)'
    marks = grade_all([handed_in(tmp_path / "odd.ipynb", broken)])
    assert marks.reason[0].startswith("its cell stopped with ValueError: half") and marks.reason[0].isprintable()
    marks.to_csv(tmp_path / "marks.csv", index=False)


def test_bad_arguments_are_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "grade", lambda *given, **named: pytest.fail("graded before the arguments were tried"))
    assert main(["grade", str(tmp_path / "none.ipynb")]) == 2
    (tmp_path / "good.ipynb").write_text("{}")
    assert main(["grade", str(tmp_path / "good.ipynb"), "--output", str(tmp_path / "no" / "marks.csv")]) == 2


def test_a_full_disk_is_a_row_too(tmp_path, solved, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(grading.shutil, "copytree", full)
    (row,) = grade_all([handed_in(tmp_path / "good.ipynb", *solved.values())]).itertuples()
    assert pd.isna(row.right) and "no notebook can be run here: [Errno 28] No space left" in row.reason


def test_a_message_that_was_cut_off_is_none(tmp_path):
    whole = 'noise\n\nseal {"cell": 1}\nseal {"cell": '
    assert grading._sealed(whole, "seal") == [{"cell": 1}]


def test_where_no_notebook_can_be_run_no_student_is_blamed(tmp_path, solved, monkeypatch):
    monkeypatch.setattr(grading, "EXERCISES_IMPORT", "import no_such_package")
    with pytest.raises(NotGraded, match="no notebook can be run here: .*no_such_package"):
        grade(handed_in(tmp_path / "good.ipynb", *solved.values()))


@pytest.mark.parametrize(
    ("cells", "lesson"),
    [
        ([("markdown", "# 10 · Some other course", ""), ("code", "1", "")], None),
        ([("markdown", TITLE.source, ""), ("code", 'check("ex05_1", 1)', "")], "04"),
        ([("code", 'check("ex05_1", 1)\ncheck("ex05_2", 1)\ncheck("ex06_1", 1)', "")], "05"),
        ([("code", "1", "07-001"), ("code", "2", "07-002")], "07"),
        ([("code", 'check("ex77_1", 1)', "")], None),
    ],
)
def test_which_lesson_it_is_comes_from_what_is_in_it(cells, lesson):
    cells = [Cell(*cell) for cell in cells]
    if lesson is None:
        with pytest.raises(NotGraded, match="none of the lessons"):
            lesson_of(cells)
    else:
        assert lesson_of(cells) == lesson


def test_a_notebook_that_other_tools_have_saved_is_read(tmp_path):
    """With a byte order mark, an older format, and cells without outputs, metadata or ids."""
    cells = '[{"cell_type": "markdown", "source": ["# 3 ·", " Full"]}, {"cell_type": "code", "source": "1"}]'
    path = tmp_path / "saved.ipynb"
    path.write_text(f'{{"cells": {cells}, "nbformat": 4, "nbformat_minor": 2, "metadata": {{}}}}', encoding="utf-8-sig")
    assert [cell[:2] for cell in read_cells(path)] == [("markdown", "# 3 · Full"), ("code", "1")]
