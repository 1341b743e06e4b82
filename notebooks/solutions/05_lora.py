# %% [markdown]
# # Solutions: 5 · LoRA

# %%
import course

# %% [markdown]
# Merge your own layers. `layer` is a `LoRALinear` as above, and its `base` may have a bias or none. Return an `nn.Linear`
# that gives the same outputs, and leave `layer` as it is, so that its training could go on.

# %%
from copy import deepcopy


def merge(layer):
    """An ordinary linear layer that computes what a LoRA layer does."""

    ### BEGIN SOLUTION
    merged = deepcopy(layer.base)
    merged.weight.data += layer.scaling * (layer.B @ layer.A).detach()
    return merged
    ### END SOLUTION


course.check("ex05_1", merge)
