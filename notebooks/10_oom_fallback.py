# %% [markdown] slideshow={"slide_type": "slide"}
# # 10 · Out of memory
#
# *Can training go on after it runs out of memory, without losing a step?*
#
# Sooner or later a run of yours will stop with `CUDA out of memory`. Most people then halve the batch and start again,
# which is a different training. There is a better way, because the same step can be computed in many ways, and some
# need far less memory. You will build three of them, and a loop that fails, takes the same step again and ends with the
# same weights.
#
# **You will be able to**
#
# - read an out-of-memory message and a memory snapshot, and tell a full card from a fragmented one;
# - split a batch into micro-batches with exactly the gradient of the whole batch, and move AdamW to the host;
# - recover from an out-of-memory error in the middle of a run, and say what fits on 24 GB.
#
# **You need** [lesson 9](09_memory.ipynb), which says what a training step keeps in memory.
#
# About 34 minutes.

# %% slideshow={"slide_type": "subslide"}
from contextlib import nullcontext

import pandas as pd
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl
from course.lesson10 import pictures

tl.setup()
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
blocks = tl.pack(tl.load_corpus("rust").train[:20], tokenizer, 64)[:12]


def load():
    model = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
    return model.train()


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.0)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## Read the message
#
# Here are two messages that users of PyTorch posted (pytorch issue 16417; issue 35 of carolchenyx/MGFN), without their
# last sentence. **Which of the two cards is full?**
#
# > **A.** CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a total capacity of 23.65 GiB of which 11.06 MiB is
# > free. Including non-PyTorch memory, this process has 23.60 GiB memory in use. Of the allocated memory 22.90 GiB is
# > allocated by PyTorch, and 194.87 MiB is reserved by PyTorch but unallocated.
#
# > **B.** CUDA out of memory. Tried to allocate 1.70 GiB. GPU 0 has a total capacity of 6.00 GiB of which 0 bytes is
# > free. Of the allocated memory 2.93 GiB is allocated by PyTorch, and 2.30 GiB is reserved by PyTorch but unallocated.

# %% [markdown] slideshow={"slide_type": "subslide"}
# To read such a message you need two words. PyTorch asks the driver for large *segments*, cuts them into blocks, and
# keeps a block that is freed for the next tensor. *Allocated* memory belongs to tensors that exist, and *reserved*
# memory is everything PyTorch got from the driver. So memory that is reserved but unallocated can still be given out.
#
# Card A is full: tensors hold 22.9 of its 23.65 GiB, and 22 MiB were only the last straw. The tensor that fails is
# often not to blame.
#
# Card B is not full: 2.30 GiB lie in reserve, and yet 1.70 GiB could not be given, because they lie in
# pieces and a tensor needs one piece. This is called *fragmentation*, and it has its own cure: set
# `PYTORCH_ALLOC_CONF=expandable_segments:True` in the environment before the program starts (older releases of PyTorch
# call it `PYTORCH_CUDA_ALLOC_CONF`).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A snapshot as text
#
# On a CUDA card `torch.cuda.memory_snapshot()` lists every segment and its blocks. A few lines make it readable without
# a browser. If there is no card, it gets a small list of the same form. (`>> 20` turns bytes into MiB, `<< 20` back.)


# %%
def as_text(segments, width=48):
    for segment in segments:
        size, bar, largest = segment["total_size"], "", 0
        for block in segment["blocks"]:
            in_use = block["state"] != "inactive"
            bar += ("#" if in_use else ".") * round(width * block["size"] / size)
            if not in_use:
                largest = max(largest, block["size"])
        print(f"{size >> 20} MiB {bar}  largest free block: {largest >> 20} MiB")


free, used, example = "inactive", "active_allocated", []
for sizes in ((10, -6, 8), (-8, 4, -8, 4), (6, -6, 6, -6)):  # MiB; free ones negative
    parts = [{"size": abs(s) << 20, "state": free if s < 0 else used} for s in sizes]
    example.append({"total_size": 24 << 20, "blocks": parts})
