# %% [markdown] slideshow={"slide_type": "slide"}
# # 15 · The comparison
#
# *Which differences between strategies are real?*
#
# In a table of seven strategies, one is at the top. Would it still be there with another seed, or on other documents?
#
# **You will be able to**
#
# - run a fair comparison: the same text, seeds and search for a learning rate for all strategies;
# - compute the interval of a paired difference over documents and seeds, corrected for many pairs;
# - say what a table of results allows you to claim, and export the table with its chart.
#
# **You need** [lesson 3](03_baseline.ipynb) for perplexity, [lesson 4](04_full_fine_tuning.ipynb) for the search for a
# learning rate, [lesson 5](05_lora.ipynb) for LoRA, and [lesson 8](08_peft_family.ipynb) for the two sources of chance.
#
# About 32 minutes.

# %% slideshow={"slide_type": "subslide"}
import copy
from itertools import combinations
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from peft import LoraConfig, get_peft_model
from scipy import stats
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl

tl.setup()
rust = tl.load_corpus("rust")
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
blocks = tl.pack(rust.train[:5], tokenizer, 64)  # 12 blocks of 64 tokens


def first_tokens(texts):
    opened = [tokenizer.eos_token + text for text in texts[:20]]  # as in training
    return torch.tensor([tokenizer(x).input_ids[:65] for x in opened])  # (20, 65)


validation, test = first_tokens(rust.validation), first_tokens(rust.test)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Run a comparison
#
# `trained` copies the untouched model, adds adapters if asked to, and trains on five passages about Rust in six steps.
# The [seed](glossary.md#seed) decides the adapters' first values and the order of the blocks. The order has its own
# generator, so strategies with the same seed read the same blocks in turn. `document_losses` returns each document's
# loss on 64 tokens.

# %%
untouched = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)


def trained(rate, seed, lora):
    torch.manual_seed(seed)
    model = copy.deepcopy(untouched)
    if lora:
        adapters = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear")
        model = get_peft_model(model, adapters)
    adamw = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0, fused=True)
    order = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(seed))
    for block in blocks[order].split(2):
        model(input_ids=block, labels=block).loss.backward()
        adamw.step()
        adamw.zero_grad()
    return model.eval()


@torch.no_grad()
def document_losses(model, ids):
    logits = model(input_ids=ids).logits[:, :-1].flatten(0, 1)
    losses = cross_entropy(logits, ids[:, 1:].flatten(), reduction="none")
    return losses.view(len(ids), -1).mean(dim=1).numpy()


# %% [markdown] slideshow={"slide_type": "subslide"}
# We compare full fine-tuning with LoRA. First both get the same search: five learning rates with one seed, judged by
# the perplexity on 20 *validation* documents. A run's *gain* is how far it lowers the untouched model's perplexity.
# LoRA's gains are given as shares of full fine-tuning's best.
#
# **Predict first.** What share does LoRA reach at full fine-tuning's best rate, and what at its own?

# %%
before = np.exp(np.mean(document_losses(untouched, validation)))
print(f"untouched model: perplexity {before:.1f}")

# %% tags=["nbval-ignore-output"]
search = pd.DataFrame(index=pd.Index([3e-4, 1e-3, 3e-3, 1e-2, 3e-2], name="rate"))
for name in ("full", "LoRA"):
    for rate in search.index:
        model = trained(rate, seed=0, lora=name == "LoRA")
        search.loc[rate, name] = np.exp(np.mean(document_losses(model, validation)))
chosen = search.idxmin()
search.map("{:,.0f}".format)

