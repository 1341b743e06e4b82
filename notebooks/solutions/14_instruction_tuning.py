# %% [markdown]
# # Solutions: 14 · Instruction tuning

# %%
import course

# %% [markdown]
# A batch has two rows. In the first, the question has 30 tokens and the answer 9; in the second, the question has 10
# tokens and the answer 1. An end token follows each answer and is not counted in these numbers. The mean loss over the
# labels is 4.0 in the first row and 1.0 in the second. What is the loss of the batch, as it should be computed?

# %%
answer = None
### BEGIN SOLUTION
# Questions carry no labels, and each answer has one more for its end: 10 and 2.
answer = (10 * 4.0 + 2 * 1.0) / 12
### END SOLUTION
course.check("ex14_1", answer)

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


course.check("ex14_2", labels_of)

# %% [markdown]
# In a run of DPO with $\beta = 0.1$, the log-probability of a preferred answer has changed from -20 to -26 nats, and that
# of the other answer of its pair from -60 to -96 nats. What is the loss of this pair now? Round it to three decimal
# places.

# %%
answer = None
### BEGIN SOLUTION
import math

margin = (-26 - -20) - (-96 - -60)
answer = round(math.log(1 + math.exp(-0.1 * margin)), 3)
### END SOLUTION
course.check("ex14_3", answer)
