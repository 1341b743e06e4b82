# %% [markdown] slideshow={"slide_type": "slide"}
# # 7 · Freezing
#
# *What does freezing a part of a model save?*
#
# To [freeze](glossary.md#freezing) a parameter means that it gets no gradient and the optimizer leaves it alone. In
# PyTorch that is one line, `block.requires_grad_(False)`, so it looks like the cheapest way to fine-tune: freeze half
# of the model and do half of the work. It saves far less. In this lesson you find out why, and reconstruct what a
# published number counted.
#
# **You will be able to**
#
# - predict from a model's shapes how much arithmetic a training step takes when some blocks are frozen;
# - say what a strategy really trained, and avoid a trap of peft with tied heads;
# - run the frozen part of a model once, store its output, and train on that.
#
# **You need** the training loop of [lesson 4](04_full_fine_tuning.ipynb) and [LoRA](05_lora.ipynb).
#
# About 36 minutes.

# %% slideshow={"slide_type": "subslide"}
import warnings
from time import process_time

import numpy as np
import pandas as pd
import torch
from peft import LoraConfig, get_peft_model
from torch.nn.functional import cross_entropy
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
# input $X$ has one row for each of $T$ tokens. A training step computes three products for this layer. Two of them
# use $G = \partial L / \partial Y$, the gradient of the loss that arrives from above, shaped like the output $Y$:
#
# $$Y = X W^\top \qquad \frac{\partial L}{\partial X} = G\, W \qquad \frac{\partial L}{\partial W} = G^\top X$$
#
# The first is the forward pass. The layer below needs the second, and the optimizer needs the third. Autograd computes
# exactly these:

