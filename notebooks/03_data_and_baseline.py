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
# # 3 · Data and a baseline to trust
#
# *What is measured before training, and how sure is it?*
#
# Adaptation is a comparison: after against before. So the *before* has to be right.
# What text do we hold back, what exactly is measured on it, and how sure is the figure?
#
# **You will** read the corpus, give a score its interval, and see a small test mislead. About 4 minutes.

# %% slideshow={"slide_type": "subslide"}
import itertools

import tlkit as tl

profile = tl.setup()
rust = tl.load_corpus("rust")
general = tl.load_corpus("general")
tiny = tl.load_model("tiny")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Three splits
#
# Training text changes the weights. Validation text chooses settings. Test text about Rust is scored once, in
# lesson 14; until then we look at validation text. A passage that is in two of them makes the score a memory test.
#
# Beside it stands *general* text, Python's language reference. No setting is chosen on its test split, so we may score
# that more than once. It shares no twelve words in a row with what the model was pretrained on.

# %% tags=["nbval-ignore-output"]
print(len(rust.train), len(rust.validation), len(rust.test), "passages")
print(rust.validation[0])

# %%
apart = all(
    set(a).isdisjoint(b)
    for a, b in itertools.combinations((rust.train, rust.validation, rust.test), 2)
)
tl.claim("No passage is in two splits", apart)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## From text to blocks
#
# `pack` writes the documents one after another, an end-of-text token before each, and cuts the stream into
# equal blocks. Nothing is padded, so no work is wasted. The tail that does not fill a block is left out.

# %%
blocks = tl.pack(rust.validation, tiny.tokenizer, 128)
tl.claim("Every block has 128 tokens", blocks.shape[1] == 128)
tl.claim(
    "The stream opens with the end-of-text token",
    int(blocks[0, 0]) == tiny.tokenizer.eos_token_id,
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The baseline
#
# Perplexity is the exponential of the mean loss per token; a *nat* is the unit of a loss with natural logarithms.
# *Bits per byte* is the same loss in bits (one bit is ln 2, or 0.693 nats), divided by the bytes of the text, so that
# it can be compared across texts. Every token counts the same, whichever document it is in. The interval comes from
# drawing as many *documents* as there are, again and again, each time from all of them: some come twice, others not at
# all. Tokens of one text hang together, so drawing tokens would make us too sure.
#
# **Predict first.** The model was pretrained on documentation that is not about Rust. Will it find Rust text
# harder than Python's language reference?

# %%
rust_text = rust.validation[: profile.test_passages]
general_text = general.limited(test=profile.test_passages).test
on_rust = tl.perplexity(tiny.model, tiny.tokenizer, rust_text)
on_general = tl.perplexity(tiny.model, tiny.tokenizer, general_text)

# %% tags=["nbval-ignore-output"]
scores = tl.score_table({"Rust": on_rust, "Python reference": on_general})
scores.round(2)

# %%
tl.perplexity_chart(scores)

# %%
tl.claim(
    "The model finds Rust harder than the Python reference",
    on_rust.perplexity > on_general.perplexity,
)
tl.claim("The two intervals do not overlap", on_rust.low > on_general.high)
tl.claim(
    "Per byte Rust is harder, too",
    on_rust.bits_per_byte > on_general.bits_per_byte,
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How a small test can mislead
#
# The published Python run evaluated 32 tokens. Here is what a test of one passage says, for each of
# the first ten passages: ten tests of the same model.

# %%
single = [
    tl.perplexity(tiny.model, tiny.tokenizer, [text], context=128)
    for text in rust_text[:10]
]

# %%
tl.perplexity_chart(
    tl.score_table({f"passage {n}": result for n, result in enumerate(single, 1)})
)

# %%
values = [result.perplexity for result in single]
short = sum(bool(result.warnings) for result in single)
print(f"{short} of 10 tests warn: they have fewer than 256 tokens")
tl.claim(
    "The largest perplexity is more than 1.5 times the smallest",
    max(values) > 1.5 * min(values),
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# There is no line around these points: one document cannot be drawn differently. The model is the same each time; only
# the passage changed. One passage says little about a model. Two strategies are scored on the same passages, so part
# of this spread cancels between them; how much, only their differences tell.
#
# ## What it writes
#
# The three prompts are those of the published reports.

# %% tags=["nbval-ignore-output"]
for line in tl.generate(tiny.model, tiny.tokenizer):
    print("-", line)

# %% [markdown] slideshow={"slide_type": "subslide"}
# It has the tone of documentation and knows nothing of Rust. Fluency is not knowledge, in small models or large.
#
# **Take away.** Hold text back, weight by tokens, and give a score its interval.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `tl.check` says what it looked at and, if the answer
# is not right yet, why. Stuck? `tl.hint("ex03_1", 1)` is a first push, `tl.hint("ex03_1", 2)` says more. After *Restart
# Kernel* run the next cell first; then each exercise works by itself.

# %%
import tlkit as tl

# %% [markdown]
# **Quiz.** A test passage also stands in the training text, with one comma less. The lesson's claim *No passage is in
# two splits* holds. What follows?
#
# - **a** The check compares whole passages, sign by sign. This score is in part a memory test all the same.
# - **b** With one comma less it is another text for the model, so nothing has leaked.
# - **c** The interval of the test score gets wider, and so it warns.
# - **d** Only the training loss is too good; the test score is not touched.

# %%
tl.quiz("quiz03")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 3.1** (first steps). A text of 4,000 bytes has 1,000 tokens. A model's mean loss on it is 3.2 nats per
# token. How many bits per byte is that? Give at least two decimals.

# %%
import math

answer = None
# your code here
tl.check("ex03_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 3.2** (apply it). Write the perplexity of a set of documents. Of each you know its loss in nats, summed
# over its tokens, and how many tokens there are: `documents` is a list of pairs such as `[(900.0, 300), (40.0, 10)]`.

# %%
import math


def perplexity_of(documents):
    """Token-weighted perplexity of (nats, tokens) pairs."""
    # your code here


tl.check("ex03_2", perplexity_of)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 3.3** (think further). Give a perplexity its 95% interval, as the lesson describes it: draw *documents*
# again and again. Here `documents` is a list of documents, and each is a list with the loss of every token in nats.
# Take 1,000 draws, each with as many documents as there are, and return the two perplexities, low and high, between
# which 95% of the draws lie. As ever, each token counts the same.

# %%
import math
import random


def interval(documents, draws=1000):
    """Low and high end of perplexity, had other such documents been scored."""
    # your code here


tl.check("ex03_3", interval)

# %% [markdown]
# Previous: [1 · What can this machine do?](01_setup_and_devices.ipynb) ·
# Next: [4 · Full fine-tuning](04_full_fine_tuning.ipynb)
