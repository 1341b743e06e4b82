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
# # 5 · Freeze the embeddings
#
# An embedding is a table: one row of numbers for each token. In small models the table is a large part of all
# weights. Freeze it, and the words keep their places while the blocks learn to use them differently.
#
# **You will** see what freezing the table takes with it when the head is tied. About 3 minutes.

# %%
from tlkit.corpus import load_corpus, pack
from tlkit.evaluation import perplexity
from tlkit.models import load_model, meta_model
from tlkit.settings import setup
from tlkit.strategies import apply_strategy, is_tied
from tlkit.training import TrainingConfig, train

profile = setup()
rust = load_corpus().limited(profile.train_passages, profile.test_passages)
tiny = load_model("tiny")
before = perplexity(tiny.model, tiny.tokenizer, rust.test)

# %% [markdown]
# ## How much is the table?
#
# **Predict first.** Vocabulary 151,936, width 896: what share of Qwen2-0.5B's 494,032,768 values is that?

# %%
table = 151_936 * 896
print(f"{table:,} values, {100 * table / 494_032_768:.1f}%")
report = apply_strategy(meta_model("qwen2-0.5b"), "freeze_embeddings")
print(f"left to train: {report.trainable_values:,}")
assert report.trainable_values == 494_032_768 - table == 357_898_112

# %% [markdown]
# ## Tied means both
#
# A model with tied embeddings uses the same table twice: to read tokens and, transposed, to score the next one.
# There is only one tensor. To freeze the embedding is to freeze the head.

# %%
print("tied:", is_tied(tiny.model))
head = tiny.model.get_output_embeddings().weight
table_before = head.detach().clone()
report = apply_strategy(tiny.model, "freeze_embeddings")
print(report)

# %%
blocks = pack(rust.train, tiny.tokenizer, 128)
result = train(report.model, blocks, TrainingConfig(learning_rate=2e-3, epochs=profile.epochs, batch_size=4))
after = perplexity(report.model, tiny.tokenizer, rust.test)

# %% tags=["nbval-ignore-output"]
print("before:", before)
print("after: ", after)

# %%
print("the head did not move:", head.equal(table_before))
print("Rust perplexity fell all the same:", after.perplexity < before.perplexity)
assert head.equal(table_before) and after.perplexity < before.perplexity

# %% [markdown]
# In a model with a head of its own, as TinyLlama's, the two can be frozen apart.

# %%
untied = apply_strategy(meta_model("tinyllama-1.1b"), "freeze_embeddings")
print(untied.tied)
print("the head is trained:", "head" in untied.components)
assert "head" in untied.components and "embedding" not in untied.components

# %% [markdown]
# **Take away.** Ask whether the head is tied before you say what was frozen.
#
# Previous: [4 · Freeze lower layers](04_freeze_lower_layers.ipynb) · Next: [6 · Last layers](06_last_layers.ipynb)
