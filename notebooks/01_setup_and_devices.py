# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] slideshow={"slide_type": "slide"}
# # 1 · What can this machine do?
#
# *What can this machine do, and did the weights load?*
#
# Before any training, ask the machine three questions. Where can it compute? How much memory is there?
# Does the model that is about to be adapted really contain pretrained weights?
# The third question sounds odd. One of the published reports behind this workbook trained a model whose
# weight file had loaded *nothing*, and blamed the GPU for the garbage that came out.
#
# **You will** probe the device, load the bundled model, and see what a loading check is for.
# About 3 minutes.

# %% slideshow={"slide_type": "subslide"}
from safetensors import safe_open

import tlkit as tl

profile = tl.setup()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The device
#
# `probe` looks for an NVIDIA, Apple or Intel GPU and tries a small multiplication on it before it believes in it.
# With none, it describes the CPU. Memory counts a container's limit where there is one.

# %% tags=["nbval-ignore-output"]
device = tl.probe()
print(f"{device.kind}: {device.name}, {device.cores} cores")
print(
    f"memory: {device.free_memory / 1e9:.1f} GB free "
    f"of {device.total_memory / 1e9:.1f} GB"
)
print("bf16:", "native" if device.native_bf16 else "not native")
for note in device.notes:
    print("note:", note)

# %%
tl.claim(
    "Free memory is within total memory",
    0 < device.free_memory <= device.total_memory,
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The model
#
# The bundled model is small, but it is a real one: the Qwen2 architecture, pretrained on technical documentation
# of Python, PostgreSQL and SQLite. It has never seen a line about Rust. That is what we shall teach it.

# %%
tiny = tl.load_model("tiny")
print(tiny)

# %% [markdown] slideshow={"slide_type": "subslide"}
# It says that all its tensors came from the file. Do not believe it: open the file and compare.

# %%
with safe_open(tl.BUNDLED / "model.safetensors", "pt") as file:
    same = [
        file.get_tensor(name).float().equal(weights)
        for name, weights in tiny.model.named_parameters()
    ]
tl.claim(f"All {len(same)} tensors are what the file says", all(same))

# %% [markdown] slideshow={"slide_type": "subslide"}
# *Perplexity* says how many tokens a model is torn between, on average; lesson 3 defines it.
#
# **Predict first.** A model that guesses uniformly among V tokens has perplexity exactly V: it is as unsure as a
# V-sided die. The vocabulary here has 4,096 tokens. What will a model with *random* weights score, near 4,096, far
# below, or above? And the pretrained one?

# %%
random_weights = tl.load_model("tiny", random_init=True)
text = tl.load_corpus("rust").validation[:10]
pretrained = tl.perplexity(tiny.model, tiny.tokenizer, text)
untrained = tl.perplexity(random_weights.model, random_weights.tokenizer, text)

# %% tags=["nbval-ignore-output"]
scores = tl.score_table({"random weights": untrained, "pretrained": pretrained})
scores.round(2)

# %%
tl.perplexity_chart(scores)

# %%
vocabulary = tiny.model.config.vocab_size
print("vocabulary:", vocabulary)
tl.claim(
    "Random weights score within 10% of the vocabulary size",
    abs(untrained.perplexity / vocabulary - 1) < 0.10,
)
tl.claim(
    "Pretrained weights score below a quarter of it",
    pretrained.perplexity < vocabulary / 4,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The same can be read without a number. Both models continue the same prompt:

# %%
written = tl.generate(random_weights.model, tiny.tokenizer, ["The result is"])[0]
readable = tl.generate(tiny.model, tiny.tokenizer, ["The result is"])[0]

# %% tags=["nbval-ignore-output"]
print("random:    ", written)
print("pretrained:", readable)

# %% [markdown] slideshow={"slide_type": "subslide"}
# A baseline near or above the vocabulary size is not a hard text. Either the model knows nothing, or the evaluation
# scores the wrong thing; lesson 4 meets the second case. The published Rust runs reported 250,072 and 387,789 for a
# vocabulary of 151,936, and went on training.
#
# **Take away.** Check the device by using it. Check the weights against the file, and by one perplexity.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `tl.check` says what it looked at and, if the answer
# is not right yet, why. Stuck? `tl.hint("ex01_1", 1)` is a first push, `tl.hint("ex01_1", 2)` says more. After *Restart
# Kernel* run the next cell first; then each exercise works by itself.

# %%
import tlkit as tl

# %% [markdown]
# **Quiz.** `torch.cuda.is_available()` returns True. What do you know?
#
# - **a** Training will run on the GPU.
# - **b** The GPU has room for the model.
# - **c** PyTorch was built for CUDA and its driver reports a GPU. Nothing has been computed on it.
# - **d** Models that are loaded from now on lie on the GPU.

# %%
tl.quiz("quiz01")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 1.1** (first steps). A model of perplexity P gives the right token a probability of 1/P, on (geometric)
# average. A published Rust run began at a perplexity of 387,789, with a vocabulary of 151,936 tokens. By what factor is
# its average probability *smaller* than that of uniform guessing? Give it with at least two decimals.

# %%
answer = None
# your code here
tl.check("ex01_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 1.2** (apply it). The lesson counted how many tensors are what the file says. If one is not, you want its
# name. Write a function that returns a list with the name of each parameter that is missing from the file, or has other
# values there. `model` is any PyTorch model and `path` a safetensors file. As in the lesson, the file may keep its
# values in 16 bits.

# %%
from safetensors import safe_open


def not_from_file(model, path):
    """The names of the parameters that did not come from the file."""
    # your code here


tl.check("ex01_2", not_from_file)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 1.3** (think further). Why did the published Rust program train random weights? It loaded its file into a
# list of variables *before* the model had put any variable there. All variables in the list were filled (there were
# none), and the call reported success. Write a loader that cannot do that. `variables` and `saved` are dictionaries
# from names to tensors. If each variable has a saved tensor of the same name and shape, and each saved tensor a
# variable, fill the variables *in place* and return how many there are. Otherwise raise a `ValueError`.


# %%
def load(variables, saved):
    """Fill all variables from the file, or refuse."""
    # your code here


tl.check("ex01_3", load)

# %% [markdown]
# Next: [3 · Data and a baseline to trust](03_data_and_baseline.ipynb)
