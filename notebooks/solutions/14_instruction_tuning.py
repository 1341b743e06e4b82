# %% [markdown]
# # Solutions: 14 · Instruction tuning

# %%
import course

# %% [markdown]
# Write a function that makes the labels of one row. It gets the row's token ids as a list, the number of tokens at the
# beginning that are only read, and the number of tokens of the whole conversation with its end token. Everything after
# these is padding. It returns a list as long as the row, with $-100$ where nothing is learned.


# %%
def labels_of(tokens, only_read, length):
    """The labels of one row."""
    ### BEGIN SOLUTION
    # By place and not by token: the padding token may be the end token.
    padding = len(tokens) - length
    return [-100] * only_read + tokens[only_read:length] + [-100] * padding
    ### END SOLUTION


course.check("ex14_1", labels_of)
