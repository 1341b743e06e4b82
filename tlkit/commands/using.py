"""Commands that use a model: let it write, and show what it would learn of a conversation."""

import sys
from dataclasses import dataclass

from tlkit.commands.models import MODEL
from tlkit.commands.outcome import Outcome
from tlkit.options import option
from tlkit.settings import setup

STANDARD_INPUT = "-"


@dataclass(frozen=True)
class GenerateOptions:
    """Model and prompts"""

    prompt: tuple[str, ...] = option(
        help="the beginning of a text; may be given several times; -: standard input; --prompt=-1: one that starts so"
    )
    model: str | None = option(None, MODEL)
    chat: bool = option(False, "the prompt is a message, put into the model's own chat template")


@dataclass(frozen=True)
class WritingOptions:
    """How it writes"""

    max_new_tokens: int = option(64, "the most tokens that are written behind a prompt", at_least=1)
    temperature: float = option(
        0.0, "0: the likeliest token each time; above: samples, the wilder the higher", at_least=0
    )
    seed: int = option(0, "of the samples", at_least=0, at_most=2**32)


@dataclass(frozen=True)
class TokensOptions:
    """Which conversations, and how they are put into rows"""

    model: str | None = option(None, MODEL + "; only its tokenizer is used")
    corpus: str = option("rust", "conversations: rust, general, or a .jsonl file")
    example: str | None = option(None, "the id of a conversation; default: the first of the training split")
    sequence_length: int | None = option(None, "tokens in a row; default: as many as the longest has", at_least=2)
    layout: str = option("padded", "of the rows", choices=("padded", "packed", "mixed"))
    learn: str = option("answers", "what is learned", choices=("answers", "everything"))


def generate(options: GenerateOptions, writing: WritingOptions) -> Outcome:
    """Let a model continue a text, or answer in its own chat template.

    It stops where the model writes an end token, and otherwise at the limit of new tokens; how many tokens were
    written, and why no more, is said for each prompt.
    """
    from tlkit.devices import probe
    from tlkit.fitting.placement import move_to_device
    from tlkit.models import chat_tokens, continue_tokens, load_model, prompt_tokens

    setup()
    device, prompts = probe(), [_read(prompt) for prompt in options.prompt]
    loaded = load_model(options.model)
    encode = chat_tokens if options.chat else prompt_tokens
    encoded = [encode(loaded.tokenizer, prompt) for prompt in prompts]
    move_to_device(loaded.model, device)
    settings = {"new_tokens": writing.max_new_tokens, "temperature": writing.temperature, "seed": writing.seed}
    # One at a time, so that a sample does not depend on the other prompts.
    written = [continue_tokens(loaded.model, loaded.tokenizer, [ids], **settings)[0] for ids in encoded]
    found = [
        {
            "prompt": prompt,
            "text": continuation.text,
            "prompt_tokens": len(ids),
            "tokens": continuation.tokens,
            "stopped_by": "end token" if continuation.ended else "limit",
        }
        for prompt, ids, continuation in zip(prompts, encoded, written, strict=True)
    ]
    figures = {"model": loaded.name, "chat": options.chat, **settings, "written": found}
    return Outcome(figures, "\n\n".join(_shown(one, options.chat) for one in found))


def tokens(options: TokensOptions) -> Outcome:
    """Show a training example token by token: only read, learned, or the end of an answer.

    All conversations of the training split are checked first. Exit 2 where one of them would teach the wrong thing, and
    says which and why.
    """
    from tlkit.examples.answers import answer_examples
    from tlkit.examples.conversations import load_conversations
    from tlkit.models import load_model
    from tlkit.reports.token_view import token_view

    setup()
    corpus = load_conversations(options.corpus)
    conversations, tokenizer = corpus.train or corpus.test, load_model(options.model).tokenizer
    settings = {"length": options.sequence_length, "layout": options.layout, "learn": options.learn}
    examples = answer_examples(conversations, tokenizer, **settings)
    if options.example is not None:
        chosen = [one for split in (corpus.train, corpus.validation, corpus.test) for one in split]
        chosen = [one for one in chosen if one.id == options.example]
        if not chosen:
            raise ValueError(f"--example {options.example}: no conversation of {corpus.name} has this id")
        examples = answer_examples(chosen, tokenizer, **settings)
    view = token_view(examples, tokenizer)
    names = ", ".join(f"{count} {kind}" for kind, count in view.counts.items() if count)
    return Outcome(view.table.to_dict("records"), f"{view}\n{len(view.table)} tokens: {names}")


def _read(prompt: str) -> str:
    """A prompt as given, or what standard input has, without the line break that ends it."""
    if prompt != STANDARD_INPUT:
        return prompt
    try:
        text = sys.stdin.read().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"--prompt -: standard input is not UTF-8 text (byte {error.start})") from None
    if not text:
        raise ValueError("--prompt -: standard input is empty, expected the beginning of a text")
    return text


def _shown(one: dict[str, object], chat: bool) -> str:
    said = f"> {one['prompt']}\n{one['text'].strip()}" if chat else f"{one['prompt']}{one['text']}"
    why = "the model wrote an end token" if one["stopped_by"] == "end token" else "the limit of --max-new-tokens"
    return f"{said}\n[{one['tokens']} tokens; stopped by: {why}]"
