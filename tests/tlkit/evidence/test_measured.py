"""What is measured in a comparison beside perplexity: answers, and the size of what is saved."""

import json

import pandas as pd
import pytest

from tlkit.evidence import questions
from tlkit.evidence.comparison import compare, saved_bytes
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.evidence.experiment import load_with_strategy
from tlkit.evidence.questions import answer_questions, load_questions
from tlkit.models import load_model, save_model
from tlkit.names import CONTROL
from tlkit.reports.charts import CHARTS
from tlkit.reports.export import export
from tlkit.settings import Profile

GIVEN = {"full": 3e-2, "lora": 1e-1, CONTROL: 1e-3}
WORDS = ("a loop", "the other one", "Rust", "seven", "owned by you", "of type u8", "never", "here", "red", "two", "so")
PROFILE = Profile("test", train_passages=6, test_passages=2, epochs=1, seeds=2, questions=6)
COLUMNS = ["accuracy_before", "accuracy", "accuracy_low", "accuracy_high"]


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """Eight short questions a set, in the place of the workbook's."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "questions").mkdir()
    for name in ("rust", "general"):
        rows = [
            {"id": f"{name}-{n}", "subject": "x", "question": f"{name} number {n}?", "answer": n % 4}
            | {"options": [f"It is {word}" for word in WORDS[n : n + 4]]}
            for n in range(8)
        ]
        (folder / "questions" / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(questions, "DATA", folder)
        yield folder / "questions"


@pytest.fixture(scope="module")
def found(small_model, asked, tmp_path_factory):
    """A comparison of two strategies with two seeds, and its folder."""
    folder = tmp_path_factory.mktemp("results")
    settings = ComparisonSettings(learning_rates=GIVEN)
    return compare(small_model, list(GIVEN)[:2], profile=PROFILE, settings=settings, output=folder), folder


def test_accuracies_are_those_of_the_answers_and_the_untouched_models_those_counted_by_hand(found, small_model, asked):
    comparison, _ = found
    loaded = load_model(small_model)
    for name in ("rust", "general"):
        every = load_questions(name)
        chosen = [every[place] for place in (0, 1, 2, 4, 5, 6)]  # six of eight, at equal distances
        by_hand = answer_questions(loaded.model, loaded.tokenizer, chosen)
        rows = comparison.answers[comparison.answers.questions == name]
        start = rows[rows.strategy == "zero-shot"]
        assert tuple(start.question) == tuple(one.id for one in chosen) and tuple(start.chosen) == by_hand.chosen
        table = comparison.table.set_index("strategy")
        assert (table[f"{name}_accuracy_before"] == by_hand.accuracy).all()
        low, high = by_hand.interval
        row = table.loc["zero-shot"]
        assert (row[f"{name}_accuracy_low"], row[f"{name}_accuracy_high"]) == (low, high)
        for run in comparison.runs.dropna(subset="seed").itertuples():
            part = rows[(rows.strategy == run.strategy) & (rows.seed == run.seed)]
            assert len(part) == 6 and getattr(run, f"{name}_accuracy") == part.correct.mean()


def test_what_is_found_is_in_every_file(found, monkeypatch):
    comparison, folder = found
    monkeypatch.setattr("tlkit.reports.export.CHARTS", {"accuracy": CHARTS["accuracy"]})
    names = {path.name for path in export(comparison, folder)}
    assert {"answers.csv", "accuracy.png", "accuracy.svg"} <= names
    written = [f"{name}_{column}" for name in ("rust", "general") for column in COLUMNS]
    for file in ("comparison", "runs"):
        assert {*written, "file_bytes"} <= set(pd.read_csv(folder / f"{file}.csv", comment="#"))
    run = json.loads((folder / "runs" / "lora, seed 1.json").read_text())
    assert len(run["outcome"]["answers"]["correct"]) == 12 and run["outcome"]["row"]["file_bytes"] > 0
    assert run["settings"]["questions"] == {"rust": 6, "general": 6}
    assert comparison.provenance["questions_sha256"] == run["settings"]["questions_sha256"]
    assert comparison.provenance["questions_sha256"] in (folder / "comparison.md").read_text()
    assert "rust_accuracy" in (folder / "comparison.md").read_text()


def test_runs_that_were_asked_other_questions_are_not_mixed(found, asked, small_model):
    """Another text in one option is enough."""
    comparison, folder = found
    settings = ComparisonSettings(learning_rates=GIVEN)
    again = compare(small_model, list(GIVEN)[:2], profile=PROFILE, settings=settings, output=folder)
    pd.testing.assert_frame_equal(again.answers, comparison.answers)
    pd.testing.assert_frame_equal(again.runs[1:], comparison.runs[1:])  # also the times: nothing was run again
    path = asked / "rust.jsonl"
    before = path.read_text()
    path.write_text(before.replace("It is Rust", "It is rust", 1))
    try:
        with pytest.raises(ValueError, match="questions_sha256 was .* and is now"):
            compare(small_model, list(GIVEN)[:2], profile=PROFILE, settings=settings, output=folder)
    finally:
        path.write_text(before)


@pytest.mark.parametrize("strategy", ["full", "bitfit", "lora", "qlora"])
def test_the_size_of_what_is_saved_is_that_of_the_file_without_its_list_of_names(strategy, small_model, tmp_path):
    """Tied weights once, and an adapter alone."""
    report, tokenizer = load_with_strategy(strategy, model=small_model)
    save_model(report.model, tokenizer, tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    content = file.read_bytes()
    assert saved_bytes(report.model) == len(content) - 8 - int.from_bytes(content[:8], "little")
