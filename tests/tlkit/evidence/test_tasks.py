"""Every task goes through the same comparison: answers and classes are trained on, scored, measured and exported."""

import json
import math

import pandas as pd
import pytest
import torch

from tlkit.cli import main
from tlkit.evidence.comparison import compare
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.evidence.experiment import load_experiment
from tlkit.evidence.learning_rates import run_trial
from tlkit.evidence.tasks import TASKS, answer, balanced_accuracy, exact_match, load_documents
from tlkit.examples.conversations import Conversation, answer_examples, load_conversations, prompt_of, short_enough
from tlkit.models import load_model
from tlkit.names import CONTROL, ZERO_SHOT
from tlkit.reports.charts import CHARTS
from tlkit.reports.export import brief, export
from tlkit.settings import PROFILES, Profile, TrainingConfig

LITTLE = Profile("little", train_passages=8, test_passages=12, epochs=1, seeds=1)
RATES = {"full": 1e-3, "lora": 1e-2, "linear_probe": 1e-2, CONTROL: 1e-3}


@pytest.fixture(scope="module")
def compared(three_blocks):
    def compared(task: str, folder, *strategies: str, **settings):
        options = ComparisonSettings(task=task, learning_rates=RATES, **settings)
        return compare(three_blocks, strategies, profile=LITTLE, settings=options, output=folder / task)

    return compared


@pytest.fixture(scope="module")
def answered_in(tmp_path_factory):
    return tmp_path_factory.mktemp("answers")


@pytest.fixture(scope="module")
def answered(compared, answered_in):
    return compared("answer", answered_in, "full", "lora")


@pytest.fixture(scope="module")
def classified(compared, tmp_path_factory):
    return compared("classify", tmp_path_factory.mktemp("classes"), "linear_probe", "full")


@pytest.mark.parametrize(("limit", "beyond"), [(None, 0), (2, 24)])
@pytest.mark.parametrize("task", ["text", "answer", "classify"])
def test_what_becomes_of_every_document_adds_up(task, limit, beyond, tmp_path):
    """Thirty different documents, four of them there twice and six longer than a row, and two empty ones."""
    texts = [f"Document {number}. " + "Word again. " * (100 if number < 6 else 2) for number in range(30)]
    texts += texts[-4:]
    rows = {
        "text": [{"text": text} for text in [*texts, " ", ""]],
        "answer": [{"prompt": text, "completion": "Yes."} for text in texts],
        "classify": [{"text": text, "label": "ab"[len(text) % 2]} for text in texts],
    }[task]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    data = load_documents(ComparisonSettings(task=task, corpus=str(path), limit=limit), LITTLE)
    counted = data.notes(load_model("tiny").tokenizer, 64)["documents"]
    found, *parts, longer = counted.values()
    sizes = (24, 3, 3) if limit is None else (2, 2, 2)
    assert found == len(rows) == sum(parts) and parts == [4, len(rows) - 34, beyond, *sizes]
    assert str(counted).startswith(f"{len(rows)} documents found, 4 there twice, ")
    if limit is None:
        assert longer == (0 if task == "text" else 6)
        assert ("6 of these longer than 64 tokens and " in str(counted)) == (task != "text")


def test_a_profile_bounds_what_is_bundled_and_no_text_of_a_reader(tmp_path):
    bundled = [load_documents(ComparisonSettings(task="answer", limit=limit), LITTLE) for limit in (None, 5)]
    assert [len(data.used.train) for data in bundled] == [8, 5]
    (tmp_path / "own.md").write_text("\n\n".join(f"Text {number}." for number in range(30)))
    own = load_documents(ComparisonSettings(corpus=str(tmp_path / "own.md")), LITTLE)
    assert own.used is own.whole and len(own.used.train) == 24


