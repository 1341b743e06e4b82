# %% [markdown]
# # Solutions: 11 · Your data

# %%
import course

# %% [markdown]
# How much padding would your data need? `lengths` lists the number of tokens of each row, and batches of `size` rows
# are taken in this order; the last one may have fewer. Each batch is padded to its own longest row. Return the share of
# all places that is padding, a number from 0 to 1. In the lesson it was 0.19 in random order; sort your lengths and see
# what becomes of it.


# %%
def padded_share(lengths, size):
    """The share of places in all batches together that is padding."""
    ### BEGIN SOLUTION
    batches = [lengths[at : at + size] for at in range(0, len(lengths), size)]
    places = sum(len(batch) * max(batch) for batch in batches)
    return 1 - sum(lengths) / places
    ### END SOLUTION


course.check("ex11_1", padded_share)

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


course.check("ex11_2", leaks)
