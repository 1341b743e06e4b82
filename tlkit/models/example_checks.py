"""What examples must be before a model is trained on them: something to learn in each, texts that stay apart."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from transformers import PretrainedConfig

from tlkit.examples import IGNORED, Examples, inputs_of
from tlkit.models.adapters import base_model, classifies
from tlkit.models.passes import NO_PLACE, evaluation_mode, largest_change, rounding


def refuse_examples(model: nn.Module, examples: Examples, name: str = "examples") -> None:
    """Refuse examples that a model cannot learn from.

    Args:
        model: with a strategy applied.
        examples: on any device.
        name: of them, for the message.

    Raises:
        ValueError: naming the row, where it has no label, one that is not its token's, or a class that the model does
            not have; and where the architecture cannot keep the texts of a packed row apart.
    """
    if examples.classifies != classifies(model):
        labels, kind = ("classes", "each token") if examples.classifies else ("labels for tokens", "each row")
        raise ValueError(f"{name} have {labels}: {type(base_model(model)).__name__} expects a label for {kind}")
    if examples.classifies:
        _refuse_classes(examples.labels, base_model(model).config.num_labels, name)
        return
    learned = examples.labels != IGNORED
    if (row := _first(~learned[:, 1:].any(1))) is not None:
        raise ValueError(f"{name}, row {row}: no token has a label, so nothing would be learned from it")
    if (row := _first((learned & (examples.labels != examples.tokens)).any(1))) is not None:
        raise ValueError(
            f"{name}, row {row}: a label is not the token at its own place; expected labels that are not shifted, "
            f"or {IGNORED} where nothing is learned"
        )
    if examples.layout == "packed":
        refuse_mixing(model)


@torch.no_grad()
def refuse_mixing(model: nn.Module) -> None:
    """Refuse a model that cannot read two texts in one row as if each were alone.

    The model is asked: two short texts in one row must give the logits that each gives in a row of its own. GPT-2 needs
    positions that begin anew; models with ALiBi or recurrent ones have no place for them. While the model is asked,
    its sliding window, where it has one, is shorter than the texts.

    Args:
        model: a causal language model, with weights.

    Raises:
        ValueError: where logits of one text depend on the other.
    """
    device = next(model.parameters()).device
    if device.type == "meta":
        return
    tokens = torch.arange(8, device=device)[None] % model.config.get_text_config().vocab_size
    texts = (torch.arange(8, device=device)[None] >= 4).long()
    row = Examples(tokens, tokens, texts, "packed")
    separate = [Examples(tokens[:, part], tokens[:, part], 0 * texts[:, part]) for part in (slice(4), slice(4, 8))]
    problem = None
    with evaluation_mode(model), _short_window(base_model(model).config.get_text_config()):
        expected = [model(**inputs_of(part), use_cache=False).logits[:, -4:] for part in separate]
        expected = torch.cat(expected, 1).float()
        try:
            packed = model(**inputs_of(row), use_cache=False).logits[:, -8:].float()
        except NO_PLACE as error:
            packed, problem = torch.full_like(expected, torch.nan), error
    if not largest_change(expected, packed) <= rounding(model):
        raise ValueError(
            f"{type(base_model(model)).__name__} cannot keep texts apart that share a row: expected the layout padded"
        ) from problem


@contextmanager
def _short_window(config: PretrainedConfig) -> Iterator[None]:
    """Inside, what a token sees is so little that a text of four tokens goes beyond it."""
    names = ("sliding_window", "attention_chunk_size")
    before = {name: getattr(config, name) for name in names if getattr(config, name, None)}
    vars(config).update(dict.fromkeys(before, 2))
    try:
        yield
    finally:
        vars(config).update(before)


def _refuse_classes(labels: torch.Tensor, classes: int, name: str) -> None:
    if (row := _first((labels < 0) | (labels >= classes))) is not None:
        raise ValueError(f"{name}, row {row}: class {int(labels[row])}: this model has classes 0 to {classes - 1}")


def _first(wrong: torch.Tensor) -> int | None:
    places = wrong.nonzero()
    return int(places[0]) if len(places) else None
