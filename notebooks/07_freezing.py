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
# - choose what to freeze by arithmetic, memory, time and perplexity, and check what a recipe really trains;
# - run the frozen part of a model once, and teach a frozen embedding one new token.
#
# **You need** the training loop of [lesson 4](04_full_fine_tuning.ipynb) and [LoRA](05_lora.ipynb).
#
# About 35 minutes.

# %% slideshow={"slide_type": "subslide"}
import re
import warnings
from tempfile import mkdtemp
from time import process_time
from timeit import Timer

import numpy as np
import pandas as pd
import torch
from peft import LoraConfig, get_peft_model
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl
from course.lesson07.pictures import products_chart

tl.setup()
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
rust = tl.load_corpus("rust").limited(60, 40)
rows = tl.pack(rust.train, tokenizer, 128)[:16]
held_out = tl.pack(rust.validation, tokenizer, 128)[:16]
batch = {"input_ids": rows[:4], "labels": rows[:4]}


def new_model():
    return AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## Three products in every layer
#
# Almost all arithmetic of a step is in matrix products. Take one linear layer with weights $W$ of shape (out, in). Its
# input $X$ has one row for each of $T$ tokens. A training step computes three products for this layer. Two of them use
# $G = \partial L / \partial Y$, the gradient that arrives from above, shaped like the output $Y$:
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
# is $2NT$ operations ([FLOPs](glossary.md#flop)), and $6NT$ for all three. A frozen layer saves the third product. Any
# layer saves the second one if *nothing below it* is trained, because then no layer needs the gradient of its input.
#
# The bundled model has blocks 0 to 7. Below block 0 lies the token embedding, and the head above block 7 is
# [tied](glossary.md#tied-head) to it: they are one table, frozen or trained together. `freeze_lower` freezes blocks 0
# to 3, and `upper_half` freezes the embedding as well. **Which products are left in each?** (A wider box has more
# weights.)


# %%
def upper_half():
    model = new_model()
    model.model.layers[:4].requires_grad_(False)
    model.model.embed_tokens.requires_grad_(False)
    return model


models = {"full": new_model(), "freeze_lower": new_model(), "upper_half": upper_half()}
models["freeze_lower"].model.layers[:4].requires_grad_(False)
products_chart(models, "A frozen block saves two products if nothing below is trained")

# %% [markdown] slideshow={"slide_type": "subslide"}
# With `freeze_lower`, the frozen blocks save only their third product, because backpropagation passes through them on
# its way to the embedding. With `upper_half` it stops above block 3. The head saves its third product, too, as it is
# the frozen embedding.
#
# ## The whole step, counted
#
# Apart from the linear layers, only attention costs much arithmetic. It multiplies queries by keys, and the result by
# values. Each of these two products takes $2 T t d$ operations for sequences of $t$ tokens, where $d$ is the width of
# all heads together. Backpropagation adds two more for each, one for each factor's gradient, or none if nothing up to
# here is trained.
#
# `step_flops` adds up these products from the bottom. `below` tells whether anything up to here is trained, even if
# only a norm.


# %%
def step_flops(model, T=512, t=128):
    below, total = model.get_input_embeddings().weight.requires_grad, 0
    for block in model.model.layers:
        below = below or any(p.requires_grad for p in block.parameters())
        for p in block.parameters():
            if p.ndim == 2:  # the weights of a linear layer
                total += (1 + below + p.requires_grad) * 2 * p.numel() * T
        total += (3 if below else 1) * 4 * T * t * model.config.hidden_size  # attention
    head = model.get_output_embeddings().weight
    below = below or model.model.norm.weight.requires_grad
    return total + (1 + below + head.requires_grad) * 2 * head.numel() * T


# %% [markdown] slideshow={"slide_type": "subslide"}
# PyTorch can count, too: `FlopCounterMode` adds up every computed product.
#
# **With half of the blocks frozen, how much of the arithmetic is left?**


