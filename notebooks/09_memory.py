# %% [markdown] slideshow={"slide_type": "slide"}
# # 9 · Anatomy of a training step
#
# *Which bytes does a training step need, and at which moment?*
#
# The published experiment that this course examines ran out of memory on a card of 8 GB. Its reports explain that by a
# table: weights 1.97 GB, gradients 1.97, optimizer 3.94, activations "0.5 to 1", together "8 to 10 GB". But such a
# table adds up tensors that need not exist at the same time: when the gradients are complete, the activations are gone.
# A step runs out of memory at one moment, and only what exists at that moment counts.
#
# **You will be able to**
#
# - calculate each kind of bytes in a training step by hand, and check it against torch;
# - find the moment that needs most, and say what lowers it;
# - tell three recipes that are called bf16 apart, and say what LoRA in bf16 needs for a model of 7B parameters.
#
# **You need** [lesson 2](02_inside_a_language_model.ipynb) (a training step) and [lesson 5](05_lora.ipynb) (LoRA).
# About 31 minutes.

# %% slideshow={"slide_type": "subslide"}
import matplotlib.pyplot as plt
import pandas as pd
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig

import course
import tlkit as tl
from course.lesson09.timeline import step_timeline

tl.setup()
MiB, GiB = 2**20, 2**30


def load(dtype=torch.float32):
    return AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=dtype)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## One step, from the first tensor to the last
#
# `step_timeline` takes one training step of a model and notes every tensor that torch makes or frees. It returns a
# table with the bytes of all *live* tensors, which are made and not yet freed, at each such moment. We take a batch of
# eight rows with 128 tokens each and draw the table. **At which moment will the step need most memory?**

# %%
lasting = ["weights", "optimizer state", "gradients"]
kinds = [*lasting, "activations", "logits and loss", "temporary"]


def peak(line):
    return line[kinds].sum(axis=1).max()


def draw(axes, line, title, top):
    """Stack the kinds over a step; `top` is the height of the picture, in MiB."""
    total = line[kinds].sum(axis=1) / MiB
    axes.stackplot(line.index, line[kinds].T / MiB, labels=kinds, step="post")
    for phase, part in line.groupby("phase", sort=False):
        axes.axvline(part.index[0], color="black", linestyle="--", linewidth=1)
        axes.text(part.index[0], 0.94 * top, f" {phase.split()[0]}", fontsize=8)
    axes.plot(total.idxmax(), total.max(), "ko")
    axes.text(total.idxmax(), total.max() + top / 40, f" peak: {total.max():,.0f} MiB")
    axes.set(title=title, ylim=(0, top), xlim=(0, len(line)))
    axes.set(xlabel="tensors made or freed, in order", ylabel="live tensors (MiB)")


# %% tags=["check-full"]
full = step_timeline(load(), batch_size=8, sequence_length=128)
figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
draw(axes, full, "The memory of a step peaks where the loss is computed", top=260)
figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=6)
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# Read it from left to right.
#
# - **Weights** and **optimizer state** are there all the time. (Only the very first step creates the optimizer state at
#   its end; this is a later one.)
# - In the **forward pass**, each block keeps what its backward pass will need, its
#   [**activations**](glossary.md#activation). Eight blocks make eight stairs.
# - At the turn, the [**logits**](glossary.md#logit) appear. The loss computes log-probabilities from them, and the
#   backward pass begins with the gradients of both. For a moment three tensors of this size exist: this is the peak.
# - In the **backward pass** each block uses and frees its activations, while the **gradients** of its weights appear.
# - The **optimizer step** updates the weights, and then the gradients are freed. ("Temporary" is what an operation makes
#   for itself, and frees.)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Every kind by hand
#
# The picture has two groups of bytes. The first belongs to *parameters*. With $N$ parameters, of which $N_t$ are
# trained, in fp32 (4 bytes a number) with [AdamW](glossary.md#adamw):
#
# $$\text{weights} = 4N, \qquad \text{gradients} = 4N_t, \qquad \text{optimizer state} = 4N_t + 4N_t = 8N_t$$
#
# AdamW keeps two [moments](glossary.md#moments) of each gradient, hence twice $4N_t$. None of this depends on the
# batch.

