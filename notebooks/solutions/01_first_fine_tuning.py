# %% [markdown]
# # Solutions: 1 · What can this machine do?

# %%
import course

# %% [markdown]
# A model of perplexity P gives the right token a probability of 1/P, on (geometric) average. A published Rust run began
# at a perplexity of 387,789, with a vocabulary of 151,936 tokens. By what factor is its average probability *smaller*
# than that of uniform guessing? Give it with at least two decimals.

# %%
answer = None
### BEGIN SOLUTION
answer = (1 / 151_936) / (1 / 387_789)
### END SOLUTION
course.check("ex01_1", answer)

# %% [markdown]
# The lesson compared all tensors with the file at once. If one of them differs, you want to know its name. Write a
# function that returns a list with the name of each parameter that is missing from the file or has other values there.
# `model` is any PyTorch model and `path` a safetensors file. As in the lesson, the file may store its values in 16 bits.

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


course.check("ex01_2", not_from_file)

# %% [markdown]
# Why did the published Rust program train random weights? It loaded its file into a list of variables *before* the
# model had registered any variable in it. All variables in the list were filled (there were none), and the call
# reported success. Write a loader that cannot make this mistake. `variables` and `saved` are dictionaries from names to tensors. If each
# variable has a saved tensor of the same name and shape, and each saved tensor a variable, fill the variables
# *in place* and return how many there are. Otherwise raise a `ValueError`.


# %%
def load(variables, saved):
    """Fill all variables from the file, or refuse."""
    ### BEGIN SOLUTION
    alone = variables.keys() ^ saved.keys()
    alone |= {
        name
        for name in variables.keys() & saved.keys()
        if variables[name].shape != saved[name].shape
    }
    if alone:
        raise ValueError(f"without a partner: {sorted(alone)}")
    for name, tensor in variables.items():
        tensor.copy_(saved[name])
    return len(variables)
    ### END SOLUTION


course.check("ex01_3", load)
