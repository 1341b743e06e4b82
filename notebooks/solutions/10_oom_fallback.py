# %% [markdown]
# # Solutions: 10 · Out of memory

# %%
import course

# %% [markdown]
# A card prints the message below. How many more MiB would have had to be free for this one tensor? And how many MiB of
# the card are neither free nor allocated by PyTorch? (They belong to the driver, to other programs, and to what PyTorch
# keeps in reserve.) Answer with both numbers, in this order.

# %%
message = """CUDA out of memory. Tried to allocate 298.00 MiB. GPU 0 has a total
capacity of 8.00 GiB of which 120.00 MiB is free. Of the allocated memory 7.10 GiB is
allocated by PyTorch."""
answer = None
### BEGIN SOLUTION
answer = (298 - 120, 8 * 1024 - 120 - 7.1 * 1024)
### END SOLUTION
course.check("ex10_1", answer)

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


course.check("ex10_2", gradients_in_pieces)
