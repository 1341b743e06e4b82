# %% [markdown]
# # Solutions: 10 · Out of memory

# %%
import course

# %% [markdown]
# Find a micro-batch that fits. `step(rows)` runs a forward and backward pass with that many rows, and raises
# `torch.OutOfMemoryError` if they do not fit. Try `rows`, then half as many, rounded down, and so on. Return the first
# number that fits; if even one row does not, let the error through. Before each new try, the tensors of the failed one
# must be gone.

# %%
import torch


def rows_that_fit(step, rows):
    """Halve `rows` until `step(rows)` no longer runs out of memory."""
    ### BEGIN SOLUTION
    while True:
        try:
            step(rows)
            return rows
        except torch.OutOfMemoryError:
            if rows == 1:
                raise  # nothing is left to halve
        rows = rows // 2  # here the exception is gone, and the tensors with it
    ### END SOLUTION


course.check("ex10_1", rows_that_fit)
