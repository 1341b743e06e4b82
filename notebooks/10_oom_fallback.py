# %% [markdown] slideshow={"slide_type": "slide"}
# # 10 · Out of memory
#
# *Can training go on after it runs out of memory, without losing a step?*
#
# Sooner or later a run stops with `CUDA out of memory`. Half the batch would be a different training, but the same step
# can be computed in far less memory.
#
# **You will be able to**
#
# - read an out-of-memory message, and tell a full card from a fragmented one;
# - split a batch into micro-batches with the whole batch's gradient, keep fewer activations, move AdamW to the host;
# - recover from an out-of-memory error in the middle of a run, and say what fits on 24 GB.
#
# **You need** [lesson 9](09_memory.ipynb) (the memory of a training step).
#
# About 35 minutes.

# %% slideshow={"slide_type": "subslide"}
from functools import partial
from tempfile import mkdtemp
from time import process_time
from timeit import timeit

import pandas as pd
import torch
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

import course
import tlkit as tl
from course.lesson10 import pictures

tl.setup()
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
text = tl.pack(tl.load_corpus("rust").train[:20], tokenizer, 64)[:12]  # 12 rows


def load():
    return AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32).train()


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.0, fused=True)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## Read the message
#
# Two users posted these messages (`pytorch/pytorch#16417`, `carolchenyx/MGFN.#35`), shortened. **Which card is full?**
#
# > **A.** CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a total capacity of 23.65 GiB of which 11.06 MiB
# > is free. Including non-PyTorch memory, this process has 23.60 GiB memory in use. Of the allocated memory 22.90 GiB
# > is allocated by PyTorch, and 194.87 MiB is reserved by PyTorch but unallocated.
#
# > **B.** CUDA out of memory. Tried to allocate 1.70 GiB. GPU 0 has a total capacity of 6.00 GiB of which 0 bytes is
# > free. Of the allocated memory 2.93 GiB is allocated by PyTorch, and 2.30 GiB is reserved by PyTorch but unallocated.

# %% [markdown] slideshow={"slide_type": "subslide"}
# PyTorch asks the driver for large *segments* and cuts pieces for tensors from them. *Allocated* memory belongs to
# tensors that exist. *Reserved but unallocated* memory is free for new tensors, *if* one free piece is large enough.
#
# Card A is full: tensors hold 22.9 of its 23.65 GiB, and no piece of its 195 MiB reserve has room for 22. The tensor
# that fails is only the first without room, so look for what fills the card. If "this process" used far less, another
# one would hold the rest, and `nvidia-smi` would name it.
#
# Card B is not full: 2.30 GiB lie in reserve, but in pieces, and none has room for 1.70 GiB. This is *fragmentation*.
# On Linux, set `PYTORCH_ALLOC_CONF=expandable_segments:True` (up to PyTorch 2.9 `PYTORCH_CUDA_ALLOC_CONF`) in the
# environment before you start Python: then segments can grow, and fewer gaps remain.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Micro-batches, and the mean of means
#
# A *micro-batch* is a part of the batch that passes through the model at once. Its activations are freed after its
# backward pass, while its gradients stay in `.grad` and the next `backward()` adds to them. This is [gradient
# accumulation](glossary.md#gradient-accumulation).
#
# Let the batch have $n$ tokens with a label, and token $i$ the loss $\ell_i$. Of $k$ micro-batches, the $j$-th has
# $n_j$ such tokens, the set $P_j$. The loss of the batch is the mean over all $n$ tokens, so each micro-batch adds the
# *sum* of its losses, divided by the *whole* batch's tokens. A common fault is to average the means instead:
#
# $$\frac{1}{n} \sum_{j=1}^{k} \sum_{i \in P_j} \ell_i \qquad \text{and not} \qquad
# \frac{1}{k} \sum_{j=1}^{k} \frac{1}{n_j} \sum_{i \in P_j} \ell_i$$
#
# The two agree only if all $n_j$ are equal. With padding they are not, because padded positions have the label -100 and
# do not count. The picture shows how much each token weighs if two rows are short:

