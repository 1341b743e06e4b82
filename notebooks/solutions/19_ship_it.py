# %% [markdown]
# # Solutions: 19 · Ship it

# %%
import course

# %% [markdown]
# Write the last gate before a release goes out. `old` and `new` are lists with the answers of the
# running and the new release to the same questions, and `desks` is a list of the right ones. Return a list of the
# reasons to stop, which is empty if the release may go out:
#
# - `"unknown"`, if the new release gives this answer more often than the old one;
# - then, in the order of `sorted`, the desks at which it has clearly lost. Among a desk's questions, count those that
#   only the old release gets right, and those that only the new one does. The new one has lost if fair coins give the
#   old one so many or more with a probability (`binomtest` with `alternative="greater"`) below 0.05, divided by the
#   number of desks, because each is one more chance to err.

# %%
from scipy.stats import binomtest


def reasons_to_stop(old, new, desks):
    """Why the new release must not go out; an empty list if it may."""
    ### BEGIN SOLUTION
    reasons, names = [], sorted(set(desks))
    if new.count("unknown") > old.count("unknown"):
        reasons.append("unknown")
    for name in names:
        rows = [
            (a, b) for a, b, desk in zip(old, new, desks, strict=True) if desk == name
        ]
        lost = sum(a == name and b != name for a, b in rows)
        won = sum(b == name and a != name for a, b in rows)
        if lost + won == 0:
            continue
        test = binomtest(lost, lost + won, alternative="greater")
        if test.pvalue < 0.05 / len(names):
            reasons.append(name)
    return reasons
    ### END SOLUTION


course.check("ex19_1", reasons_to_stop)
