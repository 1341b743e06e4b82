# %% [markdown]
# # Solutions: 6 · QLoRA

# %%
import course

# %% [markdown]
# The format Q4_1 of llama.cpp has blocks of 32 weights, and 4 bits for each weight. A block also keeps two numbers of 16
# bits: a scale, and its smallest weight (exercise 6.2 shows what for). How many bits does a weight cost, with its share
# of these numbers?

# %%
answer = None
### BEGIN SOLUTION
answer = 4 + (16 + 16) / 32
### END SOLUTION
course.check("ex06_1", answer)

# %% [markdown]
# NF4 has fixed levels. Other 4-bit formats, such as Q4_1 of llama.cpp, place the levels anew in every block: they are
# evenly spaced from the smallest weight of the block to the largest. Write that. `weights` is a tensor of one
# dimension, neighbours share a `block` (the last one may be shorter), and a code of `bits` bits tells 2**bits levels
# apart. Round every weight to the nearest level of its block. Return the weights that are computed with, in the same
# shape, and leave `weights` as it is.

# %%
import torch


def rounded(weights, bits, block):
    """The weights after quantising and reading them again."""
    ### BEGIN SOLUTION
    parts = []
    for part in weights.split(block):
        low = part.min()
        gap = (part.max() - low) / (2**bits - 1)
        code = ((part - low) / gap).round() if gap > 0 else 0
        parts.append(low + gap * code if gap > 0 else part)
    return torch.cat(parts)
    ### END SOLUTION


course.check("ex06_2", rounded)
