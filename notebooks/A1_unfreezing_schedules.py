# %% [markdown] slideshow={"slide_type": "slide"}
# # A1 · Unfreezing schedules
#
# *Must every layer learn from the first step, and at the same rate?*
#
# A model that learns a new subject forgets some of what it could do before. The lower layers are thought to hold what
# is useful for every text, so one would like to change them less. So far we could only freeze them. A *schedule* is
# finer, because a layer can join later, or learn at a lower rate than the layers above it.
#
# **You will be able to**
#
# - write any schedule as a table of factors, and train by it in plain PyTorch or with `Trainer`;
# - recognise a layer that never moves, which no error reports.
#
# **You need** [lesson 4](04_full_fine_tuning.ipynb) for learning rates and [lesson 15](15_comparison.ipynb) for
# intervals.
#
# About 19 minutes.

# %% slideshow={"slide_type": "subslide"}
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl

tl.setup()
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
blocks = tl.pack(tl.load_corpus("rust").train, tokenizer, 64)[:32]

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One table
#
# The best-known schedules come from [ULMFiT](https://arxiv.org/abs/1801.06146) (2018), which put a new classifier on a
# pretrained model. The classifier is random at first, so its first gradients say little, and they could damage the
# layers below. Two remedies protect these layers:
#
# - **Gradual unfreezing.** At first only the top is trained. The next layers join step by step, from the top downwards.
# - **Discriminative rates.** Every layer learns from the start, but the lower it is, the smaller is its learning rate.
#
# Both fit in one table. It has a row for each part of the model, from the top to the bottom, and a column for each
# step. An entry is the factor by which the learning rate is multiplied, and 0 means frozen. Our model has ten parts:
# the final norm, eight blocks and the embedding, which is tied to the head and so is the head as well. We train for
# eight steps. In gradual unfreezing the first group of parts trains from the start, and another joins after each
# quarter of the steps. In discriminative rates the factor falls to a tenth at the bottom.

