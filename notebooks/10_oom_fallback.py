# %% [markdown] slideshow={"slide_type": "slide"}
# # 10 · Out of memory
#
# *Can training go on after it runs out of memory, without losing a step?*
#
# Five published reports, which [lesson 16](16_autopsy.ipynb) examines, describe fine-tuning Qwen2-0.5B. One of their
# runs died of an out-of-memory error in its first strategy. Another one caught the error, loaded the model again on
# the CPU and started from the beginning. We can do better, because the same training step can be computed in many
# ways, and some of them need far less memory. In this lesson memory is estimated in advance, and if a step still
# fails, training recovers and continues from the same step.
#
# **You will be able to**
#
# - read an out-of-memory error and say which part of the step failed;
# - split a batch into micro-batches with exactly the gradient of the whole batch, and avoid the usual mistake;
# - choose, for a given card, a strategy and a way to carry out its steps that fit.
#
# **You need** [lesson 9](09_memory.ipynb), which says what a training step keeps in memory, and [lesson
# 4](04_full_fine_tuning.ipynb).
#
# About 54 minutes.

# %% slideshow={"slide_type": "subslide"}
from dataclasses import replace

import pandas as pd
import torch
from torch.nn.functional import cross_entropy

import course
import tlkit as tl
from course.lesson10 import pictures
from tlkit.fitting.ladder import FALLBACK_TIERS
from tlkit.fitting.recommendation import fit_table, recommend

profile = tl.setup()
base = tl.load_model("tiny")
blocks = tl.pack(tl.load_corpus("rust").train[:20], base.tokenizer, 64)[:12]
settings = tl.TrainingConfig(learning_rate=1e-3, batch_size=4, weight_decay=0)


def fresh(strategy="full"):
    """The bundled model, loaded again, with all or some of its weights trainable."""
    return tl.apply_strategy(tl.load_model("tiny").model, strategy).model


# %% [markdown] slideshow={"slide_type": "slide"}
# ## Watch it fail
#
# We have no graphics card, so we simulate one. A *virtual card* is only a memory budget. The CPU computes, tlkit
# counts every tensor, and the tensor that would exceed the budget is refused with the message that PyTorch prints on
# a CUDA card. Our training has twelve rows of 64 tokens and takes four of them in each step, so it has three steps.
# The card has 48 MB. As always with cards, MB means $2^{20}$ bytes here. The message writes MiB for the same unit.

# %% tags=["check-message"]
card, model, message = tl.virtual_device(memory="48MB"), fresh(), "it fitted"
try:
    with card:
        card.hold(model.parameters())  # the weights are on the card, too
        tl.train(model, blocks, settings)
except torch.OutOfMemoryError as error:
    message = str(error)
print(message[:33], "…")

# %% tags=["nbval-ignore-output"]
print(message)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The message contains four numbers: how much was requested, how much memory the card has, how much of it was free,
# and how much PyTorch already holds. The request is small, only a few MiB. The tensor that fails is often not to
# blame. It only came last, when other tensors had already filled the card.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The ladder
#
# A *plan* says how a step is carried out: how many rows pass through the model at once, what is kept in memory and
# where. It does not say what the step computes. The batch, its loss and the update of the weights belong to the
# training, not to the plan. So when memory runs out, we can change the plan and repeat the same step.
#
# The *ladder* lists such changes from the cheapest to the most expensive, and each of them is a *rung*. Read the
# picture from the top down: each rung is added to those above it, until everything runs on the host. The *host* is
# the computer that the card is plugged into, so host memory is ordinary RAM. The three tiers come from a guide among
# the reports.

# %%
pictures.ladder_diagram()

# %% [markdown] slideshow={"slide_type": "subslide"}
# The number of rows in an optimizer step, called the [effective batch](glossary.md#effective-batch-size), is not
# among the things that change. A smaller batch would be an easy way to save memory, but it would also give a
# different gradient, and the result would be a different model.
#
# Almost every rung costs time. Only bf16 [autocast](glossary.md#autocast) changes the result by more than the last
# digits of fp32. Under it, linear layers and attention compute with copies of their weights and inputs in 16 bits,
# and their results have 16 bits, too. The weights themselves, the norms, the loss and the gradients stay in fp32. We
# leave this rung out below, because we want to compare weights closely.
#
# In code a rung is a function from one plan to the next. For a batch of four rows, a smaller micro-batch first means
# two rows at once:

