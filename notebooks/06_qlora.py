# %% [markdown] slideshow={"slide_type": "slide"}
# # 6 · QLoRA
#
# *Can frozen weights be stored in 4 bits each, and what does the model lose by it?*
#
# LoRA never changes the pretrained weights, but it still keeps them in memory: Llama 2 with 7 billion parameters
# takes 13.5 GB in 16 bits before any training begins. QLoRA uses the fact that these weights are only read. It rounds
# each of them to one of sixteen values, stores in 4 bits which one it is, and trains LoRA's adapters beside them. This
# rounding is called [quantisation](glossary.md#quantisation). In this lesson you write it yourself, run a whole model
# with it, and then train with the library.
#
# **You will be able to**
#
# - quantise a matrix to [NF4](glossary.md#nf4) by hand, and say why a weight takes 4.13 bits;
# - measure what 4 bits cost your model before you train it;
# - set up a QLoRA run with transformers and peft, merge its adapter, and decide whether it pays for your model.
#
# **You need** [lesson 5](05_lora.ipynb) (LoRA).
#
# About 34 minutes.

# %% slideshow={"slide_type": "subslide"}
import warnings
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


def new_model(**options):
    return AutoModelForCausalLM.from_pretrained(
        tl.BUNDLED, dtype=torch.float32, **options
    )


base = new_model()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One layer of QLoRA
#
# Here is the query projection of the first block, drawn from its real shapes. The layer stores a code of 4 bits for
# each weight, and a few scales that say how large the coded weights are. For each forward pass it unpacks both into a
# matrix $\tilde{W}$ of ordinary numbers, uses it for one multiplication, and drops it again. The adapter is LoRA's,
# unchanged:
#
# $$h = \tilde{W} x + \frac{\alpha}{r} B A x, \qquad \tilde{W} = \mathrm{unpack}(\mathrm{codes}, \mathrm{scales})$$

# %%
four_bit_layer(*base.model.layers[0].self_attn.q_proj.weight.shape)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Backpropagation needs $\tilde{W}$ once more, to hand the gradient on to the layer below, so each layer is unpacked
# twice in a step. The codes get no gradient: they are frozen like $W$ in LoRA, and a small step could not move a whole
# number anyway. Embedding and head (in this model the same matrix) are not packed. The embedding is looked up and not
# multiplied, and in the head rounding errors would go straight into the predictions.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Sixteen levels
#
# Four bits tell sixteen codes apart, so a weight can become one of sixteen values. NF4 ("4-bit NormalFloat") fixes
# sixteen *levels* between -1 and 1 once and for all. It cuts each matrix into groups of 64 neighbouring weights, and
# multiplies the levels of each group by the group's largest absolute weight, its *scale*, so that they reach as far as
# its weights do:
#
# $$s_g = \max_{i \in g} |w_i|, \qquad
# c_i = \arg\min_c \left| \frac{w_i}{s_g} - \mathrm{level}[c] \right|, \qquad
# w_i \approx s_g \cdot \mathrm{level}[c_i]$$
#
# Here $w_i$ is a weight of the group $g$, and $c_i$ is the code that is stored, 0 to 15. (The library calls such a
# group a block, and its size `blocksize`.) Groups are small so that one unusually large weight spoils the scale of only
# 63 others.
#
# **Which sixteen levels?** Trained weights are roughly normally distributed, with most of them near zero. NF4 therefore
# takes *quantiles* of the normal distribution, which are the numbers that cut it into parts of equal probability. They
# lie close together near zero, where most weights are, and far apart at the ends. Seven levels are
# negative, eight positive, and one is zero, so that a weight of zero stays zero.
#
# The outermost quantile would be infinite, so `end` stays half a step away from probability 1 (the mean of half a step
# for 16 and for 15 levels). `[:-1]` drops the last point of each side, which is zero.

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
# scale for each matrix.
#
# A fourth model is rounded twice, to int4 and then to NF4. This happens in practice, because many files on the web hold
# weights that were already rounded in another format, and QLoRA rounds them again. (The bundled model is stored in 16
# bits, so nobody has rounded it to 4 bits before.)
#
# **Which matters more, the levels or the number of weights that share a scale?**


# %%
@torch.no_grad()
def nats(model, rows):
    """Loss in nats per token, one number for each row of 128 tokens."""
    # No model.eval() here: it makes bitsandbytes repack its weights on some processors.
    return torch.tensor([model(input_ids=r, labels=r).loss for r in rows.split(1)])


