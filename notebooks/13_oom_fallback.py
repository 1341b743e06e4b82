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
# # 13 · Out of memory
#
# *Can training go on after it ran out of memory, without losing a step?*
#
# One published run died in its first strategy. Another caught the error, loaded everything again on the CPU and began
# from the start. Between dying and starting over there are better answers.
#
# **You will** watch a step fail, read its message, walk down a ladder of plans, and prove that the weights at the
# end are the same. About 6 minutes.

# %% slideshow={"slide_type": "subslide"}
from dataclasses import replace

import pandas as pd
import torch

import tlkit as tl

profile = tl.setup()
base = tl.load_model("tiny")
blocks = tl.pack(tl.load_corpus("rust").train[:20], base.tokenizer, 64)[:12]
settings = tl.TrainingConfig(learning_rate=1e-3, batch_size=4)


def fresh(strategy="full"):
    return tl.apply_strategy(tl.load_model("tiny").model, strategy).model


# %% [markdown] slideshow={"slide_type": "slide"}
# ## Watch it fail
#
# A *virtual card* has a memory budget and no chips: the CPU computes, every tensor is counted, and the one that would
# pass the budget is refused in the words that CUDA uses.

# %%
card, model, message = tl.virtual_device(memory="48MB"), fresh(), "it fitted"
try:
    with card:
        card.hold(model.parameters())
        tl.train(model, blocks, settings)
except torch.OutOfMemoryError as error:
    message = str(error)
print(message[:33], "…")
tl.claim("The budget was never passed", card.peak <= card.budget)
assert message.startswith("CUDA out of memory. Tried to allo")

# %% tags=["nbval-ignore-output"]
print(message)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Four numbers are in it: what was asked for, what the card has, what was free, what is held. Note how little was asked
# for. The tensor that fails is seldom the one to blame; it is only the last to come.
#
# ## The ladder
#
# A *plan* is how a step is carried out. Each rung changes the plan and leaves alone what the step computes: the same
# tokens, the same loss, the same update. One rung rounds differently, and says so.
#
# The published guide draws three tiers. Here are the rungs of each; *host* means the computer's own memory.

# %%
for tier, names in tl.FALLBACK_TIERS.items():
    print(f"{tier}: {', '.join(names)}")
every_rung = {name for names in tl.FALLBACK_TIERS.values() for name in names}
assert set(tl.LADDER) == every_rung - {"as planned"}

# %% [markdown] slideshow={"slide_type": "subslide"}
# *Chunked loss*: head and loss for a piece of the tokens at a time, so the logits are never all there. *Smaller
# micro-batch*: fewer rows at once, their gradients added up; of four rows first two, then one, so it comes twice.
# *Activation checkpointing*: lesson 12. *bf16 autocast*: products in 16 bits; this is the rung that rounds differently,
# and we leave it out. *… on the host*: activations, AdamW's averages and update, or all of training lie in the
# computer's memory.
#
# **Predict first.** On a card of 48 MB, which rung will be the first to hold? Each is tried, after a real failure.

# %%
order = tuple(name for name in tl.LADDER if name != "bf16 autocast")
walked = fresh()
result, log = tl.train_with_fallback(
    walked, blocks, settings, device=tl.virtual_device(memory="48MB"), order=order
)
log.table[["rung", "first_step", "steps_done", "failed_in"]]

# %% tags=["nbval-ignore-output"]
log.table[["rung", "bytes_asked", "bytes_available", "peak", "seconds"]].round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Step through it:

# %%
tl.ladder_player(log)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Read it row by row: smaller pieces first move the failure from the forward pass to the optimizer's step, where
# AdamW asks for its two averages. No rung about activations can help there. Moving the optimizer can.
#
# ## Nothing was lost
#
# A failed step is undone: its gradients are dropped, the optimizer's half-made memory too, and the same batch is
# taken again. So the curve must be that of a machine with enough memory.
#
# The weights agree up to rounding: smaller pieces add the same numbers in another order, and fp32 rounds each sum at
# the seventh digit. AdamW divides each gradient by its own size, so where a gradient is nearly zero, rounding shows.

# %%
undisturbed = fresh()
reference = tl.train(undisturbed, blocks, settings)


def apart(one, other):
    """The distance between two models' weights, as a share of their length."""
    one, other = (
        torch.cat([p.detach().flatten() for p in model.parameters()])
        for model in (one, other)
    )
    return float((one - other).norm() / other.norm())


difference = apart(walked, undisturbed)
tl.claim(
    "Every step was taken once",
    result.history.step.tolist() == reference.history.step.tolist(),
)
tl.claim("The weights agree to one in a hundred thousand", difference <= 1e-5)

