"""A study of the reader's own: every planted fault is caught with a reason in words, and sound ones pass."""

import dataclasses
import json
import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from planted_study import BECAUSE, BEST, CONTROL, EXPLANATION, LIMITS, PLAN, changed, planted_study, without
from scipy import stats

from tests.reports.planted_comparison import planted_comparison
from tlkit.classroom.study.datasheet import (
    datasheet,
    recorded_agreement,
    refuse_unfit,
    smallest_difference,
    spread_of,
    without_copies,
)
from tlkit.classroom.study.making import _answered, study
from tlkit.classroom.study.method import RUBRIC, judge_study, rubric
from tlkit.classroom.study.plan import VERDICTS, Decision, StudyPlan, fit_to_card, refuse_misfits
from tlkit.classroom.study.questions import six_questions
from tlkit.classroom.study.reading import read_study
from tlkit.classroom.study.record import RECORD, Trained, Tried
from tlkit.classroom.study.report import PAGE, TABLE, report_markdown, report_page, table_of, write_up
from tlkit.classroom.study.words import figures, render, typed_figures
from tlkit.cli import main
from tlkit.corpus import Corpus, load_corpus
from tlkit.evaluation import perplexity, result_of
from tlkit.evidence.audit import audit
from tlkit.evidence.carry_over import recorded_comparison
from tlkit.evidence.comparison_table import ZERO_SHOT
from tlkit.evidence.learning_rates import learning_rates_for
from tlkit.evidence.planning import smallest_found
from tlkit.evidence.statistics import SCORE_COLUMNS, compare_pairs
from tlkit.reports.charts import perplexity_chart
from tlkit.reports.lessons.study import difference_chart, seed_forgetting_chart, study_path
from tlkit.settings import DATA

GOOD = planted_study()
CLOSE = planted_study(-0.01, noise=0.05)
CLEAR_AND_SMALL = planted_study(-0.02, noise=0.001)  # excludes zero, and does not matter
WORDS = {"because": BECAUSE, "explanation": EXPLANATION, "limits": LIMITS}


def decided(verdict, strategy="full", than="lora", base=GOOD, **words):
    return base.decided(Decision(verdict, strategy, than, **(WORDS | words)))


def tried(change):
    """The good study with another search: `change` gets each run of it, and returns what is to stand there."""
    found = [other for one in GOOD.tried if (other := change(one)) is not None]
    return replace(GOOD, tried=found)


def leaked(**counts):
    return replace(GOOD, text=replace(GOOD.text, copies=GOOD.text.copies | counts))


