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
# # 4 · Freeze the lower layers
#
# *Why does freezing half the blocks save so little?*
#
# Lower blocks are said to hold general features of language, upper ones the specific. If so, half the blocks can
# stay as they are. What does freezing them save?
#
# **You will** freeze four of eight blocks, and find out why that saves less computing than it seems. About 4 minutes.

# %%
from tlkit.charts import components_chart, perplexity_chart
from tlkit.corpus import load_corpus, pack
from tlkit.evaluation import generate, perplexity, score_table
from tlkit.flops import count_flops
from tlkit.models import load_model, meta_model
from tlkit.settings import setup
from tlkit.strategies import apply_strategy, find_blocks
from tlkit.training import TrainingConfig, train

profile = setup()
rust = load_corpus().limited(profile.train_passages, profile.test_passages)
tiny = load_model("tiny")
before = perplexity(tiny.model, tiny.tokenizer, rust.validation)
written_before = generate(tiny.model, tiny.tokenizer)
first_block = next(find_blocks(tiny.model)[0].parameters()).detach().clone()

# %% [markdown]
# ## Which blocks?
#
# One published program looked for the text `layers.1` in parameter names, to freeze block 1. It also found
# `layers.10` to `layers.19`, and `layers.2` found 20 to 23. Asked to freeze 12 of 24 blocks, it froze all 24.

# %%
found = [n for n in range(24) if any(f"layers.{k}" in f"model.layers.{n}.mlp" for k in range(12))]
print("blocks found by the text of their names:", len(found))
assert found == list(range(24))

# %% [markdown]
# Here blocks are counted in the model's own list.

# %%
report = apply_strategy(tiny.model, "freeze_lower")
print(report)
frozen = [n for n, block in enumerate(find_blocks(tiny.model)) if not next(block.parameters()).requires_grad]
print("frozen blocks:", frozen)
assert frozen == [0, 1, 2, 3]

# %% [markdown]
# **Predict first.** The published run reports 315,084,160 trainable values for Qwen2-0.5B, 12 of 24 blocks
# frozen. That is 63.78% although half the blocks are frozen. What else is still trained?

# %%
qwen = apply_strategy(meta_model("qwen2-0.5b"), "freeze_lower")
print(f"{qwen.trainable_values:,} values, {qwen.percent:.2f}%")
print(f"of them in the embedding: {qwen.components['embedding'].trainable_values:,}")
assert qwen.trainable_values == 315_084_160 and round(qwen.percent, 2) == 63.78
assert qwen.components["embedding"].trainable_values == 151_936 * 896

# %%
components_chart(qwen)

# %% [markdown]
# The embedding: 151,936 tokens of 896 numbers each. It serves a second time as the *head*, which scores the next
# token (the two are *tied*, lesson 5). It sits *below* the frozen
# blocks, so the backward pass must run through all of them to reach it. Frozen weights save their
# own gradients and the optimizer's memory; the way through them is still walked.
#
# **Predict first.** Half the blocks need no gradients of their own. What share of the multiplications is left?

# %%
blocks = pack(rust.train, tiny.tokenizer, 128)


def multiplications(strategy, **options):
    return count_flops(apply_strategy(load_model("tiny").model, strategy, **options).model, blocks[:2]).total


everything = multiplications("full")
half = multiplications("freeze_lower") / everything
deeper = multiplications("freeze_lower", freeze_embeddings=True) / everything
print(f"lower half frozen: {half:.0%}; embedding frozen as well: {deeper:.0%}")
assert half > 0.8 and deeper < 0.75

# %% [markdown]
# With the embedding frozen as well, nothing below block 4 is trained, and the backward pass can stop there.
#
# ## Train

# %%
settings = TrainingConfig(learning_rate=2e-3, epochs=profile.epochs, batch_size=4)
result = train(report.model, blocks, settings, progress=True)
after = perplexity(report.model, tiny.tokenizer, rust.validation)

# %% tags=["nbval-ignore-output"]
print(f"{result.tokens_per_second:,.0f} tokens/s, peak {result.peak_memory / 1e6:.0f} MB")
scores = score_table({"before": before, "lower half frozen": after})
scores.round(2)

# %%
perplexity_chart(scores)

# %%
print("Rust perplexity fell:", after.perplexity < before.perplexity)
unmoved = first_block.equal(next(find_blocks(tiny.model)[0].parameters()))
print("the first block's weights did not move:", unmoved)
assert after.perplexity < before.perplexity and unmoved

# %% [markdown]
# ## And the embedding frozen too?
#
# Less computing, and fewer activations to keep for a backward pass that stops in the middle.

# %%
both = apply_strategy(load_model("tiny").model, "freeze_lower", freeze_embeddings=True)
short = train(both.model, blocks, TrainingConfig(learning_rate=2e-3, epochs=0.25, batch_size=4))
print("trainable values:", f"{both.trainable_values:,}")
print("needs less memory than with the embedding trained:", short.peak_memory < result.peak_memory)
assert both.trainable_values < report.trainable_values and short.peak_memory < result.peak_memory

# %% tags=["nbval-ignore-output"]
for old, new in zip(written_before, generate(report.model, tiny.tokenizer), strict=True):
    print("before:", old)
    print("after: ", new, "\n")

# %% [markdown]
# The argument is about the path of the gradient, so it holds for models of any size. How much perplexity the frozen
# half costs does not carry over: that depends on the model and on how new the text is to it.
#
# **Take away.** How many weights are trained decides the optimizer's memory. How deep the lowest one lies decides how
# far the backward pass runs.
#
# Previous: [3 · Full fine-tuning](03_full_fine_tuning.ipynb) ·
# Next: [5 · Freeze embeddings](05_freeze_embeddings.ipynb)
