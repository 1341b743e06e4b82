# %% [markdown]
# # Solutions: 3 · A baseline to trust

# %%
import course

# %% [markdown]
# Compute the 95% bootstrap interval of the *bits per byte* over documents. Here `documents` is a list of pairs: a text,
# and the losses of its tokens in nats. Take 1,000 draws, each with as many documents as there are, and return the two
# values, low and high, between which 95% of the draws lie. Each byte counts the same.

# %%
import math
import random


def interval(documents, draws=1000):
    """Low and high end of the 95% bootstrap interval of the bits per byte."""
    ### BEGIN SOLUTION
    sums = [(sum(losses), len(text.encode())) for text, losses in documents]
    bits = []
    for _ in range(draws):
        nats, size = map(sum, zip(*random.choices(sums, k=len(sums)), strict=True))
        bits.append(nats / math.log(2) / size)
    bits.sort()
    return bits[round(0.025 * draws)], bits[round(0.975 * draws) - 1]
    ### END SOLUTION


course.check("ex03_1", interval)
