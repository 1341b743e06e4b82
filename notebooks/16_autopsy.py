# %% [markdown] slideshow={"slide_type": "slide"}
# # 16 · The autopsy
#
# *How can reports full of numbers be wrong, and how would you have noticed?*
#
# Three published reports describe one experiment: four strategies adapt Qwen2-0.5B, with 494 million parameters, to
# text about Rust. Most of their conclusions do not hold, because of faults that you could make tomorrow. Each symptom
# leads you to a fault, to a check that notices it, and to a cure.
#
# **You will be able to**
#
# - see from two numbers of a report that one of them must be wrong;
# - reproduce a suspected fault in a few lines, and repair it;
# - audit a report, or your own run before it starts, with a program that you wrote.
#
# **You need** [lesson 3](03_baseline.ipynb) for perplexity, [lesson 7](07_freezing.ipynb) for freezing, [lesson
# 9](09_memory.ipynb) for memory, and [lesson 15](15_comparison.ipynb) for comparisons.
#
# About 35 minutes.

# %% slideshow={"slide_type": "subslide"}
import math
from functools import partial

import matplotlib.pyplot as plt
import pandas as pd
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl
from course.lesson16 import pictures

tl.setup()
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
held_out = tl.pack(tl.load_corpus("rust").validation[:5], tokenizer, 32)[:16]


def new_model():
    return AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)


# %% [markdown] slideshow={"slide_type": "subslide"}
# - *Python report*: PyTorch and transformers. `python_version/CUDA_TEST_RESULTS.md`, log `test_output.txt` beside it
# - *Rust CUDA report*: Candle, a Rust library, on a card. `RUST_CUDA_TEST_RESULTS.md`, log `rust_cuda_test_output.txt`
# - *Rust hybrid report*: the same, on the CPU when the card is full. `RUST_HYBRID_GPU_CPU_RESULTS.md`, log
#   `rust_hybrid_final_test.txt`
#
# They are in a [public
# repository](https://github.com/galvin-SH/GPT-2-Transfer-Learning/tree/f669a2a2ec68eccb18966719d698159803118666), with
# the source of the first and last program. At each symptom, **write down your diagnosis before you read on.**

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 1: the loss falls to zero, and perplexity explodes
#
# | Python report | full fine-tuning, 7 blocks of 32 tokens, 20 epochs |
# | --- | --- |
# | perplexity of one block of other text, before training | 254,801 |
# | text generated before training | fluent English about Rust |
# | "initial loss" of the training | 4.6157 |
# | "final loss" of the training | 0.0000 |
# | perplexity of the same block, after training | 116,362,380 |
#
# The report's diagnosis is overfitting. **Which row can overfitting not explain, and which two others contradict it?**

# %%
baseline = math.log(254_801)
print(f"baseline {baseline:.1f} nats, training 4.6: {baseline - 4.6157:.1f} apart")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Overfitting cannot explain the first row, because nothing had been trained yet. The second row contradicts it: a model
# with a perplexity of 254,801 does not write fluent English. So does the third, although it is the mean of five steps.
# If the first of them had been 12.4, the other four would average $(5\cdot4.6157-12.4)/4=2.7$ on blocks that the model
# had never seen. But in the log, the next five steps average 3.0, although three of them repeat a block. So the model
# was fine, and the evaluation was not.
#
# **Check 1, evaluation:** is the first loss within one nat of the logarithm of the baseline perplexity?
#
# **What can an evaluation do wrong, if training is right?**

# %%
ids = tokenizer("In Rust, Vec<T> is")["input_ids"]
pictures.label_shift_scheme([tokenizer.decode([token]) for token in ids][:8])

# %% [markdown] slideshow={"slide_type": "subslide"}
# A model of transformers shifts the labels by one place itself. The evaluation had shifted them, too, so it scored how
# well the model guesses the token *after* the next one, which it never learned. In training the data collator replaced
# these labels by the inputs. **Cure:** pass the inputs as labels, `labels=input_ids`.
#
# We train our model on seven blocks, and score these and other text in both ways. **How will the four numbers move?**


# %%
@torch.no_grad()
def perplexity(model, blocks, twice=False):
    # the fault: labels moved by hand, and then by the model
    inputs, labels = (blocks[:, :-1], blocks[:, 1:]) if twice else (blocks, blocks)
    return model(input_ids=inputs, labels=labels).loss.exp().item()


