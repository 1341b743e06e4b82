# %% [markdown]
# # Solutions: 9 · Anatomy of a training step

# %%
import course
import tlkit as tl

# %% [markdown]
# Before you rent a card, you want to know what a model needs however small the batch is. Given a model of which some
# parameters may be frozen (`requires_grad` is False), return the bytes of its weights, gradients and AdamW's moments.
# Gradients and moments have the dtype of their parameter, which need not be the same everywhere.


# %%
def lasting_bytes(model):
    """Weights, gradients and AdamW's moments, in bytes."""
    ### BEGIN SOLUTION
    return sum(p.nbytes * (4 if p.requires_grad else 1) for p in model.parameters())
    ### END SOLUTION


course.check("ex09_1", lasting_bytes)
