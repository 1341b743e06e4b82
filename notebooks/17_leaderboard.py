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
# - say what a single run of each method, with one version of each library, cannot show;
# - read a Pareto chart with its uncertainty, and plan how many questions or seeds an answer takes.
#
# **You need** [lesson 15](15_comparison.ipynb) for intervals of differences and Bonferroni's correction.
#
# About 32 minutes.

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each of the 63 rows is one *experiment*: a method with certain settings. Most methods are relatives of LoRA. All
# fine-tune Llama-3.2-3B for 5,000 steps on maths problems with solutions. The score is the share of GSM8K's 1,319 test
# questions, also school maths, that the model then answers correctly. The table comes from [peft's
# repository](https://github.com/huggingface/peft/tree/main/method_comparison/MetaMathQA) (Apache-2.0).

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
names = board.experiment.str.replace("/llama-3.2-3B", "")  # the model, always the same
board["name"] = names.str.replace("-random_seed_42", "")  # an option of SHiRA
scores = board.set_index("name").test_accuracy  # shares, best first
p = scores.to_numpy()
board["peak_GB"] = board.peak_memory_bytes / 1e9
places = [0, 9, 62]  # the first row, the tenth and the last
board[["name", "method", "peak_GB", "test_accuracy"]].iloc[places].round(3)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The first ten lie within 3.5 points. **How many of their 45 pairs can be told apart?** Suppose that only the choice of
# the 1,319 questions is random.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How sure is one score?
#
# Suppose a model answers a share $p$ of all questions of this kind correctly, and the test draws $n$ of them. A single
# answer counts 1 or 0, so its variance is $p (1 - p)$. The mean of $n$ answers has a variance that is $n$ times
# smaller, so the [standard error](glossary.md#standard-error) of the score is
#
# $$e = \sqrt{\frac{p (1 - p)}{n}}$$
#
# We do not know the true $p$ and use the score in its place. The 95% interval is $p \pm 1.96\,e$. (Near 0% or 100% it
# would leave the scale, so take the [Wilson interval](glossary.md#wilson-interval) there.)

# %%
error = np.sqrt(p * (1 - p) / n)  # shape (63,)
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

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How sure is a difference?
#
# Places 8 to 10 lie outside the shaded interval. But this does not make them worse, because their own scores are just
# as uncertain. We need the interval of the difference. For two rows $A$ and $B$ its standard error is
#
# $$e_{AB} = \sqrt{e_A^2 + e_B^2 - 2 \rho e_A e_B}$$
#
# where $\rho$ is the *correlation* of their answers: 1 if both models are right on the same questions, and 0 if the
# answers of one say nothing about those of the other. A hard question is hard for both, so $\rho$ is almost always
# positive. The table does not say who answered which question, so we take $\rho = 0$ and get intervals that are too
# wide rather than too narrow.
#
# With $m$ pairs, Bonferroni's correction gives each an interval at $1 - 0.05/m$. The first ten were picked by their
# scores, so $m$ is not 45 but 1,953, the number of all pairs. We compare the two ends of the ten without the correction
# ($m = 1$) and with it.


# %%
def intervals(scores, n, count):
    """Difference of each pair in points, its interval corrected for `count` pairs."""
    one, other = np.triu_indices(len(scores), k=1)  # places of all pairs
    p, names = scores.to_numpy(), scores.index
    e = np.sqrt(p * (1 - p) / n)
    factor = stats.norm.ppf(1 - 0.05 / count / 2)
    reach = factor * np.hypot(e[one], e[other])
    d = p[one] - p[other]
    # two names for each row, so that pairs.loc[one, other] works
    index = pd.MultiIndex.from_arrays([names[one], names[other]])
    pairs = pd.DataFrame({"difference": d, "low": d - reach, "high": d + reach}, index)
    apart = (pairs.low > 0) | (pairs.high < 0)
    return (100 * pairs).rename_axis(["one", "other"]).assign(separated=apart)


first_ten = intervals(scores.head(10), n, 1953)  # 45 pairs
course.claim("No pair of the first ten is separated", not any(first_ten.separated))
pair = scores.iloc[[0, 9]]  # the first row and the tenth
pd.concat({m: intervals(pair, n, m) for m in (1, 1953)}, names=["m"]).round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Even without the correction, the first and the tenth row cannot be told apart. The 44 other pairs lie closer together.

