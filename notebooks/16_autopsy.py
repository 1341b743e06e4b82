# %% [markdown] slideshow={"slide_type": "slide"}
# # 16 · The autopsy
#
# *How can reports full of numbers be wrong, and how would you have noticed?*
#
# Three reports describe one experiment: Qwen2-0.5B, with 494 million parameters, is adapted to text about Rust by four
# strategies. Most of their conclusions do not hold. Every fault is one that you could make tomorrow. Each symptom gives
# you one check; in the exercise the five become a program.
#
# **You will be able to**
#
# - put two numbers of a report side by side and see that one of them must be wrong;
# - reproduce a suspected fault in a few lines, and say what it does to a result;
# - audit a report with five checks, and with a program of your own.
#
# **You need** [lesson 3](03_baseline.ipynb) for perplexity, [lesson 7](07_freezing.ipynb) for freezing, [lesson
# 9](09_memory.ipynb) for memory, and [lesson 15](15_comparison.ipynb) for comparisons.
#
# About 31 minutes.

# %% slideshow={"slide_type": "subslide"}
import math

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
# | | program | file in the repository |
# | --- | --- | --- |
# | *Python report* | PyTorch and transformers | `python_version/CUDA_TEST_RESULTS.md`, log: `test_output.txt` |
# | *Rust CUDA report* | Candle, a library for Rust, on a card | `RUST_CUDA_TEST_RESULTS.md` |
# | *Rust hybrid report* | the same, on the CPU when the card is full | `RUST_HYBRID_GPU_CPU_RESULTS.md` |
#
# The reports of 15 November 2025 and the source of the first and the last program are in a [public
# repository](https://github.com/galvin-SH/GPT-2-Transfer-Learning/tree/f669a2a2ec68eccb18966719d698159803118666)
# (commit f669a2a).
#
# At each symptom, **write down your diagnosis before you run the next cell.**

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
# The report's diagnosis is overfitting.
#
# **Which row can overfitting not explain, and which two rows contradict that row?**

# %% tags=["check-math"]
print(f"exp(4.6157) is {math.exp(4.6157):,.0f}; ln(254,801) is {math.log(254_801):.1f}")
print(f"{math.log(254_801) - 4.6157:.1f} nats apart")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Overfitting cannot explain the first row, because nothing had been trained yet. Nor does a model with a perplexity of
# 254,801 write fluent English. The "initial loss" is the mean of the first five steps. Had the first of them been 12.4,
# the other four would average $(5 \cdot 4.6157 - 12.4) / 4 = 2.7$. But the next five average 3.0 in the log, and a loss
# does not fall to 2.7 and then climb. So the model was fine, and the evaluation was not.
#
# **Check 1, evaluation:** is the first loss within one nat of the logarithm of the baseline?
#
# **What can an evaluation do wrong, if training is right?**

# %%
ids = tokenizer("In Rust, Vec<T> is")["input_ids"]
pictures.label_shift_scheme([tokenizer.decode([token]) for token in ids][:8])

# %% [markdown] slideshow={"slide_type": "subslide"}
# A model of transformers shifts the labels by one place itself. The evaluation had already shifted them, so it scored
# how well the model guesses the token *after* the next one, which it never learned. In training the data collator
# replaced these labels by a copy of the inputs.
#
# We train our model on seven blocks, and score it in both ways on them and on other text. **How will the four
# perplexities move?**


# %%
@torch.no_grad()
def perplexity(model, blocks, twice=False):
    # the fault: labels moved by hand, and then by the model
    inputs, labels = (blocks[:, :-1], blocks[:, 1:]) if twice else (blocks, blocks)
    return model(input_ids=inputs, labels=labels).loss.exp().item()


def four_scores(model):
    return {
        "seven blocks": perplexity(model, seven),
        "seven blocks, shifted twice": perplexity(model, seven, twice=True),
        "other text": perplexity(model, held_out),
        "other text, shifted twice": perplexity(model, held_out, twice=True),
    }


