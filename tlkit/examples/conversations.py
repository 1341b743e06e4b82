"""Conversations: read in the formats that people have, and made into tokens by a chat template."""

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jinja2 import TemplateError

from tlkit.corpus import (
    SPLITS,
    Corpus,
    padded,
    padding_token,
    read_corpus,
    read_rows,
    refuse_special_tokens,
    refuse_unknown_keys,
)
from tlkit.examples import IGNORED, Examples
from tlkit.settings import DATA

ROLES = ("system", "user", "assistant")
SHAREGPT = {"human": "user", "gpt": "assistant"}
# Keys of a conversation, in four ways to write it (the last is Alpaca's, `conversations` ShareGPT's).
FORMATS = (("messages",), ("conversations",), ("prompt", "completion"), ("instruction", "input", "output"))
KEYS = (*(key for keys in FORMATS for key in keys), "system", "tools", "id", "topic", "form")
MESSAGE_KEYS = ("role", "content", "weight", "train")
# For tokenizers that have none.
PLAIN_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'assistant' %}{{ ' ' + message.content + eos_token }}"
    "{% elif message.role == 'user' %}{{ 'Question: ' + message.content + '\\nAnswer:' }}"
    "{% else %}{{ message.content + '\\n' }}{% endif %}"
    "{% endfor %}"
)


@dataclass(frozen=True)
class Conversation:
    """Messages in turn, the last one an answer."""

    id: str
    messages: tuple[tuple[str, str], ...]  # pairs of role and content
    topic: str = ""  # what it is about
    form: str = ""  # what kind of answer is asked for
    only_read: frozenset[int] = frozenset()  # places of answers that are not learned
    tools: tuple[str, ...] = ()  # functions that may be called, each a description in JSON

    def __str__(self) -> str:
        return "\n".join(content for _, content in self.messages)

    def __repr__(self) -> str:
        """A corpus is hashed by it, so what nobody has set does not change it."""
        shown = {name: value for name, value in vars(self).items() if value or name not in ("only_read", "tools")}
        return f"Conversation({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def answer(self) -> str:
        return self.messages[-1][1]


def load_conversations(name: str | Path = "rust", *, ignore_keys: Collection[str] = ()) -> Corpus:
    """Read conversations, and split them.

    A row of a file has `messages`, a list of objects with `role` (system, user or assistant) and `content`; `prompt`
    and `completion`, texts or such lists; `instruction`, `input` and `output` (Alpaca); or `conversations`, a list of
    objects with `from` and `value` (ShareGPT). Answers with `weight` 0 or `train` false are not learned. Beside them
    may stand `id`, `topic`, `form`, `system` and `tools`.

    Args:
        name: `rust` (questions about Rust, no topic in two splits), `general` (about other things, all in the test
            split), or the path of a .jsonl, .json, .csv or .parquet file or of a folder with a file for each split.
        ignore_keys: of rows and messages, that may be there; all others are refused.
    """
    folder = DATA / "answers"
    if name == "rust":
        return Corpus("rust", *(tuple(_read(folder / f"{split}.jsonl")) for split in SPLITS))
    if name == "general":
        return Corpus("general", (), (), tuple(_read(folder / "general.jsonl")))
    return read_corpus(Path(name), lambda file: _read(file, ignore_keys))


def _read(path: Path, ignore_keys: Collection[str] = ()) -> Iterator[Conversation]:
    for where, row in read_rows(path, KEYS, ignore_keys):
        row = {key: value for key, value in row.items() if value is not None}  # as Parquet and nulls in JSON have it
        try:
            yield _conversation(row, str(row.get("id", where.rpartition(", ")[2])), ignore_keys)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None


