"""Perplexity and training against independent computations."""

import copy
import math

import pytest
import torch
from small_models import generate
from transformers import Trainer, TrainingArguments

from tlkit.corpus import load_corpus, pack, token_stream
from tlkit.evaluation import perplexity
from tlkit.models import load_model
from tlkit.steps import Plan
from tlkit.strategies import apply_strategy
from tlkit.training import TrainingConfig, batch_at, steps_per_epoch, train

TEXTS = load_corpus("rust").test[:4]


@pytest.fixture(scope="module")
def blocks():
    return pack(load_corpus("rust").train[:6], load_model("tiny").tokenizer, 64)


def test_perplexity_equals_a_float64_computation(tiny):
    """1e-5 relative: fp32 logits of this size carry about 1e-6 of rounding into the mean."""
    model = copy.deepcopy(tiny.model).double()
    stream, _ = token_stream(TEXTS, tiny.tokenizer)
    total = 0.0
    for begin in range(0, len(stream) - 1, 64):
        window = stream[begin : begin + 65]
        with torch.no_grad():
            scores = model(input_ids=window[None, :-1]).logits[0].log_softmax(-1)
        total -= sum(scores[i, token].item() for i, token in enumerate(window[1:].tolist()))
    result = perplexity(tiny.model, tiny.tokenizer, TEXTS, context=64)
    assert result.tokens == len(stream) - 1
    assert result.nats_per_token == pytest.approx(total / (len(stream) - 1), rel=1e-5)
    size = sum(len(text.encode()) for text in TEXTS)
    assert result.bits_per_byte == pytest.approx(total / math.log(2) / size, rel=1e-5)
    assert result.low < result.perplexity < result.high
    assert (result.context, result.stride) == (64, 64) and "(window 64, stride 64)" in str(result)


def test_scores_of_documents_are_those_of_their_tokens(tiny):
    """In one window, a document's score is that of its tokens after all before them; 1e-5 as above."""
    texts = [text[:300] for text in TEXTS[:2]]
    stream, owners = token_stream(texts, tiny.tokenizer)
    result = perplexity(tiny.model, tiny.tokenizer, texts, context=256, stride=100)
    with torch.no_grad():
        scores = tiny.model(input_ids=stream[None, :-1]).logits[0].double().log_softmax(-1)
    nats = -scores[torch.arange(len(stream) - 1), stream[1:]]
    expected = [nats[owners[1:] == document].sum().item() for document in (0, 1)]
    assert len(stream) <= 257 and result.document_nats == pytest.approx(expected, rel=1e-5)
    assert list(result.document_tokens) == torch.bincount(owners[1:]).tolist()
    assert sum(result.document_tokens) == result.tokens


def test_sliding_window_equals_masking_labels(tiny):
    """The transformers documentation's method: each window's already scored tokens get the label -100."""
    stream, _ = token_stream(TEXTS, tiny.tokenizer)
    context, stride, total, done = 64, 24, 0.0, 1
    for begin in range(0, len(stream), stride):
        # One token longer than what the model needs to read: the last one is a target only.
        window = stream[begin : begin + context + 1]
        labels = window.clone()
        labels[: done - begin] = -100
        with torch.no_grad():
            loss = tiny.model(input_ids=window[None], labels=labels[None]).loss.item()
        total += loss * int((labels[1:] != -100).sum())
        done = begin + len(window)
        if done == len(stream):
            break
    result = perplexity(tiny.model, tiny.tokenizer, TEXTS, context=context, stride=stride)
    assert result.tokens == len(stream) - 1
    assert result.nats_per_token == pytest.approx(total / (len(stream) - 1), rel=1e-5)


def test_sanity_warnings(tiny):
    assert not perplexity(tiny.model, tiny.tokenizer, TEXTS).warnings
    assert "only" in perplexity(tiny.model, tiny.tokenizer, ["A short one."]).warnings[0]
    broken = load_model("tiny", random_init=True)
    with torch.no_grad():
        broken.model.get_input_embeddings().weight.mul_(30)
    assert "vocabulary size" in perplexity(broken.model, broken.tokenizer, TEXTS).warnings[0]


def test_sampling_depends_on_the_seed_alone_and_differs_from_greedy(tiny):
    given = (tiny.model, tiny.tokenizer, ["In Rust, Vec<T> is"])
    first, again, other = (generate(*given, new_tokens=8, temperature=1.0, seed=seed) for seed in (1, 1, 2))
    greedy, nearly = (generate(*given, new_tokens=8, temperature=t) for t in (0, 1e-4))
    assert first == again != other and first != greedy == nearly


class _InGivenOrder(Trainer):
    def _get_train_sampler(self, *arguments):
        return torch.utils.data.SequentialSampler(self.train_dataset)


@pytest.mark.parametrize("strategy", ["full", "lora"])
def test_losses_equal_the_transformers_trainer(strategy, blocks, tmp_path, shallow):
    config = TrainingConfig(1e-3, batch_size=4, warmup_fraction=0, schedule="constant")
    steps = len(blocks) // config.batch_size
    blocks = blocks[: steps * config.batch_size]

    torch.manual_seed(0)
    ours = apply_strategy(load_model("tiny").model, strategy).model
    ours_losses = train(ours, blocks, config).history.loss.tolist()

    torch.manual_seed(0)
    theirs = apply_strategy(load_model("tiny").model, strategy).model
    rows = torch.cat([batch_at(step, blocks, config) for step in range(steps)])
    optimizer = torch.optim.AdamW([p for p in theirs.parameters() if p.requires_grad], lr=1e-3, weight_decay=0.01)
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        num_train_epochs=1,
        logging_steps=1,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    dataset = [{"input_ids": row, "labels": row} for row in rows]
    trainer = _InGivenOrder(theirs, arguments, train_dataset=dataset, optimizers=(optimizer, None))
    trainer.train()
    theirs_losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert len(theirs_losses) == len(ours_losses) == steps
    assert ours_losses == pytest.approx(theirs_losses, abs=1e-5)


def test_every_block_is_used_once_an_epoch(blocks):
    config = TrainingConfig(batch_size=5)
    epoch = torch.cat([batch_at(step, blocks, config) for step in range(steps_per_epoch(len(blocks), config))])
    assert sorted(map(tuple, epoch.tolist())) == sorted(map(tuple, blocks.tolist()))


def test_bad_settings_and_blocks_are_refused_before_any_work(tiny, blocks):
    model = apply_strategy(load_model("tiny").model, "bitfit").model
    for settings in ({"config": TrainingConfig(patience=1)}, {"plan": Plan(micro_batch_size=9)}):
        with pytest.raises(ValueError, match="patience|micro_batch_size"):
            train(model, blocks, **settings)
    for bad in ({"context": 257}, {"stride": -1}):
        with pytest.raises(ValueError, match="expected"):
            perplexity(tiny.model, tiny.tokenizer, TEXTS, **bad)
    for bad, said in (
        (blocks.new_zeros(2, 300), "at most 256"),
        (blocks + 5000, "vocabulary"),
        (blocks[:0], "shape"),
    ):
        with pytest.raises(ValueError, match=said):
            train(model, bad)
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="nothing in this model is trainable"):
        train(model, blocks)