def test_answers_are_scored_by_their_tokens_alone(answered, three_blocks):
    """Against the loss of the answers of the untouched model, one conversation after the other."""
    loaded = load_model(three_blocks)
    kept, _ = short_enough(load_conversations().test[: LITTLE.test_passages], loaded.tokenizer, 256)
    nats = tokens = 0.0
    for conversation in kept:
        row = answer_examples([conversation], loaded.tokenizer)
        learned = row.labels[0, 1:] != -100
        with torch.no_grad():
            scores = loaded.model(input_ids=row.tokens).logits[0, :-1].double().log_softmax(-1)
        nats -= scores[torch.arange(len(learned)), row.tokens[0, 1:]][learned].sum().item()
        tokens += learned.sum().item()
    start = answered.table.set_index("strategy").loc[ZERO_SHOT]
    assert start.perplexity == pytest.approx(torch.tensor(nats / tokens).exp().item(), rel=1e-5)  # fp32 logits


def test_a_comparison_of_answers_has_what_answers_are_judged_by(answered):
    table = answered.table.set_index("strategy")
    assert not answered.failures and list(table.index) == [ZERO_SHOT, "full", "lora", CONTROL]
    assert (table.general > 1).all()
    assert table.perplexity["full"] < table.perplexity[ZERO_SHOT]
    assert answered.documents.groupby(["strategy", "seed"]).size().nunique() == 1


def test_of_whole_conversations_the_questions_are_learned_too_and_the_same_is_scored(tiny):
    few, _ = short_enough(load_conversations().train[:8], tiny.tokenizer, 256)
    answers, whole = TASKS["answer"], TASKS["conversation"]
    learned = [(task.batch(few, tiny.tokenizer, 256, None).labels != -100).sum(1) for task in (answers, whole)]
    questions = torch.tensor([len(prompt_of(one.messages[:-1], tiny.tokenizer)) for one in few])
    assert torch.equal(learned[1] - learned[0], questions) and type(whole).score is type(answers).score


def test_a_comparison_of_classes_has_their_accuracy(classified):
    table = classified.table.set_index("strategy")
    assert not classified.failures and classified.provenance["classes"] == 9
    assert table.balanced_accuracy.between(0, 1).all()
    assert (table.balanced_accuracy_low <= table.balanced_accuracy_high).all()
    assert table.general.isna().all()
    assert table.trainable_parameters["linear_probe"] == 9 * 192


@pytest.mark.parametrize("task", ["answered", "classified"])
def test_a_task_is_exported_with_its_columns(task, request, tmp_path, monkeypatch):
    comparison = request.getfixturevalue(task)
    drawn = ("class_accuracy", "forgetting")
    monkeypatch.setattr("tlkit.reports.export.CHARTS", {name: CHARTS[name] for name in drawn})
    names = {path.name for path in export(comparison, tmp_path)}
    assert {"comparison.csv", "comparison.html"} <= names
    assert ("class_accuracy.svg" in names) == ("class_accuracy.png" in names) == (task == "classified")
    assert ("forgetting.png" in names) == (task == "answered")
    shown = brief(comparison.table)
    assert ("accuracy %" in shown) == (task == "classified") and shown.shape[0] == 4
    page = (tmp_path / "comparison.html").read_text(encoding="utf-8")
    assert ("balanced_accuracy_low" in page) == (task == "classified")


def test_runs_of_another_task_are_not_gone_on_with(answered, answered_in, three_blocks):
    options = ComparisonSettings(task="classify", learning_rates=RATES)
    with pytest.raises(ValueError, match="task was answer and is now classify"):
        compare(three_blocks, ["lora"], profile=LITTLE, settings=options, output=answered_in / "answer")


def test_rates_of_a_task_are_searched_on_its_validation_text(three_blocks):
    experiment, _ = load_experiment(three_blocks, LITTLE, ComparisonSettings(task="classify"))
    row = run_trial(experiment, "full", TrainingConfig(1e-3, epochs=0.5, batch_size=4))
    assert row["error"] is None and 0 <= row["balanced_accuracy"] <= 1
    assert 1 < row["validation_perplexity"] < 1e4 and math.isnan(row["general_perplexity"])


