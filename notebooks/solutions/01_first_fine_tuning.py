# %% [markdown]
# # Solutions: 1 · First fine-tuning

# %%
import course

# %% [markdown]
# The lesson counted the tensors that are as in the file. If some are not, you want to know their names. Write a
# function that returns a list with the name of each parameter that is missing from the file or has other numbers there.
# `model` is any PyTorch model and `path` a safetensors file. As in the lesson, the file may store them in 16 bits.

# %%
from safetensors import safe_open


def not_from_file(model, path):
    """The names of the parameters that did not come from the file."""
    ### BEGIN SOLUTION
    with safe_open(path, "pt") as file:
        there = set(file.keys())
        return [
            name
            for name, weights in model.named_parameters()
            if name not in there or not file.get_tensor(name).float().equal(weights)
        ]
    ### END SOLUTION


course.check("ex01_1", not_from_file)