def quantise(model, levels, size):
    for part in model.model.layers.modules():
        if isinstance(part, nn.Linear):
            weight = part.weight.data
            # Without a size, all weights of the matrix are one group.
            codes, scales = encode(weight, levels, size or weight.numel())
            part.weight.data = (levels[codes] * scales).reshape(weight.shape)
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
cost = {name: nats(model, held_out) - before for name, model in models.items()}
for name, apart in cost.items():
    print(f"{name:30} perplexity up by {apart.mean().expm1():.1%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The size of the groups matters most. The scale of a whole matrix is set by its one largest weight, so most weights
# fall on the few levels near zero. With groups of 64 both kinds of levels cost little, and on this small model they are
# too close to say which is better. (The QLoRA paper compares them on models of up to 65 billion parameters, and there
# NF4 is better.)
#
# In the model that is rounded twice, the second rounding costs more than the first. So quantise the original weights if
# you can, and be careful with a published cost of QLoRA that was measured on a file which had been rounded before.
#
# Yet the quantised weights are far from the original ones. **How can errors of this size cost so little?**

# %%
error = (by_hand - weight).norm() / weight.norm()
rows = held_out[:8]
with torch.no_grad():
    exact, rounded = (model(input_ids=rows).logits[:, :-1] for model in (base, ours))
same = (exact.argmax(-1) == rounded.argmax(-1)).float().mean()
right = rows[:, 1:, None]  # the token that really comes next
chances = [logits.log_softmax(-1).gather(-1, right) for logits in (exact, rounded)]
less = (chances[1] < chances[0]).float().mean()
print(f"error of the query matrix: {error:.0%} of its size")
print(f"positions where the most probable token is the same: {same:.0%}")
print(f"positions where the right token is less probable: {less:.0%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The errors have no common direction. They make the right token less probable at about half of the positions and more
# probable at the others, so most of this cancels in the loss, which is an average. Still, at one position in eight the
# top token changes, so generated text would differ.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A QLoRA run
#
# At work QLoRA is three objects. `BitsAndBytesConfig` tells transformers to quantise the weights while it loads them.
# `prepare_model_for_kbit_training` freezes everything and keeps what is not packed in fp32 (by default it also turns on
# activation checkpointing). `LoraConfig` describes the adapters.

# %%
four_bits = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_use_double_quant=True,
    bnb_4bit_compute_dtype=torch.float32,  # on a recent GPU: torch.bfloat16
)
model = new_model(quantization_config=four_bits)
theirs = nats(model, held_out)
model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
config = LoraConfig(
    r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"
)
model = get_peft_model(model, config)
model.print_trainable_parameters()
print(f"perplexity with 4 bits: {(theirs - before).mean().expm1():+.1%}")

# %%
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-2, weight_decay=0.0)
for batch in train_rows.split(4):
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad()
after = nats(model, held_out)
print(f"perplexity: {before.mean().exp():.0f} before, {after.mean().exp():.0f} after")

