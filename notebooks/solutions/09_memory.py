# %% [markdown]
# # Solutions: 9 · Anatomy of a training step

# %%
import course
import tlkit as tl

# %% [markdown]
# A strategy trains 29,865,088 of the 494,032,768 values, in fp32 with AdamW;
# the others are frozen. How many GB (of a billion bytes) do weights, gradients and AdamW's averages take together?

# %%
answer = None
### BEGIN SOLUTION
answer = (494_032_768 * 4 + 29_865_088 * (4 + 8)) / 1e9
### END SOLUTION
course.check("ex09_1", answer)

# %% [markdown]
# With one short row, the end of the backward pass needs most. With more
# rows, the moment of the loss overtakes it. Given the sizes for *one* row, as `closed_form` returns them, return
# the smallest number of rows with which the loss needs more than the end.

# %%
from tlkit.fitting.estimate import closed_form

one_row = closed_form(
    "qwen2-0.5b", batch_size=1, sequence_length=512
)  # the names of the parts are its keys


def rows_until_the_loss_needs_most(one_row):
    """The smallest number of rows, all in one batch."""
    ### BEGIN SOLUTION
    lasting = one_row["weights"] + one_row["optimizer state"]
    rows = 1
    while (
        lasting + rows * (one_row["activations"] + one_row["logits and loss"])
        <= one_row["at the end"]
    ):
        rows += 1
    return rows
    ### END SOLUTION


course.check("ex09_2", rows_until_the_loss_needs_most)

# %% [markdown]
# The published table adds up parts that are not alive together. Do better: a
# log says what was made and freed in a step, in order, in pairs: `("logits", 7)` for 7 GB more, `("logits", -7)` for 7
# GB less. Return what is alive at the moment when most is: a dict with the size of each name. Names of size 0 may be
# there or not.


# %%
def alive_at_the_peak(log):
    """Sizes by name at the moment when their sum is largest."""
    ### BEGIN SOLUTION
    alive, at_the_peak = {}, {}
    for name, size in log:
        alive[name] = alive.get(name, 0) + size
        if sum(alive.values()) > sum(at_the_peak.values()):
            at_the_peak = dict(alive)  # a copy: `alive` goes on changing
    return at_the_peak
    ### END SOLUTION


course.check("ex09_3", alive_at_the_peak)
