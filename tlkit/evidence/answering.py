"""What a model answers: whether it stops by itself, how long it goes on, and whether the form is that asked for."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd
from scipy.stats import binomtest

from tlkit.examples.answers import prompt_of
from tlkit.examples.conversations import Conversation
from tlkit.models import Continuation, continue_tokens
from tlkit.models.parts import longest_input

REFUSAL = "I only answer questions about Rust."  # what the bundled answers say to anything else
NEW_TOKENS = 96  # most that an answer may have; one in a hundred of the bundled ones is longer


@dataclass(frozen=True)
class Answering:
    """The conversations that a model was asked, and its answer to each."""

    conversations: tuple[Conversation, ...]
    written: tuple[Continuation, ...]

    @property
    def table(self) -> pd.DataFrame:
        """A row for each question: its form, the answer, its tokens, whether it stopped by itself, and its form.

        `in_form` and `right` are None where nothing can be said: `right` is about answers of one word alone.
        """
        rows = []
        for asked, answer in zip(self.conversations, self.written, strict=True):
            text = answer.text.strip()
            row = {"id": asked.id, "topic": asked.topic, "form": asked.form, "answer": text, "tokens": answer.tokens}
            right = _plain(text) == _plain(asked.answer) if asked.form == "one_word" else None
            rows.append(row | {"stopped": answer.ended, "in_form": has_form(asked.form, text), "right": right})
        return pd.DataFrame(rows)

    def summary(self) -> dict[str, float]:
        """Means over the questions: shares that stopped, are empty, in form, right, or refused; and tokens."""
        table = self.table
        refused = table.answer.str.startswith(REFUSAL)
        about_rust = table.form != "refuse"
        return {
            "stopped": float(table.stopped.mean()),
            "empty": float(table.answer.eq("").mean()),
            "answer_tokens": float(table.tokens.mean()),
            "in_form": _share(table.in_form),
            "one_word_right": _share(table.right),
            "refused_wrongly": float(refused[about_rust].mean()) if about_rust.any() else float("nan"),
        }


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


def has_form(form: str, text: str) -> bool | None:
    """Whether an answer has the form that was asked for; None where looking does not tell."""
    if form == "one_word":
        return len(text.split()) == 1
    if form == "fix":
        return len(re.findall(r"^```", text, re.MULTILINE)) >= 2  # a block of code, opened and closed
    if form == "refuse":
        return text.startswith(REFUSAL)
    return None


def _plain(text: str) -> str:
    return re.sub(r"[`.\s!()]|::$", "", text).lower()


def _share(values: Iterable[bool | None]) -> float:
    judged = [value for value in values if value is not None]
    return sum(judged) / len(judged) if judged else float("nan")
