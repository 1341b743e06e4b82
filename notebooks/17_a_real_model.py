# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] slideshow={"slide_type": "slide"}
# # 17 · A real model
#
# *What changes when the model already knows something?*
#
# So far every result came from a model of four million values that writes fluent nonsense. It trains in seconds, and
# it shows how fine-tuning works. But nobody would use it. This lesson repeats the central experiment on
# SmolLM2-135M-Instruct: thirty-three times as many values, pretrained on about two trillion tokens, able to write a
# correct sentence about Rust before you train it at all.
#
# **You will be able to**
#
# - adapt a published model to your own text by LoRA, in `tlkit` and in plain transformers and peft;
# - say what perplexity does *not* tell you about a model that people will talk to;
# - choose a learning rate to start from, and foresee time, memory and disk for models up to 7 billion values.
#
# **You need** lessons [3](03_data_and_baseline.ipynb), [4](04_full_fine_tuning.ipynb) and [8](08_lora.ipynb), and the
# model on this machine. It comes once, in a download of 93 MB, and then no network is needed any more. In a terminal:
#
# ```
# python -m tlkit fetch smollm2-135m-instruct
# ```
#
# About 14 minutes.

# %% slideshow={"slide_type": "subslide"}
import pandas as pd
import torch

import tlkit as tl

