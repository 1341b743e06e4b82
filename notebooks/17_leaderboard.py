# %% [markdown] slideshow={"slide_type": "slide"}
# # 17 · The leaderboard
#
# *Which rows of a published leaderboard can be told apart, and what would it cost to know more?*
#
# A leaderboard puts methods in an order, but few say how sure a score is. In this lesson you work that out from the
# scores and the number of test questions, for a comparison of fine-tuning methods by the authors of peft.
#
# **You will be able to**
#
# - compute intervals of scores and of their differences for any published table of accuracies;
# - say what a single run of each method cannot show;
# - read a Pareto chart with its uncertainty, and plan how many questions or seeds an answer takes.
#
# **You need** [lesson 15](15_comparison.ipynb) for intervals of differences and Bonferroni's correction, and
# [lesson 13](13_classification.ipynb) for the Wilson interval.
#
# About 32 minutes.

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each of the 63 rows is one *experiment*: a method with certain settings. Most methods are relatives of LoRA that you
# need not know here. All fine-tune Llama-3.2-3B, a model with 3.2 billion parameters, for 5,000 steps on maths problems
# with solutions. The score is the share of the 1,319 test questions of GSM8K, also school maths, that the model then
# answers correctly. The table comes from [peft's
# repository](https://github.com/huggingface/peft/tree/main/method_comparison/MetaMathQA) (commit 5d602fd, Apache-2.0).

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

figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
axes.bar(range(1, 64), 100 * p, color=["C0"] * 10 + ["lightgrey"] * 53)
axes.set_xlabel("place in the leaderboard")
axes.set_ylabel("answered correctly (%)")
axes.set_title("The first ten of 63 (blue) lie between 52.6% and 49.1%")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** How many of the 45 pairs of the first ten can be told apart? Suppose that only the choice of the
# 1,319 questions is random.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How sure is one score?
#
# Suppose a model answers a share $p$ of all questions of this kind correctly, and the test draws $n$ of them. A single
# answer counts 1 or 0, so its variance is $p (1 - p)$. The mean of $n$ answers has a variance that is $n$ times smaller,
# so the [standard error](glossary.md#standard-error) of the score is
#
# $$e = \sqrt{\frac{p \, (1 - p)}{n}}$$
#
# We do not know the true $p$ and use the score in its place. For the interval of one score we take Wilson's formula from
# lesson 13, because in rows close to zero $p \pm 1.96\,e$ would reach below zero.

# %%
z = stats.norm.ppf(0.975)  # 1.96
error = np.sqrt(p * (1 - p) / n)  # shape (63,)
middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
half = z * np.sqrt(error**2 + z**2 / (4 * n**2)) / (1 + z**2 / n)
table = pd.DataFrame({"score": p, "low": middle - half, "high": middle + half})
table = (100 * table).set_index(scores.index)
print(f"standard error of the first row: {100 * error[0]:.2f} points")
table.head(3).round(1)

# %%
ten = table[9::-1]
figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
axes.hlines(ten.index, ten.low, ten.high)
axes.plot(ten.score, ten.index, "o")
axes.axvspan(table.low.iloc[0], table.high.iloc[0], alpha=0.1)
axes.set_xlabel("answered correctly (%, 95% intervals; shaded: the first one)")
axes.set_title("The first interval contains 6 of the 9 other scores")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# The first interval is 5.4 points wide, but only 3.5 points lie between the first row and the tenth.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How sure is a difference?
#
# As in lesson 15, we need the interval of the difference. For two rows $A$ and $B$ its standard error is
#
# $$e_{AB} = \sqrt{e_A^2 + e_B^2 - 2 \, \rho \, e_A \, e_B}$$
#
# where $\rho$ is the *correlation* of their answers: 1 if both models are right on the same questions, and 0 if the
# answers of one say nothing about those of the other. A hard question is hard for both, so $\rho$ is almost always
# positive. The table does not say who answered which question, so we take $\rho = 0$ and get intervals that are too wide
# rather than too narrow.
#
# With $m$ pairs, Bonferroni's correction gives each an interval at $1 - 0.05/m$. The first ten were themselves picked by
# their scores, so $m$ is not 45 but 1,953, the number of all pairs. The next cell takes the two ends of the ten, without
# the correction ($m = 1$) and with it.


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


ends = scores.iloc[[0, 9]]  # the first row and the tenth
pd.concat({m: intervals(ends, n, m) for m in (1, 1953)}, names=["pairs"]).round(1)

