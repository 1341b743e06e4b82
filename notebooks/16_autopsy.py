# %% [markdown] slideshow={"slide_type": "slide"}
# # 16 · The autopsy
#
# *How can five reports full of numbers be wrong, and how would you have noticed?*
#
# Five published reports describe one project, which adapts a small language model to text about Rust. Its programs ran,
# the training losses fell, and the tables have two decimals. Still, most of the conclusions do not hold. Nobody
# cheated. Every fault is one that you could make tomorrow, and each left a symptom in the numbers that a reader could
# have seen without running anything.
#
# **You will be able to**
#
# - find six common faults of fine-tuning experiments from the numbers that are published;
# - reproduce the faults at small cost, and say what each does to a result;
# - read any report with a checklist of six questions.
#
# **You need** [lesson 3](03_baseline.ipynb) for perplexity, [lesson
# 7](07_freezing.ipynb) for the strategies, and [lesson 9](09_memory.ipynb) for memory.
#
# About 75 minutes.

# %% slideshow={"slide_type": "subslide"}
import math
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch

import course
import tlkit as tl
from course.lesson16 import pictures
from tlkit.evidence.flops import count_flops
from tlkit.reports.training_charts import flops_chart
from tlkit.evidence.flops import speedup_warning

profile = tl.setup()
rust = tl.load_corpus("rust").limited(profile.train_passages, profile.test_passages)
tiny = tl.load_model("tiny")
held_out = tl.pack(rust.validation, tiny.tokenizer, 128)
rates = tl.default_rates()

# %% [markdown] slideshow={"slide_type": "subslide"}
# Three reports adapt Qwen2-0.5B. The *Python report* used PyTorch and transformers, and the *Rust CUDA report* and the
# *Rust hybrid report* used Candle, a library for Rust. A *memory guide* and a *validation plan* belong to them. Here are
# all final perplexities of the three experiments, and those before training. The dashed line is the perplexity of a
# model that knows nothing and gives each of Qwen2's 151,936 tokens the same probability.

# %%
published = {
    "Python: before training": 254_801.06,
    "Python: full fine-tuning": 116_362_380.41,
    "Python: freeze lower layers": 152_236_852.30,
    "Python: freeze embeddings": 300_747_596.59,
    "Python: adapter layers": 78_241_302.23,
    "Rust CUDA: before training": 250_071.58,
    "Rust hybrid: before training": 387_788.94,
    "Rust hybrid: freeze lower layers": 64_249.05,
    "Rust hybrid: adapter layers": 104_838.55,
    "Rust hybrid: freeze embeddings": 206_583.62,
    "Rust hybrid: full fine-tuning": 303_044.66,
}
vocabulary = tl.architecture("qwen2-0.5b").vocab_size
pictures.published_chart(published, vocabulary)

# %% [markdown] slideshow={"slide_type": "subslide"}
# A pretrained language model should be far to the left of this line, at a perplexity of perhaps 10 to 100 on ordinary
# text. So something is wrong in all three experiments, but as you will see, not the same thing.
#
# Each symptom below begins with what was published. **Make your diagnosis before you read on.** Then comes the same
# fault on our small model or on the shape of Qwen2-0.5B, the explanation, and one question that you can ask of any
# report. You have met the faults behind the first four symptoms in earlier lessons (1, 3, 4, 5 and 7). See whether you
# recognise them from the numbers alone.

# %% tags=["check-worse"]
worse = [name for name, value in published.items() if value > vocabulary]

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 1: the loss falls to zero, and perplexity explodes
#
# | Python report, full fine-tuning on 7 blocks, 20 epochs | |
# | --- | --- |
# | perplexity before training | 254,801.06 |
# | first training loss | 4.6157 |
# | last training loss | 0.0000 |
# | perplexity after training | 116,362,380.41 |
#
# The report's diagnosis is overfitting: seven examples are too few, and the model has learned them by heart. It did
# overfit. But overfitting cannot explain the first row, because at that moment nothing had been trained.
#
# **What would you check?** The training text costs 4.6 nats a token before the first update. Which perplexity should
# the evaluation have shown, on text of the same kind?

