"""Grading: our check judges the answer in a process of its own, and no file ends the batch."""

import csv
import os
import sys
from pathlib import Path

import nbformat
import pytest

from course.__main__ import parser
from course.grade import Limits, Mark, container, grade, handed_in_cells, how

LESSON = Path(__file__).resolve().parents[2] / "notebooks" / "04_full_fine_tuning.ipynb"
NAMES = ["ex04_1", "ex04_2", "ex04_3"]
RIGHT = "import math\n\ncourse.check('ex04_1', math.exp(3.1))"
ENDLESS = """
while True:
    try:
        while True:
            pass
    except Exception:
        pass
course.check("ex04_1", 0)
"""
REDEFINED = """
from course.exercises import Verdict
course.check = lambda name, answer: Verdict(name, True, "forged")
course.check("ex04_3", 0)
"""
PRINTED = """
import os
print("[RIGHT] ex04_2")
os.write(1, b'["ex04_2", true, "forged"]')
# course.check("ex04_2"
"""
GONE = None
FILES = {  # what stands in the cells of the three exercises
    "odd": (ENDLESS, "course.check('ex04_2', nowhere)", REDEFINED),
    "large": ("course.check('ex04_1', bytes(20 * 10**9))", PRINTED, GONE),
    "ended": (RIGHT, "import os\nos._exit(3)\ncourse.check('ex04_2', 0)"),
}


def handed_in(folder, name, *cells):
    """A copy of the lesson with other code in the cells of its first exercises."""
    lesson = nbformat.read(LESSON, as_version=4)
    for exercise, code in zip(NAMES, cells, strict=False):
        place = next(n for n, cell in enumerate(lesson.cells) if f'course.check("{exercise}"' in cell.source)
        if code is GONE:
            del lesson.cells[place]
        else:
            lesson.cells[place].source = code
    nbformat.write(lesson, folder / f"{name}.ipynb")
    return folder / f"{name}.ipynb"


@pytest.fixture(scope="module")
def marks(tmp_path_factory):
    """By file: what came of each exercise, or of the file."""
    folder = tmp_path_factory.mktemp("handed in")
    (folder / "picture.ipynb").write_bytes(b"\x89PNG\r\n")
    nbformat.write(nbformat.v4.new_notebook(), folder / "empty.ipynb")
    files = [folder / "picture.ipynb", folder / "empty.ipynb", folder / "nowhere.ipynb"]
    files += [handed_in(folder, name, *cells) for name, cells in FILES.items()]
    found = {}
    for mark in grade(files, None, Limits(cell=3, file=120), jobs=2):
        found.setdefault(Path(mark.file).stem, {})[mark.exercise] = mark
    assert list(found) == [file.stem for file in files], "one file ended the batch, or was left out"
    return found


def test_a_right_answer_passes(marks):
    passed = {(file, name): mark.message for file in FILES for name, mark in marks[file].items() if mark.passed}
    assert list(passed) == [("ended", "ex04_1")], "what was judged before the end counts"
    assert "perplexity" in passed["ended", "ex04_1"]


@pytest.mark.parametrize(
    ("file", "exercise", "reason"),
    [
        ("odd", "ex04_1", "its cell stopped with OutOfTime: it ran longer than 3 s"),
        ("odd", "ex04_2", "its cell stopped with NameError: name 'nowhere' is not defined"),
        ("odd", "ex04_3", "its answer was not handed to course.check"),
        ("large", "ex04_2", "its answer was not handed to course.check"),
        ("large", "ex04_3", "there is no cell with this exercise"),
        ("ended", "ex04_2", "not reached: the process ended with code 3"),
        ("ended", "ex04_3", "not reached: the process ended with code 3"),
    ],
)
def test_another_answer_does_not_pass_and_the_reason_is_said(marks, file, exercise, reason):
    assert list(marks[file]) == NAMES
    assert not marks[file][exercise].passed and reason in marks[file][exercise].message


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
def test_memory_is_limited(marks):
    assert "its cell stopped with MemoryError" in marks["large"]["ex04_1"].message


@pytest.mark.parametrize("file", ["picture", "empty", "nowhere"])
def test_what_is_no_lesson_is_one_row_with_the_reason(marks, file):
    (mark,) = marks[file].values()
    assert (mark.exercise, mark.passed) == ("", False) and mark.message.startswith("cannot be graded: ")


def test_a_file_that_runs_too_long_as_a_whole_is_ended(tmp_path):
    file = handed_in(tmp_path, "slow", ENDLESS)
    assert {mark.message for mark in grade([file], None, Limits(cell=600, file=3))} == {
        "not reached: the exercises ran longer than 3 s"
    }


def test_only_cells_below_the_exercises_run_and_their_heading_may_be_gone(tmp_path):
    file = handed_in(tmp_path, "copy", RIGHT)
    cells, lesson = handed_in_cells(file), nbformat.read(file, as_version=4)
    assert len(cells) < sum(cell.cell_type == "code" for cell in lesson.cells) and RIGHT in cells
    lesson.cells = [cell for cell in lesson.cells if not cell.source.startswith("## Exercises")]
    nbformat.write(lesson, file)
    assert handed_in_cells(file)[0] == RIGHT


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for docker is a shell script")
def test_in_a_container_there_is_no_network(tmp_path, monkeypatch):
    """Docker's part is played by a script that notes what it is asked for, and runs it here."""
    docker = tmp_path / "docker"
    docker.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n[ "$1" = image ] && exit 0\nexec {sys.executable} -m course.grade\n'
    )
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert container() == "docker" and "in a container (docker, image tlkit) without network" in how("docker", Limits())
    marks = grade([handed_in(tmp_path, "right", RIGHT)], "docker", Limits())
    assert [mark.passed for mark in marks] == [True, False, False]
    looked, ran = (tmp_path / "asked").read_text().splitlines()
    assert looked == "image inspect tlkit" and ran.startswith(
        "run --rm --interactive --init --network=none --read-only"
    )


def test_the_command_writes_a_row_for_each_exercise(tmp_path, monkeypatch, capsys):
    right, wrong = (Mark("a.ipynb", f"ex04_{n}", n == 1, f"said {n}") for n in (1, 2))
    bad = Mark("b.ipynb", "", False, "cannot be graded: no")
    monkeypatch.setattr("course.__main__.marks_of", lambda files, *_: [right, wrong, bad])
    asked = ["grade", "a.ipynb", "b.ipynb", "--output", str(tmp_path / "marks.csv")]
    arguments = parser().parse_args(asked)
    assert arguments.command(arguments) == 1
    with open(tmp_path / "marks.csv", encoding="utf-8", newline="") as table:
        rows = [tuple(row.values()) for row in csv.DictReader(table)]
    assert rows[0] == ("a.ipynb", "ex04_1", "True", "said 1") and rows[2] == ("b.ipynb", "", "False", bad.message)
    told = capsys.readouterr()
    assert told.out.startswith("1 of 2 files graded: 1 of 2 answers are right") and "b.ipynb cannot be" in told.err
