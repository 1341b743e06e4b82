# %% [markdown] slideshow={"slide_type": "slide"}
# # 15 · The comparison
#
# *Which differences between strategies are real?*
#
# If we put the scores of seven strategies in one table, one of them is at the top. But would it still be there with
# another seed, or on other test documents? In this lesson you run a small comparison,
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
# About 34 minutes.

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
blocks = tl.pack(rust.train[:12], tokenizer, 128)
test = [tokenizer(x, return_tensors="pt").input_ids[:, :64] for x in rust.test[:20]]

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Run a comparison
#
# A comparison needs two functions. The first makes one run: it loads the model afresh, adds adapters if asked to, and
# trains on 12 passages about Rust. The [seed](glossary.md#seed) decides the first values of the adapters and the order
# of the batches. The order has its own generator, so two strategies with the same seed read the same batches in the
# same order. The second function returns the loss of each of 20 test documents, cut to 64 tokens, and not only
# the mean.


# %%
def adapted(rate, seed, lora=False):
    """Train a new model once over all blocks."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
    if lora:
        adapters = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear")
        model = get_peft_model(model, adapters)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0)
    order = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(seed))
    for rows in order.split(2):
        model(input_ids=blocks[rows], labels=blocks[rows]).loss.backward()
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
# With the same rate LoRA reaches about a fifth of the gain of full fine-tuning, and with ten times the rate about four
# fifths. Most of the first gap only shows that the rate was too low for LoRA, so a rate that all strategies share can
# decide who wins.
#
# Therefore every strategy gets a search of its own, as in [lesson 4](04_full_fine_tuning.ipynb), on *validation* text.
# The test text is read only once all choices have been made, because the best of many scores is partly luck. Such a
# search is recorded, with 60 training passages and the same eight rates for all seven strategies.

# %%
tuning = tl.recorded("rates")
means = tuning.groupby(["strategy", "learning_rate"]).validation_perplexity.mean()
best = means.unstack(0).idxmin().rename("best rate")
best[["full", "last_layers", "lora", "bitfit"]].to_frame()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## All strategies in one table
#
# Seven strategies with three seeds each take minutes to run, so this comparison was recorded with
# `python -m tlkit compare --profile real`. It trains once over 200 passages, at the rates of the search above, and scores
# 40 test documents. *General* is the perplexity on Python's language reference, which shows what was forgotten.
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
#
# Look at the general column, too. All seven trained strategies stand above the untouched model, so all have forgotten
# something, and `bitfit`, which learned the least about Rust, also forgot the least.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One pair: subtract before you average
#
# Take `full` and `freeze_embeddings`, which were scored on the same 40 documents. We first average each document's loss
# over the three seeds, because three models that read one document are not three independent documents.
#
# There are two ways to get an interval for the difference of the two means. The *unpaired* one treats the 2 × 40 losses
# as two separate samples. The *paired* one first subtracts the two losses of each document, and then takes the mean of
# these 40 differences and its interval. The next cell computes both. In the chart, a line joins the two losses of each
# document.
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
figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
axes.plot([0, 1], [full, other], color="grey", marker="o", markersize=3, linewidth=0.8)
axes.set_xticks([0, 1], ["full", "freeze_embeddings"])
axes.set(xlim=(-0.3, 1.3), ylabel="nats per token")
axes.set_title("Documents differ, but the lines are nearly parallel")
plt.show()

# %%
for name, (low, high) in {"unpaired": unpaired, "paired": paired}.items():
    print(f"{name}: {low:.2f} to {high:.2f} nats per token")
narrower = (unpaired.high - unpaired.low) / (paired.high - paired.low)
course.claim("Pairing makes this interval at least five times narrower", narrower > 5)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Only the paired interval excludes zero. The reason is in the chart: a hard document raises the loss of both models, so
# the points of each column are spread widely, but the lines are nearly parallel. The spread of the columns makes the
# unpaired interval wide, and it cancels in each [paired difference](glossary.md#paired-difference). So look at the
# interval of the difference, not at whether two separate intervals overlap.
#
# The mean difference is 0.07 nats per token. Perplexity is $e$ to the power of the loss, so a difference of losses
# becomes a ratio of perplexities: $e^{0.07} = 1.07$. The perplexity of `freeze_embeddings` is 7% higher.

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
# Now judge your own runs. **Is LoRA with the better of its rates really behind full fine-tuning? And is the lower rate
# really worse for LoRA?**

# %% tags=["nbval-ignore-output"]
intervals(live, [("full, 1e-3", "LoRA, 1e-2")]).round(1)

# %% tags=["nbval-ignore-output"]
intervals(live, [("LoRA, 1e-2", "LoRA, 1e-3")]).round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The lower rate is worse for LoRA, because the whole interval is above zero. The first question stays open, because
# the lower end of its interval lies around zero. Three candidates with two seeds leave only $(3 - 1)(2 - 1) = 2$
# degrees of freedom, so $t = 4.30$ and every interval is wide. A third seed would already bring $t$ down to 2.78.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Many pairs
#
# Seven strategies make $7 \cdot 6 / 2 = 21$ pairs. A 95% interval excludes zero in 5% of the cases in which there is no
# difference. So if all seven strategies were equal, we should still expect $21 \cdot 0.05 \approx 1$ pair that looks
# different: the problem of [multiple comparisons](glossary.md#multiple-comparisons). *Bonferroni's correction* gives
# each of $m$ pairs an interval at $1 - 0.05/m$. Then all $m$ intervals hold their true values together with a
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
with_full = pairs.loc["full"][::-1].astype(float)  # bitfit at the bottom
ends = abs(with_full[["low", "high"]].sub(with_full.difference, axis=0)).T
chart, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
axes.errorbar(with_full.difference, with_full.index, xerr=ends, fmt="o", capsize=4)
axes.axvline(0, color="black", linestyle="--")
axes.set_xlabel("perplexity above that of full (%; intervals corrected for 21 pairs)")
axes.set_title("full differs from each of the six others")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# `full` differs from all other strategies, and so does `bitfit`. But `freeze_embeddings`, `freeze_lower` and
# `last_layers` cannot be told apart, and neither can `lora` and `qlora`. So this table supports four groups, not seven
# ranks.
#
# An interval that includes zero does not mean "equal". The interval of `lora` and `qlora` leaves little room for a difference
# (-1.5% to 3.5%), but the interval of `freeze_embeddings` and `freeze_lower` leaves much (-6.8% to 8.6%).
#
# **How could you make the intervals narrower?** Use more documents, more seeds, or fewer questions: if you decide
# *before* the runs that only the six pairs with `full` matter, you divide 0.05 by 6 and not by 21.
#
# Our estimate has one limit: it takes one spread over seeds for all strategies. `tl.compare_pairs` uses a pair's own
# spread if that is larger. It leaves two more pairs open, `last_layers` with `lora` and with `qlora`, so do not rely on
# these two differences.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Export it
#
# To use a result elsewhere, save the numbers as CSV, and the chart as PNG for slides and as SVG for print. A text file
# beside them says how the numbers came about: model, text, seeds, versions and the command.

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
# *For the bundled model, after one pass over 200 Rust passages at each strategy's tuned rate, with three seeds*, the
# record supports these sentences:
#
# - The perplexity of `lora` on Rust text is 12% to 25% higher than that of `full`.
# - The perplexity of `lora` on Rust text is lower than that of `bitfit`.
#
# It does not support these:
#
# - LoRA is worse than full fine-tuning.
# - `lora` and `qlora` are equal.
#
# The first is not supported although its interval is clear, because it leaves out the conditions: a larger model, other
# texts or longer training may reverse the order. The second is not supported because an interval that includes zero only
# means "cannot tell".

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
# **Exercise 15.1.** Somebody tuned several strategies and scored every run on validation text and on test text.
# `record` has one row for each run, with the columns `strategy`, `learning_rate`, `seed`, `validation_perplexity` and
# `test_perplexity`. Each rate was run with the same seeds, and a run that diverged has infinity in both scores. One of
# the two scores may not be used for choosing. Return what belongs in a fair table: a dict from each strategy to one
# test perplexity, which is a mean over seeds.


# %%
def fair_scores(record):
    """Each strategy's mean test perplexity, at the rate chosen fairly."""
    # your code here


course.check("ex15_1", fair_scores)

# %% [markdown]
# Previous: [14 · Preferences](14_preferences.ipynb) ·
# Next: [16 · The autopsy](16_autopsy.ipynb)
