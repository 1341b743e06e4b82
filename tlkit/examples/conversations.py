"""Conversations, read from files in the formats that people have."""

import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tlkit.corpus import SPLITS, Corpus, read_corpus, read_rows, refuse_unknown_keys
from tlkit.settings import DATA

ROLES = ("system", "user", "assistant")
SHAREGPT = {"human": "user", "gpt": "assistant"}
# Ways to write a conversation down; beside each may stand `id`, `topic`, `form`, `system` and `tools`.
FORMATS = (("messages",), ("conversations",), ("prompt", "completion"), ("instruction", "input", "output"))
KEYS = (*(key for keys in FORMATS for key in keys), "system", "tools", "id", "topic", "form")
MESSAGE_KEYS = ("role", "content", "weight", "train")


@dataclass(frozen=True)
class Conversation:
    """Messages in turn, the last one an answer."""

    id: str
    messages: tuple[tuple[str, str], ...]  # pairs of role and content
    topic: str = ""  # what it is about; empty where the file does not say
    form: str = ""  # what kind of answer is asked for; empty where the file does not say
    only_read: frozenset[int] = frozenset()  # places of answers that are not learned
    tools: tuple[str, ...] = ()  # functions that may be called, each a description in JSON

    def __str__(self) -> str:
        return "\n".join(content for _, content in self.messages)

    def __repr__(self) -> str:
        """A corpus is hashed by it, so a mark that nobody has set does not change it."""
        shown = {name: value for name, value in vars(self).items() if value or name not in ("only_read", "tools")}
        return f"Conversation({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def question(self) -> tuple[tuple[str, str], ...]:
        """All before the last answer."""
        return self.messages[:-1]

    @property
    def answer(self) -> str:
        """The last answer."""
        return self.messages[-1][1]


def load_conversations(name: str | Path = "rust", *, ignore_keys: Collection[str] = ()) -> Corpus:
    """Read conversations, and split them.

    A row of a file has `messages`, a list of objects with `role` (system, user or assistant) and `content`; or
    `prompt` and `completion`, texts or such lists; or `instruction`, `input` and `output` (Alpaca); or `conversations`,
    a list of objects with `from` and `value` (ShareGPT). The last message is the assistant's. Its answers are learned
    where they have no `weight` 0 and no `train` false. Beside them may stand `id`, `topic`, `form`, `system` and
    `tools`.

    Args:
        name: `rust` (questions about Rust in three splits, no topic in two of them), `general` (questions about other
            things, all of them in the test split), or a path to a .jsonl, .json, .csv or .parquet file, or to a folder
            of them, see `read_corpus`.
        ignore_keys: of rows and messages, that may be there all the same; all others are refused.

    Raises:
        ValueError: naming file and row, for what is no conversation, or says more than is used.
    """
    folder = DATA / "answers"
    if name == "rust":
        return Corpus("rust", *(tuple(_read(folder / f"{split}.jsonl")) for split in SPLITS))
    if name == "general":
        return Corpus("general", (), (), tuple(_read(folder / "general.jsonl")))
    return read_corpus(Path(name), lambda file: _read(file, ignore_keys))


def _read(path: Path, ignore_keys: Collection[str] = ()) -> Iterator[Conversation]:
    ids: set[str] = set()
    for where, row in read_rows(path, KEYS, ignore_keys):
        row = {key: value for key, value in row.items() if value is not None}  # as Parquet and nulls in JSON have it
        place = where.rpartition(", ")[2]
        name = str(row.get("id", place))
        if name in ids:
            name = f"{name} ({place})"
        ids.add(name)
        try:
            yield _conversation(row, name, ignore_keys)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None


def _conversation(row: dict, name: str, ignore_keys: Collection[str]) -> Conversation:
    messages, learned = [], []
    for number, message in enumerate(_messages(row), 1):
        refuse_unknown_keys(f"message {number}", message, MESSAGE_KEYS, ignore_keys)
        role, content = message.get("role"), message.get("content")
        marks = [message[key] for key in ("weight", "train") if message.get(key) is not None]
        if role not in ROLES:
            raise ValueError(f"message {number}: role {role!r}: expected one of {', '.join(ROLES)}")
        if not isinstance(content, str) or not content.strip():
            raise ValueError(f"message {number}, of role {role}: expected a text that is not empty")
        if role == "assistant" and any(mark not in (0, 1) for mark in marks):
            raise ValueError(f'expected "weight" 0 or 1, or "train" true or false, and they are {marks}')
        if role == "assistant" and all(marks):
            learned.append(number - 1)
        messages.append((role, content))
    if not messages or messages[-1][0] != "assistant":
        raise ValueError("the last message is not the assistant's, so there is no answer to learn")
    if not learned:
        raise ValueError("no answer is to be learned: each has weight 0 or train false")
    if "user" not in [role for role, _ in messages[: learned[0]]]:
        raise ValueError(
            f"message {learned[0] + 1} is the assistant's, and no user has said anything before it: expected a user's "
            'message first, or "weight": 0 with an answer that is only to be read'
        )
    answers = {place for place, (role, _) in enumerate(messages) if role == "assistant"}
    return Conversation(
        name,
        tuple(messages[: learned[-1] + 1]),  # what comes after the last learned answer teaches nothing
        str(row.get("topic", "")),
        str(row.get("form", "")),
        frozenset(answers - {*learned}),
        tuple(json.dumps(tool) for tool in _list_of("tools", row.get("tools", []))),
    )


def _messages(row: dict) -> list[dict]:
    """The messages of a row in any of the formats, as objects with role and content."""
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
