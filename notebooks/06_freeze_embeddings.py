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
# # 6 · Freeze the embeddings
#
# *What else is frozen when the head is tied?*
#
# An embedding is a table: one row of numbers for each token. In small models the table is a large part of all
# weights. Freeze it, and the words keep their places while the blocks learn to use them differently.
#
# **You will** see what freezing the table takes with it when the head is tied. About 3 minutes.

# %% slideshow={"slide_type": "subslide"}
import tlkit as tl

profile = tl.setup()
rust = tl.load_corpus().limited(profile.train_passages, profile.test_passages)
tiny = tl.load_model("tiny")
before = tl.perplexity(tiny.model, tiny.tokenizer, rust.validation)
written_before = tl.generate(tiny.model, tiny.tokenizer)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How much is the table?
#
# **Predict first.** Vocabulary 151,936, width 896: what share of Qwen2-0.5B's 494,032,768 values is that?

# %%
table = 151_936 * 896
print(f"{table:,} values, {100 * table / 494_032_768:.1f}%")
report = tl.apply_strategy(tl.meta_model("qwen2-0.5b"), "freeze_embeddings")
print(f"left to train: {report.trainable_values:,}")
assert report.trainable_values == 494_032_768 - table == 357_898_112
tiny_report = tl.apply_strategy(tiny.model, "freeze_embeddings")
share = (
    100 * tiny_report.components["embedding"].total_values / tiny_report.total_values
)
print(f"in the bundled model: {share:.1f}%")

# %%
tl.components_chart(report)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Tied means both
#
# A model with tied embeddings uses the same table twice: to read tokens and, transposed, to score the next one.
# There is only one tensor. To freeze the embedding is to freeze the head.

# %%
tl.claim("The head is tied to the embedding", tl.is_tied(tiny.model))
head = tiny.model.get_output_embeddings().weight
table_before = head.detach().clone()
print(tiny_report)

# %%
blocks = tl.pack(rust.train, tiny.tokenizer, 128)
settings = tl.TrainingConfig(learning_rate=2e-3, epochs=profile.epochs, batch_size=4)
result = tl.train(tiny_report.model, blocks, settings, progress=True)
after = tl.perplexity(tiny_report.model, tiny.tokenizer, rust.validation)

# %% tags=["nbval-ignore-output"]
scores = tl.score_table({"before": before, "embeddings frozen": after})
scores.round(2)

# %%
tl.perplexity_chart(scores)

# %%
tl.claim("The head did not move", head.equal(table_before))
tl.claim("Rust perplexity fell all the same", after.perplexity < before.perplexity)

# %% [markdown] slideshow={"slide_type": "subslide"}
# How can it fall, when the words' scores come from a head that did not move? The blocks below did. They learn to hand
# the head other states, for which it gives other scores.
#
# In a model with a head of its own, such as TinyLlama, the two can be frozen apart.

# %%
untied = tl.apply_strategy(tl.meta_model("tinyllama-1.1b"), "freeze_embeddings")
print(untied.tied)
own_head, table_of_words = untied.components["head"], untied.components["embedding"]
print(
    f"trained in the head: {own_head.trainable_values:,}, "
    f"in the embedding: {table_of_words.trainable_values:,}"
)
assert (
    own_head.trainable_values == own_head.total_values > 0
    and table_of_words.trainable_values == 0
)
large = tl.apply_strategy(tl.meta_model("llama2-7b"), "freeze_embeddings")
print(f"frozen in a model of seven billion: {100 - large.percent:.0f}%")
assert round(100 - large.percent) == 2

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What it writes

# %% tags=["nbval-ignore-output"]
for old, new in zip(
    written_before, tl.generate(tiny_report.model, tiny.tokenizer), strict=True
):
    print("before:", old)
    print("after: ", new, "\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# How much the table weighs does not carry over: in a model of seven billion values it can be two percent, and freezing
# it saves little. That a tied head goes with it does.
#
# **Take away.** Ask whether the head is tied before you say what was frozen.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `tl.check` says what it looked at and, if the answer
# is not right yet, why. Stuck? `tl.hint("ex06_1", 1)` is a first push, `tl.hint("ex06_1", 2)` says more. After *Restart
# Kernel* run the next cell first; then each exercise works by itself.

# %%
import tlkit as tl

# %% [markdown]
# **Quiz.** The head of the bundled model was frozen with its embedding. Still perplexity on Rust fell. How can a head
# that did not move score the next token differently?
#
# - **a** It did move a little: weight decay shrinks frozen weights, too.
# - **b** Its bias was trained.
# - **c** The blocks hand it other numbers, and it scores those by the same table.
# - **d** Only the rows of tokens that are not in the training text stayed frozen.

# %%
tl.quiz("quiz06")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 6.1** (first steps). SmolLM2-135M has 134,515,008 values. Its vocabulary has 49,152 tokens, its width is
# 576, and its head is tied. What percentage of its values does `freeze_embeddings` freeze? And what percentage would it
# be if the same model had a head of its own, not tied? Give both numbers, in percent.

# %%
answer = None  # (percent with the tied head, percent with a head of its own)
# your code here
tl.check("ex06_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 6.2** (apply it). Write a function that takes a model, as some strategy left it, and returns True if its
# head trains, else False. It must be right for tied and for untied models.


# %%
def head_trains(model):
    """True where the next training step would change the head."""
    # your code here


tl.check("ex06_2", head_trains)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 6.3** (think further). You want the embedding of a *tied* model frozen and its head trained. That takes two
# tables. Write a function that takes a tied model, gives its head a table of its own, and returns the model. Before
# training, the model must say exactly what it said before. Training the head must not move the embedding. And
# `model.tie_weights()`, which transformers calls when it loads a model or changes its vocabulary, must leave the head
# its own table.

# %%
from torch import nn


def own_head(model):
    """The same model, its head no longer tied to the embedding."""
    # your code here


tl.check("ex06_3", own_head)

# %% [markdown]
# Previous: [5 · Freeze the lower layers](05_freeze_lower_layers.ipynb) ·
# Next: [7 · Train the last layers only](07_last_layers.ipynb)
