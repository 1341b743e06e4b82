# %% [markdown] slideshow={"slide_type": "slide"}
# # A1 · Unfreezing schedules
#
# *Must every layer learn from the first step, and at the same rate?*
#
# A model that learns a new subject forgets some of what it could do before. The lower layers are thought to hold what
# is useful for every text, so one would like to change them less. So far we could only freeze them for the whole run. A
# *schedule* is finer, because a layer can join later, or learn at a lower rate than the layers above it.
#
# **You will be able to**
#
# - write any schedule as a table of factors, and train by it in plain PyTorch;
# - recognise a layer that never moves, which no error reports.
#
# **You need** [lesson 4](04_full_fine_tuning.ipynb) for learning rates and [lesson 15](15_comparison.ipynb) for
# intervals.
#
# About 17 minutes.

# %% slideshow={"slide_type": "subslide"}
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
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
# eight steps. In gradual unfreezing the parts join in four groups, each after a quarter of the steps, and in
# discriminative rates the factor falls to a tenth at the bottom.

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
figure, panels = plt.subplots(1, 3, figsize=(8, 3.2), sharey=True, layout="constrained")
for axes, (name, table) in zip(panels, tables.items(), strict=True):
    image = axes.imshow(table, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set(title=name, xlabel="step", xticks=step)
panels[0].set_yticks(range(parts), rows)
figure.colorbar(image, label="factor of the learning rate")
figure.suptitle("Both schedules train the lower parts later or more gently")
plt.show()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Train by the table
#
# PyTorch's optimizers take a list of [parameter groups](glossary.md#parameter-group), each with a learning rate of its
# own. So we make one group for each part, and set its rate by the table before each step. A frozen parameter gets no
# gradient, and AdamW leaves a parameter without gradient as it is.
#
# With `late=False` the function makes a common mistake: it gives the optimizer only the parameters that are trainable
# in the first step, so those that join late are missing.


# %%
def parts_of(model):
    return [model.model.norm, *reversed(model.model.layers), model.model.embed_tokens]


def train(model, table, rate=1e-3, late=True):
    parts = parts_of(model)
    for part, factor in zip(parts, table[:, 0], strict=True):
        part.requires_grad_(bool(factor > 0))
    held = [[p for p in part.parameters() if p.requires_grad or late] for part in parts]
    adamw = torch.optim.AdamW([{"params": ps} for ps in held], lr=rate)
    for batch, factors in zip(blocks.split(4), table.T, strict=True):
        for n, factor in enumerate(factors):
            parts[n].requires_grad_(bool(factor > 0))
            adamw.param_groups[n]["lr"] = rate * factor
        model(input_ids=batch, labels=batch).loss.backward()
        adamw.step()
        adamw.zero_grad()


# %% [markdown] slideshow={"slide_type": "subslide"}
# We measure how far each part moves in eight steps, as the norm of its change in percent of the norm of its weights.
# **Which part moves least by each schedule, and what does the mistake change?**


# %%
def moved(table, **options):
    model = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
    as_vector = torch.nn.utils.parameters_to_vector
    before = [as_vector(part.parameters()).detach() for part in parts_of(model)]
    train(model, table, **options)
    after = [as_vector(part.parameters()).detach() for part in parts_of(model)]
    pairs = zip(after, before, strict=True)
    return [100 * float((new - old).norm() / old.norm()) for new, old in pairs]


changes = pd.DataFrame({name: moved(table) for name, table in tables.items()}, rows)
changes["gradual, mistaken"] = moved(tables["gradual unfreezing"], late=False)
changes.loc[["block 7", "block 3", "block 0", "embedding"]].round(1)

# %%
course.claim("The mistake leaves block 3 unmoved", changes.loc["block 3"].min() == 0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With either schedule the embedding moves less than half as far as with `full`. With the mistake, every part that joins
# late stays exactly where it was, although no error says so: these parts received gradients, but the optimizer did not
# hold their parameters.
#
# `Trainer` makes its optimizer from the trainable parameters, too. There, pass an optimizer of all parameters as
# `optimizers=(adamw, None)`, and set `requires_grad` and the rates in the method `on_step_begin` of a
# `TrainerCallback`.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Is it worth it?
#
# These recorded runs are longer than ours: 200 passages, three seeds, and a learning rate that was searched for each
# strategy. Both schedules are best at about three times the rate of `full`. *perplexity* is that of 40 Rust test
# passages, and *general* that of Python's language reference, which was 36 before training. The last two columns are
# the interval of the difference from `full` on Rust by `tl.compare_pairs` (lesson 15), in points of perplexity.
#
# **Which strategy learns most about Rust, and which forgets least of the Python reference?**

# %%
names = ["full", "gradual_unfreezing", "discriminative_rates"]
file = tl.DATA / "comparisons/tiny/all/comparison.csv"
recorded = pd.read_csv(file, comment="#", index_col="strategy")
columns = ["perplexity", "general", "difference_low", "difference_high"]
recorded.loc[names, columns].round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Discriminative rates cannot be told apart from `full` on Rust, and they forget least: the Python reference ends at 53
# in place of 64. Gradual unfreezing forgets less as well, but it is about four points behind on Rust. So to keep more
# of what the model could do, try lower rates for the lower layers.
#
# **This is one small model**, and gradual unfreezing gets no fair chance here. The head is tied to the embedding, so it
# stays frozen until the last group joins, although it is the very top. And nothing is random at the start, so the first
# gradients are no danger to the lower layers. With a new head, as in [lesson 13](13_classification.ipynb), measure
# again.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A schedule is a table of factors of the learning rate, with a row for each part and a column for each step.
# - The optimizer needs every parameter that will ever train, from the beginning. After training by a schedule, look how
#   far each part has moved.
# - Give each schedule a learning rate of its own. Here discriminative rates forget less than `full`, and learn as much,
#   as far as these runs can tell.
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
# **Exercise A1.1.** ULMFiT also multiplies each column of the table: the rate rises in a straight line, then falls in
# another. Write this *slanted triangular* factor of a step. The steps are counted from 0, and `cut` is
# `math.floor(steps * cut_frac)`. Before the cut, $p$ is `step / cut`; from the cut on it is `1 - (step - cut) / (cut *
# (1 / cut_frac - 1))`. The factor is $(1 + p\,(\mathrm{ratio} - 1)) / \mathrm{ratio}$.

# %%
import math


def slanted(step, steps, cut_frac=0.1, ratio=32):
    """The learning rate of a step, as a share of the highest one."""
    # your code here


course.check("exA1_1", slanted)

# %% [markdown]
# Previous: [20 · Your own project](20_your_own_project.ipynb)
