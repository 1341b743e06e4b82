# %% [markdown] slideshow={"slide_type": "slide"}
# # 8 · BitFit and its relatives
#
# *How few numbers can a method train, and what does a training step still cost then?*
#
# LoRA adds new numbers to a frozen model. BitFit adds nothing: it trains the bias vectors that are there already, which
# make up less than one value in a thousand of our model. [Lesson 5](05_lora.ipynb) found that the number of trained
# values does not decide what a step costs, and BitFit is an extreme test of that. The second half shows where other
# methods of *parameter-efficient fine-tuning* ([PEFT](glossary.md#peft)) put their numbers, and compares fourteen of
# them.
#
# **You will be able to**
#
# - say what a bias vector is, and apply BitFit in three lines;
# - explain why a method that trains 0.08% of the values still needs most of the arithmetic;
# - recognise the methods of the PEFT family by their equations and by where they put their numbers;
# - say which of them differ when each has its own learning rate, and how certain that is.
#
# **You need** lesson 5. It helps to have read [lesson 7](21_freeze_lower_layers.ipynb), where the
# backward pass is taken apart.
#
# About 57 minutes.

# %% slideshow={"slide_type": "subslide"}
import numpy as np
import pandas as pd
import torch

import course
import tlkit as tl
from course.lesson05 import pictures as lesson05_pictures
from course.lesson08 import pictures
from tlkit.evidence.statistics import paired_differences

profile = tl.setup()
rust = tl.load_corpus().limited(profile.train_passages, profile.test_passages)
base = tl.load_model("tiny")
blocks = tl.pack(rust.train, base.tokenizer, 128)
bitfit = tl.apply_strategy(tl.load_model("tiny").model, "bitfit")
tl.network_strip(bitfit)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The blue strip at the bottom of each block stands for the few values that are trained there. Everything else is
# frozen, but backpropagation has to pass through all blocks to reach the lowest bias vectors.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A bias vector
#
# A linear layer can do a little more than multiply by a matrix. It can also add a vector to the result, the same for
# every input:
#
# $$h = W x + b$$
#
# Here $x$ is the input with shape (in), $W$ the matrix with shape (out, in), and $b$ the *bias vector* with shape
# (out). Only the product with $W$ depends on the input.
#
# **Predict first.** A layer has 192 inputs and 192 outputs. How many times more numbers are in $W$ than in $b$?

# %%
layer = base.model.model.layers[0].self_attn.q_proj
print("W:", [*layer.weight.shape], "  b:", [*layer.bias.shape])
print("W has", layer.weight.numel() // layer.bias.numel(), "times as many")
with_bias = sorted(
    {name.split(".")[-2] for name, _ in base.model.named_parameters() if "bias" in name}
)
print("layers with a bias:", ", ".join(with_bias))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each number of $b$ belongs to one row of $W$, and a row has 192 numbers. Our model has the architecture of Qwen2, in
# which only the layers that make queries, keys and values have a bias. Queries have 192 outputs. Keys and values have
# 96 each, because two heads of queries share one head of keys and values ([grouped-query
# attention](glossary.md#grouped-query-attention)). In 8 blocks that makes 8 · (192 + 96 + 96) = 3,072 numbers.

# %%
print(bitfit)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## By hand, and with plain transformers
#
# BitFit needs no library of its own. Load the model with transformers, freeze everything but the bias vectors, and give
# the optimizer only these. (`tl.BUNDLED` is the folder of our model.)

# %%
from transformers import AutoModelForCausalLM

plain = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
for name, tensor in plain.named_parameters():
    tensor.requires_grad_(name.endswith(".bias"))

trained = [p for p in plain.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=5e-2, weight_decay=0.0)
losses = []
for _ in range(3):
    loss = plain(input_ids=blocks[:4], labels=blocks[:4]).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())

# %% [markdown] slideshow={"slide_type": "subslide"}
# The same steps with `tl.train`, on a fresh model:

