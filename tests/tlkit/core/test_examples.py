"""Masked labels, packed rows and padding: the losses of plain transformers, and nothing seen that should not be."""

import copy
from dataclasses import replace

import pytest
import torch
from small_models import ARCHITECTURES, small_model
from torch.nn import functional

from tlkit.examples import IGNORED, PADDING, Examples, as_examples, inputs_of, labels_in, shape_of
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
# Their attention has no place for a mask of its caller (a bias by distance is built from a plain one), or keeps states.
CANNOT_PACK = {"bloom"}


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


def test_transformers_own_loss_is_the_mean_over_the_labels():
    """Computed inside the model from `labels=`, in the same way as the Trainer asks for it."""
    model, examples = small_model("llama").eval(), padded(TEXTS)
    with torch.no_grad():
        expected = model(input_ids=examples.tokens, labels=examples.labels).loss.item()
    assert mean_loss(model, examples) == pytest.approx(expected, rel=TOLERANCE)


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


def test_mixed_texts_see_each_other():
    """The control: without the mask the loss is another one, so the test above can fail."""
    model = small_model("llama").eval()
    apart, mixed = (summed_loss(model, packed(TEXTS, layout=layout), Plan()).item() for layout in ("packed", "mixed"))
    assert abs(apart - mixed) > 1e-3


def test_positions_that_do_not_begin_anew_are_caught(monkeypatch):
    """GPT-2 adds a learned vector for each position; the planted fault leaves them as they are in the row."""
    model = small_model("gpt2").eval()

    def without_positions(examples, dtype):
        given = inputs_of(examples, dtype)
        return {name: value for name, value in given.items() if name != "position_ids"}

    monkeypatch.setattr(example_checks, "inputs_of", without_positions)
    with pytest.raises(ValueError, match="cannot keep texts apart"):
        refuse_mixing(model)


def test_a_mask_that_is_left_out_is_caught(monkeypatch):
    monkeypatch.setattr(example_checks, "inputs_of", lambda examples, dtype: {"input_ids": examples.tokens})
    with pytest.raises(ValueError, match="cannot keep texts apart"):
        refuse_mixing(small_model("llama").eval())


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
        model = apply_strategy(small_model("llama"), "full").model
        losses.append(train(model, padded(texts), config, plan=plan).history.loss.tolist())
    assert losses[0] == pytest.approx(
        losses[1], rel=1e-5
    )  # three steps, each of which carries on the last one's rounding
    means = [mean_loss(small_model("llama"), padded([text])) for text in texts]
    assert abs(sum(means) / 2 - losses[0][0]) > 0.01


def test_steps_report_their_labels():
    config = TrainingConfig(learning_rate=1e-2, epochs=1, batch_size=3)
    history = train(apply_strategy(small_model("llama"), "full").model, padded(TEXTS), config).history
    assert history.tokens.sum() == labels_in(padded(TEXTS)) == 17
    assert history.samples.tolist() == [3, 1]


@pytest.mark.parametrize("layout", [padded, packed])
def test_a_run_is_gone_on_with_bit_for_bit(layout, tmp_path):
    config = TrainingConfig(learning_rate=1e-2, epochs=4, batch_size=2)
    examples = layout(TEXTS)
    whole = train(apply_strategy(small_model("llama"), "lora").model, examples, config).history.loss.tolist()
    model = apply_strategy(small_model("llama"), "lora").model
    states = copy.deepcopy(model.state_dict())
    steps = []
    with pytest.raises(KeyboardInterrupt):
        stopped_after(3, model, examples, config, tmp_path, steps)
    model.load_state_dict(states)
    result = train(model, examples, config, checkpoint_dir=tmp_path, every=1, resume=True)
    assert result.history.loss.tolist() == whole
    changed = replace(
        examples,
        labels=examples.labels.clone().fill_(IGNORED).index_copy_(1, torch.tensor([3]), examples.tokens[:, 3:4]),
    )
    model.load_state_dict(states)
    with pytest.raises(ValueError, match="data was"):
        train(model, changed, config, checkpoint_dir=tmp_path, resume=True)


def stopped_after(count: int, model, examples: Examples, config: TrainingConfig, folder, steps: list) -> None:
    """Train with a checkpoint after every step, and be interrupted."""
    from tlkit import training

    real = training.take_step

    def step(state, *args, **kwargs):
        if state.step == min(count, 1 if len(examples) == 1 else count):
            raise KeyboardInterrupt
        steps.append(state.step)
        return real(state, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "take_step", step)
        train(model, examples, config, checkpoint_dir=folder, every=1)