# Each is a fault that a student could make, with a part of what is said of it, and under which heading of the rubric.
BAD = {
    "tuned on the test split": (
        tried(lambda one: replace(one, split="test")),
        "tuning",
        "Learning rates were chosen on the test split",
    ),
    "one strategy tuned on the test split": (
        tried(lambda one: replace(one, split="test") if one.strategy == "lora" else one),
        "tuning",
        "luckiest of several tries",
    ),
    "scored on the test split at several rates": (
        replace(GOOD, runs=[*GOOD.runs, replace(GOOD.runs[1], learning_rate=3e-3)]),
        "tuning",
        "full was scored on the test split at several learning rates (0.001, 0.003)",
    ),
    "test split opened again": (replace(GOOD, openings=3), "tuning", "opened 3 times"),
    "no control": (without(GOOD, lambda run: run.strategy != CONTROL), "baseline and control", "There is no control"),
    "no untouched model": (
        without(GOOD, lambda run: run.strategy != ZERO_SHOT),
        "baseline and control",
        "nobody can see what training gained",
    ),
    "baseline without an interval": (
        replace(GOOD, baseline=replace(GOOD.baseline, low=300.0, high=300.0)),
        "baseline and control",
        "no interval",
    ),
    "untuned rival": (
        tried(lambda one: None if one.strategy == "lora" else one),
        "tuning",
        "The learning rate of lora was never searched for",
    ),
    "untuned control": (
        tried(lambda one: None if one.strategy == CONTROL else one),
        "tuning",
        "random initialisation was never searched for",
    ),
    "rate at the edge": (
        tried(lambda one: None if one.strategy == "lora" and one.learning_rate > BEST["lora"] else one),
        "tuning",
        "The best learning rate of lora (0.01) is at the edge of the 4 that were tried",
    ),
    "another rate than the best": (
        changed(GOOD, "lora", learning_rate=1e-3),
        "tuning",
        "lora was run at 0.001, and the search found 0.01",
    ),
    "unequal searches": (
        replace(GOOD, tried=[*GOOD.tried, Tried("full", 1.2e-3, 0, "validation", 99.0)]),
        "tuning",
        "unequal budgets (runs: full 8, lora 7",
    ),
    "everything diverged": (
        tried(lambda one: replace(one, score=None) if one.strategy == "full" else one),
        "tuning",
        "Every learning rate that was tried for full diverged",
    ),
    "three test documents": (planted_study(documents=3), "text", "3 test documents were scored: below 5"),
    "leaked duplicates": (
        leaked(**{"test in train": 2}),
        "text",
        "The train split nearly holds 2 of the test documents",
    ),
    "validation leaked": (
        leaked(**{"validation in train": 1}),
        "text",
        "The train split nearly holds 1 of the validation",
    ),
    "test documents that repeat each other": (
        leaked(**{"test in test": 4}),
        "text",
        "4 of the documents are nearly copies of others",
    ),
    "more steps for one": (
        changed(GOOD, "full", steps=30),
        "equal runs",
        "differ in optimizer steps (full 30; lora 15",
    ),
    "more text for one": (changed(GOOD, "full", tokens=7560), "equal runs", "differ in training tokens"),
    "other batches for one": (changed(GOOD, "lora", batch_size=8), "equal runs", "differ in blocks in a batch"),
    "a shorter control": (changed(GOOD, CONTROL, steps=2), "equal runs", "random initialisation 2"),
    "another window for one": (changed(GOOD, "full", stride=128), "equal runs", "Scores come from different windows"),
    "another window for the baseline": (changed(GOOD, ZERO_SHOT, context=128), "equal runs", "different windows"),
    "another metric": (
        changed(GOOD, "lora", metric="accuracy"),
        "equal runs",
        "The plan names perplexity, and runs were scored by accuracy and perplexity",
    ),
    "scored on validation text": (changed(GOOD, "full", split="validation"), "equal runs", "scored on the validation"),
    "one seed": (
        planted_study(seeds=1, decision=Decision("cannot tell", "full", "lora", **WORDS)),
        "equal runs",
        "full has one seed",
    ),
    "a run that was copied": (
        replace(GOOD, runs=[replace(run, nats=GOOD.runs[1].nats) if run.seed == 2 else run for run in GOOD.runs]),
        "equal runs",
        "Seeds 0 and 2 of full have the same scores to the last digit",
    ),
    "training that changed nothing": (
        changed(planted_study(), "lora", nats=GOOD.runs[0].nats),
        "equal runs",
        "lora scores as the untouched model does to the last digit",
    ),
    "other seeds for one": (
        without(GOOD, lambda run: (run.strategy, run.seed) != ("lora", 2)),
        "equal runs",
        "do not have the same seeds (full 0, 1, 2; lora 0, 1)",
    ),
    "a strategy silently missing": (
        without(GOOD, lambda run: run.strategy != "lora"),
        "equal runs",
        "lora is in the plan and has no run (nothing says why)",
    ),
    "a strategy that failed": (
        replace(without(GOOD, lambda run: run.strategy != "lora"), failures={"lora, seed 0": "RuntimeError: planted"}),
        "equal runs",
        "it failed: RuntimeError: planted",
    ),
    "card exceeded": (changed(GOOD, "full", peak_mb=140.0), "card", "full took 133.51 MiB, and the card of the plan"),
    "estimate beyond the card": (
        replace(GOOD, fits=[replace(GOOD.fits[0], estimated_mb=120.0), GOOD.fits[1]]),
        "card",
        "full was estimated at 114.44 MiB, more than",
    ),
    "not estimated": (replace(GOOD, fits=GOOD.fits[:1]), "card", "The memory of lora was not estimated"),
    "peak not measured": (changed(GOOD, "lora", peak_mb=None), "card", "The peak of memory of lora was not measured"),
    "forgetting not measured": (changed(GOOD, "lora", general=None), "what it costs", "lora was not scored on general"),
    "no questions": (replace(GOOD, answered=[]), "what it costs", "No questions were put to full and lora"),
    "a claim inside its interval": (
        decided("better", base=CLOSE),
        "decision",
        "which has zero in it",
    ),
    "the wrong way round": (decided("better", "lora", "full"), "decision", "which lies on the other side"),
    "no difference found, so none there": (
        decided("equal", base=planted_study(-0.02, noise=0.2)),
        "decision",
        "not finding a difference does not show that there is none",
    ),
    "cannot tell what can be told": (decided("cannot tell"), "decision", "this study can tell"),
    "a claim without seeds": (
        decided("better", base=planted_study(seeds=1)),
        "decision",
        "The honest decision is “cannot tell”",
    ),
    "a claim from three documents": (
        decided("better", base=planted_study(documents=3)),
        "decision",
        "these runs give no interval",
    ),
    "recommended although it forgets too much": (
        changed(GOOD, "full", general=90.0),
        "decision",
        "full raises perplexity on general text by 150%, more than the 100% that the plan allows",
    ),
    "called too costly although it keeps to the plan": (
        decided("too costly"),
        "decision",
        "full raises perplexity on general text by 67%, within the 100% that the plan allows",
    ),
    "too costly, the wrong way round": (
        decided("too costly", "lora", "full", base=changed(GOOD, "full", general=90.0)),
        "decision",
        "which lies on the other side. The honest decision is “too costly”",
    ),
    "better by less than matters": (
        decided("better", base=CLEAR_AND_SMALL),
        "decision",
        "which lies wholly within the 5% that the plan calls worthwhile",
    ),
    "cannot tell what does not matter": (
        decided("cannot tell", base=CLEAR_AND_SMALL),
        "decision",
        "The honest decision is “equal”",
    ),
    "about a strategy that is not in the plan": (decided("better", "bitfit", "lora"), "decision", "not in the plan"),
    "worse than untouched and called better": (
        decided("better", ZERO_SHOT, "full"),
        "decision",
        "which lies on the other side",
    ),
    "no decision": (replace(GOOD, decision=None), "decision", "There is no decision yet"),
    "figures typed by hand": (
        decided("better", because="In my run full was 14.8% better than lora, which is much more than 5%."),
        "write-up",
        "typed by hand (14.8%, 5%)",
    ),
    "figures typed into the explanation": (
        decided(
            "better", explanation="LoRA of rank-16 had 221,184 values to move SmolLM2-135M with, which is too few."
        ),
        "write-up",
        "In `explanation` figures were typed by hand (221,184)",
    ),
    "a result without a reason": (
        decided("better", explanation="No idea."),
        "write-up",
        "`explanation` has fewer than 8 words",
    ),
    "a figure that is not there": (
        decided("better", because="The gain of $gain_bitfit is what decides the matter for me here."),
        "write-up",
        "$gain_bitfit is no figure of this study",
    ),
    "nothing explained": (decided("better", limits="None."), "write-up", "`limits` has fewer than 8 words"),
    "an evaluation that measures something else": (
        changed(GOOD, "full", first_loss=12.0),
        "self-audit",
        "Question 1 (Does the first training loss agree with the baseline?)",
    ),
    "a baseline worse than guessing": (
        replace(GOOD, baseline=replace(GOOD.baseline, perplexity=254_801.0, high=300_000.0, low=200_000.0)),
        "self-audit",
        "Perplexity 254,801.0 of 4,096 tokens",
    ),
    "other weights in the comparison": (
        replace(GOOD, provenance=GOOD.provenance | {"weights_sha256": "2" * 64}),
        "self-audit",
        "other weights in the comparison than in the baseline",
    ),
    "values that do not add up": (
        replace(GOOD, trained=[GOOD.trained[0], Trained("lora", 221_184, {"adapters": 180_864}, [], 2e9)]),
        "self-audit",
        "its parts add up to 180,864 values, and 221,184 were trained",
    ),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_planted_fault_is_caught_with_a_reason_under_its_heading(fault):
    bad, heading, said = BAD[fault]
    found = judge_study(bad)
    assert not found.sound and found.points < 28
    reasons = {one.criterion: one.reasons for one in found.judged}
    assert any(said in reason for reason in reasons[heading]), found
    assert all(reason.endswith((".", "?")) for reason in found.reasons), found
    assert f"[NOT YET] {heading}: " in repr(found) and "<details" not in found._repr_html_()


SOUND = {
    "better": GOOD,
    "the other one better": planted_study(0.15),
    "cannot tell": CLOSE,
    "equal": decided("equal", base=planted_study(-0.001, noise=0.005)),
    "equal, seen from the other side": decided("equal", "lora", "full", base=planted_study(-0.001, noise=0.005)),
    "equal although zero is excluded": decided("equal", base=CLEAR_AND_SMALL),
    "too costly": decided("too costly", base=changed(GOOD, "full", general=90.0)),
    "too costly to train at all": decided("too costly", "lora", ZERO_SHOT, base=changed(GOOD, "lora", general=90.0)),
    "the worse one forgets too much": changed(GOOD, "lora", general=90.0),
    "figures in what it does not say": decided(
        "better", limits="With 300 paragraphs and 5 seeds, 2% more could be seen."
    ),
    "better than untouched": decided("better", "lora", ZERO_SHOT),
    "two seeds that tell nothing": decided("cannot tell", base=planted_study(-0.02, seeds=2, noise=0.1)),
    "five documents that tell nothing": decided("cannot tell", base=planted_study(-0.05, documents=5, noise=0.3)),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_study_passes_and_cannot_tell_is_an_honest_decision(name):
    found = judge_study(SOUND[name])
    assert found.sound and found.points == sum(one.points for one in RUBRIC if one.rule), found
    assert "Nothing is wrong that a record can show." in found._repr_html_()


def test_each_criterion_can_be_lost_and_only_by_its_own_fault():
    """Of the faults that concern one thing, each costs the points of one heading only."""
    alone = {
        heading
        for bad, heading, _ in BAD.values()
        if [one.criterion for one in judge_study(bad).judged if one.reasons] == [heading]
    }
    assert alone == {one.name for one in RUBRIC if one.rule}


def test_what_is_judged_is_computed_anew_from_the_documents():
    by_pairs = compare_pairs(GOOD.scores[GOOD.scores.strategy.isin(PLAN.strategies)]).iloc[0]
    row = GOOD.compared.iloc[0]
    ratio = GOOD.perplexities["full"] / GOOD.perplexities["lora"]
    assert row.difference == pytest.approx(100 * (ratio - 1)) and bool(row.separated) is bool(by_pairs.separated)
    assert row.low < row.difference < row.high < 0
    turned = GOOD.difference("lora", "full")
    assert turned[0] == pytest.approx(100 * (1 / ratio - 1)) and 0 < turned[1] < turned[0] < turned[2]
    runs = [run for run in GOOD.runs if run.strategy == "full"]
    mean = np.mean([sum(run.nats) / sum(GOOD.document_tokens) for run in runs])
    assert GOOD.perplexities["full"] == pytest.approx(math.exp(mean))


# The record


def test_a_record_comes_back_from_its_file_as_it_was(tmp_path):
    paths = write_up(GOOD, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == [RECORD, "report.md", PAGE, TABLE]
    assert read_study(tmp_path / "new" / "folder") == GOOD == read_study(paths[0])
    assert judge_study(tmp_path / "new" / "folder").sound and judge_study(paths[0]).sound


def test_the_test_split_is_opened_again_by_other_runs_and_not_by_the_same(tmp_path):
    write_up(GOOD, tmp_path)
    write_up(decided("cannot tell"), tmp_path)
    assert read_study(tmp_path).openings == 1, "only the decision is another"
    write_up(planted_study(-0.2), tmp_path)
    assert read_study(tmp_path).openings == 2
    other = replace(planted_study(-0.25), text=replace(GOOD.text, sha256="3" * 64))
    write_up(other, tmp_path)
    assert read_study(tmp_path).openings == 1, "another text has another test split"


def test_a_report_that_was_changed_by_hand_is_found(tmp_path):
    write_up(GOOD, tmp_path)
    report = tmp_path / "report.md"
    report.write_text(report.read_text().replace("3 seeds", "5 seeds").replace("128.00 MiB", "64.00 MiB"))
    assert any("report.md is not what the record gives" in reason for reason in judge_study(tmp_path).reasons)
    report.unlink()
    assert any("There is no report.md" in reason for reason in judge_study(tmp_path).reasons)


def test_a_figure_that_was_changed_in_the_record_does_not_help(tmp_path):
    write_up(CLOSE, tmp_path)
    content = json.loads((tmp_path / RECORD).read_text())
    content["decision"]["verdict"] = "better"
    content["text"]["detectable"] = 0.1
    (tmp_path / RECORD).write_text(json.dumps(content))
    reasons = " ".join(judge_study(tmp_path).reasons)
    assert "which has zero in it" in reasons and "report.md is not what the record gives" in reasons


def broken(change):
    content = json.loads(GOOD.to_json())
    change(content)
    return json.dumps(content)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not JSON"),
        ("[1, 2", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "the file is [], expected an object"),
        ("{}", "answered is missing"),
        (broken(lambda study: study.update(runs=[])), "there are no runs"),
        (broken(lambda study: study.update(runs={})), "runs is {}, expected"),
        (broken(lambda study: study["runs"][1].update(seed="a")), 'runs[1].seed is "a", expected a whole number'),
        (broken(lambda study: study["runs"][1].update(seed=1.5)), "runs[1].seed is 1.5, expected a whole number"),
        (broken(lambda study: study["runs"][1].update(steps=True)), "runs[1].steps is true, expected a whole number"),
        (broken(lambda study: study["runs"][1]["nats"].pop()), "39 scores for 40 documents"),
        (broken(lambda study: study["runs"][1]["nats"].__setitem__(3, None)), "nats[3] is null, expected a number"),
        (broken(lambda study: study["runs"].append(study["runs"][0])), "is there twice"),
        (broken(lambda study: study["plan"].update(question="No question")), "ends with a question mark"),
        (broken(lambda study: study["plan"].update(card="big")), "expected a size such as"),
        (broken(lambda study: study["plan"].update(strategies="full")), 'plan.strategies is "full", expected'),
        (broken(lambda study: study["decision"].update(verdict="proven")), "expected one of 'better'"),
        (broken(lambda study: study.update(format=9)), "format is 9, expected 2"),
        (broken(lambda study: study.update(more=1)), "more is unknown"),
        (broken(lambda study: study.update(document_tokens=[0] * 40)), "document_tokens: expected"),
        (broken(lambda study: study["runs"][1]["nats"].__setitem__(3, 1e308)), "1e+308 nats for"),
        (broken(lambda study: study["text"].update(documents={"train": 1})), "text.documents: expected train"),
        (
            broken(lambda study: study["text"].update(copies={"x": 1})),
            "text.copies: expected validation in train, test in train",
        ),
    ],
)
def test_what_is_no_record_is_a_sentence_that_names_the_place(tmp_path, content, said, capsys):
    (tmp_path / RECORD).write_text(content)
    with pytest.raises(ValueError, match=".") as refused:
        read_study(tmp_path)
    assert said in str(refused.value) and RECORD in str(refused.value)
    assert main(["judge", str(tmp_path)]) == 1
    assert "not judged" in capsys.readouterr().out


def test_the_command_judges_many_and_one_bad_file_keeps_no_other_from_it(tmp_path, capsys):
    write_up(GOOD, tmp_path / "good")
    write_up(decided("cannot tell"), tmp_path / "bad")
    marks = tmp_path / "marks.csv"
    folders = [str(tmp_path / name) for name in ("nobody", "bad", "good")]
    assert main(["judge", *folders, "--output", str(marks)]) == 1
    said = capsys.readouterr().out
    assert "no such file" in said and "28 of 28 points" in said and "this study can tell" in said
    table = pd.read_csv(marks)
    assert set(table.study) == set(folders) and table[table.criterion == "decision"].points.tolist() == [
        "0 of 5",
        "5 of 5",
    ]
    assert main(["judge", folders[2]]) == 0
    assert main(["judge", folders[2], "--output", str(tmp_path / "no" / "marks.csv")]) == 2


def test_a_study_is_made_of_a_comparison_and_a_text_of_its_own_is_refused(tiny):
    made = planted_comparison({"full": (-0.5, 0.1, 3), "lora": (-0.4, 0.1, 0)}, model="tiny")
    corpus = Corpus("rust", ("one two three",), tuple(f"word {n} and more" for n in range(10)), ("four five",))
    sheet = datasheet(corpus, tiny.tokenizer)
    before = perplexity(tiny.model, tiny.tokenizer, corpus.validation)
    fits = pd.DataFrame([("full", 90.0, 114.0, True, ""), ("lora", math.nan, 114.0, False, "no")])
    fits.columns = ["strategy", "estimated_mb", "allowed_mb", "fits", "why"]
    found = study(PLAN, sheet, before, tiny.model, fits, made)
    assert [run.strategy for run in found.runs].count("lora") == 3 and found.decision is None
    assert found.perplexities["full"] == pytest.approx(
        np.exp(np.log(made.runs[made.runs.strategy == "full"].perplexity).mean())
    )
    assert found.trained[1].components == {"adapters": found.trained[1].trainable_values} and found.tried == []
    assert found.fits[1].estimated_mb is None and found.text.detectable == math.inf
    assert found.text.detectable_here is None, "one test document shows nothing"
    reasons = " ".join(judge_study(found).reasons)
    assert "never searched for" in reasons and "The memory of lora was not estimated" in reasons
    made.provenance["corpus_sha256"] = "4" * 64
    with pytest.raises(ValueError, match="the comparison is of another text"):
        study(PLAN, sheet, before, tiny.model, fits, made)


# Plan and card


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"question": "Full is best."}, "question mark"),
        ({"strategies": "full"}, "expected several names"),
        ({"strategies": ("full",)}, "at least two different"),
        ({"strategies": ("full", "full")}, "at least two different"),
        ({"strategies": ("full", "magic")}, "'magic'"),
        ({"worthwhile": 0}, "worthwhile=0"),
        ({"worthwhile": "5"}, "worthwhile='5'"),
        ({"may_forget": math.nan}, "may_forget=nan"),
        ({"card": "a big one"}, "expected a size"),
        ({"metric": "accuracy"}, "metric='accuracy'"),
    ],
)
def test_a_plan_that_nothing_could_answer_is_refused(change, said):
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        StudyPlan(**(dataclasses.asdict(PLAN) | change))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("best", "full", "lora"), "verdict='best'"),
        (("better", "full", "full"), "itself"),
        (("equal", "a", "b"), "'a'"),
    ],
)
def test_a_decision_that_says_nothing_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        Decision(*given, **WORDS)


