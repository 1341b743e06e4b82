# %% [markdown]
# # Solutions: 18 · Scaling out

# %%
import course

# %% [markdown]
# A card cannot hold all its rows at once, so it passes them in micro-batches. Write one update for this case.
#
# - `parts` is this card's list of `(rows, labels)`. A micro-batch may have fewer labels than another, or none at all.
# - Send the gradients once: under `with accelerator.no_sync(model):` DDP only adds them up. (FSDP does too,
#   but then each card holds whole gradients: as many GB as with ZeRO-2, 37 for Llama-2-7B in place of 13.5.)
# - Clip to a norm of 1, and return the mean loss of all tokens in the batch, the same number on each card.
#
# The check plays two cards. In `train.py`, with a `batch_size` of `4 // size`, this loop calls your function:
#
# ```python
# batches = iter(loader)
# while parts := list(itertools.islice(batches, 2)):
#     accelerator.print(kind, update(accelerator, model, optimizer, parts))
# ```

# %%
from contextlib import nullcontext


def update(accelerator, model, optimizer, parts):
    """Take one step with all cards, and return the loss of the whole batch."""
    ### BEGIN SOLUTION
    tokens = sum((labels[:, 1:] != -100).sum() for _, labels in parts)
    T = accelerator.gather(tokens).sum().item()
    divisor, total = T / accelerator.num_processes, 0
    for k, (rows, labels) in enumerate(parts, 1):
        with nullcontext() if k == len(parts) else accelerator.no_sync(model):
            loss = model(rows, labels=labels, num_items_in_batch=divisor).loss
            accelerator.backward(loss)
        total += loss.detach()
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return accelerator.gather(total).mean().item()
    ### END SOLUTION


course.check("ex18_1", update)
