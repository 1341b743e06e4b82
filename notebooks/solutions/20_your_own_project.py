# %% [markdown]
# # Solutions: 20 · Your own project

# %%
import course

# %% [markdown]
# Write the function that plans your own study. `pilot` is a list of paired differences, one for each *source* of a
# pilot run, and `reach` is the half-width that the final interval should have. Return the smallest number $n$ of test
# sources, from 2 up, for which $t_{n-1}\, s / \sqrt n$ is at most `reach`, where $s$ is the standard deviation of the
# differences in the pilot.

# %%
import numpy as np
from scipy import stats


def sources_needed(pilot, reach):
    """The smallest number of test sources that gives such an interval."""
    ### BEGIN SOLUTION
    s = np.std(pilot, ddof=1)
    n = 2
    while stats.t.ppf(0.975, n - 1) * s / n**0.5 > reach:
        n += 1
    return n
    ### END SOLUTION


course.check("ex20_1", sources_needed)
