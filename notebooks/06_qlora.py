# %% [markdown] slideshow={"slide_type": "slide"}
# # 6 · QLoRA
#
# *Can frozen weights be stored in 4 bits each, and what does the model lose by it?*
#
# LoRA never changes the pretrained weights, but it still keeps them in memory, 13.5 GB in 16 bits for Llama 2 7B. QLoRA
# uses the fact that these weights are only read. It rounds each of them to one of sixteen values, stores in 4 bits
# which one it is, and trains LoRA's adapters beside them. This rounding is called
# [quantisation](glossary.md#quantisation). You write it yourself, run a whole model with it, and then train with the
# library.
#
# **You will be able to**
#
# - quantise a matrix to [NF4](glossary.md#nf4) by hand, and say why a weight takes 4.13 bits;
# - measure what 4 bits cost your model before you train it;
# - set up a QLoRA run with transformers and peft, say what it saves and how much slower it is, and merge its adapter.
#
# **You need** [lesson 5](05_lora.ipynb) (LoRA).
#
# About 36 minutes.

# %% slideshow={"slide_type": "subslide"}
import time
import warnings
from functools import partial
from statistics import NormalDist
from tempfile import mkdtemp

import bitsandbytes.functional as bnb
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
train_rows = tl.pack(rust.train, tokenizer, 128)[:64]  # those of lesson 5
held_out = tl.pack(rust.validation, tokenizer, 128)[:20]
load = partial(AutoModelForCausalLM.from_pretrained, dtype=torch.float32)
new_model = partial(load, tl.BUNDLED)
base = new_model()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One layer of QLoRA
#
# Here is the query projection of the first block, drawn from its real shapes. The layer stores a code of 4 bits for
# each weight, and a few scales that say how large the coded weights are. For each forward pass it unpacks both into a
# matrix $\tilde{W}$ of ordinary numbers, uses it for one multiplication, and drops it again. The adapter is LoRA's:
#
# $$h = \tilde{W} x + \frac{\alpha}{r} B A x, \qquad \tilde{W} = \mathrm{unpack}(\mathrm{codes}, \mathrm{scales})$$

# %%
four_bit_layer(*base.model.layers[0].self_attn.q_proj.weight.shape)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Backpropagation needs $\tilde{W}$ once more, to hand the gradient on to the layer below, so each layer is unpacked
# twice in a step (three times with [activation checkpointing](glossary.md#activation-checkpointing)). The codes get no
# gradient: they are frozen like $W$ in LoRA, and a small step could not move a whole number anyway. Embedding and head
# (here the same matrix) are not packed. In the head, rounding errors would go straight into the predictions.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Sixteen levels
#
# Four bits tell sixteen codes apart, so a weight can become one of sixteen values. NF4 ("4-bit NormalFloat") fixes
# sixteen *levels* between -1 and 1. It cuts each matrix into groups of 64 neighbouring weights, and multiplies the
# levels of each group by the group's largest absolute weight, its *scale*, so that they reach as far as its weights do:
#
# $$s_g = \max_{i \in g} |w_i|, \qquad
# c_i = \arg\min_c \left| \frac{w_i}{s_g} - \mathrm{level}[c] \right|, \qquad
# w_i \approx s_g \cdot \mathrm{level}[c_i]$$
#
# Here $w_i$ is a weight of the group $g$, and $c_i$ is the code that is stored, 0 to 15. Groups (blocks in the library)
# are small so that one unusually large weight spoils the scale of only 63 others.
#
# **Which sixteen levels?** Trained weights are roughly normally distributed, with most of them near zero. NF4 therefore
# takes *quantiles* of the normal distribution, which are the numbers that cut it into parts of equal probability. They
# lie close together near zero, where most weights are, and far apart at the ends. Seven levels are negative, eight
# positive, and one is zero, so that a weight of zero stays zero.
#
# The quantile of probability 1 is infinite, so NF4 stops half a step before it: 1/32 for 16 levels, 1/30 for 15, and
# `end` takes the mean of both. `[:-1]` drops probability 0.5, because its quantile is the zero that both sides share.