# %% [markdown] slideshow={"slide_type": "subslide"}
# The second group belongs to *tokens*. Take $B$ rows of $T$ tokens, a vocabulary of $V$, and $L$ blocks of width $d$,
# each with an MLP of width $m$, $a$ attention heads, and keys and values of width $k$:
#
# $$\text{logits} = 4 \cdot B\,(T-1)\,V \quad (\text{three such tensors at the peak})$$
#
# $$\text{activations} \approx 4 \cdot B\,(T-1) \cdot L \cdot (8d + 2k + 4m + a + 2)$$
#
# (`step_timeline` gives the model all tokens of a row except the last, which is only predicted, hence $T - 1$.) The
# last bracket counts the numbers that one block keeps of each token:
#
# | part | tensors kept for the backward pass | numbers for a token |
# | --- | --- | --- |
# | two norms | input, normalised input, output, and one scale each | $2\,(3d + 1)$ |
# | attention | queries and output; keys and values; one number a head | $2d + 2k + a$ |
# | MLP | gate, activated gate, up, and their product | $4m$ |
#
# Every product needs its input again for the gradient of its weights, and every activation function needs its own
# input; that is why these tensors stay. The $T \times T$ attention weights are missing, because torch's attention
# computes them in pieces and never stores them.
#
# **Will the five kinds add up to the peak?**

# %%
model = load()
N = model.num_parameters()
d, m, L, V, k, a = 192, 512, 8, 4096, 96, 4
kept = 8 * d + 2 * k + 4 * m + a + 2
tokens = 8 * (128 - 1)
by_hand = {
    "weights": 4 * N,
    "gradients": 4 * N,
    "optimizer state": 8 * N,
    "activations": 4 * tokens * L * kept,
    "logits and loss": 3 * 4 * tokens * V,
}
most = full[list(by_hand)].max()
print(f"a block keeps {kept:,} numbers = {4 * kept:,} bytes of each token")
print(f"sum of the five kinds: {sum(by_hand.values()) / MiB:.0f} MiB")
print(f"peak: {peak(full) / MiB:.0f} MiB")
course.claim(
    "By hand, every kind is within 3% of the count",
    (pd.Series(by_hand) / most - 1).abs().max() < 0.03,
)
(pd.DataFrame({"by hand, MiB": by_hand, "counted, MiB": most}) / MiB).round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Every kind is within 3%, and yet the sum is 6% larger than the peak, because no weight has a gradient yet when the loss
# is computed.
#
# One token costs 15 kB in each block and 121 kB in all eight, as much as 30 thousand fp32 weights. When memory runs
# out, ask first which of the two groups is too large: a smaller batch lowers only what belongs to tokens, and a
# [chunked loss](glossary.md#chunked-loss) only the logits.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What a strategy changes
#
# LoRA trains 5% of the parameters here. The last two blocks alone are 20%. **Which of the two needs less memory?**

# %% tags=["check-strategies"]
lora = get_peft_model(load(), LoraConfig(r=8, target_modules="all-linear"))
last = load().requires_grad_(False)
last.model.layers[6:].requires_grad_(True)
models = {"all parameters": load(), "LoRA": lora, "last two blocks": last}
strategies = {}
for name, model in models.items():
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    line = step_timeline(model, batch_size=8, sequence_length=128)
    most = line[["optimizer state", "gradients", "activations"]].max() / MiB
    strategies[name] = {"trained, %": 100 * trained / N, **most}
    strategies[name]["peak, MiB"] = peak(line) / MiB
strategies = pd.DataFrame.from_dict(strategies, orient="index")
course.claim(
    "LoRA trains a quarter as many parameters as the last two blocks, but needs more",
    strategies["peak, MiB"]["LoRA"] > 1.5 * strategies["peak, MiB"]["last two blocks"],
)
strategies.round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# (The middle columns are the largest size of each kind, in MiB.) LoRA removes most of the gradients and of the
# optimizer state, because these belong to trained parameters. But its adapters sit in every block, so backpropagation
# passes through every block, and each one has to keep its activations.
#
# When only the last two blocks are trained, backpropagation stops below them, and the six blocks below keep nothing. So
# how far *down* you train can matter more for memory than how many parameters you train.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The published table, computed again
#
# Qwen2-0.5B has 494,032,768 parameters. Weights, gradients and AdamW need 4 + 4 + 8 bytes for each, 7.9 GB. Cards are
# sold in GiB of $2^{30}$ bytes, so a card of "8 GB" has 8.59 of the reports' GB. `step_timeline` finds the rest by
# *tracing*: it takes the step on tensors that have a shape but no contents, so nothing of that size is made or
# downloaded. The batch is one row of 512 tokens. **Is the peak again at the loss?**

