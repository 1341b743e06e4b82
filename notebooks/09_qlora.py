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
# # 9 · QLoRA
#
# *What do weights of 4 bits cost, what do they save, and when do they not pay?*
#
# LoRA leaves the pretrained weights alone. Weights that are never changed need not be exact: QLoRA keeps them in
# 4 bits each and trains the adapters beside them in full precision.
#
# **You will** look at the error that 4 bits make, count the bytes they save, and train with both. About 5 minutes.

# %% slideshow={"slide_type": "subslide"}
import pandas as pd
import torch

import tlkit as tl

profile = tl.setup()
rust = tl.load_corpus().limited(profile.train_passages, profile.test_passages)
base = tl.load_model("tiny")
blocks = tl.pack(rust.train, base.tokenizer, 128)
before = tl.perplexity(base.model, base.tokenizer, rust.validation)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Sixteen values
#
# Four bits tell sixteen values apart. *NF4* places them where weights are: close together near zero, further apart
# outside. Each block of 64 weights has one scale, its largest absolute value. When a layer is computed, its weights are
# looked up again and multiplied by the scale.

# %%
qlora = tl.apply_strategy(tl.load_model("tiny").model, "qlora")
name = "model.layers.0.self_attn.q_proj.weight"
quantized_model = qlora.model.get_base_model()
packed = quantized_model.get_parameter(name.replace(".weight", ".base_layer.weight"))
original, again = base.model.get_parameter(name).detach(), tl.dequantized(packed)
tl.quantization_chart(original[0, :64], again[0, :64])

# %%
values = again[0, :64].unique()
print("bytes:", packed.numel(), "for", tl.logical_size(packed), "weights")
tl.claim("A block of 64 weights has at most sixteen values", len(values) <= 16)
assert 2 * packed.numel() == tl.logical_size(packed) == 192 * 192

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** By how many percent is a weight wrong, on average? And how much worse does the model read?

# %%
error = float((again - original).norm() / original.norm())
coarse = tl.perplexity(qlora.model, base.tokenizer, rust.validation)
print(f"error of the weights: {error:.0%}")
tl.claim("The perplexity rises", coarse.perplexity > before.perplexity)
tl.claim("It rises by less than 3%", coarse.perplexity / before.perplexity < 1.03)
assert round(error, 2) == 0.09

# %% [markdown] slideshow={"slide_type": "subslide"}
# The errors are large and have no common direction, so in a sum of hundreds of products most of them cancel. The
# adapters are still zero here (lesson 8): this is the price of 4 bits alone.
#
# ## What is saved, and what is not
#
# A weight takes 4 bits, and its share of the scales: an 8-bit scale for 64 weights, and a 32-bit one for 256 of those
# scales. That makes 4.13 bits. But only the linear layers of the blocks are packed. The embedding is a table to
# look up, and the head decides between tokens: both stay as they are.
#
# **Predict first.** Of which model is less left: one of 0.5 or one of 7 billion weights?

# %%
print(f"{4 + 8 / 64 + 32 / (64 * 256):.2f} bits")
rows = []
for preset in ("tiny", "qwen2-0.5b", "tinyllama-1.1b", "llama2-7b"):
    whole = tl.meta_model(preset).to(torch.bfloat16)
    table = whole.get_input_embeddings().weight.nbytes
    full_size = sum(tensor.nbytes for tensor in tl.tensors_of(whole))
    adapted = tl.apply_strategy(whole, "qlora").model
    adapters = sum(p.nbytes for p in adapted.parameters() if p.requires_grad)
    small_size = sum(tensor.nbytes for tensor in tl.tensors_of(adapted)) - adapters
    percent = [round(100 * part / full_size) for part in (table, small_size)]
    rows.append(
        {"model": preset, "embedding, %": percent[0], "left of 16 bits, %": percent[1]}
    )
sizes = pd.DataFrame(rows).set_index("model")
sizes

# %%
left = sizes["left of 16 bits, %"]
print("qwen2-0.5b:", left["qwen2-0.5b"], "% left; llama2-7b:", left["llama2-7b"], "%")
assert left["qwen2-0.5b"] == 46 and left["llama2-7b"] == 29
table = sizes["embedding, %"]
assert table["qwen2-0.5b"] == 28 and table["llama2-7b"] == 2

# %% [markdown] slideshow={"slide_type": "subslide"}
# A quarter would be left if all were packed. The 0.5B model keeps nearly half, because its table of
# 151,936 tokens is 28% of its bytes. The 7B model comes close to the quarter.
#
# And weights are only a part of a step. The estimate of lesson 12 has the rest: activations, logits, optimizer. Here is
# a step of one row of 512 tokens, weights in 16 or in 4 bits.

# %%
steps = {}
for strategy in ("lora", "qlora"):
    steps[strategy] = tl.estimate_memory(
        "qwen2-0.5b", strategy, dtype="bf16", sequence_length=512
    )
    print(f"{strategy:6}", tl.in_units(steps[strategy].peak))
saved = 1 - steps["qlora"].peak / steps["lora"].peak
print(f"saved: {saved:.0%}")
assert 0.15 < saved < 0.35

