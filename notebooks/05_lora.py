# %% [markdown] slideshow={"slide_type": "slide"}
# # 5 · LoRA
#
# *Can a few thousand new numbers do the work of changing millions?*
#
# The earlier lessons chose *which* of a model's weights to train. LoRA (*low-rank adaptation*) trains none of them.
# It freezes the whole model, puts two thin matrices beside each linear layer in the blocks, and trains only these two.
# Such a pair is called an [adapter](glossary.md#adapter). A model of seven billion weights can then be adapted with a
# file of a few tens of megabytes. This lesson builds such a layer by hand, and then asks why so few numbers can be
# enough.
#
# **You will be able to**
#
# - write the LoRA layer from memory, and say why one of its matrices starts at zero;
# - choose rank, alpha and learning rate, and explain why these three must be chosen together;
# - train, save, switch and merge adapters, with this workbook's functions or with plain peft.
#
# **You need** [lesson 4](04_full_fine_tuning.ipynb) for the training loop, and [lesson 7](21_freeze_lower_layers.ipynb)
# for how far down backpropagation goes. From linear algebra you need the product of two matrices.
#
# About 60 minutes.

# %% slideshow={"slide_type": "subslide"}
import copy
import math
import tempfile
from pathlib import Path

import pandas as pd
import torch

import course
import tlkit as tl
from course.lesson05 import low_rank, pictures

profile = tl.setup()
rust = tl.load_corpus().limited(profile.train_passages, profile.test_passages)
base = tl.load_model("tiny")
blocks = tl.pack(rust.train, base.tokenizer, 128)
before = tl.perplexity(base.model, base.tokenizer, rust.validation)


def with_lora(seed=0, **options):
    """A fresh model with adapters; the seed decides their first values."""
    torch.manual_seed(seed)
    return tl.apply_strategy(tl.load_model("tiny").model, "lora", **options)


# %% [markdown] slideshow={"slide_type": "subslide"}
# Here is the model that you know from the lessons before, once with all weights trained and once with LoRA. The orange
# stripes are the adapters. With LoRA all weights of the model itself are frozen, but the arrow shows that
# backpropagation still has to pass through every block, because there are adapters in the lowest one.

# %%
lora = with_lora(r=8)
full = tl.apply_strategy(tl.load_model("tiny").model, "full")
tl.network_strip(full, lora)

# %%
print(f"{lora.trainable_values:,} of {lora.total_values:,} values")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One layer
#
# A linear layer multiplies its input $x$ by a matrix $W$. Full fine-tuning changes $W$ to $W + \Delta W$, and
# $\Delta W$ has as many numbers as $W$. LoRA does not store $\Delta W$ itself. It writes the change as a product of
# two thin matrices:
#
# $$h = W x + \frac{\alpha}{r}\, B A x$$
#
# | symbol | what it is | shape |
# | --- | --- | --- |
# | $x$ | input of the layer, for one token | (in) |
# | $h$ | output of the layer | (out) |
# | $W$ | pretrained weights, frozen | (out, in) |
# | $A$ | first thin matrix, trained | (r, in) |
# | $B$ | second thin matrix, trained | (out, r) |
# | $r$ | the [rank](glossary.md#rank): how thin the two are; you choose it | one number |
# | $\alpha$ | [alpha](glossary.md#alpha): how strongly the adapter counts; you choose it | one number |

# %% [markdown] slideshow={"slide_type": "subslide"}
# $A$ reduces the input to $r$ numbers, and $B$ makes an output of full length from them. Every change that passes
# through such a bottleneck is a matrix of *rank* at most $r$, which is where the name comes from. The next picture is
# drawn to scale from one layer of our model.

# %%
layer = lora.model.get_base_model().model.layers[0].mlp.down_proj
pictures.lora_picture(layer)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Build it
#
# The whole method is these few lines of code. `forward` is the formula read from right to left, for many tokens at
# once: tokens are rows of `x`, so the matrices appear transposed.


