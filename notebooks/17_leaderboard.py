# %% [markdown] slideshow={"slide_type": "slide"}
# # 17 · The leaderboard
#
# *Which rows of a published leaderboard can be told apart, and what would it cost to know more?*
#
# A leaderboard puts methods in an order, and readers take the first one. But many leaderboards print a score and
# nothing that says how sure it is. In this lesson you compute that yourself, from the scores and the number of test
# questions alone. Our example is an unusually open one: the comparison of fine-tuning methods that the authors of peft
# publish with their library.
#
# **You will be able to**
#
# - compute the standard error of an accuracy and of a difference, and audit any published table with them;
# - say what a single run of each method cannot show, and use runs that were repeated to judge how much it matters;
# - read a Pareto chart with its uncertainty, and plan how many questions or seeds an answer takes.
#
# **You need** [lesson 15](15_comparison.ipynb) for intervals of differences and the correction for many pairs, and
# [lesson 8](08_peft_family.ipynb) for the methods.
#
# About 48 minutes.

# %% slideshow={"slide_type": "subslide"}
import numpy as np
import pandas as pd
from scipy import stats

import course
import tlkit as tl
from course.lesson17 import leaderboards, pictures
from course.lesson17.leaderboards import front_shares

board = leaderboards.leaderboard("peft_metamathqa")
questions = 1319
pictures.standings_chart(board.test_accuracy)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each bar is one *experiment*, which is a method with certain settings. All of them fine-tune Llama-3.2-3B, a model
# with 3.2 billion values, for 5,000 steps on MetaMathQA, a data set of maths problems with worked solutions. The score
# is the share of the 1,319 test questions of GSM8K, a set of grade-school maths word problems, that the model then
# answers correctly. [peft](https://github.com/huggingface/peft/tree/main/method_comparison/MetaMathQA) publishes it
# under the Apache-2.0 licence, and we use the files of August 2026 (commit 5d602fd).
#
# The authors publish more than a score: every setting, the seed, the versions of all libraries, time, memory, the size
# of the saved file, and how much the model forgot. Everything below is possible because of that. The names in our
# tables are short: first the method, then what sets this experiment apart. You do not need to know them all.

# %%
rates = board.learning_rate.map("{:g}".format)
shown = board[["name", "test_accuracy", "forgetting"]].round(3)
shown.assign(learning_rate=rates).head(10)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** The first ten scores lie between 52.6% and 49.1%. Ten rows make 45 pairs. How many of these pairs
# can be told apart, if the only chance that we consider is which 1,319 questions were in the test?

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How sure is one score?
#
# Suppose that a model answers a share $p$ of all questions of this kind correctly. The test holds $n$ of them, drawn at
# random and independent of each other. With other questions the score would have been a little different. The
# standard deviation of the score over many such tests is its *standard error*:
#
# $$e = \sqrt{\frac{p \, (1 - p)}{n}}$$
#
# Here $p$ and $e$ are numbers between 0 and 1, and $n$ is the number of questions. We do not know the true $p$, so we
# use the score instead. The formula comes from a single question: its result is 1 or 0, with variance $p (1 - p)$,
# and the mean of $n$ independent results has a variance that is $n$ times smaller. You can check it by playing the
# test ten thousand times with a coin that shows heads in 52.6% of all throws.

# %%
p = board.test_accuracy.to_numpy()  # shape (63,)
error = np.sqrt(p * (1 - p) / questions)  # of each score, shape (63,)

