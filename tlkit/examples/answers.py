"""Conversations as examples: the loss on the answers only, in rows that are padded or packed."""

from collections.abc import Iterable, Sequence

import torch

from tlkit.examples.batches import IGNORED, LAYOUTS, PADDING, Examples, padding_token
from tlkit.examples.conversations import Conversation, end_tokens, parts_of

LEARN = ("answers", "everything")


def answer_examples(
    conversations: Sequence[Conversation],
    tokenizer,
    *,
    length: int | None = None,
    layout: str = "padded",
    learn: str = "answers",
    ends: Iterable[int] = (),
) -> Examples:
    """Make examples of conversations, and refuse those from which a model would learn the wrong thing.

    Args:
        conversations: to learn from.
        tokenizer: of the model; where it has no chat template, "Question: … Answer: …" is used.
        length: tokens in a row; None for as many as the longest conversation has.
        layout: "padded": a conversation in each row. "packed": as many as fit, each read as if it were alone. "mixed":
            as many as fit, each of which sees those before it.
        learn: "answers", each up to its end token, or "everything", as of running text.
        ends: tokens at which the model stops; by default those of `end_tokens`.

    Returns:
        The examples, in the order given.

    Raises:
        ValueError: naming the conversation, see `refuse_answers`; or where it does not fit into a row, because cutting
            it would cut its answer away.
    """
    for value, allowed, name in ((layout, LAYOUTS, "layout"), (learn, LEARN, "learn")):
        if value not in allowed:
            raise ValueError(f"{name}={value!r}: expected one of {', '.join(allowed)}")
    if not conversations:
        raise ValueError("no conversations to learn from: the split is empty")
    stops = frozenset(ends) or end_tokens(tokenizer)
    texts = []
    for conversation in conversations:
        ids, labels = [], []
        for part, learned in parts_of(conversation, tokenizer, stops):
            ids += part
            labels += part if learned or learn == "everything" else [IGNORED] * len(part)
        if length is not None and len(ids) > length:
            raise ValueError(
                f"conversation {conversation.id!r} has {len(ids)} tokens, and a row {length}: its answer would be cut "
                f"away. Expected rows of {len(ids)} tokens or more, or shorter conversations"
            )
        texts.append((ids, labels))
    rows = [[number] for number in range(len(texts))]
    if layout != "padded":
        rows = _rows_that_fit([len(ids) for ids, _ in texts], length or max(len(ids) for ids, _ in texts))
    examples = _stacked([[texts[number] for number in row] for row in rows], length, tokenizer, layout)
    names = [[conversations[number].id for number in row] for row in rows]
    refuse_answers(examples, tokenizer, names=names, ends=stops)
    return examples


def short_enough(
    conversations: Sequence[Conversation], tokenizer, length: int
) -> tuple[tuple[Conversation, ...], tuple[Conversation, ...]]:
    """Tell the conversations that fit into a row whole from those that do not.

    Args:
        conversations: to learn from.
        tokenizer: of the model.
        length: tokens in a row.

    Returns:
        Those that fit, and those that are longer.
    """
    fit = {
        conversation.id: sum(len(ids) for ids, _ in parts_of(conversation, tokenizer, frozenset())) <= length
        for conversation in conversations
    }
    kept = tuple(conversation for conversation in conversations if fit[conversation.id])
    return kept, tuple(conversation for conversation in conversations if not fit[conversation.id])


