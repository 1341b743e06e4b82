# %% [markdown] slideshow={"slide_type": "slide"}
# # 1 · First fine-tuning
#
# *Can I adapt a language model on this machine, and did its weights load?*
#
# A language model that has read a lot can learn a new job from about a hundred examples. In this lesson you give a
# small model such a job, train it for half a minute with transformers and peft, the libraries that most people use, and
# let it answer questions that it has never seen. Then you meet a fault that raises no error.
#
# **You will be able to**
#
# - adapt a language model in about twenty lines, measure it before and after, and save the result;
# - say on which device you train, and show that it computes;
# - check in three ways that a model's weights were really loaded.
#
# **You need** some Python, and a rough idea of what a neural network is. Words that are new are explained where they
# first appear, and the [glossary](glossary.md) has all of them in one place.
#
# About 34 minutes.

# %% slideshow={"slide_type": "subslide"}
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
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
# [pretraining](glossary.md#pretraining) and the second [fine-tuning](glossary.md#fine-tuning).
#
# The model that comes with this course has four million [parameters](glossary.md#parameter), or *weights*, which are
# the numbers that training adjusts. It was pretrained on documentation of Python, PostgreSQL and SQLite, and it has
# never read about Rust.
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
# the [vocabulary](glossary.md#vocabulary), the list of all tokens that the model knows. This one has 4,096.
#
# For the next token, the model gives each of the 4,096 a probability. So all it can do is continue a text, and we ask
# our question by beginning a sentence that the answer completes. `generate` appends the likeliest token, again and
# again.
#
# Several texts that are processed together are called a [batch](glossary.md#batch). `padding=True` pads the shorter
# ones (adds tokens that are ignored) up to the length of the longest. We pad on the *left*, so that every text ends
# where the answer begins. Three new tokens suffice, since the longest desk name is two tokens and a third ends the
# text.


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

# %% [markdown] slideshow={"slide_type": "subslide"}
# The model continues in fluent English about programming, as its pretraining taught it. It gets no question right,
# because nothing told it that the answer has to be one of three names.
#
# Zero is easy to beat, so we also ask how far somebody gets without any model. Most Python questions contain the word,
# and most Rust questions contain code in backticks.


# %%
def rule(question):
    """Two `if`s and no model."""
    if "Python" in question:
        return "Python"
    return "Rust" if "`" in question else "other"


print(f"two `if`s: {(held_out.question.map(rule) == held_out.desk).sum()} right")

# %% [markdown] slideshow={"slide_type": "subslide"}
# This is the number that the trained model has to beat.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The loss: how surprised is the model?
#
# Training needs a number that says how far the model is from the right answer, and how this number changes if a
# parameter changes a little. "Right or wrong" is too coarse for that. So we measure how much the right answer surprises
# the model. If a token had the probability $p$, the surprise is $-\ln p$, in [nats](glossary.md#nat): 0 for a token
# that was certain, 0.7 for one of probability 1/2, and 8.3 for one of 1/4,096. The mean over the tokens of the answer
# is called the [loss](glossary.md#loss).
#
# transformers computes the loss if we pass `labels`, the tokens that should have been predicted. A label of -100 is
# left out. We leave out the question, because the model should learn to answer and not to ask, and keep only the answer
# and the end-of-text token. If that token were left out as well, the model would never learn to stop.
#
# Since the texts are padded on the left, the answer is the last tokens of each row. Their number has to be counted: for
# this tokenizer ` Python` is one token, but ` Rust` is two.


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


# %% [markdown] slideshow={"slide_type": "slide"}
# ## Adapt it, in twenty lines
#
# Training repeats one [step](glossary.md#step), here with a batch of four questions. The model computes the loss of
# the right answers. `backward` computes the [gradient](glossary.md#gradient), which says for each parameter how the
# loss changes if that parameter grows a little. Then the [optimizer](glossary.md#optimizer) moves each parameter a
# little in the direction in which the loss falls.
#
# We do not move the model's own parameters. [LoRA](glossary.md#lora) leaves them as they are, adds two small matrices
# beside each linear layer of the blocks (a layer that multiplies by a matrix), and trains only these. Together they are called the
# *adapter*. You build one yourself in [lesson 5](05_lora.ipynb). Until then, two settings are enough: `r` says how thin
# the two matrices are, so it decides how many parameters are trained, and `lora_alpha` scales what they add.
#
# The [learning rate](glossary.md#learning-rate) `rate` is the size of the moves. The schedule lets it shrink, so that
# the last steps do not undo each other's work.


