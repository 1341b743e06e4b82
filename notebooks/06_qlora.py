# %% [markdown] slideshow={"slide_type": "slide"}
# # 6 · QLoRA
#
# *Can frozen weights be stored in 4 bits each, and what does the model lose by it?*
#
# LoRA never changes the pretrained weights, but it keeps them in memory, 13.5 GB in 16 bits for Llama 2 7B. Because
# these weights are only read, QLoRA can store them more coarsely. It rounds each weight to one of sixteen values, notes
# in 4 bits which one it is, and trains LoRA's adapters beside the rounded weights. This rounding is called
# [quantisation](glossary.md#quantisation).
#
# **You will be able to**
#
# - quantise a matrix to [NF4](glossary.md#nf4) by hand, and say why a weight takes 4.13 bits;
# - measure what 4 bits cost your model before you train it;
# - set up a QLoRA run with transformers and peft, say what it saves and how much slower it is, and merge its adapter.
#
# **You need** [lesson 5](05_lora.ipynb) (LoRA).
#
# About 34 minutes.

# %% slideshow={"slide_type": "subslide"}
import time
import warnings
from functools import partial
from tempfile import mkdtemp

import bitsandbytes.functional as bnb
import matplotlib.pyplot as plt
import pandas as pd
import torch
from peft import LoraConfig, PeftModel, get_peft_model, prepare_model_for_kbit_training
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

import course
import tlkit as tl
from course.lesson06.pictures import four_bit_layer

tl.setup()
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
rust = tl.load_corpus("rust").limited(60, 40)
device, dtype = "cpu", torch.float32  # on a recent GPU: "cuda", torch.bfloat16
train_rows = tl.pack(rust.train, tokenizer, 128)[:32].to(device)  # half of lesson 5's
held_out = tl.pack(rust.validation, tokenizer, 128)[:20].to(device)
load = partial(AutoModelForCausalLM.from_pretrained, dtype=dtype, device_map=device)
new_model = partial(load, tl.BUNDLED)
base = new_model()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One layer of QLoRA
#
# Here is the query projection of the first block. The layer stores a code of 4 bits for each weight, and a few scales
# that say how large the coded weights are. For each forward pass it unpacks both into a matrix $\tilde{W}$, multiplies,
# and discards it. The adapter is LoRA's:
#
# $$h = \tilde{W} x + \frac{\alpha}{r} B A x, \qquad \tilde{W} = \mathrm{unpack}(\mathrm{codes}, \mathrm{scales})$$

# %%
four_bit_layer(*base.model.layers[0].self_attn.q_proj.weight.shape)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Backpropagation needs $\tilde{W}$ once more, to hand the gradient on to the layer below, so each layer is unpacked
# twice a step (with checkpointing, three times). Only the linear layers in the blocks are packed: errors of the head
# would go straight into the predictions.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Sixteen levels
#
# NF4 ("4-bit NormalFloat") fixes sixteen *levels* between -1 and 1. To make them fit, it cuts each matrix into groups
# of 64 neighbouring weights, and divides each group by the largest absolute weight in it, the *scale*. If that is 0.2,
# for example, the level 1 stands for a weight of 0.2:
#
# $$s_g = \max_{i \in g} |w_i|, \qquad
# c_i = \arg\min_c \left| \frac{w_i}{s_g} - \mathrm{level}[c] \right|, \qquad
# w_i \approx s_g \cdot \mathrm{level}[c_i]$$
#
# Here $w_i$ is a weight of the group $g$, and $c_i$ the stored code, 0 to 15. Groups are small so that one large weight
# spoils the scale of only 63 others.
#
# **Which sixteen levels?** Trained weights are roughly normally distributed. So NF4 takes *quantiles* of the normal
# distribution, the numbers that cut it into parts of equal probability. They lie close together near zero and far apart
# at the ends. Seven are negative, eight positive, and one is zero, so that zero stays zero.
#
# The quantile of probability 1 is infinite, so the outermost level lies half a part before it: at $1 - 1/32$ with 16
# parts, at $1 - 1/30$ with 15. NF4 takes the mean of both. Each side ends at zero (probability 0.5), so `[:-1]` drops
# the zero, and we add it once.

