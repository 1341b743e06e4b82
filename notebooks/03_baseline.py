# %% [markdown] slideshow={"slide_type": "slide"}
# # 3 · A baseline to trust
#
# *How good is a model before training, and how sure is that number?*
#
# Fine-tuning is judged by two scores: one before training and one after it. If the first is wrong, so is the
# improvement. In this lesson you compute such a score by hand, find out how far chance could have
# moved it, and learn which faults such a number shows and which it hides.
#
# **You will be able to**
#
# - compute the [perplexity](glossary.md#perplexity) of any language model on your own text, with a confidence
#   interval;
# - say whether a perplexity is good, bad, or a sign of a fault;
# - split a text into training, validation and test data, and find what has leaked from one into another.
#
# **You need** [lesson 1](01_first_fine_tuning.ipynb), and the idea from [lesson 2](02_inside_a_language_model.ipynb)
# that a model gives every possible next token a probability.
#
# About 33 minutes.

# %% slideshow={"slide_type": "subslide"}
import math
import tempfile

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl

profile = tl.setup()
rust = tl.load_corpus("rust")
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
model = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Perplexity by hand
#
# To score a model, we let it read a text and look up the probability that it gave to each token that really came
# next. If that was 0.5, the model was hardly surprised; if it was 0.0001, it was very surprised. The surprise is
# measured as $-\ln p$, in [nats](glossary.md#nat), and is also called the *loss* of the token. Perplexity is the
# exponential of the mean loss:
#
# $$\mathrm{PPL} = \exp\Big(-\frac{1}{N} \sum_{i=1}^{N} \ln p(t_i \mid t_0, \dots, t_{i-1})\Big)$$
#
# - $t_1, \dots, t_N$ are the tokens of the text, and $t_0$ is the end-of-text token. It only gives the first token
#   something to follow, and is not scored itself.
# - $p(t_i \mid t_0, \dots, t_{i-1})$ is the probability that the model gave to $t_i$ after reading those before it.

# %%
passage = rust.validation[0]
ids = torch.tensor([[tokenizer.eos_token_id, *tokenizer(passage)["input_ids"]]])
with torch.no_grad():
    # the last token predicts nothing that we can score
    logits = model(ids[:, :-1]).logits  # (1, 170, 4096): scores of each next token
log_p = logits[0].log_softmax(dim=-1)  # (170, 4096)
came = ids[0, 1:]  # (170,): the tokens that really came
losses = -log_p[range(len(came)), came]  # (170,), in nats
by_hand = losses.mean().exp().item()
print(f"{len(losses)} tokens, {losses.mean():.2f} nats each, perplexity {by_hand:.1f}")

# %% tags=["check-losses"]
shown = losses[:32]
pieces = [tokenizer.decode([token]).replace(" ", "␣") for token in came[:32]]
figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
axes.bar(range(32), shown, color="#0072B2")
axes.set_xticks(range(32), pieces, rotation=90, family="monospace")
axes.set_ylabel("loss of the token (nats)")
axes.set_title("9 of 32 tokens make half of the loss")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# Commas, `the` and `and` cost little, because grammar makes them likely. The beginning of a word with content usually
# costs most: nothing that this model has read suggests that `new` follows `Box::`. Once a word has begun, its other
# pieces are often easy, as `ved` is after `mo`.
#
# Read the exponential as a number of choices. A model that is always undecided between $V$ equally likely tokens gives
# the right one the probability $1/V$, so its loss is $\ln V$ and its perplexity exactly $V$. A perplexity of 85 means
# that the model is on average as unsure as somebody who chooses between 85 equally likely tokens.
#
# At work you get the same number from the model itself. `labels` are the *same* tokens as the inputs, because the
# model moves them by one place on its own.

# %%
with torch.no_grad():
    loss = model(input_ids=ids, labels=ids).loss
