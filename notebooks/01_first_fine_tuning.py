# %% [markdown] slideshow={"slide_type": "slide"}
# # 1 · First fine-tuning
#
# *Can I adapt a language model on this machine, and did its weights load?*
#
# A language model that has read a lot can learn a new job from about a hundred examples. You give a small model such a
# job, train it for half a minute, and let it answer new questions. Then you meet a fault that raises no error.
#
# **You will be able to**
#
# - adapt a language model with two short functions, judge it on new questions beside simpler methods, and save it;
# - say on which device you train, and show that it computes;
# - check in three ways that a model's weights were really loaded.
#
# **You need** Python, a little torch and pandas, and a rough idea of what a neural network is. New words are explained
# here and in the [glossary](glossary.md). About 34 minutes.

# %% [markdown] slideshow={"slide_type": "subslide"}
# The first cell picks the [device](glossary.md#device) that stores numbers and computes with them: the CPU, or a GPU. A
# GPU can be listed and still fail, so the cell multiplies two matrices on it.

# %% tags=["nbval-ignore-output"]
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch.optim.lr_scheduler import LinearLR
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl

tl.setup()  # fixed random numbers, and no messages from the libraries
device = "cuda" if torch.cuda.is_available() else "cpu"
if torch.backends.mps.is_available():  # Apple
    device = "mps"
ones = torch.ones(64, 64, device=device)  # each number of the product is a sum of 64
print(f"{device} computes {(ones @ ones)[0, 0]:.0f}; it should be 64")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The job: three desks
#
# A help centre has a desk for Rust, one for Python, and one for everything else. The model has to name the desk for
# each question. From two files of questions we draw 65 for each desk: 40 to learn from, and 25 *held out*, which the
# model never sees in training.

# %%
rust = pd.read_json(tl.DATA / "questions/rust.jsonl", lines=True).assign(desk="Rust")
general = pd.read_json(tl.DATA / "questions/general.jsonl", lines=True)
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
# We take a model that was trained on other text ([pretraining](glossary.md#pretraining)) and go on training it with our
# examples ([fine-tuning](glossary.md#fine-tuning)). It has four million [parameters](glossary.md#parameter), or
# *weights*, which are the numbers that training adjusts. It was pretrained on documentation of Python, PostgreSQL and
# SQLite, and has never read about Rust. `from_pretrained` loads it from a folder, or any model by its name on the
# Hugging Face hub.
#
# The [tokenizer](glossary.md#tokenizer) cuts a text into [tokens](glossary.md#token), which are frequent words or
# pieces of rarer ones, and replaces each by its number in the [vocabulary](glossary.md#vocabulary), the list of the
# 4,096 tokens that this model knows.

# %%
folder = tl.BUNDLED
tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token  # many have none
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device)
tokens = tokenizer("Which Python function borrows a string?")["input_ids"]
print({tokenizer.decode([token]): token for token in tokens})

# %% [markdown] slideshow={"slide_type": "subslide"}
# The space before a word belongs to its token, as in ` Python`.
#
# The model gives each token of the vocabulary a probability to be the next. So all it can do is continue a text, and we
# ask our question by beginning a sentence that the answer completes. With `do_sample=False`, `generate` appends the
# likeliest token, again and again.
#
# Texts are processed together, in a [batch](glossary.md#batch), and so need the same length: `padding=True` fills up
# the shorter ones, here with `<|endoftext|>`, and `attention_mask` tells the model to ignore these tokens. We pad on
# the *left*, so that every text ends where the answer begins.


# %%
def sentence(question):
    return f"{question} This is a question about"


def continuations(model, texts, length=3):  # a name of up to two tokens, and the end
    """What the model writes after each text, at most `length` tokens."""
    batch = tokenizer(list(texts), return_tensors="pt", padding=True).to(device)
    written = model.generate(**batch, max_new_tokens=length, do_sample=False)
    written = written[:, batch.input_ids.shape[1] :]  # without the text itself
    return [*map(str.strip, tokenizer.batch_decode(written, skip_special_tokens=True))]


def answers(model):
    written = continuations(model, held_out.question.map(sentence))
    return pd.Series(written, index=held_out.index)


# %%
shown = held_out.groupby("desk").question.first()  # one of each desk
for text in continuations(model, shown.map(sentence), length=12):
    print("… This is a question about", text)
print(f"right: {(answers(model) == held_out.desk).sum()} of {len(held_out)}")

