# %% [markdown]
# # Solutions: 15 · The comparison

# %%
import course

# %% [markdown]
# Write a judge for your own studies. `losses` has a row for each document and run, with the columns `strategy`, `seed`,
# `document` and `loss`. All runs read the same documents, but runs that failed are missing, so compare on the seeds
# that both strategies have. `questions` is the number of pairs in the study. Return the name of the better of the
# strategies `first` and `second` if the interval of their difference, over documents and seeds and corrected for the
# questions, excludes zero, and otherwise `"cannot tell"`.

# %%
from scipy import stats


def verdict(losses, first, second, questions=1):
    """The better of two strategies, or "cannot tell"."""
    ### BEGIN SOLUTION
    table = losses.pivot_table("loss", ["document", "seed"], "strategy")
    gap = (table[second] - table[first]).dropna()
    squares = 0
    for source in ("document", "seed"):
        means = gap.groupby(source).mean()
        t = stats.t.ppf(1 - 0.025 / questions, len(means) - 1)
        squares += (t * means.sem()) ** 2
    if abs(gap.mean()) <= squares**0.5:
        return "cannot tell"
    return first if gap.mean() > 0 else second
    ### END SOLUTION


course.check("ex15_1", verdict)