def _conversation(row: dict, name: str, ignore_keys: Collection[str]) -> Conversation:
    messages, learned, only_read = [], [], []
    for number, message in enumerate(_messages(row), 1):
        refuse_unknown_keys(f"message {number}", message, MESSAGE_KEYS, ignore_keys)
        role, content = message.get("role"), message.get("content")
        marks = [message[key] for key in ("weight", "train") if key in message]
        if role not in ROLES:
            raise ValueError(f"message {number}: role {role!r}: expected one of {', '.join(ROLES)}")
        if not isinstance(content, str) or not content.strip():
            raise ValueError(f"message {number}, of role {role}: expected a text that is not empty")
        if role == "assistant":
            if any(mark not in (0, 1) for mark in marks):
                raise ValueError(f'expected "weight" 0 or 1, or "train" true or false, and they are {marks}')
            (learned if all(marks) else only_read).append(number - 1)
        messages.append((role, content))
    if not messages or messages[-1][0] != "assistant":
        raise ValueError("the last message is not the assistant's, so there is no answer to learn")
    if not learned:
        raise ValueError("no answer is to be learned: each has weight 0 or train false")
    if "user" not in [role for role, _ in messages[: learned[0]]]:
        raise ValueError(
            f"message {learned[0] + 1} is the assistant's, and no user has spoken before it: expected a user's message "
            'first, or "weight": 0 with an answer that is only read'
        )
    return Conversation(
        name,
        tuple(messages[: learned[-1] + 1]),  # what comes after the last learned answer teaches nothing
        str(row.get("topic", "")),
        str(row.get("form", "")),
        frozenset(only_read),
        tuple(json.dumps(tool) for tool in _list_of("tools", row.get("tools", []))),
    )


def _messages(row: dict) -> list[dict]:
    formats = [keys for keys in FORMATS if any(key in row for key in keys)]
    if len(formats) != 1:
        choices = "; ".join(" and ".join(map(repr, keys)) for keys in FORMATS)
        raise ValueError(f"expected a conversation in one of these ways: {choices}")
    (first, *_) = formats[0]
    if first == "prompt":
        messages = _turns(row.get("prompt"), "user") + _turns(row.get("completion"), "assistant")
    elif first == "instruction":
        asked = "\n\n".join(filter(None, (row.get("instruction"), row.get("input"))))
        messages = _turns(asked, "user") + _turns(row.get("output"), "assistant")
    else:
        messages = row[first]
    messages = _list_of(first, messages)
    if first == "conversations":
        names = {"from": "role", "value": "content"}
        messages = [{names.get(key, key): value for key, value in one.items()} for one in messages]
        messages = [one | {"role": SHAREGPT.get(one.get("role"), one.get("role"))} for one in messages]
    system = [{"role": "system", "content": row["system"]}] if row.get("system") else []
    return [*system, *({key: value for key, value in one.items() if value is not None} for one in messages)]


def _list_of(key: str, given: object) -> list[dict]:
    """A list of objects, or the field of a CSV file in which it is written as JSON."""
    with suppress(ValueError):
        given = json.loads(given) if isinstance(given, str) else given
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise ValueError(f"{key!r}: expected a list of objects")
    return given


def _turns(given: object, role: str) -> list:
    return given if isinstance(given, list) else [{"role": role, "content": given}]


def answer_examples(conversations: Sequence[Conversation], tokenizer, *, learn: str = "answers") -> Examples:
    """Conversations, one in each row, of which "answers", up to their end tokens, or "everything" is learned."""
    if not conversations:
        raise ValueError("no conversations to learn from: the split is empty")
    ends, rows = end_tokens(tokenizer), []
    for conversation in conversations:
        ids, labels = [], []
        for part, learned in parts_of(conversation, tokenizer, ends):
            ids += part
            labels += part if learned or learn == "everything" else [IGNORED] * len(part)
        last = max((place for place, token in enumerate(ids) if token in ends), default=0)
        if behind := tokenizer.decode(ids[last + 1 :]).strip() if last else tokenizer.decode(ids[-8:]):
            end = " or ".join(sorted(tokenizer.convert_ids_to_tokens(list(ends))))
            raise ValueError(
                f"conversation {conversation.id!r}: its answer does not end with {end!r}, at which the model stops, "
                f"but with {behind!r}: expected the chat template of this tokenizer"
            )
        rows.append((ids, labels))
    tokens = padded([ids for ids, _ in rows], padding_token(tokenizer))
    mask = padded([[1] * len(ids) for ids, _ in rows], 0).bool()
    return Examples(tokens, padded([labels for _, labels in rows], IGNORED), mask)


def short_enough(conversations: Sequence[Conversation], tokenizer, length: int) -> tuple[list, list]:
    """The conversations of at most so many tokens, and those that are longer."""
    fit, longer = [], []
    for conversation in conversations:
        size = sum(len(ids) for ids, _ in parts_of(conversation, tokenizer, frozenset()))
        (fit if size <= length else longer).append(conversation)
    return fit, longer


