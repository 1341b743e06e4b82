# %% [markdown] slideshow={"slide_type": "slide"}
# # 15 · The comparison
#
# *Which differences between strategies are real?*
#
# If we put the scores of seven strategies in one table, one of them is at the top. But would it still be there with
# another seed, or on other test documents? The scores alone cannot say. In this lesson you run a small comparison,
# build the function that judges it, and apply it to a larger recorded one.
#
# **You will be able to**
#
# - run a fair comparison: the same text and seeds for all strategies, and a tuned learning rate for each;
# - compute the interval of a paired difference over documents and seeds, corrected for many pairs;
# - say what a table of results allows you to claim, and export it with its chart.
#
# **You need** [lesson 3](03_baseline.ipynb) for perplexity, [lesson 4](04_full_fine_tuning.ipynb) for the search for a
# learning rate, and [lesson 5](05_lora.ipynb) for LoRA.
#
# About 43 minutes.

# %% slideshow={"slide_type": "subslide"}
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
blocks = tl.pack(rust.train[:24], tokenizer, 128)
test = [tokenizer(text, return_tensors="pt").input_ids for text in rust.test[:20]]

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Run a comparison
#
# A comparison needs two functions. The first makes one run: it loads the model afresh, adds adapters if asked to, and
# trains on 24 passages about Rust. The [seed](glossary.md#seed) decides the first values of the adapters and the order
# of the batches. The order has its own generator, so two strategies with the same seed read the same batches in the
# same order. The second function returns the loss of each of the 20 test documents, not only the mean.


# %%
def adapted(rate, seed, lora=False):
    """Train a new model once over all blocks."""
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
# Our first comparison sets full fine-tuning against LoRA. LoRA runs twice: with the learning rate of full fine-tuning,
# 0.001, and with ten times that rate. The untouched model shows how much each run has learned.
#
# **Predict first.** What share of full fine-tuning's gain does LoRA reach with the same rate, and with ten times that?

# %%
untouched = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
before = np.exp(np.mean(document_losses(untouched)))
print(f"untouched model: perplexity {before:.1f}")

# %% tags=["nbval-ignore-output"]
candidates = {
    "full, 1e-3": {"rate": 1e-3},
    "LoRA, 1e-3": {"rate": 1e-3, "lora": True},
    "LoRA, 1e-2": {"rate": 1e-2, "lora": True},
}
live = {}
for name, options in candidates.items():
    for seed in (0, 1):
        live[name, seed] = document_losses(adapted(seed=seed, **options))
        print(f"{name}, seed {seed}: {np.exp(np.mean(live[name, seed])):.1f}")

# %% tags=["nbval-ignore-output"]
live = pd.DataFrame(live)  # a row for each document, a column for each run
live.columns.names, live.index.name = ["strategy", "seed"], "document"
after = np.exp(live.T.groupby(level="strategy").mean().mean(axis=1))
gain = (before - after) / (before - after["full, 1e-3"])
pd.DataFrame({"perplexity": after.round(1), "share of full's gain": gain.round(2)})

# %% [markdown] slideshow={"slide_type": "subslide"}
# With the same rate LoRA reaches a third of the gain of full fine-tuning, and with ten times the rate more than three
# quarters. Most of the first gap only shows that the rate was too low for LoRA, so a rate that all strategies share can
# decide who wins.
#
# Therefore every strategy gets a search of its own, as in [lesson 4](04_full_fine_tuning.ipynb), on *validation* text.
# The test text stays closed until all choices have been made, because the best of many scores on it is partly luck.
# Such a search is recorded, with 60 training passages, two seeds, and the same eight rates for all seven strategies.

# %%
tuning = tl.recorded("rates")
means = tuning.groupby(["strategy", "learning_rate"]).validation_perplexity.mean()
best = means.unstack(0).idxmin().rename("best rate")
best[["full", "last_layers", "lora", "bitfit"]].to_frame()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## All strategies in one table
#
# Seven strategies with three seeds each take minutes to run, so this comparison was recorded with
# `python -m tlkit compare --profile real`: 200 passages read once, 40 test documents. The rates are those of the search
# above, so we assume that the best rate for 60 passages also suits 200. *General* is the perplexity on Python's
# language reference, which shows what was forgotten.
#
# Full fine-tuning and three ways of [freezing](07_freezing.ipynb) stand beside LoRA, [QLoRA](06_qlora.ipynb) and
# [BitFit](glossary.md#bitfit). Two more rows belong to every comparison: *zero-shot* is the untouched model, and
# *random initialisation* is the [control](glossary.md#control), the same network trained without pretraining.