# %% tags=["check-published"]
published = step_timeline("qwen2-0.5b", batch_size=1, sequence_length=512)
figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
draw(axes, published, "With one row, the end of the backward pass needs most", 10_500)
figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=6)
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# With one row, activations are few, and the peak is at the *end* of the backward pass, where all gradients exist.
#
# The gradient of the embedding even exists three times there, because this model is tied: it uses one table both to
# read tokens and to predict them. The head gives the table a first gradient at the start of the backward pass. It waits
# as "temporary" until the lookup gives a second at the very end, and for a moment torch holds both and their sum. So we
# can calculate the peak:

# %%
parameters, table = 494_032_768, 151_936 * 896  # the table: tokens x width
calculated = 16 * parameters + 2 * 4 * table
traced = peak(published)
print(f"calculated {calculated / 1e9:.2f} GB, traced {traced / 1e9:.2f} GB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The 9.0 GB do not fit into 8.59. The total of the reports is about right, but for the wrong reason: at the peak, the
# activations are gone, and two more copies of one gradient are there instead. The reason decides what helps:
# [checkpointing](glossary.md#activation-checkpointing) and shorter rows lower only activations and logits, so neither
# helps here. [Lesson 10](10_oom_fallback.ipynb) shows what does.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Three recipes called bf16
#
# A number in [bf16](glossary.md#bf16) takes 2 bytes, but has only 8 significant bits. Three ways of training go by that
# name:
#
# - **[Autocast](glossary.md#autocast)** (*mixed precision*): weights, gradients and [moments](glossary.md#moments) are
#   in fp32, and torch computes matrix products in bf16.
# - **Pure bf16**: weights, gradients and moments are all in bf16. You get it from weights in bf16 and an ordinary
#   optimizer.
# - **bf16 with a master copy**: the weights are in bf16, but the optimizer updates an fp32 copy of them, with gradients
#   and moments in fp32. Megatron-LM does this.
#
# We take one step in each of them, with a learning rate of $10^{-5}$, which is usual for large models, and count bytes
# for each parameter. (Autocast has the bytes of fp32 here, because it changes only what the forward pass keeps.)
# **Which of them halves the memory, and what does it cost?**


# %%
def one_step(dtype, master=False):
    """Bytes per parameter, and the share of parameters that moved."""
    model = load(dtype)
    weights = list(model.parameters())
    trained = [w.detach().float() for w in weights] if master else weights
    start = [w.detach().clone() for w in trained]
    optimizer = torch.optim.AdamW(trained, lr=1e-5)
    model(input_ids=rows, labels=rows).loss.backward()
    if master:
        for copy, weight in zip(trained, weights, strict=True):
            copy.grad, weight.grad = weight.grad.float(), None
    optimizer.step()  # with a master copy, weight.copy_(copy) would follow
    states = optimizer.state.values()
    moments = [state[n] for state in states for n in ("exp_avg", "exp_avg_sq")]
    moved = sum((w != s).sum().item() for w, s in zip(trained, start, strict=True))
    return {
        "weights": sum(w.nbytes for w in weights) / N,
        "gradients": sum(w.grad.nbytes for w in trained) / N,
        "optimizer": sum(t.nbytes for t in moments + (trained if master else [])) / N,
        "moved, %": 100 * moved / N,
    }


rows = torch.randint(V, (1, 128), generator=torch.Generator().manual_seed(0))
recipes = {
    "fp32, also autocast": one_step(torch.float32),
    "pure bf16": one_step(torch.bfloat16),
    "bf16, fp32 master": one_step(torch.bfloat16, master=True),
}
recipes = pd.DataFrame.from_dict(recipes, orient="index").round().astype(int)
print("loaded without dtype=:", AutoModelForCausalLM.from_pretrained(tl.BUNDLED).dtype)
recipes

# %% [markdown] slideshow={"slide_type": "subslide"}
# - **Autocast** lowers only the activations, and does not halve them, because norms stay in fp32. Each block also keeps
#   bf16 copies of its weights for the backward pass, so with very few tokens autocast needs *more* than fp32.
# - **Pure bf16** halves everything, at a price: 96% of the parameters did not move at all. Between 0.0625 and 0.125,
#   for example, neighbouring bf16 numbers are 0.0005 apart. Adding 0.00001 gives the old number again, in every step.
# - **The master copy** mends this, but takes 2 + 4 + 12 = 18 bytes for each parameter, 2 more than fp32 (with 16-bit
#   gradients, as in the ZeRO paper, 2 + 2 + 12 = 16). It still saves activations, and time on hardware that computes in
#   bf16.

# %% [markdown] slideshow={"slide_type": "subslide"}
# Which one do you get? `bf16=True` in a `Trainer` switches autocast on, but leaves the weights as they are. Most
# checkpoints are stored in bf16 (ours in fp16), and version 5 of transformers loads them as they are stored. So with
# most models `bf16=True` trains *pure* bf16. If you train all parameters, load with `dtype=torch.float32`.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## LoRA in bf16: 7B parameters on a card of 24 GB
#
# Rounding hurts only what is trained. With LoRA that is the adapters, and peft keeps them in fp32 on top of a model in
# bf16. So the frozen weights take 2 bytes, and only the adapters take 16. This is how LoRA is run at work. We build
# Llama-7B on torch's `meta` device, which stores shapes only. **How much memory do its weights need, and how much the
# step?**
#
# All 32 blocks are alike, so we trace models of two and of four blocks, with rows of 512 tokens. Their difference is a
# pair of blocks, and the 30 blocks that are missing are 15 such pairs.


# %%
def lora_in_bf16(blocks):
    with torch.device("meta"):
        base = AutoModelForCausalLM.from_config(
            LlamaConfig(num_hidden_layers=blocks), dtype=torch.bfloat16
        )
        return get_peft_model(base, LoraConfig(r=8, target_modules="all-linear"))


seven = list(lora_in_bf16(32).parameters())
weights = sum(p.nbytes for p in seven if not p.requires_grad)
adapters = sum(4 * p.nbytes for p in seven if p.requires_grad)
print(f"all parameters, fp32: {16 * sum(p.numel() for p in seven) / GiB:.0f} GiB")
print(f"LoRA: bf16 weights {weights / GiB:.1f} GiB, adapters {adapters / GiB:.1f} GiB")
peaks = []
for size in (1, 2):
    two, four = (peak(step_timeline(lora_in_bf16(n), batch_size=size)) for n in (2, 4))
    peaks.append(two + 15 * (four - two))
    print(f"peak, {size} x 512 tokens: {peaks[-1] / GiB:.1f} GiB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The frozen weights remain: 12.6 GiB, three quarters of the first peak. LoRA has removed nearly all that training adds
# to them, so the next thing to shrink is these weights: [QLoRA](06_qlora.ipynb) stores them in four bits. The rest is
# activations, which grow with rows and length.
#
# **What the count leaves out.** It knows torch's tensors. The driver, scratch space inside kernels, and gaps between
# tensors come on top. How much that is differs from case to case, so this course plans with 85% of a card, as a rule of
# thumb. A card of 24 GB reports about 23.65 GiB, and 0.85 · 23.65 is 20 GiB: one row fits, and two rows do not. On a
# card, torch keeps the count for you:
#
# ```python
# torch.cuda.reset_peak_memory_stats()
# ...  # two steps, because the first one only makes the optimizer state
# print(torch.cuda.max_memory_allocated() / 2**30, "GiB")
# ```
#
# ## Key ideas
#
# - Weights ($4N$), gradients ($4N_t$) and AdamW's moments ($8N_t$) belong to parameters. Activations and logits belong
#   to tokens, and grow with the batch.
# - A step fits if its peak fits, and only tensors that are live at the peak count. With many tokens the peak is at the
#   loss, with few at the end of the backward pass.
# - Pure bf16 loses small updates. With LoRA on frozen bf16 weights the adapters stay in fp32, so no update is lost, and
#   the weights take 2 bytes a parameter: 12.6 GiB for 7B.
#
# ## Further reading
#
# - Micikevicius et al. 2018, [Mixed precision training](https://arxiv.org/abs/1710.03740): master weights in fp32
# - Rajbhandari et al. 2020, [ZeRO](https://arxiv.org/abs/1910.02054): the 16 bytes a parameter, spread over cards
# - Korthikanti et al. 2022, [Reducing activation recomputation](https://arxiv.org/abs/2205.05198): activations in
#   larger models
# - [Understanding GPU memory](https://pytorch.org/blog/understanding-gpu-memory-1/): torch's own timeline of a card

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
# - **b** logits and loss for 64 tokens at a time
# - **c** rows of 256 tokens
# - **d** plain SGD instead of AdamW

# %%
course.quiz("quiz09")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 9.1.** Before you rent a card, you want to know what a model needs however small the batch is. Given a
# model of which some parameters may be frozen (`requires_grad` is False), return the bytes of its weights, gradients
# and AdamW's moments. Gradients and moments have the dtype of their parameter, which need not be the same everywhere.


# %%
def lasting_bytes(model):
    """Weights, gradients and AdamW's moments, in bytes."""
    # your code here


course.check("ex09_1", lasting_bytes)

# %% [markdown]
# Previous: [8 · The PEFT family](08_peft_family.ipynb) ·
# Next: [10 · Out of memory](10_oom_fallback.ipynb)
