# %% [markdown] slideshow={"slide_type": "slide"}
# # 8 · The PEFT family
#
# *Which of the many methods differ from LoRA at all, and when is another one the better choice?*
#
# Your LoRA from lesson 5 works, but the library peft offers dozens of other methods of [parameter-efficient
# fine-tuning](glossary.md#peft), many published with a table in which they beat LoRA. Here you train four methods,
# compare nine in recorded runs, and find out when another than LoRA is right.
#
# **You will be able to**
#
# - sort nine methods by the place of their parameters, and say which of them can be merged into the model;
# - swap the method by one peft configuration, audit it before training, and train, save and merge it;
# - decide by a paired difference, and by what it saves, whether another method is worth changing to.
#
# **You need** [lesson 5](05_lora.ipynb) and [lesson 7](07_freezing.ipynb).
#
# About 31 minutes.

# %% slideshow={"slide_type": "subslide"}
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pandas as pd
import torch
from peft import IA3Config, LoraConfig, PeftModel, PrefixTuningConfig, get_peft_model
from safetensors.torch import save_file
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
    options = {"dtype": torch.float32, "attn_implementation": "eager"}  # to count FLOPs
    return AutoModelForCausalLM.from_pretrained(tl.BUNDLED, **options)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## Nine methods, four places
#
# A linear layer computes $h = W x + b$ from an input $x$ of shape (in), with the weight matrix $W$ of shape (out, in)
# and the *bias vector* $b$ of shape (out). All nine methods freeze $W$ and train something elsewhere. **Which can never
# be [merged](05_lora.ipynb) into the model?**

# %%
pictures.family_picture()

# %% [markdown] slideshow={"slide_type": "subslide"}
# Prompt and prefix tuning can never be merged: they change no weight, and their vectors stand before every text, where
# they take up context. In all there are four places:
#
# | place | methods | starts as the base model? | merging |
# | --- | --- | --- | --- |
# | beside $W$ | LoRA, DoRA, VeRA | yes: $B = 0$, or $e = 0$ | into $W$ |
# | before or after $W$ | IA3, OFT | yes: $\ell = 1$, $R$ the identity | into $W$ |
# | parameters of the model | BitFit, LN tuning | yes: unchanged | not needed |
# | before the text | prompt and prefix tuning | no | impossible |
#
# DoRA scales each row of $W + \frac{\alpha}{r} B A$ to a trained length (in $m$), so it learns direction and length
# separately. VeRA trains two vectors, $d$ ($r$) and $e$ (out), beside random $A$ and $B$.
#
# IA3 multiplies element by element ($\odot$) the outputs of `q_proj` (Llama: `k_proj`) and `v_proj` and the inputs of
# `down_proj`. OFT rotates small groups of inputs, here of 16. LN tuning trains the scales $\gamma$ of all norms (peft's
# default for a Qwen2: one a block).
#
# Four variants change one detail of LoRA:
#
# - **rsLoRA** (`use_rslora=True`) replaces $\alpha / r$, which becomes small at a high rank, by $\alpha / \sqrt r$.
# - **PiSSA** (`init_lora_weights="pissa"`) starts $A$ and $B$ from the largest singular vectors of $W$ (lesson 5) and
#   subtracts their product from $W$, so nothing changes at first.
# - **LoRA+** gives $B$ a higher rate (here 16 times $A$'s).
# - **LoRA-FA** trains only $B$ and leaves $A$ random, so backpropagation does not need $A$'s inputs.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## BitFit by hand: is a step cheaper?
#
# [BitFit](glossary.md#bitfit) is the simplest: freeze everything but the biases. In our model, a small Qwen2, only
# queries, keys and values have biases.
#
# **BitFit trains 0.08% of the parameters. What share of full fine-tuning's arithmetic does a step still need?** We let
# torch count the floating-point operations ([FLOPs](glossary.md#flop)) of a step on one row.

# %%
model = new_model()
for name, parameter in model.named_parameters():
    parameter.requires_grad_(name.endswith(".bias"))
biases = sum(p.numel() for p in model.parameters() if p.requires_grad)
print(f"trained: {biases:,} of {sum(p.numel() for p in model.parameters()):,}")


def flops(model):
    with FlopCounterMode(display=False) as counter:
        model(input_ids=train_rows[:1], labels=train_rows[:1]).loss.backward()
    model.zero_grad()
    return counter.get_total_flops()


all_flops = flops(new_model())
share = flops(model) / all_flops
print(f"BitFit needs {share:.0%} of the arithmetic of full fine-tuning")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It still needs 69%. A step computes three products in each linear layer (lesson 7): the output and the gradients of
# the input and of the weights. BitFit skips only the third. It needs the second throughout, because the gradient must
# come down through the whole model to the biases of block 0.
#
# All nine methods train something in or before block 0, so a step needs about two thirds of full fine-tuning's FLOPs or
# more. They save disk space and usually memory.