# %%
end = 1 - (1 / 32 + 1 / 30) / 2
normal = NormalDist()
positive = [normal.inv_cdf(float(p)) for p in torch.linspace(end, 0.5, 9)[:-1]]
negative = [-normal.inv_cdf(float(p)) for p in torch.linspace(end, 0.5, 8)[:-1]]
nf4 = torch.tensor(negative + [0.0] + positive).sort().values
nf4 = nf4 / nf4.max()
print([round(float(level), 2) for level in nf4])

# %% [markdown] slideshow={"slide_type": "subslide"}
# Now the rounding. `bucketize` says between which two borders a number lies, and with the borders half-way
# between neighbouring levels the number it returns is the code of the nearest level.


# %%
def encode(numbers, levels, size):
    """Codes, shape (groups, numbers in a group), and scales, shape (groups, 1)."""
    groups = numbers.reshape(-1, size)
    scales = groups.abs().amax(1, keepdim=True)
    borders = (levels[1:] + levels[:-1]) / 2
    return torch.bucketize(groups / scales, borders), scales


weight = base.model.layers[0].self_attn.q_proj.weight.data
codes, scales = encode(weight, nf4, 64)
first = {"weight": weight.flatten()[:5], "code": codes[0, :5]}
first["read back"] = nf4[codes[0, :5]] * scales[0]
pd.DataFrame({name: numbers.numpy() for name, numbers in first.items()}).round(3)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **What does a scale of 32 bits for 64 weights add to each weight?** Half a bit, so a weight would take 4.5 bits. QLoRA
# reduces this by [double quantisation](glossary.md#double-quantisation): it quantises the scales as well. All of them
# are positive and similar, so their mean is subtracted first. The rest is cut into groups of 256 scales, and each scale
# is rounded to one of 256 levels, whose code takes 8 bits. Each of these groups needs one scale of 32 bits in turn:
#
# $$\text{bits per weight} = 4 + \frac{8}{64} + \frac{32}{64 \cdot 256} \approx 4.127$$
#
# The next cell lets bitsandbytes, the library behind QLoRA, quantise the same matrix, and compares it with yours.
# `coarse` is the double quantisation: it encodes the scales less their mean with your `encode`, reads them back, and
# adds the mean again. Only the 256 levels are taken from the library. In memory two codes of 4 bits share a byte: the
# first one, times 16, plus the second.


# %% tags=["check-equal"]
packed, state = bnb.quantize_4bit(
    weight, blocksize=64, compress_statistics=True, quant_type="nf4"
)
levels_of_8_bits = state.state2.code  # fixed, like those of NF4


def coarse(scales):
    mean = scales.mean()
    rest = (scales - mean).flatten()
    rest = nn.functional.pad(rest, (0, -len(rest) % 256))  # zeros fill the last group
    codes, largest = encode(rest, levels_of_8_bits, 256)
    read = (levels_of_8_bits[codes] * largest).flatten()
    return mean + read[: len(scales), None]


by_hand = (nf4[codes] * coarse(scales)).reshape(weight.shape)
library = bnb.dequantize_4bit(packed, state)
bytes_by_hand = 16 * codes.flatten()[0::2] + codes.flatten()[1::2]
equal = (bytes_by_hand == packed.flatten()).float().mean()
print(f"{weight.numel():,} weights in {packed.numel():,} bytes, {equal:.1%} as by hand")
apart = (by_hand - library).abs().max()
course.claim("Read back, our weights and bitsandbytes' agree to 1e-5", apart < 1e-5)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What do four bits cost the model?
#
# Now your functions quantise every linear layer in the model's blocks. For comparison, a second model uses the levels
# of *int4*, an ordinary integer of 4 bits: evenly spaced from -8 to 7, divided by 8. A third uses NF4 with a single
# scale for each matrix. A fourth is rounded twice, to int4 and then to NF4. This happens in practice, because many
# files on the web hold weights that were rounded before, in another format. (The bundled model was not.)
#
# **Which matters more, the levels or the number of weights that share a scale?**


