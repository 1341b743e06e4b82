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
# # Live demo
#
# Five panels for a room with a projector. Ask the question, let people guess, then turn the control.
# Everything runs on this machine; `python -m tlkit demo` shows the page without its code.

# %%
import tlkit as tl

profile = tl.setup()
tiny = tl.load_model("tiny")

# %% [markdown]
# ## 1. What does a strategy train?
#
# *Ask:* the head of this model is tied to its embedding. What happens to the head when the embedding is frozen?

# %%
tl.strategy_map()

# %% [markdown]
# ## 2. Train it, and stop when you like
#
# *Ask:* set *Epochs* to 4. One curve is training text, the other validation text. Which will turn up, and when?

# %%
lab = tl.TrainingLab()
lab

# %% [markdown]
# ## 3. Before and after
#
# *Ask:* which words give away that it has read about Rust? Does it know Rust now?

# %%
tl.before_and_after(
    tiny.model, lambda: lab.state.model if lab.state else None, tiny.tokenizer
)

# %% [markdown]
# ## 4. What fits a card?
#
# *Ask:* full fine-tuning of half a billion weights, one row of 512 tokens: does it fit 8 GB? With what would it?

# %%
tl.memory_explorer()

# %% [markdown]
# ## 5. Out of memory, and on
#
# *Ask:* a card of 48 MB, a model of 16 MB. Where will training fail first, and what would you change?

# %%
tl.ladder_player()
