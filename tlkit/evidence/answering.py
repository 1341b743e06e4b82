"""What a model answers, and whether that is right to the letter."""

import json
from collections.abc import Iterable, Sequence

import pandas as pd
from scipy.stats import binomtest

from tlkit.examples.conversations import Conversation, prompt_of
from tlkit.models import continue_tokens
from tlkit.models.parts import longest_input

NEW_TOKENS = 96  # most that an answer may have; one in a hundred of the bundled ones is longer


def answer(model, tokenizer, conversations: Sequence[Conversation]) -> pd.DataFrame:
    """Let a model answer the last question of each conversation, in its chat template, always by the likeliest token.

    Returns:
        A row for each: reference (the answer that was left out), and answer.
    """
    prompts, limit = [prompt_of(asked.question, tokenizer) for asked in conversations], longest_input(model)
    for asked, prompt in zip(conversations, prompts, strict=True):
        if limit is not None and len(prompt) >= limit:
            raise ValueError(f"conversation {asked.id!r} asks in {len(prompt)} tokens: expected fewer than {limit}")
    room = NEW_TOKENS if limit is None else min(NEW_TOKENS, limit - max(map(len, prompts)))
    written = continue_tokens(model, tokenizer, prompts, new_tokens=room)
    references = [asked.answer for asked in conversations]
    return pd.DataFrame({"reference": references, "answer": [one.text.strip() for one in written]})


def exact_match(answers: pd.DataFrame, fields: Sequence[str] = ()) -> dict[str, float]:
    """How many answers are right to the letter.

    Args:
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