as_text(torch.cuda.memory_snapshot() if torch.cuda.is_available() else example)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each line is a segment; `#` is in use and `.` is free. Of 72 MiB, 34 are free, but no tensor above 8 MiB finds a
# place. Batches whose lengths vary leave such holes, because each new length needs blocks of another size. If the bars
# are full of `#`, the cure is to need less memory, which is what the rest of this lesson is about.
#
# The bars do not say *who* holds the memory: for that, call `torch.cuda.memory._record_memory_history()` first, dump a
# snapshot, and open it at pytorch.org/memory_viz.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Micro-batches, and the mean of means
#
# A *micro-batch* is a part of the batch that passes through the model at once. Its activations are freed after its
# backward pass, while its gradients stay in `.grad` and the next `backward()` adds to them. This is [gradient
# accumulation](glossary.md#gradient-accumulation).
#
# It is easy to get this sum wrong. Let $N$ tokens of the batch count, with a loss $\ell_i$ each, split into $M$
# micro-batches $B_m$ with $N_m$ tokens. The loss of the batch is the mean over all $N$ tokens. So each micro-batch
# contributes the *sum* of its losses, divided by the tokens of the *whole* batch. A common fault is to average the
# means of the micro-batches instead:
#
# $$\frac{1}{N} \sum_{m=1}^{M} \sum_{i \in B_m} \ell_i \qquad \text{and not} \qquad
# \frac{1}{M} \sum_{m=1}^{M} \frac{1}{N_m} \sum_{i \in B_m} \ell_i$$
#
# The two agree only if all $N_m$ are equal. Padding breaks this, since padded positions have the label -100 and do not
# count. Let two of four rows be short. **How far off is the wrong gradient: 1%, 10%, or more?**


# %%
def accumulate(model, inputs, labels, size, divisor=None):
    """Leave the gradients of a batch, with `size` rows passing through at once."""
    counted = (labels != -100).sum()
    for rows, targets in zip(inputs.split(size), labels.split(size), strict=True):
        logits = model(input_ids=rows).logits.flatten(0, 1)
        loss = cross_entropy(logits, targets.flatten(), reduction="sum")
        (loss / (divisor(targets) if divisor else counted)).backward()


def flat(tensors):
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def apart(one, other):
    return float((one - other).norm() / other.norm())


inputs, labels = blocks[:4, :-1], blocks[:4, 1:].clone()
for row, length in enumerate((63, 63, 20, 8)):
    labels[row, length:] = -100  # after the text: padding
ways = {"whole": (4, None), "in two": (2, None)}
ways["mean of means"] = (2, lambda part: 2 * (part != -100).sum())
gradients = {}
for name, way in ways.items():
    model = load()
    accumulate(model, inputs, labels, *way)
    gradients[name] = flat(p.grad for p in model.parameters())
right = apart(gradients["in two"], gradients["whole"])
wrong = apart(gradients["mean of means"], gradients["whole"])
course.claim("Micro-batches give the gradient of the whole batch", right < 1e-4)
print(f"the mean of means is off by {wrong:.0%} of the right gradient's norm")

