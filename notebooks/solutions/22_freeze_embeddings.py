# %% [markdown]
# # Solutions: 22 · Freeze the embeddings

# %%
import course

# %% [markdown]
# Qwen2-1.5B has 1,543,714,304 values. Its vocabulary has 151,936 tokens, its width is 1,536, and
# its head is tied. What percentage of its values does `freeze_embeddings` freeze? And what percentage would it be if
# the same model had a head of its own, not tied? Give both numbers, in percent.

# %%
answer = None  # (percent with the tied head, percent with a head of its own)
### BEGIN SOLUTION
table, total = 151_936 * 1_536, 1_543_714_304
answer = (100 * table / total, 100 * table / (total + table))
### END SOLUTION
course.check("ex22_1", answer)

# %% [markdown]
# Write a function that takes a model to which some strategy was applied, and returns True if its head is trained, else
# False. It must be right for tied and for untied models.


# %%
def head_trains(model):
    """True where the next training step would change the head."""
    ### BEGIN SOLUTION
    return model.get_output_embeddings().weight.requires_grad
    ### END SOLUTION


course.check("ex22_2", head_trains)

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


course.check("ex22_3", own_head)
