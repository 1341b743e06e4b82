# %% [markdown] slideshow={"slide_type": "slide"}
# # 18 · Scaling out
#
# *How can several cards train one model, and what does it cost them to agree?*
#
# Sooner or later a run takes longer than you can wait, or a model is too large for your card. Then the work is shared
# among several processes, usually one for each GPU. They compute side by side, and in every step they have to
# exchange numbers. This lesson shows what is exchanged, how many bytes that is, and when it is worth it. You need no
# GPU, because several processes on one laptop compute the same sums.
#
# **You will be able to**
#
# - explain why two cards compute the same gradient as one, and when averaging over cards gets it wrong;
# - predict how many bytes each card sends in a step, and what each card has to keep;
# - choose between DDP, FSDP, tensor and pipeline parallelism, and start a run with `torchrun`.
#
# **You need** lesson 5 ([LoRA](05_lora.ipynb)) and lesson 9 ([where the memory goes](09_memory.ipynb)) for
# weights, gradients and optimizer state.
#
# About 52 minutes.

# %% slideshow={"slide_type": "subslide"}
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import torch
from transformers import AutoModelForCausalLM

import course
import tlkit as tl
from course.lesson18 import on_paper, pictures, rehearsal

profile = tl.setup()
tiny = tl.load_model("tiny")
blocks = tl.pack(tl.load_corpus("rust").train[:60], tiny.tokenizer, 64)[:24]
batch = blocks[:8]

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One step, shared
#
# Here is a training step as you know it, for a batch of eight blocks of 64 tokens. Suppose that two cards share it.
# Each has a copy of the whole model and takes four of the eight blocks. Which of these boxes can a card work through
# by itself, and where does it need something from the other card?

# %%
tl.step_flow(batch_size=8, tokens=64)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The forward and backward passes need only the card's own blocks. The first step that concerns everybody is clipping,
# which looks at the norm of the gradient of the *whole* batch. So the cards exchange gradients between the backward
# pass and clipping. After that each card has the same gradient and makes the same update, and the copies stay equal.
#
# This is *data parallel* training, because the data are dealt out and the model is not. In torch it is called
# `DistributedDataParallel`, or DDP.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Two cards make one gradient
#
# The loss of a batch is the mean over its tokens, so its gradient is a mean too, and a mean can be computed in parts:
#
# $$g = \frac{1}{T} \sum_{t=1}^{T} \nabla \ell_t = \frac{1}{T} \sum_{k=1}^{n} T_k\, g_k$$
#
# | symbol | what it is | shape |
# | --- | --- | --- |
# | $\ell_t$ | loss of token $t$ | one number |
# | $T$ | tokens with a label in the whole batch | one number |
# | $n$ | cards | one number |
# | $T_k$ | tokens with a label on card $k$ | one number |
# | $g_k$ | gradient of the mean loss of card $k$'s own tokens | one number for each trained value |
# | $g$ | gradient of the whole batch | the same |
#
# If all cards have equally many tokens, then $T_k / T = 1/n$, and $g$ is the plain mean of the $g_k$.

# %% [markdown] slideshow={"slide_type": "subslide"}
# To check this, let one process play both cards, one after the other.


# %% tags=["check-whole"]
def gradient(inputs, labels):
    """All gradients of a card's mean loss, in one long row."""
    tiny.model.zero_grad()
    tiny.model(input_ids=inputs, labels=labels).loss.backward()
    return torch.cat([p.grad.flatten() for p in tiny.model.parameters()])


whole = gradient(batch, batch)
first, second = (gradient(share, share) for share in batch.chunk(2))
apart = ((first + second) / 2 - whole).abs().max()

# %% [markdown] slideshow={"slide_type": "subslide"}
# Now let the shares be unequal. In instruction tuning, for example, the tokens of the question have no label (-100),
# and one card may get longer answers than another. Here the second card's blocks keep only their first 16 labels, of
# which 15 are scored, because nothing predicts the first token.
#
# **Predict first.** By how much is the plain mean of the two gradients off: by 1% of the right gradient's length, by
# 10%, or by more than a third?

# %% tags=["check-own"]
labels = batch.clone()
labels[4:, 16:] = -100  # these tokens are not scored
whole = gradient(batch, labels)
shares = list(zip(batch.chunk(2), labels.chunk(2), strict=True))
own = [gradient(*share) for share in shares]
tokens = [int((share[:, 1:] != -100).sum()) for _, share in shares]
print("scored tokens of the two cards:", tokens)

