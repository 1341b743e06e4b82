# %% [markdown]
# # Solutions: 6 · QLoRA

# %%
import course

# %% [markdown]
# Write the forward pass of a QLoRA layer. `packed` has one dimension, dtype uint8 (an index needs int64), and two codes
# in each byte: the first, times 16, plus the second. `scales` has one number for each group of neighbouring weights,
# all of equal size. A code stands for its number in `levels`, times the scale of its group. The unpacked weights, row
# by row, are $\tilde{W}$ of shape (out, in). The adapter is `A` of shape (r, in) and `B` of shape (out, r), with the
# factor `alpha` / r. Return $h$ for inputs `x` of shape (tokens, in).

# %%
import torch


def qlora_layer(x, packed, scales, levels, A, B, alpha):
    """The outputs, shape (tokens, out), of a layer whose weights are packed."""
    ### BEGIN SOLUTION
    codes = torch.stack([packed // 16, packed % 16], dim=1).long()
    weights = levels[codes].reshape(len(scales), -1) * scales[:, None]
    W = weights.reshape(len(B), A.shape[1])
    return x @ W.T + alpha / len(A) * (x @ A.T @ B.T)
    ### END SOLUTION


course.check("ex06_1", qlora_layer)