chance = np.random.default_rng(0)
played = chance.binomial(questions, p[0], size=10_000) / questions
print(f"first row: {p[0]:.1%}, standard error {100 * error[0]:.2f} points")
course.claim(
    "Ten thousand tests have the spread of the formula, to 3%",
    abs(played.std() / error[0] - 1) < 0.03,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The 95% interval reaches 1.96 standard errors to each side. For the first row this is 2.7 percentage points, so its
# interval is one and a half times as wide as the distance from the first row to the tenth. `tl.audit` computes all of
# this from the table. Its intervals are Wilson's, a variant that stays between 0 and 1 even when the score is close to
# either.

# %% tags=["check-np"]
audit = tl.audit(board, "test_accuracy", questions, name="name")
pictures.scores_chart(audit.table)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How sure is a difference?
#
# Overlapping intervals do not answer the question, as [lesson 15](15_comparison.ipynb) has shown. We need the
# standard error of the difference itself. For two rows $A$ and $B$ it is
#
# $$e_{AB} = \sqrt{e_A^2 + e_B^2 - 2 \, c_{AB}}$$
#
# where $c_{AB}$ is the *covariance* of the two scores: how much they would rise and fall together from test to test.
# Both rows answered the same questions, and a hard question is hard for both, so the covariance is positive. To
# compute it we would have to know which questions each row answered correctly. The table does not say, so we take
# $c_{AB} = 0$.
#
# This is the cautious choice. In practice the true error is smaller than ours, so we will miss some differences rather
# than invent them. (It would be wrong if one model failed on exactly the questions that the other answers.)
#
# As in lesson 15, the pairs have to be corrected for their number, because 63 rows make $63 \cdot 62 / 2 = 1953$ of
# them. Here we correct p values by Holm's method, which gives no intervals but misses a little less than Bonferroni's:
# it multiplies the smallest p value by the number of pairs, the next one by one less, and so on, so that all pairs
# together give even one false alarm in at most 5% of such tables.


# %%
def holm(p_values):
    """Corrected p values, in the order given."""
    order = np.argsort(p_values)
    corrected = np.empty(len(p_values))
    factors = np.arange(len(p_values), 0, -1)  # m, m - 1, …, 1
    corrected[order] = np.maximum.accumulate(p_values[order] * factors)
    return corrected


one, other = np.triu_indices(len(p), k=1)  # the places of all pairs, shape (1953,)
difference = p[one] - p[other]
error_of_pair = np.hypot(error[one], error[other])
error_of_pair = np.maximum(error_of_pair, 1e-12)  # two rows have 0%: no 0/0
p_values = 2 * stats.norm.sf(np.abs(difference) / error_of_pair)
told_apart = holm(p_values) < 0.05

# %%
print(f"told apart: {told_apart.sum():,} of {len(p_values):,} pairs")

# %% [markdown] slideshow={"slide_type": "subslide"}
# So 1,194 of the 1,953 pairs can be told apart. Without the correction there would be 1,522, but among so many pairs
# some of these are probably false alarms. Now back to your prediction. The first ten rows are a table of their own,
# with only 45 pairs to correct for.

# %%
ten = tl.audit(board.head(10), "test_accuracy", questions, name="name")
print(f"told apart: {ten.separated} of {len(ten.pairs)} pairs of the first ten")
course.claim("None of the 45 pairs is told apart", ten.separated == 0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The first and the tenth row are 3.5 points apart. The standard error of this difference is 1.9 points, so the
# difference is only 1.8 standard errors. All other pairs are closer. The order of the first ten may be right, but
# this test does not show it.
#
# The chart shows all pairs. Rows that are far apart in the order are told apart (blue). Along the diagonal there is a
# broad band of pairs that cannot be told apart (pale and orange).

# %%
pictures.apart_chart(audit)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The ranks follow from the pairs, as in lesson 15. The first row has the rank "tied 1-25", because it is separated from
# every row from place 26 down, and from none above it. So any of the first 25 rows may be the best one of this table.

# %% tags=["check-first"]
print(audit.table["rank"].head(3).tolist())
first = audit.pairs[audit.pairs["first"] == audit.table.name[0]]
course.claim("The first row is separated from 38 others", first.separated.sum() == 38)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What the answers to each question would add
#
# How much does the unknown covariance matter? For a single question, let the difference of two rows be 1 if only the
# first is right, −1 if only the other is, and 0 if they agree. The score difference is the mean of these values. Let
# $d$ be this mean and $q$ the share of questions on which exactly one of the two is right. Then
#
# $$e_{AB} = \sqrt{\frac{q - d^2}{n}}$$
#
# because the mean of the squares is $q$. The table tells us $d$ but not $q$. If two models fail mostly on the same
# questions, $q$ is small and so is the error. The error is smallest if the better model answers everything that the
# other one does, and more. Then $q = d$. The *correlation* $\rho$ of the two rows' answers is another way to express
# this: $c_{AB} = \rho \, e_A \, e_B$. A larger $\rho$ means a smaller $q$ and a smaller error. The table does not tell
# us $\rho$, so we try values from 0 to 0.7.
#
# **Predict first.** How many of the 45 pairs can be told apart, after the correction, if the answers correlate by 0.5?
# Make a guess in your head before you run the cell.

# %%
for rho in (0, 0.3, 0.5, 0.7):
    found = tl.audit(board.head(10), "test_accuracy", questions, correlation=rho)
    alone = (found.pairs.p < 0.05).sum()
    print(f"correlation {rho}: {alone} pairs without correction, ", end="")
    print(f"{found.separated} with it")

# %% [markdown] slideshow={"slide_type": "subslide"}
# With 0.5 it is still none after the correction (3 without it), and with a correlation of 0.7 just one, because the
# first ten rows are so close to each other. A still higher correlation could separate more of them.
#
# The orange cells of the chart go one step further. They are pairs that could not be told apart even in the best case,
# with $q = d$. (The two models then differ on few questions, so the library uses an exact test there, McNemar's,
# instead of the formula.) The pale pairs could perhaps be told apart if the answers to each question were published.
# This would cost little, because every run produces these answers anyway.

# %%
print(f"undecided {audit.undecided}, out of reach {audit.out_of_reach}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What one more seed could change
#
# So far the models were fixed and only the questions varied. But each experiment was run once, with seed 0. Another
# [seed](glossary.md#seed) would have given another model with another score, and a table with one seed says nothing
# about how different it would be.
#
# But the authors keep all results in their repository, and they have run many experiments again. In June 2025 they ran
# 25 of them twice within days, with the same seed and settings and the same version numbers of the libraries. (That of
# peft, 0.15.2.dev0, is a development version, so its code may have changed a little.) And 38 experiments were run both
# in January and in July 2026, with the same seed and settings, but with newer libraries the second time. Other things
# may have changed in between, too.
#
# **Predict first.** How much does a score change if the same experiment is run again a few days later?

# %%
runs = leaderboards.leaderboard("peft_metamathqa_reruns")


def run_again(before, after):
    """Two results of each experiment, from runs on days between these dates."""
    first, second = (
        runs[runs.created.between(*days)].groupby("name").test_accuracy.last()
        for days in (before, after)
    )
    return pd.DataFrame({"before": first, "after": second}).dropna()


same = run_again(("2025-06-17", "2025-06-18"), ("2025-06-19", "2025-06-20"))
newer = run_again(("2026-01-01", "2026-01-31"), ("2026-07-01", "2026-07-31"))

# %%
change = same.after - same.before
one_run = change.std() / 2**0.5
largest = change.abs().max()
print(f"change ±{100 * change.std():.1f}, one run ±{100 * one_run:.1f} points")
print(f"largest change {100 * largest:.1f} points")
fallen = newer.after < newer.before
course.claim(
    "With newer libraries 36 of 38 scores fall", (fallen.sum(), len(newer)) == (36, 38)
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Only 4 of the 25 scores were the same in the second run, and two of these four runs answer almost no question
# correctly. One score changed by 1.7 points. The questions are the same in both runs, so their choice plays no part in
# these changes. The likely reason is that a graphics card adds numbers in an order that differs from run to run, so
# that sums differ in their last digits. Over 5,000 steps of training and the hundreds of tokens of an answer such small
# differences grow, until some answers turn out differently. Another reason would be that the answers were generated by
# sampling, but the files do not say whether they were.
#
# The change of a score combines the luck of two runs, so the standard deviation of one run is that of the changes,
# divided by $\sqrt 2$: about 0.4 points. Another seed would also change the order of the batches and the adapters'
# initial values, so we should expect it to matter more than that. These data cannot say how much more.
#
# The right panel shows something else. With newer libraries, nearly all scores fell together, by 1.6 points on average.
# This is four times the mean distance between neighbours among the first ten, so scores from different versions do not
# belong in one table. In July 2026 the authors ran the whole table again, for a reason that is given below.

# %% [markdown] slideshow={"slide_type": "subslide"}
# What would another seed do to the order? We draw new scores for all 63 rows, two thousand times, with a given standard
# deviation of one run. A published score contains the luck of its run, and a new run brings luck of its own. So the
# standard deviation of the difference between the two is $\sqrt 2$ times that of one run. The first value, 0.4 points,
# is what we have just measured. The other two are guesses.

# %%
for deviation in (0.004, 0.01, 0.02):
    chance = np.random.default_rng(0)
    noise = chance.normal(0, 2**0.5 * deviation, (2000, len(p)))
    order = np.argsort(-(p + noise), axis=1)  # shape (draws, rows)
    stays = (order[:, 0] == 0).mean()
    kept = (order[:, :10] < 10).sum(axis=1).mean()
    print(f"±{100 * deviation:.1f}: the first row stays first in {stays:.0%}, ", end="")
    print(f"and {kept:.1f} of the first ten stay among them")

# %% [markdown] slideshow={"slide_type": "subslide"}
# If a seed matters as little as a mere repetition, the first row stays first in about nine of ten draws. If it matters
# by one point, the first row loses its place in more than half of them. These shares are rather too high. The draws are
# centred on today's scores, but the row that came first was probably lucky, so its next score will probably be lower.
# So how far the order of the first few rows can be trusted depends on a number that this table does not contain, the
# deviation between seeds. One more seed for these rows would begin to measure it.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A row is not a method
#
# The best learning rate differs from method to method, as [lesson 15](15_comparison.ipynb) showed. In this table, 37
# of the 63 experiments use the same default rate, 1e-4, and the others one of eleven other rates. So what a row shows
# is a method with certain settings. Three comparisons from the table show what follows from that.

# %%
rows = audit.pairs.set_index(["first", "second"])
for pair in (
    ("ia3-lr_0.001", "ia3-default"),
    ("lora-rank64-rslora", "lora-rank64"),
    ("lora-rank32", "lora-rank32-dora"),
):
    row = rows.loc[pair]
    print(f"{pair[0]} minus {pair[1]}: {100 * row.difference:.1f} points")
    print(f"  p value {row.p:.2g}, corrected {row.p_adjusted:.2g}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# - **IA3 against itself.** With ten times the learning rate (and less weight decay) the same method gains 8.7 points.
#   This is more than the distance between the first row and the twenty-fifth, so a low place of a method at the
#   default rate may be a fault of the rate.
# - **rsLoRA against LoRA**, both at rank 64: 3.9 points. The p value is 0.043 for this pair alone and 1 after the
#   correction, so the difference may be chance. The two experiments differ in nothing but the factor in front of $B A$:
#   rsLoRA uses $\alpha / \sqrt r = 64 / 8 = 8$ and LoRA $\alpha / r = 128 / 64 = 2$. A larger factor acts like a higher
#   learning rate ([lesson 5](05_lora.ipynb)), so even a real difference may only reflect the higher effective rate.
# - **DoRA against LoRA**, at rank 32 with the same settings: LoRA is 0.9 points ahead. This is half a standard error,
#   so these data cannot say which of the two is better.
#
# The authors are working on this too. A [change of August 2026](https://github.com/huggingface/peft/pull/3552) reports
# 41.6% for UniLoRA, where our table has 0.15%. It raises the learning rate, but it also trains 131,072 values instead
# of 256, so it does not say what the rate alone would do. A study that tuned the rate for each variant of LoRA found
# the best results of all within 1 to 2% of each other ([Lee and others 2026](https://arxiv.org/abs/2602.04998)).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## More than one goal: the front
#
# Accuracy is not all that matters. The leaderboard also has the peak memory, the size of the saved file, and
# *forgetting*: by how much the loss on Wikipedia text rose, in nats per token. A row is on the [Pareto
# front](glossary.md#pareto-front) of accuracy and a cost if no other row is at least as good in both and better in one.
#
# But accuracy is uncertain, so the front is uncertain too. We let every row take the test again, 2,000 times, as we
# did with the first row above, and count in which share of the draws it is on the front.
#
# We begin with forgetting as the cost.
#
# **Predict first.** By the published scores, the most accurate row is on every front. In what share of the draws is it
# still on this one?

# %%
drawn = np.random.default_rng(0).binomial(questions, p, (2000, len(p))) / questions
by_cost = np.argsort(board.forgetting.to_numpy())  # from the least forgetting
ordered = drawn[:, by_cost]  # shape (draws, rows)
best_before = np.maximum.accumulate(ordered, axis=1)[:, :-1]
on_front = np.ones(ordered.shape, dtype=bool)  # the cheapest row always is
on_front[:, 1:] = ordered[:, 1:] > best_before  # better than all that cost less

shares = front_shares(board, "test_accuracy", ["forgetting"], questions)

# %% slideshow={"slide_type": "subslide"}
forgot = board.join(shares).assign(accuracy=p)
unit = "forgetting: rise of the loss on Wikipedia text, nats per token"
pictures.front_chart(forgot, "forgetting", unit, least=0.46)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The percentages beside the names are the shares of draws. The row with the highest accuracy, at the top right, is on
# the front in only 47% of them: 52 of the other 62 rows forget less, so it is on the front only while none of these
# overtakes it. The blue point at the far left is there in all draws, because no row that forgets less comes close to
# its accuracy. As above, these are shares of tests that start from today's scores, so they are not the chance that a
# row truly is on the front. To keep them readable, this chart and the next two leave out rows of low accuracy.
#
# The authors have checked this axis: in July 2026 they found and repaired two faults in it. First, their measure of
# forgetting had compared each token with the wrong target, because the labels had not been shifted. It is the
# counterpart of a fault in [lesson 16](16_autopsy.ipynb), where labels were shifted twice. Second, the loss *before*
# training had been measured with the fresh adapter in place. Most adapters change nothing at first, but the random
# vectors of prompt tuning do, so it seemed to forget far too little. With [both
# repaired](https://github.com/huggingface/peft/pull/3419), they ran everything again.
#
# The next two charts have peak memory and the size of the saved file as the cost. In each, look for a row that costs
# much less than the first one, and read how much accuracy it gives up.

# %%
memory = front_shares(board, "test_accuracy", ["peak_memory_bytes"], questions)
by_memory = board.join(memory).assign(accuracy=p, memory=board.peak_memory_bytes / 1e9)
pictures.front_chart(by_memory, "memory", "peak memory, GB", least=0.36)

# %%
size = front_shares(board, "test_accuracy", ["file_bytes"], questions)
by_size = board.join(size).assign(accuracy=p, size=board.file_bytes / 1e6)
pictures.front_chart(by_size, "size", "size of the saved file, MB", least=0.3)

# %% [markdown] slideshow={"slide_type": "subslide"}
# In the memory chart, `miss-default` is on the front in all draws: it reaches 48.7% with 20.3 GB, and the first row is
# four points higher and needs 25.6 GB. In the file-size chart, `ia3-lr0.005` reaches 45.5% with 2.5 MB, and the first
# row needs 835 MB.
#
# Which rows are on a front depends on the cost that you care about, and only six are on more than one of the three
# fronts. The charts consider one source of chance, the questions. They take memory, file size and forgetting as exact.
# For the size of a file this is right, but forgetting was measured on a sample of text with one model, so its true
# uncertainty is larger than the chart shows. Another simplification works the other way: the draws of different rows
# are independent, although all rows answer the same questions, and this overstates the uncertainty.
#
# With all three costs at once the front is of little help, because with many goals few rows are beaten on all of them.

# %%
costs = ["forgetting", "peak_memory_bytes", "file_bytes"]
all_three = front_shares(board, "test_accuracy", costs, questions)
print(f"on the front of four goals: {all_three.front.sum()} of {len(board)} rows")
course.claim(
    "More than half of all rows are on this front", all_three.front.sum() == 38
)
fronts = sum(found.front.astype(int) for found in (shares, memory, size))
cheap = by_memory.assign(megabytes=by_size["size"]).set_index("name")
shown = cheap.loc[["miss-default", "ia3-lr0.005", cheap.index[0]]]

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What would it cost to know?
#
# A difference of one point is what many papers report as progress. We want to find a true difference of this size in
# 80% of all tests, at a level of 5%.
#
# **Predict first.** Two models answer about half of the questions correctly, and one is truly better by one point. How
# many questions does it take to find this difference? (The test above has 1,319.)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The difference $d$ has to be $2.8$ standard errors. The factor is $1.96 + 0.84$: the interval must exclude zero, and
# it must do so in 80% of the cases and not just in half of them. With $e_{AB}^2 = 2 p (1 - p) / n$ this gives the
# number of questions,
#
# $$n = 2 \, p \, (1 - p) \left(\frac{2.8}{d}\right)^2$$
#
# Here $p$ is one half and $d$ is one point, 0.01.

# %% tags=["check-np-2"]
by_hand = 2 * 0.25 * ((stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) / 0.01) ** 2
print(f"questions for one point: {by_hand:,.0f}")
plan = audit.plan(0.01)
plan[["of", "assumed", "needed"]]

# %% [markdown] slideshow={"slide_type": "subslide"}
# It takes 39,000 questions, 30 times as many as the test has, or half as many if the answers correlate by 0.5 and are
# published. (The plan takes $p$ from the row that is nearest to one half, so it needs two questions fewer.) In the
# other direction, 1,319 questions find a true difference of 5.5 points in 80% of all tests, for a pair that was chosen
# beforehand. If all 1,953 pairs are compared, and so corrected, it has to be 9.8 points.
#
# The last three rows of the plan are about seeds. They answer another question: is one *method* better than another
# on these 1,319 questions? With a standard deviation of one point between seeds it takes 17 seeds of each. (The
# formula above would give 16. The plan adds one because the deviation has to be estimated from these few runs.) More
# seeds do not replace more questions, because every seed takes the same test.
#
# Half of the runs of the leaderboard train for less than 19 minutes on one graphics card, so 17 seeds of two such
# methods take about 11 hours. One more seed for all 63 experiments takes 24 hours of training. That is more than 63
# times 19 minutes, because a few experiments take far longer.

# %% tags=["check-tl"]
minutes = board.train_seconds.median() / 60
hours = 2 * 17 * minutes / 60, board.train_seconds.sum() / 3600
print(
    f"median run {minutes:.0f} minutes; "
    f"two methods {hours[0]:.0f} h, all {hours[1]:.0f} h"
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What may be concluded
#
# | the table shows | it does not show |
# | --- | --- |
# | every row of the first third answers more questions of this kind than every row of the last third | the order of the first ten, or of most neighbours |
# | the first row differs from the 38 rows from place 26 on | that it is the best: 24 others may be |
# | IA3 gains a lot from settings other than the default | how good a method is with settings of its own |
# | how much memory each experiment needs, and how large its file is | how much another seed would change |
#
# None of this is a fault of the authors. They give a reader the means to find all of it out, and they say themselves
# that accuracies [fluctuate from run to run](https://github.com/huggingface/peft/pull/2984). The fault would be ours,
# if we read the first row as the winner. Any leaderboard could be improved, and this is roughly the order from the
# cheapest to the most expensive: publish the answers to each question, test the same models on more questions where
# there are any, repeat the first few rows with three seeds, and tune the learning rate of every row in the same way.
#
# The counts, intervals, ranks and plans of this lesson come from the command line, too, for any table of shares.
# Percentages need `--percent`. Means need `--deviation` and the column of their standard deviations *over test items*.
# What a paper prints behind ± is usually something else, a standard error or the spread over seeds.
#
# ```
# python -m tlkit audit table.csv --metric accuracy --items 1319
# ```

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - The standard error of an accuracy is $\sqrt{p (1 - p) / n}$. With about a thousand questions, differences of a few
#   points between two rows may be chance, so ranks near the top are usually tied.
# - Questions and seeds are different sources of chance. More seeds do not make up for few questions, and a table with
#   one seed compares trained models, not methods.
# - A front, like a ranking, has an uncertainty: say in what share of the resampled tests a row is on it.
#
# ## Further reading
#
# - Miller 2024, [Adding error bars to evals](https://arxiv.org/abs/2411.00640): standard errors, paired differences
#   and planning for tests of language models.
# - Card and others 2020, [With little power comes great responsibility](https://arxiv.org/abs/2010.06595): how many
#   published comparisons are too small for their differences.
# - Dror and others 2018, [The hitchhiker's guide to testing statistical significance in natural language
#   processing](https://aclanthology.org/P18-1128/).
# - Lee and others 2026, [Learning rate matters: vanilla LoRA may suffice for LLM
#   fine-tuning](https://arxiv.org/abs/2602.04998).
# - Holm 1979, [A simple sequentially rejective multiple test procedure](https://www.jstor.org/stable/4615733).
#
# **An open experiment.** Take a leaderboard or a table of results from a paper that you have read, type it into a CSV
# file, and audit it (with `--percent` if it prints percentages). Before you run the command, write down which of the
# paper's claims you expect to survive.

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
# **Exercise 17.1** (first steps). You plan a test of your own, with independent questions. A model will answer about
# half of them correctly. How many questions does the test need, at least, so that the 95% interval of its score reaches
# at most 3 points to each side (1.96 times the standard error)?

# %%
answer = None
# your code here
course.check("ex17_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 17.2** (apply it). Write a function that says whether two rows of a leaderboard can be told apart. It takes
# how many questions each of the two answered correctly, and how many questions the test has. It returns True if the 95%
# interval of the difference of the two shares excludes zero, and False otherwise. Take the covariance as zero and
# correct for nothing, because it is one pair. At least one of the two scores will lie strictly between 0 and 100%.

# %%
import math


def can_be_told_apart(right, other, questions):
    """True if the 95% interval of the difference excludes zero."""
    # your code here


course.check("ex17_2", can_be_told_apart)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 17.3** (think further). Suppose that the authors publish the answers to each question. `one` and `other`
# are arrays with a 1 for each question that was answered correctly and a 0 for each other, and both have the questions
# in the same order. Return the standard error of the difference of the two scores. Now nothing has to be assumed about
# the covariance, because the answers show it. Divide by the number of questions n in each variance and not by n − 1, as
# NumPy does unless it is told otherwise.

# %%
import numpy as np


def paired_error(one, other):
    """Standard error of the difference of the two scores."""
    # your code here


course.check("ex17_3", paired_error)

# %% [markdown]
# Previous: [16 · The autopsy](16_autopsy.ipynb) ·
# Next: [18 · Scaling out](18_scaling_out.ipynb)