# %% [markdown] slideshow={"slide_type": "subslide"}
# It is off by more than a third. With the plain mean, each of the 60 tokens on the second card counts 4.2 times as much
# as one of the 252 on the first, so the result leans towards the blocks with few labels. DDP takes this plain mean, so
# a program has to correct it itself. tlkit divides each card's loss by the tokens of the *whole* batch and then sums
# over the cards, which is the formula above. The same problem appears when the last batch of an epoch leaves one card
# with fewer blocks.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What travels: the ring
#
# Each card needs the sum of all gradients. If every card sent its gradients to every other card, each would send
# $n - 1$ times their size. A *ring all-reduce* gets by with less. It cuts the gradients into $n$ parts, and each card
# sends one part at a time to its neighbour.

# %%
pictures.ring_scheme(4)

# %% [markdown] slideshow={"slide_type": "subslide"}
# In the first $n - 1$ rounds each card adds what arrives to its own part and sends the result on in the next round.
# After them, each part is complete on one card. In the next $n - 1$ rounds the complete parts are handed around.
#
# **Predict first.** The bundled model has 4,036,800 values, in fp32. How many megabytes does each of four cards send in
# a step?

# %% [markdown] slideshow={"slide_type": "subslide"}
# In every round a card sends one part, which is $1/n$ of the gradients, so it sends in all
#
# $$\text{bytes sent by each card in a step} = \frac{2\,(n - 1)}{n}\, G$$
#
# where $G$ is the size of the gradients in bytes: 4 bytes for each trained value in fp32. However many cards there
# are, no card sends more than $2G$.

# %% [markdown] slideshow={"slide_type": "subslide"}
# These lines carry it out for any number of cards. All cards send at once, so `moving` is collected before anything
# is changed.


# %% tags=["check-apart"]
def ring_all_reduce(cards):
    n, sent = len(cards), 0
    parts = [list(card.chunk(n)) for card in cards]
    for step in range(2 * (n - 1)):
        moving = [parts[card][(card - step) % n] for card in range(n)]
        for card, part in enumerate(moving):
            which, after = (card - step) % n, parts[(card + 1) % n]
            after[which] = after[which] + part if step < n - 1 else part
            sent += part.nbytes
    return [torch.cat(card) for card in parts], sent / n


four = [gradient(share, share) for share in batch.chunk(4)]
sums, sent_by_each = ring_all_reduce(four)
apart = (sums[0] / 4 - gradient(batch, batch)).abs().max()

# %% tags=["check-tl"]
model = tl.apply_strategy(tl.load_model("tiny").model, "full").model
for n in (2, 4):
    print(f"{n} cards: {on_paper.sent_per_step(model, n) / 1e6:.2f} MB sent by each")
course.claim("Our ring sent as much as the formula says", sent_by_each == 24_220_800)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The gradients have 16.15 MB. Four cards need six rounds, and in each of them a card sends a quarter of this, which
# makes 24.22 MB. Had each card sent its gradients to the three others, it would have sent 48.44 MB.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## With real processes
#
# So far one process played all cards. Now several processes really talk to each other. `rehearse` starts four on this
# machine, with one thread each. One of them first takes five steps of full fine-tuning alone, then two take the same
# steps together, then all four. They exchange gradients over the *loopback*, a network connection from a machine to
# itself.
#
# **Predict first.** The batch stays at eight blocks, whoever computes them. How far apart will the losses of the three runs be?

# %%
steps, runs = rehearsal.rehearse(progress=True)
together = steps[steps.exchange == "ddp"]
losses = together.pivot(index="step", columns="processes", values="loss")

# %%
apart = (losses.max(axis=1) - losses.min(axis=1)).max()
print("steps:", len(losses), "- processes:", list(losses.columns))
course.claim("The losses are never further apart than 0.00001 nats", apart < 1e-5)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The three runs have the same losses. The tiny differences come from rounding, because a sum of rounded numbers
# depends slightly on their order. If more cards change the curve of the same batches visibly, and the model has no
# dropout, there is a bug. The usual one is the plain mean from above.
#
# On Linux the kernel counts the bytes that a process writes, and what it sends to the others is written as well. Here
# is this count for the first process and one step beside the prediction, with the time of the exchange alone and of a
# whole step. A single process sends nothing.

# %% tags=["nbval-ignore-output"]
ddp = runs[runs.exchange == "ddp"].set_index("processes")
counts = ddp[["predicted", "sent"]].add_prefix("bytes ")
times = 1000 * ddp[["exchange_seconds", "step_seconds"]]
times.columns = ["exchange, ms", "step, ms"]
counts.join(times).map("{:,.0f}".format)

