# %% [markdown] slideshow={"slide_type": "slide"}
# # 15 · The comparison
#
# *Which differences between strategies are real?*
#
# You have now met seven strategies, one at a time. If we put their scores in one table, some strategy is at the top.
# But would it still be there with another seed, or on other test documents? The scores alone cannot say. In this
# lesson you run a small comparison yourself, read a large one that was recorded, and claim only the differences that
# chance is unlikely to explain.
#
# **You will be able to**
#
# - run a fair comparison: the same text, the same seeds, and a tuned learning rate for each strategy;
# - compute the interval of a paired difference over documents and seeds, corrected for the number of pairs;
# - say what a table of results allows you to claim, and export it with its chart.
#
# **You need** [lesson 3](03_baseline.ipynb) for perplexity, [lesson 4](04_full_fine_tuning.ipynb) for the search for a
# learning rate, and [lesson 5](05_lora.ipynb) for LoRA.
#
# About 40 minutes.

# %% slideshow={"slide_type": "subslide"}
import os
from itertools import combinations
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from peft import LoraConfig, get_peft_model
from scipy import stats
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl

tl.setup()
rust = tl.load_corpus("rust")
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
blocks = tl.pack(rust.train[:32], tokenizer, 128)
test = [tokenizer(text, return_tensors="pt").input_ids for text in rust.test[:20]]

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Run a comparison
#
# A comparison needs two functions. The first makes one run: it loads the model afresh, adds adapters if it is asked
# to, and trains on 32 passages about Rust. The [seed](glossary.md#seed) decides two things: the first values of the
# adapters and the order of the batches. The order comes from a generator of its own, so that two strategies with the
# same seed read the same batches in the same order. The second function returns the loss of every test document, and
# not only their mean, because we will need the single documents.