# %%
def counted_flops(model):  # with MATH, as on a CPU it misses fused attention
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(**batch).loss.backward()
    model.zero_grad()
    return counter.get_total_flops()


costs = pd.DataFrame({"formula": {name: step_flops(m) for name, m in models.items()}})
costs["counted"] = [counted_flops(model) for model in models.values()]
costs["% of full"] = 100 * costs.counted / costs.counted["full"]
costs.round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Freezing half of the blocks leaves 88% of the arithmetic: these four blocks save one product of three, and the head
# and all attention cost as much as before. With the embedding frozen too, 67% is left. The frozen half costs a third of
# what it did and the other half the same, so the blocks together cost two thirds. So does the head, and the share holds
# for a tied model of any size.
#
# ## The lowest trained parameter decides
#
# To save more, train less: `last_blocks` trains only the last two blocks. The published program of [lesson
# 16](16_autopsy.ipynb) meant to do that, but also trained every parameter with "norm" in its name. `blocks+norms`
# repeats this (later lessons call it `last_layers`). It adds 13 vectors of 192 numbers: two norms in each lower block,
# and the final one. **Can so few parameters cost a lot?**


# %%
def last_two():
    model = new_model().requires_grad_(False)
    model.model.layers[-2:].requires_grad_(True)
    return model


top_only = {"last_blocks": last_two(), "blocks+norms": last_two()}
for name, p in top_only["blocks+norms"].named_parameters():
    p.requires_grad |= "norm" in name
models |= top_only
for name, model in top_only.items():
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    share = step_flops(model) / step_flops(models["full"])
    print(f"{name}: {trained:,} trained parameters, {share:.0%} of full's arithmetic")
products_chart(top_only, "To reach a norm in block 0, the gradient passes everything")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Yes: 2,496 more parameters raise the arithmetic from 53% to 76%, because backpropagation goes down to the lowest
# trained parameter, however small it is. LoRA in every block reaches block 0, too, so it saves only the third product.
# To train what you mean, choose modules, not names: `model.model.layers[-2:]` is exact, but the text `layers.1` is also
# in `layers.10`.
#
# ## What do I freeze?
#
# Arithmetic is only one side of the choice. `price` also measures a step's peak memory and its processor time (the
# shortest of three), here in percent of `full`. The perplexities were recorded: each recipe was trained on 200 Rust
# passages with three seeds at its best learning rate, and scored on 40 test documents about Rust and on general text.
# The last row is `full` at half of its best rate.
#
# **Which row would you take if a step should cost a third less? And which forgets least of general text?**


# %% tags=["nbval-ignore-output"]
def step(model, adamw, data):
    loss = model(**data).loss
    loss.backward()
    adamw.step()
    adamw.zero_grad()
    return loss.item()


def price(model, data):
    adamw = torch.optim.AdamW(model.parameters())  # it skips what has no gradient
    with tl.track_memory(model) as track:
        for _ in range(2):  # the first step makes AdamW's averages
            step(model, adamw, data)
    times = Timer(lambda: step(model, adamw, data), timer=process_time).repeat(3, 1)
    return {"FLOPs": step_flops(model), "memory": track.peak, "time": min(times)}


