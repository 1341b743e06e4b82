# %% [markdown] slideshow={"slide_type": "slide"}
# # 8 · The PEFT family
#
# *Which of the many methods differ from LoRA at all, and when is another one the better choice?*
#
# Your LoRA from lesson 5 works. But the library peft offers dozens of other methods of [parameter-efficient
# fine-tuning](glossary.md#peft), and many of them were published with a table in which they beat LoRA. So you have to
# decide whether to spend days on trying them. This lesson begins with that decision and the evidence for it. Then it
# shows how the methods work, because their equations tell you what each can save, and how to run another one safely.
#
# **You will be able to**
#
# - decide by a paired difference whether a method differs from LoRA, and choose one for a job;
# - recognise nine methods by their equations, apply BitFit by hand, and say why training 0.08% of a model still costs
#   over two thirds of the arithmetic;
# - swap the method by one peft configuration, and check in seconds that it does what you meant.
#
# **You need** [lesson 5](05_lora.ipynb) and [lesson 7](07_freezing.ipynb), which takes the backward pass apart.
#
# About 31 minutes.

# %% slideshow={"slide_type": "subslide"}
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from peft import IA3Config, LoraConfig, PrefixTuningConfig, get_peft_model
from scipy import stats
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl
from course.lesson08 import pictures

tl.setup()
rust = tl.load_corpus("rust")
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
train_rows = tl.pack(rust.train[:60], tokenizer, 128)[:24]  # token ids, 128 in a row
validation = tl.pack(rust.validation, tokenizer, 128)[:8]


def new_model():
    options = {"dtype": torch.float32, "attn_implementation": "eager"}
    return AutoModelForCausalLM.from_pretrained(tl.BUNDLED, **options)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## The decision first
#
# Here is the advice, in the form in which you can use it. You do not need to know the other methods yet: the rest of
# the lesson explains them, and shows why LoRA is in the first line.
#
# | your situation | method |
# | --- | --- |
# | nothing special | LoRA on all linear layers, with its learning rate tuned |
# | the frozen weights do not fit | QLoRA, as in [lesson 6](06_qlora.ipynb) |
# | $\alpha$ is fixed and the rank is high, so $\alpha / r$ has become small | rsLoRA, by `use_rslora=True` |
# | LoRA is tuned, and you have time for one more run | DoRA, by `use_dora=True`: expect no large change |
# | thousands of adapters to store | IA3, or VeRA (`save_projection=False`), if you accept what they lose |
# | the server takes no adapters, only input vectors | prompt tuning, on a large model and with many steps |

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The evidence
#
# One short run of each method ranks nothing. For the record, fourteen methods were trained on 200 texts about Rust with
# three seeds each, and scored on the same 40 test documents. (Prompt and prefix tuning read windows of 240 tokens of
# the bundled model instead of 256, because their vectors take up the rest.) This was done with the bundled model and with
# SmolLM2-135M. Each method had a learning rate of its own, the best of a search, because a shared rate favours
# whichever method it happens to suit.
#
# As in lesson 5, we subtract LoRA's loss document by document and average. How far could chance move this average?
# There are two sources of chance, and each has a [standard error](glossary.md#standard-error):
#
# - **Documents.** With 40 other documents the average would be another. The spread of the 40 differences says by how
#   much, as in lesson 5.
# - **Seeds.** With other seeds each method would end elsewhere. The spread of its three scores says by how much. (Three
#   scores say little, so the function below averages their variance over all methods.)
#
# The two are independent, so the squares of their errors add up:
#
# $$\text{mean difference} \pm t\, \sqrt{e_{\text{documents}}^2 + e_{\text{seeds}}^2}$$

# %% [markdown] slideshow={"slide_type": "subslide"}
# The factor $t$ would be about 2 for a single comparison. But among 13 comparisons chance alone would easily make one
# look different. So each interval is computed at a level of $1 - 0.05/13$ instead of $0.95$, which makes it wider and
# is called [Bonferroni's correction](glossary.md#bonferroni-correction). (For SmolLM2 there are 12 comparisons, as
# BitFit is missing.) Then all intervals of one model cover the true differences together in at least 95% of
# such studies.
#
# **How many of the 13 methods will be better than LoRA? And will the two models agree?**


