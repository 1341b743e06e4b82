"""What a model must be before its perplexity means anything: whole, with its tokenizer, and blind to the future."""

import re

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from tlkit.models.adapters import base_model
from tlkit.models.parts import largest_change, logits_of, longest_input, rounding

# Masks and position tables that earlier versions of transformers kept in the file; computed anew, never learned.
NEVER_LEARNED = re.compile(r"(^|\.)(attn|attention)\.(masked_)?bias$|(^|\.)(inv_freq|causal_mask|position_ids)$")
SENTENCE = "The quick brown fox jumps over the lazy dog."
PROBE = 40  # tokens of the text in which the future is looked for


def refuse_partial_load(name: str, loading: dict, model: nn.Module) -> None:
    """Refuse a model that its file fits only in part: the worst mistake of the published reports.

    Args:
        loading: what transformers says about loading it (`output_loading_info=True`).

    Raises:
        RuntimeError: where weights would stay at their random start, or weights of the file would be left out.
    """
    random = sorted(loading["missing_keys"]) + sorted(str(key[0]) for key in loading["mismatched_keys"])
    if random:
        raise RuntimeError(
            f"model {name!r}: {len(random)} weights are not in the file, or not in this shape, and would stay random "
            f"({', '.join(random[:3])}, …): expected every weight to come from the file"
        )
    buffers = {key for key, _ in model.named_buffers()}
    left_out = sorted(k for k in loading["unexpected_keys"] if k not in buffers and not NEVER_LEARNED.search(k))
    if left_out:
        raise RuntimeError(
            f"model {name!r}: {len(left_out)} weights of the file have no place in the model and would be left out "
            f"({', '.join(left_out[:3])}, …). Is the configuration that of another model?"
        )


def refuse_unusable_tokenizer(name: str, tokenizer: PreTrainedTokenizerBase, model: nn.Module) -> None:
    """Refuse a tokenizer that cannot read, as one without its vocabulary file, or has more tokens than the model."""
    ids = tokenizer(SENTENCE, add_special_tokens=False)["input_ids"]
    read = tokenizer.decode([number for number in ids if number not in tokenizer.all_special_ids])
    if sum(map(str.isalpha, read)) < 0.1 * sum(map(str.isalpha, SENTENCE)):
        raise ValueError(
            f"model {name!r}: its tokenizer, of {len(tokenizer)} tokens, makes {read!r} of {SENTENCE!r}. "
            "Is its vocabulary (tokenizer.json) missing?"
        )
    rows = len(model.get_input_embeddings().weight)
    if len(tokenizer) > rows:
        raise ValueError(f"model {name!r}: the tokenizer has {len(tokenizer)} tokens, the model only {rows}")


@torch.no_grad()
def refuse_sight_of_the_future(name: str, model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> None:
    """Change the second token of a text, then its last, and refuse a model whose earlier logits move.

    A masked language model loads as a causal one without a word, reads the token that it is to predict, and has a
    perplexity near 1. Some models see all of a prefix, others what lies in the same window, so both ends are changed,
    and the text is longer than a sentence. In a causal model nothing moves at all; only experts that get another
    number of tokens round differently, by some millionths of the logits' spread.
    """
    text = tokenizer(SENTENCE, add_special_tokens=False)["input_ids"] * PROBE
    ids = torch.tensor([text[: min(PROBE, longest_input(model) or PROBE)]], device=model.device)
    logits = logits_of(model, ids)
    if logits.isnan().any():
        raise ValueError(f"model {name!r}: its logits are not numbers (NaN): the weights are damaged")
    for place in (1, ids.shape[1] - 1):
        changed = ids.clone()
        changed[0, place] = (ids[0, place] + 1) % len(tokenizer)
        if largest_change(logits[:, :place], logits_of(model, changed)[:, :place]) > rounding(model):
            raise ValueError(
                f"model {name!r}: {type(base_model(model)).__name__} sees the tokens that it is to predict: another "
                f"token {place + 1} changes the logits before it. Expected a causal language model; a masked one has "
                "no perplexity, unless its configuration says is_decoder=true and it was trained so"
            )
