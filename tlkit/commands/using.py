"""The command that lets a model write."""

from dataclasses import dataclass
from functools import partial

from tlkit.commands.models import MODEL
from tlkit.commands.outcome import Outcome
from tlkit.options import option
from tlkit.settings import setup


@dataclass(frozen=True)
class GenerateOptions:
    """Model and prompts"""

    prompt: tuple[str, ...] = option(
        help="the beginning of a text; may be given several times; --prompt=-1: one that starts so"
    )
    model: str | None = option(None, MODEL)
    chat: bool = option(False, "the prompt is a message, put into the model's own chat template")
    system: str = option("", "with --chat: instructions that come before the message")


@dataclass(frozen=True)
class WritingOptions:
    """How it writes"""

    max_new_tokens: int = option(64, "the most tokens that are written behind a prompt", at_least=1)
    temperature: float = option(
        0.0, "0: the likeliest token each time; above: samples, the wilder the higher", at_least=0
    )
    seed: int = option(0, "of the samples", at_least=0, at_most=2**32)


def generate(options: GenerateOptions, writing: WritingOptions) -> Outcome:
    """Let a model continue a text, or answer in its own chat template.

    It stops where the model writes an end token, and otherwise at the limit of new tokens; how many tokens were
    written, and why no more, is said for each prompt.
    """
    from tlkit.devices import probe
    from tlkit.fitting.placement import move_to_device
    from tlkit.models import chat_tokens, continue_tokens, load_model, prompt_tokens

    if options.system and not options.chat:
        raise ValueError("--system: expected --chat with it, because only a chat template has a place for instructions")
    setup()
    device, loaded = probe(), load_model(options.model)
    encode = partial(chat_tokens, system=options.system) if options.chat else prompt_tokens
    encoded = [encode(loaded.tokenizer, prompt) for prompt in options.prompt]
    move_to_device(loaded.model, device)
    settings = {"new_tokens": writing.max_new_tokens, "temperature": writing.temperature, "seed": writing.seed}
    # One at a time, so that a sample does not depend on the other prompts.
    written = [continue_tokens(loaded.model, loaded.tokenizer, [ids], **settings)[0] for ids in encoded]
    answers = [
        {
            "prompt": prompt,
            "text": continuation.text,
            "prompt_tokens": len(ids),
            "tokens": continuation.tokens,
            "stopped_by": "end token" if continuation.ended else "limit",
        }
        for prompt, ids, continuation in zip(options.prompt, encoded, written, strict=True)
    ]
    figures = {"model": loaded.name, "chat": options.chat, "system": options.system, **settings, "written": answers}
    return Outcome(figures, "\n\n".join(_shown(one, options.chat) for one in answers))


def _shown(one: dict[str, object], chat: bool) -> str:
    dialogue = f"> {one['prompt']}\n{one['text'].strip()}" if chat else f"{one['prompt']}{one['text']}"
    why = "the model wrote an end token" if one["stopped_by"] == "end token" else "the limit of --max-new-tokens"
    return f"{dialogue}\n[{one['tokens']} tokens; stopped by: {why}]"
