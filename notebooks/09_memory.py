# %% [markdown] slideshow={"slide_type": "slide"}
# # 9 · Anatomy of a training step
#
# *Which bytes does a training step need, and at which moment?*
#
# The published experiment that this course examines ran out of memory on a card of 8 GB. Its reports explain the
# failure with a table: weights 1.97 GB, gradients 1.97, optimizer 3.94, activations "0.5 to 1", together "8 to 10
# GB". But such a table adds up things that are not all there at the same time. A step runs out of memory at one
# particular moment, and only the tensors that exist at that moment count. In this lesson you see a step's memory as
# it rises and falls.
#
# **You will be able to**
#
# - name the kinds of bytes in a training step, and calculate each of them by hand;
# - find the moment that needs most, and say which change of settings lowers it;
# - check an estimate of the memory against a step that is really taken.
#
# **You need** [lesson 4](04_full_fine_tuning.ipynb) (a training step) and [lesson 5](05_lora.ipynb) (LoRA).
#
# About 53 minutes.

# %% slideshow={"slide_type": "subslide"}
import pandas as pd
import torch

import course
import tlkit as tl
from course.lesson09 import pictures
from tlkit.fitting.estimate import closed_form
from tlkit.fitting.timeline import step_timeline

profile = tl.setup()
MiB = 2**20

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One step, from the first tensor to the last
#
# `step_timeline` takes one training step of the bundled model, with eight rows of 128 tokens, and notes every tensor
# that torch makes or frees. The picture stacks the *live* tensors, those that are made and not yet freed, by kind.

# %%
model = tl.load_model("tiny").model
full = step_timeline(model, batch_size=8, sequence_length=128)
pictures.memory_timeline(full, "The memory of a step peaks where the loss is computed")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Read it from left to right.
#
# - **Weights** and the **optimizer state** are there all the time. (The very first step of a training run creates the
#   optimizer state only at its end. This is a later step.)
# - In the **forward pass** each block keeps the intermediate results that its backward pass will need. These are the
#   [**activations**](glossary.md#activation). Eight blocks make eight stairs.
# - At the turn, the [**logits**](glossary.md#logit) appear: a number for each token of the vocabulary at each place
#   of the text. They are the narrow tower at the peak.
# - In the **backward pass** each block uses and frees its activations, and the **gradients** of its weights appear.
#   So the activations shrink while the wedge of the gradients grows.
# - The **optimizer step** updates the weights. Then the gradients are freed, one by one.
#
# The width of a phase in the picture counts tensors, not seconds. The thin layer called **temporary** is mostly
# gradients that are already computed but not yet added to `.grad`, and results inside a block that are used once.

