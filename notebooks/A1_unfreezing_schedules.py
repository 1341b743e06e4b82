# %% [markdown] slideshow={"slide_type": "slide"}
# # A1 · Unfreezing schedules
#
# *Must every layer learn from the first step, and at the same rate?*
#
# So far each part of a model was trained or frozen for the whole run. A layer can also join later, or learn at a lower
# rate than the layers above it. Both ideas come from [ULMFiT](https://arxiv.org/abs/1801.06146) (*Universal Language
# Model Fine-tuning*, 2018), and you still meet them in code for fine-tuning classifiers.
#
# **You will be able to**
#
# - write any such schedule as one table, and train by it in plain PyTorch;
# - recognise two mistakes that raise no error: a layer that never moves, and a frozen one that does.
#
# **You need** [lesson 4](04_full_fine_tuning.ipynb) and, for the last table, [lesson 15](15_comparison.ipynb).
#
# About 26 minutes.

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
# ## Three ideas of one paper
#
# ULMFiT put a new classifier on a pretrained model. The classifier is random at first, so its first gradients say
# little, and they could damage the layers below before it has learned anything. Three remedies protect these layers:
#
# - **Gradual unfreezing.** Train the top alone, and let one more layer join after each epoch. We train for one epoch,
#   so ours join in four groups, each after a quarter of the steps.
# - **Discriminative rates.** Every layer learns from the start, but each has the rate of the layer above it divided
#   by 2.6.
# - **Slanted triangular rates.** The rate of all layers rises in a straight line over the first tenth of the steps
#   and falls in a straight line afterwards. It is a warm-up and a decay, as in lesson 4, with lines in place of the
#   cosine. You write it in exercise A1.2.
#
# The first two fit in one table, with a row for each part of the model, from the top to the bottom, and a column for
# each step. An entry is the factor by which the learning rate is multiplied, and 0 means frozen. Our ten parts are
# the final norm, the eight blocks, and the embedding.

