"""Pairs of answers, of which one is preferred: read, and scored by a model."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from tlkit.corpus import SPLITS, Corpus, read_json_lines
from tlkit.examples.answers import answer_examples
from tlkit.examples.batches import Examples
from tlkit.examples.conversations import Conversation
from tlkit.examples.scores import answer_nats
from tlkit.settings import DATA


@dataclass(frozen=True)
class Preference:
    """A question with two answers, of which the first is preferred."""

    id: str
    prompt: str
    chosen: str
    rejected: str
    topic: str = ""

    def __str__(self) -> str:
        return "\n".join([self.prompt, self.chosen, self.rejected])


def load_preferences() -> Corpus:
    """Read pairs of answers, short and right over long and vague; the topics are split as those of the questions are.

    Returns:
        A corpus whose documents are pairs.
    """
    rows = [row for _, row in read_json_lines(DATA / "answers" / "preferences.jsonl")]
    names = ("id", "prompt", "chosen", "rejected", "topic")
    pairs = [(row["split"], Preference(*(row[name] for name in names))) for row in rows]
    return Corpus("rust", *(tuple(pair for split, pair in pairs if split == wanted) for wanted in SPLITS))


def preference_examples(pairs: Sequence[Preference], tokenizer) -> tuple[Examples, Examples]:
    """Make examples of the preferred answers and of the others, in the same order and of the same length.

    Args:
        pairs: to learn from.
        tokenizer: of the model.

    Returns:
        Those with the chosen answers, and those with the rejected ones.

    Raises:
        ValueError: as `answer_examples` does.
    """
    conversations = [
        Conversation(f"{pair.id} ({kind})", (("user", pair.prompt), ("assistant", answer)), pair.topic)
        for kind in ("chosen", "rejected")
        for pair, answer in ((pair, getattr(pair, kind)) for pair in pairs)
    ]
    both = answer_examples(conversations, tokenizer)
    return both[: len(pairs)], both[len(pairs) :]


def log_probabilities(model: nn.Module, examples: Examples) -> torch.Tensor:
    """How likely a model finds each answer: the sum of its tokens' log-probabilities.

    Args:
        model: a causal language model.
        examples: an answer in each row, on the model's device.

    Returns:
        Nats, at most 0, shape (rows,); with gradients where they are switched on.
    """
    return -answer_nats(model, examples.trimmed()).sum(1)
