# %% [markdown] slideshow={"slide_type": "slide"}
# # 9 · Anatomy of a training step
#
# *Which bytes does a training step need, and at which moment?*
#
# The [published experiment](16_autopsy.ipynb) of this course trained Qwen2-0.5B, and ran out of memory on a card of 8
# GB. Its report explains that by a table: weights 1.97 GB, gradients 1.97, optimizer 3.94, activations "0.5-2",
# together "8-10 GB". But such a table adds up tensors that need not exist at the same time: when the gradients are
# complete, the activations are gone. What counts is the *peak*, the moment that needs most.
#
# **You will be able to**
#
# - calculate each kind of bytes in a training step by hand, and check it against torch;
# - find the moment that needs most, and say what lowers it;
# - tell recipes called bf16 apart, and estimate what LoRA in bf16 needs for a model and batch of yours.
#
# **You need** [lesson 2](02_inside_a_language_model.ipynb) (a training step) and [lesson 5](05_lora.ipynb) (LoRA).
# About 31 minutes.

# %% slideshow={"slide_type": "subslide"}
import copy

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
# `step_timeline` takes a training step and notes every tensor that torch makes or frees. (It is not a run's first, so
# the optimizer state is there.) Its table holds the bytes of all *live* tensors, made and not yet freed, at each
# moment. We take eight rows of 128 tokens. **When does the step need most?**

# %%
kinds = ["weights", "optimizer state", "gradients"]
kinds += ["activations", "logits and loss", "temporary"]


def peak(timeline):
    return timeline[kinds].sum(axis=1).max()


# %%
def draw(axes, timeline, title, top):
    """Stack the kinds over a step; `top` is the height of the picture, in MiB."""
    total = timeline[kinds].sum(axis=1) / MiB
    axes.stackplot(timeline.index, timeline[kinds].T / MiB, step="post")
    for phase, part in timeline.groupby("phase", sort=False):
        axes.axvline(part.index[0], color="black", linestyle="--", linewidth=1)
        axes.text(part.index[0], 0.94 * top, f" {phase.split()[0]}", fontsize=8)
    x, y = total.idxmax(), total.max()
    axes.plot(x, y, "ko")
    axes.text(x, y + top / 20, f"peak: {y:,.0f} MiB ", ha="right")
    axes.set(title=title, ylim=(0, top), xlim=timeline.index[[0, -1]])
    axes.set(xlabel="tensors made or freed, in order", ylabel="live tensors (MiB)")


def draw_step(timeline, title, top):
    at = timeline[kinds].sum(axis=1).idxmax()
    figure = plt.figure(figsize=(10, 4.2), layout="constrained")
    axes, closeup = figure.subplots(1, 2, width_ratios=(5, 3))
    draw(axes, timeline, title, top)
    draw(closeup, timeline[at - 25 : at + 15], "the moments around the peak", top)
    figure.legend(axes.collections, kinds, loc="outside lower center", ncols=6)
    return axes


# %% tags=["check-full"]
full = step_timeline(load(), batch_size=8, sequence_length=128)
draw_step(full, "A step needs most as its backward pass begins", top=260)
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# It needs most, 213 MiB, as the backward pass begins. In order:
#
# - **Weights** and **optimizer state** are there all the time.
# - In the **forward pass**, each of eight blocks keeps what its backward pass needs, its
#   [**activations**](glossary.md#activation).
# - At the turn, the [**logits**](glossary.md#logit) appear. The loss computes log-probabilities from them, and then the
#   logits are freed. The backward pass makes the gradient of the log-probabilities, and from it that of the logits. So
#   for a moment there are three tensors of this size, and that moment is the peak.
# - In the **backward pass** each block uses and frees its activations, while the **gradients** of its weights appear.
# - The **optimizer step** updates the weights, and then the gradients are freed. ("Temporary" is all the rest.)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Every kind by hand
#
# The bytes fall into two groups. The first belongs to *parameters*. With $N$ parameters, of which $N_t$ are trained, in
# fp32 (4 bytes a number) with [AdamW](glossary.md#adamw), which keeps two [moments](glossary.md#moments) of a gradient:
#
# $$\text{weights} = 4N, \qquad \text{gradients} = 4N_t, \qquad \text{optimizer state} = 4N_t + 4N_t = 8N_t$$

