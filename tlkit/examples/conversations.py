"""Conversations: read from a file, put into a chat template, and cut into what is only read and what is learned."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import TemplateError

from tlkit.corpus import SPLITS, Corpus, read_json_lines, split_documents
from tlkit.settings import DATA

ROLES = ("system", "user", "assistant")
# For models whose tokenizer has no template, because they were made to continue texts.
PLAIN_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'assistant' %}{{ ' ' + message.content + eos_token }}"
    "{% elif message.role == 'user' %}{{ 'Question: ' + message.content + '\\nAnswer:' }}"
    "{% else %}{{ message.content + '\\n' }}{% endif %}"
    "{% endfor %}"
)


@dataclass(frozen=True)
class Conversation:
    """Messages in turn, the last one an answer.

    Attributes:
        id: names it in messages.
        messages: pairs of role and content.
        topic: what it is about; empty where the file does not say.
        form: what kind of answer is asked for; empty where the file does not say.
    """

    id: str
    messages: tuple[tuple[str, str], ...]
    topic: str = ""
    form: str = ""

    def __str__(self) -> str:
        return "\n".join(content for _, content in self.messages)

    @property
    def question(self) -> "tuple[tuple[str, str], ...]":
        """All before the last answer."""
        return self.messages[:-1]

    @property
    def answer(self) -> str:
        """The last answer."""
        return self.messages[-1][1]


def load_conversations(name: str | Path = "rust") -> Corpus:
    """Read conversations, and split them.

    Each line of a file is an object: with `messages`, a list of objects with `role` (system, user or assistant) and
    `content`, of which the last is the assistant's; or with `prompt` and `completion`, both texts. It may have an
    `id`, a `topic` and a `form`.

    Args:
        name: `rust` (questions about Rust in three splits, no topic in two of them), `general` (questions about other
            things, all of them in the test split), or a path to a .jsonl file in UTF-8, which is split 80/10/10.

    Returns:
        A corpus whose documents are conversations.

    Raises:
        FileNotFoundError: where there is no such file.
        ValueError: naming file and line, for what is no conversation.
    """
    folder = DATA / "answers"
    if name == "rust":
        return Corpus("rust", *(tuple(_read(folder / f"{split}.jsonl")) for split in SPLITS))
    if name == "general":
        return Corpus("general", (), (), tuple(_read(folder / "general.jsonl")))
    path = Path(name)
    if path.suffix.lower() != ".jsonl":
        raise ValueError(f"conversations {str(name)!r}: expected rust, general, or a path to a .jsonl file")
    return split_documents(str(path), list(_read(path)))


def template_of(tokenizer) -> str:
    """The tokenizer's own chat template, or `PLAIN_TEMPLATE` ("Question: … Answer: …") where it has none.

    Args:
        tokenizer: of a model.
    """
    return tokenizer.chat_template or PLAIN_TEMPLATE


def prompt_of(messages: Sequence[tuple[str, str]], tokenizer) -> list[int]:
    """The tokens that a model is shown before it answers.

    Args:
        messages: pairs of role and content, the last one not the assistant's.
        tokenizer: of the model.

    Returns:
        Token ids.

    Raises:
        ValueError: where the template refuses the messages.
    """
    return _tokens(_rendered(messages, tokenizer, answers_next=True), tokenizer)


def parts_of(conversation: Conversation, tokenizer, ends: frozenset[int]) -> Iterator[tuple[list[int], bool]]:
    """Cut a conversation into stretches of tokens that are only read and that are learned.

    Learned are the answers up to their end token. What a model is shown before each answer is tokenised by itself, as
    it will be when the model is used.

    Args:
        conversation: to be learned from.
        tokenizer: of the model.
        ends: tokens at which the model stops.

    Yields:
        Token ids, and whether they are learned.

    Raises:
        ValueError: naming the conversation, where the template refuses it, or makes another text of its beginning for
            training than for use.
    """
    so_far = ""
    for number, (role, content) in enumerate(conversation.messages):
        _refuse_special_tokens(conversation.id, content, tokenizer)
        if role != "assistant":
            continue
        try:
            prompt = _rendered(conversation.messages[:number], tokenizer, answers_next=True)
            whole = _rendered(conversation.messages[: number + 1], tokenizer, answers_next=False)
        except ValueError as error:
            raise ValueError(f"conversation {conversation.id!r}: {error}") from error
        if not (prompt.startswith(so_far) and whole.startswith(prompt)):
            raise ValueError(
                f"conversation {conversation.id!r}: the chat template writes what comes before answer {number + 1} "
                f"otherwise in training than in use, where it ends with {prompt[-40:]!r}: expected one text for both"
            )
        yield _tokens(prompt[len(so_far) :], tokenizer), False
        answer = _tokens(whole[len(prompt) :], tokenizer)
        last = max((place for place, token in enumerate(answer, 1) if token in ends), default=len(answer))
        yield answer[:last], True
        yield answer[last:], False  # such as a line break behind the end token, which nobody will ask for
        so_far = whole


def _rendered(messages: Sequence[tuple[str, str]], tokenizer, *, answers_next: bool) -> str:
    given = [{"role": role, "content": content} for role, content in messages]
    options = {"chat_template": template_of(tokenizer), "add_generation_prompt": answers_next, "tokenize": False}
    try:
        return tokenizer.apply_chat_template(given, **options)
    except TemplateError as error:
        raise ValueError(f"the chat template of this model refuses it: {error}") from error


def _tokens(text: str, tokenizer) -> list[int]:
    """Of a text that a template has made, which has all its special tokens in it."""
    return list(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []


def _refuse_special_tokens(name: str, content: str, tokenizer) -> None:
    if found := [token for token in tokenizer.all_special_tokens if token in content]:
        raise ValueError(
            f"conversation {name!r}: a message contains {found[0]!r}, which the tokenizer would read as its special "
            "token: expected a text without it"
        )


def _read(path: Path) -> Iterator[Conversation]:
    ids: dict[str, int] = {}
    for line, row in read_json_lines(path):
        about = (str(row.get(key, "")) for key in ("topic", "form"))
        try:
            conversation = Conversation(str(row.get("id", f"line {line}")), _messages(row), *about)
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: {error}") from None
        if ids.setdefault(conversation.id, line) != line:
            raise ValueError(f"{path}, line {line}: id {conversation.id!r} is in line {ids[conversation.id]} already")
        yield conversation
    if not ids:
        raise ValueError(f"{path}: no conversations in this file")


def _messages(row: dict) -> tuple[tuple[str, str], ...]:
    given = row.get("messages")
    if given is None:
        pair = (("user", row.get("prompt")), ("assistant", row.get("completion")))
        given = [{"role": role, "content": content} for role, content in pair]
    if not isinstance(given, list) or not all(isinstance(message, dict) for message in given):
        raise ValueError('"messages": expected a list of objects with "role" and "content"')
    messages = tuple((message.get("role"), message.get("content")) for message in given)
    for number, (role, content) in enumerate(messages, 1):
        if role not in ROLES:
            raise ValueError(f"message {number}: role {role!r}: expected one of {', '.join(ROLES)}")
        if not isinstance(content, str) or not content.strip():
            raise ValueError(
                f"message {number}, of role {role}: expected a text that is not empty, in "
                '"messages", or in "prompt" and "completion"'
            )
    roles = [role for role, _ in messages]
    if roles[-1:] != ["assistant"]:
        raise ValueError("the last message is not the assistant's, so there is no answer to learn")
    if "user" not in roles:
        raise ValueError("no message is the user's, so there is nothing to answer")
    return messages
