# %% [markdown]
# # Solutions: 19 · Ship it

# %%
import course

# %% [markdown]
# Write the last gate before a release goes out. `old` and `new` are lists with the answers of the
# running and the new release to the same questions, and `desks` lists the right ones. Return the list of reasons
# to stop, empty if the release may go out:
#
# - `"unknown"`, if the new release gives this answer more often than the old one;
# - `"all"`, if it has clearly lost over all questions;
# - then, in the order of `sorted`, the desks at which it has clearly lost.
#
# Count the questions that only the old release gets right (`lost`) and only the new one (`won`). It has clearly lost if
# `binomtest(lost, lost + won, alternative="greater")` (one-sided: gains stop nothing) has a p-value below 0.05,
# divided by the number of tests: one for each desk and one for all. If both are 0, there is nothing to test. (With
# three desks, six lost to none still pass.)

# %%
from scipy.stats import binomtest


def reasons_to_stop(old, new, desks):
    """Why the new release must not go out; an empty list if it may."""
    ### BEGIN SOLUTION
    reasons, names = [], sorted(set(desks))
    if new.count("unknown") > old.count("unknown"):
        reasons.append("unknown")
    for name in ["all", *names]:
        rows = [
            (a == desk, b == desk)
            for a, b, desk in zip(old, new, desks, strict=True)
            if name in ("all", desk)
        ]
        lost, won = rows.count((True, False)), rows.count((False, True))
        if lost + won == 0:
            continue
        test = binomtest(lost, lost + won, alternative="greater")
        if test.pvalue < 0.05 / (len(names) + 1):
            reasons.append(name)
    return reasons
    ### END SOLUTION


course.check("ex19_1", reasons_to_stop)
