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
# # 12 · Anatomy of a training step
#
# *Where does every byte go?*
#
# The published experiment ran out of memory on a card of 8 GB. Its reports explain that with a table: weights
# 1.97 GB, gradients 1.97, optimizer 3.94, activations "0.5 to 1", in all "8 to 10 GB". Is that what happens?
#
# **You will** see a step's memory before taking it, find which moment needs most, and check the estimate against
# a step that is really taken. About 5 minutes.

# %% slideshow={"slide_type": "subslide"}
import pandas as pd
import torch

import tlkit as tl

profile = tl.setup()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The table, computed again
#
# Every weight in fp32 takes 4 bytes. A trained one needs 4 more for its gradient, and AdamW keeps two running
# averages of it: 8 more. That part needs a multiplication and no experiment.

# %%
values = 494_032_768
for what, each in (("weights", 4), ("gradients", 4), ("AdamW", 8), ("together", 16)):
    print(f"{what:10} {values * each / 1e9:5.2f} GB")
assert round(values * 16 / 1e9, 1) == 7.9

# %% [markdown] slideshow={"slide_type": "subslide"}
# So 7.9 GB are certain. (Careful with units: a card sold as 8 GB has 8 GiB, 8.59 of the GB used here.) The rest
# depends on the text: how many tokens at once.
#
# `estimate_memory` finds it by *tracing*: it takes the real step, forward, backward and update, on tensors that have a
# shape and no contents, and counts what is alive at each moment. Nothing of that size is made: the
# model below is not even downloaded.
#
# **Predict first.** One row of 512 tokens. Which moment needs most: when the loss is computed, or later?

# %%
full = tl.estimate_memory("qwen2-0.5b", "full", batch_size=1, sequence_length=512)
print("the peak is in the", full.phase)
print(f"{tl.in_units(full.peak)} = {full.peak / 1e9:.1f} GB")
assert full.phase == "backward pass" and 8.9 < full.peak / 1e9 < 9.1

# %%
by_hand = tl.closed_form("qwen2-0.5b", batch_size=1, sequence_length=512)
in_gb = pd.Series(by_hand, name="GB") / 1e9
in_gb.round(2).to_frame()

# %% [markdown] slideshow={"slide_type": "subslide"}
# The phase cannot tell the two moments apart: the loss's own peak comes with its first gradients, so it falls into the
# backward pass, too. The sum by hand can. At the *end* of the backward pass all gradients are there, and the
# embedding's three times: this model uses one table for reading and for predicting, each use gives
# a gradient as large as the table, and torch adds the two into a third.
#
# AdamW's averages are in both sums. The very first step makes them only at its end: these are the figures of every
# later step.
#
# So for Qwen2-0.5B with its tied head the reports' total is right and its last line is not: with one short row,
# activations play no part in the peak.

# %%
tl.claim(
    "By hand and by tracing agree within 4%",
    abs(by_hand["peak"] / full.peak - 1) < 0.04,
)
tl.claim(
    "The end of the backward pass needs more than the loss",
    by_hand["at the end"] > by_hand["at the loss"],
)
tl.claim("The step does not fit a card of 8 GB", full.peak > 8 * 2**30)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What grows with the batch
#
# Small models now often have large vocabularies: every token of the batch gets 151,936 numbers, three times over. And
# every block keeps what its backward pass needs. Now take a batch of eight rows.
#
# Two more bars take the same step otherwise: the *loss in pieces*, a part of the tokens at a time, so that the logits
# are never all there; and *one row at a time*, the gradients added up.
#
# **Predict first.** Which part is the largest with eight rows?

# %%
plans = {
    "1 row": tl.estimate_memory("qwen2-0.5b", "full", batch_size=1),
    "8 rows": tl.estimate_memory("qwen2-0.5b", "full", batch_size=8),
    "8 rows, loss in pieces": tl.estimate_memory(
        "qwen2-0.5b", "full", batch_size=8, plan=tl.Plan(chunked_loss=True)
    ),
    "8 rows, one at a time": tl.estimate_memory(
        "qwen2-0.5b", "full", batch_size=8, plan=tl.Plan(micro_batch_size=1)
    ),
}
tl.memory_chart(plans, {"8 GB": 8 * 2**30, "16 GB": 16 * 2**30})

# %%
eight = plans["8 rows"]
largest = max(eight.categories, key=eight.categories.get)
tl.claim("Activations are the largest part", largest == "activations")
for name in ("activations", "logits and loss"):
    tl.claim(
        f"More is needed for {name} than for the weights",
        eight.categories[name] > eight.categories["weights"],
    )
saved = eight.peak - plans["8 rows, loss in pieces"].peak
tl.claim("Computing the loss in pieces saves more than 3 GiB", saved > 3 * 2**30)
more = plans["8 rows, one at a time"].peak / full.peak
print(f"one row at a time: {more:.2f} times a single row")
assert 1.05 < more < 1.2

# %% [markdown] slideshow={"slide_type": "subslide"}
# *Temporary* are, above all, gradients that have not reached their place. And one row at a time needs an
# eighth more than a single row, because the first row's gradients are there already when the second's activations
# are made.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## When forgetting activations helps
#
# *Activation checkpointing* keeps only the input of each block and computes the rest again in the backward pass. The
# guide promises 30 to 50%. For which sequence length?

