# %% [markdown]
# # Solutions: 5 · LoRA

# %%
import course

# %% [markdown]
# Write the check that finds dead adapters in any model. `first` and `second` are dictionaries with the gradients after
# the first and the second step: `{name: p.grad for name, p in model.named_parameters() if p.requires_grad}`, taken
# before `zero_grad`. A gradient is a tensor, or None. Return a list with the names of all parameters that received no
# gradient, or only zeros, in *both* steps.


# %%
def dead_adapters(first, second):
    """Names of the parameters that are meant to train and cannot."""

    ### BEGIN SOLUTION
    def alive(gradient):
        return gradient is not None and bool(gradient.any())

    return [name for name in first if not (alive(first[name]) or alive(second[name]))]
    ### END SOLUTION


course.check("ex05_1", dead_adapters)
