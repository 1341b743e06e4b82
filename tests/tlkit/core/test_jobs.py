"""What is running, which of how many and how long still: on a terminal and in a log."""

from types import SimpleNamespace

import pytest

from tlkit import jobs
from tlkit.jobs import SILENT, Job, reported


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
