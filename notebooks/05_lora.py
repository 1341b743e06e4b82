# %% [markdown] slideshow={"slide_type": "slide"}
# # 5 · LoRA
#
# *Can a small number of new parameters do the work of changing all the old ones?*
#
# LoRA (*low-rank adaptation*) [freezes](glossary.md#freezing) the whole model, puts two thin matrices beside each
# linear layer of its [blocks](glossary.md#block), and trains only these. All pairs together are the model's
# [adapter](glossary.md#adapter). For Llama 2 7B, a file of 13.5 GB in 16 bits, a usual adapter takes 80 MB (40 in 16
# bits).
#
# **You will be able to**
#
# - write a LoRA layer from memory, inject it into a model, and say why one of its matrices starts at zero;
# - set alpha, begin the search for the rate at the right place, and say why a wrong rate makes LoRA look useless;
# - train, save, switch and merge adapters with peft.
#
# **You need** [lesson 4](04_full_fine_tuning.ipynb) for the training loop, and the product of two matrices.
#
# About 38 minutes.

# %% slideshow={"slide_type": "subslide"}
import math
from pathlib import Path
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import pandas as pd
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl
from course.lesson05.pictures import lora_picture

tl.setup()
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
rust = tl.load_corpus("rust").limited(60, 40)
train_rows = tl.pack(rust.train, tokenizer, 128)[:64]  # 64 rows of 128 tokens
held_out = tl.pack(rust.validation, tokenizer, 128)[:20]


def new_model():
    return AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## One layer
#
# A linear layer multiplies its input $x$ by a matrix $W$. Full fine-tuning changes $W$ to $W + \Delta W$, where
# $\Delta W$ is as large as $W$. LoRA writes this change as a product of two thin matrices instead:
#
# $$h = W x + \frac{\alpha}{r}\, B A x$$
#
# | symbol | what it is | shape |
# | --- | --- | --- |
# | $x$, $h$ | input and output of the layer, for one token | (in), (out) |
# | $W$ | pretrained weights, frozen | (out, in) |
# | $A$, $B$ | the two thin matrices, trained | (r, in), (out, r) |
# | $r$ | the [rank](glossary.md#rank), which you choose | one number |
# | $\alpha$ | [alpha](glossary.md#alpha), how strongly the adapter counts, also chosen | one number |
#
# $A$ reduces the input to $r$ numbers, and $B$ makes an output of full length from them. The *rank* of a matrix is the
# smallest number of vectors from which all its rows can be built, as sums of multiples. The rows of $BA$ are built from
# the $r$ rows of $A$, so its rank is at most $r$.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Build it, and put it into the model
#
# In the code each token is a row of `x`, so the formula's $BAx$ becomes $x A^\top B^\top$. $B$ starts at zero, and $A$
# with small random numbers like the weights of any `nn.Linear`. Both stay in fp32, as in peft, because 16 bits would
# round small updates away.


# %%
class LoRALinear(nn.Module):
    def __init__(self, base, r=8, alpha=16):
        super().__init__()
        self.base, self.scaling = base, alpha / r
        self.A = nn.Parameter(base.weight.new_empty(r, base.in_features).float())
        self.B = nn.Parameter(base.weight.new_zeros(base.out_features, r).float())
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))

    def forward(self, x):
        change = self.scaling * (x.to(self.A.dtype) @ self.A.T @ self.B.T)
        return self.base(x) + change.to(x.dtype)


# %% [markdown] slideshow={"slide_type": "subslide"}
# `inject` freezes the model and replaces every linear layer in its blocks by a `LoRALinear`, which keeps the original
# layer as `base`. Embedding, norms and head stay as they are.


# %%
def inject(model, r=8, alpha=16):
    model.requires_grad_(False)
    # list(...) fixes what we walk over, because setattr changes the model on the way.
    for parent in list(model.model.layers.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, LoRALinear(child, r, alpha))
    return model


def lora_layers(model):
    return [part for part in model.modules() if isinstance(part, LoRALinear)]


