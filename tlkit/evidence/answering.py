"""What a model answers: whether it stops by itself, how long it goes on, and whether it is right to the letter."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd
from scipy.stats import binomtest

from tlkit.examples.answers import prompt_of
from tlkit.examples.conversations import Conversation
from tlkit.models import Continuation, continue_tokens
from tlkit.models.parts import longest_input

NEW_TOKENS = 96  # most that an answer may have; one in a hundred of the bundled ones is longer


@dataclass(frozen=True)
class Answering:
    """The conversations that a model was asked, and its answer to each."""

    conversations: tuple[Conversation, ...]
    written: tuple[Continuation, ...]

    @property
    def table(self) -> pd.DataFrame:
        """A row for each question: the answer, its tokens, and whether it stopped by itself."""
        rows = [
            {"id": asked.id, "answer": answer.text.strip(), "tokens": answer.tokens, "stopped": answer.ended}
            for asked, answer in zip(self.conversations, self.written, strict=True)
        ]
        return pd.DataFrame(rows)

    def summary(self) -> dict[str, float]:
        """Means over the questions: shares of answers that stopped and that are empty, and their tokens."""
        means = {"stopped": self.table.stopped, "empty": self.table.answer.eq(""), "answer_tokens": self.table.tokens}
        return {name: float(values.mean()) for name, values in means.items()}


def answer(
    model,
    tokenizer,
    conversations: Sequence[Conversation],
    *,
    new_tokens: int = NEW_TOKENS,
    temperature: float = 0.0,
    seed: int = 0,
    batch_size: int | None = None,
) -> Answering:
    """Let a model answer the last question of each conversation, in its chat template.

    Args:
        tokenizer: its tokenizer; without a template, "Question: … Answer:" is used.
        conversations: whose last answers are left out.
        new_tokens: the most that an answer may have, fewer where the model could not read as many.
        temperature: 0 for the likeliest token each time, otherwise sampled.
        seed: of the samples.
        batch_size: the most prompts at once; samples depend on it.

    Raises:
        ValueError: for no conversations, or a prompt that leaves no room for an answer.
    """
    if not conversations:
        raise ValueError("no conversations to answer: the split is empty")
    prompts = [prompt_of(conversation.question, tokenizer) for conversation in conversations]
    limit = longest_input(model)
    room = new_tokens if limit is None else min(new_tokens, limit - max(map(len, prompts)))
    if room < 1:
        longest = max(range(len(prompts)), key=lambda place: len(prompts[place]))
        raise ValueError(
            f"conversation {conversations[longest].id!r}: its question has {len(prompts[longest])} tokens, and this "
            f"model reads {limit}: no room is left for an answer"
        )
    sampling = {"temperature": temperature, "seed": seed, "batch_size": batch_size}
    written = continue_tokens(model, tokenizer, prompts, new_tokens=room, **sampling)
    return Answering(tuple(conversations), tuple(written))


def exact_match(answered: Answering, fields: Sequence[str] = ()) -> dict[str, float]:
    """How many answers are right to the letter.

    Args:
        answered: what a model has answered.
        fields: where given, answers are JSON objects, and right if each of these fields has the reference's value.

    Returns:
        The share `exact`, with its 95% Wilson interval (`exact_low`, `exact_high`); with fields also the share of
        answers that are `valid` objects, and that of each field.
    """
    pairs = zip(answered.conversations, answered.written, strict=True)
    table = pd.DataFrame([_matches(answer.text, asked.answer, fields) for asked, answer in pairs])
    interval = binomtest(int(table.exact.sum()), len(table)).proportion_ci(method="wilson")
    return table.mean().to_dict() | {"exact_low": interval.low, "exact_high": interval.high}


def refuse_references(conversations: Iterable[Conversation], fields: Sequence[str]) -> None:
    """Refuse conversations whose own answers lack a field that is to be compared."""
    for asked in conversations:
        if missing := [field for field in fields if field not in _object(asked.answer)]:
            raise ValueError(f"conversation {asked.id!r}: its answer is no JSON object with {missing[0]!r}")


def _matches(text: str, reference: str, fields: Sequence[str]) -> dict[str, bool]:
    if not fields:
        return {"exact": text.strip() == reference.strip()}
    given, wanted = _object(text), _object(reference)
    # As text: true is not 1.
    right = {name: name in given and json.dumps(given[name]) == json.dumps(wanted[name]) for name in fields}
    return {"valid": bool(given), **right, "exact": all(right.values())}


def _object(text: str) -> dict:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
