"""Compute the frozen lower part of a model once, and begin every further pass above it."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MethodType
from unittest.mock import patch

import torch
from torch import nn

from tlkit.models.adapters import base_model, learns_prompt
from tlkit.models.groups import as_in_phase, groups_of, in_phases
from tlkit.models.parts import find_blocks
from tlkit.models.passes import mode
from tlkit.models.prefix_cache import PrefixCache

LIMIT = 2**30
# What a decoder may be given besides tokens without its blocks computing anything else.
NEUTRAL = ("input_ids", "labels", "shift_labels", "num_items_in_batch", "logits_to_keep", "return_dict")


class NoFrozenPrefix(ValueError):
    """A model of which nothing stays the same from pass to pass, so that there is nothing to keep."""


@contextmanager
def cached_prefix(model: nn.Module, *, limit: int = LIMIT, folder: str | Path | None = None) -> Iterator[PrefixCache]:
    """Inside, the frozen blocks below the lowest trainable one see no sequence twice; the losses stay what they were.

    Generation, padded batches and other unusual inputs are computed as ever. Where frozen weights change, by whatever
    means, all is computed anew: their values are summed up before each pass, which takes one reading of them (see
    `_fingerprint` for the exchanges that it cannot see).

    Where a strategy trains in phases, a later one begins its passes lower down. What it needs is kept while the first
    phase computes it, so that the blocks that are frozen in all phases but the last are computed once for all of them.

    Args:
        model: with its strategy applied, on one device.
        limit: bytes to keep in memory.
        folder: where the rest is kept, in files that are removed at the end; by default where temporary files go.

    Yields:
        What is kept, with its counts.

    Raises:
        NoFrozenPrefix: a ValueError, where there is nothing to keep: what enters the second block is trained already,
            what is below draws random numbers (dropout), or blocks hand on more than hidden states.
        RuntimeError: at the next pass, where a weight below becomes trainable inside.
    """
    base = base_model(model)
    layers, decoder = find_blocks(base), base.get_decoder()
    below, phased = _frozen_below(model), in_phases(model)
    stand_in = _StandIn()

    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True)))
        cache = PrefixCache(max(below), limit, place)
        stack.callback(cache.forget)  # before its files go

        def look_up(module, args: tuple, kwargs: dict) -> None:
            stand_in.blocks = 0
            tokens = kwargs.get("input_ids", args[0] if args else None)
            if module is not decoder or not _is_plain(tokens, args[1:], kwargs):  # or a copy of it
                return
            frozen = [count for count, tensors in below.items() if not any(t.requires_grad for t in tensors)]
            if not frozen and not phased:
                raise RuntimeError(
                    "a weight that was frozen when cached_prefix was entered has become trainable: apply the strategy "
                    "first, then enter it again"
                )
            if (count := max(frozen, default=0)) < cache.blocks:
                cache.come_down_to(count)
            if count:
                stand_in.states = _states(cache, base, below, count, tokens)
                stand_in.blocks = count

        for number, block in enumerate(layers[: max(below)]):
            stack.enter_context(patch.object(block, "forward", _forward_or(stand_in, number, block)))
        for count in below:
            _refuse_other_paths(base, count, stand_in)
        stack.callback(decoder.register_forward_pre_hook(look_up, with_kwargs=True).remove)
        yield cache


@dataclass
class _StandIn:
    """What the lowest blocks give back in this pass instead of computing it; 0 blocks: they compute."""

    blocks: int = 0
    states: torch.Tensor | None = None


def _frozen_below(model: nn.Module) -> dict[int, list[torch.Tensor]]:
    """For each phase how many blocks are frozen, and the weights on which what comes out of them depends.

    Raises NoFrozenPrefix where there are none in any phase.
    """
    base = base_model(model)
    decoder, found, reason = base.get_decoder(), {}, None
    for begins in sorted({group.begins for group in groups_of(model)} or {0.0}):
        with as_in_phase(model, begins):
            try:
                count = frozen_blocks(model)
            except NoFrozenPrefix as error:
                reason = reason or error
                continue
            layers = find_blocks(base)[count:]
            above = {id(tensor) for block in layers for tensor in (*block.parameters(), *block.buffers())}
            tensors = [p for p in decoder.parameters() if id(p) not in above and not p.requires_grad]
            found[count] = tensors + [buffer for buffer in decoder.buffers() if id(buffer) not in above]
    if not found:
        raise reason
    return found


def frozen_blocks(model: nn.Module) -> int:
    """Count the lowest blocks that give the same for the same tokens, whatever is trained.

    The model itself is asked, by two passes over a few tokens, as in training: what enters a block must carry no
    gradient and not change between them.

    Args:
        model: with its strategy applied.

    Returns:
        How many, at least 1.

    Raises:
        NoFrozenPrefix: with the reason, where not even the first block is so.
    """
    if learns_prompt(model):
        raise NoFrozenPrefix("no frozen prefix: what an adapter has learned stands before the text in every block")
    base = base_model(model)
    if base.get_decoder() is base:
        raise NoFrozenPrefix(f"no frozen prefix: {type(base).__name__} does not tell its decoder from its head")
    entered = [_entering_blocks(model, seed) for seed in (0, 1)]
    count = max(number for number, states in enumerate(entered[0]) if not states.requires_grad or number == 0)
    if count == 0:
        trained = [name for name, p in base.named_parameters() if p.requires_grad][:2]
        raise NoFrozenPrefix(
            f"no frozen prefix: {', '.join(trained)} and what follows is trained, so nothing stays the same from pass "
            "to pass. Freeze the embeddings and the lower blocks whole, norms included "
            "(last_layers with train_norms=False, freeze_lower with freeze_embeddings=True)"
        )
    if not torch.equal(entered[0][count], entered[1][count]):
        raise NoFrozenPrefix(
            f"no frozen prefix: the lowest {count} blocks draw random numbers in training (dropout), so nothing stays "
            "the same from pass to pass: set the dropout of the model's configuration to 0"
        )
    return count


def _entering_blocks(model: nn.Module, seed: int) -> list[torch.Tensor]:
    """What enters each block in training, for a few tokens."""
    base = base_model(model)
    entered = []

    def note(_, args, kwargs):
        entered.append(_entering(args, kwargs))

    hooks = [block.register_forward_pre_hook(note, with_kwargs=True) for block in find_blocks(base)]
    try:
        with mode(model, training=True), torch.random.fork_rng(), torch.enable_grad():
            torch.manual_seed(seed)
            tokens = torch.arange(8, device=next(model.parameters()).device)[None]
            base.get_decoder()(input_ids=tokens, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return entered


def _entering(args: tuple, kwargs: dict) -> torch.Tensor:
    return args[0] if args else kwargs["hidden_states"]


def _forward_or(stand_in: _StandIn, number: int, block: nn.Module) -> MethodType:
    """The forward pass of a block, or the states of `stand_in`, in the form of the block's own output."""
    forms = []  # of its first output: a None for each thing behind the hidden states, or None where they are alone

    def forward(self, *args, **kwargs):
        if number < stand_in.blocks:
            return stand_in.states if forms[0] is None else (stand_in.states, *forms[0])
        output = type(self).forward(self, *args, **kwargs)
        if not forms:
            forms.append((None,) * (len(output) - 1) if isinstance(output, tuple) else None)
        return output

    return MethodType(forward, block)  # a method, so that a copy of the model gets one of its own


