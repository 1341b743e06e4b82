# %% [markdown] slideshow={"slide_type": "slide"}
# # 16 · The autopsy
#
# *How can reports full of numbers be wrong, and how would you have noticed?*
#
# Two published reports describe one experiment: four strategies adapt Qwen2-0.5B to text about Rust. Most of their
# conclusions do not hold, because of faults that you could make tomorrow.
#
# **You will be able to**
#
# - see from two numbers that one of them must be wrong;
# - reproduce a suspected fault, and repair it;
# - audit a report, or your own run before it starts.
#
# **You need** lessons [3](03_baseline.ipynb), [7](07_freezing.ipynb), [9](09_memory.ipynb), [15](15_comparison.ipynb).
#
# About 32 minutes.

# %% slideshow={"slide_type": "subslide"}
import math
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import pandas as pd
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl
from course.lesson16 import pictures

tl.setup()
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
held_out = tl.pack(tl.load_corpus("rust").validation[:8], tokenizer, 32)[:16]


def new_model():
    return AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)


# %% [markdown] slideshow={"slide_type": "subslide"}
# Both reports are in [a
# repository](https://github.com/galvin-SH/GPT-2-Transfer-Learning/tree/f669a2a2ec68eccb18966719d698159803118666):
#
# - *Python report*, with transformers: `python_version/CUDA_TEST_RESULTS.md`, log `test_output.txt`
# - *Rust report*, with the library Candle: `RUST_HYBRID_GPU_CPU_RESULTS.md`, log `rust_hybrid_final_test.txt`
#
# At each symptom, **write down your diagnosis before you read on.**

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 1: the loss falls to zero, and perplexity explodes
#
# | Python report | full fine-tuning, 7 blocks of 32 tokens, 20 epochs |
# | --- | --- |
# | perplexity of one block of other text, before training | 254,801 |
# | text generated before training | fluent English about Rust |
# | "initial loss" and "final loss" of the training | 4.6157 and 0.0000 |
# | perplexity of the same block, after training | 116,362,380 |
#
# The report's diagnosis is overfitting. **Which row cannot come from overfitting? Which two contradict that row?**

# %% [markdown] slideshow={"slide_type": "subslide"}
# The first row cannot, because nothing was trained yet. The next two rows contradict it. A perplexity of 254,801 is a
# loss of $\ln(254{,}801)=12.4$ nats, and no model with such a loss writes fluent English. And the training began far
# lower, at 4.6 nats (a mean of five steps). So the model was fine, and the evaluation was wrong.
#
# **Check 1, evaluation:** is the first training loss within one nat of the logarithm of the baseline perplexity? Both
# need a few hundred tokens of similar text.
#
# **What can an evaluation do wrong, if training is right?**

# %%
ids = tokenizer("In Rust, Vec<T> is")["input_ids"]
pictures.label_shift_scheme([tokenizer.decode([token]) for token in ids])

# %% [markdown] slideshow={"slide_type": "subslide"}
# It can shift the labels twice. The label of each token is the next token, and models in transformers make this shift
# themselves. The report's evaluation had already made it, so it scored how well the model guesses the token *after* the
# next one, which it never learned. Training was not affected, because the data collator made its own labels. **Cure:**
# pass the inputs as labels, `labels=input_ids`.
#
# To reproduce the fault, we train on seven blocks, and score these and other text in both ways. **How will the four
# scores move?**


# %%
@torch.no_grad()
def perplexity(model, blocks, twice=False):  # shifts by hand, too
    inputs, labels = (blocks[:, :-1], blocks[:, 1:]) if twice else (blocks, blocks)
    return model(input_ids=inputs, labels=labels).loss.exp().item()


def score(model):
    row = {}
    for name, blocks in {"seven blocks": seven, "other text": held_out}.items():
        row[name] = perplexity(model, blocks)
        row[f"{name}, shifted twice"] = perplexity(model, blocks, twice=True)
    return row


