"""How well a model predicts text, answers or classes."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, islice

import torch
from torch.nn import functional

from tlkit.corpus import token_stream
from tlkit.examples import IGNORED, Examples, check_labels, inputs_of
from tlkit.jobs import SILENT, Job
from tlkit.models.parts import base_model, evaluation_mode, longest_input

WINDOW = 256  # tokens
FEWEST_TOKENS = 256
MOST_UNKNOWN = 0.01
BOOTSTRAP_DRAWS = 1000
LOGITS_AT_ONCE = 2**25  # values, 128 MiB in fp32: less than the training needed


@dataclass(frozen=True)
class PerplexityResult:
    """Token-weighted perplexity of documents; only results of one context and stride can be compared."""

    perplexity: float
    low: float  # of a 95% bootstrap interval over documents
    high: float
    nats_per_token: float
    bits_per_byte: float
    tokens: int
    documents: int
    warnings: tuple[str, ...]
    context: int  # tokens that a window reads
    stride: int  # tokens that it moves on by
    document_nats: tuple[float, ...]  # summed over the tokens of each document, in the order given
    document_tokens: tuple[int, ...]

    def __str__(self) -> str:
        scored = f"{self.bits_per_byte:.3f} bits per byte, {self.tokens:,} tokens"
        if math.isnan(self.bits_per_byte):
            scored = f"{self.tokens:,} labels"
        score = f"perplexity {self.perplexity:,.2f} [{self.low:,.2f}, {self.high:,.2f}]"
        window = f"{self.documents} documents (window {self.context}, stride {self.stride})"
        return "\n".join([f"{score}, {scored} of {window}", *(f"WARNING: {warning}" for warning in self.warnings)])


def perplexity(
    model: torch.nn.Module,
    tokenizer,
    texts,
    *,
    context: int | None = None,
    stride: int | None = None,
    batch_size: int = 8,
    progress: Job = SILENT,
) -> PerplexityResult:
    """Perplexity over packed documents: every token but the very first is scored exactly once.

    Losses are in nats, computed in fp32 and summed in float64.

    Args:
        context: tokens that a window reads; None for 256, or fewer where the model reads fewer.
        stride: tokens that it moves on by; None for `context`. A smaller one gives tokens more context, and costs more.
        batch_size: windows at once, fewer where the vocabulary is large.

    Source: the sliding-window method of the transformers documentation, "Perplexity of fixed-length models".
    """
    limit = longest_input(model)
    context = min(WINDOW, limit or WINDOW) if context is None else context
    stride = context if stride is None else stride
    if context < 2 or limit and context > limit:
        raise ValueError(f"context={context}: expected 2 to {limit or 'any number'}, the model's longest input")
    if not 1 <= stride <= context:
        raise ValueError(f"stride={stride}: expected 1 to context={context}, or tokens would be skipped")
    if not texts:
        raise ValueError("no documents to evaluate")
    stream, owners = token_stream(texts, tokenizer)
    losses, counts = torch.zeros(2, len(texts), dtype=torch.float64)
    vocabulary = model.config.get_text_config().vocab_size
    at_once = windows_at_once(vocabulary, context, batch_size)
    with evaluation_mode(model):
        for inputs, targets, places in _windows(stream, context, stride, at_once):
            nats = _losses(model, inputs, targets).flatten()
            document = owners[places].flatten()
            losses.index_add_(0, document, nats)
            counts.index_add_(0, document, torch.ones_like(nats))
            scored = int(places.max())
            progress.step(scored, len(stream) - 1, f"scored {scored:,} of {len(stream) - 1:,} tokens")

    unknown = 0.0
    if tokenizer.unk_token_id is not None and tokenizer.unk_token != tokenizer.eos_token:
        unknown = float((stream == tokenizer.unk_token_id).double().mean())
    return _result(losses, counts, "".join(texts), (context, stride), vocabulary, unknown)


def score_examples(
    model: torch.nn.Module, examples: Examples, *, tokenizer=None, batch_size: int = 8, progress: Job = SILENT
) -> PerplexityResult:
    """Perplexity of answers' tokens, or of classes; a document is a row. Bits per byte need a tokenizer."""
    width = examples.shape[1]
    if examples.classifies:
        logits = class_logits(model, examples, batch_size=batch_size, progress=progress)
        losses = functional.cross_entropy(logits, examples.labels, reduction="none")
        return _result(losses, torch.ones_like(losses), "", (width, width), None)
    check_labels(examples)
    losses = torch.zeros(len(examples), dtype=torch.float64)
    vocabulary = base_model(model).config.get_text_config().vocab_size
    with evaluation_mode(model):
        for places, rows in _by_length(examples, windows_at_once(vocabulary, width, batch_size), progress):
            losses[places] = _losses(model, rows.tokens[:, :-1], rows.labels[:, 1:]).sum(1)
    labels = [row[row != IGNORED] for row in examples.labels[:, 1:]]
    counts = torch.tensor([len(row) for row in labels], dtype=torch.float64)
    answers = "" if tokenizer is None else "".join(map(tokenizer.decode, labels))
    return _result(losses, counts, answers, (width, width), vocabulary)