# %%
rows = []
for tokens in (64, 2048):
    plain = tl.estimate_memory(
        "qwen2-0.5b", "full", batch_size=1, sequence_length=tokens
    ).peak
    again = tl.estimate_memory(
        "qwen2-0.5b",
        "full",
        batch_size=1,
        sequence_length=tokens,
        plan=tl.Plan(activation_checkpointing=True),
    ).peak
    rows.append({"tokens": tokens, "saved_percent": round(100 * (1 - again / plain))})
savings = pd.DataFrame(rows).set_index("tokens")
savings

# %%
tl.claim("On 64 tokens it saves nothing", savings.saved_percent[64] == 0)
tl.claim("On 2,048 tokens it saves at least 20%", savings.saved_percent[2048] >= 20)

# %% [markdown] slideshow={"slide_type": "subslide"}
# A promise of a saving without a sequence length means nothing: on short rows, other bytes set the peak.
#
# ## Is the estimate true?
#
# Take the step, on the bundled model, and count every live tensor while it runs.

# %%
blocks = torch.randint(4096, (8, 128), generator=torch.Generator().manual_seed(0))
for strategy in ("full", "last_layers", "lora"):
    report = tl.apply_strategy(tl.load_model("tiny").model, strategy)
    estimate = tl.estimate_memory(report.model, batch_size=4, sequence_length=128).peak
    run = tl.train(report.model, blocks, tl.TrainingConfig(batch_size=4))
    tl.claim(
        f"{strategy}: estimate and measurement agree within 2%",
        abs(estimate / run.peak_memory - 1) < 0.02,
    )

# %% [markdown] slideshow={"slide_type": "subslide"}
# What it does not count: the interpreter and the libraries, the driver's own memory on a card, scratch
# space inside a kernel, and memory that an allocator keeps after a tensor is gone. How much is that? In 56 fresh
# processes (seven strategies, two precisions, with and without checkpointing, two shapes) the resident memory was
# compared with the estimate. Recorded on a two-core Xeon under Linux with torch 2.13, November 2026:

# %%
recorded = pd.read_csv("../tests/benchmarks/memory_accuracy.csv")
on_top = recorded.measured_mib - recorded.estimate_mib
smallest, largest = recorded.estimate_mib.min(), recorded.estimate_mib.max()
print(f"{len(recorded)} configurations, {smallest:.0f} to {largest:.0f} MiB")
print(f"on top of the estimate: {on_top.min():.0f} to {on_top.max():.0f} MiB")
overhead = full.process_overhead
off = (recorded.estimate_mib + overhead / 2**20) / recorded.measured_mib - 1
print(
    f"with {tl.in_units(overhead)} added, "
    f"the estimate is {off.min():+.1%} to {off.max():+.1%} off"
)
assert len(recorded) == 56 and off.min() > -0.03 and off.max() < 0.1

# %% [markdown] slideshow={"slide_type": "subslide"}
# So a processor adds a constant, about 20 MiB. A card's driver and libraries take several hundred: leave 15% of it.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Turn the controls
#
# A guess first, each time: will it fit?

# %%
tl.memory_explorer()

# %% [markdown] slideshow={"slide_type": "subslide"}
# **What carries over**: all of it; the same tracing works for any size. What changes is which part is largest: in a
# model of billions of weights with a small vocabulary, weights and optimizer dwarf the rest.
#
# **Take away.** Ask which *moment* needs most, and what is alive in it.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `tl.check` says what it looked at and, if the answer
# is not right yet, why. Stuck? `tl.hint("ex12_1", 1)` is a first push, `tl.hint("ex12_1", 2)` says more. After *Restart
# Kernel* run the next cell first; then each exercise works by itself.

# %%
import tlkit as tl

# %% [markdown]
# **Quiz.** Full fine-tuning of `qwen2-0.5b`, one row of 512 tokens, needs 8.38 GiB. Which change lowers the peak?
#
# - **a** activation checkpointing
# - **b** the loss in pieces
# - **c** rows of 256 tokens
# - **d** plain SGD instead of AdamW

# %%
tl.quiz("quiz12")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 12.1** (first steps). A strategy trains 29,865,088 of the 494,032,768 values, in fp32 with AdamW; the
# others are frozen. How many GB (of a billion bytes) do weights, gradients and AdamW's averages take together?

# %%
answer = None
# your code here
tl.check("ex12_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 12.2** (apply it). With one short row, the end of the backward pass needs most. With more rows, the moment
# of the loss overtakes it. Given the sizes for *one* row, as `closed_form` returns them, what is the smallest number of
# rows with which the loss needs more than the end?

# %%
one_row = tl.closed_form(
    "qwen2-0.5b", batch_size=1, sequence_length=512
)  # the names of the parts are its keys


def rows_until_the_loss_needs_most(one_row):
    """The smallest number of rows, all in one batch."""
    # your code here


tl.check("ex12_2", rows_until_the_loss_needs_most)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 12.3** (think further). The published table adds up parts that are not alive together. Do better: a log
# says what was made and freed in a step, in order, in pairs: `("logits", 7)` for 7 GB more, `("logits", -7)` for 7 GB
# less. Return what is alive at the moment when most is: a dict with the size of each name. Names of size 0 may be there
# or not.


# %%
def alive_at_the_peak(log):
    """Sizes by name at the moment when their sum is largest."""
    # your code here


tl.check("ex12_3", alive_at_the_peak)

# %% [markdown]
# Previous: [9 · QLoRA](09_qlora.ipynb) ·
# Next: [13 · Out of memory](13_oom_fallback.ipynb)