# %%
seven = tl.pack(tl.load_corpus("facts").train, tokenizer, 32)[:7]
model = new_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
rows = [score(model)]  # not trained yet
for _ in range(10):
    for block in seven.split(1):
        model(input_ids=block, labels=block).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    rows.append(score(model))
scores = pd.DataFrame(rows)

# %%
axes = scores.plot(logy=True, figsize=(8, 3.8), legend=False,
                   style=["C0o-", "C0o--", "C1o-", "C1o--"])  # fmt: skip
for name, last in scores.iloc[-1].items():
    axes.annotate(f"  {name}", (10, last), va="center")
axes.set(xlim=(-0.3, 16), xticks=range(0, 11, 2), ylabel="perplexity", xlabel="epochs")
axes.set_title("On the learned blocks, one perplexity falls to 1, the other explodes")
plt.show()
scores.iloc[0].map(math.log).round(1)  # nats, before any training

# %% [markdown] slideshow={"slide_type": "subslide"}
# In the end, only the correct perplexity of the learned blocks is lower, at 1. With labels shifted twice, it soon
# rises: the better the model knows a text by heart, the less probability it leaves for any but the *next* token. On
# other text both perplexities end higher, because an overfitted model is also certain of wrong tokens. So overfitting
# is real, but the faulty perplexity does not measure it.
#
# Check 1 would have found the fault before training: the seven blocks have a loss of 4.6 nats and the other text 5.0,
# but 9.4 with labels shifted twice.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 2: a pretrained model that is worse than guessing
#
# Before training, the Rust report gives a perplexity of 387,789, and its model writes words of many languages. A model
# that gives every token the same probability does better, with a perplexity equal to its vocabulary, 151,936 (11.9
# nats). **Is it the fault of symptom 1 again?**
#
# No. Wrong labels can make a loss this high, but they cannot spoil a generated text, and this one is noise. So the
# model is at fault. **Could its weights be random, although it is *worse* than guessing?** We try a random model, with
# a head like Candle's:

# %%
size = model.config.vocab_size
torch.manual_seed(0)
untrained = AutoModelForCausalLM.from_config(model.config)
untrained.lm_head = torch.nn.Linear(model.config.hidden_size, size, bias=False)
torch.nn.init.kaiming_normal_(untrained.lm_head.weight)  # Candle's: variance 2 / width
print(f"random weights: {perplexity(untrained, held_out) / size:.1f} times guessing")

# %% [markdown] slideshow={"slide_type": "subslide"}
# They could: a random model prefers random tokens. Random logits of variance $\sigma^2$ add $\sigma^2/2$ to the mean
# loss. Candle's head gives them a variance of 2, and so adds one nat, a factor of 2.7. With Qwen2's vocabulary that
# makes 12.9 nats, and $\ln(387{,}789)$ is 12.9, too.
#
# **How can a program load a file and stay random, without an error?** In Candle, a layer registers its variables when
# it is built, and `load` fills the registered ones. We imitate that with a dictionary:


# %%
class Variables(dict):
    def build(self):
        built = AutoModelForCausalLM.from_config(model.config)  # random
        self.update(built.state_dict())  # registers the new variables
        return built

    def load(self, file):
        for name, variable in self.items():
            variable.copy_(file[name])


