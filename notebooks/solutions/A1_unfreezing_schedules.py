# %% [markdown]
# # Solutions: A1 · Unfreezing schedules

# %%
import course

# %% [markdown]
# A model has 30 blocks and a tied head. Gradual unfreezing with 4 phases trains it for 200 steps, which are counted from
# 0. In which step is block 12 trained for the first time? Part 0 is the final norm, part 1 is block 29, and the
# embedding is part 31. As in the lesson, a part's phase is `part * 4 // parts`, and phase
# $g$ begins in step `g * steps // 4`.

# %%
answer = None
### BEGIN SOLUTION
part = 30 - 12
phase = part * 4 // 32
answer = phase * 200 // 4
### END SOLUTION
course.check("exA1_1", answer)

# %% [markdown]
# Write ULMFiT's slanted triangular schedule, as the factor by which the highest rate is multiplied in a step. The steps
# are counted from 0, and `cut` is `math.floor(steps * cut_frac)`. Before the cut, $p$ is `step / cut`; from the cut on it
# is `1 - (step - cut) / (cut * (1 / cut_frac - 1))`. The factor is $(1 + p\,(\mathrm{ratio} - 1)) / \mathrm{ratio}$.

# %%
import math


def slanted(step, steps, cut_frac=0.1, ratio=32):
    """The learning rate of a step, as a share of the highest one."""
    ### BEGIN SOLUTION
    cut = math.floor(steps * cut_frac)
    p = step / cut if step < cut else 1 - (step - cut) / (cut * (1 / cut_frac - 1))
    return (1 + p * (ratio - 1)) / ratio
    ### END SOLUTION


course.check("exA1_2", slanted)