# %%
X = torch.randn(512, 192, requires_grad=True)  # 4 x 128 tokens, width 192
W = torch.randn(512, 192, requires_grad=True)  # a layer from 192 to 512
Y = X @ W.T
G, for_X, for_W = torch.autograd.grad(Y.square().sum(), [Y, X, W])
torch.testing.assert_close((G @ W, G.T @ X), (for_X, for_W), rtol=1e-4, atol=1e-2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each product takes one multiplication and one addition for every pair of a token and a weight. With $N$ weights that
# is $2NT$ operations ([FLOPs](glossary.md#flop)), so a layer that is trained costs $6NT$. A frozen layer saves the
# third product. It saves the second one only if *nothing below it* is trained, because then nobody needs the gradient
# of its input.
#
# **Freeze blocks 0 to 3 of 8. Which products are left?** In `freeze_lower` only these blocks are frozen. In
# `upper_half` the token embedding, which lies below block 0, is frozen as well, and in `freeze_embeddings` it alone is.

# %%
models = {name: new_model() for name in ("full", "freeze_lower", "upper_half")}
models["freeze_embeddings"] = new_model()
models["freeze_lower"].model.layers[:4].requires_grad_(False)
models["upper_half"].model.layers[:4].requires_grad_(False)
for name in ("upper_half", "freeze_embeddings"):
    models[name].model.embed_tokens.requires_grad_(False)
products_chart(models, "The gradient passes through frozen blocks to the embedding")

# %% [markdown] slideshow={"slide_type": "subslide"}
# With `freeze_lower`, backpropagation still passes through the frozen half on its way to the embedding. With
# `upper_half` it can stop above block 3. The head has lost its third product as well, because in this model it is
# [tied](glossary.md#tied-head): it uses the embedding's own table, so whoever freezes one freezes both.
#
# ## The whole step, counted
#
# Apart from the linear layers, only attention costs much arithmetic. It multiplies queries by keys, and the result by
# values. Each of these two products takes $2 T t d$ operations in a batch of sequences of $t$ tokens, where $d$ is the
# width of all heads together. No weights are involved, so backpropagation needs two more products for each of them, or
# none.
#
# The next function goes through the model from bottom to top and adds up the products that a step needs. `below` says
# whether anything up to this layer is trained, so whether the gradient has to arrive here at all.


# %%
def step_flops(model, rows=4, tokens=128):
    """Operations of a training step, from shapes and `requires_grad` alone."""
    T, d = rows * tokens, model.config.hidden_size
    below = model.get_input_embeddings().weight.requires_grad
    total = 0
    for block in model.model.layers:
        below = below or any(p.requires_grad for p in block.parameters())
        for p in block.parameters():
            if p.ndim == 2:  # the weights of a linear layer
                products = 1 + int(below) + int(p.requires_grad)
                total += products * 2 * p.numel() * T
        total += (3 if below else 1) * 2 * (2 * T * tokens * d)  # attention
    head = model.get_output_embeddings().weight
    below = below or model.model.norm.weight.requires_grad
    return total + (1 + int(below) + int(head.requires_grad)) * 2 * head.numel() * T


# %% [markdown] slideshow={"slide_type": "subslide"}
# PyTorch can count too: `FlopCounterMode` adds up the operations of every product that is really computed. It cannot
# look into PyTorch's fused attention ("sdpa"), so we switch to plain products ("eager") while we count.
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


costs = pd.DataFrame(index=list(models))
costs["formula"] = [step_flops(model) for model in models.values()]
costs["counted"] = [counted_flops(model) for model in models.values()]
costs["% of full"] = 100 * costs.counted / costs.counted["full"]
print(costs.round(1).to_string())
course.claim("Formula and count agree exactly", all(costs.formula == costs.counted))


# %% tags=["nbval-ignore-output"]
def seconds(model):
    begun = process_time()  # of this process alone
    model(input_ids=batch, labels=batch).loss.backward()
    return process_time() - begun


rounds = [[seconds(model) for model in models.values()] for _ in range(5)]
fastest = pd.DataFrame(rounds, columns=list(models)).min()  # all take turns
print((100 * fastest / fastest["full"]).round().to_string())

# %% [markdown] slideshow={"slide_type": "subslide"}
# Freezing half of the blocks leaves 88% of the arithmetic. Four of eight blocks lose one product of three, and the head
# and attention cost as much as before. With the embedding frozen too, 67% is left, because backpropagation now stops
# half way. The measured time, also in percent of `full`, is close to that, though norms, activation functions and the
# loss take time but hardly any FLOPs.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One table, two gradients
#
# The tied table $E$ has a row for each of $V$ tokens. At the bottom, the rows of the text's tokens $t$ are looked up.
# At the top, each hidden state in $H$ is multiplied by every row, which gives the logits $Z$:
#
# $$X = E[t] \qquad\qquad Z = H E^\top$$
#
# A parameter that is used twice gets a gradient from each use, and autograd adds the two. From the lookup, each row of
# $E$ receives the gradients of the places where its token stands. The head gives the third product of a linear layer,
# $(\partial L / \partial Z)^\top H$.
#
# **A text has 64 tokens, the table 4,096 rows. How many rows get a gradient from the lookup, and how many from the
# head?**

# %%
model = new_model()
tokens, E = blocks[2][:64], model.get_input_embeddings().weight
X = E.detach()[tokens].requires_grad_()
H = model.model(inputs_embeds=X[None]).last_hidden_state[0]
Z = H @ E.detach().T
loss = cross_entropy(Z[:-1], tokens[1:])  # each position predicts the next token
to_X, to_Z = torch.autograd.grad(loss, [X, Z])
from_lookup = torch.zeros_like(E).index_add_(0, tokens, to_X)  # to each token's row
from_head = to_Z.T @ H.detach()

model(input_ids=tokens[None], labels=tokens[None]).loss.backward()
both = from_lookup + from_head
course.claim("Both together are autograd's gradient", E.grad.allclose(both, atol=1e-5))
print(f"rows with a gradient from the lookup: {from_lookup.any(dim=1).sum()}")
print(f"rows with a gradient from the head: {from_head.any(dim=1).sum():,}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The lookup reaches the 52 different tokens that the model has read. The head compares every state with all rows, and
# softmax gives each token some probability, so every row is moved: those of right answers towards the hidden state, all
# others away from it.
#
# The table has 19% of the parameters, but freezing it saves only 6% of the arithmetic, the head's third product. (In an
# untied model, such as Llama-2-7B, the head stays trained. `model.config.tie_word_embeddings` tells you which you
# have.)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A trap in peft
#
# If you add a token to the vocabulary, you have to train its row of the table, beside LoRA. peft has an option for
# this: `modules_to_save` makes a copy of a whole layer and trains the copy with the adapter.
#
# Let us add a token that marks the end of a sentence. In the training text it replaces whatever follows a full stop,
# and afterwards we count how often the model predicts it after a full stop of held-out text. `train` is the loop of
# lesson 4 without its schedule; `inputs` are the tensors that the model reads, by name.
#
# **What becomes of a tied head when the embedding is replaced by a copy?**


# %%
def train(model, labels, epochs, rate, **inputs):
    trained = [p for p in model.parameters() if p.requires_grad]
    adamw = torch.optim.AdamW(trained, lr=rate)
    chance, losses = torch.Generator().manual_seed(0), []
    for _ in range(epochs):
        for rows in torch.randperm(len(labels), generator=chance).split(4):
            some = {name: tensor[rows] for name, tensor in inputs.items()}
            loss = model(**some, labels=labels[rows]).loss
            loss.backward()
            adamw.step()
            adamw.zero_grad()
            losses.append(loss.item())
    return losses


full_stop, end = tokenizer(".").input_ids[0], len(tokenizer)
marked = blocks.clone()
marked[:, 1:][blocks[:, :-1] == full_stop] = end
warnings.simplefilter("ignore")  # peft warns that the layers are tied


def says_end(**options):
    torch.manual_seed(0)  # the adapter starts at random
    options |= {"target_modules": ["q_proj", "v_proj"]}
    config = LoraConfig(modules_to_save=["embed_tokens"], **options)
    model = new_model()
    model.resize_token_embeddings(end + 1)
    model = get_peft_model(model, config)
    train(model, marked, epochs=1, rate=1e-2, input_ids=marked)
    with torch.no_grad():
        best = model(input_ids=held_out).logits.argmax(-1)  # after each token
    return (best[held_out == full_stop] == end).float().mean().item()


default, tied = says_end(), says_end(ensure_weight_tying=True)
print(f"by default: {default:.0%}, with ensure_weight_tying: {tied:.0%}")
course.claim("By default the new token is never the likeliest", default == 0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# By default peft trains the copy at the bottom, and the head keeps the old table. A new row starts near the mean of all
# others, so its logit starts near the mean of all logits for *every* hidden state, and a mean is never the largest.
# Only training that row of the *head* can change this.
#
# Nothing fails: the loss falls, and the model never says the new token. For an end token this means that the model
# never stops. peft warns that the layers are tied, but not of this consequence. With `ensure_weight_tying=True` there
# is still one table.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What was in 29,865,088?
#
# A published report on Qwen2-0.5B counted, for its cheapest strategy, "last 2 layers + head, 29,865,088 trainable
# parameters". You can check such a number without weights, because on the *meta device* a model has names and shapes,
# but no numbers:

# %%
qwen = tl.meta_model("qwen2-0.5b")
for name, p in qwen.model.layers[0].named_parameters():
    print(f"{name:32} {tuple(p.shape)!s:13} {p.numel():>11,}")
block = sum(p.numel() for p in qwen.model.layers[0].parameters())
print(f"one block: {block:,}, head: {qwen.lm_head.weight.numel():,}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Can the head be in the number? And if you take two blocks away, what is left over?**

# %%
rest = 29_865_088 - 2 * block
print(f"outside two blocks: {rest:,} parameters = {rest / 896:g} vectors of width 896")
suspects = ("layers.22.", "layers.23.", "norm")
sizes = [p.numel() for n, p in qwen.named_parameters() if any(s in n for s in suspects)]
course.claim("Two blocks and all norms: 29,865,088", sum(sizes) == 29_865_088)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The head has 136 million parameters, more than the whole number, so it was not trained. It is tied to the frozen
# embedding. The rest is 45 vectors of 896: in each of the 22 other blocks a norm before attention and one before the
# MLP, and the final norm. The program had trained every parameter with "norm" in its name.
#
# Does a rest of 0.1% matter? Build both versions on the bundled model and look at the products. `last_blocks` trains
# the last two blocks only, and `last_layers` is the published recipe.


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
# Backpropagation goes down to the lowest trained parameter, however small it is. The norms cost the published recipe
# about half of the arithmetic that it was meant to save, as the last table shows. So select modules, such as
# `model.model.layers[-2:]`, and not text in names.
#
# Text in names has a second trap. To freeze blocks 0 to 11, another published program looked for
# `layers.0` to `layers.11`. But `layers.1` is also in `layers.12` to `layers.19`, and `layers.2` in `layers.20` to
# `layers.23`, so it froze all 24 blocks.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Run the frozen part once
#
# With `last_blocks` a second saving is possible. Nothing in blocks 0 to 5 changes, so for the same text the same hidden
# states leave block 5 in every epoch. We can run this *frozen prefix* once and store its output. (With `last_layers`,
# norms in the lower blocks change.) A transformers model returns its hidden states on request and accepts them as
# `inputs_embeds` in place of tokens.

# %%
model = last_two()
with torch.no_grad():  # once, for the whole text
    states = model.model(blocks, output_hidden_states=True).hidden_states
stored = states[6]  # (48, 128, 192): what leaves block 5 and enters block 6

top = last_two()
top.model.layers = top.model.layers[-2:]  # a model of two blocks and the head
top.config.use_cache = False  # keys and values are kept to generate text only

# %% [markdown] slideshow={"slide_type": "subslide"}
# Now train both models with the same loop. One computes all eight blocks; the other reads stored states and computes
# two. **Will their losses differ?**


# %%
anew = train(model, blocks, epochs=2, rate=3e-3, input_ids=blocks)
again = train(top, blocks, epochs=2, rate=3e-3, inputs_embeds=stored)
apart = max(abs(a - b) for a, b in zip(anew, again, strict=True))
course.claim("All losses are equal, with and without the store", apart < 1e-4)

print(f"arithmetic of a step from the store: {step_flops(top) / step_flops(model):.0%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Compared with `last_blocks` without a store, three fifths of the arithmetic remain, because every step still passes
# through the head, forwards and backwards. To use the result, put the trained blocks back in place of the last two of a
# whole model.
#
# The store has a price: for Qwen2-0.5B in fp32 it takes 3.6 kB a token, or 3.6 GB for a million tokens, and it pays
# from the second epoch on. It is only right if the frozen part always computes the same, on the same text and without
# random elements such as dropout.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What each strategy saves, and what it costs
#
# In a recorded comparison each strategy was trained on 200 Rust passages with three seeds, at the best rate of its own
# search, and with a stored prefix if it has one. (`upper_half` and `last_blocks` had 8 search runs of 55 steps, the
# others 16 of 17 steps.) Perplexity on 40 test documents was 126 before training and 53 after `full`.
#
# For the other strategies we subtract the losses document by document, as in lesson 5, and show how much higher their
# perplexity is, with a 95% interval over the documents. **Which freezing costs least?**

# %%
record = tl.recorded_comparison("tiny", "freezing").table.set_index("strategy")
flops = pd.Series({name: step_flops(model) for name, model in models.items()})
table = pd.DataFrame({"FLOPs, %": (100 * flops / flops["full"]).round()})
table["peak MB"] = record.peak_memory_mb.round()
file = tl.DATA / "comparisons/tiny/freezing/documents.csv"
losses = pd.read_csv(file, comment="#").eval("loss = nats / tokens")
losses = losses.pivot_table("loss", "document", "strategy")[list(models)]
higher = losses.sub(losses["full"], axis=0)
half = 2.02 * higher.sem()  # Student's t for 40 documents
for name, shift in (("perplexity, % above full", 0), ("from", -1), ("to", 1)):
    table[name] = 100 * np.expm1(higher.mean() + shift * half)
table.round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Every kind of freezing costs some perplexity here, but little of the fall from 126 to 53. Half of the arithmetic and
# less than half of the memory are enough for `last_blocks`, which ends 16% (13 to 20) above `full`. Freezing less costs
# less: 7 to 9% for the three strategies that train at least half of the blocks.
#
# Training the norms as well, as in `last_layers`, brings the result closer to `full` than `last_blocks` alone. But the
# gradient then has to reach block 0, so a step needs far more arithmetic, and every block keeps its outputs in memory.
# (Memory was recorded with a stored prefix for `upper_half` and `last_blocks`; the FLOPs are those of a step without
# one.)
#
# The arithmetic holds for every model of this form. The perplexities come from one small model and one text, so measure
# them on yours.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A step computes three products of $2NT$ operations in each layer. A frozen layer saves the third, and the second
#   only if nothing below it is trained.
# - Count parameters before you believe a name: a tied head is frozen with its embedding, and "last 2 layers + head" was
#   two blocks and 45 norms.
# - A frozen prefix needs to run only once: store its output and train the rest on that.
#
# ## Further reading
#
# - J. Kaplan and others, [Scaling Laws for Neural Language Models](https://arxiv.org/abs/2001.08361), 2020: six
#   operations for each parameter and token.
# - O. Press and L. Wolf, [Using the Output Embedding to Improve Language Models](https://arxiv.org/abs/1608.05859),
#   2017: tied heads, and which of the two gradients dominates.
# - Y. Liu, S. Agarwal and S. Venkataraman, [AutoFreeze](https://arxiv.org/abs/2102.01386), 2021: freezing during
#   training, and storing what the frozen part computes.

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
# **Quiz.** Of a model with 24 blocks you train block 0 and nothing else. How does a step compare with one in which only
# block 23 is trained?
#
# - **a** It is the same: one block is trained in both.
# - **b** It is cheaper: the forward pass can stop after block 0.
# - **c** It needs more memory for the optimizer, and the same time.
# - **d** It needs as much memory for the optimizer, but a longer backward pass and more kept activations.

# %%
course.quiz("quiz07")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 7.1.** Repair the recipe, in code that you can take to any model. Write a function that makes the last
# `blocks` blocks and the final norm trainable, freezes all else, and returns the model. It is given models in which
# everything is trainable, and it must be right for a Llama (blocks in `model.layers`, final norm `model.norm`) and for
# a GPT-2 (blocks in `transformer.h`, final norm `transformer.ln_f`). So you cannot rely on the names of parameters.
# `tl.find_blocks(model)` returns the list of blocks, and `model.get_decoder().children()` the modules around them; the
# class of a norm, `type(child).__name__`, has "Norm" in its name.


# %%
def train_last(model, blocks):
    """The model, with its last blocks and its final norm trainable and nothing else."""
    # your code here


course.check("ex07_1", train_last)

# %% [markdown]
# Previous: [6 · QLoRA](06_qlora.ipynb) ·
# Next: [8 · The PEFT family](08_peft_family.ipynb)