file, variables = new_model().state_dict(), Variables()
variables.load(file)
built = variables.build()
print(f"load, then build: {perplexity(built, held_out):,.0f} (guessing: {size:,})")
variables.load(file)
print(f"build, then load: {perplexity(built, held_out):,.0f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It can load too early. The Rust program loaded the file before it built the model, when no variable was registered
# yet, so there was nothing to fill. **Cure:** build, then load. In PyTorch, read what `load_state_dict(...,
# strict=False)` returns: the names that did not match.
#
# **Check 2, loading:** is the first loss, or the logarithm of the baseline, more than one nat below $\ln$(vocabulary)?
# If not, generate a sentence: if it is fluent, the labels are wrong, and if it is noise, the weights.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 3: the less is trained, the better
#
# | Rust report | parameters trained | perplexity after epoch 1 | after epoch 20 |
# | --- | --- | --- | --- |
# | freeze lower layers | 3/291 | 191,609 | 64,249 |
# | adapter layers (last two layers, norm and head) | 26/291 | 329,432 | 104,839 |
# | freeze embeddings | 290/291 | 646,471 | 206,584 |
# | full fine-tuning | 291/291 | 896,122 | 303,045 |
#
# The report compares all four with the 387,789 before training. **Which strategy improved most between the two epochs?
# What did epoch 1 do to full fine-tuning?**

# %% [markdown] slideshow={"slide_type": "subslide"}
# None: all four fell to a third, and their final order was there after epoch 1. That epoch seems to have made full
# fine-tuning 2.3 times *worse*. But each strategy started from its own random weights, and the 387,789 belong to a
# fifth random model. So the ranking only shows how the starts differed, and chance is enough for that. The report
# scores only 4 tokens: with logits of variance 2 their mean varies by $\sqrt{2/4}=0.7$ nats, and the four logarithms
# after epoch 1 by 0.69.
#
# The second column is strange: with 12 of 24 layers frozen, far more than three of 291 parameters should be trained.
# **What are these three?** The program found the layers to freeze by their names:

# %%
config = tl.architecture("qwen2-0.5b")
config.tie_word_embeddings = False  # the Rust program gave the head its own table
meant, done = tl.meta_model(config), tl.meta_model(config)
for name, parameter in done.named_parameters():
    if any(f"layers.{number}" in name for number in range(12)):
        parameter.requires_grad_(False)
meant.model.layers[:12].requires_grad_(False)
two = course.network_strip(tl.describe(meant, "meant"), tl.describe(done, "programmed"))
two.suptitle("Meant: 72% trained. Programmed: 43% trained")
two

# %% [markdown] slideshow={"slide_type": "subslide"}
# They are three *tensors*: embedding, last norm and head. Comparing names is the trap of [lesson 7](07_freezing.ipynb):
# `layers.1` is also in `layers.10` to `layers.19`, and `layers.2` in `layers.20` to `layers.23`, so all 24 layers were
# frozen. **Cure:** select modules, as for `meant`.
#
# The three tensors hold 272 million numbers, and the 26 of adapter layers only 166 million. So the winner trained more
# than the second.
#
# Names misled the Python program, too: besides the last two layers, it unfroze every parameter with `"norm"` in its
# name, 45 more, down to block 0.
#
# **Check 3, count:** do the parameters of all parts that should be trained add up to the reported number?

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 4: a ranking from one block
#
# The Python report calls adapter layers best, from one seed and one block of 32 tokens. The record of [lesson
# 15](15_comparison.ipynb) holds the same four strategies (`last_layers`: adapter layers) with 40 documents and three
# seeds. Overall, `full` is best. We write 1,000 reports from random documents and seeds. **Do eight documents or three
# seeds find `full` more often?**

# %%
record = pd.read_csv(tl.DATA / "comparisons/tiny/documents.csv", comment="#")
four = ["full", "freeze_embeddings", "freeze_lower", "last_layers"]
record = record[record.strategy.isin(four)].assign(loss=lambda x: x.nats / x.tokens)
losses = record.pivot(index=["document", "seed"], columns="strategy", values="loss")
table = torch.tensor(losses[four].to_numpy()).view(40, 3, 4)  # document, seed, strategy
print(losses[four].mean().round(3).to_dict())
torch.manual_seed(0)
for n, seeds in [(1, 1), (1, 3), (8, 1), (8, 3)]:
    ranks = []
    for _ in range(1000):
        sample = table[torch.randperm(40)[:n]][:, torch.randperm(3)[:seeds]]
        ranks.append(tuple(sample.mean((0, 1)).argsort().tolist()))
    wins = sum(ranking[0] == 0 for ranking in ranks) / 1000  # 0 is `full`
    print(f"documents {n}, seeds {seeds}: full {wins:.0%}, rankings {len(set(ranks))}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Eight documents do; three seeds help little. With one, about 137 tokens, four in ten reports name another winner.
# Eight, about 1,100 tokens, settle the winner on these 40, by 0.07 nats, but not the ranking, because the others lie
# within 0.04 nats.
#
# **Check 4, sample:** does each score come from three seeds and at least 1,000 tokens, or more for small gaps?

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 5: 14.3 times faster
#
# According to the Python report, adapter layers train "14.3x faster than full fine-tuning!", on an RTX 4060 Ti under
# Windows. **Are adapter layers that fast, or is full fine-tuning too slow?** We estimate what each run needs.
#
# *Seconds a step.* For 32 tokens the arithmetic takes only 4 ms at a nominal 22 trillion operations a second. Moving
# bytes between memory and processor, at 288 GB a second, takes longer. Both passes read all parameters, 8 bytes each,
# because each run trains some at the bottom. Each trained parameter adds 88: 16 for its gradient and clipping, and 72
# because unfused AdamW reads 11 numbers and writes 7. (A trained tied embedding adds two gradients: 16 more.) For fixed
# costs, such as starting each operation, we take those of the fastest run, whose ratio is thus 1.
#
# *Memory.* Each parameter takes 4 bytes, and a trained one 16 more: its gradient, AdamW's two moments ([lesson
# 9](09_memory.ipynb)), and the roots that it computes. The program never frees `base_model`, which it scored first.
# According to the Rust report, the card has 8 GB (8.6 billion bytes).

# %%
P = 494_032_768  # all parameters
names = ["full", "freeze embeddings", "freeze lower layers", "adapter layers"]
runs = pd.DataFrame({"trained": [P, 357_898_112, 315_084_160, 29_865_088]}, names)
# seconds a step, from the log: 20 epochs of 7 blocks are 140 steps
runs["log"] = [s / 140 for s in (254.28, 181.83, 115.89, 17.72)]
runs["traffic"] = (8 * P + 88 * runs.trained) / 288e9
runs.loc[["full", "freeze lower layers"], "traffic"] += 16 * 136_134_656 / 288e9  # tied
runs["expected"] = runs.traffic + (runs["log"] - runs.traffic)["adapter layers"]
runs["ratio"] = runs["log"] / runs.expected
runs["GB"] = (4 * P + 16 * runs.trained) / 1e9
runs["GB with base_model"] = runs.GB + 4 * P / 1e9
course.claim("Three runs are over three times too slow", (runs.ratio[:3] > 3).all())
runs.drop(columns="trained").round(2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Full fine-tuning is too slow. Its step should take 0.28 s, 2.2 times as long as adapter layers' 0.13, not 14.3 times.
# Three of the four runs take 3.7 to 6.6 times as long as they should. Exactly these three do not fit beside
# `base_model`, and the more a run exceeds 8.6 GB, the slower it is.
#
# **Shown** is, by these estimates, that three runs are too slow and too large. Our **hypothesis** is that Windows moved
# a part of them into main memory instead of raising an error. Nobody measured the memory, and two facts speak against
# us. On this card Candle, which ran out of memory with three of four strategies, stopped instead of slowing down. And
# another report gives the card 8 or 16 GB.
#
# The **cure** is also a test. After `del base_model`, freeze lower layers fits, and freeze embeddings only just. If we
# are right, both need less than 0.25 s a step. Full still needs [lesson 10](10_oom_fallback.ipynb).
#
# **Is the estimate right where nothing is wrong?** In [peft's comparison](17_leaderboard.ipynb), LoRA and full
# fine-tuning of Llama-3.2-3B both fitted an L40S (864 GB a second). We take LoRA's step, and add 44 bytes for each
# parameter, half of the 88 above, because bf16 numbers have 2 bytes:

# %%
expected = 941.96 / 5000 + 44 * 3.21e9 / 864e9  # LoRA's seconds a step, and bytes
print(f"full: {expected:.2f} s a step expected, {2147.30 / 5000:.2f} s measured")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Nearly: the measured step is 1.2 times as long.
#
# **Check 5, speed:** is a step's time within a factor of two of bytes / bandwidth + the fixed costs of a run that fits?
# (With many tokens, add the arithmetic.)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Before your own training
#
# `preflight` runs checks 1 to 3 for any `Trainer` of a causal language model, and True in its result is a complaint.
# `planned` counts the parameters that should be trained, here 406,272 in each of the last two blocks. We plant three
# faults. **Which complaint will each bring?**


# %%
from transformers import PrinterCallback, Trainer, TrainingArguments


@torch.no_grad()
def preflight(trainer, planned):
    model, batch = trainer.model.eval(), next(iter(trainer.get_train_dataloader()))
    first, evaluated = model(**batch).loss.item(), trainer.evaluate()["eval_loss"]
    trained = model.num_parameters(only_trainable=True)
    row = {"first loss": first, "eval loss": evaluated, "trained": trained}
    row["loading"] = min(first, evaluated) >= math.log(model.config.vocab_size) - 1
    row["evaluation"] = not row["loading"] and abs(first - evaluated) > 1
    row["count"] = trained != planned
    return row


# %%
sound, by_name, random = new_model(), new_model(), variables.build()  # build, no load
for two_blocks in (sound, by_name, random):
    two_blocks.requires_grad_(False).model.layers[-2:].requires_grad_(True)
for name, parameter in by_name.named_parameters():
    parameter.requires_grad_(parameter.requires_grad or "norm" in name)  # symptom 3
train = [{"input_ids": block, "labels": block} for block in seven]
good = [{"input_ids": block, "labels": block} for block in held_out]
shifted = [{"input_ids": block[:-1], "labels": block[1:]} for block in held_out]
cases = {"sound": (sound, good), "shifted twice": (sound, shifted)}
cases |= {"random": (random, good), "by name": (by_name, good)}
args, results = TrainingArguments(mkdtemp(), use_cpu=True, disable_tqdm=True), {}
for fault, (start, scored) in cases.items():
    trainer = Trainer(start, args, train_dataset=train, eval_dataset=scored)
    trainer.remove_callback(PrinterCallback)  # it would print each evaluation
    results[fault] = preflight(trainer, planned=2 * 406_272)
pd.DataFrame.from_dict(results, orient="index").round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each brings its own: two losses that disagree, 4.6 and 9.4 nats, two that are no better than guessing (8.4 and 8.3
# nats), and 815,040 trained parameters instead of 812,544.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Numbers that belong together must agree, such as first loss, baseline and vocabulary.
# - Count parameters, not tensors, and give a ranking enough text and seeds.
# - A step that takes far longer than its bytes and fixed costs explain has another cause.
#
# ## Further reading
#
# - Melis et al. 2018, [On the State of the Art of Evaluation in Neural Language
#   Models](https://arxiv.org/abs/1707.05589)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex16_1", 1)`. After
# *Restart Kernel* run the next cell first.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** Symptom 5 leads to a hypothesis: three runs did not fit the card. Which experiment could show that it is
# false?
#
# - **a** Run full fine-tuning and adapter layers again, on a card with 24 GB.
# - **b** Run all four strategies again on the same card, with five seeds.
# - **c** Train all four ten times as long.
# - **d** Count the arithmetic once more, with norms and optimizer.

# %%
course.quiz("quiz16")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 16.1.** Let the three checks stop a training that would be wasted. Write a function that returns a
# `TrainerCallback`. Its `on_train_begin` gets `model` and `train_dataloader` by name, measures as in the lesson and, if
# a check fails, raises a `ValueError` that names each complaint: `loading`, `evaluation`, `count`. Then one line guards
# any training of a causal language model:
#
# ```python
# trainer.add_callback(preflight(trainer.evaluate()["eval_loss"], planned=812_544))
# ```

# %%
import math

import torch
from transformers import TrainerCallback


def preflight(eval_loss, planned):
    """A callback that raises a ValueError before the first step if a check fails."""
    # your code here


course.check("ex16_1", preflight)

# %% [markdown]
# Previous: [15 · The comparison](15_comparison.ipynb) ·
# Next: [17 · The leaderboard](17_leaderboard.ipynb)