# %%
class LoRALinear(torch.nn.Module):
    def __init__(self, base, r=8, alpha=16):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.scaling = alpha / r
        outputs, inputs = base.weight.shape
        self.A = torch.nn.Parameter(torch.empty(r, inputs))
        self.B = torch.nn.Parameter(torch.zeros(outputs, r))
        torch.nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))

    def forward(self, x):
        return self.base(x) + self.scaling * (x @ self.A.T @ self.B.T)


# %% [markdown] slideshow={"slide_type": "subslide"}
# To check it, we copy A and B from a layer of peft, the library that most people use for LoRA, and give both layers the
# same input. B gets random values first, because with a B of zeros any two adapters would agree.

# %% tags=["check-ours"]
theirs = with_lora().model.get_base_model().model.layers[0].mlp.gate_proj
torch.nn.init.normal_(theirs.lora_B["default"].weight, std=0.05)
ours = LoRALinear(theirs.base_layer)
ours.A.data = theirs.lora_A["default"].weight.data
ours.B.data = theirs.lora_B["default"].weight.data
x = torch.randn(10, 192)
difference = (ours(x) - theirs(x)).abs().max()
course.claim("Our layer and peft's agree to 1e-6", difference < 1e-6)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How A and B start
#
# With $B = 0$ the product $BA$ is zero, so the adapted model starts as exactly the pretrained model. If both matrices
# started at random, training would first have to repair the damage.
#
# How do the two begin to learn? Call $g = \partial L / \partial h$ the gradient that arrives at the layer's output,
# with shape (out). The chain rule gives the gradients of the two matrices:
#
# $$\frac{\partial L}{\partial B} = \frac{\alpha}{r}\, g\,(A x)^\top
# \qquad \frac{\partial L}{\partial A} = \frac{\alpha}{r}\, (B^\top g)\, x^\top$$

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** Which of the two matrices receives a gradient in step 1, and which in step 2? And what would happen
# if both started at zero?
#
# `check_gradient_flow` takes two real steps, notes the norm of every gradient, and puts the weights back.

# %%
same = tl.perplexity(lora.model, base.tokenizer, rust.validation[:5])
expected = tl.perplexity(base.model, base.tokenizer, rust.validation[:5])
flow = tl.check_gradient_flow(lora, blocks[:2])
pictures.adapter_gradients_chart(flow)

