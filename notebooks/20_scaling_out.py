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
# # 20 · Scaling out
#
# *What do more cards and more machines change, and what do they leave as it is?*
#
# Sooner or later a model is too large for your card, or a run too long for your patience. Then the work goes to several
# processes, one for each card. They compute side by side, and after each step they have to agree.
#
# **You will** train with one, two and four processes and lay their curves on top of each other, predict the bytes
# that travel between them to within two percent, and find how many cards a model of 7 billion values needs.
# About 5 minutes.

# %% slideshow={"slide_type": "subslide"}
import pandas as pd

import tlkit as tl

profile = tl.setup()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One batch, dealt out
#
# The plainest way keeps the whole model in every process. A batch of eight blocks is dealt out like cards: with two
# processes each takes four. Each computes its gradients; the gradients are added up over all processes; and each makes
# the same update, so that the models stay equal. This is *data parallel* training, in torch
# `DistributedDataParallel`, DDP.
#
# For that, no GPU is needed. `rehearse` starts four processes on this machine, one thread each. First one of them takes
# five steps of full fine-tuning alone, then two take them together, then all four. They talk over the machine's
# *loopback*, a network that ends where it begins.
#
# **Predict first.** The batch stays at eight blocks, whoever computes them. How far apart will the three curves be?

# %%
steps, runs = tl.rehearse(progress=True)
together = steps[steps.exchange == "ddp"]
tl.learning_curves(
    together.assign(
        strategy=together.processes.map("{} of four processes".format), seed=0
    )
)

# %%
losses = together.pivot(index="step", columns="processes", values="loss")
apart = (losses.max(axis=1) - losses.min(axis=1)).max()
print("steps:", len(losses), "- processes:", list(losses.columns))
tl.claim("Never further apart than a hundred-thousandth of a nat", apart < 1e-5)
assert losses[1].iloc[-1] < losses[1].iloc[0]

# %% [markdown] slideshow={"slide_type": "subslide"}
# There is one curve. Sums of rounded numbers depend a little on their order, and that is all the difference there is.
#
# It takes care to have it so. The loss is divided by the tokens of the *whole* batch, and gradients are summed, not
# averaged over processes. The last batch of an epoch may leave one process with fewer blocks than another, and then a
# mean of means is wrong. Programs that average over processes get away with it while shares are equal.
#
# ## What travels
#
# After each step, every process needs the sum of all gradients. The usual way is a *ring*: cut the gradients in N
# parts, and pass them around to the neighbour. After N - 1 rounds each process has the whole sum of one part, and after
# N - 1 more all have all of it. So each process sends 2 (N - 1) / N times the bytes of its gradients.
#
# **Predict first.** The bundled model has 4,036,800 values, in fp32. How many megabytes does each of two processes
# send in a step? And each of four?

# %%
model = tl.apply_strategy(tl.load_model("tiny").model, "full").model
sent = {n: round(tl.sent_per_step(model, n) / 1e6, 2) for n in (2, 4)}
for processes, megabytes in sent.items():
    print(f"{processes} processes: {megabytes} MB sent by each, every step")
assert sent == {2: 16.15, 4: 24.22}

# %% [markdown]
# Twice as many processes do not double it: with N going up, 2 (N - 1) / N goes to 2. The Linux kernel counts what
# passes its loopback. Here is the count beside the prediction.

# %% tags=["nbval-ignore-output"]
ddp = runs[runs.exchange == "ddp"].set_index("processes")
ddp[["predicted", "sent", "exchange_seconds", "step_seconds"]].round(3)

# %%
several = ddp[ddp.index > 1]
counted = several.sent.notna().all()  # elsewhere than on Linux nothing is counted
off = (several.sent / several.predicted - 1).abs().max()
if counted:
    tl.claim("The prediction holds, to two percent", off < 0.02)
else:
    print("not counted on this system")

# %% [markdown] slideshow={"slide_type": "subslide"}
# And the steps? On this machine they probably became *slower*: the processes share the cores that one process had
# for itself, and the exchange comes on top. A rehearsal shows that the numbers are right. It does not show the
# speed that several cards would have.
#
# For them you can estimate it. A step on N cards takes the N-th part of the computing, and the exchange, which does
# not shrink: bytes divided by bytes a second. DDP hides a part of it, for it sends the gradients of the upper blocks
# while the backward pass is still busy below.

