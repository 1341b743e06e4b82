# %% [markdown] slideshow={"slide_type": "slide"}
# # 10 · Out of memory
#
# *Can training go on after it runs out of memory, without losing a step?*
#
# Sooner or later a run stops with `CUDA out of memory`. You could start again with half the batch, but that is a
# different training. The same step can be computed in ways that need far less memory.
#
# **You will be able to**
#
# - read an out-of-memory message, and tell a full card from a fragmented one;
# - split a batch into micro-batches with the whole batch's gradient, keep fewer activations, move AdamW to the host;
# - recover from an out-of-memory error in the middle of a run, and say what fits on 24 GB.
#
# **You need** [lesson 9](09_memory.ipynb) (the memory of a training step).
#
# About 34 minutes.

# %% slideshow={"slide_type": "subslide"}
import warnings
from contextlib import nullcontext
from functools import partial
from tempfile import mkdtemp

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
    model = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
    return model.train()


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
# Card A is full: tensors hold 22.9 of its 23.65 GiB, and its reserve, though above 22 MiB, is under 1% of the card. The
# tensor that fails is only the first without room, so making it smaller rarely helps. (If "this process"
# used far less than the capacity, another would hold the rest: see `nvidia-smi`.)
#
# Card B is not full: 2.30 GiB lie in reserve, but in pieces, and none has room for 1.70 GiB. This is *fragmentation*.
# Its cure: set `PYTORCH_ALLOC_CONF=expandable_segments:True` in the environment (`PYTORCH_CUDA_ALLOC_CONF` up to
# 2.9) before you start Python. Windows may not support it.
#
# Here are three segments of such a card, one character per MiB. Of 72 MiB 34 are free (`.`), but no tensor above 8 MiB
# finds a place. Batches of varying lengths leave such holes.
#
# ```
# ##########......########  ........####........####  ######......######......
# ```

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
# The two agree only if all $n_j$ are equal, but padded positions have the label -100 and do not count. Here is the
# weight of each token in a batch whose last two rows are short:

# %% slideshow={"slide_type": "subslide"}
short = torch.zeros(4, 6, dtype=torch.long)
short[2, 2:] = short[3, 1:] = -100
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


def mean_of_means(model, inputs, labels, size):
    for rows, targets in zip(inputs.split(size), labels.split(size), strict=True):
        logits = model(input_ids=rows, use_cache=False).logits.flatten(0, 1)
        loss = cross_entropy(logits, targets.flatten())  # the mean of this part
        (loss * size / len(inputs)).backward()


def flat(tensors):
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


inputs, labels = text[:4, :-1], text[:4, 1:].clone()
labels[2, 20:] = labels[3, 8:] = -100  # padding


def gradient(way, size, model):
    way(model, inputs, labels, size)
    return flat(p.grad for p in model.parameters())


def apart(one, other):
    return float((one - other).norm() / other.norm())


whole = gradient(accumulate, 4, load())
right = apart(gradient(accumulate, 2, load()), whole)
wrong = apart(gradient(mean_of_means, 2, load()), whole)
course.claim("Micro-batches give the gradient of the whole batch", right < 1e-4)
print(f"the mean of means is off by {wrong:.0%} of the right gradient's norm")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The 28 tokens of the two short texts weigh as much as the 126 of the long ones, so each counts 4.5 times as much. The
# `Trainer` of transformers had this fault until October 2024.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Checkpointing: compute twice, keep less
#
# Micro-batches help until one row is left. [Activation checkpointing](glossary.md#activation-checkpointing) lowers what
# this row keeps. It stores only the input of a block, and computes the block's forward pass a second time when
# backpropagation reaches it. PyTorch's `checkpoint(function, *inputs)` calls a function in this way, so we put it
# around the `forward` of some blocks. (`use_cache=False`, or the second pass would add its keys to the KV cache again.)
# `tl.track_memory` counts the bytes of live tensors. **How much does one block save, and how much do all eight?**


# %% tags=["nbval-ignore-output"]
def checkpointed(count):  # the first blocks keep only their input
    model = load()
    for block in model.model.layers[:count]:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    return model


def activations(model):  # MiB that wait for the backward pass
    with tl.track_memory(model) as track:
        start = track.current
        hidden = model.get_decoder()(input_ids=text[:4], use_cache=False)
        kept = track.current - start
        del hidden  # until here it kept the graph alive
    return kept / 2**20


for count in (0, 1, 8):
    print(f"{count} of 8 blocks: {activations(checkpointed(count)):.1f} MiB")

# %%
same = apart(gradient(accumulate, 4, checkpointed(8)), whole)
course.claim("Checkpointing does not change the gradient", same < 1e-4)

