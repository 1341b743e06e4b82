"""Pairs of answers, of which one is preferred: read, scored by a model, and compared in the loss of DPO."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from tlkit.corpus import SPLITS, Corpus, read_json_lines, split_documents
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


def load_preferences(name: str | Path = "rust") -> Corpus:
    """Read pairs of answers, and split them.

    Args:
        name: `rust` (short and right over long and vague; the topics are split as those of the questions are), or a
            path to a .jsonl file in UTF-8 whose lines are objects with "prompt", "chosen" and "rejected", which is
            split 80/10/10.

    Returns:
        A corpus whose documents are pairs.

    Raises:
        FileNotFoundError: where there is no such file.
        ValueError: naming file and line, for what is no pair.
    """
    if name == "rust":
        pairs = list(_read(DATA / "answers" / "preferences.jsonl"))
        return Corpus("rust", *(tuple(pair for split, pair in pairs if split == wanted) for wanted in SPLITS))
    path = Path(name)
    if path.suffix.lower() != ".jsonl":
        raise ValueError(f"preferences {str(name)!r}: expected rust, or a path to a .jsonl file")
    return split_documents(str(path), [pair for _, pair in _read(path)])


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


def preference_loss(
    chosen: torch.Tensor,
    rejected: torch.Tensor,
    reference_chosen: torch.Tensor,
    reference_rejected: torch.Tensor,
    beta: float = 0.1,
) -> torch.Tensor:
    """The loss of direct preference optimisation, one number for each pair.

    Args:
        chosen: log-probabilities of the preferred answers by the model that is trained, shape (pairs,).
        rejected: of the other answers.
        reference_chosen: of the preferred answers by the model as it was before.
        reference_rejected: of the other answers.
        beta: how dearly a change from the model before is bought.

    Source: Rafailov et al. 2023, Direct Preference Optimization, equation 7.
    """
    margin = (chosen - reference_chosen) - (rejected - reference_rejected)
    return -functional.logsigmoid(beta * margin)


def _read(path: Path) -> Iterator[tuple[str, Preference]]:
    for line, row in read_json_lines(path):
        texts = [row.get(key) for key in ("prompt", "chosen", "rejected")]
        if not all(isinstance(text, str) and text.strip() for text in texts):
            raise ValueError(f'{path}, line {line}: expected "prompt", "chosen" and "rejected", all of them texts')
        if texts[1].split() == texts[2].split():
            raise ValueError(f"{path}, line {line}: both answers are the same, so none is preferred")
        about = [row.get(key, "") for key in ("topic", "split")]
        yield str(about[1]), Preference(str(row.get("id", f"line {line}")), *texts, str(about[0]))
