"""Experiments: runs are kept and shown, and a method that does not support its decision is refused in words."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import tlkit as tl
from tlkit.classroom.exercises import Wrong
from tlkit.classroom.lab.experiments import (
    BETTER,
    SAME,
    UNKNOWN,
    WORSE,
    Experiment,
    Run,
    experiments_of,
    find_experiment,
)
from tlkit.classroom.lab.method import difference, judge
from tlkit.classroom.lab.records import DECISION, judged_again
from tlkit.classroom.progress import kept, progress, where_was_i
from tlkit.cli import main

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
LESSONS = sorted(FOLDER.glob("[0-2][0-9]_*.py"))[1:21]  # the first is the index
EXPERIMENTS = [one for lesson in LESSONS for one in experiments_of(lesson.stem[:2]).values()]
RATE = Experiment(
    name="e00", question="Which rate gains more?", control={"rate": 1e-3, "rank": 4, "epochs": 1},
    may_change=("rate", "rank"), metrics=("perplexity", "general"), better="lower", matters=1.0,
    decisions={"it gains more": BETTER, "it gains less": WORSE, "I cannot tell": UNKNOWN, "the same": SAME},
)  # fmt: skip
COUNT = replace(RATE, seeds=1, split="", matters=0.0, metrics=("values",))
CONTROL = (40.0, 41.0, 42.5)
GAINS = (35.1, 36.0, 37.4)  # about 5 lower with each seed
WITHIN = (39.9, 41.2, 42.3)  # no difference to be seen
WIDE = (38.0, 42.0, 42.0)
HARMS = (45.2, 46.0, 47.4)


def made(*groups, setup="profile ci") -> list[Run]:
    """Runs of settings that differ from the control of `RATE`, with their seeds, split and perplexities."""
    runs = []
    for group in groups:
        changed, values, seeds, split = (*group, *(None, None))[:4]
        seeds, split = seeds or range(len(values)), split or "validation"
        for seed, value in zip(seeds, values, strict=True):
            given = RATE.control | changed
            runs.append(Run(len(runs) + 1, given, seed, split, {"perplexity": value}, setup))
    return runs


def refused(decision, runs, experiment=RATE, **changed) -> str:
    with pytest.raises(Wrong) as wrong:
        judge(experiment, runs, decision, changed)
    said = str(wrong.value)
    assert len(said) > 40 and "Traceback" not in said and "nan" not in said.split()
    return said


# What is judged: the method


@pytest.mark.parametrize(
    "decision, values", [("it gains more", GAINS), ("it gains less", HARMS), (" I Cannot Tell ", WIDE)]
)
def test_a_sound_method_is_accepted_whatever_came_out(decision, values):
    said = judge(RATE, made(({}, CONTROL), ({"rate": 2e-3}, values)), decision, {"rate": 2e-3})
    assert said.startswith("With rate=0.002, perplexity is ") and said.endswith("That supports your decision.")
    assert "over 3 seeds; the 95% interval is" in said


CLAIM = {"rate": 2e-3}
FAULTS = {
    "no control": ([(CLAIM, GAINS)], CLAIM, "there is no control", "`notes.run(measure, seed=[0, 1, 2])`"),
    "only the control": ([({}, CONTROL)], CLAIM, "nothing to compare yet", "Change one setting, such as rate"),
    "the control against itself": (
        [({}, CONTROL), (CLAIM, GAINS)], {"rate": 1e-3}, "rate=0.001 is the control itself", "Name the setting",
    ),
    "two things changed": (
        [({}, CONTROL), ({"rate": 2e-3, "rank": 8}, GAINS)], CLAIM, "2 settings differ from the control at once",
        "Run `notes.run(measure, rate=0.002)` with everything else as in the control",
    ),
    "two things changed, and said": (
        [({}, CONTROL), ({"rate": 2e-3, "rank": 8}, GAINS)], {"rate": 2e-3, "rank": 8}, "rate=0.002, rank=8",
        "Which of them made the difference cannot be seen",
    ),
    "a larger budget": (
        [({}, CONTROL), ({"epochs": 2}, GAINS)], {"epochs": 2}, "epochs has to stay at 1", "Change one of rate, rank",
    ),
    "a larger budget beside the change": (
        [({}, CONTROL), ({"rate": 2e-3, "epochs": 2}, GAINS)], CLAIM, "rate=0.002, epochs=2", "cannot be seen",
    ),
    "a setting that was not run": (
        [({}, CONTROL), (CLAIM, GAINS)], {"rate": 5e-3}, "no run with rate=0.005 is in your notebook", "rate=0.002",
    ),
    "a setting that does not exist": (
        [({}, CONTROL), (CLAIM, GAINS)], {"lr": 2e-3}, "'lr' is no setting of this experiment", "rate, rank, epochs",
    ),
    "which of them?": (
        [({}, CONTROL), (CLAIM, GAINS), ({"rank": 8}, GAINS)], {}, "which of your settings is it about", "rank=8",
    ),
    "one seed": (
        [({}, CONTROL[:1]), (CLAIM, GAINS[:1])], CLAIM, "only seed 0 was run with both settings. A decision takes at",
        "`notes.run(measure, rate=0.002, seed=[1, 2])` and `notes.run(measure, seed=[1, 2])`",
    ),
    "two seeds": (
        [({}, CONTROL[:2]), (CLAIM, GAINS)], CLAIM, "only seeds 0 and 1 were run", "Run `notes.run(measure, seed=2)`",
    ),
    "other seeds than the control": (
        [({}, CONTROL), (CLAIM, GAINS, (3, 4, 5))], CLAIM, "no seed was run with both settings",
        "`notes.run(measure, rate=0.002, seed=[0, 1, 2])`",
    ),
    "the test split": (
        [({}, CONTROL), (CLAIM, GAINS, range(3), "test")], CLAIM, "runs 4, 5 and 6 were scored on the test split",
        "Score the same on validation",
    ),
    "the test split for the control only": (
        [({}, CONTROL, range(3), "test"), (CLAIM, GAINS)], CLAIM, "runs 1, 2 and 3 were scored on the test split",
        "`notes.strike(1, ...)`",
    ),
    "the training split": (
        [({}, CONTROL), (CLAIM, GAINS, range(3), "train")], CLAIM, "were scored on 'train'", "Score on validation",
    ),
    "seeds that did not arrive": (
        [({}, CONTROL), (CLAIM, (36.0, 36.0, 36.0))], CLAIM, "all seeds of rate=0.002 gave the same perplexity",
        "copies of one run",
    ),
    "seeds that did not arrive in the control": (
        [({}, (40.0,) * 3), (CLAIM, GAINS)], CLAIM, "all seeds of the control gave the same", "Pass the seed on",
    ),
    "a setting that did not arrive": (
        [({}, CONTROL), (CLAIM, CONTROL)],
        CLAIM,
        "Most likely the setting did not reach the run",
        "look where your function passes it on",
    ),
    "one seed, two results": (
        [({}, CONTROL), (CLAIM, GAINS), (CLAIM, (30.0,), (1,))], CLAIM, "runs 5 and 7 have the same settings and seed",
        '`notes.strike(7, "why")`',
    ),
    "a claim within its interval": (
        [({}, CONTROL), (CLAIM, WIDE)], CLAIM, "That includes zero, so these runs do not support it",
        "Deciding that you cannot tell is also right",
    ),
    "a claim against the runs": (
        [({}, CONTROL), (CLAIM, HARMS)], CLAIM, "contradicts these runs", "higher than in the control",
    ),
    "a diverged run left aside": (
        [({}, CONTROL), (CLAIM, (*GAINS[:2], None))], CLAIM, "run 6 diverged", "would be cherry-picking",
    ),
    "one run that diverged": ([({}, CONTROL), (CLAIM, (None,))], CLAIM, "may be an accident", "seed=[1, 2]"),
    "a control that diverged": (
        [({}, (40.0, 41.0, None)), (CLAIM, (None, *GAINS[1:]))], CLAIM,
        "run 3 of the control", "a control that diverged",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_method_is_refused_with_the_reason_and_the_next_run(fault):
    groups, changed, reason, next_step = FAULTS[fault]
    said = refused("it gains more", made(*groups), **changed)
    assert reason in said and next_step in said, said


def test_a_control_of_another_profile_is_other_data():
    runs = made(({}, CONTROL)) + [
        replace(run, number=run.number + 3, setup="profile laptop") for run in made((CLAIM, GAINS))
    ]
    said = refused("it gains more", runs, **CLAIM)
    assert "profile ci and the others with profile laptop, which is other data" in said


def test_to_be_unable_to_tell_is_right_only_where_it_is_so():
    runs = made(({}, CONTROL), (CLAIM, GAINS))
    assert "That excludes zero, so your runs can tell" in refused("I cannot tell", runs, **CLAIM)
    assert "only seed 0" in refused("I cannot tell", [runs[0], runs[3]], **CLAIM), "one run is too few for that, too"


def test_no_difference_found_is_not_no_difference():
    wide = made(({}, CONTROL), (CLAIM, WIDE))
    said = refused("the same", wide, **CLAIM)
    assert "may be more than 1, which matters" in said and "does not mean that there is none" in said
    narrow = made(({}, CONTROL), (CLAIM, WITHIN))
    assert "is 0.03333 lower" in judge(RATE, narrow, "the same", CLAIM)
    for decision in ("I cannot tell", "it gains more"):
        said = refused(decision, narrow, **CLAIM)
        assert "The whole interval is within 1 of the control, too little to matter" in said
    assert "away from the control, so it matters" in refused("the same", made(({}, CONTROL), (CLAIM, GAINS)), **CLAIM)


def test_who_tries_many_settings_needs_a_wider_interval():
    """0.7, 1.2 and 1.0 lower: apart at 95%, and not where it is the best of six."""
    one = made(({}, CONTROL), (CLAIM, (39.3, 39.8, 41.5)))
    assert "the 95% interval" in judge(RATE, one, "it gains more", CLAIM)
    others = made(*(({"rate": rate}, WITHIN) for rate in (3e-3, 4e-3, 5e-3, 6e-3, 7e-3)))
    said = refused("it gains more", [*one, *others], **CLAIM)
    assert "the 99.2% interval" in said and "includes zero" in said
    shown = judge(RATE, [*made(({}, CONTROL), (CLAIM, GAINS)), *others], "it gains more", CLAIM)
    assert "You tried 6 settings, so the interval is wider than a 95% interval" in shown
    dropped = [replace(run, struck="a bad rate") for run in others]
    assert "the 99.2% interval" in refused("it gains more", [*one, *dropped], **CLAIM), "what is struck out was tried"


def test_more_seeds_are_planned_and_not_added_until_it_works():
    """-0.7, -1.2 and -1.0 are apart; -2.0, 1.0 and -0.5 are not, and to add seeds one by one would be no remedy."""
    said = refused("it gains more", made(({}, CONTROL), (CLAIM, WIDE)), **CLAIM)
    assert "would take about 30 seeds" in said or "would take more than 30 seeds" in said, said
    runs = made(({}, CONTROL), (CLAIM, (38.0, 38.5, 41.9)))
    said = refused("it gains more", runs, **CLAIM)
    wanted = int(re.search(r"A difference of this size would take about (\d+) seeds", said)[1])
    assert "decide on that number now, run them all, and decide once. Adding seeds until the interval excludes" in said
    assert 3 < wanted <= 30 and said.endswith("Deciding that you cannot tell is also right")
    few = replace(RATE, pair="passage", most=wanted - 1)
    assert f"would take more than {wanted - 1} passages. Deciding" in refused("it gains more", runs, few, **CLAIM)


def test_a_seed_that_was_struck_out_has_to_be_run_again():
    """Five honest seeds are refused; without the two that spoil it, as "outliers", the claim would stand."""
    control, values = (40.0, 41.0, 42.5, 40.5, 41.5), (38.0, 39.1, 40.4, 41.5, 42.6)
    runs = made(({}, control), (CLAIM, values))
    refused("it gains more", runs, **CLAIM)
    picked = [replace(run, struck="an outlier") if run.number in (9, 10) else run for run in runs]
    said = refused("it gains more", picked, **CLAIM)
    assert "runs 9 and 10 were struck out and never repeated. A seed that is dropped for its result is cherry" in said
    assert said.endswith("Run `notes.run(measure, rate=0.002, seed=[3, 4])` again")
    of_control = [replace(run, struck="an outlier") if run.number == 4 else run for run in runs]
    assert "Run `notes.run(measure, seed=3)` again" in refused("I cannot tell", of_control, **CLAIM)
    again = [*picked, *(replace(runs[n], number=n + 3) for n in (8, 9))]
    assert "includes zero" in refused("it gains more", again, **CLAIM), "run again they count again"
    assert "Runs 9 and 10 were struck out, and the notebook says" in judge(RATE, again, "I cannot tell", CLAIM)


def test_a_diverged_run_cannot_be_struck_out_of_the_way():
    runs = made(({}, (*CONTROL, 41.0)), (CLAIM, (*GAINS, None)))
    runs[-1] = replace(runs[-1], struck="diverged")
    assert "run 8 was struck out and never repeated" in refused("it gains more", runs, **CLAIM)


def test_what_was_struck_out_of_other_settings_or_on_other_text_is_not_asked_for_again():
    runs = made(({}, CONTROL), (CLAIM, GAINS), ({"rank": 8}, (90.0,)), (CLAIM, (36.5,), (7,), "test"))
    runs = [replace(run, struck="a mistake") if run.number > 6 else run for run in runs]
    runs.append(replace(runs[0], number=9, pair=9, setup="profile laptop", struck="another profile"))
    assert "Runs 7, 8 and 9 were struck out, and the notebook says why." in judge(RATE, runs, "it gains more", CLAIM)


KEEP = replace(RATE, keep={"general": 60.0})


def beside(runs, **general) -> list[Run]:
    """The runs with a further metric; for the control and for the others."""
    values = {"control": 50.0, "changed": 55.0} | general
    which = ["control" if run.settings == RATE.control else "changed" for run in runs]
    return [replace(run, metrics=run.metrics | {"general": values[one]}) for run, one in zip(runs, which, strict=True)]


def test_a_model_that_learned_nothing_does_not_win_by_having_changed_nothing():
    runs = made(({}, CONTROL), (CLAIM, GAINS))
    shown = judge(KEEP, beside(runs), "it gains more", CLAIM)
    assert "At the same time, general changed by +5. That supports your decision." in shown
    said = refused("it gains more", beside(runs, changed=64.5), KEEP, **CLAIM)
    assert "It gains more, but general is 64.5: it has hardly learned anything, because that takes 60 or less" in said
    for groups in (runs, beside(runs, changed=None)):
        assert "general is not in all of these runs" in refused("it gains more", groups, KEEP, **CLAIM)
    assert "At the same time" not in judge(RATE, runs, "it gains more", CLAIM)
    assert "general hardly changed" in judge(RATE, beside(runs, changed=50.01), "it gains more", CLAIM)
    assert "general stayed the same" in judge(RATE, beside(runs, changed=50.0), "it gains more", CLAIM)
    harms = beside(made(({}, CONTROL), (CLAIM, HARMS)), changed=90.0)
    assert "changed by +40" in judge(KEEP, harms, "it gains less", CLAIM), "only what speaks for a change needs a gain"


SHARES = replace(RATE, metrics=("right",), better="higher", matters=0.0, limits=(0.0, 100.0), decisions={
    "it is right more often": BETTER, "it is right less often": WORSE, "I cannot tell": UNKNOWN,
})  # fmt: skip


def shares(*groups) -> list[Run]:
    return [replace(run, metrics={"right": run.metrics["perplexity"]}) for run in made(*groups)]


def test_honest_runs_at_the_ceiling_are_not_accused_of_being_copies():
    found = judge(SHARES, shares(({}, (80.0, 84.0, 79.0)), (CLAIM, (100.0,) * 3)), "it is right more often", CLAIM)
    assert "is 19 higher" in found
    both = shares(({}, (100.0,) * 3), (CLAIM, (100.0,) * 3))
    assert "the same as in the control" in judge(SHARES, both, "I cannot tell", CLAIM)
    assert "includes zero" in refused("it is right more often", both, SHARES, **CLAIM)
    copies = shares(({}, (80.0, 84.0, 79.0)), (CLAIM, (99.0,) * 3))
    assert "copies of one run" in refused("it is right more often", copies, SHARES, **CLAIM)
    unchanged = shares(({}, (80.0, 100.0, 79.0)), (CLAIM, (80.0, 100.0, 79.0)))
    assert "did not reach the run" in refused("I cannot tell", unchanged, SHARES, **CLAIM)
    free = replace(SHARES, limits=())
    assert "copies of one run" in refused("I cannot tell", both, free, **CLAIM)


def test_runs_of_another_control_are_not_counted_as_tried():
    """The notebook of the general text has those on Rust in it, and those are another question."""
    one = replace(find_experiment("e17"), control={"strength": 1.0, "text": "general"})
    values = {("Rust", 1.0): 3.4, ("Rust", 0.5): 3.6, ("general", 1.0): 3.1, ("general", 0.5): 3.0}
    runs = []
    for (text, strength), nats in values.items():
        for n in range(5):
            settings = {"strength": strength, "text": text}
            measured = {"nats": nats + 0.1 * n + (0.002 * n if strength == 0.5 else 0)}
            runs.append(Run(len(runs) + 1, settings, n, "validation", measured))
    said = judge(one, runs, "it predicts better", {})
    assert "the 95% interval" in said and "You tried" not in said
    more = [replace(run, number=run.number + 20, settings=run.settings | {"strength": 0.3}) for run in runs[-5:]]
    assert "the 97.5% interval" in judge(one, [*runs, *more], "it predicts better", {"strength": 0.5})


def test_no_difference_is_warned_of_only_where_none_was_found():
    far = refused("the same", made(({}, CONTROL), (CLAIM, (38.6, 39.2, 41.9))), **CLAIM)
    assert "The difference may be more than 1, which matters" in far
    apart = made(({}, CONTROL), (CLAIM, (39.3, 39.8, 41.5)))
    said = refused("the same", apart, **CLAIM)
    assert said.endswith("which matters.") and "does not mean that there is none" not in said


def test_the_interval_is_that_of_paired_differences():
    import pandas as pd

    runs = made(({}, CONTROL), (CLAIM, GAINS, (2, 1, 0)))
    found = difference(RATE, runs[3:], runs[:3])
    rows = [(run.settings["rate"], run.pair, run.metrics["perplexity"]) for run in runs]
    table = pd.DataFrame(rows, columns=["strategy", "seed", "perplexity"]).astype({"strategy": str})
    expected = tl.paired_differences(table, "0.001").loc["0.002"]
    assert (found.mean, found.low, found.high) == pytest.approx(tuple(expected[["mean", "low", "high"]]))


def test_runs_that_are_struck_out_do_not_count_and_are_named():
    runs = made(({}, CONTROL), (CLAIM, GAINS), (CLAIM, (90.0,), (1,), "test"))
    runs[-1] = replace(runs[-1], struck="the wrong split")
    assert "Run 7 was struck out" in judge(RATE, runs, "it gains more", CLAIM)


def test_that_a_setting_diverges_is_a_result():
    runs = made(({}, CONTROL), (CLAIM, (*GAINS[:2], None)))
    assert "run 6 diverged, and no run of the control did" in judge(RATE, runs, "it gains less", CLAIM)


def test_where_nothing_is_left_to_chance_one_run_is_enough():
    runs = [
        Run(n, COUNT.control | {"rank": rank}, 0, "", {"values": values})
        for n, rank, values in ((1, 4, 64), (2, 8, 128))
    ]
    assert (
        judge(COUNT, runs, "it gains less", {})
        == "With rank=8, values is 64 higher than in the control. That supports your decision."
    )
    assert "contradicts these runs" in refused("it gains more", runs, COUNT)
    assert "there is no control" in refused("it gains more", runs[1:], COUNT)


def test_without_a_decision_or_with_another_the_choices_are_named():
    runs = made(({}, CONTROL), (CLAIM, GAINS))
    assert "Log your runs, then decide on one of `'it gains more'`" in refused(None, runs)
    assert "'better' is none of the decisions" in refused("better", runs)
    assert "none of the decisions" in refused(["it gains more"], runs) and "none of the" in refused(3, runs)


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"may_change": ("rate", "lr")}, "may_change=('rate', 'lr'): expected settings of the control"),
        ({"may_change": ()}, "expected settings of the control"),
        ({"metrics": "perplexity"}, "metrics='perplexity': expected one name or more, in a tuple"),
        ({"better": "less"}, "better='less': expected 'lower' or 'higher'"),
        ({"decisions": {"it is good": "good"}}, "expected claims out of 'better', 'worse', 'cannot tell'"),
        ({"decisions": {"it gains less": WORSE, "unclear": UNKNOWN}}, "expected one for each result, 'better'"),
        ({"decisions": {"it gains less": WORSE, "it gains more": BETTER}}, "'better', 'cannot tell', 'worse' among"),
        ({"most": 2}, "most=2: expected 3 or more"),
        ({"keep": {"rust": 100.0}}, "keep={'rust': 100.0}: expected metrics behind the first one"),
        ({"keep": {"perplexity": 100.0}}, "expected metrics behind the first one"),
        ({"seeds": 0}, "seeds=0: expected 1 or more"),
        ({"matters": 0.0}, "matters=0.0: expected more than 0"),
    ],
)
def test_an_experiment_that_could_not_be_judged_is_refused_at_once(wrong, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        replace(RATE, **wrong)


# What is kept and shown


@pytest.fixture
def file(tmp_path, monkeypatch):
    file = tmp_path / "progress.jsonl"
    monkeypatch.setenv("TLKIT_PROGRESS", str(file))
    return file


def filled(notes, values=GAINS, **changed) -> None:
    for seed, (one, other) in enumerate(zip(CONTROL, values, strict=True)):
        notes.add(seed=seed, split="validation", perplexity=one)
        notes.add(seed=seed, split="validation", perplexity=other, **(changed or {"rate": 2e-3}))


def test_runs_are_kept_and_are_there_again_in_the_next_notebook(file, capsys):
    filled(tl.lab_notebook(RATE))
    assert len(tl.lab_notebook(RATE).runs) == 6 and len(file.read_text().splitlines()) == 6
    filled(tl.lab_notebook(RATE))
    assert len(tl.lab_notebook(RATE).runs) == 6, "the same cell run again"
    verdict = tl.lab_notebook(RATE).decide("it gains more", rate=2e-3)
    assert verdict.passed and repr(verdict).startswith("[SUPPORTED] e00: It gains more. With rate=0.002")
    assert "✓ supported" in verdict._repr_html_() and capsys.readouterr().out == ""
    assert [(one.name, one.right) for one in kept()] == [("e00", True)]


def test_without_a_file_they_are_kept_in_memory(monkeypatch):
    monkeypatch.setenv("TLKIT_PROGRESS", "off")
    monkeypatch.setattr("tlkit.classroom.progress._while_off", [])
    filled(tl.lab_notebook(RATE))
    assert tl.lab_notebook(RATE).decide("it gains more").passed


def test_a_file_of_something_else_is_named_and_left_alone(file, capsys):
    file.write_text('{"name": "e00", "run": 3, "at": ""}\n')
    notes = tl.lab_notebook(RATE)
    notes.add(seed=0, split="validation", perplexity=40)
    assert "This run is not kept with your progress: line 1 of" in capsys.readouterr().out
    assert "Your runs cannot be read: line 1 of" in repr(notes) and "cannot be read" in notes._repr_html_()
    assert "runs cannot be read: line 1 of" in notes.decide("it gains more").message
    notes.strike(1, "wrong")
    assert "cannot be read" in capsys.readouterr().out
    assert file.read_text() == '{"name": "e00", "run": 3, "at": ""}\n'


def test_a_run_of_another_release_is_passed_over(file):
    file.write_text('{"name": "e00", "run": {"form": 2}, "at": ""}\n')
    assert tl.lab_notebook(RATE).runs == []


@pytest.mark.parametrize(
    "given, sentence",
    [
        ({"seed": 0, "perplexity": 40}, 'say which texts it was scored on, such as split="validation"'),
        ({"seed": 0, "split": "valid", "perplexity": 40}, "you gave 'valid'"),
        ({"split": "validation", "perplexity": 40}, "say which seed it is, such as seed=0"),
        ({"seed": 0, "split": "validation"}, "perplexity is missing"),
        ({"seed": 0, "split": "validation", "perplexity": "40"}, "perplexity must be a number, not str"),
        ({"seed": 0, "split": "validation", "perplexity": [40, 41]}, "perplexity must be a number, not list"),
        ({"seed": 0, "split": "validation", "perplexity": True}, "must be a number, not bool True"),
        (
            {"seed": 0, "split": "validation", "perplexity": 40, "rte": 2e-3},
            "'rte' is not known here: did you mean rate?",
        ),
        ({"seed": 0, "split": "validation", "perplexity": 40, "decay": 0}, "`tl.lab_notebook('e00', decay=...)`"),
        ({"seed": 0, "split": "validation", "perplexity": 40, "rate": [1e-3]}, "rate must be one number, a word"),
        ({"seed": 0, "split": "validation", "perplexity": 40, "rate": float("inf")}, "rate must be a finite number"),
        ({"seed": [0, 1], "split": "validation", "perplexity": 40}, "seed must be one number"),
    ],
)
def test_what_is_logged_wrongly_is_a_sentence_and_is_not_kept(file, capsys, given, sentence):
    tl.lab_notebook(RATE).add(**given)
    said = capsys.readouterr().out
    assert said.startswith("Not logged: ") and sentence in said and said.endswith(".\n") and not file.exists()


def test_numbers_of_libraries_and_results_of_the_lessons_are_read(file):
    import numpy as np
    import torch

    notes = tl.lab_notebook(RATE)
    result = type("Result", (), {"perplexity": 40.5})()
    notes.add(seed=np.int64(0), split="validation", perplexity=result, rate=np.float32(0.5))
    notes.add(seed=torch.tensor(1), split="validation", perplexity=torch.tensor(float("nan")))
    one, other = notes.runs
    assert (one.pair, one.metrics["perplexity"], one.settings["rate"]) == (0, 40.5, 0.5)
    assert other.metrics == {"perplexity": None} and "diverged" in repr(notes) and "diverged" in notes._repr_html_()
    json.loads(file.read_text().splitlines()[1])


def test_a_run_is_struck_out_with_a_reason_and_stays_readable(file, capsys):
    notes = tl.lab_notebook(RATE)
    filled(notes)
    notes.add(seed=0, split="test", perplexity=30)
    notes.strike(9, "wrong")
    notes.strike(7)
    assert not notes.decide("it gains more").passed
    notes.strike(7, "the <test> split")
    said = capsys.readouterr().out
    assert "There is no run 9: expected one of 1, 2," in said and "Say why, for whoever reads" in said
    assert notes.decide("it gains more").passed and len(notes.runs) == 7
    assert "struck out: the &lt;test&gt; split" in notes._repr_html_() and "<s>30</s>" in notes._repr_html_()
    assert "struck out: the <test> split" in repr(notes)


def measure(rate, rank, seed):
    return {"perplexity": 40 + seed - 1000 * rate + seed * rate, "general": 50 + rank}


def test_a_function_is_run_for_each_seed_and_logged(file, capsys):
    notes = tl.lab_notebook(RATE)
    notes.run(measure, seed=[0, 1, 2])
    notes.run(measure, rate=2e-3, seed=range(3))
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "run 1: control, seed=0: perplexity 39, general 54" and said[3].startswith(
        "run 4: rate=0.002, seed=0:"
    )
    assert [run.split for run in notes.runs] == ["validation"] * 6 and notes.decide("it gains more").passed
    notes.run(lambda seed: (41.0 + seed, 60), seed=5)
    notes.run(lambda seed: 42.0, seed=6)
    assert notes.runs[6].metrics == {"perplexity": 46.0, "general": 60.0} and notes.runs[7].metrics == {
        "perplexity": 42.0
    }


def test_a_count_needs_no_seed_and_no_split(file, capsys):
    notes = tl.lab_notebook(COUNT)
    for rank in (4, 8, 4):  # the last one is in the notebook already
        notes.run(lambda rank: 16 * rank, rank=rank)
    said = "run 1: control: values 64\nrun 2: rank=8: values 128\nrun 1: control: values 64\n"
    assert capsys.readouterr().out == said
    assert list(notes.table.columns) == ["run", "setting", "values"]
    assert notes.decide("it gains less").passed and "+64" in repr(notes)
    notes.add(split="test", values=64)
    assert "'split' is not known here" in capsys.readouterr().out


TEXTS = type("Corpus", (), {"test": ["a"], "validation": ["b"]})()


def scored(text):
    return len(TEXTS.test) + len(text)


@pytest.mark.parametrize(
    "function, given, sentence",
    [
        (3, {"seed": 0}, "pass the function itself, without calling it; this is int 3"),
        (measure, {}, "say which seed, such as seed=1 or seed=[0, 1, 2]"),
        (measure, {"seed": []}, "say which seed"),
        (measure, {"seed": 0, "rte": 1}, "did you mean rate?"),
        (measure, {"seed": 0, "perplexity": 40}, "perplexity is what your function measures"),
        (measure, {"seed": 0, "rate": [1e-3, 2e-3]}, "rate must be one number"),
        (
            measure,
            {"seed": 0, "epochs": 2},
            "your function takes no 'epochs', so epochs would be logged and would change",
        ),
        (lambda rate: 40, {"seed": 0}, "your function takes no 'seed'"),
        (lambda seed: None, {"seed": 0}, "perplexity must be a number, not NoneType"),
        (lambda seed: (1, 2, 3), {"seed": 0}, "must return perplexity, general, not tuple"),
        (lambda seed: {"loss": 1}, {"seed": 0}, "'loss' is not known here"),
        (
            lambda seed: 1 / 0,
            {"seed": 0},
            "your function stopped with ZeroDivisionError: division by zero, in its line",
        ),
        (lambda seed: len(TEXTS.test), {"seed": 0}, "your function reads the test split"),
        (lambda seed: scored("a"), {"seed": 0}, "your function reads the test split"),
        (lambda seed: [len(TEXTS.test) for _ in "a"][0], {"seed": 0}, "your function reads the test split"),
    ],
)
def test_a_function_that_does_not_fit_is_a_sentence(file, capsys, function, given, sentence):
    tl.lab_notebook(RATE).run(function, **given)
    said = capsys.readouterr().out
    assert said.startswith("Not logged: ") and sentence in said, said
    assert not file.exists()


def test_what_was_run_before_an_error_stays(file, capsys):
    tl.lab_notebook(RATE).run(lambda seed: 40.0 if seed == 0 else 1 / 0, seed=[0, 1, 2])
    assert len(tl.lab_notebook(RATE).runs) == 1 and "Not logged: your function stopped" in capsys.readouterr().out


def test_a_setting_of_ones_own_is_changed_against_its_value_in_the_control(file):
    notes = tl.lab_notebook(RATE, decay=0.01)
    filled(notes, decay=0.1)
    assert notes.decide("it gains more", decay=0.1).passed
    assert "Perplexity is not a setting" in tl.lab_notebook(RATE, perplexity=3)
    assert "Rate must be one number" in tl.lab_notebook(RATE, rate=[3])


@pytest.mark.parametrize("name", ["e99", "ex05_1", "e5", None, 3, ["e05"]])
def test_a_mistyped_name_is_a_sentence_whatever_is_asked_of_it(name, capsys):
    notes = tl.lab_notebook(name)
    notes.add(seed=0)
    assert notes.decide("x") is None and capsys.readouterr().out.count("is unknown: expected") == 2
    assert "is unknown: expected" in notes._repr_html_()
    assert "e05 is an experiment: log runs in tl.lab_notebook('e05')" in tl.check("e05", 3).message
    with pytest.raises(ValueError, match="is unknown: expected"):
        find_experiment(name)


def test_the_notebook_says_in_numbers_what_its_dots_show(file):
    notes = tl.lab_notebook(RATE)
    assert "No run is logged yet. Begin with the control: rate=0.001, rank=4, epochs=1." in repr(notes)
    assert "No run is logged yet" in notes._repr_html_()
    notes.add(seed=0, split="validation", perplexity=40)
    notes.add(seed=0, split="validation", perplexity=35, rate=2e-3)
    assert "-5 (one seed: no interval)" in repr(notes)
    filled(tl.lab_notebook(RATE))
    shown, words = notes._repr_html_(), repr(notes)
    assert shown.count("●") == 4 and shown.count("○") == 3 and "<details open>" in shown
    for one in (shown, words):
        assert "rate=0.002" in one and "at least 3 seeds of each setting" in one
    for seed in (3, 4):
        notes.add(seed=seed, split="validation", perplexity=40 + seed)
    assert "<details>" in notes._repr_html_() and "All runs (9)" in notes._repr_html_()
    assert list(notes.table.columns) == ["run", "setting", "seed", "split", "perplexity", "general"]


def test_the_lists_of_progress_know_experiments(file, capsys):
    notes = tl.lab_notebook("e05")
    assert not notes.decide(...).passed and not kept(), "no decision is no try"
    notes.decide("it forgets less")
    assert progress("05").set_index("exercise").answers["e05"] == 1
    assert where_was_i().startswith("Your last answer was to e05")
    assert main(["progress", "--lesson", "05"]) == 0 and "e05" in capsys.readouterr().out


# What is handed in


def stored(decision) -> dict:
    """What a notebook's file has of a decision."""
    from IPython.core.interactiveshell import InteractiveShell

    data, _ = InteractiveShell.instance().display_formatter.format(decision)
    return json.loads(json.dumps({"output_type": "execute_result", "data": data}))


