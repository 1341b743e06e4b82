"""What is running, which of how many and how long still: on a terminal, in a log, in a notebook."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tlkit.jobs import SILENT, Job, duration, reported

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import sys
from tlkit.jobs import Job, reported
class Clock:
    now = 0.0
    def __call__(self):
        return self.now
clock = Clock()
with Job(3, clock=clock) as job:
    for name in ("full, seed 0", "freeze_embeddings, seed 0", "bitfit, seed 0"):
        with job.part(name) as part:
            for step in range(5):
                part.step(step, 4, f"step {step} of 4, loss 3.214")
                clock.now += 25
"""


class Clock:
    """Time that passes only when it is told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_time_left_is_right_where_all_runs_take_as_long(clock):
    """Four runs of 2 s loading, ten steps of 3 s and 8 s scoring: from the second on it is known to the second."""
    job = Job(4, shown=False, clock=clock)
    end = clock.now + 4 * (2 + 30 + 8)
    for run in range(4):
        with job.part(f"run {run}") as part:
            if run == 0:
                assert job.seconds_left is None and job.share_done == 0
            clock.now += 2
            part.step(0, 10, "step 0 of 10")
            for step in range(1, 11):
                clock.now += 3
                part.step(step, 10, f"step {step} of 10")
                if run:
                    assert job.seconds_left == pytest.approx(end - clock.now, abs=1e-9)  # sums of floats
                else:  # that it will be scored, too, is not known yet: 8 s a run
                    assert job.seconds_left == pytest.approx(end - clock.now - 8 * 4, abs=1e-9)
            part.step(0, 4, "scoring")
            for quarter in range(1, 5):
                clock.now += 2
                part.step(quarter, 4, "scoring")
                assert job.seconds_left == pytest.approx(end - clock.now, abs=1e-9)
                assert job.share_done == pytest.approx((clock.now - 100) / 160, abs=1e-9)
    assert job.seconds_left == 0 and job.summary() == "4 runs took 3 min"


def test_a_training_that_goes_on_counts_the_steps_it_takes_itself(clock):
    job = Job(shown=False, clock=clock)
    with job.part("training") as part:
        part.step(90, 100, "step 90 of 100")
        assert job.seconds_left is None
        clock.now += 5
        part.step(91, 100, "step 91 of 100")
        assert job.seconds_left == pytest.approx(45)  # not the half second that 91 steps in 5 s would leave


def test_parts_side_by_side_share_the_time_that_is_left(clock):
    """Of six lessons of a minute two run at a time."""
    job = Job(6, "lesson", shown=False, clock=clock)
    with job.part("01"), job.part("02"):
        clock.now += 60
    with job.part("03"), job.part("04") as part:
        clock.now += 15
        part.doing = "cell 3 of 9"
        assert job.seconds_left == pytest.approx(45 + 60)
        assert str(job) == "lesson 4 of 6 (about 2 min left): 03; 04: cell 3 of 9"


def test_a_search_that_needs_more_runs_than_foreseen_never_counts_beyond_the_total(clock):
    job = Job(1, shown=False, clock=clock)
    for name in ("a", "b"):
        with job.part(name):
            clock.now += 1
    assert (job.total, job.begun) == (2, 2) and job.seconds_left == 0 and job.summary() == "2 runs took 2 s"


def test_a_log_gets_a_line_for_each_part_and_one_now_and_then(capsys, clock):
    with Job(2, clock=clock) as job:
        for name in ("full", "lora"):
            with job.part(name) as part:
                for step in range(5):
                    part.step(step, 4, f"step {step} of 4, loss 2.5")
                    clock.now += 25
    told = capsys.readouterr()
    assert told.out == "" and told.err.splitlines() == [
        "run 1 of 2: full",
        "run 1 of 2 (about 2 min left): full: step 2 of 4, loss 2.5",
        "run 1 of 2 (about 2 min left): full: step 4 of 4, loss 2.5",
        "run 2 of 2 (about 2 min left): lora",
        "run 2 of 2 (about 75 s left): lora: step 2 of 4, loss 2.5",
        "run 2 of 2 (about 25 s left): lora: step 4 of 4, loss 2.5",
        "2 runs took 4 min",
    ]


def test_silence_is_silent_and_an_error_ends_without_a_summary(capsys, clock):
    SILENT.step(1, 2, "nobody hears it")
    SILENT.go_on("with less memory")
    with Job(2, shown=False, clock=clock) as job, job.part("full") as part:
        part.step(1, 2, "step 1 of 2")
    with reported(False, "training") as part:
        part.step(1, 2, "step 1 of 2")
    with reported(part, "training") as same:
        assert same is part
    assert capsys.readouterr() == ("", "")
    with pytest.raises(KeyboardInterrupt), Job(2, clock=clock) as job, job.part("full"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "run 1 of 2: full\n"


@pytest.mark.parametrize(("seconds", "lines"), [(4, 0), (6, 1), (31, 2)])
def test_in_a_log_one_part_alone_says_nothing_until_it_is_long(seconds, lines, capsys, clock):
    with Job(clock=clock) as job, job.part("training") as part:
        for step in range(seconds + 1):
            part.step(step, seconds, f"step {step} of {seconds}")
            clock.now += step < seconds
    said = capsys.readouterr().err.splitlines()
    assert len(said) == lines
    assert said[-1:] == [f"training: step {seconds} of {seconds}; took {seconds} s"][:lines]


def test_a_way_that_changes_is_said_at_once(capsys, clock):
    with reported(True, "training") as part:
        part.go_on("")
        part.go_on("smaller micro-batch")
        part.go_on("smaller micro-batch")
    assert capsys.readouterr().err.splitlines() == [
        "training: smaller micro-batch",
        "training: smaller micro-batch; took 0 s",
    ]


def test_a_line_that_is_said_goes_to_stdout(capsys, clock):
    with Job(2, clock=clock) as job, job.part("full"):
        job.say("a verdict")
    assert capsys.readouterr().out == "a verdict\n"


@pytest.mark.parametrize("columns", [100, 48])
def test_on_a_terminal_one_line_changes_in_place_and_fits(columns):
    pty = pytest.importorskip("pty")
    import fcntl
    import struct
    import termios

    first, second = pty.openpty()
    fcntl.ioctl(second, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=second, stderr=second, cwd=ROOT)
    os.close(second)
    shown = b""
    while True:
        try:
            chunk = os.read(first, 65536)
        except OSError:  # Linux says so when the last writer is gone
            break
        if not chunk:
            break
        shown += chunk
    os.close(first)
    assert process.wait() == 0
    frames = re.split(r"[\r\n]+", shown.decode())
    assert max(map(len, frames)) <= columns
    running = [frame.rstrip() for frame in frames if "run 2 of 3" in frame]
    assert all("run 2 of 3 (about " in frame for frame in running) and len(running) == 5
    assert running[-1].endswith("freeze_embeddings, seed 0: step 4 of 4, loss 3.214") is (columns == 100)
    assert frames[-2] == "3 runs took 6 min" and shown.count(b"\n") == 1, "nothing else stays"


def test_in_a_pipe_there_are_plain_lines():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=ROOT)
    lines = done.stderr.splitlines()
    assert done.stdout == "" and "\r" not in done.stderr and "%" not in done.stderr
    assert lines[0] == "run 1 of 3: full, seed 0" and lines[-1] == "3 runs took 6 min" and len(lines) == 10


def in_a_notebook(*cells):
    """The outputs of cells that are run, as a page keeps them."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    options = {"kernel_name": "python3", "resources": {"metadata": {"path": ROOT}}, "allow_errors": True}
    nbclient.NotebookClient(notebook, **options).execute()
    assert "widgets" not in notebook.metadata
    return [cell.outputs for cell in notebook.cells]


