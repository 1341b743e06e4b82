# %% [markdown] slideshow={"slide_type": "slide"}
# # 18 · Scaling out
#
# *How can several cards train one model, and what does it cost them to agree?*
#
# When a run takes too long, or a model does not fit on one card (a GPU), several processes share the work, one for each
# card. Here two processes on a laptop do the same.
#
# **You will be able to**
#
# - combine the gradients of several cards, and say when their plain mean is wrong;
# - write a training loop that `accelerate launch` runs with DDP or FSDP, and check it;
# - calculate what each card holds and sends, and choose between DDP, ZeRO, FSDP, tensor and pipeline parallelism.
#
# **You need** the training loop of [lesson 4](04_full_fine_tuning.ipynb), [lesson 5](05_lora.ipynb) (LoRA), [lesson
# 9](09_memory.ipynb) (memory) and [lesson 10](10_oom_fallback.ipynb) (micro-batches).
#
# About 37 minutes.

# %% slideshow={"slide_type": "subslide"}
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl
from course.lesson18.pictures import ring_scheme, zero_scheme

tl.setup()
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
packed = tl.pack(tl.load_corpus("rust").train[:60], tokenizer, 64)
inputs, unseen = packed[:24], packed[24:48]


def new_model(folder=tl.BUNDLED):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## Two cards make one gradient
#
# In *distributed data parallel* training, [DDP](glossary.md#ddp), every card has a copy of the model and takes some
# rows of the batch. After the backward pass the cards combine their gradients, and all make the same update.
#
# The loss is a mean over tokens, so its gradient is a mean as well, computed in parts:
#
# $$g = \frac{1}{T} \sum_{t=1}^{T} \nabla \ell_t = \sum_{k=1}^{n} \frac{T_k}{T}\, g_k$$
#
# Here $\ell_t$ is the loss of token $t$, and $T$ and $T_k$ count the tokens with a label in the batch and on card $k$
# of $n$. Card $k$ computes $g_k$, the gradient of its own mean loss.
#
# DDP takes the plain mean of the $g_k$. This is the mean of means of [lesson 10](10_oom_fallback.ipynb), and equals $g$
# only if all $T_k$ are the same.
#
# One process plays both cards in turn. To imitate short answers, six of every eight rows keep only the labels of their
# first 16 tokens. **How far is the plain mean from the right gradient, compared with its length?**

# %%
labels = inputs.clone()
labels.view(3, 8, 64)[:, 2:, 16:] = -100  # three batches of eight rows


def gradient(model, rows, labels, divisor):
    """The gradient of the summed losses, divided by `divisor`, in one long row."""
    model.zero_grad()
    model(input_ids=rows, labels=labels, num_items_in_batch=divisor).loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def shares(n):  # the rows and the labels of each of n cards, from the first batch
    return list(zip(inputs[:8].chunk(n), labels[:8].chunk(n), strict=True))


# %% tags=["check-shares"]
model = new_model()
tokens = [int((its_labels[:, 1:] != -100).sum()) for _, its_labels in shares(2)]
T = sum(tokens)
whole = gradient(model, inputs[:8], labels[:8], T)
first, second = (gradient(model, *shares(2)[k], tokens[k]) for k in (0, 1))
off = ((first + second) / 2 - whole).norm() / whole.norm()
print(f"tokens with a label: {tokens}, plain mean: off by {off:.0%}")
summed = sum(gradient(model, *share, T) for share in shares(2))
gap = (summed - whole).norm() / whole.norm()
course.claim("Divided by the tokens of the whole batch, the parts add up", gap < 1e-5)

# %% [markdown] slideshow={"slide_type": "subslide"}
# By 54%. The first card has 63 + 63 + 15 + 15 labels, the second 4 × 15, because nothing predicts a first token. In the
# plain mean a token of the second card counts 0.5/60 and one of the first 0.5/156, 2.6 times less.
#
# So divide by the tokens of the *whole* batch, which the cards exchange before the backward pass. Then the parts add
# up.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The ring
#
# A sum over all cards, which every card receives, is called an [all-reduce](glossary.md#all-reduce). In a *ring*, each
# card passes its gradients to its neighbour, one $n$-th at a time.