# %%
every = intervals(scores, n, 1953)
alone = intervals(scores, n, 1).separated.sum()
print(f"separated: {every.separated.sum():,} of {len(every):,}; uncorrected {alone:,}")

against = every.loc[scores.index[0]]
shade = np.where(against.separated, "C1", "grey")
figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
axes.vlines(range(2, 64), against.low, against.high, color=shade)
axes.scatter(range(2, 64), against.difference, color=shade, s=12)
axes.axhline(0, color="black", linestyle="--")
axes.set(xlabel="place of the other row", ylabel="lead of the first row (points)")
axes.set_title("The first row is separated from 38 others (orange)")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# The correction costs 360 pairs, the price of being right about all pairs at once with 95% probability. The first row
# is separated from all rows from place 26 on, so 24 other rows could be as good as the winner.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What the answers to each question would add
#
# With the answers, each question would give a difference: 1 if only the first model is right, −1 if only the other is,
# and 0 otherwise. As in lesson 13, let $b$ and $c$ be the numbers of questions that only the first and only the other
# gets right. Then the mean difference is $(b - c)/n$, and its variance is the mean of the squares, $(b + c)/n$, minus
# the square of this mean. So the fewer questions the two disagree on, the smaller the standard error.
#
# The first row answered 694 questions correctly and the tenth 648, so $b - c = 46$, but the table does not tell us $b +
# c$. We try four values, with $m = 1$, as if we had chosen this pair beforehand, and with $m = 1953$. **In which cases
# is the lower end of the interval above zero?**

# %%
disagree = np.array([660, 460, 180, 100])  # b + c
e = np.sqrt((disagree / n - (46 / n) ** 2) / n)
rho = (error[0] ** 2 + error[9] ** 2 - e**2) / (2 * error[0] * error[9])
cases = pd.DataFrame({"disagree on": disagree, "correlation": rho})
for m in (1, 1953):
    factor = stats.norm.ppf(1 - 0.05 / m / 2)  # 1.96 and 4.21
    cases[f"low (m = {m})"] = 100 * (46 / n - factor * e)
