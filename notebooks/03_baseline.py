# %% [markdown] slideshow={"slide_type": "slide"}
# # 3 · Data and a baseline to trust
#
# *What is measured before training, and how sure is it?*
#
# Every result in this course is a comparison: a score before training, and a score after it. Such a comparison is
# only worth something if the *before* is right. The published Python program began with a baseline of 254,801, which
# nobody questioned, and everything that came after it was measured against that number. This lesson builds a baseline
# slowly enough that you can check each part of it, and shows how large a number has to be before it should alarm you.
#
# **You will be able to**
#
# - split a text into training, validation and test data, and find what has leaked from one into another;
# - compute [perplexity](glossary.md#perplexity) by hand, and judge whether a given value is good, bad or a sign of a
#   fault;
# - say how much a score would have changed if other documents had been scored.
#
# **You need** [lesson 1](01_first_fine_tuning.ipynb), which loads the model. [Lesson
# 2](02_inside_a_language_model.ipynb) explains what happens inside it; here it is enough that a model gives every
# possible next token a probability.
# About 51 minutes.

# %% slideshow={"slide_type": "subslide"}
import math
from statistics import mean

import torch

import course
import tlkit as tl
from course.lesson03 import pictures

profile = tl.setup()
rust = tl.load_corpus("rust")
tiny = tl.load_model("tiny")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Three splits, and why three
#
# The Rust text of this course consists of 631 short passages. They are divided into three parts, called
# [splits](glossary.md#split).
#
# | split | what it is for | how often we look at its score |
# | --- | --- | --- |
# | training | changes the weights | all the time; the model may know this text by heart |
# | validation | chooses settings: the learning rate, the number of epochs, the strategy | as often as we like |
# | test | says how good the final choice is | once, in [lesson 15](15_comparison.ipynb) |
#
# Two splits would not be enough. Suppose that you try twenty learning rates and keep the one with the best validation
# score. Part of its lead is luck, because the best of twenty noisy scores is likely to be one that the noise has
# helped. The score of the winner is therefore too good, and only text that had no part in any choice, the test split,
# gives an honest one.

# %%
for split in ("train", "validation", "test"):
    print(f"{split}: {len(getattr(rust, split))} passages")
