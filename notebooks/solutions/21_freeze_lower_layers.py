# %% [markdown]
# # Solutions: 21 · Freeze the lower layers

# %%
import course
import tlkit as tl

# %% [markdown]
# In fp32 a weight takes 4 bytes. A *trained* one takes 12 more: 4 for its gradient and 8 for AdamW's two running
# averages. Freezing the lower half of Qwen2-0.5B leaves 315,084,160 of its 494,032,768 values trained. Of all bytes
# that full fine-tuning needs for weights, gradients and averages, how many percent are left?

# %%
answer = None
### BEGIN SOLUTION
total, trained = 494_032_768, 315_084_160
answer = 100 * (4 * total + 12 * trained) / (16 * total)
### END SOLUTION
course.check("ex21_1", answer)

# %% [markdown]
# Count the arithmetic for any choice of blocks, in units of one product. Every block costs one unit in the forward
# pass. It costs one more for the gradient of its input if backpropagation passes through it: that is so when the block
# itself, or *anything below it*, is trained. And it costs one more for the gradient of its weights, if it is trained.
# Full fine-tuning costs three units a block. Which share of that, between 0 and 1, is left? `trained` is a list with
# True or False for each block, the lowest first; `embedding` says whether the embedding, below all blocks, is trained.
# Leave embedding and head out of the count; the lesson's function includes the head, so its shares differ a little.


# %%
def share_of_work(trained, embedding):
    """Units of a step, as a share of those of full fine-tuning."""
    ### BEGIN SOLUTION
    depth = len(trained)
    lowest = 0 if embedding else trained.index(True)
    return (depth + (depth - lowest) + sum(trained)) / (3 * depth)
    ### END SOLUTION


course.check("ex21_2", share_of_work)

# %% [markdown]
# Write a check that says how far down backpropagation goes in a model. Return `"embedding"` if the token embedding is
# trained, otherwise the number of the lowest block in which any weight is trained. If no block is trained either, only
# the final norm or a head of its own can be: then return `"top"`. The check has to work for models whose parts have
# other names than ours. Do not compute a gradient, but look at what is trainable.


# %%
def gradient_ends(model):
    """The lowest part of the model that backpropagation has to reach."""
    ### BEGIN SOLUTION
    if model.get_input_embeddings().weight.requires_grad:
        return "embedding"
    for number, block in enumerate(tl.find_blocks(model)):
        if any(parameter.requires_grad for parameter in block.parameters()):
            return number
    return "top"
    ### END SOLUTION


course.check("ex21_3", gradient_ends)
