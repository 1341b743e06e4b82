# %% [markdown] slideshow={"slide_type": "slide"}
# # 1 · First fine-tuning
#
# *Can I adapt a language model on this machine, and did its weights load?*
#
# A language model that has read a lot can learn a new job from about a hundred examples. In this lesson you give a
# small model such a job and train it for half a minute with transformers and peft, the two libraries that most people
# use. Then you let it answer questions that it has never seen. You also find out what your machine can train, and meet
# a fault that raises no error.
#
# **You will be able to**
#
# - adapt a language model in about twenty lines, measure it before and after, and save the result;
# - say which device, memory and number format you train with, and whether a model fits;
# - check in three ways that a model's weights were really loaded.
#
# **You need** some Python, and a rough idea of what a neural network is. Words that are new are explained where they
# first appear, and the [glossary](glossary.md) has all of them in one place.
#
# About 39 minutes.

# %% slideshow={"slide_type": "subslide"}
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import psutil
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch.optim.lr_scheduler import LinearLR
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl

profile = tl.setup()  # fixed random numbers, and no messages from the libraries

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The job: three desks
#
# A help centre has a desk for Rust, one for Python, and one for everything else. A question comes in, and the model
# has to name the desk. We have 65 questions for each: 40 to learn from, and 25 that are *held out*, which means that
# the model never sees them in training.

