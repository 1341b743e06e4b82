"""How well a model predicts text: perplexity, bits per byte, an interval, sanity checks, and generation."""

import math
from dataclasses import dataclass

import pandas as pd
import torch
from torch.nn import functional

from tlkit.corpus import token_stream

PROMPTS = ("In Rust, Vec<T> is", "The Result type in Rust", "Ownership in Rust means")
FEWEST_TOKENS = 256
BOOTSTRAP_DRAWS = 1000


@dataclass(frozen=True)
class PerplexityResult:
    """Token-weighted perplexity of a set of documents, with a 95% bootstrap interval over documents.

    Only results of one window and stride can be compared: the same text scores better with more context a token.
    """

    perplexity: float
    low: float
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
        text = (
            f"perplexity {self.perplexity:,.2f} [{self.low:,.2f}, {self.high:,.2f}], "
            f"{self.bits_per_byte:.3f} bits per byte, {self.tokens:,} tokens of {self.documents} documents "
            f"(window {self.context}, stride {self.stride})"
        )
        return "\n".join([text, *(f"WARNING: {warning}" for warning in self.warnings)])


def perplexity(
    model: torch.nn.Module, tokenizer, texts, *, context: int = 256, stride: int | None = None, batch_size: int = 8
) -> PerplexityResult:
    """Perplexity over packed documents: every token but the very first is scored exactly once.

    `context` is the window in tokens and `stride` (default: `context`) how far it moves; a smaller stride gives
    each token more context and costs more. Losses are in nats, computed in fp32 and summed in float64.
    Raises ValueError for no text, a window beyond the model's context, or an impossible stride.
    Source: the sliding-window method of the transformers documentation, "Perplexity of fixed-length models".
    """
    stride = stride or context
    limit = getattr(model.config, "max_position_embeddings", context)
    if not 2 <= context <= limit:
        raise ValueError(f"context={context}: expected 2 to {limit}, the model's longest input")
    if not 1 <= stride <= context:
        raise ValueError(f"stride={stride}: expected 1 to context={context}, or tokens would be skipped")
    if not texts:
        raise ValueError("no documents to evaluate: the corpus split is empty")
    stream, owners = token_stream(texts, tokenizer)
    losses = torch.zeros(len(texts), dtype=torch.float64)
    counts = torch.zeros(len(texts), dtype=torch.float64)
    for inputs, targets, places in _windows(stream, context, stride, batch_size):
        nats = _losses(model, inputs, targets).cpu().double().flatten()  # not every device has float64
        document = owners[places].flatten()
        losses.index_add_(0, document, nats)
        counts.index_add_(0, document, torch.ones_like(nats))

    nats_per_token = float(losses.sum() / counts.sum())
    low, high = _bootstrap(losses, counts)
    size = sum(len(text.encode()) for text in texts)
    value = math.exp(nats_per_token) if nats_per_token < 700 else math.inf
    return PerplexityResult(
        perplexity=value,
        low=low,
        high=high,
        nats_per_token=nats_per_token,
        bits_per_byte=float(losses.sum()) / math.log(2) / size,
        tokens=int(counts.sum()),
        documents=len(texts),
        warnings=_doubts(value, int(counts.sum()), model.config.vocab_size),
        context=context,
        stride=stride,
        document_nats=tuple(losses.tolist()),
        document_tokens=tuple(int(count) for count in counts),
    )


def score_table(scores: dict[str, PerplexityResult]) -> pd.DataFrame:
    """Named results as a table, a row each; its columns are those that `charts.perplexity_chart` draws."""
    rows = [
        {
            "strategy": name,
            "perplexity": score.perplexity,
            "perplexity_low": score.low,
            "perplexity_high": score.high,
            "bits_per_byte": score.bits_per_byte,
            "tokens": score.tokens,
        }
        for name, score in scores.items()
    ]
    return pd.DataFrame(rows)


def first_loss_warning(first_training_loss: float, nats_per_token: float) -> str | None:
    """Say so when the first training loss and the evaluation before training tell different stories.

    Both are nats per token on text of one kind, so they should agree within a nat; labels shifted twice, or a
    model that did not load, part them by several.
    """
    if abs(first_training_loss - nats_per_token) <= 1.0:
        return None
    return (
        f"the first training loss is {first_training_loss:.2f} nats a token but evaluation says {nats_per_token:.2f}: "
        "one of the two measures something else (labels shifted twice?)"
    )