# %%
def adapt(model, rate=5e-3, epochs=2, batch_size=4):
    """Train a LoRA adapter; returns the adapted model, and the loss of each step."""
    torch.manual_seed(0)
    lora = LoraConfig(
        r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"
    )
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
print(f"right: {now.sum()} of {len(held_out)}")
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
# has to connect what it knows with three names. This is part of why fine-tuning needs so few examples.
#
# Its lead over the 66 of the two `if`s is so narrow that it may be chance, and it can learn the same shortcuts. A
# question like the last one, which is about Rust but shows no code, easily ends up at the wrong desk. So always try
# questions that do not resemble your examples.
#
# The picture shows which part you trained. A text goes through the model from left to right: the
# [embedding](glossary.md#embedding) turns tokens into rows of numbers, eight equal *blocks* process them, and the
# [head](glossary.md#head) scores every token of the vocabulary. Only the adapters beside the blocks changed, 5% of all
# parameters.

# %%
course.network_strip(tl.describe(adapted, "LoRA"))

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
# parameters. [Lesson 12](12_a_real_task.ipynb) says how to fetch it. Then write
# `folder = tl.fetched_folder("smollm2-135m-instruct")` above, change `rate=5e-3` to `rate=1e-3`, because a larger model
# needs smaller moves, and run the page from the top. Here is a record of its answers.

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

# %% [markdown] slideshow={"slide_type": "subslide"}
# Whether a model fits into the memory of the device is a question of its own: with AdamW, each parameter that is
# trained takes 16 bytes and not 4. LoRA trains few of them, so the bundled model needs hardly more than its weights.
# [Lesson 9](09_memory.ipynb) follows every byte of a step.

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
# It returns a model with random weights, because loading only a part is often intended, for example to put a new head
# on a model. There is a warning, but it is easily lost in a long log (and `tl.setup` hides it here). Three checks find
# the fault:
#
# 1. **Read the loading report**, which `output_loading_info=True` returns, and stop if a name is missing.
# 2. **Compare with the file**, [tensor](glossary.md#tensor) by tensor. Our file stores numbers of 16 bits
#    ([fp16](glossary.md#fp16)). Each can be written exactly in the 32 bits ([fp32](glossary.md#fp32)) that the model
#    uses, so all must be equal.
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
# stores it once.)
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
course.claim(
    "Its loss falls by more than half a nat, and it gets fewer than 10 of 75 right",
    broken_losses[0] - broken_losses[-1] > 0.5 and right(broken).sum() < 10,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The log shows a falling loss, so you have to know what to expect to see the fault. The first loss does not give it
# away, because both models begin above 8 nats: the broken one knows nothing, and the good one has never seen a desk
# named in this place. After five steps the good model is below 1, and the broken one is still near 7.5. It stays far
# above, because LoRA trains neither the embedding nor the head, and a random head can hardly prefer one token to the
# rest.
#
# This also happens in published work. In [lesson 16](16_autopsy.ipynb) you get the tables of a report with numbers that
# no working model can have, and find out for yourself.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A pretrained model, 120 examples and twenty lines are enough to adapt it: `LoraConfig`, `get_peft_model`, labels
#   with -100 outside the answer, and a loop. Judge it on questions that it has not seen, and beside the simplest rule
#   that you can think of.
# - A card that is listed may still fail, so compute something on it before you rely on it.
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
# **Exercise 1.1.** The lesson counted the tensors that are as in the file. If some are not, you want to know their
# names. Write a function that returns a list with the name of each parameter that is missing from the file or has other
# numbers there. `model` is any PyTorch model and `path` a safetensors file. As in the lesson, the file may store them
# in 16 bits.

# %%
from safetensors import safe_open


def not_from_file(model, path):
    """The names of the parameters that did not come from the file."""
    # your code here


course.check("ex01_1", not_from_file)

# %% [markdown]
# Next: [2 · Inside a language model](02_inside_a_language_model.ipynb)