# %%
def beside_lora(record):
    """Perplexity above LoRA's in percent, with simultaneous 95% intervals."""
    record["loss"] = record.nats / record.tokens
    losses = record.pivot_table("loss", "document", ["strategy", "seed"])
    losses = losses[[name for name in methods if name in losses]]
    by_document = losses.T.groupby("strategy").mean().T  # the mean of three seeds
    apart = by_document.drop(columns="lora").sub(by_document["lora"], axis=0)
    scores = losses.mean().unstack()  # rows: methods, columns: seeds
    scores -= scores.mean()  # without what a seed does to all methods
    others = len(scores) - 1
    variance = scores.var(axis=1).sum() / others  # one mean was subtracted
    e_seeds = (2 * variance / 3) ** 0.5  # of the difference of two means of three
    t = stats.t.ppf(1 - 0.05 / others / 2, 2 * others)
    half = t * np.hypot(apart.sem(), e_seeds)
    mean = apart.mean()
    ends = {"difference": mean, "low": mean - half, "high": mean + half}
    return 100 * np.expm1(pd.DataFrame(ends))


# %% [markdown] slideshow={"slide_type": "subslide"}
# The record of the bundled model is one file, with one row for each document, method and seed. That of SmolLM2 is two.

# %%
methods = "lora qlora dora rslora pissa lora_plus lora_fa oft vera ia3 ln_tuning bitfit"
methods = [*methods.split(), "prefix_tuning", "prompt_tuning"]
files = {"bundled model": ["tiny/all"]}
files["SmolLM2-135M"] = ["smollm2-135m-instruct", "smollm2-135m-instruct/peft"]
beside = {}
for name, folders in files.items():
    parts = [tl.DATA / "comparisons" / part / "documents.csv" for part in folders]
    beside[name] = beside_lora(pd.concat(pd.read_csv(p, comment="#") for p in parts))
both = pd.concat(beside, axis=1).sort_values(("bundled model", "difference"))

# %% slideshow={"slide_type": "subslide"}
counts = tl.recorded_comparison("tiny", "all").table.set_index("strategy")
counts = counts.trainable_values[both.index]
figure, axes = plt.subplots(figsize=(8, 5.6), layout="constrained")
for shift, (name, table) in zip((-0.15, 0.15), beside.items(), strict=True):
    table = table.reindex(both.index)
    reach = [table.difference - table.low, table.high - table.difference]
    height = np.arange(13) + shift  # the two models, one a little below the other
    axes.errorbar(table.difference, height, xerr=reach, fmt="o", capsize=3, label=name)
axes.set_yticks(range(13), [f"{name}  {count:,}" for name, count in counts.items()])
axes.axvline(0, color="black", linewidth=1)
axes.invert_yaxis()
axes.legend(frameon=False)
axes.set_xlabel("perplexity above LoRA's (%), with 95% intervals")
axes.set_title("No method beats LoRA on either model; six are worse on both")
plt.show()