# %%
rows = ["norm", *(f"block {n}" for n in range(7, -1, -1)), "embedding"]
parts, steps = len(rows), 8
part, step = np.arange(parts)[:, None], np.arange(steps)
group = part * 4 // parts  # group g joins in step g * steps // 4
tables = {
    "full": np.ones((parts, steps)),
    "gradual unfreezing": (step >= group * steps // 4).astype(float),
    "discriminative rates": 0.1 ** (part / (parts - 1)) * np.ones(steps),
}

# %%
figure, panels = plt.subplots(1, 2, figsize=(7, 3.2), sharey=True, layout="constrained")
for axes, name in zip(panels, list(tables)[1:], strict=True):
    image = axes.imshow(tables[name], cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set(title=name, xlabel="step", xticks=step)
panels[0].set_yticks(range(parts), rows)
figure.colorbar(image, label="factor of the learning rate")
figure.suptitle("Both schedules train the lower parts later or more gently")
plt.show()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Train by the table
#
# PyTorch's optimizers take a list of [parameter groups](glossary.md#parameter-group), each with a learning rate of its
# own, and `LambdaLR` takes a function from the step to the factor for each group. So we make one group for each part.
# At a rate of 0 AdamW leaves the weights alone, but it still needs gradients, so no time is saved.
#
# With `late=False` the function makes a common mistake: it gives the optimizer only the parameters that train in the
# first step, so those that join late are missing.


# %%
def parts_of(model):
    return [model.model.norm, *reversed(model.model.layers), model.model.embed_tokens]


def by_table(model, table, rate=1e-3, late=True):
    groups = [
        {"params": list(part.parameters()) if late or row[0] > 0 else []}
        for part, row in zip(parts_of(model), table, strict=True)
    ]
    adamw = torch.optim.AdamW(groups, lr=rate)
    factors = [lambda n, row=row: row[min(n, len(row) - 1)] for row in table]
    return adamw, LambdaLR(adamw, factors)


def train(model, adamw, schedule):
    for batch in blocks.split(4):
        model(input_ids=batch, labels=batch).loss.backward()
        adamw.step()
        schedule.step()  # the factors of the next step
        adamw.zero_grad()


# %% [markdown] slideshow={"slide_type": "subslide"}
# We measure how far each part moves in eight steps, as the norm of its change in percent of the norm of its weights.
# **How far does block 0 move by each schedule, and what does the mistake change?**


# %%
def moved(table, **options):
    model = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
    as_vector = torch.nn.utils.parameters_to_vector
    before = [as_vector(part.parameters()).detach() for part in parts_of(model)]
    train(model, *by_table(model, table, **options))
    after = [as_vector(part.parameters()).detach() for part in parts_of(model)]
    pairs = zip(after, before, strict=True)
    return [100 * float((new - old).norm() / old.norm()) for new, old in pairs]


changes = pd.DataFrame({name: moved(table) for name, table in tables.items()}, rows)
changes["gradual, mistaken"] = moved(tables["gradual unfreezing"], late=False)
changes.loc[["norm", "block 7", "block 3", "block 0", "embedding"]].round(1)

# %%
course.claim("The mistake leaves block 3 unmoved", changes.loc["block 3"].min() == 0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Block 0 moves by 3.3% with `full`, 0.7% with gradual unfreezing and 0.4% with discriminative rates. The norm moves
# even less, but only because its weights are large. With the mistake, every part that joins late stays exactly where it
# was, although no error says so: these parts received gradients, but the optimizer did not hold their parameters.
#
# `Trainer` makes its optimizer from the trainable parameters, too. There, pass ours, with a table as long as the run:
# `Trainer(…, optimizers=by_table(model, table))`.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Is it worth it?
#
# In the chart a point is a learning rate, the mean of two recorded runs, and *general* is the perplexity of validation
# texts of Python's language reference, 39 before training. **If two runs learn as much about Rust, which has forgotten
# less?**

# %%
names = ["full", "freeze_embeddings", "gradual_unfreezing", "discriminative_rates"]
runs = pd.read_csv(tl.DATA / "sweeps/tiny/rates.csv", index_col=[1, 2])
points = (
    runs[["validation_perplexity", "general_perplexity"]].groupby(level=[0, 1]).mean()
)
points = points[(points < [96, 60]).all(axis=1)]  # leave out the bad rates
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for name, x, y in zip(names, (77.8, 79.8, 77.8, 77), (53.2, 55, 49, 44.6), strict=True):
    (line,) = axes.plot(*points.loc[name].to_numpy().T, marker="o")
    axes.text(x, y, name, color=line.get_color())
axes.set(title="At the same Rust perplexity, both schedules forget less than full")
axes.set(xlabel="Rust perplexity", ylabel="general perplexity")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# For a Rust perplexity of 78, `full` lets the reference rise to 53, and the schedules only to 48 and 49. The next runs
# are longer, at the best rates of the chart: 200 passages, three seeds, 40 Rust test passages. The last two columns are
# the interval of the difference from `full` on Rust (`tl.compare_pairs`, lesson 15).

# %%
recorded = course.recorded("tiny/all/comparison").set_index("strategy").loc[names]
recorded[["perplexity", "general", "difference_low", "difference_high"]].round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Discriminative rates cannot be told apart from `full` on Rust, and with every seed they forget least: the reference's
# test texts, 36 before training, end at 53 in place of 64. Gradual unfreezing is about four points behind on Rust. All
# four rates come from the shorter runs, so better ones may exist. So to keep more of what the model could do, try lower
# rates for the lower layers.
#
# **This is one small model**, and gradual unfreezing gets no fair chance here. The head is tied to the embedding, so it
# stays frozen until the last group joins, although it is the very top. And nothing is random at the start, so the first
# gradients are no danger to the lower layers. With a new head, as in [lesson 13](13_classification.ipynb), measure
# again.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A schedule is a table of factors of the learning rate, with a row for each part and a column for each step.
# - The optimizer needs every parameter that will ever train, from the beginning.
# - Give each schedule a learning rate of its own. Here discriminative rates forgot less than `full`, and on Rust ended
#   within two points of it.
#
# ## Further reading
#
# - [Kumar et al. 2022](https://arxiv.org/abs/2202.10054): why training the head first can help.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("exA1_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** You unfreeze a block after 100 steps by setting `requires_grad` to true, but its weights never change. The
# losses and gradients look normal. What is the most likely reason?
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
