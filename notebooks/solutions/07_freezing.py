# %% [markdown]
# # Solutions: 7 · Freezing

# %%
import course
import tlkit as tl

# %% [markdown]
# Repair the recipe, in code that you can take to any model. Write a function that makes the last `blocks` blocks and
# the final norm trainable, freezes all else, and returns the model. It is given models in which everything is
# trainable, and it must be right for a Llama (blocks in `model.layers`, final norm `model.norm`) and for a GPT-2
# (blocks in `transformer.h`, final norm `transformer.ln_f`). So you cannot rely on the names of parameters.
# `tl.find_blocks(model)` returns the list of blocks, and `model.get_decoder().children()` the modules around them; the
# class of a norm, `type(child).__name__`, has "Norm" in its name.


# %%
def train_last(model, blocks):
    """The model, with its last blocks and its final norm trainable and nothing else."""
    ### BEGIN SOLUTION
    model.requires_grad_(False)
    tl.find_blocks(model)[-blocks:].requires_grad_(True)
    for child in model.get_decoder().children():
        if "Norm" in type(child).__name__:
            child.requires_grad_(True)
    return model
    ### END SOLUTION


course.check("ex07_1", train_last)