def parts_of(conversation: Conversation, tokenizer, ends: frozenset[int]) -> Iterator[tuple[list[int], bool]]:
    """Stretches of tokens, each with whether it is learned, as answers up to their end are.

    Before each answer stand the very tokens that a model is shown there in use, in later turns too.
    """
    where, tools = f"conversation {conversation.id!r}", conversation.tools
    if tools and "tools" not in template_of(tokenizer):
        raise ValueError(f"{where}: the chat template has no place for tools: expected none, or --ignore-keys tools")
    refuse_special_tokens(((where, content) for _, content in conversation.messages), tokenizer)
    written = []
    for number, (role, _) in enumerate(conversation.messages):
        if role != "assistant" or number in conversation.only_read:
            continue
        messages = conversation.messages[: number + 1]
        try:
            prompt = rendered(messages[:-1], tokenizer, answers_next=True, tools=tools)
            whole = rendered(messages, tokenizer, answers_next=False, tools=tools)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        if lost := [n for n, (_, content) in enumerate(messages, 1) if content.strip() not in whole]:
            raise ValueError(f"{where}: the chat template leaves out message {lost[0]} or a part of it")
        shown = token_ids(prompt, tokenizer)
        answer = _answer_behind(shown, whole, whole.removeprefix(prompt), tokenizer)
        if answer is None or shown[: len(written)] != written:
            raise ValueError(
                f"{where}: the chat template writes what comes before message {number + 1} otherwise in training than "
                f"in use, where it ends with {prompt[-40:]!r}. If it takes thoughts out of earlier answers, mark these "
                'with "weight": 0, so that only the last one is learned'
            )
        yield shown[len(written) :], False
        last = max((place for place, token in enumerate(answer, 1) if token in ends), default=len(answer))
        yield answer[:last], True
        yield answer[last:], False  # such as a line break behind the end token
        written = shown + answer


def _answer_behind(shown: list[int], whole: str, answer: str, tokenizer) -> list[int] | None:
    """An answer's tokens as a model would write them; None where these are another text."""
    together = token_ids(whole, tokenizer)
    if together[: len(shown)] == shown:
        return together[len(shown) :]
    # The prompt's last piece and the answer's first would be one token, but the prompt is there first.
    separate = token_ids(answer, tokenizer)
    texts = [tokenizer.decode(ids, clean_up_tokenization_spaces=False) for ids in (shown + separate, together)]
    return separate if texts[0] == texts[1] else None


def end_tokens(tokenizer, generation_config=None) -> frozenset[int]:
    """What ends an answer: named in the tokenizer, the generation settings or the chat template alone."""
    configured = getattr(generation_config, "eos_token_id", None)
    ends = {tokenizer.eos_token_id, *([configured] if isinstance(configured, int) else configured or ())} - {None}
    with suppress(ValueError):  # what a template refuses is said of the reader's own conversations
        text = rendered([("user", "question"), ("assistant", "answer")], tokenizer, answers_next=False)
        special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
        ends |= special & {*token_ids(text.rpartition("answer")[2].strip(), tokenizer)[:1]}
    return frozenset(ends)


def template_of(tokenizer) -> str:
    """The tokenizer's chat template, else a plain one."""
    return tokenizer.chat_template or PLAIN_TEMPLATE


def prompt_of(messages: Sequence[tuple[str, str]], tokenizer) -> list[int]:
    """The tokens of a conversation up to where the next answer begins."""
    return token_ids(rendered(messages, tokenizer, answers_next=True), tokenizer)


def rendered(messages: Sequence[tuple[str, str]], tokenizer, *, answers_next: bool, tools: Sequence[str] = ()) -> str:
    """Pairs of role and content in the chat template; `answers_next`: up to where an answer begins."""
    given = [{"role": role, "content": content} for role, content in messages]
    options = {"chat_template": template_of(tokenizer), "add_generation_prompt": answers_next, "tokenize": False}
    functions = [json.loads(tool) for tool in tools] or None
    try:
        return tokenizer.apply_chat_template(given, functions, **options)
    except TemplateError as error:
        raise ValueError(f"the chat template of this model refuses it: {error}") from error


def token_ids(text: str, tokenizer) -> list[int]:
    """Of a text with all its special tokens in it, as from a template."""
    return list(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []
