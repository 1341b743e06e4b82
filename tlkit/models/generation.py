"""What a model writes behind a prompt, and why it stopped."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from tlkit.adapters import base_model, learns_prompt
from tlkit.models.checks import evaluation_mode, longest_input

PROMPTS = ("In Rust, Vec<T> is", "The Result type in Rust", "Ownership in Rust means")
# Without these, the generation settings of some published models would make the "likeliest" token another one.
GREEDY = {"do_sample": False, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}


@dataclass(frozen=True)
class Continuation:
    """What was written behind one prompt."""

    whole: str  # prompt and continuation, as the tokenizer decodes them together
    text: str  # the continuation alone
    tokens: int  # of the continuation, its end token among them
    ended: bool  # whether the model wrote an end token; otherwise the limit of new tokens stopped it


def generate(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str] = PROMPTS,
    *,
    new_tokens: int = 30,
    temperature: float = 0.0,
    seed: int = 0,
    batch_size: int | None = None,
) -> list[str]:
    """Continue each prompt, up to the end-of-text token where the model writes one.

    Args:
        model: a causal language model.
        tokenizer: its tokenizer.
        prompts: each with at least one token.
        new_tokens: the most that are written behind each prompt.
        temperature: 0 for the likeliest token each time, otherwise sampled.
        seed: of the samples; the random numbers of the program are left as they were.
        batch_size: the most prompts at once, None for all of one length; samples depend on it.

    Returns:
        Prompt and continuation, in the order given.

    Raises:
        ValueError: for an empty prompt, a negative temperature, or more tokens than the model can read.
    """
    encoded = [prompt_tokens(tokenizer, prompt) for prompt in prompts]
    settings = {"new_tokens": new_tokens, "temperature": temperature, "seed": seed, "batch_size": batch_size}
    return [written.whole for written in continue_tokens(model, tokenizer, encoded, **settings)]


def prompt_tokens(tokenizer: PreTrainedTokenizerBase, prompt: str) -> list[int]:
    """The tokens of a text that is to be continued.

    What the tokenizer puts before a text (Llama's `<s>`) is kept, because the model has learned to read it there. What
    it would put behind one is left out, because the text is not finished.

    Args:
        tokenizer: of the model.
        prompt: the beginning of a text.

    Returns:
        Token ids.

    Raises:
        ValueError: for a prompt without a token, or one that is no valid Unicode.
    """
    _refuse_broken_text(prompt)
    own = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    if not own:
        raise ValueError("an empty prompt: expected at least one token in each")
    framed = tokenizer(prompt)["input_ids"]
    before = next((n for n in range(len(framed) - len(own) + 1) if framed[n : n + len(own)] == own), 0)
    return [*framed[:before], *own]


def chat_tokens(tokenizer: PreTrainedTokenizerBase, message: str) -> list[int]:
    """The tokens of one message of a user in the model's own chat template, up to where its answer begins.

    Args:
        tokenizer: of the model.
        message: what the user says.

    Returns:
        Token ids.

    Raises:
        ValueError: where the tokenizer has no chat template, or the template refuses the message.
    """
    from jinja2 import TemplateError

    if not tokenizer.chat_template:
        raise ValueError("this model has no chat template: it was made to continue texts, not to answer")
    _refuse_broken_text(message)
    conversation = [{"role": "user", "content": message}]
    try:
        made = tokenizer.apply_chat_template(conversation, add_generation_prompt=True, return_dict=True)
    except TemplateError as error:
        raise ValueError(f"the chat template of this model cannot be used: {error}") from error
    return list(made["input_ids"])


@torch.no_grad()
def continue_tokens(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    *,
    new_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
    batch_size: int | None = None,
) -> list[Continuation]:
    """Continue prompts that are tokens already, see `prompt_tokens` and `chat_tokens`.

    Prompts of one length are continued together. Others would have to be padded, for which some tokenizers have no
    token, and which some architectures cannot tell from text. A sample is drawn from what the generation settings in
    the model's folder leave of the vocabulary, by default the 50 likeliest tokens.

    Args:
        model: a causal language model.
        tokenizer: its tokenizer.
        prompts: token ids, at least one in each.
        new_tokens: the most that are written behind each prompt.
        temperature: 0 for the likeliest token each time, otherwise sampled.
        seed: of the samples; the random numbers of the program are left as they were.
        batch_size: the most prompts at once, None for all of one length; samples depend on it.

    Returns:
        What was written behind each, in the order given.

    Raises:
        ValueError: for a negative temperature, or more tokens than the model can read.
    """
    if temperature < 0:
        raise ValueError(f"temperature={temperature}: expected 0 (greedy) or more")
    longest, limit = max(map(len, prompts), default=0), longest_input(model)
    if limit and longest + new_tokens > limit:
        raise ValueError(
            f"a prompt of {longest} tokens and {new_tokens} new ones: this model reads at most {limit}; "
            "shorten the prompt, or ask for fewer new tokens"
        )
    model = model if learns_prompt(model) else base_model(model)  # where peft's wrapper adds nothing
    ends = model.generation_config.eos_token_id
    ends = tokenizer.eos_token_id if ends is None else ends
    ends = {ends} if isinstance(ends, int) else set(ends or ())
    sampling = {"do_sample": True, "temperature": temperature} if temperature else GREEDY
    # A row that has ended is filled up while others go on: with what, is of no importance.
    options = {"max_new_tokens": new_tokens, "eos_token_id": list(ends) or None, "pad_token_id": min(ends, default=0)}
    device = next(model.parameters()).device
    written: dict[int, Continuation] = {}
    with evaluation_mode(model), torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        for places in _of_one_length(prompts, batch_size):
            ids = torch.tensor([list(prompts[place]) for place in places], device=device)
            rows = model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), num_beams=1, **options, **sampling
            )
            for place, row in zip(places, rows.tolist(), strict=True):
                written[place] = _continuation(tokenizer, row, ids.shape[1], ends)
    return [written[place] for place in range(len(prompts))]


def _continuation(tokenizer, row: list[int], begin: int, ends: set[int]) -> Continuation:
    """Of prompt and continuation, the part up to the first end token behind the prompt."""
    last = next((number for number in range(begin, len(row)) if row[number] in ends), None)
    end = len(row) if last is None else last + 1
    prompt, whole = (tokenizer.decode(row[:place], skip_special_tokens=True) for place in (begin, end))
    # Decoded alone, a continuation may lose the space that it begins with.
    alone = tokenizer.decode(row[begin:end], skip_special_tokens=True)
    text = whole.removeprefix(prompt) if whole.startswith(prompt) else alone
    return Continuation(whole, text, end - begin, last is not None)


def _of_one_length(prompts: Sequence[Sequence[int]], batch_size: int | None) -> Iterator[list[int]]:
    """Yield the places of sequences that are as long as one another, at most `batch_size` at a time."""
    by_length: dict[int, list[int]] = {}
    for place, ids in enumerate(prompts):
        by_length.setdefault(len(ids), []).append(place)
    for places in by_length.values():
        size = batch_size or len(places)
        yield from (places[begin : begin + size] for begin in range(0, len(places), size))


def _refuse_broken_text(text: str) -> None:
    """What a shell passes on of bytes that are no UTF-8, no tokenizer reads."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the prompt is not valid text (UTF-8): see character {error.start + 1}") from None
