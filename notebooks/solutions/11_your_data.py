# %% [markdown]
# # Solutions: 11 · Your data

# %%
import course

# %% [markdown]
# A tool to take to your own data. `train` and `test` are lists of texts. Return the places in `test`, counted from 0,
# of all texts that share a run of `n` words with any training text. Words are separated by spaces, and capitals do not
# matter.


# %%
def leaks(train, test, n):
    """Places of the test texts that were partly read in training."""

    ### BEGIN SOLUTION
    def runs(text):
        words = text.lower().split()
        return {tuple(words[at : at + n]) for at in range(len(words) - n + 1)}

    seen = set().union(*(runs(text) for text in train))
    return [at for at, text in enumerate(test) if runs(text) & seen]
    ### END SOLUTION


course.check("ex11_1", leaks)
