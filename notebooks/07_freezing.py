# %% [markdown] slideshow={"slide_type": "slide"}
# # 7 · Freezing
#
# *What does freezing a part of a model save?*
#
# To [freeze](glossary.md#freezing) a parameter means that it gets no gradient and the optimizer leaves it alone. In
# PyTorch that takes one line, `block.requires_grad_(False)`, so freezing half of the blocks looks like an easy way to
# halve the work. But the saving depends on whether anything *below* the frozen part is still trained.
#
# **You will be able to**
#
# - predict from a model's shapes how much arithmetic a training step takes when some parts are frozen;
# - choose what to freeze by arithmetic, memory and perplexity, and check what a recipe really trains;
# - run the frozen part of a model once, and avoid a trap of peft with tied heads.
#
# **You need** the training loop of [lesson 4](04_full_fine_tuning.ipynb) and [LoRA](05_lora.ipynb).
#
# About 38 minutes.

# %% slideshow={"slide_type": "subslide"}
import warnings

import numpy as np
import pandas as pd
import torch
from peft import LoraConfig, get_peft_model
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl
from course.lesson07.pictures import products_chart

tl.setup()
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
rust = tl.load_corpus("rust").limited(60, 40)
blocks = tl.pack(rust.train, tokenizer, 128)[:48]
held_out = tl.pack(rust.validation, tokenizer, 128)[:16]
batch = blocks[:4]


def new_model():
    return AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## Three products in every layer
#
# Almost all arithmetic of a step is in matrix products. Take one linear layer with weights $W$ of shape (out, in). Its
# input $X$ has one row for each of $T$ tokens. A training step computes three products for this layer, and two of them
# use $G = \partial L / \partial Y$, the gradient of the loss that arrives from above, shaped like the output $Y$:
#
# $$Y = X W^\top \qquad \frac{\partial L}{\partial X} = G\, W \qquad \frac{\partial L}{\partial W} = G^\top X$$
#
# The first is the forward pass. The layer below needs the second, and the optimizer the third. Autograd computes both:

