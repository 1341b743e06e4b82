"""Pairs of answers: the loss of DPO by another way of computing it, and what it does to a model."""

import copy
import json
import math

import pytest
import torch
from small_models import small_model

from course.lesson19.preferences import (
    load_preferences,
    log_probabilities,
    preference_examples,
    preference_loss,
)
from tlkit.examples import IGNORED, PADDING, Examples
from tlkit.losses import summed_loss
from tlkit.models import load_model
from tlkit.steps import Plan


def test_the_loss_is_that_of_trl():
    """TRL computes -logsigmoid(beta * ((pi_w - pi_l) - (ref_w - ref_l))); here in float64 by exponentials, to 1e-6."""
    generator = torch.Generator().manual_seed(0)
    logps = [-50 * torch.rand(20, generator=generator) for _ in range(4)]
    for beta in (0.01, 0.1, 0.5):
        found = preference_loss(*logps, beta=beta)
        for pair, (chosen, rejected, before_chosen, before_rejected) in enumerate(zip(*logps, strict=True)):
            logits = (chosen - rejected).double() - (before_chosen - before_rejected).double()
            expected = math.log1p(math.exp(-beta * float(logits)))
            assert found[pair].item() == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_before_training_every_pair_costs_log_two():
    logps = torch.tensor([-3.0, -40.0])
    assert preference_loss(logps, 2 * logps, logps, 2 * logps).tolist() == pytest.approx([math.log(2)] * 2)


def test_the_gradient_raises_the_chosen_answer_and_lowers_the_other():
    chosen, rejected = torch.tensor([-5.0], requires_grad=True), torch.tensor([-4.0], requires_grad=True)
    preference_loss(chosen, rejected, torch.tensor([-5.0]), torch.tensor([-4.0]), beta=0.2).sum().backward()
    assert chosen.grad.item() == pytest.approx(-0.1) and rejected.grad.item() == pytest.approx(0.1)  # beta / 2


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


def test_a_few_steps_widen_the_margin():
    loaded = load_model("tiny")
    pairs = load_preferences().train[:4]
    chosen, rejected = preference_examples(pairs, loaded.tokenizer)
    model, reference = loaded.model, copy.deepcopy(loaded.model)
    with torch.no_grad():
        before = [log_probabilities(reference, part) for part in (chosen, rejected)]
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-4), []
    for _ in range(4):
        now = [log_probabilities(model, part) for part in (chosen, rejected)]
        loss = preference_loss(*now, *before).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(2), rel=1e-4) and losses == sorted(losses, reverse=True)


def test_the_pairs_are_split_as_the_questions_are():
    corpus = load_preferences()
    assert [len(part) for part in (corpus.train, corpus.validation, corpus.test)] == [102, 18, 24]
    topics = [{pair.topic for pair in part} for part in (corpus.train, corpus.validation, corpus.test)]
    assert not topics[0] & topics[1] and not topics[0] & topics[2] and not topics[1] & topics[2]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "Why?", "chosen": "So."}, 'expected "prompt", "chosen" and "rejected"'),
        ({"prompt": "Why?", "chosen": "So.", "rejected": " "}, 'expected "prompt", "chosen" and "rejected"'),
        ({"prompt": "Why?", "chosen": "So it is.", "rejected": "So  it is."}, "both answers are the same"),
    ],
)
def test_what_is_no_pair_is_refused_by_line(row, message, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(ValueError, match=f"line 1: {message}"):
        load_preferences(path)


def test_other_files_are_refused():
    with pytest.raises(ValueError, match="expected rust, or a path to a .jsonl file"):
        load_preferences("pairs.csv")