def test_in_a_notebook_a_bar_ends_as_one_line_that_stays_without_a_widget():
    diverging = """
with Job(clock=clock) as job, job.part("training") as part:
    part.step(12, 60, "step 12 of 60, loss 9.100")
    clock.now += 3
    raise {}
"""
    failures = ("FloatingPointError('the loss became <nan> at step 13')", "KeyboardInterrupt", "OSError('full')")
    ended, *broken = in_a_notebook(PROGRAM, *map(diverging.format, failures))
    (output,) = ended
    assert output.output_type == "display_data" and set(output.data) == {"text/plain", "text/html"}
    assert output.data["text/plain"] == "[run] 3 runs took 6 min"
    assert output.data["text/html"] == '<div class="tlkit-run">✓ 3 runs took 6 min</div>'
    said = [outputs[0].data for outputs in broken]
    reached = "training: step 12 of 60, loss 9.100;"
    assert [data["text/plain"] for data in said] == [
        f"[run] {reached} diverged after 3 s: the loss became <nan> at step 13",
        f"[run] {reached} interrupted after 3 s",
        f"[run] {reached} stopped by an error after 3 s",
    ]
    assert "✗" in said[0]["text/html"] and "&lt;nan&gt;" in said[0]["text/html"], "and the progress is gone"
    assert not any("<progress" in data["text/html"] for data in said)


def test_what_nbval_compares_of_a_bar_is_the_same_at_its_beginning_and_its_end():
    """nbval does not know of changes to what was shown: it sees the first line, and the file holds the last."""
    from nbval.plugin import get_sanitize_patterns

    rules = get_sanitize_patterns((ROOT / "tests" / "nbval_sanitize.cfg").read_text(encoding="utf-8"))

    def compared(text):
        for pattern, replacement in rules:
            text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
        return text

    begun, ended = "[run] training: step 0 of 9", "[run] training: 9 steps, loss from 4.1 to 3.2; took 12 s"
    assert compared(begun) == compared(ended) == "[run]"
    page = '<div class="tlkit-run"><progress value="0.1" max="1"></progress> training</div>'
    assert compared(page) == compared('<div class="tlkit-run">✓ took 12 s</div>') == "<run>"
    assert compared("a [run] of 3") == "a [run] of 3" and compared("<div>4.1</div>") == "<div>4.1</div>"


@pytest.mark.parametrize(("seconds", "said"), [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (7200, "2.0 h")])
def test_durations_are_said_as_people_do(seconds, said):
    assert duration(seconds) == said
