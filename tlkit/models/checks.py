"""What a model must be before its perplexity means anything: whole, with its tokenizer, and blind to the future."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from tlkit.adapters import base_model
from tlkit.models.sources import WAY_ON

# Masks and position tables that earlier versions of transformers kept in the file; computed anew, never learned.
NEVER_LEARNED = re.compile(r"(^|\.)(attn|attention)\.(masked_)?bias$|(^|\.)(inv_freq|causal_mask|position_ids)$")
SENTENCE = "The quick brown fox jumps over the lazy dog."
# What architectures raise that have no place for a mask of their caller or for positions.
NO_PLACE = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, KeyError)


def refuse_partial_load(name: str, loading: dict, buffers: frozenset[str] = frozenset()) -> None:
    """Refuse a model that its file fits only in part: the worst mistake of the published reports.

    Args:
        name: of the model, for the message.
        loading: what transformers says about loading it (`output_loading_info=True`).
        buffers: names of tensors that the model computes itself, and that a file may hold for nothing.

    Raises:
        RuntimeError: where weights would stay at their random start, or weights of the file would be left out.
    """
    random = sorted(loading["missing_keys"]) + sorted(str(key[0]) for key in loading["mismatched_keys"])
    if random:
        raise RuntimeError(
            f"model {name!r}: {len(random)} weights are not in the file, or not in this shape, and would stay random "
            f"({', '.join(random[:3])}, …). Expected every weight to come from the file. {WAY_ON}"
        )
    left_out = sorted(k for k in loading["unexpected_keys"] if k not in buffers and not NEVER_LEARNED.search(k))
    if left_out:
        raise RuntimeError(
            f"model {name!r}: {len(left_out)} weights of the file have no place in the model and would be left out "
            f"({', '.join(left_out[:3])}, …). Is the configuration that of another model? {WAY_ON}"
        )


def refuse_unusable_tokenizer(name: str, tokenizer: PreTrainedTokenizerBase, model: nn.Module) -> None:
    """Refuse a tokenizer that makes nothing, or nothing but unknown tokens, of a sentence, or has too many tokens.

    Args:
        name: of the model, for the message.
        tokenizer: what was loaded with it.
        model: the model.

    Raises:
        ValueError: in both cases. Without its vocabulary file a tokenizer still loads, with its special tokens alone.
    """
    ids = tokenizer(SENTENCE, add_special_tokens=False)["input_ids"]
    read = tokenizer.decode([number for number in ids if number not in tokenizer.all_special_ids])
    if sum(map(str.isalpha, read)) < 0.1 * sum(map(str.isalpha, SENTENCE)):
        raise ValueError(
            f"model {name!r}: its tokenizer, of {len(tokenizer)} tokens, makes {read!r} of {SENTENCE!r}. "
            f"Is its vocabulary (tokenizer.json) missing? {WAY_ON}"
        )
    known = len(model.get_input_embeddings().weight)
    if len(tokenizer) > known:
        raise ValueError(
            f"model {name!r}: the tokenizer has {len(tokenizer)} tokens, the model only {known}. "
            "They do not belong together."
        )


@torch.no_grad()
def refuse_sight_of_the_future(name: str, model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> None:
    """Change the last token of a sentence, and refuse a model whose earlier logits move.

    A masked language model loads as a causal one without a word, reads the token that it is to predict, and has a
    perplexity near 1. In a causal model nothing moves at all; only experts that get another number of tokens round
    differently, by some millionths of the logits' spread.

    Args:
        name: of the model, for the message.
        model: the model, on its device.
        tokenizer: its tokenizer.

    Raises:
        ValueError: where logits depend on a later token, or are no numbers.
    """
    ids = torch.tensor([tokenizer(SENTENCE, add_special_tokens=False)["input_ids"][:8]], device=model.device)
    changed = ids.clone()
    changed[0, -1] = (ids[0, -1] + 1) % len(tokenizer)
    before, after = logits_of(model, ids)[:, :-1], logits_of(model, changed)[:, :-1]
    if before.isnan().any():
        raise ValueError(f"model {name!r}: its logits are not numbers (NaN): the weights are damaged. {WAY_ON}")
    if largest_change(before, after) > rounding(model):
        raise ValueError(
            f"model {name!r}: {type(base_model(model)).__name__} sees the tokens that it is to predict: another last "
            "token changes the logits before it. Expected a causal language model; a masked one has no perplexity, "
            f"unless its configuration says is_decoder=true and it was trained so. {WAY_ON}"
        )


def longest_input(model: nn.Module) -> int | None:
    """The most tokens that a model can read at once, by its configuration.

    Args:
        model: a transformers model, also in peft's wrapper.

    Returns:
        Tokens; None where the architecture sets no limit (ALiBi, recurrent models).
    """
    configs = getattr(model, "peft_config", {}).values()
    before = sum(config.num_virtual_tokens for config in configs if config.is_prompt_learning)
    limit = _positions(base_model(model))
    return None if limit is None else limit - before


def _positions(model: nn.Module) -> int | None:
    config = model.config.get_text_config()
    if getattr(config, "alibi", False) or hasattr(model.base_model, "build_alibi_tensor"):
        return None
    limits = (
        getattr(config, key, None) for key in ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len")
    )
    limit = next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.num_embeddings - module.padding_idx - 1  # RoBERTa counts positions from behind the padding
    return limit


@contextmanager
def mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Inside, the model is in training or in evaluation mode; afterwards each of its modules is as it was.

    Args:
        model: changed in place, and back.
        training: which mode.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, before in modes:
            module.training = before


def evaluation_mode(model: nn.Module) -> AbstractContextManager[None]:
    """Inside, the model has no dropout; afterwards each of its modules is in the mode that it was in.

    Args:
        model: changed in place, and back.
    """
    return mode(model, training=False)


@torch.no_grad()
def logits_of(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Logits in fp32, without dropout.

    Args:
        model: a causal language model.
        ids: tokens, shape (rows, tokens), on the model's device.

    Returns:
        Shape (rows, tokens, vocabulary).
    """
    with evaluation_mode(model):
        return model(input_ids=ids, use_cache=False).logits.float()


def largest_change(before: torch.Tensor, after: torch.Tensor) -> float:
    """How far any logit moved.

    Args:
        before: logits, some of which may be masked by infinity.
        after: logits of the same shape.

    Returns:
        In standard deviations of the logits before.
    """
    change = torch.where(before == after, 0.0, before - after).abs().max()
    return float(change / before[before.isfinite()].std()) if change else 0.0


def rounding(model: nn.Module) -> float:
    """The largest change of a logit that another order of sums explains, in standard deviations of all logits.

    Args:
        model: whose weights say how precise it is.

    Returns:
        A hundred times what mixtures of experts show in fp32; in half precision, half of its digits.
    """
    precision = torch.finfo(model.dtype).eps
    return 1e-4 if precision < 1e-4 else precision**0.5