# %% tags=["check-tl"]
lower = tl.LADDER["smaller micro-batch"](tl.Plan(), 4)  # a plan, and rows in the batch
print("rows at once:", lower.micro_batch_size)
every_rung = {name for names in FALLBACK_TIERS.values() for name in names}

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Smaller micro-batches
#
# A *micro-batch* is a part of the batch that passes through the model at once. Its activations are freed after its
# backward pass, but its gradients stay in `.grad`, and the next call of `backward()` adds to them. This is called
# [gradient accumulation](glossary.md#gradient-accumulation).
#
# To get the gradient of the whole batch, we have to divide correctly. Let the batch have $N$ tokens that count, with
# a loss $\ell_i$ each, split into $M$ micro-batches $B_1, \dots, B_M$ with $N_1, \dots, N_M$ tokens. The loss of the
# batch is the mean over all tokens, and the gradient of a sum is the sum of the gradients:
#
# $$\nabla \Big( \frac{1}{N} \sum_{i=1}^{N} \ell_i \Big) =
# \sum_{m=1}^{M} \nabla \Big( \frac{1}{N} \sum_{i \in B_m} \ell_i \Big), \qquad N = N_1 + \dots + N_M$$
#
# Here $\nabla$ is the gradient, with one entry for each trained weight. So each micro-batch contributes the *sum* of
# its token losses, divided by the number of tokens in the *whole* batch. A common mistake is to average the means of
# the micro-batches:
#
# $$\frac{1}{M} \sum_{m=1}^{M} \frac{1}{N_m} \sum_{i \in B_m} \ell_i$$
#
# In general the two agree only if all $N_m$ are equal. Padding breaks this, since padded positions have the label
# -100 and do not count. Let the last two of our four rows be shorter than the others:

# %%
inputs, targets = blocks[:4, :-1], blocks[:4, 1:].clone()
for row, length in enumerate((63, 63, 20, 8)):
    targets[row, length:] = -100  # behind the text: padding


def count(labels):
    return (labels != -100).sum()


def gradient(pieces, divisor):
    """Summed over pieces of the batch, each loss divided by divisor(its targets)."""
    model = fresh().double()
    for rows in pieces:
        logits = model(input_ids=inputs[rows]).logits.flatten(0, 1)
        loss = cross_entropy(logits, targets[rows].flatten(), reduction="sum")
        (loss / divisor(targets[rows])).backward()  # adds to what is in .grad
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


# %% [markdown] slideshow={"slide_type": "subslide"}
# The model computes in 64 bits here, so that rounding cannot hide a difference.
#
# **Predict first.** How far is the gradient of the mean of means from the right one, as a percentage of the right
# one's length? Is it nearer to 1, to 10 or to 100?

# %%
halves = [slice(0, 2), slice(2, 4)]
whole = gradient([slice(0, 4)], lambda part: count(targets))
in_pieces = gradient(halves, lambda part: count(targets))
mean_of_means = gradient(halves, lambda part: 2 * count(part))


def distance(one, other):
    """How far one vector is from another, as a share of the other's length."""
    return float((one - other).norm() / other.norm())


course.claim(
    "Two micro-batches give the gradient of the whole batch, to one millionth",
    distance(in_pieces, whole) < 1e-6,
)
wrong_by = distance(mean_of_means, whole)
print(f"the mean of means is off by {wrong_by:.0%} of the right gradient's length")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The picture shows the reason, with shorter rows so that each token has a cell. On the left every token has the same
# weight in the loss. On the right a token weighs more if few tokens count in its micro-batch, so the short texts have
# too much influence on the gradient.