# %%
rust = pd.read_json(tl.DATA / "questions/rust.jsonl", lines=True)
general = pd.read_json(tl.DATA / "questions/general.jsonl", lines=True)
rust["desk"] = "Rust"
general["desk"] = general.subject.map({"python": "Python"}).fillna("other")
questions = pd.concat([rust, general], ignore_index=True)
picked = questions.groupby("desk").sample(65, random_state=0)
training = picked.groupby("desk").head(40).sample(frac=1, random_state=0)  # shuffled
held_out = picked.groupby("desk").tail(25)
for desk, question in held_out.groupby("desk").question.first().items():
    print(f"{desk:6} | {question}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Before: what the model writes
#
# We take a model that was trained on other text and go on training it with ours. The first training is called
# [pretraining](glossary.md#pretraining) and the second [fine-tuning](glossary.md#fine-tuning). The idea behind both is
# [transfer learning](glossary.md#transfer-learning). The model that comes with this course has four million
# [parameters](glossary.md#parameter), or *weights*, which are the numbers that training adjusts. It was pretrained on
# documentation of Python, PostgreSQL and SQLite, and it has never read about Rust.
#
# `from_pretrained` loads a model from a folder, or by its name on the Hugging Face hub. `dtype` sets how each number
# is stored in memory.

# %%
folder = tl.BUNDLED
tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
tokens = tokenizer("Which Python function borrows a string?")["input_ids"]
print(" | ".join(tokenizer.decode([token]) for token in tokens))
print(tokens)

# %% [markdown] slideshow={"slide_type": "subslide"}
# A model does not read letters. Its [tokenizer](glossary.md#tokenizer) cuts a text into
# [tokens](glossary.md#token), which are frequent words or pieces of rarer ones, and replaces each by its number in
# the [vocabulary](glossary.md#vocabulary). For the next token, the model gives each of the 4,096 tokens of its
# vocabulary a probability. So all it can do is continue a text, and we ask our question by beginning a sentence that
# the answer completes. `generate` appends the likeliest token, again and again.
#
# Several texts that are processed together are called a [batch](glossary.md#batch). `padding=True` pads the shorter
# ones (adds tokens that are ignored) up to the length of the longest. We pad on the *left*, so that every text ends
# where the answer begins.


# %%
def sentence(question):
    return f"{question} This is a question about"


def continuations(model, texts, length=3):
    """What the model writes after each text, at most `length` tokens."""
    batch = tokenizer(list(texts), return_tensors="pt", padding=True)
    written = model.generate(**batch, max_new_tokens=length, do_sample=False)
    written = written[:, batch.input_ids.shape[1] :]  # without the text itself
    decoded = tokenizer.batch_decode(written, skip_special_tokens=True)
    return [text.strip() for text in decoded]


def right(model):
    """For each held-out question, whether the model names the desk and stops."""
    return continuations(model, held_out.question.map(sentence)) == held_out.desk


shown = held_out.groupby("desk").question.first()
for text in continuations(model, shown.map(sentence), length=12):
    print("… This is a question about", text)
print(f"right: {right(model).sum()} of {len(held_out)}")


def rule(question):
    """Two `if`s and no model."""
    if "Python" in question:
        return "Python"
    return "Rust" if "`" in question else "other"


print(f"two `if`s: {(held_out.question.map(rule) == held_out.desk).sum()} right")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Two `if`s get 66 of 75, because most Python questions contain the word and most Rust questions contain code in
# backticks. This is the number that the trained model has to beat.
#
# The model continues in fluent English about programming, as its pretraining taught it. It gets no question right, but
# the test is not fair, because nobody told it that the answer has to be one of three names. A fairer test asks which
# of the three names surprises it least.
#
# The surprise at a token that has the probability $p$ is $-\ln p$, in [nats](glossary.md#nat): 0 for a token that was
# certain, 0.7 for one of probability 1/2, and 8.3 for one of 1/4,096. Its mean over the tokens of the answer is called
# the [loss](glossary.md#loss). transformers computes it if we pass `labels`, the tokens that should have been
# predicted. A label of -100 is left out, and we leave out everything except the answer and the end-of-text token.
# Since the texts are padded on the left, the answer is the last tokens of each row. Their number has to be counted:
# for this tokenizer ` Python` is one token, but ` Rust` is two.


# %%
def encode(questions, desks):
    """A batch of questions with their answers; only the answers are labels."""
    answers = [f" {desk}{tokenizer.eos_token}" for desk in desks]
    texts = [sentence(q) + answer for q, answer in zip(questions, answers, strict=True)]
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    batch["labels"] = torch.full_like(batch.input_ids, -100)
    for row, answer in enumerate(tokenizer(answers)["input_ids"]):
        batch["labels"][row, -len(answer) :] = torch.tensor(answer)
    return batch


def likeliest(model):
    """For each held-out question, the name that surprises the model least."""
    best = []
    for question in held_out.question:
        with torch.no_grad():  # we only measure, and do not train yet
            loss = {n: model(**encode([question], [n])).loss.item() for n in names}
        best.append(min(loss, key=loss.get))
    return pd.Series(best, held_out.index)


names = ["Python", "Rust", "other"]
before = likeliest(model)
print(f"right if it chooses among the names: {(before == held_out.desk).sum()} of 75")
print(pd.crosstab(held_out.desk, before.rename("chosen")))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Somebody who guesses would get 25 right. The model gets 42, because it sends 43 of the 50 questions about programming
# to Python and 19 of the 25 others to *other*. It never chooses Rust, a word that its pretraining text did not contain.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Adapt it, in twenty lines
#
# Training repeats one [step](glossary.md#step), here with a batch of four questions. The model computes the loss of
# the right answers. `backward` computes the [gradient](glossary.md#gradient), which says for each parameter how the
# loss changes if that parameter grows a little. Then the [optimizer](glossary.md#optimizer) moves each parameter a
# little in the direction in which the loss falls.
#
# - [LoRA](glossary.md#lora) leaves the model's own parameters as they are. It adds two small matrices, the *adapter*,
#   beside each linear layer (a layer that multiplies by a matrix) and trains only these. You build it yourself in
#   [lesson 5](05_lora.ipynb). `lora_alpha` scales what the adapter adds.
# - The [learning rate](glossary.md#learning-rate) `rate` is the size of the moves. The schedule lets it shrink, so
#   that the last steps do not undo each other's work.
# - The end-of-text token is part of each answer. If you leave it out, the model never learns to stop.


# %%
def adapt(model, rate=5e-3, epochs=2, batch_size=4):
    """Train a LoRA adapter; returns the adapted model, and the loss of each step."""
    torch.manual_seed(0)
    lora = LoraConfig(lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, lora)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    starts = range(0, len(training), batch_size)
    schedule = LinearLR(optimizer, 1, 0.05, epochs * len(starts))  # down to 5%
    losses = []
    for _ in range(epochs):  # an epoch is one pass through all texts
        for start in starts:
            rows = training[start : start + batch_size]
            loss = model(**encode(rows.question, rows.desk)).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()  # otherwise the next gradient would be added to it
            schedule.step()
            losses.append(loss.item())
    return model, losses


adapted, losses = adapt(model)
adapted.print_trainable_parameters()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## After: a model that does the job
#
# **How many of the 75 held-out questions does it get right now, if it may write what it wants?**

# %%
now = right(adapted)
course.claim(
    "After 60 steps it sends at least 60 of 75 unseen questions to the right desk",
    now.sum() >= 60,
)

# %% tags=["nbval-ignore-output"]
print(f"right: {now.sum()} of {len(held_out)} as it writes, ", end="")
print(f"{(likeliest(adapted) == held_out.desk).sum()} if it chooses among the names")
mine = [
    "What does `import os` do?",
    "When is a `Box<T>` freed?",
    "How long do I boil an egg?",
    "Why does the borrow checker reject this loop?",
]
named = continuations(adapted, map(sentence, mine))
for question, desk in zip(mine, named, strict=True):
    print(f"{desk:6} | {question}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Write your own questions into `mine` and run the cell again, because this model is yours and answers whatever you ask.
# Nobody can learn in half a minute what Rust is. But the pretrained model has read English and code, and training only
# has to connect what it knows with three names. This is part of why fine-tuning needs so few examples. Its lead over
# the two `if`s is narrow, and it can learn the same shortcuts: a question like the last one, which is about Rust but
# shows no code, easily ends up at the wrong desk. Always try questions that do not resemble your examples.
#
# The picture shows which part you trained. A text goes through the model from left to right: the
# [embedding](glossary.md#embedding) turns tokens into rows of numbers, eight equal *blocks* process them, and the
# [head](glossary.md#head) scores every token of the vocabulary. Only the adapters beside the blocks changed, 5% of all
# parameters. The arrow is [backpropagation](glossary.md#backpropagation), the way that `backward` computes the
# gradient, from the loss back to the first adapter.

# %%
tl.network_strip(tl.describe(adapted, "LoRA"))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Keep it
#
# `save_pretrained` writes the adapter and nothing else. Whoever has the base model loads it with the adapter beside it.

# %%
with tempfile.TemporaryDirectory() as out:
    adapted.save_pretrained(out)
    size = (Path(out) / "adapter_model.safetensors").stat().st_size
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    loaded = PeftModel.from_pretrained(base, out)
print(f"the adapter: {size / 1e6:.1f} MB")
course.claim(
    "Loaded again, it answers your questions as before",
    continuations(loaded, map(sentence, mine)) == named,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Does it work with a larger model?** The same code adapts SmolLM2-135M-Instruct, which has 33 times as many
# parameters and has read web pages, textbooks and code. [Lesson 12](12_a_real_model.ipynb) says how to fetch it. Then
# write `folder = tl.fetched_folder("smollm2-135m-instruct")` above, change `rate=5e-3` to `rate=1e-3`, because a
# larger model needs smaller moves, and run the page from the top. On two slow cores that takes several minutes, so
# here is a record of its answers.

# %%
record = pd.read_json(tl.DATA / "questions/desks_smollm2.jsonl", lines=True)
print(f"right after: {(record.after == record.desk).sum()} of {len(record)}")
record.groupby("desk").first()[["question", "before", "after"]]

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What can this machine do?
#
# A [device](glossary.md#device) is the processor that stores numbers and computes with them: the CPU, or a GPU with a
# memory of its own. To use a GPU, move the model there with `model.to(device)` and each batch, in `continuations` and
# `encode`, with `batch.to(device)`. A card can be listed and still fail at its first computation, for example if
# PyTorch was built for other cards. Therefore the cell multiplies two matrices on it.

# %% tags=["nbval-ignore-output"]
device = "cuda" if torch.cuda.is_available() else "cpu"
if torch.backends.mps.is_available():  # Apple
    device = "mps"
ones = torch.ones(64, 64, device=device)
print(f"{device} computes {(ones @ ones)[0, 0]:.0f}; it should be 64")
memory = psutil.virtual_memory()
print(f"memory: {memory.available / 1e9:.1f} GB free of {memory.total / 1e9:.1f} GB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# In a terminal, `python -m tlkit doctor` checks this, the disk and the installation, and names a remedy for what is
# wrong.
#
# How much fits depends on the [dtype](glossary.md#dtype), the format of the numbers. [fp32](glossary.md#fp32) takes 4
# bytes a number, [fp16](glossary.md#fp16) and [bf16](glossary.md#bf16) take 2. The cell stores 1/3 and 70,000 in each.

# %%
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    third, large = torch.tensor([1 / 3, 70_000.0]).to(dtype).tolist()
    print(f"{str(dtype):15} {dtype.itemsize} bytes: {third:.7f} {large:>9}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The largest number in fp16 is 65,504, so 70,000 becomes infinite. bf16 has the range of fp32 and is only less precise.
# Training is safer in bf16, because one infinite gradient can ruin all weights.
#
# Training needs more memory than the weights alone. For each parameter that is trained, it stores four numbers in fp32:
# the weight, its gradient, and two running averages that the optimizer [AdamW](glossary.md#adamw) keeps. That is 16
# bytes.
#
# **Can all parameters of a half-billion model be trained on a card of 8 GB (8 × 10^9 bytes)?**

# %%
needed = {}
for name in ("tiny", "smollm2-135m", "qwen2-0.5b"):
    shapes = tl.meta_model(tl.architecture(name))  # no weights, so no memory
    count = shapes.num_parameters()
    needed[name] = 16 * count / 1e9
    print(f"{name:12} {count:11,} parameters: {4 * count / 1e9:.2f} GB,", end=" ")
    print(f"and to train them all {needed[name]:.2f} GB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# No, although it comes close: these four numbers alone take 7.9 GB, and the intermediate results of a step come on top.
# With LoRA the model's own parameters need only their 4 bytes, or 2 in bf16, and the 16 bytes apply to the
# few that are trained. [Lesson 9](09_memory.ipynb) follows every byte of a step.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Did the weights load?
#
# To load a model, a program builds one with random weights and then overwrites them with those of the file. If the
# second step fails, the result still has the same shape and as many parameters.
#
# The weights are often lost because their names have changed. `torch.compile`, which makes a model faster, puts
# `_orig_mod.` in front of each name, and these names end up in the file if the compiled model is saved. We make such a
# file.
#
# **What will `from_pretrained` do with a file in which no name fits: stop with an error, or return a model?**

# %%
saved = load_file(folder / "model.safetensors")
with tempfile.TemporaryDirectory() as compiled:
    model.config.save_pretrained(compiled)
    renamed = {f"_orig_mod.{name}": tensor for name, tensor in saved.items()}
    save_file(renamed, Path(compiled) / "model.safetensors", {"format": "pt"})
    broken, loading = AutoModelForCausalLM.from_pretrained(
        compiled, dtype=torch.float32, output_loading_info=True
    )
print(f"{type(broken).__name__}, {broken.num_parameters():,} parameters")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It returns a model with random weights. transformers does not stop, because loading only a part is often intended, for
# example to put a new head on a model. It writes a warning, which is easily lost in a long log (and which `tl.setup`
# hides here). Three checks find the fault:
#
# 1. **Read the loading report**, which `output_loading_info=True` returns, and stop if a name is missing.
# 2. **Compare with the file**, [tensor](glossary.md#tensor) by tensor. Our file stores fp16, and every fp16 number can
#    be written exactly in fp32, so all must be equal.
# 3. **Let it write something** before you train it. Random weights do not continue a sentence.

# %%
missing = loading["missing_keys"]
print(f"1. {len(missing)} names are missing, for example {max(missing)}")


def from_file(model):
    """How many of the file's tensors are equal to the model's."""
    inside = dict(model.named_parameters())
    return sum(saved[name].float().equal(inside[name]) for name in saved)


base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
print(f"2. as in the file: {from_file(base)} tensors of {len(saved)};", end=" ")
print(f"of the broken model {from_file(broken)}")
written = continuations(broken, shown.map(sentence), length=8)[0]
print(f"3. This is a question about {written}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# (The report has one name more than the file, because the head uses the same matrix as the embedding and the file
# stores it once.) Later lessons load models with `tl.load_model`, which makes the first check and refuses to load such
# a folder.
#
# **If nobody checks, will the training show that something is wrong?** We train the broken model in the same
# way, for one epoch.

# %%
broken, broken_losses = adapt(broken, epochs=1)
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.plot(range(1, 31), broken_losses, label="weights not loaded")
axes.plot(range(1, 31), losses[:30], label="weights loaded")
axes.set(xlabel="training step", ylabel="loss (nats per token)", ylim=(0, None))
axes.set_title("Both models train and both losses fall, but only one learns the job")
axes.legend()
plt.show()

# %%
fallen = sum(broken_losses[:5]) / 5 - sum(broken_losses[-5:]) / 5
course.claim(
    "Its loss falls by more than half a nat, and it gets fewer than 10 of 75 right",
    fallen > 0.5 and right(broken).sum() < 10,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The log shows a falling loss, and you have to know what to expect to see the fault. The first loss does not give it
# away: both models begin above 8 nats, the good one because it has never seen a desk named in this place. After five
# steps the good model is below 1 and the broken one is still near 7.5. It stays far above, because LoRA trains neither
# the embedding nor the head, and a random head can hardly prefer one token to the rest.
#
# This also happens in published work. A report on a model of half a billion parameters explains numbers that no working
# model can have. In [lesson 16](16_autopsy.ipynb) you get its tables and find out for yourself.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A pretrained model, 120 examples and twenty lines are enough to adapt it: `LoraConfig`, `get_peft_model`, labels
#   with -100 outside the answer, and a loop. Judge it on questions that it has not seen, and give the untouched model
#   a fair test as well.
# - Training all of a model in fp32 with AdamW takes at least 16 bytes for each parameter.
# - A model whose weights were not loaded runs and trains without an error. Read the loading report, compare with the
#   file, or let it write.
#
# ## Further reading
#
# - Hu et al. 2021, [LoRA: low-rank adaptation of large language models](https://arxiv.org/abs/2106.09685).
# - Hugging Face, [peft's quicktour](https://huggingface.co/docs/peft/quicktour) and [loading
#   models](https://huggingface.co/docs/transformers/models): the calls of this lesson.
# - Kalamkar et al. 2019, [A study of bfloat16 for deep learning training](https://arxiv.org/abs/1905.12322).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex01_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** `torch.cuda.is_available()` returns True. What do you know?
#
# - **a** Training will run on the GPU.
# - **b** The GPU has room for the model.
# - **c** PyTorch was built for CUDA and its driver reports a GPU. Nothing has been computed on it.
# - **d** Models that are loaded from now on lie on the GPU.

# %%
course.quiz("quiz01")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 1.1** (first steps). TinyLlama has 1.1 billion parameters. You want to train all of them in fp32 with
# AdamW. How many GB (10^9 bytes) do weights, gradients and running averages take together? Activations (the
# intermediate results) are left out.

# %%
answer = None
# your code here
course.check("ex01_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 1.2** (apply it). The lesson counted the tensors that are as in the file. If some are not, you want to know
# their names. Write a function that returns a list with the name of each parameter that is missing from the file or has
# other numbers there. `model` is any PyTorch model and `path` a safetensors file. As in the lesson, the file may store
# them in 16 bits.

# %%
from safetensors import safe_open


def not_from_file(model, path):
    """The names of the parameters that did not come from the file."""
    # your code here


course.check("ex01_2", not_from_file)

# %% [markdown]
# Next: [2 · Inside a language model](02_inside_a_language_model.ipynb)