# %%
@torch.no_grad()
def nats(model, rows):
    """Loss in nats per token, one number for each row of 128 tokens."""
    return torch.tensor([model(input_ids=r, labels=r).loss for r in rows.split(1)])


def matrices(model):
    return [m.weight for m in model.model.layers.modules() if isinstance(m, nn.Linear)]


def quantise(model, levels, size):
    for weight in matrices(model):
        # Without a size, all weights of the matrix are one group.
        codes, scales = encode(weight.data, levels, size or weight.numel())
        weight.data = (levels[codes] * scales).reshape(weight.shape)
    return model


int4 = torch.arange(-8, 8) / 8
before = nats(base, held_out)
ours = quantise(new_model(), nf4, 64)
models = {
    "NF4, a scale for 64 weights": ours,
    "int4, a scale for 64 weights": quantise(new_model(), int4, 64),
    "NF4, a scale for a matrix": quantise(new_model(), nf4, None),
    "int4 and then NF4, 64 weights": quantise(quantise(new_model(), int4, 64), nf4, 64),
}
exact = torch.cat([weight.data.flatten() for weight in matrices(base)])
rise, error = {}, {}
for name, model in models.items():
    moved = torch.cat([weight.data.flatten() for weight in matrices(model)]) - exact
    error[name] = moved.norm() / exact.norm()
    rise[name] = nats(model, held_out) - before
    spread = 2 * rise[name].std() / len(held_out) ** 0.5
    print(f"{name:30} weights off by {error[name]:.1%},", end=" ")
    print(f"perplexity up by {rise[name].mean().expm1():.1%} ± {spread:.1%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The size of the groups matters most. The scale of a whole matrix is set by its one largest weight, so most weights
# fall on the few levels near zero. With groups of 64 both kinds of levels cost little, and 20 rows (± is two standard
# errors over them) cannot tell them apart. On models of 125 million to 13 billion parameters the QLoRA paper finds a
# mean perplexity of 27 with NF4 and of 34 with int4.
#
# Rounding twice costs nearly as much. The two roundings are independent, so their squared errors add up: the square
# root of 10%² + 10%² is 14%. So quantise the original weights if you can, and distrust a cost of QLoRA that was
# measured on a file which had been rounded before. Yet one rounding alone changes the weights by 9%, bf16 by 0.2%.
# **How can it cost so little?**

# %%
sample = held_out[:8]
with torch.no_grad():
    logits = [m(input_ids=sample).logits[:, :-1] for m in (base, ours)]
same = (logits[0].argmax(-1) == logits[1].argmax(-1)).float().mean()
right = sample[:, 1:, None]  # the token that really comes next
chances = [given.log_softmax(-1).gather(-1, right) for given in logits]
moves = chances[1] - chances[0]
print(f"log-probability of the right token: moves by {moves.abs().mean():.2f}")
print(f"mean of all moves, up and down: {moves.mean():+.2f}")
print(f"positions where the most probable token is the same: {same:.0%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The errors have no common direction. They make the right token less probable at about half of the positions and more
# probable at the others, so nine tenths of the moves cancel in the loss, which is their average. Still, at one position
# in eight the top token changes, so generated text would differ.
#
# ## A QLoRA run
#
# At work QLoRA takes four calls. `BitsAndBytesConfig` tells transformers to quantise the weights while it loads them.
# `prepare_model_for_kbit_training` freezes everything and converts what is not packed to fp32 (by default it also turns
# on activation checkpointing). `LoraConfig` describes the adapters, and `get_peft_model` adds them.

# %%
four_bits = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_use_double_quant=True,
    bnb_4bit_compute_dtype=torch.float32,  # on a recent GPU bfloat16, as in load
)
model = new_model(quantization_config=four_bits)
model.train()  # it came in eval mode, where bitsandbytes on some CPUs blocks gradients
theirs = nats(model, held_out)
print(f"perplexity in 32 bits: {before.mean().exp():.0f}", end=", ")
print(f"packed in 4: {(theirs - before).mean().expm1():+.1%}")
model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)