def test_what_does_not_fit_the_card_is_named_before_any_training():
    small = replace(PLAN, card="64MB", strategies=("full", "bitfit"))
    fits = fit_to_card(small, "tiny", batch_size=1, block_size=16)
    assert fits.strategy.tolist() == ["full", "bitfit"] and fits.estimated_mb.iloc[1] < fits.estimated_mb.iloc[0]
    refuse_misfits(fits[fits.fits])
    with pytest.raises(MemoryError, match=r"not on this card: full \(.* of 54.40 MiB\)"):
        refuse_misfits(fits)


# The text


def notes(count, words=30, start=0):
    return tuple(" ".join(f"w{start + number}x{place}" for place in range(words)) for number in range(count))


def test_copies_are_found_however_they_are_written_and_nothing_else_is(tiny):
    train, held_out = notes(20), notes(10, start=100)
    near = train[3].replace("w3x7", "other")
    louder = train[4].upper() + "!"
    inside = "before it " + " ".join(train[5].split()[:12]) + " " + " ".join(notes(1, 40, 900))
    sheet = datasheet(Corpus("notes", train, held_out, (*notes(5, start=200), near, louder, inside)), tiny.tokenizer)
    assert sheet.copied == {"validation in train": 0, "test in train": 3, "test in validation": 0, "test in test": 0}
    assert sheet.table["copies of others"].tolist() == [0, 0, 3] and sheet.documents["test"] == 8
    assert "in test, and nearly so in train" in repr(sheet) and "<li>" in sheet._repr_html_()
    twice = datasheet(
        Corpus("notes", train, held_out, (*notes(5, start=200), notes(1, start=200)[0] + " end")), tiny.tokenizer
    )
    assert twice.copied["test in test"] == 2, "each is a copy of the other"
    clean = datasheet(Corpus("notes", train, held_out, notes(5, start=200)), tiny.tokenizer)
    assert not clean.copies and "no document has much in common" in repr(clean)


