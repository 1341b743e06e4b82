# %% [markdown] slideshow={"slide_type": "slide"}
# # 12 · A real model
#
# *What changes when the model already knows something?*
#
# So far every result came from a model of four million values that writes fluent nonsense. It trains in seconds and
# shows how fine-tuning works, but nobody would use it. This lesson repeats the central experiment on
# SmolLM2-135M-Instruct. It has thirty-three times as many values, was pretrained on about two trillion tokens, and
# can write a correct sentence about Rust before you train it at all.
#
# **You will be able to**
#
# - adapt a published model to your own text by LoRA, in `tlkit` and in plain transformers and peft, and save it;
# - say what perplexity does *not* tell you about a model that people will talk to;
# - choose a learning rate to start from, and estimate time, memory and disk for models up to 7 billion values.
#
# **You need** lessons [3](03_baseline.ipynb), [4](04_full_fine_tuning.ipynb) and [5](05_lora.ipynb), and the
# model on this machine. It is downloaded once (93 MB, or about 270 MB where the weights come from the model hub), and
# no network is needed after that. In a terminal:
#
# ```
# python -m tlkit fetch smollm2-135m-instruct
# ```
#
# About 54 minutes.

# %% slideshow={"slide_type": "subslide"}
import pandas as pd
import torch

import course
import tlkit as tl
from tlkit.evidence.answers import compare_answers