seven = tl.pack(tl.load_corpus("facts").train, tokenizer, 32)[:7]
model = new_model()
first_loss = math.log(perplexity(model, seven[:1]))  # of the first step

# %%
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
rows = [four_scores(model)]
for _ in range(10):
    for block in seven.split(1):
        model(input_ids=block, labels=block).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    rows.append(four_scores(model))
scores = pd.DataFrame(rows)

# %%
axes = scores.plot(logy=True, figsize=(8, 3.8), style=["o-", "o--", "s-", "s--"])
axes.get_legend().remove()
for name, last in scores.iloc[-1].items():
    axes.annotate(f"  {name}", (10, last), va="center")
axes.set(xlim=(-0.3, 16), xticks=range(0, 11, 2), ylabel="perplexity")
axes.set_xlabel("epochs on seven blocks")
axes.set_title("On the learned blocks, one perplexity falls to 1, the other explodes")
plt.show()

# %%
for name in ("other text", "other text, shifted twice"):
    before, after = scores[name].iloc[[0, -1]]
    gap = abs(math.log(before) - first_loss)
    rise = after / before
    print(f"{name}: check 1 gives {gap:.1f} nats; later {rise:.1f} times as high")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Check 1 finds the fault before any training: 4.4 nats instead of 0.0. (Single blocks of this text lie between 3.9 and
# 5.9 nats, hence the limit of one nat.) The better the model knows a text by heart, the less probability it leaves for
# any but the *next* token. So on the learned blocks the faulty perplexity goes up. On other text both go up, because an
# overfitted model is also certain of wrong tokens. So overfitting may explain a part of the report's rise, 457 times
# (here 1.4), but not the 254,801.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 2: a pretrained model that is worse than guessing
#
# | | Rust CUDA report | Rust hybrid report |
# | --- | --- | --- |
# | perplexity before training | 250,072 | 387,789 |
# | text generated before training | words of many languages | the same |
# | first training losses | none: out of memory | 11.4, 11.4, 13.5 and 12.5 |
#
# **The first number is nearly that of symptom 1. Is it the same fault?** A model that guesses has the size of its
# vocabulary as perplexity.

# %%
torch.manual_seed(0)
for _ in range(3):
    untrained = AutoModelForCausalLM.from_config(model.config)
    drawn = perplexity(untrained, held_out)
    untrained.lm_head = torch.nn.Linear(192, 4096, bias=False)
    torch.nn.init.kaiming_normal_(untrained.lm_head.weight)  # as Candle does
    candle = perplexity(untrained, held_out)
    print(f"random weights: {drawn:,.0f}, with a head as in Candle {candle:,.0f}")
size = model.config.vocab_size
print(f"guessing: {size:,}, times e: {math.e * size:,.0f}")
for _ in range(2):
    print(f"pretrained, loaded anew: {perplexity(new_model(), held_out):,.0f}")
print(f"guessing with Qwen2: 151,936, or {math.log(151_936):.1f} nats")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It is another fault. In the hybrid report the evaluation is 12.9 nats, no first loss is much below the 11.9 of
# guessing, and the text is noise: the model knows nothing. The CUDA report has no first loss, but it prints the same
# noise, character for character. So it was the same random model, scored on 8 tokens instead of 4.
#
# A random model is worse than guessing because it prefers random tokens. The loss of a token is $\ln \sum_j e^{z_j} -
# z_\text{right}$. For $V$ random logits of variance $\sigma^2$, the first part is $\ln V + \sigma^2 / 2$. With the head
# that Candle draws $\sigma^2$ is 2, so 11.9 becomes the report's 12.9, a factor of $e$ in perplexity. The second part
# is a random logit, 0 on average. Its mean over 4 tokens has a standard deviation of $\sqrt 2 / \sqrt 4 = 0.7$ nats.
#
# Check 1 fires for two of the four runs, too, a false alarm: two means over 4 tokens differ with a standard deviation
# of 1 nat. So use it with some hundred tokens.
#
# **How can a program load a file and stay random, without an error?** Candle registers variables while the layers are
# built. Translated to Python, the source did this:


# %%
def load(variables, file):
    """Fill each variable from the file."""
    for name, variable in variables.items():
        variable.data.copy_(file[name])


variables = {}  # no model has been built yet
load(variables, new_model().state_dict())
built = AutoModelForCausalLM.from_config(model.config)
variables |= dict(built.named_parameters())  # now there are some, too late
course.claim(
    "Loading reported no error, and the model is still worse than guessing",
    perplexity(built, held_out) > size,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# It called `load` before it built the model, so it filled nothing.
#
# **Check 2, loading:** is the first loss, or the logarithm of the baseline, more than one nat below $\ln$(vocabulary)?
# If neither is, the model knows nothing.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 3: the less is trained, the better
#
# | Rust hybrid report | trained | perplexity after epoch 1 | after epoch 20 | rank |
# | --- | --- | --- | --- | --- |
# | freeze lower layers | 3/291 (1.0%) | 191,609 | 64,249 | 1 |
# | adapter layers | 26/291 (8.9%) | 329,432 | 104,839 | 2 |
# | freeze embeddings | 290/291 (99.7%) | 646,471 | 206,584 | 3 |
# | full fine-tuning | 291/291 (100%) | 896,122 | 303,045 | 4 |
#
# The report concludes that less is more.
#
# **Which strategy improved most between the two columns?**

# %%
names = ["freeze lower layers", "adapters", "freeze embeddings", "full fine-tuning"]
first = pd.Series([191_609, 329_432, 646_471, 896_122], names)
factors = first / [64_249, 104_839, 206_584, 303_045]
factors.round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# None did: all four fell to a third, and their order was there after the first epoch. By symptom 2 each began with
# other random weights, whose losses vary by 0.7 nats, a factor of 2. So the ranking may show nothing but four random
# draws.
#
# **Which three parameters were trained, and how many numbers do they hold?** To freeze the first 12 of 24 layers, the
# program used the rule `frozen`.


# %%
def frozen(name):
    return any(f"layers.{number}" in name for number in range(12))


config = tl.architecture("qwen2-0.5b")
config.tie_word_embeddings = False  # the Rust program gave the head its own table
meant, done = tl.meta_model(config), tl.meta_model(config)  # without weights
meant.model.layers[:12].requires_grad_(False)
for name, parameter in done.named_parameters():
    parameter.requires_grad_(not frozen(name))
two = course.network_strip(tl.describe(meant, "meant"), tl.describe(done, "programmed"))
two.suptitle("Meant: 72% trained. Programmed: 43% trained")
two

# %%
left = {name: p.numel() for name, p in done.named_parameters() if p.requires_grad}
print({name: f"{number:,}" for name, number in left.items()})
print(f"{len(left)} tensors of {len(list(done.parameters()))}")
trained, total = sum(left.values()), done.num_parameters()
print(f"{trained:,} of {total:,} parameters ({trained / total:.0%})")
print(f"gradients: {4 * trained / 1e9:.2f} GB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# You know the trap from [lesson 7](07_freezing.ipynb): `layers.1` is also in `layers.10` to `layers.19`, and so on, so
# all 24 layers were frozen. Three *tensors* are left, which the report calls parameters. They hold 272 million
# parameters (of 630, not 494, because the head got a table of its own). The report counts 12 bytes of gradients for
# them, but these take 1.09 GB.
#
# The 26 "parameters" of the adapter layers are 166 million. So rank 1 trained more than rank 2, and "less is more"
# fails before any statistics.
#
# **Check 3, count:** do the parts that are said to be trained add up, in parameters, to the number that is given?

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 4: a ranking from one block
#
# | | Python report | Rust hybrid report |
# | --- | --- | --- |
# | text for the evaluation | 1 block of 32 tokens | 1 block of 4 tokens |
# | seeds | 1 | 1 |
# | said to be best | adapter layers | freeze lower layers |
#
# The record of [lesson 15](15_comparison.ipynb) holds the same four strategies (`last_layers` are the "adapter layers")
# with 40 test documents and three seeds. Ranking the four on one document with one seed makes 120 reports.
#
# **How many different rankings will the 120 reports publish?** Four strategies allow 24.

# %%
record = pd.read_csv(tl.DATA / "comparisons/tiny/documents.csv", comment="#")
four = ["full", "freeze_lower", "freeze_embeddings", "last_layers"]
record = record[record.strategy.isin(four)].assign(loss=lambda x: x.nats / x.tokens)
reports = record.pivot(index=["document", "seed"], columns="strategy", values="loss")
rankings = reports.apply(lambda losses: tuple(losses.sort_values().index), axis=1)
winners = reports.idxmin(axis=1).value_counts()
print(f"{record.tokens.mean():.0f} tokens a report on average")
print(f"{len(reports)} reports, {rankings.nunique()} rankings")
most_frequent = rankings.value_counts().max() / len(reports)
course.claim("No ranking is that of more than one report in five", most_frequent < 0.2)
pd.DataFrame({"reports it wins": winners, "mean loss": reports.mean().round(2)})

# %% [markdown] slideshow={"slide_type": "subslide"}
# On all documents, `full` is best. But four in ten reports name another winner, and a few `last_layers`, which has the
# highest mean loss.
#
# **Check 4, sample:** is each score from at least 1,000 tokens and three seeds?

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 5: 14.3 times faster
#
# | Python report | trained parameters | seconds for 140 steps |
# | --- | --- | --- |
# | full fine-tuning | 494,032,768 | 254.28 |
# | freeze embeddings | 357,898,112 | 181.83 (by its log) |
# | freeze lower layers | 315,084,160 | 115.89 |
# | adapter layers | 29,865,088 (6.05%) | 17.72, "14.3 times faster" |
#
# The "adapter layers" are the last two blocks, plus the 45 norms of lesson 7. One of these is in block 0, so
# backpropagation still goes through the whole model.
#
# **A step is arithmetic and traffic between memory and processor. By how much can each shrink, if 94% of the parameters
# are frozen?**

# %% [markdown] slideshow={"slide_type": "subslide"}
# *Arithmetic.* Lesson 7 counted three products for each parameter. Freezing saves only the third here, that of its own
# gradient, so three become two at best, 1.5 times less.
#
# *Traffic.* With only 32 tokens in a step, much time goes into moving numbers:
#
# | bytes for a parameter | every one | a trained one also |
# | --- | --- | --- |
# | forward pass | reads 4 | |
# | backward pass | reads 4 | writes its gradient, 4 |
# | clipping (a default of `Trainer`) | | reads the gradient twice and writes it, 12 |
# | AdamW, seven operations  | | reads 11 tensors and writes 7, 72 |

# %%
P = 494_032_768
names = ["full", "freeze embeddings", "freeze lower layers", "adapter layers"]
runs = pd.DataFrame({"trained": [P, 357_898_112, 315_084_160, 29_865_088]}, names)
runs["seconds"] = pd.Series([254.28, 181.83, 115.89, 17.72], names) / 140  # a step
arithmetic = 2 * P + runs.trained  # products for each token
traffic = 8 * P + 88 * runs.trained  # bytes
most = [cost["full"] / cost["adapter layers"] for cost in (arithmetic, traffic)]
print(f"arithmetic: {most[0]:.1f} times less, traffic: {most[1]:.1f} times less")

# %% tags=["check-ratios"]
course.claim("Even the sum of the two ratios is far below 14.3", sum(most) < 10)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Even if the full step does its arithmetic and its traffic one after the other, and the cheap step both at once, the
# ratio is at most 1.5 + 7.2 = 8.7. Equal fixed costs only lower it. So the few trained parameters do not explain 14.3.
#
# **Check 5, speed:** is the speed-up within what arithmetic and traffic can save together?

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Which of the four runs took longer than it should?** The card, an RTX 4060 Ti, moves 288 GB a second. What the cheap
# step needed beyond its traffic counts as fixed costs of every step.

# %%
runs["expected"] = traffic / 288e9
runs["expected"] += (runs.seconds - runs.expected)["adapter layers"]
runs.round({"seconds": 2, "expected": 2})

# %% [markdown] slideshow={"slide_type": "subslide"}
# The other three took 3.9 to 6.8 times as long as expected. Our *hypothesis* is that they did not fit the card, so the
# driver, as it can on Windows, moved a part into main memory.
#
# A frozen parameter takes 4 bytes there. A trained one takes the 16 of [lesson 9](09_memory.ipynb), and 4 more for the
# roots of all second moments, which AdamW on a card computes at once. Besides, the source never frees `base_model`, the
# untouched model that it scored first. The card is sold with 8 or 16 GB; the hybrid report says 8.

# %%
runs["GB"] = (4 * (P - runs.trained) + 20 * runs.trained) / 1e9
runs["GB with base_model"] = runs.GB + 4 * P / 1e9
print(f"the card has {8 * 2**30 / 1e9:.1f} GB")
runs[["GB", "GB with base_model"]].round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With `base_model`, exactly the three slow runs exceed the card, and the more they do, the slower they were. Without
# it, two would fit. So the hypothesis explains what we see. It also predicts that with `del base_model` these two would
# take about 0.2 seconds a step.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# Numbers that belong together must agree.
#
# | the report says | it was | check |
# | --- | --- | --- |
# | overfitting ruined perplexity | labels shifted twice | 1, evaluation |
# | Qwen2 writes noise | weights never loaded | 2, loading |
# | less is more | random draws, and tensors counted as parameters | 3, count |
# | adapters, or lower layers, are best | one block, one seed | 4, sample |
# | 14.3 times faster | at most 9; the rest probably did not fit | 5, speed |
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
# **Exercise 16.1.** Put the five checks of the lesson into a program that audits reports. Here is a new one (it is
# invented), as a table of `key: number`:
#
# | key | number | |
# | --- | --- | --- |
# | `vocabulary` | 49,152 | tokens |
# | `first_loss` | 3.2 | nats, first step of training |
# | `baseline` | 27.1 | perplexity before training, on text of the same kind |
# | `parameters` | 134,515,008 | all parameters |
# | `parts` | [7,080,192, 576] | parameters of "the last two blocks, and the first norm of block 0" |
# | `trained` | 7,080,768 | parameters said to be trained |
# | `tokens` | 512 | of the test text |
# | `seeds` | 1 | |
# | `speedup` | 12.0 | times faster than full fine-tuning |
#
# Your function gets such a dictionary and returns the set of all complaints that apply. A complaint says that two
# numbers disagree, and the person who reads it has to find out why.
#
# - `"loading"`: neither the first loss nor the logarithm of the baseline is more than one nat below $\ln$(vocabulary);
# - `"evaluation"`: loading is fine, but the first loss and the logarithm of the baseline are more than one nat apart;
# - `"count"`: the parts do not add up to what was trained;
# - `"sample"`: fewer than 1,000 tokens, or fewer than 3 seeds;
# - `"speed"`: faster than symptom 5 allows, where the gradient also reached block 0. That is 1.5 for the arithmetic,
#   plus the ratio of the traffic, with 8 bytes for each parameter and 88 more for each trained one.

# %%
import math


def audit(report):
    """The set of complaints about a report; empty for a sound one."""
    # your code here


course.check("ex16_1", audit)

# %% [markdown]
# Previous: [15 · The comparison](15_comparison.ipynb) ·
# Next: [17 · The leaderboard](17_leaderboard.ipynb)
