# %% [markdown]
# # Solutions: 11 · Your data

# %%
import course

# %% [markdown]
# `train` and `test` are lists of texts. Return the positions in `test`, counted from 0, of all texts that share `n`
# consecutive words with any training text. Words are separated by spaces, and capitals do not matter.


# %%
def leaks(train, test, n):
    """Positions of the test texts that were partly read in training."""

    ### BEGIN SOLUTION
    def ngrams(text):
        words = text.lower().split()
        return {tuple(words[at : at + n]) for at in range(len(words) - n + 1)}

    seen = set().union(*(ngrams(text) for text in train))
    return [at for at, text in enumerate(test) if ngrams(text) & seen]
    ### END SOLUTION


course.check("ex11_1", leaks)