# %%
several = ddp[ddp.index > 1]
counted = several.sent.notna().all()  # elsewhere than on Linux nothing is counted
off = (several.sent / several.predicted - 1).abs().max()
if counted:
    course.claim("The formula predicts the counted bytes to within 2%", off < 0.02)
else:
    print("not counted on this system")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Compare the step times in the last column. Four processes are far from four times as fast as one, and may even be
# slower, because they share the cores of one machine, and the exchange comes on top. So a rehearsal shows that the
# numbers are right, but it does not show the speed that several cards would have.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same in plain PyTorch
#
# Elsewhere you will meet data parallel training like this. The script does not use this workbook at all. Compared
# with a loop for one card there are four changes: join the group, wrap the model in DDP, give each process only its
# share of each batch, and print in one process only. DDP hooks into `backward()`, and exchanges the gradients there.

# %%
script = """
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM

dist.init_process_group("gloo")  # "nccl" for GPUs
rank, size = dist.get_rank(), dist.get_world_size()
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for batch in torch.load(sys.argv[2], weights_only=True).split(8):
    share = batch.chunk(size)[rank]
    loss = model(input_ids=share, labels=share).loss
    loss.backward()  # and DDP averages the gradients
    optimizer.step()
    optimizer.zero_grad()
    mean = loss.detach()
    dist.all_reduce(mean)
    if rank == 0:
        print(f"loss {mean.item() / size:.6f}")
dist.destroy_process_group()
"""

# %% [markdown] slideshow={"slide_type": "subslide"}
# `torchrun`, which comes with torch, starts the script twice and tells each process its number (`rank`) and how many
# there are (`size`). On the command line you would type
# `torchrun --standalone --nproc-per-node 2 train.py MODEL BLOCKS`. With `--standalone` all processes run on this one
# machine, so no address has to be given at which machines find each other. The next cell does that for three steps,
# which takes some ten seconds, because two processes have to import torch.

