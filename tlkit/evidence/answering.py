"""What a model answers: whether it stops by itself, how long it goes on, and whether it is right to the letter."""

import json
from collections.abc import Iterable, Sequence

import pandas as pd
from scipy.stats import binomtest

from tlkit.examples.conversations import Conversation, prompt_of
from tlkit.models import Continuation, continue_tokens
from tlkit.models.parts import longest_input

NEW_TOKENS = 96  # most that an answer may have; one in a hundred of the bundled ones is longer


def answer(model, tokenizer, conversations: Sequence[Conversation]) -> pd.DataFrame:
    """Let a model answer the last question of each conversation, in its chat template, always by the likeliest token.

    Args:
        tokenizer: its tokenizer; without a template, "Question: … Answer:" is used.
        conversations: whose last answers are left out.

    Returns:
        A row for each: id, reference (the answer that was left out), answer, tokens, and whether it stopped by itself.

    Raises:
        ValueError: for no conversations, or a prompt that leaves no room for an answer.
    """
    if not conversations:
        raise ValueError("no conversations to answer: the split is empty")
    prompts = [prompt_of(conversation.question, tokenizer) for conversation in conversations]
    limit = longest_input(model)
    room = NEW_TOKENS if limit is None else min(NEW_TOKENS, limit - max(map(len, prompts)))
    if room < 1:
        longest = max(range(len(prompts)), key=lambda place: len(prompts[place]))
        raise ValueError(
            f"conversation {conversations[longest].id!r}: its question has {len(prompts[longest])} tokens, and this "
            f"model reads {limit}: no room is left for an answer"
        )
    return table_of(conversations, continue_tokens(model, tokenizer, prompts, new_tokens=room))


def table_of(conversations: Sequence[Conversation], written: Sequence[Continuation]) -> pd.DataFrame:
    """What was written for each conversation, as `answer` returns it."""
    pairs = zip(conversations, written, strict=True)
    rows = [(asked.id, asked.answer, one.text.strip(), one.tokens, one.ended) for asked, one in pairs]
    return pd.DataFrame(rows, columns=["id", "reference", "answer", "tokens", "stopped"])


def summary(answers: pd.DataFrame) -> dict[str, float]:
    """Means over answers: the shares that stopped and that are empty, and their tokens."""
    values = {"stopped": answers.stopped, "empty": answers.answer.eq(""), "answer_tokens": answers.tokens}
    return {name: float(column.mean()) for name, column in values.items()}


def exact_match(answers: pd.DataFrame, fields: Sequence[str] = ()) -> dict[str, float]:
    """How many answers are right to the letter.

    Args:
        answers: as `answer` returns them.
        fields: where given, answers are JSON objects, and right if each of these fields has the reference's value.

    Returns:
        The share `exact`, with its 95% Wilson interval (`exact_low`, `exact_high`); with fields also the share of
        answers that are `valid` objects, and that of each field.
    """
    table = pd.DataFrame([_matches(row.answer, row.reference, fields) for row in answers.itertuples()])
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
