"""What a model writes behind a prompt, and why it stopped."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from tlkit.corpus import text_opening
from tlkit.examples.conversations import end_tokens, rendered, token_ids
from tlkit.models.parts import base_model, evaluation_mode, largest_change, learns_prompt, longest_input, rounding

# Without these, the settings of some published models would make the "likeliest" token another one.
GREEDY = {"do_sample": False, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}


@dataclass(frozen=True)
class Continuation:
    """What a model wrote behind a prompt."""

    text: str
    tokens: int  # the end token among them
    ended: bool  # by an end token, and not by the limit of new tokens


def prompt_tokens(tokenizer: PreTrainedTokenizerBase, prompt: str) -> list[int]:
    """The tokens of a text to continue, with what the tokenizer puts before it, as Llama's `<s>`."""
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    if not ids:
        raise ValueError("an empty prompt: expected at least one token")
    return [*text_opening(tokenizer), *ids]


def chat_tokens(tokenizer: PreTrainedTokenizerBase, message: str, system: str = "") -> list[int]:
    """A user's message in the model's own chat template, up to where its answer begins."""
    if not tokenizer.chat_template:
        raise ValueError("this model has no chat template: it continues texts, and does not answer")
    messages = [("system", system)] * bool(system) + [("user", message)]
    prompt = rendered(messages, tokenizer, answers_next=True)
    if system.strip() not in prompt:
        raise ValueError("the chat template of this model has no place for instructions")
    return token_ids(prompt, tokenizer)


@torch.no_grad()
def continue_tokens(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    *,
    new_tokens: int = 30,
    temperature: float = 0.0,
    seed: int = 0,
    batch_size: int = 16,
) -> list[Continuation]:
    """Let a model go on with prompts, up to an end token where it writes one.

    Args:
        prompts: token ids, see `prompt_tokens` and `chat_tokens`.
        temperature: 0 for the likeliest token each time; else sampled from what the model's generation settings leave,
            by default the 50 likeliest.
        batch_size: the most prompts at once, where the model can be padded on the left; samples depend on it.
    """
    longest, limit = max(map(len, prompts), default=0), longest_input(model)
    if limit and longest + new_tokens > limit:
        raise ValueError(f"a prompt of {longest} tokens and {new_tokens} new ones: this model reads at most {limit}")
    model = model if learns_prompt(model) else base_model(model)  # where peft's wrapper adds nothing
    ends = end_tokens(tokenizer, model.generation_config)
    sampling = {"do_sample": True, "temperature": temperature} if temperature else GREEDY
    # A row that has ended is filled up while others go on.
    options = {"max_new_tokens": new_tokens, "eos_token_id": list(ends) or None, "pad_token_id": min(ends, default=0)}
    device = next(model.parameters()).device
    order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))  # those of like length together
    written: dict[int, Continuation] = {}
    with evaluation_mode(model), torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        at_once = batch_size if min(batch_size, len(prompts)) > 1 and _reads_together(model) else 1
        for begin in range(0, len(order), at_once):
            places = order[begin : begin + at_once]
            inputs = _padded_left([prompts[place] for place in places], device)
            rows = model.generate(**inputs, num_beams=1, **options, **sampling)
            width = inputs["input_ids"].shape[1]
            for place, row in zip(places, rows.tolist(), strict=True):
                written[place] = _continuation(tokenizer, list(prompts[place]), row[width:], ends)
    return [written[place] for place in range(len(prompts))]


def _continuation(tokenizer, prompt: list[int], new: list[int], ends: frozenset[int]) -> Continuation:
    end = next((number for number, token in enumerate(new, 1) if token in ends), None)
    new = new[:end]
    before, whole, tail = (tokenizer.decode(ids, skip_special_tokens=True) for ids in (prompt, prompt + new, new))
    # Decoded tail, a continuation may lose the space that it begins with.
    text = whole.removeprefix(before) if whole.startswith(before) else tail
    return Continuation(text, len(new), end is not None)


def _padded_left(prompts: Sequence[Sequence[int]], device: torch.device) -> dict[str, torch.Tensor]:
    rows = [torch.tensor(prompt) for prompt in prompts]
    masks = [torch.ones_like(row) for row in rows]
    ids, mask = (pad_sequence(each, batch_first=True, padding_side="left").to(device) for each in (rows, masks))
    return {"input_ids": ids, "attention_mask": mask}


def _reads_together(model: nn.Module) -> bool:
    """Whether a prompt that is padded beside a longer one is continued as it is alone."""
    device = next(model.parameters()).device
    vocabulary = base_model(model).config.get_text_config().vocab_size
    prompts = [[place % vocabulary for place in range(1, 1 + length)] for length in (4, 7)]
    options = {"min_new_tokens": 2, "max_new_tokens": 2, "num_beams": 1, "pad_token_id": 0, **GREEDY}
    options |= {"return_dict_in_generate": True, "output_logits": True}
    try:
        passes = [model.generate(**_padded_left(rows, device), **options).logits for rows in (prompts[:1], prompts)]
    except Exception:  # architectures without masks or positions raise their own
        return False
    single, beside = (torch.stack([step[0] for step in steps]).float() for steps in passes)
    return largest_change(single, beside) <= rounding(model)
