# %% [markdown]
# # Solutions: 13 · Another task

# %%
import course

# %% [markdown]
# A test set has 90 texts of one class and 10 of another. A classifier is right for 81 of the 90 and for 2 of the 10.
# What is its balanced accuracy, in percent?

# %%
answer = None
### BEGIN SOLUTION
answer = 100 * (81 / 90 + 2 / 10) / 2
### END SOLUTION
course.check("ex13_1", answer)

# %% [markdown]
# Write a function that turns each text into one vector, the mean of its hidden states. It gets `hidden`, a tensor of
# shape (rows, tokens, width), and `lengths`, a tensor of shape (rows,) which says how many tokens of each row are text.
# The positions after them are padding and must not count. Return a tensor of shape (rows, width).


# %%
def mean_state(hidden, lengths):
    """The mean hidden state of each text, without its padding."""
    ### BEGIN SOLUTION
    import torch

    rows = zip(hidden, lengths.tolist(), strict=True)
    return torch.stack([states[:n].mean(0) for states, n in rows])
    ### END SOLUTION


course.check("ex13_2", mean_state)

# %% [markdown]
# You train only a head, for 50 epochs, on the features of a frozen model that are computed once and stored. The head
# itself costs next to nothing. Full fine-tuning of the same model takes 5 epochs, and its backward pass costs twice its
# forward pass. What percentage of the arithmetic of full fine-tuning does training the head need, including the
# computation of the features?

# %%
answer = None
### BEGIN SOLUTION
# One forward pass over the texts, beside five epochs of a forward pass and a
# backward pass, which costs as much as two.
answer = 100 * 1 / (5 * (1 + 2))
### END SOLUTION
course.check("ex13_3", answer)