def test_a_card_that_is_too_small_changes_no_loss():
    """Eight rows of unequal length; the ladder cuts them into micro-batches, which count by their labels."""
    texts = texts_of(30, 6, 22, 9, 31, 4, 18, 12)
    config = TrainingConfig(learning_rate=1e-3, epochs=2, batch_size=8)
    plain = train(apply_strategy(small_model("llama"), "full").model, padded(texts), config).history.loss
    card = virtual_device(memory="900KB")
    model = apply_strategy(small_model("llama"), "full").model
    result, log = train_with_fallback(model, padded(texts), config, device=card)
    assert len(log.table) > 1 and card.peak <= 900_000
    assert result.history.loss.tolist() == pytest.approx(plain.tolist(), rel=1e-5)


def test_four_bit_blocks_learn_from_masked_labels():
    """Of a packed row as of padded ones; the blocks are the same, rounded."""
    losses = []
    for examples in (padded(TEXTS), packed(TEXTS)):
        torch.manual_seed(0)
        model = apply_strategy(small_model("llama", hidden_size=64, num_attention_heads=4), "qlora").model
        config = TrainingConfig(learning_rate=1e-2, epochs=3, batch_size=4)
        losses.append(train(model, examples, config).history.loss.tolist())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)  # 4-bit layers compute in the type of their inputs
    assert losses[0][-1] < losses[0][0]


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_the_estimate_is_that_of_the_examples(layout):
    """Packed rows need a mask. Of padded rows the longest batch is estimated, as if no other were shorter."""
    texts = texts_of(*[32] * 16)
    examples = (
        padded(texts)
        if layout == "padded"
        else Examples(
            torch.stack([torch.cat(pair) for pair in zip(texts[::2], texts[1::2], strict=True)]),
            torch.stack([torch.cat(pair) for pair in zip(texts[::2], texts[1::2], strict=True)]),
            (torch.arange(64) >= 32).long().expand(8, 64),
            "packed",
        )
    )
    changes = {"max_position_embeddings": 128, "hidden_size": 64, "intermediate_size": 256}
    model = apply_strategy(small_model("llama", **changes), "full").model
    estimate = estimate_memory(model, **shape_of(examples[:4])).peak
    counted = train(model, examples, TrainingConfig(learning_rate=1e-3, batch_size=4, epochs=2)).peak_memory
    assert estimate == pytest.approx(counted, rel=0.03)  # what is counted has small tensors on top
    assert layout == "padded" or estimate > estimate_memory(model, batch_size=4, sequence_length=64).peak


def test_padding_that_no_row_of_a_batch_needs_is_not_read():
    examples = padded(texts_of(20, 5, 4))
    assert examples[torch.tensor([1, 2])].trimmed().shape == (2, 5)
    assert labels_in(examples[torch.tensor([1, 2])].trimmed()) == labels_in(examples[torch.tensor([1, 2])])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("nothing", "row 1: no token has a label"),
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
        labels[1, 0] = examples.tokens[1, 0] if fault == "first" else IGNORED
    model = apply_strategy(small_model("llama"), "full").model
    with pytest.raises(ValueError, match=message):
        train(model, replace(examples, labels=labels), TrainingConfig(learning_rate=1e-3))


def test_classes_are_not_for_a_language_model():
    tokens = torch.ones(2, 4, dtype=torch.long)
    with pytest.raises(ValueError, match="LlamaForCausalLM expects a label for each token"):
        refuse_examples(small_model("llama"), Examples(tokens, torch.tensor([0, 1]), 0 * tokens))


@pytest.mark.parametrize("shapes", [((2, 4), (2, 3), (2, 4)), ((2, 4), (2, 4), (4,)), ((4,), (4,), (4,))])
def test_shapes_that_do_not_belong_together_are_refused(shapes):
    with pytest.raises(ValueError, match="expected all of them"):
        Examples(*(torch.zeros(shape, dtype=torch.long) for shape in shapes))


def test_blocks_of_text_are_examples_of_which_all_counts():
    blocks = torch.stack(texts_of(6, 6))
    model = small_model("llama").eval()
    assert labels_in(blocks) == labels_in(as_examples(blocks)) == 10
    assert summed_loss(model, blocks, Plan()) == summed_loss(model, as_examples(blocks), Plan())