# %%
def adapted(rate, seed, lora=False):
    """A model that has read every training block once."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
    if lora:
        options = {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"}
        model = get_peft_model(model, LoraConfig(**options))
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0)
    order = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(seed))
    for rows in order.split(2):
        model(input_ids=blocks[rows], labels=blocks[rows]).loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@torch.no_grad()
def document_losses(model):
    """Nats per token of each test document."""
    return [model(input_ids=ids, labels=ids).loss.item() for ids in test]


# %% [markdown] slideshow={"slide_type": "subslide"}
# Our first comparison sets full fine-tuning against LoRA. It runs LoRA twice: with the learning rate of full
# fine-tuning, 0.001, and with a rate of ten times as much.
#
# **Predict first.** How far is LoRA behind full fine-tuning with the same rate, and how far with its own?

# %% tags=["nbval-ignore-output"]
candidates = {
    "full, 1e-3": {"rate": 1e-3},
    "LoRA, 1e-3": {"rate": 1e-3, "lora": True},
    "LoRA, 1e-2": {"rate": 1e-2, "lora": True},
}
live = pd.DataFrame(
    {
        (name, seed): document_losses(adapted(seed=seed, **options))
        for name, options in candidates.items()
        for seed in (0, 1)
    }
)
live.columns.names = ["strategy", "seed"]
live.index.name = "document"
np.exp(live.mean()).unstack().round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The table shows perplexities, one row for each candidate and one column for each seed. With the same rate for both,
# LoRA has hardly learned anything. With its own rate about 40% of the gap is gone. So a large part of the first gap
# says nothing about LoRA: it shows a rate that is too low for it. LoRA's matrix $B$ starts at zero and its change is
# small, so it needs larger steps. If all strategies have to use one rate, the choice of that rate can decide who
# wins.
#
# Therefore every strategy gets a search of its own, as in [lesson 4](04_full_fine_tuning.ipynb): the same number of
# rates, scored on *validation* text. The test text stays closed until all choices have been made, because a best of
# many tries on the test text is partly luck. The record of such a search comes with the course: eight rates for each
# strategy, two seeds each.

# %%
tuning = tl.recorded("rates")
means = tuning.groupby(["strategy", "learning_rate"]).validation_perplexity.mean()
best = means.unstack(0).idxmin().rename("best rate")
best[["full", "last_layers", "lora", "bitfit"]].to_frame()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## All strategies in one table
#
# Seven strategies at their tuned rates with three seeds each take minutes to run, so this comparison was recorded.
# The files in `data/comparisons/tiny` come from `python -m tlkit compare --profile real`: 200 passages read once, 40
# test documents. The table also has a column for *general* text, Python's language reference, because it shows what
# was forgotten. Memory is in MiB, which is $2^{20}$ bytes, as in [lesson 9](09_memory.ipynb).

# %%
recorded = tl.recorded_comparison("tiny")
scores = recorded.table.set_index("strategy")
seven = list(scores.index.drop([tl.ZERO_SHOT, tl.CONTROL]))
table = pd.DataFrame(
    {
        "trained parameters": scores.trainable_values,
        "Rust perplexity": scores.perplexity.round(1),
        "general perplexity": scores.general.round(1),
        "peak memory (MiB)": (scores.peak_memory_mb * 1e6 / 2**20).round(0),
    }
)
table.loc[seven].sort_values("Rust perplexity")

# %%
print(table.loc[[tl.ZERO_SHOT, tl.CONTROL], ["Rust perplexity", "general perplexity"]])

# %% [markdown] slideshow={"slide_type": "subslide"}
# Two more rows belong to every such table. *Zero-shot* is the model before training: all seven strategies are far
# below its 126. *Random initialisation* is the [control](glossary.md#control), the same network without pretraining.
# It ends at 688, so on this amount of text pretraining is worth more than the choice of any strategy.
#
# Among the seven, `full` is first with 52.7. But 56.5 and 56.8 are close to each other, and so are 62.5 and 63.1.
# **Which of these gaps would be there again with other documents and other seeds?**

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One pair: subtract before you average
#
# Take `full` and `freeze_embeddings`. Both were scored on the same 40 documents. The left panel joins the two losses
# of each document by a line. The right panel shows two intervals for the difference of the means. The *unpaired* one
# treats the two columns as if they came from different documents, and the *paired* one uses the 40 differences.
#
# **Predict first.** Which interval is narrower, and by what factor?

# %%
nats = recorded.documents.query("strategy in @seven")
losses = nats.assign(loss=nats.nats / nats.tokens).pivot(
    index="document", columns=["strategy", "seed"], values="loss"
)
by_document = losses.T.groupby(level="strategy").mean().T  # the mean over seeds
full, other = by_document.full, by_document.freeze_embeddings
unpaired = stats.ttest_ind(other, full, equal_var=False).confidence_interval()
paired = stats.ttest_rel(other, full).confidence_interval()

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.plot([0, 1], [full, other], color="grey", marker="o", markersize=3, linewidth=0.8)
left.set_xticks([0, 1], ["full", "freeze_embeddings"])
left.set_xlim(-0.3, 1.3)
left.set_ylabel("nats per token")
left.set_title("Documents differ, but the lines are nearly parallel", fontsize="medium")
for place, (low, high) in enumerate((unpaired, paired)):
    right.plot([low, high], [place, place], linewidth=5, solid_capstyle="butt")
    label = f"{('unpaired', 'paired')[place]}: {low:.2f} to {high:.2f}"
    right.text((low + high) / 2, place + 0.12, label, ha="center")
right.axvline(0, color="black", linestyle="--")
right.set_ylim(-0.5, 1.6)
right.set_yticks([])
right.set_xlabel("freeze_embeddings minus full, nats per token (95%)")
right.set_title("Only the paired interval excludes zero", fontsize="medium")
plt.show()

# %%
narrower = (unpaired.high - unpaired.low) / (paired.high - paired.low)
course.claim("Pairing makes this interval at least five times narrower", narrower > 5)

# %% [markdown] slideshow={"slide_type": "subslide"}
# A hard document raises the loss of both models. This common part makes the columns wide, but it cancels in each
# [paired difference](glossary.md#paired-difference). So look at the interval of the difference, and do not check
# whether two separate intervals overlap: those contain the variation between documents, which both models share.
#
# A difference in nats per token is easy to read: $e^{0.07} = 1.07$, so the perplexity of `freeze_embeddings` is about
# 7% higher than that of `full`.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Two kinds of chance
#
# The paired interval above asks what *other documents* would have changed. But another *seed* would have given
# another model, so there is a second kind of chance. Both enter the [standard error](glossary.md#standard-error) of
# the difference, which is the standard deviation that it would have if we repeated everything. The two kinds are
# independent, so their squares add up:
#
# $$\delta \pm t \sqrt{e_\text{documents}^2 + e_\text{seeds}^2}, \qquad
# e_\text{documents} = \frac{s_\text{documents}}{\sqrt{n}}, \qquad e_\text{seeds} = s_\text{seeds}
# \sqrt{\frac{2}{k}}$$
#
# | symbol | what it is |
# | --- | --- |
# | $\delta$ | mean difference of two strategies, in nats per token |
# | $s_\text{documents}$ | standard deviation of the $n$ paired differences, here $n = 40$ |
# | $s_\text{seeds}$ | standard deviation of one strategy's score over seeds, after what a seed does to all is removed |
# | $k$ | number of seeds, here 3; the 2 is there because both strategies of a pair have seeds |
# | $t$ | Student's factor; it is larger than 1.96 because we know the spread only from few numbers |
#
# Three seeds of one pair say little about $s_\text{seeds}$. We therefore estimate it from all seven strategies
# together. That leaves $(7 - 1)(3 - 1) = 12$ independent numbers, the *degrees of freedom*, and $t$ is taken for
# these 12. The documents give 39, but the smaller number is the careful choice.


# %%
def intervals(losses, pairs):
    """Mean difference of each pair in nats per token, with its corrected interval."""
    by_seed = losses.mean().unstack()  # rows: strategies, columns: seeds
    alone = by_seed.sub(by_seed.mean(axis=1), axis=0)
    alone = alone - alone.mean()  # without what a seed does to all of them
    strategies, seeds = by_seed.shape
    freedom = (strategies - 1) * (seeds - 1)
    e_seeds = np.sqrt((alone**2).to_numpy().sum() / freedom * 2 / seeds)
    t = stats.t.ppf(1 - 0.05 / len(pairs) / 2, min(freedom, len(losses) - 1))
    by_document = losses.T.groupby(level="strategy").mean().T
    rows = []
    for one, other in pairs:
        difference = by_document[other] - by_document[one]
        middle = difference.mean()
        half = t * np.hypot(difference.std() / len(losses) ** 0.5, e_seeds)
        rows.append((middle, middle - half, middle + half))
    index = pd.MultiIndex.from_tuples(pairs, names=["one", "other"])
    found = pd.DataFrame(rows, index, columns=["difference", "low", "high"])
    return found.assign(separated=(found.low > 0) | (found.high < 0))


intervals(losses, [("full", "freeze_embeddings")]).round(3)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Many pairs
#
# The function divides 0.05 by the number of pairs. **Why?** Seven strategies make $7 \cdot 6 / 2 = 21$ pairs. A 95%
# interval excludes zero in 5% of the cases in which there is no difference. So if all seven strategies were equal, we
# should still expect $21 \cdot 0.05 \approx 1$ pair that looks different. This is the problem of [multiple
# comparisons](glossary.md#multiple-comparisons). *Bonferroni's correction* gives each of $m$ pairs an interval at
# $1 - 0.05/m$. Then all $m$ intervals together hold their true values with a probability of at least 95%.
#
# We can test this. The next cell invents 2,000 tables of seven strategies that are equal by construction.
#
# **Predict first.** In what share of the tables does at least one pair look different?

# %%
equal = np.random.default_rng(0).normal(size=(2000, 7, 40))  # scores on 40 documents
first, second = np.triu_indices(7, k=1)
p = stats.ttest_rel(equal[:, first], equal[:, second], axis=-1).pvalue
print(f"without correction: {(p < 0.05).any(axis=1).mean():.0%} of the tables")
corrected = (p < 0.05 / 21).any(axis=1).mean()
print(f"with Bonferroni:    {corrected:.0%}")
course.claim(
    "With the correction, at most 5% of such tables show a difference",
    corrected <= 0.05,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Without correction more than a third of all tables would report a difference that does not exist. (Here $p < 0.05$
# means the same as "the 95% interval excludes zero".) Now we apply the corrected intervals to the recorded table. Two
# strategies are *separated* if and only if the interval of their difference excludes zero.
#
# **Predict first.** How many of the 21 pairs will be separated?

# %%
order = scores.perplexity[seven].sort_values().index
pairs = intervals(losses, list(combinations(order, 2)))
percent = 100 * np.expm1(pairs[["difference", "low", "high"]])

chart, axes = plt.subplots(figsize=(9, 5.6), layout="constrained")
for place, (pair, row) in enumerate(percent[::-1].iterrows()):
    shade = "C1" if pairs.separated[pair] else "grey"
    axes.plot([row.low, row.high], [place, place], color=shade, linewidth=2)
    axes.plot(row.difference, place, "o", color=shade, markersize=5)
axes.set_yticks(range(21), [f"{other} − {one}" for one, other in pairs.index[::-1]])
axes.axvline(0, color="black", linestyle="--")
axes.set_xlabel("perplexity of the first above that of the second (%)")
axes.set_title(f"{pairs.separated.sum()} of 21 pairs are separated (orange)")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# 17 of the 21 pairs are separated. `full` differs from all other strategies, and so does `bitfit`. But the three in
# the middle, the two freezing strategies and `last_layers`, cannot be told apart, and neither can `lora` and `qlora`.
# So this table supports four ranks and not seven.
#
# A grey interval does not mean that two strategies are equal. That of `qlora` and `lora` runs from -1.5% to 3.5%,
# which leaves little room for a difference. But that of `freeze_lower` and `freeze_embeddings` runs from -6.8% to
# 8.6%, so about these two the table says very little.
#
# **How could you make the intervals narrower?** More documents shrink $e_\text{documents}$, and more seeds shrink
# $e_\text{seeds}$. Fewer questions help, too: if you decide *before* the runs that only the six pairs with `full`
# matter, you divide 0.05 by 6 and not by 21.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What was forgotten
#
# A strategy that learns more about Rust may forget more of what the model knew. The chart sets the two against each
# other. Lower is better on both axes, so the best corner is at the bottom left.
#
# **Predict first.** Which strategy forgets least?

# %%
figure, axes = plt.subplots(figsize=(7.5, 4), layout="constrained")
points = table.loc[[tl.ZERO_SHOT, *seven]]
beside = {"last_layers": (-62, -4), "lora": (5, -11), "qlora": (8, -3)}
beside[tl.ZERO_SHOT] = (-48, 6)
axes.scatter(points["Rust perplexity"], points["general perplexity"])
for name, point in points.iterrows():
    where = point["Rust perplexity"], point["general perplexity"]
    at = beside.get(name, (5, 4))
    axes.annotate(name, where, xytext=at, textcoords="offset points", size="small")
axes.set_xlabel("perplexity on Rust text (lower: learned more)")
axes.set_ylabel("perplexity on general text\n(higher: forgot more)")
axes.set_title("The strategy that learned least, bitfit, also forgot least")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# All seven lie above the zero-shot model, so all forgot something. `bitfit` forgot least, but it also learned least.
# The order of the others is not that of the Rust column: `freeze_lower` is far above `full`, although it trains fewer
# parameters. Is this more than chance? The record has one general perplexity for each run, so we compare seed by
# seed, and correct for the two pairs that we ask about.

# %%
runs = recorded.runs.query("strategy in @seven")
general = np.log(runs.pivot(index="seed", columns="strategy", values="general"))
for other in ("freeze_lower", "lora"):
    test_of_pair = stats.ttest_rel(general[other], general.full)
    ends = 100 * np.expm1(test_of_pair.confidence_interval(1 - 0.05 / 2))
    middle = 100 * np.expm1((general[other] - general.full).mean())
    print(f"{other} against full: {middle:+.0f}% ({ends[0]:+.0f}% to {ends[1]:+.0f}%)")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Both intervals exclude zero: `freeze_lower` forgets more than `full`, and `lora` forgets less. A likely reason for
# the first is its learning rate of 2e-3, twice that of `full`. The rates were tuned for Rust alone, and a search that
# also looks at general text might choose another one. These intervals cover seeds only, because the general text was
# the same in every run.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Export it
#
# A result that you want to use elsewhere consists of three files: the numbers as CSV, the chart as PNG for slides,
# and as SVG for print, because an SVG stays sharp at any size. Write down how the numbers came about, too. Here it is
# a comment line at the top of the CSV file, which `pd.read_csv(..., comment="#")` skips.

# %%
folder = Path(os.environ.get("TLKIT_RESULTS", "results"))
folder.mkdir(exist_ok=True)
for kind in ("png", "svg"):
    chart.savefig(folder / f"pairs.{kind}", dpi=200)
about = f"# {recorded.provenance[0]}; 200 passages, 40 documents, 3 seeds, Bonferroni\n"
for name, part in {"comparison": table, "pairs": pairs}.items():
    (folder / f"{name}.csv").write_text(about + part.to_csv(), encoding="utf-8")
print(*sorted(path.name for path in folder.glob("pairs.*")))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The command `python -m tlkit compare --strategies full,lora --corpus notes/ --output results/notes` does all of this
# on a text of your own: it searches for the rates, runs the seeds, and writes the tables, the charts and a page.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What may be said
#
# The table supports these three sentences:
#
# - Each of the seven strategies beats the untouched model on Rust text.
# - At its tuned rate, `lora` has a perplexity on Rust text that is 12% to 25% higher than that of `full`.
# - With three seeds each, `lora` forgets less than `full`.
#
# It does not support these three:
#
# - LoRA is worse than full fine-tuning.
# - `lora` and `qlora` are equal.
# - `freeze_embeddings` comes before `freeze_lower`.
#
# Why is the first of these not supported, when the interval of the pair is so clear? Because it leaves
# out the conditions: one model of four million parameters, one collection of texts, 200 passages read once. A larger
# model or a longer training may reverse the order. So a result needs its conditions in the same sentence.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A comparison is fair if all strategies have the same text, the same seeds and the same search for a learning rate.
# - Subtract document by document and seed by seed. Two strategies are separated if and only if the interval of their
#   difference excludes zero.
# - With many pairs, divide 0.05 by their number. An interval that includes zero means "cannot tell", and not "equal".
#
# ## Further reading
#
# - Miller 2024, [Adding error bars to evals](https://arxiv.org/abs/2411.00640): paired differences for language models.
# - Bouthillier and others 2021, [Accounting for variance in machine learning
#   benchmarks](https://arxiv.org/abs/2103.03098): what a seed changes.
# - Dror and others 2018, [The hitchhiker's guide to testing statistical significance in natural language
#   processing](https://aclanthology.org/P18-1128/).
# - Biderman and others 2024, [LoRA learns less and forgets less](https://arxiv.org/abs/2405.09673): this lesson's
#   comparison of two strategies, with models of 7 billion parameters.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex15_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** Two strategies were trained with three seeds each. Over documents, one scores 66 to 79 and the other 69 to
# 83. Seed by seed, the second is 2.9 to 4.9 above the first. All are intervals at 95%. Do the two differ?
#
# - **a** No: the first two intervals overlap.
# - **b** Not yet: more seeds must make those two narrower, until they no longer overlap.
# - **c** Yes, on these documents: the interval of the difference excludes zero.
# - **d** Yes, and on any text about Rust: the interval of the difference excludes zero.

# %%
course.quiz("quiz15")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 15.1** (first steps). Write a function for the paired interval over seeds. `runs` is a table with one row
# for each run, in no particular order. Its columns are `strategy`, `seed` and `perplexity`, and it may contain other
# strategies too. Return the low and the high end of Student's 95% interval for the mean of `one` minus `other`, taken
# seed by seed.

# %%
import math
from scipy import stats


def interval_of_difference(runs, one, other):
    """Low and high end of the 95% interval."""
    # your code here


course.check("ex15_1", interval_of_difference)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 15.2** (apply it). Somebody tuned several strategies and scored every run on validation text and on test
# text. `record` has one row for each run, with the columns `strategy`, `learning_rate`, `seed`, `validation_perplexity`
# and `test_perplexity`. Each rate was run with the same seeds, and a run that diverged has infinity in both scores. One
# of the two scores may not be used for choosing. Return what belongs in a fair table: a dict from each strategy to one
# test perplexity, which is a mean over seeds.


# %%
def fair_scores(record):
    """Each strategy's mean test perplexity, at the rate chosen fairly."""
    # your code here


course.check("ex15_2", fair_scores)

# %% [markdown]
# Previous: [14 · Instruction tuning](14_instruction_tuning.ipynb) ·
# Next: [16 · The autopsy](16_autopsy.ipynb)
