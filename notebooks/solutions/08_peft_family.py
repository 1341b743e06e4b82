# %% [markdown]
# # Solutions: 8 · The PEFT family

# %%
import course

# %% [markdown]
# Write the two checks of this lesson as a function that you can call before every training. `base` is a model of
# transformers, `adapted` the same model wrapped by peft, and `tokens` are token ids of shape (rows, length). Return two
# numbers: how many parameters of `adapted` are trained, and how far the largest change of a single logit goes, up or
# down, from `base` to `adapted`. For a method that starts as the base model the second number has to be 0. Both
# models are in evaluation mode already.

# %%
import torch


def audit(base, adapted, tokens):
    """The number of trained parameters, and the largest absolute change of a logit."""
    ### BEGIN SOLUTION
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    with torch.no_grad():
        change = adapted(input_ids=tokens).logits - base(input_ids=tokens).logits
    return trained, change.abs().max().item()
    ### END SOLUTION


course.check("ex08_1", audit)
