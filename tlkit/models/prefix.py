"""Compute the frozen lower part of a model once, and begin every further pass above it."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import MethodType
from unittest.mock import patch

import torch
from torch import nn

from tlkit.memory import in_units
from tlkit.models.adapters import base_model, learns_prompt
from tlkit.models.parts import find_blocks, mode

LIMIT = 2**30  # bytes of states that are worth keeping in memory
# What a decoder may be given besides tokens without its blocks computing anything else.
NEUTRAL = ("input_ids", "labels", "shift_labels", "num_items_in_batch", "logits_to_keep", "return_dict")


class NoFrozenPrefix(ValueError):
    """A model of which nothing stays the same from pass to pass, so that there is nothing to keep."""


@dataclass
class PrefixCache:
    """What comes out of the lowest blocks, by the tokens that went in.

    Attributes:
        blocks: how many of them are passed over.
        rows_computed: sequences computed.
        rows_reused: sequences passed over.
    """

    blocks: int
    rows_computed: int = 0
    rows_reused: int = 0
    _states: dict[tuple, torch.Tensor] = field(default_factory=dict, repr=False)
    _weights: list[tuple[int, int]] = field(default_factory=list, repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes kept, in the host's memory."""
        return sum(states.nbytes for states in self._states.values())

    def __str__(self) -> str:
        blocks = "1 block" if self.blocks == 1 else f"{self.blocks} blocks"
        return (
            f"{blocks} computed for {self.rows_computed:,} sequences and passed over for "
            f"{self.rows_reused:,}; {in_units(self.nbytes)} kept"
        )


@contextmanager
def cached_prefix(model: nn.Module) -> Iterator[PrefixCache]:
    """Inside, the frozen blocks below the lowest trainable one see no sequence twice; the losses stay what they were.

    Generation, padded batches and other unusual inputs are computed as ever, and all is computed anew where torch has
    counted a change of a frozen weight, or finds it in other memory. The model has its strategy applied, and is on one
    device.

    Raises:
        NoFrozenPrefix: a ValueError, where there is nothing to keep: what enters the second block is trained, what is
            below draws random numbers (dropout), or blocks hand on more than hidden states.
    """
    base, stand_in = base_model(model), _StandIn()
    decoder, blocks, cache = base.get_decoder(), find_blocks(base), PrefixCache(frozen_blocks(model))
    below, above = blocks[: cache.blocks], blocks[cache.blocks :]
    elsewhere = {id(tensor) for tensor in (*above.parameters(), *above.buffers())}
    frozen = [tensor for tensor in (*decoder.parameters(), *decoder.buffers()) if id(tensor) not in elsewhere]
    frozen = [tensor for tensor in frozen if not tensor.requires_grad]

    def look_up(module, args: tuple, kwargs: dict) -> None:
        stand_in.states, tokens = None, kwargs.get("input_ids", args[0] if args else None)
        # A copy of the decoder has this hook as well.
        plain = module is decoder and _is_plain(tokens, args[1:], kwargs)
        if plain and not any(tensor.requires_grad for tensor in frozen):
            stand_in.states = _states(cache, base, frozen, tokens)

    with ExitStack() as stack:
        for block in below:
            stack.enter_context(patch.object(block, "forward", _forward_or(stand_in, block)))
        _refuse_other_paths(base, cache.blocks, stand_in)
        stack.callback(cache._states.clear)
        stack.callback(decoder.register_forward_pre_hook(look_up, with_kwargs=True).remove)
        yield cache


@dataclass
class _StandIn:
    """What the lowest blocks give back in this pass instead of computing it; None: they compute."""

    states: torch.Tensor | None = None