def refuse_answers(
    examples: Examples,
    tokenizer,
    *,
    names: Sequence[Sequence[str]] | None = None,
    ends: Iterable[int] = (),
) -> None:
    """Refuse examples from which a model would learn no answer, or an answer without an end.

    It goes by tokens and labels alone, so examples that another library has made can be asked about too.

    Args:
        examples: of conversations.
        tokenizer: of the model.
        names: of the texts in each row, for the message; by default the row is named.
        ends: tokens at which the model stops; by default those of `end_tokens`.

    Raises:
        ValueError: naming the first text in which no token is learned, the last answer's end token carries no label
            (because it is masked as padding, cut away, or not there), or that begins twice.
    """
    stops = frozenset(ends) or end_tokens(tokenizer)
    for row in range(len(examples)):
        for text in range(int(examples.texts[row].max()) + 1):
            here = (examples.texts[row] == text).nonzero().flatten()
            behind = examples.tokens[row, int(here[-1]) + 1 :].tolist()
            ids, labels = examples.tokens[row, here].tolist(), examples.labels[row, here].tolist()
            problem = _problem_of(ids, labels, behind, stops, tokenizer, may_be_cut=names is None)
            if problem:
                name = f"row {row}" if names is None else f"conversation {names[row][text]!r}"
                raise ValueError(f"{name}: {problem}")


def _problem_of(
    ids: list[int], labels: list[int], behind: list[int], stops: frozenset[int], tokenizer, *, may_be_cut: bool
) -> str | None:
    """What is wrong with one text, in words."""
    if len(ids) > 1 and ids[0] == ids[1] == tokenizer.bos_token_id:
        return (
            f"it begins with {tokenizer.bos_token!r} twice: the chat template has written it, so tokenise its text "
            "with add_special_tokens=False"
        )
    learned = [place for place, label in enumerate(labels) if label != IGNORED and place > 0]
    if not learned:
        full = may_be_cut and not behind and not stops & set(ids[1:])
        return "no token is learned" + (
            ": the row is full before the answer begins, which was cut away; expected longer rows" if full else ""
        )
    last = learned[-1]
    stop = max((place for place, token in enumerate(ids) if token in stops and place > 0), default=None)
    if stop is not None and labels[stop] in stops and not tokenizer.decode(ids[stop + 1 :]).strip():
        return None
    following = [*ids[last + 1 :], *behind][:1]
    end = " or ".join(sorted(tokenizer.convert_ids_to_tokens(list(stops))))
    if following and following[0] in stops:
        if following[0] == tokenizer.pad_token_id:
            return (
                f"its end token {end!r} carries no label, because it is the padding token too and was masked with the "
                "padding: the model would never learn to stop. Mask padding by its place, not by its token"
            )
        return f"its end token {end!r} carries no label: the model would never learn to stop"
    if may_be_cut and last == len(ids) - 1 and not behind:
        return f"its answer is cut away at the end of the row, so {end!r} is missing: expected longer rows"
    shown = tokenizer.decode(ids[last + 1 :] or ids[last:])
    return (
        f"its answer does not end with {end!r}, at which the model stops, but with {shown!r}: the model would never "
        "learn to stop. Does the chat template belong to this tokenizer?"
    )


def _rows_that_fit(lengths: Sequence[int], length: int) -> list[list[int]]:
    """Texts one after the other, each in the current row or, where it does not fit, in a new one."""
    rows: list[list[int]] = []
    used = length
    for number, size in enumerate(lengths):
        if used + size > length:
            rows.append([])
            used = 0
        rows[-1].append(number)
        used += size
    return rows


def _stacked(
    rows: Sequence[Sequence[tuple[list[int], list[int]]]], length: int | None, tokenizer, layout: str
) -> Examples:
    widest = length or max(sum(len(ids) for ids, _ in row) for row in rows)
    padding = padding_token(tokenizer)
    tokens = torch.full((len(rows), widest), padding, dtype=torch.long)
    labels, texts = torch.full_like(tokens, IGNORED), torch.full_like(tokens, PADDING)
    for number, row in enumerate(rows):
        begin = 0
        for text, (ids, learned) in enumerate(row):
            place = slice(begin, begin + len(ids))
            tokens[number, place], labels[number, place] = torch.tensor(ids), torch.tensor(learned)
            texts[number, place] = text
            begin += len(ids)
    if layout == "packed":
        # A text's first token is predicted by nothing: what is before it belongs to another text.
        first = torch.ones_like(texts, dtype=torch.bool)
        first[:, 1:] = texts[:, 1:] != texts[:, :-1]
        labels[first] = IGNORED
    return Examples(tokens, labels, texts, layout)
