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

# %% [markdown]
# The published table adds up parts that are not alive together. Do better: a log says what was made and freed in a step,
# in order, in pairs: `("logits", 7)` for 7 GB more, `("logits", -7)` for 7 GB less. Return what is alive at the peak,
# as a dict from name to size. Entries of size 0 are optional.


# %%
def alive_at_the_peak(log):
    """Sizes by name at the moment when their sum is largest."""
    ### BEGIN SOLUTION
    alive, at_the_peak = {}, {}
    for name, size in log:
        alive[name] = alive.get(name, 0) + size
        if sum(alive.values()) > sum(at_the_peak.values()):
            at_the_peak = dict(alive)  # a copy: `alive` goes on changing
    return at_the_peak
    ### END SOLUTION


course.check("ex09_2", alive_at_the_peak)
