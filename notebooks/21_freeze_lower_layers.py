# %% [markdown] slideshow={"slide_type": "slide"}
# # 21 · Freeze the lower layers
#
# *Why does freezing half the blocks save so little?*
#
# The lower layers of a network tend to hold what is general, and the upper ones what is specific to its task
# (Yosinski et al. 2014 showed it for images). That suggests a cheap way to fine-tune: *freeze* the lower half of the
# blocks, which means that they stay as they are, and train only the rest. You would expect that to save half the
# work. It saves far less, and the reason also explains what every later strategy in this course costs.
#
# **You will be able to**
#
# - work out from the shapes of a model what a training step costs, and what freezing a part of it saves;
# - say how far down backpropagation has to go, and how to make it stop earlier;
# - freeze blocks in plain transformers, and explain why one strategy forgets more than another.
#
# **You need** the training step and the terms *learning rate* and *forgetting* from
# [lesson 4](04_full_fine_tuning.ipynb).
#
# About 45 minutes.

# %% slideshow={"slide_type": "subslide"}
import math

import pandas as pd
import torch
from torch.nn import functional

import course
import tlkit as tl
from tlkit.reports.forgetting_charts import tradeoff_chart
from course.lesson21 import pictures

profile = tl.setup()
rust = tl.load_corpus().limited(profile.train_passages, profile.test_passages)
general = tl.load_corpus("general").limited(test=profile.test_passages)
tiny = tl.load_model("tiny")
blocks = tl.pack(rust.train, tiny.tokenizer, 128)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Frozen, and still passed through
#
# To [freeze](glossary.md#freezing) a weight means that it gets no gradient and the optimizer leaves it alone. In
# PyTorch one line does it: `block.requires_grad_(False)`. The picture shows two ways to freeze the lower half of the
# bundled model. In the second one the embedding is frozen too.


# %%
def frozen_below(count, embedding_trained=True, model=None):
    """The bundled model (or another) with its `count` lowest blocks frozen."""
    model = model or tl.load_model("tiny").model
    for block in tl.find_blocks(model)[:count]:
        block.requires_grad_(False)
    model.get_input_embeddings().requires_grad_(embedding_trained)
    return model


report = tl.describe(frozen_below(4), "the lower half frozen")
deeper = tl.describe(frozen_below(4, False), "the lower half and embedding frozen")
tl.network_strip(report, deeper)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Look at the two arrows. Backpropagation starts at the loss and goes down to the lowest part that is trained. In the
# first strip that is the embedding, which lies *below* the frozen blocks. They need no gradients of their own, but
# backpropagation still has to pass through them to reach it. In the second strip nothing below block 4 is trained, so
# it stops there.
#
# Why is the embedding trained at all? In this model the head, which scores the next token, uses the same matrix (the
# two are *tied*, [lesson 7](22_freeze_embeddings.ipynb)). If you train the head, you train the embedding with it.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Three products in every layer
#
# Almost all arithmetic of a step is in matrix products. Take one linear layer with the weights $W$, of shape
# (out, in). Its input $X$ has a row for each token, so its shape is ($T$, in) for $T$ tokens, and its output $Y$ has
# the shape ($T$, out). A training step computes three products with it, where $G = \partial L / \partial Y$, shaped
# like $Y$, is the gradient of the loss $L$ that arrives from above:
#
# $$Y = X W^\top \qquad \frac{\partial L}{\partial X} = G\, W \qquad \frac{\partial L}{\partial W} = G^\top X$$
#
# The first is the forward pass. The second is the gradient of the input, which the layer below needs. The third
# is the gradient of the weights, which the optimizer needs. Each takes one multiplication and one addition for every
# pair of a token and a weight. With $N$ = out × in weights that is $2NT$ operations
# ([FLOPs](glossary.md#flop)), so a step costs
#
# $$\underbrace{2NT}_{\text{forward}} \;+\; \underbrace{2NT}_{\text{gradient of the input}} \;+\;
# \underbrace{2NT}_{\text{gradient of the weights}} \;=\; 6NT$$
#
# The backward pass therefore costs twice the forward pass. You can check the two gradients against PyTorch:

# %%
X = torch.randn(512, 192, requires_grad=True)  # 4 x 128 tokens, 192 wide
W = torch.randn(512, 192, requires_grad=True)  # a layer from 192 to 512
Y = X @ W.T
loss = functional.silu(Y).sum()
G, by_torch_X, by_torch_W = torch.autograd.grad(loss, [Y, X, W])
course.claim("G W is PyTorch's gradient of X", (G @ W).allclose(by_torch_X, atol=1e-4))
course.claim("G^T X is its gradient of W", (G.T @ X).allclose(by_torch_W, atol=1e-3))

