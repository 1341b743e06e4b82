"""A few tokens through a model that peft has adapted, before it is trained: does what was added take part?"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from torch import nn
from transformers import PreTrainedModel

from tlkit.models.adapters import adapter_names, base_model, class_head, learns_prefix, learns_prompt
from tlkit.models.parts import find_blocks, longest_input
from tlkit.models.passes import mode

# What peft, or a model around its layers, raises where an architecture has not what a method needs.
REFUSALS = (ValueError, NotImplementedError, TypeError, AttributeError, KeyError, IndexError, RuntimeError)
REFUSALS += (AssertionError, StopIteration)
TOKENS = 8
TRIES = 8  # where some of the adapter was not met: blocks may be left out by chance, in training
# What torch says where tensors do not fit together; without contents much else fails that is no fault.
MISFITS = re.compile(
    r"must match|[Ee]xpected size|is invalid for input|cannot be multiplied|can't be cast|expected scalar type"
)


def read_adapted(model: nn.Module, strategy: str) -> tuple[str, ...]:
    """Let an adapted model read a few tokens, and look what of the adapter its output depends on.

    Random numbers, modes and gradients stay as they are. On paper only what needs no contents can be seen.

    Args:
        model: peft's wrapper, with the strategy applied.
        strategy: its name, for the messages.

    Returns:
        A sentence for each part of the adapter that is trainable and never computed with; most often none.

    Raises:
        ValueError: where the model cannot be computed any more, or where nothing that was added takes part.
    """
    kind, on_paper = type(base_model(model)).__name__, next(model.parameters()).is_meta
    names, head = adapter_names(model), {id(parameter) for parameter in class_head(model)}
    added = {id(p): n for n, p in model.named_parameters() if n in names and p.requires_grad and id(p) not in head}
    whole = learns_prefix(model) and not on_paper  # its part in each block is seen by a backward pass alone
    used, left = set(), set(added.values())
    for seed in range(TRIES):
        try:
            logits = _logits(model, seed, whole)
        except torch.OutOfMemoryError:
            raise
        except REFUSALS as error:
            if on_paper and _for_want_of_contents(error):
                return ()
            said = " ".join(str(error).split())
            raise ValueError(f"{strategy}: {kind} cannot compute with what peft has put into it: {said}") from error
        used |= added.keys() & _behind(logits)
        left = _without_part(model, added, used)
        if not left:
            break
    if not used:
        raise ValueError(f"{strategy}: what {kind} computes depends on nothing that this method adds to it")
    return (*_in_words(model, left, len(added)), *(_blocks_without_prefix(model, logits) if whole else ()))


def _logits(model: nn.Module, seed: int, whole: bool) -> torch.Tensor:
    """Those of a few tokens, with their graph; only where it is to be `whole`, with what a backward pass would need."""
    device, config = next(model.parameters()).device, model.config.get_text_config()
    known = [n for n in range(min(TOKENS + 1, config.vocab_size)) if n != config.pad_token_id]
    tokens = torch.tensor([known[: min(TOKENS, longest_input(model) or TOKENS)]], device=device)
    with ExitStack() as stack:
        # As in training: what is computed, and by which weights, may differ from an evaluation.
        stack.enter_context(mode(model, training=True))
        stack.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        torch.default_generator.manual_seed(seed)
        stack.enter_context(torch.enable_grad())
        stack.enter_context(_as_if_trained(model))
        stack.enter_context(_without_traces(model))
        if not whole:
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(lambda tensor: None, lambda nothing: nothing))
        if tokens.is_meta:  # transformers looks at them, for padding and for several sequences in a row
            stack.enter_context(patch("transformers.masking_utils.find_packed_sequence_indices", return_value=None))
            stack.enter_context(patch.object(PreTrainedModel, "warn_if_padding_and_no_attention_mask"))
        return model(input_ids=tokens, use_cache=False).logits


@contextmanager
def _as_if_trained(model: nn.Module) -> Iterator[None]:
    """Inside, learned vectors before the text are those of no token, which they are before training."""
    learned = () if learns_prefix(model) or not learns_prompt(model) else tuple(model.prompt_encoder.parameters())
    before = [parameter.detach().clone() for parameter in learned]
    with torch.no_grad():
        for parameter in learned:
            parameter.mul_(1.5)
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, values in zip(learned, before, strict=True):
                parameter.copy_(values)


@contextmanager
def _without_traces(model: nn.Module) -> Iterator[None]:
    """Inside, a pass may leave tensors in attributes, as recurrent models leave their states; they are taken out."""
    before = [(vars(module), dict(vars(module))) for module in model.modules()]
    try:
        yield
    finally:
        for now, then in before:
            left = [name for name, value in now.items() if isinstance(value, torch.Tensor)]
            for name in left:
                if name in then:
                    now[name] = then[name]
                else:
                    del now[name]


def _for_want_of_contents(error: Exception) -> bool:
    if isinstance(error, RuntimeError):
        return MISFITS.search(str(error)) is None
    return "meta" in str(error)


def _behind(output: torch.Tensor) -> set[int]:
    """The identities of all weights that a gradient of this tensor would reach."""
    found, seen, waiting = set(), set(), [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        waiting += [following for following, _ in node.next_functions]
    return found


def _without_part(model: nn.Module, added: dict[int, str], used: set[int]) -> set[str]:
    """Tensors of the adapter outside the graph; of experts none where any was computed: the others got no token."""
    places = {}
    for number, block in enumerate(find_blocks(base_model(model))):
        # Experts are numbered modules within a block, and of those every token is sent to at least one.
        places |= {id(p): (number, re.sub(r"\.\d+\.", ".*.", name)) for name, p in block.named_parameters()}
    reached = {places.get(key, key) for key in used}
    return {name for key, name in added.items() if places.get(key, key) not in reached}


def _in_words(model: nn.Module, left: set[str], count: int) -> tuple[str, ...]:
    if not left:
        return ()
    values = sum(model.get_parameter(name).numel() for name in left)
    return (
        f"{len(left)} of {count} trainable tensors of the adapter ({values:,} values), {min(left)} among them, are "
        "never computed with: the model passes these layers over, or uses their weights directly",
    )


def _blocks_without_prefix(model: nn.Module, logits: torch.Tensor) -> tuple[str, ...]:
    """A sentence where the output depends on the learned keys and values of some blocks only."""
    (prefix,) = (parameter for parameter in model.prompt_encoder.parameters() if parameter.requires_grad)
    (gradient,) = torch.autograd.grad(logits.float().square().sum(), prefix)
    blocks = model.peft_config["default"].num_layers
    reached = int(gradient.view(len(gradient), blocks, -1).abs().amax(dim=(0, 2)).gt(0).sum())
    if reached == blocks:
        return ()
    return (f"only {reached} of {blocks} blocks use the keys and values that are learned: the others pass them over",)