prices = pd.DataFrame({name: price(m, batch) for name, m in models.items()})
prices["full, half rate"] = prices["full"]  # the same step
table = 100 * prices.div(prices["full"], axis=0).T
record = course.recorded("tiny/freezing/comparison").set_index("strategy")
record = record.rename({"last_layers": "blocks+norms"})  # its name in the record
table.join(record[["perplexity", "general"]]).round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Before training, the perplexity was 126 on Rust and 36 on general text.
#
# - **To save a third, freeze from the bottom, embedding included.** `upper_half` needs 67% of the arithmetic and 63% of
#   the memory, and its perplexity ends 9% above that of `full`. `freeze_lower` ends 5% above, but saves only 12% of the
#   arithmetic.
# - **To save half, train only the top.** `last_blocks` needs 53% of the arithmetic and 46% of the memory, and ends 15%
#   above `full`. `blocks+norms` costs more than `upper_half`, and its perplexity is 2 to 3% higher, with every seed.
# - **To forget less, lower the learning rate.** General text ends at 53 with `upper_half` and at 64 with `full`, but at
#   70 with `freeze_lower`, so freezing alone does not protect it. At half its rate `full` learns as much Rust as
#   `upper_half` (57.0 against 57.6), and general text ends at 46.
#
# Time follows arithmetic to within about ten points. Memory falls because a frozen part at the bottom keeps no
# activations, and nothing frozen has gradients or AdamW's averages. The perplexities come from one small model and one
# text.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Run the frozen part once
#
# `upper_half` and `last_blocks` allow a second saving. Nothing below the trained blocks changes, so for the same text
# the same hidden states leave this *frozen prefix* in every epoch. We can run it once and store its output. A
# transformers model returns its hidden states on request (number 0 enters block 0, so number 4 leaves block 3), and
# accepts them as `inputs_embeds` in place of tokens.
#
# `train` is lesson 4's loop in short, with two rows a step. We train `upper_half` twice: `whole` computes all eight
# blocks, while `top` reads stored states and computes four. **Will their losses differ?**


# %%
def train(model, data, epochs, rate):
    adamw = torch.optim.AdamW(model.parameters(), lr=rate)
    generator, losses = torch.Generator().manual_seed(0), []
    for _ in range(epochs):
        for chosen in torch.randperm(len(data["labels"]), generator=generator).split(2):
            losses.append(step(model, adamw, {n: t[chosen] for n, t in data.items()}))
    return losses


whole, top = upper_half(), upper_half()
with torch.no_grad():
    stored = whole.model(rows, output_hidden_states=True).hidden_states[4]
top.model.layers = top.model.layers[4:]  # a model of four blocks and the head
whole_run = train(whole, {"input_ids": rows, "labels": rows}, epochs=2, rate=2e-3)
top_run = train(top, {"inputs_embeds": stored, "labels": rows}, epochs=2, rate=2e-3)
course.claim("Equal losses from the store", np.allclose(whole_run, top_run, atol=1e-4))

# %% [markdown] slideshow={"slide_type": "fragment"}
# No. So `top` and the lower blocks of a fresh copy make up the same trained model, and we can save it:

# %%
rejoined, folder = new_model(), mkdtemp()
rejoined.model.layers = rejoined.model.layers[:4] + top.model.layers
rejoined.model.norm = top.model.norm
rejoined.save_pretrained(folder)
loaded = AutoModelForCausalLM.from_pretrained(folder)
was, now = (m(input_ids=held_out, labels=held_out).loss for m in (new_model(), loaded))
print(f"perplexity of held-out text: {was.exp():.1f}, now {now.exp():.1f}")

# %% [markdown] slideshow={"slide_type": "fragment"}
# The saved model predicts new text better than before. **How much does a store save in each step?**

# %% tags=["nbval-ignore-output"]
prices["from the store"] = price(top, {"inputs_embeds": stored[:4], "labels": rows[:4]})
columns = prices[["upper_half", "from the store", "last_blocks"]]
(100 * columns.div(prices["full"], axis=0)).T.round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# From the store, a step of `upper_half` takes 53% of the arithmetic of `full` instead of 67%. Its time falls by less,
# and varies between runs. Without a store, `last_blocks` takes 53% of the arithmetic, too. So after the first epoch, a
# store gives you four trained blocks for the arithmetic of two.
#
# The store takes room: 3.6 GB in fp32 for a million tokens with Qwen2-0.5B. And it is right only if the frozen part
# gets the same text in every epoch and has no dropout.
#
# ## One new row in a frozen table
#
# LoRA freezes the embedding, so if you add a token, its new row has to be trained beside the adapter. For example, let
# a new end token follow each sentence.

