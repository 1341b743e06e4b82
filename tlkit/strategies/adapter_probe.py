"""A few tokens through a model that peft has adapted, before it is trained: does what was added take part?"""

import torch
from torch import nn

from tlkit.models.adapters import adapter_names, base_model, class_head, original_module_of
from tlkit.models.parts import evaluation_mode, find_blocks, longest_input
from tlkit.quantization import logical_size

FEW, MANY = 8, 256  # tokens


def check_adapter_takes_part(model: nn.Module, strategy: str) -> tuple[str, ...]:
    """Let an adapted model read a few tokens, and look what of the adapter its output depends on.

    Raises:
        ValueError: where the model cannot be computed any more, or where nothing that was added takes part.
    """
    if next(model.parameters()).is_meta:
        return ()
    kind, names = type(base_model(model)).__name__, adapter_names(model)
    head = {id(parameter) for parameter in class_head(model)}
    added = {n: p for n, p in model.named_parameters() if n in names and p.requires_grad and id(p) not in head}
    try:  # with many tokens only where few have left something out: not every expert gets one of a few
        left = _left_out(model, added, FEW) and _left_out(model, added, MANY)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # peft, and a model around its layers, raise whatever it is that they miss
        reason = " ".join(str(error).split())
        raise ValueError(f"{strategy}: {kind} cannot compute with what peft has put into it: {reason}") from error
    if not left:
        return ()
    if len(left) == len(added):
        raise ValueError(f"{strategy}: what {kind} computes depends on nothing that this method adds to it")
    values = sum(added[name].numel() for name in left)
    return (
        f"{len(left)} of {len(added)} trainable tensors of the adapter ({values:,} values), {min(left)} among them, "
        "took no part in a pass over a few tokens: the model passes these layers over, or uses their weights directly",
    )


def _left_out(model: nn.Module, added: dict[str, nn.Parameter], most: int) -> list[str]:
    """The names of those tensors on which the logits of `most` tokens, or as many as can be read, do not depend."""
    config, device = model.config.get_text_config(), next(model.parameters()).device
    length = min(most, longest_input(model) or most)
    ids = torch.arange(length + 1) % config.vocab_size
    if config.pad_token_id is not None:
        ids = ids[ids != config.pad_token_id]
    with evaluation_mode(model), torch.enable_grad():
        output = model(input_ids=ids[None, :length].to(device), use_cache=False).logits.float().sum()
        if not output.requires_grad:
            return list(added)
        reached = torch.autograd.grad(output, list(added.values()), allow_unused=True)
    return [name for name, gradient in zip(added, reached, strict=True) if gradient is None]


def passed_over(adapted: nn.Module) -> tuple[str, ...]:
    """A sentence where matrices of the blocks, often those of experts, have no adapter beside them."""
    blocks = find_blocks(adapted.get_base_model())
    wrappers = [module for module in blocks.modules() if original_module_of(module) is not None]
    within = {id(parameter) for wrapper in wrappers for parameter in wrapper.parameters()}
    sizes = {name: logical_size(p) for name, p in blocks.named_parameters() if p.dim() > 1 and id(p) not in within}
    if not sizes:
        return ()
    total = sum(logical_size(parameter) for parameter in blocks.parameters())
    return (
        f"peft puts no adapter beside {sum(sizes.values()):,} of the blocks' {total:,} values ({next(iter(sizes))}, …)",
    )


def left_unpacked(adapted: nn.Module) -> tuple[str, ...]:
    """A sentence where matrices of the blocks, often those of experts, stay as large as they were beside 4-bit ones."""
    names = adapter_names(adapted)
    added = {id(p) for name, p in adapted.named_parameters() if name in names}
    blocks = [(n, p) for n, p in find_blocks(adapted.get_base_model()).named_parameters() if id(p) not in added]
    whole = {name: p.numel() for name, p in blocks if p.dim() > 1 and logical_size(p) == p.numel()}
    if not whole:
        return ()
    share = sum(whole.values()) / sum(logical_size(p) for _, p in blocks)
    return (f"{share:.0%} of the blocks' values are not packed in 4 bits ({max(whole, key=whole.get)}, …)",)
