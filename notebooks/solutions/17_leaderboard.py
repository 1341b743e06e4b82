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
# the two shares excludes zero, and False otherwise. Take the correlation as zero and correct for nothing, because it is
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
# Write the tool for the day on which the answers to each question are published. `answers` is a DataFrame with one row
# for each question and one column for each model, 1 for a right answer and 0 for a wrong one. Return a list of all pairs
# of models that are separated, each pair as a tuple of two column names. Use paired differences, the normal
# distribution, and Bonferroni's correction for the number of pairs. The order of the list does not matter.

# %%
from itertools import combinations
from scipy import stats


def separated_pairs(answers):
    """All pairs of columns whose corrected interval excludes zero."""
    ### BEGIN SOLUTION
    pairs = list(combinations(answers.columns, 2))
    factor = stats.norm.ppf(1 - 0.05 / len(pairs) / 2)
    separated = []
    for one, other in pairs:
        differences = answers[one] - answers[other]
        error = differences.std() / len(answers) ** 0.5
        if abs(differences.mean()) > factor * error:
            separated.append((one, other))
    return separated
    ### END SOLUTION


course.check("ex17_3", separated_pairs)