# %% tags=["check-math"]
print(f"exp(4.6157) is {math.exp(4.6157):,.0f}; ln(254,801) is {math.log(254_801):.1f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It should have shown about a hundred. These are two measurements of the same model before any training. They are 7.8
# nats apart, so they cannot measure the same thing.
#
# The program's source shows why. A language model's label at each place is the *next* token, and transformers models
# shift the labels by one place themselves. The evaluation had shifted its labels already, so they were shifted twice.

# %%
ids = tiny.tokenizer("In Rust, Vec<T> is")["input_ids"]
pictures.label_shift_scheme([tiny.tokenizer.decode([token]) for token in ids][:8])

# %% [markdown] slideshow={"slide_type": "subslide"}
# The evaluation therefore scored how well the model predicts the token *after* the next one, which it never learned to
# do. Training was not affected, because it prepared its own labels. Here is the faulty evaluation for our model.


# %%
@torch.no_grad()
def shifted_twice(model, blocks):
    inputs, labels = blocks[:, :-1], blocks[:, 1:]  # shifted here ...
    losses = [
        model(input_ids=x, labels=y).loss.item()
        for x, y in zip(inputs.split(8), labels.split(8), strict=True)
    ]
    return sum(losses) / len(losses)  # ... and once more inside the model


# %% [markdown] slideshow={"slide_type": "subslide"}
# We score four states with the correct and with the faulty evaluation. The first is the untouched model, and the second
# is adapted well. The third is trained as in the report, 20 epochs on seven blocks of 32 tokens. The fourth is the same
# model again, but scored on those seven blocks, which it knows by heart.
#
# **Predict first.** Which of the four looks worst in the faulty evaluation?

# %%
blocks = tl.pack(rust.train, tiny.tokenizer, 128)
improved, _ = tl.load_with_strategy("full")
config = tl.TrainingConfig(rates["full"], batch_size=4)
gain = tl.train(improved.model, blocks, config, progress=True)
seven = tl.pack(tl.load_corpus("facts").train, tiny.tokenizer, 32)[:7]
by_heart, _ = tl.load_with_strategy("full")
settings = tl.TrainingConfig(
    1e-3, epochs=20, batch_size=1, schedule="linear", warmup_fraction=0
)
memorised = tl.train(by_heart.model, seven, settings, progress=True)

# %%
states = {
    "untouched": (tiny.model, held_out),
    "adapted": (improved.model, held_out),
    "seven blocks, held-out text": (by_heart.model, held_out),
    "seven blocks, the same seven": (by_heart.model, seven),
}
scores = pd.DataFrame(
    {
        name: {"correct": tl.mean_loss(*of), "shifted twice": shifted_twice(*of)}
        for name, of in states.items()
    }
).T.map(math.exp)

# %% tags=["nbval-ignore-output"]
scores.round(1)

# %%
true, broken = scores["correct"], scores["shifted twice"]
course.claim(
    "The faulty evaluation reads at least 20 times too much in every state",
    (broken > 20 * true).all(),
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# So the report is right that the model overfitted, but its figures do not show it. The last row says why they exploded:
# the better a model knows a text by heart, the more certain it is of the *next* token, and the less probability it
# leaves for the token after that. Training to a loss of zero therefore drives the faulty figure up.
#
# Nor can the faulty figure tell how much was gained. For our model it falls by about half and the correct one by
# about 40%, but that they are so close is luck. In an earlier trial with another small model of our own (6.8 million
# values, not part of this workbook), the correct perplexity fell from 96.9 to 40.4, and the faulty one only from
# 7,284 to 6,887.

# %%
real, read = 1 - 40.4 / 96.9, 1 - 6_887 / 7_284
print(f"a real fall of {real:.0%} was read as {read:.0%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# `tl.first_loss_warning` compares the first training loss with the evaluation's loss before training, and warns if
# they are more than one nat apart. It passes our correct evaluation, and would have stopped both our faulty one and
# the report.

# %% tags=["check-tl"]
first_loss = gain.history.loss.iloc[0]
ours, faulty = (math.log(column["untouched"]) for column in (true, broken))
course.claim(
    "Our evaluation passes, and the faulty one is caught",
    tl.first_loss_warning(first_loss, faulty),
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# > **Ask of any report:** does the first training loss agree with the loss measured before training?

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 2: a pretrained model that is worse than guessing
#
# | | Rust CUDA report | Rust hybrid report |
# | --- | --- | --- |
# | model | Qwen2-0.5B, pretrained | the same file |
# | perplexity before training | 250,071.58 | 387,788.94 |
# | generated text | words of many languages in no order | mixed languages |
#
# The reports suspect the tokenizer, the transfer to the graphics card, or the model's handling on the GPU.
#
# **What would you check?** Two things in this table cannot happen if the weights arrived and the evaluation is
# correct. Which?

# %%
guessing = math.exp(-math.log(1 / vocabulary))
print(f"guessing among {vocabulary:,} tokens: perplexity {guessing:,.0f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# First, guessing at random has a perplexity equal to the size of the vocabulary. A model above that is worse than one
# that knows nothing, because it is confident and wrong. Second, the same weights must give nearly the same baseline
# on similar text. A baseline that changes this much between runs has something random in it, or was measured on very
# little text.
#
# This also makes the fault of symptom 1 unlikely as the only one. An evaluation that shifts labels twice is wrong in
# the same way each time, so on the same text it would have given the same number in both reports.
#
# Here are our own model's weights drawn at random, with three seeds, beside the pretrained model loaded twice.

# %% [markdown] slideshow={"slide_type": "subslide"}
# Our random models show both symptoms, and the program's source confirms it. It loaded the file into a list of
# variables *before* the model had created any variable. There was nothing to fill, so the call filled nothing and
# reported success. The "pretrained" model was random.
#
# The remedy is to count what arrived. Here we write a file in which every name is wrong, and try to load it.

# %%
from safetensors.torch import save_file

with tempfile.TemporaryDirectory() as folder:
    for file in Path(tl.BUNDLED).glob("*.json"):
        (Path(folder) / file.name).write_bytes(file.read_bytes())
    misnamed = {
        f"other.{name}": tensor.clone()
        for name, tensor in tiny.model.named_parameters()
    }
    save_file(misnamed, Path(folder) / "model.safetensors", metadata={"format": "pt"})
    try:
        tl.load_model(folder)
        refused = False
    except RuntimeError as error:
        refused = "random" in str(error)
course.claim(
    "tlkit refuses the file, because weights would have stayed random", refused
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Plain transformers does not refuse such a file. It loads the model with random weights and prints a list of missing
# keys, which is easy to overlook in a long log.
#
# > **Ask of any report:** is the baseline below the vocabulary's size, and the same in every run?

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 3: three parameters win
#
# | Rust hybrid report | trained | final perplexity | rank |
# | --- | --- | --- | --- |
# | freeze lower layers | 3/291 (1.0%) | 64,249.05 | 1 |
# | adapter layers | 26/291 (8.9%) | 104,838.55 | 2 |
# | freeze embeddings | 290/291 (99.7%) | 206,583.62 | 3 |
# | full fine-tuning | 291/291 (100%) | 303,044.66 | 4 |
#
# From three parameters the report calculates gradients of 3 × 4 = 12 bytes, and it says that this is why the strategy
# fits the card. It also draws a law from the table: with little data, less is more.
#
# **What would you check?** The model has 494 million values and the report counts 291. And the program chose the first
# twelve layers as in the next cell. Which layers does that freeze?


# %%
def should_freeze(name):
    return any(f"layers.{number}" in name for number in range(12))


config = tl.architecture("qwen2-0.5b")
config.tie_word_embeddings = False  # as the Rust program built it: a head of its own
faulty = tl.meta_model(config)
for name, parameter in faulty.named_parameters():
    parameter.requires_grad_(not should_freeze(name))
report = tl.describe(faulty)
intended = tl.apply_strategy(tl.meta_model("qwen2-0.5b"), "freeze_lower")
tl.network_strip(intended, replace(report, strategy="substring match"))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The upper strip is what the report describes, and the lower one is what its program did: all 24 blocks are frozen.
# The lower one has 136 million values more, because the Rust program built the head as a table of its own. The text
# `layers.1` is also the beginning of `layers.10` to `layers.19`, and `layers.2` that of `layers.20` to `layers.23`.
# Three *tensors* are left: embedding, final norm and head. The 291 are tensors too.

# %% tags=["check-report"]
tensors, values = report.trainable_tensors, report.trainable_values
print(
    f"freeze lower layers: {tensors}/{report.total_tensors} tensors, {values:,} values"
)
last_two = ("layers.22.", "layers.23.", "lm_head", "model.norm")
named = dict(faulty.named_parameters())
adapter = [p for name, p in named.items() if any(part in name for part in last_two)]
without = [p for name, p in named.items() if "embed_tokens" not in name]
for name, chosen in {"adapter layers": adapter, "freeze embeddings": without}.items():
    print(
        f"{name}: {len(chosen)}/291 tensors, {sum(p.numel() for p in chosen):,} values"
    )

# %% [markdown] slideshow={"slide_type": "subslide"}
# So the "three parameters" are 272 million values, more than the second strategy trains. Their gradients take
# 1.09 GB instead of 12 bytes. The order of the table is no longer "fewer is better" either: rank 1 trains 272 million,
# rank 2 trains 166 million.

# %% tags=["check-report-2"]
gradients, weights = 4 * report.trainable_values / 1e9, 4 * report.total_values / 1e9
print(f"gradients: not 12 bytes, but {gradients:.2f} GB")
print(
    f"weights: {weights:.2f} GB; AdamW's two moments for all of them: {2 * weights:.2f}"
)
for doubt in report.doubts:
    print(doubt)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The last line is from `tl.describe`. It looks at the selection block by block, and reports that no block is trainable.
#
# > **Ask of any report:** what exactly was trained, block by block, and is it counted in values?

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 4: 40,320 values too many
#
# | Python report, "adapter layers" | |
# | --- | --- |
# | said to be trained | the last 2 of 24 layers, and the head |
# | trainable parameters | 29,865,088 |
#
# **What would you check?** Two blocks of Qwen2-0.5B have 29,824,768 values, and its head has 136,134,656.

# %%
last = tl.apply_strategy(tl.meta_model("qwen2-0.5b"), "last_layers")
alone = tl.apply_strategy(tl.meta_model("qwen2-0.5b"), "last_layers", train_norms=False)
left_over = last.trainable_values - alone.trainable_values
print(f"{last.trainable_values:,} = {alone.trainable_values:,} + {left_over:,}")
print(f"{left_over:,} = {left_over // 896} norms of 896 values")

# %%
tl.network_strip(last, replace(alone, strategy="norms frozen"))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The program selected every name that contains "norm": two norms in each of the 22 lower blocks, and the final one. The
# head was *not* trained. Qwen2-0.5B uses one table as embedding and as head (it is *tied*), and that table was frozen.
#
# 40,320 values sound harmless, but the upper strip shows their price. Because there are trained norms in the lowest
# block, backpropagation has to pass through all 24. Symptom 6 counts what that costs. The report's other three counts
# are exactly right, and `describe` reports the norms as a doubt.

# %%
others = {
    "freeze_lower": 315_084_160,
    "freeze_embeddings": 357_898_112,
    "full": 494_032_768,
}
counted = {
    name: tl.apply_strategy(tl.meta_model("qwen2-0.5b"), name).trainable_values
    for name in others
}
print(last.doubts[0])

# %% [markdown] slideshow={"slide_type": "subslide"}
# > **Ask of any report:** do the counted values add up to the parts that the report names?

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 5: a ranking from one block
#
# | | Python report | Rust hybrid report |
# | --- | --- | --- |
# | text for the evaluation | 1 block of 32 tokens | 1 block of 4 tokens |
# | seeds | 1 | 1 |
# | strategies that are ranked | 4 | 4 |
# | said to be best | adapter layers | freeze lower layers |
#
# **What would you check?** Would another block of text have named the same winner? To find out, we adapt the model in
# three ways and score each on 63 blocks of validation text, 32 tokens each, one by one.
#
# **Predict first.** On how many of the 63 blocks does the strategy win that is best on average?

# %%
names = ["full", "freeze_embeddings", "last_layers"]
models = {"full": improved.model}
for name in names[1:]:
    models[name] = tl.load_with_strategy(name)[0].model
    config = tl.TrainingConfig(rates[name], batch_size=4)
    tl.train(models[name], blocks, config, progress=True)
single = tl.pack(rust.validation[:15], tiny.tokenizer, 32)
losses = pd.DataFrame(
    {
        name: [tl.mean_loss(model, block[None]) for block in single]
        for name, model in models.items()
    }
)
winners = losses.idxmin(axis=1).value_counts(normalize=True)

# %% tags=["nbval-ignore-output"]
pd.DataFrame(
    {"share of blocks won": winners, "mean loss on the 63": losses.mean()}
).round(3)

# %%
pictures.margins_chart(losses, "full", "last_layers")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Even the strategy with the lowest mean wins fewer than half of the blocks, because the difference between two
# strategies varies from block to block by far more than its mean, the dashed line for these two. So a report on a
# single block names a winner, and the next block might have named another. The mean of the 63 blocks comes from one
# training run with one seed, so it proves no order either. [Lesson 15](15_comparison.ipynb) has shown what does:
# forty documents, three seeds, and intervals for differences.
#
# tlkit helps in two ways. A score on few tokens carries a warning, and a comparison with one seed gets no ranks.

# %% tags=["check-names"]
one_seed = losses.rename_axis("document").reset_index()
one_seed = one_seed.melt("document", var_name="strategy", value_name="loss")
one_seed = one_seed.assign(seed=0, tokens=31, nats=31 * one_seed.loss)

# %% [markdown] slideshow={"slide_type": "subslide"}
# > **Ask of any report:** how many tokens and how many seeds is each number from, and is a spread given?

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 6: 14.3 times faster
#
# | Python report | trained | seconds for 140 steps | said to be |
# | --- | --- | --- | --- |
# | full fine-tuning | 100% | 254.28 | |
# | adapter layers | 6.05% | 17.72 | 14.3 times faster |
#
# The report gives the small number of trained parameters as the reason.
#
# **What would you check?** A step consists of arithmetic, and of moving numbers between memory and processor. How much
# of each can go away when 94% of the values are frozen?

# %% [markdown] slideshow={"slide_type": "subslide"}
# **First, arithmetic.** The forward pass is the same in both strategies, because frozen layers compute as well. In full
# fine-tuning it is one third of the step's arithmetic, and the backward pass is two thirds. So whatever is frozen, a
# step keeps at least one third, and arithmetic alone can save a factor of three at most.

# %%
row = torch.zeros((1, 32), dtype=torch.long)
full = tl.apply_strategy(tl.meta_model("qwen2-0.5b"), "full")
choices = {"full": full, "last_layers": last, "last_layers, norms frozen": alone}
steps = {name: count_flops(choice.model, row) for name, choice in choices.items()}
flops_chart(steps)

# %%
arithmetic = {name: steps["full"].total / step.total for name, step in steps.items()}
print({name: round(ratio, 2) for name, ratio in arithmetic.items()})

# %% [markdown] slideshow={"slide_type": "subslide"}
# As published, with the norms of symptom 4, a step needs 1.45 times less arithmetic. With the lower norms frozen it
# would be 2.15.
#
# **Second, memory traffic.** Short steps like these, with 32 tokens, spend much of their time on reading and writing
# weights, and this traffic shrinks by more. The passes read 4 bytes for each weight that they use. For each *trained*
# value, 36 more bytes move: the gradient is written and then read once for clipping, and AdamW reads weight, gradient
# and two moments, and writes all but the gradient back. That is $4 + 4 + 4 \cdot 4 + 3 \cdot 4 = 36$.
#
# $$\text{bytes} \approx 4\,(P_{\text{forward}} + P_{\text{backward}}) + 36\, P_{\text{trained}}$$
#
# $P_{\text{forward}}$ and $P_{\text{backward}}$ count the values that a pass goes through, $P_{\text{trained}}$ those
# that are trained.

# %%
values, head = full.total_values, 151_936 * 896
through = {  # values that the backward pass goes through
    "full": values,
    "last_layers": values,
    "last_layers, norms frozen": alone.trainable_values + head,
}
moved = {
    name: (4 * (values + through[name]) + 36 * choice.trainable_values) / 1e9
    for name, choice in choices.items()
}
traffic = {name: moved["full"] / gigabytes for name, gigabytes in moved.items()}
for name in choices:
    print(f"{name}: {moved[name]:.1f} GB a step, {traffic[name]:.1f} times less")

# %% [markdown] slideshow={"slide_type": "subslide"}
# A step's time is made of both, so its speed-up should lie between the two ratios. We measured it once at full size, on a
# processor with two threads, in steps of 8 rows of 32 tokens: 9.74 seconds for `full` and 3.04 for `last_layers` with
# the norms frozen (transformers' Trainer, torch 2.13, November 2026). That is 3.2 times faster. It is more than the
# 2.15 of arithmetic, because gradients and optimizer state of 464 million values need not be touched, and less than the
# 5.9 of traffic.

# %%
ratio = 9.743 / 3.042
course.claim(
    "The published 14.3 is above all of them", max(traffic.values()) < 14.3 / 2
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# So where did 14.3 come from? Probably full fine-tuning was unusually slow, and not the other strategy unusually
# fast: a full step took 1.8 seconds. The card, an RTX 4060 Ti, moves 288 GB a second, so the 21.7 GB of a step should
# take less than 0.1 seconds.
#
# A full step in fp32 needs 9.0 GB for its tensors alone, however short the text is: 7.9 GB of weights, gradients and
# moments, and 1.1 GB of two more copies of the embedding's gradient (lesson 9). The hybrid report says that the card
# has 8 GB. On Windows, the driver silently moves whatever does not fit on the card into the computer's main memory,
# and each step then waits for it. *This is a hypothesis.* It explains the slow steps, and also why Python reported no
# out-of-memory error. We cannot test it without that machine.

# %% tags=["check-tl-2"]
estimate = {"batch_size": 1, "sequence_length": 32}
needed = tl.estimate_memory("qwen2-0.5b", "full", **estimate).peak
print(f"a full step of 32 tokens needs {needed / 1e9:.1f} GB")
print(f"a card of 8 GiB has {8 * 2**30 / 1e9:.1f} GB")
print(speedup_warning(14.3, steps["full"], steps["last_layers"]))

# %% [markdown] slideshow={"slide_type": "subslide"}
# You can watch the three parts of a step on your own machine. The bundled model takes one block of 32 tokens, so that
# the optimizer is not hidden behind the arithmetic.


# %%
def milliseconds(report, block, repeats=10):
    """The shortest time of each part of a step, in plain torch."""
    trained = [p for p in report.model.parameters() if p.requires_grad]
    optimizer, times = torch.optim.AdamW(trained, lr=1e-6, fused=True), []
    for _ in range(repeats):
        marks = [time.perf_counter()]
        loss = report.model(input_ids=block, labels=block).loss
        marks.append(time.perf_counter())
        loss.backward()
        marks.append(time.perf_counter())
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        marks.append(time.perf_counter())
        times.append([1000 * (b - a) for a, b in zip(marks, marks[1:], strict=False)])
    return [min(part) for part in zip(*times, strict=True)]


# %%
parts = {}
for name, options in {"full": {}, "last_layers": {"train_norms": False}}.items():
    small = tl.apply_strategy(tl.load_model("tiny").model, name, **options)
    parts[name] = milliseconds(small, single[:1])
parts = pd.DataFrame(parts, index=["forward", "backward", "clip and AdamW"])
parts = parts.rename_axis("milliseconds")

# %% tags=["nbval-ignore-output"]
parts.round(1)

# %%
saved = parts["full"] - parts["last_layers"]
course.claim(
    "Backward pass and optimizer both become shorter", (saved.iloc[1:] > 0).all()
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The forward pass stays, the backward pass ends early, and clipping and AdamW handle fewer values. With so short a
# block, clipping and AdamW can take as long as the forward pass.
#
# How do the strategies of this workbook compare, in arithmetic and in time? They take turns, so that a slow moment of
# the machine hits all of them.

# %%
names = tl.strategies_named(["classic"])
contenders = {name: tl.load_with_strategy(name)[0].model for name in names}
seconds = {name: [] for name in contenders}
four = blocks[:4, :64]
config = tl.TrainingConfig(1e-5, epochs=2, batch_size=4)
for _ in range(2):
    for name, model in contenders.items():
        # The bare loop: `train` counts memory on the way, which takes time too.
        run = tl.training_steps(tl.new_state(model, config), four, config)
        seconds[name] += [step.seconds for step in run]
counts = {name: count_flops(model, four).total for name, model in contenders.items()}
speed = pd.DataFrame(
    {
        "times less arithmetic": {n: counts["full"] / c for n, c in counts.items()},
        "times faster, measured": {
            n: min(seconds["full"]) / min(taken) for n, taken in seconds.items()
        },
    }
)

# %% tags=["nbval-ignore-output"]
speed.round(2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# In most rows time follows arithmetic, but `lora` and `qlora` are slower than their arithmetic suggests. LoRA's many
# small matrix products are slow for their size. `qlora` also has to unpack its 4-bit weights in every pass, which takes
# time and is not counted as arithmetic.
#
# > **Ask of any report:** how much can arithmetic and memory traffic save at most, and did both runs fit in memory?

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Three smaller claims
#
# | report | claim |
# | --- | --- |
# | memory guide | FP16 or BF16 instead of FP32 saves 50% of the memory |
# | memory guide | gradient checkpointing saves 30 to 50% |
# | validation plan | SmolLM2-135M with QLoRA fits 256 MB |
#
# The first is true of a state that is 16-bit throughout: weights, gradients and both moments. An estimate, which
# traces a step without computing it, shows this. It also shows that the third fails: 262 MiB are 275 MB.

# %%
bf16 = tl.estimate_memory("qwen2-0.5b", "full", dtype="bf16", **estimate).peak
adapters = {"r": 8, "alpha": 16, "targets": ["q_proj", "v_proj"]}
shape = {"dtype": "bf16", "batch_size": 1, "sequence_length": 128}
tier = tl.estimate_memory("smollm2-135m", "qlora", **shape, **adapters).peak
print(f"everything in bf16: {bf16 / needed:.0%} of the memory of fp32")
print(f"the smallest tier: {tier / 2**20:.0f} MiB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Ordinary *mixed precision* is something else. With `torch.autocast` the matrix products are computed in 16 bits, but
# weights, gradients and moments stay in fp32, because small updates would be lost in 16 bits.

# %%
model = tl.load_model("tiny").model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
with torch.autocast("cpu", dtype=torch.bfloat16):
    result = model(input_ids=single[:1], labels=single[:1])
result.loss.backward()
optimizer.step()
weight = model.model.layers[0].mlp.up_proj.weight
moments = optimizer.state[weight]
held = {"weight": weight, "gradient": weight.grad, "first moment": moments["exp_avg"]}
held |= {"second moment": moments["exp_avg_sq"]}
for name, tensor in held.items():
    print(f"{name}: {tensor.dtype}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# So each trained value still takes 4 + 4 + 8 = 16 bytes, as in fp32, instead of 8. Only activations become smaller, and
# in a step of 32 tokens there are hardly any. Checkpointing, which computes activations again instead of keeping them,
# saves nothing here for the same reason: lesson 9 found that weights and gradients fill the memory at the peak.
#
# According to the hybrid report, Python ran without an error thanks to checkpointing and mixed precision. The Python
# program used neither.

# %% [markdown] slideshow={"slide_type": "subslide"}
# And the quotients, such as "+45,567.9%" or "0.551 samples a second"? All eleven are right. This is what makes such
# tables persuasive: the last step of the calculation was done with care.

# %%
# Seconds for 7 blocks in 20 epochs: blocks a second. Perplexities: change in percent.
speeds = {254.28: 0.551, 115.89: 1.208, 17.72: 7.90}
worse = {"full fine-tuning": 45_567.9, "freeze lower layers": 59_647.3}
worse |= {"freeze embeddings": 117_932.3, "adapter layers": 30_606.8}
better = {"freeze lower layers": 83.4, "adapter layers": 73.0}
better |= {"freeze embeddings": 46.7, "full fine-tuning": 21.9}
off = [7 * 20 / taken - rate for taken, rate in speeds.items()]
for report, sign, changes in (("Python", 1, worse), ("Rust hybrid", -1, better)):
    start = published[f"{report}: before training"]
    for name, percent in changes.items():
        change = 100 * sign * (published[f"{report}: {name}"] / start - 1)
        off.append(change - percent)

# %% [markdown] slideshow={"slide_type": "subslide"}
# One row of the Rust hybrid report contradicts itself. After the last epoch of "adapter layers" it gives a training loss
# of 8.869 and a perplexity of 104,838.55.

# %%
from_loss = math.exp(8.869)
print(f"exp(8.869) is {from_loss:,.0f}, and the row says 104,839")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The two are fifteen times apart. They were measured on different texts, and although they stand side by side, nobody
# had compared them. This is the question of symptom 1 once more.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Every published claim
#
# The table gives a verdict on 25 claims. *exactly*: we computed it again, with the same result. *in kind*: our model
# shows the same effect, with other numbers. *corrected*: the number or statement does not hold. *not here*: this
# would take that card, that machine or that program.

# %%
lines = """\
Python | 494,032,768, 315,084,160 and 357,898,112 trainable | exactly
  symptom 4 | Counts of values can be checked by anyone.
Python | last two layers and head: 29,865,088 | corrected
  symptom 4: blocks and norms | Count what a strategy really trains.
Python | perplexities of 254,801 to 300,747,597 | in kind
  symptom 1 | Compare the first loss with the baseline.
Python | blocks a second, changes in percent | exactly
  eleven quotients | The perplexities were wrong, so their changes are too.
Python | 254.28, 115.89 and 17.72 seconds | not here
  needs that card | Times can be compared on one machine only.
Python | the ranking of its strategies | corrected
  symptoms 1 and 5 | One block and one seed give no ranking.
Python | it overfitted | in kind
  symptom 1, lesson 4 | True, but these numbers cannot show it.
Python | 14.3 times faster | corrected
  symptom 6: at most 4.3 | Ask what can be saved at all.
Python | 4 GB of GPU memory suffice | corrected
  symptom 6: 9.0 GB | Estimate memory before you buy.
Python | no out-of-memory error on 8 GB | not here
  paging, a hypothesis | A run without an error may still not fit the card.
Python | more text, fewer epochs, early stopping | in kind
  lessons 4 and 15 | Try each piece of advice by itself.
Rust | baselines of 250,072 and 387,789 | in kind
  symptom 2 | Worse than guessing means not loaded, or misscored.
Rust | a loss of 8.869, a perplexity of 104,839 | corrected
  exp(8.869) is 7,108 | Compare numbers that should agree.
Rust | 3/291, 26/291, 290/291 parameters | corrected
  symptom 3: they are tensors | Ask what was counted.
Rust | 12 bytes of gradients | corrected
  symptom 3: 1.09 GB | Look twice at a surprising number.
Rust | three parameters do best | corrected
  symptoms 2, 3 and 5 | Several faults together can look like a law.
Rust | less is more, with little text | corrected
  symptom 3: rank 1 trains more than rank 2 | Four runs with faults cannot show a rule.
Rust | weights 1.97, gradients 1.97, AdamW 3.94 GB | corrected
  symptom 3: 2.52, 2.52 and 5.04 GB | Count the model that was built.
Rust | full fine-tuning is worst, it overfits | not here
  its model was random | A random model shows nothing about transfer.
Rust | after an out-of-memory error, training continues on the CPU | in kind
  lesson 10 | The report should say which runs did.
Guide | half precision halves the memory | corrected
  50% if all is bf16, not with autocast | Ask which tensors become smaller.
Guide | checkpointing saves 30 to 50% | corrected
  lesson 9: 0 on short rows | First find out what fills the memory.
Guide | GPUs are 10 to 100 times faster | not here
  needs that card | The ratio depends on which two machines are meant.
Plan | the smallest tier fits into 256 MB | corrected
  262 MiB in the estimate | Estimate a limit before you promise it.
Plan | the loss falls by 30% in 100 steps | in kind
  tlkit validate convergence | Say beforehand what counts as success.
"""
rows = [line.split(" | ") for line in lines.replace("\n  ", " | ").splitlines()]
columns = ["report", "claim", "verdict", "evidence", "what to learn from it"]
verdicts = pd.DataFrame(rows, columns=columns)
pd.set_option("display.max_colwidth", None)
print(verdicts.verdict.value_counts().sort_index().to_dict())
verdicts

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The checklist
#
# These six questions take minutes and need no GPU. Put them to your own results first.
#
# | | question | look at | a fault of this kind |
# | --- | --- | --- | --- |
# | 1 | Does the first training loss agree with the baseline? | ln(perplexity) − loss, within 1 nat | labels shifted twice |
# | 2 | Is the baseline below the vocabulary's size, and the same in every run? | vocabulary of the model | weights not loaded |
# | 3 | What exactly was trained, in values, block by block? | `requires_grad`, names | substring of a name |
# | 4 | Do the values add up to the parts that are named? | shapes of the architecture | forgotten norms, tied head |
# | 5 | How many tokens, how many seeds, what spread? | size of the test, intervals | a ranking from one block |
# | 6 | What can arithmetic and traffic save, and did both runs fit? | operations, bytes, peak memory | a slowed-down baseline |
#
# **What carries over.** The method does: labels, loading, names, counts, samples and speed go wrong in models of any
# size. The size of each effect above is that of our small model, and would differ in yours.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Numbers that belong together must agree: first loss and baseline, baseline and vocabulary, count and name. Most
#   faults can be seen by putting two published numbers side by side.
# - A program that runs to the end and a loss that falls prove little. Loading, selection and evaluation fail silently,
#   so each needs a check of its own.
# - A ranking needs text, seeds and a spread, and a speed-up needs an explanation in operations and bytes.
#
# **An open experiment.** Take a model card or a blog post that reports a fine-tuning result, and answer the six
# questions from the text alone. For how many does it give you the numbers? Then do the same with a run of your own.
#
# **Further reading**
#
# - Melis et al. 2018, [On the State of the Art of Evaluation in Neural Language
#   Models](https://arxiv.org/abs/1707.05589): after careful tuning of all models, the published order changed
# - Dodge et al. 2019, [Show Your Work: Improved Reporting of Experimental Results](https://arxiv.org/abs/1909.03004)
# - Dodge et al. 2020, [Fine-Tuning Pretrained Language Models: Weight Initializations, Data Orders, and Early
#   Stopping](https://arxiv.org/abs/2002.06305), on how much the seed alone decides
# - Micikevicius et al. 2018, [Mixed Precision Training](https://arxiv.org/abs/1710.03740), on which tensors stay fp32
# - Williams et al. 2009, [Roofline: An Insightful Visual Performance Model](https://doi.org/10.1145/1498765.1498785),
#   on arithmetic and memory traffic as the two limits of speed

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex16_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** Symptom 6 ends with a hypothesis: full fine-tuning was slowed down because it did not fit the card. Which
# experiment could show that it is false?
#
# - **a** Run both strategies again, on a card with 24 GB.
# - **b** Run both again on the same card, with five seeds.
# - **c** Train both ten times as long, on the same card.
# - **d** Count the arithmetic once more, with norms and optimizer.

# %%
course.quiz("quiz16")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 16.1** (first steps). How many blocks does a ranking take? The difference between two strategies varies
# from one block of 32 tokens to the next, with a standard deviation of 0.14 nats, which is about what our models show.
# Suppose that blocks are independent and that the mean difference over n blocks is 0.02 nats. Its 95% interval is then
# 0.02 ± 1.96 · 0.14 / √n. How many blocks does it take, at least, until this interval excludes zero?

# %%
answer = None
# your code here
course.check("ex16_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 16.2** (apply it). Repair the fault of symptom 3 in a program that knows only the names of the tensors, as
# in a file of weights. Write a function that takes a name such as `model.layers.7.mlp.up_proj.weight` and returns
# whether the tensor belongs to the first `count` blocks. It is called with all names of Qwen2-0.5B, which include the
# embedding and the final norm. peft puts `base_model.model.` in front of each name, and your function must handle these
# as well.

# %%
import re


def in_first_blocks(name, count):
    """True for a tensor of the first `count` blocks, False for every other one."""
    # your code here


course.check("ex16_2", in_first_blocks)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 16.3** (think further). Three numbers are known before any weight has changed: the loss of the first
# training step (in nats per token), the perplexity that the evaluation measures before training on text of the same
# kind, and the number of tokens in the vocabulary. Write a function that makes the diagnosis from them. It returns
#
# - `"loading"` if the model knows nothing, because its weights were not loaded;
# - `"evaluation"` if training is correct and the evaluation measures something else;
# - `"sound"` if there is no sign of either.
#
# Allow a difference of one nat, as `tl.first_loss_warning` does. Consider the two published baselines, 254,801 and
# 250,072: both are above the vocabulary's size, but their faults are not the same.

# %%
import math


def diagnose(first_loss, baseline, vocabulary):
    """One of the three words."""
    # your code here


course.check("ex16_3", diagnose)

# %% [markdown]
# Previous: [15 · The comparison](15_comparison.ipynb) ·
# Next: [17 · The leaderboard](17_leaderboard.ipynb)