# %%
first_ten = intervals(scores.head(10), n, 1953)
print(f"separated: {first_ten.separated.sum()} of the {len(first_ten)} pairs")
course.claim("No pair of the first ten is separated", not any(first_ten.separated))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Even the first and the tenth row cannot be told apart, with or without the correction. Nor can any of the 44 other
# pairs, which lie closer together.

# %%
every = intervals(scores, n, 1953)
alone = intervals(scores, n, 1).separated.sum()
print(f"separated: {every.separated.sum():,} of {len(every):,}; uncorrected {alone:,}")
thirds = every.separated.unstack().loc[scores.index[:21], scores.index[-21:]]
print(f"first third against last third: {thirds.sum().sum()} of {thirds.size}")

against = every.loc[scores.index[0]]
shade = np.where(against.separated, "C1", "grey")
figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
axes.vlines(range(2, 64), against.low, against.high, color=shade)
axes.scatter(range(2, 64), against.difference, color=shade, s=12)
axes.axhline(0, color="black", linestyle="--")
axes.set_xlabel("place of the other row")
axes.set_ylabel("lead of the first row (points)")
axes.set_title("The first row is separated from 38 others (orange)")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# The correction costs 360 pairs. That is the price of being right about all pairs at once with 95% probability. The
# first row is separated from every row from place 26 on, so 24 other rows could be as good as the winner.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What the answers to each question would add
#
# How much do we lose because $\rho$ is unknown? The first row answered 694 questions correctly and the tenth 648. As in
# lesson 13, let $b$ be the number of questions that only the first gets right, and $c$ the number that only the other
# gets right. The table tells us $b - c = 46$, but not $b + c$, on how many questions the two disagree. We try four
# values. The difference of a question is 1, −1 or 0, so its spread follows from $b + c$, and $\rho$ from the formula
# above. We give the lower end of the interval twice: as if the pair had been chosen beforehand, and corrected for 1,953
# pairs, because we picked it from the table. **In how many of the four cases does each exclude zero?**

# %%
rows, z_all = [], stats.norm.ppf(1 - 0.05 / 1953 / 2)  # 4.21
for disagree in (660, 460, 180, 100):
    b, c = (disagree + 46) // 2, (disagree - 46) // 2
    differences = np.repeat([1, -1, 0], [b, c, n - b - c])
    mean, e = differences.mean(), differences.std() / n**0.5
    rho = (error[0] ** 2 + error[9] ** 2 - e**2) / (2 * error[0] * error[9])
    rows.append((disagree, rho, 100 * (mean - z * e), 100 * (mean - z_all * e)))