# %%
curves = {"after falling back": result.history, "with enough memory": reference.history}
tl.learning_curves(
    pd.concat([part.assign(strategy=name) for name, part in curves.items()])
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Two curves, one line. The tokens of a step never change either: a smaller micro-batch means more of them in a step.
#
# ## In the middle of a run
#
# So far nothing existed yet that could be lost. Now another program takes its share of the card in step 2: of
# 256 MB, 48 are left.

# %%
card, passes, interrupted = tl.virtual_device(memory="256MB"), [], fresh()


def neighbour(module, inputs, named):
    passes.append(len(named["input_ids"]))
    if passes.count(4) == 2:  # the second pass over a batch of four rows
        card.budget = 48 * 2**20


interrupted.register_forward_pre_hook(neighbour, with_kwargs=True)
rungs = ("smaller micro-batch", "optimizer on the host")
result, log = tl.train_with_fallback(
    interrupted, blocks, settings, device=card, order=rungs
)
print(
    log.table[["rung", "first_step", "steps_done", "failed_in"]].to_string(index=False)
)
difference = apart(interrupted, undisturbed)
tl.claim(
    "Every step was taken once, and step 2 is the one that failed",
    result.history.step.tolist() == [1, 2, 3] and log.table.first_step.max() == 2,
)
tl.claim("The weights are the same, to one in a hundred thousand", difference <= 1e-5)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Step 1 was done on the old plan and is not done again; step 2 begins anew on each rung until one holds.
#
# ## Better: know before
#
# Each failure costs the time of a step. Lesson 12's estimate costs about a second. Without `order`, it picks the first
# rung that should fit, and leaves out rungs that save nothing.

# %%
foreseen, log = tl.train_with_fallback(
    fresh(), blocks, settings, device=tl.virtual_device(memory="48MB")
)
print(log.table[["action", "rung", "failed_in"]].to_string(index=False))
tried = log.table[log.table.action == "training"]
tl.claim("Nothing failed", len(tried) == 1 and tried.failed_in.iloc[0] == "")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## On paper: the published model
#
# **Predict first.** Which strategies fit a card of 8 GB, one row of 512 tokens, fp32? We leave 15% of the card to
# the driver and the libraries. `fit_table("qwen2-0.5b")` estimates every strategy in some twenty seconds; here is its
# record for five models, made with torch 2.13, and one row of it estimated again.

# %%
record = pd.read_csv("../tests/benchmarks/fit_tables.csv")
record = record.dropna(subset="gib")  # Llama has no biases for bitfit
fits = record[record.model == "qwen2-0.5b"]
again = tl.estimate_memory("qwen2-0.5b", "last_layers").peak / 2**30
apart_by = abs(again / fits.set_index("strategy").gib["last_layers"] - 1)
tl.claim("The record still holds, to one percent", apart_by < 0.01)
sizes = ["8 GB", "12 GB", "16 GB", "24 GB"]
fits.set_index("strategy")[sizes].map({True: "fits", False: "–"}.get)

# %%
tl.fit_chart(fits)

# %% [markdown] slideshow={"slide_type": "subslide"}
# And a model of seven billion values, in the same precision? Only what keeps its frozen weights in 4 bits can fit
# the cards that people have. (Lesson 9 had `qlora` on 8 GB: there the rest was in bf16 and activations were
# checkpointed. Here neither.)

# %%
tl.fit_chart(record[record.model == "llama2-7b"])

# %%
seven = record[record.model == "llama2-7b"].set_index("strategy")
print("on 16 GB:", [name for name in seven.index if seven["16 GB"][name]])
print("on 80 GB:", [name for name in seven.index if seven["80 GB"][name]])
tl.claim(
    "On 16 GB only qlora fits, and on 80 GB still not full fine-tuning",
    list(seven.index[seven["16 GB"]]) == ["qlora"] and not seven["80 GB"]["full"],
)
on_8 = fits.set_index("strategy")["8 GB"]
tl.claim("The published model: full fine-tuning does not fit 8 GB", not on_8["full"])
tl.claim("last_layers and lora do", on_8["last_layers"] and on_8["lora"])

# %% [markdown] slideshow={"slide_type": "subslide"}
# So full fine-tuning was bound to fail on the published card. What failed there as "adapter layers" was two blocks, a
# norm and a head of its own: 165,960,320 values. In torch, weights, gradients and averages of that run take little more
# than half the card. And the Python run reports no
# failure at all on such a card; its driver probably paged to the computer's memory.

# %%
rust_run = 630_167_424 * 4 + 165_960_320 * 12
print(f"weights, gradients and AdamW's averages of that run: {rust_run / 1e9:.1f} GB")
assert round(rust_run / 1e9, 1) == 4.5

# %% [markdown] slideshow={"slide_type": "subslide"}
# And full fine-tuning, with four rows of 512 tokens a step: here are rungs of its ladder, estimated one after the
# other. The lines are whole cards. With 15% left to the driver, 13.6 GiB of 16 may be used.

# %%
plan, steps = tl.Plan(), []
for name in (
    "as planned",
    "chunked loss",
    "smaller micro-batch",
    "optimizer on the host",
):
    plan = {
        "chunked loss": replace(plan, chunked_loss=True),
        "smaller micro-batch": replace(plan, micro_batch_size=1),
        "optimizer on the host": replace(plan, offload_optimizer=True),
    }.get(name, plan)
    needed = tl.estimate_memory("qwen2-0.5b", "full", batch_size=4, plan=plan).peak
    steps.append(tl.Rung(name, plan, needed))
tl.ladder_chart(steps, {"8 GB": 8 * 2**30, "16 GB": 16 * 2**30})

# %%
for size in (16, 8):
    first = next(rung for rung in steps if rung.estimate <= 0.85 * size * 2**30)
    print(f"{size} GB: {first.name}")
assert steps[0].estimate > 13.6 * 2**30 and first.name == "optimizer on the host"

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What to choose
#
# The published guide recommends by the size of the card alone. `recommend` asks the estimate. It goes down a short
# list (`full`, `last_layers`, `lora`, `qlora`; the others are not on it) and takes the first that fits, in the largest
# micro-batch that fits (here a batch is one row). First is not best: lesson 14 compares. A processor has memory and
# little speed: there, strategies with fewer gradients to compute come first.

# %%
devices = [tl.virtual_device("RTX 4060 Ti 16GB"), tl.virtual_device("RTX 4060 Ti 8GB")]
for device in devices:
    best = tl.recommend(device, batch_size=1)
    print(f"{device.name}: {best}")
    assert best.estimate.peak <= best.available

# %% tags=["nbval-ignore-output"]
here = tl.probe("cpu")
print(f"{here.name}: {tl.recommend(here, batch_size=1)}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **What carries over**: the order of thought. Which rung holds differs: a large model's weights alone may pass a
# card, and then only 4-bit weights or several cards help. Moving activations or the optimizer to the host is cheap
# in this lesson because both are the same memory; over a bus it costs time at every step.
#
# **Take away.** Running out of memory is a matter of *how* a step is carried out. Change the how, keep the what,
# and check that you did.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `tl.check` says what it looked at and, if the answer
# is not right yet, why. Stuck? `tl.hint("ex13_1", 1)` is a first push, `tl.hint("ex13_1", 2)` says more. After *Restart
# Kernel* run the next cell first; then each exercise works by itself.

# %%
import tlkit as tl

# %% [markdown]
# **Quiz.** In step 1 memory runs out in the *optimizer step*. What may help, and still ends at the same weights?
#
# - **a** The optimizer on the host.
# - **b** A smaller micro-batch: only 0.4 MiB could not be had.
# - **c** Activation checkpointing.
# - **d** Half the rows in a step.

# %%
tl.quiz("quiz13")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 13.1** (first steps). A card says the sentence below. How many MiB more would have had to be free, for this
# one tensor? And how many MiB of the card are neither free nor allocated by PyTorch (the driver, other programs, and
# what torch keeps in reserve)? Answer with both, in this order.

# %%
message = """CUDA out of memory. Tried to allocate 298.00 MiB. GPU 0 has a total
capacity of 8.00 GiB of which 120.00 MiB is free. Of the allocated memory 7.10 GiB is
allocated by PyTorch."""
answer = None
# your code here
tl.check("ex13_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 13.2** (apply it). Choose a rung before anything fails. `rungs` are names, the cheapest first;
# `needs(name)` estimates the bytes of a step on that rung; `card` is the card's memory in bytes, and 15% of it are left
# to the driver. Return the first rung that fits, and raise `MemoryError` where none does. An estimate takes a second:
# ask for no more of them than you need.


# %%
def first_that_fits(rungs, needs, card):
    """The name of the first rung that fits on the card."""
    # your code here


tl.check("ex13_2", first_that_fits)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 13.3** (think further). Smaller micro-batches, the same gradients. `inputs` and `targets` have the shape
# (rows, tokens); at most `size` rows may go through `model` at once, and `model(inputs)` returns scores, shape (rows,
# tokens, vocabulary). The loss is the mean cross-entropy over all targets of the batch that count; those of -100 do
# not. Leave the gradients of the *whole* batch in the weights, which have none yet, and return its loss. The last piece
# may be smaller.

# %%
from torch.nn.functional import cross_entropy


def gradients_in_pieces(model, inputs, targets, size):
    """Gradients and loss as if the whole batch had passed at once."""
    # your code here


tl.check("ex13_3", gradients_in_pieces)

# %% [markdown]
# Previous: [12 · Anatomy of a training step](12_memory_anatomy.ipynb) ·
# Next: [14 · The comparison](14_comparison.ipynb)
