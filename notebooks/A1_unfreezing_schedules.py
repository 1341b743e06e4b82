# %% [markdown] slideshow={"slide_type": "slide"}
# # A1 · Unfreezing schedules
#
# *Must every layer learn from the first step, and at the same rate?*
#
# A model that learns a new subject forgets some of what it could do. The lower layers are thought to hold what is
# useful for every text, so they should change less. Instead of freezing them, a *schedule* lets a layer join later, or
# learn at a lower rate than those above.
#
# **You will be able to**
#
# - write any schedule as a table of factors, and train by it in plain PyTorch or with `Trainer`;
# - find parameters that an optimizer does not hold;
# - adapt a model so that it forgets less.
#
# **You need** [lesson 4](04_full_fine_tuning.ipynb) for learning rates and [lesson 15](15_comparison.ipynb) for
# intervals.
#
# About 21 minutes.

# %% slideshow={"slide_type": "subslide"}
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from torch.nn.utils import parameters_to_vector as flat
from torch.optim.lr_scheduler import LambdaLR
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

import course
import tlkit as tl

tl.setup()
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
rust, general = tl.load_corpus("rust"), tl.load_corpus("general")
texts = rust.validation[:40], general.validation[:40]
blocks = tl.pack(rust.train[:60], tokenizer, 128)
batches = blocks[torch.randperm(len(blocks), generator=torch.manual_seed(0))].split(4)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One table
#
# The best-known schedules come from [ULMFiT](https://arxiv.org/abs/1801.06146) (2018), which put a new classifier on a
# pretrained model. The classifier is random at first, so its first gradients could damage those below. Two remedies:
#
# - **Gradual unfreezing.** At first only the top is trained, and the next layers join step by step.
# - **Discriminative rates.** Every layer learns from the start, but the lower it is, the smaller is its learning rate.
#
# Either fits in a table, with a row for each part of the model, top down, and a column for each step. An entry is the
# factor of the learning rate, and 0 means frozen. Our model has ten parts: final norm, eight blocks, and the embedding,
# which is also the head. In gradual unfreezing another group joins after each quarter of the steps. In discriminative
# rates the factor falls to a tenth at the bottom. Both multiply the `usual` warm-up and cosine, the table of `full`.

