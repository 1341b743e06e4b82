# %% [markdown]
# # Solutions: 2 · Inside a language model

# %%
import course

# %% [markdown]
# A model gives the four tokens of a short text the probabilities 1/2, 1/4, 1/8 and 1/8. What is the perplexity of this
# text? Give at least two decimals.

# %%
import math

answer = None
### BEGIN SOLUTION
probabilities = [1 / 2, 1 / 4, 1 / 8, 1 / 8]
answer = math.exp(-sum(math.log(p) for p in probabilities) / 4)
### END SOLUTION
course.check("ex02_1", answer)

# %% [markdown]
# Write causal attention for one head. `q`, `k` and `v` are tensors of the shape (tokens, d). Return the averaged values,
# of the same shape. A token may look at itself and at all tokens before it.

# %%
import torch


def causal_attention(q, k, v):
    """softmax(q kᵀ / sqrt(d) + mask) v, for one head."""
    ### BEGIN SOLUTION
    tokens, d = q.shape
    may_look = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    scores = (q @ k.T / d**0.5).masked_fill(~may_look, -torch.inf)
    return scores.softmax(-1) @ v
    ### END SOLUTION


course.check("ex02_2", causal_attention)

# %% [markdown]
# Write what keeps packed documents apart, for any number of them in one block. `owners` is a tensor with the
# number of the document that each token belongs to, such as `[0, 0, 0, 1, 1, 2]`. Documents stand one after another.
# Return two tensors. The first is the mask, of shape (tokens, tokens), True where the token of a row may look at the
# token of a column. The second holds the position of each token *in its own document*, from 0, as a model without rotary
# embedding would need it.

# %%
import torch


def keep_apart(owners):
    """Mask and positions for documents packed into one block."""
    ### BEGIN SOLUTION
    tokens = len(owners)
    same = owners[:, None] == owners[None, :]
    may_look = same & torch.ones(tokens, tokens, dtype=torch.bool).tril()
    return may_look, may_look.sum(1) - 1
    ### END SOLUTION


course.check("ex02_3", keep_apart)