# %%
recorded = tl.recorded_comparison("tiny")
scores = recorded.table.set_index("strategy").sort_values("perplexity")
table = pd.DataFrame(
    {
        "learning rate": scores.learning_rate,
        "trained parameters": scores.trainable_values,
        "Rust perplexity": scores.perplexity.round(1),
        "general perplexity": scores.general.round(1),
        "peak memory (MiB)": (scores.peak_memory_mb * 1e6 / 2**20).round(0),
    }
)
seven = list(table.index[:7])
table

# %% [markdown] slideshow={"slide_type": "subslide"}
# The control ends at 688, far above the 126 of the untouched model: on so little text, pretraining is worth more
# than any choice of strategy. `full` is first with 52.7, but 56.5 and 56.8 are close to each other, and so are 62.5
# and 63.1. **Which of these gaps would be there again with other documents and other seeds?**

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One pair: subtract before you average
#
# Take `full` and `freeze_embeddings`, scored on the same 40 documents. We first average each document's loss over the
# three seeds, because three models that read one document are not three independent documents. The left panel joins
# the two losses of each document by a line. The right panel shows two intervals for the difference of the means: the
# *unpaired* one ignores that the documents are the same, and the *paired* one uses the 40 differences.
#
# **Predict first.** Which interval is narrower, and by what factor?