def test_the_worked_example_has_no_copies_and_its_recorded_rates_count_as_tuned(tiny):
    corpus = load_corpus("kitchen")
    sheet = datasheet(corpus, tiny.tokenizer)
    assert list(sheet.documents.values()) == [60, 40, 40] and not sheet.copies
    here = {"weights_sha256": None, "profile": "ci", "corpus": "kitchen", "corpus_sha256": corpus.sha256}
    from tlkit.checkpoints.identity import hash_of

    here |= {"weights_sha256": hash_of(tiny.model.parameters()), "block_size": 64, "batch_size": 4}
    rates = learning_rates_for("tiny", ["full", "lora", CONTROL], here)
    assert all(rate.tuned and rate.runs == 8 for rate in rates.values()) and len(rates) == 3


def test_a_text_is_written_anew_without_copies(tmp_path, tiny):
    (tmp_path / "texts").mkdir()
    twice = [text.replace(" ", "  ") + " once more" for text in notes(20)]
    (tmp_path / "texts" / "notes.md").write_text("\n\n".join([*notes(40), *twice]))
    assert datasheet(load_corpus(tmp_path / "texts"), tiny.tokenizer).copies
    path = without_copies(tmp_path / "texts", tmp_path / "new" / "clean.jsonl")
    clean = load_corpus(path)
    assert not datasheet(clean, tiny.tokenizer).copies
    assert len(clean.train + clean.validation + clean.test) == 40
    # A short one that stands in a longer one is a copy of it, though most of the longer one is not in the short one.
    inside = [
        f"{' '.join(text.split()[:8])} and {other}" for text, other in zip(notes(40), notes(40, 60, 100), strict=True)
    ]
    short = [" ".join(text.split()[:8]) for text in notes(40)]
    (tmp_path / "inside.md").write_text("\n\n".join([*short, *inside, *notes(30, start=900)]))
    assert datasheet(load_corpus(tmp_path / "inside.md"), tiny.tokenizer).copies
    clean = load_corpus(without_copies(tmp_path / "inside.md", tmp_path / "clean.jsonl"))
    assert not datasheet(clean, tiny.tokenizer).copies
    assert {*clean.train, *clean.validation, *clean.test} == {*inside, *notes(30, start=900)}
    (tmp_path / "few.md").write_text("\n\n".join([*notes(6), *[f"{text} more" for text in notes(6)]]))
    with pytest.raises(ValueError, match="without copies 6 documents are left"):
        without_copies(tmp_path / "few.md", tmp_path / "few.jsonl")