# %% slideshow={"slide_type": "subslide"}
short = torch.zeros(4, 6, dtype=torch.long)
short[2, 2:] = short[3, 1:] = -100
pictures.micro_batch_picture(short, size=2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The picture has shorter rows, so that each token has a cell. In our batch, the 28 tokens of the two short texts weigh
# as much as the 126 of the long ones, so each of them counts 4.5 times as much. This fault was in widely used trainers,
# among them the `Trainer` of transformers, until October 2024.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Checkpointing: compute twice, keep less
#
# Micro-batches help until one row is left. The next way lowers what one row keeps. [Activation
# checkpointing](glossary.md#activation-checkpointing) keeps only the input of each block, and computes the block's
# forward pass a second time when backpropagation reaches it. A backward pass costs about two forward passes, so a step
# takes four units of arithmetic instead of three. `tl.track_memory` counts the bytes of live tensors, as the timeline
# of lesson 9 does.


# %% tags=["nbval-ignore-output"]
def activations(checkpointing):
    """MiB of activations that wait for the backward pass."""
    model = load()
    if checkpointing:  # older releases know only the second name
        enable = getattr(model, "activation_checkpointing_enable", None)
        (enable or model.gradient_checkpointing_enable)()
    with tl.track_memory(model) as track:
        start = track.current
        hidden = model.get_decoder()(input_ids=blocks[:4], use_cache=False)
        kept = track.current - start
        del hidden  # which holds the graph
    return kept / 2**20


kept, kept_with = activations(False), activations(True)
print(f"activations: {kept:.0f} MiB, with checkpointing {kept_with:.0f} MiB")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The optimizer on the host
#
# Both ways lower what belongs to tokens. The largest part of what belongs to parameters is AdamW: it keeps two moments
# for each trained parameter, and they are needed only once a step. So they can stay in ordinary RAM, the memory of the
# *host*: the gradients go to the host, AdamW updates an fp32 copy of the parameters there, and the result comes back.
# (`host` is for the virtual card of the next section. A real one does not need it.)


# %%
class HostAdamW:
    def __init__(self, parameters, host=nullcontext):
        self.card, self.host = [p for p in parameters if p.requires_grad], host
        with self.host():
            self.copies = [p.detach().to("cpu", copy=True).float() for p in self.card]
            self.adamw = adamw(self.copies)

    @torch.no_grad()
    def step(self):
        with self.host():
            for there, here in zip(self.card, self.copies, strict=True):
                here.grad, there.grad = there.grad.to("cpu", copy=True).float(), None
            self.adamw.step()
            self.adamw.zero_grad()
        for there, here in zip(self.card, self.copies, strict=True):
            there.copy_(here)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## A loop that recovers
#
# Now put the remedies to work. A loop catches the error, changes how the step is computed, and takes the same step
# again. It seems natural to repeat the step inside the `except` block. **Why does this fail again on a full card?**
#
# The exception holds a traceback, the traceback holds the frames of the functions that failed, and each frame holds its
# local variables, the activations among them. So inside the `except` block the failed step still has its memory. Python
# drops the exception at the end of the block. For this reason our loop only notes inside the block what happened, and
# recovers after it.

# %% [markdown] slideshow={"slide_type": "subslide"}
# To try this without a graphics card, we use a *virtual card*: the processor computes, every new tensor is counted, and
# the tensor that would exceed the budget is refused with CUDA's message. `card.hold` counts the weights, which were
# made before, and inside `card.host()` nothing is counted.
#
# The loop has two remedies, and **where** a step fails decides between them:
#
# - In the forward or backward pass it halves the micro-batch.
# - In the first optimizer step, where AdamW makes its moments, it moves the optimizer to the host. AdamW makes all
#   moments before it changes a weight, so the step can be taken again.
#
# If no remedy is left, it raises the error.


# %%
def train(model, card, size=4):
    optimizer, log = adamw(model.parameters()), []
    with card:
        card.hold(model.parameters())
        for step, batch in enumerate(blocks.split(4), 1):
            failed = "not tried yet"
            while failed:
                failed = "forward or backward"
                try:
                    accumulate(model, batch[:, :-1], batch[:, 1:], size)
                    failed = "optimizer step"
                    optimizer.step()
                    failed = ""
                except torch.OutOfMemoryError as error:
                    message = str(error)  # the text holds no tensors
                model.zero_grad()
                log.append((step, size, type(optimizer).__name__, failed))
                on_card = isinstance(optimizer, torch.optim.AdamW)
                if failed == "forward or backward" and size > 1:
                    size = size // 2
                elif failed == "optimizer step" and step == 1 and on_card:
                    optimizer = None  # frees the moments that were made
                    optimizer = HostAdamW(model.parameters(), card.host)
                elif failed:
                    raise torch.OutOfMemoryError(message)
    return pd.DataFrame(log, columns=["step", "rows at once", "optimizer", "failed in"])


# %% [markdown] slideshow={"slide_type": "subslide"}
# We train on a card with plenty of memory, then on one with 80 MiB, and compare the weights.

# %%
undisturbed, recovered = load(), load()
train(undisturbed, tl.virtual_device(memory="8GiB"))
log = train(recovered, tl.virtual_device(memory="80MiB"))
difference = apart(flat(recovered.parameters()), flat(undisturbed.parameters()))
course.claim("The recovered training makes the same weights", difference < 1e-5)
log

# %% [markdown] slideshow={"slide_type": "subslide"}
# Step 1 fits in one piece. From step 2 on AdamW's moments are in memory as well, so a micro-batch of four rows no longer
# fits, nor one of two; single rows do. Nothing is lost: the weights agree with those of a card with 8 GiB
# to within rounding, because the gradients are the same sums in another order.
#
# Now the loop gets only 48 MiB. **Weights and gradients take 31 MiB, and the moments as much. Which remedy comes
# last?**

# %%
small, small_card = load(), tl.virtual_device(memory="48MiB")
small_log = train(small, small_card)
difference = apart(flat(small.parameters()), flat(undisturbed.parameters()))
print(f"at most {small_card.peak / 2**20:.1f} MiB on the card")
course.claim(
    "A card that cannot hold AdamW's moments makes the same weights", difference < 1e-5
)
small_log

# %% [markdown] slideshow={"slide_type": "subslide"}
# With four rows and with two, the forward or backward pass fails. With one row these passes fit, and the failure moves
# to the optimizer step. A smaller micro-batch or checkpointing cannot help there, because no activations are left at
# that moment. So *where* a step failed tells what helps:
#
# | fails in | what fills the card | what helps |
# | --- | --- | --- |
# | the first forward pass | weights, activations, logits | smaller micro-batch, checkpointing |
# | the backward pass | activations and the first gradients | the same |
# | the first optimizer step | moments | optimizer on the host, in 8 bits, or fewer trained parameters |
# | the second step | the moments, now beside the activations | smaller micro-batches |
# | a later step | a longer batch, or fragments | sort or cut long texts; expandable segments |
#
# A fallback protects an unattended run from one long batch or from another process on the card. It does not replace
# planning: if every step needs the last remedy, choose a method that needs less.
#
# **Limits.** A later optimizer step that fails may leave some weights updated and others not, so our loop raises the
# error there. On a CUDA card, build AdamW with `fused=True`, so that the first step cannot fail halfway. With dropout,
# which sets random activations to zero, a repeated step draws other zeros: it is a valid step but not the same.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What people use, and what it changes
#
# accelerate offers `find_executable_batch_size`, and `auto_find_batch_size=True` in transformers' `Trainer` uses it. It
# also recovers from the error, but it makes another training. After each error it multiplies the batch by 0.9, rounds
# down, and starts the loop again from step 1, with the weights as the steps before the error have left them. On our
# card of 80 MiB, 4 rows become 3 and then 2. The [effective batch](glossary.md#effective-batch-size) has shrunk, so six
# noisier steps follow instead of three, at a learning rate that was chosen for four rows.
#
# To keep the batch, set `per_device_train_batch_size` as low as it has to be, and raise `gradient_accumulation_steps`
# so that their product stays the same.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What fits on 24 GB
#
# As message A says, a card of 24 GB has 23.65 GiB, of which some hundred MiB go to the driver. For the Llama of seven
# billion parameters of lesson 9, the table counts what stays in memory all the time, with weights in
# [bf16](glossary.md#bf16). QLoRA takes 4.127 bits for a weight in a block ([lesson 6](06_qlora.ipynb)).

# %%
weights, adapter = 6_738_415_616, 19_988_480  # parameters; those of LoRA with r=8
head = 2 * 32_000 * 4_096  # embedding and head, which QLoRA leaves in bf16
in_four_bits = (weights - head) * 4.127 / 8 + head * 2
needs = {  # bytes: weights + gradients + what the optimizer keeps on the card
    "full, fp32 master copy and moments": weights * (2 + 4 + 12),
    "full, bf16 gradients, AdamW on the host": weights * (2 + 2),
    "LoRA, fp32 adapters": weights * 2 + adapter * 16,
    "QLoRA, fp32 adapters": in_four_bits + adapter * 16,
}
table = pd.DataFrame({"GiB": {name: size / 2**30 for name, size in needs.items()}})
table["left of 23.2 GiB"] = 23.2 - table.GiB
table.round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# LoRA leaves some 10 GiB for activations and QLoRA 19. With checkpointing, one row of 2,048 tokens keeps 32 block
# inputs of 2,048 × 4,096 numbers in bf16, which is 0.5 GiB. So seven billion parameters with LoRA in bf16 are the
# normal case on 24 GB, and QLoRA is for longer texts or for 13 billion.
#
# Full fine-tuning does not fit even with the optimizer on the host, because bf16 weights and gradients alone need 25
# GiB.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Read four numbers: asked for, free, allocated, reserved but unallocated. They tell a full card from a fragmented
#   one.
# - The gradient of a batch is the sum over its micro-batches if each divides by the tokens of the *whole* batch. Then
#   you can change how a step is computed without changing its result.
# - Recover after the `except` block, drop the gradients of the failed step, and choose the remedy by where it failed.
#
# ## Further reading
#
# - PyTorch, [Understanding CUDA memory usage](https://docs.pytorch.org/docs/stable/torch_cuda_memory.html) and [memory
#   management](https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management)
# - Hugging Face 2024, [Fixing gradient accumulation](https://huggingface.co/blog/gradient_accumulation)
# - Chen et al. 2016, [Training deep nets with sublinear memory cost](https://arxiv.org/abs/1604.06174)
# - Ren et al. 2021, [ZeRO-Offload](https://arxiv.org/abs/2101.06840): the optimizer on the host

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex10_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** In step 1, memory runs out in the *optimizer step*. Which change can help and still give the same weights?
#
# - **a** Move the optimizer to the host.
# - **b** Use a smaller micro-batch, because the tensor that was refused is small.
# - **c** Switch activation checkpointing on.
# - **d** Take half as many rows in a step.

# %%
course.quiz("quiz10")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 10.1.** Compute the gradients of a batch in smaller micro-batches. `inputs` and `targets` have the shape
# (rows, tokens). At most `size` rows may pass through `model` at once, and `model(inputs)` returns scores of shape
# (rows, tokens, vocabulary). The loss is the mean cross-entropy over all targets of the batch that count; a target of
# -100 does not. Leave the gradients of the *whole* batch in the weights, which have no gradients yet, and return the
# loss of the whole batch. The last micro-batch may be smaller, and a micro-batch may have no target that counts.

# %%
from torch.nn.functional import cross_entropy


def gradients_in_pieces(model, inputs, targets, size):
    """Gradients and loss as if the whole batch had passed at once."""
    # your code here


course.check("ex10_1", gradients_in_pieces)

# %% [markdown]
# Previous: [9 · Anatomy of a training step](09_memory.ipynb) ·
# Next: [11 · Your data](11_your_data.ipynb)
