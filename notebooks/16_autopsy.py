# %% [markdown] slideshow={"slide_type": "slide"}
# # 16 · The autopsy
#
# *How can reports full of numbers be wrong, and how would you have noticed?*
#
# Five reports describe one experiment, and we read three of them: Qwen2-0.5B, a language model with 494 million
# parameters, is adapted to text about Rust by four strategies. The losses fell, but most of the conclusions do not
# hold. Every fault is one that you could make tomorrow, and each left a trace. Each of the five symptoms gives you one
# check, and in the exercise the five become a program.
#
# **You will be able to**
#
# - put two numbers of a report side by side and see that one of them must be wrong;
# - reproduce a suspected fault in a few lines, and say what it does to a result;
# - audit any report with five checks, and with a program of your own.
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
from tlkit.evaluation import first_loss_warning

tl.setup()
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
held_out = tl.pack(tl.load_corpus("rust").validation[:5], tokenizer, 32)[:16]


def new_model():
    return AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)


# %% [markdown] slideshow={"slide_type": "subslide"}
# The *Python report* used PyTorch and transformers. The *Rust CUDA report* and the *Rust hybrid report* used Candle, a
# library for the language Rust; the hybrid program continues on the CPU when the card is out of memory. The reports of
# 15 November 2025, and the programs that produced them ("the source" below), are in a [public
# repository](https://github.com/galvin-SH/GPT-2-Transfer-Learning/tree/f669a2a2ec68eccb18966719d698159803118666)
# (commit f669a2a): `python_version/CUDA_TEST_RESULTS.md`, `RUST_CUDA_TEST_RESULTS.md` and
# `RUST_HYBRID_GPU_CPU_RESULTS.md`.
#
# At each symptom, **write your diagnosis down before you run the next cell.**

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 1: the loss falls to zero, and perplexity explodes
#
# | Python report | full fine-tuning, 7 blocks of 32 tokens, 20 epochs |
# | --- | --- |
# | perplexity before training | 254,801 |
# | text generated before training | fluent English about Rust |
# | first training loss | 4.6157 |
# | last training loss | 0.0000 |
# | perplexity after training | 116,362,380 |
#
# You met the first number in [lesson 4](04_full_fine_tuning.ipynb). The report's diagnosis is overfitting: seven blocks
# are too few, so the model learned them by heart.
#
# **Which row can overfitting not explain, and which two rows contradict that row?**

# %% tags=["check-math"]
print(f"exp(4.6157) is {math.exp(4.6157):,.0f}; ln(254,801) is {math.log(254_801):.1f}")
print(f"{math.log(254_801) - 4.6157:.1f} nats apart")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Overfitting cannot explain the first row, because nothing had been trained yet. The first training loss belongs to the
# same untouched model, and says that the perplexity is 101. Nor does a model with a perplexity of 254,801 write fluent
# English. So the model was fine, and the evaluation was not.
#
# **Check 1, evaluation:** is the first loss within one nat of the logarithm of the baseline? (One nat is a rule of
# thumb.)
#
# **What can an evaluation do wrong, if training is right?** The next picture shows what the source did.

# %%
ids = tokenizer("In Rust, Vec<T> is")["input_ids"]
pictures.label_shift_scheme([tokenizer.decode([token]) for token in ids][:8])

