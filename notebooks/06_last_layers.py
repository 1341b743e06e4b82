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
# # 6 · Train the last layers only
#
# The published reports call this "adapter layers": the last two blocks are trained, the rest stays.
# No adapter is added anywhere, so we call it by what it does. The report says: "last 2 layers + head,
# 29,865,088 parameters". Is that what it was?
#
# **You will** take that number apart to the last value. About 3 minutes.

# %%
from tlkit.corpus import load_corpus, pack
from tlkit.evaluation import perplexity
from tlkit.models import load_model, meta_model
from tlkit.settings import setup
from tlkit.strategies import apply_strategy
from tlkit.training import TrainingConfig, train

profile = setup()
rust = load_corpus().limited(profile.train_passages, profile.test_passages)

# %% [markdown]
# **Predict first.** The head of Qwen2-0.5B has 136,134,656 values. Can 29,865,088 contain it?

# %%
two_blocks = apply_strategy(meta_model("qwen2-0.5b"), "last_layers", train_norms=False)
published = apply_strategy(meta_model("qwen2-0.5b"), "last_layers")
print(f"two blocks:             {two_blocks.trainable_values:>11,}")
print(f"two blocks, all norms:  {published.trainable_values:>11,}")
print(f"difference:             {published.trainable_values - two_blocks.trainable_values:>11,}")
assert published.trainable_values == 29_865_088
assert published.trainable_values - two_blocks.trainable_values == 45 * 896

# %% [markdown]
# The difference is 45 norm vectors of 896 values: two in each of the 22 frozen blocks, and the final one.
# The program had trained everything with "norm" in its name. The head was never trained; it is tied
# to the embedding, and the embedding was frozen.
#
# Those norms have a price. The lowest of them is in block 0, so the backward pass again runs to the bottom.

# %%
blocks = pack(rust.train, load_model("tiny").tokenizer, 128)
settings = TrainingConfig(learning_rate=3e-3, epochs=profile.epochs, batch_size=4)
results, scores = {}, {}
for train_norms in (True, False):
    tiny = load_model("tiny")
    before = perplexity(tiny.model, tiny.tokenizer, rust.test)
    report = apply_strategy(tiny.model, "last_layers", train_norms=train_norms)
    results[train_norms] = train(report.model, blocks, settings)
    scores[train_norms] = perplexity(report.model, tiny.tokenizer, rust.test)

# %% tags=["nbval-ignore-output"]
print("before:                  ", before)
for train_norms, score in scores.items():
    result = results[train_norms]
    print(f"norms trained: {train_norms!s:5}", score, f"| {result.seconds:.1f} s, {result.peak_memory / 1e6:.0f} MB")

# %%
print("both improve on the baseline:", all(score.perplexity < before.perplexity for score in scores.values()))
print("without the norms less memory:", results[False].peak_memory < results[True].peak_memory)
assert all(score.perplexity < before.perplexity for score in scores.values())
assert results[False].peak_memory < results[True].peak_memory

# %% [markdown]
# **Take away.** Count values per component, then believe the name of a strategy.
#
# Previous: [5 · Freeze embeddings](05_freeze_embeddings.ipynb) ·
# Next: [7 · LoRA and BitFit](07_lora_and_bitfit.ipynb)