# %% [markdown] slideshow={"slide_type": "subslide"}
# The second group belongs to *tokens*. Take $B$ rows of $T$ tokens, a vocabulary of $V$, and $L$ blocks of width $d$,
# each with an MLP of width $m$, $a$ attention heads, and keys and values of width $k$:
#
# $$\text{logits} = 4 \cdot B\,(T-1)\,V \quad (\text{three such tensors at the peak})$$
#
# $$\text{activations} \approx 4 \cdot B\,(T-1) \cdot L \cdot (8d + 2k + 4m + a + 2)$$
#
# Here $T - 1$ tokens count, because this course's step leaves out the last token of a row, which is only predicted. The
# bracket counts what one block keeps of each token:
#
# | part | tensors kept for the backward pass | numbers for a token |
# | --- | --- | --- |
# | two norms | input, normalised input, output, and one scale each | $2\,(3d + 1)$ |
# | attention | queries and output; keys and values; for each head the log of its softmax's sum | $2d + 2k + a$ |
# | MLP | gate, activated gate, up, and their product | $4m$ |
#
# A linear layer keeps its input, to compute the gradient of its weights. A product keeps both factors, and an
# activation function keeps its input. The $T \times T$ attention weights are missing, because fused kernels compute
# them in pieces and never store them.
#
# **Will the five kinds add up to the peak?**

# %%
model = load()
N, c = model.num_parameters(), model.config
d, m, L, V = c.hidden_size, c.intermediate_size, c.num_hidden_layers, c.vocab_size
a, k = c.num_attention_heads, c.num_key_value_heads * d // c.num_attention_heads
kept = 8 * d + 2 * k + 4 * m + a + 2
tokens = 8 * (128 - 1)
by_hand = {
    "weights": 4 * N,
    "gradients": 4 * N,
    "optimizer state": 8 * N,
    "activations": 4 * tokens * L * kept,
    "logits and loss": 3 * 4 * tokens * V,
}
counted = full[list(by_hand)].max()
print(f"a block keeps {kept:,} numbers = {4 * kept:,} bytes of each token")
print(f"sum of the five kinds: {sum(by_hand.values()) / MiB:.0f} MiB")
(pd.DataFrame({"by hand, MiB": by_hand, "counted, MiB": counted}) / MiB).round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# No. Every kind is within 3% of the count, but their sum is 6% larger than the peak of 213 MiB. They are not all there
# at once: at the loss, no weight has a gradient yet.
#
# Autograd can count activations, too: it hands each tensor that it saves for the backward pass to a hook of ours. **Will
# they be 119.6 MiB again?**

# %%
held = {w.untyped_storage().data_ptr(): 0 for w in model.parameters()}  # not counted


def note(tensor):
    memory = tensor.untyped_storage()
    held.setdefault(memory.data_ptr(), memory.nbytes())
    return tensor


with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
    _output = model(torch.zeros(8, 127, dtype=torch.long), use_cache=False)
gap = sum(held.values()) / counted["activations"] - 1
course.claim("Autograd saves as many bytes, to 0.1%", abs(gap) < 1e-3)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Yes, so the timeline counts what autograd saves.
#
# When memory runs out, ask which group is too large. A smaller batch lowers only what belongs to tokens, and a [chunked
# loss](glossary.md#chunked-loss) only the logits.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What a strategy changes
#
# LoRA trains 5% of the parameters here. The last two blocks alone are 20%. **Which of the two needs less memory?**

# %% tags=["check-strategies"]
lora = get_peft_model(load(), LoraConfig(r=8, target_modules="all-linear"))
last_two = load().requires_grad_(False)
last_two.model.layers[6:].requires_grad_(True)
models = {"all parameters": load(), "LoRA": lora, "last two blocks": last_two}
strategies = {}
for name, model in models.items():
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    timeline = step_timeline(model, batch_size=8, sequence_length=128)
    largest = timeline[["optimizer state", "gradients", "activations"]].max() / MiB
    strategies[name] = {"trained, %": 100 * trained / N, **largest}
    strategies[name]["peak, MiB"] = peak(timeline) / MiB
pd.DataFrame(strategies).T.round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The last two blocks do, though four times as many parameters are trained. LoRA removes most of the gradients and of
# the optimizer state, because these belong to trained parameters. But its adapters sit in every block, so
# backpropagation passes through all blocks, which keep nearly all activations, 109 of 120 MiB. (Frozen norms keep
# less.)
#
# When only the last two blocks are trained, backpropagation stops below them, and the other six keep nothing. So how
# far *down* you train can matter more for memory than how many parameters you train.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The published case in torch
#
# Qwen2-0.5B has 494,032,768 parameters. Weights, gradients and AdamW need 4 + 4 + 8 bytes for each, 7.9 GB. (The
# reports count in GB of $10^9$ bytes: 8 GiB are 8.59 GB.) The published program was in Rust, so we count torch's step
# instead, with one row of 512 tokens. `step_timeline` *traces* it, on tensors without contents. **Is the peak again at
# the loss?**

