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
# # 8 · LoRA and BitFit
#
# *Why do few trainable values not mean little work?*
#
# So far we chose *which* weights to train. LoRA adds new ones: beside each linear layer of the blocks it puts an
# *adapter*, a product B·A of two thin matrices. Its *rank* r is the number of rows of A and of columns of B. The
# product is scaled by alpha/r, where alpha is a fixed number that you choose (16 here), and only A and B are trained.
# BitFit goes further down: it trains the bias vectors, nothing else.
#
# **You will** count what each trains, and see that counting is not the same as cost. About 4 minutes.

# %% slideshow={"slide_type": "subslide"}
import tlkit as tl

profile = tl.setup()
rust = tl.load_corpus().limited(profile.train_passages, profile.test_passages)
base = tl.load_model("tiny")
blocks = tl.pack(rust.train, base.tokenizer, 128)
before = tl.perplexity(base.model, base.tokenizer, rust.validation)
written_before = tl.generate(base.model, base.tokenizer)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A thin product
#
# A matrix of 512 x 192 has 98,304 values. With rank 8, A is 8 x 192 and B is 512 x 8: 5,632 values.

# %%
print(f"{512 * 192:,} against {8 * 192 + 512 * 8:,}")
assert 512 * 192 == 98_304 and 8 * 192 + 512 * 8 == 5_632
lora = tl.apply_strategy(tl.load_model("tiny").model, "lora", r=8)
print(f"lora:   {lora.trainable_values:,} values, {lora.percent:.2f}%")
bitfit = tl.apply_strategy(tl.load_model("tiny").model, "bitfit")
print(f"bitfit: {bitfit.trainable_values:,} values, {bitfit.percent:.2f}%")
assert bitfit.trainable_values == 8 * (192 + 96 + 96)

# %%
tl.components_chart(lora, bitfit)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Qwen2 has bias vectors only at queries, keys and values, so BitFit has little to move here: 8 blocks of
# 192 + 96 + 96. In a Llama it finds none.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## An adapter starts as nothing
#
# B starts at zero, so B·A is zero and the adapted model is exactly the base model. That has a consequence:
# in the first step only B receives a gradient. A's is multiplied by B, which is zero.

