# %% [markdown]
# # Solutions: 12 · A real model

# %%
import course

# %% [markdown]
# The adapter of this lesson has rank 8 and 2,442,240 parameters. How many megabytes (millions of bytes) of weights does
# an adapter of rank 16 beside the same layers have, when it is saved in bf16?

# %%
answer = None
### BEGIN SOLUTION
answer = 2 * 2_442_240 * 2 / 1e6
### END SOLUTION
course.check("ex12_1", answer)

# %% [markdown]
# Write the function that lets a model choose among options. It gets a list with one entry for each option: the
# log-probabilities that the model gave to the tokens of that option, a list of numbers. It returns the place of the
# chosen option, counted from 0. The options differ in length, and a long one must not lose because it is long.


# %%
def chosen(options):
    """The place of the option that the model finds likeliest, token for token."""
    ### BEGIN SOLUTION
    means = [sum(option) / len(option) for option in options]
    return means.index(max(means))
    ### END SOLUTION


course.check("ex12_2", chosen)

# %% [markdown]
# How many questions does a test of knowledge need? Say that a share `changed` of the questions is answered correctly by
# exactly one of the two models. While the models are nearly equally good, the difference of their accuracies then has the
# standard error sqrt(changed / n) for n questions. Write a function that returns the smallest whole number n for which
# 1.96 standard errors are at most `difference`. Both arguments are shares: 0.05 is five points.


# %%
def questions_needed(difference, changed):
    """The fewest questions with which a difference of this size can be seen."""
    ### BEGIN SOLUTION
    import math

    return math.ceil(changed * (1.96 / difference) ** 2)
    ### END SOLUTION


course.check("ex12_3", questions_needed)
