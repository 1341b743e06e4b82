# %% [markdown] slideshow={"slide_type": "slide"}
# # 20 · Your own study
#
# *How do you get from your own text and your own question to an answer that others can check?*
#
# Twenty lessons have shown you one text, the one about Rust, and have told you what to measure. Now you bring a text
# and a question of your own, and you end with a report. This lesson is an empty project that is filled with a small
# example: notes about cooking, and the question whether full fine-tuning or LoRA adapts the bundled model better to
# them. Go through it once as it is. Then copy it, and put in your text, your question and your limits.
#
# **You will be able to**
#
# - plan a study so that its runs can answer its question, and see beforehand what those runs cannot show;
# - carry it out from the first look at the text to a decision, which may be "cannot tell";
# - write a report in which every figure comes from the runs.
#
# **You need** [lesson 3](03_baseline.ipynb) for splits and leakage, [lesson 15](15_comparison.ipynb) for
# intervals, and a strategy or two from lessons 4 to 8.
#
# About 31 minutes. Your own study takes two to four hours more.

# %% slideshow={"slide_type": "subslide"}
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

import course
import tlkit as tl

profile = tl.setup()
base = tl.load_model("tiny")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The plan comes first
#
# Write down what you want to know before you measure anything, and also what will count as an answer. Once you have
# seen the results, it is easy to find a question that fits them.
#
# Three of the numbers need a reason. *Worthwhile* is the smallest difference of perplexity, in percent, that would
# change what you do. We take 5%, because for less we would keep the strategy that needs less memory. *May forget* is
# the price that you would pay: by how many percent perplexity on general text may rise. We take 100%, a doubling,
# because this model will only ever write about food; for a model that has to remain useful, 20% would be more
# sensible. *Memory* is what training may use.

# %%
plan = {
    "question": "Which adapts this model better to notes about cooking?",
    "strategies": ["full", "lora"],
    "worthwhile": 5,  # percent of perplexity
    "may_forget": 100,  # percent, on general text
    "memory": 128e6,  # bytes
}

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The text
#
# `kitchen` is a corpus of 140 short notes about cooking that were written for this lesson, seven on each of twenty
# subjects. The bundled model was pretrained on software documentation, so it has read next to nothing about food. For
# your own text, give `load_corpus` a folder of .txt, .md or .jsonl files; it splits them, a tenth for validation and a
# tenth for the test. You should have at least 300 paragraphs.
#
# A [datasheet](glossary.md#datasheet) answers what a reader has to know about a text. Two questions only you can
# answer: where the text comes from and who allows you to use it, and whether it contains anyone's private data. The
# others can be counted. The most important one is whether a document of one split has a copy in another, because then
# the test measures memory. Two documents are suspicious if they share twelve words in a row.


# %%
def runs_of_words(text, length=12):
    words = text.lower().split()
    return {tuple(words[n : n + length]) for n in range(len(words) - length + 1)}


corpus = tl.load_corpus("kitchen")
splits = {name: list(getattr(corpus, name)) for name in ("train", "validation", "test")}
datasheet = pd.DataFrame(
    {
        name: {
            "documents": len(texts),
            "words": sum(len(text.split()) for text in texts),
            "longest": max(len(text.split()) for text in texts),
        }
        for name, texts in splits.items()
    }
)
seen = {name: set().union(*map(runs_of_words, texts)) for name, texts in splits.items()}
shared = {f"{a} and {b}": len(seen[a] & seen[b]) for a, b in combinations(splits, 2)}
print("runs of twelve words in two splits:", shared)
datasheet

# %% [markdown] slideshow={"slide_type": "subslide"}
# One problem cannot be counted. Notes on the same subject are alike, and each of the twenty subjects is in all three
# splits. The result therefore holds for more notes on these subjects and not for new ones, and its intervals are too
# narrow for those. This is a limit of the study, so it goes into the report.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The baseline, and what this test can show
#
# Everything up to the last section uses validation text, so that the test split stays closed.