# %% [markdown] slideshow={"slide_type": "subslide"}
# A frozen layer saves the third product only. It saves the second as well when nothing below it is trained. (Block 4
# in the last strip still needs the second: its own norms lie below its linear layers, and they are trained.) Counted
# for the blocks of the bundled model, that gives this picture:

# %%
everything = tl.describe(frozen_below(0), "full")
pictures.products_chart(everything, report, deeper)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## The whole step, by hand
#
# With the lower half frozen, 20 of 24 products are left in the blocks, which is 83%. But the blocks are not the whole
# step.
#
# Two more things cost arithmetic. The head is a linear layer with as many weights as the embedding. And attention
# multiplies activations by activations: queries by keys, and the result by values. No weight is involved. In each
# block of the model that is 2 products forward and 4 backward. Each takes $2 B H t^2 d$ operations for a batch of $B$
# sequences of $t$ tokens and $H$ attention heads of width $d$. (In the code, $B$ is `rows` and $Hd$ is `wide`.)
#
# **Predict first.** With the lower half frozen, what share of the *whole* step's arithmetic is left? Is it more than
# 83%, or less?


# %%
def arithmetic(model, frozen, embedding_trained, rows=4, tokens=128):
    """Operations of a training step with the `frozen` lowest blocks frozen."""
    blocks, config = tl.find_blocks(model), model.config
    wide = config.hidden_size
    layers = sum(p.numel() for p in blocks[0].parameters() if p.ndim == 2)
    product = 2 * layers * rows * tokens  # one of the three, in one block
    attention = 2 * 2 * rows * tokens**2 * wide  # both of its products, forward
    head = 2 * config.vocab_size * wide * rows * tokens
    trained = len(blocks) - frozen
    reached = len(blocks) if embedding_trained else trained
    forward = len(blocks) * (product + attention) + head
    inputs = reached * (product + 2 * attention) + head
    weights = trained * product + head * embedding_trained
    return forward + inputs + weights


