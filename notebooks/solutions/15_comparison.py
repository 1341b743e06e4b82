# %% [markdown]
# # Solutions: 15 · The comparison

# %%
import course

# %% [markdown]
# Write a function for the paired interval over seeds. `runs` is a table with one row for each run, in no particular
# order. Its columns are `strategy`, `seed` and `perplexity`, and it may contain other strategies too. Return the low
# and the high end of Student's 95% interval for the mean of `one` minus `other`, taken seed by seed.

# %%
import math
from scipy import stats


def interval_of_difference(runs, one, other):
    """Low and high end of the 95% interval."""
    ### BEGIN SOLUTION
    by_seed = runs.pivot(index="seed", columns="strategy", values="perplexity")
    differences = by_seed[one] - by_seed[other]
    t = stats.t.ppf(0.975, len(differences) - 1)
    half = t * differences.std() / math.sqrt(len(differences))
    return differences.mean() - half, differences.mean() + half
    ### END SOLUTION


course.check("ex15_1", interval_of_difference)

# %% [markdown]
# Somebody tuned several strategies and scored every run on validation text and on test text. `record` has one row for
# each run, with the columns `strategy`, `learning_rate`, `seed`, `validation_perplexity` and `test_perplexity`. Each
# rate was run with the same seeds, and a run that diverged has infinity in both scores. One of the two scores may not
# be used for choosing. Return what belongs in a fair table: a dict from each strategy to one test perplexity, which is
# a mean over seeds.


# %%
def fair_scores(record):
    """Each strategy's mean test perplexity, at the rate chosen fairly."""
    ### BEGIN SOLUTION
    means = record.groupby(["strategy", "learning_rate"])[
        ["validation_perplexity", "test_perplexity"]
    ].mean()
    chosen = means.validation_perplexity.groupby("strategy").idxmin()
    return {
        strategy: means.test_perplexity[place] for strategy, place in chosen.items()
    }
    ### END SOLUTION


course.check("ex15_2", fair_scores)