# %% tags=["nbval-ignore-output"]
before = tl.perplexity(base.model, base.tokenizer, splits["validation"])
print(before)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Two strategies are compared on the same documents. The fewer documents there are, the larger a difference has to be
# before it can be seen. With the spread $s$ of the losses over documents, in nats a token, and the correlation $\rho$
# of the losses of two strategies, the standard error of a mean difference over $n$ documents is
#
# $$\text{error} = s \sqrt{\frac{2 \, (1 - \rho)}{n}}$$
#
# A 95% interval takes 1.96 errors, and to exceed it in four of five studies takes another 0.84, so a difference should
# be 2.8 errors to be found ([lesson 17](17_leaderboard.ipynb)). The spread is that of the untouched model. The
# correlation cannot be known before anything is trained, so take it from an earlier comparison: that of Rust.
#
# **Predict first.** There are 40 test notes of about 60 tokens each. How large must a difference be, in percent of
# perplexity, for 40 such notes to show it?

# %%
losses = np.array(before.document_nats) / np.array(before.document_tokens)
on_rust = tl.recorded_comparison("tiny").documents
on_rust = on_rust[on_rust.strategy.isin(plan["strategies"]) & (on_rust.seed == 0)]
per_token = on_rust.assign(loss=on_rust.nats / on_rust.tokens)
per_token = per_token.pivot(index="document", columns="strategy", values="loss")
rho = per_token.corr().iloc[0, 1]


def detectable(documents):
    """The smallest difference, in percent, that so many documents show."""
    error = losses.std(ddof=1) * math.sqrt(2 * (1 - rho) / documents)
    return 100 * math.expm1(2.8 * error)


print(f"s = {losses.std(ddof=1):.2f} nats a token, rho = {rho:.3f}")
for documents in (10, 40, 100):
    print(f"{documents} documents show {detectable(documents):.1f}%")

# %% [markdown] slideshow={"slide_type": "subslide"}
# So 40 notes show a difference of about 6%, a little more than the 5% that the plan calls worthwhile. This counts
# documents only. Seeds come on top: train again with another seed, and the difference is another one. Even before the
# first run we know that the study may end with "cannot tell". There are three honest options: bring more test documents, ask for a larger
# difference, or continue and accept this answer. We continue.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Does it fit?
#
# Estimate what a step of each strategy needs before you run it ([lesson 9](09_memory.ipynb)). If a strategy
# does not fit, change the batch for all of them, or leave it out of the plan now.

