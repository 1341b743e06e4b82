# %% [markdown]
# # Solutions: 17 · The leaderboard

# %%
import course

# %% [markdown]
# You plan a test of your own, with independent questions. A model will answer about half of them correctly. How many
# questions does the test need, at least, so that the 95% interval of its score reaches at most 3 points to each side
# (1.96 times the standard error)?

# %%
answer = None
### BEGIN SOLUTION
import math

answer = math.ceil(0.5 * 0.5 * (1.96 / 0.03) ** 2)
### END SOLUTION
course.check("ex17_1", answer)

# %% [markdown]
# Write a function that says whether two rows of a leaderboard can be told apart. It takes how many questions each of the
# two answered correctly, and how many questions the test has. It returns True if the 95% interval of the difference of
# the two shares excludes zero, and False otherwise. Take the covariance as zero and correct for nothing, because it is
# one pair. At least one of the two scores will lie strictly between 0 and 100%.

# %%
import math


def can_be_told_apart(right, other, questions):
    """True if the 95% interval of the difference excludes zero."""
    ### BEGIN SOLUTION
    one, two = right / questions, other / questions
    error = math.sqrt((one * (1 - one) + two * (1 - two)) / questions)
    return abs(one - two) > 1.96 * error
    ### END SOLUTION


course.check("ex17_2", can_be_told_apart)

# %% [markdown]
# Suppose that the authors publish the answers to each question. `one` and `other` are arrays with a 1 for each question
# that was answered correctly and a 0 for each other, and both have the questions in the same order. Return the standard
# error of the difference of the two scores. Now nothing has to be assumed about the covariance, because the answers
# show it. Divide by the number of questions n in each variance and not by n − 1, as NumPy does unless it is told
# otherwise.

# %%
import numpy as np


def paired_error(one, other):
    """Standard error of the difference of the two scores."""
    ### BEGIN SOLUTION
    differences = np.asarray(one, dtype=float) - np.asarray(other, dtype=float)
    return differences.std() / np.sqrt(len(differences))
    ### END SOLUTION


course.check("ex17_3", paired_error)
