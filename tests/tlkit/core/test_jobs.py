"""What is running, which of how many and how long still: on a terminal, in a log, in a notebook."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tlkit import jobs
from tlkit.jobs import SILENT, Job, reported

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import sys
from tlkit.jobs import Job
with Job(3) as job:
    for name in ("full, seed 0", "freeze_embeddings, seed 0", "bitfit, seed 0"):
        with job.part(name) as part:
            for step in range(5):
                part.step(step, 4, f"step {step} of 4, loss 3.214")
"""


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when it is told to."""
    clock = SimpleNamespace(now=100.0)
    clock.time = clock.monotonic = lambda: clock.now
    monkeypatch.setattr(jobs, "time", clock)
    monkeypatch.setattr("tqdm.std.time", clock.time)
    return clock


def test_a_log_gets_a_line_for_each_part_and_one_now_and_then(capsys, clock):
    with Job(2) as job:
        for name in ("full", "lora"):
            with job.part(name) as part:
                for step in range(5):
                    part.step(step, 4, f"step {step} of 4, loss 2.5")
                    clock.now += 25
                part.step(0, 4, "scoring")
    told = capsys.readouterr()
    assert told.out == "" and told.err.splitlines() == [
        "run 1 of 2 [? left], full",
        "run 1 of 2 [02:30 left], full: step 2 of 4, loss 2.5",
        "run 1 of 2 [01:40 left], full: step 4 of 4, loss 2.5",
        "run 2 of 2 [02:05 left], lora",
        "run 2 of 2 [01:30 left], lora: step 1 of 4, loss 2.5",
        "run 2 of 2 [00:28 left], lora: step 3 of 4, loss 2.5",
        "run 2 of 2 [00:00 left], lora: scoring",
        "2 runs took 04:10",
    ]


def test_one_part_alone_says_nothing_in_a_log_until_it_is_long(capsys, clock):
    for seconds, lines in ((4, 0), (6, 1), (31, 2)):
        with Job() as job, job.part("training") as part:
            for step in range(seconds + 1):
                part.step(step, seconds, f"step {step} of {seconds}")
                clock.now += step < seconds
        said = capsys.readouterr().err.splitlines()
        assert len(said) == lines
        assert said[-1:] == [f"training: step {seconds} of {seconds}; took 00:{seconds:02}"][:lines]


def test_a_stage_counts_the_steps_it_takes_itself(capsys, clock):
    """A training that is resumed at step 96, then scored."""
    with Job() as job, job.part("training") as part:
        for done, total in ((96, 128), (112, 128), (0, 8), (1, 8)):
            part.step(done, total, f"{done} of {total}")
            clock.now += 40 * (done in (96, 0))
    assert capsys.readouterr().err.splitlines()[:2] == [
        "training [00:40 left], 112 of 128",
        "training [04:40 left], 1 of 8",
    ]


def test_parts_side_by_side_and_more_than_were_foreseen_are_counted(capsys):
    with Job(1, "lesson") as job, job.part("01"), job.part("02") as part:
        part.step(3, 9, "cell 3 of 9")
        with job.part("03"):
            pass
    assert re.sub(r"\[[\d:?]+ left\]", "[]", capsys.readouterr().err).splitlines() == [
        "lesson 2 of 2 [], 01; 02",
        "lesson 3 of 3 [], 01; 02: cell 3 of 9; 03",
        "3 lessons took 00:00",
    ]


def test_silence_is_silent_a_way_is_said_at_once_and_an_error_ends_without_a_summary(capsys):
    SILENT.step(1, 2, "nobody hears it")
    SILENT.go_on("with less memory")
    for part in (False, SILENT):
        with reported(part, "training") as same:
            same.step(1, 2, "step 1 of 2")
    assert capsys.readouterr() == ("", "")
    with pytest.raises(KeyboardInterrupt), reported(True, "training") as part:
        for way in ("", "smaller micro-batch", "smaller micro-batch"):
            part.go_on(way)
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "training [? left], smaller micro-batch\n"


def test_in_a_notebook_a_bar_ends_as_one_line_that_stays_without_a_widget():
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    diverging = """
with Job() as job, job.part("training") as part:
    part.step(12, 60, "step 12 of 60, loss 9.100")
    raise FloatingPointError("the loss became <nan>")
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (PROGRAM, diverging)])
    options = {"kernel_name": "python3", "resources": {"metadata": {"path": ROOT}}, "allow_errors": True}
    nbclient.NotebookClient(notebook, **options).execute()
    (output,), (stopped, _) = (cell.outputs for cell in notebook.cells)
    assert "widgets" not in notebook.metadata and output.output_type == "display_data"
    assert output.data == {
        "text/plain": "[run] 3 runs took 00:00",
        "text/html": '<div class="tlkit-run">3 runs took 00:00</div>',
    }
    reached = "[run] training: step 12 of 60, loss 9.100; stopped by FloatingPointError('the loss became <nan>')"
    assert stopped.data["text/plain"] == f"{reached} after 00:00" and "&lt;nan&gt;" in stopped.data["text/html"]