# %% [markdown] slideshow={"slide_type": "slide"}
# The model continues in fluent English about programming, but nothing told it that the answer is one of three names.
#
# ## The loss: how surprised is the model?
#
# Training needs a number that says how far the model is from the right answer, and that reacts when a parameter changes
# a little. The number of right answers does not: it stays the same, and then jumps. So we measure how much the right
# answer surprises the model. If a token had the probability $p$, the surprise is $-\ln p$, in [nats](glossary.md#nat):
# 0 for a token that was certain, 0.7 for one of probability 1/2, and 8.3 for one of 1/4,096. The mean over the tokens
# of the answer is called the [loss](glossary.md#loss).
#
# transformers computes the loss if we pass `labels`, the tokens that should have been predicted. A label of -100 is
# left out. We leave out the question, because the model should learn to answer and not to ask. The end-of-text token
# after the answer stays, or the model would never learn to stop.
#
# As the texts are padded on the left, each row ends with its answer. We count its tokens (` Rust` has two). In the
# output each label stands beside its own token. The model shifts them itself: what it predicts after ` about` is
# compared with ` R`.


# %%
def encode(questions, desks):
    """A batch of questions with their answers; only the answers are labels."""
    ends = [f" {desk}{tokenizer.eos_token}" for desk in desks]
    texts = [sentence(q) + end for q, end in zip(questions, ends, strict=True)]
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    batch["labels"] = torch.full_like(batch.input_ids, -100)
    for row, end in enumerate(ends):
        length = len(tokenizer(end, add_special_tokens=False)["input_ids"])
        batch["labels"][row, -length:] = batch["input_ids"][row, -length:]
    return batch.to(device)