# %% [markdown] slideshow={"slide_type": "subslide"}
# One block saves 3.5 MiB, and all eight 28. The eight block inputs take 1.5 of the 2.1 MiB that are left. The price is
# time: a backward pass costs about two forward passes, so a step costs four instead of three.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The optimizer on the host
#
# Both ways save activations. Half of the rest is AdamW's two moments, which are needed only once a step. So they can
# stay in ordinary RAM, the memory of the *host*: the gradients go there, AdamW updates an fp32 copy of the parameters,
# and the result comes back. The price is time, as gradients and weights travel, and 16 bytes of RAM a parameter.


# %%
class HostAdamW:
    def __init__(self, parameters, host=nullcontext):  # host: for a virtual card only
        self.params, self.host = [p for p in parameters if p.requires_grad], host
        with self.host():
            self.copies = [p.detach().to("cpu", copy=True).float() for p in self.params]
            self.adamw = adamw(self.copies)

    @torch.no_grad()
    def step(self):
        with self.host():
            for weight, copy in zip(self.params, self.copies, strict=True):
                copy.grad = weight.grad.to("cpu", copy=True).float()
            self.adamw.step()
            self.adamw.zero_grad()
        for weight, copy in zip(self.params, self.copies, strict=True):
            weight.copy_(copy)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## A loop that recovers
#
# A loop can catch the error, change how the step is computed, and take the same step again. **Why does this fail on a
# full card, if it is done inside the `except` block?**
#
# The exception holds a traceback with the local variables of the functions that failed, the activations among them.
# Python drops it only at the end of the block. So `attempt` just notes where the step failed, and returns.


# %%
def attempt(model, optimizer, batch, size):
    """Take a step; return where it failed, or "" if it did not."""
    failed = "forward or backward"
    try:
        accumulate(model, batch[:, :-1], batch[:, 1:], size)
        failed = "optimizer step"
        optimizer.step()
        failed = ""
    except torch.OutOfMemoryError:
        pass  # recover later: here the activations are still held
    model.zero_grad()
    return failed


# %% [markdown] slideshow={"slide_type": "subslide"}
# **Where** a step fails decides the remedy:
#
# - In the forward or backward pass, halve the micro-batch.
# - In the first optimizer step, where AdamW makes its moments, move the optimizer to the host. With one parameter group
#   and `fused=True`, AdamW makes all moments before it changes any weight, so the failed step has changed nothing. (In
#   a later step, `HostAdamW` would lose what the moments hold.)
#
# To try this without a graphics card, we use a *virtual card*: the processor computes, and a tensor that would exceed
# the budget is refused with CUDA's message. `card.count` counts the weights; inside `card.host()` nothing is counted.
# On a real card, leave out `card` and `host`, and move model and batches there by `.to("cuda")`.


# %%
def train(model, card, size=4):
    optimizer, log = adamw(model.parameters()), []
    with card:
        card.count(model.parameters())
        for step, batch in enumerate(text.split(4), 1):
            while failed := attempt(model, optimizer, batch, size):
                log.append((step, size, type(optimizer).__name__, failed))
                on_card = isinstance(optimizer, torch.optim.AdamW)
                if failed == "forward or backward" and size > 1:
                    size = size // 2
                elif failed == "optimizer step" and step == 1 and on_card:
                    optimizer = None  # frees the moments that were made
                    optimizer = HostAdamW(model.parameters(), card.host)
                else:
                    raise torch.OutOfMemoryError(f"no remedy left for the {failed}")
            log.append((step, size, type(optimizer).__name__, "-"))
    return pd.DataFrame(log, columns=["step", "rows at once", "optimizer", "failed in"])


# %% [markdown] slideshow={"slide_type": "subslide"}
# Weights and gradients take 15 MiB each, and the moments 31. A row takes about 11 MiB, activations and logits together.
# We train on a card of 8 GiB, then on one of 76 MiB, and compare the weights. **At which step will the small one fail,
# and how many rows will fit then?**

# %%
undisturbed, recovered = load(), load()
train(undisturbed, tl.virtual_device(memory="8GiB"))
log = train(recovered, tl.virtual_device(memory="76MiB"))
difference = apart(flat(recovered.parameters()), flat(undisturbed.parameters()))
course.claim("The recovered training makes the same weights", difference < 1e-5)
log

# %% [markdown] slideshow={"slide_type": "subslide"}
# Step 1 fits in one piece: 15 + 4 × 11 = 59 MiB, as gradients are made while activations are freed. From step 2 on,
# with the moments, four rows at once need 46 + 4 × 11 = 90 MiB, and two at once 46 + 15 + 2 × 11 = 83, as the gradients
# of the first two wait. Single rows need 72.
#
# Now the loop gets only 48 MiB. **Which remedy comes last?**

# %%
small = load()
small_log = train(small, tl.virtual_device(memory="48MiB"))
difference = apart(flat(small.parameters()), flat(undisturbed.parameters()))
course.claim("Even 48 MiB make the same weights", difference < 1e-5)
small_log