def test_exact_matches_are_counted_to_the_letter_and_field_by_field():
    wanted = ['{"a": 1, "b": null}', '{"a": true, "b": "x"}', '{"b": "x", "a": 2}', '{"a": 3, "b": "y"}']
    texts = ['{"b": null, "a": 1}', '{"a": 1, "b": "x"}', ' {"b": "x", "a": 2}\n', "a is 3"]
    answers = pd.DataFrame({"reference": wanted, "answer": texts})
    assert exact_match(answers)["exact"] == 0.25
    shares = exact_match(answers, ("a", "b"))
    half = 1.959964 * math.sqrt(2 * 2 / 4 + 1.959964**2 / 4) / (4 + 1.959964**2)  # Wilson's interval around the middle
    interval = {"exact_low": pytest.approx(0.5 - half, rel=1e-6), "exact_high": pytest.approx(0.5 + half, rel=1e-6)}
    assert shares == {"valid": 0.75, "a": 0.5, "b": 0.75, "exact": 0.5} | interval


def test_the_metric_counts_the_answers_to_all_test_questions(three_blocks, tmp_path, capsys):
    for split in ("train", "validation", "test"):
        rows = [{"prompt": f"{split} {number}?", "completion": json.dumps({"n": number})} for number in range(4)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    line = ["evaluate", "--model", three_blocks, "--task", "answer", "--corpus", str(tmp_path), "--json"]
    assert main([*line, "--metric", "exact", "--fields", "n"]) == 0
    figures = json.loads(capsys.readouterr().out)
    model = load_model(three_blocks)
    answers = [answer(model.model, model.tokenizer, [one]).answer[0] for one in load_conversations(tmp_path).test]
    assert figures["exact"] == sum(text.strip() == f'{{"n": {n}}}' for n, text in enumerate(answers)) / 4
    assert figures["corpus"]["test"] == 4 and figures["exact_low"] <= figures["exact"] <= figures["exact_high"]
    for wrong in (["--fields", "n"], ["--metric", "exact", "--fields", "m"]):
        assert main([*line, *wrong]) == 2, "without the metric, and a field that no reference has"


def test_a_question_without_room_for_an_answer_is_refused(tiny):
    long = Conversation("long", (("user", "word " * 300), ("assistant", "So.")))
    with pytest.raises(ValueError, match=r"a prompt of \d+ tokens and 1 new ones: this model reads at most 256"):
        answer(tiny.model, tiny.tokenizer, [long])


def test_a_model_is_taught_to_answer_and_keeps_its_template(three_blocks, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(PROFILES, "little", LITTLE)
    common = ["--task", "answer", "--profile", "little"]
    train = ["train", *common, "--model", three_blocks, "--strategy", "lora", "--learning-rate", "0.01"]
    assert main([*train, "--max-steps", "1", "--output", str(tmp_path / "out")]) == 0, capsys.readouterr().err
    asked = ["--prompt", "What is a slice?", "--max-new-tokens", "4"]
    assert main(["generate", "--chat", "--model", str(tmp_path / "out"), *asked]) == 0
    assert main(["evaluate", *common, "--model", str(tmp_path / "out"), "--json"]) == 0
    assert "perplexity" in capsys.readouterr().out


def test_conversations_that_are_too_long_are_said_to_be_left_out(tiny):
    corpus = load_conversations()
    with pytest.warns(UserWarning, match=r"of 342 conversations have more than 100 tokens and are left out, the first"):
        examples = TASKS["answer"].batch(corpus.train, tiny.tokenizer, 100, None)
    assert 0 < len(examples) < 342 and examples.shape[1] <= 100


def test_each_class_counts_once():
    labels = torch.tensor([0] * 9 + [1])
    assert balanced_accuracy(torch.zeros(10, dtype=torch.long), labels)[0] == 0.5
    found = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 1])
    assert balanced_accuracy(found, labels)[0] == pytest.approx((6 / 9 + 1) / 2)


def test_the_interval_of_balanced_accuracy_covers_the_truth_as_often_as_it_says():
    """Of 200 samples of 60 texts, each right with a probability of 0.6; with so few, an interval covers a bit less."""
    generator, covered = torch.Generator().manual_seed(0), 0
    labels = torch.arange(60) % 3
    for _ in range(200):
        right = torch.rand(60, generator=generator) < 0.6
        _, low, high = balanced_accuracy(torch.where(right, labels, (labels + 1) % 3), labels)
        covered += low <= 0.6 <= high
    assert 0.88 <= covered / 200 <= 0.99
