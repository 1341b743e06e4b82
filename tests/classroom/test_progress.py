"""What a student has solved outlives the notebook, belongs to them alone, and is never lost by a fault."""

import json
import re
import subprocess
import sys

import pytest

from tlkit.classroom.cards import NOT_YET, NOTE, RIGHT, card
from tlkit.classroom.exercises import check
from tlkit.classroom.progress import kept, progress, progress_file, where_was_i
from tlkit.cli import main


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A student's file that does not exist yet, in a folder that does not either."""
    file = tmp_path / "of a student" / "progress.jsonl"
    monkeypatch.setenv("TLKIT_PROGRESS", str(file))
    return file


def test_what_was_right_once_stays_and_is_read_by_the_next_notebook(file):
    assert where_was_i().startswith("No answer is kept yet: begin with lesson 1 (What can this machine do?).")
    for answer in ("b", "a", None, ...):  # no answer is no try, and neither is a function as it was
        check("quiz04", answer)
    assert "returns nothing yet" in check("ex02_2", lambda q, k, v: None).message
    assert not progress("02").answers.any()
    table = progress("04").set_index("exercise")
    assert table.solved["quiz04"] == "yes" and table.answers["quiz04"] == 2
    assert table.solved["ex04_1"] == "not yet" and table.answers["ex04_1"] == 0
    assert [json.loads(line)["right"] for line in file.read_text().splitlines()] == [True, False]
    everything = progress().set_index("lesson")
    assert everything.solved.sum() == 1 and everything.loc["4 · Full fine-tuning", "of"] == len(table)
    assert progress(4).equals(progress("4")) and progress(4).equals(progress("04"))


def test_it_says_where_to_go_on(file):
    check("quiz04", "b")
    assert where_was_i().endswith("In lesson 4 (Full fine-tuning) this is open: ex04_1, ex04_2, ex04_3, e04.")
    names = ("e04", "ex04_1", "ex04_2", "ex04_3")
    lines = [{"name": name, "right": True, "at": "2026-01-02T03:04:05+00:00"} for name in names]
    file.write_text(file.read_text() + "".join(json.dumps(line) + "\n" for line in lines))
    done = "Your last answer was to ex04_3, on 2026-01-02. Lesson 4 (Full fine-tuning) is done; go on with 5 ("
    assert where_was_i().startswith(done)


def test_two_notebooks_at_once_lose_nothing(file):
    """And an answer is kept without torch, which takes seconds to import."""
    program = """
import sys
from tlkit.classroom.progress import keep
for _ in range(100):
    assert keep("quiz04", True) == ""
assert "torch" not in sys.modules
"""
    both = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0] and len(kept()) == 200


@pytest.mark.parametrize(
    "content", ["no JSON\n", '{"name": "quiz04"}\n', "[]\n", '{"name": 4, "right": 1, "at": ""}\n']
)
def test_a_file_of_something_else_is_named_and_left_alone(file, content, capsys):
    file.parent.mkdir()
    file.write_text(content)
    verdict = check("quiz04", "b")
    assert verdict.passed and "is not kept with your progress: line 1 of" in verdict.message
    assert file.read_text() == content
    assert main(["progress"]) == 2
    assert "line 1 of" in capsys.readouterr().err


def test_where_nothing_can_be_written_the_verdict_comes_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way of a folder")
    monkeypatch.setenv("TLKIT_PROGRESS", str(tmp_path / "file" / "progress.jsonl"))
    verdict = check("quiz04", "b")
    assert verdict.passed and "This answer is not kept with your progress: " in verdict.message


def test_tests_and_executed_lessons_touch_nobodys_progress(monkeypatch):
    monkeypatch.delenv("TLKIT_PROGRESS", raising=False)
    assert progress_file() is None  # pytest is running
    monkeypatch.delenv("PYTEST_VERSION")
    assert progress_file().name == "progress.jsonl" and "tlkit" in str(progress_file().parent)
    monkeypatch.setenv("TLKIT_PROGRESS", "off")
    assert progress_file() is None


def test_the_command_lists_and_exports(file, tmp_path, capsys):
    check("quiz04", "b")
    assert main(["progress", "--lesson", "04", "--output", str(tmp_path / "mine.csv")]) == 0
    said = capsys.readouterr().out
    assert str(file) in said and "go on" in said or "is open" in said
    assert "quiz04,1,yes" in (tmp_path / "mine.csv").read_text()
    assert main(["progress", "--lesson", "77"]) == 2
    assert "lesson '77' has no exercises" in capsys.readouterr().err


def test_a_card_says_it_in_words_and_a_sign_and_lets_no_html_through():
    shown = card(NOT_YET, "ex<1>", "use `a < b` & <script>alert(1)</script>", ("first", "second"))
    assert "<script>" not in shown and "ex&lt;1&gt;" in shown and "<code>a &lt; b</code>" in shown
    assert "✗ not yet" in shown and shown.count("<details>") == 2
    assert shown.index("first") < shown.index("Hint 2 of 2") < shown.index("second")


@pytest.mark.parametrize("look", [RIGHT, NOT_YET, NOTE])
def test_white_on_the_colour_of_a_card_is_readable(look):
    channels = [int(part, 16) / 255 for part in re.findall("..", look.colour[1:])]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    assert 1.05 / (luminance + 0.05) >= 4.5  # WCAG 2, level AA
