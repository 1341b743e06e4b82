"""A remedy against forgetting: keep rehearsing what should not be lost."""

import torch


def mix_in(blocks: torch.Tensor, others: torch.Tensor, share: float) -> torch.Tensor:
    """Append so many other blocks that they are a share of all; training shuffles them.

    Args:
        blocks: token ids of the new text, shape (blocks, tokens).
        others: token ids of text that should not be forgotten, shape (blocks, tokens), with as many tokens a block.
        share: of the others in the result, 0 to below 1.

    Returns:
        Token ids, shape (blocks and others, tokens).

    Raises:
        ValueError: for a share outside 0 to below 1, or where `others` are too few.
    """
    if not 0 <= share < 1:
        raise ValueError(f"share={share}: expected 0 to below 1")
    wanted = round(len(blocks) * share / (1 - share))
    if wanted > len(others):
        raise ValueError(f"share={share} of {len(blocks)} blocks takes {wanted} others, and {len(others)} are there")
    return torch.cat([blocks, others[:wanted]])
