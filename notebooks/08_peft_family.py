# %% [markdown] slideshow={"slide_type": "slide"}
# # 8 · The PEFT family
#
# *Which of the many methods differ from LoRA at all, and when is another one the better choice?*
#
# The library peft offers dozens of methods of [parameter-efficient fine-tuning](glossary.md#peft), and many were
# published with a table in which they beat LoRA. Nobody can try them all. You will build the smallest one by hand, run
# three others by peft, and see in a recorded comparison how few of them are worth a second thought.
#
# **You will be able to**
#
# - apply BitFit in three lines of torch, and say why training 0.08% of a model still costs two thirds of the arithmetic;
# - recognise nine methods by their equations, and run any of them with a peft configuration;
# - decide by a paired difference whether a method really differs from LoRA, and choose one for a job.
#
# **You need** [lesson 5](05_lora.ipynb) and [lesson 7](07_freezing.ipynb), which takes the backward pass apart.
#
# About 29 minutes.

# %% slideshow={"slide_type": "subslide"}
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from peft import IA3Config, PrefixTuningConfig, VeraConfig, get_peft_model
from scipy.stats import t as student
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers import LlamaConfig, LlamaForCausalLM

import course
import tlkit as tl
from course.lesson08 import pictures

profile = tl.setup()
rust = tl.load_corpus("rust")
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
blocks = tl.pack(rust.train[:60], tokenizer, 128)  # token ids, shape (blocks, 128)
validation = tl.pack(rust.validation, tokenizer, 128)[:16]


def load():
    return AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## BitFit by hand
#
# A linear layer computes $h = W x + b$. Here $x$ is its input of shape (in), $W$ the weight matrix of shape (out, in)
# and $b$ the *bias vector* of shape (out). [BitFit](glossary.md#bitfit) freezes everything but the biases. Our model
# is a small Qwen2, in which only the layers for queries, keys and values have one.

# %%
model = load()
for name, parameter in model.named_parameters():
    parameter.requires_grad_(name.endswith(".bias"))
trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
print(f"trained: {trained:,} of {sum(p.numel() for p in model.parameters()):,}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Two functions serve every method of this lesson: twelve steps of AdamW on whatever can be trained, and the perplexity
# of validation text.


# %%
def fit(model, rate, steps=12):
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.0)
    for batch in blocks[: 4 * steps].split(4):
        model(input_ids=batch, labels=batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()


@torch.no_grad()
def perplexity(model):  # all blocks are equally long, so the mean of means is right
    losses = [model(input_ids=b, labels=b).loss for b in validation.split(8)]
    return torch.stack(losses).mean().exp().item()


before = perplexity(model)
fit(model, rate=0.05)
after_bitfit = perplexity(model)

# %% tags=["nbval-ignore-output"]
print(f"before: {before:.0f}, after BitFit: {after_bitfit:.0f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The biases learn, at a rate 50 times that of full fine-tuning, because so few parameters have to move far.
#
# **BitFit trains 0.08% of the parameters. What share of full fine-tuning's arithmetic does a step still need?** Torch
# counts the floating-point operations of matrix products for us.


# %% tags=["nbval-ignore-output"]
def flops(model):
    with FlopCounterMode(display=False) as counter:
        model(input_ids=blocks[:2], labels=blocks[:2]).loss.backward()
    return counter.get_total_flops()


share = flops(model) / flops(load())
print(f"BitFit needs {share:.0%} of the arithmetic of full fine-tuning")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Call $g = \partial L / \partial h$ the gradient that arrives at a layer's output. The gradient of the bias is the sum
# of $g$ over all tokens, without one multiplication. But $g$ has to arrive first: the forward pass runs through the
# whole model, and backpropagation carries the gradient down through every layer as $\partial L / \partial x = W^\top
# g$, which is a matrix product again. Only a third of the step is saved, the gradients of the weights.
#
# So the cost of a step depends on *how far down* the lowest trained parameter is, and hardly on how many there are.
# Every method below trains something in or before the first block, so it costs at least two thirds, and its own products on top. These methods save
# memory for gradients and moments, and disk: BitFit's parameters fit into 12 kB.

# %%
with torch.device("meta"):  # shapes only: seven billion parameters without their memory
    llama = LlamaForCausalLM(LlamaConfig())
print("biases in a Llama:", sum("bias" in name for name, _ in llama.named_parameters()))

# %% [markdown] slideshow={"slide_type": "subslide"}
# A Llama has no bias at all, and most of today's large models have few or none. The three lines would train nothing there, and AdamW
# would complain of an empty parameter list. So BitFit is a method for a few models.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Nine methods on one page

# %%
pictures.family_picture()

# %% [markdown] slideshow={"slide_type": "subslide"}
# The rank is $r$, so $A$ has shape (r, in), $B$ (out, r) and VeRA's $d$ (r); $m$, $e$ and $\ell$ have shape (out). OFT's
# $R$ consists of small rotation matrices along the diagonal. The sign $\odot$ multiplies element by element, and $k$ is
# the number of vectors before the text. Three differences matter in use:
#
# - **Where training begins.** The first seven start exactly as the base model, with $B = 0$, $e = 0$, $\ell = 1$, $R$
#   the identity, or parameters that were there. Prompt and prefix tuning do not: their vectors take a share of the
#   attention from the first step on.
# - **Merging.** Whatever changes $W$, $b$ or $\gamma$ can be merged into the model and then costs nothing in use. Prompt
#   and prefix vectors cannot, and they take up a part of the context.
# - **Variants.** rsLoRA, PiSSA, LoRA+ and LoRA-FA keep LoRA's equation. They change its factor ($\alpha / \sqrt r$), its
#   start (the largest singular values of $W$), the rate of $B$, and whether $A$ is trained.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Run them by peft
#
# Every method is one configuration, so changing the method changes one line. The rates are the best ones of a recorded
# search for each method. IA3 gets no `target_modules` here, so peft looks them up for a Qwen2: `q_proj`, `v_proj`, and
# `down_proj`, whose inputs are multiplied instead of its outputs.
#
# **Prefix tuning appears twice, untrained. Does it matter where its vectors start?**

# %%
causal = {"task_type": "CAUSAL_LM"}
vectors = causal | {"num_virtual_tokens": 16}
tries = {
    "IA3": (IA3Config(**causal), 0.1),
    "VeRA": (VeraConfig(r=64, target_modules="all-linear", **causal), 0.1),
    "prefix, peft's default": (PrefixTuningConfig(**vectors), None),
    "prefix, zeros": (PrefixTuningConfig(init_weights="zero", **vectors), 0.1),
}
rows = {"BitFit": (trained, before, after_bitfit)}
for name, (config, rate) in tries.items():
    torch.manual_seed(0)
    adapted = get_peft_model(load(), config)
    count = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    start = perplexity(adapted)
    if rate:
        fit(adapted, rate)
    rows[name] = (count, start, perplexity(adapted) if rate else np.nan)
live = pd.DataFrame(rows, index=["trained", "untrained", "after 12 steps"]).T

# %% tags=["nbval-ignore-output"]
live.style.format("{:,.0f}", na_rep="")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It does. peft draws the prefix at random, and these keys pull attention away from the text, so the model begins much
# worse than it was. With zeros (`init_weights="zero"`) it begins close to the base model. Prompt tuning has a similar
# choice: peft's default is random vectors, and `prompt_tuning_init="SAMPLE_VOCAB"` takes the embeddings of random
# tokens. The records below use zeros for prefixes and `SAMPLE_VOCAB` for prompts, and neither is peft's default.
#
# Always look at two numbers of a new method: how many parameters it trains, and the untrained perplexity. They show
# within seconds whether a configuration does what you meant.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Which of them differ from LoRA at all?
#
# One short run of each method ranks nothing. For the record, fourteen methods were trained on 200 texts about Rust with
# three seeds each, and scored on the same 40 test documents. Each had a learning rate of its own, the best of a search,
# because a shared rate favours whichever method it happens to suit.
#
# For each method we take the difference to LoRA in nats per token, document by document and seed by seed. Two things
# make it uncertain, the choice of documents and the seeds. Each has a standard error $s$, and Student's $t$ accounts for
# how few values it comes from. The two half-widths add as squares:
#
# $$\text{difference} \pm \sqrt{(t_{39}\, s_{\text{documents}})^2 + (t_{2}\, s_{\text{seeds}})^2}$$
#
# Among 13 comparisons, chance alone would easily make one look different. So each interval leaves out not 5% but 5% /
# 13, which is called Bonferroni's correction.

# %%
record = pd.read_csv(tl.DATA / "comparisons/tiny/all/documents.csv", comment="#")
methods = "qlora dora rslora pissa lora_plus lora_fa oft vera ia3 ln_tuning bitfit"
methods = [*methods.split(), "prefix_tuning", "prompt_tuning"]


def beside_lora(record, methods):
    """Perplexity compared with LoRA's, as a share, with simultaneous 95% intervals."""
    nats = record.pivot(index="document", columns=["strategy", "seed"], values="nats")
    tokens = record.groupby("document").tokens.first()
    level, rows = 1 - 0.05 / len(methods) / 2, {}
    for method in methods:
        apart = nats[method] - nats["lora"]  # (documents, seeds)
        seeds = apart.sum() / tokens.sum()  # nats per token, one number for each seed
        mean, rest = seeds.mean(), apart.mean(axis=1) - seeds.mean() * tokens
        s_documents = np.sqrt(len(rest)) * rest.std() / tokens.sum()
        s_seeds = seeds.std() / np.sqrt(len(seeds))
        t_documents, t_seeds = student.ppf(level, [len(rest) - 1, len(seeds) - 1])
        half = np.hypot(t_documents * s_documents, t_seeds * s_seeds)
        rows[method] = np.expm1([mean, mean - half, mean + half])
    return pd.DataFrame(rows, index=["difference", "low", "high"]).T


beside = beside_lora(record, methods).sort_values("difference")

# %% slideshow={"slide_type": "subslide"}
figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
percent = 100 * beside
reach = [percent.difference - percent.low, percent.high - percent.difference]
axes.errorbar(percent.difference, beside.index, xerr=reach, fmt="o", capsize=3)
axes.axvline(0, color="black", linewidth=1)
axes.invert_yaxis()
axes.set_xlabel("perplexity compared with LoRA (%), 95% intervals for all 13 together")
axes.set_title("Eight methods are worse than LoRA, one is better by 1%", loc="left")
plt.show()

# %%
worse, better = beside.index[beside.low > 0], beside.index[beside.high < 0]
print(f"worse than LoRA: {', '.join(worse)}\nbetter: {', '.join(better)}")
course.claim(
    "Eight methods are worse than LoRA, and only DoRA is better, by less than 3%",
    len(worse) == 8 and list(better) == ["dora"] and beside.low["dora"] > -0.03,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The eight that are worse stand roughly in the order of how many parameters they train, from LoRA-FA (half of LoRA's) to
# BitFit (3,072). Parameters before the text help least: a prefix trains more of them than VeRA and gains far less.
#
# QLoRA, rsLoRA, PiSSA and LoRA+ cannot be told apart from LoRA here. That does not make them equal: with three seeds,
# $t_2$ is 16, so even a difference of 4% can stay undecided. DoRA is ahead by 1.3% (0.1 to 2.4), for 59% more memory.
#
# These are 55 steps of one small model. In the record of SmolLM2-135M on the same texts no method beats LoRA, DoRA
# included, and QLoRA, IA3, LN tuning, prompt and prefix tuning are worse.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Which one when
#
# | your situation | method |
# | --- | --- |
# | nothing special | LoRA on all linear layers, with its learning rate tuned |
# | the frozen weights do not fit | QLoRA, as in [lesson 6](06_qlora.ipynb) |
# | a high rank (64 and more) learns too slowly | rsLoRA, one option of `LoraConfig` |
# | the last percent counts, memory does not | DoRA, after LoRA is tuned |
# | thousands of adapters to store or to serve | VeRA or IA3, if what they lose is acceptable |
# | a model served by others, of which only inputs can be changed | prompt tuning, on a large model and with many steps |

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - The lowest trained parameter decides what a step costs; their number decides memory and disk.
# - Methods differ in where their parameters are: beside a matrix, at its input or output, or before the text. peft makes
#   each of them one configuration, whose starting values are worth a look.
# - With its own learning rate for each, only DoRA was better than LoRA, by 1.3%, and the methods with far fewer
#   parameters were worse. Tune LoRA before you change the method.
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
# **Quiz.** BitFit trains 0.08% of the bundled model and still needs two thirds of full fine-tuning's arithmetic. What
# brings it down to about 43%?
#
# - **a** Train the bias vectors of the last block only.
# - **b** Train the bias vectors of the queries only, in every block.
# - **c** Use LoRA of rank 1 instead.
# - **d** Nothing: forward pass and backpropagation always run through the whole network.

# %%
course.quiz("quiz08")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 8.1** (first steps). Apply BitFit without this workbook's help. Write a function that takes a model of
# transformers, leaves nothing trainable but its bias vectors, and returns how many parameters these have. It has to
# work for any architecture, and for one without bias vectors it returns 0. Do not rely on what was trainable before.


# %%
def train_only_biases(model):
    """Freeze all but the bias vectors; return the number of their parameters."""
    # your code here


course.check("ex08_1", train_only_biases)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 8.2** (apply it). Compute the matrix that DoRA uses in place of W: add the adapter as LoRA does, divide
# each row by its length, and multiply it by its number in `m`. The shapes are `weight` (outputs, inputs), `a` (r,
# inputs), `b` (outputs, r) and `m` (outputs). The adapter counts alpha/r times, as in lesson 5.


# %%
def dora_matrix(weight, a, b, alpha, m):
    """The matrix that DoRA multiplies its input by."""
    # your code here


course.check("ex08_2", dora_matrix)

# %% [markdown]
# Previous: [7 · Freezing](07_freezing.ipynb) ·
# Next: [9 · Anatomy of a training step](09_memory.ipynb)