# %%
end = 1 - (1 / 32 + 1 / 30) / 2
positive = torch.special.ndtri(torch.linspace(end, 0.5, 9)[:-1])  # normal quantiles
negative = -torch.special.ndtri(torch.linspace(end, 0.5, 8)[:-1])
nf4 = torch.cat([negative, torch.zeros(1), positive]).sort().values
nf4 = nf4 / nf4.max()

# %% [markdown] slideshow={"slide_type": "subslide"}
# `encode` finds the nearest level. `bucketize` says between which two borders a number lies, and our borders are
# half-way between the levels.


# %%
def encode(numbers, levels, size):
    """Codes, shape (groups, numbers in a group), and scales, shape (groups, 1)."""
    groups = numbers.reshape(-1, size)
    scales = groups.abs().amax(1, keepdim=True)
    borders = (levels[1:] + levels[:-1]) / 2
    return torch.bucketize(groups / scales, borders), scales


weight = base.model.layers[0].self_attn.q_proj.weight.data.cpu().float()
codes, scales = encode(weight, nf4, 64)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The chart compares NF4's levels with those of *int4*, an ordinary integer of 4 bits: evenly spaced from -8 to 7,
# divided by 8. **Which fit the weights better?**

# %%
int4 = torch.arange(-8, 8) / 8

_, axes = plt.subplots(figsize=(8, 2.8))
axes.hist((weight.view(-1, 64) / scales).flatten(), bins=81, color="lightgray")
for name, levels, height in (("NF4", nf4, -90), ("int4", int4, -230)):
    axes.plot(levels, [height] * 16, "|", markersize=11, markeredgewidth=2)
    axes.text(-1.08, height, name, va="center", ha="right")
axes.set(xlim=(-1.3, 1.1), yticks=[0, 500], xlabel="weight / scale", ylabel="weights")
axes.set_title("NF4's levels are close together where most weights are")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# NF4's do: they are close together where most weights are.
#
# **What does a scale of 32 bits for 64 weights add to each weight?** Half a bit. QLoRA reduces this by [double
# quantisation](glossary.md#double-quantisation): it quantises the scales as well. All are positive and similar, so
# their mean is subtracted first. The differences are cut into groups of 256, and each is rounded to one of 256 levels,
# whose code takes 8 bits. Each of these groups needs one scale of 32 bits:
#
# $$\text{bits per weight} = 4 + \frac{8}{64} + \frac{32}{64 \cdot 256} \approx 4.127$$
#
# The next cell compares your numbers with those of bitsandbytes, the library behind QLoRA. `coarse` is the double
# quantisation: it encodes the scales less their mean, reads them back, and adds the mean again, with your `encode` and
# the library's 256 levels. In memory two codes share a byte: the first, times 16, plus the second.


# %% tags=["check-equal"]
packed, state = bnb.quantize_4bit(weight, compress_statistics=True, quant_type="nf4")
levels_of_8_bits = state.state2.code  # fixed, like those of NF4


def coarse(scales):
    mean = scales.mean()
    rest = (scales - mean).flatten()
    rest = nn.functional.pad(rest, (0, -len(rest) % 256))  # zeros fill the last group
    codes, largest = encode(rest, levels_of_8_bits, 256)
    return mean + (levels_of_8_bits[codes] * largest).view(-1, 1)[: len(scales)]


by_hand = (nf4[codes] * coarse(scales)).reshape(weight.shape)
bytes_by_hand = 16 * codes.flatten()[0::2] + codes.flatten()[1::2]
same = (bytes_by_hand == packed.flatten()).float().mean()
print(f"{weight.numel():,} weights in {packed.numel():,} bytes, {same:.1%} as by hand")
gap = (by_hand - bnb.dequantize_4bit(packed, state)).abs().max()
course.claim("Read back, our weights and bitsandbytes' agree to 1e-5", gap < 1e-5)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What do four bits cost the model?
#
# Now your `encode` quantises every linear layer in the blocks of a model.


