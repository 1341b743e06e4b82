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
# # 7 · Train the last layers only
#
# *What was in the published 29,865,088?*
#
# The published reports call this "adapter layers": the last two blocks are trained, the rest stays.
# No adapter is added anywhere, so we call it by what it does. The report says: "last 2 layers + head,
# 29,865,088 parameters". Is that what it was?
#
# **You will** take that number apart to the last value, and take a step with three fifths of the work. About 4 minutes.

# %% slideshow={"slide_type": "subslide"}
from contextlib import nullcontext

import tlkit as tl

profile = tl.setup()
rust = tl.load_corpus().limited(profile.train_passages, profile.test_passages)
base = tl.load_model("tiny")
before = tl.perplexity(base.model, base.tokenizer, rust.validation)
written_before = tl.generate(base.model, base.tokenizer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** The head of Qwen2-0.5B has 136,134,656 values. Can 29,865,088 contain it?

# %%
two_blocks = tl.apply_strategy(
    tl.meta_model("qwen2-0.5b"), "last_layers", train_norms=False
)
published = tl.apply_strategy(tl.meta_model("qwen2-0.5b"), "last_layers")
norms = published.trainable_values - two_blocks.trainable_values
print(f"two blocks:             {two_blocks.trainable_values:>11,}")
print(f"two blocks, all norms:  {published.trainable_values:>11,}")
print(f"difference:             {norms:>11,}")
assert published.trainable_values == 29_865_088 and norms == 45 * 896

# %%
tl.components_chart(published)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The difference is 45 norm vectors of 896 values, too few to be seen in the chart. A *norm* rescales each number of a
# token by a learned factor. There are two in each of the 22 frozen blocks, and the final one.
# The program had trained everything with "norm" in its name. The head was never trained; it is tied
# to the embedding, and the embedding was frozen.
#
# Those norms have a price. The lowest of them is in block 0, so the backward pass again runs to the bottom. Train with
# them and without, and compare. (The learning rate is higher than in lesson 6: fewer weights take larger steps.)

# %%
blocks = tl.pack(rust.train, base.tokenizer, 128)
settings = tl.TrainingConfig(learning_rate=5e-3, epochs=profile.epochs, batch_size=4)
results, scores, written = {}, {"before": before}, {}
for train_norms in (True, False):
    tiny = tl.load_model("tiny")
    report = tl.apply_strategy(tiny.model, "last_layers", train_norms=train_norms)
    name = "two blocks, all norms" if train_norms else "two blocks"
    results[name] = tl.train(report.model, blocks, settings, progress=True)
    scores[name] = tl.perplexity(report.model, tiny.tokenizer, rust.validation)
    written[name] = tl.generate(report.model, tiny.tokenizer)

# %% tags=["nbval-ignore-output"]
for name, result in results.items():
    print(
        f"{name}: {result.seconds:.1f} s, {result.peak_memory / 1e6:.0f} MB at the peak"
    )
tl.score_table(scores).round(2)

# %%
tl.perplexity_chart(tl.score_table(scores))

# %%
adapted = [scores[name].perplexity for name in results]
with_norms, without = results["two blocks, all norms"], results["two blocks"]
tl.claim("Both improve on the baseline", max(adapted) < before.perplexity)
tl.claim(
    "Without the norms less memory is needed",
    without.peak_memory < with_norms.peak_memory,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Whether the norms help cannot be told from one run with one seed; lesson 14 shows how to tell. What they cost, in
# memory and time, stands above.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What it writes

# %% tags=["nbval-ignore-output"]
for old, new in zip(written_before, written["two blocks"], strict=True):
    print("before:", old)
    print("after: ", new, "\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# ## What never changes need not be computed twice
#
# Without the norms, nothing below block 6 is trained. For the same tokens, the same numbers come out of it, in every
# epoch and every evaluation. `cached_prefix` keeps them, and lets each further pass begin at block 6. Where something
# below is trained, or draws random numbers (dropout), it refuses.
#
# A tiny model's seconds say little; so count the arithmetic of a step instead.
#
# **Predict first.** Six of eight blocks need no forward pass any more. What is left of the work of a step: a quarter, a
# half, more?


# %%
def step_over(report):
    return tl.count_flops(report.model, blocks[:4])


plain = step_over(
    tl.apply_strategy(tl.load_model("tiny").model, "last_layers", train_norms=False)
)
kept = tl.apply_strategy(tl.load_model("tiny").model, "last_layers", train_norms=False)
with tl.cached_prefix(kept.model) as cache:
    first, later = step_over(kept), step_over(kept)
tl.flops_chart(
    {
        "every pass anew": plain,
        "prefix kept, first pass": first,
        "prefix kept, later": later,
    }
)

# %%
print(
    "sequences computed and passed over:", cache.rows_computed, "and", cache.rows_reused
)
print("a later step takes, of the arithmetic:", round(later.total / plain.total, 2))
# Older releases of transformers compute the angles of positions once more.
assert abs(first.total / plain.total - 1) < 1e-4
assert round(later.total / plain.total, 2) == 0.61
try:
    tl.frozen_blocks(
        tl.apply_strategy(tl.load_model("tiny").model, "last_layers").model
    )
except ValueError as error:
    print("with the norms trained:", str(error).partition(":")[0])

# %% [markdown] slideshow={"slide_type": "subslide"}
# Three fifths, and the first pass gains nothing: it pays from the second epoch on. What is left is two blocks and the
# head, which every pass must go through, forwards and backwards. For Qwen2-0.5B the head is most of it. Its two blocks
# have 29,824,768 values, its head 136,134,656. A pass over a weight costs the same in each; a step goes through trained
# weights three times, through the frozen head twice.

# %%
two, head, lower = 2 * 14_912_384, 136_134_656, 22 * 14_912_384
rest = 3 * two + 2 * head
print("the head's part of what is left:", f"{2 * head / rest:.0%}")
print("at most so many times faster:", round((lower + rest) / rest, 1))
assert round((lower + rest) / rest, 1) == 1.9 and round(2 * head / rest, 2) == 0.75

# %%
losses = {}
for name in ("anew", "kept"):
    report = tl.apply_strategy(
        tl.load_model("tiny").model, "last_layers", train_norms=False
    )
    with tl.cached_prefix(report.model) if name == "kept" else nullcontext():
        losses[name] = tl.train(
            report.model, blocks[:8], tl.TrainingConfig(5e-3, epochs=3, batch_size=4)
        ).history.loss
tl.claim(
    "The losses are the same, step by step",
    ((losses["anew"] - losses["kept"]).abs() < 1e-6).all(),
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Twenty-two of twenty-four blocks are passed over, and it is still not twice as fast: that is the limit of every method
# that leaves the head as it is. Measured with the whole of Qwen2-0.5B, see the table in `tests/benchmarks/RESULTS.md`.
#
# On a large model the pattern should hold: the last blocks learn a new vocabulary and tone cheaply, and a few vectors
# at the bottom can cost much for the little they bring. How far two blocks go depends on how far the new text is from
# what the model has read.
#
# **Take away.** Count values per component, then believe the name of a strategy.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `tl.check` says what it looked at and, if the answer
# is not right yet, why. Stuck? `tl.hint("ex07_1", 1)` is a first push, `tl.hint("ex07_1", 2)` says more. After *Restart
# Kernel* run the next cell first; then each exercise works by itself.

# %%
import tlkit as tl

# %% [markdown]
# **Quiz.** In the bundled model, the norms outside the last two blocks have 2,496 values together. Training them raised
# the peak of memory by tens of megabytes. What for?
#
# - **a** For the norms themselves, which are computed in higher precision once they train.
# - **b** For AdamW, which keeps two more numbers for each trained value.
# - **c** For the gradient of the embedding, which is trained with them.
# - **d** For what the backward pass needs of every block that it goes through.

# %%
tl.quiz("quiz07")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 7.1** (first steps). TinyLlama-1.1B has 22 blocks and a width of 2,048. As in Qwen2, each block has two
# norms, and one more norm follows the last block. The published recipe trains the last two blocks and every norm. How
# many values does it train *outside* the last two blocks?

# %%
answer = None
# your code here
tl.check("ex07_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 7.2** (apply it). "The last two blocks": is that all? Write a function that takes the report of
# `apply_strategy` and says how many values are trained *outside* the last `blocks` blocks. For the published run it
# gives 40,320. `report.components` is a dictionary with an entry for each part of the model, such as "embedding" or
# "block 0"; each entry knows its `trainable_values` and its `total_values`.


# %%
def values_elsewhere(report, blocks):
    """How many values are trained outside the last blocks."""
    # your code here


tl.check("ex07_2", values_elsewhere)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 7.3** (think further). Repair the recipe. Write a function that makes the last `blocks` blocks and the
# final norm trainable, freezes all else, and returns the model. It gets models in which everything trains, and it must
# be right for a Llama (blocks in `model.layers`, final norm `model.norm`) and for a GPT-2 (blocks in `transformer.h`,
# final norm `transformer.ln_f`). The names in a model are no help, then; its structure is.


# %%
def train_last(model, blocks):
    """The model, with its last blocks and its final norm trainable and nothing else."""
    # your code here


tl.check("ex07_3", train_last)

# %% [markdown]
# Previous: [6 · Freeze the embeddings](06_freeze_embeddings.ipynb) ·
# Next: [8 · LoRA and BitFit](08_lora.ipynb)
