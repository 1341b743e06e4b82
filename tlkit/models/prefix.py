"""Compute the frozen lower part of a model once, and begin every further pass above it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from unittest.mock import patch

import torch
from torch import nn

from tlkit.models.parts import base_model, evaluation_mode, find_blocks, learns_prompt, mode

LIMIT = 2**30  # bytes of states that are worth keeping in memory
# What a decoder may be given without its blocks computing anything else.
NEUTRAL = ("input_ids", "labels", "shift_labels", "num_items_in_batch", "logits_to_keep", "return_dict")


class NoFrozenPrefix(ValueError):
    """Nothing of a model stays the same from pass to pass."""


@dataclass
class PrefixCache:
    """What comes out of the lowest blocks, by the tokens that go in."""

    blocks: int  # how many are passed over
    rows_computed: int = 0  # sequences whose states were computed and kept
    rows_reused: int = 0  # sequences passed over
    _states: dict[tuple, torch.Tensor] = field(default_factory=dict, repr=False)
    # Of the present pass: its sequences (none: not kept), and what stands in for the blocks (None: nothing).
    _rows: list[tuple] = field(default_factory=list, repr=False)
    _stand_in: torch.Tensor | None = field(default=None, repr=False)
    _empty: tuple[None, ...] | None = field(default=None, repr=False)  # what a block gives back behind hidden states

    def begin(self, _, args: tuple, kwargs: dict) -> None:
        """Look up the tokens of a pass, before the decoder's blocks are asked."""
        tokens = kwargs.get("input_ids", args[0] if args else None)
        self._rows, self._stand_in = [], None
        if not _is_plain(tokens, args[1:], kwargs):
            return
        kind = tokens.device.type
        rounding = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        self._rows = [(rounding, row.numpy().tobytes()) for row in tokens.cpu()]
        if all(row in self._states for row in self._rows):
            self._stand_in = torch.stack([self._states[row] for row in self._rows]).to(tokens.device)
            self.rows_reused += len(self._rows)

    def pass_over(self, block: Callable, is_last: bool, *args, **kwargs) -> torch.Tensor | tuple:
        """What stands in for a block, or what it computes; that of the last one is kept."""
        if self._stand_in is not None:
            return self._stand_in if self._empty is None else (self._stand_in, *self._empty)
        output = block(*args, **kwargs)
        if is_last and self._rows:
            self._empty = (None,) * (len(output) - 1) if isinstance(output, tuple) else None
            states = output[0] if isinstance(output, tuple) else output
            for row, of_row in zip(self._rows, states.detach(), strict=True):
                if row not in self._states:
                    self._states[row] = of_row.to("cpu", copy=True)
                    self.rows_computed += 1
        return output


@contextmanager
def cached_prefix(model: nn.Module) -> Iterator[PrefixCache]:
    """Inside, the blocks below the lowest trainable one see no batch twice; the losses stay what they were.

    Generation, padded batches and other unusual inputs are computed as ever. The model has its strategy applied, is on
    one device, and keeps its frozen weights. Where there is nothing to keep, NoFrozenPrefix is raised.
    """
    base = base_model(model)
    count, entering_in_training = _frozen_blocks(model)
    cache = PrefixCache(count)
    with ExitStack() as stack:
        for number, block in enumerate(find_blocks(base)[:count], 1):
            forward = partial(cache.pass_over, block.forward, number == count)
            stack.enter_context(patch.object(block, "forward", forward))
        stack.callback(base.get_decoder().register_forward_pre_hook(cache.begin, with_kwargs=True).remove)
        stack.callback(cache._states.clear)
        _refuse_other_states(base, count, entering_in_training)
        cache._states.clear()
        cache.rows_computed = cache.rows_reused = 0
        yield cache


def _frozen_blocks(model: nn.Module) -> tuple[int, torch.Tensor]:
    """The number of lowest blocks with nothing trained in or below them, and what leaves these in training."""
    if learns_prompt(model):
        raise NoFrozenPrefix("what an adapter has learned stands before the text in every block")
    base = base_model(model)
    if base.get_decoder() is base:
        raise NoFrozenPrefix(f"{type(base).__name__} does not tell its decoder from its head")
    with mode(model, training=True), torch.random.fork_rng(), torch.enable_grad():
        *entering, _ = _hidden_states(base)
    count = max((number for number, states in enumerate(entering) if not states.requires_grad), default=0)
    if count == 0:
        trained = [name for name, p in base.named_parameters() if p.requires_grad][:2]
        raise NoFrozenPrefix(f"{', '.join(trained)} and what follows is trained")
    return count, entering[count]


def _hidden_states(base: nn.Module) -> list[torch.Tensor]:
    """For a few tokens, what enters each block, and what comes out of the decoder."""
    states: list[torch.Tensor] = []

    def note(_, args: tuple, kwargs: dict) -> None:
        states.append(args[0] if args else kwargs["hidden_states"])

    tokens = torch.arange(8, device=next(base.parameters()).device)[None]
    with ExitStack() as hooks:
        for block in find_blocks(base):
            hooks.callback(block.register_forward_pre_hook(note, with_kwargs=True).remove)
        last = base.get_decoder()(input_ids=tokens, use_cache=False).last_hidden_state
    return [*states, last]


@torch.no_grad()
def _refuse_other_states(base: nn.Module, count: int, entering_in_training: torch.Tensor) -> None:
    """Refuse dropout below, and blocks that hand on more than hidden states.

    The first pass here computes all states, and the second takes what the first has kept.
    """
    more = f"the lower blocks of {type(base).__name__} hand on more than hidden states"
    try:
        with evaluation_mode(base):
            whole, passed_over = _hidden_states(base), _hidden_states(base)
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:  # it misses what is not handed on
        raise NoFrozenPrefix(more) from error
    if not torch.equal(entering_in_training, whole[count]):
        raise NoFrozenPrefix("the lower blocks draw random numbers in training (dropout)")
    # The same arithmetic twice, up to the order of additions.
    tolerance = 8 * torch.finfo(whole[-1].dtype).eps * whole[-1].abs().max()
    if not torch.allclose(passed_over[-1], whole[-1], rtol=0, atol=tolerance):
        raise NoFrozenPrefix(more)


def _is_plain(tokens, others: tuple, kwargs: dict) -> bool:
    """Whether there are tokens alone: masks, other positions or earlier keys change what comes out."""
    given = [*others, *(value for name, value in kwargs.items() if name not in NEUTRAL)]
    return (
        type(tokens) is torch.Tensor
        and not tokens.is_meta  # neither a trace nor on paper
        and kwargs.get("use_cache") is False
        and all(value is None or value is False for value in given)
    )
