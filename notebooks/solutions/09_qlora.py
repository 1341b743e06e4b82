# %% [markdown]
# # Solutions: 9 · QLoRA

# %%
import tlkit as tl

# %% [markdown]
# This lesson's 4.13 bits need *double quantisation*: the scales are
# quantised as well. Leave that out. Each block of 64 weights then has one scale of 32 bits. How many bits does a weight
# cost, its share of the scale included?

# %%
answer = None
### BEGIN SOLUTION
answer = 4 + 32 / 64
### END SOLUTION
tl.check("ex09_1", answer)

# %% [markdown]
# `qlora` packs weights that `lora` keeps in 16 bits: from 16 bits each to
# 4.127. Everything else in the step stays as it is. Given the number of packed weights and the peak of the `lora` step
# in bytes, by how many percent is the peak of `qlora` lower? Then try it on `qwen2-0.5b`, which packs 357,826,560
# weights: the `lora` peak is 2,978,370,760 bytes with one row of 512 tokens, and 16,540,026,056 with eight.


# %%
def saved_percent(packed, lora_peak):
    """How much lower the peak is, in percent of `lora_peak` (bytes)."""
    ### BEGIN SOLUTION
    return 100 * packed * (16 - 4.127) / 8 / lora_peak
    ### END SOLUTION


tl.check("ex09_2", saved_percent)

# %% [markdown]
# Quantise weights yourself. `weights` is a tensor of one dimension. Each
# `block` of neighbours shares one scale, the largest *absolute* value among them; the last block may be shorter. Divide
# by the scale, replace each result by the nearest of `levels` (a sorted tensor from -1 to 1), multiply by the scale
# again. Return the weights that are computed with, in the same shape, and leave `weights` as it is.

# %%
import torch


def rounded(weights, levels, block):
    """The weights after quantising and reading them again."""
    ### BEGIN SOLUTION
    parts = []
    for part in weights.split(block):
        scale = part.abs().max()
        place = ((part / scale)[:, None] - levels).abs().argmin(1)
        parts.append(levels[place] * scale)
    return torch.cat(parts)
    ### END SOLUTION


tl.check("ex09_3", rounded)
