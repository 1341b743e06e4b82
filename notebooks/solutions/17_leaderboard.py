# %% [markdown]
# # Solutions: 17 · The leaderboard

# %%
import course
import tlkit as tl

# %% [markdown]
# Write the tool for tables whose answers to each question are published. `answers` is a DataFrame with one row
# for each question and one column for each model, 1 for right and 0 for wrong. Return a list of all separated pairs of
# models, each a tuple of two column names. Use McNemar's exact test (`stats.binomtest`) and Bonferroni's correction for
# the number of pairs.
#
# With a right answer `len(separated_pairs(real))` is 122.

# %%
from itertools import combinations

import pandas as pd
from scipy import stats


def separated_pairs(answers):
    """All pairs of columns that differ by McNemar's exact test, corrected."""
    ### BEGIN SOLUTION
    pairs = list(combinations(answers.columns, 2))
    separated = []
    for one, other in pairs:
        b = int((answers[one] > answers[other]).sum())  # only the first is right
        c = int((answers[one] < answers[other]).sum())
        if b + c and stats.binomtest(b, b + c).pvalue < 0.05 / len(pairs):
            separated.append((one, other))
    return separated
    ### END SOLUTION


answers = pd.read_csv(tl.DATA / "tickets/runs/answers.csv").query("split == 'test'")
real = answers.pivot(index="id", columns="run", values="exact").filter(like="cuda")
course.check("ex17_1", separated_pairs)
