# %% [markdown] slideshow={"slide_type": "slide"}
# # 10 · Out of memory
#
# *Can training go on after it runs out of memory, without losing a step?*
#
# Sooner or later a run of yours will stop with `CUDA out of memory`. Most people then halve the batch and start again,
# which is a different training. It can be done better, because the same step can be computed in many ways, and some of
# them need far less memory. You will read the error, build the ways to need less by hand, and write a loop that fails,
# takes the same step again and ends with the same weights.
#
# **You will be able to**
#
# - read an out-of-memory message and a memory snapshot, and tell a full card from a fragmented one;
# - split a batch into micro-batches with exactly the gradient of the whole batch, and move AdamW to the host;
# - recover from an out-of-memory error in the middle of a run, and say what fits on 24 GB.
#
# **You need** [lesson 9](09_memory.ipynb), which says what a training step keeps in memory.
#
# About 41 minutes.

# %% slideshow={"slide_type": "subslide"}
import weakref

import pandas as pd
import torch
from accelerate.utils import find_executable_batch_size
from peft import LoraConfig, get_peft_model
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers import LlamaConfig, LlamaForCausalLM

import course
import tlkit as tl
from course.lesson10 import pictures

tl.setup()
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
blocks = tl.pack(tl.load_corpus("rust").train[:20], tokenizer, 64)[:12]


def load():
    return AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)


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
# PyTorch asks the driver for large *segments*, cuts them into blocks, and keeps a block that is freed for the next
# tensor. *Allocated* memory belongs to tensors that exist, and *reserved* memory is everything PyTorch got from the
# driver. What is reserved but unallocated can still be given out.
#
# Card A is full: tensors hold 22.9 of its 23.65 GiB, and 22 MiB were only the last straw. The tensor that fails is often
# not to blame. Card B is not full: 2.30 GiB lie in reserve, and yet 1.70 GiB could not be given, because they lie in
# pieces and a tensor needs one piece. This is called *fragmentation*, and it has its own cure: set
# `PYTORCH_ALLOC_CONF=expandable_segments:True` in the environment before the program starts (older releases of PyTorch
# call it `PYTORCH_CUDA_ALLOC_CONF`).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A snapshot as text
#
# On a CUDA card `torch.cuda.memory_snapshot()` lists every segment and its blocks. A few lines make it readable without
# a browser. We have no card here, so the function gets a small list of the same form.


# %%
def as_text(segments, width=48):
    for segment in segments:
        total, bar, largest = segment["total_size"], "", 0
        for block in segment["blocks"]:
            free = block["state"] == "inactive"
            bar += (".#"[not free]) * round(width * block["size"] / total)
            largest = max(largest, free * block["size"])
        print(f"{total >> 20} MiB {bar}  largest free block: {largest >> 20} MiB")


example, states = [], {True: "inactive", False: "active_allocated"}
for sizes in ((10, -6, 8), (-8, 4, -8, 4), (6, -6, 6, -6)):  # MiB; free ones negative
    listed = [{"size": abs(s) << 20, "state": states[s < 0]} for s in sizes]
    example.append({"total_size": 24 << 20, "blocks": listed})
as_text(torch.cuda.memory_snapshot() if torch.cuda.is_available() else example)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Of 72 MiB, 34 are free, but no tensor above 8 MiB finds a place. Batches whose lengths vary leave such holes, because
# each new length needs blocks of another size. If the bars are full of `#`, the cure is to need less memory, which is
# what the rest of this lesson is about. The bars do not say *who* holds the memory: for that, call
# `torch.cuda.memory._record_memory_history()` first, dump a snapshot, and open it at pytorch.org/memory_viz.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Micro-batches, and the mean of means
#
# A *micro-batch* is a part of the batch that passes through the model at once. Its activations are freed after its
# backward pass, while its gradients stay in `.grad` and the next `backward()` adds to them. This is [gradient
# accumulation](glossary.md#gradient-accumulation).
#
# Let $N$ tokens of the batch count, with a loss $\ell_i$ each, split into $M$ micro-batches $B_m$ with $N_m$ tokens. The
# loss of the batch is the mean over all $N$ tokens. So each micro-batch contributes the *sum* of its losses, divided by
# the tokens of the *whole* batch. A common fault is to average the means of the micro-batches instead:
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
print(f"the mean of means is off by {wrong:.0%} of the right gradient's length")