# %%
tokenizer.add_tokens(["<|end|>"])
end = tokenizer.convert_tokens_to_ids("<|end|>")
ended = [re.sub(r"\.(?=\s|$)", ".<|end|>", t) for t in rust.train + rust.validation]
marked = tl.pack(ended[:60], tokenizer, 128)[:24]
unseen = tl.pack(ended[60:], tokenizer, 128)[:16]
print(tokenizer.decode(unseen[9, :64]))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Peft has two options for this. The common one, `modules_to_save`, copies a whole layer and trains the copy with the
# adapter. `go_on` lets a model continue the first 24 tokens of 16 unseen rows by up to 40 tokens; the real
# continuations contain an end token in 15 rows. **The head is tied to the embedding: does it learn the new row, too?**


# %%
def tuned(**options):
    torch.manual_seed(0)  # the adapter starts at random
    model = new_model()
    model.resize_token_embeddings(len(tokenizer))
    model = get_peft_model(model, LoraConfig(**options))  # q_proj and v_proj by default
    train(model, {"input_ids": marked, "labels": marked}, epochs=2, rate=1e-2)
    return model


def go_on(model):
    options = {"attention_mask": torch.ones(16, 24), "eos_token_id": end}
    texts = model.generate(unseen[:, :24], max_new_tokens=40, **options)[:, 24:]
    print((texts == end).any(1).sum().item(), "of 16 texts end. The row above goes on:")
    print(*tokenizer.decode(texts[9]).partition("<|end|>")[:2])


warnings.simplefilter("ignore")  # peft has one, about merging
whole_table = tuned(modules_to_save=["embed_tokens"])
go_on(whole_table)
head = whole_table.get_output_embeddings().weight
away = (head - head[:end].mean(0)).norm(dim=1)
print(f"distance to the mean row: new {away[end]:.4f}, others {away[:end].mean():.2f}")

# %% [markdown] slideshow={"slide_type": "fragment"}
# No: only the copy at the bottom is trained, and the head keeps the old table, in which `resize_token_embeddings` had
# put the new row at the mean of all others. So its logit is near the mean of all logits, whatever the text, and never
# the largest: no text can end. Peft's warning, hidden here, names a remedy: `ensure_weight_tying=True`.
#
# Peft's other option, `trainable_token_indices`, trains single rows, in a tied head as well.

# %%
go_on(tuned(trainable_token_indices=[end]))

# %% [markdown] slideshow={"slide_type": "fragment"}
# Now texts end, and beside the adapter only these 192 parameters are trained. Your model's head is tied if
# `config.tie_word_embeddings` is true.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A step takes three products of $2NT$ operations a layer. A frozen layer saves the third, and any layer the second if
#   nothing below it is trained. So freeze from the bottom, embedding included.
# - Before you train, print what a recipe trains and what it costs: one norm in block 0 undoes half of the saving.
# - A frozen prefix needs to run only once: store its output and train the rest on that.
# - Freeze to make a step cheaper. To forget less, lower the learning rate.
#
# ## Further reading
#
# - J. Kaplan and others, [Scaling Laws for Neural Language Models](https://arxiv.org/abs/2001.08361), 2020: $6NT$.
# - Y. Liu and others, [AutoFreeze](https://arxiv.org/abs/2102.01386), 2021: freezing during training, with a store.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex07_1", 1)`. After
# *Restart Kernel* run the next cell first.

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
# **Exercise 7.1.** Repair the recipe. Write a function that makes the last `count` blocks and the final norm trainable,
# freezes all else, and returns the model. It must be right for a Llama (blocks in `model.layers`, final norm
# `model.norm`) and for a GPT-2 (`transformer.h`, `transformer.ln_f`), so do not go by names. `tl.find_blocks(model)`
# returns the blocks, and `model.get_decoder().children()` the modules around them.


# %%
def train_last(model, count):
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