# %% tags=["check-full"]
kinds = list(full.columns[1:])
total = full[kinds].sum(axis=1)
peak = total.idxmax()
print("the peak is in the", full.phase[peak], "and the largest kind is", end=" ")
print(full.loc[peak, kinds].astype(int).idxmax())
end_of_backward = total[full.phase == "backward pass"].iloc[-1]
print(f"{total[peak] / MiB:.0f} MiB,", end=" ")
print(f"after the backward pass {end_of_backward / MiB:.0f} MiB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Here are the 60 moments around the peak. The logits are made, log-probabilities are computed from them for the loss,
# and the logits are freed. When the backward pass begins, it makes the gradient of the log-probabilities, and from it
# the gradient of the logits. Each is as large as the logits were, and the log-probabilities are still there, so for a
# moment there are three tensors of that size. This is why the peak comes at the very beginning of the backward pass.

# %%
around = full.iloc[peak - 35 : peak + 25]
pictures.memory_timeline(
    around, "For a moment, three tensors are as large as the logits"
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Every kind by hand
#
# With $N$ weights, of which $N_t$ are trained, in fp32 (4 bytes a number) with AdamW:
#
# $$\text{weights} = 4N, \qquad \text{gradients} = 4N_t, \qquad \text{optimizer state} = 4N_t + 4N_t = 8N_t$$
#
# [AdamW](glossary.md#adamw) keeps two running averages for each trained weight: one of its gradient, and one of its
# *squared* gradient. These three kinds do not depend on the text at all. The other two do. Take $B$ rows of $T$
# tokens, a vocabulary of $V$ tokens, and $L$ blocks of width $d$, each with an MLP of width $m$, $a$ attention heads,
# and keys and values of width $k$ each:
#
# $$\text{logits} = 4 \cdot B\,(T-1)\,V \quad (\text{three such tensors at the peak}), \qquad
# \text{activations} \approx 4 \cdot B\,(T-1) \cdot L \cdot (8d + 2k + 4m + a + 2)$$
#
# The last token of a row is only predicted, never read, so the factor is $T - 1$. The bracket counts what a block keeps
# of each token: eight vectors of width $d$ (the inputs of both norms, their normalised and their rescaled forms, the
# queries, and the output of attention), keys and values, four vectors of the MLP, and a number for each head and each
# norm.
#
# The matrix of attention weights, $T \times T$ numbers for each head, is missing on purpose. torch's attention
# computes it in pieces and never keeps it. An attention written by hand would add $4 B a T^2$ bytes a block.

# %%
config = model.config
N = sum(parameter.numel() for parameter in model.parameters())
d, m, L, V = 192, 512, 8, 4096
heads, key_values = config.num_attention_heads, 2 * 48  # 2 heads of width 48
kept = 8 * d + 2 * key_values + 4 * m + heads + 2  # values a token, in each block
tokens = 8 * (128 - 1)
by_hand = {
    "weights": 4 * N,
    "gradients": 4 * N,
    "optimizer state": 8 * N,
    "activations": 4 * tokens * L * kept,
    "logits and loss": 3 * 4 * tokens * V,
}
most = full[list(by_hand)].max()
compared = pd.DataFrame({"by hand, MiB": by_hand, "counted, MiB": most}) / MiB
print(f"N = {N:,}; a block keeps {kept:,} values = {4 * kept:,} bytes of each token")
compared.round(1)

# %% tags=["check-by-hand"]
worst = max(abs(size / most[kind] - 1) for kind, size in by_hand.items())
course.claim("Every kind agrees with the count within 3%", worst < 0.03)

# %% [markdown] slideshow={"slide_type": "subslide"}
# So one token costs 15 kB in each block and 121 kB in all eight, which is as much as 30 thousand weights. A batch of
# a thousand tokens therefore keeps more memory busy than all 4 million weights with their gradients and averages.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same in plain transformers and torch
#
# None of this needs `tlkit`. torch calls a hook for every tensor that it keeps for the backward pass. We add up the
# bytes of these tensors, without the weights, and note the sum after each block.

# %%
from transformers import AutoModelForCausalLM

plain = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32).train()
weights = {p.untyped_storage().data_ptr() for p in plain.parameters()}
saved, after_block = {}, []


def note(tensor):
    storage = tensor.untyped_storage()
    if storage.data_ptr() not in weights:
        saved[storage.data_ptr()] = storage.nbytes()
    return tensor


for block in plain.model.layers:
    block.register_forward_hook(lambda *_: after_block.append(sum(saved.values())))
rows = torch.randint(V, (8, 128), generator=torch.Generator().manual_seed(0))
with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
    logits = plain(input_ids=rows[:, :-1], use_cache=False).logits
each_block = torch.tensor(after_block).diff()
print(f"kept by each further block: {each_block.unique().tolist()} bytes")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Now the rest of the step, with the bytes of gradients and averages:

# %%
loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
loss.backward()
gradients = sum(p.grad.nbytes for p in plain.parameters())
optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3)
optimizer.step()
averages = sum(
    state[name].nbytes
    for state in optimizer.state.values()
    for name in ("exp_avg", "exp_avg_sq")
)
print(f"logits {logits.nbytes:,}, gradients {gradients:,}, averages {averages:,} bytes")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What a strategy changes
#
# [LoRA](05_lora.ipynb) trains 5% of the values here. In lesson 5, with half as many rows, it needed about three
# quarters of full fine-tuning's peak memory. [`last_layers`](07_freezing.ipynb) with two blocks, and without the
# norms of the others, trains 20% of the values.
#
# **Predict first.** Which of the two needs less memory, and what share of full fine-tuning's peak does `last_layers`
# still need?

