# %% [markdown] slideshow={"slide_type": "slide"}
# # 6 · QLoRA
#
# *Can frozen weights be stored in 4 bits each, and what does the model lose by it?*
#
# LoRA never changes the pretrained weights, but it still has to keep them in memory: a model of 7 billion weights
# takes 14 GB in 16 bits before any training begins. QLoRA uses the fact that these weights are only read. It rounds
# each of them to one of sixteen values, stores the index of that value (0 to 15) in 4 bits, and trains LoRA's
# adapters in 32 bits beside them. Rounding to a few values is called [quantisation](glossary.md#quantisation). In
# this lesson you take it apart, redo it in plain torch, and measure what it costs.
#
# **You will be able to**
#
# - quantise a matrix to [NF4](glossary.md#nf4) by hand, and say why it takes 4.13 bits a weight;
# - measure the error that 4 bits make, in the weights, in the output of a layer and in the model's perplexity;
# - decide from the memory of a whole training step whether QLoRA pays for a given model and card.
#
# **You need** [lesson 5](05_lora.ipynb) (LoRA).
#
# About 57 minutes.

# %% slideshow={"slide_type": "subslide"}
from statistics import NormalDist

import pandas as pd
import torch

import course
import tlkit as tl
from course.lesson06 import pictures

profile = tl.setup()
rust = tl.load_corpus().limited(profile.train_passages, profile.test_passages)
base = tl.load_model("tiny")
blocks = tl.pack(rust.train, base.tokenizer, 128)
before = tl.perplexity(base.model, base.tokenizer, rust.validation)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One layer of QLoRA
#
# `apply_strategy(…, "qlora")` replaces every linear layer in the blocks by one that stores 4 bits a weight. Here is the
# query projection of the first block, drawn from its real shapes.

