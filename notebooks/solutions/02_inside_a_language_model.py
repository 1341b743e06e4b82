# %% [markdown]
# # Solutions: 2 · Inside a language model

# %%
import course

# %% [markdown]
# In a batch, short texts are filled up with padding, which should not count. By convention its label is -100. Write the
# loss for that: `logits` has the shape (texts, tokens, vocabulary), and `labels` has (texts, tokens), not shifted yet.
# Return the mean loss of all predicted tokens that count.

# %%
import torch
from torch.nn import functional as F


def causal_loss(logits, labels):
    """Mean loss of the next tokens, leaving out labels of -100."""
    ### BEGIN SOLUTION
    predicted, following = logits[:, :-1], labels[:, 1:]
    return F.cross_entropy(
        predicted.flatten(0, 1), following.flatten(), ignore_index=-100
    )
    ### END SOLUTION


course.check("ex02_1", causal_loss)