profile = tl.setup()
NAME = "smollm2-135m-instruct"
print(tl.fetched(NAME) or f"not here yet: python -m tlkit fetch {NAME}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The line above says where the weights came from, which matters when you compare results. This publisher rounded them
# to 4 bits, and the embedding to 8 ([quantisation](glossary.md#quantisation), [lesson 6](06_qlora.ipynb)) to make the
# download small, and `fetch` turned them back into 32-bit numbers. Each weight therefore differs by a rounding error
# from the one that the model's authors published. If the model hub can be reached, `fetch` takes the original weights
# from there instead.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same parts, more of them
#
# SmolLM2 is built like the bundled model: a token embedding, a stack of [blocks](glossary.md#block), a norm and a
# [tied head](glossary.md#tied-head). Only the numbers differ.

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
before_text = tl.generate(real.model, real.tokenizer, prompts, new_tokens=24)
lora = tl.apply_strategy(real.model, "lora")
tiny_lora = tl.apply_strategy(tiny.model, "lora")
tl.network_strip(tiny_lora, lora, names=("the tiny model", "SmolLM2-135M"))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Both models have a LoRA adapter of rank 8 beside every linear layer of each block. The lower strip draws its thirty
# equal blocks as one box, and the number below the box is that of all thirty adapters. In the real model the adapter is
# a smaller share of all values, because the adapter of a matrix grows with the matrix's width, and the matrix itself
# grows with the square of its width.

# %%
table = lora.components["embedding"].total_values
print(f"values: {lora.total_values - lora.trainable_values:,}")
print(f"of these in the embedding: {table:,}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Before: what it writes, and what it scores
#
# SmolLM2 was trained on web pages, textbooks and code, some of them about Rust. Read how it continues two prompts,
# and judge for yourself.

# %% tags=["nbval-ignore-output"]
for text in before_text:
    print(text, "\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The sentences are grammatical, and the first is roughly true. The second is wrong: a `Result` does not make a new
# type, it holds either a value or an error.
#
# Now the numbers. We score two kinds of held-out text. *Rust* is what we will train on; *general* is Python's
# language reference, which tells us what is forgotten. Eight documents of each keep the lesson short, so the
# intervals are wide.

# %%
rust = tl.load_corpus().limited(40, 8)
general = tl.load_corpus("general").limited(8, 8)
held_out = {"Rust": rust.validation, "general": general.validation}


def scores(model, tokenizer):
    """Perplexity on eight validation documents of each kind."""
    with tl.Job(2, "text") as job:
        found = {}
        for name, texts in held_out.items():
            with job.part(name) as part:
                found[name] = tl.perplexity(model, tokenizer, texts, progress=part)
    return found


before = scores(lora.model, real.tokenizer)
tiny_before = scores(tiny_lora.model, tiny.tokenizer)

# %% tags=["nbval-ignore-output"]
for name, score in before.items():
    span = f"interval {score.low:.0f} to {score.high:.0f}"
    print(f"{name}: {score.perplexity:.1f}, {span}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Do not compare these perplexities with the tiny model's. Perplexity is a measure per [token](glossary.md#token), and
# the two models cut text into tokens differently, because SmolLM2's vocabulary has 49,152 tokens and the bundled
# model's 4,096. [Bits per byte](glossary.md#bits-per-byte) is the unit that both share.

# %%
smol, small = before["Rust"], tiny_before["Rust"]
print(f"tokens in the Rust texts: SmolLM2 {smol.tokens:,}, tiny {small.tokens:,}")
course.claim(
    "Per byte of Rust text, the untouched real model already beats the tiny one",
    smol.bits_per_byte < 0.9 * small.bits_per_byte,
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Adapt it
#
# **Predict first.** Forty short passages make 36 blocks of 128 tokens, so with two blocks in a batch one epoch is 18
# steps: less than five thousand tokens after a pretraining on two trillion. By how much will perplexity on Rust fall?
# And will it rise or fall on general text?

# %%
blocks = tl.pack(rust.train, real.tokenizer, 128)
settings = tl.TrainingConfig(learning_rate=1e-3, epochs=1, batch_size=2)
run = tl.train(lora.model, blocks, settings, progress=True)
after = scores(lora.model, real.tokenizer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# For comparison, train the tiny model on the same 40 passages, at a learning rate that suits it: 0.01, ten times as
# high.

# %%
tiny_blocks = tl.pack(rust.train, tiny.tokenizer, 128)
settings = tl.TrainingConfig(learning_rate=1e-2, epochs=1, batch_size=2)
tl.train(tiny_lora.model, tiny_blocks, settings, progress=True)
tiny_after = scores(tiny_lora.model, tiny.tokenizer)

# %%
runs = {
    "tiny": {"zero-shot": tiny_before, "lora": tiny_after},
    "SmolLM2-135M": {"zero-shot": before, "lora": after},
}
results = {}
for model, scored in runs.items():
    rows = [
        [name, both["Rust"].perplexity, both["general"].perplexity]
        for name, both in scored.items()
    ]
    results[model] = pd.DataFrame(rows, columns=["strategy", "perplexity", "general"])
tl.forgetting_chart(results)

# %%
changes = {
    name: table.drop(columns="strategy").pct_change().loc[1]
    for name, table in results.items()
}
course.claim(
    "On general text, the tiny model's rises by over a fifth, the real one's does not",
    changes["tiny"].general > 0.2 and changes["SmolLM2-135M"].general < 0,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With eight documents, how sure are the real model's two changes? Both scores are from the same documents, so the
# interval of a change is taken over the eight differences, document by document ([lesson 15](15_comparison.ipynb)).

# %% tags=["nbval-ignore-output"]
import numpy as np
from scipy import stats

for name, new in after.items():
    old = before[name]
    gained = np.subtract(new.document_nats, old.document_nats) / new.document_tokens
    low, high = 100 * np.expm1(stats.ttest_1samp(gained, 0).confidence_interval())
    print(f"{name}: {old.perplexity:.1f} before, {new.perplexity:.1f} after")
    print(f"  change: {low:+.0f}% to {high:+.0f}%, interval over documents")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Both models learn the new kind of text, but on this general text only the tiny one pays for it. The real one has
# read so much that our few thousand tokens probably only have to tell it *which* of the things it can do is wanted. A
# small change of the weights, at a tenth of the learning rate, is enough for that. Part of the difference may come
# from the rate itself: LoRA's best one on this model, in the table further down, is three times ours.
#
# This does not prove that larger models forget nothing. The tiny model was pretrained on Python's documentation, so
# the general text shows what it lost of its own. Of all that SmolLM2 has read, Python's reference is a small part, so
# what it may have forgotten elsewhere is not seen here. It even improves on this text. The likely reason is that it
# was last tuned to answer chat messages, while the reference and our passages are both plain technical prose. In the
# longer recorded runs below, all strategies do raise it, though LoRA's interval includes zero.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same in plain transformers and peft
#
# These are the calls that you will meet outside this workbook: `from_pretrained` loads the weights, `LoraConfig`
# describes the adapter, `get_peft_model` puts it in place, and `Trainer` runs the loop. The first three steps are
# enough to see that both do the same.

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
# By default `Trainer` lets the learning rate decay in a straight line, and `tl.train` warms it up and lets it decay
# along a cosine. For a fair comparison both get a constant rate, no weight decay, and the same two short blocks three
# times.

# %% tags=["nbval-ignore-output"]
import tempfile

pair, steps = blocks[:2, :64], 3
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
        disable_tqdm=False,
    )
    data = [{"input_ids": block, "labels": block} for block in pair]
    trainer = Trainer(plain, arguments, train_dataset=data)
    trainer.train()  # shows its progress and the loss of each step
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
del again

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What became of its sentences?
#
# Perplexity on Rust fell by more than a quarter. Does the model now also write better about Rust? The prompts are the
# ones from the beginning.

# %% tags=["nbval-ignore-output"]
after_text = tl.generate(lora.model, real.tokenizer, prompts, new_tokens=24)
for old, new in zip(before_text, after_text, strict=True):
    print("before:", old)
    print("after: ", new, "\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The new sentences are not better. They sound more like our passages, with more code in backticks and fewer general
# remarks, but they say less. Here the first goes in a circle, and the second is wrong: a `Result<T, E>` has two type
# parameters, one for the value and one for the error. Perplexity rewards this change, because it measures how well a
# model predicts the next token of *this* kind of text. Much of that is vocabulary and style, and few tokens depend on
# whether a sentence is true.
#
# So ask for knowledge directly. Each question below has four options, and the model "chooses" the one to which it
# gives the highest probability per token. Guessing gives 25%. Every question can be answered from a passage that the
# model has just read.

# %%
passages = pd.read_json(tl.DATA / "rust/train.jsonl", lines=True)
read = set(passages.id[:40])
asked = [q for q in tl.load_questions("rust") if q.passage in read][:16]
print(asked[0].question)
for option in asked[0].options:
    print("  -", option)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** How many of 16 does the untouched model answer correctly, and how many does the adapted one?
#
# This needs no second copy of the model. LoRA leaves the original weights as they were, so with the adapter switched
# off, peft computes with the untouched model.

# %%
with tl.Job(2, "model") as job:
    with job.part("untouched") as part, lora.model.disable_adapter():
        answers_before = tl.answer_questions(
            lora.model, real.tokenizer, asked, progress=part
        )
    with job.part("adapted") as part:
        answers_after = tl.answer_questions(
            lora.model, real.tokenizer, asked, progress=part
        )
change = compare_answers(answers_before, answers_after)

# %% tags=["nbval-ignore-output"]
for name, answers in (("before", answers_before), ("after", answers_after)):
    print(f"{name}: {sum(answers.correct)} of {len(asked)} right")
print(change)

# %%
right = [sum(answers.correct) for answers in (answers_before, answers_after)]
course.claim("Neither of them answers half of the questions correctly", max(right) < 8)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The last line gives the change in percentage points, its interval, and a p value from *McNemar's test*. The test looks
# only at the questions that exactly one of the two models answered correctly. If both were equally good, each of these
# would be a gain or a loss like the toss of a coin, and p is the chance of so unequal a count. With a single such
# question, p is always 1.
#
# Two things can be learned from this. The first is about the model: someone who guesses would get about 4 of 16, and
# the adapted model does not stand out from that, although the text with the answers was in its training. Eighteen
# steps taught it how these passages sound, and we see no sign that it learned what they say. The second is about
# measuring. With 16 questions the [interval](glossary.md#confidence-interval) of the change is so wide that it
# excludes little. A test of knowledge needs hundreds of questions.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The whole comparison, recorded
#
# Three seeds of all strategies on this model take more than an hour, so they were recorded: 200 passages, 40 test
# documents, all 558 questions. `make real` repeats them on your machine.

# %%
recorded = tl.recorded_comparison(NAME).table.set_index("strategy")
shown = pd.DataFrame(
    {
        "learning rate": recorded.learning_rate,
        "Rust": recorded.perplexity.round(1),
        "general": recorded.general.round(1),
        "Rust questions, %": (100 * recorded.rust_accuracy).round(),
        "general questions, %": (100 * recorded.general_accuracy).round(),
        "saved, MB": (recorded.file_bytes / 1e6).round(),
    }
)
shown = shown.drop("bitfit")  # this architecture has no bias vectors
shown.map(lambda value: "" if pd.isna(value) else f"{value:g}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# All strategies roughly halve the perplexity on Rust. (The last row of the table is no strategy: there the same
# architecture was trained from random weights.) `full` and `freeze_embeddings` gain most, `lora` comes close to them
# and forgets least, and `last_layers` gains least of all. With the tiny model the order was another one, so the
# rank of a strategy on one model does not tell you its rank on another.
#
# Two columns should make you careful. No strategy answers the Rust questions better than someone who guesses,
# although every answer was in the training text. And all strategies answer fewer of the general questions than the
# untouched model did, though only the interval of `full` excludes zero ([lesson 15](15_comparison.ipynb)). If people
# will ask your model questions, test it with questions.
#
# **Learning rates to start from.** The best of the rates tried on each of the two models, and some that were
# published for larger ones:

# %%
found = {name: tl.default_rates(name) for name in ("tiny", NAME)}
start = pd.DataFrame(found).loc[["full", "last_layers", "lora", "qlora"]]
start.columns = ["4 million values", "135 million"]
start["7 and 13 billion"] = [2e-5, None, None, 2e-4]
start["33 and 65 billion"] = [None, None, None, 1e-4]
start.map(lambda rate: "" if pd.isna(rate) else f"{rate:g}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The two columns on the right are those of [Alpaca](https://github.com/tatsu-lab/stanford_alpaca) (full fine-tuning,
# 7 billion) and of the [QLoRA paper](https://arxiv.org/abs/2305.14314). They were chosen for other data and larger
# batches. Still, the pattern holds: the larger the model, the lower the rate, and about ten times more for adapters
# than for all weights. Start from the nearest column.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How large can you go?
#
# Everything in this lesson works on larger models, but the cost grows. Three quantities can be worked out before you
# download anything, and for the fourth there is a starting point:
#
# - **Disk.** A weight takes 4 bytes in fp32 and 2 bytes in bf16, so a model of $N$ values is a file of $4N$ or $2N$
#   bytes. A LoRA adapter is a file of its own, and much smaller.
# - **Memory.** [Lesson 9](09_memory.ipynb) derived what a training step needs. The table below reads it from
#   a recorded file, for one row of 512 tokens in fp32 (with QLoRA, the frozen matrices are in 4 bits).
# - **Time.** A forward and a backward pass through all weights take about $6N$ operations per token, so a model fifty
#   times as large takes about fifty times as long on the same machine.
# - **Learning rate.** It has to be tuned for each model and strategy. Start from one that worked for the same
#   strategy on a model of similar size, and try a third and three times of it.

# %%
fits = pd.read_csv(tl.DATA.parent / "tests/benchmarks/fit_tables.csv")
fits = fits.dropna(subset="gib").set_index(["model", "strategy"]).gib
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
        "time of a step, times the first": values / 134_515_008,
    }
sizes = pd.DataFrame(rows).round(1)
sizes

# %% [markdown] slideshow={"slide_type": "subslide"}
# In our runs a step of full fine-tuning of the smallest model took about two seconds on two cores (two blocks of 128
# tokens), so the same step of the 7-billion-value model would take over a minute and a half, if the machine had the
# memory. But it needs more than 100 GiB, and LoRA still needs 30, because the frozen weights alone take 25. With
# QLoRA the 0.5B model needs more than the 1.1B one, because its vocabulary, and with it the logits, is nearly five
# times as large.
#
# Large models are therefore usually fine-tuned on GPUs, with the base weights frozen and kept in bf16 or in 4 bits.
# With 4-bit weights, the rest in bf16 and activation checkpointing, a step of the same model needs little more than 4
# GiB ([lesson 6](06_qlora.ipynb)).

# %%
seven = sizes["llama2-7b"]
course.claim(
    "7 billion values: full fine-tuning in fp32 needs over 100 GiB, LoRA about 30",
    seven["full: memory, GiB"] > 100 and 29 < seven["lora: memory, GiB"] < 31,
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Keep it: save, merge, load
#
# What you have trained is the [adapter](glossary.md#adapter). `save_pretrained` writes it and nothing else: ten
# megabytes, which you can send to somebody who has the base model. They load the base model, and
# `PeftModel.from_pretrained` puts the adapter beside it.

# %%
import os

from peft import PeftModel

with tempfile.TemporaryDirectory() as scratch:
    lora.model.save_pretrained(scratch)
    size = os.path.getsize(f"{scratch}/adapter_model.safetensors")
    fresh = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    loaded = PeftModel.from_pretrained(fresh, scratch).eval()
values = lora.trainable_values
print(f"{size / 1e6:.1f} MB for {values:,} values of 4 bytes")
sentence = real.tokenizer(prompts[1], return_tensors="pt").input_ids
with torch.no_grad():
    trained = lora.model.eval()(sentence).logits
    again = loaded(sentence).logits

# %% [markdown] slideshow={"slide_type": "subslide"}
# For use, the adapter can be [merged](glossary.md#merging): every matrix $W$ is replaced by $W + (\alpha/r)\,BA$
# ([lesson 5](05_lora.ipynb)). The merged model computes the same and no longer needs peft. `merge_and_unload` does it
# in memory. Check the result, because a merge into rounded weights or into the wrong base model changes what the
# model computes, and there is no error message.

# %%
with torch.no_grad():
    inside = loaded.merge_and_unload()(sentence).logits
course.claim(
    "Merged and with the adapter beside it, the model computes the same to 0.001",
    (trained - inside).abs().max() < 1e-3,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# On the command line, three commands lead from your text to a model of your own. `train` also leaves a model card
# with data, settings and results, and every command takes the folder of an adapter as a model.
#
# ```
# python -m tlkit train --model smollm2-135m-instruct --strategy lora --corpus notes/ --output out
# python -m tlkit evaluate --model out --questions rust
# python -m tlkit generate --model out --chat --prompt "What is a slice?"
# ```

# %% [markdown] slideshow={"slide_type": "slide"}
# ## With a model of your choice
#
# In these commands you can write another name for `smollm2-135m-instruct`, and in the first cell too, but the cells
# then stop at claims about this model:
#
# - **Any model on the Hugging Face hub**, by its id: `python -m tlkit fetch Qwen/Qwen2.5-0.5B`. Its weights must be
#   in the safetensors format, and its architecture one that transformers knows without code from the repository.
# - **A gated model** (Llama, Gemma): accept its terms on the model's page, create a token in your account's settings,
#   and run `hf auth login` once, or set `HF_TOKEN`. Then fetch it like any other.
# - **On a cluster**, where compute nodes have no network and home folders are small: set `HF_HOME` to a shared folder
#   and `TLKIT_CACHE` beside it, fetch on the login node, and start jobs with `HF_HUB_OFFLINE=1`.
# - **A folder** that somebody gave you: its path. The folder must have `config.json`, safetensors and a tokenizer.
#   Files of other formats, which can run code when they are opened, are refused.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A well pretrained model adapts to a new kind of text in a few steps, at a low learning rate, and forgets less than
#   a small one: nothing on our eight general documents, and 5% (`lora`) to 27% (`full`) in the longer recorded runs.
# - Perplexity tells you how well a model predicts the kind of text you measured on. It does not tell you whether the
#   model knows more, or writes what people want to read. Ask questions, and read what it writes.
# - The method does not change with the size of the model; time, memory, disk and the learning rate do.
#
# **Further reading**
#
# - Ben Allal et al. 2025, [SmolLM2: When Smol Goes Big](https://arxiv.org/abs/2502.02737): data and training of this
#   model.
# - Hu et al. 2021, [LoRA](https://arxiv.org/abs/2106.09685).
# - Biderman et al. 2024, [LoRA Learns Less and Forgets Less](https://arxiv.org/abs/2405.09673): the same trade-off on
#   models of 7 billion values.
# - Gekhman et al. 2024, [Does Fine-Tuning LLMs on New Knowledge Encourage
#   Hallucinations?](https://arxiv.org/abs/2405.05904): facts are learned slowly, and at a price.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex12_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
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
course.quiz("quiz12")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 12.1** (first steps). The adapter of this lesson has rank 8 and 2,442,240 values. How many megabytes
# (millions of bytes) of weights does an adapter of rank 16 beside the same layers have, when it is saved in bf16?

# %%
answer = None
# your code here
course.check("ex12_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 12.2** (apply it). Write the function that lets a model choose among options. It gets a list with one entry
# for each option: the log-probabilities that the model gave to the tokens of that option, a list of numbers. It returns
# the place of the chosen option, counted from 0. The options differ in length, and a long one must not lose because it
# is long.


# %%
def chosen(options):
    """The place of the option that the model finds likeliest, token for token."""
    # your code here


course.check("ex12_2", chosen)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 12.3** (think further). How many questions does a test of knowledge need? Say that a share `changed` of the
# questions is answered correctly by exactly one of the two models. While the models are nearly equally good, the
# difference of their accuracies then has the standard error sqrt(changed / n) for n questions. Write a function that
# returns the smallest whole number n for which 1.96 standard errors are at most `difference`. Both arguments are
# shares: 0.05 is five points.


# %%
def questions_needed(difference, changed):
    """The fewest questions with which a difference of this size can be seen."""
    # your code here


course.check("ex12_3", questions_needed)

# %% [markdown]
# Previous: [10 · Out of memory](10_oom_fallback.ipynb) ·
# Next: [13 · Classification](13_classification.ipynb)