columns = ["disagree on", "correlation", "low, one pair", "low, 1,953 pairs"]
pd.DataFrame(rows, columns=columns).round(2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With 660 disagreements, $\rho = 0$ and the interval is that from above. The fewer questions the two disagree on, the
# smaller the variance of the difference. If the pair had been chosen beforehand, 460 disagreements or fewer would
# separate the two. Because we picked it from the table, only 100 would. (For leading models, correlations [between 0.3
# and 0.7](https://www.anthropic.com/research/statistical-approach-to-model-evals) have been reported.)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What one more seed could change
#
# So far only the questions varied. But each experiment was run once, with seed 0, and another [seed](glossary.md#seed)
# would have given another model. The repository's history hints at how much that matters: in June 2025, 25 experiments
# were run twice within days, with the same seed, settings and version numbers.
#
# **Predict first.** How much does a score change if nothing is changed?

# %%
runs = pd.read_csv(folder / "peft_metamathqa_reruns.csv")
june = runs[runs.created.between("2025-06-17", "2025-06-20")]
by_experiment = june.sort_values("created").groupby("experiment").test_accuracy
twice = by_experiment.agg(["first", "last"])[by_experiment.size() > 1]
same = 100 * (twice["last"] - twice["first"])
one_run = same.std() / 2**0.5
print(f"same versions: {(same == 0).sum()} of {len(same)} unchanged, ±{same.std():.1f}")
print(f"the largest change is {same.abs().max():.1f} points")
print(f"so one run has a standard deviation of {one_run:.1f} points")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Only 4 of 25 scores stayed the same. A likely reason is that a graphics card adds numbers in an order that varies, and
# over 5,000 steps the differences in the last digits grow. Another is peft itself, whose development version keeps one
# number for many commits. Each change is the difference of two runs, so its variance is twice that of one run, which
# therefore has a standard deviation of $0.6 / \sqrt 2 = 0.4$ points. (A change of 1.7 points is rare with ±0.6,
# so the draws below may be too tame.)
#
# Another seed also changes the order of the batches and the first values of the adapters, so it should matter more. We
# draw new scores with 0.4 points and with two guesses.

# %%
for deviation in (0.4, 1, 2):
    spread = 2**0.5 * deviation  # the old score and the new one both contain luck
    noise = np.random.default_rng(0).normal(0, spread, (2000, len(p)))
    winner = (100 * p + noise).argmax(axis=1)
    print(f"±{deviation} points: the winner wins again in {(winner == 0).mean():.0%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# If a seed matters as little as a mere repetition, the first row keeps its place in 89% of the draws, *on these 1,319
# questions*; with other questions it is as open as before. If a seed matters by one point, it loses its place in more
# than half of the draws.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A row is not a method
#
# The best learning rate differs from method to method, as lesson 15 showed. Yet most experiments use the same default
# rate, 1e-4. Look at two rows of one method, IA3, one of them at ten times this rate.

# %%
default = board.learning_rate == 1e-4
print(f"rate 1e-4: {default.sum()} of 63 rows, {default[:10].sum()} of the first ten")
chosen = [("ia3-lr_0.001", "ia3-default")]
every.loc[chosen].round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With ten times the default rate (and less weight decay) IA3 gains 8.7 points, more than lies between places 1 and 25.
# So a low place may only mean that the settings did not suit the method. The default rate clearly suits some: seven of
# the first ten rows use it. When a study tuned the rate of each LoRA variant, their best results were within 1 to 2% of
# each other ([Lee and others 2026](https://arxiv.org/abs/2602.04998)).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## More than one goal: the front
#
# A row is on the [Pareto front](glossary.md#pareto-front) of accuracy and memory if no other row
# is at least as good in both and better in one. Sorted by memory, these are the rows that score higher than all rows
# before them. But scores are uncertain, so we let every row take the test again, 2,000 times, and draw its new score
# independently of the others.
#
# **Predict first.** The most accurate row is on the published front. In what share of these draws will it
# still be there?


# %%
def on_front(scores):
    """Which rows beat all cheaper ones; `scores`: (draws, rows), sorted by memory."""
    best_before = np.maximum.accumulate(scores, axis=1)[:, :-1]
    cheapest = np.ones((len(scores), 1), dtype=bool)
    return np.hstack([cheapest, scores[:, 1:] > best_before])


by_memory = board.sort_values("peak_memory_bytes", kind="stable")
accuracy = by_memory.test_accuracy.to_numpy()
drawn = np.random.default_rng(0).binomial(n, accuracy, (2000, 63)) / n
front = pd.DataFrame({"name": by_memory.name, "accuracy": 100 * accuracy})
front["GB"] = by_memory.peak_memory_bytes / 1e9
front["published"] = on_front(accuracy[None])[0]
front["share"] = on_front(drawn).mean(axis=0)

# %%
shown = front[(front.accuracy > 36) & (front.GB < 30)]
figure, axes = plt.subplots(figsize=(9, 4.6), layout="constrained")
dots = axes.scatter(shown.GB, shown.accuracy, c=100 * shown.share, cmap="viridis_r")
figure.colorbar(dots, label="share of draws on the front (%)")
line = shown[shown.published]
axes.step(line.GB, line.accuracy, where="post", color="grey", linewidth=0.8)
for row in line.itertuples():
    label = f"{row.name}: {row.share:.0%}"
    side = "left" if row.name == "lora-rank64-rslora" else "right"  # of the label
    where = {"xytext": (0, 5), "textcoords": "offset points", "ha": side}
    axes.annotate(label, (row.GB, row.accuracy), **where)
axes.set(xlim=(18.7, 26.5), ylim=(36.5, 54))
axes.set_xlabel("peak memory (GB, lower is better; below 30)")
axes.set_ylabel("accuracy (%, higher is better; above 36%)")
axes.set_title("miss-default stays on the front, the most accurate row often does not")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# `miss-default` is always on the front: it reaches 48.7% with 20.3 GB, and nothing cheaper comes close. (MiSS trains one
# matrix for each layer, in place of LoRA's two. The front goes on below the chart: `beft-target-v_proj` has 32%, and the
# cheapest row, `tinylora-default`, 1%.) The most accurate row needs 25.6 GB and is there in fewer than half of
# the draws, because any of the 59 cheaper rows may overtake it. So the table tells you how to save memory, but not how
# to gain the last points. (The shares are no probabilities: the published scores already contain chance, and seeds would
# add more. Correlated answers would make them larger.)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What would it cost to know?
#
# We want to detect a true difference $d$ of one point in 80% of all tests (the [power](glossary.md#power)), for one pair
# that we chose beforehand. The measured difference is above $d - 0.84\,e_{AB}$ in 80% of the tests, and has to be above
# $1.96\,e_{AB}$ so that the interval excludes zero. So $d$ has to be $1.96 + 0.84 = 2.8$ standard errors. With
# $e_{AB}^2 = 2 p (1 - p) (1 - \rho) / n$ this gives
#
# $$n = 2 \, p \, (1 - p) \, (1 - \rho) \left(\frac{2.8}{d}\right)^2$$
#
# Seeds answer another question: is one *method* better than another on these 1,319 questions? If one seed's score has
# the standard deviation $s$, then $e_{AB}^2 = 2 s^2 / k$ with $k$ seeds of each method. With few seeds, Student's $t$
# replaces 1.96 and 0.84. Two papers share no seeds, so nothing can be paired, and there are $2 (k - 1)$ degrees of
# freedom. Because $t$ depends on $k$ as well, we try $k = 2, 3, \dots$ until the seeds suffice.
#
# **Predict first.** How many questions does one point take, for two models that answer about half of them correctly?

# %%
factor = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)  # 2.8
points = pd.Index([5.5, 2, 1], name="points")
needed = 2 * 0.5 * 0.5 * (factor / (points.to_numpy() / 100)) ** 2
plan = pd.DataFrame({"rho = 0": needed, "rho = 0.5": needed / 2}, points)
plan.round().astype(int)


# %%
def seeds_needed(s, d=1):
    """Seeds of each method that detect d points, if one seed varies by s points."""
    k = 2
    while stats.t.ppf([0.975, 0.8], 2 * (k - 1)).sum() * s * (2 / k) ** 0.5 > d:
        k += 1
    return k


for s in (0.4, 1, 2):
    hours = 2 * seeds_needed(s) * board.train_seconds.median() / 3600
    print(f"±{s}: {seeds_needed(s)} seeds of each of two methods, {hours:.0f} hours")

# %% [markdown] slideshow={"slide_type": "subslide"}
# One point takes 39,000 questions, 30 times as many as this test has. With its 1,319 we can detect 5.5 points.
#
# One point between methods takes 4 seeds of each if a seed matters as little as a repetition (0.4 points), 17 for 1
# point, and 64 for 2 (the hours are for the card of peft's authors). More seeds do not replace more questions, because
# every seed takes the same test.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The way it is done at work
#
# Your own `intervals` and `seeds_needed` need only numpy, pandas and scipy, so take them along. `tl.audit` does the same
# in one call, and adds ranks and a plan. Here are six invented rows, with 500 test questions, so put in those of a paper
# that you know. **How many of the 15 pairs can be told apart?**

# %%
paper = {"full": 0.712, "DoRA": 0.702, "rsLoRA": 0.696}
paper |= {"PiSSA": 0.690, "LoRA": 0.684, "prompt": 0.592}
paper = pd.Series(paper, name="accuracy").rename_axis("method").reset_index()
audit = tl.audit(paper, "accuracy", 500, name="method")
apart = audit.pairs[audit.pairs.separated]
print(apart[["first", "second"]].to_string(index=False))
audit.table[["name", "value", "low", "high", "rank"]].round(3)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Only the five pairs with the last row can. The other five rows share the rank "tied 1-5". On the command line, the same
# audit is `python -m tlkit audit table.csv --metric accuracy --items 1319`.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What may be concluded
#
# | The table shows that … | It does not show … |
# | --- | --- |
# | as trained, each row of the first third is better than each of the last third. | the order of the first ten. |
# | the first row is better than each row from place 26 on. | that it is the best, because 24 others may be. |
# | IA3 gains from other settings. | how good a method is once it is tuned. |
# | `miss-default` reaches 48.7% with 20.3 GB, and nothing cheaper comes close. | how much another seed would change. |
#
# The cheapest improvement would be to publish the answers to each question.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - With a thousand questions, a difference of a few points may be chance.
# - Questions and seeds are different sources of chance. A table with one seed compares trained models, not methods.
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
# **Exercise 17.1.** Write the tool for the day on which the answers to each question are published. `answers` is a
# DataFrame with one row for each question and one column for each model, 1 for a right answer and 0 for a wrong one.
# Return a list of all pairs of models that are separated, each pair as a tuple of two column names. Use paired
# differences, the normal distribution, and Bonferroni's correction for the number of pairs. The order of the list does
# not matter.

# %%
from itertools import combinations
from scipy import stats


def separated_pairs(answers):
    """All pairs of columns whose corrected interval excludes zero."""
    # your code here


course.check("ex17_1", separated_pairs)

# %% [markdown]
# Previous: [16 · The autopsy](16_autopsy.ipynb) ·
# Next: [18 · Scaling out](18_scaling_out.ipynb)