# %%
@torch.no_grad()
def nats(model, rows):
    """Loss in nats per token, one number for each row of 128 tokens."""
    return torch.tensor([model(input_ids=r, labels=r).loss for r in rows.split(1)])


def percent(rise):
    """Rise of the perplexity ± two standard errors, from the rise of each loss."""
    return f"{rise.mean().expm1():+z.1%} ± {2 * rise.std() / len(rise) ** 0.5:.1%}"


def matrices(model):
    return [m.weight for m in model.model.layers.modules() if isinstance(m, nn.Linear)]


def quantise(model, levels, size):
    for weight in matrices(model):
        levels = levels.to(weight)  # its device and dtype
        codes, scales = encode(weight.data, levels, size or weight.numel())
        weight.data = (levels[codes] * scales).reshape(weight.shape)
    return model


# %% [markdown] slideshow={"slide_type": "subslide"}
# We compare NF4 with int4, and with NF4 that has a single scale for each matrix (size `None`). A fourth model is
# rounded to int4, then to NF4, as if its weights had been quantised before you loaded them. **Which matters more, the
# levels or the number of weights that share a scale?**

# %%
before = nats(base, held_out)
models = {
    "NF4": quantise(new_model(), nf4, 64),
    "int4": quantise(new_model(), int4, 64),
    "NF4, one scale": quantise(new_model(), nf4, None),
    "int4, then NF4": quantise(quantise(new_model(), int4, 64), nf4, 64),
}
exact = torch.cat([weight.data.flatten() for weight in matrices(base)])
rise, error = {}, {}
for name, model in models.items():
    moved = torch.cat([weight.data.flatten() for weight in matrices(model)]) - exact
    error[name] = moved.norm() / exact.norm()
    rise[name] = nats(model, held_out) - before
    print(f"{name:14} weights off by {error[name]:5.1%}, perplexity", end=" ")
    print(percent(rise[name]), "| against NF4", percent(rise[name] - rise["NF4"]))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The number that share a scale does. If the largest weight of a whole matrix sets the scale, most weights fall on the
# few levels near zero, and the perplexity rises by 4.7%. With groups of 64, 20 rows cannot show a cost (± is two
# standard errors). Nor do they separate int4 from NF4 (right column). The QLoRA paper does, on models of up to 13B: a
# mean perplexity of 34 with int4, and 27 with NF4.
#
# Rounding twice costs nearly as much as a single scale. The two roundings are nearly independent, so their squared
# errors add up: $\sqrt{10.0^2+9.2^2}=13.6$. So quantise the original weights if you can.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A QLoRA run
#
# `BitsAndBytesConfig` tells transformers to quantise the weights while it loads them. `prepare_model_for_kbit_training`
# freezes everything, converts what is not packed to fp32, and by default turns on [activation
# checkpointing](glossary.md#activation-checkpointing).

# %%
four_bits = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_use_double_quant=True,
    bnb_4bit_compute_dtype=dtype,  # of the unpacked weights
)
load_packed = partial(new_model, quantization_config=four_bits)
model = prepare_model_for_kbit_training(load_packed(), use_gradient_checkpointing=False)
config = LoraConfig(
    r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"
)
torch.manual_seed(0)
qlora = get_peft_model(model, config).train()  # eval mode blocks gradients on some CPUs
print(f"before training: LoRA has the perplexity {before.mean().exp():.1f},")
print("QLoRA:", percent(nats(qlora, held_out) - before))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Beside it we train LoRA on the original weights. **What does QLoRA cost in perplexity and time?**

# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)  # the same A for both
adapted = {"LoRA": get_peft_model(new_model(), config), "QLoRA": qlora}
after = {}
for name, model in adapted.items():
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    began = time.process_time()
    for batch in train_rows.split(4):
        model(input_ids=batch, labels=batch).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    ms = 1000 * (time.process_time() - began) / 8  # of CPU time, for each step
    after[name] = nats(model, held_out)
    with tl.track_memory(model) as track:  # counts the live tensors of one more pass
        model(input_ids=batch, labels=batch).loss.backward()
    print(name, f"{model.get_memory_footprint() / 1e6:.1f} MB, {ms:.0f} ms/step")
    print(f"peak {track.peak / 1e6:.0f} MB, perplexity {after[name].mean().exp():.1f}")
