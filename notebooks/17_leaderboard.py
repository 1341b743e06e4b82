# %% [markdown] slideshow={"slide_type": "slide"}
# # 17 · The leaderboard
#
# *Which rows of a published leaderboard can be told apart, and what would it cost to know more?*
#
# A leaderboard puts methods in an order, but few say how sure a score is. Here you work that out for a comparison of
# fine-tuning methods by the authors of peft.
#
# **You will be able to**
#
# - compute intervals of scores and of their differences for any published table of accuracies;
# - say what a single run of each method cannot show;
# - read a Pareto chart with its uncertainty, and plan how many questions or seeds an answer takes.
#
# **You need** [lesson 15](15_comparison.ipynb) for intervals of differences and Bonferroni's correction, and [lesson
# 13](13_classification.ipynb) for McNemar's test.
#
# About 32 minutes.

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each row of the [table](https://github.com/huggingface/peft/tree/main/method_comparison/MetaMathQA) (Apache-2.0) is
# one *experiment*: a method with certain settings. All experiments fine-tune Llama-3.2-3B for 5,000 steps on maths
# problems with solutions. The score is the share of the 1,319 test questions of GSM8K, a set of school maths, that the
# model answers correctly. We leave out one of 63 rows, which ran later with newer libraries.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import stats

import course
import tlkit as tl

n = 1319  # questions in the test
folder = tl.DATA / "leaderboards"
board = pd.read_csv(folder / "peft_metamathqa.csv")
board = board.drop(20).reset_index(drop=True)  # the row that ran later
names = board.experiment.str.replace("/llama-3.2-3B", "")  # the model, always the same
board["name"] = names.str.replace("-random_seed_42", "")  # an option of SHiRA
scores = board.set_index("name").test_accuracy  # shares, best first
p = scores.to_numpy()
board["peak_GB"] = board.peak_memory_bytes / 1e9
board[["name", "method", "peak_GB", "test_accuracy"]].iloc[[0, 9, 61]].round(3)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The first place leads the tenth by 3.5 points. Is its model better, or was it only lucky with the questions? To find
# out, suppose that only the choice of questions is random.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How sure is one score?
#
# Suppose a model answers a share $p$ of all questions of this kind correctly, and the test draws $n$ of them. A single
# answer counts 1 or 0, so its variance is $p (1 - p)$. The mean of $n$ answers has a variance that is $n$ times
# smaller, so the [standard error](glossary.md#standard-error) of the score is
#
# $$e = \sqrt{\frac{p (1 - p)}{n}}$$
#
# We do not know the true $p$ and use the score in its place. The 95% interval is $p \pm 1.96\,e$. **How many of the
# next nine scores lie inside the interval of the first?**

# %%
error = np.sqrt(p * (1 - p) / n)  # shape (62,)
print(f"standard error of the first row: {100 * error[0]:.2f} points")
ends = {"score": p, "low": p - 1.96 * error, "high": p + 1.96 * error}
table = 100 * pd.DataFrame(ends, scores.index)
ten = table[9::-1]  # from below, as the chart is drawn

figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
axes.hlines(ten.index, ten.low, ten.high)
axes.plot(ten.score, ten.index, "o")
axes.axvspan(table.low.iloc[0], table.high.iloc[0], alpha=0.1)
axes.set_xlabel("answered correctly (%, 95% intervals; shaded: the first one)")
axes.set_title("The first interval contains 6 of the 9 other scores")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# Six do. Places 8 to 10 lie outside, but this does not make them worse, because their own scores are just as uncertain.
# We need the interval of the difference.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How sure is a difference?
#
# For two rows $A$ and $B$ the standard error of the difference is
#
# $$e_{AB} = \sqrt{e_A^2 + e_B^2 - 2 \rho e_A e_B}$$
#
# where $\rho$ is the *correlation* of their answers: 1 if both models are right on the same questions, and 0 if the
# answers of one say nothing about those of the other. It is almost always positive, because a hard question is hard for
# both. Easy questions then lift both scores together, and the difference varies less. The table does not say who
# answered which question, so we take $\rho = 0$ and get intervals that are too wide rather than too narrow.
#
# We call a pair *separated* if its interval excludes zero. Among many pairs of equal models some would be separated by
# luck, so with $m$ pairs Bonferroni's correction gives each an interval at $1 - 0.05/m$, so that all hold in at least
# 95% of tests. The first ten rows form only 45 pairs. But we picked them by their scores from all 62 rows, so $m$ is
# 1,891, the number of all pairs. **How many of the 45 pairs are separated?** The output compares the first and the
# tenth, without the correction ($m = 1$) and with it.


# %%
def intervals(scores, n, count):
    """Difference of each pair in points, its interval corrected for `count` pairs."""
    first, second = np.triu_indices(len(scores), k=1)  # places of all pairs
    p, names = scores.to_numpy(), scores.index
    e = np.sqrt(p * (1 - p) / n)
    factor = stats.norm.ppf(1 - 0.05 / count / 2)  # 1.96 for one pair
    reach = factor * np.hypot(e[first], e[second])
    lead = p[first] - p[second]
    index = pd.MultiIndex.from_arrays([names[first], names[second]])
    columns = {"difference": lead, "low": lead - reach, "high": lead + reach}
    pairs = 100 * pd.DataFrame(columns, index).rename_axis(["first", "second"])
    return pairs.assign(separated=(pairs.low > 0) | (pairs.high < 0))


first_ten = intervals(scores.head(10), n, 1891)  # 45 pairs
course.claim("No pair of the first ten is separated", not any(first_ten.separated))
pair = scores.iloc[[0, 9]]  # the first row and the tenth
pd.concat({m: intervals(pair, n, m) for m in (1, 1891)}, names=["m"]).round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# None. Even without the correction, the first and the tenth row cannot be told apart. **From how many of the 61 other
# rows is the first one separated?**

# %%
every = intervals(scores, n, 1891)
print(f"separated: {every.separated.sum():,} of all {len(every):,} pairs")

against = every.loc[scores.index[0]]
color = np.where(against.separated, "C1", "grey")
figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
axes.vlines(range(2, 63), against.low, against.high, color=color)
axes.scatter(range(2, 63), against.difference, color=color, s=12)
axes.axhline(0, color="black", linestyle="--")
axes.set(xlabel="place of the other row", ylabel="lead of the first row (points)")
axes.set_title("The first row is separated from 38 others (orange)")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# From 38: all rows from place 25 on. By this cautious test the 23 others may be as good.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What the answers to each question would add
#
# With the answers we could compute $\rho$. Without them, we try four values for the first and the tenth row. (Answers
# of leading models correlate by [0.3 to 0.7](https://www.anthropic.com/research/statistical-approach-to-model-evals).)
# We take $m = 1$, as if we had chosen this pair beforehand, and $m = 1891$. **In which cases is the lower end of the
# interval above zero?**

# %%
rho = np.array([0, 0.3, 0.7, 0.85])
e = np.sqrt(error[0] ** 2 + error[9] ** 2 - 2 * rho * error[0] * error[9])
cases = pd.DataFrame({"rho": rho})
for m in (1, 1891):
    factor = stats.norm.ppf(1 - 0.05 / m / 2)  # 1.96 and 4.20
    cases[f"low (m = {m})"] = 100 * (p[0] - p[9] - factor * e)
cases.round(2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# For a pair chosen beforehand the lower end is above zero from 0.3 on, with the correction only at 0.85. So with 0.3 to
# 0.7 the answers would separate a planned pair, but not a picked one. With the answers at hand, take the differences on
# each question, as in lesson 15.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What another run could change
#
# So far only the questions varied. But each experiment was run once, with seed 0, and another run gives another model.
# The repository holds more runs with the same [seed](glossary.md#seed) and settings, on the same kind of graphics card.
# In June 2025, 25 experiments were run twice within days, with the same versions of torch, transformers and peft. **How
# many of these scores stay the same?**

# %%
runs = pd.read_csv(folder / "peft_metamathqa_reruns.csv")  # oldest first
june = runs[runs.created.between("2025-06-17", "2025-06-20")]
twice = june.groupby("experiment").test_accuracy.agg(["size", "first", "last"])
twice = twice[twice["size"] == 2]
same = 100 * (twice["last"] - twice["first"])
print(f"{(same == 0).sum()} of {len(same)} scores did not change")
print(f"standard deviation of the changes: {same.std():.2f} points")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Only four. The likely reason is that a graphics card adds numbers in a varying order, and over 5,000 steps such
# differences grow. Each change is the difference of two runs and has twice the variance of one, so one run's standard
# deviation is $0.58 / \sqrt 2 = 0.4$ points, against 1.37 from the choice of questions.
#
# 38 experiments of January 2026 were run again in July, with newer versions. **Do their scores change more?** (`gsm8k`:
# the data set's revision.)

# %%
runs["month"] = runs.created.str[:7]
monthly = 100 * runs.pivot_table("test_accuracy", "experiment", "month", aggfunc="last")
newer = (monthly["2026-07"] - monthly["2026-01"]).dropna()
figure, axes = plt.subplots(figsize=(9, 2.8), layout="constrained")
bins = np.arange(-4.5, 2.1, 0.5)
axes.hist(same, bins, alpha=0.6, label="the same versions, June 2025")
axes.hist(newer, bins, alpha=0.6, label="newer versions, January to July 2026")
axes.set(xlabel="change (points)", ylabel="experiments", yticks=[0, 5, 10, 15])
axes.set_title("With newer versions, 36 of 38 scores fell")
axes.legend(loc="upper left")
plt.show()

print(f"mean change with newer versions: {newer.mean():.2f} points")
versions = runs.groupby("month")[["peft", "torch", "transformers", "gsm8k"]].first()
versions.loc[["2026-01", "2026-07"]]

# %% [markdown] slideshow={"slide_type": "subslide"}
# They do: 36 of 38 fell; the mean change is −1.65 points. The cause stays open: all versions changed together. Torch
# alone is unlikely: 12 other experiments that got it from April to July did not fall on average. [peft's
# authors](https://github.com/huggingface/peft/pull/3445) name the versions and chance. So compare only scores with the
# same libraries, script and test data. Another seed should matter more than a repetition, because it also changes the
# adapter's first weights.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A row is not a method
#
# The best learning rate differs from method to method, as lesson 15 showed. Yet 37 of the 62 experiments use the same
# default rate, 1e-4. We compare two rows of one method, IA3.

# %%
every.loc[[("ia3-lr_0.001", "ia3-default")]].round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With ten times the default rate (and less weight decay) IA3 gains 8.7 points, more than lies between places 1 and 24.
# So a low place may only mean that the settings did not suit the method. With [tuned
# rates](https://arxiv.org/abs/2602.04998), variants of LoRA differed by only 1 to 2%.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## More than one goal: the front
#
# A row is on the [Pareto front](glossary.md#pareto-front) of accuracy and memory if no other row is at least as good in
# both and better in one. Sorted by memory, these are the rows that score higher than all rows before them.
#
# But the scores are uncertain, and so is the front. We let every row take a simulated test 2,000 times. Each new score
# comes from a normal distribution around the published one, with its standard error. All rows share half of this
# variance, because easy questions lift all of them. This makes $\rho = 0.5$. **In what share of the draws will the most
# accurate row still be on the front?**


# %%
def on_front(scores):
    """Which rows beat all cheaper ones; `scores`: (draws, rows), sorted by memory."""
    best_before = np.maximum.accumulate(scores, axis=1)[:, :-1]
    cheapest = np.ones((len(scores), 1), dtype=bool)
    return np.hstack([cheapest, scores[:, 1:] > best_before])


front = board[["name", "peak_GB"]].assign(accuracy=100 * p)
front = front.sort_values("peak_GB", kind="stable")
accuracy = front.accuracy.to_numpy() / 100
front["published"] = on_front(accuracy[None])[0]
rng = np.random.default_rng(0)
shared, own = rng.normal(size=(2000, 1)), rng.normal(size=(2000, 62))
luck = 0.5**0.5 * shared + 0.5**0.5 * own  # of variance 1
drawn = accuracy + np.sqrt(accuracy * (1 - accuracy) / n) * luck
front["stays"] = on_front(drawn).mean(axis=0)  # share of the draws
front[front.published].drop(columns="published").round(2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# In 64%. This row, the last in the table, needs 25.6 GB, and one of several cheaper rows with nearly the same score
# often overtakes it.

# %%
shown = front[(front.accuracy > 36) & (front.peak_GB < 30)]  # without two of the front
figure, axes = plt.subplots(figsize=(9, 4.6), layout="constrained")
dots = axes.scatter(shown.peak_GB, shown.accuracy, c=shown.stays, cmap="viridis_r")
figure.colorbar(dots, label="share of draws on the front")
line = shown[shown.published]
axes.step(line.peak_GB, line.accuracy, where="post", color="grey", linewidth=0.8)
for row in line.itertuples():
    side = "center" if row.name == "lora-rank64-rslora" else "right"  # of the label
    axes.annotate(row.name, (row.peak_GB, row.accuracy + 0.4), ha=side)
axes.set(xlim=(18.7, 26.5), ylim=(36.5, 54), xlabel="peak memory (GB, lower is better)")
axes.set_ylabel("accuracy (%, higher is better)")
axes.set_title("miss-default stays on the front, the most accurate row often does not")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# `miss-default` is on the front in all draws: it reaches 48.7% with 20.3 GB, and nothing cheaper comes close. So the
# table tells you how to save memory, but hardly how to gain the last points.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What would it cost to know?
#
# Suppose you plan a test for one pair chosen beforehand. It should detect a true difference $d$ of one point in 80% of
# all cases (its [power](glossary.md#power)). The interval excludes zero if the measured difference is above
# $1.96\,e_{AB}$, and in 80% of all tests the measured difference is above $d - 0.84\,e_{AB}$. So $d$ has to be $1.96 +
# 0.84 = 2.8$ standard errors. If both models have about the accuracy $p$, then $e_{AB}^2 = 2 p (1 - p) (1 - \rho) / n$,
# and the test needs
#
# $$n = 2 p (1 - p) (1 - \rho) \left(\frac{2.8}{d}\right)^2$$
#
# **How many questions does one point take, for two models that answer about half of them correctly?**

# %%
factor = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)  # 2.8
points = pd.Index([5.5, 3.9, 1], name="points")  # d; 1,319 questions detect 5.5 or 3.9
needed = 2 * 0.5 * 0.5 * (factor / (points.to_numpy() / 100)) ** 2
plan = pd.DataFrame({f"rho = {rho}": needed * (1 - rho) for rho in (0, 0.5)}, points)
plan.round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# It takes 39,000, 30 times as many as this test has. Its 1,319 detect 5.5 points. If the answers to each question were
# published and correlated by 0.5, half as many would do, and 1,319 would detect 3.9 points. So publishing the answers
# is the cheapest improvement.
#
# More seeds answer another question: is one *method* better on these 1,319 questions? If one seed's score has the
# standard deviation $s$, the mean of $k$ seeds has the variance $s^2 / k$, and for two methods $e_{AB}^2 = 2 s^2 / k$.
# We only estimate $s$, so Student's $t$ with $2 (k - 1)$ degrees of freedom replaces 1.96 and 0.84. **How many seeds
# does one point take** if a seed matters as little as a repetition ($s = 0.4$), or more ($s = 1$)?


# %%
def seeds_needed(s, d=1):
    """Seeds of each method that detect d points, if one seed varies by s points."""
    k = 2
    while stats.t.ppf([0.975, 0.8], 2 * (k - 1)).sum() * s * (2 / k) ** 0.5 > d:
        k += 1
    return k


for s in (0.4, 1):
    hours = 2 * seeds_needed(s) * board.train_seconds.median() / 3600  # on their card
    print(f"s = {s}: {seeds_needed(s)} seeds of each method, {hours:.1f} h of training")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Four seeds of each method if $s = 0.4$, and 17 if $s = 1$. More seeds do not replace more questions, because every
# seed takes the same test.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The way it is done at work
#
# Keep `intervals` and `seeds_needed`. But `intervals` takes one $n$ for all rows, and with $e = 0$ calls a score of 0
# certain. `tl.audit` fixes both. We give it the scores of lesson 12's 27 runs on 96 bug reports. **How many of the 351
# pairs are separated?**

# %%
answers = pd.read_csv(tl.DATA / "tickets/runs/answers.csv").query("split == 'test'")
tests = answers.pivot(index="id", columns="run", values="exact").filter(like="cuda")
tests.columns = tests.columns.str.removesuffix("-renamed-test-cuda")
totals = tests.mean().rename("accuracy").reset_index()
audit = tl.audit(totals, "accuracy", len(tests), name="run")
print(f"separated: {audit.pairs.separated.sum()} of {len(audit.pairs)} pairs")
setting = totals.run.str.rsplit("-", n=1).str[0]  # without the seed
(100 * totals.groupby(setting).accuracy.agg(["min", "mean", "max"])).round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The scores separate 114 pairs of runs, and with the answers McNemar's exact test separates 122 (exercise 17.1). **On
# how many reports do two runs differ, LoRA after 288 and after 72 steps?**

# %%
long, short = tests["lora-285-288-0.001-0"], tests["lora-285-72-0.002-0"]
alone = 196 * np.hypot(long.sem(ddof=0), short.sem(ddof=0))  # as if rho were 0
paired = 196 * (long - short).sem(ddof=0)  # 1.96 standard errors, in points
print(f"± {alone:.1f} -> ± {paired:.1f} points, rho = {long.corr(short):.2f}")
pd.crosstab(long, short)

# %% [markdown] slideshow={"slide_type": "subslide"}
# On 31: only the longer run solves 25, only the shorter 6. The 65 others cancel in `long - short`, so the interval
# narrows from 19.8 ± 13.4 points to 19.8 ± 10.7, as for $\rho = 0.37$ and $m = 1$.
#
# But each of the nine settings has three seeds, up to 8.3 points apart, so compare their means. After 288 steps LoRA
# leads full fine-tuning by 4.2 points, but Student's $t$ gives −1.3 to 9.6. With $s = 2.4$, seven seeds could tell:
# `seeds_needed(2.4, 4.2)`.
#
# After `totals.to_csv("table.csv")` you can also run `python -m tlkit audit table.csv --metric accuracy --items 96`.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - With a thousand questions, a difference of a few points may be chance. Paired answers to each question decide more.
# - A table with one seed compares trained models, not methods. Compare only scores with the same libraries, script and
#   test data.
# - A Pareto front is as uncertain as the scores on it.
#
# ## Further reading
#
# - Miller 2024, [Adding error bars to evals](https://arxiv.org/abs/2411.00640), on paired differences and planning.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex17_1", 1)`. After
# *Restart Kernel* run the next cell first.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** On a leaderboard, method A has 51.3% and method B 50.2%, each trained once. The test has 1,319 questions, so
# the standard error of the difference is about 1.9 points. What may be concluded?
#
# - **a** A is better than B, by about a point.
# - **b** A and B are equally good.
# - **c** This test does not tell the two models apart, and one run says little about the methods.
# - **d** With five seeds of each, this test would show which of the two is better.

# %%
course.quiz("quiz17")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 17.1.** Write the tool for tables whose answers to each question are published. `answers` is a DataFrame
# with one row for each question and one column for each model, 1 for right and 0 for wrong. Return a list of all
# separated pairs of models, each a tuple of two column names. Use McNemar's exact test (`stats.binomtest`) and
# Bonferroni's correction for the number of pairs.
#
# With a right answer `len(separated_pairs(real))` is 122.

# %%
from itertools import combinations

import pandas as pd
from scipy import stats


def separated_pairs(answers):
    """All pairs of columns that differ by McNemar's exact test, corrected."""
    # your code here


answers = pd.read_csv(tl.DATA / "tickets/runs/answers.csv").query("split == 'test'")
real = answers.pivot(index="id", columns="run", values="exact").filter(like="cuda")
course.check("ex17_1", separated_pairs)

# %% [markdown]
# Previous: [16 · The autopsy](16_autopsy.ipynb) ·
# Next: [18 · Scaling out](18_scaling_out.ipynb)