# %%
fell = 1 - (after - before).mean().exp()
course.claim(
    "With 4-bit weights the perplexity on Rust falls by over a third", fell > 1 / 3
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The four-bit model learns, and it starts from the same loss as the one that you quantised by hand. On the same 64
# rows, with the same rate, LoRA ended at 84 in lesson 5. One run of each cannot say whether the four bits make this
# difference. [Lesson 8](08_peft_family.ipynb) compares the two over three seeds and 40 documents: on the bundled model
# QLoRA and LoRA cannot be told apart, while on SmolLM2, whose file had been rounded to 4 bits before, QLoRA ends about
# 7% higher.
#
# ## Merging the adapter
#
# At the end you save the adapter, 0.9 MB here, and often you want one merged model, $W + \frac{\alpha}{r} BA$, which
# needs no peft to run. The adapter was trained beside the *rounded* weights. **Into which weights should it be merged:
# the rounded ones, unpacked to ordinary numbers, the original ones, or the packed ones as they lie in memory?**

# %% tags=["nbval-ignore-output"]
warnings.simplefilter("ignore")  # peft warns of the rounding that we measure here
folder = mkdtemp()
model.save_pretrained(folder)  # the adapter alone
rows = held_out[:2]
beside = model(input_ids=rows).logits.detach()  # base and adapter side by side
unpacked = new_model(quantization_config=four_bits).dequantize()
merged = {
    "unpacked": PeftModel.from_pretrained(unpacked, folder).merge_and_unload(),
    "original": PeftModel.from_pretrained(new_model(), folder).merge_and_unload(),
    "packed": model.merge_and_unload(),
}
moved, score = {}, {}
for name, whole in merged.items():
    moved[name] = (whole(input_ids=rows).logits - beside).abs().max().item()
    score[name] = nats(whole, held_out).mean().exp().item()
    print(f"{name}: logits move by {moved[name]:.5f}, perplexity {score[name]:.1f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Only the unpacked weights give the model that you trained. With the original weights single logits move by more than
# 2, although the perplexity is about the same here, so score such a model again before you use it. Merged into the
# packed weights, the sum is rounded to 4 bits once more, small changes get lost, and the perplexity rises.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How much it saves, and when it is worth it
#
# Only the linear layers in the model's blocks are packed. The rest stays in 16 bits, or in fp32 if you call
# `prepare_model_for_kbit_training` as above. **Which shrinks more, a model of 0.5 billion parameters or one of 7
# billion?**

# %%
rows = {}
for preset in ("qwen2-0.5b", "llama2-7b"):
    whole = tl.meta_model(preset)  # shapes only, without weights
    count = sum(p.numel() for p in whole.parameters())
    linear = [m for m in whole.model.layers.modules() if isinstance(m, nn.Linear)]
    in_blocks = sum(part.weight.numel() for part in linear)
    rows[preset] = {"16 bits, GB": 2 * count / 1e9}
    for bits, rest in ((16, "16 bits"), (32, "fp32")):
        packed_bits = 4.127 * in_blocks + bits * (count - in_blocks)
        rows[preset][f"QLoRA, rest in {rest}, GB"] = packed_bits / 8e9
        rows[preset][f"left with {rest}, %"] = 100 * packed_bits / (16 * count)
sizes = pd.DataFrame(rows).T
sizes.round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# If everything were packed, 4.127/16 = 26% would be left. The small model keeps nearly half, because the embedding for
# its large vocabulary is more than a quarter of its parameters and is not packed. With this part in fp32, as in our
# run, the small model keeps 74%, and the saving nearly disappears. If that matters, skip the function and freeze the
# parameters by hand. In the 7B model embedding and head together are 4%.
#
# The paper has a third idea beside NF4 and double quantisation, the *paged optimizer*. A long batch makes memory peak
# for a moment. A paged optimizer lets the driver move AdamW's averages to the computer's main memory until the peak is
# over, so the step gets slower but does not fail. With the `Trainer` you ask for it by `optim="paged_adamw_32bit"`; it
# needs an NVIDIA GPU.
#
# QLoRA pays for the memory that it saves with time, because every layer is unpacked anew for each pass. So the choice
# depends on what fills your memory:
#
# - **The frozen weights fill the memory**, as with 7B on a card of 8 GB: QLoRA makes training possible.
# - **The model fits in 16 bits**: use LoRA. Steps are faster, the weights are exact, and the adapter merges into them.
# - **Activations or logits fill the memory**, as with long texts: four bits help little, and [lesson
#   9](09_memory.ipynb) shows what does.
#
# All numbers here come from small models, and larger ones usually lose less. Measure yours as above, before you train.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - NF4 stores a scale for 64 weights and a code of 4 bits for each: one of sixteen levels at quantiles of a normal
#   distribution. With rounded scales, a weight takes 4.13 bits.
# - Small groups keep the error low. It has no common direction, so most of it cancels in the loss.
# - Four bits pay where frozen weights fill the memory, and they cost time in every step. Merge the adapter into the
#   unpacked weights.
#
# ## Further reading
#
# - Dettmers, Pagnoni, Holtzman and Zettlemoyer 2023, [QLoRA: Efficient Finetuning of Quantized
#   LLMs](https://arxiv.org/abs/2305.14314): NF4, double quantisation, paged optimizers, and results on large models
# - Dettmers and Zettlemoyer 2022, [The case for 4-bit precision](https://arxiv.org/abs/2212.09720)
# - [Quantization in transformers](https://huggingface.co/docs/transformers/quantization/bitsandbytes): all settings of
#   `BitsAndBytesConfig`

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
# **Exercise 6.1.** Write the forward pass of a QLoRA layer, from the bytes in memory to its output. `packed` has one
# dimension and two codes in each byte: the first, times 16, plus the second. `scales` has one number for each group of
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
