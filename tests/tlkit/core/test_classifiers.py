"""Texts with classes: read from files, read by classifiers of many architectures, trained by every strategy."""

import json

import pytest
import torch
from small_models import ARCHITECTURES
from torch.nn import functional
from transformers import AutoConfig, AutoModelForSequenceClassification

from tlkit.cli import main
from tlkit.evaluation import class_logits, score_examples
from tlkit.examples import Examples
from tlkit.examples.labelled import Labelled, class_examples, class_names, load_labelled
from tlkit.fitting.estimate import estimate_memory
from tlkit.models import load_model, meta_model, save_model
from tlkit.models.parts import class_head
from tlkit.models.saving import stored_classes
from tlkit.names import CLASSIC
from tlkit.steps import Plan, summed_loss
from tlkit.strategies import apply_strategy
from tlkit.training import TrainingConfig, train

CLASSES = 3
# transformers has no classifier of these.
WITHOUT = {"codegen"}


def classifier(kind: str, **changes) -> torch.nn.Module:
    torch.manual_seed(0)
    tokens = {"vocab_size": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "num_labels": CLASSES}
    config = AutoConfig.for_model(kind, **tokens | ARCHITECTURES[kind] | changes)
    return AutoModelForSequenceClassification.from_config(config)


def texts(*lengths: int) -> Examples:
    generator, width = torch.Generator().manual_seed(0), max(lengths)
    rows = [torch.randint(3, 64, (length,), generator=generator) for length in lengths]
    tokens = torch.stack([functional.pad(row, (0, width - len(row))) for row in rows])
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    return Examples(tokens, torch.arange(len(rows)) % CLASSES, mask)


@pytest.mark.parametrize("kind", sorted(set(ARCHITECTURES) - WITHOUT))
def test_padding_changes_no_class_and_losses_are_those_of_plain_transformers(kind):
    """Of each text alone, without a mask or a padding token; 1e-5 of logits of the size of 0.1 to 1."""
    model, examples = classifier(kind).eval(), texts(9, 4, 6, 5)
    logits = class_logits(model, examples)
    for row, length in enumerate((9, 4, 6, 5)):
        with torch.no_grad():
            alone = model(input_ids=examples.tokens[row : row + 1, :length]).logits[0].double()
        assert torch.allclose(logits[row], alone, atol=1e-5)
    given = {"input_ids": examples.tokens, "attention_mask": examples.mask.long()}
    with torch.no_grad():
        expected = model(**given, labels=examples.labels).loss.item()
        found = summed_loss(model, examples, Plan()).item() / 4
    assert found == pytest.approx(expected, rel=1e-6)
    score = score_examples(model, examples)
    assert score.nats_per_token == pytest.approx(expected, rel=1e-6)
    assert score.documents == score.tokens == 4 and not score.warnings and "4 labels" in str(score)


def test_reading_the_last_column_would_be_another_class():
    """The planted mistake that the test above would catch: hidden states at the padding say something else."""
    model, examples = classifier("llama").eval(), texts(9, 4)
    with torch.no_grad():
        hidden = model.model(input_ids=examples.tokens).last_hidden_state
        at_the_end = model.score(hidden[1, -1])
    assert not torch.allclose(class_logits(model, examples)[1].float(), at_the_end, atol=1e-3)


@pytest.mark.parametrize("strategy", [*CLASSIC, "linear_probe", "dora", "ia3", "ln_tuning", "gradual_unfreezing"])
def test_every_strategy_trains_the_new_head(strategy, shallow):
    model = load_model("tiny", classes=CLASSES, seed=1).model
    heads, report = len([*class_head(model)]), apply_strategy(model, strategy)
    head = report.components["head"]
    assert head.trainable_parameters == CLASSES * 192
    if strategy == "linear_probe":
        assert report.trainable_parameters == head.trainable_parameters
    config = TrainingConfig(learning_rate=3e-3, epochs=3, batch_size=4, warmup_fraction=0.0)
    history = train(report.model, texts(9, 4, 6, 5), config).history
    assert history.loss.iloc[-1] < history.loss.iloc[0] and history.tokens.tolist() == [4, 4, 4]
    trained = {name for name, p in report.model.named_parameters() if p.requires_grad and "score" in name}
    assert trained and heads == 1