def test_a_folder_that_is_empty_or_too_small_is_refused_in_words(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no .txt, .md or .jsonl file in this folder"):
        load_corpus(tmp_path / "empty")
    (tmp_path / "three.md").write_text("\n\n".join(notes(3)))
    with pytest.raises(ValueError, match="3 documents; at least 10 are needed"):
        load_corpus(tmp_path / "three.md")


# What a test can show


def sheet_of(tiny, documents):
    return datasheet(Corpus("n", notes(5), notes(9, start=50), notes(documents, start=100)), tiny.tokenizer)


def scores_of():
    """Of nine documents of 20 tokens each."""
    nats = torch.linspace(60, 90, 9, dtype=torch.float64)
    return result_of(nats, torch.full((9,), 20.0, dtype=torch.float64), size=0, window=(64, 64))


def test_more_documents_and_more_seeds_show_smaller_differences(tiny):
    def shown(documents, seeds=None, strategies=("full", "lora")):
        return smallest_difference(sheet_of(tiny, 9), scores_of(), strategies, documents=documents, seeds=seeds)

    assert shown(80) < shown(20) < shown(5) < shown(4) == math.inf
    assert shown(80) < shown(80, 5) < shown(80, 3) < shown(80, 2) < shown(80, 1) == math.inf
    assert shown(10_000, 3) > 5 * shown(10_000), "more documents do not make up for few seeds"
    assert shown(20, 3, ("full", "lora", "bitfit")) > shown(20, 3), "three pairs need more than one"
    assert smallest_difference(sheet_of(tiny, 4), scores_of()) == math.inf


def test_what_a_test_can_show_is_what_the_record_of_the_pair_says(tiny):
    """Computed anew, without the functions that compute it."""
    documents = recorded_comparison("tiny").documents
    pair = documents[documents.strategy.isin(["full", "lora"])].assign(loss=lambda rows: rows.nats / rows.tokens)
    by_document = pair.pivot_table("loss", "document", "strategy")
    sums = pair.groupby(["seed", "strategy"])[["nats", "tokens"]].sum()
    by_seed = (sums.nats / sums.tokens).unstack()
    deviation = (by_seed.full - by_seed.lora).std()
    found = recorded_agreement(("full", "lora"))
    assert found.correlation == pytest.approx(np.corrcoef(by_document.full, by_document.lora)[0, 1])
    assert (found.deviation, found.freedom) == (pytest.approx(deviation), pytest.approx(1))
    spread, sheet = np.linspace(60, 90, 9).std() / 20, sheet_of(tiny, 20)
    tokens = np.array(sheet.test_tokens)
    count = tokens.sum() ** 2 / (tokens**2).sum()
    assert spread_of(scores_of()) == pytest.approx(spread)
    over_documents = spread * math.sqrt(2 * (1 - found.correlation) / count)
    reach = [stats.t.ppf(0.975, freedom) + stats.t.ppf(0.8, freedom) for freedom in (count - 1, 2)]
    both = math.hypot(reach[0] * over_documents, reach[1] * deviation / math.sqrt(3))
    alone = smallest_difference(sheet, scores_of(), ("full", "lora"))
    assert alone == pytest.approx(100 * math.expm1(reach[0] * over_documents))
    assert smallest_difference(sheet, scores_of(), ("full", "lora"), seeds=3) == pytest.approx(100 * math.expm1(both))
    every = recorded_agreement()
    assert every == recorded_agreement(("full", "dora")), "not recorded: as all pairs are on average"
    assert every.correlation < found.correlation


@pytest.mark.parametrize(("over_documents", "over_seeds"), [(0.02, 0.002), (0.016, 0.017)])
def test_a_difference_of_the_size_that_is_promised_is_found_in_four_of_five_studies(over_documents, over_seeds):
    """Drawn many times, with the test that decides in a study."""
    documents, seeds, studies = 40, 3, 150
    apart = smallest_found([(over_documents, documents - 1), (over_seeds, seeds - 1)])
    draw, found = np.random.default_rng(0), 0
    for _ in range(studies):
        luck = draw.normal(0, over_documents * math.sqrt(documents), documents)[:, None]
        nats = 3 + apart + luck + draw.normal(0, over_seeds * math.sqrt(seeds), seeds)
        rows = [("one", seed, number, 3.0, 1) for seed in range(seeds) for number in range(documents)]
        rows += [("other", seed, number, nats[number, seed], 1) for seed in range(seeds) for number in range(documents)]
        found += bool(compare_pairs(pd.DataFrame(rows, columns=SCORE_COLUMNS)).separated.iloc[0])
    assert 0.7 < found / studies < 0.9


def test_a_text_that_cannot_carry_a_comparison_is_refused_in_words(tiny):
    refuse_unfit(sheet_of(tiny, 5))
    with pytest.raises(ValueError, match="n has 4 test documents: below 5 .* add text"):
        refuse_unfit(sheet_of(tiny, 4))
    copies = Corpus("n", notes(20), notes(9, start=50), (*notes(5, start=100), notes(1)[0] + " more"))
    with pytest.raises(ValueError, match=r"1 documents of n .* `tl.without_copies\(.*set TLKIT_CORPUS"):
        refuse_unfit(datasheet(copies, tiny.tokenizer))


# The decision

ENDS = (-30.0, -5.0, -4.9, -1.0, 0.0, 1.0, 5.0, 5.1)
FORGOTTEN = (-2.0, 100.0, 100.1, math.nan)
DECISIONS = [(verdict, pair) for verdict in VERDICTS for pair in (("full", "lora"), ("lora", "full"))]


def with_result(verdict, pair, compared, forgetting):
    """A study whose interval and forgetting are known, with a decision."""
    found = decided(verdict, *pair)
    found.__dict__.update(compared=compared, forgetting=forgetting)
    return found


def test_every_result_has_exactly_one_verdict_without_fault():
    rule = next(one.rule for one in RUBRIC if one.name == "decision")
    intervals = [(low, high) for low in ENDS for high in ENDS if low <= high] + [(math.nan, math.nan)]
    seen = set()
    for (low, high), forgotten in product(intervals, product(FORGOTTEN, repeat=2)):
        row = {"first": "full", "second": "lora", "difference": (low + high) / 2, "low": low, "high": high}
        result = pd.DataFrame([row]), pd.DataFrame({"mean": forgotten}, index=["full", "lora"]).dropna()
        accepted = [given for given in DECISIONS if not list(rule(with_result(*given, *result)))]
        (verdict,) = {verdict for verdict, _ in accepted}
        seen.add(verdict)
        case = f"{low} to {high}, forgotten {forgotten}"
        within = low >= -5 and high <= 5
        assert (verdict == "equal") == within, case
        if verdict in ("equal", "cannot tell"):
            assert len(accepted) == 2, case  # either of the two may be named first
            assert within or not (low > 0 or high < 0), case
        else:
            (_, (better, _)) = accepted[0]
            assert len(accepted) == 1 and better == ("full" if high < 0 else "lora"), case
            over = forgotten[better == "lora"] > 100
            assert verdict == ("too costly" if over else "better"), case
    assert seen == set(VERDICTS)


def test_a_verdict_that_is_wrong_says_which_is_right():
    for verdict in ("too costly", "equal", "cannot tell"):
        (said,) = judge_study(decided(verdict)).reasons
        assert said.endswith("The honest decision is “better”."), said


# Words and report


def test_every_figure_of_the_report_comes_from_the_record():
    report = report_markdown(GOOD)
    assert "$" not in report and "{" not in report and "nan" not in report
    assert figures(GOOD)["difference_full_lora"] in report and "full reached" in report
    assert "**full reaches a lower perplexity than lora.**" in report, "a name in code has no capital"
    assert "## Why it came out like this\n\nThe rate may be the reason, 0.001 against 0.01:" in report
    assert "A study of full and lora on notes" in report and "8.4% by the forecast, and 9.9% by the spread" in report
    assert "| untouched (zero-shot) | none |" in report and "| control (random initialisation) | 7 | 0.003 |" in report
    indented = decided("cannot tell", because="One line that says what came out here,\n        and another one.")
    assert "here,\nand another one." in report_markdown(indented)
    assert "**This study cannot tell full from lora.**" in report_markdown(indented)
    other = report_markdown(planted_study(-0.3))
    assert other != report and figures(planted_study(-0.3))["difference_full_lora"] in other
    for fault, (bad, *_) in BAD.items():
        if bad.decision is not None and not any(word in fault for word in ("not there", "missing", "failed")):
            assert "$" not in report_markdown(bad), fault


def test_a_report_needs_a_decision():
    with pytest.raises(ValueError, match="there is no decision yet"):
        report_markdown(replace(GOOD, decision=None))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("Full was 14.8% better with 3 seeds.", ["14.8%"]),
        ("About 15 percent, or 92 MB, in 2026.", ["15 percent", "92 MB"]),
        ("As lesson 14 and lessons 15 and 16 say, $gain_full is enough.", []),
        ("The loss fell to 4.4 nats over 1,200 steps.", ["4.4 nats", "1,200"]),
        ("Two strategies, 3 seeds and one model.", []),
        ("SmolLM2-135M, Qwen2-0.5B, rank-16 adapters and 4-bit or 16-bit weights.", []),
        ("The 95% interval, and a 95% confidence interval, exclude zero.", []),
        ("It is right in 95% of cases, by-15% or by 95% intervals of 7%.", ["95%", "15%", "7%"]),
        ("It ends 20-percent lower, after 60 steps.", ["20", "60"]),
    ],
)
def test_figures_that_were_typed_are_found(words, found):
    assert typed_figures(words) == found