# %%
ring_scheme(4)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Follow the first column of boxes. In round 1 card 1 sends its part to card 2, which adds its own and sends the sum on,
# until card 4 completes it. After these $n-1$ rounds, the *reduce-scatter*, each card has one finished part.
#
# In the *all-gather*, the finished parts travel on for $n-1$ rounds more, but now each card copies what arrives. So in
# a step each card sends
#
# $$\text{bytes} = \frac{2\,(n - 1)}{n}\, G$$
#
# where $G$ is the size of the gradients. This stays below $2G$. We build the ring for four cards, where the factor is
# 1.5:


# %% tags=["check-ring"]
def ring_all_reduce(gradients):
    n, sent = len(gradients), 0
    parts = [list(each.chunk(n)) for each in gradients]  # parts[card][place]
    for step in range(2 * (n - 1)):
        places = [(card - step) % n for card in range(n)]  # own first, then what came
        moving = [parts[card][places[card]] for card in range(n)]  # all at once
        for card in range(n):
            neighbour, place = parts[(card + 1) % n], places[card]
            if step < n - 1:  # reduce-scatter
                neighbour[place] = neighbour[place] + moving[card]
            else:  # all-gather
                neighbour[place] = moving[card]
            sent += moving[card].nbytes
    return [torch.cat(each) for each in parts], sent / n


sums, sent = ring_all_reduce([gradient(model, *share, T) for share in shares(4)])
print(f"gradients: {whole.nbytes / 1e6:.2f} MB, sent by each card: {sent / 1e6:.2f} MB")
gap = max((each - whole).norm() / whole.norm() for each in sums)
course.claim("Four cards have the whole batch's gradient after the ring", gap < 1e-5)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Who holds what: ZeRO
#
# With DDP, each card holds everything. A parameter takes 16 bytes in fp32, also under [autocast](09_memory.ipynb): 4
# for the weight, 4 for its gradient, 8 for AdamW's two averages. [ZeRO](glossary.md#zero) removes the copies in three
# stages: each card keeps only its *shard*, an $n$-th, of the optimizer state (stage 1), also of the gradients (stage
# 2), also of the weights (stage 3).

# %%
zero_scheme(4)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Which stage do the 6.74 billion parameters of Llama-2-7B need on eight cards of 80 GB, without activations?**


# %%
def gb_per_card(parameters, cards, stage):
    held = {"optimizer state": 8, "gradients": 4, "weights": 4}  # bytes a parameter
    for kind in list(held)[:stage]:
        held[kind] /= cards
    return {kind: size * parameters / 1e9 for kind, size in held.items()}


stages = {0: "DDP", 1: "ZeRO-1", 2: "ZeRO-2", 3: "ZeRO-3"}
seven = pd.DataFrame({name: gb_per_card(6.74e9, 8, k) for k, name in stages.items()})
seven.loc["GB on each card"] = seven.sum()
seven.round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Stage 1 is enough if activations fit beside its 60.7 GB: the optimizer state is half of DDP's 107.8 GB.
#
# It sends no more than DDP: after the reduce-scatter each card updates the weights of its finished part, and the
# all-gather hands out *weights*. In stage 2, each further micro-batch costs a reduce-scatter more, because no card
# keeps gradients of others' shards.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## ZeRO-3 in torch: FSDP
#
# In stage 3 no card has whole weights, but a block needs them to compute. So *fully sharded data parallel*
# ([FSDP](glossary.md#fsdp)) works block by block:
#
# 1. *Forward.* An all-gather brings the block's weights together on every card. The cards compute, and then free the
#    others' shards.
# 2. *Backward*, from the last block to the first. The freed weights are gathered once more.
# 3. A reduce-scatter adds up the block's gradients, and each card keeps those of its own shard.
# 4. *Update.* Each card updates its shards of all blocks.
#
# Steps 1 to 3 have one exchange each, in which a card sends $(n-1)/n$ times the model's size. DDP's ring has only two,
# so with one micro-batch, in the same precision, FSDP sends 1.5 times as much. With LoRA it sends far more than DDP,
# because frozen weights are gathered, too. And each micro-batch gathers them again, even if gradients are sent only
# once an update.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Two processes, with accelerate
#
# A script that uses [accelerate](https://huggingface.co/docs/accelerate), the library under `Trainer`, is an ordinary
# training loop with these changes:
#
# - The `DataLoader` has the batch size of *one* card. `prepare` gives each card every $n$-th batch, and repeats rows if
#   the last ones are too few.
# - Before the forward pass, `gather` collects the cards' counts of tokens. Their sum is $T$.
# - The summed loss is divided by $T / n$. We want $1/T$, but DDP and FSDP already divide the sum of the gradients by
#   $n$. So the mean of the cards' losses is that of the batch.
# - `backward` and `clip_grad_norm_` are the accelerator's, which know about shards.
#
# There are two traps. If each card keeps the old batch size, $n$ cards make the batch $n$ times as large, so divide its
# rows by $n$ or tune the learning rate again. And a scheduler given to `prepare` makes $n$ steps at each update.

