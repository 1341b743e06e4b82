# %% [markdown]
# # Solutions: 20 · Your own study

# %%
import course

# %% [markdown]
# A test split of 25 documents shows a difference of 0.08 nats a token, in the sense of *what this test can show*. You want it to show
# 0.02 nats. How many documents does the test split need then, if they are like these?

# %%
answer = None
### BEGIN SOLUTION
answer = 25 * (0.08 / 0.02) ** 2
### END SOLUTION
course.check("ex20_1", answer)

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


course.check("ex20_2", not_tuned)

# %% [markdown]
# Write a function that decides as a plan asks for. It gets the two ends of an interval for the difference of two
# perplexities in percent, the first strategy minus the second; the smallest difference that is worthwhile; a pair with
# what each of the two forgets, in percent; and how much may be forgotten. It returns
#
# - `"equal"` if the whole interval lies between -worthwhile and +worthwhile, whether it includes zero or not, because
#   then the difference does not matter;
# - `"first"` or `"second"`, whichever is better, if the interval is not like that and excludes zero, or `"too costly"`
#   if the better one forgets more than is allowed;
# - `"cannot tell"` otherwise, also where there is no interval and both ends are nan.


# %%
def decide(low, high, worthwhile, forgets, may_forget):
    """One of "equal", "first", "second", "too costly" and "cannot tell"."""
    ### BEGIN SOLUTION
    if -worthwhile < low and high < worthwhile:
        return "equal"
    if not (low > 0 or high < 0):
        return "cannot tell"
    better = 0 if high < 0 else 1
    if forgets[better] > may_forget:
        return "too costly"
    return ("first", "second")[better]
    ### END SOLUTION


course.check("ex20_3", decide)
