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
rows = tl.pack(rust.train, tokenizer, 128)[:32]
held_out = tl.pack(rust.validation, tokenizer, 128)[:16]
batch = {"input_ids": rows[:4], "labels": rows[:4]}


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
def upper_half():
    model = new_model()
    model.model.layers[:4].requires_grad_(False)
    model.model.embed_tokens.requires_grad_(False)
    return model


models = {"full": new_model(), "freeze_lower": new_model(), "upper_half": upper_half()}
models["freeze_lower"].model.layers[:4].requires_grad_(False)
products_chart(models, "A frozen block saves two products if nothing below is trained")

# %% [markdown] slideshow={"slide_type": "subslide"}
# With `freeze_lower`, backpropagation still passes through the frozen half on its way to the embedding. With
# `upper_half` it stops above block 3, and the tied head has lost its third product as well.
#
# ## The whole step, counted
#
# Apart from the linear layers, only attention costs much arithmetic. It multiplies queries by keys, and the result by
# values. Each of these two products takes $2 T t d$ operations for sequences of $t$ tokens, where $d$ is the width of
# all heads together. Backpropagation needs two more for each, or none if nothing below is trained.
#
# `step_flops` adds the products from bottom to top. `below` is true if anything up to here is trained, norms included.


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
# PyTorch can count too: `FlopCounterMode` adds up every product that is computed. On the CPU it skips PyTorch's fused
# attention, so we ask for plain products (`MATH`) while we count.
#
# **With half of the blocks frozen, how much of the arithmetic is left?**


# %%
def counted_flops(model):
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(**batch).loss.backward()
    model.zero_grad()
    return counter.get_total_flops()


costs = pd.DataFrame({"formula": {name: step_flops(m) for name, m in models.items()}})
costs["counted"] = [counted_flops(model) for model in models.values()]
costs["% of full"] = 100 * costs.counted / costs.counted["full"]
costs.round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Freezing half of the blocks leaves 88% of the arithmetic: four of eight blocks lose one product of three, and the head
# and attention cost as much as before. With the embedding frozen too, 67% is left. This holds for a tied model of any
# size: the frozen half costs a third of what it did, the other half the same, and the head two thirds.
#
# ## The lowest trained parameter decides
#
# The other way to freeze is to train only the top: `last_blocks` trains our last two blocks. A published program, which
# [lesson 16](16_autopsy.ipynb) takes apart, meant to do that, but it also trained every parameter with "norm" in its
# name. `blocks+norms` repeats this (elsewhere: `last_layers`). It adds 13 vectors of 192 numbers. **Can so few
# parameters cost a lot?**


# %%
def last_two():
    model = new_model().requires_grad_(False)
    model.model.layers[-2:].requires_grad_(True)
    return model


pair = {"last_blocks": last_two(), "blocks+norms": last_two()}
for name, p in pair["blocks+norms"].named_parameters():
    p.requires_grad |= "norm" in name
models |= pair
for name, model in pair.items():
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    share = step_flops(model) / step_flops(models["full"])
    print(f"{name}: {trained:,} trained parameters, {share:.0%} of full's arithmetic")
products_chart(pair, "To reach a norm in block 0, the gradient passes everything")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Yes: backpropagation goes down to the lowest trained parameter, however small. So choose modules, not names:
# `model.model.layers[-2:]` is exact, but the text `layers.1` is also in `layers.10`. And print these two numbers for
# every recipe before you train it. (The `Trainer` of transformers trains what has `requires_grad`, so it takes such a
# model as it is.) LoRA in every block reaches block 0, too, so it saves only the third product.
#
# ## What do I freeze?
#
# Now compare all five. `price` returns a step's FLOPs, the most bytes in live tensors, and the shortest of five times
# by the processor's clock, which other programs hardly disturb; all are shown in percent of `full`. The perplexities
# were recorded: each strategy was trained on 200 Rust passages with three seeds, at the best learning rate of a search,
# and scored on 40 test documents and on general text. The last row is `full` at half of its best rate. (Seeds differ by
# 2% at most.)
#
# **Which row would you take if a step should cost a third less? And which if general text should suffer least?**


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
    times = Timer(lambda: step(model, adamw, data), timer=process_time).repeat(5, 1)
    return {"FLOPs": step_flops(model), "memory": track.peak, "time": min(times)}


prices = pd.DataFrame({name: price(m, batch) for name, m in models.items()})
prices["full, half rate"] = prices["full"]  # the same step
table = 100 * prices.div(prices["full"], axis=0).T
record = course.recorded("tiny/freezing/comparison").set_index("strategy")
record = record.rename({"last_layers": "blocks+norms"})  # its name in the record
table.join(record[["perplexity", "general"]]).round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Time follows arithmetic to within about ten points. Memory falls because a frozen part at the bottom keeps no
# activations, and nothing frozen has gradients or AdamW's averages. Before training, the perplexity was 126 on Rust and
# 36 on general text.
#
# - **To save a third, freeze from the bottom, embedding included.** `upper_half` needs 67% of the arithmetic and 63% of
#   the memory, and its perplexity ends 9% above that of `full`. `freeze_lower` ends 5% above, but saves only 12% of the
#   arithmetic.
# - **To save half, train only the top.** `last_blocks` needs 53% of the arithmetic and 46% of the memory, and ends 15%
#   above. `blocks+norms` ends 12% above, but `upper_half` takes less arithmetic and memory, and is better by 2%, with
#   every seed.
# - **To forget less, lower the learning rate.** General text ends at 53 with `upper_half` and at 64 with `full`, as if
#   freezing protected it. But at half its rate `full` learns as much Rust as `upper_half`, 57.0 against 57.6, and
#   general text ends at 46.
#
# The perplexities come from one small model and one text.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Run the frozen part once
#
# With `upper_half` and `last_blocks` a second saving is possible. Nothing below the trained blocks changes, so for the
# same text the same hidden states leave this *frozen prefix* in every epoch. We can run it once and store its output. A
# transformers model returns its hidden states on request (number 0 enters block 0, so number 4 leaves block 3), and
# accepts them as `inputs_embeds` in place of tokens.
#
# `train` is lesson 4's loop with two rows a step, without schedule, clipping and `model.train()`. One model computes
# eight blocks, the other reads stored states and computes four. **Will their losses differ?**


