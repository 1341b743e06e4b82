# %% [markdown]
# # Solutions: 14 · The comparison

# %%
import tlkit as tl

# %% [markdown]
# Ten strategies are compared, every pair of them, each pair by an interval at
# 95%. Suppose that in truth none is better than another. How many pairs do you expect to be called apart all the same?
# An expected number is a mean: it need not be whole, so do not round.

# %%
answer = None
### BEGIN SOLUTION
pairs = 10 * 9 / 2
answer = pairs * 0.05
### END SOLUTION
tl.check("ex14_1", answer)

# %% [markdown]
# Write the interval over seeds. `runs` is a table with a row
# for each run, in no particular order, and the columns `strategy`, `seed` and `perplexity`; it may hold other
# strategies too. Return the low and the high end of Student's 95% interval for the mean of `one` minus `other`, taken
# seed by seed.

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


tl.check("ex14_2", interval_of_difference)

# %% [markdown]
# Somebody tuned several strategies, and scored every run on validation text and on
# test text. `record` has a row for each run, with the columns `strategy`, `learning_rate`, `seed`,
# `validation_perplexity` and `test_perplexity`; each rate was run with the same seeds, and a run that diverged has
# infinity in both. All you need is there, and more than you may use. Write what belongs into a fair table: a dict from
# each strategy to one test perplexity, a mean over seeds.


# %%
def fair_scores(record):
    """Each strategy's mean test perplexity, at the rate a fair test would give it."""
    ### BEGIN SOLUTION
    means = record.groupby(["strategy", "learning_rate"])[
        ["validation_perplexity", "test_perplexity"]
    ].mean()
    chosen = means.validation_perplexity.groupby("strategy").idxmin()
    return {
        strategy: means.test_perplexity[place] for strategy, place in chosen.items()
    }
    ### END SOLUTION


tl.check("ex14_3", fair_scores)