torch.manual_seed(0)
own = inject(new_model())
count = sum(p.numel() for p in own.parameters() if p.requires_grad)
print(f"{len(lora_layers(own))} layers with {count:,} parameters to train")
layer = own.model.layers[0].mlp.down_proj
lora_picture(layer.base.weight, layer.A, layer.B)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How A and B start
#
# With $B = 0$ the product $BA$ is zero, so the adapted model begins as exactly the pretrained one. But how does a pair
# learn when one of the two is zero? Let $g = \partial L / \partial h$ be the gradient of the loss with respect to the
# layer's output. The chain rule gives
#
# $$\frac{\partial L}{\partial B} = \frac{\alpha}{r}\, g\,(A x)^\top
# \qquad \frac{\partial L}{\partial A} = \frac{\alpha}{r}\, (B^\top g)\, x^\top$$
#
# **Which of the two receives a gradient in step 1, and which in step 2?**

# %% tags=["check-start"]
torch.manual_seed(0)
probe = inject(new_model())
pair = probe.model.layers[0].mlp.down_proj
optimizer = torch.optim.AdamW(probe.parameters(), lr=1e-2)
rows = train_rows[:2]
for step in (1, 2):
    probe(input_ids=rows, labels=rows).loss.backward()
    norm_a, norm_b = pair.A.grad.norm(), pair.B.grad.norm()
    print(f"step {step}: gradient norm {norm_a:.4f} for A, {norm_b:.4f} for B")
    optimizer.step()
    optimizer.zero_grad()

# %% [markdown] slideshow={"slide_type": "subslide"}
# In step 1 only $B$ does, in step 2 both. The gradient of $A$ contains $B$ as a factor, so it is zero until $B$ has
# moved. The gradient of $B$ contains $A$, so if $A$ started at zero as well, the pair could never learn. No error would
# tell you, so look at both norms whenever LoRA does not learn.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Train it
#
# This is the loop of lesson 4 without weight decay, and with a constant rate, so that a short run takes the same first
# steps as a long one. `nats` returns one loss for each held-out row.


# %%
def train(model, rows, rate):
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.0)
    losses = []
    model.train()
    for batch in rows.split(4):
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return torch.tensor(losses)


@torch.no_grad()
def nats(model, rows):
    model.eval()
    return torch.tensor([model(input_ids=x, labels=x).loss for x in rows.split(1)])


# %% [markdown] slideshow={"slide_type": "subslide"}
# In the library peft, `all-linear` means every linear layer except the head. We give it the same $A$ and $B$, and train
# it on the first four of your model's 16 batches. **Will the two losses agree in every step?**

# %%
config = LoraConfig(
    r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"
)
peft_model = get_peft_model(new_model(), config, adapter_name="rust")


def copy_adapter(own, peft_model):
    peft_layers = [part for part in peft_model.modules() if hasattr(part, "lora_A")]
    for source, target in zip(lora_layers(own), peft_layers, strict=True):
        target.lora_A["rust"].weight.data.copy_(source.A)
        target.lora_B["rust"].weight.data.copy_(source.B)


copy_adapter(own, peft_model)
own_losses = train(own, train_rows, rate=1e-2)
peft_losses = train(peft_model, train_rows[:16], rate=1e-2)
gap = (own_losses[:4] - peft_losses).abs().max()
course.claim("In all four shared steps our loss and peft's agree to 1e-5", gap < 1e-5)

before, after = nats(new_model(), held_out), nats(own, held_out)
print(f"perplexity: {before.mean().exp():.0f} before, {after.mean().exp():.0f} after")

# %% [markdown] slideshow={"slide_type": "subslide"}
# They agree, so your class computes what peft's does. Your adapter lowers the perplexity of held-out text from 147 to
# 84. (The rate was chosen on this text, which flatters the 84 a little.)
#
# At work `LoraConfig` and `get_peft_model` replace your class and `inject`. Without `target_modules`, peft would adapt
# only `q_proj` and `v_proj` of a Llama.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How far behind full fine-tuning?
#
# In recorded runs, LoRA and full fine-tuning were trained on the same 200 passages with three seeds, each at the best
# rate of its own search: on our model (`tiny`, searched with shorter runs) and on SmolLM2-135M-Instruct. The column
# `perplexity` is for 40 Rust test documents, and `general` for the Python reference of lesson 4. **How much higher will
# LoRA's perplexity be: 1%, 5% or 20%? And which of the two forgets more?**

# %%
scores = {}
for name in ("tiny", "smollm2-135m-instruct"):
    runs = pd.read_csv(tl.DATA / f"comparisons/{name}/runs.csv", comment="#")
    scores[name] = runs.groupby("strategy")[["perplexity", "general"]].mean()
