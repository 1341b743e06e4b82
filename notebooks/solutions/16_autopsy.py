# %% [markdown]
# # Solutions: 16 · The autopsy

# %%
import course
import tlkit as tl

# %% [markdown]
# Let the three checks stop a training that would be wasted. Write a function that returns a `TrainerCallback`. Its
# `on_train_begin` gets `model` and `train_dataloader` by name, measures as in the lesson and, if a check fails, raises a
# `ValueError` that names each complaint: `loading`, `evaluation`, `count`. Then one line guards any training of a causal
# language model:
#
# ```python
# trainer.add_callback(preflight(trainer.evaluate()["eval_loss"], planned=812_544))
# ```


# %%
import math

import torch
from transformers import TrainerCallback


def preflight(eval_loss, planned):
    """A callback that raises a ValueError before the first step if a check fails."""
    ### BEGIN SOLUTION

    class PreFlight(TrainerCallback):
        @torch.no_grad()
        def on_train_begin(
            self, args, state, control, model, train_dataloader, **others
        ):
            first = model.eval()(**next(iter(train_dataloader))).loss.item()
            trained = model.num_parameters(only_trainable=True)
            found = []
            if min(first, eval_loss) >= math.log(model.config.vocab_size) - 1:
                found.append("loading")
            elif abs(first - eval_loss) > 1:
                found.append("evaluation")
            if trained != planned:
                found.append("count")
            if found:
                losses = f"first loss {first:.1f}, eval loss {eval_loss:.1f}"
                raise ValueError(
                    f"{found}: {losses}, {trained:,} trained of {planned:,}"
                )

    return PreFlight()
    ### END SOLUTION


course.check("ex16_1", preflight)