# %%
with tempfile.TemporaryDirectory() as folder:
    program, data = Path(folder) / "train.py", Path(folder) / "blocks.pt"
    program.write_text(script, encoding="utf-8")
    torch.save(blocks, data)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    two_cards = subprocess.run(
        [sys.executable, *torchrun, str(program), str(tl.BUNDLED), str(data)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
said = [line for line in two_cards.stdout.splitlines() if line.startswith("loss ")]
by_two = [float(line.split()[1]) for line in said]

# %% [markdown] slideshow={"slide_type": "subslide"}
# And the same three steps in this process, with all eight blocks at once:

# %% tags=["check-apart-2"]
alone = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
optimizer = torch.optim.AdamW(alone.parameters(), lr=1e-3)
by_one = []
for eight in blocks.split(8):
    loss = alone(input_ids=eight, labels=eight).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    by_one.append(loss.item())
apart = max(abs(one - two) for one, two in zip(by_one, by_two, strict=True))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The `Trainer` of transformers and Hugging Face's `accelerate` do this wrapping for you. With them, the training script
# for one card stays as it is, and `torchrun` or `accelerate launch` starts it on several.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What it costs on real links
#
# With $n$ cards each computes the passes for an $n$-th of the batch, but the exchange does not shrink (nor does the
# update, which each card makes in full):
#
# $$\text{seconds} \approx \frac{\text{seconds on one card}}{n}
# + \frac{2\,(n-1)}{n} \cdot \frac{G}{\text{bytes a second}}$$
#
# Real links are slower than their makers state; on the other hand, part of the exchange can be hidden, because DDP
# sends the gradients of the upper blocks while the backward pass is still busy further down. The next table has the
# second term for eight cards and llama2-7b, a model of 6.7 billion values. The rates are what the makers state for
# one direction: NVLink of an H100, PCIe 4.0 with 16 lanes, and Ethernet.

# %%
links = {
    "NVLink, 450 GB/s": 450e9,
    "PCIe 4.0 x16, 31.5 GB/s": 31.5e9,
    "10 Gbit Ethernet, 1.25 GB/s": 1.25e9,
}
rows = []
for strategy in ("full", "lora"):
    seven = tl.apply_strategy(tl.meta_model("llama2-7b"), strategy).model
    sent = on_paper.sent_per_step(seven, 8)
    rows.append(
        {"strategy": strategy, "GB sent": sent / 1e9}
        | {f"seconds by {name}": sent / rate for name, rate in links.items()}
    )
travel = pd.DataFrame(rows).set_index("strategy").round(4)
travel.T

# %%
fewer = travel["GB sent"]["full"] / travel["GB sent"]["lora"]
course.claim("LoRA sends less than a three-hundredth of the bytes", fewer > 300)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Over 10 Gbit Ethernet, full fine-tuning waits more than half a minute for each exchange, and LoRA about a tenth of a
# second. Only trained values have gradients, so frozen weights never travel with DDP. LoRA saved little arithmetic in
# lesson 5, but between machines the exchange can take most of the time, and LoRA sends less than a three-hundredth of
# the bytes.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A model in parts
#
# With DDP each card keeps everything, so a model that does not fit one card does not fit eight either. But the eight
# copies of the optimizer state are all equal, and so are the eight copies of weights and gradients. *Fully sharded*
# data parallel training (FSDP, in torch `fully_shard`) therefore keeps only one of $n$ parts on each card. The idea
# comes from a paper called ZeRO, which describes it in three stages:
#
# | | weights | gradients | optimizer state |
# | --- | --- | --- | --- |
# | DDP | whole | whole | whole |
# | ZeRO stage 1 | whole | whole | a part |
# | ZeRO stage 2 | whole | a part | a part |
# | ZeRO stage 3, FSDP | a part | a part | a part |

# %%
pictures.sharding_scheme(4)

# %% [markdown] slideshow={"slide_type": "subslide"}
# A block can only compute with all of its weights. So just before its turn, each card gathers the missing parts from
# the others, and frees them afterwards. This happens in the forward pass and again in the backward pass. What each
# card needs is therefore at most
#
# $$M(n) = \frac{W + G + O}{n} + A + \text{gathered}$$
#
# with $W$, $G$ and $O$ for the bytes of weights, gradients and optimizer state, and $A$ for activations and logits,
# which depend on the card's own text. *Gathered* is what is whole at one moment: the weights of the block that
# computes, those of the next one, which are already on their way, and those outside the blocks (embedding, final norm
# and head). In the backward pass, whole gradients come on top, of one block and of what lies outside.
#
# **Predict first.** llama2-7b, full fine-tuning in fp32, one block of 512 tokens for each card: how many cards of
# 80 GB does it take? And will twice as many cards need half the memory each?

# %%
from tlkit.reports.memory_charts import memory_chart

needs = on_paper.memory_in_parts("llama2-7b", processes=(1, 2, 4, 8, 64))
names = ("RTX 4090 24GB", "A100 40GB", "A100 80GB")
budgets = {name: tl.CARDS[name] * 2**30 for name in names}
shown = {count: need for count, need in needs.items() if count <= 8}
memory_chart(
    {f"{count} card{'s' * (count > 1)}": need for count, need in shown.items()}, budgets
)

# %%
gib = {count: round(need.peak / 2**30, 1) for count, need in needs.items()}
fits = {
    name: min(n for n, need in needs.items() if need.peak <= 0.85 * size)
    for name, size in budgets.items()
}
print("GiB for each card:", gib)
print("cards that are enough, 15% left free:", fits)
shared = ("weights", "gradients", "optimizer state")
own = 1 - sum(needs[8].categories[name] for name in shared) / needs[8].peak

# %% [markdown] slideshow={"slide_type": "subslide"}
# Two cards of 80 GB are enough. They need a little more than half each, because what is gathered is not divided, and
# neither are the activations and logits of a card's own text. With eight cards, these parts are nearly half of what a
# card holds, and 64 cards, eight times as many, still need 9 GiB each.
#
# The bar of eight cards shows no gradients, but they have not vanished. A bar shows the moment at which a card holds
# the most. With up to four cards this is the backward pass. With eight cards the parts of the gradients have become so
# small that the peak moves to the end of the forward pass, where all activations are still held and no gradient
# exists yet.

# %%
for count in (4, 8):
    phases = needs[count].phases
    print(f"{count} cards, peak: {max(phases, key=phases.get)}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# These are estimates: one step is traced without computing it, what FSDP divides is divided, and the gathered parts
# are added. The division itself can be checked, because the rehearsal trained a second time with FSDP, on two and on
# four processes. The next cell prints how many bytes of parameters each process really held.

# %%
parted = runs[runs.exchange == "fsdp"].set_index("processes")
for count, size in parted.held.items():
    print(f"{count} processes: {tl.in_units(size)} of parameters in each")
course.claim(
    "Each holds exactly its share", (parted.held * parted.index == ddp.held[1]).all()
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# FSDP pays for the saved memory with traffic. Weights are gathered twice in a step, and gradients are added up once,
# which makes about three times $(n-1)/n$ of the model's size. DDP sends twice $(n-1)/n$, so FSDP sends one and a half
# times as much between GPUs. In this rehearsal it was 1.9 times, because `gloo`, the library for processors, adds up
# gradients in a way that sends them twice, while the weights outside the blocks are gathered only once.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Tensor and pipeline parallelism
#
# FSDP divides what is *stored*, but each card still computes with whole layers. Very large models also divide the
# computing itself, in one of two ways.
#
# **Tensor parallelism** splits single matrices. In an MLP, each card takes some of the hidden units: rows of the first
# matrices and the matching columns of the last one. Each card then has a part of the sum that is the MLP's output, and
# one all-reduce adds the parts up. Attention is split by heads in the same way. The cards exchange activations twice in
# every block, in both passes, so this is done only inside a machine with fast links. You need it when a single layer,
# gathered, is too large for a card, or when the batch has too few rows to deal out.

# %%
mlp = tl.load_model("tiny").model.model.layers[0].mlp
x = torch.randn(10, 192)
halves = zip(
    mlp.gate_proj.weight.chunk(2),  # rows: hidden units
    mlp.up_proj.weight.chunk(2),
    mlp.down_proj.weight.chunk(2, dim=1),  # the matching columns
    strict=True,
)
parts = [(mlp.act_fn(x @ g.T) * (x @ u.T)) @ d.T for g, u, d in halves]
apart = (parts[0] + parts[1] - mlp(x)).abs().max() / mlp(x).abs().max()

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Pipeline parallelism** splits the model between blocks. Of llama2-7b's 32 blocks, the first of four cards might
# hold 0 to 7, the second 8 to 15, and so on. Only the activations at each cut travel: for 512 tokens 8.4 MB in each
# direction, against the 47.2 GB that each of eight cards sends with DDP. So it also works where a model has to be
# spread over machines with slow links between them.
#
# Its price is idle time, because a card has to wait for the one before it. To shorten the wait, the batch is cut into
# $m$ micro-batches that follow each other. With $p$ cards, the share of time in which a card is idle is
#
# $$\text{idle} = \frac{p - 1}{m + p - 1}$$

# %% tags=["check-tl-2"]
idle = {m: (4 - 1) / (m + 4 - 1) for m in (1, 4, 16)}
for m, share in idle.items():
    print(f"4 cards, {m} micro-batch{'es' * (m > 1)}: idle {share:.0%} of the time")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The largest models combine all of these: tensor parallelism inside a machine, pipeline parallelism between machines,
# and data parallelism over groups of machines. For fine-tuning you will rarely need more than this table.
#
# | your situation | begin with | what travels in a step |
# | --- | --- | --- |
# | many small runs, each fits a card | one run for each card | nothing |
# | a step fits a card, but training takes too long | DDP | gradients of what is trained |
# | only gradients and optimizer state do not fit | LoRA, then DDP | gradients of the adapters |
# | weights do not fit, or every weight must be trained | FSDP | weights twice, gradients once |
# | one layer does not fit, fast links | tensor parallel | activations, in every block |
# | many machines, slow links | pipeline parallel | activations at the cuts |

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Do it yourself
#
# tlkit's own training can be started by `torchrun` as well, and nothing else changes:
#
# ```
# torchrun --nproc-per-node 2 -m tlkit train --strategy full --output results/two
# torchrun --nproc-per-node 2 -m tlkit train --strategy full --output results/parts --sharding fsdp
# python -m tlkit compare --output results/shared
# ```
#
# The third, started in several terminals, shares out the *runs* of a comparison: each process takes the next run that
# nobody has begun, so it trains models of its own and nothing travels. For several machines, start the same line on
# each; `torchrun` also needs `--nnodes 2 --rdzv-backend c10d --rdzv-endpoint HOST:29500` right after its name, where
# `HOST` is the name of one of them. All machines need the same files.

# %% [markdown] slideshow={"slide_type": "subslide"}
# Three things are worth knowing before a long run.
#
# - A checkpoint does not depend on how many processes wrote it, so one process may finish what two began.
# - If one process ends early, the others report it and end too. `--resume` then goes on from the last checkpoint.
# - If one card runs out of memory, all cards go down the ladder of lesson 10 together, because their steps have to
#   stay equal.
#
# **What may not carry over.** Bytes, shares of memory and equal curves are arithmetic, and hold for a model of any
# size. Seconds do not carry over, because cards and links differ too much. And if you use more cards to make the
# *batch* larger, you take fewer steps and need another learning rate. That is a new experiment, and its curve will
# differ.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - The gradient of a batch is a mean over its tokens, so cards can compute it in parts. It must be weighted by tokens;
#   a plain mean over cards is right only if all have equally many.
# - In a ring, each card sends $2(n-1)/n$ times the gradients of the trained values. With LoRA these are small. FSDP sends
#   more, because it gathers all weights in both passes, trained or frozen.
# - DDP copies weights, gradients and optimizer state to every card, and FSDP divides them. Activations are divided by
#   neither, so with FSDP twice as many cards need more than half the memory each.
#
# **An open experiment.** Run the plain script with three processes. The shares of a batch are then 3, 3 and 2 blocks.
# Predict how far the losses move from those of one process, then repair the script.
#
# **Further reading**
#
# - Li et al. 2020, [PyTorch Distributed: Experiences on Accelerating Data Parallel
#   Training](https://arxiv.org/abs/2006.15704), on how DDP hides the exchange behind the backward pass
# - Rajbhandari et al. 2020, [ZeRO: Memory Optimizations Toward Training Trillion Parameter
#   Models](https://arxiv.org/abs/1910.02054), the three stages
# - Zhao et al. 2023, [PyTorch FSDP: Experiences on Scaling Fully Sharded Data
#   Parallel](https://arxiv.org/abs/2304.11277)
# - Shoeybi et al. 2019, [Megatron-LM: Training Multi-Billion Parameter Language Models Using Model
#   Parallelism](https://arxiv.org/abs/1909.08053), tensor parallelism
# - Huang et al. 2019, [GPipe: Efficient Training of Giant Neural Networks using Pipeline
#   Parallelism](https://arxiv.org/abs/1811.06965)
# - Goyal et al. 2017, [Accurate, Large Minibatch SGD](https://arxiv.org/abs/1706.02677), on the learning rate when more
#   cards make the batch larger

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex18_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** LoRA on `llama2-7b` needs 30 GiB, and each of your eight cards of 80 GB holds that. With DDP each process
# sends 0.14 GB a step. You choose FSDP all the same. What becomes of the bytes that each sends?
#
# - **a** about as many: frozen weights have no gradients, so nothing of them travels
# - **b** about one and a half times as many
# - **c** about an eighth: everything is divided among eight
# - **d** more than three hundred times as many

# %%
course.quiz("quiz18")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 18.1** (first steps). LoRA adds 4,399,104 trained values to `qwen2-0.5b`, whose own 494,032,768 values are
# frozen. All are in fp32. Five machines train it together with DDP, one process on each. How many MB (of a million
# bytes) does each machine send in a step?

# %%
answer = None
# your code here
course.check("ex18_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 18.2** (apply it). Make the parts add up. A batch is a list of blocks, and each block is a list with the
# losses of its tokens; blocks may have different lengths. Write a function that returns what process `rank` (from 0) of
# `size` contributes to the loss of the batch. Each block goes to exactly one process, and no process gets more than its
# share, rounded up. The *sum* of all contributions must be the loss of the batch, which is the mean over all of its
# tokens. There may be fewer blocks than processes.


# %%
def part_of_the_loss(blocks, rank, size):
    """What this process adds to the loss of the batch."""
    # your code here


course.check("ex18_2", part_of_the_loss)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 18.3** (think further). How many cards does FSDP need for a model? You are given, in GB,
#
# - `divided`: weights, gradients and moments of the whole model, which the cards share;
# - `own`: activations and logits, which every card has in full for its own text;
# - `gathered`: what each card gathers from the others on top, if there is more than one card;
# - `card`: the size of a card. Leave 15% of it free, as the lesson does.
#
# Return the smallest number of cards that is enough, up to `most`. If even `most` cards are not enough, return 0. Then
# think about what you could change when no number of cards is enough.


# %%
def enough_cards(divided, own, gathered, card, most):
    """The smallest number from 1 to `most`, or 0."""
    # your code here


course.check("ex18_3", enough_cards)

# %% [markdown]
# Previous: [17 · The leaderboard](17_leaderboard.ipynb) ·
# Next: [20 · Your own study](20_your_own_project.ipynb)
