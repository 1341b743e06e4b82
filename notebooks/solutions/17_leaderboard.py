# %% [markdown]
# # Solutions: 17 · The leaderboard

# %%
import course

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


course.check("ex17_1", separated_pairs)