# %%
loop = """
import sys
import torch
from accelerate import Accelerator
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoModelForCausalLM

accelerator = Accelerator(cpu=True)
size = accelerator.num_processes

def train(kind, model, optimizer, loader):
    model.train()  # from_pretrained switches dropout off
    for rows, labels in loader:
        tokens = (labels[:, 1:] != -100).sum()
        T = accelerator.gather(tokens).sum().item()
        loss = model(rows, labels=labels, num_items_in_batch=T / size).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.print(kind, accelerator.gather(loss.detach()).mean().item())
    kept = [x for p in model.parameters() for x in (p, *optimizer.state[p].values())]
    held = sum((x.to_local() if hasattr(x, "to_local") else x).nbytes for x in kept)
    accelerator.print(f"Each process holds {held / 1e6:.1f} MB with {kind}.")
"""

# %% [markdown] slideshow={"slide_type": "subslide"}
# For DDP, `prepare` wraps the model. At the end *every* process calls `get_state_dict`, because with FSDP it gathers
# the shards, and then the main process saves.
#
# For FSDP, `prepare` divides the model only on GPUs, so here we call `fully_shard` ourselves, for each block and then
# for the rest. The optimizer is made afterwards, so that its averages are divided, too.

# %%
with_ddp = """
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = TensorDataset(*torch.load("rows.pt"))
loader = DataLoader(data, batch_size=8 // size)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
train("DDP", model, optimizer, loader)
state = accelerator.get_state_dict(model)
if accelerator.is_main_process:
    accelerator.unwrap_model(model).save_pretrained("trained", state_dict=state)
"""
with_fsdp = """
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
for part in [*model.model.layers, model]:
    fully_shard(part, mesh=init_device_mesh("cpu", (size,)))  # among all
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = accelerator.prepare(DataLoader(data, batch_size=8 // size))
train("FSDP", model, optimizer, loader)
accelerator.end_training()
"""

# %% [markdown] slideshow={"slide_type": "subslide"}
# The second cell runs `accelerate launch --config_file ddp.yaml train.py MODEL` in `results/scaling_out`, with a
# model's folder for `MODEL`. In the configuration file, `MULTI_GPU` starts a process for each GPU, here two, but
# `cpu=True` keeps them on the CPU. **How far apart will the losses of one and of two processes be?**

# %%
ddp = """
distributed_type: MULTI_GPU
num_processes: 2
main_process_port: 0  # a free one
"""
folder = Path("../results/scaling_out")
folder.mkdir(parents=True, exist_ok=True)
(folder / "ddp.yaml").write_text(ddp)
(folder / "train.py").write_text(loop + with_ddp + with_fsdp)
torch.save((inputs, labels), folder / "rows.pt")

