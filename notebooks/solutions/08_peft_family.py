# %% [markdown]
# # Solutions: 8 · The PEFT family

# %%
import course

# %% [markdown]
# Decide about a new method. `new` and `lora` are arrays of losses of shape (documents, seeds), for the same documents
# and seeds. Return the two ends of the interval of the mean difference, by this lesson's formula for a study of
# `questions` methods, as perplexity above LoRA's in percent. If 0 lies between them, the two are not told apart.

# %%
import numpy as np
from scipy import stats


def interval(new, lora, questions=1):
    """The ends of the interval of a paired difference, in percent of perplexity."""
    ### BEGIN SOLUTION
    apart = new - lora
    squares = 0
    for axis in (0, 1):
        means = apart.mean(axis)
        t = stats.t.ppf(1 - 0.025 / questions, len(means) - 1)
        squares += (t * stats.sem(means)) ** 2
    half = squares**0.5
    return 100 * np.expm1(apart.mean() - half), 100 * np.expm1(apart.mean() + half)
    ### END SOLUTION


course.check("ex08_1", interval)