batch = encode(["Is it hot?", "Why?"], ["other", "Rust"])  # the second needs padding
for token, label in zip(batch["input_ids"][1], batch["labels"][1], strict=True):
    print(f"{tokenizer.decode(token)!r:15} {label.item():5}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Adapt it, in twenty lines
#
# Training repeats one [step](glossary.md#step), here with a batch of four questions. The model computes the loss of the
# right answers. `backward` computes the [gradient](glossary.md#gradient), which says for each parameter how the loss
# changes if that parameter grows a little. Then the [optimizer](glossary.md#optimizer), here AdamW, moves each
# parameter a little, so that the loss falls.
#
# The model is a stack: the [embedding](glossary.md#embedding) turns tokens into rows of numbers, eight equal *blocks*
# process them, and the [head](glossary.md#head) scores every token of the vocabulary. All these parameters stay
# *frozen*, or unchanged. Beside each *linear layer* of the blocks, which multiplies by a matrix,
# [LoRA](glossary.md#lora) adds two small matrices and trains only these, the *adapter*. Here peft adds it, and in
# [lesson 5](05_lora.ipynb) you build it yourself. `r` sets how many parameters the adapter has, and `lora_alpha` scales
# what it adds.
#
# The [learning rate](glossary.md#learning-rate) `rate` says how far a step moves the parameters. The schedule lets it
# shrink, so that the last steps do not undo each other's work. Of five rates, 5e-3 got the most right of 30 training
# questions that we kept aside. For another model search anew, but never by the held-out questions.


# %%
def adapt(model, examples, rate=5e-3, epochs=2, batch_size=4):
    """Train a LoRA adapter; returns the adapted model, and the loss of each step."""
    torch.manual_seed(0)
    lora = LoraConfig(
        r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    model = get_peft_model(model, lora).train()  # changes `model` itself
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    starts = range(0, len(examples), batch_size)
    schedule = LinearLR(optimizer, 1, end_factor=0.05, total_iters=epochs * len(starts))
    losses = []
    for _ in range(epochs):  # an epoch goes once through all examples: here 30 steps
        for start in starts:
            rows = examples[start : start + batch_size]
            loss = model(**encode(rows.question, rows.desk)).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()  # otherwise the next gradient would be added to it
            schedule.step()
            losses.append(loss.item())
    return model.eval(), losses


adapted, losses = adapt(model, training)
adapted.print_trainable_parameters()

# %% [markdown] slideshow={"slide_type": "subslide"}
# In the picture, the number under each part counts its trained parameters. The arrow is
# [backpropagation](glossary.md#backpropagation): `backward` goes from the loss through the frozen parts to the first
# adapter.

# %%
course.network_strip(tl.describe(adapted, "LoRA"))  # `norm` rescales the head's input

# %% [markdown] slideshow={"slide_type": "slide"}
# ## After: a model that does the job
#
# **How many of the 75 held-out questions does it get right now?**

# %% tags=["nbval-ignore-output"]
now = answers(adapted)
right = now == held_out.desk
by_desk = right.groupby(held_out.desk).sum().to_dict()
print(f"right: {right.sum()} of 75, {by_desk}; and wrong (right desk → answer):")
for number, question in held_out.question[~right].items():
    print(f"{held_out.desk[number]:6} → {now[number]:6} | {question}")
mine = [
    "What does `import os` do?",
    "How long do I boil an egg?",
    "Why does the borrow checker reject this loop?",
]
named = continuations(adapted, map(sentence, mine))
for question, desk in zip(mine, named, strict=True):
    print(f"yours: {desk:6} | {question}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It gets 69 right, after none before.
#
# Write your own questions into `mine` and run the cell again. Try some that do not resemble your examples: the one
# about the borrow checker belongs to Rust, but went to `other`.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Is that good?
#
# How far does one get without a language model? Most Python questions contain the word, and most Rust questions contain
# code in backticks, which makes two `if`s. A stronger method counts how often each string of one to four characters
# occurs in a question, and fits a weight for each string and desk. One split can favour a method by chance, so we try
# ten. **Which of the three methods will win on ours?**


# %% tags=["nbval-ignore-output"]
def two_ifs(known, new):
    return [
        "Python" if "Python" in question else "Rust" if "`" in question else "other"
        for question in new.question
    ]


def counting(known, new):
    counter = TfidfVectorizer(analyzer="char", ngram_range=(1, 4), sublinear_tf=True)
    classifier = make_pipeline(counter, LogisticRegression())
    return classifier.fit(known.question, known.desk).predict(new.question)


rows = []
for seed in range(10):  # 0 gives the split above
    drawn = questions.groupby("desk").sample(65, random_state=seed).groupby("desk")
    known, new = drawn.head(40), drawn.tail(25)
    rows.append([(f(known, new) == new.desk).sum() for f in (two_ifs, counting)])
table = pd.DataFrame(rows, columns=["two ifs", "counting"])
print("this split:", table.loc[0].to_dict() | {"model": int(right.sum())})
print("mean of ten random splits:", table.mean().round(1).to_dict())

# %% [markdown] slideshow={"slide_type": "subslide"}
# Counting wins, on our split and on average. We also trained the model on each of the ten splits (recorded, not run
# here): it got 61 to 69 right, 65 on average. That is no more than the `if`s, so our split flatters it.
#
# If your job is to name one of a few classes, try counting first ([lesson 13](13_classification.ipynb)). But it can only
# choose among names in its examples, and `adapt` teaches a model to *write*. In [lesson 12](12_a_real_task.ipynb) a
# larger model, tuned on bug reports about some Rust libraries, names the right one in 74% of 96 reports about *other*
# libraries.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Keep it
#
# `save_pretrained` writes only the adapter, less than 1 MB. To use it later, load the base model and put the adapter on
# top.

# %%
out = Path("my-adapter")  # a folder beside this notebook
adapted.save_pretrained(out)
tokenizer.save_pretrained(out)
base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device)
reloaded = continuations(PeftModel.from_pretrained(base, out), map(sentence, mine))
course.claim("Loaded again, it answers your questions as before", reloaded == named)

# %% [markdown] slideshow={"slide_type": "subslide"}
# For your own job, put your texts (`question`) and answers (`desk`) into a table, change `sentence` and `length`, and
# call `adapt(model, table)` with a freshly loaded model. A larger model, SmolLM2-135M-Instruct ([lesson
# 12](12_a_real_task.ipynb)), gets 73 right on our split with `rate=1e-3` (counting: 72).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Did the weights load?
#
# So far we have trusted `from_pretrained`. It builds the model, fills in the [tensors](glossary.md#tensor) that it
# finds in the file by their names, and fills the rest with random numbers. So even if no name fits, the model has the
# right shape and number of parameters.
#
# `torch.compile` puts `_orig_mod.` in front of each name. If you save the compiled model's `state_dict()`, these names
# end up in the file. We write such a file. **What will `from_pretrained` do with it: stop with an error, or return a
# model?**


# %%
def load_from(tensors):
    """The model from a file of these tensors, and the loading report."""
    with tempfile.TemporaryDirectory() as place:
        model.config.save_pretrained(place)
        save_file(tensors, Path(place) / "model.safetensors", {"format": "pt"})
        return AutoModelForCausalLM.from_pretrained(
            place, dtype=torch.float32, output_loading_info=True
        )


saved = load_file(folder / "model.safetensors")
renamed = {f"_orig_mod.{name}": tensor for name, tensor in saved.items()}
broken, report = load_from(renamed)
print(f"{type(broken).__name__}, {broken.num_parameters():,} parameters")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It returns a model and only prints a warning (`tl.setup` hides it here), because missing weights are often intended: a
# classifier loads the blocks and gets a new head. Three checks find the fault. We run them on this model, and on one
# repaired by taking the prefix off each name:
#
# 1. **Read the loading report**, which `output_loading_info=True` returns, and stop if a name is missing. Unexpected
#    names, which the model does not know, hint at the cause.
# 2. **Compare with the file**, tensor by tensor. It stores numbers of 16 bits ([fp16](glossary.md#fp16)), which 32 bits
#    ([fp32](glossary.md#fp32)) hold exactly, so all must be equal.
# 3. **Let it write something** before you train it. Random weights do not continue a sentence.

# %%
cured = {name.removeprefix("_orig_mod."): tensor for name, tensor in renamed.items()}
tries = {"broken": (broken, report), "repaired": load_from(cured)}
for title, (tried, report) in tries.items():
    missing, unexpected = report["missing_keys"], sorted(report["unexpected_keys"])
    print(f"{title}: 1. {len(missing)} names missing, unexpected: {unexpected[-1:]}")
    same = [tensor.float().equal(tried.get_parameter(n)) for n, tensor in saved.items()]
    print(f"   2. {sum(same)} of {len(saved)} tensors are as in the file")
    print("   3. … about", continuations(tried.to(device), shown.map(sentence), 8)[0])

# %% [markdown] slideshow={"slide_type": "subslide"}
# There are 99 names for 98 tensors, as head and embedding share one. To prevent the fault, save the original `model`,
# not what `torch.compile` returned.
#
# **If nobody checks, will the training show that something is wrong?** We train the broken model on 80 examples.

# %%
broken, broken_losses = adapt(broken, training[:80], epochs=1)
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.plot(broken_losses, color="#D55E00")
axes.plot(losses, color="#0072B2")
axes.axhline(0.47, color="0.5", linestyle="--")
axes.annotate("guessing among the three names: 0.47", (31, 0.7), color="0.4")
axes.annotate("weights not loaded", (20, 7.6), color="#D55E00")
axes.annotate("weights loaded", (6, 1.1), color="#0072B2")
axes.set(xlabel="training steps so far", ylabel="loss (nats per token)", ylim=(0, None))
axes.set_title("Both models train and both losses fall, but only one learns the job")
plt.show()

# %%
print(f"broken: {(answers(broken) == held_out.desk).sum()} of 75 right")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Only if you know which loss to expect, because both losses fall. A model that guesses among the three names gives the
# right one a probability of 1/3, which costs $\ln3=1.1$ nats; its other tokens cost almost none. With their ends, the
# three answers have 7 tokens, so the mean is $3\cdot1.1/7=0.47$ (dashed). A loss far above it means that not even the
# three names were learned.
#
# Both begin above 8: one model's weights are random, and the other has never seen a desk named here. The broken model's
# loss stays high, because LoRA trains neither the embedding nor the head, and a random head gives no token more than
# about 1%. [Lesson 16](16_autopsy.ipynb) has a published case.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - 120 examples and two short functions adapt a pretrained model: the first makes the labels, the second trains LoRA.
# - Judge it on new questions, beside the simplest method that you know.
# - A model whose weights were not loaded trains without an error. Read the loading report, compare with the file, or
#   let it write.
#
# ## Further reading
#
# - Hugging Face, [peft's quicktour](https://huggingface.co/docs/peft/quicktour): the calls of this lesson.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex01_1", 1)`. After
# *Restart Kernel* run the next cell first.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** You adapt a pretrained model with LoRA. In 200 steps its loss falls from 8.6 to 7.2. What do you do first?
#
# - **a** Train on, because the loss is falling.
# - **b** Raise the learning rate, because it falls slowly.
# - **c** Let the model write something before training, or look at the loading report.
# - **d** Collect more examples.

# %%
course.quiz("quiz01")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 1.1.** `encode` counts from the right end, so it works only where the padding is on the left. Write the
# function for your own texts. It gets a tokenizer that pads on either side and may put a token before each text, and
# two lists, `prompts` and `answers` (each answer begins with a space). It returns the tokenized batch of prompts,
# answers and end-of-text tokens, with `labels`: the tokens of the answers and of their ends, and -100 elsewhere.


# %%
def labelled(tokenizer, prompts, answers):
    """A batch in which only the answers and their ends are labels."""
    # your code here


course.check("ex01_1", labelled)

# %% [markdown]
# Next: [2 · Inside a language model](02_inside_a_language_model.ipynb)