seven = tl.pack(tl.load_corpus("facts").train, tokenizer, 32)[:7]
model, rows = new_model(), []
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
for epoch in range(11):
    for block in seven.split(1) if epoch else ():  # first, score the untrained model
        model(input_ids=block, labels=block).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    row = {"seven blocks": perplexity(model, seven)}
    row["seven blocks, shifted twice"] = perplexity(model, seven, twice=True)
    row["other text"] = perplexity(model, held_out)
    row["other text, shifted twice"] = perplexity(model, held_out, twice=True)
    rows.append(row)
scores = pd.DataFrame(rows)

# %%
style = ["o-", "o--", "s-", "s--"]
axes = scores.plot(logy=True, figsize=(8, 3.8), style=style, legend=False)
for name, last in scores.iloc[-1].items():
    axes.annotate(f"  {name}", (10, last), va="center")
axes.set(xlim=(-0.3, 16), xticks=range(0, 11, 2), ylabel="perplexity")
axes.set_xlabel("epochs on seven blocks")
axes.set_title("On the learned blocks, one perplexity falls to 1, the other explodes")
plt.show()
first_loss = math.log(scores["seven blocks"][0])  # before any training
for name in ("other text", "other text, shifted twice"):
    before, after = scores[name].iloc[[0, -1]]
    gap = abs(math.log(before) - first_loss)
    print(f"{name}: check 1 gives {gap:.1f} nats; later × {after / before:.1f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Check 1 finds the fault before any training: 4.8 nats instead of 0.3. (One of the 16 blocks alone is 1.2 nats away, a
# false alarm. Use a few hundred tokens.)
#
# The better the model knows a text by heart, the less probability it leaves for any but the *next* token. So on the
# learned blocks the faulty perplexity goes up. On other text both go up, because an overfitted model is also certain of
# wrong tokens. So overfitting may explain a part of the report's rise (457 times; here 1.4), but not the 254,801.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 2: a pretrained model that is worse than guessing
#
# The Rust CUDA report gives a perplexity of 250,072 before training, and then runs out of memory. The hybrid report
# gives 387,789, and first training losses of 11.4, 11.4, 13.5 and 12.5. Before training, both models write words of
# many languages.
#
# A model that gives every token the same probability has a perplexity equal to its vocabulary, here 151,936 (11.9
# nats). The 250,072 is nearly the 254,801 of symptom 1. **Is it the same fault?**

# %%
size = model.config.vocab_size
print(f"guessing: {size:,}, times e: {math.e * size:,.0f}")
torch.manual_seed(0)
for _ in range(3):
    untrained = AutoModelForCausalLM.from_config(model.config)
    untrained.lm_head = torch.nn.Linear(model.config.hidden_size, size, bias=False)
    # as Candle draws it: variance 2 / width, so that a logit has variance 2
    torch.nn.init.kaiming_normal_(untrained.lm_head.weight)
    print(f"random weights: {perplexity(untrained, held_out):,.0f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It is another fault. In the hybrid report neither the baseline (12.9 nats) nor any first loss is much below guessing,
# and the text is noise: the model knows nothing. The log of the CUDA report prints the same noise as the hybrid log,
# character for character, so both scored the same random model.
#
# A random model is worse than guessing because it prefers random tokens. Random logits of variance $\sigma^2$ add
# $\sigma^2/2$ to the mean loss, which is one nat with Candle's head: 12.9 instead of 11.9.
#
# **How can a program load a file and stay random, without an error?** In Candle, each layer registers its variables
# when it is built, and `load` fills the registered ones. Translated to Python, the source did this:


# %%
def load(variables, file):
    for name, variable in variables.items():
        variable.data.copy_(file[name])


variables = {}  # no model has been built yet
file = new_model().state_dict()
load(variables, file)
built = AutoModelForCausalLM.from_config(model.config)
variables |= dict(built.named_parameters())  # now there are some, too late
# the same in PyTorch: strict=False accepts a file with other names
compiled = {f"_orig_mod.{name}": tensor for name, tensor in file.items()}
missing = built.load_state_dict(compiled, strict=False).missing_keys
print(f"{len(missing)} of {len(file)} tensors missing, and no error")
print(f"perplexity {perplexity(built, held_out):,.0f}, guessing {size:,}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The source called `load` before it built the model, so there was nothing to fill. **Cure:** build, then load. (Candle
# would then have stopped: the file has no `lm_head.weight`, because Qwen2's head is tied.) In PyTorch, avoid
# `strict=False`, which ignores names that do not match, such as those of a model saved after `torch.compile`. After
# `from_pretrained`, read `missing_keys` as in [lesson 3](03_baseline.ipynb).
#
# **Check 2, loading:** is the first loss, or the logarithm of the baseline, more than one nat below $\ln$(vocabulary)?
# If neither is, the model knows nothing.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 3: the less is trained, the better
#
# | Rust hybrid report | trained | perplexity after epoch 1 | after epoch 20 |
# | --- | --- | --- | --- |
# | freeze lower layers | 3/291 | 191,609 | 64,249 |
# | adapter layers | 26/291 | 329,432 | 104,839 |
# | freeze embeddings | 290/291 | 646,471 | 206,584 |
# | full fine-tuning | 291/291 | 896,122 | 303,045 |
#
# The report concludes that less is more. **Which strategy improved most between the two columns?**

# %% [markdown] slideshow={"slide_type": "subslide"}
# None did: all four fell to a third, and their order was there after the first epoch. Each began with other random
# weights (symptom 2). The loss of a token varies like its logit, so the mean over 4 tokens has a standard deviation of
# $\sqrt{2/4}=0.7$ nats, a factor of 2 in perplexity. The ranking may thus show nothing but four random draws.
#
# **Which three parameters did freeze lower layers train, and how many numbers do they hold?** To freeze the first 12 of
# 24 layers, the program compared names, as `freeze_by_name` does.


# %%
def freeze_by_name(model):
    for name, parameter in model.named_parameters():
        if any(f"layers.{number}" in name for number in range(12)):
            parameter.requires_grad_(False)
    return model


config = tl.architecture("qwen2-0.5b")
config.tie_word_embeddings = False  # the Rust program gave the head its own table
meant, done = tl.meta_model(config), freeze_by_name(tl.meta_model(config))
meant.model.layers[:12].requires_grad_(False)
two = course.network_strip(tl.describe(meant, "meant"), tl.describe(done, "programmed"))
two.suptitle("Meant: 72% trained. Programmed: 43% trained")
two

# %%
left = {name: p.numel() for name, p in done.named_parameters() if p.requires_grad}
print({name: f"{number:,}" for name, number in left.items()})
trained, total = sum(left.values()), done.num_parameters()
print(f"{trained:,} of {total:,} parameters ({trained / total:.0%})")
print(f"gradients: {4 * trained / 1e9:.2f} GB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# This is the trap of [lesson 7](07_freezing.ipynb): `layers.1` is also in `layers.10`, and so on, so all 24 layers were
# frozen. **Cure:** select modules, as for `meant`.
#
# Three *tensors* are left, which the report calls parameters. They hold 272 million (of 630, not 494, because the head
# got a table of its own). The report counts 12 bytes of gradients for them, but these take 1.09 GB. The 26 "parameters"
# of the adapter layers are 166 million. So freeze lower layers trained more, and "less is more" fails before any
# statistics.
#
# **Check 3, count:** do the parts that are said to be trained add up, in parameters, to the number that is given?

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 4: a ranking from one block
#
# The Python report calls adapter layers best, from one block of 32 tokens; the hybrid report calls freeze lower layers
# best, from 4 tokens. Both have one seed.
#
# The record of [lesson 15](15_comparison.ipynb) holds the same four strategies (`last_layers` are the "adapter layers")
# with 40 test documents and three seeds. Averaged over all of them, `full` is best. We write 1,000 reports, each from
# documents and seeds drawn at random. **How many will name `full`, with one document and one seed? What helps more,
# eight documents or three seeds?**

# %%
record = pd.read_csv(tl.DATA / "comparisons/tiny/documents.csv", comment="#")
four = ["full", "freeze_embeddings", "freeze_lower", "last_layers"]
record = record[record.strategy.isin(four)].assign(loss=lambda x: x.nats / x.tokens)
losses = record.pivot(index=["document", "seed"], columns="strategy", values="loss")
table = torch.tensor(losses[four].to_numpy()).view(40, 3, 4)  # document, seed, strategy
print(losses[four].mean().round(3).to_dict())
torch.manual_seed(0)
for n, seeds in [(1, 1), (1, 3), (8, 1), (8, 3)]:
    found = []
    for _ in range(1000):
        some = table[torch.randperm(40)[:n]][:, torch.randperm(3)[:seeds]]
        found.append(tuple(some.mean((0, 1)).argsort().tolist()))
    wins = sum(best == 0 for best, *_ in found) / 1000  # 0 is `full`
    print(f"documents {n}, seeds {seeds}: full {wins:.0%}, rankings {len(set(found))}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# With one document of about 137 tokens, four in ten reports name another winner. Eight documents, about 1,100 tokens,
# settle the winner, which leads by 0.07 nats. They do not settle the ranking, because the other three lie within 0.04
# nats. More seeds help little here, but a single seed could not have told you so.
#
# **Check 4, sample:** is each score from at least 1,000 tokens and three seeds? Smaller differences need more, and the
# interval of lesson 15.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 5: 14.3 times faster
#
# In the Python report, adapter layers train "14.3 times faster". They are the last two blocks, plus the 45 norms of
# lesson 7. One of these is in block 0, so backpropagation still goes through the whole model.

# %%
P = 494_032_768  # all parameters
names = ["full", "freeze embeddings", "freeze lower layers", "adapter layers"]
runs = pd.DataFrame({"trained": [P, 357_898_112, 315_084_160, 29_865_088]}, names)
# for 140 steps, by the log; for 181.83 the report has "~140": again they disagree
runs["seconds"] = [254.28, 181.83, 115.89, 17.72]
runs

# %% [markdown] slideshow={"slide_type": "subslide"}
# **A step is arithmetic and traffic between memory and processor. By how much can each shrink, if 94% of the parameters
# are frozen?**
#
# *Arithmetic.* Lesson 7 counted three products for each parameter. Freezing saves the one for its own gradient, but not
# the one that carries the gradient further down. So three products become two at best.
#
# *Traffic.* With only 32 tokens in a step, much time goes into moving numbers. Each of the two passes reads every
# parameter: 8 bytes. If it is trained, the backward pass writes a gradient (4 bytes), clipping, a default of `Trainer`,
# reads it twice and writes it (12), and AdamW's seven operations read 11 tensors and write 7 (72): 88 bytes more.

# %%
arithmetic = 2 * P + runs.trained  # products for each token
traffic = 8 * P + 88 * runs.trained  # bytes
most = [cost["full"] / cost["adapter layers"] for cost in (arithmetic, traffic)]
print(f"arithmetic: {most[0]:.1f} times less, traffic: {most[1]:.1f} times less")
course.claim("Even the sum of the two ratios is far below 14.3", sum(most) < 10)

# %% [markdown] slideshow={"slide_type": "subslide"}
# A step takes at most the sum of its two times, $A + T$, and at least the longer one. So even if full needs the sum,
# and the cheap step only the longer of $A/1.5$ and $T/7.2$, their ratio is at most 1.5 + 7.2 = 8.7. Equal fixed costs
# only lower it. 14.3 has another cause.
#
# **Check 5, speed:** is the speed-up within what arithmetic and traffic can save together?
#
# **Which runs took longer than they should?** The card, an RTX 4060 Ti, moves 288 GB a second. The cheap run is our
# yardstick: what it needed beyond its traffic counts as a fixed cost of every step.

# %%
step = runs.seconds / 140
expected = traffic / 288e9
expected += step["adapter layers"] - expected["adapter layers"]
pd.DataFrame({"a step": step, "expected": expected, "ratio": step / expected}).round(2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# By this yardstick the others took 3.9 to 6.8 times as long as expected. Our *hypothesis* is that they did not fit the
# card, so the driver, as it can on Windows, moved a part into main memory.
#
# A frozen parameter takes 4 bytes. A trained one takes the 16 of [lesson 9](09_memory.ipynb), and 4 for the roots of
# all second moments, which AdamW on a card computes at once. Besides, the source never frees `base_model`, which it
# scored first. The card is sold with 8 or 16 GB; the hybrid report says 8.

# %%
runs["GB"] = (4 * (P - runs.trained) + 20 * runs.trained) / 1e9
runs["GB with base_model"] = runs.GB + 4 * P / 1e9
print(f"the card has {8 * 2**30 / 1e9:.1f} GB")
runs[["GB", "GB with base_model"]].round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With `base_model`, the three slow runs need 9.0 to 11.9 GB, and the fast one 4.4. The more a run needs, the slower it
# was. That fits the hypothesis, but nobody has measured it. The **cure** is also the test: with `del base_model`,
# freeze lower layers needs 7.0 GB and should take about 0.2 seconds a step.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Before your own training
#
# Checks 1 to 3 can run on a live model before its first step. `evaluate` is the function that will score your result,
# because it may be the faulty one. We plan to train all but the lower half of our 8 blocks, and plant three faults.


# %%
@torch.no_grad()
def measure(model, blocks, evaluate):
    """The numbers behind checks 1 to 3; `evaluate(model)` is a perplexity."""
    return {
        "vocabulary": model.config.vocab_size,
        "first_loss": model.eval()(input_ids=blocks, labels=blocks).loss.item(),
        "baseline": evaluate(model),
        "parameters": model.num_parameters(),
        "trained": model.num_parameters(only_trainable=True),
    }


sound = new_model()
for half in (sound, built):
    half.model.layers[:4].requires_grad_(False)
once, twice = (partial(perplexity, blocks=held_out, twice=how) for how in (False, True))
own = {
    "sound": measure(sound, seven, once),
    "shifted twice": measure(sound, seven, twice),
    "never loaded": measure(built, seven, once),
    "frozen by name": measure(freeze_by_name(new_model()), seven, once),
}
pd.DataFrame.from_dict(own, orient="index").round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each fault shows as numbers that disagree: 4.6 nats and a perplexity of 12,377 (9.4 nats); two losses no better than
# guessing (8.3); 0.8 million trained parameters instead of 2.4. The exercise makes a program of this.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# Numbers that belong together must agree.
#
# | the report says | it was | cure |
# | --- | --- | --- |
# | overfitting | labels shifted twice | `labels=input_ids` |
# | Qwen2 writes noise | weights never loaded | build, then load; `strict=True` |
# | less is more | random draws, and tensors counted | select modules, count `numel()` |
# | adapters win, or lower layers | one block, one seed | more text, three seeds |
# | 14.3 times faster | at most 9; the rest probably did not fit | `del base_model` |
#
# ## Further reading
#
# - Melis et al. 2018, [On the State of the Art of Evaluation in Neural Language
#   Models](https://arxiv.org/abs/1707.05589)

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
# **Quiz.** Symptom 5 ends with a hypothesis: three runs were slowed down because they did not fit the card. Which
# experiment could show that it is false?
#
# - **a** Run full fine-tuning and adapter layers again, on a card with 24 GB.
# - **b** Run all four strategies again on the same card, with five seeds.
# - **c** Train all four ten times as long, on the same card.
# - **d** Count the arithmetic once more, with norms and optimizer.

# %%
course.quiz("quiz16")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 16.1.** Write the program that audits. It gets a report as a dictionary and returns the set of all
# complaints that apply. Five of the keys are those of `measure`; the other four stand in a report, or in your plan.
# Here is a new report (it is invented):
#
# ```python
# {"vocabulary": 49_152, "first_loss": 3.2, "baseline": 27.1, "parameters": 134_515_008, "trained": 7_080_768,
#  "parts": [7_080_192, 576],  # of "the last two blocks, and the first norm of block 0"
#  "tokens": 512, "seeds": 1, "speedup": 12.0}  # of the test text; of each strategy; over full fine-tuning
# ```
#
# - `"loading"`: neither the first loss nor the logarithm of the baseline is more than one nat below $\ln$(vocabulary);
# - `"evaluation"`: loading is fine, but the first loss and the logarithm of the baseline are more than one nat apart;
# - `"count"`: the parts do not add up to what was trained;
# - `"sample"`: fewer than 1,000 tokens, or fewer than 3 seeds;
# - `"speed"`: faster than symptom 5 allows, where the gradient also reached block 0. That is 1.5 for the arithmetic,
#   plus the ratio of the traffic, with 8 bytes for each parameter and 88 more for each trained one.
#
# When it is right, try it on the four models above, and keep it with `measure` for your next `trainer.train()`:
#
# ```python
# plan = {"parts": [2_411_712], "tokens": 1_000, "seeds": 3, "speedup": 1.5}  # all but the lower half
# {name: audit(numbers | plan) for name, numbers in own.items()}
# ```

# %%
import math


def audit(report):
    """The set of complaints about a report; empty for a sound one."""
    # your code here


course.check("ex16_1", audit)

# %% [markdown]
# Previous: [15 · The comparison](15_comparison.ipynb) ·
# Next: [17 · The leaderboard](17_leaderboard.ipynb)
