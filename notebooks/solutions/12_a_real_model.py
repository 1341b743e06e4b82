# %% [markdown]
# # Solutions: 12 · A real model

# %%
import course

# %% [markdown]
# Write the function that lets a model choose among options. It gets a list with one entry for each option: the
# log-probabilities that the model gave to the tokens of that option, a list of numbers. It returns the place of the
# chosen option, counted from 0. The options differ in length, and a long one must not lose because it is long.


# %%
def chosen(options):
    """The place of the option that the model finds likeliest, token for token."""
    ### BEGIN SOLUTION
    means = [sum(option) / len(option) for option in options]
    return means.index(max(means))
    ### END SOLUTION


course.check("ex12_1", chosen)
