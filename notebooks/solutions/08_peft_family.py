# %% [markdown]
# # Solutions: 8 · The PEFT family

# %%
import course

# %% [markdown]
# Apply BitFit without this workbook's help. Write a function that takes a model of transformers, leaves nothing
# trainable but its bias vectors, and returns how many parameters these have. It has to work for any architecture, and for
# one without bias vectors it returns 0. Do not rely on what was trainable before.


# %%
def train_only_biases(model):
    """Freeze all but the bias vectors; return the number of their parameters."""
    ### BEGIN SOLUTION
    count = 0
    for name, tensor in model.named_parameters():
        tensor.requires_grad_(name.endswith("bias"))
        count += tensor.numel() * tensor.requires_grad
    return count
    ### END SOLUTION


course.check("ex08_1", train_only_biases)

# %% [markdown]
# Compute the matrix that DoRA uses in place of W: add the adapter as LoRA does, divide each row by its length, and
# multiply it by its number in `m`. The shapes are `weight` (outputs, inputs), `a` (r, inputs), `b` (outputs, r) and `m`
# (outputs). The adapter counts alpha/r times, as in lesson 5.


# %%
def dora_matrix(weight, a, b, alpha, m):
    """The matrix that DoRA multiplies its input by."""
    ### BEGIN SOLUTION
    whole = weight + alpha / a.shape[0] * (b @ a)
    return m[:, None] * whole / whole.norm(dim=1, keepdim=True)
    ### END SOLUTION


course.check("ex08_2", dora_matrix)