print("QLoRA against LoRA:", percent(after["QLoRA"] - after["LoRA"]))

# %% [markdown] slideshow={"slide_type": "subslide"}
# QLoRA starts 1.5% higher in perplexity, like your NF4 model, and ends about 1% higher, which may be chance. Its
# parameters take a third of LoRA's in fp32 (two thirds of LoRA's in 16 bits), which saves 11 MB, but only a ninth of a
# step's *peak*, because the activations of 512 tokens are larger than this small model.
#
# The price is time, because each layer is unpacked for each pass. [On an
# A100](https://magazine.sebastianraschka.com/p/practical-tips-for-finetuning-llms) QLoRA of a 7B model took 2.8 hours
# and 14 GB, and LoRA in bf16 1.9 hours and 21 GB. There the peak falls by a third, because 13.5 of the 21 GB are
# weights.
#
# **Is the cost in perplexity as small on SmolLM2-135M?** The search of lesson 5 has one run for each rate:

# %%
search = pd.read_csv(tl.DATA / "sweeps/smollm2-135m-instruct/rates.csv", comment="#")
search = search.query("strategy in ('lora', 'qlora') and learning_rate < 0.005")
search = search.pivot_table("validation_perplexity", "learning_rate", "strategy")
search.assign(percent_above=100 * (search.qlora / search.lora - 1)).round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# No, but this SmolLM2 had been rounded to 4 bits before, so the original may lose less. At 1e-6 next to nothing is
# learned, so 27% is what rounding it again costs. Training repairs most of it: 7.5% are left at 3.16e-3, best for both
# (1e-2 is worse).
#
# For your own model on a recent GPU, put its name in place of `tl.BUNDLED` (twice), change `device` and `dtype` at the
# top, and leave out `use_gradient_checkpointing=False`. Begin the search for the rate near 3e-3 with SmolLM2, and near
# 1e-4 with seven billion parameters (lesson 5). If the model is large, delete `base` and run `qlora` alone: all others
# hold full weights.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Merging the adapter
#
# Often you want the base model and its adapter merged into one model, $W + \frac{\alpha}{r} BA$, that
# needs no peft. **Into which weights should the adapter be merged: the rounded ones unpacked, the original ones, or the
# packed ones?**

# %%
warnings.filterwarnings("ignore", "Merge lora module")  # we measure what it warns of
folder = mkdtemp()
qlora.save_pretrained(folder)  # the adapter
sample = held_out[:4]
beside = qlora(input_ids=sample).logits.argmax(-1)  # base and adapter side by side
merged = {"unpacked": load_packed().dequantize(), "original": new_model()}
for name, model in merged.items():
    merged[name] = PeftModel.from_pretrained(model, folder).merge_and_unload()
