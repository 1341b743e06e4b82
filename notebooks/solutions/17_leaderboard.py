# %% [markdown]
# # Solutions: 17 · The leaderboard

# %%
import course
import tlkit as tl

# %% [markdown]
# Write the tool for tables whose answers to each question are published. `answers` is a DataFrame with one row
# for each question and one column for each model, 1 for a right answer and 0 for a wrong one. Return a list of all pairs
# of models that are separated, each pair as a tuple of two column names. Use paired differences, the normal
# distribution, and Bonferroni's correction for the number of pairs.
#
# With a right answer `len(separated_pairs(real))` is 136.

# %%
from itertools import combinations

import pandas as pd
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


answers = pd.read_csv(tl.DATA / "tickets/runs/answers.csv").query("split == 'test'")
real = answers.pivot(index="id", columns="run", values="exact").filter(like="cuda")
course.check("ex17_1", separated_pairs)
