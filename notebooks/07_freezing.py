# %% [markdown] slideshow={"slide_type": "slide"}
# # 7 · Train the last layers only
#
# *What was in the published 29,865,088?*
#
# If only the top of a model is trained, backpropagation can stop early and much of a step is saved. That is the
# promise of training the last layers. The reports that [lesson 16](16_autopsy.ipynb) examines call it "adapter
# layers", although no adapter is added anywhere, and they say: "last 2 layers + head, 29,865,088 parameters". We take
# this number apart to the last value and find that the recipe trained something other than its name says, and lost
# much of the promised saving.
#
# **You will be able to**
#
# - say from a list of trained weights how far down backpropagation goes, and check it;
# - compute what a step costs when the last 1, 2, 4 or 8 blocks are trained, and what each depth gains;
# - skip the frozen part altogether after the first epoch, with the same result.
#
# **You need** [lesson 7](21_freeze_lower_layers.ipynb) (frozen blocks) and [lesson 7](22_freeze_embeddings.ipynb) (tied
# heads). About 44 minutes.

# %% slideshow={"slide_type": "subslide"}
from contextlib import nullcontext

import pandas as pd
import course
import tlkit as tl
from course.lesson07 import pictures
import torch

profile = tl.setup()
rust = tl.load_corpus().limited(profile.train_passages, profile.test_passages)
base = tl.load_model("tiny")
blocks = tl.pack(rust.train, base.tokenizer, 128)
before = tl.perplexity(base.model, base.tokenizer, rust.validation)
written_before = tl.generate(base.model, base.tokenizer)


def adapted(depth, train_norms=False):
    """A fresh copy of the bundled model, its last blocks trainable."""
    model = tl.load_model("tiny").model
    return tl.apply_strategy(
        model, "last_layers", blocks=depth, train_norms=train_norms
    )


# %% [markdown] slideshow={"slide_type": "slide"}
# ## Where backpropagation stops
#
# Here are two ways to train the last two of eight blocks. In the second, every *norm* of the model is trained, too. A
# norm is a small layer that brings the numbers of a token to a common size ([lesson
# 2](02_inside_a_language_model.ipynb) builds one); each block has two of them.

# %%
alone, with_norms = adapted(2), adapted(2, train_norms=True)
names = ["two blocks", "two blocks and every norm"]
tl.network_strip(alone, with_norms, names=names)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The two train nearly the same number of values, 813,000 and 815,000. The blue foot of blocks 0 to 5 stands for their
# two norms, which are all that is trained there. Yet in the second strip [backpropagation](glossary.md#backpropagation)
# runs through all blocks. It has to reach the lowest trained weight, and the lowest norm is in block 0.
#
# The model itself can tell us. In PyTorch the output of a layer has `requires_grad` if its input has it or if one of
# its weights is trained, so the mark spreads upwards from the lowest trained weight. Blocks without the mark are
# computed in the forward pass, but nothing is kept of them and the backward pass never visits them.


# %%
def blocks_reached(model):
    """Numbers of the blocks whose output backpropagation will reach."""
    marks = []
    hooks = [
        block.register_forward_hook(lambda *seen: marks.append(seen[-1].requires_grad))
        for block in tl.find_blocks(model)
    ]
    model(input_ids=blocks[:1], use_cache=False)
    for hook in hooks:
        hook.remove()
    return [number for number, mark in enumerate(marks) if mark]


print("two blocks:               ", blocks_reached(alone.model))
print("two blocks and every norm:", blocks_reached(with_norms.model))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The published number, taken apart
#
# The published run used Qwen2-0.5B: 24 blocks of width 896. We can count on the *meta device*, where tensors have a
# shape but no numbers in them. Here is one block:

# %%
qwen = tl.meta_model("qwen2-0.5b")
for name, tensor in tl.find_blocks(qwen)[0].named_parameters():
    print(f"{name:32} {str(tuple(tensor.shape)):13} {tensor.numel():>10,}")