# %%
X = torch.randn(512, 192, requires_grad=True)  # 4 x 128 tokens, width 192
W = torch.randn(320, 192, requires_grad=True)  # a layer from 192 to 320
Y = X @ W.T
G, for_X, for_W = torch.autograd.grad(Y.square().sum(), [Y, X, W])
torch.testing.assert_close((G @ W, G.T @ X), (for_X, for_W), rtol=1e-4, atol=1e-2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each product takes one multiplication and one addition for every pair of a token and a weight. With $N$ weights that
# is $2NT$ operations ([FLOPs](glossary.md#flop)), so all three cost $6NT$. A frozen layer saves the third product. Any
# layer saves the second one if *nothing below it* is trained, because then nobody needs the gradient of its input.
#
# The bundled model has blocks 0 to 7. Below block 0 lies the token embedding, and the head above block 7 is
# [tied](glossary.md#tied-head) to it: they are one table, frozen or trained together. `freeze_lower` freezes blocks 0
# to 3, and `upper_half` also the embedding. **Which products are left in these two?** (Wider boxes have more weights.)

# %%
models = {name: new_model() for name in ("full", "freeze_lower", "upper_half")}
models["freeze_lower"].model.layers[:4].requires_grad_(False)
models["upper_half"].model.layers[:4].requires_grad_(False)
models["upper_half"].model.embed_tokens.requires_grad_(False)
products_chart(models, "A frozen block saves two products if nothing below is trained")

# %% [markdown] slideshow={"slide_type": "subslide"}
# With `freeze_lower`, backpropagation still passes through the frozen half on its way to the embedding. With
# `upper_half` it can stop above block 3, and the tied head has lost its third product as well.
#
# ## The whole step, counted
#
# Apart from the linear layers, only attention costs much arithmetic. It multiplies queries by keys, and the result by
# values. Each of these two products takes $2 T t d$ operations for sequences of $t$ tokens, where $d$ is the width of
# all heads together. Backpropagation needs two more for each, or none if nothing below is trained.
#
# The next function goes from bottom to top and adds up the products. `below` is true if anything is trained up to here.


# %%
def step_flops(model, rows=4, tokens=128):
    """Operations of a training step, from shapes and `requires_grad` alone."""
    T, d = rows * tokens, model.config.hidden_size
    below = model.get_input_embeddings().weight.requires_grad
    total = 0
    for block in model.model.layers:
        # A trained block begins with a trained norm, which is below its linear layers.
        below = below or any(p.requires_grad for p in block.parameters())
        for p in block.parameters():
            if p.ndim == 2:  # the weights of a linear layer
                total += (1 + below + p.requires_grad) * 2 * p.numel() * T
        total += (3 if below else 1) * 2 * (2 * T * tokens * d)  # attention
    head = model.get_output_embeddings().weight
    below = below or model.model.norm.weight.requires_grad
    return total + (1 + below + head.requires_grad) * 2 * head.numel() * T


# %% [markdown] slideshow={"slide_type": "subslide"}
# PyTorch can count too: `FlopCounterMode` adds up the operations of every product that is computed. On the CPU it skips
# PyTorch's fused attention ("sdpa"), so we switch to plain products ("eager") while we count.
#
# **With half of the blocks frozen, how much of the arithmetic is left?**


# %%
def counted_flops(model):
    model.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter:
        model(input_ids=batch, labels=batch).loss.backward()
    model.set_attn_implementation("sdpa")
    model.zero_grad()
    return counter.get_total_flops()


costs = pd.DataFrame({"formula": {name: step_flops(m) for name, m in models.items()}})
costs["counted"] = [counted_flops(model) for model in models.values()]
costs["% of full"] = 100 * costs.counted / costs.counted["full"]
print(costs.round(1).to_string())
course.claim("Formula and count agree", np.allclose(costs.formula, costs.counted))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Freezing half of the blocks leaves 88% of the arithmetic: four of eight blocks lose one product of three, and the head
# and attention cost as much as before. With the embedding frozen too, 67% is left. Time follows only roughly, because
# a step also moves numbers through memory, mostly gradients and averages of *trained* parameters. By the count of
# [lesson 16](16_autopsy.ipynb), `freeze_lower` moves 37% fewer bytes, which counts most with few tokens in a step.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What was in 29,865,088?
#
# The other way to freeze is to train only the top. A published report on Qwen2-0.5B, which lesson 16 takes apart,
# counted 29,865,088 trainable parameters for "adapter layers", in its program the "last 2 layers + head". You can check
# this without weights, as a model on the *meta device* has names and shapes, but no numbers. **Can the head be in it?
# And if you take two blocks away, what is left over?**

# %%
qwen = tl.meta_model("qwen2-0.5b")
per_block = sum(p.numel() for p in qwen.model.layers[0].parameters())
rest = 29_865_088 - 2 * per_block
print(f"one block: {per_block:,}, head: {qwen.lm_head.weight.numel():,}")
print(f"outside two blocks: {rest:,} parameters = {rest / 896:g} vectors of width 896")
words = ("layers.22.", "layers.23.", "norm")  # the program's words
sizes = [p.numel() for n, p in qwen.named_parameters() if any(w in n for w in words)]
course.claim("Two blocks and all norms: 29,865,088", sum(sizes) == 29_865_088)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The head has 136 million parameters, more than the whole number, so it was not trained: it is tied to the frozen
# embedding. The rest is 45 vectors of 896: two norms in each of the 22 other blocks, and the final norm. The program
# trained every parameter with "norm" in its name.
#
# **Does a rest of 0.1% cost anything?** On the bundled model `last_blocks` trains the last two blocks only, and
# `last_layers` all norms as well, which repeats the report's mistake.


# %%
def last_two():
    model = new_model().requires_grad_(False)
    model.model.layers[-2:].requires_grad_(True)
    return model


models |= {"last_blocks": last_two(), "last_layers": last_two()}
for name, p in models["last_layers"].named_parameters():
    if "norm" in name:
        p.requires_grad_(True)
pair = {name: models[name] for name in ("last_blocks", "last_layers")}
products_chart(pair, "To reach a norm in block 0, the gradient passes everything")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It does: backpropagation goes down to the lowest trained parameter, however small it is. So select modules, such as
# `model.model.layers[-2:]`, and not text in names, where `layers.1` is also found in `layers.10`.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What do I freeze?
#
# Now compare price and result of all five. `peak_mb` makes two steps of AdamW and keeps the largest sum of bytes in
# live tensors. The perplexities were recorded: each strategy was trained on 200 Rust passages with three seeds, at the
# best rate of a search in runs as long as these, and scored on 40 test documents and on general text.
#
# We subtract the losses of `full` document by document, and turn the mean difference and its 95% interval into percent
# of perplexity. **Which strategy would you take if a step should cost a third less?**


# %%
def peak_mb(model):
    adamw = torch.optim.AdamW(model.parameters())  # it skips what has no gradient
    with tl.track_memory(model) as track:
        for _ in range(2):  # the first step makes AdamW's averages
            model(input_ids=batch, labels=batch).loss.backward()
            adamw.step()
            adamw.zero_grad()
    return track.peak / 1e6


flops = pd.Series({name: counted_flops(model) for name, model in models.items()})
table = pd.DataFrame({"FLOPs, %": 100 * flops / flops["full"]}).round().astype(int)
table["peak MB"] = [round(peak_mb(model)) for model in models.values()]
record = course.recorded("tiny/freezing/comparison").set_index("strategy")
losses = course.recorded("tiny/freezing/documents").eval("loss = nats / tokens")
losses = losses.pivot_table("loss", "document", "strategy")  # the mean of the seeds
gaps = losses.sub(losses["full"], axis=0)
mean, margin = gaps.mean(), 2.02 * gaps.sem()  # Student's t for 40 documents
above = pd.DataFrame({"% above": mean, "from": mean - margin, "to": mean + margin})
table.join(record[["perplexity", "general"]]).join(100 * np.expm1(above)).round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Before training, the perplexity was 126 on Rust and 36 on general text. Every kind of freezing keeps most of the
# improvement on Rust and ends 5 to 16% above `full`. On general text all have become worse, but those with a frozen
# embedding less than `full`, although their rates were three to five times as high.
#
# - **Freeze nothing** if the step fits, time allows, and only the new text counts.
# - **To save a third, freeze from the bottom, embedding included.** `upper_half` needs 67% of the arithmetic and 63% of
#   the memory, ends 9% above `full`, and forgets less. `freeze_lower` ends 5% above, but saves only 12% of the
#   arithmetic and forgets most.
# - **To save half, train only the top.** `last_blocks` needs 53% of the arithmetic and 46% of the memory, and forgets
#   least. With all norms, at its own best rate, `last_layers` ends 12% above `full`, but its gradient has to reach
#   block 0, and each block keeps activations: 76% of the arithmetic, 72% of the memory. `upper_half` beats it in all.
#
# The way of counting holds for every model of this form, but the percentages depend on its shapes: this head has a
# fifth of the parameters, that of a 7-billion model 2 to 7%. The perplexities come from one small model and one text.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Run the frozen part once
#
# With `upper_half` and `last_blocks` a second saving is possible. Nothing below the trained blocks changes, so for the
# same text the same hidden states leave this *frozen prefix* in every epoch. We can run it once and store its output. A
# transformers model returns its hidden states on request, and accepts them as `inputs_embeds` in place of tokens.
#
# `train` is lesson 4's loop with two rows a step, without schedule, clipping and `model.train()`. One model computes
# eight blocks, the other reads stored states and computes two. **Will their losses differ?**


# %%
def train(model, data, epochs, rate):
    adamw = torch.optim.AdamW(model.parameters(), lr=rate)
    chance, losses = torch.Generator().manual_seed(0), []
    for _ in range(epochs):
        for rows in torch.randperm(len(data["labels"]), generator=chance).split(2):
            loss = model(**{name: tensor[rows] for name, tensor in data.items()}).loss
            loss.backward()
            adamw.step()
            adamw.zero_grad()
            losses.append(loss.item())
    return losses


whole, top = last_two(), last_two()
stored = whole.model(blocks, output_hidden_states=True).hidden_states[6]  # of block 5
top.model.layers = top.model.layers[-2:]  # a model of two blocks and the head
top.config.use_cache = False  # the cache is for generating text

whole_run = train(whole, {"input_ids": blocks, "labels": blocks}, epochs=2, rate=2e-3)
top_run = train(top, {"inputs_embeds": stored, "labels": blocks}, epochs=2, rate=2e-3)
largest_gap = max(abs(a - b) for a, b in zip(whole_run, top_run, strict=True))
course.claim("With and without the store: equal losses, to 0.0001", largest_gap < 1e-4)
print(f"FLOPs from the store: {step_flops(top) / flops['full']:.0%} of full")
new = new_model()
before = new(input_ids=held_out, labels=held_out).loss
new.model.layers = new.model.layers[:6] + top.model.layers  # the trained blocks
after = new(input_ids=held_out, labels=held_out).loss
print(f"perplexity of held-out text: {before.exp():.1f}, now {after.exp():.1f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# From the store a step of `last_blocks` takes 32% of the arithmetic of `full` instead of 53%. Put back into a whole
# model, the trained blocks predict new text better than before. (The 126 above is of other text.)
#
# The store has a price: for Qwen2-0.5B in fp32 it takes 3.6 GB for a million tokens, and it pays from the second epoch
# on. It is right only if the frozen part gets the same text in every epoch and has no dropout.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A trap in peft
#
# LoRA freezes the embedding, so if you add a token to the vocabulary, its new row has to be trained beside the adapter.
# A common option of peft is `modules_to_save`: it copies a whole layer and trains the copy with the adapter.
#
# Let a new end token mark where a sentence ends. It replaces each token that follows a full stop and starts with a
# space or is `<|endoftext|>`, so `lock.lock()` stays whole. On held-out text we count how often the model predicts the
# end token there (*right*) and elsewhere (*false*), and let it write 40 tokens after the first 24 of each of the 16
# rows. **What becomes of a tied head when the embedding is replaced by a copy?**

# %%
tokenizer.add_tokens(["<|end|>"], special_tokens=True)
end = tokenizer.convert_tokens_to_ids("<|end|>")
pieces = [tokenizer.decode(number) for number in range(len(tokenizer))]
stops = torch.tensor([piece.endswith(".") for piece in pieces])
starts = torch.tensor([piece.startswith((" ", "<|endoftext|>")) for piece in pieces])
both = torch.cat([blocks, held_out])
both[:, 1:][stops[both[:, :-1]] & starts[both[:, 1:]]] = end
marked, unseen = both.split([len(blocks), len(held_out)])
warnings.filterwarnings("ignore", message="Model has .tie_word")  # discussed below


def tuned(rate, **options):
    torch.manual_seed(0)  # the adapter starts at random
    model = new_model()
    model.resize_token_embeddings(len(tokenizer))
    model = get_peft_model(model, LoraConfig(**options))  # q_proj and v_proj by default
    train(model, {"input_ids": marked, "labels": marked}, epochs=1, rate=rate)
    return model


@torch.no_grad()
def report(model):
    output = model(input_ids=unseen, labels=unseen)
    says, ends = output.logits[:, :-1].argmax(-1) == end, unseen[:, 1:] == end
    texts = model.generate(unseen[:, :24], max_new_tokens=40, eos_token_id=end)
    counts = [says & ends, says & ~ends, (texts[:, 24:] == end).any(1)]
    return [part.sum().item() for part in counts] + [round(output.loss.item(), 2)]


runs = {"default": tuned(3e-3, modules_to_save=["embed_tokens"])}
runs["tied"] = tuned(3e-3, modules_to_save=["embed_tokens"], ensure_weight_tying=True)
runs["one row"] = tuned(1e-2, trainable_token_indices=[end])
seen = pd.DataFrame([report(model) for model in runs.values()], list(runs))
seen.set_axis(["right", "false", "texts that end", "loss"], axis=1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# By default peft trains the copy at the bottom; the head keeps the old table. `resize_token_embeddings` starts the
# new row near the mean of all others. Its logit is then near the mean of all logits, whatever the text, and so never
# the largest, unless that row of the *head* is trained. The run raises no error and writes text, but no text ends. peft
# warns that the layers are tied, but not of this consequence.
#
# With `ensure_weight_tying=True` there is one trained table, and most texts end. `trainable_token_indices` follows a
# tied head, too, but trains one row: 192 parameters instead of 786,624. (Each run has the better of the rates 0.003 and
# 0.01, by this loss.) **Neither repair wins:** one row has the lowest loss and finds all 51 ends, but 12 more are false
# and cut texts short; `tied` has 3 false ends, but trains and saves a whole table. So count both kinds before you
# choose. Your head is tied if `config.tie_word_embeddings` is true.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A step takes three products of $2NT$ operations a layer. A frozen layer saves the third, and any layer the second
#   if nothing below it is trained. So freeze from the bottom, embedding included.
# - Count parameters before you believe a name: "last 2 layers + head" was two blocks and 45 other norms.
# - A frozen prefix needs to run only once: store its output and train the rest on that.
#
# ## Further reading
#
# - J. Kaplan and others, [Scaling Laws for Neural Language Models](https://arxiv.org/abs/2001.08361), 2020: $6NT$.
# - Y. Liu and others, [AutoFreeze](https://arxiv.org/abs/2102.01386), 2021: freezing during training, with a store.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex07_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** Of a model's 24 blocks you train block 0 alone. How does a step compare with one that trains block 23 alone?
#
# - **a** It is the same: one block is trained in both.
# - **b** It is cheaper: the forward pass can stop after block 0.
# - **c** It needs more memory for the optimizer, and the same time.
# - **d** It needs as much memory for the optimizer, but a longer backward pass and more kept activations.

# %%
course.quiz("quiz07")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 7.1.** Repair the recipe. Write a function that makes the last `blocks` blocks and the final norm
# trainable, freezes all else, and returns the model. It must be right for a Llama (blocks in `model.layers`, final norm
# `model.norm`) and for a GPT-2 (`transformer.h`, `transformer.ln_f`), so do not go by names. `tl.find_blocks(model)`
# returns the blocks, and `model.get_decoder().children()` the modules around them.


# %%
def train_last(model, blocks):
    """The model, with its last blocks and its final norm trainable and nothing else."""
    # your code here


course.check("ex07_1", train_last)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 7.2.** Estimate the saving before you have the model. It has `n` equal blocks with `N` weights each in
# linear layers, and a head of `H` weights. The last `k` blocks are trained, all else is frozen, and the output of the
# frozen blocks is `stored` or not. Return the share of a full step's arithmetic that is left, without attention. For
# our model (`n = 8`, `k = 2`, `N = 405_504`, `H = 786_432`) it is 0.53, and from the store 0.33.


# %%
def share_left(n, k, N, H, stored):
    """The share of a full step that is left when only the last k blocks are trained."""
    # your code here


course.check("ex07_2", share_left)

# %% [markdown]
# Previous: [6 · QLoRA](06_qlora.ipynb) ·
# Next: [8 · The PEFT family](08_peft_family.ipynb)
