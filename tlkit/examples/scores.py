"""How well a model does on examples: the loss of each row's answer or class."""

import torch
from torch.nn import functional

from tlkit.evaluation import PerplexityResult, result_of, windows_at_once
from tlkit.examples import IGNORED, Examples, inputs_of, refuse_examples
from tlkit.jobs import SILENT, Part
from tlkit.models.adapters import base_model, class_count
from tlkit.models.parts import evaluation_mode


@torch.no_grad()
def score_examples(
    model: torch.nn.Module,
    examples: Examples,
    *,
    tokenizer=None,
    batch_size: int = 8,
    progress: Part = SILENT,
) -> PerplexityResult:
    """Perplexity of the labels: of the answers' tokens, or of the classes, of which one who guesses has their number.

    Losses are in nats, computed in fp32 and summed in float64. A document is a row.

    Args:
        model: a causal language model, or a classifier.
        examples: with labels that the model has.
        tokenizer: to count the bytes of answers, for bits per byte; None leaves them out.
        batch_size: rows at once, fewer where the vocabulary is large.
        progress: the part of a job to report to how much has been scored.
    """
    refuse_examples(examples, class_count(model))
    width = examples.shape[1]
    if examples.classifies:
        logits = class_logits(model, examples, batch_size=batch_size, progress=progress)
        losses = functional.cross_entropy(logits, examples.labels, reduction="none")
        return result_of(losses, torch.ones_like(losses), size=0, window=(width, width), vocabulary=None)
    losses = torch.zeros(len(examples), dtype=torch.float64)
    vocabulary = base_model(model).config.get_text_config().vocab_size
    device, scored = next(model.parameters()).device, 0
    for rows in _by_length(examples, windows_at_once(vocabulary, width, batch_size)):
        with evaluation_mode(model):
            nats = _answer_nats(model, examples[rows].trimmed().to(device))
        losses[rows] = nats.cpu().double().sum(1)  # not every device has float64
        scored += len(rows)
        progress.step(scored, len(examples), f"scored {scored:,} of {len(examples):,} answers")
    counts = (examples.labels[:, 1:] != IGNORED).sum(1).double()
    read = [] if tokenizer is None else [tokenizer.decode(row[row != IGNORED]) for row in examples.labels]
    size = sum(len(text.encode()) for text in read)
    return result_of(losses, counts, size=size, window=(width, width), vocabulary=vocabulary)


def _answer_nats(model: torch.nn.Module, examples: Examples) -> torch.Tensor:
    """The loss of each label, from the tokens before it: 0 where there is no label, shape (rows, tokens - 1)."""
    labels = examples.labels[:, 1:]
    logits = model(input_ids=examples.tokens[:, :-1], use_cache=False).logits
    logits = logits[:, -labels.shape[1] :].float()  # a learned prompt has some, too
    nats = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=IGNORED)
    return nats.view(labels.shape)


@torch.no_grad()
def class_logits(
    model: torch.nn.Module, examples: Examples, *, batch_size: int = 8, progress: Part = SILENT
) -> torch.Tensor:
    """What a classifier makes of each row: logits in float64 on the host, shape (rows, classes)."""
    device, done = next(model.parameters()).device, 0
    logits = torch.zeros(len(examples), base_model(model).config.num_labels, dtype=torch.float64)
    with evaluation_mode(model):
        for rows in _by_length(examples, batch_size):
            inputs = inputs_of(examples[rows].trimmed().to(device))
            logits[rows] = model(**inputs, use_cache=False).logits.float().cpu().double()
            done += len(rows)
            progress.step(done, len(examples), f"classified {done:,} of {len(examples):,} texts")
    return logits


def _by_length(examples: Examples, at_once: int) -> list[torch.Tensor]:
    """Places of rows, those of similar length together, so that little padding is read."""
    return list(examples.mask.sum(1).argsort().split(at_once))