@torch.no_grad()
def _refuse_other_paths(base: nn.Module, count: int, stand_in: _StandIn) -> None:
    """Raise NoFrozenPrefix where the model computes something else when its lower blocks give back their stand-in."""
    tokens, reason = torch.arange(8, device=next(base.parameters()).device)[None], None
    with mode(base, training=False):
        expected = base.get_decoder()(input_ids=tokens, use_cache=False).last_hidden_state
        stand_in.states, stand_in.blocks = _compute(base, [count], tokens)[count], count
        try:
            found = base.get_decoder()(input_ids=tokens, use_cache=False).last_hidden_state
        except (TypeError, AttributeError, KeyError, IndexError) as error:  # it looks for what is not handed on
            found, reason = torch.full_like(expected, torch.nan), error
        stand_in.blocks = 0
    # The same arithmetic twice, up to the order of additions.
    if not torch.allclose(found, expected, rtol=0, atol=8 * torch.finfo(expected.dtype).eps * expected.abs().max()):
        kind = type(base).__name__
        raise NoFrozenPrefix(
            f"no frozen prefix: the lower blocks of {kind} hand on more than hidden states"
        ) from reason


def _is_plain(tokens, others: tuple, kwargs: dict) -> bool:
    """True for tokens alone: a mask, other positions or keys of earlier tokens would change what comes out."""
    given = [*others, *(value for name, value in kwargs.items() if name not in NEUTRAL)]
    return (
        type(tokens) is torch.Tensor
        and not tokens.is_meta  # neither a trace nor on paper
        and kwargs.get("use_cache") is False
        and all(value is None or value is False for value in given)
    )


