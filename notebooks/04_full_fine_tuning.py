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
# # 4 · Full fine-tuning
#
# *What does training everything gain, and what does it cost?*
#
# The plainest strategy: let every weight move. What does it gain, and what does it cost?
#
# **You will** adapt every weight of the bundled model to Rust, watch the loss, and measure what was gained on
# Rust and lost elsewhere. About 6 minutes.

# %% slideshow={"slide_type": "subslide"}
import math
from dataclasses import replace

import tlkit as tl

profile = tl.setup()
rust = tl.load_corpus().limited(profile.train_passages, profile.test_passages)
general = tl.load_corpus("general").limited(test=profile.test_passages)
tiny = tl.load_model("tiny")
before = tl.perplexity(tiny.model, tiny.tokenizer, rust.validation)
general_before = tl.perplexity(tiny.model, tiny.tokenizer, general.test)
written_before = tl.generate(tiny.model, tiny.tokenizer)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What is trainable
#
# The model is a table with a row of numbers for each token (the *embedding*), then eight equal layers, called
# *blocks*, then a *head* that scores the next token. Mind the word: a block of text is 128 tokens, a block of the
# model is one of these layers.
#
# The report counts *values* and *tensors*. One published report counted tensors and called them parameters: "3 of 291
# parameters" were an embedding, a head and a norm, 272,270,208 numbers. (That program gave the model a head of its
# own; lesson 6 says what is usual.)

# %%
report = tl.apply_strategy(tiny.model, "full")
print(report)
assert report.trainable_values == report.total_values == 4_036_800
assert 2 * 151_936 * 896 + 896 == 272_270_208

# %%
tl.components_chart(report)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Train
#
# The loop is in `tlkit/training.py`, and it is meant to be read. In each step: take a batch, compute the loss,
# compute gradients, clip them, let AdamW, a common optimizer, move the weights. A learning rate of 1e-3 suits four
# million weights; for full fine-tuning of half a billion, start near 2e-5.
#
# **Predict first.** The first loss is measured before any weight has moved. The baseline, in nats per token, is
# printed below. How close will the first loss come?

# %% tags=["nbval-ignore-output"]
print(f"{before.nats_per_token:.2f} nats per token, perplexity {before.perplexity:.1f}")

# %%
blocks = tl.pack(rust.train, tiny.tokenizer, 128)
settings = tl.TrainingConfig(learning_rate=1e-3, epochs=profile.epochs, batch_size=4)
result = tl.train(report.model, blocks, settings, progress=True)

# %% tags=["nbval-ignore-output"]
print(
    f"{len(result.history)} steps, {result.tokens_per_second:,.0f} tokens/s, "
    f"peak {result.peak_memory / 1e6:.0f} MB"
)
print(f"first loss {result.history.loss.iloc[0]:.2f}")
tl.learning_curves(result.history.assign(strategy="full"))

# %%
losses = result.history.loss
tl.claim(
    "The first training loss is within one nat of the baseline",
    tl.first_loss_warning(losses.iloc[0], before.nats_per_token) is None,
)
tl.claim("The loss fell", losses.tail(5).mean() < losses.head(5).mean())

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each step reads other text, so single losses jump. The line is the mean of the last five steps, and its first points
# have fewer: that it may rise at first is the text, not the training.
#
# The first loss belongs beside the baseline's nats per token: same weights, same kind of text. In the published
# Python run the first loss was 4.6 while the baseline said ln(254,801) = 12.4. That gap was the symptom of
# labels shifted twice: the labels are the same tokens one place on, and the model shifts them itself. The program had
# done so before, so it scored the token after the next. Every perplexity in that report is wrong.