# %% tags=["check-losses"]
three_steps = tl.TrainingConfig(
    learning_rate=5e-2,
    epochs=3,
    batch_size=4,
    warmup_fraction=0,
    schedule="constant",
    weight_decay=0,
)
ours = tl.apply_strategy(tl.load_model("tiny").model, "bitfit").model
history = tl.train(ours, blocks[:4], three_steps).history
apart = max(abs(a - b) for a, b in zip(losses, history.loss, strict=True))


# %% [markdown] slideshow={"slide_type": "slide"}
# ## What a step costs
#
# The gradient of a bias vector is very cheap. Call $g_t = \partial L / \partial h_t$, of shape (out), the gradient of
# the loss $L$ that arrives at the layer's output for token $t$. Then
#
# $$\frac{\partial L}{\partial b} = \sum_t g_t$$
#
# is a sum over tokens, without a single multiplication. The gradient of $W$, which BitFit does not need, would be
# $\sum_t g_t x_t^\top$, of shape (out, in): a full matrix product.
#
# But $g_t$ must first reach the layer. For that, the loss must be computed, which is the whole forward pass. Then
# backpropagation must carry the gradient from the head down to block 0. Through one linear layer it is
#
# $$\frac{\partial L}{\partial x_t} = W^\top g_t$$
#
# of shape (in). This is again one product with $W$ for each token, so backpropagation between the layers takes about as
# many products as the forward pass. It needs $W$, but not $x_t$.
#
# A step of full fine-tuning has three parts of about equal cost: the forward pass, backpropagation between the layers,
# and the gradients of the weights. BitFit needs the first two.
#
# **Predict first.** What share of full fine-tuning's arithmetic is left if only the biases of the *last* block are
# trained? (The head holds a fifth of the model's values and each of the eight blocks a tenth.)


# %%
def arithmetic(model):
    return tl.count_flops(model, blocks[:2])


full = arithmetic(tl.apply_strategy(tl.load_model("tiny").model, "full").model)
all_biases = arithmetic(bitfit.model)
last_only = tl.apply_strategy(tl.load_model("tiny").model, "bitfit").model
for block in last_only.model.layers[:-1]:
    block.requires_grad_(False)
last_biases = arithmetic(last_only)
costs = {
    "forward pass alone": full.forward / full.total,
    "biases of the last block": last_biases.total / full.total,
    "BitFit: all biases": all_biases.total / full.total,
}
lesson05_pictures.shares_chart(
    costs,
    "The biases of all blocks take 70% of the arithmetic, those of the last one 42%",
    "% of the arithmetic of full fine-tuning",
)

# %% tags=["check-above"]
above = costs["biases of the last block"] - costs["forward pass alone"]
block = sum(p.numel() for p in base.model.model.layers[-1].parameters())

# %% [markdown] slideshow={"slide_type": "subslide"}
# With the biases of the last block only, backpropagation passes through the head and a single block and then stops.
# These two hold about three tenths of the model's values, and passing back through all values would cost about a
# third of the step. So they add nearly a tenth of the step, 9 points, to the forward pass. The head causes most of it.
#
# BitFit itself reaches down to block 0, and takes 70%. That is a little more than two thirds, because attention also
# multiplies tokens with tokens. These products have no weights, so BitFit saves nothing there. As long as few values
# are trained, the cost of a step thus follows from *how far down* the lowest of them is, and hardly from how many
# there are.
#
# Besides about 30% of the arithmetic, BitFit saves memory. Gradients and AdamW's averages take 37 kB instead of 48
# MB, and the inputs $x_t$ that are needed only for the gradient of $W$ are not kept. It also saves disk space,
# because its 3,072 numbers fit into a file of 12 kB.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How much BitFit gains
#
# Train the biases on the Rust text, with BitFit's best learning rate from the tuning of
# [lesson 15](15_comparison.ipynb).
#
# **Predict first.** LoRA trains 72 times as many values. What share of LoRA's gain will BitFit achieve?

