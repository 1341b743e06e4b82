# %% [markdown]
# # Solutions: A1 · Unfreezing schedules

# %%
import course
import tlkit as tl

# %% [markdown]
# A model has 30 blocks and a tied head. Gradual unfreezing with 4 phases trains it for 200 steps, which are counted from
# 0. In which step is block 12 trained for the first time? Use the formula: part 0 is the final norm, part 1 is block
# 29, and the embedding is part 31.

# %%
answer = None
### BEGIN SOLUTION
part = 30 - 12
phase = part * 4 // 32
answer = phase * 200 // 4
### END SOLUTION
course.check("exA1_1", answer)

# %% [markdown]
# Write a strategy: train the MLPs of the upper half of the blocks, and nothing else. In our model, that is `block.mlp`
# of blocks 4 to 7. With an odd number of blocks, the middle one belongs to the upper half. The function gets a model in
# which everything is frozen, and returns it.


# %%
def upper_mlps(model):
    """Train the MLPs of the upper half of the blocks."""
    ### BEGIN SOLUTION
    blocks = tl.find_blocks(model)
    for block in blocks[len(blocks) // 2 :]:
        block.mlp.requires_grad_(True)
    return model
    ### END SOLUTION


course.check("exA1_2", upper_mlps)

# %% [markdown]
# Take a deep model, in which embedding and head hardly count, and say that the backward pass of a trained block needs
# twice its forward pass. Gradual unfreezing has 4 phases of equal length, and each of them adds a quarter of the
# blocks. The text has been read before, so the cache holds everything it can. What percentage of the arithmetic of full
# fine-tuning remains, averaged over the four phases?

# %%
answer = None
### BEGIN SOLUTION
# A trained block costs 1 forward and 2 backward; one behind the cache costs nothing.
answer = 100 * (1 / 4 + 2 / 4 + 3 / 4 + 4 / 4) / 4
### END SOLUTION
course.check("exA1_3", answer)