# %% tags=["nbval-ignore-output"]
gain = (before - search.LoRA) / (before - search.full.min())
gain.loc[chosen].to_frame("LoRA's share of full's best gain").round(2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# At the best rate of full fine-tuning, LoRA reaches less than a fifth of that gain. At ten times this rate, which ruins
# full fine-tuning, it reaches 96%. So a shared rate can exaggerate a difference: here it was too low for LoRA. Both
# best rates have worse neighbours on both sides, so the range was wide enough.
#
# Now train both at their best rates and score them on *test* text. We take five new seeds, as seed 0 chose the rates.

# %% tags=["nbval-ignore-output"]
tested = []
for name, rate in chosen.items():
    for seed in range(1, 6):
        loss = document_losses(trained(rate, seed, lora=name == "LoRA"), test)
        run = {"strategy": name, "rate": rate, "seed": seed}
        tested.append(pd.DataFrame({**run, "document": range(20), "loss": loss}))
tested = pd.concat(tested)  # a row for each loss
np.exp(tested.groupby(["strategy", "seed"]).loss.mean()).unstack().map("{:.1f}".format)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The seed alone moves each perplexity by 7 to 8. Is LoRA worse?

# %% [markdown] slideshow={"slide_type": "slide"}
# ## All strategies in one table
#
# A larger comparison was recorded with `python -m tlkit compare --profile real`. Seven strategies with three seeds each
# read 200 passages once, and were scored on 40 test documents. Each trained at the best of eight rates, searched on 60
# passages (lesson 7's finer search gives `freeze_lower` 55.5).
#
# Beside full fine-tuning stand LoRA, [QLoRA](06_qlora.ipynb), [BitFit](glossary.md#bitfit) and three ways of
# [freezing](07_freezing.ipynb): `freeze_embeddings`; `freeze_lower`, the lower four of eight blocks; and `last_layers`,
# which trains only the last two blocks and the norms. *Zero-shot* is the untouched model. *Random initialisation* is
# the [control](glossary.md#control): the same network without pretraining, at its own best rate.
#
# **How far apart are the best rates of the seven strategies?**

# %%
recorded = course.recorded("tiny/comparison").sort_values("perplexity")
table = recorded[["strategy", "learning_rate", "trainable_parameters", "perplexity"]]
table.columns = ["strategy", "learning rate", "trained parameters", "Rust perplexity"]
table = table.set_index("strategy").round({"Rust perplexity": 1})
seven = table.index[:7]  # the best first, without the last two rows
table

# %% [markdown] slideshow={"slide_type": "subslide"}
# The best rate of `lora` is again ten times that of `full`, and BitFit's is fifty times. The control ends at 688, so
# 200 passages alone do not teach a model Rust.
#
# `full` is first with 52.7, followed by 56.5 and 56.8, and later by 62.5 and 63.1. **Which of these gaps would return
# with other documents and other seeds?**

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One pair: subtract before you average
#
# Start with `full` and `freeze_embeddings`, which were scored on the same 40 documents. First average each document's
# loss over the three seeds: a hard document is hard for all three models, so 120 losses tell little more than 40.
#
# An *unpaired* interval of the difference treats the 2 × 40 losses as two separate samples. A *paired* one first
# subtracts the two losses of each document, then averages the 40 differences.
#
# **Predict first.** Which interval is narrower, and by what factor?

# %%
documents = course.recorded("tiny/documents").query("strategy in @seven")
losses = documents.eval("loss = nats / tokens")
by_document = losses.pivot_table("loss", "document", "strategy")  # means over seeds
full, frozen = by_document.full, by_document.freeze_embeddings
unpaired = stats.ttest_ind(frozen, full, equal_var=False).confidence_interval()
paired = stats.ttest_rel(frozen, full).confidence_interval()

# %%
for name, (low, high) in {"unpaired": unpaired, "paired": paired}.items():
    print(f"{name}: {low:.3f} to {high:.3f} nats per token")
narrower = (unpaired.high - unpaired.low) / (paired.high - paired.low)
print(f"{narrower:.1f} times narrower")
course.claim("Pairing makes this interval at least five times narrower", narrower > 5)

# %%
figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
axes.plot([0, 1], [full, frozen], color="grey", marker="o", markersize=3, linewidth=0.8)
axes.set_xticks([0, 1], ["full", "freeze_embeddings"])
axes.set(xlim=(-0.3, 1.3), ylabel="nats per token")
axes.set_title("Documents differ, but the lines are nearly parallel")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# Only the paired interval excludes zero. The chart, with a line for each document, shows why: 32 of 40 lines rise. A
# hard document raises both losses, which widens the unpaired interval, but cancels in each [paired
# difference](glossary.md#paired-difference). So look at the interval of the difference, not at whether two intervals
# overlap.
#
# The mean difference is 0.07 nats per token. Perplexity is $e$ to the power of the loss, so that of `freeze_embeddings`
# is $e^{0.07} = 1.07$ times that of `full`, or 7% higher.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The second source: another seed
#
# The paired interval allows for *other documents*. But another *seed* would have given other models. So we average each
# run's losses over the 40 documents, then subtract seed by seed. **How close together are the three differences?**

# %%
by_seed = losses.pivot_table("loss", "seed", "strategy")  # means over documents
differences = by_seed.freeze_embeddings - by_seed.full
print(differences.round(3).to_dict(), f"standard deviation {differences.std():.3f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# They are close together, but with three that may be luck. Their deviations from the mean add up to zero, so two of
# them determine the third: $n$ differences have $n - 1$ [degrees of freedom](glossary.md#degrees-of-freedom).
#
# If we knew the differences' standard deviation $s$, a 95% interval would reach 1.96 [standard
# errors](glossary.md#standard-error) $s/\sqrt{n}$ to each side. We only estimate it, so we need a larger factor,
# *Student's* $t$. **How large is $t$ for three seeds, for five, and for 40 documents?**

# %%
freedom = pd.Index([1, 2, 4, 39], name="degrees of freedom")
pd.DataFrame({"t": stats.t.ppf(0.975, freedom).round(2)}, freedom).T

# %% [markdown] slideshow={"slide_type": "subslide"}
# So 40 documents need hardly more than 1.96, but three seeds more than twice as much. The two sources are independent,
# so we add the squares of their half-widths. If the differences are roughly normal, the interval covers the true
# difference in at least 95% of studies (Banerjee, below):
#
# $$\delta \pm \sqrt{\Big(t_{n-1} \frac{s_\text{documents}}{\sqrt{n}}\Big)^2
# + \Big(t_{k-1} \frac{s_\text{seeds}}{\sqrt{k}}\Big)^2}$$
#
# Here $\delta$ is the strategies' mean difference, in nats per token. $s_\text{documents}$ is the standard
# deviation of the $n = 40$ differences by document, and $s_\text{seeds}$ that of the $k = 3$ by seed.


# %%
def subtract(scores, first, second, score="loss"):
    table = scores.pivot_table(score, ["document", "seed"], "strategy")
    return table[second] - table[first]


def half_width(sources, level):  # sources: mean differences by document, by seed
    parts = [stats.t.ppf((1 + level) / 2, len(x) - 1) * x.sem() for x in sources]
    return np.hypot.reduce(parts)  # root of the sum of squares; sem is s / sqrt(number)


def interval(scores, first, second, level=0.95, score="loss"):
    gap = subtract(scores, first, second, score)
    sources = [gap.groupby(source).mean() for source in ("document", "seed")]
    return gap.mean() + half_width(sources, level) * np.array([0, -1, 1])


percent, low, high = 100 * np.expm1(interval(losses, "full", "freeze_embeddings"))
print(f"freeze_embeddings: {percent:.1f}% above full ({low:.1f}% to {high:.1f}%)")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Is LoRA, at its best rate, behind full fine-tuning? What do seeds 4 and 5 add?**

# %% tags=["nbval-ignore-output"]
for number, some in {3: tested[tested.seed <= 3], 5: tested}.items():
    percent, low, high = 100 * np.expm1(interval(some, "full", "LoRA"))
    print(f"{number} seeds: LoRA {percent:.1f}% above full ({low:.1f}% to {high:.1f}%)")

# %% [markdown] slideshow={"slide_type": "subslide"}
# We cannot tell: after these six steps LoRA may be 12% worse or 3% better. Two more seeds halve the interval, because
# they halve $t/\sqrt{k}$. But ±3.5% come from the 20 documents and stay. Choose the number of seeds beforehand: adding
# some until zero is excluded finds differences that do not exist.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Many pairs
#
# Seven strategies make $7 \cdot 6 / 2 = 21$ pairs. Even if all seven were equal, each interval would exclude zero in up
# to 5% of studies. So in a study, about $21 \cdot 0.05 \approx 1$ pair would look different. *Bonferroni's correction*
# (lesson 8) for such [multiple comparisons](glossary.md#multiple-comparisons) gives each of $m$ pairs an interval at
# the level $1 - 0.05/m$. Then all $m$ are right together in at least 95% of studies. We test this on 2,000 invented
# tables of seven equal strategies, without seeds. There, a 95% interval excludes zero exactly if $p < 0.05$.
#
# **Predict first.** In what share of the tables does at least one pair look different?

# %%
equal = np.random.default_rng(0).normal(size=(2000, 7, 40))  # scores on 40 documents
first, second = np.triu_indices(7, k=1)
p = stats.ttest_rel(equal[:, first], equal[:, second], axis=-1).pvalue
print(f"without correction: {(p < 0.05).any(axis=1).mean():.0%} of the tables")
print(f"with Bonferroni:    {(p < 0.05 / 21).any(axis=1).mean():.0%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Without correction nearly half of the tables report a difference that does not exist. So we call two strategies
# *separated* only if the corrected interval of their difference excludes zero. **How many of the 21 recorded pairs does
# `interval` separate?**

# %%
level = 1 - 0.05 / 21
tried = combinations(seven, 2)
rows = [(*pair, *100 * np.expm1(interval(losses, *pair, level))) for pair in tried]
pairs = pd.DataFrame(rows, columns=["first", "second", "percent", "low", "high"])
excludes_zero = (pairs.low > 0) | (pairs.high < 0)
pairs["verdict"] = np.where(excludes_zero, "separated", "cannot tell")
print(f"{excludes_zero.sum()} of {len(pairs)} pairs are separated")

# %%
chart, axes = plt.subplots(figsize=(9, 4.6), layout="constrained")
shown = pairs[pairs["second"] != "bitfit"].sort_values("percent", ignore_index=True)
for verdict, part in shown.groupby("verdict"):
    bar = [part.percent - part.low, part.high - part.percent]
    axes.errorbar(part.percent, part.index, xerr=bar, fmt="o", capsize=3, label=verdict)
axes.set_yticks(shown.index, shown["second"] + " above " + shown["first"])
axes.axvline(0, color="black", linestyle="--")
axes.set_xlabel("difference of perplexities (%), corrected for 21 pairs")
axes.set_title("Without BitFit only four pairs are separated, all with full")
chart.legend(loc="outside lower center", ncols=2, frameon=False)
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# Only ten: `bitfit` is separated from all six others (not drawn), and `full` from `freeze_lower`, `last_layers`, `lora`
# and `qlora`. But "cannot tell" does not mean "equal": `qlora` may be 10% worse than `lora` or 8% better.
#
# Our first pair is not among them: `interval` separates it as a single question, but not as one of 21, as the
# correction raises $t$ for three seeds from 4.3 to 20. The remedy is more seeds: with five, $t$ is 6.8. Or decide
# *before* the runs that only the six pairs with `full` matter: then $t$ is 11, and all six are separated.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Export it
#
# `course.provenance` says how the record came about.
#
# For your texts in a folder `notes/`, `python -m tlkit compare --strategies full,lora --corpus notes/ --tune --output
# results/notes` does this, but `tl.compare_pairs` estimates the effect of a seed from all strategies together, so $t$
# is smaller: here it separates 15 pairs. This is valid only if another seed changes every difference about as much; if
# you do not know that, trust ours.

# %%
folder = Path("../results")
folder.mkdir(exist_ok=True)
search.to_csv(folder / "my_search.csv")
tested.to_csv(folder / "my_runs.csv", index=False)
pairs.round(2).to_csv(folder / "pairs.csv", index=False)
(folder / "pairs.txt").write_text(course.provenance("tiny"), encoding="utf-8")
chart.savefig(folder / "pairs.png", dpi=200)
chart.savefig(folder / "pairs.svg")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What may be said
#
# *For the bundled model, after one pass over 200 Rust passages at the rates of our search, at 95% for all 21 pairs over
# 40 documents and three seeds*, the record supports:
#
# - The perplexity of `lora` on Rust text is 19% above that of `full` (7% to 32%).
# - It is lower than that of `bitfit`.
#
# It does not support these:
#
# - LoRA is worse than full fine-tuning.
# - `lora` and `qlora` are equal.
#
# The second takes "cannot tell" for "equal". The first leaves out conditions, such as the model. SmolLM2-135M read the
# same passages. **Does LoRA cost it as much?** The two tokenizers differ, so we count nats *per document*, and subtract
# one model's difference from the other's. Chance has three sources, the documents and each model's seeds.

# %%
smollm = course.recorded("smollm2-135m-instruct/documents")
for first, second in (("full", "lora"), ("lora", "qlora")):
    ours, smol = (subtract(data, first, second, "nats") for data in (documents, smollm))
    seeds = [cost.groupby("seed").mean() for cost in (ours, smol)]
    gaps = (smol - ours).groupby("document").mean()
    gap, half = gaps.mean(), half_width([gaps, *seeds], 0.95)
    print(f"{second} - {first}: ours {ours.mean():.1f}, SmolLM2 {smol.mean():.1f}")
    print(f"  gap {gap:.1f} ({gap - half:.1f} to {gap + half:.1f}) nats per document")

# %% [markdown] slideshow={"slide_type": "subslide"}
# No: LoRA costs SmolLM2 18.5 nats a document less than our model, and the step from LoRA to QLoRA costs it 6.2 more.
# Both intervals exclude zero, even at 97.5% for the two questions, so the models differ here.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A comparison is fair if all strategies have the same text, the same seeds and the same search for a learning rate.
# - Subtract document by document, and seed by seed. Two strategies are separated if the interval of their difference,
#   over documents and seeds, excludes zero.
# - With many pairs, divide 0.05 by their number. An interval that includes zero means "cannot tell", not "equal".
#
# ## Further reading
#
# - Miller 2024, [Adding error bars to evals](https://arxiv.org/abs/2411.00640): paired differences for language models.
# - Banerjee 1960, Approximate confidence interval for linear functions of means of k populations when the population
#   variances are not equal, *Sankhyā* 22, 357-358: our formula.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex15_1", 1)`. After
# *Restart Kernel* run the next cell first.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** Two strategies were trained with three seeds each. Over documents, the first has a perplexity of 66 to 79
# and the second of 69 to 83. Seed by seed, the second's is 2.9 to 4.9 higher. All are intervals at 95%. Do they differ?
#
# - **a** No: the first two intervals overlap.
# - **b** Not yet: more seeds must make those two narrower, until they no longer overlap.
# - **c** Yes, on these documents: the interval of the difference excludes zero.
# - **d** Yes, and on any text about Rust: the interval of the difference excludes zero.

# %%
course.quiz("quiz15")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 15.1.** Write a judge for your own studies. `losses` has a row for each document and run, with the columns
# `strategy`, `seed`, `document` and `loss`. All runs read the same documents, but runs that failed are missing, so
# compare on the seeds that both strategies have. `questions` is the number of pairs in the study. Return the name of
# the better of the strategies `first` and `second` if the interval of their difference, over documents and seeds and
# corrected for the questions, excludes zero, and otherwise `"cannot tell"`.

# %%
from scipy import stats


def verdict(losses, first, second, questions=1):
    """The better of two strategies, or "cannot tell"."""
    # your code here


course.check("ex15_1", verdict)

# %% [markdown]
# Previous: [14 · Preferences](14_preferences.ipynb) ·
# Next: [16 · The autopsy](16_autopsy.ipynb)