def test_words_name_their_figures():
    assert render("It costs $$5 and gains $gain_lora.", GOOD) == f"It costs $5 and gains {figures(GOOD)['gain_lora']}."
    with pytest.raises(ValueError, match="expected such as gain_full"):
        render("$gain_x", GOOD)
    with pytest.raises(ValueError, match="write \\$\\$"):
        render("$ 5", GOOD)


def test_the_page_needs_no_other_file_and_text_of_a_student_is_text():
    sly = decided("better", because="<script>alert(1)</script> is what I would say about it here, | and more.")
    page = report_page(sly)
    assert "<script" not in page and "&lt;script&gt;" in page
    assert page.count("<table>") == 8 and 'src="data:image/png;base64,' in page
    assert "http" not in page.replace("http-equiv", "")


def test_an_audit_can_be_asked_of_the_table():
    table = table_of(GOOD)
    found = audit(table, "nats", "documents", deviation="deviation", lower_is_better=True)
    assert found.table.name.tolist() == ["full", "lora", ZERO_SHOT] and CONTROL not in set(table.strategy)
    with pytest.raises(ValueError, match="at least 30"):
        audit(table_of(planted_study(documents=10)), "nats", "documents", deviation="deviation")


def test_the_recorded_study_is_sound_and_its_report_is_what_its_record_gives():
    found = judge_study(DATA / "studies" / "kitchen")
    assert found.sound, found
    text = read_study(DATA / "studies" / "kitchen").text
    assert text.detectable < 6 < 9 < text.detectable_here, "on this text a seed matters more than the forecast says"