# %% slideshow={"slide_type": "subslide"}
short = torch.zeros(4, 6, dtype=torch.long)
short[2, 2:] = short[3, 1:] = -100
pictures.micro_batch_picture(short, size=2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The picture has shorter rows, so that each token has a cell. In our batch, the 28 tokens of the two short texts weigh as
# much as the 126 of the long ones, so each of them counts 4.5 times as much. This fault was in widely used trainers,
# among them the `Trainer` of transformers, until October 2024.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Two more ways to need less
#
# **Activation checkpointing** keeps only the input of each block, and computes the block's forward pass a second time
# when backpropagation reaches it. A backward pass costs about two forward passes, so a step takes four units of
# arithmetic instead of three.


# %% tags=["nbval-ignore-output"]
def activations(checkpointing):
    """MiB of activations that wait for the backward pass."""
    model = load().train()
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

# %% [markdown] slideshow={"slide_type": "subslide"}
# **The optimizer on the host.** AdamW keeps two moments for each trained parameter, and they are needed only once a
# step. So they can stay in ordinary RAM: the gradients go to the host, AdamW updates a copy of the parameters there, and
# the result comes back. A step then sends 8 bytes for each trained parameter over the bus.


# %%
class HostAdamW:
    def __init__(self, parameters):
        self.card = list(parameters)
        self.host = [p.detach().cpu().clone() for p in self.card]
        self.adamw = adamw(self.host)

    @torch.no_grad()
    def step(self):
        for there, here in zip(self.card, self.host, strict=True):
            here.grad, there.grad = there.grad.cpu(), None
        self.adamw.step()
        for there, here in zip(self.card, self.host, strict=True):
            there.copy_(here)


updated = []
for kind in (adamw, HostAdamW):
    model = load()
    optimizer = kind(model.parameters())
    accumulate(model, inputs, labels, size=4)
    optimizer.step()
    updated.append(flat(model.parameters()))
course.claim("AdamW on the host makes the same weights", apart(*updated) < 1e-6)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A loop that recovers
#
# It seems natural to repeat a failed step inside the `except` block. **Why does this fail again on a full card?**

# %%
watched = []


def failing_step():
    activations = torch.zeros(1000, 1000)
    watched.append(weakref.ref(activations))  # sees the tensor without keeping it
    raise torch.OutOfMemoryError("CUDA out of memory.")


try:
    failing_step()
except torch.OutOfMemoryError:
    print("inside the except block:", type(watched[0]()).__name__)
print("after it:", type(watched[0]()).__name__)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The exception holds a traceback, the traceback holds the frames of the functions that failed, and each frame holds its
# local variables, the activations among them. Python drops the exception at the end of the block. So inside it we only
# note what happened, and recover after it.
#
# To see this without a graphics card, we use a *virtual card*: the processor computes, every tensor is counted, and the
# tensor that would exceed the budget is refused with CUDA's message. Ours has 80 MiB, and training takes three steps of
# four rows.


# %%
def train(model, card, size=4):
    optimizer, log = adamw(model.parameters()), []
    with card:
        card.hold(model.parameters())
        for step, batch in enumerate(blocks.split(4), 1):
            done = False
            while not done:
                try:
                    accumulate(model, batch[:, :-1], batch[:, 1:], size)
                    done = True
                except torch.OutOfMemoryError:
                    pass
                log.append((step, size, "done" if done else "out of memory"))
                if not done:  # after the except block, where the activations are gone
                    optimizer.zero_grad()
                    size = size // 2
            optimizer.step()
            optimizer.zero_grad()
    return pd.DataFrame(log, columns=["step", "rows at once", "forward and backward"])


recovered, undisturbed = load(), load()
log = train(recovered, tl.virtual_device(memory="80MiB"))
train(undisturbed, tl.virtual_device(memory="8GiB"))
difference = apart(flat(recovered.parameters()), flat(undisturbed.parameters()))
course.claim("The recovered training makes the same weights", difference < 1e-5)
log

# %% [markdown] slideshow={"slide_type": "subslide"}
# Step 1 fits in one piece. In step 2 AdamW's moments, which step 1 made, are in memory too, so the same batch fails with
# four rows and with two, and passes with one. Nothing is lost: the weights agree with those of a card with 8 GiB to
# within rounding, because the gradients are the same sums in another order.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The whole ladder
#
# Our loop has two gaps. It knows a single way down, and an error inside `optimizer.step()` would leave some weights
# updated and others not. `tl.train_with_fallback` closes both: it undoes a failed step wherever it failed, goes one
# *rung* of a ladder down and takes the same step again. We give it only 48 MiB.
#
# **Weights and gradients take 31 MiB, and AdamW's moments as much. Which rung will be the first to hold?**

# %%
settings = tl.TrainingConfig(learning_rate=1e-3, batch_size=4, weight_decay=0)
rungs = ("smaller micro-batch", "activation checkpointing", "optimizer on the host")
walked, reference = load(), load()
card = tl.virtual_device(memory="48MiB")
result, attempts = tl.train_with_fallback(
    walked, blocks, settings, device=card, order=rungs
)
tl.train(reference, blocks, settings)
attempts.table[["rung", "first_step", "steps_done", "failed_in"]]

# %%
difference = apart(flat(walked.parameters()), flat(reference.parameters()))
course.claim(
    "Five attempts, three steps, and the weights of an undisturbed training",
    len(attempts.table) == 5 and len(result.history) == 3 and difference < 1e-5,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# To watch the attempts one by one, run this cell:

# %%
course.ladder_player(attempts)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With four rows and with two, the forward pass fails. With one row the failure moves to the optimizer step, where the
# moments are made, and checkpointing cannot help there: no activations are left at that moment. Only the optimizer on
# the host frees what is missing. So *where* it failed tells which rung helps:
#
# | fails in | what fills the card | what helps |
# | --- | --- | --- |
# | the first forward pass | weights, activations, logits | smaller micro-batch, checkpointing |
# | the backward pass | activations and the first gradients | the same |
# | the optimizer step | moments | optimizer on the host, in 8 bits, or fewer trained parameters |
# | a later step | a longer batch, or fragments | sort or cut long texts; expandable segments |
#
# A fallback is good for long runs without a watcher: one long batch, or a neighbour on the same card, does not end them.
# It is no plan. If every step runs on the last rung, choose a method that needs less.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What people use, and what it changes
#
# accelerate offers `find_executable_batch_size`, and `auto_find_batch_size=True` in transformers' `Trainer` uses it.
# **On our card of 80 MiB, what training do you get?**

# %%
tried = []


@find_executable_batch_size(starting_batch_size=4)
def train_from_the_start(batch_size):
    model = load()
    optimizer = adamw(model.parameters())
    with tl.virtual_device(memory="80MiB") as card:
        card.hold(model.parameters())
        for step, batch in enumerate(blocks.split(batch_size), 1):
            tried.append((batch_size, step))
            accumulate(model, batch[:, :-1], batch[:, 1:], batch_size)
            optimizer.step()
            optimizer.zero_grad()


train_from_the_start()
rows, steps = tried[-1]
print(f"the training that you get: {steps} steps of {rows} rows")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It starts again from step 1 and takes fewer rows in a step, so the [effective
# batch](glossary.md#effective-batch-size) shrinks. You get another training, with more and noisier steps, at a learning
# rate that was chosen for four rows. To keep the batch, set `per_device_train_batch_size` as low as it has to be, and
# raise `gradient_accumulation_steps` so that their product stays the same. The `Trainer` also has checkpointing
# (`activation_checkpointing=True`, in older releases `gradient_checkpointing`).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What fits on 24 GB
#
# As message A says, a card of 24 GB has 23.65 GiB, of which some hundred MiB go to the driver. People train in
# [bf16](glossary.md#bf16), so this is the table to know by heart, for a Llama of seven billion parameters. It counts
# what stays in memory all the time.

# %%
with torch.device("meta"):  # shapes without memory
    llama = LlamaForCausalLM(LlamaConfig())
    lora = get_peft_model(llama, LoraConfig(r=16, target_modules="all-linear"))
adapter = sum(p.numel() for p in lora.parameters() if p.requires_grad)
weights = sum(p.numel() for p in lora.parameters()) - adapter
head = 2 * 32_000 * 4_096  # embedding and head, which QLoRA leaves in bf16
in_four_bits = (weights - head) * 4.127 / 8 + head * 2
needs = {  # bytes: weights + gradients + what the optimizer keeps
    "full, bf16 with fp32 master and moments": weights * (2 + 2 + 12),
    "full, bf16, AdamW in 8 bits": weights * (2 + 2 + 2),
    "LoRA, bf16 weights, fp32 adapter": weights * 2 + adapter * 16,
    "QLoRA, 4-bit weights, fp32 adapter": in_four_bits + adapter * 16,
}
table = pd.DataFrame({"GiB": {name: size / 2**30 for name, size in needs.items()}})
table["left of 23.2 GiB"] = 23.2 - table.GiB
table.round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# LoRA leaves some 10 GiB for activations and QLoRA 19. With checkpointing, one row of 2,048 tokens keeps
# 32 block inputs of 2,048 × 4,096 numbers in bf16, which is 0.5 GiB, and its logits in fp32 take 0.24 GiB, twice with
# their gradient. So seven billion parameters with LoRA in bf16 are the normal case on 24 GB, and QLoRA is for longer
# texts or for 13 billion. Full fine-tuning fits in neither recipe, so there a ladder only ends on the host.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Read four numbers: asked for, free, allocated, reserved but unallocated. They tell a full card from a fragmented one.
# - The gradient of a batch is the sum over its micro-batches if each divides by the tokens of the *whole* batch. Only
#   then may the way a step is carried out change without changing the result.
# - Recover after the `except` block, undo the failed step, and choose the rung by where it failed.
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
# - **b** Use a smaller micro-batch, because only 0.4 MiB were missing.
# - **c** Switch activation checkpointing on.
# - **d** Take half as many rows in a step.

# %%
course.quiz("quiz10")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 10.1** (first steps). A card prints the message below. How many more MiB would have had to be free for this
# one tensor? And how many MiB of the card are neither free nor allocated by PyTorch? (They belong to the driver, to
# other programs, and to what PyTorch keeps in reserve.) Answer with both numbers, in this order.

# %%
message = """CUDA out of memory. Tried to allocate 298.00 MiB. GPU 0 has a total
capacity of 8.00 GiB of which 120.00 MiB is free. Of the allocated memory 7.10 GiB is
allocated by PyTorch."""
answer = None
# your code here
course.check("ex10_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 10.2** (apply it). Compute the gradients of a batch in smaller micro-batches. `inputs` and `targets` have
# the shape (rows, tokens). At most `size` rows may pass through `model` at once, and `model(inputs)` returns scores of
# shape (rows, tokens, vocabulary). The loss is the mean cross-entropy over all targets of the batch that count; a
# target of -100 does not. Leave the gradients of the *whole* batch in the weights, which have no gradients yet, and
# return the loss of the whole batch. The last micro-batch may be smaller, and a micro-batch may have no target that
# counts.

# %%
from torch.nn.functional import cross_entropy


def gradients_in_pieces(model, inputs, targets, size):
    """Gradients and loss as if the whole batch had passed at once."""
    # your code here


course.check("ex10_2", gradients_in_pieces)

# %% [markdown]
# Previous: [9 · Anatomy of a training step](09_memory.ipynb) ·
# Next: [12 · A real model](12_a_real_model.ipynb)