# %%
shape = {"batch_size": 4, "sequence_length": 64}
for strategy in plan["strategies"]:
    need = tl.estimate_memory("tiny", strategy, **shape).peak
    verdict = "fits" if need < plan["memory"] else "does not fit"
    print(f"{strategy}: {need / 1e6:.0f} MB, {verdict}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The runs
#
# From here on the plan stands. `compare` runs each strategy with three seeds, and it adds the untouched model
# (`zero-shot`) and a control that starts from random weights. Between the strategies only the strategy differs: text,
# steps, batches and seeds are the same. Each strategy has a learning rate of its own. Those of the bundled model are
# recorded; for another model, or with `tune=True`, `compare` searches for them on validation text first, with the same
# number of runs for each.
#
# Now the test split is opened, once.

# %%
settings = tl.ComparisonSettings(
    corpus="kitchen", block_size=64, batch_size=4, questions=0
)
comparison = tl.compare("tiny", plan["strategies"], profile=profile, settings=settings)
tl.perplexity_chart(comparison.table)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The intervals in this chart contain how hard the documents are, and that is the same for both strategies. What decides
# is the difference of the two on the same documents, with its interval over documents and seeds:

# %%
pair = comparison.pairs.set_index(["first", "second"]).loc[("full", "lora")]
of_lora = comparison.table.set_index("strategy").perplexity["lora"]
difference = 100 * pair[["difference", "low", "high"]].astype(float) / of_lora
print("full minus lora, in percent of lora's perplexity:")
print(difference.round(1).to_string())

# %%
runs = comparison.runs[comparison.runs.strategy.isin(plan["strategies"])]
rise = 100 * (runs.general / runs.general_before - 1)
forgotten = rise.groupby(runs.strategy).agg(["min", "mean", "max"])
forgotten.round(0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# `full` ends clearly below `lora`, and the whole interval lies beyond the 5% of the plan. The second table shows by how
# many percent perplexity on general text rose, with the lowest, the mean and the highest of three seeds. `lora` gains
# less and forgets more on average, but three seeds differ so much that this study cannot say which of the two forgets
# more. On Rust the means had the other order, which is reason enough to measure on your own text.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Decide as planned
#
# The rule was fixed before the runs: a difference counts if its interval excludes zero and it is at least worthwhile,
# and the winner must not forget more than the plan allows.


# %%
def decide(low, high, forgets):
    if max(abs(low), abs(high)) < plan["worthwhile"]:
        return "the difference does not matter: take the cheaper one"
    if low <= 0 <= high:
        return "cannot tell"
    winner = plan["strategies"][0 if high < 0 else 1]
    if forgets[winner] > plan["may_forget"]:
        return f"{winner} is better, but forgets too much"
    return f"take {winner}"


decision = decide(difference.low, difference.high, forgotten["mean"])
course.claim("The decision is to take full fine-tuning", decision == "take full")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The report
#
# Every figure is filled in from a variable. A number that was typed by hand is wrong after the next run.

# %%
report = f"""# {plan["question"]}

**Answer:** {decision}. full minus lora: {difference.difference:.0f}% of perplexity
({difference.low:.0f} to {difference.high:.0f}, 95% over documents and seeds).

**Text:** {len(splits["train"])} training and {len(splits["test"])} test notes,
written for this course. Runs of twelve words shared between splits:
{sum(shared.values())}.

**Planned before the runs:** worthwhile from {plan["worthwhile"]}%, general perplexity
may rise by {plan["may_forget"]}%. The test was expected to show
{detectable(len(splits["test"])):.1f}%.

**Price:** general perplexity rose by {forgotten["mean"]["full"]:.0f}% (full) and
{forgotten["mean"]["lora"]:.0f}% (lora), means of {profile.seeds} seeds.

**Limits:** all twenty subjects are in each split, so this holds for notes on these
subjects; one small model; learning rates recorded on another text.
"""
Path("../results").mkdir(exist_ok=True)
Path("../results/report.md").write_text(report, encoding="utf-8")
print(report)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - The question, the limits and the rule for the decision are written down before anything runs.
# - Before the first run you can say which difference the test can show. "Cannot tell" is an answer, too.
# - A report names what was planned, what came out, the price, and the limits, and all figures come from the runs.
#
# **Further reading.** [Gebru et al. 2021](https://arxiv.org/abs/1803.09010), Datasheets for Datasets.
# [Card et al. 2020](https://arxiv.org/abs/2010.06595) on the power of comparisons in NLP.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex20_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** Your study has an interval from -9% to +3% for `lora` against `full`, and your plan calls 5% worthwhile.
# What do you write?
#
# - **a** There is no difference between the two.
# - **b** `lora` is better by 3%, the middle of the interval.
# - **c** This study cannot tell; `lora` may be better by up to 9% or worse by up to 3%.
# - **d** Nothing yet: I check which documents are hard for `lora` and leave them out.

# %%
course.quiz("quiz20")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 20.1** (first steps). A test split of 25 documents shows a difference of 0.08 nats a token, in the sense of
# *what this test can show*. You want it to show 0.02 nats. How many documents does the test split need then, if they
# are like these?

# %%
answer = None
# your code here
course.check("ex20_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 20.2** (apply it). Write a function that finds the strategies whose learning rate was not found fairly. It
# gets a list of runs, each a tuple of strategy, learning rate, split and score, where a lower score is better and no
# rate was run twice. Return the set of all strategies for which at least one of three things is true: a run was scored
# on another split than `"validation"`; it had fewer runs than the strategy with the most; or its best rate is the
# lowest or the highest of those that were tried for it.


# %%
def not_tuned(runs):
    """The set of strategies whose rate was not found fairly."""
    # your code here


course.check("ex20_2", not_tuned)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 20.3** (think further). Write a function that decides as a plan asks for. It gets the two ends of an
# interval for the difference of two perplexities in percent, the first strategy minus the second; the smallest
# difference that is worthwhile; a pair with what each of the two forgets, in percent; and how much may be forgotten. It
# returns
#
# - `"equal"` if the whole interval lies between -worthwhile and +worthwhile, whether it includes zero or not, because
#   then the difference does not matter;
# - `"first"` or `"second"`, whichever is better, if the interval is not like that and excludes zero, or `"too costly"`
#   if the better one forgets more than is allowed;
# - `"cannot tell"` otherwise, also where there is no interval and both ends are nan.


# %%
def decide(low, high, worthwhile, forgets, may_forget):
    """One of "equal", "first", "second", "too costly" and "cannot tell"."""
    # your code here


course.check("ex20_3", decide)

# %% [markdown]
# Previous: [18 · Scaling out](18_scaling_out.ipynb) ·
# Next: [A1 · Unfreezing schedules](A1_unfreezing_schedules.ipynb)
