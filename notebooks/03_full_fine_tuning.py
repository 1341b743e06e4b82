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
# # 3 · Full fine-tuning
#
# *What does training everything gain, and what does it cost?*
#
# The plainest strategy: let every weight move. What does it gain, and what does it cost?
#
# **You will** adapt every weight of the bundled model to Rust, watch the loss, and measure what was gained on
# Rust and lost elsewhere. About 4 minutes.

# %%
from tlkit.charts import components_chart, learning_curves, perplexity_chart
from tlkit.corpus import load_corpus, pack
from tlkit.evaluation import first_loss_warning, generate, perplexity, score_table
from tlkit.models import load_model
from tlkit.settings import setup
from tlkit.strategies import apply_strategy
from tlkit.training import TrainingConfig, train

profile = setup()
rust = load_corpus().limited(profile.train_passages, profile.test_passages)
general = load_corpus("general").limited(test=profile.test_passages)
tiny = load_model("tiny")
before = perplexity(tiny.model, tiny.tokenizer, rust.validation)
general_before = perplexity(tiny.model, tiny.tokenizer, general.test)
written_before = generate(tiny.model, tiny.tokenizer)

# %% [markdown]
# ## What is trainable
#
# The report counts *values* and *tensors*. One published report counted tensors and called them parameters:
# "3 of 291 parameters" were an embedding, a head and a norm, 272,270,208 numbers.

# %%
report = apply_strategy(tiny.model, "full")
print(report)
assert report.trainable_values == report.total_values == 4_036_800
assert 2 * 151_936 * 896 + 896 == 272_270_208

# %%
components_chart(report)

# %% [markdown]
# ## Train
#
# The loop is in `tlkit/training.py`, and it is meant to be read. In each step: take a batch, compute the loss,
# compute gradients, clip them, let AdamW, a common optimizer, move the weights. A learning rate of 2e-3 suits four
# million weights; for full fine-tuning of half a billion, start near 2e-5.
#
# **Predict first.** The first loss is measured before any weight has moved. The baseline, in nats per token, is
# printed below. How close will the first loss come?

# %% tags=["nbval-ignore-output"]
print(f"{before.nats_per_token:.2f} nats per token, perplexity {before.perplexity:.1f}")

# %%
blocks = pack(rust.train, tiny.tokenizer, 128)
settings = TrainingConfig(learning_rate=2e-3, epochs=profile.epochs, batch_size=4)
result = train(report.model, blocks, settings, progress=True)

# %% tags=["nbval-ignore-output"]
print(f"{len(result.history)} steps, {result.tokens_per_second:,.0f} tokens/s, peak {result.peak_memory / 1e6:.0f} MB")
print(f"first loss {result.history.loss.iloc[0]:.2f}")
learning_curves(result.history.assign(strategy="full"))

# %%
first = result.history.loss.iloc[0]
print("first training loss within one nat of the baseline:", first_loss_warning(first, before.nats_per_token) is None)
print("loss fell:", result.history.loss.tail(5).mean() < result.history.loss.head(5).mean())
assert first_loss_warning(first, before.nats_per_token) is None
assert result.history.loss.tail(5).mean() < result.history.loss.head(5).mean()

# %% [markdown]
# The first loss belongs beside the baseline's nats per token: same weights, same kind of text. In the published
# Python run the first loss was 4.6 while the baseline said ln(254,801) = 12.4. That gap was the symptom of
# labels shifted twice: the labels are the same tokens one place on, and the model shifts them itself. The program had
# done so before, so it scored the token after the next. Every perplexity in that report is wrong.

# %%
import math

print("ln(254,801) rounds to 12.4:", round(math.log(254_801), 1) == 12.4)
print("the check would have spoken:", first_loss_warning(4.6, math.log(254_801)) is not None)
assert round(math.log(254_801), 1) == 12.4 and first_loss_warning(4.6, math.log(254_801))

# %% [markdown]
# ## Gained and lost

# %%
after = perplexity(report.model, tiny.tokenizer, rust.validation)
general_after = perplexity(report.model, tiny.tokenizer, general.test)

# %% tags=["nbval-ignore-output"]
scores = score_table(
    {
        "Rust, before": before,
        "Rust, after": after,
        "Python reference, before": general_before,
        "Python reference, after": general_after,
    }
)
scores.round(2)

# %%
perplexity_chart(scores)

# %%
print("Rust perplexity fell by at least 25%:", after.perplexity < 0.75 * before.perplexity)
print("general perplexity rose:", general_after.perplexity > general_before.perplexity)
assert after.perplexity < 0.75 * before.perplexity
assert general_after.perplexity > general_before.perplexity

# %% tags=["nbval-ignore-output"]
for old, new in zip(written_before, generate(report.model, tiny.tokenizer), strict=True):
    print("before:", old)
    print("after: ", new, "\n")

# %% [markdown]
# The text now uses Rust's words. It is still a model of four million weights after minutes of training: read it
# for vocabulary and tone, not for truth. A larger pretrained model gains less from the same text, because
# it has read more like it; that adapting costs something elsewhere is expected to carry over.
#
# **Take away.** Full fine-tuning adapts well, and it forgets. Whether less training does as well is the question of
# the next lessons. Compare the first loss with the baseline, always.
#
# Previous: [2 · Data and baseline](02_data_and_baseline.ipynb) ·
# Next: [4 · Freeze lower layers](04_freeze_lower_layers.ipynb)
