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

# %% [markdown]
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

# %%
from safetensors import safe_open

from tlkit.charts import perplexity_chart
from tlkit.corpus import load_corpus
from tlkit.devices import probe
from tlkit.evaluation import generate, perplexity, score_table
from tlkit.models import BUNDLED, load_model
from tlkit.settings import setup

profile = setup()

# %% [markdown]
# ## The device
#
# `probe` looks for an NVIDIA, Apple or Intel GPU and tries a small multiplication on it before it believes in it.
# With none, it describes the CPU. Memory counts a container's limit where there is one.

# %% tags=["nbval-ignore-output"]
device = probe()
print(f"{device.kind}: {device.name}, {device.cores} cores")
print(f"memory: {device.free_memory / 1e9:.1f} GB free of {device.total_memory / 1e9:.1f} GB")
print("native bf16:", device.native_bf16)
for note in device.notes:
    print("note:", note)

# %%
assert 0 < device.free_memory <= device.total_memory
print("free memory is within total memory: True")

# %% [markdown]
# ## The model
#
# The bundled model is small, but it is a real one: the Qwen2 architecture, pretrained on technical documentation
# of Python, PostgreSQL and SQLite. It has never seen a line about Rust. That is what we shall teach it.

# %%
tiny = load_model("tiny")
print(tiny)

# %% [markdown]
# It says that all its tensors came from the file. Do not believe it: open the file and compare.

# %%
with safe_open(BUNDLED / "model.safetensors", "pt") as file:
    same = [file.get_tensor(name).float().equal(weights) for name, weights in tiny.model.named_parameters()]
print(f"{sum(same)} of {len(same)} tensors are what the file says")
assert all(same)

# %% [markdown]
# *Perplexity* says how many tokens a model is torn between, on average; lesson 2 defines it.
#
# **Predict first.** A model that guesses uniformly among V tokens has perplexity exactly V: it is as unsure as a
# V-sided die. The vocabulary here has 4,096 tokens. What will a model with *random* weights score, near 4,096, far
# below, or above? And the pretrained one?

# %%
random_weights = load_model("tiny", random_init=True)
text = load_corpus("rust").validation[:10]
pretrained = perplexity(tiny.model, tiny.tokenizer, text)
untrained = perplexity(random_weights.model, random_weights.tokenizer, text)

# %% tags=["nbval-ignore-output"]
scores = score_table({"random weights": untrained, "pretrained": pretrained})
scores.round(2)

# %%
perplexity_chart(scores)

# %%
vocabulary = tiny.model.config.vocab_size
print("vocabulary:", vocabulary)
print("random weights score within 10% of the vocabulary size:", abs(untrained.perplexity / vocabulary - 1) < 0.10)
print("pretrained weights score below a quarter of it:", pretrained.perplexity < vocabulary / 4)
assert abs(untrained.perplexity / vocabulary - 1) < 0.10
assert pretrained.perplexity < vocabulary / 4

# %% [markdown]
# The same can be read without a number. Both models continue the same prompt:

# %%
written = generate(random_weights.model, tiny.tokenizer, ["The result is"])[0]
readable = generate(tiny.model, tiny.tokenizer, ["The result is"])[0]

# %% tags=["nbval-ignore-output"]
print("random:    ", written)
print("pretrained:", readable)

# %% [markdown]
# A baseline near or above the vocabulary size is not a hard text. Either the model knows nothing, or the evaluation
# scores the wrong thing; lesson 3 meets the second case. The published Rust runs reported 250,072 and 387,789 for a
# vocabulary of 151,936, and went on training.
#
# **Take away.** Check the device by using it. Check the weights against the file, and by one perplexity.
#
# Next: [2 · Data and baseline](02_data_and_baseline.ipynb)