# %% [markdown] slideshow={"slide_type": "subslide"}
# This is what your own quantisation costs, although yours kept its scales in 32 bits, so double quantisation is free.
# For comparison we also train LoRA beside the original weights, and beside yours, which are rounded but still take 32
# bits each. **What does QLoRA cost in perplexity, and what in time?**

# %% tags=["nbval-ignore-output"]
config = LoraConfig(
    r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"
)
starts = {"LoRA": new_model(), "LoRA, your rounding": ours, "QLoRA": model}
after, cpu = {}, {}
for name, start in starts.items():
    torch.manual_seed(0)  # the same A for all three
    model = get_peft_model(start, config)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2, weight_decay=0.0)
    ticks = []
    for batch in train_rows.split(4):
        began = time.process_time()
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        ticks.append(1000 * (time.process_time() - began))  # CPU milliseconds
    after[name], cpu[name] = nats(model, held_out), min(ticks)
    print(f"{name:19} {model.get_memory_footprint() / 1e6:4.1f} MB,", end=" ")
    print(f"{cpu[name]:.0f} ms CPU a step, perplexity {after[name].mean().exp():.1f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# QLoRA ends where LoRA beside your weights ends, because both compute with almost the same numbers; only the storage
# differs. It keeps the model in a third of the memory and pays with time, because every layer is unpacked anew for each
# pass. [On an A100](https://magazine.sebastianraschka.com/p/practical-tips-for-finetuning-llms) QLoRA of a 7B model
# took 2.8 hours and 14 GB, and LoRA in bf16 1.9 hours and 21 GB.
#
# One run of each cannot say whether four bits make it end higher than LoRA. [Lesson 8](08_peft_family.ipynb) compares
# them over three seeds and 40 documents: on the bundled model they cannot be told apart, while on SmolLM2, whose file
# had been rounded to 4 bits before, QLoRA ends about 7% higher.
#
# ## Merging the adapter
#
# At the end you save the adapter, 0.9 MB here, and often you want one merged model, $W + \frac{\alpha}{r} BA$, which
# needs no peft to run. The adapter was trained beside the *rounded* weights. **Into which weights should it be merged:
# the rounded ones, unpacked to ordinary numbers, the original ones, or the packed ones as they lie in memory?**

# %%
warnings.filterwarnings("ignore", "Merge lora module")  # we measure what it warns of
folder = mkdtemp()
model.save_pretrained(f"{folder}/adapter")
beside = model(input_ids=sample).logits.argmax(-1)  # base and adapter side by side
unpacked = new_model(quantization_config=four_bits).dequantize()
merged = {
    name: PeftModel.from_pretrained(whole, f"{folder}/adapter").merge_and_unload()
    for name, whole in (("unpacked", unpacked), ("original", new_model()))
}
merged["packed"] = model.merge_and_unload()
score, alike = {}, {}
for name, whole in merged.items():
    score[name] = nats(whole, held_out).mean().exp()
    alike[name] = (whole(input_ids=sample).logits.argmax(-1) == beside).float().mean()
    print(f"{name}: perplexity {score[name]:.1f}, same top token {alike[name]:.1%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Only the unpacked weights give the model that you trained. With the original ones the top token differs at one
# position in nine, although the perplexity is about the same here, so score such a model again before you use it.
# Merged into the packed weights, the sum is rounded to 4 bits once more, small changes get lost, and the perplexity
# rises. **Is anything lost when the first model is saved in 16 bits?** We load its file as anybody would, without peft.

# %%
merged["unpacked"].to(torch.bfloat16).save_pretrained(f"{folder}/merged")
ready = load(f"{folder}/merged")
print(f"perplexity from the file: {nats(ready, held_out).mean().exp():.1f}")

# %% [markdown] slideshow={"slide_type": "slide"}
# The file is as good as the model that you trained, but its 8.1 MB are more than packed base and adapter together. If
# memory is short where the model is used, keep these two, and let peft load the adapter beside the packed weights.
#
# ## How much it saves, and when it is worth it
#
# Only the linear layers in the blocks are packed. The rest stays in 16 bits, or in fp32 after
# `prepare_model_for_kbit_training`. **Which shrinks more, a model of 0.5 billion parameters or one of 7 billion?**

# %%
for preset in ("qwen2-0.5b", "llama2-7b"):
    whole = tl.meta_model(preset)  # shapes only, without weights
    count = sum(p.numel() for p in whole.parameters())
    in_blocks = sum(weight.numel() for weight in matrices(whole))
    print(f"{preset}: {2 * count / 1e9:.1f} GB in 16 bits; QLoRA with the rest in")
    for bits in (16, 32):
        left = 4.127 * in_blocks + bits * (count - in_blocks)
        print(f"  {bits} bits: {left / 8e9:.2f} GB, {left / count / 16:.0%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# If everything were packed, 4.127/16 = 26% would be left. The 7B model comes close, because embedding and head are only
# 4% of it. In the small model the embedding for its large vocabulary is more than a quarter. With this part in fp32
# half of the saving is gone; then skip `prepare_model_for_kbit_training` and freeze the parameters by hand.
#
# The paper's third idea is the *paged optimizer*. When a long batch makes memory peak, the driver moves AdamW's
# averages to the computer's main memory until the peak is over, so the step gets slower but does not fail. The
# `Trainer` has it as `optim="paged_adamw_32bit"`; it needs an NVIDIA GPU.
#
# So the choice depends on what fills your memory:
#
# - **The frozen weights fill the memory**, as with 7B on a card of 8 GB: QLoRA makes training possible.
# - **The model fits in 16 bits**: use LoRA. Steps are faster, the weights are exact, and the adapter merges into them.
# - **Activations fill the memory**, as with long texts: four bits help little; see [lesson 9](09_memory.ipynb).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - NF4 stores a scale for 64 weights and a code of 4 bits for each: one of sixteen levels at quantiles of a normal
#   distribution. With rounded scales, a weight takes 4.13 bits.
# - Small groups keep the error low. It has no common direction, so most of it cancels in the loss.
# - Four bits pay where frozen weights fill the memory, and they cost time in every step. Merge the adapter into the
#   unpacked weights, or serve it beside the packed ones.
#
# ## Further reading
#
# - Dettmers, Pagnoni, Holtzman and Zettlemoyer 2023, [QLoRA: Efficient Finetuning of Quantized
#   LLMs](https://arxiv.org/abs/2305.14314): NF4, double quantisation, paged optimizers, and results on large models
# - [Quantization in transformers](https://huggingface.co/docs/transformers/quantization/bitsandbytes)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex06_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

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
# neighbouring weights, and the groups are of equal size. Every code stands for its number in `levels`, times the scale
# of its group. The unpacked weights, row by row, are $\tilde{W}$ of shape (out, in). The adapter is `A` of shape (r,
# in) and `B` of shape (out, r), with the factor `alpha` / r. Return $h$ for inputs `x` of shape (tokens, in).

# %%
import torch


def qlora_layer(x, packed, scales, levels, A, B, alpha):
    """The outputs, shape (tokens, out), of a layer whose weights are packed."""
    # your code here


course.check("ex06_1", qlora_layer)

# %% [markdown]
# Previous: [5 · LoRA](05_lora.ipynb) ·
# Next: [7 · Freezing](07_freezing.ipynb)