def test_grading_judges_a_stored_decision_again(file, tmp_path, capsys):
    from tlkit.classroom.grading.grade import grade

    notes = tl.lab_notebook("e05")
    for seed, (one, other) in enumerate(zip(CONTROL, GAINS, strict=True)):
        notes.add(seed=seed, split="validation", general=one, rust=84)
        notes.add(seed=seed, split="validation", general=other, rust=86, rate=1e-3)
    assert notes.decide("it forgets less").passed
    right, wrong = stored(notes.decide("it forgets less")), stored(notes.decide("it forgets more"))
    assert set(right["data"]) >= {"text/plain", "text/html", DECISION}
    assert judged_again([right])["e05"] == (True, "")
    mine = tl.lab_notebook("e05", decay=0.01)
    for seed, one in enumerate(CONTROL):
        mine.add(seed=seed, split="validation", general=one, rust=84)
        mine.add(seed=seed, split="validation", general=one - 5 - 0.1 * seed, rust=86, decay=0.1)
    decision = stored(mine.decide("it forgets less", decay=0.1))
    assert judged_again([decision])["e05"] == (True, ""), "a setting of one's own"
    passed, reason = judged_again([right, wrong, {"output_type": "stream"}, None])["e05"]
    assert not passed and "contradicts these runs" in reason, "the last one counts"
    forged = json.loads(json.dumps(wrong).replace("[NOT YET]", "[SUPPORTED]").replace("not yet", "supported"))
    assert not judged_again([forged])["e05"][0], "what is shown is not asked"
    for part in ("name", "control", "runs", "changed"):
        for broken in (None, 3, [], [3], {"a": []}):
            spoilt = json.loads(json.dumps(right))
            spoilt["data"][DECISION][part] = broken
            assert not any(passed for passed, _ in judged_again([spoilt]).values()) or broken in ([], {"a": []})
    notebook = json.loads((FOLDER / "05_freeze_lower_layers.ipynb").read_text(encoding="utf-8"))
    place = next(n for n, cell in enumerate(notebook["cells"]) if "notes.decide" in "".join(cell["source"]))
    for output, verdict in ((right, True), (wrong, False)):
        notebook["cells"] = [notebook["cells"][0], {**notebook["cells"][place], "outputs": [output]}]
        (tmp_path / "mine.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
        marks = {mark.exercise: mark for mark in grade(tmp_path / "mine.ipynb").marks}
        assert marks["e05"].right is verdict and not marks["ex05_1"].right
        main(["grade", str(tmp_path / "mine.ipynb")])
        said = capsys.readouterr().out
        assert "0 of 3 right" in said and f"e05 decision{' supported' if verdict else ': not yet:'}" in said
        notebook = json.loads((FOLDER / "05_freeze_lower_layers.ipynb").read_text(encoding="utf-8"))


# What the lessons have


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_every_lesson_has_an_experiment_with_a_control_in_its_notebook(lesson):
    """Its cells stand behind all others, one logs a control, and what is left to the student is said and harmless."""
    import nbformat

    (one,) = experiments_of(lesson.stem[:2]).values()
    cells = nbformat.read(lesson.with_suffix(".ipynb"), 4).cells
    place = next(n for n, cell in enumerate(cells) if cell.source.startswith("## Your experiment"))
    text, starter, decide = cells[place : place + 3]
    later = next(cell for cell in cells[place + 3 :] if cell.cell_type == "code")
    assert later.source == "import tlkit as tl", "only the exercises follow"
    assert "?" in text.source and "control" in text.source and len(text.source.split()) < 190
    assert starter.source.endswith("\nnotes") and f'tl.lab_notebook("{one.name}")' in starter.source
    lines = decide.source.splitlines()
    assert re.fullmatch(r"# your runs here, such as notes\.run\(measure, .+\)", lines[0])
    assert "control" in lines[1] and lines[1].startswith("# ") and lines[2:] == ["notes.decide(...)"]
    shown = "".join(output.get("text", "") for output in starter.outputs)
    (page,) = [output["data"] for output in starter.outputs if output.output_type == "execute_result"]
    assert "Not logged" not in shown and page["text/plain"].startswith(f"[LAB NOTEBOOK] {one.name}: {one.question}")
    assert re.search(r"^control +[1-9]", page["text/plain"], re.MULTILINE) and "○" in page["text/html"]
    (card,) = [output["data"] for output in decide.outputs]
    assert card["text/plain"] == repr(tl.lab_notebook(one.name).decide(...)) and "no decision yet" in card["text/plain"]


@pytest.mark.parametrize("one", EXPERIMENTS, ids=lambda one: one.name)
def test_an_experiment_is_declared_as_its_rules_need_it(one):
    assert re.fullmatch(r"e\d\d", one.name) and one.question.endswith("?") and len(one.question) <= 100
    assert set(one.may_change) <= set(one.control) and one.better in ("lower", "higher") and one.metrics
    claims = list(one.decisions.values())
    assert len(set(claims)) == len(claims) >= 3 and set(claims) <= {BETTER, WORSE, UNKNOWN, SAME}
    assert (SAME in claims) is (one.matters > 0), "what does not matter has a size"
    assert (UNKNOWN in claims) is (one.seeds > 1), "where chance plays a part, one may be unable to tell"
    assert one.seeds == 1 or one.seeds >= 3
    assert one.split in ("", "validation")
    assert not set(one.control) & {*one.metrics, one.pair, "split"}


@pytest.mark.parametrize("one", EXPERIMENTS, ids=lambda one: one.name)
def test_each_of_its_decisions_can_be_supported_and_can_be_refused(one, monkeypatch):
    """By runs that are made up, which differ in one setting and whose method is sound."""
    other = one.control | {one.may_change[0]: "another"}
    sizes = {BETTER: 30.0, WORSE: -30.0, UNKNOWN: 0.0, SAME: one.matters / 10}
    for decision, claim in one.decisions.items():
        runs = []
        for n in range(max(one.seeds, 1)):
            wobble = 20.0 * (-1) ** n if claim == UNKNOWN else 0.1 * n * bool(one.matters == 0)
            gain = (sizes[claim] + wobble) * max(one.matters, 1) if claim != SAME else sizes[claim]
            value = 1000.0 + 7 * n + n * one.matters / 100
            away = -gain if one.better == "lower" else gain
            for settings, measured in ((one.control, value), (other, value + away)):
                metrics = {one.metrics[0]: measured} | {name: limit - 1 for name, limit in one.keep.items()}
                runs.append(Run(len(runs) + 1, settings, n, one.split, metrics))
        assert judge(one, runs, decision, {}).endswith("That supports your decision.")
        for wrong, claimed in one.decisions.items():
            if claimed != claim:
                refused(wrong, runs, one)


def made_up(names: list[str], one: Experiment):
    """A function that takes what a lesson's takes, and measures something else for each setting and each pair."""

    def measured(**given):
        n, changed = given.get(one.pair, 0), {name: given[name] for name in one.control if name in given}
        away = 10 + n % 3 if changed != {name: one.control[name] for name in changed} else 0
        value = 50 + 5 * n + (-away if one.better == "lower" else away) * max(1, one.matters)
        return {name: one.keep.get(name, 10) - 1 for name in one.metrics} | {one.metrics[0]: value}

    there = {"measured": measured}
    exec(f"def measure({', '.join(names)}): return measured(**locals())", there)
    return there["measure"]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_an_experiment_can_be_carried_out_as_it_is_written(lesson, file, capsys):
    """Its own runs, those that it suggests, the control on the same pairs, a decision; the measurements are made up."""
    import ast

    import jupytext
    import nbformat

    (one,) = experiments_of(lesson.stem[:2]).values()
    cells = jupytext.read(lesson).cells
    place = next(n for n, cell in enumerate(cells) if cell.source.startswith("## Your experiment"))
    text, starter, decide = (cell.source for cell in cells[place : place + 3])
    tree = ast.parse(starter)
    (function,) = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "measure"]
    here = {"measure": made_up([argument.arg for argument in function.args.args], one)}
    here["notes"] = tl.lab_notebook(one.name)
    own = [ast.unparse(node) for node in tree.body if ast.unparse(node).startswith("notes.run(")]
    if not own:  # what the lesson has measured above is logged from there
        stored = nbformat.read(lesson.with_suffix(".ipynb"), 4).cells
        outputs = next(cell.outputs for cell in stored if f'lab_notebook("{one.name}")' in cell.source)
        count = int(re.search(r"^control +(\d+)", outputs[-1]["data"]["text/plain"], re.MULTILINE)[1])
        own = ["notes.run(measure)" if one.seeds == 1 else f"notes.run(measure, {one.pair}=range({count}))"]
    suggested, control = decide.splitlines()[:2]
    call = suggested.removeprefix("# your runs here, such as ")
    more = [control.split(": ")[1]] if "notes.run" in control else []
    for line in (*own, call, *more):
        exec(line, here)
    assert "Not logged" not in capsys.readouterr().out
    given = {key.arg: eval(ast.unparse(key.value)) for key in ast.parse(call).body[0].value.keywords}
    changed = {name: value for name, value in given.items() if name != one.pair}
    assert set(changed) <= set(one.may_change) and len(changed) == 1
    verdicts = {decision: here["notes"].decide(decision, **changed) for decision in one.decisions}
    assert [one.decisions[decision] for decision, verdict in verdicts.items() if verdict.passed] == [BETTER], verdicts
    examples = re.findall(r"notes\.decide\(([^.)]+)\)", text.replace("\n", " "))
    for example in examples:
        said, (name, _) = ast.literal_eval(example.split(", ")[0]), example.split(", ")[1].split("=")
        assert name in one.may_change and said in ("…", *one.decisions)
    settings = {run.settings[name] for name in one.may_change for run in here["notes"].runs if name in run.settings}
    assert examples or len(settings) <= len(one.may_change) + 1, "who has to name the setting is told so"
    assert "01_setup_and_devices.ipynb" in text or one.name == "e01"
    assert re.search(r"\b(seconds?|s|minutes?)\b", text), "how long a run takes"
