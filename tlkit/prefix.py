"""Compute the frozen lower part of a model once, and begin every further pass above it."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import torch
from torch import nn

from tlkit.memory import in_units
from tlkit.strategies import base_model, find_blocks

LIMIT = 2**30


@dataclass
class PrefixCache:
    """What comes out of the lowest `blocks` blocks, by the tokens that went in.

    `rows_computed` and `rows_reused` count sequences, `nbytes` what is kept. Beyond `limit` bytes the states lie in
    files in `folder`, which the operating system maps into memory.
    """

    blocks: int
    limit: int
    folder: Path
    rows_computed: int = 0
    rows_reused: int = 0
    nbytes: int = 0
    _states: dict[tuple, torch.Tensor] = field(default_factory=dict, repr=False)
    _weights: tuple = field(default=(), repr=False)

    def __str__(self) -> str:
        return (
            f"{self.blocks} blocks computed for {self.rows_computed:,} sequences and passed over for "
            f"{self.rows_reused:,}; {in_units(self.nbytes)} kept"
        )

    def forget(self) -> None:
        self._states.clear()
        self.nbytes = 0

    def keep(self, key: tuple, states: torch.Tensor) -> None:
        kept = states.to("cpu", copy=True)
        self.nbytes += kept.nbytes
        if self.nbytes > self.limit:
            path = self.folder / f"{len(self._states)}.states"
            path.unlink(missing_ok=True)  # of weights that have changed since
            mapped = torch.from_file(str(path), shared=True, size=kept.numel(), dtype=kept.dtype)
            kept = mapped.view(kept.shape).copy_(kept)
        self._states[key] = kept


@contextmanager
def cached_prefix(model: nn.Module, *, limit: int = LIMIT, folder: str | Path | None = None) -> Iterator[PrefixCache]:
    """Inside, the frozen blocks below the lowest trainable one see no sequence twice; the losses stay what they were.

    Generation, padded batches and other unusual inputs are computed as ever. Where frozen weights change, all is
    computed anew. `limit` bytes are kept in memory, the rest in files in `folder` (default: where temporary files
    go), which are removed at the end. Raises ValueError where there is nothing to keep: what enters the second block
    is trained already, or what is below draws random numbers (dropout); and RuntimeError, at the next pass, where a
    weight below becomes trainable inside.
    """
    base = base_model(model)
    layers, decoder = find_blocks(base), base.get_decoder()
    count = frozen_blocks(model)
    above = {id(p) for block in layers[count:] for p in block.parameters()}
    below = [p for p in decoder.parameters() if id(p) not in above and not p.requires_grad]
    stand_in: list[torch.Tensor] = []  # what the blocks below give back in this pass; empty: they compute

    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True)))
        cache = PrefixCache(count, limit, place)
        stack.callback(cache.forget)  # before its files go

        def look_up(_, args: tuple, kwargs: dict) -> None:
            stand_in.clear()
            tokens = kwargs.get("input_ids", args[0] if args else None)
            if _is_plain(tokens, kwargs):
                stand_in.append(_states(cache, base, below, tokens))

        stack.callback(decoder.register_forward_pre_hook(look_up, with_kwargs=True).remove)
        for block in layers[:count]:

            def forward(hidden, *args, _compute=block.forward, **kwargs):
                return stand_in[0] if stand_in else _compute(hidden, *args, **kwargs)

            stack.enter_context(patch.object(block, "forward", forward))
        yield cache


def frozen_blocks(model: nn.Module) -> int:
    """How many of the lowest blocks give the same for the same tokens, whatever is trained; asked of the model itself.

    Two passes over a few tokens, as in training: what enters a block must carry no gradient and not change between
    them. Raises ValueError, with the reason, where not even the first block is so.
    """
    base = base_model(model)
    entered = [_entering_blocks(model, seed) for seed in (0, 1)]
    count = max(number for number, states in enumerate(entered[0]) if not states.requires_grad or number == 0)
    if count == 0:
        trained = [name for name, p in base.named_parameters() if p.requires_grad][:2]
        raise ValueError(
            f"no frozen prefix: {', '.join(trained)} and what follows is trained, so nothing stays the same from pass "
            "to pass. Freeze the embeddings and the lower blocks whole, norms included "
            "(last_layers with train_norms=False, freeze_lower with freeze_embeddings=True)"
        )
    if not torch.equal(entered[0][count], entered[1][count]):
        raise ValueError(
            f"no frozen prefix: the lowest {count} blocks draw random numbers in training (dropout), so nothing stays "
            "the same from pass to pass: set the dropout of the model's configuration to 0"
        )
    return count


def _entering_blocks(model: nn.Module, seed: int) -> list[torch.Tensor]:
    """What enters each block in training, for a few tokens."""
    base = base_model(model)
    entered, was_training = [], model.training
    hooks = [block.register_forward_pre_hook(lambda _, args: entered.append(args[0])) for block in find_blocks(base)]
    device = next(model.parameters()).device
    model.train()
    try:
        with torch.random.fork_rng(), torch.enable_grad():
            torch.manual_seed(seed)
            base.get_decoder()(input_ids=torch.arange(8, device=device)[None], use_cache=False)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return entered


def _is_plain(tokens, kwargs: dict) -> bool:
    """True for tokens alone: a mask, other positions or keys of earlier tokens would change what comes out."""
    special = ("attention_mask", "position_ids", "past_key_values", "inputs_embeds")
    asked = ("output_hidden_states", "output_attentions")
    return (
        type(tokens) is torch.Tensor
        and not tokens.is_meta  # neither a trace nor on paper
        and all(kwargs.get(name) is None for name in special)
        and kwargs.get("use_cache") is False
        and not any(kwargs.get(name) for name in asked)
    )


def _states(cache: PrefixCache, base: nn.Module, below: list[nn.Parameter], tokens: torch.Tensor) -> torch.Tensor:
    """What enters the first block above, shape (sequences, tokens, width)."""
    if any(p.requires_grad for p in below):
        raise RuntimeError(
            "a weight that was frozen when cached_prefix was entered has become trainable: apply the strategy first, "
            "then enter it again"
        )
    weights = tuple((p.data_ptr(), p._version) for p in below)
    if weights != cache._weights:
        cache.forget()
        cache._weights = weights
    kind = tokens.device.type
    rounding = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    keys = [(rounding, row.numpy().tobytes()) for row in tokens.cpu()]
    missing = [number for number, key in enumerate(keys) if key not in cache._states]
    if missing:
        for number, states in zip(missing, _compute(base, cache.blocks, tokens[missing]), strict=True):
            cache.keep(keys[number], states)
    cache.rows_computed += len(missing)
    cache.rows_reused += len(keys) - len(missing)
    return torch.stack([cache._states[key] for key in keys]).to(tokens.device)


class _Reached(Exception):
    """Carries what enters a block out of the pass, which need not go on."""


@torch.no_grad()
def _compute(base: nn.Module, count: int, tokens: torch.Tensor) -> torch.Tensor:
    def stop(_, args):
        raise _Reached(args[0])

    hook = find_blocks(base)[count].register_forward_pre_hook(stop)
    try:
        base.get_decoder().forward(input_ids=tokens, use_cache=False)  # past the hook that asks for these states
    except _Reached as reached:
        return reached.args[0]
    finally:
        hook.remove()
