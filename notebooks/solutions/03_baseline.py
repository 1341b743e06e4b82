# %% [markdown]
# # Solutions: 3 · A baseline to trust

# %%
import course

# %% [markdown]
# Compute the 95% interval of a perplexity by the bootstrap over *documents*. Here `documents` is a list of documents, and
# each document is a list with the loss of every token in nats. Take 1,000 draws, each with as many documents as there
# are, and return the two perplexities, low and high, between which 95% of the draws lie. Each token counts the same.

# %%
import math
import random


def interval(documents, draws=1000):
    """Low and high end of the 95% bootstrap interval, over documents."""
    ### BEGIN SOLUTION
    sums = [(sum(losses), len(losses)) for losses in documents]
    perplexities = []
    for _ in range(draws):
        drawn = random.choices(sums, k=len(sums))
        perplexities.append(
            math.exp(
                sum(nats for nats, _ in drawn) / sum(tokens for _, tokens in drawn)
            )
        )
    perplexities.sort()
    return perplexities[round(0.025 * draws)], perplexities[round(0.975 * draws) - 1]
    ### END SOLUTION


course.check("ex03_1", interval)
