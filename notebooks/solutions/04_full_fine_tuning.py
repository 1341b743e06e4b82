# %% [markdown]
# # Solutions: 4 · Full fine-tuning

# %%
import course

# %% [markdown]
# A training run reports a first loss of 3.1 nats per token. What is its perplexity?

# %%
import math

answer = None
### BEGIN SOLUTION
answer = math.exp(3.1)
### END SOLUTION
course.check("ex04_1", answer)

# %% [markdown]
# This lesson measured a gain and a cost. Write a function that gives both in percent: by how much perplexity on Rust
# fell (the gain), and by how much perplexity on general text rose (the cost).


# %%
def gain_and_cost(before, after, general_before, general_after):
    """Both in percent of what was there before."""
    ### BEGIN SOLUTION
    return 100 * (1 - after / before), 100 * (general_after / general_before - 1)
    ### END SOLUTION


course.check("ex04_2", gain_and_cost)

# %% [markdown]
# Early stopping ends training after `patience` evaluations in a row without a new best loss, and brings the best
# weights back. Which evaluation do these weights come from? The first one has the number 0.


# %%
def best_evaluation(validation_losses, patience):
    """The place of the weights that early stopping brings back."""
    ### BEGIN SOLUTION
    best, without_gain = 0, 0
    for place, loss in enumerate(validation_losses[1:], 1):
        if loss < validation_losses[best]:
            best, without_gain = place, 0
        else:
            without_gain += 1
        if without_gain >= patience:
            break
    return best
    ### END SOLUTION


course.check("ex04_3", best_evaluation)