# %%
before = tl.perplexity(base.model, base.tokenizer, rust.validation)
settings = tl.TrainingConfig(
    learning_rate=tl.default_rates()["bitfit"], epochs=profile.epochs, batch_size=4
)
result = tl.train(bitfit.model, blocks, settings, progress=True)
after = tl.perplexity(bitfit.model, base.tokenizer, rust.validation)

# %% tags=["nbval-ignore-output"]
print(f"before: {before.perplexity:.1f}, after BitFit: {after.perplexity:.1f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# If the training loss above ends no lower than it began, this does not mean that nothing was learned. Its two values
# come from different batches of a single pass. What shows the gain is the same validation text, scored before and
# after.
#
# Compare it with recorded runs of strategies that you know and of BitFit itself, on the same validation text. Each
# has its own best learning rate, and every number is the mean of two seeds.

# %%
tuned = tl.recorded("rates").groupby(["strategy", "learning_rate"])
means = tuned.validation_perplexity.mean()
rates = tl.default_rates()
best = {name: means[name, rates[name]] for name in ("full", "lora", "bitfit")}
for name, perplexity in best.items():
    print(f"{name:7} learning rate {rates[name]:5}: perplexity {perplexity:.0f}")

# %% tags=["check-after"]
gain = {name: before.perplexity - perplexity for name, perplexity in best.items()}
course.claim(
    "BitFit reaches less than half of LoRA's gain",
    0.4 < gain["bitfit"] / gain["lora"] < 0.48,
)
said = [before.perplexity, best["bitfit"], best["lora"]]
nats = torch.tensor(said).log()

# %% [markdown] slideshow={"slide_type": "subslide"}
# BitFit gains about 45% as much as LoRA: 22 points of perplexity against 49. In [nats](glossary.md#nat) per token it is
# 39%, because $(\ln 133.0 - \ln 111.1) / (\ln 133.0 - \ln 84.2) = 0.39$. A smaller gain is plausible, because BitFit
# can only add a constant vector to queries, keys and values. With so few numbers, each has to move far, which may be
# why its best rate, 0.05, is the largest of the three. BitFit's authors found it close to full fine-tuning on
# classification with small and medium-sized training sets. They used BERT, which has a bias in nearly every layer, so
# their result need not carry over to another model and task.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## BitFit on a Llama
#
# **Predict first.** What happens if you apply BitFit to a Llama?

# %%
try:
    tl.apply_strategy(tl.meta_model("tinyllama-1.1b"), "bitfit")
except ValueError as error:
    print(error)

# %%
names = dict(tl.meta_model("tinyllama-1.1b").named_parameters())
course.claim(
    "A Llama has no bias vector at all", not any("bias" in name for name in names)
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# BitFit depends on biases that a model already has, and a Llama has none, so there is nothing to train. The designers
# of Llama left all biases out, and most of today's large models have few or none. The authors of PaLM, for example,
# report that training a large model was more stable without them. On such a model a program should stop with a message
# that names the cause, as here. The plain loop above would stop, too, but AdamW would only say that it got an empty
# parameter list.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The family
#
# The picture shows nine methods. Orange parts are added and trained, blue ones are parts of the model that are trained,
# hatched parts are frozen, and white ones are computed. Each of the methods is a strategy of this workbook, and all but
# BitFit are made by peft. For LN tuning, peft trains a copy of the norms' scales.

# %%
pictures.family_picture()

# %% [markdown] slideshow={"slide_type": "subslide"}
# | method | what the new symbols are | starts as the base model? |
# | --- | --- | --- |
# | LoRA | $A$: (r, in), $B$: (out, r) | yes, $B = 0$ |
# | DoRA | LoRA's, and $m$: (out); $\lVert\cdot\rVert$: (out), the length of each row | yes, $B = 0$ and $m = \lVert W \rVert$ |
# | VeRA | $d$: (r), $e$: (out); all layers use the same random $A$ and $B$, cut to their size | yes, $e = 0$ |
# | IA3 | $\ell$: (out), a factor for each output (at `down_proj`: for each input) | yes, $\ell = 1$ |
# | OFT | $R$: (in, in), rotations of 16 inputs each along the diagonal | yes, $R$ is the identity |
# | BitFit | none; $b$: (out) is there already | yes, nothing is added |
# | LN tuning | $\gamma$: (in), the scales of the norms, copied | yes, the copy is equal |
# | prompt tuning | $p_1 \ldots p_k$: (width) each, before the text | no; they start as the embeddings of random tokens |
# | prefix tuning | $P_K$, $P_V$: (k, size of all key heads), per block | no; $P_K = P_V = 0$, but a key of zero still takes a share of the attention |
#
# Here $r$ is the rank and $k$ the number of vectors in front of the text. The sign $\odot$ means multiplication
# element by element. The picture shows a layer with a bias $b$. In our model, only the layers for queries, keys and
# values have one, so leave $b$ out for the others.

# %% [markdown] slideshow={"slide_type": "subslide"}
# Three rows need an explanation.
#
# - **DoRA** divides each row of $W + \frac{\alpha}{r}BA$ by its length before it multiplies by $m$, so that the length
#   and the direction of a row are learned separately. (The paper says *column*, because it writes the matrix the other
#   way round. There is one length for each output.)
# - **IA3** was published with factors for keys and values, and for the activations inside the MLP, which are the inputs
#   of `down_proj`. For a Qwen2, peft's own list has queries in the place of keys: `q_proj`, `v_proj` and `down_proj`.
# - **Prompt and prefix tuning** leave all layers alone. Their vectors belong to no token, take up a part of the context,
#   and cannot be merged into the weights. All the other adapters can.

# %% [markdown] slideshow={"slide_type": "subslide"}
# Here are five of the equations by hand, for a layer with 6 inputs and 4 outputs. First the new symbols, with the
# values that they have before training. All new terms vanish there, so the check below says nothing about the factors:

# %%
generator = torch.Generator().manual_seed(0)


def drawn(*shape):
    return torch.randn(shape, generator=generator)


W, b, x = drawn(4, 6), drawn(4), drawn(6)  # (out, in), (out), (in)
alpha, r = 4, 2
A, B = drawn(r, 6), torch.zeros(4, r)  # of LoRA and DoRA
moved = W + alpha / r * B @ A  # (out, in)
m, length = W.norm(dim=1), moved.norm(dim=1)  # of DoRA: (out), one for each row
random_B, d, e = drawn(4, r), torch.full((r,), 0.1), torch.zeros(4)  # of VeRA
factors, R = torch.ones(4), torch.eye(6)  # of IA3 and OFT

# %% tags=["check-b"]
by_hand = {
    "LoRA": W @ x + b + alpha / r * B @ (A @ x),
    "DoRA": m * (moved @ x) / length + b,
    "VeRA": W @ x + b + e * (random_B @ (d * (A @ x))),
    "IA3": factors * (W @ x + b),
    "OFT": W @ (R @ x) + b,
}
for name, h in by_hand.items():
    print(f"{name}: shape {[*h.shape]}, first output {h[0]:.4f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Four more methods are LoRA with one change each. Their numbers are in the same place, so the picture of LoRA holds for
# them, too, except that $A$ would be hatched for LoRA-FA. At our rank of 8, rsLoRA's factor is 5.7 instead of 2. Our
# PiSSA has a second change: its $\alpha$ is 8 and not 16, so its factor is 1. All four start as the base model.
#
# | method | what is changed | the idea |
# | --- | --- | --- |
# | rsLoRA | the factor of $BA$ is $\alpha / \sqrt{r}$, not $\alpha / r$ | adapters of a high rank learn as fast as others |
# | PiSSA | $\frac{\alpha}{r} B A$ starts as the best approximation of rank $r$ to $W$, and the frozen matrix is the rest, $W - \frac{\alpha}{r} B A$ | training begins where $W$ does most |
# | LoRA-FA | $A$ stays random, only $B$ is trained | the gradient of $B$ needs only $A x$, so the adapter keeps $r$ numbers for each token and not the layer's input |
# | LoRA+ | $B$ learns 16 times as fast as $A$ | $A$ and $B$ play different roles and need different rates |

# %%
counts = {
    name: tl.apply_strategy(tl.meta_model("tiny"), name).trainable_values
    for name in tl.strategies_named(["peft"])
}
for name, count in sorted(counts.items(), key=lambda item: -item[1]):
    print(f"{name:14} {count:>8,}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Every one of these numbers follows from the tables, the sizes of the layers and a few settings. The rank is 8 for LoRA
# and its variants and 64 for VeRA. Prompt and prefix tuning put 16 vectors in front of the text. A rotation of 16
# inputs in OFT has one angle for each pair of them, which makes 16 · 15 / 2 = 120. IA3 is easy to check: 192 outputs of
# `q_proj`, 96 of `v_proj` and 512 inputs of `down_proj` make 8 · 800 = 6,400. The methods are far apart: DoRA trains 77
# times as many values as prompt tuning. As configured here, each trains something in or before block 0, so
# backpropagation has to pass through all blocks, as with BitFit.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same in plain peft
#
# Most of these strategies are peft's own configuration with its settings spelled out, and nothing else. DoRA, for
# example, is LoRA's configuration with `use_dora=True`. Three do a little more: QLoRA also stores $W$ in 4 bits,
# LoRA-FA freezes $A$, and LoRA+ gives $B$ a learning rate of its own.

# %%
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

plain = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
torch.manual_seed(0)
config = LoraConfig(
    r=8,
    lora_alpha=16,
    target_modules="all-linear",
    use_dora=True,
    task_type="CAUSAL_LM",
)
plain = get_peft_model(plain, config)
trained = [p for p in plain.parameters() if p.requires_grad]
optimizer, losses = torch.optim.AdamW(trained, lr=1e-2, weight_decay=0.01), []
order = torch.randperm(16, generator=torch.Generator().manual_seed(0))
for batch in blocks[order].split(4):
    loss = plain(input_ids=batch, labels=batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())

# %% tags=["check-apart"]
torch.manual_seed(0)
ours = tl.apply_strategy(tl.load_model("tiny").model, "dora")
constant = tl.TrainingConfig(1e-2, batch_size=4, schedule="constant", warmup_fraction=0)
history = tl.train(ours.model, blocks[:16], constant).history
apart = max(abs(a / b - 1) for a, b in zip(losses, history.loss, strict=True))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Which of them differ at all?
#
# Many of LoRA's variants were introduced with a table in which they beat LoRA. According to a study of 2026, the
# settings of many such tables were fixed or hardly tuned, and [lesson 5](05_lora.ipynb) showed what a shared learning
# rate does. The study tuned the rate of LoRA and of nine variants of it separately, on models far larger than ours, and
# found their best results within 1 to 2% of each other.
#
# Here every method was given the same budget: eight learning rates with two seeds each, on validation text, and then
# three new runs at its best rate, scored on test text. The tuning runs have 17 steps and the new runs 55, because
# they read more text, so the best rate for the longer runs may be a different one. The picture shows four of the
# methods, without the rates that gained next to nothing or broke the model. Look for the circle, the best rate of
# each. The lines of DoRA and LoRA-FA end at their circles because the next rate that was tried is above the picture,
# with perplexities of 139 and 177. Validation and test text are different documents, so perplexities on the two should
# not be compared.

# %%
rates = tl.recorded("rates")
swept = ["lora", "dora", "lora_fa", "lora_plus"]
tried = rates[rates.strategy.isin(swept) & (rates.validation_perplexity < 130)]
tl.sweep_chart(tried, "learning_rate", "learning rate (log scale)")  # the best part

# %% tags=["check-above-2"]
best = tl.default_rates()
above = [means[name][means[name].index > best[name]] for name in ("dora", "lora_fa")]

# %% [markdown] slideshow={"slide_type": "subslide"}
# The variants want different rates. The best rate of LoRA-FA is more than 30 times that of LoRA+, and at LoRA's best
# rate LoRA+ breaks down altogether, with a perplexity above 3,000. This is not a weakness of LoRA+: its $B$ learns at
# 16 times the rate that is set. A comparison at one shared rate mostly measures whose best rate happens to be near it.
#
# **Predict first.** The nine methods of the picture, the four variants in the second table and QLoRA are fourteen
# methods, which make 91 pairs. How many of these pairs can be told apart with 40 test documents and three seeds?
#
# Among so many pairs, chance alone would make some look different. So each interval is made wider, or *corrected*: the
# chance of even one false alarm in the whole table is at most 5%. A pair whose corrected interval excludes zero is
# called *separated*. [Lesson 15](15_comparison.ipynb) explains how this is done.

# %%
compared = tl.recorded_comparison("tiny", "all")
family = [*tl.strategies_named(["peft"]), "bitfit"]
table = compared.table.set_index("strategy").loc[family].sort_values("perplexity")
columns = ["trainable_values", "perplexity", "general", "peak_memory_mb"]
start = compared.table.set_index("strategy").loc["zero-shot"]
print(f"before: {start.perplexity:.1f} on Rust, {start.general:.1f} on general text")
table[columns].round({"perplexity": 1, "general": 1, "peak_memory_mb": 0})

# %%
documents = compared.documents[compared.documents.strategy.isin(family)]
pairs = tl.compare_pairs(documents)
tl.pairs_chart(pairs.drop(columns=["low", "high"]))

# %% tags=["check-among"]
like_lora = ["lora", "qlora", "dora", "rslora", "pissa", "lora_plus"]
among = pairs[pairs["first"].isin(like_lora) & pairs["second"].isin(like_lora)]
course.claim(
    "76 of the 91 pairs are separated", (len(pairs), pairs.separated.sum()) == (91, 76)
)

# %%
prompt = [round(float(value), 1) for value in means["prompt_tuning"]]

# %% [markdown] slideshow={"slide_type": "subslide"}
# The answer depends on which methods you ask about. QLoRA, DoRA, rsLoRA, PiSSA and LoRA+ end close to LoRA, between 62
# and 65, and nearly all pairs among these six are undecided. The two that differ are LoRA+ against LoRA and against
# DoRA. This fits the study of 2026, although the highest of our six perplexities is between 5 and 6% above the lowest,
# and the study's differences of 1 to 2% are in accuracy. Part of the spread may come from the search: the neighbouring
# rates differ from the best one by a factor of up to 3.2 for the variants, and of 2 for LoRA and QLoRA, which were
# tuned earlier.
#
# The other methods are clearly apart from LoRA, and mostly in the order of how many values they train: LoRA-FA and OFT,
# then VeRA, then IA3 and LN tuning, then BitFit. LoRA-FA and OFT are not separated from each other, and neither are IA3
# and LN tuning; together with the 13 undecided pairs among the six, these are all 15 pairs that cannot be told apart.

# %% [markdown] slideshow={"slide_type": "subslide"}
# The number of values does not decide alone, though. Prefix tuning trains more values than VeRA and gains far less, and
# prompt tuning trains exactly as many as BitFit and gains least of all. It also hardly changes perplexity on general
# text (36.4, from 36.1). The authors of prompt tuning report that it catches up with full fine-tuning only on models
# with billions of values, and they trained for thousands of steps, while ours has 55.
#
# A finer search would hardly help prompt tuning: in its tuning runs, perplexity is between 127.6 and 128.7 at all four
# rates tried from 0.01 to 1. For prefix tuning, VeRA and IA3 the rate tried above the best one is ten times as large,
# so a better one may lie between the two. Prompt and prefix tuning also take up 16 of the 256 tokens that this model
# can read, so they were scored with windows of 240. This costs little: at the lowest rate that was tried, at which
# hardly anything is learned, prompt tuning scores 134.9 and prefix tuning 131.3 on validation text, against 133.0
# before training.

# %% [markdown] slideshow={"slide_type": "subslide"}
# Perplexity on the new text is not the only thing that matters. The next picture sets it against perplexity on general
# text, the column `general`, and against peak memory. Before training, general text had a perplexity of 36.1, so a
# higher value means that more was forgotten. Each panel has a *[Pareto front](glossary.md#pareto-front)* of its own (the
# dashed line). A method is on it if no other is better in one of the panel's two measures and at least as good in the
# other. The test documents and seeds were drawn anew
# many times, and the share beside a name says in how many of these draws the method is on the front. The three
# triangles without a name on the left are BitFit, PiSSA and, right beside DoRA, LoRA. A place at the upper end of the
# left front is easy to reach, because a method that learns little also forgets little.
#
# DoRA needs the most memory, so it is on the right front only in draws in which its perplexity is the lowest of all.
# That happened in 99% of the draws, and yet DoRA and LoRA were not separated above. The two do not contradict each
# other: the intervals above are corrected for 91 pairs, and these shares are not corrected.

# %%
among_family = compared.runs[compared.runs.strategy.isin(family)]
tl.pareto_of(documents, among_family, ["general", "peak_memory_mb"])

# %%
three = ["rslora", "pissa", "lora_plus"]
course.claim(
    "rsLoRA, PiSSA and LoRA+ forget less than LoRA",
    table.general[three].max() < 0.92 * table.general["lora"],
)
course.claim(
    "DoRA needs more than 1.5 times the memory of LoRA",
    table.peak_memory_mb["dora"] / table.peak_memory_mb["lora"] > 1.5,
)


def general_beside_lora(runs):
    """How much general text differs from LoRA's, run by run: logarithms, intervals."""
    return paired_differences(runs.assign(log=np.log(runs.general)), "lora", "log")


peaks = table.peak_memory_mb[["qlora", "lora_fa", "lora"]]

# %% [markdown] slideshow={"slide_type": "subslide"}
# LoRA and its five nearest variants do differ in other ways. rsLoRA, PiSSA and LoRA+ forgot less than LoRA: general
# text ends between 46.7 and 48.5 with them, and at 54.0 with LoRA. Every run of the three is below every run of LoRA.
# Compared run by run with the same seed, the 95% intervals of the three differences exclude zero, though they are not
# corrected for their number. Their perplexity on Rust is 1.4 to 2.6 points higher (1.4 to 2.5 in the rounded table), so
# this may be the usual trade between gain and forgetting, although only LoRA+ is separated from LoRA there. Their best
# rates are lower (0.00316 for rsLoRA and PiSSA, 0.001 for LoRA+, and 0.01 for LoRA), but that alone does not mean that
# they moved less, because rsLoRA multiplies its adapter by a larger factor and LoRA+ trains $B$ at 16 times the rate.
#
# DoRA needs 59% more memory than LoRA here. For the gradient of $m$, peft keeps two more results of every adapted
# layer, $Wx$ and $BAx$. For the 512 tokens of a batch these are $2 \cdot 512 \cdot 1{,}792$ numbers in each of 8
# blocks, or 59 MB, which accounts for the difference. VeRA needs more memory than LoRA, too, 119 MB, although it trains
# a twelfth as many values: the gradients of $d$ and $e$ need the results that these are multiplied with, among them $B
# (d \odot A x)$ of every adapted layer. So the number of trained values does not decide how much memory a method takes.
#
# For this model, start with LoRA, tune its rate, and change to a variant only for a reason other than a small
# difference in perplexity. Memory can be such a reason: QLoRA needs 89 MB and LoRA-FA 85 MB instead of 100 MB, but
# LoRA-FA ends 7 points of perplexity higher.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - BitFit trains only the bias vectors: 0.08% of our model, and nothing at all in a Llama, which has none.
# - With few trained values, the arithmetic of a step depends on how far down the lowest of them is. With biases in
#   every block, it is about 70% of that of full fine-tuning.
# - The methods of the family differ in where they put their numbers: beside a matrix, in its inputs or outputs, or in
#   front of the text.
# - With a rate of its own for each, LoRA's nearest variants can hardly be told apart, and methods with fewer values gain
#   less. How much less depends on the model, so measure it on yours.
# - Which method forgets more depends on the learning rate as well as on the method.
#
# **Further reading**
#
# - Ben Zaken et al. 2022, [BitFit: Simple Parameter-efficient Fine-tuning for Transformer-based Masked
#   Language-models](https://arxiv.org/abs/2106.10199)
# - Liu et al. 2022, [Few-Shot Parameter-Efficient Fine-Tuning is Better and Cheaper than In-Context
#   Learning](https://arxiv.org/abs/2205.05638), which introduces IA3
# - Liu et al. 2024, [DoRA: Weight-Decomposed Low-Rank Adaptation](https://arxiv.org/abs/2402.09353)
# - Lee et al. 2026, [Learning Rate Matters: Vanilla LoRA May Suffice for LLM
#   Fine-tuning](https://arxiv.org/abs/2602.04998) (version 2), the study of nine variants with tuned rates
# - The other methods: [VeRA](https://arxiv.org/abs/2310.11454), [OFT](https://arxiv.org/abs/2306.07280), [LN
#   tuning](https://arxiv.org/abs/2312.11420), [rsLoRA](https://arxiv.org/abs/2312.03732),
#   [PiSSA](https://arxiv.org/abs/2404.02948), [LoRA-FA](https://arxiv.org/abs/2308.03303) and
#   [LoRA+](https://arxiv.org/abs/2402.12354)
# - Lester et al. 2021, [The Power of Scale for Parameter-Efficient Prompt Tuning](https://arxiv.org/abs/2104.08691)
# - Li and Liang 2021, [Prefix-Tuning: Optimizing Continuous Prompts for Generation](https://arxiv.org/abs/2101.00190)
# - Chowdhery et al. 2022, [PaLM: Scaling Language Modeling with Pathways](https://arxiv.org/abs/2204.02311), section 2,
#   on leaving biases out

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex08_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** BitFit trains 0.08% of the bundled model and still needs 70% of full fine-tuning's multiplications. What
# brings it down to about 42%?
#
# - **a** Train the bias vectors of the last block only.
# - **b** Train the bias vectors of the queries only, in every block.
# - **c** Use LoRA of rank 1 instead.
# - **d** Nothing: forward pass and backpropagation always run through the whole network.

# %%
course.quiz("quiz08")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 8.1** (first steps). Qwen2-0.5B has 24 blocks of width 896. In each block, the queries have 14 heads of 64
# numbers, and the keys and the values have 2 heads of 64 numbers each. How many values does BitFit train in it?

# %%
answer = None
# your code here
course.check("ex08_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 8.2** (apply it). Apply BitFit without this workbook's help. Write a function that takes a model of
# transformers, leaves nothing trainable but its bias vectors, and returns how many values these have. It has to work
# for any architecture, and for one without bias vectors it returns 0. Do not rely on what was trainable before.


# %%
def train_only_biases(model):
    """Freeze all but the bias vectors; return the number of their values."""
    # your code here


course.check("ex08_2", train_only_biases)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 8.3** (think further). Compute the matrix that DoRA uses in the place of W: add the adapter as LoRA does,
# divide each row by its length, and multiply it by its number in `m`. The shapes are `weight` (outputs, inputs), `a`
# (r, inputs), `b` (outputs, r) and `m` (outputs). The adapter counts alpha/r times, as in lesson 5.


# %%
def dora_matrix(weight, a, b, alpha, m):
    """The matrix that DoRA multiplies its input by."""
    # your code here


course.check("ex08_3", dora_matrix)

# %% [markdown]
# Previous: [7 · Train the last layers only](07_freezing.ipynb) ·
# Next: [9 · Anatomy of a training step](09_memory.ipynb)
