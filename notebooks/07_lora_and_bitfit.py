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
# # 7 · LoRA and BitFit
#
# So far we chose *which* weights to train. LoRA adds new ones: beside each frozen matrix W it puts a product
# B·A of two thin matrices, and trains only those. BitFit goes further down: it trains the bias vectors, nothing else.
#
# **You will** count what each trains, and see that counting is not the same as cost. About 4 minutes.

# %%
from tlkit.corpus import load_corpus, pack
from tlkit.evaluation import perplexity
from tlkit.models import load_model
from tlkit.settings import setup
from tlkit.strategies import apply_strategy
from tlkit.training import TrainingConfig, train

profile = setup()
rust = load_corpus().limited(profile.train_passages, profile.test_passages)
blocks = pack(rust.train, load_model("tiny").tokenizer, 128)
before = perplexity(load_model("tiny").model, load_model("tiny").tokenizer, rust.test)

# %% [markdown]
# ## A thin product
#
# A matrix of 512 x 192 has 98,304 values. With rank 8, A is 8 x 192 and B is 512 x 8: 5,632 values.

# %%
print(f"{512 * 192:,} against {8 * 192 + 512 * 8:,}")
assert 8 * 192 + 512 * 8 == 5_632
lora = apply_strategy(load_model("tiny").model, "lora", r=8)
print(f"lora:   {lora.trainable_values:,} values, {lora.percent:.2f}%")
bitfit = apply_strategy(load_model("tiny").model, "bitfit")
print(f"bitfit: {bitfit.trainable_values:,} values, {bitfit.percent:.2f}%")

# %% [markdown]
# ## An adapter starts as nothing
#
# B starts at zero, so B·A is zero and the adapted model is exactly the base model. That has a consequence:
# in the first step only B receives a gradient. A's is multiplied by B, which is zero.

# %%
adapted = perplexity(lora.model, load_model("tiny").tokenizer, rust.test)
print("before training, LoRA changes nothing:", abs(adapted.nats_per_token - before.nats_per_token) < 1e-6)
batch = blocks[:2]
lora.model(input_ids=batch, labels=batch).loss.backward()
largest = {
    part: max(p.grad.abs().max().item() for name, p in lora.model.named_parameters() if f"lora_{part}" in name)
    for part in "AB"
}
lora.model.zero_grad(set_to_none=True)
print("gradient of A is zero:", largest["A"] == 0, "| gradient of B is not:", largest["B"] > 0)
assert largest["A"] == 0 and largest["B"] > 0

# %% [markdown]
# **Predict first.** BitFit trains far fewer values than LoRA. Will it also be far faster?

# %%
runs = {}
for report, rate in ((lora, 5e-3), (bitfit, 1e-2)):
    tokenizer = load_model("tiny").tokenizer
    result = train(report.model, blocks, TrainingConfig(learning_rate=rate, epochs=profile.epochs, batch_size=4))
    runs[report.strategy] = (result, perplexity(report.model, tokenizer, rust.test))

# %% tags=["nbval-ignore-output"]
print("before:", before)
for name, (result, after) in runs.items():
    print(f"{name}:", after, f"| {result.tokens_per_second:,.0f} tokens/s")

# %%
for name, (_, after) in runs.items():
    print(f"{name} improves on the baseline:", after.perplexity < before.perplexity)
    assert after.perplexity < before.perplexity
print("LoRA adapts further than BitFit:", runs["lora"][1].perplexity < runs["bitfit"][1].perplexity)
assert runs["lora"][1].perplexity < runs["bitfit"][1].perplexity

# %% [markdown]
# Both walk the whole network forward and back, so neither is much faster than training everything. What they
# save is memory for gradients and optimizer state, and disk: an adapter file of a large model is small.
# On a model this small the saving hardly shows; on a model of billions of weights it decides what fits.
#
# **Take away.** Few trainable values: little optimizer state. Not: little computing.
#
# Previous: [6 · Last layers](06_last_layers.ipynb) · Next: [11 · Comparison](11_comparison.ipynb)