# %% [markdown] slideshow={"slide_type": "subslide"}
# A model of transformers shifts the labels by one place itself. The evaluation had already shifted them, so it scored
# how well the model guesses the token *after* the next one, which it never learned. Training was right, because it left
# the shift to the model.
#
# We train our model on seven blocks for ten epochs, and score it in both ways on these blocks and on other text about
# Rust. **How will the four perplexities move?**


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
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
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
course.claim(
    "The faulty perplexity is at least 20 times too high, after every epoch",
    (scores["seven blocks, shifted twice"] > 20 * scores["seven blocks"]).all()
    and (scores["other text, shifted twice"] > 20 * scores["other text"]).all(),
)
print(first_loss_warning(first_loss, math.log(scores["other text, shifted twice"][0])))
other = scores["other text"]
print(f"other text, scored correctly: {other.iloc[-1] / other[0]:.1f} times as high")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The better the model knows a text by heart, the more certain it is of the *next* token, and the less probability it
# leaves for the one after that. So as the training loss goes to zero, the faulty perplexity goes up, most of all on
# text that was learned. The report's model may well have overfitted, as ours did, but the report's numbers do not show
# that. `first_loss_warning` is check 1 as a function.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 2: a pretrained model that is worse than guessing
#
# | | Rust CUDA report | Rust hybrid report |
# | --- | --- | --- |
# | perplexity before training | 250,072 | 387,789 |
# | text generated before training | words of many languages in no order | the same |
# | first training losses | none: out of memory | 11.4, 11.4, 13.5 and 12.5 |
#
# Both load the same pretrained file.
#
# **The first number is nearly that of symptom 1. Is it the same fault?** A model that guesses, with the same
# probability for every token, has a perplexity equal to the size of its vocabulary, for Qwen2 151,936.

# %%
torch.manual_seed(0)
for _ in range(3):
    untrained = AutoModelForCausalLM.from_config(model.config)
    print(f"random weights: perplexity {perplexity(untrained, held_out):,.0f}")
for _ in range(2):
    print(f"pretrained, loaded anew: {perplexity(new_model(), held_out):,.0f}")
print(f"guessing: {model.config.vocab_size:,}, and for Qwen2 151,936")
print(f"the loss of guessing: {math.log(151_936):.1f} nats for Qwen2")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It is another fault. In the hybrid report all three signs agree that the model knows nothing. The evaluation is 12.9
# nats, the first losses are close to the 11.9 of guessing, and the text is noise. Our random models are worse than
# guessing, and no two are alike. The CUDA report has no first loss, but the source of both programs shows that the
# pretrained weights never arrived.
#
# Check 1 rings here too: two first losses are 1.5 nats below the evaluation, because each run drew new weights and
# scored only 4 tokens. A check names the number that cannot be right; a person has to name the fault.
#
# **How can a program load a file and stay random, without an error?** Candle registers variables in a `VarMap` while
# the layers are built. In Python, the source did this:


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
    "Loading reported no error, and the model is worse than guessing",
    perplexity(built, held_out) > model.config.vocab_size,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Candle's call fills the variables that exist. The program called it *before* it built the model, so it filled nothing
# and succeeded.
#
# **Check 2, loading:** is the first loss, or the logarithm of the baseline, more than one nat below $\ln$(vocabulary)?
# If neither is, the model knows nothing, whatever check 1 says. In symptom 1 the first loss is 7 nats below, so loading
# was fine.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 3: three parameters win
#
# | Rust hybrid report | trained | perplexity after epoch 1 | after epoch 20 | rank |
# | --- | --- | --- | --- | --- |
# | freeze lower layers | 3/291 (1.0%) | 191,609 | 64,249 | 1 |
# | adapter layers | 26/291 (8.9%) | 329,432 | 104,839 | 2 |
# | freeze embeddings | 290/291 (99.7%) | 646,471 | 206,584 | 3 |
# | full fine-tuning | 291/291 (100%) | 896,122 | 303,045 | 4 |
#
# The report concludes that with little data, less is more.
#
# **Which strategy improved most between the two columns?**

# %%
names = ["freeze lower layers", "adapters", "freeze embeddings", "full fine-tuning"]
first = pd.Series([191_609, 329_432, 646_471, 896_122], names)
factors = first / [64_249, 104_839, 206_584, 303_045]
factors.round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# None did: all four fell to a third, and their order was there after the first epoch. Each strategy loaded the model
# afresh, so by symptom 2 each began with random weights of its own. And each was scored on a block of only 4 tokens. So
# the ranking may show four random draws and nothing about the strategies.
#
# **And what are the three parameters?** To freeze the first 12 of 24 layers, the program used the rule `frozen`.
# `tl.meta_model` builds Qwen2 without weights, and the strip shows which parts train.


