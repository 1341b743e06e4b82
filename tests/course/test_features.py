"""Balanced accuracy counts classes alike, features are those of the text without its padding, and baselines learn."""

import pytest
import torch
from torch.nn import functional

from course.lesson13.probing import bag_of_words, best_linear, fit_linear, layer_features
from tlkit.evidence.classification import balanced_accuracy, balanced_interval
from tlkit.examples import PADDING, Examples
from tlkit.examples.labelled import Labelled, class_names, load_labelled
from tlkit.models import load_model

LENGTHS = (9, 4, 6, 9, 2)


@pytest.fixture(scope="module")
def model():
    return load_model("tiny").model


@pytest.fixture(scope="module")
def examples() -> Examples:
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(3, 4096, (length,), generator=generator) for length in LENGTHS]
    tokens = torch.stack([functional.pad(row, (0, 9 - len(row))) for row in rows])
    places = torch.stack([functional.pad(0 * row, (0, 9 - len(row)), value=PADDING) for row in rows])
    return Examples(tokens, torch.arange(len(rows)) % 2, places)


@pytest.mark.parametrize("pool", ["last", "mean", "both"])
def test_features_are_those_of_each_text_alone_in_the_order_given(model, examples, pool):
    """1e-5 of hidden states of the size of 1."""
    found = layer_features(model, examples, pool=pool, batch_size=2)
    assert found.shape[:2] == (9, len(LENGTHS)) and found.dtype == torch.float32
    for row, length in enumerate(LENGTHS):
        with torch.no_grad():
            states = model(input_ids=examples.tokens[row : row + 1, :length], output_hidden_states=True).hidden_states
        for layer, state in enumerate(states):
            alone = {"last": state[0, -1:], "mean": state.mean(1), "both": torch.cat([state[0, -1:], state.mean(1)])}
            assert torch.allclose(found[layer, row], alone[pool].flatten(), atol=1e-5)


def test_each_class_counts_once():
    labels = torch.tensor([0] * 9 + [1])
    assert balanced_accuracy(torch.zeros(10, dtype=torch.long), labels) == 0.5
    found = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 1])
    assert balanced_accuracy(found, labels) == pytest.approx((6 / 9 + 1) / 2)


def test_a_linear_classifier_finds_classes_that_are_apart():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    features = torch.randn(60, 5, generator=generator) + 4 * functional.one_hot(labels, 5)
    assert balanced_accuracy(fit_linear(features, labels).predict(features.double()), labels) == 1
    chosen = best_linear((features[:40], labels[:40]), (features[40:], labels[40:]))
    assert balanced_accuracy(chosen.predict(features[40:].double()), labels[40:]) > 0.9


def test_a_bag_has_the_words_of_two_training_texts_or_more_and_no_order():
    train = [Labelled("An owner drops.", "a"), Labelled("The owner moves", "b")]
    known, asked = bag_of_words(train, [Labelled("moves the OWNER", "a"), Labelled("Nothing here", "b")])
    assert known.tolist() == [[1.0], [1.0]] and asked.tolist() == [[1.0], [0.0]]


def test_the_interval_covers_the_truth_as_often_as_it_says():
    """Of 200 samples of 60 texts, each right with a probability of 0.6; with so few, an interval covers a bit less."""
    generator, covered = torch.Generator().manual_seed(0), 0
    labels = torch.arange(60) % 3
    for _ in range(200):
        right = torch.rand(60, generator=generator) < 0.6
        low, high = balanced_interval(torch.where(right, labels, (labels + 1) % 3), labels)
        covered += low <= 0.6 <= high
    assert 0.88 <= covered / 200 <= 0.99


def test_seeds_widen_the_interval():
    labels = torch.arange(30) % 3
    runs = torch.stack([labels, (labels + 1) % 3])
    low, high = balanced_interval(runs, labels)
    assert low < 0.05 and high > 0.95


def test_a_linear_classifier_is_at_the_minimum_of_its_loss():
    """The gradient of the penalised loss, by hand, is zero there."""
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(60, 4, generator=generator).double(), torch.arange(60) % 3
    found = fit_linear(features, labels, penalty=0.1)
    standard = (features - found.mean) / found.scale
    shares = (standard @ found.weight.T + found.bias).softmax(1)
    gradient = (shares - torch.nn.functional.one_hot(labels, 3)).T @ standard / 60 + 0.1 * found.weight
    assert gradient.abs().max() < 1e-4  # where L-BFGS stops


def test_words_that_tell_classes_apart_are_found():
    corpus = load_labelled()
    train, validation = bag_of_words(corpus.train, corpus.validation)
    names = class_names(corpus.train)
    labels = [torch.tensor([names.index(one.label) for one in split]) for split in (corpus.train, corpus.validation)]
    model = best_linear((train, labels[0]), (validation, labels[1]))
    accuracy = balanced_accuracy(model.predict(validation), labels[1])
    assert accuracy > 3 / 9
    shuffled = labels[0][torch.randperm(len(labels[0]), generator=torch.Generator().manual_seed(0))]
    control = fit_linear(train, shuffled, penalty=model.penalty)
    assert balanced_accuracy(control.predict(validation), labels[1]) < 2 / 9
