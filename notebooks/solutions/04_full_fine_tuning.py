# %% [markdown]
# # Solutions: 4 · Full fine-tuning

# %%
import course

# %% [markdown]
# A training run reports a first loss of 3.1 nats per token. Near which perplexity must the baseline of the same model
# lie?

# %%
import math

answer = None
### BEGIN SOLUTION
answer = math.exp(3.1)
### END SOLUTION
course.check("ex04_1", answer)

# %% [markdown]
# A search that extends itself. `losses` maps each learning rate that was tried to its mean validation loss, which is
# `nan` if the run diverged; such a rate counts as tried, and as worse. Return a list: empty if the best rate has a worse
# one on both sides, else with the one rate to try next, a factor beyond the border.


# %%
import math


def next_rates(losses, factor=3.0):
    """The rates to try next: none, or one."""
    ### BEGIN SOLUTION
    finite = {rate: loss for rate, loss in losses.items() if not math.isnan(loss)}
    best = min(finite, key=finite.get)
    if best == max(losses):
        return [best * factor]
    if best == min(losses):
        return [best / factor]
    return []
    ### END SOLUTION


course.check("ex04_2", next_rates)

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
