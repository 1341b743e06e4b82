# %% [markdown]
# # Solutions: 7 · Freezing

# %%
import course
import tlkit as tl

# %% [markdown]
# TinyLlama-1.1B has 22 blocks and a width of 2,048. As in Qwen2, each block has two norms, and one more norm follows
# the last block. Apply the published recipe, which trains the last two blocks and every norm. How many parameters does
# it train *outside* the last two blocks?

# %%
answer = None
### BEGIN SOLUTION
answer = (20 * 2 + 1) * 2048
### END SOLUTION
course.check("ex07_1", answer)

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


course.check("ex07_2", train_last)

# %% [markdown]
# You want to freeze the embedding of a *tied* model and train its head. That takes two tables. Write a function that
# takes a tied model, gives its head a table of its own, and returns the model. Before training, the model must compute
# exactly the same logits as before. Training the head must not change the embedding. And `model.tie_weights()`, which
# transformers calls when it loads a model or changes its vocabulary, must leave the head its own table.

# %%
from torch import nn


def own_head(model):
    """The same model, its head no longer tied to the embedding."""
    ### BEGIN SOLUTION
    table = model.get_input_embeddings().weight
    model.get_output_embeddings().weight = nn.Parameter(table.detach().clone())
    model.config.tie_word_embeddings = False
    return model
    ### END SOLUTION


course.check("ex07_3", own_head)