# %%
def train(model, data, epochs, rate):
    adamw = torch.optim.AdamW(model.parameters(), lr=rate)
    chance, losses = torch.Generator().manual_seed(0), []
    for _ in range(epochs):
        for chosen in torch.randperm(len(data["labels"]), generator=chance).split(2):
            losses.append(step(model, adamw, {n: t[chosen] for n, t in data.items()}))
    return losses


whole, top = upper_half(), upper_half()
with torch.no_grad():
    stored = whole.model(rows, output_hidden_states=True).hidden_states[4]
top.model.layers = top.model.layers[4:]  # a model of four blocks and the head
whole_run = train(whole, {"input_ids": rows, "labels": rows}, epochs=2, rate=2e-3)
top_run = train(top, {"inputs_embeds": stored, "labels": rows}, epochs=2, rate=2e-3)
course.claim("Equal losses from the store", np.allclose(whole_run, top_run, atol=1e-4))
new, folder = new_model(), mkdtemp()
new.model.layers = new.model.layers[:4] + top.model.layers  # a whole model to use
new.model.norm = top.model.norm
new.save_pretrained(folder)
tokenizer.save_pretrained(folder)
loaded = AutoModelForCausalLM.from_pretrained(folder)
was, now = (m(input_ids=held_out, labels=held_out).loss for m in (new_model(), loaded))
print(f"perplexity of held-out text: {was.exp():.1f}, now {now.exp():.1f}")

# %% tags=["nbval-ignore-output"]
prices["from the store"] = price(top, {"inputs_embeds": stored[:4], "labels": rows[:4]})
chosen = prices[["upper_half", "from the store", "last_blocks"]]
(100 * chosen.div(prices["full"], axis=0)).T.round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The saved model predicts new text better than before. From the store, a step of `upper_half` takes 53% of the
# arithmetic of `full` instead of 67%, but only three points less time. Without a store, `last_blocks` takes as much
# arithmetic, but less memory and time, and ends 5% higher. So beyond one epoch, a store pays for two more trained
# blocks (stored too, `last_blocks` takes a third).
#
# The store takes room: for Qwen2-0.5B in fp32, 3.6 GB for a million tokens. It is right only if the frozen part gets
# the same text in every epoch and has no dropout.
#
# ## One new row in a frozen table
#
# LoRA freezes the embedding, so if you add a token to the vocabulary, its new row has to be trained beside the adapter.
# Let a new end token follow each sentence, that is, each full stop before white space or at the end of a passage.

# %%
tokenizer.add_tokens(["<|end|>"])
end = tokenizer.convert_tokens_to_ids("<|end|>")
ended = [re.sub(r"\.(?=\s|$)", ".<|end|>", t) for t in rust.train + rust.validation]
marked = tl.pack(ended[:60], tokenizer, 128)[:48]
unseen = tl.pack(ended[60:], tokenizer, 128)[:16]
print(tokenizer.decode(unseen[9, :64]))

# %% [markdown] slideshow={"slide_type": "subslide"}
# A common option of peft is `modules_to_save`: it copies a whole layer and trains the copy with the adapter. The other,
# `trainable_token_indices`, trains single rows. Each model then continues the first 24 tokens of 16 unseen rows by 40.
# In 15 of the real texts a sentence ends there. **What becomes of a tied head when a copy replaces the embedding?**


# %%
def tuned(**options):
    torch.manual_seed(0)  # the adapter starts at random
    model = new_model()
    model.resize_token_embeddings(len(tokenizer))
    model = get_peft_model(model, LoraConfig(**options))  # q_proj and v_proj by default
    train(model, {"input_ids": marked, "labels": marked}, epochs=2, rate=5e-3)
    return model


with warnings.catch_warnings(action="ignore"):  # peft has one, about merging
    whole_table = tuned(modules_to_save=["embed_tokens"])
tokens = {"whole table": whole_table, "one row": tuned(trainable_token_indices=[end])}
start = unseen[:, :24]
options = {"attention_mask": torch.ones_like(start), "eos_token_id": end}
for name, model in tokens.items():
    texts = model.generate(start, max_new_tokens=40, **options)[:, 24:]
    count = (texts == end).any(1).sum()
    print(f"{name}: {count} of 16 texts end. The row above goes on:")
    print(*tokenizer.decode(texts[9]).partition("<|end|>")[:2])

# %% [markdown] slideshow={"slide_type": "subslide"}
# The copy is trained at the bottom, but the head keeps the old table. `resize_token_embeddings` starts the new row near
# the mean of all others. Its logit is then near the mean of all logits, whatever the text, and so never the largest,
# unless that row of the *head* is trained. So no text ends. Peft only warns of "complications, for example when merging
# the adapter".
#
# **So train the row**: `trainable_token_indices` follows a tied head, and trains 192 parameters.
# (`ensure_weight_tying=True` repairs the head, too, but trains the whole table, 786,624 parameters.) Your head is tied
# if `config.tie_word_embeddings` is true.

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