print(f"\nOne of them:\n{rust.validation[0]}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Duplicates and leakage
#
# If a passage is in the training split and also in the validation split, its score tells us what the model has
# memorised and not what it has learned. This is called [leakage](glossary.md#leakage). Whole duplicates are easy to
# find. Copies that differ by a word are not, so one also looks for long runs of words that two splits share.


# %%
def runs(text, length=12):
    """All runs of twelve words in a text."""
    words = text.split()
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


def leaked(held_out, training):
    """The held-out passages that share a run of words with the training text."""
    known = set().union(*map(runs, training))
    return [text for text in held_out if runs(text) & known]


held_out = rust.validation + rust.test
almost = rust.validation[0].replace("Box::new(value)", "Box::new(v)")
print("held-out passages that share twelve words with training text:", end=" ")
print(len(leaked(held_out, rust.train)))
print("validation passages that share them with `almost`:", end=" ")
print(len(leaked(rust.validation, [almost])))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Nothing has leaked. The last line plants a fault and checks that the search finds it: `almost` is the first validation
# passage with one variable renamed, so it equals no passage, but it shares nearly all of its runs of twelve words with
# that one.
#
# **Predict first.** How much does leakage matter? Below, one model is trained for a few seconds on five training
# passages, and another one, for just as many steps, on the five validation passages that both are then scored on.
# ([Lesson 4](04_full_fine_tuning.ipynb) explains the training.) How far apart will the two scores be?

# %%
asked, others = rust.validation[:5], rust.validation[5:20]
after = {}
for name, text in {"honest": rust.train[:5], "leaked": asked}.items():
    trained = tl.load_model("tiny")
    blocks = tl.pack(text, trained.tokenizer, 128)
    config = tl.TrainingConfig(learning_rate=5e-4, epochs=6, batch_size=2)
    tl.train(trained.model, blocks, config, progress=True)
    after[name] = [
        tl.perplexity(trained.model, trained.tokenizer, texts).perplexity
        for texts in (asked, others)
    ]

# %% tags=["nbval-ignore-output"]
for name, (on_asked, on_others) in after.items():
    print(f"{name}: {on_asked:6.1f} on the five passages, {on_others:6.1f} on others")

# %%
course.claim(
    "On the five passages the honest model scores over fifteen times the leaked one's",
    after["honest"][0] > 15 * after["leaked"][0],
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The leaked model is not better at Rust: on passages that neither model has seen, the two score about the same. It
# has learned five texts by heart, so its low perplexity on these texts measures only memory. A leak in a real project
# is rarely this complete, and therefore it is harder to notice: a score that is a little too good raises no
# suspicion.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Perplexity, by hand
#
# A language model reads the tokens of a text so far and gives each token of its vocabulary a probability of being
# next. To score it, we look up the probability that it gave to the token that really came next. If that was 0.5, the
# model was hardly surprised; if it was 0.0001, it was very surprised. The surprise is measured as $-\ln p$ and is
# also called the *loss* of the token. Its unit is the [nat](glossary.md#nat), because the logarithm is the natural
# one.
#
# Perplexity is the exponential of the mean loss:
#
# $$\mathrm{PPL} = \exp\Big(-\frac{1}{N} \sum_{i=1}^{N} \ln p(t_i \mid t_1, \dots, t_{i-1})\Big)$$
#
# - $t_i$ is the $i$-th token, and $p(t_i \mid t_1, \dots, t_{i-1})$ is the probability that the model gave to it after
#   it had read the tokens before it;
# - $N$ is the number of scored tokens. The end-of-text token that begins a stream has nothing before it. It is read
#   first, as a $t_0$ that the formula leaves out, and is not scored.

# %%
end_of_text = tiny.tokenizer.eos_token_id
ids = [end_of_text, *tiny.tokenizer(rust.validation[0])["input_ids"]]
ids = torch.tensor([ids])  # (1, 171): one text
with torch.no_grad():
    logits = tiny.model(ids[:, :-1]).logits  # (1, 170, 4096): for each next token
log_p = logits[0].log_softmax(dim=-1)  # (170, 4096)
next_ids = ids[0, 1:]  # (170,): the tokens that really came
losses = -log_p[range(len(next_ids)), next_ids]  # (170,), in nats
by_hand = losses.mean().exp().item()
print(
    f"{len(losses)} tokens, {losses.mean():.2f} nats a token, perplexity {by_hand:.1f}"
)

# %% tags=["check-losses"]
pieces = [tiny.tokenizer.decode([token]) for token in next_ids[:32]]
pictures.surprise_chart(pieces, losses[:32].tolist())

# %% [markdown] slideshow={"slide_type": "subslide"}
# The chart shows the losses of the first 32 of the 170 tokens. They are a little easier than the rest, so their
# perplexity is 57 and not 85. (A `␣` stands for the space that belongs to a token.) Commas, `the` and `and` cost
# little, because grammar makes them likely. The beginning of a word with content usually costs most: nothing that
# this model has read suggests that `new` follows `Box::`. Once a word has begun, its remaining pieces are often
# easier, as `ved` is after `mo`.
#
# Read the exponential as a number of choices. A model that is always torn between $V$ equally likely tokens gives the
# right one the probability $1/V$, so its loss is $\ln V$ and its perplexity is exactly $V$. A perplexity of 85 thus
# means that the model is, on average, as unsure as someone who has to choose between 85 equally likely tokens.

# %%
library = tl.perplexity(tiny.model, tiny.tokenizer, rust.validation[:1])
with torch.no_grad():
    loss = tiny.model(input_ids=ids, labels=ids).loss
print(f"by hand {by_hand:.2f}, with tl.perplexity {library.perplexity:.2f},", end=" ")
print(f"from the model's own loss {loss.exp():.2f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The last of them is the form in which you will meet this elsewhere: `model(input_ids=ids, labels=ids).loss` in plain
# transformers. Note that `labels` are the *same* tokens as the inputs. The model moves them by one place itself. One
# published program had already moved them before it handed them over, so its model was scored on the token after the
# next one; [lesson 16](16_autopsy.ipynb) shows what this did to the results.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Many documents: every token counts the same
#
# Now we score forty documents instead of one. (Their number comes from the *profile* that `tl.setup` returns: `ci`,
# the smallest one, scores forty, so that a lesson runs in a minute, and `laptop` scores all.) There are three ways to
# make one number out of them, and they do not agree. Besides Rust we score *general* text, paragraphs of Python's
# language reference, whose lengths differ more. None of them shares twelve words in a row with the text that the
# model was pretrained on. Of both texts we take the validation split.

# %%
rust_text = rust.validation[: profile.test_passages]
general_text = tl.load_corpus("general").validation[: profile.test_passages]
on_rust = tl.perplexity(tiny.model, tiny.tokenizer, rust_text)
on_general = tl.perplexity(tiny.model, tiny.tokenizer, general_text)


# %% tags=["nbval-ignore-output"]
def document_losses(result):
    """The mean loss of each document, in nats per token."""
    pairs = zip(result.document_nats, result.document_tokens, strict=True)
    return [nats / tokens for nats, tokens in pairs]


ways = {}
for name, result in {"Rust": on_rust, "Python reference": on_general}.items():
    counts = result.document_tokens
    own = document_losses(result)
    ways[name] = [
        result.perplexity,  # every token counts the same
        math.exp(mean(own)),  # every document counts the same
        mean(map(math.exp, own)),  # the mean of the documents' perplexities
    ]
    print(f"{name}, documents of {min(counts)} to {max(counts)} tokens:")
    print(
        "  token-weighted {:.1f}, by document {:.1f}, mean {:.1f}".format(*ways[name])
    )

# %% [markdown] slideshow={"slide_type": "subslide"}
# *By document* gives a paragraph of 40 tokens the same weight as one of 400, so the short ones count for more than
# their share. For the Python reference this shifts the score by a few percent. For Rust, whose passages are of
# similar length, it shifts the score by less than one. *The mean of perplexities* is higher on both, because the
# exponential stretches large values: one Rust passage with a perplexity above 320 weighs as much as four easy ones.
#
# This course always uses the token-weighted form, which adds up all losses, divides once by the number of tokens and
# takes the exponential last. It is what training minimises, it weighs the text the same wherever it is cut into
# documents, and it is what most papers report.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Windows: how far back a token may look
#
# The model can read at most 256 tokens at once, and forty passages have thousands. So the passages are joined to one
# stream, with an end-of-text token in front of each, and the stream is read in *windows*. The first tokens of a
# window have hardly anything before them. If windows overlap, only the first one scores tokens with hardly anything
# before them, but more has to be computed. In this sketch each sign is a token, `#` is scored, and `.` is only read:
#
# ```text
# windows of 8 tokens, stride 8      windows of 8 tokens, stride 4
# ########                           ########
#         ########                       ....####
#                 ########                   ....####
#                                                ....####
#                                                    ....####
# ```
#
# **Predict first.** By how many percent does the same model score worse on the same text in windows of 32 tokens than
# in windows of 256? And by how many percent does an overlap of 128 tokens lower the perplexity of windows of 256?

# %%
scored = rust_text[:20]
by_window = {
    (context, stride): tl.perplexity(
        tiny.model, tiny.tokenizer, scored, context=context, stride=stride
    ).perplexity
    for context, stride in ((32, 32), (64, 64), (128, 128), (256, 256), (256, 128))
}
for (context, stride), value in by_window.items():
    print(f"windows of {context:3} tokens that advance by {stride:3}: {value:.0f}")

# %%
course.claim(
    "The first score is more than 20% above the last, for the same model",
    by_window[32, 32] > 1.2 * by_window[256, 128],
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# In windows of 32 tokens the perplexity is 23% higher than in windows of 256, and an overlap lowers it by 3 to 4%,
# although the model is the same in every line. A prediction merely has more or less text to build on. In short windows,
# many tokens are near a beginning. In windows of 256 few are, so the overlap has little left to gain.
#
# Therefore two perplexities can be compared only if window and *stride*, the number of tokens by which a window
# advances, are the same. A table that does not state them cannot be compared with anything. In this course both are
# 256 unless a lesson says otherwise.
#
# Training reads the stream in a similar way. [Packing](glossary.md#packing) with `tl.pack` cuts it into *blocks* of
# equal length and leaves out the tail that is too short for a block.

# %%
blocks = tl.pack(rust.validation, tiny.tokenizer, 128)
print("blocks, tokens in each:", tuple(blocks.shape))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Is 133 a good number?
#
# A perplexity means little without something to compare it with. Three baselines cost almost nothing.
#
# 1. **Uniform guessing.** Every one of the 4,096 tokens gets the same probability, so the perplexity is exactly 4,096.
#    A model that scores worse than this would do better if it ignored the text.
# 2. **Token frequencies.** Count how often each token occurs in the training text, and always predict these shares,
#    whatever came before. This knows which words are common in texts about Rust, but nothing of their order.
# 3. **Random weights.** The same network, untrained. It is the [control](glossary.md#control) that shows what
#    pretraining is worth.
#
# **Predict first.** You know three of the scores: 133 for the pretrained model, which has never read a line about Rust,
# 4,096 for uniform guessing, and a little more for random weights ([lesson 1](01_first_fine_tuning.ipynb)). Where
# between 133 and 4,096 will token frequencies be?

# %%
vocabulary = tiny.model.config.vocab_size
seen = tl.pack(rust.train, tiny.tokenizer, 2).flatten()  # pairs, joined to one stream
# One more than counted, so that no token gets a probability of 0.
counts = torch.bincount(seen, minlength=vocabulary).double() + 1
asked = tl.pack(rust_text, tiny.tokenizer, 2).flatten()[1:]
frequencies = (counts / counts.sum())[asked].log().neg().mean().exp().item()

untrained = tl.load_model("tiny", random_init=True)
control = tl.perplexity(untrained.model, untrained.tokenizer, rust_text)
for warning in control.warnings:
    print("warning:", warning.partition(":")[2].strip())

# %%
pictures.perplexity_ruler(
    {
        "pretrained model": on_rust.perplexity,
        "token frequencies": frequencies,
        "random weights": control.perplexity,
    },
    vocabulary,
)

# %% tags=["check-counts"]
course.claim(
    "The pretrained model is four times better than frequencies of real Rust text",
    4 * on_rust.perplexity < frequencies,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Token frequencies score 667, which is a sixth of uniform guessing. Counting alone gains so much because a few hundred
# words and signs make up most of a text. From best to worst the order is the pretrained model, frequencies, uniform
# guessing, random weights. Random weights are *worse* than guessing because such a network does not give all tokens the
# same probability. It prefers some of them, for no reason, and so it is slightly sure of things that are wrong. On
# average that costs more than it gains.
#
# The pretrained model beats the frequencies clearly although these were counted in text about Rust, which it has
# never seen. What it knows is English grammar and the style of technical prose, and this carries over. That is the
# reason for transfer learning: we start from 133 and not from 4,249. A large model that has already read about Rust
# starts much lower still, and its vocabulary, the dashed line of the ruler, is larger.
#
# The ruler also gives a rule for reading other people's results. For text in a language that a model was trained on, a
# baseline in the orange zone points to weights that did not load or to scores that are computed wrongly. Difficult text
# does not explain it, because even the frequencies of tokens score far better than a guess.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How sure is the number?
#
# The forty passages are a sample. Forty others about Rust would have given another score, and we want to know how
# different it might have been. We cannot write new passages each time, but we can do something similar with those that
# we have. This method is called the [bootstrap](glossary.md#bootstrap):
#
# 1. draw forty documents from the forty, *with replacement*: some come twice or more, others not at all;
# 2. compute the perplexity of this draw;
# 3. repeat this 1,000 times. The range that holds the middle 95% of the scores is the 95% [confidence
#    interval](glossary.md#confidence-interval).

# %%
nats = torch.tensor(on_rust.document_nats, dtype=torch.float64)
tokens = torch.tensor(on_rust.document_tokens, dtype=torch.float64)


def draws_of(size):
    """The perplexity of 1,000 draws of `size` documents."""
    seeded = torch.Generator().manual_seed(0)
    drawn = torch.randint(len(nats), (1000, size), generator=seeded)
    return (nats[drawn].sum(1) / tokens[drawn].sum(1)).exp()


ends = torch.tensor([0.025, 0.975], dtype=torch.float64)
low, high = draws_of(len(nats)).quantile(ends).tolist()
print(f"perplexity {on_rust.perplexity:.0f}, 95% interval {low:.0f} to {high:.0f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# `tl.perplexity` computes the same interval and returns it as `low` and `high`. Single passages are far apart, from a
# perplexity below 70 to one above 320. The score of forty together moves much less from draw to draw, because easy and
# hard documents balance each other.
#
# It is important to draw whole documents and not single tokens. Tokens in one document are correlated: if a passage is
# about an unfamiliar part of Rust, most of its tokens are hard. Resampling single tokens would treat thousands of
# tokens as independent, and would give an interval that is too narrow.
#
# The published Python run was scored on 32 tokens, about a quarter of one of our passages. The next chart shows what
# tests of few documents are worth, each drawn from the forty as in the bootstrap. The model is the same in every row.

# %%
sizes = {"1 document": 1, "10 documents": 10, "40 documents": 40}
pictures.draws_chart({name: draws_of(size) for name, size in sizes.items()})

# %%
single = [
    tl.perplexity(tiny.model, tiny.tokenizer, [text], context=128)
    for text in rust_text[:10]
]
values = [result.perplexity for result in single]
short = sum(bool(result.warnings) for result in single)
print(f"{short} of 10 tests of one passage warn: they have fewer than 256 tokens")
course.claim(
    "Of ten tests of one passage, the largest score is twice the smallest",
    max(values) > 2 * min(values),
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# To halve the width of an interval one needs about four times as many documents, because the error of a mean shrinks
# with the square root of their number (compare 10 with 40 documents in the chart). When two strategies are compared
# on the *same* documents, part of this spread cancels, because a passage that is hard for one is usually hard for the
# other. How much cancels can be seen only from their differences, document by document, and lesson 15 computes these.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Bits per byte: other tokenizers
#
# Perplexity is counted *per token*, and this makes it useless for comparing models that cut text differently. Take an
# extreme tokenizer in which every byte is a token of its own, and a very bad model: it knows only how frequent each
# byte is. It chooses among 256 possibilities instead of 4,096, so its perplexity is low although it knows so little.
#
# [Bits per byte](glossary.md#bits-per-byte) removes this effect. It divides the loss of a whole text by the number of
# its bytes, which no tokenizer can change, and by $\ln 2$, which turns nats into bits:
#
# $$\text{bits per byte} = \frac{\text{loss of the text in nats}}{\ln 2 \cdot \text{bytes of the text}}$$


# %%
def as_bytes(texts):
    return torch.tensor(list("".join(texts).encode()))


counts = torch.bincount(as_bytes(rust.train), minlength=256).double() + 1
losses = -(counts / counts.sum())[as_bytes(rust_text)].log()  # one token is one byte
byte_perplexity = losses.mean().exp().item()
byte_bits = losses.sum().item() / (math.log(2) * len(losses))
print(
    f"frequencies of bytes: {byte_perplexity:5.1f} per token,",
    f"{byte_bits:.2f} bits per byte",
)
print(
    f"the bundled model:   {on_rust.perplexity:6.1f} per token,",
    f"{on_rust.bits_per_byte:.2f} bits per byte",
)

# %%
course.claim(
    "By bits per byte it is twice as bad",
    byte_bits > 2 * on_rust.bits_per_byte,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# So compare bits per byte whenever the tokenizers differ, and use perplexity when they are the same, as they are for
# all strategies of this course.
#
# **Predict first.** Perplexity is 133 on Rust and 39 on the Python reference, and Rust has 2.22 bits per byte. How many
# has the Python reference?

# %%
scores = tl.score_table({"Rust": on_rust, "Python reference": on_general})
tl.perplexity_chart(scores)

# %% tags=["nbval-ignore-output"]
both = {"Rust": (on_rust, rust_text), "Python reference": (on_general, general_text)}
per_token = {}
for name, (result, texts) in both.items():
    per_token[name] = len("".join(texts).encode()) / result.tokens
    print(
        f"{name}: perplexity {result.perplexity:.1f},",
        f"{result.bits_per_byte:.2f} bits per byte,",
        f"{per_token[name]:.1f} bytes a token",
    )

# %% [markdown] slideshow={"slide_type": "subslide"}
# The Python reference has 1.33 bits per byte. Rust is harder by both measures, which fits a model that was pretrained
# on documentation of Python, PostgreSQL and SQLite. The perplexities are further apart only because perplexity is an
# exponential: the losses behind them, 4.9 and 3.7 nats per token, differ by a third, and the bits per byte by two
# thirds. If you took the losses alone, you expected about 1.66 bits per byte.
#
# The losses are closer than the bits per byte because the tokenizer, whose pieces were chosen from the pretraining
# text, cuts Rust into smaller pieces: a token holds about 3 bytes of Rust prose and about 4 of the Python reference,
# and a shorter piece is easier to guess. Bits per byte removes this advantage. Different texts are not equally
# difficult in any unit, so these numbers do not say which text the model "knows better". They are two starting points,
# and we will watch what training does to each.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What it writes
#
# A score is an average and hides much, so it is good practice to read some of a model's own text too. The three prompts
# below are those of the published reports.

# %% tags=["nbval-ignore-output"]
for line in tl.generate(tiny.model, tiny.tokenizer):
    print("-", line)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The sentences sound like documentation, but they say nothing true about Rust, because the model has read none. Fluent
# text is no sign of knowledge. Larger models make the same mistake in more convincing words.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Training text changes the weights, validation text chooses settings, and test text is scored once. A passage in two
#   splits turns a score into a test of memory.
# - Perplexity is the exponential of the mean loss per token. It is 1 for certainty and the size of the vocabulary for
#   uniform guessing, and above that something is wrong. Compare it only between models with the same tokenizer and the
#   same windows; otherwise use bits per byte.
# - A score is an estimate from a sample of documents. Resample the documents to see how far it could have moved.
#
# ## Further reading
#
# - Jelinek, Mercer, Bahl and Baker 1977, [Perplexity, a measure of the difficulty of speech recognition
#   tasks](https://doi.org/10.1121/1.2016299): where the term comes from.
# - Hugging Face, [Perplexity of fixed-length models](https://huggingface.co/docs/transformers/perplexity): windows and
#   strides, with pictures.
# - Efron and Tibshirani 1993, *An Introduction to the Bootstrap*, chapters 1 to 6.
# - Lee et al. 2022, [Deduplicating training data makes language models better](https://arxiv.org/abs/2107.06499): how
#   much of the usual training text is duplicated, and what it does.
# - Gao et al. 2020, [The Pile](https://arxiv.org/abs/2101.00027), section 3.1: why bits per byte.

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
# **Exercise 3.1** (first steps). A text of 4,000 bytes has 1,000 tokens. A model's mean loss on it is 3.2 nats per
# token. How many bits per byte is that? Give at least two decimals.

# %%
import math

answer = None
# your code here
course.check("ex03_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 3.2** (apply it). Write a function for the token-weighted perplexity of a set of documents. For each
# document you know its loss in nats, summed over its tokens, and its number of tokens: `documents` is a list of pairs
# such as `[(900.0, 300), (40.0, 10)]`.

# %%
import math


def perplexity_of(documents):
    """Token-weighted perplexity of (nats, tokens) pairs."""
    # your code here


course.check("ex03_2", perplexity_of)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 3.3** (think further). Compute the 95% interval of a perplexity by the bootstrap over *documents* that the
# lesson describes. Here `documents` is a list of documents, and each document is a list with the loss of every token in
# nats. Take 1,000 draws, each with as many documents as there are, and return the two perplexities, low and high,
# between which 95% of the draws lie. Each token counts the same, as in the rest of the lesson.

# %%
import math
import random


def interval(documents, draws=1000):
    """Low and high end of perplexity, for other documents of the same kind."""
    # your code here


course.check("ex03_3", interval)

# %% [markdown]
# Previous: [2 · Inside a language model](02_inside_a_language_model.ipynb) ·
# Next: [4 · Full fine-tuning](04_full_fine_tuning.ipynb)