profile = tl.setup()
NAME = "smollm2-135m-instruct"
print(tl.fetched(NAME) or f"not here yet: python -m tlkit fetch {NAME}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The line above says where the weights came from, and one thing that matters when you compare results. This publisher
# rounded the weights to 4 bits to make the download small, and `fetch` turned them back into 32-bit numbers. They are
# therefore not exactly the weights that the model's authors published on the hub: each one is off by a rounding error.
# Where the model hub can be reached, `fetch` takes the original weights from there instead.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same parts, more of them
#
# SmolLM2 is built like the bundled model: a token embedding, a stack of blocks, a norm and a tied head. Only the
# numbers differ. Here are both, each with a LoRA adapter of rank 8 beside every linear layer of its blocks.

# %%
real = tl.load_model(NAME)
tiny = tl.load_model("tiny")
shapes = {}
for name, config in (("tiny", tiny.model.config), ("SmolLM2-135M", real.model.config)):
    shapes[name] = {
        "blocks": config.num_hidden_layers,
        "width": config.hidden_size,
        "inner width of the MLP": config.intermediate_size,
        "attention heads": config.num_attention_heads,
        "key and value heads": config.num_key_value_heads,
        "tokens in the vocabulary": config.vocab_size,
        "longest input": config.max_position_embeddings,
    }
pd.DataFrame(shapes)

# %%
prompts = ["In Rust, Vec<T> is", "The Result type in Rust"]
before_text = tl.generate(real.model, real.tokenizer, prompts)
lora = tl.apply_strategy(real.model, "lora")
tiny_lora = tl.apply_strategy(tiny.model, "lora")
tl.network_strip(tiny_lora, lora)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The strips have the same pattern. In the real model the adapter is a smaller share of all values, because the
# adapter of a matrix grows with its width, and the matrix itself grows with the square of its width.

# %%
table = lora.components["embedding"].total_values
print(f"values: {lora.total_values - lora.trainable_values:,}")
print(f"of these in the embedding: {table:,}")
tl.claim(
    "The adapter is 1.8% of the real model's values, and 5.2% of the tiny one's",
    (round(lora.percent, 1), round(tiny_lora.percent, 1)) == (1.8, 5.2),
)
assert round((lora.total_values - lora.trainable_values) / 4_036_800) == 33

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Before: what it writes, and what it scores
#
# An untrained copy of the bundled model had to learn what a sentence is. This model does not: it was trained on web
# pages, books and code, among them some about Rust. Read its two answers, and judge them yourself.

# %% tags=["nbval-ignore-output"]
for text in before_text:
    print(text, "\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The sentences are grammatical, and part of what they say is true. What they lack is precision: the second one does
# not say that a `Result` holds either a value or an error.
#
# Now the numbers. We score two kinds of held-out text. *Rust* is what we will train on; *general* is Python's language
# reference, which tells us what is forgotten. Eight documents of each keep the lesson short, so the intervals are wide.

# %%
rust = tl.load_corpus().limited(40, 8)
general = tl.load_corpus("general").limited(8, 8)


def scores(model):
    """Perplexity on eight validation documents about Rust, and on eight general ones."""
    return [
        tl.perplexity(model, real.tokenizer, corpus.validation).perplexity
        for corpus in (rust, general)
    ]


before = scores(lora.model)

# %% tags=["nbval-ignore-output"]
print(f"before: Rust {before[0]:.1f}, general {before[1]:.1f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Do not compare these perplexities with the tiny model's. Perplexity counts in tokens, and the two models cut text into
# tokens differently: SmolLM2 has 49,152 different tokens, the bundled model 4,096. Bits per byte (lesson 3) is the unit
# that both share.

# %%
smol = tl.perplexity(lora.model, real.tokenizer, rust.validation)
small = tl.perplexity(tiny_lora.model, tiny.tokenizer, rust.validation)
print(f"tokens in these documents: SmolLM2 {smol.tokens:,}, tiny {small.tokens:,}")
tl.claim(
    "Per byte of Rust text, the untouched real model is already better than the tiny one",
    smol.bits_per_byte < 0.85 * small.bits_per_byte,
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Adapt it
#
# **Predict first.** Forty short passages make 36 blocks of 128 tokens, so with two blocks in a batch one epoch is 18
# steps: less than five thousand tokens after a pretraining on two trillion. By how much will perplexity on Rust fall,
# and by how much will it rise on general text?

# %%
blocks = tl.pack(rust.train, real.tokenizer, 128)
settings = tl.TrainingConfig(learning_rate=1e-3, epochs=1, batch_size=2)
run = tl.train(lora.model, blocks, settings, progress=True)
after = scores(lora.model)
assert blocks.shape == (36, 128) and len(run.history) == 18

# %% tags=["nbval-ignore-output"]
pd.DataFrame([before, after], ["before", "after"], ["Rust", "general"]).round(1)

# %%
tl.claim(
    "18 steps lower perplexity on Rust by more than a quarter",
    after[0] < 0.75 * before[0],
)
tl.claim(
    "Perplexity on general text does not rise",
    after[1] < before[1],
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# This is the first result that a tiny model gets wrong. The bundled model forgets a good part of its general text when
# it learns Rust, and the real one forgets nothing that this test can see. It has read so much that our few thousand
# tokens only have to tell it *which* of the things it can do is wanted, and a small change of the weights is enough.
#
# On the general text it even improves. The likely reason is that this model was last tuned to answer chat messages,
# while Python's reference and our passages are both plain technical prose, so training on one helps with the other.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same in plain transformers and peft
#
# Nothing in the run above is special to this workbook. These are the calls that you will meet everywhere:
# `from_pretrained` loads the weights, `LoraConfig` describes the adapter, `get_peft_model` puts it in place, and
# `Trainer` runs the loop. The first three steps are enough to see that both do the same.

# %%
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

folder = tl.fetched_folder(NAME)
plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
adapter = LoraConfig(
    r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"
)
torch.manual_seed(0)  # the random values that A starts from
plain = get_peft_model(plain, adapter)
plain.print_trainable_parameters()

# %% [markdown] slideshow={"slide_type": "subslide"}
# `Trainer` shuffles its data, warms the learning rate up and lets it decay unless it is told not to, and so does
# `tl.train`. For a fair comparison both get a constant rate, no weight decay and the same two blocks three times.

# %% tags=["nbval-ignore-output"]
import tempfile

pair, steps = blocks[:2], 3
with tempfile.TemporaryDirectory() as scratch:
    arguments = TrainingArguments(
        scratch,
        per_device_train_batch_size=2,
        num_train_epochs=steps,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        logging_steps=1,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    data = [{"input_ids": block, "labels": block} for block in pair]
    trainer = Trainer(plain, arguments, train_dataset=data)
    trainer.train()
theirs = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

# %%
del plain, trainer
torch.manual_seed(0)
again = tl.apply_strategy(tl.load_model(NAME).model, "lora", r=8, alpha=16)
settings = tl.TrainingConfig(
    learning_rate=1e-3,
    epochs=steps,
    batch_size=2,
    schedule="constant",
    warmup_fraction=0,
    weight_decay=0,
)
ours = tl.train(again.model, pair, settings).history.loss
furthest = max(abs(one - other) for one, other in zip(ours, theirs, strict=True))
tl.claim("Both report the same losses, step by step, to 0.0001", furthest < 1e-4)
tl.claim("and they fall", theirs[2] < theirs[1] < theirs[0])
del again

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What became of its sentences?
#
# Perplexity on Rust fell by more than a quarter. So the model should now write better about Rust. Does it? The prompts
# are the ones from the beginning.

# %% tags=["nbval-ignore-output"]
after_text = tl.generate(lora.model, real.tokenizer, prompts)
for old, new in zip(before_text, after_text, strict=True):
    print("before:", old)
    print("after: ", new, "\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The new sentences are not better. They sound more like our passages, with more code in backticks and fewer general
# remarks, but they say less, and they may go in circles. Perplexity rewards exactly this change. It measures how well a
# model predicts the next token of *this* kind of text, and vocabulary and style are the largest part of it. Whether a
# sentence is true hardly enters.
#
# So ask for knowledge directly. Each question below has four options; the model "chooses" the one to which it gives the
# highest probability per token. Guessing gives 25%. Every question can be answered from a passage that the model has
# just read.

# %%
passages = pd.read_json("../data/rust/train.jsonl", lines=True)
read = set(passages.id[:40])
asked = [q for q in tl.load_questions("rust") if q.passage in read][:24]
print(asked[0].question)
for option in asked[0].options:
    print("  -", option)
assert len(asked) == 24

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** How many of 24 does the untouched model answer rightly, and how many does the adapted one?
#
# We need no second copy of the model for this. LoRA leaves the original weights as they were, so peft can switch the
# adapter off for a while, and what remains is the untouched model.

# %%
with lora.model.disable_adapter():
    answers_before = tl.answer_questions(lora.model, real.tokenizer, asked)
answers_after = tl.answer_questions(lora.model, real.tokenizer, asked)
change = tl.compare_answers(answers_before, answers_after)

# %% tags=["nbval-ignore-output"]
for name, answers in (("before", answers_before), ("after", answers_after)):
    print(f"{name}: {sum(answers.correct)} of {len(asked)} right")
print(change)

# %%
tl.claim(
    "24 questions cannot tell the two models apart",
    change.low < 0 < change.high,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Two things can be learned from this. The first is about the model: it answers little better than someone who guesses,
# before and after, although the text with the answers was in its training. Eighteen steps are enough to learn how these
# passages sound, and far from enough to learn what they say. The second is about measuring: with 24 questions the
# interval of the change is so wide that it excludes hardly anything. A test of knowledge needs hundreds of questions.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How large can you go?
#
# Everything in this lesson works on larger models, but the cost grows. Four quantities can be worked out before you
# download anything:
#
# - **Disk.** A weight takes 4 bytes in fp32 and 2 bytes in bf16, so a model of $N$ values is a file of $4N$ or $2N$
#   bytes. A LoRA adapter is a file of its own, and much smaller.
# - **Memory.** Lesson 12 derived what a training step needs. `tests/benchmarks/fit_tables.csv` has it for every
#   strategy, for one row of 512 tokens in fp32.
# - **Arithmetic.** A forward and a backward pass through all weights take about $6N$ operations per token, so a model
#   fifty times as large takes fifty times as long on the same machine.
# - **Learning rate.** It has to be tuned, but not from nothing; the next section says where to begin.

# %%
fits = pd.read_csv("../tests/benchmarks/fit_tables.csv").dropna(subset="gib")
fits = fits.set_index(["model", "strategy"]).gib
rows = {}
for name in ("smollm2-135m", "qwen2-0.5b", "tinyllama-1.1b", "llama2-7b"):
    model = tl.meta_model(tl.architecture(name))
    values = sum(weight.numel() for weight in model.parameters())
    rows[name] = {
        "million values": values / 1e6,
        "file in fp32, GB": 4 * values / 1e9,
        "full: memory, GiB": fits[name, "full"],
        "lora: memory, GiB": fits[name, "lora"],
        "qlora: memory, GiB": fits[name, "qlora"],
        "time of a step": values / 134_515_008,
    }
sizes = pd.DataFrame(rows).T.round(1)
sizes

# %% [markdown] slideshow={"slide_type": "subslide"}
# Time is given as a multiple of the smallest model's. A step of full fine-tuning on two cores took about two seconds
# here (two blocks of 128 tokens), so the same step of the 7-billion-value model would take well over a minute, if the
# machine had the memory for it. It does not: that step needs more than 100 GiB, and LoRA still needs 30, because the
# frozen weights alone take 25.
# This is why large models are trained on cards with bf16 weights, or with weights of 4 bits (lesson 9).

# %%
seven = sizes.loc["llama2-7b"]
assert 48 < seven["time of a step"] < 52
tl.claim(
    "7 billion values: full fine-tuning in fp32 needs over 100 GiB, LoRA about 30",
    seven["full: memory, GiB"] > 100 and 29 < seven["lora: memory, GiB"] < 31,
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Keep it: save, merge, load
#
# What you have trained is the adapter. `save_pretrained` writes it, and nothing else: ten megabytes, which you can send
# to somebody who has the base model.

# %%
import os

with tempfile.TemporaryDirectory() as scratch:
    lora.model.save_pretrained(scratch)
    size = os.path.getsize(f"{scratch}/adapter_model.safetensors")
values = lora.trainable_values
print(f"{size / 1e6:.1f} MB for {values:,} values of 4 bytes")
assert 4 * values < size < 1.02 * 4 * values

# %% [markdown] slideshow={"slide_type": "subslide"}
# For use, the adapter can be merged: every matrix $W$ is replaced by $W + (\alpha/r)\,BA$ (lesson 8). The merged model
# computes the same and no longer needs peft. `merge_and_unload` does it in memory. It is worth checking, because a
# merge into rounded weights, or with the wrong base model, fails without an error message.

# %%
sentence = real.tokenizer(prompts[1], return_tensors="pt").input_ids
with torch.no_grad():
    beside = lora.model(sentence).logits
    merged = lora.model.merge_and_unload()
    inside = merged(sentence).logits
tl.claim(
    "Merged and with the adapter beside it, the model computes the same to 0.001",
    (beside - inside).abs().max() < 1e-3,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# On the command line the whole way from text to a model of your own is four commands. `merge` reads back what it wrote,
# compares all logits with those of base model and adapter, and writes nothing unless they agree; `train` and `merge` both
# leave a model card with data, settings and results.
#
# ```
# python -m tlkit train --model smollm2-135m-instruct --strategy lora --corpus notes/ --output out
# python -m tlkit evaluate --model out --questions rust
# python -m tlkit merge --adapter out --output merged
# python -m tlkit generate --model merged --chat --prompt "What is a slice?"
# ```

# %% [markdown] slideshow={"slide_type": "slide"}
# ## With a model of your choice
#
# Wherever this lesson says `smollm2-135m-instruct`, you can write another name:
#
# - **Any model on the Hugging Face hub**, by its id: `python -m tlkit fetch Qwen/Qwen2.5-0.5B`. Its weights must be in
#   the safetensors format, and its architecture one that transformers knows without code from the repository.
# - **A gated model** (Llama, Gemma): accept its terms on the model's page, create a token in your account's settings, and
#   run `hf auth login` once, or set `HF_TOKEN`. Then fetch it like any other.
# - **On a cluster**, where compute nodes have no network and home folders are small: set `HF_HOME` to a shared folder and
#   `TLKIT_CACHE` beside it, fetch on the login node, and start jobs with `HF_HUB_OFFLINE=1`.
# - **A folder** that somebody gave you: its path. Folders with `config.json`, safetensors and a tokenizer are read; files
#   of other formats, which can run code when they are opened, are refused.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A model that was pretrained well adapts to a new kind of text in a few steps and forgets little while it does.
# - Perplexity tells you how well a model predicts the kind of text you measured on. It does not tell you whether the
#   model knows more, or writes what people want to read. Ask questions, and read what it writes.
# - The method does not change with the size of the model; time, memory, disk and the learning rate do.
#
# **Further reading**
#
# - Ben Allal et al. 2025, [SmolLM2: When Smol Goes Big](https://arxiv.org/abs/2502.02737): data and training of this model.
# - Hu et al. 2021, [LoRA](https://arxiv.org/abs/2106.09685).
# - Biderman et al. 2024, [LoRA Learns Less and Forgets Less](https://arxiv.org/abs/2405.09673): the same trade-off on
#   models of 7 billion values.
# - Gekhman et al. 2024, [Does Fine-Tuning LLMs on New Knowledge Encourage Hallucinations?](https://arxiv.org/abs/2405.05904)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `tl.check` says what it looked at and, if the answer
# is not right yet, why. Stuck? `tl.hint("ex17_1", 1)` is a first push, `tl.hint("ex17_1", 2)` says more. After *Restart
# Kernel* run the next cell first; then each exercise works by itself.

# %%
import tlkit as tl

# %% [markdown]
# **Quiz.** After fine-tuning on passages about Rust, perplexity on held-out Rust passages is half of what it was. What
# does this show by itself?
#
# - **a** The model knows more about Rust than before.
# - **b** The model predicts text of this kind better than before.
# - **c** The model writes better answers about Rust than before.
# - **d** The model has forgotten nothing.

# %%
tl.quiz("quiz17")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 17.1** (first steps). The adapter of this lesson has rank 8 and 2,442,240 values. How many megabytes
# (millions of bytes) of weights does an adapter of rank 16 beside the same layers have, when it is saved in bf16?

# %%
answer = None
# your code here
tl.check("ex17_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 17.2** (apply it). Write the function that lets a model choose among options. It gets a list with one entry
# for each option: the log-probabilities that the model gave to the tokens of that option, a list of numbers. It returns
# the place of the chosen option, counted from 0. The options differ in length, and a long one must not lose because it
# is long.


# %%
def chosen(options):
    """The place of the option that the model finds likeliest, token for token."""
    # your code here


tl.check("ex17_2", chosen)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 17.3** (think further). How many questions does a test of knowledge need? Say that a share `changed` of the
# questions is answered rightly by exactly one of the two models. While the models are nearly equally good, the
# difference of their accuracies then has the standard error sqrt(changed / n) for n questions. Write a function that
# returns the smallest whole number n for which 1.96 standard errors are at most `difference`. Both arguments are
# shares: 0.05 is five points.


# %%
def questions_needed(difference, changed):
    """The fewest questions with which a difference of this size can be seen."""
    # your code here


tl.check("ex17_3", questions_needed)

# %% [markdown]
# Previous: [15 · The autopsy](15_autopsy.ipynb) ·
# Next: [20 · Scaling out](20_scaling_out.ipynb)
