# %% [markdown]
# # Solutions: 20 · Your own project

# %%
import course

# %% [markdown]
# Write a function that finds the strategies whose learning rate was not found fairly. It gets a list of runs, each a
# tuple of strategy, learning rate, split and score, where a lower score is better and no rate was run twice. Return the
# set of all strategies for which at least one of three things is true: a run was scored on another split than
# `"validation"`; it had fewer runs than the strategy with the most; or its best rate is the lowest or the highest of
# those that were tried for it.


# %%
def not_tuned(runs):
    """The set of strategies whose rate was not found fairly."""
    ### BEGIN SOLUTION
    by_strategy = {}
    for strategy, rate, split, score in runs:
        by_strategy.setdefault(strategy, []).append((score, rate, split))
    most = max(map(len, by_strategy.values()))
    found = set()
    for strategy, tried in by_strategy.items():
        rates = [rate for _, rate, _ in tried]
        best = min(tried)[1]
        elsewhere = any(split != "validation" for _, _, split in tried)
        if elsewhere or len(tried) < most or best in (min(rates), max(rates)):
            found.add(strategy)
    return found
    ### END SOLUTION


course.check("ex20_1", not_tuned)
