# %% [markdown]
# # Solutions: 5 · LoRA

# %%
import course

# %% [markdown]
# Beside a matrix of 512 x 192, an adapter of rank 8 has few values. What is the smallest rank at
# which the adapter has *more* values than the matrix itself?

# %%
answer = None
### BEGIN SOLUTION
answer = 512 * 192 // (512 + 192) + 1
### END SOLUTION
course.check("ex05_1", answer)

# %% [markdown]
# Once it is trained, an adapter can be merged into its matrix, and the model is then as fast as it was before. Write a
# function that returns the merged matrix. It gets three tensors with these shapes: `weight` (outputs, inputs),
# `a` (r, inputs) and `b` (outputs, r), and the number `alpha`. The weight that is passed in must not be changed.


# %%
def merged(weight, a, b, alpha):
    """One matrix that does what the weight and its adapter do together."""
    ### BEGIN SOLUTION
    return weight + alpha / a.shape[0] * (b @ a)
    ### END SOLUTION


course.check("ex05_2", merged)

# %% [markdown]
# A trainer with a mistake may leave some adapters without a gradient. Write the check that finds them. Your function
# gets the table of `check_gradient_flow`, a pandas DataFrame with a row for each tensor. Four of its
# columns matter here: `tensor` (the name), `declared` (True where it is meant to train), and `norm_1` and `norm_2`. These
# are the norms of its gradient in the first and in the second step, or NaN where there was no gradient at all. Return a
# list with the names of all tensors that are meant to train and received no gradient, or only zeros, in *both* steps.


# %%
def dead_adapters(table):
    """Names of the tensors that are meant to train and cannot."""
    ### BEGIN SOLUTION
    received = (table.norm_1 > 0) | (table.norm_2 > 0)
    return list(table.tensor[table.declared & ~received])
    ### END SOLUTION


course.check("ex05_3", dead_adapters)
