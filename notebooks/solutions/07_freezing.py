# %% [markdown]
# # Solutions: 7 · Freezing

# %%
import course
import tlkit as tl

# %% [markdown]
# Repair the recipe. Write a function that makes the last `count` blocks and the final norm trainable, freezes all
# else, and returns the model. It must be right for a Llama (blocks in `model.layers`, final norm `model.norm`) and for
# a GPT-2 (`transformer.h`, `transformer.ln_f`), so do not go by names. `tl.find_blocks(model)` returns the blocks, and
# `model.get_decoder().children()` the modules around them.


# %%
def train_last(model, count):
    """The model, with its last blocks and its final norm trainable and nothing else."""
    ### BEGIN SOLUTION
    model.requires_grad_(False)
    tl.find_blocks(model)[-count:].requires_grad_(True)
    for child in model.get_decoder().children():
        if {p.ndim for p in child.parameters()} == {1}:  # a norm has vectors alone
            child.requires_grad_(True)
    return model
    ### END SOLUTION


course.check("ex07_1", train_last)

# %% [markdown]
# Estimate the saving before you have the model. It has `n` equal blocks with `N` weights each in linear layers, and a
# head of `H` weights. The last `k` blocks are trained, all else is frozen, and the output of the frozen blocks is
# `stored` or not. Return the share of a full step's arithmetic that is left, without attention. For our model (`n = 8`,
# `k = 2`, `N = 405_504`, `H = 786_432`) it is 0.53, and from the store 0.33.


# %%
def share_left(n, k, N, H, stored):
    """The share of a full step that is left when only the last k blocks are trained."""
    ### BEGIN SOLUTION
    frozen = 0 if stored else 2 * (n - k) * N  # forwards alone
    return (frozen + 6 * k * N + 4 * H) / (6 * n * N + 6 * H)
    ### END SOLUTION


course.check("ex07_2", share_left)
