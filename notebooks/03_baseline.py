# %% [markdown] slideshow={"slide_type": "slide"}
# # 3 · A baseline to trust
#
# *How good is a model before training, and how sure is that number?*
#
# Fine-tuning is judged by two scores: one before training and one after it. If the first is wrong, so is the
# improvement. So ask five questions of a score:
#
# 1. Which windows and which tokenizer does it use?
# 2. How far would other passages move it?
# 3. What would guessing score?
# 4. Were all weights loaded?
# 5. Has the model read this text before?
#
# **You will be able to**
#
# - compute the [perplexity](glossary.md#perplexity) of a model on your own text, with a confidence interval;
# - say whether a perplexity is good, bad, or a sign of a fault;
# - say what training, validation and test data are for, and find what has leaked from the first into the others.
#
# **You need** [lesson 1](01_first_fine_tuning.ipynb), and the loss and the residual stream of [lesson
# 2](02_inside_a_language_model.ipynb).
#
# About 33 minutes.

# %% slideshow={"slide_type": "subslide"}
import math
import tempfile

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl

tl.setup()
rust = tl.load_corpus("rust")  # passages about Rust: .train, .validation and .test
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
model, report = AutoModelForCausalLM.from_pretrained(
    tl.BUNDLED, dtype=torch.float32, output_loading_info=True
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One passage
#
# To score a model, we let it read a text and look up the probability $p$ that it gave to each token that really came
# next. As in lesson 2, the *loss* of this token is $-\ln p$ [nats](glossary.md#nat), and perplexity is the exponential
# of the mean loss.


# %%
def tokens_of(text):
    """The tokens of a text, after one that gives the first something to follow."""
    start = tokenizer.bos_token or tokenizer.eos_token  # Qwen's: <|endoftext|>
    return tokenizer.encode(start + text, add_special_tokens=False)


passage = rust.validation[0]
ids = torch.tensor([tokens_of(passage)])
with torch.no_grad():
    logits = model(ids[:, :-1]).logits[0]  # (170, 4096): scores of each next token
targets = ids[0, 1:]  # (170,): the tokens that really came
losses = cross_entropy(logits, targets, reduction="none")  # (170,), in nats
mean = losses.mean()
print(f"{len(losses)} tokens, {mean:.2f} nats each, perplexity {mean.exp():.1f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# On average the model is as unsure as if it chose among 85 equally likely tokens. Which tokens cost so much?

# %% tags=["check-losses"]
pieces = [tokenizer.decode([token]).replace(" ", "␣") for token in targets[:32]]
figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
highest = losses[:32].topk(9).indices
axes.bar(range(32), losses[:32], color="#0072B2")
axes.bar(highest, losses[highest], color="#D55E00")
axes.set_xticks(range(32), pieces, rotation=90, family="monospace")
axes.set(ylabel="loss (nats)", title="9 of 32 tokens (orange) make half of the loss")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# Commas, `the` and `and` cost little, because grammar makes them likely. Most orange bars begin a content word: nothing
# that this model has read suggests that `new` follows `Box::`.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Many documents, in windows
#
# One passage says little, so we score forty. We join them into one stream, an end-of-text token in front of each,
# because a passage is shorter than the 256 tokens that the model reads at once. Then we cut the stream into *windows*
# of 256 tokens. Every token except the very first is scored once. `owner` says which document a token belongs to.


# %%
def score(model, texts, context=256):
    """A row for each token. The model must be in evaluation mode."""
    tokenized = [tokens_of(text) for text in texts]
    stream = torch.tensor([token for tokens in tokenized for token in tokens])
    owner = np.repeat(range(len(texts)), [len(tokens) for tokens in tokenized])
    losses = []
    for place in range(0, len(stream) - 1, context):
        window = stream[place : place + context + 1].to(model.device)
        with torch.no_grad():
            logits = model(window[None, :-1]).logits[0]
        losses += cross_entropy(logits.float(), window[1:], reduction="none").tolist()
    return pd.DataFrame({"document": owner[1:], "nats": losses, "tokens": 1})


def perplexity(scored):
    """Every token counts the same: all nats, divided once by all tokens."""
    return math.exp(scored.nats.sum() / scored.tokens.sum())


texts = rust.validation[:40]
baseline = score(model, texts)
print(f"windows of 256 tokens: perplexity {perplexity(baseline):.0f}")
print(f"windows of 32 tokens:  perplexity {perplexity(score(model, texts, 32)):.0f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The same model on the same text scores a quarter worse in windows of 32 tokens, because the first tokens of each have
# hardly anything before them. So take windows as long as your training rows, and compare only scores of equal windows.
#
# The tokenizer has to be the same as well, because perplexity is counted per token, and smaller pieces of text are
# easier to predict.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How sure is the number?
#
# The forty passages are a sample, and forty others would have given another score. The
# [bootstrap](glossary.md#bootstrap) estimates how far such scores lie apart. We draw forty documents from our forty
# *with replacement*, so that some come repeatedly and others not at all, and compute the perplexity of this draw. The
# range that holds the middle 95% of 10,000 such results is the 95% [confidence
# interval](glossary.md#confidence-interval).


# %%
def pooled(nats, tokens, axis):  # `perplexity` of many draws at once
    return np.exp(nats.sum(axis) / tokens.sum(axis))


def draws(documents, size):
    """Perplexity of 10,000 draws of `size` documents, one in each row."""
    rows = np.random.default_rng(0).integers(len(documents), size=(10_000, size))
    return pooled(documents.nats.values[rows], documents.tokens.values[rows], axis=1)


documents = baseline.groupby("document").sum()  # nats and tokens of each
spread = {size: draws(documents, size) for size in (1, 10, 40)}
low, high = np.quantile(spread[40], [0.025, 0.975])
print(f"perplexity {perplexity(baseline):.0f}, 95% interval {low:.0f} to {high:.0f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# At work, `scipy.stats.bootstrap` does this. `"percentile"` takes the middle 95%, and `paired=True` keeps a document's
# nats and tokens together. **Would an interval over single tokens be wider or narrower?**

# %%
for unit, df in ("documents", documents), ("single tokens", baseline):
    drawn = stats.bootstrap(
        (df.nats, df.tokens), pooled, paired=True, method="percentile", batch=100, rng=0
    )
    print("{}: {:.0f} to {:.0f}".format(unit, *drawn.confidence_interval))

# %% [markdown] slideshow={"slide_type": "subslide"}
# It is more than a third narrower, but wrong, because drawing single tokens treats them as independent. They are not:
# if a passage is about an unfamiliar part of Rust, most of its tokens are hard. So draw whole documents.
#
# **How wide is the interval for ten passages, or for one?**

# %%
figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
axes.violinplot(list(spread.values()), orientation="horizontal", showextrema=False)
for place, scores in enumerate(spread.values(), 1):
    axes.plot(np.quantile(scores, [0.025, 0.975]), [place, place], "k", linewidth=3)
axes.set_yticks([1, 2, 3], ["1 document", "10 documents", "40 documents"])
axes.set_xlabel("perplexity of a draw from the forty (bar: the middle 95% of 10,000)")
axes.set_title("The same model: a test of one passage can say 70 or 300")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# For ten passages it is about twice as wide as for forty, and for one it reaches from 70 to 300. Easy and hard
# documents balance each other, and the error of a mean shrinks with the square root of their number: half the width
# needs about four times as many documents.
#
# The interval is about *other* passages. Two models on the same passages, such as before and after training, are
# compared passage by passage, as in [lesson 4](04_full_fine_tuning.ipynb).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Is 133 a good number?
#
# Only a comparison can tell; three baselines cost almost nothing.
#
# 1. **Uniform guessing** gives each of the 4,096 tokens the same probability, so its perplexity is 4,096.
# 2. **Token frequencies**: count how often each token occurs in training text, and always predict these shares.
# 3. **Random weights**: the same network, untrained, as a [control](glossary.md#control) for pretraining.
#
# **Token frequencies will score between 133 and 4,096. Guess where.**

# %%
training = torch.tensor([token for text in rust.train for token in tokens_of(text)])
counts = torch.bincount(training, minlength=model.config.vocab_size) + 1  # no log of 0
shares = counts / counts.sum()
targets = torch.tensor([token for text in texts for token in tokens_of(text)])[1:]
torch.manual_seed(0)
untrained = AutoModelForCausalLM.from_config(model.config).eval()
python = tl.load_corpus("general").validation[:40]

# %%
ruler = {
    "pretrained, Python": perplexity(score(model, python)),
    "pretrained": perplexity(baseline),
    "token frequencies": shares[targets].log().neg().mean().exp().item(),
    "uniform guessing": len(counts),
    "random weights": perplexity(score(untrained, texts)),
}
pd.Series(ruler, name="perplexity").round().astype(int).to_frame()

# %% [markdown] slideshow={"slide_type": "subslide"}
# Frequencies already reach 667, because 300 tokens make up two thirds of the training text. The pretrained model beats
# them, although it has never read about Rust: it knows English grammar and the style of technical prose. On text about
# Python, like its training text, it scores 39.
#
# Random weights are slightly *worse* than uniform guessing, because such a network prefers some tokens for no reason. A
# score near or above the size of the vocabulary, on text in a language that the model was trained on, is a sign of a
# fault: the weights did not load, or the score is computed wrongly.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What a score hides
#
# What if only a part of the weights is missing? We leave one of the eight blocks out of the model's file, each in turn.
# transformers only warns (not shown), fills it with new tensors, the matrices with small random numbers, and goes on.
#
# Each column names the missing block. **Which blocks could be missing without anybody noticing?**


# %%
def without_block(number):
    """The model loaded from a file that lacks a block, and the loading report."""
    weights = model.state_dict()  # the tensors by their names
    kept = {name: weights[name] for name in weights if f".layers.{number}." not in name}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, state_dict=kept)
        return AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True
        )


ten = texts[:10]
loaded = {"intact": (model, report)} | {n: without_block(n) for n in range(8)}
scores = [perplexity(score(each, ten)) for each, _ in loaded.values()]
pd.DataFrame([scores], ["perplexity"], loaded).round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Any one of blocks 1 to 7 could: the model still beats token frequencies, so nothing looks wrong unless you know the
# intact score, 139. The reason is the residual stream of lesson 2: a block only adds to what the earlier ones wrote,
# and small random weights add almost nothing.
#
# **Then why is block 0 different?** We measure the mean length of the stream's vectors after the embedding and after
# the first blocks.

# %%
with torch.no_grad():
    states = model(ids, output_hidden_states=True).hidden_states
norms = [state[0].norm(dim=-1).mean() for state in states[:4]]
print("length after embedding, blocks 0 to 2:", *(f"{norm:.1f}" for norm in norms))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Block 0 makes them almost fifty times as long, so it writes nearly everything that the later blocks read. Without it
# they get the bare embedding, which they have never seen in training.
#
# As a score can hide a missing block, read the loading report as well. `doubts` checks both, and takes the score of
# token frequencies as its limit.


# %%
def doubts(model, report, texts, limit):
    """Reasons to doubt a model that was just loaded; empty if there are none."""
    value, missing = perplexity(score(model, texts)), report["missing_keys"]
    reasons = [f"{len(missing)} tensors missing"] if missing else []
    if value > limit:
        reasons.append(f"perplexity {value:,.0f}, worse than token frequencies")
    return reasons


limit = ruler["token frequencies"]
for name in ("intact", 0, 2):
    print(f"{name}:", doubts(*loaded[name], ten, limit))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Three splits, and what leaks between them
#
# The Rust text comes in three [splits](glossary.md#split).
#
# | split (passages) | what it is for | how often we look at its score |
# | --- | --- | --- |
# | training (503) | changes the weights | all the time |
# | validation (65) | chooses settings such as the learning rate | as often as we like |
# | test (63) | says how good the final choice is | once |
#
# Why is the validation score not enough? If you try twenty learning rates and keep the one with the best validation
# score, part of its lead is luck. Only text that had no part in the choice gives an honest score.
#
# If a test passage is also in the training text, its score shows what the model has memorised. This is called
# [leakage](glossary.md#leakage). A copy with one word changed still gives away all the others. So we search for runs of
# twelve words that two splits share. Paraphrases and shorter texts escape this search.


# %%
def runs(text, length):
    """All runs of so many words in a text."""
    words = text.split()
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


def leaked(held_out, others):
    """The held-out texts that share a run of twelve words with the others."""
    seen = set().union(*(runs(text, 12) for text in others))
    return [text for text in held_out if runs(text, 12) & seen]


edited = passage.replace("Box::new(value)", "Box::new(v)")  # a copy with one change
print("leaks in validation:", len(leaked(rust.validation, rust.train)))
print("leaks in test:      ", len(leaked(rust.test, rust.train + rust.validation)))
course.claim("An altered copy is found", leaked(rust.validation, [edited]) == [passage])

# %% [markdown] slideshow={"slide_type": "subslide"}
# **How much does a leak matter?** We train a model on five validation passages, and score it on these five and on ten
# others.

# %% tags=["nbval-ignore-output"]
leaky = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
optimizer = torch.optim.AdamW(leaky.parameters(), lr=1e-3)
for text in texts[:5] * 4:  # four epochs
    ids = torch.tensor([tokens_of(text)])
    leaky(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
before = [perplexity(score(model, part)) for part in (texts[:5], texts[5:15])]
after = [perplexity(score(leaky, part)) for part in (texts[:5], texts[5:15])]
leak = documents.copy()
leak.loc[0, "nats"] = leak.tokens[0] * math.log(after[0])  # as if learned by heart
print(f"one of forty leaked: {perplexity(leak):.0f}")
pd.DataFrame({"before": before, "after": after}, ["the five", "others"]).round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The model knows five texts by heart, and on the ten others it has become worse. If only the longest of our forty had
# leaked, and the others had kept their scores, the score would fall from 133 to 116, and we would praise the training
# for it.
#
# No split prevents another kind of leak: the *base model* may have read your test text in its pretraining. For a
# downloaded model, test on text that is newer than the model or was never published.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Your own text
#
# Now score your own texts. The file needs one text a row, in a column named `text`; here it holds notes about cooking.
# To compare models with different tokenizers, turn all nats into bits by dividing by $\ln2$, and divide by the number
# of bytes. This gives [bits per byte](glossary.md#bits-per-byte).


# %%
def summary(scored, texts):
    by_document = scored.groupby("document").sum()
    low, high = np.quantile(draws(by_document, len(by_document)), [0.025, 0.975])
    bits = scored.nats.sum() / math.log(2) / sum(len(text.encode()) for text in texts)
    return f"{perplexity(scored):.0f} ({low:.0f} to {high:.0f}), {bits:.2f} bits/byte"


mine = pd.read_json(tl.DATA / "kitchen/validation.jsonl", lines=True).text  # yours
kitchen = score(model, mine)
print("perplexity, Rust:   ", summary(baseline, texts))
print("perplexity, kitchen:", summary(kitchen, mine))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The notes about cooking need 33% more bits per byte than the Rust passages, but only 17% more nats per token
# ($\ln300/\ln133=1.17$), because the tokenizer cuts them into shorter pieces. Both bits per byte are slightly too high,
# as end-of-text tokens add nats, but no bytes.
#
# Before you publish a score, answer all five questions.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Compare perplexities only on the same text, with the same tokenizer and windows. Resample whole documents to see how
#   far other documents would move them.
# - A perplexity near or above the size of the vocabulary points to a fault. If only a part of the weights is missing,
#   the score may hardly show it, so read the loading report as well.
# - Training text changes the weights, validation text chooses settings, and test text is scored once. Before you train,
#   search every split for passages of the others.
#
# ## Further reading
#
# - Hugging Face, [Perplexity of fixed-length models](https://huggingface.co/docs/transformers/perplexity).
# - Efron and Tibshirani 1993, *An Introduction to the Bootstrap*.
# - Lee et al. 2022, [Deduplicating training data makes language models better](https://arxiv.org/abs/2107.06499).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex03_1", 1)`. After
# *Restart Kernel* run the next cell first.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** A colleague checks that no test passage is equal to a training passage, and finds none. But one test passage
# stands in the training text with one comma left out. What follows?
#
# - **a** The check missed a near copy, so the score of this passage is partly memory.
# - **b** Without the comma it is another text for the model, so nothing has leaked.
# - **c** The interval of the test score becomes wider, and this reveals the copy.
# - **d** Only the training loss is too good; the test score is not affected.

# %%
course.quiz("quiz03")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 3.1.** Compute the 95% bootstrap interval of the *bits per byte* over documents. Here `documents` is a list
# of pairs: a text, and the losses of its tokens in nats. Take 1,000 draws, each with as many documents as there are,
# and return the two values, low and high, between which 95% of the draws lie. Each byte counts the same.

# %%
import math
import random


def interval(documents, draws=1000):
    """Low and high end of the 95% bootstrap interval of the bits per byte."""
    # your code here


course.check("ex03_1", interval)

# %% [markdown]
# Previous: [2 · Inside a language model](02_inside_a_language_model.ipynb) ·
# Next: [4 · Full fine-tuning](04_full_fine_tuning.ipynb)