# %% slideshow={"slide_type": "subslide"}
short = torch.tensor([[0] * 6, [0] * 6, [0] * 2 + [-100] * 4, [0] + [-100] * 5])
pictures.micro_batch_picture(short, size=2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Now with the model: two rows of 63 tokens and two short ones. **How far off is the wrong gradient: 1%, 10%, or more?**


# %%
def accumulate(model, inputs, labels, size):
    """Leave the gradients of a batch, with `size` rows passing through at once."""
    counted = (labels != -100).sum()  # in the whole batch
    for rows, targets in zip(inputs.split(size), labels.split(size), strict=True):
        logits = model(input_ids=rows, use_cache=False).logits.flatten(0, 1)
        loss = cross_entropy(logits, targets.flatten(), reduction="sum")
        del logits  # or the backward pass keeps one tensor more
        (loss / counted).backward()


def flat(tensors):
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


padded = text.clone()
padded[2::4, 21:] = padded[3::4, 9:] = -100  # labels, two of four rows with padding
batches = list(zip(text[:, :-1].split(4), padded[:, 1:].split(4), strict=True))
inputs, labels = batches[0]


def gradient(model, size, rows=slice(0, 4)):
    accumulate(model, inputs[rows], labels[rows], size)
    return flat(p.grad for p in model.parameters())


def apart(one, other):
    return float((one - other).norm() / other.norm())


whole = gradient(load(), 4)
right = apart(gradient(load(), 2), whole)
means = sum(gradient(load(), 2, rows) for rows in (slice(0, 2), slice(2, 4))) / 2
course.claim("Micro-batches give the gradient of the whole batch", right < 1e-4)
print(f"the mean of means is off by {apart(means, whole):.0%} of the right one's norm")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It is off by far more, because the 28 tokens of the two short texts together weigh as much as the 126 of the long
# ones. Each counts 4.5 times as much. The `Trainer` of transformers had this fault until October 2024.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Checkpointing: compute twice, keep less
#
# Micro-batches help until one row is left. [Activation checkpointing](glossary.md#activation-checkpointing) lowers what
# this row keeps. It stores only the input of a block, and computes the block's forward pass a second time when
# backpropagation reaches it. PyTorch's `checkpoint(function, *inputs)` does this, so we put it around each block's
# `forward`.
#
# `tl.track_memory` counts the bytes of live tensors. A block keeps 15,128 bytes a token ([lesson 9](09_memory.ipynb)).
# **How much will we save for 256 tokens in eight blocks?**


# %% tags=["nbval-ignore-output"]
def checkpointed():  # each block keeps only its input
    model = load()
    for block in model.model.layers:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    return model


def activations(model):  # MiB that wait for the backward pass
    with tl.track_memory(model) as track:
        start = track.current
        _hidden = model.get_decoder()(input_ids=text[:4], use_cache=False)  # holds them
        return (track.current - start) / 2**20


kept, fewer = activations(load()), activations(checkpointed())
print(f"all kept: {kept:.1f} MiB, checkpointed: {fewer:.1f} MiB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# We save 28 MiB: the 29.5 that eight blocks keep, less 1.5 for their inputs. The gradient stays the same. But a
# backward pass costs about two forward passes, so a block's step now costs four forward passes instead of three.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The optimizer on the host
#
# Micro-batches and checkpointing save activations. Weights, gradients and AdamW's two moments remain. The moments are
# half of these, and only the optimizer's step needs them. So they can stay in RAM, the memory of the *host*. In each
# step the gradients go there, AdamW updates an fp32 copy of the parameters, and the result comes back. Our `HostAdamW`
# takes settings and moments from an AdamW on the card, so it can replace it in mid-run. If you have a scheduler, set
# `scheduler.optimizer` to the host's `adamw`.


# %%
def to_host(tensor):
    return tensor.detach().to("cpu", copy=True).float()  # in fp32 only on the host


class HostAdamW:
    def __init__(self, old):
        groups = old.param_groups  # Trainer makes two, with and without weight decay
        self.copies = {w: to_host(w) for group in groups for w in group["params"]}
        host = [g | {"params": [self.copies[w] for w in g["params"]]} for g in groups]
        self.adamw = torch.optim.AdamW(host)
        for weight, copy in self.copies.items():
            state = old.state.get(weight, {})
            if "exp_avg_sq" in state:  # the second moment is made last
                self.adamw.state[copy] = {k: to_host(v) for k, v in state.items()}

    def step(self):
        for weight, copy in self.copies.items():
            copy.grad = None if weight.grad is None else to_host(weight.grad)
        self.adamw.step()
        for weight, copy in self.copies.items():
            weight.detach().copy_(copy)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## A loop that recovers
#
# A loop can catch the error, change how the step is computed, and take the same step again. **Why must the second try
# not stand inside the `except` block?**
#
# The exception holds a traceback with the local variables of the functions that failed, the activations among them.
# Python drops it only at the end of the block. So the step is a function of its own: `attempt` notes where it failed,
# and returns. `torch.cuda.empty_cache()` would not help, because PyTorch empties its cache before it raises the error.


# %%
def attempt(model, optimizer, inputs, labels, size):
    """Take a step; return where it failed, or "" if it did not."""
    failed = "forward or backward"
    try:
        accumulate(model, inputs, labels, size)
        failed = "optimizer step"
        optimizer.step()
        failed = ""
    except torch.OutOfMemoryError:
        pass  # recover later: here the activations are still held
    model.zero_grad()
    return failed


# %% [markdown] slideshow={"slide_type": "subslide"}
# The remedy depends on **where** the step failed:
#
# - In the forward or backward pass, halve the micro-batch. With one row left, switch checkpointing on.
# - If both are done, or in the optimizer step, move the optimizer to the host.
#
# Checkpointing and the move make room, so the loop then tries the whole batch again.
#
# With one parameter group and `fused=True`, AdamW needs new memory only in its first step, when it makes all moments
# before it changes a weight. So a failed step can be repeated, though with new dropout. Without `fused`, every step
# needs scratch memory and may fail half-way.


# %%
def train(model, batches, size=4):
    optimizer, log, keeps_all = adamw(model.parameters()), [], True
    for step, batch in enumerate(batches, 1):
        while failed := attempt(model, optimizer, *batch, size):
            in_pass = failed == "forward or backward"
            if in_pass and size > 1:
                size, remedy = size // 2, "half the rows"
            elif in_pass and keeps_all:
                model.gradient_checkpointing_enable()
                size, keeps_all, remedy = len(batch[0]), False, "checkpointing"
            elif isinstance(optimizer, torch.optim.AdamW):
                optimizer = HostAdamW(optimizer)
                size, remedy = len(batch[0]), "AdamW to the host"
            else:
                raise torch.OutOfMemoryError(f"no remedy left for the {failed}")
            log.append((step, failed, remedy, size))
    return pd.DataFrame(log, columns=["step", "failed in", "remedy", "rows at once"])


# %% [markdown] slideshow={"slide_type": "subslide"}
# We try it on a *virtual card*: the processor computes, and inside the `with` block a tensor beyond the budget is
# refused with CUDA's message. `card.count` adds the weights, which were loaded before, and `host` leaves out what
# `HostAdamW` makes, because that lies in RAM. A real card needs neither.
#
# Weights and gradients take 15 MiB each, the moments 31, and a row's activations and logits about 11. We train without
# a card, then on 76 MiB, and compare the weights. **At which step will the small card fail, and how many rows will fit
# then?**

# %%
undisturbed = load()
train(undisturbed, batches)
host = tl.virtual_device("76MiB").host()
HostAdamW.__init__, HostAdamW.step = host(HostAdamW.__init__), host(HostAdamW.step)


def recovered(memory):
    model = load()
    with tl.virtual_device(memory) as card:
        card.count(model.parameters())
        log = train(model, batches)
    difference = apart(flat(model.parameters()), flat(undisturbed.parameters()))
    course.claim(f"Training on {memory} makes the same weights", difference < 1e-5)
    return log


recovered("76MiB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Step 1 fits in one piece: weights and the activations of four rows are 15 + 4 × 11 = 59 MiB, and gradients are made
# while activations are freed. From step 2 on the moments exist, too, and four rows need 31 MiB more, 90. Two at once
# need 46 + 15 + 2 × 11 = 83, because the gradients of the first two wait. Single rows need 72, and fit.
#
# **What fails on two smaller cards, and how many rows fit after the remedy?**

# %%
pd.concat({memory: recovered(memory) for memory in ("70MiB", "48MiB")})

# %% [markdown] slideshow={"slide_type": "subslide"}
# On 70 MiB, a single row does not fit beside the moments in step 2. With checkpointing all four do: they need 67 MiB.
#
# On 48 MiB, weights, gradients and moments alone are too much (61), so the first optimizer step fails. Activations are
# gone by then, so smaller micro-batches cannot help. With the moments on the host, four rows need 59 MiB, two 52, and
# one 41, which fits.
#
# Move the model and `batches` to your card, and the loop runs there. Our longer version, `tl.train_with_fallback`, met
# six refusals on an H100 and lost no step (`tests/gpu/RESULTS.md`).
#
# **What does each remedy cost?** Here are the processor's seconds for a step, the fastest of five, and for one forward
# pass of the blocks.


# %% tags=["nbval-ignore-output"]
def step_of(model, size=4, optimizer=adamw):
    return partial(attempt, model, optimizer(model.parameters()), inputs, labels, size)


steps = {
    "no remedy": step_of(load()),
    "single rows": step_of(load(), size=1),
    "checkpointing": step_of(checkpointed()),
    "(blocks' forward pass)": partial(load().model, inputs, use_cache=False),
    "AdamW on the host": step_of(load(), optimizer=lambda p: HostAdamW(adamw(p))),
}
clock = partial(timeit, timer=process_time, number=1)
rounds = [{name: clock(one) for name, one in steps.items()} for _ in range(5)]
pd.DataFrame(rounds).min().round(3).to_frame("seconds")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Only checkpointing computes more: a second forward pass of the blocks, and some overhead. Single rows compute the
# same, but less efficiently, so take as many rows at once as fit.
#
# The host costs little here, because AdamW runs on the same processor. On a real card, with 6.7 billion parameters in
# bf16, each step sends 27 GB of gradients and weights, which takes a second at 25 GB/s. AdamW then moves 28 bytes a
# parameter, 189 GB: nearly two seconds more at 100 GB/s.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The way it is done at work
#
# `Trainer` has settings for all of this. Try them from the top:
#
# | remedy | setting | saves | costs |
# | --- | --- | --- | --- |
# | fewer rows | `per_device_train_batch_size`, `gradient_accumulation_steps` | activations | little, unless very few |
# | checkpointing | `gradient_checkpointing=True` | activations in the blocks | a third more computing |
# | moments in 8 bits | `optim="adamw_8bit"` | 6 of the 8 bytes a parameter | rounding of the moments |
# | moments on the host if the card is full | `optim="paged_adamw_32bit"` | up to 8 bytes a parameter | transfers |
#
# The last two need bitsandbytes. The [effective batch](glossary.md#effective-batch-size) is rows at once ×
# micro-batches × cards: keep it constant. **Will single rows with checkpointing train the same model as four, half of
# them padded?**


# %%
def by_trainer(**memory):
    arguments = TrainingArguments(
        mkdtemp(), max_steps=2, learning_rate=1e-3, seed=0, use_cpu=True,
        report_to="none", disable_tqdm=True, save_strategy="no", **memory)  # fmt: skip
    rows = [{"input_ids": a, "labels": b} for a, b in zip(text, padded, strict=True)]
    trainer = Trainer(load(), arguments, train_dataset=rows)
    trainer.remove_callback(PrinterCallback)  # which would print every record
    trainer.train()
    return flat(trainer.model.parameters())


thrifty = by_trainer(
    gradient_checkpointing=True,  # from 5.23: activation_checkpointing
    per_device_train_batch_size=1, gradient_accumulation_steps=4)  # fmt: skip
difference = apart(thrifty, by_trainer(per_device_train_batch_size=4))
course.claim("Trainer makes the same weights in both ways", difference < 1e-4)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With `auto_find_batch_size=True`, `Trainer` can also recover. But it starts again from step 1 with the weights that it
# has by then, and with nine tenths of the rows, which changes the effective batch.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What fits on 24 GB
#
# A card of 24 GB has 23.65 GiB, of which [lesson 9](09_memory.ipynb) leaves 15% free, so 20 remain. For Llama with
# seven billion parameters in [bf16](glossary.md#bf16), we count what belongs to parameters. QLoRA takes 4.127 bits a
# weight in a block ([lesson 6](06_qlora.ipynb)). **Which of the three fit?**

# %%
weights, adapter = 6_738_415_616, 19_988_480  # parameters; those of LoRA with r=8
head = 2 * 32_000 * 4_096  # embedding and head: bf16 here, fp32 in lesson 6's run
needs = {  # bytes: weights + gradients + what the optimizer keeps on the card
    "full, bf16 gradients, AdamW on the host": weights * (2 + 2),
    "LoRA, fp32 adapters": weights * 2 + adapter * 16,
    "QLoRA, fp32 adapters": (weights - head) * 4.127 / 8 + head * 2 + adapter * 16,
}
pd.Series(needs).div(2**30).round(1).to_frame("GiB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# LoRA and QLoRA do. Full fine-tuning does not, while all gradients wait on the card. ZeRO-Offload sends each gradient
# to the host as soon as it is made: then only the weights stay, half of 25.1 GiB, and RAM needs 16 bytes a parameter,
# 108 GB.
#
# LoRA leaves 7 GiB for activations. With checkpointing, a row of 2,048 tokens takes 1.2 GiB: 0.5 for 32 block inputs in
# bf16, 0.7 for three tensors of logits in fp32. So LoRA fits with five such rows; QLoRA leaves 16 GiB for more.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - The gradient of a batch is the sum over its micro-batches if each divides by the tokens of the *whole* batch.
#   Accumulation, checkpointing and an optimizer on the host change how a step is computed, not its result.
# - Repeat a failed step: leave the `except` block, drop its gradients, and choose the remedy by where it failed.
#
# ## Further reading
#
# - PyTorch, [Understanding CUDA memory usage](https://docs.pytorch.org/docs/stable/torch_cuda_memory.html)
# - Hugging Face 2024, [Fixing gradient accumulation](https://huggingface.co/blog/gradient_accumulation)
# - Ren et al. 2021, [ZeRO-Offload](https://arxiv.org/abs/2101.06840)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex10_1", 1)`. After
# *Restart Kernel* run the next cell first.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** Of 23.65 GiB, 1.10 GiB is free, and a tensor of 2 GiB is refused. This process has 9.40 GiB in use, 9.20 of
# them allocated by PyTorch. What do you do first?
#
# - **a** Look with `nvidia-smi` who holds the rest.
# - **b** Set `expandable_segments:True`.
# - **c** Halve the micro-batch.

# %%
course.quiz("quiz10")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 10.1.** Mend a step. If memory runs out, `faulty_step` tries again with half as many rows at once. But it
# distorts the gradient of padded rows, counts some rows twice, and tries again while activations are held. Write
# `mended_step` without these faults. If a single row does not fit, let the error through.

# %%
import torch
from torch.nn.functional import cross_entropy


def faulty_step(model, optimizer, inputs, labels, size):
    try:
        for rows, targets in zip(inputs.split(size), labels.split(size), strict=True):
            loss = cross_entropy(model(rows).flatten(0, 1), targets.flatten())
            (loss * len(rows) / len(inputs)).backward()
    except torch.OutOfMemoryError:
        if size == 1:
            raise
        return faulty_step(model, optimizer, inputs, labels, size // 2)
    optimizer.step()
    optimizer.zero_grad()
    return size


def mended_step(model, optimizer, inputs, labels, size):
    """Take a step with `size` rows at once, or fewer, and return how many fitted."""
    # your code here


course.check("ex10_1", mended_step)

# %% [markdown]
# Previous: [9 · Anatomy of a training step](09_memory.ipynb) ·
# Next: [11 · Your data](11_your_data.ipynb)
