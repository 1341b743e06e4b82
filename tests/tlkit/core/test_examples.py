"""Masked labels, packed rows and padding: the losses of plain transformers, and nothing seen that should not be."""

from dataclasses import replace

import pytest
import torch
from interrupted import assert_goes_on_bit_for_bit
from small_models import ARCHITECTURES, small_model
from torch.nn import functional

from tlkit.examples import IGNORED, PADDING, Examples, inputs_of, labels_in, shape_of
from tlkit.fitting.estimate import estimate_memory
from tlkit.fitting.fallback import train_with_fallback
from tlkit.losses import chunked_loss_agrees, summed_loss
from tlkit.memory import virtual_device
from tlkit.models import example_checks
from tlkit.models.example_checks import refuse_examples, refuse_mixing
from tlkit.steps import Plan, mean_loss
from tlkit.strategies import apply_strategy
from tlkit.training import TrainingConfig, train

# fp32 sums of the same products in another order; the losses are of the size of 4 nats a token.
TOLERANCE = 1e-6
# Their attention has a bias by distance, or transformers makes its mask without looking at positions.
CANNOT_PACK = {"bloom", "falcon", "mpt", "opt", "gpt_oss"}
# Some or all of their blocks look back over a window of 4 tokens only, which is shorter than the texts.
WINDOWED = ("mistral", "phi3", "gemma2", "gemma3_text", "qwen2", "cohere2", "olmo3", "gpt_oss", "smollm3")
WINDOW = {
    "sliding_window": 4,
    "use_sliding_window": True,
    "max_window_layers": 1,
    "num_hidden_layers": 4,
    "head_dim": 16,
}


def texts_of(*lengths: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(3, 64, (length,), generator=generator) for length in lengths]


def padded(texts: list[torch.Tensor], read: int = 2) -> Examples:
    """A text in each row, of which the first tokens are only read."""
    width = max(map(len, texts))
    tokens = torch.stack([functional.pad(text, (0, width - len(text))) for text in texts])
    places = torch.stack([functional.pad(0 * text, (0, width - len(text)), value=PADDING) for text in texts])
    labels = tokens.masked_fill((places == PADDING) | (torch.arange(width) < read), IGNORED)
    return Examples(tokens, labels, places)


def packed(texts: list[torch.Tensor], read: int = 2, layout: str = "packed") -> Examples:
    """All texts in one row."""
    labels = [text.clone().index_fill_(0, torch.arange(read), IGNORED) for text in texts]
    places = [torch.full_like(text, number) for number, text in enumerate(texts)]
    return Examples(*(torch.cat(part)[None] for part in (texts, labels, places)), layout)


def adapted(strategy: str = "full") -> torch.nn.Module:
    return apply_strategy(small_model("llama"), strategy).model


TEXTS = texts_of(9, 5, 7, 4)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_masked_losses_are_those_of_plain_transformers(kind):
    model, examples = small_model(kind).eval(), padded(TEXTS)
    given = {"input_ids": examples.tokens, "attention_mask": (examples.texts != PADDING).long()}
    with torch.no_grad():
        logits = model(**given).logits[:, :-1].double()
        expected = functional.cross_entropy(
            logits.flatten(0, 1), examples.labels[:, 1:].flatten(), reduction="sum", ignore_index=IGNORED
        )
        found = summed_loss(model, examples, Plan())
    assert found.item() == pytest.approx(expected.item(), rel=TOLERANCE)
    assert labels_in(examples) == sum(len(text) - 2 for text in TEXTS)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_texts_in_one_row_are_read_as_if_each_were_alone(kind):
    model = small_model(kind).eval()
    if kind in CANNOT_PACK:
        with pytest.raises(ValueError, match="cannot keep texts apart.*expected the layout padded"):
            refuse_examples(model, packed(TEXTS))
        return
    refuse_examples(model, packed(TEXTS))
    losses, gradients = [], []
    for examples in (padded(TEXTS), packed(TEXTS)):
        model.zero_grad()
        loss = summed_loss(model, examples, Plan())
        loss.backward()
        losses.append(loss.item())
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert losses[0] == pytest.approx(losses[1], rel=TOLERANCE)
    assert torch.allclose(gradients[0], gradients[1], atol=1e-5 * gradients[0].abs().max())