pd.concat(scores, axis=1).loc[["zero-shot", "full", "lora"]].round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Before rounding, LoRA's perplexity is 19% higher on our model (16% to 22% over documents, see lesson 4) and 5% higher
# on SmolLM2 (2% to 7%). On large models with little text there is often no visible gap (Schulman et al., below).
#
# Full fine-tuning forgets more, but it has also learned more. What if both learn the same? In the search on SmolLM2
# (one seed, validation text), full fine-tuning at a third of its best rate reaches 40 on Rust, as LoRA does at its
# best. On Python (near 22 before) full fine-tuning then has 21 and LoRA 24: here LoRA forgot more. One seed cannot
# settle which method forgets less, but it shows how to ask: at the same Rust perplexity, with several seeds.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Is the change really low-rank?
#
# LoRA assumes that a good change can be written with a low rank. To test that, we train all parameters on the same
# batches, at their own best rate (0.001, lesson 4), and take the change of each matrix apart. The *singular value
# decomposition* (SVD) writes any matrix as a sum of matrices of rank 1, the largest first:
#
# $$\Delta W = s_1u_1v_1^\top + s_2u_2v_2^\top + \dots + s_nu_nv_n^\top,
# \qquad s_1 \ge \dots \ge s_n \ge 0$$
#
# Each $s_i$ is one number, $u_i$ is as long as the output and $v_i$ as the input. The first $r$ terms together are the
# closest matrix of rank $r$ there is. We measure terms in two ways. Their *size*, the sum of their squared entries, is
# the sum of their $s_i^2$. Their *gain* is how much the loss on held-out text falls when `gain` adds only them to the
# pretrained model.

# %%
full = new_model()
train(full, train_rows, rate=1e-3)
svd = {}
for name, weight in new_model().named_parameters():
    if name.endswith("proj.weight"):
        change = full.get_parameter(name) - weight
        svd[name] = torch.linalg.svd(change.detach(), full_matrices=False)


def gain(terms):
    model = new_model()
    for name, (u, s, v) in svd.items():
        model.get_parameter(name).data += (u[:, terms] * s[terms]) @ v[terms]
    return float((before - nats(model, held_out)).mean())


# %% [markdown] slideshow={"slide_type": "subslide"}
# **Which gain more: the first eight terms of each matrix, or all the others?**

# %%
ranks = [1, 8, 64, 192]
size = [sum(float((s[:r] ** 2).sum()) for _, s, _ in svd.values()) for r in ranks]
first = [gain(slice(r)) for r in ranks]  # slice(8) takes the terms before the ninth
others = [gain(slice(r, None)) for r in ranks[:-1]] + [0.0]  # none after the last
of_full = float((before - nats(full, held_out)).mean())
kept = {"size of first": size, "gain of first": first, "gain of others": others}
kept = 100 * pd.DataFrame(kept, ranks) / [size[-1], of_full, of_full]
reached = 100 * float((before - after).mean()) / of_full

# %%
axes = kept.plot(style=["s--", "o-", "^:"], logx=True, legend=False, figsize=(8, 3.8))
for shade, (name, share) in zip(("C0", "C1", "C2"), kept.items(), strict=True):
    axes.text(265, share[192], name, color=shade, va="center")
axes.plot(8, reached, "k*", markersize=16)
axes.text(8, reached + 6, f"gain of your LoRA: {reached:.0f}%", ha="center")
axes.set_xticks(ranks, ranks)
axes.set(xlabel="number of first terms (log scale)", ylabel="% of full fine-tuning")
axes.set_title("The first eight terms are smaller than all the others, and gain more")
plt.show()
kept.rename_axis("first terms").round().T

# %% [markdown] slideshow={"slide_type": "subslide"}
# The first eight: they reach 63% of full fine-tuning's gain, and all the others, with more than twice the size, only
# 54%. Half of a change brings more than half of its gain, so the two exceed 87%, the gain of all terms (the rest is in
# the embeddings and norms).
#
# By its size the change is *not* low-rank, as the first eight terms hold only 29%. But *training* at rank 8 (the star)
# reaches 81% of the gain, because it searches for a good change of that rank, instead of cutting down a full one.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Rank, alpha and rate belong together
#
# In its first step AdamW moves every parameter by about the learning rate $\eta$, however large its gradient is. So
# each entry of $B$, which was zero, becomes $+\eta$ or $-\eta$, while $A$, whose gradient is zero, stays. The change
# $\frac{\alpha}{r}BA$ is then proportional to $\alpha\,\eta$. We take one step with three pairs of alpha and rate: 8
# and 0.02, 16 and 0.01, 32 and 0.01. **Which two pairs give the same loss?**