cases.round(2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With 660 disagreements $\rho$ is 0, as above. If we had chosen the pair beforehand, the three other cases would
# separate the two models. With the correction, only the last does.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What another run could change
#
# So far only the questions varied. But each experiment was run once, with seed 0. The repository's history holds second
# runs with the same [seed](glossary.md#seed) and settings, on the same kind of graphics card. In June 2025, 25
# experiments were run twice within days, with the same versions of torch, transformers and peft. In July 2026, 38
# experiments of January were run again, with newer versions. **How much does a score change in each case?**

# %%
runs = pd.read_csv(folder / "peft_metamathqa_reruns.csv")  # oldest first
june = runs[runs.created.between("2025-06-17", "2025-06-20")]
twice = june.groupby("experiment").test_accuracy.agg(["size", "first", "last"])
same = 100 * (twice["last"] - twice["first"])[twice["size"] > 1]
months = ["experiment", runs.created.str[:7]]
by_month = runs.groupby(months).test_accuracy.last().unstack()
newer = 100 * (by_month["2026-07"] - by_month["2026-01"]).dropna()

figure, axes = plt.subplots(figsize=(9, 2.8), layout="constrained")
bins = np.arange(-4.25, 2, 0.5)
axes.hist(same, bins, alpha=0.6, label="the same versions, June 2025")
axes.hist(newer, bins, alpha=0.6, label="newer versions, January to July 2026")
axes.set(xlabel="change (points)", ylabel="experiments", yticks=[0, 5, 10, 15])
axes.set_title("With newer versions nearly all scores fell")
axes.legend()
plt.show()

one_run = same.std() / 2**0.5
low, high = one_run * np.sqrt(24 / stats.chi2.ppf([0.975, 0.025], 24))  # 25 - 1
print(f"same versions: {(same == 0).sum()} of {len(same)} scores did not change")
print(f"one run varies by {one_run:.1f} points (95% interval {low:.1f} to {high:.1f})")
print(f"newer: {(newer < 0).sum()} of {len(newer)} fell, mean {newer.mean():.2f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **With the same versions** 21 of 25 scores changed, although nothing was meant to change. The likely reason is that a
# graphics card adds numbers in a varying order, and over 5,000 steps such differences grow. Each change is the
# difference of two runs, so its variance is twice that of one run, which therefore has a standard deviation of $0.6 /
# \sqrt 2 = 0.4$ points.
#
# **With newer versions** 36 of 38 scores [fell](https://github.com/huggingface/peft/pull/3445), by 1.65 points on
# average. For example, `lora-rank64-rslora` is third today with 51.3%, but in January it had 53.2%, more than today's
# winner. So compare only scores from the same versions.
#
# Another seed also changes the order of the batches, so it should matter more than a repetition. A table with one seed
# cannot show by how much.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A row is not a method
#
# The best learning rate differs from method to method, as lesson 15 showed. Yet 37 of the 63 experiments use the same
# default rate, 1e-4. We compare two rows of one method, IA3.

# %%
chosen = [("ia3-lr_0.001", "ia3-default")]
every.loc[chosen].round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With ten times the default rate (and less weight decay) IA3 gains 8.7 points, more than lies between places 1 and 25.
# So a low place may only mean that the settings did not suit the method. With [tuned
# rates](https://arxiv.org/abs/2602.04998), variants of LoRA differed by only 1 to 2%.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## More than one goal: the front
#
# A row is on the [Pareto front](glossary.md#pareto-front) of accuracy and memory if no other row is at least as good in
# both and better in one. Sorted by memory, these are the rows that score higher than all rows before them.
#
# But scores are uncertain, so we let every row take the test again, 2,000 times. Each new score comes from a normal
# distribution around the published one, with its standard error. All rows share half of this variance, because easy
# questions lift all of them. This makes $\rho = 0.5$. (Answers of leading models correlate by [0.3 to
# 0.7](https://www.anthropic.com/research/statistical-approach-to-model-evals).) **In what share of the draws will the
# most accurate row still be on the front?**


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
shared, own = rng.normal(size=(2000, 1)), rng.normal(size=(2000, 63))
luck = 0.5**0.5 * shared + 0.5**0.5 * own  # of variance 1
drawn = accuracy + np.sqrt(accuracy * (1 - accuracy) / n) * luck
front["stays"] = on_front(drawn).mean(axis=0)  # share of the draws
front[front.published].drop(columns="published").round(2)

# %%
shown = front[(front.accuracy > 36) & (front.peak_GB < 30)]
figure, axes = plt.subplots(figsize=(9, 4.6), layout="constrained")
dots = axes.scatter(shown.peak_GB, shown.accuracy, c=shown.stays, cmap="viridis_r")
figure.colorbar(dots, label="share of draws on the front")
line = shown[shown.published]
axes.step(line.peak_GB, line.accuracy, where="post", color="grey", linewidth=0.8)
for row in line.itertuples():
    side = "left" if row.name == "lora-rank64-rslora" else "right"  # of the label
    axes.annotate(row.name, (row.peak_GB, row.accuracy + 0.3), ha=side)
axes.set(xlim=(18.7, 26.5), ylim=(36.5, 54), xlabel="peak memory (GB, lower is better)")
axes.set_ylabel("accuracy (%, higher is better)")
axes.set_title("miss-default stays on the front, the most accurate row often does not")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# `miss-default` is on the front in all draws: it reaches 48.7% with 20.3 GB, and nothing cheaper comes close. The most
# accurate row needs 25.6 GB. It stays on the front in only 62% of the draws, because one of several cheaper rows with
# nearly the same score often overtakes it. So the table tells you how to save memory, but hardly how to gain the last
# points. (The shares are a rough guide, as the published scores already contain chance. With $\rho = 0$ the 62% would
# be 45%.)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What would it cost to know?
#
# We want to detect a true difference $d$ of one point in 80% of all tests (the [power](glossary.md#power)), for one
# pair chosen beforehand. The measured difference is above $d - 0.84\,e_{AB}$ in 80% of the tests, and has to be above
# $1.96\,e_{AB}$ so that the interval excludes zero. So $d$ has to be $1.96 + 0.84 = 2.8$ standard errors. With
# $e_{AB}^2 = 2 p (1 - p) (1 - \rho) / n$ this gives
#
# $$n = 2 p (1 - p) (1 - \rho) \left(\frac{2.8}{d}\right)^2$$
#
# Seeds answer another question: is one *method* better on these 1,319 questions? If one seed's score has the standard
# deviation $s$, then $e_{AB}^2 = 2 s^2 / k$ with $k$ seeds of each method. Since $s$ is estimated from these seeds,
# with $2 (k - 1)$ degrees of freedom, Student's $t$ replaces 1.96 and 0.84. It depends on $k$, so we try $k=2,3,\dots$
# until the seeds suffice.
#
# **How many questions does one point take, for two models that answer about half of them correctly?**

# %%
factor = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)  # 2.8
points = pd.Index([5.5, 3.9, 1], name="points")
needed = 2 * 0.5 * 0.5 * (factor / (points.to_numpy() / 100)) ** 2
plan = pd.DataFrame({f"rho = {rho}": needed * (1 - rho) for rho in (0, 0.5)}, points)
plan.round().astype(int)


# %%
def seeds_needed(s, d=1):
    """Seeds of each method that detect d points, if one seed varies by s points."""
    k = 2
    while stats.t.ppf([0.975, 0.8], 2 * (k - 1)).sum() * s * (2 / k) ** 0.5 > d:
        k += 1
    return k


for s in (0.4, 1):
    hours = 2 * seeds_needed(s) * board.train_seconds.median() / 3600  # on their card
    print(f"s = {s}: {seeds_needed(s)} seeds of each method, {hours:.0f} hours")

# %% [markdown] slideshow={"slide_type": "subslide"}
# One point takes 39,000 questions, 30 times as many as this test has. With its 1,319 it detects 5.5 points. If the
# answers to each question were published and correlated by 0.5, half as many questions would do, and 1,319 would detect
# 3.9 points. So to publish the answers is the cheapest improvement.
#
# One point between methods takes 4 seeds of each if a seed matters as little as a repetition (0.4 points), and 17 if
# $s$ is 1 point. More seeds do not replace more questions, because every seed takes the same test.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The way it is done at work
#
# Your `intervals` and `seeds_needed` need only numpy, pandas and scipy, so take them along. But `intervals` has two
# gaps: it takes a score of 0 for certain, because then $e = 0$, and it takes one $n$ for all rows. `tl.audit` has
# neither gap, and adds ranks. Here it reads lesson 12's record of 27 runs on 96 bug reports, whose answers are
# published. **How many of the 351 pairs do their scores separate?**

# %%
answers = pd.read_csv(tl.DATA / "tickets/runs/answers.csv").query("split == 'test'")
# a name holds method, training reports, steps, learning rate and seed
tests = answers.pivot(index="id", columns="run", values="exact").filter(like="cuda")
tests.columns = tests.columns.str.removesuffix("-renamed-test-cuda")
totals = tests.mean().rename("accuracy").reset_index()
audit = tl.audit(totals, "accuracy", len(tests), name="run")
print(f"separated: {audit.pairs.separated.sum()} of {len(audit.pairs)} pairs")
audit.table[["name", "value", "low", "high", "rank"]].iloc[::5].round(3)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The scores separate 114 pairs, and 18 of the 27 runs may be the best. Pairing the answers separates 136, as exercise
# 17.1 shows. The audit is also a command: `python -m tlkit audit table.csv --metric accuracy --items 96`.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - With a thousand questions, a difference of a few points may be chance. Paired answers to each question decide more.
# - A table with one seed compares trained models, not methods. Scores from different library versions do not belong in
#   one table.
# - A Pareto front is as uncertain as the scores on it.
#
# ## Further reading
#
# - Miller 2024, [Adding error bars to evals](https://arxiv.org/abs/2411.00640), on paired differences and planning.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex17_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

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
# with one row for each question and one column for each model, 1 for a right answer and 0 for a wrong one. Return a
# list of all pairs of models that are separated, each pair as a tuple of two column names. Use paired differences, the
# normal distribution, and Bonferroni's correction for the number of pairs.
#
# When it passes, `len(separated_pairs(real))` counts the pairs of lesson 12's 27 runs: 136. (McNemar's exact test finds
# 122, because with 96 questions the normal distribution is rough.)

# %%
from itertools import combinations

import pandas as pd
from scipy import stats


def separated_pairs(answers):
    """All pairs of columns whose corrected interval excludes zero."""
    # your code here


answers = pd.read_csv(tl.DATA / "tickets/runs/answers.csv").query("split == 'test'")
real = answers.pivot(index="id", columns="run", values="exact").filter(like="cuda")
course.check("ex17_1", separated_pairs)

# %% [markdown]
# Previous: [16 · The autopsy](16_autopsy.ipynb) ·
# Next: [18 · Scaling out](18_scaling_out.ipynb)