# %%
paper = tl.meta_model("tiny")  # names and shapes without weights, enough to count
text = torch.zeros(4, 128, dtype=torch.long)
counted = {
    case: tl.count_flops(frozen_below(*case, model=tl.meta_model("tiny")), text).total
    for case in ((0, True), (4, True), (4, False))
}
full = arithmetic(paper, 0, True)
half, cut = (arithmetic(paper, 4, trained) / full for trained in (True, False))
print(f"the lower half frozen: {half:.0%} of the arithmetic of full fine-tuning")
print(f"embedding frozen as well: {cut:.0%}")
course.claim(
    "Formula and count of a real step agree to one part in a million, in three cases",
    all(
        math.isclose(arithmetic(paper, *case), total, rel_tol=1e-6)
        for case, total in counted.items()
    ),
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Freezing half the blocks leaves 88% of the arithmetic, more than the 83% of the blocks alone. Half of the blocks
# lose one product of three, which saves a sixth of the matrix products of all blocks. The head and attention cost as
# much as before, so the saving for the whole step is smaller. With the embedding frozen as well, a third of the
# arithmetic is saved. Of the 21 points between 88% and 67%, 6 are the gradient of the table itself, which the head no
# longer computes. The other 15 are the gradients that had to pass through blocks 0 to 3 only to reach that table.
#
# ## On a larger model
#
# **Predict first.** A published run froze 12 of the 24 blocks of Qwen2-0.5B, whose embedding has 151,936 rows of 896
# values. Are about half of all values trained then, clearly fewer, or clearly more?
#
# `meta_model` builds a model with names and shapes and without weights, so nothing is downloaded.

# %%
qwen = tl.apply_strategy(tl.meta_model("qwen2-0.5b"), "freeze_lower")
tl.network_strip(qwen)

# %%
print(f"{qwen.trainable_values:,} values, {qwen.percent:.2f}%")
print(f"of them in the embedding: {qwen.components['embedding'].trainable_values:,}")
left = arithmetic(qwen.model, 12, False) / arithmetic(qwen.model, 0, True)
print(f"arithmetic left with the embedding frozen too: {left:.0%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Clearly more are trained: 315,084,160 values, which are 63.78% of all, as the published run reports. The reason is the
# embedding again. Its 151,936 rows of 896 values hold more than a quarter of the model, and all of them are trained.
# With it frozen too, 67% of the arithmetic is left, as in the tiny model. (The strip draws equal blocks together.)
#
# One published program had another problem. To freeze block 1 it looked for the text `layers.1` in the names of the
# parameters. That text is also in `layers.10` to `layers.19`, and `layers.2` is in `layers.20` to `layers.23`. Asked
# to freeze 12 of 24 blocks, it froze all 24:

# %%
found = [
    n
    for n in range(24)
    if any(f"layers.{k}" in f"model.layers.{n}.mlp" for k in range(12))
]
print("blocks found by the text of their names:", len(found))

# %% [markdown] slideshow={"slide_type": "subslide"}
# `tl.find_blocks` takes the blocks from the model's own list, and the strip shows at a glance what was frozen.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How deep?
#
# You can freeze more or fewer than half of the blocks. Freeze none, 4 or 6 of the 8 and compare three things:
# arithmetic from the formula, peak memory from a measured step, and perplexity on Rust validation text after one epoch.
# Two seeds are run with 0 and with 4 frozen blocks (the seed changes the order of the batches). All runs use the
# learning rate 1e-3, which was tuned for full fine-tuning.
#
# **Predict first.** With 6 of 8 blocks frozen, how much of the arithmetic is left, and how much of the memory?


# %%
def train(frozen, rate, seed=0, embedding_trained=True, epochs=1.0):
    model = frozen_below(frozen, embedding_trained)
    settings = tl.TrainingConfig(rate, epochs=epochs, batch_size=4, seed=seed)
    return model, tl.train(model, blocks, settings)


def score(model, texts):
    return tl.perplexity(model, tiny.tokenizer, texts).perplexity


runs, kept = [], {}
for frozen, seed in ((0, 0), (0, 1), (4, 0), (4, 1), (6, 0)):
    model, result = train(frozen, 1e-3, seed)
    runs.append((frozen, seed, score(model, rust.validation), result.peak_memory))
    kept[frozen, 1e-3, seed] = model
    print(frozen, "blocks frozen, seed", seed, "trained")
runs = pd.DataFrame(runs, columns=["frozen", "seed", "perplexity", "peak"])

# %%
costs = []
two_steps = 2.1 * 4 / len(blocks)
for frozen in (0, 4, 6):
    _, result = train(frozen, 1e-3, embedding_trained=False, epochs=two_steps)
    print(frozen, "blocks and the embedding frozen: two steps taken")
    with_it = runs[runs.frozen == frozen].peak.max()
    for name, peak in (("trained", with_it), ("frozen", result.peak_memory)):
        share = 100 * arithmetic(paper, frozen, name == "trained") / full
        costs.append((frozen, name, share, peak / 1e6))
costs = pd.DataFrame(costs, columns=["frozen", "embedding", "arithmetic", "memory_mb"])
pictures.frozen_depth_chart(costs, runs)

# %%
work = costs.pivot(index="frozen", columns="embedding", values="arithmetic")
memory = costs.pivot(index="frozen", columns="embedding", values="memory_mb")
course.claim(
    "6 frozen blocks leave over 80% of the arithmetic and 75% of the memory",
    work.trained[6] > 80 and 0.7 < memory.trained[6] / memory.trained[0] < 0.78,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With 6 frozen blocks, 82% of the arithmetic is left and about three quarters of the memory. The arithmetic falls along
# two straight lines, because every frozen block saves the same: one product of three, which is 3% of the step, or its
# whole backward pass, which is 7%, where the embedding is frozen too. Memory falls mainly for two reasons. A frozen
# weight has no gradient and no running averages in the optimizer, which together are 12 bytes a weight. And a block
# through which no gradient passes need not keep its intermediate results, its [*activations*](glossary.md#activation).
#
# Perplexity is below that of the untouched model (133) in every run, and it rises with the number of frozen blocks.
# The two marks at 0 and at 4 are the two seeds, which differ by two to three points. Up to 4, a frozen block costs
# less than that on average (about 1.7 points), so two seeds could not tell 4 of them from 3; [lesson
# 15](15_comparison.ipynb) shows how such a question is decided. The rate also plays a part: 1e-3 suits `full`, and
# with fewer trained weights a larger one may do better, as the section after next shows.
#
# How much perplexity a frozen half costs has to be measured. The arithmetic can be worked out for a model of any size.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same in plain transformers
#
# You can do the same without tlkit: load the model, freeze what should stay, and give the optimizer only what is
# trained. (A frozen parameter has no gradient, so AdamW would skip it anyway; leaving it out makes the intention
# clear.)

# %%
from transformers import AutoModelForCausalLM

plain = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype="float32")
for block in plain.model.layers[:4]:
    block.requires_grad_(False)
trained = [p for p in plain.parameters() if p.requires_grad]
adamw = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.01)
order = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(0))
losses = []
for batch in blocks[order][:16].split(4):
    loss = plain(input_ids=batch, labels=batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    adamw.step()
    adamw.zero_grad()
    losses.append(loss.item())

# %%
constant = tl.TrainingConfig(
    1e-3, epochs=4.1 * 4 / len(blocks), batch_size=4, schedule="constant",
    warmup_fraction=0,
)  # fmt: skip
ours = tl.train(frozen_below(4), blocks, constant).history.loss
furthest = max(abs(a - b) for a, b in zip(losses, ours, strict=True))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How far weights move, and what is forgotten
#
# Lesson 15 compares all strategies, each with the learning rate that did best for it on validation text. In that
# comparison `freeze_lower` forgets *most*, more than `full`, although half of its blocks cannot change at all. The
# record of the tuning helps to find out why. Each point in the chart below is one learning rate: the mean of two seeds,
# both perplexities on validation text.
#
# **Predict first.** At the *same* learning rate, which forgets more: `full` or `freeze_lower`?

# %%
tuning = tl.recorded("rates")
paths = {}
for name in ("full", "freeze_lower"):
    near = tuning[(tuning.strategy == name) & tuning.learning_rate.between(5e-4, 2e-3)]
    near = near[["learning_rate", "validation_perplexity", "general_perplexity"]]
    path = near.groupby("learning_rate").mean().reset_index()
    paths[name] = path.set_axis(["label", "rust", "general"], axis=1)
    paths[name]["label"] = path.learning_rate.map("rate {:g}".format)
tradeoff_chart(paths)

# %%
by_rate = {name: path.set_index("label") for name, path in paths.items()}
best = {name: path.rust.idxmin() for name, path in by_rate.items()}
print("the best rate of those tried:", best)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Compare points of the same rate: `freeze_lower` always lies lower, so it forgets less. The tuning tried 5e-4, 1e-3,
# 2e-3, 5e-3 and so on, with nothing between. `full` does best at 1e-3. For `freeze_lower` the rates 1e-3 and 2e-3
# give nearly the same perplexity on Rust. The second was better by 2%, so `freeze_lower` entered the comparison with
# twice the rate of `full`, and there it forgets more than `full` does with 1e-3.
#
# Why does the rate matter so much for forgetting? Measure how far training moves the weights $\theta_i$, as the length
# of the change:
#
# $$\lVert \Delta \rVert = \sqrt{\sum_i (\theta_i^{\text{after}} - \theta_i^{\text{before}})^2}$$
#
# AdamW divides each gradient by its own typical size, so in a step each weight moves by at most about the learning
# rate $\eta$, and how far hardly depends on the size of its gradient. With $n$ trained weights the length should
# therefore grow like $c\, \eta \sqrt{n}$, with the same $c$ for runs of equally many steps. Each run here takes 17
# steps, and the schedule (lesson 4) multiplies the rate of each by a factor between 0 and 1; these factors add up to
# 9.5. If all steps pointed the same way, $c$ would be 9.5. Steps partly undo each other, so expect less.


# %%
def distance(model):
    """How far all weights together lie from the untouched model."""
    pairs = zip(model.parameters(), tiny.model.parameters(), strict=True)
    return math.sqrt(sum((a - b).detach().square().sum().item() for a, b in pairs))


rows = []
for frozen, rate in ((4, 1e-3), (0, 1e-3), (4, 1.4e-3), (4, 2e-3)):
    model = kept.get((frozen, rate, 0)) or train(frozen, rate)[0]
    free = sum(p.numel() for p in model.parameters() if p.requires_grad)
    name = "freeze_lower" if frozen else "full"
    moved, c = distance(model), distance(model) / (rate * math.sqrt(free))
    print(f"{name} with the rate {rate:g}: trained")
    scores = score(model, rust.validation), score(model, general.validation)
    rows.append((name, rate, free, moved, c, *scores))
columns = ["strategy", "rate", "trained", "distance", "c", "rust", "general"]
moves = pd.DataFrame(rows, columns=columns)

# %% tags=["nbval-ignore-output"]
moves.round({"distance": 2, "c": 2, "rust": 1, "general": 1})

# %%
c = moves.c
lowest, full_run, between, lower_run = (row for _, row in moves.iterrows())
course.claim(
    "The farther freeze_lower's weights moved, the more it forgot",
    lowest.distance < between.distance < lower_run.distance
    and lowest.general < between.general < lower_run.general,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each row is one run with seed 0, while a point of the chart is the mean of two seeds. That is why `full` has 54 on
# general text here and 53 in the chart.
#
# The formula explains much of the comparison. Freezing the lower half leaves 60% of the weights trained, which
# multiplies the distance by $\sqrt{0.6} = 0.77$. Doubling the rate doubles it. Together that is about 1.5 times as
# far as `full` (1.6 in the table), and `freeze_lower` forgets more. With 1.4e-3, which the tuning did not try, it
# gains as much on Rust as with 2e-3, and it forgets no more than `full`, although it moved farther (8.86 against
# 7.76): distance is not the whole explanation. So at least part of its place in the comparison is due to the spacing
# of the rates that were tried.
#
# These are four runs of one seed on one model, so take them as an explanation of one comparison and not as a law. The
# chart of the tuning also shows the price of freezing: at none of these rates does `freeze_lower` gain as much on Rust
# as `full` does at its best.
#
# The map below shows other strategies and models. Hover over a part, or press Tab, to see its counts.

# %%
course.strategy_map()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A training step costs three products in each layer: forward, gradient of the input, gradient of the weights. A
#   frozen layer saves the third, and the second only where nothing below it is trained.
# - How many weights are trained decides the memory of gradients and optimizer. How deep the lowest one lies decides how
#   far backpropagation goes.
# - Compare strategies with their learning rates in view: here, the farther the weights of `freeze_lower` moved (about
#   $c\, \eta \sqrt{n}$), the more it forgot.
#
# **Further reading.** [Yosinski et al. 2014](https://arxiv.org/abs/1411.1792) ask which layers are general.
# [Tenney et al. 2019](https://arxiv.org/abs/1905.05950) look for grammar and meaning in the layers of BERT.
# [Lee, Tang and Lin 2019](https://arxiv.org/abs/1911.03090) freeze the layers of BERT and RoBERTa one by one.
# [Kaplan et al. 2020](https://arxiv.org/abs/2001.08361) count 6 operations for each weight and token of training.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex21_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** Of a model with 24 blocks you train block 0 and nothing else. How does a step compare with one in which only
# block 23 is trained?
#
# - **a** It is the same: one block is trained in both.
# - **b** It is cheaper: the forward pass can stop behind block 0.
# - **c** It needs more memory for the optimizer, and the same time.
# - **d** It needs as much memory for the optimizer, but a longer backward pass and more kept activations.

# %%
course.quiz("quiz21")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 21.1** (first steps). In fp32 a weight takes 4 bytes. A *trained* one takes 12 more: 4 for its gradient and
# 8 for AdamW's two running averages. Freezing the lower half of Qwen2-0.5B leaves 315,084,160 of its 494,032,768 values
# trained. Of all bytes that full fine-tuning needs for weights, gradients and averages, how many percent are left?

# %%
answer = None
# your code here
course.check("ex21_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 21.2** (apply it). Count the arithmetic for any choice of blocks, in units of one product. Every block
# costs one unit in the forward pass. It costs one more for the gradient of its input if backpropagation passes through
# it: that is so when the block itself, or *anything below it*, is trained. And it costs one more for the gradient of
# its weights, if it is trained. Full fine-tuning costs three units a block. Which share of that, between 0 and 1, is
# left? `trained` is a list with True or False for each block, the lowest first; `embedding` says whether the embedding,
# below all blocks, is trained. Leave embedding and head out of the count; the lesson's function includes the head, so
# its shares differ a little.


# %%
def share_of_work(trained, embedding):
    """Units of a step, as a share of those of full fine-tuning."""
    # your code here


course.check("ex21_2", share_of_work)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 21.3** (think further). Write a check that says how far down backpropagation goes in a model. Return
# `"embedding"` if the token embedding is trained, otherwise the number of the lowest block in which any weight is
# trained. If no block is trained either, only the final norm or a head of its own can be: then return `"top"`. The
# check has to work for models whose parts have other names than ours. Do not compute a gradient, but look at what is
# trainable.


# %%
def gradient_ends(model):
    """The lowest part of the model that backpropagation has to reach."""
    # your code here


course.check("ex21_3", gradient_ends)

# %% [markdown]
# Previous: [20 · Your own study](20_your_own_project.ipynb) ·
# Next: [22 · Freeze the embeddings](22_freeze_embeddings.ipynb)