# %%
low, high = (both.xs(end, axis=1, level=1) for end in ("low", "high"))
better = (high < 0).any(axis=None)
course.claim("No method is better than LoRA on either model", not better)
both.loc[["dora", "rslora", "pissa", "lora_plus", "oft", "qlora"]].round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Beside each method stands how many parameters it trains in the bundled model; LoRA trains 221,184. (SmolLM2 is a Llama
# and has no biases, so BitFit is missing there.)
#
# - **Worse on both models** are six methods: LoRA-FA, VeRA, IA3, LN tuning, prefix and prompt tuning. All of them train
#   about half as many parameters as LoRA, or fewer. Prompts and prefixes help least.
# - **Not told apart from LoRA** on either model are DoRA, rsLoRA and PiSSA, as their intervals contain zero. That does
#   not make them equal: on SmolLM2 DoRA may be up to 3.6% better or 3.1% worse.
# - **Worse on one model only** are LoRA+, OFT and BitFit (bundled) and QLoRA (SmolLM2, whose file had been rounded to 4
#   bits before, see [lesson 6](06_qlora.ipynb)).
#
# All runs were short, one pass over 200 texts. On the bundled model LoRA's search was finer than most, with rates a
# factor 2 apart instead of about 3, so a small difference in LoRA's favour, such as LoRA+'s 4%, may come from the
# search.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Nine methods on one page
#
# How do the methods work? Each panel shows what one of them changes, in a linear layer or at the input of attention,
# and its equation.

# %%
pictures.family_picture()

# %% [markdown] slideshow={"slide_type": "subslide"}
# A linear layer computes $h = W x + b$ from an input $x$ of shape (in), with the weight matrix $W$ of shape (out, in)
# and the *bias vector* $b$ of shape (out). The rank is $r$, so $A$ has shape (r, in), $B$ (out, r) and VeRA's $d$ (r);
# $m$, $e$ and $\ell$ have shape (out). OFT's $R$ rotates small groups of inputs, each by its own rotation. LN tuning
# trains the scales $\gamma$ of the norms. The sign $\odot$ multiplies element by element. Prompt tuning puts $k$
# vectors $p_i$ before the embedded text, and prefix tuning puts vectors $P_K$ and $P_V$ before the keys and values of
# attention.
#
# Two differences matter in use:
#
# - **Start.** The first seven start exactly as the base model, because $B = 0$, $e = 0$, $\ell = 1$, $R$ is the
#   identity, or the parameters were there before. Prompt and prefix tuning do not: text attends to
#   their vectors from the first step on.
# - **Merging.** A method that changes $W$, $b$ or $\gamma$ can be merged into the model and then costs nothing in use.
#   Prompt and prefix vectors cannot, and they take up a part of the context.

# %% [markdown] slideshow={"slide_type": "subslide"}
# Five names of the chart have no panel: QLoRA, and four that keep LoRA's equation. rsLoRA replaces the factor $\alpha / r$ by
# $\alpha / \sqrt r$. PiSSA starts $A$ and $B$ from the largest singular values of $W$ and subtracts their product from
# $W$, so nothing changes at first. LoRA+ gives $B$ a higher learning rate, and LoRA-FA leaves $A$ as it was drawn.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## BitFit by hand
#
# [BitFit](glossary.md#bitfit) is the smallest method on the page: freeze everything but the biases. Our model is a
# small Qwen2, in which only the layers for queries, keys and values have one. (A Llama has no bias at all, and most of
# today's large models have few or none, so BitFit is a method for a few models.)

# %%
model = new_model()
for name, parameter in model.named_parameters():
    parameter.requires_grad_(name.endswith(".bias"))
biases = sum(p.numel() for p in model.parameters() if p.requires_grad)
print(f"trained: {biases:,} of {sum(p.numel() for p in model.parameters()):,}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **BitFit trains 0.08% of the parameters. What share of full fine-tuning's arithmetic does a step still need?** We let
# torch count the floating-point operations ([FLOPs](glossary.md#flop)), as in lesson 7.


# %%
def flops(model):
    with FlopCounterMode(display=False) as counter:
        model(input_ids=train_rows[:2], labels=train_rows[:2]).loss.backward()
    model.zero_grad()
    return counter.get_total_flops()


all_flops = flops(new_model())
share = flops(model) / all_flops
print(f"BitFit needs {share:.0%} of the arithmetic of full fine-tuning")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Why so much? Call $g = \partial L / \partial h$ the gradient that arrives at a layer's output. The gradient of the
# bias is the sum of $g$ over all tokens, without one multiplication. But $g$ has to arrive first. The forward pass runs
# through the whole model, and backpropagation carries the gradient down through every layer as $\partial L / \partial x
# = W^\top g$, which is a matrix product again. Only the gradients of the weights are saved, a third of the arithmetic
# in the linear layers. (Attention multiplies no weights, so it saves nothing. This is why 69% are left and not 67%.)
#
# So the cost of a step depends on *how far down* the lowest trained parameter is, and hardly on how many there are.
# Every method on the page trains something in or before the first block, so its step costs about two thirds of a full
# one, and the products of the method itself come on top.
#
# A small method saves other things: memory, because only trained parameters have gradients and AdamW's averages, and
# disk space, because BitFit's 3,072 parameters of 4 bytes fit into a file of 12 kB.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Swap the method, and check two numbers
#
# In peft every method is one configuration object, so the code around it stays as it is. `fit` makes six steps of AdamW
# on whatever can be trained, and `perplexity` scores validation text.


# %%
def fit(model, rate):
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.0)
    for batch in train_rows.split(4):
        model(input_ids=batch, labels=batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()


@torch.no_grad()
def perplexity(model):
    return model(input_ids=validation, labels=validation).loss.exp().item()


# %% [markdown] slideshow={"slide_type": "subslide"}
# `try_out` makes a row of a table: it wraps a new model, counts what is trained and what a step costs, and scores the
# model before and after training. With your own `new_model` and texts it serves any model. Each rate is the best one of
# a recorded search for that method; BitFit's is 50 times that of full fine-tuning.


# %%
def try_out(config, rate):
    torch.manual_seed(0)
    adapted = get_peft_model(new_model(), config)
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    row = [trained, 100 * flops(adapted) / all_flops, perplexity(adapted)]
    fit(adapted, rate)
    return [*row, perplexity(adapted)]


before = perplexity(model)
fit(model, rate=0.05)
columns = ["trained", "arithmetic, % of full", "untrained", "after 6 steps"]
causal = {"task_type": "CAUSAL_LM"}
lora = causal | {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"}
rows = {"BitFit, by hand": [biases, 100 * share, before, perplexity(model)]}
rows["LoRA"] = try_out(LoraConfig(**lora), 0.01)
rows["IA3"] = try_out(IA3Config(**causal), 0.1)
live = pd.DataFrame(rows, index=columns).T

# %% tags=["nbval-ignore-output"]
live.round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# All three learn. LoRA trains 72 times as many parameters as BitFit, but its step needs only a little more arithmetic.
#
# Two columns tell you within seconds, before any training, whether a configuration does what you meant: the number of
# trained parameters, and the untrained perplexity, which has to be that of the base model where a method starts as the
# base model.
#
# **The first check.** The next configuration is LoRA's, but names no layers. **In how many of the 56 linear layers will
# peft put an adapter?** Run the cell. Then swap the method: put `LoraConfig(use_rslora=True, **lora), 0.003` behind the
# equals sign. You should see the LoRA row again in the first two columns.

# %% tags=["nbval-ignore-output"]
config, rate = LoraConfig(r=8, lora_alpha=16, **causal), 0.01
yours = pd.DataFrame({"yours": try_out(config, rate)}, index=columns).T
yours.round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# For a Qwen2 peft's default is `q_proj` and `v_proj`, so only 16 of the 56 layers get an adapter: 43,008 parameters
# instead of 221,184. peft says nothing about it. So two people who both report "LoRA, $r = 8$" may have trained
# different things, and the layers belong in the report.
#
# **The second check** is the untrained perplexity. **Does it matter where a prefix starts?**

# %%
vectors = causal | {"num_virtual_tokens": 16}
starts = {
    "prefix, peft's default": PrefixTuningConfig(**vectors),
    "prefix, zeros": PrefixTuningConfig(init_weights="zero", **vectors),
}
untrained = {}
for name, config in starts.items():
    torch.manual_seed(0)
    untrained[name] = perplexity(get_peft_model(new_model(), config))
    print(f"{name}: {untrained[name]:.0f}, base model: {before:.0f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It does. By default peft draws the prefix at random, and these keys pull attention away from the text, so the model
# begins far worse than it was. With zeros it begins close to the base model, but not equal to it:
# a key of zeros still takes a share of the attention, and its value of zeros adds nothing. Prompt tuning has a similar
# option: peft's default is random vectors, and `prompt_tuning_init="SAMPLE_VOCAB"` takes the embeddings of random
# tokens. The record above used zeros for prefixes and `SAMPLE_VOCAB` for prompts. Both are choices of this course, and
# neither is peft's default.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - With a tuned rate for each, no method was better than LoRA on either model, and those with far fewer parameters were
#   worse. Tune LoRA before you change the method.
# - The lowest trained parameter decides how much arithmetic a step costs. The number of trained parameters decides the
#   memory for gradients and AdamW's averages, and mostly the size of the file.
# - In peft a method is one configuration. Look at the number of parameters that it trains and at the untrained
#   perplexity before you train.
#
# ## Further reading
#
# - Ben Zaken et al. 2022, [BitFit](https://arxiv.org/abs/2106.10199); Liu et al. 2022,
#   [IA3](https://arxiv.org/abs/2205.05638)
# - Liu et al. 2024, [DoRA](https://arxiv.org/abs/2402.09353); Kopiczko et al. 2023,
#   [VeRA](https://arxiv.org/abs/2310.11454)
# - Lester et al. 2021, [The Power of Scale for Parameter-Efficient Prompt Tuning](https://arxiv.org/abs/2104.08691)
# - Lee et al. 2026, [Learning Rate Matters: Vanilla LoRA May Suffice for LLM
#   Fine-tuning](https://arxiv.org/abs/2602.04998), nine variants with tuned rates

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
# **Quiz.** BitFit trains 0.08% of the bundled model and still needs 69% of full fine-tuning's arithmetic. What brings
# it down to about 43%?
#
# - **a** Train the bias vectors of the last block only.
# - **b** Train the bias vectors of the queries only, in every block.
# - **c** Use LoRA of rank 1 instead.
# - **d** Nothing: forward pass and backpropagation always run through the whole network.

# %%
course.quiz("quiz08")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 8.1.** Write the two checks of this lesson as a function that you can call before every training. `base` is
# a model of transformers, `adapted` the same model wrapped by peft, and `tokens` are token ids of shape (rows, length).
# Return two numbers: how many parameters of `adapted` are trained, and how far the largest change of a single logit
# goes, up or down, from `base` to `adapted`. For a method that starts as the base model the second number has to be 0.
# Both models are in evaluation mode already.

# %%
import torch


def audit(base, adapted, tokens):
    """The number of trained parameters, and the largest absolute change of a logit."""
    # your code here


course.check("ex08_1", audit)

# %% [markdown]
# Previous: [7 · Freezing](07_freezing.ipynb) ·
# Next: [9 · Anatomy of a training step](09_memory.ipynb)