# %%
baseline = math.log(254_801)
tl.claim("ln(254,801) rounds to 12.4", round(baseline, 1) == 12.4)
tl.claim(
    "The check would have warned: 4.6 is far from 12.4",
    tl.first_loss_warning(4.6, baseline),
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Gained and lost

# %%
after = tl.perplexity(report.model, tiny.tokenizer, rust.validation)
general_after = tl.perplexity(report.model, tiny.tokenizer, general.test)

# %% tags=["nbval-ignore-output"]
scores = tl.score_table(
    {
        "Rust, before": before,
        "Rust, after": after,
        "Python reference, before": general_before,
        "Python reference, after": general_after,
    }
)
scores.round(2)

# %%
tl.perplexity_chart(scores)

# %%
tl.claim(
    "Rust perplexity fell by at least 25%",
    after.perplexity < 0.75 * before.perplexity,
)
tl.claim(
    "Perplexity on the Python reference rose",
    general_after.perplexity > general_before.perplexity,
)

# %% tags=["nbval-ignore-output"]
for old, new in zip(
    written_before, tl.generate(report.model, tiny.tokenizer), strict=True
):
    print("before:", old)
    print("after: ", new, "\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The text now uses Rust's words. It is still a model of four million weights after minutes of training: read it
# for vocabulary and tone, not for truth. A larger pretrained model gains less from the same text, because
# it has read more like it; that adapting costs something elsewhere is expected to carry over.
#
# ## Try other settings
#
# Begin with *full* and another learning rate; later lessons explain the other strategies. Stop when you have seen
# enough: the model that was reached is kept, as `lab.state.model`.

# %%
lab = tl.TrainingLab()
lab

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Too little text, too often
#
# The published experiment trained on 25 sentences, twenty times. Do the same, with validation text beside it.
#
# **Predict first.** Where will the training loss end? Where the validation loss?

# %%
facts = tl.load_corpus("facts")
few = tl.pack(facts.train, tiny.tokenizer, 128)
unseen = tl.pack(rust.validation, tiny.tokenizer, 128)[:8]
print(len(facts.train), "sentences,", few.numel(), "tokens")
overfitted = tl.apply_strategy(tl.load_model("tiny").model, "full")
settings = tl.TrainingConfig(
    learning_rate=1e-3, epochs=20, batch_size=4, evaluate_every=4
)
runs = {"20 epochs": tl.train(overfitted.model, few, settings, validation=unseen)}
tl.overfitting_chart(runs)

# %%
curve = runs["20 epochs"].validation.validation_perplexity
last_loss = runs["20 epochs"].history.loss.tail(3).mean()
tl.claim("The training loss ends below a fifth of a nat", last_loss < 0.2)
tl.claim(
    "Validation perplexity turned up before half time",
    curve.idxmin() < len(curve) / 2,
)
tl.claim("It ends at least twice as high", curve.iloc[-1] > 2 * curve.min())

# %% [markdown] slideshow={"slide_type": "subslide"}
# Near zero on the sentences, and away from everything else. What does such a model write? Give it the first five words
# of each sentence.

# %%
beginnings = [" ".join(fact.split()[:5]) for fact in facts.train]
endings = [
    fact[len(start) :].strip()
    for start, fact in zip(beginnings, facts.train, strict=True)
]
written = tl.generate(overfitted.model, tiny.tokenizer, beginnings)
recited = sum(
    ending[:30] in text for ending, text in zip(endings, written, strict=True)
)
tl.claim(
    "It recites 30 characters of the sentence, for more than half of them",
    recited > len(facts.train) / 2,
)

# %% tags=["nbval-ignore-output"]
print(recited, "of", len(facts.train))
for start, text in list(zip(beginnings, written, strict=True))[:3]:
    print(f"{start} | {text.removeprefix(start)}\n")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Five remedies, one at a time
#
# The reports recommend several at once. Then nobody knows which one helped. Here they are one by one: stop early, fewer
# epochs, more weight decay, dropout, and training only the last two blocks of the model (`last_layers`, lesson 7). That
# one runs twice, the second time with a larger learning rate.


# %%
def attempt(name, strategy="full", dropout=0.0, **changes):
    model = tl.apply_strategy(tl.load_model("tiny").model, strategy).model
    for block in tl.find_blocks(model):
        block.self_attn.attention_dropout = dropout
    runs[name] = tl.train(model, few, replace(settings, **changes), validation=unseen)


attempt("early stopping", patience=2)
attempt("5 epochs", epochs=5)

# %%
attempt("weight decay 0.1", weight_decay=0.1)
attempt("dropout 0.1", dropout=0.1)

# %%
attempt("last_layers", strategy="last_layers")
attempt("last_layers, its own rate", strategy="last_layers", learning_rate=5e-3)

# %%
tl.overfitting_chart(runs)

# %%
ends = {
    name: float(run.validation.validation_perplexity.iloc[-1])
    for name, run in runs.items()
}
# Early stopping brings the best weights back.
ends["early stopping"] = float(
    runs["early stopping"].validation.validation_perplexity.min()
)
untouched = math.exp(tl.mean_loss(tl.load_model("tiny").model, unseen))

# %% tags=["nbval-ignore-output"]
print(
    f"untouched {untouched:.0f}", {name: round(value) for name, value in ends.items()}
)

# %%
plain = ends["20 epochs"]
for name in ("weight decay 0.1", "dropout 0.1"):
    tl.claim(
        f"{name}: changes the end by less than a quarter",
        abs(ends[name] / plain - 1) < 0.25,
    )
for name in ("early stopping", "5 epochs", "last_layers"):
    tl.claim(
        f"{name}: ends below two thirds of what 20 epochs give",
        ends[name] < 2 / 3 * plain,
    )
fair = ends["last_layers, its own rate"]
tl.claim("With the rate that suits it, last_layers ends worse than full", fair > plain)
tl.claim("Early stopping ends best", ends["early stopping"] == min(ends.values()))
tl.claim("20 epochs end above the untouched model", plain > untouched)
tl.claim(
    "25 sentences gain something, but less than a quarter",
    0.75 * untouched < ends["early stopping"] < untouched,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# (Seven lines, and not all can be seen: `20 epochs` lies under `weight decay 0.1`. So does `early stopping`, which ends
# after two evaluations without a gain and goes back to its best weights.)
#
# Stopping in time helps most. Weight decay shrinks a weight by a ten-thousandth a step: forty steps are too few for it
# to matter. Dropout of a tenth of the attention matters little.
#
# The smaller strategy looks like a remedy, and is none. Few weights with the rate of many learn slowly, that is all.
# With the rate that suits them (lesson 14 says how it was found) they recite as well as the others, and end worse.
#
# And no remedy makes text out of nothing. What more text does is in lesson 14, too.
#
# **Take away.** Full fine-tuning adapts well, and it forgets; on too little text it recites. Whether less
# training does as well is the question of the next lessons. Compare the first loss with the baseline, always.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `tl.check` says what it looked at and, if the answer
# is not right yet, why. Stuck? `tl.hint("ex04_1", 1)` is a first push, `tl.hint("ex04_1", 2)` says more. After *Restart
# Kernel* run the next cell first; then each exercise works by itself.

# %%
import tlkit as tl

# %% [markdown]
# **Quiz.** After 20 epochs on 25 sentences the training loss is 0.1. What do you know about other text?
#
# - **a** The model now predicts all text better.
# - **b** Nothing, until other text is scored.
# - **c** The model is ruined for other text.

# %%
tl.quiz("quiz04")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 4.1** (first steps). A training run reports a first loss of 3.1 nats per token. What is its perplexity?

# %%
import math

answer = None
# your code here
tl.check("ex04_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 4.2** (apply it). Write what this lesson measured as two figures in percent: by how much perplexity on Rust
# fell (the gain), and by how much it rose on general text (the cost).


# %%
def gain_and_cost(before, after, general_before, general_after):
    """Both in percent of what was there before."""
    # your code here


tl.check("ex04_2", gain_and_cost)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 4.3** (think further). Early stopping ends training after `patience` evaluations in a row without a new
# best loss, and brings the best weights back. From which evaluation are they? Count from 0.


# %%
def best_evaluation(validation_losses, patience):
    """The place of the weights that early stopping brings back."""
    # your code here


tl.check("ex04_3", best_evaluation)

# %% [markdown]
# Previous: [3 · Data and a baseline to trust](03_data_and_baseline.ipynb) ·
# Next: [5 · Freeze the lower layers](05_freeze_lower_layers.ipynb)
