"""Masked labels and padding: the losses of plain transformers."""

from dataclasses import replace

import pytest
import torch
from interrupted import assert_goes_on_bit_for_bit
from small_models import ARCHITECTURES, small_model
from torch.nn import functional

from tlkit.examples import IGNORED, Examples, count_labels
from tlkit.fitting.estimate import estimate_memory
from tlkit.fitting.fallback import train_with_fallback
from tlkit.memory import virtual_device
from tlkit.steps import Plan, chunked_loss_agrees, mean_loss, summed_loss
from tlkit.strategies import apply_strategy
from tlkit.training import TrainingConfig, train

# fp32 sums of the same products in another order; the losses are of the size of 4 nats a token.
TOLERANCE = 1e-6


def texts_of(*lengths: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(3, 64, (length,), generator=generator) for length in lengths]


def padded(texts: list[torch.Tensor], read: int = 2) -> Examples:
    """A text in each row, of which the first tokens are only read."""
    width = max(map(len, texts))
    tokens = torch.stack([functional.pad(text, (0, width - len(text))) for text in texts])
    mask = torch.arange(width) < torch.tensor([len(text) for text in texts])[:, None]
    return Examples(tokens, tokens.masked_fill(~mask | (torch.arange(width) < read), IGNORED), mask)


def adapted(strategy: str = "full") -> torch.nn.Module:
    return apply_strategy(small_model("llama"), strategy).model


TEXTS = texts_of(9, 5, 7, 4)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_masked_losses_are_those_of_plain_transformers(kind):
    model, examples = small_model(kind).eval(), padded(TEXTS)
    given = {"input_ids": examples.tokens, "attention_mask": examples.mask.long()}
    with torch.no_grad():
        logits = model(**given).logits[:, :-1].double()
        expected = functional.cross_entropy(
            logits.flatten(0, 1), examples.labels[:, 1:].flatten(), reduction="sum", ignore_index=IGNORED
        )
        found = summed_loss(model, examples, Plan())
    assert found.item() == pytest.approx(expected.item(), rel=TOLERANCE)
    assert count_labels(examples) == sum(len(text) - 2 for text in TEXTS)


def test_the_chunked_loss_leaves_the_same_labels_out():
    model = small_model("llama").eval()
    assert chunked_loss_agrees(model)
    whole, chunked = (summed_loss(model, padded(TEXTS), Plan(chunked_loss=chunks)).item() for chunks in (False, True))
    assert whole == pytest.approx(chunked, rel=TOLERANCE)


def test_micro_batches_count_labels_and_not_rows():
    """Rows with 1 and with 30 labels: a mean of means would weigh the short one thirty times as much."""
    texts = texts_of(3, 32)
    config = TrainingConfig(learning_rate=1e-2, epochs=3, batch_size=2, warmup_fraction=0.0, schedule="constant")
    losses = []
    for plan in (Plan(), Plan(micro_batch_size=1)):
        model = adapted()
        losses.append(train(model, padded(texts), config, plan=plan).history.loss.tolist())
    assert losses[0] == pytest.approx(
        losses[1], rel=1e-5
    )  # three steps, each of which carries on the last one's rounding
    means = [mean_loss(small_model("llama"), padded([text])) for text in texts]
    assert abs(sum(means) / 2 - losses[0][0]) > 0.01


def test_a_run_is_gone_on_with_bit_for_bit(tmp_path):
    config, examples = TrainingConfig(learning_rate=1e-2, epochs=4, batch_size=2), padded(TEXTS)
    assert_goes_on_bit_for_bit(lambda: adapted("lora"), examples, config, 3, tmp_path)
    fewer = examples.labels.masked_fill(torch.arange(examples.shape[1]) != 3, IGNORED)
    with pytest.raises(ValueError, match="data was"):
        train(adapted("lora"), replace(examples, labels=fewer), config, checkpoint_dir=tmp_path, resume=True)


def test_a_card_that_is_too_small_changes_no_loss():
    """Eight rows of unequal length; the ladder cuts them into micro-batches, which count by their labels."""
    texts = texts_of(30, 6, 22, 9, 31, 4, 18, 12)
    config = TrainingConfig(learning_rate=1e-3, epochs=2, batch_size=8)
    plain = train(adapted(), padded(texts), config).history.loss
    card = virtual_device(memory="900KiB")
    model = adapted()
    order = ("smaller micro-batch", "activation checkpointing")
    result, log = train_with_fallback(model, padded(texts), config, device=card, order=order)
    assert len(log.table) > 1 and card.peak <= 900_000
    assert result.history.loss.tolist() == pytest.approx(plain.tolist(), rel=1e-5)


def test_the_estimate_is_that_of_the_examples():
    """The longest batch is estimated, as if no other were shorter."""
    examples = padded(texts_of(*[32] * 16))
    changes = {"max_position_embeddings": 128, "hidden_size": 64, "intermediate_size": 256}
    model = apply_strategy(small_model("llama", **changes), "full").model
    estimate = estimate_memory(model, batch_size=4, sequence_length=examples.shape[1]).peak
    counted = train(model, examples, TrainingConfig(learning_rate=1e-3, batch_size=4, epochs=2)).peak_memory
    assert estimate == pytest.approx(counted, rel=0.03)  # what is counted has small tensors on top


def test_shifted_labels_and_rows_without_any_are_refused():
    examples = padded(TEXTS)
    labels = examples.labels.clone()
    labels[2, 1:] = IGNORED  # of the first token no loss is computed
    with pytest.raises(ValueError, match="row 2 "):
        train(adapted(), replace(examples, labels=labels), TrainingConfig(learning_rate=1e-3))
    labels = examples.labels.clone()
    labels[:, :-1], labels[:, -1] = examples.labels[:, 1:], IGNORED
    with pytest.raises(ValueError, match="row 0 of the examples: a label is not the token at its own place"):
        train(adapted(), replace(examples, labels=labels), TrainingConfig(learning_rate=1e-3))