@torch.no_grad()
def class_logits(
    model: torch.nn.Module, examples: Examples, *, batch_size: int = 8, progress: Job = SILENT
) -> torch.Tensor:
    """Logits of a classifier in float64 on the host, shape (rows, classes)."""
    device = next(model.parameters()).device
    logits = torch.zeros(len(examples), base_model(model).config.num_labels).double()
    with evaluation_mode(model):
        for places, rows in _by_length(examples, batch_size, progress):
            logits[places] = model(**inputs_of(rows.to(device)), use_cache=False).logits.float().cpu().double()
    return logits


def _by_length(examples: Examples, at_once: int, progress: Job) -> Iterator[tuple[torch.Tensor, Examples]]:
    """Places and rows, those of similar length together, so that little padding is read."""
    done = 0
    for places in examples.mask.sum(1).argsort().split(at_once):
        yield places, examples[places].trimmed()
        done += len(places)
        progress.step(done, len(examples), f"scored {done:,} of {len(examples):,} rows")


def _result(
    losses: torch.Tensor,  # nats of each document, in float64
    counts: torch.Tensor,  # tokens or labels scored in each
    text: str,  # all that was scored, for its bytes
    window: tuple[int, int],  # context and stride
    vocabulary: int | None,  # None for classes
    unknown: float = 0.0,  # share of tokens that the tokenizer does not know
) -> PerplexityResult:
    nats, tokens, size = float(losses.sum()), int(counts.sum()), len(text.encode())
    value = math.exp(nats / tokens) if nats < 700 * tokens else math.inf
    return PerplexityResult(
        value,
        *_bootstrap(losses, counts),
        nats_per_token=nats / tokens,
        bits_per_byte=nats / math.log(2) / size if size else math.nan,
        tokens=tokens,
        documents=len(losses),
        warnings=() if vocabulary is None else _doubts(value, tokens, vocabulary, unknown),
        context=window[0],
        stride=window[1],
        document_nats=tuple(losses.tolist()),
        document_tokens=tuple(counts.int().tolist()),
    )


def windows_at_once(vocabulary: int, context: int, most: int = 8) -> int:
    """How many windows are evaluated at a time, with no more logits than `LOGITS_AT_ONCE`."""
    return min(most, max(1, LOGITS_AT_ONCE // (vocabulary * context)))


def _windows(stream: torch.Tensor, context: int, stride: int, batch_size: int):
    """Yield (inputs, targets, places of the targets) in batches of equally shaped windows.

    Each window scores the targets that none before it scored; the first token of the stream has nothing before it.
    """
    last, windows, scored = len(stream) - 1, [], 0
    for begin in range(0, max(last - context, 0) + stride, stride):
        end = min(begin + context, last)
        windows.append((begin, end, end - scored))
        scored = end
    for _, alike in groupby(windows, key=lambda window: (window[1] - window[0], window[2])):
        while batch := list(islice(alike, batch_size)):
            places = torch.stack([torch.arange(end + 1 - new, end + 1) for _, end, new in batch])
            yield torch.stack([stream[begin:end] for begin, end, _ in batch]), stream[places], places


@torch.no_grad()
def _losses(model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Nats of every target, 0 where it is `IGNORED`, in float64 on the host, shape (rows, scored)."""
    device = next(model.parameters()).device
    logits = model(input_ids=inputs.to(device), logits_to_keep=targets.shape[1], use_cache=False).logits.float()
    wanted = targets.flatten().to(device)
    nats = functional.cross_entropy(logits.flatten(0, 1), wanted, reduction="none", ignore_index=IGNORED)
    return nats.cpu().double().view(targets.shape)  # not every device has float64


def _bootstrap(losses: torch.Tensor, counts: torch.Tensor) -> tuple[float, float]:
    """95% interval over documents, for tokens of one text are not independent."""
    draws = torch.randint(len(losses), (BOOTSTRAP_DRAWS, len(losses)), generator=torch.Generator().manual_seed(0))
    means = losses[draws].sum(1) / counts[draws].sum(1).clamp(min=1)
    return tuple(torch.quantile(means, torch.tensor([0.025, 0.975], dtype=means.dtype)).exp().tolist())


def _doubts(value: float, tokens: int, vocabulary: int, unknown: float) -> tuple[str, ...]:
    doubts = []
    if value > vocabulary:
        guessing = f"the vocabulary size {vocabulary:,}, which guessing gives"
        doubts.append(f"perplexity {value:,.0f} is above {guessing}: weights did not load, or labels are shifted")
    if unknown > MOST_UNKNOWN:
        doubts.append(f"{unknown:.0%} of the tokens are unknown to the tokenizer, all one token and easy to guess")
    if tokens < FEWEST_TOKENS:
        doubts.append(f"only {tokens} tokens were scored; below {FEWEST_TOKENS} the figure is mostly chance")
    return tuple(doubts)