def test_only_the_head_is_new_and_it_depends_on_the_seed(shallow):
    plain = dict(load_model("tiny").model.model.named_parameters())
    one, same, other = (load_model("tiny", classes=CLASSES, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(p, plain[name]) for name, p in one.model.model.named_parameters())
    heads = [loaded.model.score.weight for loaded in (one, same, other)]
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], heads[2])
    assert one.tensors_loaded == one.tensors_total - 1


def test_the_estimate_knows_that_there_are_no_logits_of_tokens(shallow):
    shape = {"batch_size": 8, "sequence_length": 128}
    text, classes = (estimate_memory("tiny", "full", classes=number, **shape) for number in (None, CLASSES))
    assert classes.categories["logits and loss"] < 0.01 * text.categories["logits and loss"]
    values = sum(p.numel() for p in meta_model("tiny", CLASSES).parameters())
    assert classes.categories["weights"] == pytest.approx(4 * values, rel=1e-4)  # and the frequencies of the positions


def test_every_topic_has_one_class(tiny):
    corpus = load_labelled()
    names = class_names(corpus.train)
    assert len(names) == 9 and names == class_names(corpus.validation) == class_names(corpus.test)
    examples = class_examples(corpus.test, tiny.tokenizer, names)
    assert len(examples) == 63 and examples.labels.unique().tolist() == list(range(9))
    assert [names[label] for label in examples.labels] == [document.label for document in corpus.test]


def test_a_text_that_ends_with_padding_is_refused(tiny):
    ends = Labelled("A text<|endoftext|>", "a")
    with pytest.raises(ValueError, match="does not end with the padding token"):
        class_examples([ends], tiny.tokenizer, ("a", "b"))


@pytest.mark.parametrize("strategy", ["full", "lora"])
def test_a_classifier_keeps_the_order_of_its_class_names(strategy, tmp_path, capsys, shallow):
    """Trained with "zebra" as class 0 and "ant" as 1, the other way than the alphabet; judged by plain transformers."""
    loaded = load_model("tiny", classes=2, seed=1)
    loaded.model.config.id2label, loaded.model.config.label2id = {0: "zebra", 1: "ant"}, {"zebra": 0, "ant": 1}
    model = apply_strategy(loaded.model, strategy).model
    words = {"zebra": "black and white stripes", "ant": "six legs under the ground"}
    rows = [(f"{words[name]} {n}", name) for n in range(20) for name in words]
    documents = [Labelled(*row) for row in rows]
    examples = class_examples(documents, loaded.tokenizer, ("zebra", "ant"))
    train(model, examples, TrainingConfig(learning_rate=1e-2, epochs=3))
    save_model(model, loaded.tokenizer, tmp_path / "out")
    assert stored_classes(tmp_path / "out") == ("zebra", "ant")
    again = load_model(tmp_path / "out", classes=2).model
    assert torch.allclose(class_logits(again, examples), class_logits(model, examples), atol=1e-5)
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(json.dumps({"text": text, "label": label}) for text, label in rows))
    evaluated = ["evaluate", "--json", "--task", "classify", "--model", str(tmp_path / "out"), "--corpus"]
    assert main([*evaluated, str(path)]) == 0
    with torch.no_grad():
        logits = model(input_ids=examples.tokens, attention_mask=examples.mask.long()).logits
    test = {str(one) for one in load_labelled(path).test}
    right = [logits[n].argmax() == examples.labels[n] for n, one in enumerate(documents) if str(one) in test]
    assert sum(right) == len(right), "it has learned so little that the order would not matter"
    assert json.loads(capsys.readouterr().out)["balanced_accuracy"] == 1
    path.write_text(path.read_text().replace("zebra", "horse"))
    assert main([*evaluated, str(path)]) == 2
    assert "tells apart zebra, ant, and the text has ant, horse" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "a"}] * 12, "line 1: expected 'text' and 'label'"),
        ([{"text": "a", "label": "b", "split": "test"}], "line 1: 'split' would not be used"),
        (
            [{"text": "a b", "label": "c"}, {"text": "a  b", "label": "d"}],
            "line 2: the text of .*line 1 is there again",
        ),
        ([{"text": f"text {n}", "label": "same"} for n in range(12)], "1 classes in the training split"),
        ([{"text": f"text {n}", "label": str(n)} for n in range(12)], "has no text to train on"),
    ],
)
def test_files_that_cannot_be_learned_from_are_refused(rows, message, tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match=message):
        load_labelled(path)
