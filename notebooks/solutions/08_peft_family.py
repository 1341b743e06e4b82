# %% [markdown]
# # Solutions: 8 · BitFit and its relatives

# %%
import course

# %% [markdown]
# Qwen2-0.5B has 24 blocks of width 896. In each block, the queries have 14 heads of 64 numbers, and the keys and the
# values have 2 heads of 64 numbers each. How many values does BitFit train in it?

# %%
answer = None
### BEGIN SOLUTION
answer = 24 * (14 * 64 + 2 * 64 + 2 * 64)
### END SOLUTION
course.check("ex08_1", answer)

# %% [markdown]
# Apply BitFit without this workbook's help. Write a function that takes a model of transformers, leaves nothing
# trainable but its bias vectors, and returns how many values these have. It has to work for any architecture, and for
# one without bias vectors it returns 0. Do not rely on what was trainable before.


# %%
def train_only_biases(model):
    """Freeze all but the bias vectors; return the number of their values."""
    ### BEGIN SOLUTION
    values = 0
    for name, tensor in model.named_parameters():
        tensor.requires_grad_(name.endswith("bias"))
        values += tensor.numel() * tensor.requires_grad
    return values
    ### END SOLUTION


course.check("ex08_2", train_only_biases)

# %% [markdown]
# Compute the matrix that DoRA uses in the place of W: add the adapter as LoRA does, divide each row by its length, and
# multiply it by its number in `m`. The shapes are `weight` (outputs, inputs), `a` (r, inputs), `b` (outputs, r) and `m`
# (outputs). The adapter counts alpha/r times, as in lesson 5.


# %%
def dora_matrix(weight, a, b, alpha, m):
    """The matrix that DoRA multiplies its input by."""
    ### BEGIN SOLUTION
    whole = weight + alpha / a.shape[0] * (b @ a)
    return m[:, None] * whole / whole.norm(dim=1, keepdim=True)
    ### END SOLUTION


course.check("ex08_3", dora_matrix)