merged["packed"] = qlora.merge_and_unload()
score, same = {}, {}
for name, model in merged.items():
    score[name] = nats(model, held_out) - after["QLoRA"]
    same[name] = (model(input_ids=sample).logits.argmax(-1) == beside).float().mean()
    print(f"{name}: perplexity {percent(score[name])}, same top token {same[name]:.1%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Into the unpacked ones. Only they give the model that you trained, because the adapter was trained beside them. With
# the original weights the most probable token differs at one position in seven, although the perplexity is about the
# same, so score such a model before you use it. With the packed weights, the sum is rounded once more. What this costs
# varies from run to run: here the perplexity rises by 4%.
#
# **Is anything lost when the unpacked merge is saved in 16 bits, and loaded without peft?**

# %% tags=["nbval-ignore-output"]
merged["unpacked"].to(torch.bfloat16).save_pretrained(f"{folder}/merged")
tokenizer.save_pretrained(f"{folder}/merged")
ready = load(f"{folder}/merged")
print(f"perplexity from the file: {nats(ready, held_out).mean().exp():.1f}")
start = tokenizer("An iterator", return_tensors="pt").to(device)
for model in (base, ready):
    written = model.generate(**start, max_new_tokens=16, repetition_penalty=1.5)
    print(tokenizer.decode(written[0], skip_special_tokens=True))

# %% [markdown] slideshow={"slide_type": "subslide"}
# No, the file is as good as the model that you trained. But each weight takes 16 bits again.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How much it saves, and when it is worth it
#
# What is not packed is in fp32. **Which shrinks more, a model of 0.5 or one of 7 billion parameters?**

# %%
for preset in ("qwen2-0.5b", "llama2-7b"):
    model = tl.meta_model(preset)  # shapes only, without weights
    count = sum(p.numel() for p in model.parameters())
    in_blocks = sum(weight.numel() for weight in matrices(model))
    gb, left = 2 * count / 1e9, (4.127 * in_blocks + 32 * (count - in_blocks)) / 8e9
    print(f"{preset}: {gb:.1f} GB in 16 bits, QLoRA {left:.1f} GB ({left / gb:.0%})")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The large one shrinks more, to a third. Embedding and head take 32 bits here, and they are only 4% of the 7B model,
# but more than a quarter of the small one. To keep them in 16 bits, do not call `prepare_model_for_kbit_training`:
# `get_peft_model` freezes the base. For checkpointing, call `model.gradient_checkpointing_enable()` and
# `model.enable_input_require_grads()`.
#
# The choice depends on what fills your memory:
#
# - **The frozen weights fill the memory**, as with 7B on a card of 16 GB: QLoRA makes training possible.
# - **The model fits in 16 bits**: use LoRA. Steps are faster, the weights are exact, and the adapter merges into them.
# - **Activations fill the memory**, as with long texts: four bits help little; see [lesson 9](09_memory.ipynb).
#
# LoRA can be trained beside weights in other formats, too (peft supports GPTQ, AWQ, HQQ and torchao), and with its
# option `init_lora_weights="loftq"` the adapter starts so that it makes up for a part of the rounding.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - NF4 stores a code of 4 bits for each weight, one of sixteen levels at quantiles of a normal distribution, and a
#   scale for 64 weights. With rounded scales, a weight takes 4.13 bits.
# - Small groups keep the error near 9%. Its cost depends on the model (at most about 3% here, 27% on this SmolLM2), so
#   measure yours.
# - Four bits pay where frozen weights fill the memory, and cost time. Merge the adapter into the unpacked weights.
#
# ## Further reading
#
# - Dettmers, Pagnoni, Holtzman and Zettlemoyer 2023, [QLoRA: Efficient Finetuning of Quantized
#   LLMs](https://arxiv.org/abs/2305.14314)
# - [Quantization in transformers](https://huggingface.co/docs/transformers/quantization/bitsandbytes)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex06_1", 1)`. After
# *Restart Kernel* run the next cell first.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** LoRA trains a 0.5B model on your card in 16 bits, with memory to spare. What would QLoRA change?
#
# - **a** Steps get faster: a quarter of the bytes has to be read.
# - **b** The same steps need less memory, at no price.
# - **c** Steps get slower and weights coarser, for memory that you do not need.
# - **d** The adapters get 4 bits too, and a quarter of the size on disk.

# %%
course.quiz("quiz06")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 6.1.** Write the forward pass of a QLoRA layer. `packed` has one dimension, dtype uint8 (an index needs
# int64), and two codes in each byte: the first, times 16, plus the second. `scales` has one number for each group of
# neighbouring weights, all of equal size. A code stands for its number in `levels`, times the scale of its group. The
# unpacked weights, row by row, are $\tilde{W}$ of shape (out, in). The adapter is `A` of shape (r, in) and `B` of shape
# (out, r), with the factor `alpha` / r. Return $h$ for inputs `x` of shape (tokens, in).

# %%
import torch


def qlora_layer(x, packed, scales, levels, A, B, alpha):
    """The outputs, shape (tokens, out), of a layer whose weights are packed."""
    # your code here


course.check("ex06_1", qlora_layer)

# %% [markdown]
# Previous: [5 · LoRA](05_lora.ipynb) ·
# Next: [7 · Freezing](07_freezing.ipynb)