# %%
def frozen(name):
    return any(f"layers.{number}" in name for number in range(12))


config = tl.architecture("qwen2-0.5b")
config.tie_word_embeddings = False  # the Rust program gave the head its own table
meant, done = tl.meta_model(config), tl.meta_model(config)
meant.model.layers[:12].requires_grad_(False)
for name, parameter in done.named_parameters():
    parameter.requires_grad_(not frozen(name))
tl.network_strip(tl.describe(meant, "as described"), tl.describe(done, "as programmed"))

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
# parameters, 43% of this model. The report counts 12 bytes of gradients for them, but the
# gradients take 1.09 GB.
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
# with 40 test documents and three seeds. Ranking the four on one document with one seed makes 120 reports, each from
# more text than the two in the table.
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
print(f"{len(reports)} reports, {rankings.nunique()} rankings; most frequent ones:")
print(rankings.value_counts().head(3).to_string(header=False))
pd.DataFrame({"reports it wins": winners, "mean loss": reports.mean().round(2)})

# %%
course.claim(
    "No ranking is published by more than one report in five",
    rankings.value_counts().max() / len(reports) < 0.2,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# On all documents together, `full` is best. But four in ten reports name another winner, and a few name `last_layers`,
# which has the highest mean loss. So a ranking needs many documents, several seeds, and intervals of differences.
#
# **Check 4, sample:** from how many tokens and seeds is each score?

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Symptom 5: 14.3 times faster
#
# | Python report | trained | seconds for 140 steps |
# | --- | --- | --- |
# | full fine-tuning | 100% | 254.28 |
# | adapter layers | 6.05% | 17.72, "14.3 times faster" |
#
# The "adapter layers" are the last two blocks, plus the 45 norms that you met in lesson 7. One of these norms is in
# block 0, so backpropagation still goes through the whole model. The report explains the speed by the few trained
# parameters.
#
# **A step consists of arithmetic, and of moving numbers between memory and processor. By how much can each shrink, if
# 94% of the parameters are frozen?**

# %% [markdown] slideshow={"slide_type": "subslide"}
# *Arithmetic.* Lesson 7 counted three products for each parameter: one in the forward pass, one that hands the gradient
# down, and one for the parameter's own gradient. Freezing saves only the third, because the gradient still has to reach
# block 0. So at best three products become two, 1.5 times less.
#
# *Traffic.* With only 32 tokens in a step, much time goes into moving parameters. Both passes read 4 bytes for each. A
# *trained* one moves many more. (The source's `Trainer` clips by default. Its version decides whether AdamW is fused,
# so we count both.)
#
# | what moves a trained parameter's numbers | bytes |
# | --- | --- |
# | the backward pass writes the gradient | 4 |
# | clipping reads it for the norm, then reads and writes it | 12 |
# | AdamW by default: eight small operations read twelve tensors and write eight | 80 |
# | the same with `fused=True`: one operation reads four tensors and writes three | 28 |
#
# Together a trained parameter moves 4 + 12 + 80 = 96 bytes by default, and 44 with a fused optimizer.

# %%
P, head = 494_032_768, 151_936 * 896  # all parameters; those of the tied head
through = {  # parameters in the forward pass, in the backward pass, and trained
    "full": (P, P, P),
    "as published": (P, P, 29_865_088),
}
parts = pd.DataFrame(through, index=["forward", "backward", "trained"]).T
cost = pd.DataFrame({"arithmetic": parts.sum(axis=1)})
for name, each in {"traffic, fused": 44, "traffic, default": 96}.items():
    cost[name] = 4 * (parts.forward + parts.backward) + each * parts.trained
ratios = cost.loc["full"] / cost.loc["as published"]
ratios.round(1).to_frame("times less")

# %% tags=["check-ratios"]
course.claim(
    "Neither arithmetic nor traffic shrinks by more than 8 times", ratios.max() < 8
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# So arithmetic can explain a speed-up of 1.5, and traffic one of 7.5, or of 5 with a fused optimizer. A step takes at
# most the sum of the two times, and a ratio of sums lies between the two ratios, so no mixture exceeds 7.5. Fixed
# costs, equal in both runs, only lower the ratio. The few trained parameters do not explain 14.3.
#
# **Check 5, speed:** is the speed-up within what arithmetic and traffic can save?

# %% [markdown] slideshow={"slide_type": "subslide"}
# **How long should a full step take on the reports' card?** An RTX 4060 Ti moves 288 GB a second, and the hybrid report
# says that it has 8 GB. Full fine-tuning needs at least 16 bytes for each parameter, and two temporary copies of the
# largest gradient, that of the head ([lesson 9](09_memory.ipynb)).

# %%
for name, seconds in {"full": 254.28, "as published": 17.72}.items():
    moved = cost.loc[name, "traffic, default"] / 1e9
    print(f"{name}: {moved:.1f} GB take {moved / 288:.2f} s at 288 GB/s;", end=" ")
    print(f"published: {seconds / 140:.2f} s")
needed = 16 * P + 2 * 4 * head
print(f"memory: {needed / 1e9:.1f} GB at least, on a card of {8 * 2**30 / 1e9:.1f} GB")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The cheap step took 0.1 s longer than its traffic. With the same 0.1 s on top, a full step should take 0.28 s, and it
# took 1.82. So the expensive run was slow. It also does not fit a card of 8 GB. On Windows, the driver can move what
# does not fit into main memory, and each step then waits for it. That is a *hypothesis*, which we cannot test without
# that machine.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Numbers that belong together must agree: first loss and baseline (check 1), baseline and vocabulary (2), the parts
#   and the whole of what is trained (3). These faults are silent.
# - A ranking needs text and seeds (4), and a speed-up needs an explanation in operations and bytes (5).
#
# ## Further reading
#
# - Melis et al. 2018, [On the State of the Art of Evaluation in Neural Language
#   Models](https://arxiv.org/abs/1707.05589)
# - Williams et al. 2009, [Roofline: An Insightful Visual Performance Model](https://doi.org/10.1145/1498765.1498785)

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
# **Quiz.** Symptom 5 ends with a hypothesis: full fine-tuning was slowed down because it did not fit the card. Which
# experiment could show that it is false?
#
# - **a** Run both strategies again, on a card with 24 GB.
# - **b** Run both again on the same card, with five seeds.
# - **c** Train both ten times as long, on the same card.
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
# | `parts` | [7,080,192, 576] | parameters of "the last two blocks and the final norm" |
# | `trained` | 7,080,768 | parameters said to be trained |
# | `tokens` | 512 | of the test text |
# | `seeds` | 1 | |
# | `speedup` | 12.0 | times faster than full fine-tuning |
#
# Your function gets such a dictionary and returns the set of all complaints that apply. They name the number that cannot
# be right; the person who reads them names the fault.
#
# - `"loading"`: neither the first loss nor the logarithm of the baseline is more than one nat below $\ln$(vocabulary);
# - `"evaluation"`: loading is fine, but the first loss and the logarithm of the baseline are more than one nat apart;
# - `"count"`: the parts do not add up to what was trained;
# - `"sample"`: fewer than 1,000 tokens, or fewer than 3 seeds;
# - `"speed"`: faster than traffic allows, as in symptom 5: 8 bytes for each parameter and 96 for each trained one.

# %%
import math


def audit(report):
    """The set of complaints about a report; empty for a sound one."""
    # your code here


course.check("ex16_1", audit)

# %% [markdown]
# Previous: [15 · The comparison](15_comparison.ipynb) ·
# Next: [17 · The leaderboard](17_leaderboard.ipynb)