# %%
rows = ["norm", *(f"block {n}" for n in range(7, -1, -1)), "embedding"]
parts, steps = len(rows), 8
part, step = np.arange(parts)[:, None], np.arange(steps)
phase = part * 4 // parts  # phase g begins in step g * steps // 4
tables = {
    "full": np.ones((parts, steps)),
    "gradual unfreezing": (step >= phase * steps // 4).astype(float),
    "discriminative rates": 0.1 ** (part / (parts - 1)) * np.ones(steps),
}
figure, panels = plt.subplots(1, 3, figsize=(8, 3.2), sharey=True, layout="constrained")
for axes, (name, table) in zip(panels, tables.items(), strict=True):
    image = axes.imshow(table, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set(title=name, xlabel="step", xticks=step)
panels[0].set_yticks(range(parts), rows)
figure.colorbar(image, label="factor of the learning rate")
figure.suptitle("Both schedules train the lower parts later or more gently")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# Our discriminative rates are gentler than those of the paper. Divided by 2.6 nine times, the rate of the embedding
# would be a five-thousandth of the highest one. We fix the factor of the lowest part at a tenth, whatever the depth.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Train by the table
#
# PyTorch's optimizers take a list of [parameter groups](glossary.md#parameter-group), each with a learning rate of
# its own. We make one group for each part, and set its rate before each step. A frozen parameter gets no gradient,
# and AdamW skips a parameter without one, so neither its moments nor weight decay touch it.
#
# With `joined_late=False` the function makes a common mistake: it gives the optimizer only the parameters that are
# trainable at the start.


# %%
def new_model():
    return AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)


def parts_of(model):
    return [model.model.norm, *reversed(model.model.layers), model.model.embed_tokens]


def train(table, rate=1e-3, joined_late=True):
    model = new_model()
    for part, factor in zip(parts_of(model), table[:, 0], strict=True):
        part.requires_grad_(bool(factor > 0))
    groups = [
        {"params": [p for p in part.parameters() if p.requires_grad or joined_late]}
        for part in parts_of(model)
    ]
    adamw = torch.optim.AdamW(groups, lr=rate, weight_decay=0.01)
    for batch, factors in zip(blocks.split(4), table.T, strict=True):
        for part, group, factor in zip(
            parts_of(model), adamw.param_groups, factors, strict=True
        ):
            part.requires_grad_(bool(factor > 0))
            group["lr"] = rate * factor
        model(input_ids=batch, labels=batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad()
    return model


# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** In eight steps, how far does each part move? And how far with the mistake? We measure the norm of
# the change, in percent of the norm of the weights.


# %%
def vector(part):
    return torch.nn.utils.parameters_to_vector(part.parameters()).detach()


def percent(after, before):
    return 100 * float((after - before).norm() / before.norm())


start = [vector(part) for part in parts_of(new_model())]
gradual = tables["gradual unfreezing"]
models = {name: train(table) for name, table in tables.items()}
models["gradual, with the mistake"] = train(gradual, joined_late=False)
moved = {
    name: [percent(vector(a), b) for a, b in zip(parts_of(model), start, strict=True)]
    for name, model in models.items()
}
changes = pd.DataFrame(moved, index=rows)
changes.loc[["block 7", "block 3", "block 0", "embedding"]].round(1)

# %%
course.claim(
    "With the mistake, block 3 moves 0.0%",
    changes.loc["block 3", "gradual, with the mistake"] == 0,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With either schedule the embedding moves less than half as far as with `full`. With the mistake, every part that
# joins late stays exactly where it was, block 3 among them, although no error and no warning says so. These parts
# received gradients, but the optimizer did not hold their parameters. After training by a schedule, look at such a
# table first.
#
# `Trainer` makes its optimizer from the trainable parameters, too. There, pass an optimizer of all parameters as
# `optimizers=(adamw, None)`, and set `requires_grad` in the method `on_step_begin` of a `TrainerCallback`.
#
# **The second mistake** concerns a layer that is frozen *again*. AdamW skips it only if its gradient is `None`. After
# `zero_grad(set_to_none=False)` the gradient is zero instead, so its old moments and weight decay still move the
# layer:

# %%
for set_to_none in (True, False):
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 4)
    adamw = torch.optim.AdamW(layer.parameters(), lr=1e-2)
    layer(torch.ones(1, 4)).sum().backward()
    adamw.step()
    adamw.zero_grad(set_to_none=set_to_none)
    layer.requires_grad_(False)  # from here on it should not move
    frozen = vector(layer)
    for _ in range(8):
        adamw.step()
    print(f"set_to_none={set_to_none}: moved {percent(vector(layer), frozen):.1f}%")

# %% [markdown] slideshow={"slide_type": "subslide"}
# PyTorch's default is the first. Our `train` is safe either way, because it also sets the rate of a frozen part to
# zero.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Is it worth it?
#
# **A schedule needs a learning rate of its own**, so we look at the search first. The table has the perplexity on 60
# validation passages, the mean of two seeds. These recorded runs are longer than ours and use warm-up and cosine decay.

# %%
names = ["full", "gradual_unfreezing", "discriminative_rates"]
rates = pd.read_csv(tl.DATA / "sweeps/tiny/rates.csv").query("strategy in @names")
rates = rates[rates.learning_rate.between(5e-4, 1e-2)]
search = rates.pivot_table("validation_perplexity", "learning_rate", "strategy")
search[names].round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# An empty cell was not tried: both searches had eight rates, but not the same ones, and that of the schedules was
# coarser around its best. Both schedules are best at 3.16e-3, three times the best rate of `full`, because most of
# their parameters learn later or more slowly. At 1e-3 they look 13 and 17 points worse than they are, so a comparison
# at the rate of `full` would have been unfair to them.
#
# **Which reaches the lowest perplexity on Rust, and which forgets least of the Python reference?** Each is now
# trained at its best rate with three seeds and tested on 200 passages. `general` is the perplexity on the Python
# reference.

# %%
folder = tl.DATA / "comparisons/tiny/all"
runs = pd.read_csv(folder / "runs.csv", comment="#").query("strategy in @names")
runs.pivot(index="strategy", columns="seed", values=["perplexity", "general"]).round(1)

# %%
documents = pd.read_csv(folder / "documents.csv", comment="#")
pairs = tl.compare_pairs(documents.query("strategy in @names"))
pairs[["first", "second", "difference", "low", "high"]].round(2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# A difference is the perplexity on Rust of the first minus that of the second, so a negative one means that the first
# is better. Discriminative rates cannot be told apart from `full`, and gradual unfreezing is about four points behind
# both.
#
# Both schedules forget less, with every seed: the Python reference ends at 53 (discriminative rates) and 58 on
# average in place of 64. It started at 36. A lower rate also makes `full` forget less, but then it gains less, too.
#
# **This is one small model**, and the question suits the method badly. The model's head is tied to the embedding, so
# gradual unfreezing freezes the head until the last phase, although it is the very top. And nothing here is random at
# the start, so the argument for protecting the lower layers does not apply. With a new head, as in [lesson
# 13](13_classification.ipynb), measure again.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A schedule is a table of learning rates, with a row for each part and a column for each step.
# - The optimizer needs every parameter that will ever train, from the beginning. Check by how far each part has moved.
# - Compare schedules each at its own best rate. Here discriminative rates forget less and gain as much as full
#   fine-tuning, as far as these runs can tell; gradual unfreezing forgets less and gains less.
#
# ## Further reading
#
# - [Howard and Ruder 2018](https://arxiv.org/abs/1801.06146): all three ideas.
# - [Kumar et al. 2022](https://arxiv.org/abs/2202.10054): why training the head first can help.
# - [Clark et al. 2020](https://arxiv.org/abs/2003.10555): ELECTRA, with rates that fall from layer to layer.

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
# **Exercise A1.1** (first steps). A model has 30 blocks and a tied head. Gradual unfreezing with 4 phases trains it for
# 200 steps, which are counted from 0. In which step is block 12 trained for the first time? Part 0 is the final norm,
# part 1 is block 29, and the embedding is part 31. As in the lesson, a part's phase is `part * 4 // parts`, and phase
# $g$ begins in step `g * steps // 4`.

# %%
answer = None
# your code here
course.check("exA1_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise A1.2** (apply it). Write ULMFiT's slanted triangular schedule, as the factor by which the highest rate is
# multiplied in a step. The steps are counted from 0, and `cut` is `math.floor(steps * cut_frac)`. Before the cut, $p$
# is `step / cut`; from the cut on it is `1 - (step - cut) / (cut * (1 / cut_frac - 1))`. The factor is $(1 +
# p\,(\mathrm{ratio} - 1)) / \mathrm{ratio}$.

# %%
import math


def slanted(step, steps, cut_frac=0.1, ratio=32):
    """The learning rate of a step, as a share of the highest one."""
    # your code here


course.check("exA1_2", slanted)

# %% [markdown]
# Previous: [20 · Your own project](20_your_own_project.ipynb)
