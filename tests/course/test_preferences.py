"""Pairs of answers: read whole and by topics, and scored by the summed loss."""

import pytest
import torch
from small_models import small_model

from course.lesson14.preferences import (
    load_preferences,
    log_probabilities,
)
from tlkit.examples import IGNORED, PADDING, Examples
from tlkit.losses import summed_loss
from tlkit.steps import Plan


def test_log_probabilities_are_minus_the_summed_loss():
    model, tokens = (
        small_model("llama").eval(),
        torch.randint(3, 64, (3, 8), generator=torch.Generator().manual_seed(0)),
    )
    texts = torch.zeros_like(tokens)
    texts[1, 6:] = PADDING
    labels = tokens.masked_fill((texts == PADDING) | (torch.arange(8) < 3), IGNORED)
    examples = Examples(tokens, labels, texts)
    found = log_probabilities(model, examples)
    assert found.requires_grad and found.sum().item() == pytest.approx(
        -summed_loss(model, examples, Plan()).item(), rel=1e-6
    )
    for row in range(3):
        assert found[row].item() == pytest.approx(-summed_loss(model, examples[row : row + 1], Plan()).item(), rel=1e-6)


def test_the_pairs_are_split_as_the_questions_are():
    corpus = load_preferences()
    assert [len(part) for part in (corpus.train, corpus.validation, corpus.test)] == [102, 18, 24]
    topics = [{pair.topic for pair in part} for part in (corpus.train, corpus.validation, corpus.test)]
    assert not topics[0] & topics[1] and not topics[0] & topics[2] and not topics[1] & topics[2]