def test_six_questions_are_answered_from_the_record():
    asked = six_questions(GOOD)
    assert [one.number for one in asked] == [1, 2, 3, 4, 5, 6] and all(one.passed for one in asked)
    fast = changed(GOOD, "lora", seconds=0.1)
    last = six_questions(fast)[5]
    assert last.passed and "do not follow the arithmetic" in last.answer, (
        "seconds of one machine are said and prove no fault"
    )


def test_the_rubric_is_one_table_in_lesson_and_instructors_page():
    lesson = rubric().table
    assert lesson.points.sum() == 40 and list(lesson["judged by"]).count("your instructor") == 3
    assert all(one.given_for in rubric()._repr_html_() for one in RUBRIC), "no sentence is cut short"
    page = Path(__file__).resolve().parents[2] / "notebooks" / "instructors.md"
    assert repr(rubric()) in page.read_text(encoding="utf-8")


def test_pictures_say_what_they_show():
    path = study_path()
    assert "8 · Report" in path.alt and len(path.words) == 8 and "before the test split is opened" in path.alt
    finding = difference_chart(GOOD.compared, 5).finding
    assert finding == f"full ends {-GOOD.compared.difference.iloc[0]:.0f}% below lora: more than the 5% that matters"
    assert difference_chart(GOOD.compared, 12).finding.endswith("below lora: perhaps more than the 12% that matters")
    assert difference_chart(CLEAR_AND_SMALL.compared, 5).finding.endswith("below lora: less than the 5% that matters")
    assert difference_chart(planted_study(0.15).compared, 5).finding.startswith("full ends 17% above lora")
    assert difference_chart(CLOSE.compared, 5).finding == "No two strategies can be told apart"
    assert difference_chart(planted_study(seeds=1).compared, 5).finding == "No two strategies can be told apart"