# %%
qlora = tl.apply_strategy(tl.load_model("tiny").model, "qlora")
layer = qlora.model.get_base_model().model.layers[0].self_attn.q_proj
pictures.four_bit_layer(layer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The layer stores codes of 4 bits, and a few scales that say how large the coded weights are. When the layer is
# computed, it unpacks the codes into a matrix W̃ of ordinary numbers, uses W̃ for one multiplication, and drops it
# again. The [adapter](glossary.md#adapter) is LoRA's, unchanged:
#
# $$h = \tilde{W} x + \frac{\alpha}{r} B A x, \qquad \tilde{W} = \mathrm{unpack}(\mathrm{codes}, \mathrm{scales})$$
#
# Here $x$ holds the 192 inputs of the layer for one token, and $h$ its 192 outputs. $\tilde{W}$ has the shape
# (outputs, inputs), $A$ has (r, inputs), $B$ has (outputs, r), and the fixed factor $\alpha/r$ is 16/8 = 2.
#
# Backpropagation needs $\tilde{W}$ as well, because the gradient that it hands on to the layer below is
#
# $$\frac{\partial\,\text{loss}}{\partial x} = \left(\tilde{W} + \frac{\alpha}{r} B A\right)^{\!\top}
# \frac{\partial\,\text{loss}}{\partial h}$$
#
# So each layer is unpacked twice in a step, and a third time with activation checkpointing. The codes themselves get
# no gradient. They are frozen, like W in LoRA, and a code is a whole number, which a small step cannot move.

# %%
tl.network_strip(qlora)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The strip is the same as LoRA's in lesson 5: the same adapters are trained, and backpropagation goes equally far
# down. The picture cannot show the one difference: the blocks' weights now take 4 bits. The embedding, which is also
# the head of this model ([tied head](glossary.md#tied-head)), stays as it was, because rounding errors in the head
# would go straight into the predictions.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Rounding a block of 64 weights
#
# Four bits can tell sixteen codes apart, so a weight can become one of sixteen values. NF4 ("4-bit NormalFloat")
# fixes sixteen *levels* between -1 and 1 once and for all. It then cuts each matrix into blocks of 64 neighbouring
# weights, and stretches the levels for each block by its largest absolute value, the *scale* of the block:
#
# $$w_i \approx s_b \cdot \mathrm{level}[c_i], \qquad s_b = \max_{i \in b} |w_i|, \qquad
# c_i = \arg\min_c \left| \frac{w_i}{s_b} - \mathrm{level}[c] \right|$$
#
# Here $w_i$ is a weight of the block $b$, $s_b$ is one number for the block, and $c_i$ is a whole number from 0 to
# 15, the code that is stored. (Such a block has nothing to do with the blocks of the network.) Blocks are small so
# that one unusually large weight spoils the scale for only 63 others, and not for a whole matrix.
#
# Where do the levels come from? Trained weights look roughly normally distributed. NF4 therefore takes *quantiles* of
# the normal distribution, the values below which given shares of it lie: many levels near zero, where most weights
# are, and few at the ends. Zero itself is a level, so a weight of zero stays zero. Of the other fifteen, seven are
# negative and eight positive.


# %%
def normal_quantiles(count, end=1 - (1 / 32 + 1 / 30) / 2):
    """Quantiles of the normal distribution for equal steps of probability."""
    steps = torch.linspace(end, 0.5, count + 1)[:-1]
    return torch.tensor([NormalDist().inv_cdf(float(share)) for share in steps])


positive, negative = normal_quantiles(8), -normal_quantiles(7)
levels = torch.cat([negative, torch.zeros(1), positive]).sort().values
levels = levels / levels.max()
print([round(float(level), 3) for level in levels])
packed = layer.base_layer.weight  # as bitsandbytes stores it

# %% [markdown] slideshow={"slide_type": "subslide"}
# Without `end` the outermost quantiles would be infinite, so about 3% of the probability is left out on each side (as
# in bitsandbytes). The picture shows the first sixteen weights of one block, each of which moves to the nearest line.

# %%
name = "model.layers.0.self_attn.q_proj.weight"
original = base.model.get_parameter(name).detach()
pictures.rounding_chart(original.flatten()[:64], levels)

# %% [markdown] slideshow={"slide_type": "subslide"}
# In plain torch the rounding takes a few lines. Two codes then share one byte. The next cell compares these bytes
# with those that bitsandbytes keeps for this layer.


# %% tags=["check-tl"]
def encode(weight, levels, block):
    """Codes, shape (blocks, weights of a block), and scales, shape (blocks, 1)."""
    rows = weight.reshape(-1, block)
    scales = rows.abs().amax(1, keepdim=True)
    borders = (levels[1:] + levels[:-1]) / 2  # half-way between two levels
    return torch.bucketize(rows / scales, borders), scales


codes, scales = encode(original, levels, 64)
two_in_a_byte = 16 * codes.flatten()[0::2] + codes.flatten()[1::2]
print(f"{original.numel():,} weights in {two_in_a_byte.numel():,} bytes")
# A weight half-way between two levels may go either way.

# %% [markdown] slideshow={"slide_type": "subslide"}
# ## The scales are rounded too
#
# A scale of 32 bits for every 64 weights adds 32/64 = 0.5 bits to each weight, so a weight would take 4.5 bits. QLoRA
# reduces this by [double quantisation](glossary.md#double-quantisation): it quantises the scales as well. They are
# all positive and similar, so it first subtracts their mean $m$. What is left is cut into groups $g$ of 256 scales,
# and each scale is rounded to one of 256 levels $t$, whose number takes 8 bits:
#
# $$s_b \approx m + S_g \cdot t[k_b], \qquad \text{bits per weight} = 4 + \frac{8}{64} + \frac{32}{64 \cdot 256}
# \approx 4.127$$
#
# Here $S_g$ is the largest absolute value in the group, kept in 32 bits, and $k_b$ is the scale's code of 8 bits. The
# mean $m$ is one number for the whole matrix.

# %% tags=["check-scales"]
table = packed.quant_state.state2.code  # the 256 levels of bitsandbytes for 8 bits
mean = scales.mean()
pieces = []
for group in (scales.flatten() - mean).split(256):
    k, S = encode(group, table, len(group))
    pieces.append((S * table[k]).flatten())
coarse_scales = mean + torch.cat(pieces)
by_hand = (levels[codes] * coarse_scales[:, None]).reshape(original.shape)
unpacked = tl.dequantized(packed)
course.claim(
    "Unpacked by hand, no weight is more than 1e-5 away from bitsandbytes'",
    float((by_hand - unpacked).abs().max()) < 1e-5,
)
print(
    f"{4 + 32 / 64:.3f} bits, with double quantisation {4 + 8 / 64 + 32 / 64 / 256:.3f}"
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# ## Do the levels fit the weights?
#
# The grey shape below is the histogram of all weights in the blocks of this model, each divided by the scale of its
# block. The lines are the sixteen levels of NF4, and below them those of an ordinary 4-bit integer from -8 to 7,
# which are evenly spaced. (It has no level at 1, so a weight there becomes 7/8.) Every block has a weight at -1 or 1,
# its largest one, which makes the small columns at both ends.

# %%
weights = {
    name: weight.detach()
    for name, weight in base.model.named_parameters()
    if name.endswith("proj.weight")
}
int4 = torch.arange(-8, 8) / 8
rows = torch.cat([weight.reshape(-1, 64) for weight in weights.values()])
scaled = rows / rows.abs().amax(1, keepdim=True)
pictures.levels_chart(
    scaled,
    {"NF4": levels, "int4": int4},
    "NF4 spreads the weights more evenly over its 16 levels",
)

# %%
borders = (int4[1:] + int4[:-1]) / 2

# %% [markdown] slideshow={"slide_type": "subslide"}
# The outer levels of int4 are hardly used, and NF4 uses its levels more evenly. Does that matter for the model?
# **Predict first.** The next cell quantises the whole model in four ways: with NF4 or int4, and with one scale for 64
# weights or one for a whole matrix. Which of the two choices matters more?


# %%
def quantised(weight, levels, block):
    codes, scales = encode(weight, levels, block)
    return (levels[codes] * scales).reshape(weight.shape)


def quantised_model(levels, per_scale):
    model = tl.load_model("tiny").model
    for name, weight in weights.items():
        block = weight.numel() if per_scale == "a matrix" else per_scale
        model.get_parameter(name).data = quantised(weight, levels, block)
    return model


def error_of(approximate, exact):
    return float((approximate - exact).norm() / exact.norm())


# %%
was = torch.cat([weight.flatten() for weight in weights.values()])
ways = []
with tl.Job(4, "way") as job:
    for kind, places in (("NF4", levels), ("int4", int4)):
        for per_scale in (64, "a matrix"):
            with job.part(f"{kind}, {per_scale}"):
                model = quantised_model(places, per_scale)
                worse = tl.perplexity(model, base.tokenizer, rust.validation)
            now = torch.cat([model.get_parameter(name).flatten() for name in weights])
            error = round(100 * error_of(now.detach(), was))
            rise = round(100 * (worse.perplexity / before.perplexity - 1))
            ways.append([kind, str(per_scale), error, rise])
names = ["levels", "weights per scale", "error of weights, %", "perplexity up by, %"]
pd.DataFrame(ways, columns=names)

# %%
risen = {(kind, block): rise for kind, block, _, rise in ways}

# %% [markdown] slideshow={"slide_type": "subslide"}
# The blocks matter more than the levels. A scale for a whole matrix is set by its one largest weight, so most weights
# fall on the few levels near zero; a scale for 64 weights fits its neighbours. With blocks of 64, NF4 has the smaller
# error in the weights, but on this small model the perplexities of NF4 and int4 are too close to say which is better.
# The QLoRA paper compares them on models of 125 million to 65 billion weights, and finds NF4 better on average.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How wrong is a weight, and how wrong is a layer?
#
# **Predict first.** The error of the weights in the table is 9%. Does that mean that a weight is typically 9% off?
# And is the output of a layer, a sum of 192 or 512 products, more or less wrong than the weights?

# %%
difference = torch.cat(
    [(quantised(w, levels, 64) - w).flatten() for w in weights.values()]
)
single = (difference / was).abs()[was != 0]
ratio_of_norms = float(difference.norm() / was.norm())
print(f"norm of all errors / norm of all weights: {ratio_of_norms:.0%}")
print(
    f"error of a single weight: mean {single.mean():.0%}, median {single.median():.0%}"
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# These are two different measures, and both are right. The 9% is a *ratio of norms*: all errors together, compared
# with all weights together. Large weights dominate both sums. A *single* weight is typically 10% off (the median),
# but a fifth of its size on average, because for small weights the levels are far apart compared with their size. A
# weight that is rounded to zero is 100% wrong.
#
# For the model, only the output of a layer matters. So take real text, note with a hook what goes into each layer,
# and compare the exact output Wx with the output W̃x of the unpacked weights (biases left out, since they are not
# quantised). The error of the output is again a ratio of norms, ‖W̃x - Wx‖ / ‖Wx‖.

# %%
inputs = {}
hooks = [
    module.register_forward_hook(
        lambda _, x, __, name=name: inputs.update({name: x[0]})
    )
    for name, module in base.model.named_modules()
    if name + ".weight" in weights
]
text = tl.pack(rust.validation, base.tokenizer, 128)[:8]
with torch.no_grad():
    base.model(input_ids=text)
for hook in hooks:
    hook.remove()
rows = []
for name, x in inputs.items():
    weight = weights[name + ".weight"]
    off = error_of(x @ quantised(weight, levels, 64).T, x @ weight.T)
    rows.append(
        {"layer": name.split(".")[-1], "block": name.split(".")[2], "error": off}
    )
outputs = pd.DataFrame(rows)
pictures.output_error_chart(
    outputs, ratio_of_norms, "On real text, outputs are a bit less wrong than weights"
)

# %%
print(f"errors of the outputs: {outputs.error.min():.0%} to {outputs.error.max():.0%}")
less_wrong = (outputs.error < ratio_of_norms).mean()
course.claim("Nearly all outputs are less wrong than the weights", less_wrong > 0.9)


# %% [markdown] slideshow={"slide_type": "subslide"}
# It is tempting to say that the errors of hundreds of products cancel in the sum. They do, but so do the products
# themselves. A sum of n terms with independent signs grows with √n, whether the terms are weights or errors, so their
# ratio should stay where it was. Random inputs can test this, because nothing in the weights was fitted to them.


# %%
def stretch(weight, x):
    """How much longer the vectors x get, all together."""
    return float((x @ weight.T).norm() / x.norm())


ratios = []
for name, x in inputs.items():
    weight = weights[name + ".weight"]
    ratios.append(stretch(weight, x) / stretch(weight, torch.randn(1000, x.shape[-1])))

# %% [markdown] slideshow={"slide_type": "subslide"}
# On random inputs the output is just as wrong as the weights. On real text it is mostly a little less wrong, probably
# because training has fitted the weights to such inputs. Wx is then larger than for random inputs, but the errors
# need not be.
#
# Every layer is 4 to 12% off, and yet the perplexity hardly rises. Why? **Predict first.** At how many places of the
# text is the most probable next token still the same? And at how many does the token that really comes next become
# *less* probable?

# %%
with torch.no_grad():
    exact = base.model(input_ids=text).logits
    rounded_off = qlora.model(input_ids=text).logits
same = (exact.argmax(-1) == rounded_off.argmax(-1)).float().mean()


def chances(logits):
    """The log-probability of the token that really comes next, at each place."""
    return logits[:, :-1].log_softmax(-1).gather(-1, text[:, 1:, None])


less = (chances(rounded_off) < chances(exact)).float().mean()
coarse = tl.perplexity(qlora.model, base.tokenizer, rust.validation)
rise = coarse.perplexity / before.perplexity - 1
print(f"The most probable token is the same at {100 * same:.0f}% of the places,")
print(f"and the token that really comes next is less probable at {100 * less:.0f}%.")
course.claim("The perplexity rises, by less than 3%", 0 < rise < 0.03)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The rounding errors have no common direction. They make the right token less probable at about half of the places
# and more probable at the others. In the average over all places, which is the loss, most of this cancels. Still, at
# about one place in eight the first choice is another token, which a reader of generated text would see. The adapters
# do nothing here, because B is still zero ([lesson 5](05_lora.ipynb)). This is the price of 4 bits alone, and
# training starts from it.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The forward pass by hand
#
# Now we put the packed weights and the adapter together. For a moment, B gets values that are not zero, because
# otherwise the adapter would add nothing. Then the first formula is computed in plain torch and compared with the
# layer.

# %%
x = inputs["model.layers.0.self_attn.q_proj"]
A, B = layer.lora_A["default"].weight, layer.lora_B["default"].weight
with torch.no_grad():
    B.copy_(0.01 * torch.randn(B.shape, generator=torch.Generator().manual_seed(0)))
    bias = layer.base_layer.bias
    h = x @ by_hand.T + bias + (16 / 8) * (x @ A.T) @ B.T
    torch.testing.assert_close(layer.train()(x), h, atol=1e-4, rtol=0)
    B.zero_()
print("A:", tuple(A.shape), " B:", tuple(B.shape), " W̃:", tuple(by_hand.shape))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What is saved, and what is not
#
# Only the linear layers in the blocks are packed. Embedding and head stay in 16 bits, so the saving depends on how
# large a part of the model they are. **Predict first.** Which model shrinks to a smaller part of its 16-bit size: one
# of 0.5 billion or one of 7 billion weights?

# %%
rows = []
for preset in ("tiny", "qwen2-0.5b", "tinyllama-1.1b", "llama2-7b"):
    whole = tl.meta_model(preset).to(torch.bfloat16)
    table = whole.get_input_embeddings().weight.nbytes
    full_size = sum(tensor.nbytes for tensor in tl.tensors_of(whole))
    adapted = tl.apply_strategy(whole, "qlora").model
    trained = [p for p in adapted.parameters() if p.requires_grad]
    adapters = sum(p.nbytes for p in trained)
    small_size = sum(tensor.nbytes for tensor in tl.tensors_of(adapted)) - adapters
    percent = [round(100 * part / full_size) for part in (table, small_size)]
    rows.append(
        {"model": preset, "embedding, %": percent[0], "left of 16 bits, %": percent[1]}
    )
sizes = pd.DataFrame(rows).set_index("model")
sizes

# %%
left, table = sizes["left of 16 bits, %"], sizes["embedding, %"]

# %% [markdown] slideshow={"slide_type": "subslide"}
# If everything were packed, 4.127/16 = 26% would be left. The 0.5B model keeps nearly half, because its embedding of
# 151,936 tokens is 28% of its bytes and is not packed. In the 7B model the embedding is 2% (and the head, a matrix of
# its own there, another 2%), so the model comes close to 26%.
#
# Weights are also only a part of what a training step holds. `estimate_memory` (explained in [lesson
# 9](09_memory.ipynb)) adds the activations, the logits and the optimizer. Here is a step with one row of 512
# tokens. With `dtype="bf16"` the frozen weights that are not packed take 16 bits each, while the adapters stay in 32
# bits. For the 7B model, activations are computed again when they are needed ([activation
# checkpointing](glossary.md#activation-checkpointing)).

# %%
again = tl.Plan(activation_checkpointing=True)
steps = {}
with tl.Job(3, "estimate") as job:
    for model, strategy, plan in (
        ("qwen2-0.5b", "lora", None),
        ("qwen2-0.5b", "qlora", None),
        ("llama2-7b", "qlora", again),
    ):
        with job.part(f"{strategy}, {model}"):
            steps[model, strategy] = tl.estimate_memory(
                model, strategy, dtype="bf16", sequence_length=512, plan=plan
            ).peak
for (model, strategy), peak in steps.items():
    print(f"{model:10} {strategy:6}", tl.in_units(peak))

# %%
saved = 1 - steps["qwen2-0.5b", "qlora"] / steps["qwen2-0.5b", "lora"]
course.claim("qwen2-0.5b: QLoRA saves 18% of LoRA's step", round(saved, 2) == 0.18)

# %% [markdown] slideshow={"slide_type": "subslide"}
# QLoRA was made for cases like the last one: in 16 bits the weights alone, 13.5 GB, would not fit the card of 8 GB.
# For the 0.5B model the step shrinks by only 18%, because the weights that are packed were only a quarter of it, and
# about three quarters of that quarter is saved.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Does it train?
#
# The gradient has to pass through the packed layers to reach the adapters below them. If something blocks it on its
# way, there is no error message, and these adapters simply stay as they are. `check_gradient_flow` takes two steps
# and compares what was declared trainable, what received a gradient and what moved.

# %%
flow = tl.check_gradient_flow(qlora, blocks[:2])
print(flow)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** Which of the two ends with the lower perplexity, and which is faster: `lora` or `qlora`?

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
course.claim("They end within 3% of each other", abs(apart) < 0.03)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Both learn Rust and end close together, so `qlora` loses little by starting from slightly worse weights. `lora`
# ended a little lower, but one run with one seed does not tell which of the two is better. `qlora` is the slower one,
# because each layer is unpacked in the forward pass and once more in the backward pass. QLoRA pays with time for the
# memory that it saves.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same in plain transformers and peft
#
# Outside this workbook you will meet QLoRA as three objects. `BitsAndBytesConfig` tells transformers how to pack the
# weights while it loads them. `prepare_model_for_kbit_training` freezes all weights and converts those that are not
# packed (norms, embedding and head) to fp32. Training becomes more stable, but part of the saved memory is lost
# again. By default it also turns activation checkpointing on, which is left out here. `LoraConfig` describes the
# adapters.

# %%
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

four_bits = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_use_double_quant=True,
    bnb_4bit_compute_dtype=torch.float32,  # on a recent card: torch.bfloat16
)
plain = AutoModelForCausalLM.from_pretrained(
    tl.BUNDLED, dtype=torch.float32, quantization_config=four_bits
)
plain = prepare_model_for_kbit_training(plain, use_gradient_checkpointing=False)
torch.manual_seed(0)
adapter = LoraConfig(
    r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"
)
plain = get_peft_model(plain, adapter)
plain.print_trainable_parameters()

# %% [markdown] slideshow={"slide_type": "subslide"}
# Three steps in a plain loop, and three with `tl.train`, on the same four blocks and from the same adapters:

# %%
trained = [p for p in plain.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-2, weight_decay=0.01)
losses = []
plain.train()
for _ in range(3):
    loss = plain(input_ids=blocks[:4], labels=blocks[:4]).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())

torch.manual_seed(0)
ours = tl.apply_strategy(tl.load_model("tiny").model, "qlora").model
settings = tl.TrainingConfig(
    learning_rate=1e-2, epochs=3, batch_size=4, schedule="constant", warmup_fraction=0
)
mine = torch.tensor(tl.train(ours, blocks[:4], settings).history.loss.tolist())

# %% [markdown] slideshow={"slide_type": "slide"}
# ## When it pays
#
# - **The frozen weights fill the memory**, as in the 7B model on a card of 8 GB: QLoRA is what makes training
#   possible.
# - **The model fits in 16 bits anyway**: use LoRA. Steps are faster, the weights are exact, and the adapter can be
#   merged into them ([lesson 5](05_lora.ipynb)). An adapter of QLoRA is merged into the *rounded* weights, which are
#   then stored in 32 bits again.
# - **Activations or logits fill the memory**, as with long rows or large vocabularies: 4-bit weights help little;
#   lessons [9](09_memory.ipynb) and [10](10_oom_fallback.ipynb) show what does.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - NF4 rounds each weight to scale × level: sixteen levels at the quantiles of a normal distribution, a scale for
#   each 64 weights, and scales that are rounded as well. Together they take 4.13 bits a weight.
# - A layer's output is about as wrong as its weights, here 4 to 12%. In the tiny model's loss most of the errors
#   cancel, but that differs from model to model, so measure it on yours.
# - Four bits pay where frozen weights fill the memory. They cost time in every step.
#
# ### Further reading
#
# - Dettmers, Pagnoni, Holtzman and Zettlemoyer 2023, [QLoRA: Efficient Finetuning of Quantized
#   LLMs](https://arxiv.org/abs/2305.14314): NF4, double quantisation, and what they do on large models.
# - Dettmers and Zettlemoyer 2022, [The case for 4-bit precision](https://arxiv.org/abs/2212.09720): why four bits,
#   and not three or eight.
# - Yoshida 2023, [NF4 Isn't Information Theoretically Optimal (and that's Good)](https://arxiv.org/abs/2306.06965): a
#   closer look at the levels.
# - [Quantization in transformers](https://huggingface.co/docs/transformers/quantization/bitsandbytes): all settings
#   of `BitsAndBytesConfig`.

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
# **Exercise 6.1** (first steps). The format Q4_1 of llama.cpp has blocks of 32 weights, and 4 bits for each weight. A
# block also keeps two numbers of 16 bits: a scale, and its smallest weight (exercise 6.3 shows what for). How many bits
# does a weight cost, with its share of these numbers?

# %%
answer = None
# your code here
course.check("ex06_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 6.2** (apply it). `qlora` keeps packed weights in 4.127 bits each, where `lora` keeps them in 16.
# Everything else in the step stays the same. Given the number of packed weights and the peak of the `lora` step in
# bytes, return by how many percent the peak of `qlora` is lower. Then try it on `qwen2-0.5b`, which packs 357,826,560
# weights: the `lora` peak is 2,978,370,760 bytes with one row of 512 tokens, and 16,540,026,056 with eight.


# %%
def saved_percent(packed, lora_peak):
    """How much lower the peak is, in percent of `lora_peak` (bytes)."""
    # your code here


course.check("ex06_2", saved_percent)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 6.3** (think further). NF4 has fixed levels. Other 4-bit formats, such as Q4_1 of llama.cpp, place the
# levels anew in every block: they are evenly spaced from the smallest weight of the block to the largest. Write that.
# `weights` is a tensor of one dimension, neighbours share a `block` (the last one may be shorter), and a code of `bits`
# bits tells 2**bits levels apart. Round every weight to the nearest level of its block. Return the weights that are
# computed with, in the same shape, and leave `weights` as it is.

# %%
import torch


def rounded(weights, bits, block):
    """The weights after quantising and reading them again."""
    # your code here


course.check("ex06_3", rounded)

# %% [markdown]
# Previous: [5 · LoRA](05_lora.ipynb) ·
# Next: [7 · Train the last layers only](07_freezing.ipynb)
