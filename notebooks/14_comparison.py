# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] slideshow={"slide_type": "slide"}
# # 14 · The comparison
#
# *Which differences between strategies are real?*
#
# Seven strategies, one baseline, one control, three seeds. Which adapts best, what does each forget, and which
# differences are real?
#
# **You will** read one table and ten charts, and decide what they allow you to say. About 8 minutes.

# %% slideshow={"slide_type": "subslide"}
import os

import pandas as pd

import tlkit as tl

profile = tl.setup()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A fair start: the same tuning for all
#
# A strategy with a badly chosen learning rate loses to one with a good one, and that says nothing about either. So each
# gets the same grid of eight rates, two seeds each, judged on *validation* text. The test split stays closed. The
# record comes with the workbook; `python -m tlkit sweep rates` makes it again in about ten minutes. It was made for 60
# passages read once, the profile `ci`: more text or another model wants a sweep of its own.
#
# **Predict first.** Who needs the larger steps: full fine-tuning, or LoRA with its few values?

# %%
tuning = tl.recorded("rates")
print("runs of each:", tuning.groupby("strategy").size().unique().tolist())
shown = ["full", "last_layers", "lora", "bitfit"]
near = tuning.strategy.isin(shown)
near &= tuning.validation_perplexity < 300  # beyond, training fell apart
tl.sweep_chart(tuning[near], "learning_rate", "learning rate (log scale)")