@torch.no_grad()
def generate(
    model: torch.nn.Module,
    tokenizer,
    prompts: list[str] | tuple[str, ...] = PROMPTS,
    *,
    new_tokens: int = 30,
    temperature: float = 0.0,
    seed: int = 0,
    batch_size: int | None = None,
) -> list[str]:
    """Continue each prompt; greedy at temperature 0, otherwise sampled. Stops at the end-of-text token.

    Returns prompt and continuation, in the order given; `batch_size` prompts at once (None: all), from which the
    drawing of samples depends. Raises ValueError for an empty prompt or a negative temperature.
    """
    if temperature < 0:
        raise ValueError(f"temperature={temperature}: expected 0 (greedy) or more")
    if not all(prompts):
        raise ValueError("an empty prompt: expected at least one character in each")
    was_training = model.training
    model.eval()
    torch.manual_seed(seed)
    prompts, size = list(prompts), batch_size or len(prompts)
    sampling = {"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False}
    texts: list[str] = []
    for begin in range(0, len(prompts), size):
        batch = tokenizer(
            prompts[begin : begin + size],
            return_tensors="pt",
            padding=True,
            padding_side="left",
            add_special_tokens=False,
            return_token_type_ids=False,
        ).to(next(model.parameters()).device)
        ids = model.generate(**batch, max_new_tokens=new_tokens, pad_token_id=tokenizer.eos_token_id, **sampling)
        texts += tokenizer.batch_decode(ids, skip_special_tokens=True)
    model.train(was_training)
    return texts


def _windows(stream: torch.Tensor, context: int, stride: int, batch_size: int):
    """Yield (inputs, targets, places of the targets) in batches of equally shaped windows.

    A window reads at most `context` tokens and scores those of its targets that no window before it scored:
    all of them in the first window, the last `stride` in the others.
    """
    waiting: list[tuple[int, int, int]] = []
    scored_up_to = 1  # the first token of the stream has nothing before it
    for begin in range(0, len(stream) - 1, stride):
        end = min(begin + context, len(stream) - 1)
        window = (begin, end, end + 1 - scored_up_to)
        if waiting and (waiting[-1][1] - waiting[-1][0], waiting[-1][2]) != (end - begin, window[2]):
            yield _stack(stream, waiting)
            waiting = []
        waiting.append(window)
        if len(waiting) == batch_size:
            yield _stack(stream, waiting)
            waiting = []
        scored_up_to = end + 1
        if end == len(stream) - 1:
            break
    if waiting:
        yield _stack(stream, waiting)


def _stack(stream: torch.Tensor, windows: list[tuple[int, int, int]]):
    inputs = torch.stack([stream[begin:end] for begin, end, _ in windows])
    places = torch.stack([torch.arange(end + 1 - scored, end + 1) for _, end, scored in windows])
    return inputs, stream[places], places


@torch.no_grad()
def _losses(model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Loss of every target, shape (windows, scored); logits are made for the scored places only."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    logits = model(input_ids=inputs.to(device), logits_to_keep=targets.shape[1], use_cache=False).logits.float()
    model.train(was_training)
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten().to(device), reduction="none")


def _bootstrap(losses: torch.Tensor, counts: torch.Tensor) -> tuple[float, float]:
    """95% interval of perplexity: documents, not tokens, are drawn, for tokens of one text are not independent."""
    draws = torch.randint(len(losses), (BOOTSTRAP_DRAWS, len(losses)), generator=torch.Generator().manual_seed(0))
    means = losses[draws].sum(1) / counts[draws].sum(1).clamp(min=1)
    low, high = torch.quantile(means, torch.tensor([0.025, 0.975], dtype=means.dtype)).exp().tolist()
    return low, high


def _doubts(value: float, tokens: int, vocabulary: int) -> tuple[str, ...]:
    doubts = []
    if value > vocabulary:
        doubts.append(
            f"perplexity {value:,.0f} is above the vocabulary size {vocabulary:,}: guessing uniformly would do better, "
            "so the weights did not load, or the labels are shifted"
        )
    if tokens < FEWEST_TOKENS:
        doubts.append(f"only {tokens} tokens were scored; below {FEWEST_TOKENS} the figure is mostly chance")
    return tuple(doubts)
