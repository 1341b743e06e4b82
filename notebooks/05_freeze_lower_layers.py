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
# # 5 · Freeze the lower layers
#
# *Why does freezing half the blocks save so little?*
#
# Lower blocks of the model are said to hold general features of language, upper ones the specific. If so, half the
# blocks can stay as they are. What does freezing them save?
#
# **You will** freeze four of eight blocks, and find out why that saves less computing than it seems. About 4 minutes.

# %% slideshow={"slide_type": "subslide"}
import tlkit as tl

profile = tl.setup()
rust = tl.load_corpus().limited(profile.train_passages, profile.test_passages)
tiny = tl.load_model("tiny")
before = tl.perplexity(tiny.model, tiny.tokenizer, rust.validation)
written_before = tl.generate(tiny.model, tiny.tokenizer)
first_block = next(tl.find_blocks(tiny.model)[0].parameters()).detach().clone()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Which blocks?
#
# One published program looked for the text `layers.1` in parameter names, to freeze block 1. It also found
# `layers.10` to `layers.19`, and `layers.2` found 20 to 23. Asked to freeze 12 of 24 blocks, it froze all 24.

# %%
found = [
    n
    for n in range(24)
    if any(f"layers.{k}" in f"model.layers.{n}.mlp" for k in range(12))
]
print("blocks found by the text of their names:", len(found))
assert found == list(range(24))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Here blocks are counted in the model's own list.

# %%
report = tl.apply_strategy(tiny.model, "freeze_lower")
print(report)
frozen = [
    n
    for n, block in enumerate(tl.find_blocks(tiny.model))
    if not next(block.parameters()).requires_grad
]
print("frozen blocks:", frozen)
assert frozen == [0, 1, 2, 3]

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** Another published run reports 315,084,160 trainable values for Qwen2-0.5B, 12 of 24 blocks
# frozen. That is 63.78% although half the blocks are frozen. What else is still trained?
#
# `meta_model` builds a model on paper: names and shapes, no weights. Nothing is downloaded, and it takes no memory. For
# counting that is enough.

# %%
qwen = tl.apply_strategy(tl.meta_model("qwen2-0.5b"), "freeze_lower")
print(f"{qwen.trainable_values:,} values, {qwen.percent:.2f}%")
print(f"of them in the embedding: {qwen.components['embedding'].trainable_values:,}")
assert qwen.trainable_values == 315_084_160 and round(qwen.percent, 2) == 63.78
assert qwen.components["embedding"].trainable_values == 151_936 * 896

# %%
tl.components_chart(qwen)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The embedding: 151,936 tokens of 896 numbers each. It serves a second time as the *head*, which scores the next
# token (the two are *tied*, lesson 6). It sits *below* the frozen
# blocks, so the backward pass must run through all of them to reach it. Frozen weights save their
# own gradients and the optimizer's memory; the way through them is still walked.
#
# **Predict first.** Half the blocks need no gradients of their own. What share of the multiplications is left?

# %%
blocks = tl.pack(rust.train, tiny.tokenizer, 128)


def multiplications(strategy, **options):
    return tl.count_flops(
        tl.apply_strategy(tl.load_model("tiny").model, strategy, **options).model,
        blocks[:2],
    ).total


everything = multiplications("full")
half = multiplications("freeze_lower") / everything
deeper = multiplications("freeze_lower", freeze_embeddings=True) / everything
print(f"lower half frozen: {half:.0%}; embedding frozen as well: {deeper:.0%}")
assert half > 0.8 and deeper < 0.75

# %% [markdown] slideshow={"slide_type": "subslide"}
# A block's work is in three parts: forward, the way back, its own gradients. Half of the blocks lose the third part, so
# five sixths are left, and a little more because the head is trained. With the embedding frozen as well, nothing below
# block 4 is trained, and the backward pass can stop there.
#
# ## Train
#
# The rate is twice that of lesson 4. Each strategy gets the one that did best on validation text; lesson 14 shows how
# they were found.

# %%
settings = tl.TrainingConfig(learning_rate=2e-3, epochs=profile.epochs, batch_size=4)
result = tl.train(report.model, blocks, settings, progress=True)
after = tl.perplexity(report.model, tiny.tokenizer, rust.validation)