# %% tags=["check-published"]
published = step_timeline("qwen2-0.5b", batch_size=1, sequence_length=512)
axes = draw_step(published, "With 512 tokens, a step needs most near its end", 10_500)
axes.axhline(8 * GiB / MiB, color="black", linestyle=":")  # what an 8 GB card has
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# No, the peak is at the *end* of the backward pass, where all gradients exist, and above the card's 8 GiB (dotted). The
# loss needs about 7,800 MiB, in a spike so short that the dashed line hides it. From about 700 tokens on, the loss
# needs most.
#
# At the end, the gradient of the embedding even exists three times, because this model is tied: one table both reads
# tokens and predicts them. Its first gradient comes from the head, at the start of the backward pass, and waits, drawn
# as "temporary". At the end the lookup gives a second one. torch adds them, and for a moment holds both and their sum.
# So the peak is 16 bytes a parameter, and two more copies of this gradient:

# %%
parameters, table = 494_032_768, 151_936 * 896  # the table: tokens x width
calculated = 16 * parameters + 2 * 4 * table
traced = peak(published)
print(f"calculated {calculated / 1e9:.2f} GB, traced {traced / 1e9:.2f} GB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# These 8.99 GB (8,577 MiB in the chart) do not fit into the card's 8.59 GB. The report's total is about right, but its
# parts are not those of torch's peak, where the activations are gone and one gradient is there three times. So neither
# shorter rows nor [checkpointing](glossary.md#activation-checkpointing) help here. [Lesson 10](10_oom_fallback.ipynb)
# shows what does.
#
# All this is with `AdamW(fused=True)`, `Trainer`'s default. Without `fused`, on a CUDA card, the optimizer step needs
# most, because it makes temporary tensors as large as the weights.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Recipes called bf16
#
# A number in [bf16](glossary.md#bf16) takes 2 bytes instead of 4, but has only 8 significant bits. Three recipes go by
# that name:
#
# - **[Autocast](glossary.md#autocast)** (*mixed precision*): weights, gradients and [moments](glossary.md#moments) are
#   in fp32, and torch computes matrix products in bf16.
# - **Pure bf16**: all of these are in bf16. You get it from weights in bf16 and an ordinary optimizer.
# - **bf16 with a master copy**: the weights are in bf16, but the optimizer updates an fp32 copy of them, with gradients
#   and moments in fp32.
#
# We take a step in fp32 (autocast keeps the same three) and in pure bf16, at a learning rate of $10^{-5}$. **What is
# the price of half the bytes?**


# %%
def one_step(dtype):
    """Bytes per parameter, and the share of parameters that moved."""
    model = load(dtype)
    weights = list(model.parameters())
    before = [w.detach().clone() for w in weights]
    optimizer = torch.optim.AdamW(weights, lr=1e-5, fused=True)
    model(input_ids=rows, labels=rows).loss.backward()
    optimizer.step()
    moments = [s[n] for s in optimizer.state.values() for n in s if n != "step"]
    pairs = zip(weights, before, strict=True)
    moved = sum((now != old).sum().item() for now, old in pairs)
    return {
        "weights": sum(w.nbytes for w in weights) / N,
        "gradients": sum(w.grad.nbytes for w in weights) / N,
        "optimizer": sum(t.nbytes for t in moments) / N,
        "moved, %": 100 * moved / N,
    }


# %%
rows = torch.randint(V, (1, 128), generator=torch.Generator().manual_seed(0))
dtypes = {"fp32, also autocast": torch.float32, "pure bf16": torch.bfloat16}
recipes = pd.DataFrame({name: one_step(dtype) for name, dtype in dtypes.items()})
autocast = tl.Plan(precision="bf16")
cast = step_timeline(c, batch_size=8, sequence_length=128, plan=autocast)
print(f"activations in autocast: {cast['activations'].max() / MiB:.0f} MiB")
recipes.T.round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The price is lost updates. **Pure bf16** halves weights, gradients and moments, but in this step 96% of the parameters
# did not move at all. AdamW moves a weight by about the learning rate, 0.00001. But between 0.0625 and 0.125, for
# example, neighbouring bf16 numbers are 0.0005 apart, so the sum is rounded back to the old number.
#
# **The master copy** mends this: it adds up small steps until they change the bf16 weight. It takes 18 bytes a
# parameter, the 16 of fp32 and 2 for the bf16 weight.
#
# **Autocast** saves only activations, and keeps bf16 copies of the weights beside them, 2 bytes a parameter. Here this
# still saves 30 of 120 MiB, but below about 1,000 tokens, Qwen2-0.5B keeps *more* than in fp32.
#
# `bf16=True` in a `Trainer` switches autocast on, but leaves the weights as they are. Most checkpoints are stored in
# bf16, and version 5 of transformers loads them as they are stored. So with most models `bf16=True` trains *pure* bf16.
# If you train all parameters, load with `dtype=torch.float32`.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## LoRA in bf16: 7B parameters on a card of 24 GB
#
# Lost updates concern only what is trained. With LoRA that is the adapters, and peft keeps them in fp32 on a model in
# bf16. So the frozen weights take 2 bytes a parameter, and only the adapters take 16. At work, LoRA is run like this,
# with autocast. (If you give TRL a name, add `model_init_kwargs={"dtype": "bfloat16"}` to the `SFTConfig`, or these
# weights are loaded in fp32.)
#
# We build Llama-7B on torch's `meta` device, which stores shapes only. All 32 blocks are alike, so `lora_peak` traces
# one and two of them, and adds the difference for each further block. **How many rows of 512 tokens fit on 24 GB?**


# %%
def lora_in_bf16(config, blocks):
    shapes = copy.deepcopy(config)
    shapes.num_hidden_layers = blocks
    with torch.device("meta"):
        base = AutoModelForCausalLM.from_config(shapes, dtype=torch.bfloat16)
        return get_peft_model(base, LoraConfig(r=8, target_modules="all-linear"))


def lora_peak(config, rows, tokens):
    size = {"batch_size": rows, "sequence_length": tokens, "plan": autocast}
    models = [lora_in_bf16(config, blocks) for blocks in (1, 2)]
    one_block, two_blocks = (peak(step_timeline(model, **size)) for model in models)
    return one_block + (config.num_hidden_layers - 1) * (two_blocks - one_block)


# %%
llama = LlamaConfig()  # 7B; for another model: AutoConfig.from_pretrained(name)
adapters, both = lora_in_bf16(llama, 32).get_nb_trainable_parameters()
base = both - adapters
print(f"LoRA: weights {2 * base / GiB:.1f} GiB, adapters {16 * adapters / GiB:.1f} GiB")
peaks = {size: lora_peak(llama, size, tokens=512) / GiB for size in (1, 2, 4)}
for size, needed in peaks.items():
    print(f"peak with {size} x 512 tokens: {needed:.1f} GiB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Two rows just fit. A card of 24 GB has about 23.65 GiB, but the driver, kernels and gaps between tensors need memory,
# too. On an H100, eight other steps needed up to 6% more than traced. So this course leaves 15% of a card free, and 20
# GiB remain.
#
# **What should you shrink first?** With one row it is the frozen weights: their 12.6 GiB are more than three quarters
# of the peak, and [QLoRA](06_qlora.ipynb) stores them in four bits. But each row adds 3.3 GiB, mostly activations. With
# four rows the weights are less than half, and [checkpointing](10_oom_fallback.ipynb) saves more.
#
# On your card, torch counts for you:
#
# ```python
# torch.cuda.reset_peak_memory_stats()
# ...  # two steps: the first makes the optimizer state only at its end
# print(torch.cuda.max_memory_allocated() / 2**30, "GiB")
# ```
#
# ## Key ideas
#
# - Weights ($4N$), gradients ($4N_t$) and moments ($8N_t$) belong to parameters, activations and logits to tokens.
# - A step fits if its peak fits, and only tensors that are live at the peak count. With many tokens the peak is at the
#   loss, with few (and fused AdamW) at the end of the backward pass.
# - Pure bf16 loses small updates. LoRA on frozen bf16 weights does not, because its adapters stay in fp32.
#
# ## Further reading
#
# - Micikevicius et al. 2018, [Mixed precision training](https://arxiv.org/abs/1710.03740): master weights in fp32
# - Rajbhandari et al. 2020, [ZeRO](https://arxiv.org/abs/1910.02054): the 16 bytes a parameter, spread over cards
# - [Understanding GPU memory](https://pytorch.org/blog/understanding-gpu-memory-1/): torch's own timeline of a card

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex09_1", 1)`. After
# *Restart Kernel* run the next cell first.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** Full fine-tuning of `qwen2-0.5b` with fused AdamW needs 8.38 GiB for 1 x 512 tokens. What lowers the peak?
#
# - **a** activation checkpointing
# - **b** logits and loss for 64 tokens at a time
# - **c** rows of 256 tokens
# - **d** plain SGD instead of AdamW

# %%
course.quiz("quiz09")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 9.1.** Given a model of the Llama or Qwen2 kind and `rows` times `tokens`, return the bytes at the peak of
# this course's step (`tokens - 1` of each row), which trains all parameters in fp32 with fused AdamW. Only two moments
# can be the peak. In a tied model, `model.config.tie_word_embeddings` is True.


# %%
def peak_bytes(model, rows, tokens):
    """Bytes at the peak of a training step, by this lesson's formulas."""
    # your code here


course.check("ex09_1", peak_bytes)

# %% [markdown]
# Previous: [8 · The PEFT family](08_peft_family.ipynb) ·
# Next: [10 · Out of memory](10_oom_fallback.ipynb)
