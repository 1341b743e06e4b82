"""What is running, which of how many and how long still."""

from types import SimpleNamespace

import pytest

from tlkit.jobs import SILENT, Job, reported


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when it is told to."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr("tqdm.std.time", lambda: clock.now)
    return clock


def states(capsys) -> list[str]:
    told = capsys.readouterr()
    assert told.out == ""
    return [state.rsplit("| ", 1)[-1].strip() for state in told.err.split("\r") if "| " in state]


def test_a_log_gets_a_state_for_each_part_and_one_now_and_then(capsys, clock):
    with Job(2) as job:
        for name in ("full", "lora"):
            with job.stage(name) as stage:
                for step in range(5):
                    stage.step(step, 4, f"step {step} of 4")
                    clock.now += 25
                stage.step(0, 4, "scoring")
    assert states(capsys) == [
        "run 1 of 2, full [? left]",
        "run 1 of 2, full [02:30 left], step 2 of 4",
        "run 1 of 2, full [01:40 left], step 4 of 4",
        "run 2 of 2, lora [02:05 left]",
        "run 2 of 2, lora [01:30 left], step 1 of 4",
        "run 2 of 2, lora [00:28 left], step 3 of 4",
        "run 2 of 2, lora [00:00 left], scoring",
    ]


def test_one_part_alone_says_nothing_in_a_log_until_it_is_long(capsys, clock):
    for seconds in (29, 31):
        with Job() as job, job.stage("training") as stage:
            for step in range(seconds + 1):
                stage.step(step, seconds, f"step {step} of {seconds}")
                clock.now += step < seconds
        assert len(states(capsys)) == (seconds > 30)


def test_silence_is_silent(capsys):
    SILENT.step(1, 2, "nobody hears it")
    for part in (False, SILENT):
        with reported(part, "training") as same:
            same.step(1, 2, "step 1 of 2")
    assert capsys.readouterr() == ("", "")
