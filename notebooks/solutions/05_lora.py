# %% [markdown]
# # Solutions: 5 · LoRA

# %%
import course

# %% [markdown]
# Once it is trained, an adapter can be merged into its matrix, and the model is then as fast as it was before. Write a
# function that returns the merged matrix. It gets three tensors, `weight` (outputs, inputs), `a` (r, inputs) and `b`
# (outputs, r), and the number `alpha`. The weight that is passed in must not be changed.


# %%
def merged(weight, a, b, alpha):
    """One matrix that does what the weight and its adapter do together."""
    ### BEGIN SOLUTION
    return weight + alpha / a.shape[0] * (b @ a)
    ### END SOLUTION


course.check("ex05_1", merged)

# %% [markdown]
# A mistake in a training program may leave some adapters without a gradient, and no error says so. Write the check that
# finds them in any model. `first` and `second` are dictionaries with the gradients after the first and the second step:
# `{name: p.grad for name, p in model.named_parameters() if p.requires_grad}`, copied before the next step. A gradient
# is a tensor, or None. Return a list with the names of all parameters that received no gradient, or only zeros, in
# *both* steps.


# %%
def dead_adapters(first, second):
    """Names of the parameters that are meant to train and cannot."""

    ### BEGIN SOLUTION
    def alive(gradient):
        return gradient is not None and bool(gradient.any())

    return [name for name in first if not (alive(first[name]) or alive(second[name]))]
    ### END SOLUTION


course.check("ex05_2", dead_adapters)