# %%
links = {
    "cards joined by NVLink": 450e9,
    "cards in one PCIe 4.0 machine": 25e9,
    "machines on 10 Gbit Ethernet": 1.25e9,
}
rows = []
for strategy in ("full", "lora"):
    seven = tl.apply_strategy(tl.meta_model("llama2-7b"), strategy).model
    sent = tl.sent_per_step(seven, 8)
    rows.append(
        {"strategy": strategy, "GB sent": sent / 1e9}
        | {name: sent / rate for name, rate in links.items()}
    )
travel = pd.DataFrame(rows).set_index("strategy").round(3)
travel

# %%
fewer = travel["GB sent"]["full"] / travel["GB sent"]["lora"]
print("full fine-tuning sends GB a step:", round(travel["GB sent"]["full"], 1))
print("LoRA sends less, times:", round(fewer, -1))
assert round(travel["GB sent"]["full"], 1) == 47.2 and 330 < fewer < 345
on_ethernet = travel["machines on 10 Gbit Ethernet"]
assert on_ethernet["full"] > 30 and on_ethernet["lora"] < 0.2

# %% [markdown] slideshow={"slide_type": "subslide"}
# The seconds are those of the link alone, at the rate on its box. Full fine-tuning of 7 billion values over office
# Ethernet waits more than half a minute for every step. LoRA sends less than a three-hundredth of it. So few trainable
# values, which saved so little computing in lesson 8, save what matters between machines.
#
# ## A model in parts
#
# With DDP each card holds everything, and needs all the memory that lesson 12 took apart. *Fully sharded* training
# (FSDP, in torch `fully_shard`) deals out the weights, gradients and moments as well. Before a block computes, its
# weights are gathered from all; afterwards they are let go.
#
# **Predict first.** llama2-7b, full fine-tuning in fp32, one block of 512 tokens for each card: how many cards of
# 80 GB? And will twice as many cards need half the memory each?

# %%
needs = tl.memory_in_parts("llama2-7b", processes=(1, 2, 4, 8, 64))
budgets = {
    name: tl.CARDS[name] * 2**30 for name in ("RTX 4090 24GB", "A100 40GB", "A100 80GB")
}
tl.memory_chart(
    {
        f"{count} card{'s' * (count > 1)}": need
        for count, need in needs.items()
        if count <= 8
    },
    budgets,
)

# %%
gib = {count: round(need.peak / 2**30, 1) for count, need in needs.items()}
fits = {
    name: min(n for n, need in needs.items() if need.peak <= 0.85 * size)
    for name, size in budgets.items()
}
print("GiB for each card:", gib)
print("cards that are enough, 15% left free:", fits)
shared = ("weights", "gradients", "optimizer state")
own = 1 - sum(needs[8].categories[name] for name in shared) / needs[8].peak
print("of eight cards' bytes, what each has for itself:", f"{own:.0%}")
tl.claim("Two cards need more than half of what one needs", gib[2] > gib[1] / 2)
assert gib[1] > 80
assert fits == {"RTX 4090 24GB": 8, "A100 40GB": 4, "A100 80GB": 2}
assert 0.4 < own < 0.5 and gib[64] == 9.0

# %% [markdown] slideshow={"slide_type": "subslide"}
# Not quite half: what is gathered, and the activations, which are made of text, each card has for itself. With eight
# cards that is nearly half of all it holds. So more cards bring less and less: 64 of them, eight times as many, still
# need 9 GiB each.
#
# These are estimates: a trace of the step, its parts divided, and two gathered blocks on top. The division can be
# checked. The rehearsal did it a second time, in parts: here is what one of its two and four processes really held.

# %%
parted = runs[runs.exchange == "fsdp"].set_index("processes")
in_parts = steps[steps.exchange == "fsdp"].pivot(
    index="step", columns="processes", values="loss"
)
more = parted.predicted / several.predicted
print(
    "bytes of parameters held by one process:",
    {n: tl.in_units(size) for n, size in parted.held.items()},
)
print("sends more than DDP does, here, times:", round(more[2], 1))
tl.claim(
    "The curve is the same again",
    ((in_parts - losses[[2, 4]]).abs() < 1e-5).all(axis=None),
)
assert (parted.held * parted.index == ddp.held[1]).all() and round(more[2], 1) == 1.9
assert not counted or ((parted.sent / parted.predicted - 1).abs() < 0.02).all()

