"""Grading: our check judges the answer in a process of its own, and no file ends the batch."""

import csv
import os
import sys
from pathlib import Path

import nbformat
import pytest

from course.__main__ import parser
from course.grade import Limits, Mark, container, grade, handed_in_cells, how

LESSON = Path(__file__).resolve().parents[2] / "notebooks" / "13_classification.ipynb"
NAME = "ex13_1"
RIGHT = """
def lowest_threshold(largest, right, wanted):
    for threshold in sorted(largest):
        if right[largest >= threshold].mean() >= wanted:
            return threshold


course.check("ex13_1", lowest_threshold)
"""
ENDLESS = """
import time
while True:
    try:
        time.sleep(600)
    except Exception:
        pass
course.check("ex13_1", 0)
"""
REDEFINED = """
from course.exercises import Verdict
course.check = lambda name, answer: Verdict(name, True, "forged")
course.check("ex13_1", 0)
"""
PRINTED = """
import os
print("[RIGHT] ex13_1")
os.write(1, b'["ex13_1", true, "forged"]')
# course.check("ex13_1"
"""
ENDED = "import os\nos._exit(3)"
FILES = {  # what stands in place of the cell of the exercise
    "right": (RIGHT,),
    "ended": (RIGHT, ENDED),
    "early": (ENDED, RIGHT),
    "endless": (ENDLESS,),
    "odd": ("course.check('ex13_1', nowhere)",),
    "redefined": (REDEFINED,),
    "printed": (PRINTED,),
    "gone": ("course.check('ex13_9', 0)",),
    "large": ("course.check('ex13_1', bytes(20 * 10**9))",),
}


def handed_in(folder, name, *cells):
    """A copy of the lesson with other cells in place of its exercise."""
    lesson = nbformat.read(LESSON, as_version=4)
    place = next(n for n, cell in enumerate(lesson.cells) if f'course.check("{NAME}"' in cell.source)
    lesson.cells[place : place + 1] = map(nbformat.v4.new_code_cell, cells)
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
    passed = {file: mark.message for file in FILES for mark in marks[file].values() if mark.passed}
    assert list(passed) == ["right", "ended"], "what was judged before the end counts"
    assert "two sets of texts" in passed["ended"]


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("endless", "its cell stopped with OutOfTime: it ran longer than 3 s"),
        ("odd", "its cell stopped with NameError: name 'nowhere' is not defined"),
        ("redefined", "its answer was not handed to course.check"),
        ("printed", "its answer was not handed to course.check"),
        ("gone", "there is no cell with this exercise"),
        ("early", "not reached: the process ended with code 3"),
    ],
)
def test_another_answer_does_not_pass_and_the_reason_is_said(marks, file, reason):
    assert list(marks[file]) == [NAME]
    assert not marks[file][NAME].passed and reason in marks[file][NAME].message


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
def test_memory_is_limited(marks):
    assert "its cell stopped with MemoryError" in marks["large"][NAME].message


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
    assert [mark.passed for mark in marks] == [True]
    looked, ran = (tmp_path / "asked").read_text().splitlines()
    assert looked == "image inspect tlkit" and ran.startswith(
        "run --rm --interactive --init --network=none --read-only"
    )


def test_the_command_writes_a_row_for_each_exercise(tmp_path, monkeypatch, capsys):
    right, wrong = (Mark("a.ipynb", f"ex13_{n}", n == 1, f"said {n}") for n in (1, 2))
    bad = Mark("b.ipynb", "", False, "cannot be graded: no")
    monkeypatch.setattr("course.__main__.marks_of", lambda files, *_: [right, wrong, bad])
    asked = ["grade", "a.ipynb", "b.ipynb", "--output", str(tmp_path / "marks.csv")]
    arguments = parser().parse_args(asked)
    assert arguments.command(arguments) == 1
    with open(tmp_path / "marks.csv", encoding="utf-8", newline="") as table:
        rows = [tuple(row.values()) for row in csv.DictReader(table)]
    assert rows[0] == ("a.ipynb", "ex13_1", "True", "said 1") and rows[2] == ("b.ipynb", "", "False", bad.message)
    told = capsys.readouterr()
    assert told.out.startswith("1 of 2 files graded: 1 of 2 answers are right") and "b.ipynb cannot be" in told.err