# %%
timelines, percent = {}, {}
for name, options in (
    ("full", {}),
    ("lora", {}),
    ("last_layers", {"train_norms": False}),
):
    report = tl.apply_strategy(tl.load_model("tiny").model, name, **options)
    timelines[name] = step_timeline(report.model, batch_size=8, sequence_length=128)
    percent[name] = round(report.percent)
pictures.memory_timeline(
    timelines, "LoRA keeps nearly all activations, last_layers a quarter"
)

# %%
peaks = {name: line[kinds].sum(axis=1).max() for name, line in timelines.items()}
for name, size in peaks.items():
    print(f"{name:12} {size / peaks['full']:.0%} of the peak of full fine-tuning")
kept_by = {name: line.activations.max() for name, line in timelines.items()}
course.claim(
    "LoRA needs more memory than last_layers: it keeps over 85% of the activations",
    peaks["lora"] > peaks["last_layers"] and kept_by["lora"] > 0.85 * kept_by["full"],
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With `last_layers`, backpropagation stops below block 6, so the six blocks below it keep nothing. The weights and the
# logits are as large as before, which is why 46% of the peak is left although two blocks are only a quarter of the
# depth. (`train_norms=False` leaves out the norms of the lower blocks. By default `last_layers` trains them too, and
# then backpropagation passes through every block.)
#
# LoRA removes most of the gradients and of the optimizer state, because these belong to trained values. Of the two,
# only the optimizer state counts at the peak, where no gradient of a weight exists yet. But LoRA's adapters sit in
# every block, so backpropagation passes through every block, and each one has to keep its activations. How far *down*
# you train can therefore matter more for memory than how many values you train.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What the batch changes
#
# **Predict first.** Go from one row to eight, then halve the length of the rows. By what factor does each kind change?

# %%
shapes = {}
for rows_, length in ((1, 128), (8, 128), (8, 64)):
    line = step_timeline("tiny", batch_size=rows_, sequence_length=length)
    shapes[f"{rows_} x {length}"] = line[list(by_hand)].max() / MiB
pd.DataFrame(shapes).round(1)

# %% tags=["check-eight"]
one, eight, half = shapes.values()
growth = [
    round(eight[kind] / one[kind], 1) for kind in ("activations", "logits and loss")
]
print("eight rows, times one row: activations", growth[0], "logits and loss", growth[1])

# %% [markdown] slideshow={"slide_type": "subslide"}
# Activations and logits belong to tokens, so they grow with rows and with length. Eight rows make both of them eight
# times as large. Rows of half the length leave a little less than half of them, because $T - 1$ counts: 63 tokens of a
# row are read instead of 127. The other three belong to weights, and their factor is 1. When memory runs out, ask first
# which of the two groups is too large, because a smaller batch lowers only activations and logits.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The published table, computed again
#
# Now to the model of the published experiment, Qwen2-0.5B with 494,032,768 values. What belongs to the weights can be
# calculated at once.

# %%
values = 494_032_768
for what, each in (("weights", 4), ("gradients", 4), ("AdamW", 8), ("together", 16)):
    print(f"{what:10} {values * each / 1e9:5.2f} GB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# So 7.9 GB are certain. (A card sold as 8 GB has 8 GiB, which are 8.59 of the GB used here.)
# The rest depends on the text.
#
# `estimate_memory` finds it by *tracing*: it takes the real step on tensors that have a shape and no contents, and
# counts them in the same way as the timeline above. Nothing of that size is made or downloaded.
#
# **Predict first.** The batch is one row of 512 tokens. Is the peak again at the moment of the loss?

# %%
lines = {}
with tl.Job(3, "trace") as job:
    with job.part("estimate"):
        full = tl.estimate_memory("qwen2-0.5b", "full", sequence_length=512)
    for count, rows_ in (("one row", 1), ("eight rows", 8)):
        with job.part(count):
            line = step_timeline("qwen2-0.5b", batch_size=rows_)
        lines[f"{count} of 512 tokens"] = line
print(f"{tl.in_units(full.peak)} = {full.peak / 1e9:.1f} GB, in the {full.phase}")
title = "With one row the backward pass ends at the peak, with eight it begins there"
pictures.memory_timeline(lines, title)

# %% [markdown] slideshow={"slide_type": "subslide"}
# On the left, with one row, the peak is at the *end* of the backward pass. There all gradients exist, and that of the
# embedding exists three times. On the right, with eight rows, activations and logits are eight times as large, while
# the gradients are as large as before. So the peak is at the loss again, as in the bundled model.
#
# Why three times? This model uses one table both to read tokens and to predict them (it is *tied*). The prediction
# gives the table's gradient at the start of the backward pass. torch adds to `.grad` only when the gradient from
# reading is known too, at the very end. Until then the first one waits: it is the blue band, "temporary", in the
# whole backward pass. Finally torch adds the two into a third.
#
# `closed_form` adds up both moments for one row, by the formulas from above.

# %%
by_hand = closed_form("qwen2-0.5b", batch_size=1, sequence_length=512)
in_gb = pd.Series(by_hand, name="GB") / 1e9
in_gb.round(2).to_frame()

# %% [markdown] slideshow={"slide_type": "subslide"}
# Besides weights and optimizer state, the loss needs activations and logits, 1.32 + 0.93 = 2.25 GB. The end of the
# backward pass needs more: all gradients and two more copies of the embedding's, 1.98 + 1.09 = 3.07 GB.
#
# These 9.0 GB do not fit into the card's 8.59. So the total in the reports is about right, but for the wrong reason.
# With one short row, the activations are already gone at the peak. The gap between 7.9 and 9.0 GB is filled by two
# more copies of the embedding's gradient.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Three ways to lower the peak
#
# With eight rows, activations and logits set the peak. Three changes lower them, and the result of the step stays the
# same up to rounding:
#
# - The [**chunked loss**](glossary.md#chunked-loss) computes the logits for a part of the tokens at a time, so that
#   they never all exist together.
# - [**Micro-batches**](glossary.md#micro-batch) take a part of the rows at a time and add up the gradients.
# - [**Activation checkpointing**](glossary.md#activation-checkpointing) keeps only the input of each block and
#   computes the rest again in the backward pass.
#
# **Predict first.** What does the picture of each look like?

# %%
ways = {
    "chunked loss": tl.Plan(chunked_loss=True),
    "micro-batches of 2": tl.Plan(micro_batch_size=2),
    "checkpointing": tl.Plan(activation_checkpointing=True),
}
lines = {
    name: step_timeline(model, batch_size=8, sequence_length=128, plan=plan)
    for name, plan in ways.items()
}
title = "Micro-batches and checkpointing halve the peak; the chunked loss saves a fifth"
pictures.memory_timeline(lines, title)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With the chunked loss, the tower of the logits is gone. Micro-batches of two rows make four small hills of
# activations, and the last three stand on the gradients of the first. Checkpointing leaves one small peak for each
# block, whose activations are computed again, used at once and freed (the picture counts them as temporary). Its
# highest moment is now the tower of the logits. Instead of 213 MiB, the three need 174 (181 with the versions
# of Colab), 103 and 102. Here is the same for Qwen2-0.5B. The dashed lines are at 85% of a card, because driver and
# libraries need the rest:

# %%
tops = [line[kinds].sum(axis=1).max() / MiB for line in lines.values()]
plans = {"1 row": full}
with tl.Job(3, "plan") as job:
    for name, plan in (
        ("8 rows", None),
        ("8 rows (chunked loss)", tl.Plan(chunked_loss=True)),
        ("8 rows (one at a time)", tl.Plan(micro_batch_size=1)),
    ):
        with job.part(name):
            plans[name] = tl.estimate_memory(
                "qwen2-0.5b", "full", batch_size=8, plan=plan
            )
tl.memory_chart(plans, {"8 GB": 8 * 2**30, "16 GB": 16 * 2**30})

# %%
eight = plans["8 rows"]
more = plans["8 rows (one at a time)"].peak / full.peak
print(f"one row at a time: {more:.2f} times a single row")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The chunked loss saves 5 to 6 GiB, but the activations of eight rows remain. One row at a time makes them small,
# too. It needs an eighth more than a step of a single row, because the gradients of the first row are there already
# when the second row's activations are made.
#
# A published guide promises that checkpointing saves "30 to 50%" of the memory. Does it, for any length of rows?

# %%
checkpointing = tl.Plan(activation_checkpointing=True)
saved_percent = {}
with tl.Job(2, "length") as job:
    for length in (512, 2048):
        with job.part(f"{length} tokens"):
            usual, again = (
                tl.estimate_memory(
                    "qwen2-0.5b", "full", sequence_length=length, plan=plan
                ).peak
                for plan in (None, checkpointing)
            )
        saved_percent[length] = round(100 * (1 - again / usual))
print(saved_percent)
course.claim("On 512 tokens it saves nothing", saved_percent[512] == 0)
course.claim("On 2,048 tokens it saves at least 20%", saved_percent[2048] >= 20)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With one row of 512 tokens the peak is at the end of the backward pass, where no activations are left to save. So
# the saving depends on the number and the length of the rows.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Half the bytes: two things called bf16
#
# A number in [bf16](glossary.md#bf16) takes 2 bytes instead of 4. But two different ways of training go by that name.
# In *mixed precision* (autocast), the weights stay in fp32, and so do gradients and averages, and most of the
# computing happens in bf16. In a *pure bf16 state*, weights, gradients and averages are all stored in bf16.

# %%
ways = {
    "fp32": {},
    "mixed precision": {"plan": tl.Plan(precision="bf16")},
    "pure bf16 state": {"dtype": "bf16"},
}
rows = {}
for name, options in ways.items():
    line = step_timeline("tiny", batch_size=8, sequence_length=128, **options)
    lasting = (
        (line[["weights", "gradients", "optimizer state"]].max() / N)
        .round()
        .astype(int)
    )
    moving = (line[["activations", "logits and loss"]].max() / MiB).round().astype(int)
    rows[name] = [*lasting, *moving, round(line[kinds].sum(axis=1).max() / MiB)]
names = [
    "weights, bytes each",
    "gradients, bytes each",
    "AdamW, bytes each",
    "activations, MiB",
    "logits, MiB",
    "peak, MiB",
]
precision = pd.DataFrame(rows, index=names)
precision

# %%
lasting = precision.loc[names[:3]]

# %% [markdown] slideshow={"slide_type": "subslide"}
# Mixed precision lowers only the activations, from 120 to 90 MiB. It does not halve them, because autocast also keeps
# bf16 copies of the weights, and the norms keep their results in fp32. The pure state halves weights, gradients and
# averages exactly. Its price is accuracy. A number in bf16 has only 8 significant bits, so an update smaller than
# about 1/256 of a weight can be rounded away. The logits are the same in all three columns, because this course
# computes the loss in fp32.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Is the estimate right?
#
# Now we take real training steps on the bundled model, and compare the live tensors measured there with the estimate.
# Here `last_layers` trains the norms of all blocks, too, so it needs nearly as much as LoRA.

# %%
blocks = torch.randint(4096, (8, 128), generator=torch.Generator().manual_seed(0))
off = []
for strategy in ("full", "last_layers", "lora"):
    report = tl.apply_strategy(tl.load_model("tiny").model, strategy)
    estimate = tl.estimate_memory(report.model, batch_size=4, sequence_length=128).peak
    run = tl.train(report.model, blocks, tl.TrainingConfig(batch_size=4))
    off.append(abs(estimate / run.peak_memory - 1))
    print(f"{strategy:12} estimated {estimate / MiB:.0f} MiB")
course.claim("For all three, estimate and measurement agree within 2%", max(off) < 0.02)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Some bytes are in neither figure: the interpreter and the libraries, the driver's own memory on a card, scratch
# space inside a kernel, and memory that an allocator keeps after a tensor is gone. How much is that? In 56 fresh
# processes (seven strategies, two precisions, with and without checkpointing, two shapes) the memory of the whole
# process was compared with the estimate. Recorded on a two-core Xeon under Linux with torch 2.13, November 2026:

# %%
recorded = pd.read_csv(tl.DATA.parent / "tests/benchmarks/memory_accuracy.csv")
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

# %% [markdown] slideshow={"slide_type": "subslide"}
# On a CPU these bytes stay between 13 and 22 MiB, however large the step. On a card, driver and libraries take
# several hundred MiB, so leave 15% of its memory free. [Lesson 10](10_oom_fallback.ipynb) shows what to do when a
# step does not fit.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Turn the controls
#
# Before each change, guess whether the step will fit.

# %%
course.memory_explorer()

# %% [markdown] slideshow={"slide_type": "subslide"}
# **What carries over.** The formulas and the tracing hold for models of any size. Which kind is the largest does not
# carry over: in a model of billions of weights with a small vocabulary, weights and optimizer state are far larger
# than the logits of a few rows.
#
# ### Key ideas
#
# - Weights ($4N$), gradients ($4N_t$) and AdamW's averages ($8N_t$) belong to the weights; activations and logits
#   belong to the tokens of a batch, and grow with it.
# - A step fits if its peak fits, and only what is alive there counts. With many tokens the peak is at the loss, with
#   few at the end of the backward pass.
# - Training fewer values lowers gradients and optimizer state. Activations take much less only when backpropagation
#   stops early, when fewer tokens are taken at once, when activations are computed again, or when they are stored in
#   fewer bits.
#
# ### Further reading
#
# - Chen, Xu, Zhang and Guestrin 2016, [Training Deep Nets with Sublinear Memory
#   Cost](https://arxiv.org/abs/1604.06174): activation checkpointing.
# - Micikevicius and others 2018, [Mixed Precision Training](https://arxiv.org/abs/1710.03740): why master weights
#   stay in fp32.
# - Rajbhandari, Rasley, Ruwase and He 2020, [ZeRO: Memory Optimizations Toward Training Trillion Parameter
#   Models](https://arxiv.org/abs/1910.02054): the sum of 16 bytes a weight, and how to spread it over cards.
# - Kingma and Ba 2015, [Adam](https://arxiv.org/abs/1412.6980), and Loshchilov and Hutter 2019,
#   [AdamW](https://arxiv.org/abs/1711.05101): the two averages.
# - [Understanding GPU memory](https://pytorch.org/blog/understanding-gpu-memory-1/): torch's own timeline of a card's
#   memory.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex09_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** Full fine-tuning of `qwen2-0.5b`, one row of 512 tokens, needs 8.38 GiB. Which change lowers the peak?
#
# - **a** activation checkpointing
# - **b** the chunked loss
# - **c** rows of 256 tokens
# - **d** plain SGD instead of AdamW

# %%
course.quiz("quiz09")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 9.1** (first steps). A strategy trains 29,865,088 of the 494,032,768 values, in fp32 with AdamW; the others
# are frozen. How many GB (of a billion bytes) do weights, gradients and AdamW's averages take together?

# %%
answer = None
# your code here
course.check("ex09_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 9.2** (apply it). With one short row, the end of the backward pass needs most. With more rows, the moment
# of the loss overtakes it. Given the sizes for *one* row, as `closed_form` returns them, return the smallest number of
# rows with which the loss needs more than the end.

# %%
from tlkit.fitting.estimate import closed_form

one_row = closed_form(
    "qwen2-0.5b", batch_size=1, sequence_length=512
)  # the names of the parts are its keys


def rows_until_the_loss_needs_most(one_row):
    """The smallest number of rows, all in one batch."""
    # your code here


course.check("ex09_2", rows_until_the_loss_needs_most)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 9.3** (think further). The published table adds up parts that are not alive together. Do better: a log says
# what was made and freed in a step, in order, in pairs: `("logits", 7)` for 7 GB more, `("logits", -7)` for 7 GB less.
# Return what is alive at the moment when most is: a dict with the size of each name. Names of size 0 may be there or
# not.


# %%
def alive_at_the_peak(log):
    """Sizes by name at the moment when their sum is largest."""
    # your code here


course.check("ex09_3", alive_at_the_peak)

# %% [markdown]
# Previous: [8 · The PEFT family](08_peft_family.ipynb) ·
# Next: [10 · Out of memory](10_oom_fallback.ipynb)