# %%
first_step = {}
for alpha, rate in ((8, 2e-2), (16, 1e-2), (32, 1e-2)):
    torch.manual_seed(0)
    model = inject(new_model(), alpha=alpha)
    train(model, train_rows[:4], rate)
    first_step[alpha, rate] = float(nats(model, held_out[:4]).mean())
    print(f"alpha {alpha:2}, rate {rate}: loss {first_step[alpha, rate]:.4f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The first two, because only the product of alpha and rate counts. So fix alpha, here at 16, and tune the rate.
#
# With one alpha for all ranks (32 there), the best rate hardly depends on the rank (Schulman et al.). So begin at rank
# 8, and double it only while that lowers the validation loss.
#
# Here are the validation perplexities of the recorded searches. **Do both methods do best at the same rate?**

# %%
for name in ("tiny", "smollm2-135m-instruct"):
    rates = pd.read_csv(tl.DATA / f"sweeps/{name}/rates.csv", comment="#")
    rates = rates.query("strategy in ('full', 'lora') and 9e-5 < learning_rate < 0.03")
    rates = rates.pivot_table("validation_perplexity", "strategy", "learning_rate")
    print(name, rates.round().to_string(na_rep="-"), sep="\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# No: LoRA's best rate is about ten times as high, on our model (0.01 against 0.001), on SmolLM2, and on large models
# (Schulman et al.). At 0.001, the best rate of full fine-tuning on our model, LoRA ends at 118 against 78. At its own
# best rate it reaches 84. So if LoRA looks worse, ask first whether both had the same rate.
#
# The factor carries over, but the rates do not. For seven billion parameters begin near 1e-4. On SmolLM2 LoRA ends at
# 70 at that rate, not at 40.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Save, switch, merge
#
# Only the adapter has to be saved, and one copy of the base model can carry many adapters. We copy yours into a new
# peft model, and train a second one beside it on notes about cooking.

# %%
adapters = get_peft_model(new_model(), config, adapter_name="rust")
copy_adapter(own, adapters)
kitchen = tl.load_corpus("kitchen")
adapters.add_adapter("kitchen", config)
adapters.set_adapter("kitchen")  # the adapter for Rust is frozen now
train(adapters, tl.pack(kitchen.train, tokenizer, 128), rate=1e-2)
folder = mkdtemp()
adapters.save_pretrained(folder)

# %% tags=["check-switch", "nbval-ignore-output"]
shared = PeftModel.from_pretrained(new_model(), f"{folder}/rust", adapter_name="rust")
shared.load_adapter(f"{folder}/kitchen", adapter_name="kitchen")
texts = held_out, tl.pack(kitchen.validation, tokenizer, 128)
table = {}
for name in ("rust", "kitchen"):
    shared.set_adapter(name)
    table[f"adapter {name}"] = [nats(shared, t).mean().exp().item() for t in texts]
with shared.disable_adapter():
    table["no adapter"] = [nats(shared, t).mean().exp().item() for t in texts]
pd.DataFrame(table, index=["Rust text", "cooking text"]).round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each adapter is best on its own subject. But an adapter changes the model for all text: the one for Rust also helps
# with cooking text, and the one for cooking makes Rust text worse.
#
# An adapter makes every layer slower, because it adds two products. After training it can be
# [merged](glossary.md#merging) into the layer: $W_\text{merged} = W + \frac{\alpha}{r}BA$. We merge with peft, and
# compare one matrix with the formula.

# %%
shared.set_adapter("rust")
beside = shared(input_ids=held_out[:2]).logits
shared.merge_and_unload().save_pretrained(f"{folder}/merged")
tokenizer.save_pretrained(f"{folder}/merged")
merged = AutoModelForCausalLM.from_pretrained(f"{folder}/merged")  # peft is not needed
difference = (merged(input_ids=held_out[:2]).logits - beside).abs().max()
course.claim("The merged model gives the same logits to 1e-3", difference < 1e-3)
by_hand = layer.base.weight + layer.scaling * layer.B @ layer.A
by_peft = merged.model.layers[0].mlp.down_proj.weight
torch.testing.assert_close(by_peft, by_hand)

# %%
for file in sorted(Path(folder).rglob("*.safetensors")):
    print(f"{file.relative_to(folder)}: {file.stat().st_size / 1e6:.1f} MB")
start = tokenizer("A closure is", return_tensors="pt")
for model in (new_model(), merged):
    written = model.generate(**start, max_new_tokens=20, repetition_penalty=1.5)
    print(tokenizer.decode(written[0], skip_special_tokens=True))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The pretrained model writes first, then yours, which has learned Rust's words, but not sense.
#
# **What does a larger model learn in this way?** For [lesson 12](12_a_real_task.ipynb), SmolLM2-135M was trained by LoRA
# to read bug reports and to answer with four facts. Here are the recorded answers to one of 96 new reports:

# %%
reports = pd.read_json(tl.DATA / "tickets/test.jsonl", lines=True).set_index("id")
answers = pd.read_csv(tl.DATA / "tickets/runs/answers.csv", index_col="id")
runs = {"before": "untouched", "with LoRA": "lora-285-288-0.001-0-renamed-test"}
print("report:", reports.prompt["w20/x001"])
for name, run in runs.items():
    of_run = answers[answers.run.str.startswith(run)]
    print(f"\n{name}, {of_run.exact.sum()} of {len(of_run)} right:")
    print(of_run.answer["w20/x001"][:104])

# %% [markdown] slideshow={"slide_type": "subslide"}
# It answers with the four facts, all right, as in nearly half of the reports and in none before.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What LoRA saves and what it does not
#
# Each *trained* parameter needs a gradient and AdamW's two averages, together 12 bytes in [fp32](glossary.md#fp32). For
# full fine-tuning of Llama 2 7B that makes 81 GB beside the weights, and for an adapter of rank 8, with 20 million
# parameters, 0.24 GB. The frozen weights and the activations stay.
#
# Time falls less, and on a model as small as ours not at all. A step skips only the gradients of the frozen matrices,
# at most a third of the arithmetic ([lesson 8](08_peft_family.ipynb)), and the adapters' products are extra.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - LoRA freezes $W$ and trains $\frac{\alpha}{r} BA$ beside it. $B$ starts at zero so that nothing changes at first,
#   and $A$ does not, or neither would ever receive a gradient.
# - Full fine-tuning's change is not low-rank by its size, but training at rank 8 reaches most of its gain.
# - Compare what methods forget at equal gain.
# - Fix alpha and tune the rate, beginning at about ten times that of full fine-tuning.
#
# ## Further reading
#
# - Hu et al. 2021, [LoRA: Low-Rank Adaptation of Large Language Models](https://arxiv.org/abs/2106.09685)
# - Biderman et al. 2024, [LoRA Learns Less and Forgets Less](https://arxiv.org/abs/2405.09673)
# - Schulman et al. 2025, [LoRA Without Regret](https://thinkingmachines.ai/blog/lora/), on rates, ranks and layers

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex05_1", 1)`. After
# *Restart Kernel* run the next cell first.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** A friend initialises A *and* B with zeros, to be sure that the adapted model starts as the pretrained one.
# What happens in training?
#
# - **a** Nothing moves: every gradient of A and B is zero, in every step.
# - **b** It trains as usual, because the product B·A is zero at the start either way.
# - **c** A waits for one step and then trains, as it always does.
# - **d** B waits for one step and then trains.

# %%
course.quiz("quiz05")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 5.1.** Merge your own LoRA layers, in any model. Replace each layer of class `kind`, anywhere in `model`,
# by its `base` with the merged weight $W + \frac{\alpha}{r} B A$. Keep its bias and data type, and return the model.
# After `merge(own, LoRALinear)`, `own.save_pretrained` writes a plain model, without peft.

# %%
import torch


def merge(model, kind):
    """Make each LoRA layer of a model one linear layer again."""
    # your code here


course.check("ex05_1", merge)

# %% [markdown]
# Previous: [4 · Full fine-tuning](04_full_fine_tuning.ipynb) ·
# Next: [6 · QLoRA](06_qlora.ipynb)
