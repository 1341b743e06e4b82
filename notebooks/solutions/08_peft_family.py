# %% [markdown]
# # Solutions: 8 · The PEFT family

# %%
import course

# %% [markdown]
# See at a glance what will be trained. Return a dictionary with the number of trained parameters of each kind. Two
# parameters are of one kind if their names differ only in the number of the block. So write `*` for each part of a name
# that is a number: `layers.0.q_proj.bias` and `layers.1.q_proj.bias` both count for `layers.*.q_proj.bias`. Try it on
# this lesson's models.


# %%
def trained_kinds(model):
    """From each kind of trained parameter to how many there are."""
    ### BEGIN SOLUTION
    counts = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            kind = ".".join("*" if part.isdigit() else part for part in name.split("."))
            counts[kind] = counts.get(kind, 0) + parameter.numel()
    return counts
    ### END SOLUTION


course.check("ex08_1", trained_kinds)