# %% [markdown] slideshow={"slide_type": "subslide"}
# Single rows need 15 + 15 + 11 = 41 MiB and fit, so the failure moves to the optimizer step, where no activations are
# left to save. So look where a step fails:
#
# | fails in | what fills the card | what helps |
# | --- | --- | --- |
# | the first forward or backward pass | all but moments | smaller micro-batches, checkpointing, fewer trained weights |
# | the first optimizer step | moments | optimizer on the host, fewer trained weights |
# | the second step | moments beside all of these | as in the first pass, or a restart with AdamW on the host |
# | a later step | a longer batch, or fragments | halve, or cut long texts; expandable segments |
#
# **Limits.** On 66 MiB this loop gives up in step 2, as moments cannot move. Without `fused=True`, AdamW needs scratch
# memory after it has changed moments or weights; such a step can rarely be repeated. A repeated step draws new dropout.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The way it is done at work
#
# These ways are arguments of `Trainer`. The [effective batch](glossary.md#effective-batch-size) is rows at once ×
# micro-batches × cards. Keep it constant when you change the first two. `optim="paged_adamw_32bit"` (bitsandbytes)
# lets CUDA move the moments to the host when the card is full. We pad half the rows, so a mean of means would show.
# **Will one row at a time with checkpointing train the same model as four rows at once?**


# %%
warnings.simplefilter("ignore", FutureWarning)  # gradient_checkpointing: old name


def by_trainer(**memory):
    arguments = TrainingArguments(
        mkdtemp(), max_steps=3, learning_rate=1e-3, seed=0, use_cpu=True,
        report_to="none", disable_tqdm=True, save_strategy="no", **memory,
    )  # fmt: skip
    labels = text.clone()
    labels[2::4, 20:] = labels[3::4, 8:] = -100  # padding, in half of the rows
    rows = [{"input_ids": a, "labels": b} for a, b in zip(text, labels, strict=True)]
    trainer = Trainer(load(), arguments, train_dataset=rows)
    trainer.remove_callback(PrinterCallback)  # which would print every record
    trainer.train()
    return flat(trainer.model.parameters())


thrifty = by_trainer(
    per_device_train_batch_size=1,  # rows at once
    gradient_accumulation_steps=4,  # times 1 row: the batch is still four
    gradient_checkpointing=True,  # newer releases: activation_checkpointing
)
difference = apart(thrifty, by_trainer(per_device_train_batch_size=4))
course.claim("Trainer makes the same weights in both ways", difference < 1e-4)

# %% [markdown] slideshow={"slide_type": "subslide"}
# `Trainer` can also recover, by `auto_find_batch_size=True`, but after an error it starts again from step 1,
# with nine tenths of the rows, and with weights and moments as they are by then.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What fits on 24 GB
#
# A card of 24 GB has 23.65 GiB, of which [lesson 9](09_memory.ipynb) leaves 15% free, so 20 remain. For Llama with
# seven billion parameters, we count what belongs to parameters, with weights in [bf16](glossary.md#bf16). QLoRA takes
# 4.127 bits a weight in a block ([lesson 6](06_qlora.ipynb)). **Which of the three fit?**

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
# Even with AdamW on the host, full fine-tuning does not fit. LoRA leaves 7 GiB. With checkpointing, a row of 2,048
# tokens takes 1.2 GiB at the loss: 0.5 for 32 block inputs in bf16, and 0.7 for three tensors of logits in fp32, which
# are gone when a block is recomputed (0.4). So LoRA fits with five such rows; QLoRA leaves 16 GiB for more.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - The gradient of a batch is the sum over its micro-batches if each divides by the tokens of the *whole* batch.
#   Accumulation, checkpointing and an optimizer on the host change how a step is computed, not its result.
# - Recover after the `except` block, drop the gradients of the failed step, and choose the remedy by where it failed.
#
# ## Further reading
#
# - PyTorch, [Understanding CUDA memory usage](https://docs.pytorch.org/docs/stable/torch_cuda_memory.html)
# - Hugging Face 2024, [Fixing gradient accumulation](https://huggingface.co/blog/gradient_accumulation)
# - Chen et al. 2016, [Training deep nets with sublinear memory cost](https://arxiv.org/abs/1604.06174)
# - Ren et al. 2021, [ZeRO-Offload](https://arxiv.org/abs/2101.06840)

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
# **Exercise 10.1.** Find a micro-batch that fits. `step(rows)` runs a forward and backward pass with that many rows,
# and raises `torch.OutOfMemoryError` if they do not fit. Try `rows`, then half as many, rounded down, and so on. Return
# the first number that fits; if even one row does not, let the error through. Before each new try, the tensors of the
# failed one must be gone.

# %%
import torch


def rows_that_fit(step, rows):
    """Halve `rows` until `step(rows)` no longer runs out of memory."""
    # your code here


course.check("ex10_1", rows_that_fit)

# %% [markdown]
# Previous: [9 · Anatomy of a training step](09_memory.ipynb) ·
# Next: [11 · Your data](11_your_data.ipynb)