@pytest.mark.parametrize("kind", WINDOWED)
def test_texts_that_are_longer_than_a_window_are_read_as_if_each_were_alone(kind):
    """Packed rows cost what transformers itself computes for each text, or they are refused."""
    model = small_model(kind, **WINDOW).eval()
    config = model.config.get_text_config()
    texts = texts_of(9, 14, 7)
    with torch.no_grad():
        alone = [model(input_ids=text[None], use_cache=False).logits[0, 1:-1].double() for text in texts]
        expected = sum(
            functional.cross_entropy(logits, text[2:], reduction="sum")
            for logits, text in zip(alone, texts, strict=True)
        )
        config.sliding_window = 64
        without = summed_loss(model, padded(texts), Plan()).item()
        config.sliding_window = 4
    if kind in CANNOT_PACK:
        with pytest.raises(ValueError, match="cannot keep texts apart"):
            refuse_examples(model, packed(texts))
        return
    refuse_examples(model, packed(texts))
    assert config.sliding_window == 4, "asking the model changes nothing"
    for examples in (padded(texts), packed(texts)):
        assert summed_loss(model, examples, Plan()).item() == pytest.approx(expected.item(), rel=1e-5)
    assert abs(without - expected.item()) > 1e-3, "the control: a wider window gives another loss"


def test_a_mask_that_forgets_the_window_is_caught(monkeypatch):
    """The planted fault: a mask of the caller's takes the place of the model's own, window and all."""
    model = small_model("mistral", sliding_window=4096).eval()

    def with_a_mask(examples):
        given = inputs_of(examples)
        if examples.layout == "packed":
            seen = (examples.texts[:, :, None] == examples.texts[:, None, :]).tril()
            given["attention_mask"] = torch.zeros(seen.shape).masked_fill(~seen, -1e9)[:, None]
        return given

    monkeypatch.setattr(example_checks, "inputs_of", with_a_mask)
    with pytest.raises(ValueError, match="cannot keep texts apart"):
        refuse_mixing(model)


def test_mixed_texts_see_each_other():
    """The control: without the mask the loss is another one, so the test above can fail."""
    model = small_model("llama").eval()
    apart, mixed = (summed_loss(model, packed(TEXTS, layout=layout), Plan()).item() for layout in ("packed", "mixed"))
    assert abs(apart - mixed) > 1e-3


def test_positions_that_do_not_begin_anew_are_caught(monkeypatch):
    """GPT-2 adds a learned vector for each position; the planted fault leaves them as they are in the row."""
    model = small_model("gpt2").eval()

    def without_positions(examples):
        given = inputs_of(examples)
        return {name: value for name, value in given.items() if name != "position_ids"}

    monkeypatch.setattr(example_checks, "inputs_of", without_positions)
    with pytest.raises(ValueError, match="cannot keep texts apart"):
        refuse_mixing(model)


@pytest.mark.parametrize("layout", [padded, packed])
def test_the_chunked_loss_leaves_the_same_labels_out(layout):
    model = small_model("llama").eval()
    assert chunked_loss_agrees(model)
    whole, chunked = (summed_loss(model, layout(TEXTS), Plan(chunked_loss=chunks)).item() for chunks in (False, True))
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


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_the_estimate_is_that_of_the_examples(layout):
    """Packed rows need a mask. Of padded rows the longest batch is estimated, as if no other were shorter."""
    texts = texts_of(*[32] * 16)
    rows = torch.stack(texts).reshape(8, 64)  # two texts in each
    examples = padded(texts)
    if layout == "packed":
        examples = Examples(rows, rows, (torch.arange(64) >= 32).long().expand(8, 64), "packed")
    changes = {"max_position_embeddings": 128, "hidden_size": 64, "intermediate_size": 256}
    model = apply_strategy(small_model("llama", **changes), "full").model
    estimate = estimate_memory(model, **shape_of(examples[:4])).peak
    counted = train(model, examples, TrainingConfig(learning_rate=1e-3, batch_size=4, epochs=2)).peak_memory
    assert estimate == pytest.approx(counted, rel=0.03)  # what is counted has small tensors on top
    assert layout == "padded" or estimate > estimate_memory(model, batch_size=4, sequence_length=64).peak


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("first", "row 1: no token has a label"),
        ("shifted", "row 0: a label is not the token at its own place"),
    ],
)
def test_labels_that_teach_nothing_or_the_wrong_thing_are_refused(fault, message):
    examples = padded(TEXTS)
    labels = examples.labels.clone()
    if fault == "shifted":
        labels[:, :-1], labels[:, -1] = examples.labels[:, 1:], IGNORED
    else:
        labels[1] = IGNORED
        labels[1, 0] = examples.tokens[1, 0]
    model = adapted()
    with pytest.raises(ValueError, match=message):
        train(model, replace(examples, labels=labels), TrainingConfig(learning_rate=1e-3))