# %%
documents = recorded.documents.query("strategy in @seven")
losses = documents.assign(loss=documents.nats / documents.tokens).pivot(
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
left.set(xlim=(-0.3, 1.3), ylabel="nats per token")
left.set_title("Documents differ, but the lines are nearly parallel", fontsize="medium")
for place, (low, high) in enumerate((unpaired, paired)):
    right.plot([low, high], [place, place], linewidth=5, solid_capstyle="butt")
    label = f"{('unpaired', 'paired')[place]}: {low:.2f} to {high:.2f}"
    right.text((low + high) / 2, place + 0.12, label, ha="center")
right.axvline(0, color="black", linestyle="--")
right.set(ylim=(-0.5, 1.6), yticks=[])
right.set_xlabel("freeze_embeddings minus full, nats per token (95%)")
right.set_title("Only the paired interval excludes zero", fontsize="medium")
plt.show()

# %%
narrower = (unpaired.high - unpaired.low) / (paired.high - paired.low)
course.claim("Pairing makes this interval at least five times narrower", narrower > 5)

# %% [markdown] slideshow={"slide_type": "subslide"}
# A hard document raises the loss of both models. This makes the unpaired interval wide, but it cancels in each
# [paired difference](glossary.md#paired-difference). So look at the interval of the difference, not at whether two
# separate intervals overlap. The mean difference, 0.07 nats per token, multiplies the perplexity by
# $e^{0.07} = 1.07$, so `freeze_embeddings` is 7% higher.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Two sources of variation
#
# The paired interval asks what *other documents* would have changed. But another *seed* would have given another model.
# Each source has a [standard error](glossary.md#standard-error): the standard deviation of the mean difference if we
# repeated everything with other documents, or with other seeds. The two are independent, so their squares add up:
#
# $$\delta \pm t \sqrt{e_\text{documents}^2 + e_\text{seeds}^2}, \qquad
# e_\text{documents} = \frac{s_\text{documents}}{\sqrt{n}}, \qquad e_\text{seeds} = s_\text{seeds}
# \sqrt{\frac{2}{k}}$$
#
# | symbol | meaning |
# | --- | --- |
# | $\delta$ | mean difference of two strategies, in nats per token |
# | $s_\text{documents}$ | standard deviation of the $n$ paired differences, here $n = 40$ |
# | $s_\text{seeds}$ | standard deviation of one strategy's score over seeds, without what a seed does to all |
# | $k$ | number of seeds, here 3; the 2 stands for the two strategies of a pair |
# | $t$ | Student's factor, above 1.96 because the spread is estimated from few numbers |
#
# Three seeds of one pair say little about $s_\text{seeds}$, so we estimate it from all strategies together. Let us do
# it by hand for three strategies A, B and C:
#
# | | scores, seeds 0 to 2 | minus row mean | minus column mean |
# | --- | --- | --- | --- |
# | A | 4.03, 3.98, 3.99 | 0.03, -0.02, -0.01 | 0.01, -0.01, 0 |
# | B | 4.11, 4.09, 4.10 | 0.01, -0.01, 0 | -0.01, 0, 0.01 |
# | C | 4.22, 4.20, 4.18 | 0.02, 0, -0.02 | 0, 0.01, -0.01 |
#
# The first step removes how good a strategy is. The second removes what a seed does to all: seed 0 adds 0.02 on
# average, which cancels in a difference. The squares of the rest add up to $6 \cdot 0.01^2 = 0.0006$. Its rows and
# columns each sum to zero, so only $(3 - 1)(3 - 1) = 4$ of its nine numbers are free. These are the *degrees of
# freedom*, and $s_\text{seeds} = \sqrt{0.0006 / 4} \approx 0.012$. A function does the same:


# %%
def seed_spread(scores):
    """Standard deviation over seeds (columns) and its degrees of freedom."""
    rest = scores.sub(scores.mean(axis=1), axis=0)  # without how good a strategy is
    rest = rest - rest.mean()  # without what a seed does to all strategies
    freedom = (scores.shape[0] - 1) * (scores.shape[1] - 1)
    return np.sqrt((rest**2).to_numpy().sum() / freedom), freedom


by_hand = pd.DataFrame([[4.03, 3.98, 3.99], [4.11, 4.09, 4.10], [4.22, 4.20, 4.18]])
for name, by_seed in {"by hand": by_hand, "recorded": losses.mean().unstack()}.items():
    print("{}: {:.4f}, {} degrees of freedom".format(name, *seed_spread(by_seed)))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The interval takes $t$ for these 12 degrees of freedom. The documents have 39, but the smaller number is safer. The
# function divides 0.05 by the number of pairs, here 1; the next section says why.


# %%
def intervals(losses, pairs):
    """Perplexity of `other` above that of `one` in percent, and its interval."""
    by_seed = losses.mean().unstack()  # rows: strategies, columns: seeds
    s_seeds, freedom = seed_spread(by_seed)
    e_seeds = s_seeds * np.sqrt(2 / by_seed.shape[1])
    t = stats.t.ppf(1 - 0.05 / len(pairs) / 2, min(freedom, len(losses) - 1))
    by_document = losses.T.groupby(level="strategy").mean().T
    rows = []
    for one, other in pairs:
        differences = by_document[other] - by_document[one]
        delta = differences.mean()
        half = t * np.hypot(differences.sem(), e_seeds)  # sem: s_documents / sqrt(n)
        rows.append(100 * np.expm1([delta, delta - half, delta + half]))  # e^x - 1
    index = pd.MultiIndex.from_tuples(pairs, names=["one", "other"])
    result = pd.DataFrame(rows, index, ["difference", "low", "high"])
    return result.assign(separated=(result.low > 0) | (result.high < 0))


intervals(losses, [("full", "freeze_embeddings")]).round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Now judge your own runs. **Is LoRA, with the better of its rates, really behind full fine-tuning?**

# %% tags=["nbval-ignore-output"]
intervals(live, [("full, 1e-3", "LoRA, 1e-2")]).round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Its perplexity is about 11% higher, and the interval excludes zero. It is wide because three candidates with two seeds
# leave only 2 degrees of freedom, so $t = 4.30$.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Many pairs
#
# Seven strategies make $7 \cdot 6 / 2 = 21$ pairs. A 95% interval excludes zero in 5% of the cases in which there is no
# difference. So if all seven strategies were equal, we should still expect $21 \cdot 0.05 \approx 1$ pair that looks
# different: the problem of [multiple comparisons](glossary.md#multiple-comparisons). *Bonferroni's correction* gives
# each of $m$ pairs an interval at $1 - 0.05/m$. Then all $m$ intervals together hold their true values with a
# probability of at least 95%. We test this on 2,000 invented tables of seven equal strategies.
#
# **Predict first.** In what share of the tables does at least one pair look different?

# %%
equal = np.random.default_rng(0).normal(size=(2000, 7, 40))  # scores on 40 documents
first, second = np.triu_indices(7, k=1)
p = stats.ttest_rel(equal[:, first], equal[:, second], axis=-1).pvalue
print(f"without correction: {(p < 0.05).any(axis=1).mean():.0%} of the tables")
corrected = (p < 0.05 / 21).any(axis=1).mean()
print(f"with Bonferroni:    {corrected:.0%}")
course.claim("Corrected, at most 5% of tables show a difference", corrected <= 0.05)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Without correction nearly half of the tables report a difference that does not exist. ($p < 0.05$ means that the 95%
# interval excludes zero.) Now to the recorded table. Two strategies are *separated* if and only if the corrected
# interval of their difference excludes zero.
#
# **Predict first.** How many of the 21 pairs are separated?

# %%
pairs = intervals(losses, list(combinations(seven, 2)))
print(f"{pairs.separated.sum()} of {len(pairs)} pairs are separated; the others are:")
print(pairs[~pairs.separated].round(1))

# %%
with_full = pairs.loc["full"][::-1]  # bitfit at the bottom
chart, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
for place, row in enumerate(with_full.itertuples()):
    axes.plot([row.low, row.high], [place, place], color="C1", linewidth=2)
    axes.plot(row.difference, place, "o", color="C1", markersize=5)
    axes.text(row.high + 2, place, f"{row.low:.1f}% to {row.high:.1f}%", va="center")
axes.set_yticks(range(6), with_full.index)
axes.axvline(0, color="black", linestyle="--")
axes.set_xlim(-5, 145)
axes.set_xlabel("perplexity above that of full (%; intervals corrected for 21 pairs)")
axes.set_title("full differs from each of the six others")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# `full` differs from all other strategies, and so does `bitfit`. But `freeze_embeddings`, `freeze_lower` and
# `last_layers` cannot be told apart, and neither can `lora` and `qlora`. So this table supports four groups, not seven
# ranks.
#
# An interval that includes zero does not mean "equal". That of `lora` and `qlora` leaves little room for a difference
# (-1.5% to 3.5%), but that of `freeze_embeddings` and `freeze_lower` leaves much (-6.8% to 8.6%).
#
# **How could you make the intervals narrower?** Use more documents, more seeds, or fewer questions: if you decide
# *before* the runs that only the six pairs with `full` matter, you divide 0.05 by 6 and not by 21.
#
# Our estimate assumes that seeds move all strategies equally. `tl.compare_pairs` takes a pair's own spread if that is
# larger:

# %%
print(losses.mean().unstack().std(axis=1).round(4).to_dict())
print(tl.compare_pairs(documents).separated.sum(), "of 21 pairs are separated")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The spreads differ by a factor of four, and the stricter method leaves two more pairs open: `last_layers` with `lora`
# and with `qlora`. Do not rely on a pair that only one of the two methods separates.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What was forgotten
#
# A strategy that learns more about Rust may also forget more. In the chart lower is better on both axes, so the best
# corner is at the bottom left.
#
# **Predict first.** Which strategy forgets least?

# %%
figure, axes = plt.subplots(figsize=(7.5, 4), layout="constrained")
for name, point in table.drop("random initialisation").iterrows():
    axes.plot(point["Rust perplexity"], point["general perplexity"], "o", label=name)
axes.legend()
axes.set_xlabel("perplexity on Rust text (lower: learned more)")
axes.set_ylabel("perplexity on general text\n(higher: forgot more)")
axes.set_title("The strategy that learned least, bitfit, also forgot least")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# All seven lie above the untouched model, so all forgot something. But `freeze_lower` is far above `full`, although it
# trains fewer parameters. Is this more than chance? The record has one general score for each run, so these intervals
# cover seeds only, corrected for six pairs.

# %%
runs = recorded.runs.query("strategy in @seven")
general = np.log(runs.pivot(index="strategy", columns="seed", values="general"))
spread, freedom = seed_spread(general)
half = stats.t.ppf(1 - 0.05 / 6 / 2, freedom) * spread * np.sqrt(2 / 3)
for name in seven[1:]:
    delta = (general.loc[name] - general.loc["full"]).mean()
    middle, low, high = 100 * np.expm1([delta, delta - half, delta + half])
    print(f"{name:18} {middle:+.0f}% ({low:+.0f}% to {high:+.0f}%)")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Five strategies forget less than `full`, and `freeze_lower` forgets more. **Does freezing the lower half make a model
# forget?** The search for rates also recorded general perplexity, so we can compare at the *same* rate.

# %%
frozen = ["full", "freeze_lower", "freeze_embeddings"]
same_rate = tuning.query("strategy in @frozen and learning_rate in (0.001, 0.002)")
same_rate.pivot_table("general_perplexity", "learning_rate", "strategy").round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# No: at the same rate freezing forgets *less*, for example 62 and 55 against 76 at 0.002. All three forget more at the
# higher rate, and `freeze_lower` needs 0.002 where `full` needs 0.001. Yet the rate alone does not explain the order:
# `freeze_embeddings` has 0.002 as well and forgets less than `full`. So give both comparisons, at the same rate and at
# each strategy's best rate.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Export it
#
# Save the numbers as CSV, the chart as PNG for slides and as SVG for print, and how the numbers came about: model,
# text, seeds, versions and the command.

# %%
folder = Path("../results")
folder.mkdir(exist_ok=True)
table.to_csv(folder / "comparison.csv")
pairs.to_csv(folder / "pairs.csv")
chart.savefig(folder / "pairs.png", dpi=200)
chart.savefig(folder / "pairs.svg")
(folder / "pairs.txt").write_text("\n".join(recorded.provenance), encoding="utf-8")
print(*sorted(path.name for path in folder.glob("pairs.*")))

# %% [markdown] slideshow={"slide_type": "subslide"}
# `python -m tlkit compare --strategies full,lora --corpus notes/ --tune --output results/notes` does all of this with
# your own folder `notes/`: it searches for the rates, runs the seeds, and writes the tables, the charts and a page.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What may be said
#
# Does every strategy beat the untouched model? That has no seed, so a copy of it stands beside each seed.

# %%
zero_shot = recorded.documents.query("strategy == 'zero-shot'").set_index("document")
with_start = losses.copy()
for seed in range(3):
    with_start["zero-shot", seed] = zero_shot.nats / zero_shot.tokens
intervals(with_start, [("zero-shot", name) for name in seven]).round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# *For the bundled model, after one pass over 200 Rust passages at each strategy's tuned rate, with three seeds*, the
# record supports these sentences:
#
# - Each of the seven strategies beats the untouched model on Rust text.
# - The perplexity of `lora` on Rust text is 12% to 25% higher than that of `full`.
# - `lora` forgets less of the general text than `full`.
#
# It does not support these:
#
# - LoRA is worse than full fine-tuning.
# - `lora` and `qlora` are equal.
# - `freeze_embeddings` comes before `freeze_lower`.
#
# The first is not supported although its interval is clear, because it leaves out the conditions: a larger model, other
# texts or longer training may reverse the order. The other two fail because their intervals include zero.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A comparison is fair if all strategies have the same text, the same seeds and the same search for a learning rate.
# - Subtract document by document. Two strategies are separated if and only if the interval of their difference,
#   over documents and seeds, excludes zero.
# - With many pairs, divide 0.05 by their number. An interval that includes zero means "cannot tell", and not "equal".
#
# ## Further reading
#
# - Miller 2024, [Adding error bars to evals](https://arxiv.org/abs/2411.00640): paired differences for language models.
# - Bouthillier and others 2021, [Accounting for variance in machine learning
#   benchmarks](https://arxiv.org/abs/2103.03098): what a seed changes.
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
