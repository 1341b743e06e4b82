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

# %% [markdown]
# # 11 · The comparison
#
# *Which differences between strategies are real?*
#
# Seven strategies, one baseline, one control, three seeds. Which adapts best, what does each forget, and which
# differences are real?
#
# **You will** read one table and five charts, and decide what they allow you to say. About 5 minutes.

# %%
import os

from tlkit.charts import cost_chart, forgetting_chart, learning_curves, parameters_chart, perplexity_chart
from tlkit.comparison import CONTROL, ZERO_SHOT, compare
from tlkit.export import export, readable
from tlkit.settings import setup
from tlkit.strategies import STRATEGIES

profile = setup()

# %% [markdown]
# Every run starts from a freshly loaded model. The seed changes the order of the batches and an adapter's first
# values. The control is the same network with random weights, trained the same way: it shows what pretraining is
# worth.
#
# **Predict first.** Order the strategies by Rust perplexity. Where will the control be?

# %%
comparison = compare(profile=profile)
table = comparison.table.set_index("strategy")
print(list(table.index))
assert not comparison.failures and set(table.index) == {*STRATEGIES, ZERO_SHOT, CONTROL}

# %% tags=["nbval-ignore-output"]
readable(comparison.table)

# %%
perplexity_chart(comparison.table)

# %% [markdown]
# The lines show how sure we are of one model's score, had other documents been drawn. They are too wide for comparing
# two strategies, which read the same documents. For that, look at the seeds: do the worst of one and the best of
# the next change places?

# %% tags=["nbval-ignore-output"]
by_seed = comparison.runs[comparison.runs.strategy.isin(list(STRATEGIES))].groupby("strategy").perplexity
places = by_seed.agg(["min", "max"]).sort_values("min")
places["apart from the next"] = places["max"] < places["min"].shift(-1)
places.round(2)

# %% [markdown]
# Where the last column says False, three seeds do not tell the two apart, and their ranks say nothing.

# %%
adapted = table.loc[list(STRATEGIES)]
baseline = table.loc[ZERO_SHOT, "perplexity"]
worst_seed = comparison.runs.groupby("strategy").perplexity.max()
print("every strategy beats zero-shot, with every seed:", bool((worst_seed[list(STRATEGIES)] < baseline).all()))
print("full fine-tuning gains at least 25%:", bool(table.loc["full", "improvement_percent"] >= 25))
print("the control is far behind:", bool(table.loc[CONTROL, "perplexity"] > 1.5 * adapted.perplexity.max()))
assert (worst_seed[list(STRATEGIES)] < baseline).all()
assert table.loc["full", "improvement_percent"] >= 25
assert table.loc[CONTROL, "perplexity"] > 1.5 * adapted.perplexity.max()

# %%
learning_curves(comparison.curves)

# %%
parameters_chart(comparison.table)

# %%
cost_chart(comparison.table)

# %% [markdown]
# ## What was forgotten
#
# Lower is better on both axes: the best corner is at the bottom left. *General* here means Python's language
# reference, which is close to what the model was pretrained on.

# %%
forgetting_chart(comparison.table)

# %%
full, last = table.loc["full"], table.loc["last_layers"]
print("full forgets more than last_layers:", bool(full.general > last.general))
print("last_layers forgets something too:", bool(last.general > last.general_before))
assert full.general > last.general > last.general_before
tied = table.loc["freeze_embeddings"]
print("with the embeddings frozen, as much is gained and less forgotten:", bool(tied.general < full.general))
assert tied.perplexity < 1.1 * full.perplexity and tied.general < full.general

# %% tags=["nbval-ignore-output"]
if os.environ.get("TLKIT_RESULTS"):
    for path in export(comparison, os.environ["TLKIT_RESULTS"]):
        print(path.name)

# %% [markdown]
# **What carries over** to larger models: gain and loss are two numbers, the strategy that gains most need not lose
# most, and a ranking needs its spread. **What does not**: the gaps themselves, and the learning rates. A model of this
# size has much to learn about Rust; a large one has read it already.
#
# **Take away.** A table without a baseline, a control and a spread is an anecdote.
#
# Previous: [10 · Out of memory](10_oom_fallback.ipynb)