# %%
adapted = tl.perplexity(lora.model, base.tokenizer, rust.validation)
tl.claim(
    "Before training, LoRA changes nothing",
    abs(adapted.nats_per_token - before.nats_per_token) < 1e-6,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# `check_gradient_flow` takes two real steps, notes the norm of every gradient, and puts the weights back. It also
# compares: exactly what is declared trainable must move, and nothing else may.

# %%
batch = blocks[:2]
flow = tl.check_gradient_flow(lora, batch)
print(flow)
adapters = flow.table[flow.table.declared].set_index("tensor")
a, b = (adapters[adapters.index.str.contains(f"lora_{part}")] for part in "AB")
tl.claim("Step 1: A receives no gradient", (a.norm_1 == 0).all())
tl.claim("Step 1: B receives one", (b.norm_1 > 0).all())
tl.claim("Step 2: now A does, too", (a.norm_2 > 0).all())
assert not flow.problems

# %%
tl.gradient_flow_chart(flow)

# %% [markdown] slideshow={"slide_type": "subslide"}
# There is no bar at the embedding: LoRA puts nothing there. One published trainer had adapters that never received a
# gradient at all, and found out late. Two steps would have told.

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** BitFit trains 0.08% of the values. How much of full fine-tuning's arithmetic does it still need?


# %%
def multiplications(strategy):
    return tl.count_flops(
        tl.apply_strategy(tl.load_model("tiny").model, strategy).model, batch
    ).total


everything = multiplications("full")
for name in ("lora", "bitfit"):
    share = multiplications(name) / everything
    print(f"{name}: {share:.0%} of the multiplications")
    assert 0.6 < share < 0.85
assert round(bitfit.percent, 2) == 0.08

# %% [markdown] slideshow={"slide_type": "subslide"}
# A frozen weight spares its own gradient, a third of the arithmetic. The forward pass remains. So does the way back,
# because something in block 0 is trained (lessons 5 and 7), and LoRA adds small multiplications of its own.

# %%
runs, scores = {}, {"before": before}
for report, rate in ((lora, 1e-2), (bitfit, 5e-2)):
    settings = tl.TrainingConfig(
        learning_rate=rate, epochs=profile.epochs, batch_size=4
    )
    runs[report.strategy] = tl.train(report.model, blocks, settings, progress=True)
    scores[report.strategy] = tl.perplexity(
        report.model, base.tokenizer, rust.validation
    )

# %% tags=["nbval-ignore-output"]
for name, result in runs.items():
    print(f"{name}: {result.tokens_per_second:,.0f} tokens/s")
tl.score_table(scores).round(2)

# %%
tl.perplexity_chart(tl.score_table(scores))

# %%
for name in runs:
    tl.claim(
        f"{name} improves on the baseline",
        scores[name].perplexity < before.perplexity,
    )
tl.claim(
    "LoRA adapts further than BitFit",
    scores["lora"].perplexity < scores["bitfit"].perplexity,
)

# %% tags=["nbval-ignore-output"]
for old, new in zip(
    written_before, tl.generate(lora.model, base.tokenizer), strict=True
):
    print("before:", old)
    print("after: ", new, "\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Both walk the whole network forward and back, so neither is many times faster than training everything. What they
# save is memory for gradients and optimizer state, and disk: an adapter file of a large model is small.
# On a model of billions of weights that decides what fits.
#
# **Take away.** Few trainable values: little optimizer state. Not: little computing.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `tl.check` says what it looked at and, if the answer
# is not right yet, why. Stuck? `tl.hint("ex08_1", 1)` is a first push, `tl.hint("ex08_1", 2)` says more. After *Restart
# Kernel* run the next cell first; then each exercise works by itself.

# %%
import tlkit as tl

# %% [markdown]
# **Quiz.** BitFit trains 0.08% of the bundled model and still needs 70% of full fine-tuning's multiplications. What
# brings it down to about 42%?
#
# - **a** Train the bias vectors of the last block only.
# - **b** Train the bias vectors of the queries only, in every block.
# - **c** Use LoRA of rank 1 instead.
# - **d** Nothing: the way forward and the way back are always walked whole.

# %%
tl.quiz("quiz08")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 8.1** (first steps). Beside the matrix of 512 x 192, an adapter of rank 8 has few values. Which is the
# smallest rank at which the adapter has *more* values than the matrix itself?

# %%
answer = None
# your code here
tl.check("ex08_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 8.2** (apply it). Once it is trained, an adapter can be merged into its matrix, and the model is then as
# fast as it was before. Write a function that returns the merged matrix. Tensors come in with these shapes: `weight`
# (outputs, inputs), `a` (r, inputs), `b` (outputs, r). The weight that was given must stay as it is.


# %%
def merged(weight, a, b, alpha):
    """One matrix that does what the weight and its adapter do together."""
    # your code here


tl.check("ex08_2", merged)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 8.3** (think further). One published trainer had adapters that never received a gradient. Write the check
# that would have told its authors. Your function gets the table of `check_gradient_flow`, a pandas DataFrame with a row
# for each tensor. Four of its columns matter here: `tensor` (the name), `declared` (True where it is meant to train),
# and `norm_1` and `norm_2`, the norms of its gradient in the first and in the second step, or NaN where there was no
# gradient at all. Return a list with the names of all tensors that are meant to train and received no gradient, or only
# zeros, in *both* steps.


# %%
def dead_adapters(table):
    """Names of the tensors that are meant to train and cannot."""
    # your code here


tl.check("ex08_3", dead_adapters)

# %% [markdown]
# Previous: [7 · Train the last layers only](07_last_layers.ipynb) ·
# Next: [9 · QLoRA](09_qlora.ipynb)