def frozen_blocks(model: nn.Module) -> int:
    """Count the lowest blocks that give the same for the same tokens, whatever is trained.

    The model itself is asked, by two passes over a few tokens, as in training: what enters a block must carry no
    gradient and not change between them.

    Raises:
        NoFrozenPrefix: with the reason, where not even the first block is so.
    """
    if learns_prompt(model):
        raise NoFrozenPrefix("no frozen prefix: what an adapter has learned stands before the text in every block")
    base = base_model(model)
    if base.get_decoder() is base:
        raise NoFrozenPrefix(f"no frozen prefix: {type(base).__name__} does not tell its decoder from its head")
    tokens = _few_tokens(base)
    with mode(model, training=True), torch.random.fork_rng(), torch.enable_grad():
        in_training = _entering(base, range(len(find_blocks(base))), tokens)
    count = max(number for number, states in in_training.items() if not states.requires_grad or number == 0)
    if count == 0:
        trained = [name for name, p in base.named_parameters() if p.requires_grad][:2]
        raise NoFrozenPrefix(
            f"no frozen prefix: {', '.join(trained)} and what follows is trained, so nothing stays the same from pass "
            "to pass. Freeze the embeddings and the lower blocks whole, norms included "
            "(last_layers with train_norms=False, freeze_lower with freeze_embeddings=True)"
        )
    with mode(model, training=False), torch.no_grad():
        in_evaluation = _entering(base, [count], tokens)
    if not torch.equal(in_training[count], in_evaluation[count]):
        raise NoFrozenPrefix(
            f"no frozen prefix: the lowest {count} blocks draw random numbers in training (dropout), so nothing stays "
            "the same from pass to pass: set the dropout of the model's configuration to 0"
        )
    return count


def _few_tokens(base: nn.Module) -> torch.Tensor:
    return torch.arange(8, device=next(base.parameters()).device)[None]


def _forward_or(stand_in: _StandIn, block: nn.Module) -> MethodType:
    """The forward pass of a block, or the states of `stand_in`, in the form of the block's own output."""
    forms = []  # of its first output: a None for each thing behind the hidden states, or None where they are alone

    def forward(self, *args, **kwargs):
        if stand_in.states is not None:
            return stand_in.states if forms[0] is None else (stand_in.states, *forms[0])
        output = type(self).forward(self, *args, **kwargs)
        if not forms:
            forms.append((None,) * (len(output) - 1) if isinstance(output, tuple) else None)
        return output

    return MethodType(forward, block)  # a method, so that a copy of the model gets one of its own


@torch.no_grad()
def _refuse_other_paths(base: nn.Module, count: int, stand_in: _StandIn) -> None:
    """Raise NoFrozenPrefix where the model computes something else when its lower blocks give back their stand-in."""
    tokens, reason = _few_tokens(base), None
    with mode(base, training=False):
        expected = base.get_decoder()(input_ids=tokens, use_cache=False).last_hidden_state
        stand_in.states = _entering(base, [count], tokens)[count]
        try:
            computed = base.get_decoder()(input_ids=tokens, use_cache=False).last_hidden_state
        except (TypeError, AttributeError, KeyError, IndexError) as error:  # it looks for what is not handed on
            computed, reason = torch.full_like(expected, torch.nan), error
        stand_in.states = None
    # The same arithmetic twice, up to the order of additions.
    if not torch.allclose(computed, expected, rtol=0, atol=8 * torch.finfo(expected.dtype).eps * expected.abs().max()):
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


def _states(cache: PrefixCache, base: nn.Module, frozen: list[torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
    """What comes out of the lowest blocks, shape (sequences, tokens, width)."""
    weights = [(tensor.data_ptr(), tensor._version) for tensor in frozen]
    if cache._weights != weights:
        cache._states.clear()
        cache._weights = weights
    kind = tokens.device.type
    rounding = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    keys = [(rounding, row.numpy().tobytes()) for row in tokens.cpu()]
    missing = [number for number, key in enumerate(keys) if key not in cache._states]
    if missing:
        with torch.no_grad():
            computed = _entering(base, [cache.blocks], tokens[missing])[cache.blocks]
        for number, states in zip(missing, computed, strict=True):
            cache._states[keys[number]] = states.to("cpu", copy=True)
    cache.rows_computed += len(missing)
    cache.rows_reused += len(keys) - len(missing)
    return torch.stack([cache._states[key] for key in keys]).to(tokens.device)


class _Reached(Exception):
    """Ends a pass that need not go on."""


def _entering(base: nn.Module, counts: Iterable[int], tokens: torch.Tensor) -> dict[int, torch.Tensor]:
    """What comes out of so many blocks and enters the next, for each number."""
    entering = {}

    def note(count: int):
        def hook(_, args, kwargs):
            entering[count] = args[0] if args else kwargs["hidden_states"]
            if count == max(counts):
                raise _Reached

        return hook

    blocks, decoder = find_blocks(base), base.get_decoder()
    hooks = [blocks[count].register_forward_pre_hook(note(count), with_kwargs=True) for count in counts]
    try:
        type(decoder).forward(decoder, input_ids=tokens, use_cache=False)  # past the hook that asks for these states
    except _Reached:
        return entering
    finally:
        for hook in hooks:
            hook.remove()
