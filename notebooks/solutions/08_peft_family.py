# %% [markdown]
# # Solutions: 8 · The PEFT family

# %%
import course

# %% [markdown]
# Write the two checks of this lesson as a function for the start of every training. `adapted` is a model wrapped by
# peft, in evaluation mode, and `tokens` are token ids of shape (rows, length). Return the number of trained parameters,
# and the largest absolute difference between a logit of `adapted` and the same logit with the adapter switched off,
# inside `with adapted.disable_adapter():`. For a method that starts as the base model the second number is 0. (This
# excludes PiSSA, which has changed $W$ itself, and prompt tuning, whose logits also cover its vectors.)

# %%
import torch


def audit(adapted, tokens):
    """The number of trained parameters, and the largest absolute change of a logit."""
    ### BEGIN SOLUTION
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    with torch.no_grad():
        logits = adapted(input_ids=tokens).logits
        with adapted.disable_adapter():
            change = logits - adapted(input_ids=tokens).logits
    return trained, change.abs().max().item()
    ### END SOLUTION


course.check("ex08_1", audit)
