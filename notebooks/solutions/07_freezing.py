# %% [markdown]
# # Solutions: 7 · Train the last layers only

# %%
import course
import tlkit as tl

# %% [markdown]
# TinyLlama-1.1B has 22 blocks and a width of 2,048. As in Qwen2, each block has two norms, and one more norm follows the
# last block. Apply the published recipe, which trains the last two blocks and every norm. How many values does it train
# *outside* the last two blocks?

# %%
answer = None
### BEGIN SOLUTION
answer = (20 * 2 + 1) * 2048
### END SOLUTION
course.check("ex07_1", answer)

# %% [markdown]
# A strategy says that it trains the last blocks. Is that all? Write a function that takes the report of `apply_strategy`
# and returns how many values are trained *outside* the last `blocks` blocks. For the published run it gives 40,320.
# `report.components` is a dictionary with an entry for each part of the model, such as "embedding" or
# "block 0"; each entry knows its `trainable_values` and its `total_values`.


# %%
def values_elsewhere(report, blocks):
    """How many values are trained outside the last blocks."""
    ### BEGIN SOLUTION
    depth = sum(name.startswith("block ") for name in report.components)
    last = {f"block {n}" for n in range(depth - blocks, depth)}
    return sum(
        part.trainable_values
        for name, part in report.components.items()
        if name not in last
    )
    ### END SOLUTION


course.check("ex07_2", values_elsewhere)

# %% [markdown]
# Repair the recipe. Write a function that makes the last `blocks` blocks and the final norm trainable,
# freezes all else, and returns the model. It is given models in which everything is trainable, and it must be right for
# a Llama (blocks in `model.layers`, final norm `model.norm`) and for a GPT-2 (blocks in `transformer.h`, final norm
# `transformer.ln_f`). So you cannot rely on names; use the structure of the model.


# %%
def train_last(model, blocks):
    """The model, with its last blocks and its final norm trainable and nothing else."""
    ### BEGIN SOLUTION
    model.requires_grad_(False)
    tl.find_blocks(model)[-blocks:].requires_grad_(True)
    for _, child in model.get_decoder().named_children():
        if "Norm" in type(child).__name__:
            child.requires_grad_(True)
    return model
    ### END SOLUTION


course.check("ex07_3", train_last)