def test_the_chart_of_forgetting_says_whether_all_seeds_agree():
    def drawn(study):
        return seed_forgetting_chart(study.forgetting_by_seed, study.forgetting, study.plan.may_forget)

    assert drawn(GOOD).finding == "full forgot more than lora, with each of 3 seeds"
    assert "the plan allows 100%" in [text.get_text() for text in drawn(GOOD).axes[0].texts]
    mixed = replace(GOOD, runs=[replace(run, general=30.0) if run.seed == 1 else run for run in GOOD.runs])
    assert drawn(mixed).finding == "full forgot more than lora with 2 of 3 seeds"
    assert drawn(planted_study(seeds=1)).finding == "full forgot more than lora with 1 of 1 seed"


def test_tables_of_a_study_have_the_figures_of_its_report():
    table, costs = GOOD.table.set_index("strategy"), GOOD.costs.set_index("strategy")
    assert table.perplexity.to_numpy() == pytest.approx(GOOD.perplexities[table.index].to_numpy())
    assert (table.perplexity_low < table.perplexity).all() and (table.perplexity < table.perplexity_high).all()
    assert table["rank"].dropna().to_dict() == {"full": "1", "lora": "2"}
    assert perplexity_chart(GOOD.table).finding.endswith("separated from lora")
    assert (
        costs.loc["full", "peak of memory"] == figures(GOOD)["peak_full"]
        and costs.loc["lora", "seconds of a run"] == 1.5
    )
    assert costs.loc["full", "general questions right"] == "30% → 30%"


def test_an_interval_of_answers_ends_where_accuracy_would():
    made = planted_comparison({"full": (-0.5, 0.1, 3)}, model="tiny")
    rows = [
        (name, seed, "rust", question, 0, question < (3 if name == ZERO_SHOT else 2))
        for name in (ZERO_SHOT, "full")
        for seed in range(1 if name == ZERO_SHOT else 3)
        for question in range(4)
    ]
    columns = ["strategy", "seed", "questions", "question", "chosen", "correct"]
    asked = replace(made, answers=pd.DataFrame(rows, columns=columns))
    (found,) = _answered(asked, PLAN)
    assert (found.asked, found.before, found.change) == (4, 0.75, -0.25)
    assert (found.low, found.high) == (-0.75, 0.25), "four questions leave everything open"