# %% tags=["check-a"]
adapters = flow.table[flow.table.declared].set_index("tensor")
a, b = (adapters[adapters.index.str.contains(f"lora_{part}")] for part in "AB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The gradient of A contains B as a factor, and B is zero at the start, so A's first gradient is zero. In step 2 the
# gradients of A are still small, because B has only made one step away from zero. The gradient of B contains A, which
# is why A does not start at zero. If both did, both gradients would be zero in every step, and the adapter could never
# learn.
#
# The check is worth its two steps. If an adapter never receives a gradient, no error tells you so. The loss is printed
# and the run looks normal, but nothing is learned. In exercise 5.3 you write the check that finds this.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Is the change really low-rank?
#
# LoRA assumes that a good change of the weights can be written with a low rank. We can test this. We train *all*
# weights as in lesson 4, at the learning rate recorded for it, and look at what happened to each matrix.

# %%
rates = tl.default_rates()
common = dict(epochs=profile.epochs, batch_size=4)
settings = tl.TrainingConfig(learning_rate=rates["full"], **common)
full_run = tl.train(full.model, blocks, settings, progress=True)
after_full = tl.perplexity(full.model, base.tokenizer, rust.validation)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Any change $\Delta W$ can be taken apart into pieces of rank 1, sorted from the largest to the smallest. This is the
# *singular value decomposition*:
#
# $$\Delta W = s_1 u_1 v_1^\top + s_2 u_2 v_2^\top + \dots + s_n u_n v_n^\top,
# \qquad s_1 \ge s_2 \ge \dots \ge s_n \ge 0$$
#
# Each $s_i$ is one number, $u_i$ has the length of the output and $v_i$ that of the input. The sum of all $s_i^2$ is
# the sum of the squared entries of $\Delta W$, so $s_i^2$ says how much of the change's size a piece holds. The first
# $r$ pieces together are the closest matrix of rank $r$ that exists (the theorem of Eckart and Young).

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** The matrices here have at most 192 pieces, those of keys and values 96. How many of them does a
# typical matrix need to hold 90% of its change's size: about 8, about 60 or about 150?
#
# `decompose_change` computes the pieces of every matrix, and `ranks_needed` counts them from the largest down.

# %%
change = low_rank.decompose_change(base.model, full.model)
needed = low_rank.ranks_needed(change, 0.9)
pictures.grid_chart(
    needed,
    "Most matrices need a rank of 30 to 115 to hold 90% of their change",
    "rank needed",
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The typical matrix needs about 60 pieces. Most matrices of attention need between 20 and 80, and those of the MLP
# around 110. By its size, the change is therefore *not* low-rank. If LoRA had to copy what full fine-tuning does to
# the weights, rank 8 would miss most of it.
#
# But we do not need the change itself. We need the gain in the loss. So we ask another question. We add only the first
# $r$ pieces of each change to the base model, score it on validation text in [nats](glossary.md#nat) per token, and
# see how much of the gain is left.


# %%
def nats(model):
    return tl.perplexity(model, base.tokenizer, rust.validation).nats_per_token


ranks = (1, 2, 4, 8, 16, 64, 192)
kept = low_rank.rank_table(base.model, change, nats, ranks, progress=True)
named = kept[["gain", "size"]].set_axis(["of the gain in loss", "of the size"], axis=1)
pictures.rank_chart(
    named,
    "Rank 8 holds under a third of the change, but about 3/4 of its gain",
    "% of the whole change",
)

# %%
course.claim("Rank 8 holds less than a third of the size", kept["size"][8] < 1 / 3)
start, end = before.nats_per_token, after_full.nats_per_token
whole = (start - kept.nats[192]) / (start - end)
print(f"The linear layers alone carry {whole:.0%} of full fine-tuning's gain")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The useful part of the change is concentrated in few pieces, and most of its size adds little. LoRA relies on this.
# The remaining 15% of full fine-tuning's gain needs the changes of the embedding, the norms and the biases, which
# these matrices do not include.
#
# Why does so much of the change's size add so little? Look at how AdamW takes a step. It divides each gradient by its
# own average size, so a weight moves by up to about the learning rate, whether its gradient is large or tiny. In the
# very first step only the *sign* of each gradient counts. Compare the two for one batch:

# %%
probe = tl.apply_strategy(tl.load_model("tiny").model, "full").model
probe(input_ids=blocks[:4], labels=blocks[:4]).loss.backward()
shares = {"the gradient": [], "its sign, AdamW's first step": []}
for name in change:
    gradient = probe.get_parameter(name).grad
    for label, matrix in zip(shares, (gradient, gradient.sign()), strict=True):
        squares = torch.linalg.svdvals(matrix) ** 2
        shares[label].append(float(squares[:8].sum() / squares.sum()))
share = {label: sum(found) / len(found) for label, found in shares.items()}
for label, found in share.items():
    print(f"The 8 largest pieces hold {found:.0%} of {label}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The gradient is much closer to a low rank than the step that AdamW makes of it. AdamW moves weights with tiny
# gradients as far as the others. These many small movements fill up all ranks, and a weight whose gradient is tiny
# hardly matters for the loss. That is a likely reason for the gap between the two lines of the chart, though not a
# proof.
#
# Does this carry over to a larger model? We have one recorded run of SmolLM2-135M, counted in a slightly different way.
# There only the linear layers are cut, while the embedding, the norms and any biases keep their full change. A part
# of the gain is then never lost, so the shares are higher than in the chart. The next cell counts our model in the
# same way, so the two rows of the table can be compared with each other, but not with the chart.

# %%
rest = copy.deepcopy(full.model)
for name in change:
    rest.get_parameter(name).data.copy_(base.model.get_parameter(name).data)
alike = {
    f"rank {rank}": (start - nats(low_rank.cut_to_rank(rest, change, rank)))
    / (start - end)
    for rank in (1, 8, 64)
}
larger = {"rank 1": 0.77, "rank 8": 0.93, "rank 64": 0.98}
sizes = {"bundled model": alike, "SmolLM2-135M, one recorded run": larger}
(100 * pd.DataFrame(sizes).T).round().astype(int).astype(str) + "%"

# %% [markdown] slideshow={"slide_type": "subslide"}
# Counted in this way, a low rank keeps at least as much of the gain in the larger model as in ours. It was a single run
# (November 2026), so take it as a hint and not as a law.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Train the adapters
#
# **Predict first.** Full fine-tuning's change, cut to rank 8, keeps about three quarters of the 85% that the linear
# layers carry. That is a little under two thirds of what full fine-tuning gained in all. Will adapters of rank 8 that
# are *trained* reach less than this, about as much, or more?

# %%
settings = tl.TrainingConfig(learning_rate=rates["lora"], **common)
lora_run = tl.train(lora.model, blocks, settings, progress=True)
after_lora = tl.perplexity(lora.model, base.tokenizer, rust.validation)
scores = tl.score_table(
    {"before": before, "lora, rank 8": after_lora, "full": after_full}
)
tl.perplexity_chart(scores)

# %%
reached = (start - after_lora.nats_per_token) / (start - end)
print(f"LoRA of rank 8 reaches {reached:.0%} of full fine-tuning's gain")
course.claim("Trained adapters reach more than the cut change", reached > 0.75)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Training does better than cutting, because it does not copy the change that full fine-tuning found. It searches for
# the best change *among those of rank 8*, and each layer can make up for what the others cannot do. LoRA comes close to
# full fine-tuning. Their intervals overlap in the chart, so a [paired difference](glossary.md#paired-difference) is
# needed to tell the two apart.
#
# This is one run with one seed on a small model and little text. [Lesson 15](15_comparison.ipynb)
# repeats it over seeds and adds what is forgotten, which this chart does not show.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Which rank, and which layers?
#
# The next chart compares trained adapters of several ranks with the cut of the same rank. The trained ones come from a
# record of 41 runs with the settings of this lesson, `data/sweeps/tiny/lora.csv`. We take its runs with seed 0 and an
# alpha of twice the rank, and the best learning rate for each rank. The rates are a factor of 2 apart, and the best one
# always lies between two worse ones.

# %%
runs = pd.read_csv(tl.DATA / "sweeps/tiny/lora.csv")
runs = runs.rename(columns={"learning_rate": "rate", "validation_nats": "nats"})
first_seed = runs[runs.seed == 0]
everywhere = first_seed.query("targets == 'all linear layers'")
usual = everywhere.query("alpha == 2 * rank")
recorded = usual.loc[usual.groupby("rank").nats.idxmin()].set_index("rank")
reach = pd.DataFrame(
    {
        "LoRA, trained at this rank": (start - recorded.nats) / (start - end),
        "full fine-tuning's change, cut to it": kept.gain.drop(192) * whole,
    }
).sort_index()
pictures.rank_chart(
    reach,
    "Adapters trained at a rank gain more than a change that is cut to it",
    "% of full fine-tuning's gain in loss",
)

# %% tags=["check-trained"]
trained, cut = (column.dropna() for _, column in reach.items())

# %% [markdown] slideshow={"slide_type": "subslide"}
# Rank 1 already reaches nearly two thirds of the gain, and rank 32 comes close to full fine-tuning. The best learning
# rate became smaller as the rank grew, from 0.02 at rank 1 to 0.005 at rank 32. At the single rate of 0.01, rank 32
# was slightly *worse* than rank 8, with both seeds that were tried. A comparison of ranks at one learning rate can
# therefore mislead.
#
# Most experiments of the original paper put adapters beside queries and values only. Later work found that adapters
# should stand beside *all* linear layers, above all those of the MLP, and `target_modules="all-linear"` is the usual
# choice today. Here are the runs of the record at rank 8 with seed 0, again each at its best learning rate:

# %%
at_eight = first_seed.query("rank == 8 and alpha == 16")
at_eight = at_eight.loc[at_eight.groupby("targets").nats.idxmin()]
targets = at_eight.set_index("targets").sort_values("trainable_values")
gained = 100 * (start - targets.nats) / (start - end)
targets["% of full's gain"] = gained.round().astype(int)
targets[["trainable_values", "rate", "nats", "% of full's gain"]]

# %% [markdown] slideshow={"slide_type": "subslide"}
# The rows differ in their number of values as well as in their place, so the table cannot say which of the two matters.
# A fair test gives every row the same number of values, with a higher rank where there are fewer layers. It also needs
# several seeds.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Alpha and the learning rate
#
# Alpha looks like one more number to tune, but it acts together with the learning rate. The adapter adds
# $\frac{\alpha}{r} BA$ to the weights. AdamW moves every number of $B$ by about the learning rate $\eta$, however large
# its gradient is. So in the first step a weight of the model moves by $\frac{\alpha}{r}\,\eta$ times a sum of $r$
# numbers of $A$, each with a sign.
#
# **Predict first.** Four models take one step on the same batch, with the alpha and the learning rate that you see in
# the code. Which of them have the same loss afterwards?

# %%
one_step = dict(
    epochs=1, batch_size=4, warmup_fraction=0, schedule="constant", weight_decay=0
)
losses = {}
for alpha, rate in ((8, 2e-2), (16, 1e-2), (32, 5e-3), (32, 1e-2)):
    model = with_lora(r=8, alpha=alpha).model
    tl.train(model, blocks[:4], tl.TrainingConfig(learning_rate=rate, **one_step))
    with torch.no_grad():
        losses[alpha, rate] = model(input_ids=blocks[4:8], labels=blocks[4:8]).loss
    print(f"alpha {alpha:2}, learning rate {rate:5}: loss {losses[alpha, rate]:.2f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# If you double alpha and halve the learning rate, the first step is the same. After it the models slowly drift apart,
# because the learning rate also moves $A$, which did not start at zero. The next chart shows whole runs: nine
# combinations of alpha and learning rate at rank 8, from the same record. Darker means a higher loss, and a frame
# marks the lowest loss of each row.

# %%
nine = everywhere.query("rank == 8 and rate in (0.0025, 0.01, 0.04)")
grid = nine.pivot(index="alpha", columns="rate", values="nats")
grid.columns.name = "learning rate"
pictures.grid_chart(
    grid,
    "The larger alpha is, the smaller the best learning rate",
    "nats per token\n(higher is worse)",
    digits=2,
    frame_lowest=True,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# In each row the best rate is the one at which alpha times learning rate is 0.16. For alpha 4 and 64 it is at the
# edge of the three rates tried, so the true best may lie outside. Equal products are not equal runs, though. With a
# product of 0.64, alpha 64 ends at 4.61, but alpha 16 fails at 7.52, probably because its rate of 0.04 also moves $A$
# four times as far.
#
# So keep alpha at a fixed multiple of the rank, for example $\alpha = 2r$, and tune the learning rate. If you tuned
# both, you would try nearly the same thing many times.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## LoRA at the wrong learning rate
#
# "LoRA results in 4-6% lower performance compared to full fine-tuning" is the title of a question to the developers of
# peft ([issue 622](https://github.com/huggingface/peft/issues/622)). A common cause of such results is a comparison at
# *one* learning rate, the one that suits full fine-tuning. The workbook's record of tuning, with two seeds for each
# point, shows what that does (full fine-tuning at rates above 0.005 ends far off the scale and is left out):

# %%
tuning = tl.recorded("rates").query("learning_rate <= 0.02")
tuning = tuning[tuning.strategy.isin(["full", "lora"])]
tuning = tuning.query("strategy == 'lora' or learning_rate <= 0.005")
tl.sweep_chart(tuning, "learning_rate", "learning rate")

# %%
means = tuning.groupby(["strategy", "learning_rate"]).validation_perplexity.mean()
course.claim(
    "LoRA's best rate is ten times full's", rates["lora"] == 10 * rates["full"]
)
at_own = means["lora", rates["lora"]] / means["full", rates["full"]]
at_fulls = means["lora", rates["full"]] / means["full", rates["full"]]
print(f"perplexity of LoRA over that of full, LoRA at its own rate: {at_own:.2f}")
print(f"LoRA at full's rate: {at_fulls:.2f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# At a rate of 0.001, the best for full fine-tuning, LoRA's perplexity is 118. That is not far below the 133 of the
# untouched model, and one would conclude that LoRA does not work. At 0.01 it is 84, against 78 for full fine-tuning.
# Large models need smaller rates, but LoRA's best rate was about ten times that of full fine-tuning there, too
# (Schulman et al., below).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Save, load, switch
#
# Only the adapter has to be saved. The base model is the same for everyone, so one copy of it can serve many adapters.

# %%
folder = Path(tempfile.mkdtemp())
tl.save_model(lora.model, base.tokenizer, folder / "rust")
adapter_file = (folder / "rust" / "adapter_model.safetensors").stat().st_size
tl.save_model(full.model, base.tokenizer, folder / "full")
full_file = (folder / "full" / "model.safetensors").stat().st_size
print(f"adapter:     {adapter_file / 1e6:5.2f} MB")
print(f"whole model: {full_file / 1e6:5.2f} MB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# A second adapter makes this interesting. It is trained for a few steps on the Python reference, the kind of text
# that the base model has already read. Then both adapters are loaded into *one* base model with plain peft, switched,
# and scored on ten passages each.

# %%
general = tl.load_corpus("general").limited(40, profile.test_passages)
python = with_lora(seed=1)
python_blocks = tl.pack(general.train, base.tokenizer, 128)[:32]
settings = tl.TrainingConfig(learning_rate=rates["lora"] / 5, **common)
tl.train(python.model, python_blocks, settings, progress=True)
tl.save_model(python.model, base.tokenizer, folder / "python")

# %%
from peft import PeftModel
from transformers import AutoModelForCausalLM

shared = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
shared = PeftModel.from_pretrained(shared, folder / "rust", adapter_name="rust")
shared.load_adapter(folder / "python", adapter_name="python")
texts = {"Rust": rust.validation[:10], "Python": general.validation[:10]}


def on_both():
    return {
        name: tl.perplexity(shared, base.tokenizer, text).perplexity
        for name, text in texts.items()
    }


table = {}
for name in ("rust", "python"):
    shared.set_adapter(name)
    table[f"adapter {name}"] = on_both()
with shared.disable_adapter():
    table["no adapter"] = on_both()
table = pd.DataFrame(table).T

# %% tags=["nbval-ignore-output"]
table.round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Full fine-tuning would need a whole model for each task. It also forgets for good, whereas an adapter can be switched
# off: the base weights were never touched.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Merge
#
# An adapter makes every layer a little slower, because its two products are computed beside the large one. Once
# training is over, the product can be added to the matrix, which is called [merging](glossary.md#merging):
# $W_\text{merged} = W + \frac{\alpha}{r} B A$. The model is then an ordinary model again, as fast as before. In
# exercise 5.2 you write this function; peft has `merge_and_unload`.

# %% tags=["check-merged"]
tokens = blocks[:2]
with torch.no_grad():
    beside = lora.model(tokens).logits
    merged = tl.load_model(str(folder / "rust"), adapter="merge").model
    together = merged(tokens).logits
course.claim("Merged, the logits agree to 1e-4", (beside - together).abs().max() < 1e-4)


# %% [markdown] slideshow={"slide_type": "subslide"}
# They do not agree exactly, because the rounding differs when the products are summed in another order. If a merged
# model differs by much more, a common cause is a base in 4 or 16 bits: if the sum is stored in as few bits, it is
# rounded again ([lesson 6](06_qlora.ipynb)).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Count is not cost
#
# LoRA trains 5% of the values. **Predict first.** What share of full fine-tuning's arithmetic does a step still need?
# And what share of the memory?


# %%
def arithmetic(strategy):
    model = tl.apply_strategy(tl.load_model("tiny").model, strategy).model
    return tl.count_flops(model, blocks[:4]).total


costs = {
    "values trained": lora.trainable_values / full.trainable_values,
    "file on disk": adapter_file / full_file,
    "peak memory of a step": lora_run.peak_memory / full_run.peak_memory,
    "arithmetic of a step": arithmetic("lora") / arithmetic("full"),
}
pictures.shares_chart(
    costs,
    "LoRA trains 5% of the values, but needs three quarters of the arithmetic",
    "% of full fine-tuning",
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The whole forward pass is still computed, and backpropagation still passes through every block down to the lowest
# adapter, in block 0. Only the gradients of the frozen matrices themselves are saved, a little under a third of the
# arithmetic, and LoRA's thin products add about 5% again.
#
# The large saving is the memory that training needs *for each trained value*: a gradient and the two averages of AdamW,
# which are 12 bytes in 32-bit numbers. In this tiny model activations and logits take most of the memory, so the saving
# looks modest. Count the same for a model of seven billion weights, on paper:

# %%
large = tl.apply_strategy(tl.meta_model("llama2-7b"), "lora")
weights = large.total_values - large.trainable_values
print(f"full: {12 * weights / 1e9:.0f} GB of gradients and averages")
print(f"lora: {12 * large.trainable_values / 1e9:.2f} GB")
print(f"adapter file in 16 bits: {2 * large.trainable_values / 1e6:.0f} MB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Here the saving decides whether training fits on a card at all ([lesson 9](09_memory.ipynb) has the full
# account). The 7 billion weights themselves still have to be in memory, and [lesson 6](06_qlora.ipynb) makes those
# smaller.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same in plain transformers and peft
#
# Elsewhere you will meet LoRA like this. Only the folder of the model and the token ids come from this workbook.

# %%
from peft import LoraConfig, get_peft_model

plain = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
config = LoraConfig(
    r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"
)
torch.manual_seed(0)
plain = get_peft_model(plain, config)
plain.print_trainable_parameters()
trained = [p for p in plain.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-2, weight_decay=0.0)
plain_losses = []
for _ in range(3):
    loss = plain(input_ids=blocks[:4], labels=blocks[:4]).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    plain_losses.append(loss.item())

# %% [markdown] slideshow={"slide_type": "subslide"}
# And the same three steps with `tl.train`:

# %%
three_steps = tl.TrainingConfig(learning_rate=1e-2, **one_step | {"epochs": 3})
ours = tl.train(with_lora(r=8).model, blocks[:4], three_steps).history.loss

# %% [markdown] slideshow={"slide_type": "subslide"}
# With the `Trainer` of transformers nothing changes in the model: give it the `plain` model of above, and save with
# `plain.save_pretrained(folder)`. But set `learning_rate` yourself, because the default of 5e-5 is far too small for
# LoRA here.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - LoRA freezes $W$ and trains $\frac{\alpha}{r} BA$ beside it. $B$ starts at zero so that nothing changes at first,
#   and $A$ does not, because otherwise neither would ever receive a gradient.
# - Full fine-tuning's change is not low-rank by its size, but most of its gain lies in few directions. This is a
#   likely reason why a small rank is enough here.
# - Few trained values save optimizer memory and disk, but only about a quarter of the arithmetic. They also want a
#   larger learning rate, which has to be tuned together with alpha.
#
# **An open experiment.** Is it better to have rank 8 at all linear layers or rank 41 at queries and values? Both have
# about 220,000 values. Use `with_lora(r=41, alpha=82, targets=["q_proj", "v_proj"])`, search a learning rate for each,
# and repeat with two more seeds before you believe the answer.
#
# **Further reading**
#
# - Hu et al. 2021, [LoRA: Low-Rank Adaptation of Large Language Models](https://arxiv.org/abs/2106.09685)
# - Aghajanyan et al. 2020, [Intrinsic Dimensionality Explains the Effectiveness of Language Model
#   Fine-Tuning](https://arxiv.org/abs/2012.13255), the observation that led to LoRA
# - Biderman et al. 2024, [LoRA Learns Less and Forgets Less](https://arxiv.org/abs/2405.09673), on large models
# - Schulman et al. 2025, [LoRA Without Regret](https://thinkingmachines.ai/blog/lora/), on rates, ranks and layers
# - Lee et al. 2026, [Learning Rate Matters: Vanilla LoRA May Suffice for LLM
#   Fine-tuning](https://arxiv.org/abs/2602.04998), a comparison in which every variant has its own rate
# - Kalajdzievski 2023, [A Rank Stabilization Scaling Factor for Fine-Tuning with
#   LoRA](https://arxiv.org/abs/2312.03732), on how alpha should grow with the rank

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex05_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** A friend initialises A *and* B with zeros, to be sure that the adapted model starts as the pretrained one.
# What happens in training?
#
# - **a** Nothing moves: every gradient of A and B is zero, in every step.
# - **b** It trains as usual, because only the product B·A matters at the start, and it is zero either way.
# - **c** A waits for one step and then trains, as it always does.
# - **d** B waits for one step and then trains.

# %%
course.quiz("quiz05")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 5.1** (first steps). Beside a matrix of 512 x 192, an adapter of rank 8 has few values. What is the
# smallest rank at which the adapter has *more* values than the matrix itself?

# %%
answer = None
# your code here
course.check("ex05_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 5.2** (apply it). Once it is trained, an adapter can be merged into its matrix, and the model is then as
# fast as it was before. Write a function that returns the merged matrix. It gets three tensors with these shapes:
# `weight` (outputs, inputs), `a` (r, inputs) and `b` (outputs, r), and the number `alpha`. The weight that is passed in
# must not be changed.


# %%
def merged(weight, a, b, alpha):
    """One matrix that does what the weight and its adapter do together."""
    # your code here


course.check("ex05_2", merged)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 5.3** (think further). A trainer with a mistake may leave some adapters without a gradient. Write the check
# that finds them. Your function gets the table of `check_gradient_flow`, a pandas DataFrame with a row for each tensor.
# Four of its columns matter here: `tensor` (the name), `declared` (True where it is meant to train), and `norm_1` and
# `norm_2`. These are the norms of its gradient in the first and in the second step, or NaN where there was no gradient
# at all. Return a list with the names of all tensors that are meant to train and received no gradient, or only zeros,
# in *both* steps.


# %%
def dead_adapters(table):
    """Names of the tensors that are meant to train and cannot."""
    # your code here


course.check("ex05_3", dead_adapters)

# %% [markdown]
# Previous: [4 · Full fine-tuning](04_full_fine_tuning.ipynb) ·
# Next: [6 · QLoRA](06_qlora.ipynb)
