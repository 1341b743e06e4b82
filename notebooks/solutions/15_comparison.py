# %% [markdown]
# # Solutions: 15 · The comparison

# %%
import course

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


course.check("ex15_1", fair_scores)