# %% [markdown] slideshow={"slide_type": "subslide"}
# Memory is bought with traffic. Each block's weights travel in the forward pass and again in the backward pass. Between
# cards that comes to one and a half times what DDP sends; processors, whose library adds gradients up in a
# roundabout way, send 1.9 times as much.
#
# ## Do it yourself
#
# `torchrun`, which comes with torch, starts the processes and tells each its number. Nothing else changes:
#
# ```
# torchrun --nproc-per-node 2 -m tlkit train --strategy full --output results/two
# torchrun --nproc-per-node 2 -m tlkit train --strategy full --output results/parts --sharding fsdp
# torchrun --nproc-per-node 2 -m tlkit compare --spread
# ```
#
# The third deals out the *runs* of a comparison, and each process does its own alone. Where runs are many and small,
# that is the best way of all: nothing travels.
#
# For several machines, start the same line on each, with `--nnodes 2 --rdzv-backend c10d --rdzv-endpoint HOST:29500`
# in front, where `HOST` is one of them. All need the same files.
#
# Three things come with it. A checkpoint does not depend on how many wrote it: what two processes began, one may
# finish. If one process ends, the others say so and end too, and `--resume` goes on from the last checkpoint. And where
# one card runs out of memory, all go down the ladder of lesson 13 together, for their steps must stay the same.
#
# ## What carries over
#
# The bytes, the memory of the parts, and that the curve is the same: those are arithmetic. Seconds are not; cards and
# links differ too much. One thing is *not* the same: whoever takes more cards to have larger batches takes fewer steps,
# and needs another learning rate. That is a new experiment, not the old one made faster.
#
# **Take away.** More processes change who computes and what travels. If they change the curve, something is wrong.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `tl.check` says what it looked at and, if the answer
# is not right yet, why. Stuck? `tl.hint("ex20_1", 1)` is a first push, `tl.hint("ex20_1", 2)` says more. After *Restart
# Kernel* run the next cell first; then each exercise works by itself.

# %%
import tlkit as tl

# %% [markdown]
# **Quiz.** LoRA on `llama2-7b` needs 30 GiB, and each of your eight cards of 80 GB holds that. With DDP each process
# sends 0.14 GB a step. You choose FSDP all the same. What becomes of the bytes that each sends?
#
# - **a** about as many: frozen weights have no gradients, so nothing of them travels
# - **b** about one and a half times as many
# - **c** about an eighth: everything is divided among eight
# - **d** more than three hundred times as many

# %%
tl.quiz("quiz20")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 20.1** (first steps). LoRA gives `qwen2-0.5b` 4,399,104 values to train, beside 494,032,768 that are
# frozen; all are in fp32. Five machines train it together with DDP, one process each. How many MB (of a million bytes)
# does each of them send in a step?

# %%
answer = None
# your code here
tl.check("ex20_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 20.2** (apply it). Make the parts add up. A batch is a list of blocks, and each block a list with the
# losses of its tokens; not all are equally long. Write what process `rank` (from 0) of `size` hands in. The blocks are
# dealt out, each to one process, and to none more than its share, rounded up. The *sum* over all processes is the loss
# of the batch, that is, the mean over all of its tokens. There may be fewer blocks than processes.


# %%
def part_of_the_loss(blocks, rank, size):
    """What this process adds to the loss of the batch."""
    # your code here


tl.check("ex20_2", part_of_the_loss)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 20.3** (think further). How many cards does a model in parts need? You are given, in GB,
#
# - `divided`: weights, gradients and moments of the whole model, which the cards share;
# - `own`: what is made of text, on each card for itself;
# - `gathered`: what each card gathers from the others, on top, where there are any;
# - `card`: the size of a card. Leave 15% of it free, as the lesson does.
#
# Return the smallest number of cards that is enough. At most `most` are there; where even they are not enough, return
# 0. Then think: what would have to change, if no number is?


# %%
def enough_cards(divided, own, gathered, card, most):
    """The smallest number from 1 to `most`, or 0."""
    # your code here


tl.check("ex20_3", enough_cards)

# %% [markdown]
# Previous: [17 · A real model](17_a_real_model.ipynb)