# %%
rates = tl.default_rates()
tl.claim("LoRA wants larger steps than full fine-tuning", rates["lora"] > rates["full"])
tl.claim("bitfit wants the largest", rates["bitfit"] == max(rates.values()))
assert tuning.groupby("strategy").size().eq(16).all()
assert tuning.learning_rate.nunique() == 8
means = tuning.groupby(["strategy", "learning_rate"]).validation_perplexity.mean()
pair = ["full", "freeze_embeddings"]
same = {name: means[name][0.002] for name in pair}
own = {name: means[name].min() for name in pair}
print("lower with 2e-3 for both:", min(same, key=same.get))
print("lower with its own rate: ", min(own, key=own.get))
tl.claim(
    "The rate decides which of the two is ahead",
    min(same, key=same.get) != min(own, key=own.get),
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# One rate for all is no fair test: it decides who wins.
#
# ## The runs
#
# Every run starts from a freshly loaded model. The seed changes the order of the batches and an adapter's first
# values. The control is the same network with random weights, trained the same way: it shows what pretraining is
# worth. Now the test split is opened, once.
#
# **Predict first.** Order the strategies by Rust perplexity. Where will the control be?

# %%
comparison = tl.compare(profile=profile, progress=True)
table = comparison.table.set_index("strategy")
print(list(table.index))
rows = {*tl.STRATEGIES, tl.ZERO_SHOT, tl.CONTROL}
tl.claim("Every strategy has its row", set(table.index) == rows)
assert not comparison.failures

# %% tags=["nbval-ignore-output"]
tl.readable(comparison.table)

# %%
tl.perplexity_chart(comparison.table)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The lines show how sure we are of one model's score, had other documents been drawn. They are too wide for comparing
# two strategies, which read the same documents.
#
# ## Which differences are real?
#
# With one seed, two strategies see the same batches in the same order. So subtract seed by seed, because luck that
# happened to both cancels. The mean of n differences has an interval, Student's: the mean, minus and plus t times
# their standard deviation (dividing by n - 1) over the root of n. t is `stats.t.ppf(0.975, n - 1)` of scipy: 1.96 for
# very many seeds, 4.3 for three. If the interval excludes zero, the two strategies differ on these documents.
#
# A table of seven strategies asks for more. Other test documents would have given other differences too. And seven
# strategies make 21 pairs: if all seven were equal, about one of 21 intervals at 95% would exclude zero by chance
# alone. `tl.compare_pairs` therefore counts both kinds of chance, documents and seeds, and corrects for the number of
# pairs (Holm's method). The intervals below are these wider ones. Among seven equal strategies they show any
# difference in at most one table of twenty, which a simulation confirms.

# %%
tl.differences_chart(comparison.table)

# %% tags=["nbval-ignore-output"]
columns = ["perplexity", "difference", "difference_low", "difference_high", "rank"]
table.loc[list(tl.STRATEGIES), columns].round(2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# A strategy has a rank of its own where it is separated from all others. The rest are tied, and the table says between
# which ranks. Three seeds make wide intervals, so `seeds=10` would separate more of them.

# %%
adapted_rows = table.loc[list(tl.STRATEGIES)]
baseline = table.loc[tl.ZERO_SHOT, "perplexity"]
worst_seed = comparison.runs.groupby("strategy").perplexity.max()
tl.claim(
    "Every strategy beats zero-shot, with every seed",
    (worst_seed[list(tl.STRATEGIES)] < baseline).all(),
)
tl.claim(
    "Full fine-tuning gains at least 25%",
    table.loc["full", "improvement_percent"] >= 25,
)
tl.claim(
    "The control is far behind",
    table.loc[tl.CONTROL, "perplexity"] > 1.5 * adapted_rows.perplexity.max(),
)
tl.claim("bitfit is last, and apart from all", table.loc["bitfit", "rank"] == "7")
assert rates["full"] == min(rates.values())

# %%
tl.learning_curves(comparison.curves)

# %%
tl.parameters_chart(comparison.table)

# %%
tl.cost_chart(comparison.table)

# %% tags=["nbval-ignore-output"]
if os.environ.get("TLKIT_RESULTS"):
    for path in tl.export(comparison, os.environ["TLKIT_RESULTS"]):
        print(path.name)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What was forgotten
#
# Lower is better on both axes: the best corner is at the bottom left. *General* here means Python's language
# reference, which is close to what the model was pretrained on.

# %%
tl.forgetting_chart(comparison.table)

# %%
forgotten = adapted_rows.general - adapted_rows.general_before
tl.claim("Every strategy forgets something", (forgotten > 0).all())
gained = adapted_rows.improvement_percent
tl.claim("bitfit gains least", gained.idxmin() == "bitfit")
tl.claim("bitfit forgets least", forgotten.idxmin() == "bitfit")
tl.claim(
    "The one that forgets most does not train every weight",
    forgotten.idxmax() != "full",
)
at_one_rate = tuning[(tuning.learning_rate == 0.002) & (tuning.strategy != tl.CONTROL)]
most = at_one_rate.groupby("strategy").general_perplexity.mean().idxmax()
tl.claim("With 2e-3 for all, full forgets most", most == "full")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Did you expect `full` to forget most? With one rate for all it does. Tuned fairly it takes the smallest steps of all,
# and how far weights move matters more than how many of them may.
#
# A strategy is not a fate. Learning rate and epochs move a model along a path, further in and further out. The record
# of the tuning has both perplexities, on validation text.

# %%
paths = {}
for name, by in (("rates", "learning_rate"), ("epochs", "epochs")):
    part = tl.recorded(name).query("strategy == 'full' and validation_perplexity < 130")
    scores = part.groupby(by)[["validation_perplexity", "general_perplexity"]].mean()
    path = scores.reset_index().set_axis(["label", "rust", "general"], axis=1)
    path["label"] = path.label.map("{:g}".format)
    paths[f"full, {by.replace('_', ' ')}"] = path
tl.tradeoff_chart(paths)

# %%
by_epochs = paths["full, epochs"].set_index("label")
tl.claim(
    "More epochs, more forgotten, at every step",
    by_epochs.general.is_monotonic_increasing,
)
tl.claim("Rust gains up to two epochs, then loses", by_epochs.rust.idxmin() == "2")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Two remedies
#
# **Go back part of the way.** Draw a line from the base weights to the adapted ones, and stop somewhere on it. No
# training is needed.
#
# **Predict first.** Halfway between two sets of weights: half the gain and half the loss, more, or less?

# %%
base = tl.load_model("tiny")
rust = tl.load_corpus("rust").limited(profile.train_passages, profile.test_passages)
general = tl.load_corpus("general").limited(test=profile.test_passages)
report, _ = tl.load_with_strategy("full")
tl.train(
    report.model,
    tl.pack(rust.train, base.tokenizer, 128),
    tl.TrainingConfig(rates["full"], batch_size=4),
)
rows = []
for share in (0, 0.25, 0.5, 0.75, 1):
    model = tl.interpolate(base.model, report.model, share)
    scores = [
        tl.perplexity(model, base.tokenizer, texts).perplexity
        for texts in (rust.validation, general.validation)
    ]
    rows.append((f"{share:g}", *scores))
line = pd.DataFrame(rows, columns=["label", "rust", "general"])

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Rehearse.** Put some general text among the Rust. It costs training time, and it needs text of that kind. From the
# record, shares of 0 to one half:

# %%
by_share = tl.recorded("general").groupby("general_share")
mixing = by_share[["validation_perplexity", "general_perplexity"]].mean()
mixing = mixing.reset_index().set_axis(["label", "rust", "general"], axis=1)
mixing["label"] = mixing.label.map("{:g}".format)
tl.tradeoff_chart(
    {
        "share of the way to the adapted weights": line,
        "rehearsal, share of general text": mixing,
    }
)

# %%
half = line.set_index("label").loc["0.5"]
start, end = line.iloc[0], line.iloc[-1]
gain = (start.rust - half.rust) / (start.rust - end.rust)
loss = (half.general - start.general) / (end.general - start.general)
price = mixing.rust.iloc[-1] / mixing.rust.iloc[0] - 1
tl.claim("Halfway keeps over 70% of the gain", gain > 0.7)
tl.claim("It does so for less than a quarter of the loss", loss < 0.25)
tl.claim(
    "Rehearsal forgets less with every share",
    mixing.general.is_monotonic_decreasing,
)
tl.claim(
    "With half of it general text, Rust perplexity rises by less than a tenth",
    0 < price < 0.1,
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Is less more?
#
# The published reports say that with little text the strategy with the fewest weights wins. So give three strategies 25
# to all 503 passages, with the same number of steps: less text is read more often.
#
# **Predict first.** Where do the lines cross?

# %%
sizes = tl.recorded("passages")
tl.sweep_chart(sizes, "passages", "passages of Rust text (log scale); 120 steps each")

# %%
means = sizes.pivot_table(
    index="passages", columns="strategy", values="validation_perplexity"
)
is_full = sizes.strategy == "full"
worst_full = sizes[is_full].groupby("passages").validation_perplexity.max()
best_other = sizes[~is_full].groupby("passages").validation_perplexity.min()
print("lowest at each size:", means.idxmin(axis=1).to_dict())
tl.claim(
    "full is ahead with every seed, at every size",
    (worst_full < best_other).all(),
)
untouched = line.rust.iloc[0]
tl.claim(
    "25 passages leave all three worse than untouched",
    (means.loc[25] > untouched).all(),
)
tl.claim(
    "503 passages bring all below half of it",
    (means.loc[503] < untouched / 2).all(),
)
few, many = means.index.isin([50, 100]), means.index >= 200
tl.claim(
    "lora and last_layers cross between 100 and 200 passages",
    (means.lora < means.last_layers)[few].all()
    and (means.lora > means.last_layers)[many].all(),
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The line of `full` crosses none: with the same number of steps and a rate tuned for each, training everything is
# ahead at every size. The other two do cross. `lora`, with fewer weights, is ahead of `last_layers` at 50 and 100
# passages and behind from 200 on; there the reports have a point. But with 25 passages all three have learned them by
# heart, and end worse than untouched. *More text* helps most; the fewest weights do not win.
#
# Two limits of this picture: the rates were tuned once, for 60 passages and one epoch, and not for each size; and who
# stops early loses less (lesson 4). What it refutes is the law, not every case.
#
# ## What carries over
#
# To larger models: gain and loss are two numbers, the strategy that gains most need not lose most, a fair test tunes
# all alike, and a ranking needs its spread. Two remedies that cost little, stopping on the way and rehearsing, are used
# for large models too.
#
# Not: the gaps themselves, the learning rates, and who is ahead. A model of this size has much to learn about Rust; a
# large one has read it already, and needs to move less.
#
# **Take away.** A table without a baseline, a control, equal tuning and a spread is an anecdote.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `tl.check` says what it looked at and, if the answer
# is not right yet, why. Stuck? `tl.hint("ex14_1", 1)` is a first push, `tl.hint("ex14_1", 2)` says more. After *Restart
# Kernel* run the next cell first; then each exercise works by itself.

# %%
import tlkit as tl

# %% [markdown]
# **Quiz.** Two strategies were trained with three seeds each. Over documents, one scores 66 to 79 and the other 69 to
# 83. Seed by seed, the second is 2.9 to 4.9 above the first. All are intervals at 95%. Are the two apart?
#
# - **a** No: the first two intervals overlap.
# - **b** Not yet: more seeds must make those two narrower, until they no longer overlap.
# - **c** Yes, on these documents: the interval of the difference leaves zero out.
# - **d** Yes, and on any text about Rust: the interval of the difference leaves zero out.

# %%
tl.quiz("quiz14")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 14.1** (first steps). Ten strategies are compared, every pair of them, each pair by an interval at 95%.
# Suppose that in truth none is better than another. How many pairs do you expect to be called apart all the same? An
# expected number is a mean: it need not be whole, so do not round.

# %%
answer = None
# your code here
tl.check("ex14_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 14.2** (apply it). Write the interval over seeds. `runs` is a table with a row for each run, in no
# particular order, and the columns `strategy`, `seed` and `perplexity`; it may hold other strategies too. Return the
# low and the high end of Student's 95% interval for the mean of `one` minus `other`, taken seed by seed.

# %%
import math
from scipy import stats


def interval_of_difference(runs, one, other):
    """Low and high end of the 95% interval."""
    # your code here


tl.check("ex14_2", interval_of_difference)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 14.3** (think further). Somebody tuned several strategies, and scored every run on validation text and on
# test text. `record` has a row for each run, with the columns `strategy`, `learning_rate`, `seed`,
# `validation_perplexity` and `test_perplexity`; each rate was run with the same seeds, and a run that diverged has
# infinity in both. All you need is there, and more than you may use. Write what belongs into a fair table: a dict from
# each strategy to one test perplexity, a mean over seeds.


# %%
def fair_scores(record):
    """Each strategy's mean test perplexity, at the rate a fair test would give it."""
    # your code here


tl.check("ex14_3", fair_scores)

# %% [markdown]
# Previous: [13 · Out of memory](13_oom_fallback.ipynb) ·
# Next: [15 · The autopsy](15_autopsy.ipynb)
