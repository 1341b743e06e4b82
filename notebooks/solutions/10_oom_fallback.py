# %% [markdown]
# # Solutions: 10 · Out of memory

# %%
import course

# %% [markdown]
# Compute the gradients of a batch in smaller micro-batches. `inputs` and `targets` have the shape (rows, tokens). At
# most `size` rows may pass through `model` at once, and `model(inputs)` returns scores of shape (rows, tokens,
# vocabulary). The loss is the mean cross-entropy over all targets of the batch that count; a target of -100 does not.
# Leave the gradients of the *whole* batch in the weights, which have no gradients yet, and return the loss of the whole
# batch. The last micro-batch may be smaller, and a micro-batch may have no target that counts.

# %%
from torch.nn.functional import cross_entropy


def gradients_in_pieces(model, inputs, targets, size):
    """Gradients and loss as if the whole batch had passed at once."""
    ### BEGIN SOLUTION
    counted, loss = (targets != -100).sum(), 0.0
    for some_inputs, some_targets in zip(
        inputs.split(size), targets.split(size), strict=True
    ):
        scores = model(some_inputs).flatten(0, 1)
        share = cross_entropy(scores, some_targets.flatten(), reduction="sum") / counted
        share.backward()
        loss += share.item()
    return loss
    ### END SOLUTION


course.check("ex10_1", gradients_in_pieces)