print(f"by hand {by_hand:.2f}, from the model's own loss {loss.exp():.2f}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Many documents, in windows
#
# One passage says little, so we score forty. The model reads at most 256 tokens at once. Therefore the passages are
# joined to one stream, an end-of-text token in front of each, and the stream is read in *windows* of 256 tokens, one
# after another, so that every token but the very first is scored once. (From the second passage on that includes the
# end-of-text token, which the model has to predict from the passage before.) `owner` holds for each token the number of its document. It lets us
# add up the losses of each document separately, which the intervals below need.


# %%
def score(model, tokenizer, texts, context=256):
    """Nats, tokens and bytes of each text; all are read as one stream, in windows."""
    start = tokenizer.eos_token_id
    tokenized = [[start, *tokenizer(text)["input_ids"]] for text in texts]
    stream = torch.tensor([token for tokens in tokenized for token in tokens])
    owner = np.repeat(range(len(texts)), [len(tokens) for tokens in tokenized])
    losses = []
    for place in range(0, len(stream) - 1, context):
        window = stream[place : place + context + 1]
        with torch.no_grad():
            logits = model(window[None, :-1]).logits[0]
        losses += cross_entropy(logits.float(), window[1:], reduction="none").tolist()
    scored = pd.DataFrame({"document": owner[1:], "nats": losses, "tokens": 1})
    scored = scored.groupby("document").sum()
    return scored.assign(bytes=[len(text.encode()) for text in texts])


def perplexity(scored):
    """Every token counts the same: all nats, divided once by all tokens."""
    return math.exp(scored.nats.sum() / scored.tokens.sum())


texts = rust.validation[:40]
baseline = score(model, tokenizer, texts)
short = score(model, tokenizer, texts, context=32)
print(f"windows of 256 tokens: perplexity {perplexity(baseline):.0f}")
print(f"windows of 32 tokens:  perplexity {perplexity(short):.0f}")
print(f"tl.perplexity: {tl.perplexity(model, tokenizer, texts).perplexity:.0f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# `tl.perplexity` is the function above with a few checks, and later lessons call it.
#
# The same model on the same text scores a quarter worse in windows of 32 tokens than in windows of 256, because the
# first tokens of each window have hardly anything before them. So two perplexities can be compared only if their
# windows are the same. This course uses 256. The tokenizer has to be the same as well, because perplexity is counted
# per token: a tokenizer that cuts the text into more and smaller pieces makes each piece easier to predict. To compare
# models with different tokenizers, divide the loss of the whole text by its number of bytes instead, which gives [bits
# per byte](glossary.md#bits-per-byte).
#
# Adding up all losses and dividing once is the usual convention, since it is what training minimises. A mean of the
# documents' perplexities would be another number, in which the hardest documents dominate.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How sure is the number?
#
# The forty passages are a sample, and forty others would have given another score. We cannot write new ones each time,
# but we can draw from those that we have. This is the [bootstrap](glossary.md#bootstrap): we draw forty documents from
# the forty *with replacement*, so that some come twice or more and others not at all, and compute the perplexity of
# this draw. `DataFrame.sample` does it in one line.
#
# **Run the next cell a few times with other values of `random_state`. By how much does the perplexity of 133 move?**

# %%
draw = baseline.sample(len(baseline), replace=True, random_state=1)
print(f"{draw.index.nunique()} different documents, perplexity {perplexity(draw):.0f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Now we repeat this 1,000 times. The range that holds the middle 95% of the results is the 95% [confidence
# interval](glossary.md#confidence-interval).


# %%
def draws(scored, size):
    """Perplexity of 1,000 draws of `size` documents."""
    chance = np.random.default_rng(0)
    return [
        perplexity(scored.sample(size, replace=True, random_state=chance))
        for _ in range(1000)
    ]


low, high = np.quantile(draws(baseline, 40), [0.025, 0.975])
print(f"perplexity {perplexity(baseline):.0f}, 95% interval {low:.0f} to {high:.0f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# At work, `scipy.stats.bootstrap` does this for any statistic. Now we ask how wide the interval would be for a smaller
# test, of one passage or of ten. The shapes show how often each perplexity occurs.

# %%
figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
spread = {size: draws(baseline, size) for size in (1, 10, 40)}
axes.violinplot(list(spread.values()), orientation="horizontal", showextrema=False)
for place, scores in enumerate(spread.values(), 1):
    axes.plot(np.quantile(scores, [0.025, 0.975]), [place, place], "k", linewidth=3)
axes.set_yticks([1, 2, 3], ["1 document", "10 documents", "40 documents"])
axes.set_xlabel("perplexity of a test (bar: the middle 95% of 1,000 tests)")
axes.set_title("The same model: a test of one passage can say 70 or 300")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# Single passages differ greatly. The score of forty moves much less, because easy and hard documents balance each
# other. The error of a mean shrinks with the square root of the number, so an interval half as wide needs about four
# times as many documents.
#
# Draw whole documents and not single tokens. If a passage is about an unfamiliar part of Rust, most of its tokens are
# hard, so its tokens are not independent measurements. An interval that treats them as independent is too narrow. When
# two models are compared on the *same* documents, part of the spread cancels; [lesson 15](15_comparison.ipynb) uses
# that.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Is 133 a good number?
#
# A perplexity means little without something to compare it with. Three baselines cost almost nothing.
#
# 1. **Uniform guessing** gives each of the 4,096 tokens the same probability. Its perplexity is 4,096.
# 2. **Token frequencies**: count how often each token occurs in training text, and always predict these shares,
#    whatever came before.
# 3. **Random weights**: the same network, untrained. It is the [control](glossary.md#control) that shows what
#    pretraining is worth.


# %%
def tokens_of(texts):
    return torch.tensor([t for text in texts for t in tokenizer(text)["input_ids"]])


vocabulary = model.config.vocab_size
counts = torch.bincount(tokens_of(rust.train), minlength=vocabulary) + 1  # none is 0
shares = counts / counts.sum()
torch.manual_seed(0)
untrained = AutoModelForCausalLM.from_config(model.config)

# %% [markdown] slideshow={"slide_type": "subslide"}
# We also plant a fault: in a copy of the model's file, one of the eight blocks is missing. transformers fills it with
# random numbers and goes on, as [lesson 1](01_first_fine_tuning.ipynb) showed.
#
# **Where between 133 and 4,096 are token frequencies, and where is the model that lacks a block?**

# %%
weights = model.state_dict()  # the tensors by their names
weights = {name: weights[name] for name in weights if ".layers.2." not in name}
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder, state_dict=weights)
    incomplete, report = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )

# %%
ruler = {
    "pretrained": perplexity(baseline),
    "one block of eight random": perplexity(score(incomplete, tokenizer, texts)),
    "token frequencies": shares[tokens_of(texts)].log().neg().mean().exp().item(),
    "uniform guessing": vocabulary,
    "random weights": perplexity(score(untrained, tokenizer, texts)),
}
for name, value in ruler.items():
    print(f"{name:26} {value:5,.0f}")

# %%
course.claim(
    "The pretrained model is four times better than frequencies of real Rust text",
    4 * ruler["pretrained"] < ruler["token frequencies"],
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Frequencies already gain so much because a few hundred words and punctuation marks make up most of a text. The
# pretrained model beats them clearly, although it has never read about Rust: it knows English grammar and the style of
# technical prose. That is the reason for transfer learning, since we start from 133 and not from about 4,200.
#
# Random weights are slightly *worse* than uniform guessing. Such a network prefers some tokens for no reason, and this
# costs more than it gains. So if a model scores near or above the size of its vocabulary, on text in a language that it
# was trained on, then it knows nothing of that language or the score is computed wrongly. Difficult text does not
# explain it, because frequencies would do far better.
#
# But the model that lacks a block scores 153 instead of 133, and without the right number beside it nobody would be
# alarmed. A score finds a model that did not load at all; the loading report finds one that loaded in part. The check
# below uses both. Its limit, a tenth of the vocabulary, suits vocabularies like ours. With a much larger one, compare
# the score with what the frequencies of the text's own tokens would give.


# %%
def doubts(model, report, tokenizer, texts):
    """Reasons to doubt a model that was just loaded; empty if there are none."""
    reasons = []
    missing = report["missing_keys"]
    if missing:
        reasons.append(f"{len(missing)} tensors missing, such as {min(missing)}")
    value = perplexity(score(model, tokenizer, texts))
    if value > model.config.vocab_size / 10:  # frequencies reach about a sixth
        reasons.append(f"perplexity {value:,.0f} is near that of guessing")
    return reasons


print("pretrained:", doubts(model, {"missing_keys": ()}, tokenizer, texts[:10]))
print("incomplete:", doubts(incomplete, report, tokenizer, texts[:10]))
print("random:    ", doubts(untrained, {"missing_keys": ()}, tokenizer, texts[:10]))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The same test works on other people's results. A published report of a fine-tuning begins with a perplexity of
# 254,801, and its model has 151,936 tokens in its vocabulary. What it measured, and why, is a question for [lesson
# 16](16_autopsy.ipynb).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Three splits, and what leaks between them
#
# The Rust text consists of 631 short passages in three [splits](glossary.md#split).
#
# | split | what it is for | how often we look at its score |
# | --- | --- | --- |
# | training | changes the weights | all the time; the model may know this text by heart |
# | validation | chooses settings such as the learning rate | as often as we like |
# | test | says how good the final choice is | once, for the final choice |
#
# Two would not be enough. If you try twenty learning rates and keep the one with the best validation score, part of its
# lead is luck. Only text that had no part in the choice gives an honest score.
#
# A passage that is in two splits is called [leakage](glossary.md#leakage), because its score shows what the model has
# memorised. A copy that differs by one word is nearly as bad. So we look for runs of twelve words that two splits
# share.


# %%
def runs(text, length):
    """All runs of so many words in a text."""
    words = text.split()
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


def leaked(held_out, training):
    """The held-out texts that share a run of twelve words with the training text."""
    seen = set().union(*(runs(text, 12) for text in training))
    return [text for text in held_out if runs(text, 12) & seen]


almost = passage.replace("Box::new(value)", "Box::new(v)")  # a copy with one change
held_out = rust.validation + rust.test
print("leaked from training:", len(leaked(held_out, rust.train)))
print("with the altered copy:", len(leaked(held_out, [*rust.train, almost])))

# %% [markdown] slideshow={"slide_type": "subslide"}
# **How much does a leak matter?** We train a model on five validation passages for a few seconds, and score it on these
# five and on ten others.

# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
cheat = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
optimizer = torch.optim.AdamW(cheat.parameters(), lr=1e-3)
for _ in range(4):
    for text in texts[:5]:
        ids = torch.tensor([[tokenizer.eos_token_id, *tokenizer(text)["input_ids"]]])
        cheat(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
five, others = texts[:5], texts[5:15]
before = [perplexity(score(model, tokenizer, part)) for part in (five, others)]
after = [perplexity(score(cheat, tokenizer, part)) for part in (five, others)]
print(f"the five: {before[0]:.0f} before, {after[0]:.1f} after")
print(f"others:   {before[1]:.0f} before, {after[1]:.1f} after")

# %%
course.claim(
    "The leak makes the model twenty times better on the leaked text, and on no other",
    after[0] < before[0] / 20 and after[1] > before[1],
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The model knows five texts by heart, and on other passages it has become worse than before. A leak in a real project
# is rarely this complete, and a score that is a little too good raises no suspicion. So search for leaks before you
# train.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Perplexity is the exponential of the mean loss per token. It can be compared only on the same text, with the same
#   tokenizer and the same windows. Resample whole documents to see how far it could have moved.
# - A perplexity near or above the size of the vocabulary points to weights that did not load or to a wrong score. A
#   model that loaded in part hardly shows, so read the loading report as well.
# - Training text changes the weights, validation text chooses settings, and test text is scored once. Search for
#   passages that two splits share before you train.
#
# ## Further reading
#
# - Hugging Face, [Perplexity of fixed-length models](https://huggingface.co/docs/transformers/perplexity): windows and
#   strides, with pictures.
# - Efron and Tibshirani 1993, *An Introduction to the Bootstrap*, chapters 1 to 6.
# - Lee et al. 2022, [Deduplicating training data makes language models better](https://arxiv.org/abs/2107.06499).
# - Gao et al. 2020, [The Pile](https://arxiv.org/abs/2101.00027), section 3.1: why bits per byte compares tokenizers.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex03_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** A colleague checks that no test passage is equal to a training passage, and finds none. But one test passage
# stands in the training text with one comma left out. What follows?
#
# - **a** The check compares whole passages, character by character. This score is in part a test of memory all the
#   same.
# - **b** Without the comma it is another text for the model, so nothing has leaked.
# - **c** The interval of the test score becomes wider, and this reveals the copy.
# - **d** Only the training loss is too good; the test score is not affected.

# %%
course.quiz("quiz03")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 3.1.** Compute the 95% interval of a perplexity by the bootstrap over *documents* that the lesson
# describes. Here `documents` is a list of documents, and each document is a list with the loss of every token in nats.
# Take 1,000 draws, each with as many documents as there are, and return the two perplexities, low and high, between
# which 95% of the draws lie. Each token counts the same, as in the rest of the lesson.

# %%
import math
import random


def interval(documents, draws=1000):
    """Low and high end of perplexity, for other documents of the same kind."""
    # your code here


course.check("ex03_1", interval)

# %% [markdown]
# Previous: [2 · Inside a language model](02_inside_a_language_model.ipynb) ·
# Next: [4 · Full fine-tuning](04_full_fine_tuning.ipynb)