# %%
rows = ["norm", *(f"block {n}" for n in range(7, -1, -1)), "embedding"]
part, step = np.arange(len(rows))[:, None], np.arange(len(batches))
progress = np.maximum(0, step - 2) / (len(batches) - 2)
usual = np.minimum((step + 1) / 2, (1 + np.cos(np.pi * progress)) / 2)
tables = {
    "full": usual + 0 * part,
    "gradual_unfreezing": usual * (step >= part * 4 // len(rows) * len(batches) // 4),
    "discriminative_rates": usual * 0.1 ** (part / (len(rows) - 1)),
}

# %%
figure, panels = plt.subplots(1, 2, figsize=(7, 3.2), sharey=True, layout="constrained")
for axes, name in zip(panels, list(tables)[1:], strict=True):
    image = axes.imshow(tables[name], cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set(title=name, xlabel="step", yticks=range(len(rows)), yticklabels=rows)
figure.colorbar(image, label="factor of the learning rate")
figure.suptitle("Both schedules train the lower parts later or more gently")
plt.show()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Train by the table
#
# PyTorch's optimizers take a list of [parameter groups](glossary.md#parameter-group), and `LambdaLR` takes a function
# from the step to the factor for each group. So each part becomes a group, with its row as the function. At a rate of 0
# AdamW leaves the weights alone, but their gradients are still computed, so no time is saved, and clipping counts them.


# %%
def parts_of(model):
    return [model.model.norm, *reversed(model.model.layers), model.model.embed_tokens]


def by_table(model, table, rate):
    groups = [{"params": list(part.parameters())} for part in parts_of(model)]
    adamw = torch.optim.AdamW(groups, lr=rate, fused=True)
    factors = [lambda n, row=row: row[min(n, len(row) - 1)] for row in table]
    return adamw, LambdaLR(adamw, factors)


def train(model, adamw, schedule):
    for batch in batches:
        model(input_ids=batch, labels=batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        schedule.step()  # the factors of the next step
        adamw.zero_grad()


# %% [markdown] slideshow={"slide_type": "subslide"}
# A common mistake is to make the optimizer while the lower parts are frozen, and to unfreeze them later. `left_out`
# lists the parameters that an optimizer does not hold. **If it holds the top two blocks, how many of the 98 tensors
# will it never move?**


# %%
def left_out(model, optimizer):
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return [name for name, p in model.named_parameters() if id(p) not in held]


model = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
mistaken = torch.optim.AdamW(model.model.layers[-2:].parameters())
adamw, schedule = by_table(model, tables["discriminative_rates"], 3.16e-3)
print(len(left_out(model, mistaken)), "tensors left out")
course.claim("by_table leaves none out", left_out(model, adamw) == [])

# %% [markdown] slideshow={"slide_type": "subslide"}
# Once unfrozen, these 74 receive gradients that no step applies and no `adamw.zero_grad()` clears. They pile up, and as
# clipping counts them, it shrinks those of the layers that do train. No error says so: call `left_out` before a run.
#
# `Trainer` makes its optimizer from what is trainable at the start, too, so we hand it ours. **After five steps of
# gradual unfreezing, which parts differ from those of the untouched `model`?**

# %%
gradual = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
trainer = Trainer(
    gradual, TrainingArguments(
        "../results/gradual", max_steps=5, per_device_train_batch_size=4,
        save_strategy="no", disable_tqdm=True, use_cpu=True,
    ),
    train_dataset=[{"input_ids": row, "labels": row} for row in blocks],
    optimizers=by_table(gradual, tables["gradual_unfreezing"], 3.16e-3),
)  # fmt: skip
trainer.remove_callback(PrinterCallback)
trainer.train()
before, after = ([flat(p.parameters()) for p in parts_of(m)] for m in (model, gradual))
print([row for row, a, b in zip(rows, before, after, strict=True) if not a.equal(b)])

# %% [markdown] slideshow={"slide_type": "subslide"}
# The norm and the upper four blocks: two joined in the fifth step, as in the table. A whole run needs a table of its
# length.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Is it worth it?
#
# Train a model on 60 Rust passages by discriminative rates, with our loop. *Rust* and *general* are perplexities of
# validation texts, *general* of Python's language reference. The recorded runs read the same passages in the same
# order, at each strategy's best rate. **Does yours repeat one, and which strategy forgets least?**


# %%
def scores(model):
    return [tl.perplexity(model, tokenizer, text).perplexity for text in texts]


train(model, adamw, schedule)
model.save_pretrained("../results/gentle")
tokenizer.save_pretrained("../results/gentle")
yours = scores(model)

# %%
runs = pd.read_csv(tl.DATA / "sweeps/tiny/rates.csv", index_col=[1, 2, 7])
runs = runs.filter(like="_perplexity")
says = "{}: Rust {:.1f}, general {:.1f}".format
print(says("nearly untouched (rate 1e-6)", *runs.loc["discriminative_rates", 1e-6, 0]))
for name, rate in zip(tables, (1e-3, 3.16e-3, 3.16e-3), strict=True):
    print(says(f"{name}, recorded", *runs.loc[name, rate, 0]))
print(says("discriminative_rates, yours", *yours))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Yours repeats the recorded one: the model in `results/gentle` is as good on Rust as that of `full`, and its general
# perplexity rose by 10 points, not 16. But at a lower rate `full` forgets less, too. So compare several rates: a circle
# is one rate, the mean of two recorded runs, and the star is yours. **If two runs learn as much about Rust, which has
# forgotten less?**

# %%
points = runs.groupby(["strategy", "learning_rate"]).mean()
points = points[(points < [96, 60]).all(axis=1)]  # leave out the bad rates
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
places = {"lora": (88.5, 47.2), "full": (77.8, 53.2)}
places |= {"gradual_unfreezing": (85.9, 40.2), "discriminative_rates": (77, 44.6)}
for name, place in places.items():
    (line,) = axes.plot(*points.loc[name].to_numpy().T, marker="o")
    axes.text(*place, name, color=line.get_color())
axes.plot(*yours, "*", color=line.get_color(), markersize=16)
axes.set(title="At 78 on Rust, both schedules forget less than full")
axes.set(xlabel="Rust perplexity", ylabel="general perplexity")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# At about 78 on Rust, `full` lets the reference rise to 53, and the schedules only to 48 and 49; at 87 they hardly
# differ. `full` has no recorded rate between its circles, 5e-4 and 1e-3, so its line there is a guess. LoRA, searched
# in the same way, learns less in these short runs, and at 84 on Rust forgets more than all three. Longer recorded runs
# (200 passages, three seeds) confirm it on test texts for one schedule only. With discriminative rates the reference
# rises from 36 to 53, with `full` to 64, and on Rust they cannot be told apart (difference -1.8 to 1.2 points). Gradual
# unfreezing ends at 58, but is four points behind on Rust.
#
# **This is one small model**, and gradual unfreezing gets no fair chance. The head is the embedding, so it stays frozen
# until the last quarter, and nothing is random at the start. With a new head ([lesson 13](13_classification.ipynb)),
# measure again.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A schedule is a table: the factor of the learning rate for each part in each step.
# - The optimizer needs every parameter that will ever train, from the beginning: ask `left_out`.
# - Here lower rates for lower layers forgot less than `full`, and learned as much.
#
# ## Further reading
#
# - [Kumar et al. 2022](https://arxiv.org/abs/2202.10054): why training the head first can help.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("exA1_1", 1)`. After
# *Restart Kernel* run the next cell first.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** You unfreeze a block after 100 steps by setting `requires_grad` to true. It gets gradients, but its weights
# never change. What is the most likely reason?
#
# - **a** The warm-up of the learning rate is over by then.
# - **b** The optimizer was made before, from the parameters that were trainable at that time.
# - **c** A block that was frozen once is left out of the backward pass for good.
# - **d** AdamW's averages of this block are still zero, so its first steps are zero, too.

# %%
course.quiz("quizA1")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise A1.1.** Write AdamW's parameter groups for discriminative rates in any model of the Llama family. The final
# norm gets `rate`, and so does `model.lm_head` if it is not tied. Each block below, and last the embedding, gets the
# rate of the part above it times `factor`. Every parameter must be in exactly one group. Return a list of dicts with
# `params` and `lr`.


# %%
def groups(model, rate, factor):
    """AdamW's groups, with rates that fall from the top of the model to the bottom."""
    # your code here


course.check("exA1_1", groups)

# %% [markdown]
# Previous: [20 · Your own project](20_your_own_project.ipynb)