# %%
env = os.environ | {"OMP_NUM_THREADS": "1", "USE_LIBUV": "0"}  # the 0: for Windows
if sys.platform != "win32":  # exchange inside the laptop
    env["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
command = [sys.executable, "-m", "accelerate.commands.launch"]
command += ["--config_file", "ddp.yaml", "train.py", str(tl.BUNDLED)]
ended = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
if ended.returncode:
    raise RuntimeError(ended.stderr[-3000:])
lines = [line.split() for line in ended.stdout.splitlines()]  # as "DDP 5.08"
by_two = {k: [float(x[1]) for x in lines if x[:1] == [k]] for k in ("DDP", "FSDP")}
print(*[x for x in ended.stdout.splitlines() if x.startswith("Each")], sep="\n")


# %%
def in_one_process(cards):  # with the plain mean of so many cards' losses
    model, losses = new_model(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for batch in zip(inputs.split(8), labels.split(8), strict=True):
        parts = zip(*(each.chunk(cards) for each in batch), strict=True)
        loss = sum(model(input_ids=x, labels=y).loss for x, y in parts) / cards
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return model, losses


# %%
models, by_one, after = {"untrained": new_model()}, {}, {}
for cards, name in ((2, "plain mean"), (1, "one process")):
    models[name], by_one[name] = in_one_process(cards)
losses = pd.DataFrame(by_one | {f"two, {kind}": each for kind, each in by_two.items()})
gap = losses.iloc[:, 1:].max(axis=1) - losses.iloc[:, 1:].min(axis=1)
course.claim("One and two processes have the same losses, to 1e-5", gap.max() < 1e-5)
models["two, saved"] = new_model(folder / "trained")
for name, each in models.items():
    after[name] = each(input_ids=unseen, labels=unseen).loss.item()
    print(f"unseen rows, {name}: {after[name]:.4f}")
losses.round(4)

# %% [markdown] slideshow={"slide_type": "subslide"}
# DDP and FSDP agree with one process to rounding, though the cards had 156 and 60 labels. The saved model has the same
# loss on unseen rows. With the plain mean, imitated in one process, three updates lower it by 0.13 instead of 0.16 (one
# seed). Row 0 comes before any update, so there only the average differs.
#
# Make this comparison before any long run, in fp32, without dropout, and with unequal counts of tokens: launch the
# script with `--num_processes 1` and with two. `Trainer` is right by default (`average_tokens_across_devices`).
#
# The bytes counted are weights and AdamW's averages, 12 a parameter. With FSDP each process holds half, as ZeRO-3
# promises.
#
# On GPUs, leave out `cpu=True` and `with_fsdp`, except its last line. Launched with the file `fsdp.yaml` below,
# `with_ddp` is FSDP. (We tested it only in fp32, with two CPU processes in place of GPUs: it gave the same losses.) In
# bf16, FSDP sends 6 bytes a parameter times $(n-1)/n$, and DDP 8, as its gradients stay in fp32.

# %%
fsdp = f"""{ddp.replace("MULTI_GPU", "FSDP")}mixed_precision: bf16
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP  # each block for itself
"""
_ = (folder / "fsdp.yaml").write_text(fsdp)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What a step costs on real links
#
# On $n$ cards with a fixed batch, the forward and backward passes take an $n$-th of their time on one card,
# $t_\text{passes}$, but the exchange does not shrink:
#
# $$t_\text{step} \approx \frac{t_\text{passes}}{n}
# + \max\Big(0,\ \frac{2\,(n-1)}{n} \cdot \frac{G}{\text{bandwidth}} - t_\text{hidden}\Big)$$
#
# A part of the exchange, $t_\text{hidden}$, costs no time, because DDP sends the gradients of the upper blocks while
# the backward pass still works below them. At best this *overlap* covers the whole backward pass, two thirds of
# $t_\text{passes}/n$.
#
# We estimate a step for 1.5 billion parameters with gradients in fp32, on H100s at 400 TFLOP/s, 40% of their peak. It
# assumes full link speed and a free update. **Over which links are eight cards at least four times as fast as one?**


# %%
def step_seconds(cards, bandwidth, tokens):
    passes = 6 * 1.5e9 * tokens / 400e12 / cards  # FLOPs: 2 forward, 4 backward
    exchange = 2 * (cards - 1) / cards * 4 * 1.5e9 / bandwidth
    return passes + (exchange - 2 / 3 * passes).clip(lower=0)


links = {"NVLink": 450, "PCIe 5.0 x16": 63, "400 Gbit/s": 50, "100 Gbit/s": 12.5}
speed = pd.DataFrame({"GB/s": links})  # in one direction
for tokens in (32_768, 65_536):
    alone, shared = (step_seconds(n, speed["GB/s"] * 1e9, tokens) for n in (1, 8))
    speed[f"times as fast, {tokens:,} tokens"] = alone / shared
speed.round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With 32,768 tokens a step, only NVLink, which joins the cards of one machine, is enough. Over *one* link of 100
# Gbit/s, eight cards are slower than one. With 65,536 tokens, PCIe and 400 Gbit/s are enough as well, because only the
# passes grow. LoRA helps, too: with ten million trained parameters it sends 70 MB in place of 10.5 GB.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## When sharding is not enough
#
# [**Tensor parallelism**](https://arxiv.org/abs/1909.08053) splits matrices. Each card takes some hidden units of an
# MLP and some attention heads, and an all-reduce adds up the parts of each output. The cards wait for these two
# exchanges in every block and pass, so they need NVLink.
#
# [**Pipeline parallelism**](https://arxiv.org/abs/1811.06965) gives each card some of the blocks. Only the activations
# at the cuts and their gradients travel, so slow links will do. Here four cards (the lines) pass four micro-batches
# forward, and then backward, which takes twice as long:
#
# ```
# 1234.........44332211
# .1234......44332211..
# ..1234...44332211....
# ...123444332211......
# ```
#
# The dots, where a card waits, are the *bubble*. With $p$ cards and $m$ micro-batches they take $\frac{p-1}{m+p-1}$ of
# the time: 43% here, 16% with sixteen.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What does not fit, and what to do
#
# | problem | what to do |
# | --- | --- |
# | training takes too long | DDP; for many small runs, give each its own card |
# | activations | smaller micro-batches, then checkpointing |
# | optimizer state, gradients | LoRA, or ZeRO-1 and 2 (in the library DeepSpeed) |
# | weights | QLoRA; to train all of them, FSDP (ZeRO-3) |
# | activations of a single row | context (each card takes some of its tokens) or tensor parallelism, within a machine |
# | slow links between machines | FSDP inside and DDP between machines (HSDP), or pipeline parallelism |

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Divide by the tokens of the whole batch, because DDP's plain mean needs equal shares.
# - DDP sends $2(n-1)/n$ times the gradients, partly hidden behind the backward pass.
# - ZeRO-1, and ZeRO-2 with one micro-batch, send as much as DDP and hold less. FSDP (ZeRO-3) also shards the weights,
#   and in fp32 sends half as much again, or more with frozen weights or several micro-batches.
#
# ## Further reading
#
# - [The Ultra-Scale Playbook](https://huggingface.co/spaces/nanotron/ultrascale-playbook)
# - Rajbhandari et al. 2020, [ZeRO](https://arxiv.org/abs/1910.02054)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex18_1", 1)`. After
# *Restart Kernel* run the next cell first.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** LoRA on `llama2-7b`, with weights in fp32, needs 30 GiB, and each of your eight cards of 80 GB holds that.
# With DDP each process sends 0.14 GB a step. You choose FSDP all the same. How many bytes does each process send now?
#
# - **a** about as many: frozen weights have no gradients, so nothing of them travels
# - **b** about one and a half times as many
# - **c** about an eighth: everything is divided among eight
# - **d** more than three hundred times as many

# %%
course.quiz("quiz18")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 18.1.** A card cannot hold all its rows at once, so it passes them in micro-batches. Write one update for
# this case.
#
# - `parts` is this card's list of `(rows, labels)`. A micro-batch may have fewer labels than another, or none at all.
# - Send the gradients once: under `with accelerator.no_sync(model):` DDP only adds them up. (FSDP does too,
#   but then each card holds whole gradients: as many GB as with ZeRO-2, 37 for Llama-2-7B in place of 13.5.)
# - Clip to a norm of 1, and return the mean loss of all tokens in the batch, the same number on each card.
#
# The check plays two cards. In `train.py`, with a `batch_size` of `4 // size`, this loop calls your function:
#
# ```python
# batches = iter(loader)
# while parts := list(itertools.islice(batches, 2)):
#     accelerator.print(kind, update(accelerator, model, optimizer, parts))
# ```

# %%
from contextlib import nullcontext


def update(accelerator, model, optimizer, parts):
    """Take one step with all cards, and return the loss of the whole batch."""
    # your code here


course.check("ex18_1", update)

# %% [markdown]
# Previous: [17 · The leaderboard](17_leaderboard.ipynb) ·
# Next: [19 · Ship it](19_ship_it.ipynb)
