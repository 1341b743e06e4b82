"""The loss of a model on blocks of tokens: all at once, or in pieces so that the logits are never all there."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tlkit.examples import IGNORED, Batch, as_examples, inputs_of
from tlkit.models.parts import base_model, evaluation_mode
from tlkit.settings import Plan

LOSS_CHUNK_TOKENS = 256  # whose logits are there at a time where the loss is computed in pieces


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

    def of_chunk(rows: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(head(rows).float(), targets, reduction="sum", ignore_index=IGNORED)

    chunks = zip(hidden.split(LOSS_CHUNK_TOKENS), labels.split(LOSS_CHUNK_TOKENS), strict=True)
    return sum(checkpoint(of_chunk, *chunk, use_reentrant=False) for chunk in chunks)


@torch.no_grad()
def chunked_loss_agrees(model: nn.Module) -> bool:
    """Whether `logits == head(decoder(tokens))` for this model, so that the loss can be computed in pieces.

    Four tokens are read in both ways, and every bit must agree. Gemma 2 caps its logits, Cohere and Granite scale
    them, BERT transforms what the decoder returned.
    """
    base = base_model(model)
    decoder, head = base.get_decoder(), base.get_output_embeddings()
    if not isinstance(head, nn.Linear) or type(head).forward is not nn.Linear.forward or decoder in (None, base):
        return False
    tokens = torch.arange(4, device=head.weight.device)[None]
    with evaluation_mode(model):
        logits = model(input_ids=tokens, use_cache=False).logits
        try:
            hidden = decoder(input_ids=tokens, use_cache=False).last_hidden_state
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
            return False  # it asks for more than tokens
    return torch.equal(head(hidden.to(head.weight.dtype)).to(logits.dtype), logits)