# %%
small = torch.zeros(4, 6, dtype=torch.long)
small[2, 2:] = small[3, 1:] = -100
pictures.micro_batch_picture(small, size=2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# This mistake was in widely used trainers, including the `Trainer` of transformers, until October 2024 (see *Further
# reading*). Our blocks are packed without padding, so it would not show here, but tlkit divides by tokens anyway.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Activation checkpointing
#
# The backward pass needs the activations of the forward pass, so the forward pass keeps them. [Activation
# checkpointing](glossary.md#activation-checkpointing) (also called gradient checkpointing) keeps only the input of
# each block. When backpropagation reaches a block, the block's forward pass is computed a second time, and its
# activations exist only while they are needed.


# %%
def bytes_kept(checkpointing):
    """Activations in memory when the forward pass through the blocks is over."""
    model = fresh().train()
    if checkpointing:  # older releases call it gradient checkpointing
        name = (
            "activation"
            if hasattr(model, "activation_checkpointing_enable")
            else "gradient"
        )
        getattr(model, f"{name}_checkpointing_enable")()
    with tl.track_memory(model) as track:
        before = track.current
        hidden = model.get_decoder()(input_ids=blocks[:4], use_cache=False)
        kept = track.current - before
        del hidden  # it held the graph until here
        return kept


kept, kept_with = bytes_kept(False), bytes_kept(True)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The price is one more forward pass through the blocks. A backward
# pass costs about two forward passes, so a step takes four units of arithmetic instead of three, which is a third
# more. Nothing is rounded differently, because the second computation repeats the first one.

# %%
course.claim(
    "Checkpointing keeps less than a tenth of the activations", kept_with < kept / 10
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Recover outside the `except` block
#
# It seems natural to repeat the step inside the `except` block. On a full card this fails again, because
# the memory of the failed step has not been freed yet. The exception holds a *traceback*, the traceback holds the
# *frames* of the functions that failed, and each frame holds its local variables. The activations are among them.
# They are freed when Python drops the exception, which happens at the end of the `except` block.

# %%
import weakref

watched = []


def failing_step():
    activations = torch.zeros(1000, 1000)
    watched.append(weakref.ref(activations))  # sees the tensor, and does not keep it
    raise torch.OutOfMemoryError("CUDA out of memory.")


try:
    failing_step()
except torch.OutOfMemoryError:
    inside = watched[0]() is not None  # too early to try again

# %% [markdown] slideshow={"slide_type": "subslide"}
# So a loop that recovers only takes notes inside the block (which part failed, how many bytes were requested) and
# prepares the next attempt after it. Then it drops the gradients, and on a real card it also calls
# `torch.accelerator.empty_cache()`, because PyTorch keeps freed memory in reserve. You can read this in
# `tlkit/fitting/out_of_memory.py`: `catch_out_of_memory` has about fifteen lines.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Walk down the ladder
#
# `tl.train_with_fallback` trains as `tl.train` does. After each out-of-memory error it undoes the step, goes one rung
# down and takes the same step again. With `order` we say which rungs to try, and it estimates nothing in advance.
#
# **Predict first.** Which rung will be the first to fit on the card of 48 MB? Remember from lesson 9 what the
# [optimizer](glossary.md#optimizer) keeps for each weight.

# %%
order = tuple(name for name in tl.LADDER if name != "bf16 autocast")
walked = fresh()
result, log = tl.train_with_fallback(
    walked,
    blocks,
    settings,
    device=tl.virtual_device(memory="48MB"),
    order=order,
    progress=True,
)
log.table[["rung", "first_step", "steps_done", "failed_in"]]

# %%
pictures.attempts_chart(log.attempts, 48 * 2**20)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Go through the attempts from the top. As planned, and with the [chunked loss](glossary.md#chunked-loss), the step
# fails in the forward pass, because the activations of four rows are too large. Micro-batches of two rows halve them,
# but the second one finds the gradients of the first in memory, and fails too. With one row at a time, the failure
# moves on to the optimizer step. That is where AdamW makes its two averages (also called
# [moments](glossary.md#moments)), with 8 bytes for each of four million values, which is 31 MiB. Weights and
# gradients take another 31 MiB. So the optimizer step needs 62 MiB, and the card has 48.
#
# The next two rungs are about activations again. They cannot help, because at that moment the activations are already
# gone. Only moving the optimizer to the host frees what is missing. So the part of the step that failed tells us
# which rung to try. `train_with_fallback` does not use this hint: it takes the next rung of the list, whichever part
# failed. To step through the attempts with buttons, run this cell:

# %% tags=["check-log-2"]
course.ladder_player(log)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Nothing was lost
#
# Before a step is repeated, the failed one is undone. Its gradients are dropped, the averages that AdamW had just
# created are dropped too, and the same batch is taken again. So the result should be that of a machine with enough
# memory. We train a second model without any limit and compare.

# %% tags=["check-result"]
undisturbed = fresh()
reference = tl.train(undisturbed, blocks, settings)


def weights_of(model):
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


difference = distance(weights_of(walked), weights_of(undisturbed))
course.claim(
    "Every step was taken once, with the same number of tokens",
    result.history.step.tolist() == reference.history.step.tolist() == [1, 2, 3]
    and result.history.tokens.eq(4 * 63).all(),
)
course.claim("The weights agree to one in a hundred thousand", difference <= 1e-5)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The weights are not identical in every bit. Micro-batches add the same numbers in another order, and fp32 rounds
# each sum at about the seventh digit. AdamW divides each gradient by an average of its own size, so even a gradient
# of almost zero moves its weight by about the learning rate. If rounding is a large part of that gradient, it is also
# a large part of the update.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## In the middle of a run
#
# So far the first step failed, when nothing had been learned yet. In a harder case, another program takes most of the
# card in the middle of step 2, after step 1 has changed the weights. We simulate the other program with a hook, which
# is a function that PyTorch calls before each forward pass. Ours lowers the card's budget from 256 MB to 48 MB.

# %% tags=["check-log-2-2"]
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
columns = ["rung", "first_step", "steps_done", "failed_in"]
print(log.table[columns].to_string(index=False))
difference = distance(weights_of(interrupted), weights_of(undisturbed))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Step 1 was taken as planned and is not repeated. Step 2 starts again on each rung until one fits, and AdamW's
# averages from step 1 move to the host with their values. This works only because tlkit keeps everything that
# training changes in one object (the *state*), which is separate from the plan.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Better: know in advance
#
# Each failed attempt costs the time that the step took until then, and on a shared machine it may disturb others. The
# estimate of [lesson 9](09_memory.ipynb) takes about a second. Without `order`, `train_with_fallback`
# estimates one rung after another, leaves out those that would save less than one percent, and starts with the first
# one that should fit.

# %%
foreseen, log = tl.train_with_fallback(
    fresh(), blocks, settings, device=tl.virtual_device(memory="48MB")
)
print(log.table[["action", "rung", "failed_in"]].to_string(index=False))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The smaller micro-batch is not in this table. It has smaller activations, but during the second forward pass the
# gradients of the first half are in memory too. Here they take as much as is saved, so by itself it lowers the peak
# by less than one percent.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same in plain transformers
#
# The `Trainer` of transformers does not walk down a ladder by itself, but it offers several rungs as settings. Two of
# them save activations: `gradient_accumulation_steps`, which is the number of micro-batches, and
# `activation_checkpointing` (called `gradient_checkpointing` in older releases). The effective batch is a product:
#
# $$\begin{aligned} \text{effective batch} = {} & \texttt{per\_device\_train\_batch\_size} \\
# & \times \texttt{gradient\_accumulation\_steps} \times \text{devices} \end{aligned}$$
#
# So when you halve the first factor, double the second. We train twice from the same weights, with four rows at once
# and with one row at a time, on the batches that tlkit used.

# %%
import tempfile

from transformers import AutoModelForCausalLM, PrinterCallback
from transformers import Trainer, TrainingArguments

# The rows in the order in which tlkit's batches take them: shuffled by seed 0.
shuffled = blocks[torch.randperm(12, generator=torch.Generator().manual_seed(0))]
rows = [{"input_ids": row, "labels": row} for row in shuffled]
new_name = hasattr(TrainingArguments, "activation_checkpointing")
checkpointing = "activation_checkpointing" if new_name else "gradient_checkpointing"
same = {
    "learning_rate": 1e-3,
    "lr_scheduler_type": "cosine",
    "train_sampling_strategy": "sequential",
    "num_train_epochs": 1,
    "use_cpu": True,
    "disable_tqdm": True,
}
quiet = {"save_strategy": "no", "logging_strategy": "no", "report_to": "none"}


# %% slideshow={"slide_type": "subslide"}
def trained_plainly(**memory):
    """The weights after one epoch of transformers' own Trainer."""
    model = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, **memory, **same, **quiet)
        trainer = Trainer(model, arguments, train_dataset=rows)
        trainer.remove_callback(PrinterCallback)  # which prints the seconds
        trainer.train()
    return weights_of(model)


at_once = trained_plainly(per_device_train_batch_size=4)
saving = trained_plainly(
    per_device_train_batch_size=1,
    gradient_accumulation_steps=4,
    **{checkpointing: True},
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# `Trainer` also has `auto_find_batch_size=True`, which takes a smaller batch after an out-of-memory error and starts
# the loop from the first step again. In the release used here it does not raise `gradient_accumulation_steps` at the
# same time. So the effective batch shrinks without a warning, and you get the result of a different training run.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## On paper: the published model
#
# Back to Qwen2-0.5B, which has half a billion weights. We do not need the model itself to estimate its memory.
#
# **Predict first.** Which strategies fit on a card of 8 GB, with one row of 512 tokens, in fp32? We leave 15% of the
# card to the driver and the libraries.
#
# `fit_table("qwen2-0.5b")` estimates every strategy in some twenty seconds. To save that time we read a record of
# such estimates, made with torch 2.13, and estimate one strategy again.

# %%
record = pd.read_csv(tl.DATA.parent / "tests/benchmarks/fit_tables.csv")
record = record.dropna(subset="gib")  # Llama has no biases for bitfit
fits = record[record.model == "qwen2-0.5b"]
pictures.fit_chart(fits)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Full fine-tuning needs 8.4 GiB in fp32, so it could not fit on the card of the reports, which has 8 GB (that is 8
# GiB). All other strategies fit, because they have fewer gradients and fewer averages.
#
# Next, we take a model of seven billion values in the same precision. Its weights alone take 25 GiB. So of the
# strategies only `qlora`, which keeps its frozen weights in 4 bits, fits on a card of up to 24 GB. ([Lesson
# 6](06_qlora.ipynb) had `qlora` on 8 GB. There its other frozen weights were in bf16 and activations were
# checkpointed, and here neither is the case.)

# %%
pictures.fit_chart(record[record.model == "llama2-7b"])

# %%
seven = record[record.model == "llama2-7b"].set_index("strategy")
print("on 24 GB:", [name for name in seven.index if seven["24 GB"][name]])
print("on 80 GB:", [name for name in seven.index if seven["80 GB"][name]])
course.claim(
    "On 24 GB only qlora fits, and on 80 GB still not full fine-tuning",
    list(seven.index[seven["24 GB"]]) == ["qlora"] and not seven["80 GB"]["full"],
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Was the card always too small? The published program in Rust also failed with its strategy "adapter layers", which
# trains two blocks, the last norm and the head. In the published model the head and the embedding are one table of
# 151,936 × 896 values (they are [tied](glossary.md#tied-head)), but in the Rust program the head is a separate table.
# So it has 630,167,424 values in all, and trains 165,960,320 of them.

# %%
head = 151_936 * 896
in_all = 494_032_768 + head
trained = 2 * 14_912_384 + 896 + head  # two blocks, a norm and the head
print(f"values: {in_all:,} = 494,032,768 + {head:,}, trained: {trained:,}")
rust_run = in_all * 4 + trained * 12
print(f"weights, gradients and AdamW's averages of that run: {rust_run / 1e9:.1f} GB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# That is little more than half of the card. Unless activations and logits filled the other half, the card was not too
# small. The program in Python reports no failure at all on such a card, although its full fine-tuning needs 8.4 GiB.
# Perhaps the card's driver moved some of the memory to the host without a message.

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** Full fine-tuning of the published model again, now with four rows of 512 tokens in a step. Which
# rung brings it onto a card of 16 GB, and which onto one of 8 GB?
#
# We estimate four plans, each with one more change than the one before. The dashed lines are at 85% of each card,
# which is 6.8 GiB of 8 and 13.6 GiB of 16.

# %%
plans = {
    "as planned": tl.Plan(),
    "chunked loss": tl.Plan(chunked_loss=True),
    "smaller micro-batch": tl.Plan(chunked_loss=True, micro_batch_size=1),
}
plans["optimizer on the host"] = replace(
    plans["smaller micro-batch"], offload_optimizer=True
)
steps = []
for name, plan in plans.items():
    needed = tl.estimate_memory("qwen2-0.5b", "full", batch_size=4, plan=plan).peak
    steps.append(tl.Rung(name, plan, needed))
pictures.ladder_chart(steps, {"8 GB": 8 * 2**30, "16 GB": 16 * 2**30})

# %%
for size in (16, 8):
    first = next(rung for rung in steps if rung.estimate <= 0.85 * size * 2**30)
    print(f"{size} GB: {first.name}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The chunked loss is enough for 16 GB. This model has a vocabulary of 151,936 tokens, so the
# [logits](glossary.md#logit) of all tokens of the batch take a lot of memory, and with chunks only a part of them
# exists at a time. For 8 GB the optimizer has to move, since weights, gradients and averages of half a billion values
# already take 7.4 GiB.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What to choose
#
# The guide among the reports recommends a strategy by the size of the card alone. `recommend` uses the estimate
# instead, here for Qwen2-0.5B. It goes through a short list (`full`, `last_layers`, `lora`, `qlora`) and takes the
# first strategy that fits, in the largest micro-batch that fits. Here a batch is one row. The first that fits is not
# necessarily the best, which is the subject of [lesson 15](15_comparison.ipynb).
#
# A computer without a card has much memory but computes slowly. So there the list begins with strategies that have
# fewer gradients to compute. The last line below is for the machine that you are using.

# %%
devices = [tl.virtual_device("RTX 4060 Ti 16GB"), tl.virtual_device("RTX 4060 Ti 8GB")]
for device in devices:
    best = recommend(device, batch_size=1)
    print(f"{device.name}: {best}")

# %% tags=["nbval-ignore-output"]
here = tl.probe("cpu")
print(f"{here.name}: {recommend(here, batch_size=1)}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Memory depends on *how* a step is carried out. A plan can change that and keep the effective batch, so the result
#   stays the same up to rounding.
# - The gradient of a batch is the sum of its micro-batches' gradients if each loss is a sum over tokens, divided by
#   the number of tokens in the whole batch. A mean of means is something else as soon as the micro-batches have
#   different numbers of tokens.
# - The part of the step that failed tells you which rung helps. An estimate tells you before anything fails, and the
#   recovery itself belongs after the `except` block.
#
# ## Further reading
#
# - Chen, Xu, Zhang and Guestrin 2016, [Training deep nets with sublinear memory
#   cost](https://arxiv.org/abs/1604.06174): activation checkpointing.
# - Ren and others 2021, [ZeRO-Offload](https://arxiv.org/abs/2101.06840): the optimizer on the host.
# - Hugging Face 2024, [Fixing gradient accumulation](https://huggingface.co/blog/gradient_accumulation): the mean of
#   means in the `Trainer`, and how it was mended.
# - PyTorch documentation, [Understanding CUDA memory
#   usage](https://docs.pytorch.org/docs/stable/torch_cuda_memory.html).
#
# **An open experiment.** What is the smallest virtual card on which `lora` still trains without the host? Predict it
# from its estimate, then lower `memory` in `tl.virtual_device` until `tl.train_with_fallback` has to leave the card.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex10_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** In step 1, memory runs out in the *optimizer step*. Which change can help and still give the same weights?
#
# - **a** Move the optimizer to the host.
# - **b** Use a smaller micro-batch, because only 0.4 MiB were missing.
# - **c** Switch activation checkpointing on.
# - **d** Take half as many rows in a step.

# %%
course.quiz("quiz10")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 10.1** (first steps). A card prints the message below. How many more MiB would have had to be free for this
# one tensor? And how many MiB of the card are neither free nor allocated by PyTorch? (They belong to the driver, to
# other programs, and to what PyTorch keeps in reserve.) Answer with both numbers, in this order.

# %%
message = """CUDA out of memory. Tried to allocate 298.00 MiB. GPU 0 has a total
capacity of 8.00 GiB of which 120.00 MiB is free. Of the allocated memory 7.10 GiB is
allocated by PyTorch."""
answer = None
# your code here
course.check("ex10_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 10.2** (apply it). Choose a rung before anything fails. `rungs` are names, the cheapest first.
# `needs(name)` estimates the bytes of a step on that rung. `card` is the card's memory in bytes, of which 15% are left
# to the driver. Return the first rung that fits, and raise `MemoryError` if none does. An estimate takes a second, so
# ask for no more estimates than you need.


# %%
def first_that_fits(rungs, needs, card):
    """The name of the first rung that fits on the card."""
    # your code here


course.check("ex10_2", first_that_fits)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 10.3** (think further). Compute the gradients of a batch in smaller micro-batches. `inputs` and `targets`
# have the shape (rows, tokens). At most `size` rows may pass through `model` at once, and `model(inputs)` returns
# scores of shape (rows, tokens, vocabulary). The loss is the mean cross-entropy over all targets of the batch that
# count; a target of -100 does not. Leave the gradients of the *whole* batch in the weights, which have no gradients
# yet, and return the loss of the whole batch. The last micro-batch may be smaller, and a micro-batch may have no target
# that counts.

# %%
from torch.nn.functional import cross_entropy


def gradients_in_pieces(model, inputs, targets, size):
    """Gradients and loss as if the whole batch had passed at once."""
    # your code here


course.check("ex10_3", gradients_in_pieces)

# %% [markdown]
# Previous: [9 · Anatomy of a training step](09_memory.ipynb) ·
# Next: [12 · A real model](12_a_real_model.ipynb)