# %% [markdown] slideshow={"slide_type": "subslide"}
# `fit` makes six steps of AdamW on whatever is trained, and only that goes into a file.


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


fit(model, rate=0.05)
after = perplexity(model)
folder = Path(mkdtemp())
file = folder / "biases.safetensors"
save_file({name: p for name, p in model.named_parameters() if p.requires_grad}, file)
print(f"perplexity {perplexity(new_model()):.0f} -> {after:.0f}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Swap the method, and audit it
#
# In peft most methods are one configuration. A wrong one may train without any error, so audit it first: count the
# adapted layers and the trained parameters, and find the largest change of any logit, which is 0 if the method starts
# as the base model.


# %%
@torch.no_grad()
def audit(adapted, tokens):
    """Adapted layers, trained parameters, largest change of a logit, perplexity."""
    layers = len(getattr(adapted, "targeted_module_names", ()))  # a prefix has none
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    started = adapted(input_ids=tokens, labels=tokens)
    with adapted.disable_adapter():
        change = started.logits - adapted(input_ids=tokens).logits
    return layers, trained, change.abs().max().item(), started.loss.exp().item()


# %% [markdown] slideshow={"slide_type": "subslide"}
# One LoRA names no layers. The prefixes, of 16 tokens, start from peft's random vectors and from zeros. **How many of
# the 56 linear layers does each LoRA adapt, and does either prefix start as the base model?**

# %% tags=["nbval-ignore-output"]
causal = {"task_type": "CAUSAL_LM"}
lora = causal | {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"}
prefix = causal | {"num_virtual_tokens": 16}
configs = {
    "LoRA": LoraConfig(**lora),
    "LoRA, no layers named": LoraConfig(r=8, lora_alpha=16, **causal),
    "DoRA": LoraConfig(use_dora=True, **lora),
    "IA3": IA3Config(**causal),
    "prefix": PrefixTuningConfig(**prefix),
    "prefix of zeros": PrefixTuningConfig(**prefix, init_weights="zero"),
}


def adapt(name):
    torch.manual_seed(0)
    return get_peft_model(new_model(), configs[name])


audits = {name: audit(adapt(name).eval(), validation) for name in configs}
columns = ["layers", "trained", "change of a logit", "perplexity"]
pd.DataFrame.from_dict(audits, orient="index", columns=columns).round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With `all-linear` LoRA adapts all 56, but only 16 if no layers are named, because peft's default for a Qwen2 is
# `q_proj` and `v_proj`. There is no warning, so two people who report "LoRA, $r = 8$" may have trained different
# things.
#
# Neither prefix starts as the base model. Keys drawn at random, peft's default, pull attention away from the text, and
# the perplexity rises from 120 to 190. Zeros, as in our record, are safer but no guarantee, because a key of zeros has
# score 0, which softmax still turns into attention. Our model's perplexity falls by 2% (7.7 is the largest of four
# million changes), but SmolLM2's rises by about 40%.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Train, save, merge
#
# `try_out` trains a configuration for six steps and adds a row to a table: FLOPs, perplexity on validation text, and
# size of the saved file.


# %%
rows = {"BitFit": [100 * share, after, file.stat().st_size / 1000]}
configs["LoRA, rank 1"] = LoraConfig(**lora | {"r": 1, "lora_alpha": 2})


def try_out(name, rate):
    model = adapt(name)
    fit(model, rate)
    model.save_pretrained(folder / name)
    size = (folder / name / "adapter_model.safetensors").stat().st_size / 1000
    rows[name] = [100 * flops(model) / all_flops, perplexity(model), size]
    return model


# %% [markdown] slideshow={"slide_type": "subslide"}
# Each rate is the best of a recorded search (for rank 1, of 0.01 and 0.02 in runs like this). **LoRA of rank 8 trains
# 72 times as many parameters as BitFit. How much more arithmetic does it need?**

# %% tags=["nbval-ignore-output"]
try_out("LoRA", 0.01)
dora = try_out("DoRA", 0.01)
try_out("LoRA, rank 1", 0.02)
try_out("IA3", 0.1)
columns = ["FLOPs, % of full", "perplexity", "file, kB"]
live = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
live.round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Little: LoRA needs 74%, only 5 points more than BitFit, because the products with the thin $A$ and $B$ are small. If
# the file must be small, compare LoRA of rank 1 (93 with 125 kB) and IA3 (99 with 28 kB).
#
# DoRA takes more memory than LoRA. For the gradient of its row lengths $m$, 14,336 parameters, every layer also keeps
# the outputs $W x$ and $B A x$. For a step's 512 tokens that is $2 \cdot 14{,}336 \cdot 512 \cdot 4$ bytes, or 59 MB,
# as in our record (159 MB against 100). Once merged, DoRA costs nothing in use:

# %%
merged = PeftModel.from_pretrained(new_model(), folder / "DoRA").merge_and_unload()
with torch.no_grad():
    change = merged(input_ids=validation).logits - dora(input_ids=validation).logits
same = change.abs().max() < 1e-3
course.claim("Saved, loaded and merged, DoRA gives the same logits to 1e-3", same)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Which methods differ from LoRA?
#
# Six steps on 24 rows cannot rank the methods. So our record has the nine methods, the four variants and QLoRA, trained
# on 200 Rust texts (about 50 steps, three seeds) on the bundled model and SmolLM2-135M. Each has the best rate of its
# own search, and all are scored on the same 40 test documents.
#
# On the bundled model DoRA's perplexity is 1.3% lower than LoRA's. **Would it also be lower with other documents and
# other seeds?** Four steps answer this:
#
# 1. **Subtract** LoRA's loss document by document, as in [lesson 4](04_full_fine_tuning.ipynb), so what makes a
#    document hard for both cancels. The mean difference is -0.0127 nats.
# 2. **Documents.** With others, the mean typically moves by its [standard error](glossary.md#standard-error), 0.0019.
#    Student's $t$ says how many of these a 95% interval reaches to each side: 2.0 with 40 documents, so 0.0038.
# 3. **Seeds.** Their standard error is only 0.0009, but $t$ is 4.3, because three runs say little about spread. That
#    makes 0.0038, too: three seeds widen the interval as much as 40 documents.
# 4. **Both** are independent, so we add their squares:
#
# $$-0.0127 \pm \sqrt{0.0038^2 + 0.0038^2} = -0.0127 \pm 0.0054$$
#
# So DoRA's perplexity is 0.7% to 1.8% lower. But this holds only if DoRA alone was the question, before we looked.
#
# We ask 13 questions at once (SmolLM2: 12), so by chance at least one interval would often miss its true value.
# [Bonferroni's correction](glossary.md#bonferroni-correction) widens them all so that in at least 95% of studies none
# misses: $t$ rises to about 3 and 16.


# %%
def above_lora(folders):
    """Perplexity above LoRA's in percent, and the ends of its interval."""
    record = pd.concat(course.recorded(f"{folder}/documents") for folder in folders)
    record["loss"] = record.nats / record.tokens
    losses = record.pivot_table("loss", ["document", "seed"], "strategy")
    losses = losses.filter(pictures.METHODS)  # those of them that the record has
    differences = losses.drop(columns="lora").sub(losses["lora"], axis=0)
    squares = 0
    for source in ("document", "seed"):
        means = differences.groupby(source).mean()
        t = stats.t.ppf(1 - 0.025 / differences.shape[1], len(means) - 1)  # corrected
        squares += (t * means.sem()) ** 2  # sem: the standard error
    mean, half = differences.mean(), squares**0.5
    ends = {"difference": mean, "low": mean - half, "high": mean + half}
    return 100 * np.expm1(pd.DataFrame(ends))


# %% [markdown] slideshow={"slide_type": "subslide"}
# **Is DoRA still better than LoRA, and which methods are worse on both models?**

# %%
smollm2 = "smollm2-135m-instruct"
studies = {"bundled model": ["tiny/all"], "SmolLM2-135M": [smollm2, f"{smollm2}/peft"]}
tables = {model: above_lora(folders) for model, folders in studies.items()}
pictures.intervals_chart(tables)

# %%
best = min(table.high.min() for table in tables.values())
course.claim("No method is measurably better than LoRA", best >= 0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With three seeds and 13 questions DoRA's interval includes 0, so its gain may be chance. Worse on both models are IA3,
# LN tuning, prefix and prompt tuning.
#
# On the bundled model, the fewer parameters a method trains, the worse it is: from LoRA-FA (114,688; with plain AdamW)
# over OFT, VeRA (rank 64), IA3 and LN tuning to BitFit and prompt tuning (3,072). Only prefix tuning does not fit in.
# SmolLM2, which has no biases, keeps almost this order, but there LoRA-FA, OFT and VeRA are not measurably worse.
#
# QLoRA is worse on SmolLM2, whose weights had been rounded to 4 bits before ([lesson 6](06_qlora.ipynb)). On neither
# model are DoRA, rsLoRA, PiSSA and LoRA+ measurably better or worse. That does not make them equal: rsLoRA's interval
# on SmolLM2 reaches from -12.5% to +14.4%.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## When is another method right?
#
# No method learns measurably better than LoRA, but one can save something that you lack. **What does each of these five
# save on SmolLM2, and by how much (%, with the ends of the interval) is its perplexity above LoRA's?**

# %%
files = [course.recorded(f"{folder}/comparison") for folder in studies["SmolLM2-135M"]]
five = ["lora", "dora", "qlora", "lora_fa", "ia3"]
saved = pd.concat(files).set_index("strategy").loc[five]
costs = tables["SmolLM2-135M"].reindex(five, fill_value=0)
costs["memory, MB"] = saved.peak_memory_mb
costs["file, MB"] = saved.file_bytes / 1e6
costs.round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# IA3 saves the file, QLoRA and LoRA-FA save memory, and DoRA saves nothing. Each is right in another case:
#
# | your case | method | numbers (SmolLM2) |
# | --- | --- | --- |
# | nothing special | LoRA on all linear layers, rate tuned | perplexity 88 → 42 |
# | adapters for 10,000 users | IA3, if LoRA of rank 1 is too large | 88 → 48, 2.4 GB (rank 1: 12 GB; rank 8: 98) |
# | weights fill the memory | [QLoRA](06_qlora.ipynb) | 25% less memory, perplexity 5% to 10% higher |
# | activations fill it | [checkpointing](10_oom_fallback.ipynb); LoRA-FA | 12% less memory; worse on one model |
# | 1% matters, memory does not | DoRA | 43% more memory (bundled model: 59%, 1.4 times the time) |
# | many [adapters on one server](19_ship_it.ipynb) | LoRA | unless the server's documentation names another |
# | only inputs can change | prompt tuning | for large models, many steps (Lester et al.) |
#
# All this is about learning Rust, not forgetting Python. The search was coarse: rates 2 to 10 times apart, shorter runs
# on the bundled model, one seed on SmolLM2. A finer one may shrink LoRA's lead.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Before you train, look at the adapted layers, the trained parameters and the change of the logits.
# - All nine send the gradient to block 0, so they save at most a third of the arithmetic.
# - No method was measurably better than LoRA, so tune LoRA first. Change the method for what it saves.
#
# ## Further reading
#
# - The methods: [BitFit](https://arxiv.org/abs/2106.10199), [IA3](https://arxiv.org/abs/2205.05638),
#   [DoRA](https://arxiv.org/abs/2402.09353), [VeRA](https://arxiv.org/abs/2310.11454),
#   [OFT](https://arxiv.org/abs/2306.07280), [LN tuning](https://arxiv.org/abs/2312.11420), [prefix
#   tuning](https://arxiv.org/abs/2101.00190), [rsLoRA](https://arxiv.org/abs/2312.03732),
#   [PiSSA](https://arxiv.org/abs/2404.02948), [LoRA+](https://arxiv.org/abs/2402.12354),
#   [LoRA-FA](https://arxiv.org/abs/2308.03303)
# - [Lesson 17](17_leaderboard.ipynb) reads peft's own comparison on a larger model
# - Lester et al. 2021, [The Power of Scale for Parameter-Efficient Prompt Tuning](https://arxiv.org/abs/2104.08691)
# - Lee et al. 2026, [Learning Rate Matters: Vanilla LoRA May Suffice for LLM
#   Fine-tuning](https://arxiv.org/abs/2602.04998)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex08_1", 1)`. After
# *Restart Kernel* run the next cell first.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** BitFit trains 0.08% of the bundled model and still needs 69% of full fine-tuning's arithmetic. What brings
# it down to 42.5%?
#
# - **a** Train the bias vectors of the last block only.
# - **b** Train the bias vectors of the queries only, in every block.
# - **c** Use LoRA of rank 1 instead.
# - **d** Nothing: forward pass and backpropagation always run through the whole network.

# %%
course.quiz("quiz08")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 8.1.** Is another method worth changing to? `lora` and `new` hold two methods' test losses in nats per
# token, with a row for each document and a column for each seed. Changing pays if it lowers the mean loss by more than
# `margin`. Compute the lesson's 95% interval of `new - lora`, uncorrected. Return `"switch"` if changing pays in all of
# it, `"stay"` if it pays nowhere in it, and else `"cannot tell"`.
#
# For `dora` below, a margin of 0 gives `"switch"`, 0.01 (1% of the perplexity) `"cannot tell"`, and 0.02 `"stay"`.

# %%
import pandas as pd
from scipy import stats


def decide(lora, new, margin):
    """Whether to change the method: "switch", "stay" or "cannot tell"."""
    # your code here


record = pd.read_csv(tl.DATA / "comparisons/tiny/all/documents.csv", comment="#")
record["loss"] = record.nats / record.tokens
losses = record.pivot(index=["strategy", "document"], columns="seed", values="loss")
dora = losses.loc["lora"], losses.loc["dora"]
course.check("ex08_1", decide)

# %% [markdown]
# Previous: [7 · Freezing](07_freezing.ipynb) ·
# Next: [9 · Anatomy of a training step](09_memory.ipynb)
