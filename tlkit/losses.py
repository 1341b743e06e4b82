"""The loss of a model on blocks of tokens: all at once, or in pieces so that the logits are never all there."""

from unittest.mock import patch

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers.modeling_outputs import BaseModelOutputWithPast

from tlkit.examples import IGNORED, Batch, as_examples, inputs_of
from tlkit.memory import CPU
from tlkit.models.adapters import base_model
from tlkit.models.parts import mode
from tlkit.settings import Plan

# Tokens whose logits are there at a time where the loss is computed in pieces: as fast as all at once. torch's own
# choice is the size of the hidden states, six tokens for a vocabulary of 151,936, and takes five times as long.
LOSS_CHUNK_TOKENS = 256


def summed_loss(model: nn.Module, batch: Batch, plan: Plan) -> torch.Tensor:
    """Loss in nats, summed over all labels: the tokens that count, but the first of each row, or the rows' classes.

    It is computed here from the logits, because some architectures take no labels that are shifted already, and some
    add a term that is no sum over tokens, such as the auxiliary loss of a mixture's routers.
    """
    examples = as_examples(batch)
    with torch.autocast(examples.tokens.device.type, torch.bfloat16, enabled=plan.precision == "bf16"):
        if examples.classifies:
            logits = model(**inputs_of(examples), use_cache=False).logits
            return functional.cross_entropy(logits.float(), examples.labels, reduction="sum")
        # The last token of a row predicts none, so it is only a label: no work is done for it.
        read, labels = examples.columns(-1), examples.labels[:, 1:].flatten()
        inputs = inputs_of(read)
        if not plan.chunked_loss:
            logits = model(**inputs, use_cache=False).logits
            if logits.shape[1] > read.shape[1]:  # a learned prompt has some, too
                logits = logits[:, -read.shape[1] :]  # never without need: its backward pass copies all logits
            return functional.cross_entropy(logits.flatten(0, 1).float(), labels, reduction="sum", ignore_index=IGNORED)
        base = base_model(model)
        head = base.get_output_embeddings()
        hidden = base.get_decoder()(**inputs, use_cache=False).last_hidden_state
        return _loss_in_chunks(hidden.flatten(0, 1).to(head.weight.dtype), head, labels)


def _loss_in_chunks(hidden: torch.Tensor, head: nn.Linear, labels: torch.Tensor) -> torch.Tensor:
    """Summed loss of the head's logits, of which no more than LOSS_CHUNK_TOKENS rows are there at a time."""
    # torch 2.13 and newer; in half precision it would sum in that, too, and round a batch's loss to three digits.
    in_fp32 = head.weight.dtype == torch.float32 and not torch.is_autocast_enabled(hidden.device.type)
    if in_fp32 and hasattr(functional, "linear_cross_entropy"):
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=LOSS_CHUNK_TOKENS)
        given = {"linear_bias": head.bias, "reduction": "sum", "options": options, "ignore_index": IGNORED}
        return functional.linear_cross_entropy(hidden, head.weight, labels, **given)

    def of_chunk(rows: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(head(rows).float(), targets, reduction="sum", ignore_index=IGNORED)

    chunks = zip(hidden.split(LOSS_CHUNK_TOKENS), labels.split(LOSS_CHUNK_TOKENS), strict=True)
    return sum(checkpoint(of_chunk, *chunk, use_reentrant=False) for chunk in chunks)


@torch.no_grad()
def chunked_loss_agrees(model: nn.Module) -> bool:
    """Whether `logits == head(decoder(tokens))` for this architecture, so that the loss can be computed in pieces.

    It is decided by the structure and holds for any weights, those on the meta device included. Decoder and head are
    replaced for one pass: the head must then be asked about exactly what the decoder returned, and the model must
    hand on exactly what the head returned, although those logits are too large for any cap and any scale would show.
    Gemma 2 caps its logits, Cohere and Granite scale them, BERT transforms what the decoder returned.
    """
    base = base_model(model)
    decoder, head = base.get_decoder(), base.get_output_embeddings()
    if not isinstance(head, nn.Linear) or type(head).forward is not nn.Linear.forward or decoder in (None, base):
        return False
    device, dtype = head.weight.device, head.weight.dtype
    # Real tensors where the weights have no contents: nothing but the model's own last operations will touch them.
    there = CPU if device.type == "meta" else device
    tokens = torch.zeros(1, 4, dtype=torch.long, device=device)
    hidden = torch.zeros(1, 4, head.in_features, dtype=dtype, device=device)
    logits = torch.linspace(-1000, 1000, 4 * head.out_features, device=there).to(dtype).view(1, 4, -1)
    version, faithful = hidden._version, []

    def decode(*positional, **named):
        given = [value for value in (*positional, *named.values()) if isinstance(value, torch.Tensor)]
        before = named.get("past_key_values")  # a learned prefix, which the model alone knows of
        faithful.append(len(given) == 1 and given[0] is tokens and before is None)
        return _Decoded(last_hidden_state=hidden)

    def score(asked):
        faithful.append(_is_same_tensor(asked, hidden) and hidden._version == version)
        return logits.clone()

    with mode(model, training=True), patch.object(decoder, "forward", decode), patch.object(head, "forward", score):
        try:
            returned = model(input_ids=tokens, use_cache=False).logits
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
            return False  # it asks for more than the last hidden state, or changes that before the head sees it
    return faithful == [True, True] and returned.device == there and torch.equal(returned.to(dtype), logits)


class _Decoded(BaseModelOutputWithPast):
    """What a decoder returns: its last hidden state, and None for all else that an architecture may look for."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def _is_same_tensor(one: torch.Tensor, other: torch.Tensor) -> bool:
    """The same memory, read in the same way; also said of tensors without contents."""
    layouts = [(t.untyped_storage()._cdata, t.shape, t.stride(), t.storage_offset(), t.dtype) for t in (one, other)]
    return layouts[0] == layouts[1]
