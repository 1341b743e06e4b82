# %% [markdown]
# # Solutions: 5 · LoRA

# %%
import course

# %% [markdown]
# Adapt only chosen layers. Freeze `model`, replace each `nn.Linear` anywhere in it whose own name is in `names`, such as
# `{"q_proj", "v_proj"}`, by `wrap(layer)`, and return the model. In your code, `wrap` would be `LoRALinear`.

# %%
from torch import nn


def adapt(model, names, wrap):
    """Freeze a model, and wrap its linear layers of the given names."""
    ### BEGIN SOLUTION
    model.requires_grad_(False)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if name in names and isinstance(child, nn.Linear):
                setattr(parent, name, wrap(child))
    return model
    ### END SOLUTION


course.check("ex05_1", adapt)