def _states(
    cache: PrefixCache, base: nn.Module, below: dict[int, list[torch.Tensor]], blocks: int, tokens: torch.Tensor
) -> torch.Tensor:
    """What comes out of so many blocks, shape (sequences, tokens, width)."""
    weights = {id(tensor): _fingerprint(tensor) for tensor in below[blocks]}
    known = cache._weights
    if any(key in known and not torch.equal(bits, known[key]) for key, bits in weights.items()):
        cache.forget()
    known.update(weights)
    kind = tokens.device.type
    rounding = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    keys = [(blocks, rounding, row.numpy().tobytes()) for row in tokens.cpu()]
    missing = [number for number, key in enumerate(keys) if key not in cache._states]
    if missing:
        computed = _compute(base, [count for count in below if count <= blocks], tokens[missing])
        for count, found in computed.items():
            for number, states in zip(missing, found, strict=True):
                cache.keep((count, *keys[number][1:]), states)
    cache.rows_computed += len(missing)
    cache.rows_reused += len(keys) - len(missing)
    return torch.stack([cache._states[key] for key in keys]).to(tokens.device)


SEGMENT = 61  # a prime, so that rows and columns of weights do not fall into step with it
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@torch.no_grad()
def _fingerprint(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of each 61 neighbouring values, summed up as whole numbers.

    torch's own count of changes (`_version`) misses those through `.data`. These sums see every change of a single
    value, however small, and all others but those within 61 neighbours that cancel exactly, as an exchange of two of
    them does. A sum at memory speed takes a fraction of the pass that it guards.
    """
    bits = tensor.detach().reshape(-1).view(INTEGERS[tensor.element_size()])
    whole = len(bits) // SEGMENT * SEGMENT
    parts = (bits[:whole].view(-1, SEGMENT), bits[whole:][None])
    return torch.cat([part.sum(1, dtype=bits.dtype).cpu().long() for part in parts])


class _Reached(Exception):
    """Ends a pass that need not go on."""


@torch.no_grad()
def _compute(base: nn.Module, counts: list[int], tokens: torch.Tensor) -> dict[int, torch.Tensor]:
    """What comes out of so many blocks, for each number."""
    found = {}

    def note(count: int):
        def hook(_, args, kwargs):
            found[count] = _entering(args, kwargs)
            if count == max(counts):
                raise _Reached

        return hook

    blocks, decoder = find_blocks(base), base.get_decoder()
    hooks = [blocks[count].register_forward_pre_hook(note(count), with_kwargs=True) for count in counts]
    try:
        type(decoder).forward(decoder, input_ids=tokens, use_cache=False)  # past the hook that asks for these states
    except _Reached:
        return found
    finally:
        for hook in hooks:
            hook.remove()
