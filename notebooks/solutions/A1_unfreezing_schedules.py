# %% [markdown]
# # Solutions: A1 · Unfreezing schedules

# %%
import course

# %% [markdown]
# ULMFiT also multiplies each column of the table: the rate rises in a straight line, then falls in another. Write this
# *slanted triangular* factor of a step. The steps are counted from 0, and `cut` is `math.floor(steps * cut_frac)`.
# Before the cut, $p$ is `step / cut`; from the cut on it is `1 - (step - cut) / (cut * (1 / cut_frac - 1))`. The factor
# is $(1 + p\,(\mathrm{ratio} - 1)) / \mathrm{ratio}$.

# %%
import math


def slanted(step, steps, cut_frac=0.1, ratio=32):
    """The learning rate of a step, as a share of the highest one."""
    ### BEGIN SOLUTION
    cut = math.floor(steps * cut_frac)
    p = step / cut if step < cut else 1 - (step - cut) / (cut * (1 / cut_frac - 1))
    return (1 + p * (ratio - 1)) / ratio
    ### END SOLUTION


course.check("exA1_1", slanted)