one_block = sum(tensor.numel() for tensor in tl.find_blocks(qwen)[0].parameters())
print(f"{'one block':46} {one_block:>10,}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** The head of Qwen2-0.5B has 136,134,656 values. "Last 2 layers + head, 29,865,088 parameters": can
# the head be in it? And beside two blocks, how many values are left over, and how many vectors of 896 is that?

# %%
two_blocks = tl.apply_strategy(qwen, "last_layers", train_norms=False).trainable_values
published = tl.apply_strategy(qwen, "last_layers")  # with every norm
norms = published.trainable_values - two_blocks
print(f"two blocks:             {two_blocks:>11,}")
print(f"45 norms of 896 values: {norms:>11,}")
print(f"together:               {published.trainable_values:>11,}")

# %%
tl.network_strip(published, names=["the published run"])

# %% [markdown] slideshow={"slide_type": "subslide"}
# Two blocks leave 40,320 values over, which are 45 vectors of 896. These are norms: two in each of the 22 frozen
# blocks, and the final one. The program had trained every weight with "norm" in its name ([lesson
# 16](16_autopsy.ipynb) has the details). The head alone has more values than the whole number, so it was not trained:
# it is tied to the embedding, and the embedding was frozen.
#
# A norm first normalises and then rescales. This one is called [RMSNorm](glossary.md#rmsnorm). With $x$ and $y$ for one
# token, shape $(d)$, and a trained vector $g$, shape $(d)$:
#
# $$\hat{x} = \frac{x}{\sqrt{\frac{1}{d}\sum_{i} x_i^2 + \epsilon}} \qquad y = g \odot \hat{x} \qquad
# \frac{\partial L}{\partial g} = \sum_{\text{tokens}} \frac{\partial L}{\partial y} \odot \hat{x}$$
#
# First $x$ is divided by the root of its mean square, then each of its $d$ numbers is multiplied by a trained factor
# ($\odot$ is the product number by number; $\epsilon$ is tiny and prevents a division by zero). The gradient of $g$
# itself is cheap. But it needs $\partial L / \partial y$ at this place, and to get there backpropagation must pass
# through every block above.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What a step costs
#
# Nearly all the arithmetic of a step consists of products with weight matrices. Each token meets each value of a
# matrix up to three times: in the forward pass, when the gradient passes through to what is below, and when the
# gradient of the matrix itself is computed. Each time costs a multiplication and an addition, so
#
# $$C \approx 2\,T\,\bigl(N_{\text{forward}} + N_{\text{passed}} + N_{\text{trained}}\bigr)$$
#
# $C$ is the number of operations of a step over $T$ tokens. Each $N$ counts matrix values: $N_{\text{forward}}$ all
# that the forward pass uses (8 blocks and the head; the lookup needs no product), $N_{\text{passed}}$ those that the
# gradient passes through (for depth 2: 2 blocks and the head), and $N_{\text{trained}}$ those that are trained (2
# blocks).
#
# **Predict first.** If you train 2 of 8 blocks instead of all 8 (depth 2 instead of depth 8), what share of the
# arithmetic is left? And if every norm is trained with them?

# %%
matrices = [p for p in tl.find_blocks(alone.model)[0].parameters() if p.ndim == 2]
one = sum(p.numel() for p in matrices)  # of one block
head, T = 4096 * 192, blocks[:4].numel()


def cost(passed, trained):
    """By the formula, for that many blocks."""
    return 2 * T * ((8 * one + head) + (passed * one + head) + trained * one)


by_formula = {
    "depth 2": cost(2, 2),
    "depth 2 with norms": cost(8, 2),
    "depth 8": cost(8, 8),
}
models = (alone.model, with_norms.model, adapted(8).model)
steps = {
    name: tl.count_flops(model, blocks[:4])
    for name, model in zip(by_formula, models, strict=True)
}
share = {name: step.total / steps["depth 8"].total for name, step in steps.items()}
for name, operations in by_formula.items():
    formula = operations / by_formula["depth 8"]
    print(f"{name:19} by the formula {formula:.0%}, counted {share[name]:.0%}")

# %%
tl.flops_chart(steps)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Two blocks of eight are a quarter of the depth, but a step still takes 56% of the arithmetic, because the forward pass
# goes through everything and the head must be passed both ways. With every norm it is 81%: the norms are only 2,496
# more trained values, a third of a percent of what was trained, but they cost more than half of the saving. (The
# formula leaves out the products between tokens in attention, which have no weights, so it is off by a few percent.)

# %%
course.claim(
    "The norms cost more than half of the saving",
    share["depth 2 with norms"] - share["depth 2"] > 0.5 * (1 - share["depth 2"]),
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How deep?
#
# Now train the last 1, 2, 4 and all 8 blocks, each with two seeds. A seed decides the order of the training text; the
# pretrained weights are the same. (Eight blocks are not yet full fine-tuning: the embedding and the final norm stay
# frozen.) For each depth we tried the learning rates 2e-3, 5e-3 and 1e-2 beforehand, and took the one with the lowest
# perplexity on the validation text. The results below are measured on the same text, so they are slightly optimistic.
#
# **Predict first.** How much of what eight blocks gain will a single block gain?
#
# One function does a run:


# %%
def one_run(job, depth, rate, seed, train_norms=False):
    """Train a fresh copy and score it: a row for a table, and the model."""
    with job.part(f"depth {depth}, rate {rate:g}, seed {seed}") as part:
        report = adapted(depth, train_norms)
        settings = tl.TrainingConfig(
            rate, epochs=profile.epochs, batch_size=4, seed=seed
        )
        run = tl.train(report.model, blocks, settings, progress=part)
        score = tl.perplexity(report.model, base.tokenizer, rust.validation)
    row = {"blocks": depth, "every norm": train_norms, "seed": seed}
    row |= {"values": report.trainable_values, "seconds": run.seconds}
    row |= {"memory_mb": run.peak_memory / 1e6, "perplexity": score.perplexity}
    return row, report.model


# %%
rates = {1: 1e-2, 2: 5e-3, 4: 2e-3, 8: 2e-3}  # the best of three for each depth
with tl.Job(9) as job:
    runs = [one_run(job, k, rates[k], seed)[0] for k in rates for seed in (0, 1)]
    same_rate, _ = one_run(job, 8, rates[2], seed=0)  # all blocks, the rate of two
sweep = pd.DataFrame(runs)
steps = {k: tl.count_flops(adapted(k).model, blocks[:4]).total for k in rates}
sweep["arithmetic"] = 100 * sweep.blocks.map(steps) / steps[8]
pictures.trained_depth_chart(sweep, before.perplexity)

# %% tags=["nbval-ignore-output"]
means = sweep.groupby("blocks")[
    ["values", "arithmetic", "seconds", "perplexity"]
].mean()
means["seconds"] *= 100 / means.seconds.iloc[-1]
means["values"] = means["values"].astype(int)
means.round(1).set_axis(
    ["values", "arithmetic, %", "time, %", "perplexity"], axis="columns"
)

# %%
reached = sweep.groupby("blocks").perplexity.mean()
gained = (before.perplexity - reached) / (before.perplexity - reached[8])
course.claim("One block gains more than 70% of what eight blocks gain", gained[1] > 0.7)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The last block alone brings 84% of what eight blocks gain. Only the final norm stands between it and the head, so it
# can change the scores of the next token without help from the others. Each further block adds the same 7 points of
# cost, and far less gain than the last one alone. The table also gives the time of a run, as a percentage of that for
# eight blocks. Here it stays within a few points of the arithmetic; on a busy computer it also depends on what else
# is running.
#
# Two seeds give a first idea of how much the order of the text matters. The step from one block to two is larger than
# that; two and four blocks cannot be told apart here. Two seeds are not enough to rank depths that are this close, and
# the text that is scored is also only a sample. [Lesson 15](15_comparison.ipynb) deals with both.
#
# The second line with ✓ is a warning. In one run (seed 0) with 5e-3, the rate that suits two blocks, all eight blocks
# ended *higher* than two, by more than 5 points of perplexity. If you compared depths at one rate for all, you would
# conclude that training more is worse, but you would only have measured the rate. In this model fewer blocks wanted a
# larger rate: of the three, the highest was best for one block and the lowest for four and eight, so their true best
# may even lie outside these three. This is an observation on one small model, not a law. Tune the rate for each
# strategy.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What the norms bring
#
# Train the same two blocks once more, now with every norm. Does the published recipe at least gain something?

# %%
with tl.Job(2) as job:
    normed = [one_run(job, 2, rates[2], seed, train_norms=True) for seed in (0, 1)]
written = tl.generate(normed[0][1], base.tokenizer)
two = sweep[sweep.blocks == 2]
pairs = pd.concat([two, pd.DataFrame([row for row, _ in normed])], ignore_index=True)

# %% tags=["nbval-ignore-output"]
shown = ["seed", "every norm", "perplexity", "memory_mb", "seconds"]
pairs.sort_values(["seed", "every norm"])[shown].round(1)

# %%
without, with_all = pairs[:2], pairs[2:].reset_index()
lower = without.perplexity - with_all.perplexity
course.claim(
    "With the norms more memory is needed",
    with_all.memory_mb.min() > without.memory_mb.max() + 10,
)
course.claim("With both seeds, perplexity is lower with the norms", (lower > 0).all())

# %% [markdown] slideshow={"slide_type": "subslide"}
# The memory goes to [activations](glossary.md#activation): results of the forward pass that the backward pass will need
# again. With the norms they are kept for all eight blocks, without them for two.
#
# The norms do help a little. Runs with the same seed read the same batches in the same order, so compare them in pairs:
# with both seeds, perplexity is lower by about 2. But the norms also raise the arithmetic of a step by 45%. Two seeds
# of one small model at one learning rate cannot tell whether that is worth it. A recipe should make this choice on
# purpose, and not because a name happens to match.
#
# Here is what the model wrote before training, and what it writes with two blocks and every norm trained. It has
# picked up words from Rust, but with four million values it still cannot write sentences that make sense:

# %% tags=["nbval-ignore-output"]
for old, new in zip(written_before, written, strict=True):
    print("before:", old)
    print("after: ", new, "\n")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Compute the frozen part once
#
# Without the norms, nothing below block 6 is trained. For the same text, the same numbers leave block 5 in every epoch
# and in every evaluation, so they can be computed once and stored:

# %%
pictures.prefix_picture(adapted(2), 6)

# %% [markdown] slideshow={"slide_type": "subslide"}
# `tl.cached_prefix` does this. It refuses where something below is trained, or where the frozen part draws random
# numbers (dropout), because then the numbers would differ from pass to pass.
#
# **Predict first.** Six of eight blocks need no forward pass any more. What is left of the arithmetic of a step: a
# quarter, a half, more?

# %%
plain, kept = adapted(2), adapted(2)
anew = tl.count_flops(plain.model, blocks[:4])
with tl.cached_prefix(kept.model) as cache:
    first, later = (tl.count_flops(kept.model, blocks[:4]) for _ in range(2))
print(
    f"{cache.rows_computed} sequences computed, {cache.rows_reused} read from the store"
)
print(f"a later step takes {later.total / anew.total:.0%} of the arithmetic")
try:
    tl.frozen_blocks(with_norms.model)
except ValueError as error:
    print("with every norm trained:", str(error).partition(":")[0])

# %% [markdown] slideshow={"slide_type": "subslide"}
# About three fifths are left. The first pass over a text saves nothing, so the cache pays from the second epoch on.
# What remains is two blocks and the head, which every pass must go through, forwards and backwards.
#
# In Qwen2-0.5B most of the rest is the head. The two trained blocks have 29,824,768 values, the head 136,134,656. By
# the formula above, trained matrices count three times in a step and the frozen head twice:

# %%
pair, head, below = 2 * 14_912_384, 136_134_656, 22 * 14_912_384
rest = 3 * pair + 2 * head
print("the head's part of what is left:", f"{2 * head / rest:.0%}")
print(f"a later step is at most {(below + rest) / rest:.1f} times as fast")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Although 22 of 24 blocks are skipped, a step is not even twice as fast. The head must score every token in every pass,
# so it limits what any cache below it can save.
#
# A cache is only good if the result stays the same. Train for three epochs over eight rows of text, with and without
# it:

# %%
losses = {}
for name in ("computed anew", "from the cache"):
    report = adapted(2)
    caching = name == "from the cache"
    with tl.cached_prefix(report.model) if caching else nullcontext():
        settings = tl.TrainingConfig(5e-3, epochs=3, batch_size=4)
        losses[name] = tl.train(report.model, blocks[:8], settings).history.loss

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same in plain transformers
#
# In plain transformers you freeze everything and then switch the last blocks on again. In Llama, Qwen2 and many others
# the blocks are the list `model.model.layers`; in GPT-2 they are `model.transformer.h`. The optimizer gets only what is
# trained. The losses are those of `tl.train` to one part in a million.

# %%
from transformers import AutoModelForCausalLM

plain = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
plain.requires_grad_(False)
plain.model.layers[-2:].requires_grad_(True)
trained = [p for p in plain.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.01)
order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
by_hand = []
for batch in blocks[order].split(4):
    loss = plain(input_ids=batch, labels=batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    by_hand.append(loss.item())

# %%
again = adapted(2)
constant = tl.TrainingConfig(1e-3, batch_size=4, schedule="constant", warmup_fraction=0)
history = tl.train(again.model, blocks[:20], constant).history
apart = max(abs(a / b - 1) for a, b in zip(by_hand, history.loss, strict=True))
course.claim("Five steps, five equal losses", len(by_hand) == 5 and apart < 1e-6)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Choose modules, as here, and not names. "Every parameter with `norm` in its name" is how the published recipe came
# to train 45 vectors that its name does not mention, and `layers.2` is also the beginning of `layers.20`.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Backpropagation goes down to the lowest trained weight. One small vector at the bottom makes it pass through every
#   block, which costs arithmetic and memory.
# - Count values by component before you believe the name of a strategy: the published "last 2 layers + head" was two
#   blocks and 45 norms.
# - The last block alone brought most of the gain here. Compare depths only with a learning rate tuned for each.
#
# **Further reading**
#
# - J. Howard and S. Ruder, [Universal Language Model Fine-tuning for Text
#   Classification](https://arxiv.org/abs/1801.06146), 2018: unfreezing from the top downwards.
# - J. Lee, R. Tang and J. Lin, [What Would Elsa Do? Freezing Layers During Transformer
#   Fine-Tuning](https://arxiv.org/abs/1911.03090), 2019: how many of the last layers are enough.
# - Y. Liu, S. Agarwal and S. Venkataraman, [AutoFreeze](https://arxiv.org/abs/2102.01386), 2021: freezing while
#   training, and keeping the activations of the frozen part.
# - B. Zhang and R. Sennrich, [Root Mean Square Layer Normalization](https://arxiv.org/abs/1910.07467), 2019: the
#   norm of this model.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex07_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** In the bundled model, the norms outside the last two blocks have 2,496 values together. Training them raises
# the peak of memory by tens of megabytes. What is this memory for?
#
# - **a** For the norms themselves, which are computed in higher precision once they train.
# - **b** For AdamW, which keeps two more numbers for each trained value.
# - **c** For the gradient of the embedding, which is trained with them.
# - **d** For what the backward pass needs of every block that it goes through.

# %%
course.quiz("quiz07")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 7.1** (first steps). TinyLlama-1.1B has 22 blocks and a width of 2,048. As in Qwen2, each block has two
# norms, and one more norm follows the last block. Apply the published recipe, which trains the last two blocks and
# every norm. How many values does it train *outside* the last two blocks?

# %%
answer = None
# your code here
course.check("ex07_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 7.2** (apply it). A strategy says that it trains the last blocks. Is that all? Write a function that takes
# the report of `apply_strategy` and returns how many values are trained *outside* the last `blocks` blocks. For the
# published run it gives 40,320. `report.components` is a dictionary with an entry for each part of the model, such as
# "embedding" or "block 0"; each entry knows its `trainable_values` and its `total_values`.


# %%
def values_elsewhere(report, blocks):
    """How many values are trained outside the last blocks."""
    # your code here


course.check("ex07_2", values_elsewhere)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 7.3** (think further). Repair the recipe. Write a function that makes the last `blocks` blocks and the
# final norm trainable, freezes all else, and returns the model. It is given models in which everything is trainable,
# and it must be right for a Llama (blocks in `model.layers`, final norm `model.norm`) and for a GPT-2 (blocks in
# `transformer.h`, final norm `transformer.ln_f`). So you cannot rely on names; use the structure of the model.


# %%
def train_last(model, blocks):
    """The model, with its last blocks and its final norm trainable and nothing else."""
    # your code here


course.check("ex07_3", train_last)

# %% [markdown]
# Previous: [6 · QLoRA](06_qlora.ipynb) ·
# Next: [8 · The PEFT family](08_peft_family.ipynb)