# %%
# What is not packed is in bf16; activations are computed again (lesson 12).
seven = tl.estimate_memory(
    "llama2-7b",
    "qlora",
    dtype="bf16",
    sequence_length=512,
    plan=tl.Plan(activation_checkpointing=True),
)
print("7 billion weights:", tl.in_units(seven.peak))
tl.claim(
    "It fits a card of 8 GB, with 15% left to the driver",
    seven.peak < 0.85 * 8 * 2**30,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# That is what QLoRA is for: a model of 7 billion weights on a card that cannot even hold it in 16 bits.
#
# ## Does it train?
#
# The gradient has to pass through the packed layers on its way down. A published trainer had adapters that
# never received one; its plan calls the repair "expected" to work. `check_gradient_flow` takes two steps and compares:
# what was declared trainable, what received a gradient, what moved.

# %%
flow = tl.check_gradient_flow(qlora, blocks[:2])
print(flow)
assert not flow.problems

# %%
tl.gradient_flow_chart(flow)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** Which of the two ends lower, and which is faster: `lora` or `qlora`?

# %%
settings = tl.TrainingConfig(learning_rate=1e-2, epochs=profile.epochs, batch_size=4)
runs, scores = {}, {"before": before}
for strategy in ("lora", "qlora"):
    torch.manual_seed(0)  # the same start for both adapters
    model = tl.apply_strategy(tl.load_model("tiny").model, strategy).model
    runs[strategy] = tl.train(model, blocks, settings, progress=True)
    scores[strategy] = tl.perplexity(model, base.tokenizer, rust.validation)

# %% tags=["nbval-ignore-output"]
for name, result in runs.items():
    print(f"{name}: {result.tokens_per_second:,.0f} tokens/s")
tl.score_table(scores).round(2)

# %%
tl.perplexity_chart(tl.score_table(scores))

# %%
apart = scores["qlora"].perplexity / scores["lora"].perplexity - 1
tl.claim(
    "Both adapt: perplexity falls by more than a quarter",
    max(scores[name].perplexity for name in runs) < 0.75 * before.perplexity,
)
tl.claim("They end within 3% of each other", abs(apart) < 0.03)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Both adapt, and `qlora` stays a little above: the adapters learn Rust as well, and about the price of the 4 bits
# remains. And `qlora` is the slower one: each layer is unpacked
# in the forward pass and once more in the backward pass. It buys memory with time. Where the model fits
# in 16 bits, `lora` is the better choice.

# %% [markdown] slideshow={"slide_type": "subslide"}
# **What carries over**: the error of a weight, about 9%, and the 4.13 bits, to any size. The harm shrinks as
# models grow, so expect less than here; the saving grows, because the embedding's share shrinks.
#
# **Take away.** Four bits pay where frozen weights fill the memory. Ask first what fills it.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `tl.check` says what it looked at and, if the answer
# is not right yet, why. Stuck? `tl.hint("ex09_1", 1)` is a first push, `tl.hint("ex09_1", 2)` says more. After *Restart
# Kernel* run the next cell first; then each exercise works by itself.

# %%
import tlkit as tl

# %% [markdown]
# **Quiz.** LoRA trains a 0.5B model on your card in 16 bits, with memory to spare. What would QLoRA change?
#
# - **a** Steps get faster: a quarter of the bytes has to be read.
# - **b** The same steps need less memory, at no price.
# - **c** Steps get slower and weights coarser, for memory that you do not need.
# - **d** The adapters get 4 bits too, and a quarter of the size on disk.

# %%
tl.quiz("quiz09")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 9.1** (first steps). This lesson's 4.13 bits need *double quantisation*: the scales are quantised as well.
# Leave that out. Each block of 64 weights then has one scale of 32 bits. How many bits does a weight cost, its share of
# the scale included?

# %%
answer = None
# your code here
tl.check("ex09_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 9.2** (apply it). `qlora` packs weights that `lora` keeps in 16 bits: from 16 bits each to 4.127.
# Everything else in the step stays as it is. Given the number of packed weights and the peak of the `lora` step in
# bytes, by how many percent is the peak of `qlora` lower? Then try it on `qwen2-0.5b`, which packs 357,826,560 weights:
# the `lora` peak is 2,978,370,760 bytes with one row of 512 tokens, and 16,540,026,056 with eight.


# %%
def saved_percent(packed, lora_peak):
    """How much lower the peak is, in percent of `lora_peak` (bytes)."""
    # your code here


tl.check("ex09_2", saved_percent)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 9.3** (think further). Quantise weights yourself. `weights` is a tensor of one dimension. Each `block` of
# neighbours shares one scale, the largest *absolute* value among them; the last block may be shorter. Divide by the
# scale, replace each result by the nearest of `levels` (a sorted tensor from -1 to 1), multiply by the scale again.
# Return the weights that are computed with, in the same shape, and leave `weights` as it is.

# %%
import torch


def rounded(weights, levels, block):
    """The weights after quantising and reading them again."""
    # your code here


tl.check("ex09_3", rounded)

# %% [markdown]
# Previous: [8 · LoRA and BitFit](08_lora.ipynb) ·
# Next: [12 · Anatomy of a training step](12_memory_anatomy.ipynb)