# %% tags=["nbval-ignore-output"]
print(
    f"{result.tokens_per_second:,.0f} tokens/s, peak {result.peak_memory / 1e6:.0f} MB"
)
scores = tl.score_table({"before": before, "lower half frozen": after})
scores.round(2)

# %%
tl.perplexity_chart(scores)

# %%
tl.claim("Rust perplexity fell", after.perplexity < before.perplexity)
tl.claim(
    "The first block's weights did not move",
    first_block.equal(next(tl.find_blocks(tiny.model)[0].parameters())),
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## And the embedding frozen too?
#
# Less computing, and fewer activations to keep for a backward pass that stops in the middle.

# %%
both = tl.apply_strategy(
    tl.load_model("tiny").model, "freeze_lower", freeze_embeddings=True
)
short = tl.train(
    both.model, blocks, tl.TrainingConfig(learning_rate=2e-3, epochs=0.25, batch_size=4)
)
print("trainable values:", f"{both.trainable_values:,}")
tl.claim(
    "That needs less memory than training the embedding",
    short.peak_memory < result.peak_memory,
)
assert both.trainable_values < report.trainable_values

# %% tags=["nbval-ignore-output"]
for old, new in zip(
    written_before, tl.generate(report.model, tiny.tokenizer), strict=True
):
    print("before:", old)
    print("after: ", new, "\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The argument is about the path of the gradient, so it holds for models of any size. How much perplexity the frozen
# half costs does not carry over: that depends on the model and on how new the text is to it.
#
# Other strategies and models: choose, and hover or press Tab for the counts.

# %%
tl.strategy_map()

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Take away.** How many weights are trained decides the optimizer's memory. How deep the lowest one lies decides how
# far the backward pass runs.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `tl.check` says what it looked at and, if the answer
# is not right yet, why. Stuck? `tl.hint("ex05_1", 1)` is a first push, `tl.hint("ex05_1", 2)` says more. After *Restart
# Kernel* run the next cell first; then each exercise works by itself.

# %%
import tlkit as tl

# %% [markdown]
# **Quiz.** Of a model with 24 blocks you train block 0 and nothing else. How does a step compare with one in which only
# block 23 is trained?
#
# - **a** It is the same: one block is trained in both.
# - **b** It is cheaper: the forward pass can stop behind block 0.
# - **c** It needs more memory for the optimizer, and the same time.
# - **d** It needs as much memory for the optimizer, but a longer backward pass and more kept activations.

# %%
tl.quiz("quiz05")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 5.1** (first steps). In fp32 a weight takes 4 bytes. A *trained* one takes 12 more: 4 for its gradient and
# 8 for AdamW's two running averages. Freezing the lower half of Qwen2-0.5B leaves 315,084,160 of its 494,032,768 values
# trained. Of all bytes that full fine-tuning needs for weights, gradients and averages, how many percent are left?

# %%
answer = None
# your code here
tl.check("ex05_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 5.2** (apply it). Now the computing, counted by hand in units. Every block costs one unit in the forward
# pass. It costs one more if the gradient has to run through it: that is so when the block itself, or *anything below
# it*, is trained. And it costs one more for the gradients of its own weights, if it is trained. Full fine-tuning costs
# three units a block. Which share of that, between 0 and 1, is left? `trained` is a list with True or False for each
# block, the lowest first; `embedding` says whether the embedding, below all blocks, is trained. Leave the work of
# embedding and head out; the lesson counts the head, so its figures differ a little.


# %%
def share_of_work(trained, embedding):
    """Units of a step, as a share of those of full fine-tuning."""
    # your code here


tl.check("ex05_2", share_of_work)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 5.3** (think further). Write a check that says how far the backward pass of a model runs: return
# `"embedding"` if the token embedding is trained, otherwise the number of the lowest block in which any weight is
# trained. It has to work for models with other names of their parts than ours. Do not compute a gradient: look at what
# is trainable.


# %%
def gradient_ends(model):
    """The lowest part of the model that the gradient has to reach."""
    # your code here


tl.check("ex05_3", gradient_ends)

# %% [markdown]
# Previous: [4 · Full fine-tuning](04_full_fine_tuning.ipynb) ·
# Next: [6 · Freeze the embeddings](06_freeze_embeddings.ipynb)
