# %% [markdown] slideshow={"slide_type": "slide"}
# # 2 · Inside a language model
#
# *How does text become a prediction, and what does one training step change?*
#
# Later lessons freeze blocks, replace matrices by products of thinner ones, and count bytes. All of that is easier
# once you have held every part of a model in your hands. So in this lesson we take a small model apart. We rebuild it
# in plain torch, read predictions out of its middle, and then carry out training steps ourselves.
#
# **You will be able to**
#
# - follow a sentence from text to loss through a transformer, with the shape of every tensor on the way;
# - write attention, a norm, an MLP and AdamW in a few lines each, and check them against the library;
# - say which other documents the model can see in a packed block, and whether it uses them.
#
# **You need** some Python and torch, matrix products, and [lesson 1](01_first_fine_tuning.ipynb). The three parts can
# be read on three days: *A* goes forward, *B* trains, *C* looks at packed documents. About 83 minutes.

# %% slideshow={"slide_type": "subslide"}
import itertools
import math

import pandas as pd
import torch
from torch.nn import functional as F

import course
import tlkit as tl
from course.lesson02 import pictures
from course.lesson03.pictures import surprise_chart

tl.setup()
tiny = tl.load_model("tiny")
model, tokenizer = tiny.model, tiny.tokenizer
print(tiny)

# %% [markdown] slideshow={"slide_type": "subslide"}
# This is the bundled model of lesson 1: an embedding, eight blocks, a norm and a head, in the architecture of Qwen2. It
# has only four million *values*. (A value is one learned number, which other texts call a
# [parameter](glossary.md#parameter).) In part B we train all of them, so every box is filled.

# %%
tl.network_strip(tl.apply_strategy(model, "full"))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Part A: forward
#
# This is the whole way, with the shapes of the sentence that we are going to follow:
#
# | | text | tokens | vectors | after each of 8 blocks | logits | loss |
# | --- | --- | --- | --- | --- | --- | --- |
# | shape | one sentence | (1, 22) | (1, 22, 192) | (1, 22, 192) | (1, 22, 4096) | one number |
# | section | A1 | A1 | A2 | A3 | A4 | A5 |
#
# ### A1 · Text becomes tokens
#
# The [tokenizer](glossary.md#tokenizer) cuts the text into *tokens* and replaces each by its number in a fixed list,
# the *vocabulary*. A space belongs to the token that follows it.

# %%
sentence = (
    "The first argument is the name of the file, "
    "and the second argument is the name of the directory."
)
about_rust = "Rust's borrow checker rejects a second mutable reference: error[E0499]."
vocabulary = [tokenizer.decode([number]) for number in range(len(tokenizer))]
for text in (sentence, about_rust):
    tokens = [vocabulary[number] for number in tokenizer(text)["input_ids"]]
    print(len(tokens), "tokens:", "|".join(tokens))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The first sentence needs one token a word, because its words are frequent in documentation. The second one is about
# Rust, and the tokenizer has to build many of its words from pieces, because it never learned, for example, that
# *borrow* is a word. This makes the text longer for the model.
#
# Before the first token we put `<|endoftext|>`, number 0. It separates documents, so here it says that a new text
# begins. (The pictures below write it as `[end]`.)

# %%
ids = torch.tensor([[tokenizer.eos_token_id, *tokenizer(sentence)["input_ids"]]])
words = [vocabulary[number] for number in ids[0]]
print(f"{len(vocabulary):,} tokens in the vocabulary")
print(f"ids: {tuple(ids.shape)} {ids[0, :8].tolist()} ...")

# %% [markdown] slideshow={"slide_type": "slide"}
# ### A2 · Tokens become vectors
#
# The *embedding* is a table with one row of 192 numbers for each token of the vocabulary. To embed a text means to
# look up the rows of its tokens. The shape that comes out, (texts, tokens, width), stays the same through all blocks.

# %%
torch.set_grad_enabled(False)  # part A only looks, so nothing needs a gradient
table = model.get_input_embeddings().weight
x = table[ids]
print(f"table: {tuple(table.shape)}   x: {tuple(x.shape)}")
print(f"the table has {table.numel():,} values, {table.numel() / 4_036_800:.0%} of all")

# %% [markdown] slideshow={"slide_type": "subslide"}
# At this point a vector knows its token and nothing else: the two ` argument` of the sentence have the same vector.
# It does not know its neighbours, and it does not even know where in the text it stands. Both have to come from the
# blocks.

# %% [markdown] slideshow={"slide_type": "slide"}
# ### A3 · One block, taken apart
#
# Between embedding and head there are eight *blocks* with the same structure and different weights. Here is the first
# of them, drawn from its real shapes. Blue boxes hold learned values, white boxes only calculate. Above a box stand
# its shapes and, last, how many values it has learned.

# %%
pictures.transformer_block(model)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The thick line is the [residual stream](glossary.md#residual-stream): one vector of 192 numbers for each token.
# Nothing ever replaces it. Each of the two branches reads a copy, computes something, and *adds* its result to the
# stream. The first branch, *attention*, is the only place in the model where one token learns about another. The
# second, the *MLP*, works on each token alone.
#
# We now go through the boxes from left to right.

# %% [markdown] slideshow={"slide_type": "slide"}
# #### The norm
#
# Each block adds something to the stream, so its vectors grow on the way up, as we will see below. The layers of a
# branch learn better when their input always has the same size. [RMSNorm](glossary.md#rmsnorm) therefore divides each
# vector by its root mean square, and then rescales each of the 192 coordinates by a learned factor:
#
# $$\mathrm{norm}(x) = g \odot \frac{x}{\sqrt{\tfrac{1}{d}\sum_{i=1}^{d} x_i^2 + \varepsilon}}$$
#
# Here $x$ is the vector of one token, $d = 192$ is its length, and $g$ holds the 192 learned factors. $\odot$
# multiplies coordinate by coordinate, and $\varepsilon = 10^{-6}$ avoids a division by zero.


# %%
def norm(x, g):
    size = (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    return g * x / size


block = model.model.layers[0]
normed = norm(x, block.input_layernorm.weight)
print(f"in and out: {tuple(x.shape)} {tuple(normed.shape)}")
torch.testing.assert_close(normed, block.input_layernorm(x))  # the library's norm

# %% [markdown] slideshow={"slide_type": "slide"}
# #### Queries, keys and values
#
# Attention lets each token collect information from tokens before it. For that, three linear layers make three
# vectors of each token. Its *query* says what this token is looking for, its *key* says what it can be found by, and
# its *value* says what it hands over when it is found. (This value is a vector, not one learned number; the word has
# two meanings.)
#
# The work is shared among four *heads* of 48 numbers each, so that a token can look for four things at once. Keys and
# values have only two heads, and each of them serves two query heads. This is *grouped-query attention*; it halves
# the memory for keys and values when text is generated.

# %%
attend = block.self_attn
flat_q, flat_k, flat_v = (
    F.linear(normed, part.weight, part.bias)
    for part in (attend.q_proj, attend.k_proj, attend.v_proj)
)
print(f"flat: {tuple(flat_q.shape)} {tuple(flat_k.shape)} {tuple(flat_v.shape)}")


def in_heads(x):
    """(texts, tokens, heads x 48) becomes (texts, heads, tokens, 48)."""
    return x.unflatten(-1, (-1, 48)).transpose(1, 2)


q, k, v = in_heads(flat_q), in_heads(flat_k), in_heads(flat_v)
print(f"in heads: {tuple(q.shape)} {tuple(k.shape)} {tuple(v.shape)}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# #### Position
#
# So far nothing says where a token stands. *Rotary embedding* writes the position into queries and keys: it takes
# their 48 coordinates in 24 pairs and turns pair $i$ by the angle $\text{position} \cdot 10{,}000^{-i/24}$. The first
# pairs turn fast and the last ones slowly, so that both near and far can be told apart. A query and a key are then
# compared by a dot product, and there only the *difference* of the angles counts. So a head can look for "three
# tokens back", wherever in the text that is. To check this, we pretend that all 22 positions hold the same query and
# the same key.


# %%
def rotate(x):
    """x: (texts, heads, tokens, 48); coordinate i is paired with coordinate i + 24."""
    position = torch.arange(x.shape[-2])[:, None]
    angle = position * 10_000 ** (-torch.arange(24) / 24)  # fast pairs, slow pairs
    one, other = x.chunk(2, dim=-1)
    turned = (
        one * angle.cos() - other * angle.sin(),
        other * angle.cos() + one * angle.sin(),
    )
    return torch.cat(turned, dim=-1)


# %%
same_q, same_k = (t[:, :, 5:6].expand(-1, -1, 22, -1) for t in (q, k))
products = (rotate(same_q[:, :1]) @ rotate(same_k[:, :1]).mT)[0, 0]
for gap in (3, 10):
    somewhere = [f"{product:.3f}" for product in products.diagonal(-gap)[:4]]
    print(f"products of vectors {gap} tokens apart: {somewhere} ...")

# %% [markdown] slideshow={"slide_type": "slide"}
# #### Attention
#
# Now each query is compared with each key. The *softmax* turns the products of one row into weights that are positive
# and add up to one. With these weights the value vectors are averaged:
#
# $$\mathrm{attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_h}} + M\right) V$$
#
# For one head, $Q$, $K$ and $V$ have the shape (tokens, $d_h$) with $d_h = 48$. Without $\sqrt{d_h}$ the products
# would grow with the number of coordinates, and the softmax would nearly always pick a single token.
#
# $M$, of shape (tokens, tokens), is the [causal mask](glossary.md#causal-mask). It is zero where a token may look,
# which is at itself and at earlier tokens, and $-\infty$ at all later ones. After the softmax, $-\infty$ becomes a
# weight of exactly zero. Without the mask the model could read the token that it is meant to predict.

# %%
q, k = rotate(q), rotate(k)
k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))  # each serves two query heads
scores = q @ k.mT / math.sqrt(48)
may_look = torch.ones(22, 22, dtype=torch.bool).tril()
weights = scores.masked_fill(~may_look, -torch.inf).softmax(-1)
mixed = weights @ v
print(f"weights: {tuple(weights.shape)}   weights @ v: {tuple(mixed.shape)}")

# %%
pictures.attention_chart(
    {"block 0, head 2": weights[0, 2]},
    words,
    "Head 2 of block 0 looks mostly at the last few tokens",
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each row belongs to one token and shows where it looks. The grey triangle is the future. The first row has a single
# cell, because the first token can only look at itself, with weight 1. This head puts its weight near the diagonal,
# that is, on the last few tokens, so it tells each token what stands just before it.
#
# Finally, the four heads are joined to 192 numbers again, and the layer `o_proj` mixes them. The result is added to
# the stream.

# %%
joined = mixed.transpose(1, 2).flatten(2)
after_attention = x + F.linear(joined, attend.o_proj.weight)
print(f"joined: {tuple(joined.shape)}   stream: {tuple(after_attention.shape)}")

# %% [markdown] slideshow={"slide_type": "slide"}
# #### The MLP
#
# The second branch sees each token on its own. It widens the vector from 192 to 512 numbers, lets a *gate* decide how
# much of each passes, and narrows it to 192 again. This form is called SwiGLU:
#
# $$\mathrm{mlp}(x) = W_{\text{down}}\,\bigl(\mathrm{SiLU}(W_{\text{gate}}\,x) \odot W_{\text{up}}\,x\bigr),
# \qquad \mathrm{SiLU}(z) = \frac{z}{1 + e^{-z}}$$
#
# $W_{\text{gate}}$ and $W_{\text{up}}$ have the shape (512, 192), and $W_{\text{down}}$ has (192, 512). SiLU lets
# large positive numbers through and holds negative ones near zero. Without this gate, the two linear layers could be
# multiplied into a single one, and the MLP would be no more than that. Most of a block's values are here: 295 thousand
# of 406 thousand.


# %%
def mlp(x, part):
    gate = F.silu(F.linear(x, part.gate_proj.weight))
    up = F.linear(x, part.up_proj.weight)
    return F.linear(gate * up, part.down_proj.weight)


normed = norm(after_attention, block.post_attention_layernorm.weight)
after_block = after_attention + mlp(normed, block.mlp)
print(f"stream after the block: {tuple(after_block.shape)}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# That was the whole block. The library computes the same:

# %%
library = model(ids, output_hidden_states=True)
theirs = library.hidden_states[1]
torch.testing.assert_close(after_block, theirs, rtol=1e-4, atol=1e-4)

# %% [markdown] slideshow={"slide_type": "slide"}
# #### All eight blocks
#
# The cells above become two functions. `attention` contains the lines that you have just run. `by_hand` sends a text
# through all blocks and keeps the stream at every depth, because we will need it soon. It takes the mask as an
# argument, so that we can change later who may look at whom.


# %%
def attention(x, part, may_look):
    q, k, v = (
        in_heads(F.linear(x, p.weight, p.bias))
        for p in (part.q_proj, part.k_proj, part.v_proj)
    )
    q, k = rotate(q), rotate(k)
    k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))
    scores = q @ k.mT / math.sqrt(48)
    weights = scores.masked_fill(~may_look, -torch.inf).softmax(-1)
    joined = (weights @ v).transpose(1, 2).flatten(2)
    return F.linear(joined, part.o_proj.weight), weights


# %%
def by_hand(ids, may_look=None):
    """The stream at all 9 depths, and the attention weights of all 8 blocks."""
    if may_look is None:
        may_look = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
    depths, looks = [table[ids]], []
    for block in model.model.layers:
        x = depths[-1]
        normed = norm(x, block.input_layernorm.weight)
        change, weights = attention(normed, block.self_attn, may_look)
        x = x + change
        normed = norm(x, block.post_attention_layernorm.weight)
        depths.append(x + mlp(normed, block.mlp))
        looks.append(weights)
    return depths, looks


# %%
depths, looks = by_hand(ids)
print(f"{len(depths)} depths of {tuple(depths[0].shape)}")
sizes = [x.square().mean().sqrt().item() for x in depths]
print(f"root mean square of the stream: {[round(size, 1) for size in sizes]}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The stream grows with every block. The library returns the same vectors. Only its last ones already contain the final
# norm, so the eighth block is compared in A4, by its logits.
#
# In the higher blocks some heads do work that one can recognise. Here are two of them, with an orange frame around
# one example in each.

# %% tags=["check-heads"]
of_second, of_first = words.index(" second"), words.index(" argument")
again = of_second + 1  # the second ' argument'
pictures.attention_chart(
    {"block 6, head 1": looks[6][0, 1], "block 7, head 0": looks[7][0, 0]},
    words,
    "One head looks at the token before, "
    "the other at what followed the same token earlier",
    examples={
        "block 6, head 1": (again, of_second),
        "block 7, head 0": (again, of_first + 1),
    },
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The left head finds the token before. The right head looks for a repetition. The second ` argument` looks at ` is`,
# because ` is` followed the first ` argument`, and it is what comes next here, too. Heads that do this are called
# *induction heads*, and they let a model copy. They rely on heads like the left one: ` is` can be found as "what came
# after ` argument`" only because an earlier head has told it which token stands before it (Olsson et al. below). The
# tokens need not even be equal: ` second` looks at the ` argument` that followed ` first`. Where the head finds
# nothing to copy, as in most of the upper half of the picture, it looks at the first token instead.
#
# A picture of attention shows where a head looks, but not whether it matters. To find that out, we remove the head: we
# set the 48 columns of `o_proj` that read it to zero, and look at the loss of the second ` argument`.


# %%
def loss_of_place(place):
    return F.cross_entropy(model(ids).logits[0, place - 1], ids[0, place])


columns = model.model.layers[7].self_attn.o_proj.weight[:, :48]
whole, kept = loss_of_place(again), columns.clone()
columns.zero_()
removed = loss_of_place(again)
columns.copy_(kept)
print(
    f"loss of the second ' argument': {whole:.2f} nats, without the head {removed:.2f}"
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# So the head does help, but it is not alone: even without it the model still expects ` argument`. One sentence is
# also too little to prove what this head does.

# %% [markdown] slideshow={"slide_type": "slide"}
# ### A4 · From the last vector to probabilities
#
# After the last block comes one more norm. Then the *head* of the model compares the vector of each token with one
# row of 192 numbers for every token of the vocabulary. (This head has nothing to do with the heads of attention.) The
# products are the *logits*, and a softmax makes probabilities of them:
#
# $$\mathrm{logits} = W\,\mathrm{norm}(x), \qquad p_t = \frac{e^{\mathrm{logits}_t}}{\sum_{u} e^{\mathrm{logits}_u}}$$
#
# $W$ has the shape (4096, 192), $x$ is the vector of one token, and $u$ runs over all 4,096 tokens of the vocabulary.
# In this model $W$ is the very table that we used for the embedding; one says that the head is *tied* to the
# embedding. [Lesson 7](22_freeze_embeddings.ipynb) is about what follows from that.


# %%
def read(x):
    """Logits from the stream, at any depth."""
    return norm(x, model.model.norm.weight) @ table.T


logits = read(depths[-1])
probabilities = logits.softmax(-1)[0]
print(f"logits: {tuple(logits.shape)}")
course.claim(
    "All logits by hand equal the library's to 1e-4",
    (logits - library.logits).abs().max() < 1e-4 * logits.abs().max(),
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each of the 22 tokens now has 4,096 probabilities for the token that follows it. All 22 predictions come out of one
# pass. That is safe because the causal mask has kept each of them from seeing its own answer.
#
# **Predict first.** You know that ` argument` follows “and the second”. How much of the probability does the model give
# it, and which two tokens come second and third?

# %%
likely = probabilities[of_second].topk(3)
for share, token in zip(*likely, strict=True):
    print(f"{vocabulary[token]:12} {share:.0%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The model gives ` argument` 86%. It has seen the first half of the sentence, and heads such as the one above find
# there what followed ` first`. Second and third are ` is` and ` parameter`. They would continue the sentence, too, but
# without repeating it, and together they get about a tenth.

# %% [markdown] slideshow={"slide_type": "slide"}
# ### A5 · The loss, and one sentence's perplexity by hand
#
# The loss of one token is the negative logarithm of the probability that the model gave it. A probability of 1 costs
# nothing, one half costs 0.69, and one in a thousand costs 6.9. The unit is the *nat*. The loss of a text, called
# *cross-entropy*, is the mean over its tokens, and *perplexity* is its exponential:
#
# $$L = -\frac{1}{T}\sum_{t=1}^{T} \ln p(\text{token}_t \mid \text{tokens before}), \qquad \mathrm{perplexity} = e^{L}$$
#
# Note the shift: what comes out at token $t-1$ is the prediction *for* token $t$. The first token is only read,
# because nothing predicts it. So 22 tokens give $T = 21$ losses.

# %%
predicted = probabilities[:-1]  # the last prediction has no answer here
answers = ids[0, 1:]
right = predicted[torch.arange(21), answers]
losses = -right.log()
mean = losses.mean()
perplexity = math.exp(mean)
print(f"mean loss {mean:.2f} nats, perplexity {perplexity:.2f}")
score = tl.perplexity(model, tokenizer, [sentence])
print(f"with tl.perplexity: {score.perplexity:.2f}")

# %%
surprise_chart(words[1:], losses.tolist())

# %% [markdown] slideshow={"slide_type": "subslide"}
# A perplexity of 4.4 means: on average the model was as unsure as someone who chooses among 4.4 equally likely
# tokens. The chart, in which `␣` stands for a space, shows how uneven that is. The word ` of` and the ` the` after it
# cost next to nothing. Where many words were possible, at ` first`, ` file` and ` directory`, they cost 3 to 5 nats,
# and so does the full stop, because the sentence could have gone on. In the second half almost everything else is
# cheap, because it repeats the first.
#
# This sentence is easy on purpose. [Lesson 3](03_baseline.ipynb) scores whole documents.

# %% [markdown] slideshow={"slide_type": "slide"}
# ### A6 · Generation: one token at a time
#
# The model does nothing but predict the next token. To *generate* text, we take one token from that prediction,
# append it, and ask again. *Greedy* generation takes the likeliest token every time. Each row of the table is one
# pass through the model.

# %%
written = torch.tensor(
    [tokenizer("The first argument is the name of the")["input_ids"]]
)
prompt, rows = tokenizer.decode(written[0]), []
for _ in range(8):
    p = read(by_hand(written)[0][-1])[0, -1].softmax(-1)
    best = p.topk(3)
    pairs = zip(best.indices, best.values, strict=True)
    told = [f"{vocabulary[token]} {share:.0%}" for token, share in pairs]
    rows.append([tokenizer.decode(written[0, -4:]), *told])
    written = torch.cat([written, best.indices[:1][None]], dim=1)
pd.DataFrame(rows, columns=["the last four tokens", "1st", "2nd", "3rd"])

# %%
continued = tokenizer.decode(written[0])
print(continued)
print(tl.generate(model, tokenizer, [prompt], new_tokens=8)[0])

# %% [markdown] slideshow={"slide_type": "subslide"}
# `tl.generate` writes the same. Look at the percentages: often the likeliest token has less than half of the
# probability, and the greedy choice hides that. Our loop also computes all earlier tokens anew in each step.
# Libraries keep their keys and values instead, in the *KV cache*. This is where grouped heads pay: they halve that
# cache.

# %% [markdown] slideshow={"slide_type": "slide"}
# ### A7 · What the layers already know
#
# The stream has the same shape at every depth. So nothing keeps us from using the final norm and the head earlier,
# after block 3 for example, and reading a prediction there. This is called the *logit lens*.
#
# **Predict first.** What will we read directly after the embedding, before any block?

# %% tags=["check-lens"]
by_depth = torch.stack([read(x)[0].softmax(-1) for x in depths])
print(f"by depth: {tuple(by_depth.shape)}")
pictures.lens_chart(
    by_depth[:, 11:-1],
    ids[0, 12:].tolist(),
    vocabulary,
    "One block is enough to predict ‘the’ after ‘of’, but ‘second’ takes all eight",
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Read a column from bottom to top; the darker a cell, the surer the model is of its token. At the embedding the model
# "predicts" each token once more, that is, the token it is reading. The reason is the tied head: it compares the
# vector with all rows of the table, and the vector *is* one of these rows. The first block already moves away from
# that. It gives likely neighbours, such as ` of` → ` the`, which need no context. Predictions that need the first
# half of the sentence, such as ` second` → ` argument`, are right only in the higher blocks.
#
# One sentence can mislead, so here is the loss by depth over a thousand tokens of Python's language reference.

# %%
general = tl.load_corpus("general")
blocks = tl.pack(general.validation[:20], tokenizer, 128)[:8]
by_depth = [
    F.cross_entropy(read(x)[:, :-1].flatten(0, 1), blocks[:, 1:].flatten()).item()
    for x in by_hand(blocks)[0]
]
print("loss, read from the embedding and after each block:")
print([round(loss, 1) for loss in by_depth])

# %%
course.claim(
    "Every block lowers the loss",
    all(lower > upper for lower, upper in itertools.pairwise(by_depth)),
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# At the embedding the prediction is far worse than guessing among 4,096 tokens, which would cost 8.3 nats. After the
# first block, the last one lowers the loss most. Keep this in mind for [lesson 7](07_freezing.ipynb), which trains
# only the last blocks. It does not mean that the lower blocks do little, because the last block works with what they
# have prepared. The lens also has a bias, because norm and head were trained for the last depth only. A much deeper
# model may look different in the middle.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Part B: a training step
#
# Training repeats one step. Take a batch of text, compute its loss, find out how each of the four million values
# should change to lower this loss, and change all of them a little. We need four things for that: the gradient, a
# limit for its length, AdamW, and a learning rate for each step. We build them one by one and then put them together.
#
# ### B1 · Batches, loss and gradient
#
# The text comes as *blocks* of 64 tokens, four blocks in a batch. (A block of text is not a block of the network.
# Both names are in common use, so the context has to show which is meant.) A fixed seed shuffles the blocks, so
# everyone gets the same order.

# %%
torch.set_grad_enabled(True)
rust = tl.load_corpus("rust")
blocks = tl.pack(rust.train[:50], tokenizer, 64)[:80]
order = torch.randperm(80, generator=torch.Generator().manual_seed(0))
batches = blocks[order].split(4)
print(f"{len(batches)} batches of {tuple(batches[0].shape)}")


# %%
def loss_of(model, batch):
    logits = model(input_ids=batch[:, :-1]).logits  # the last token predicts none
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


loss = loss_of(model, batches[0])
gradients = torch.autograd.grad(loss, list(model.parameters()))
values = sum(g.numel() for g in gradients)
print(f"loss {loss:.2f} nats; {len(gradients)} gradients with {values:,} numbers")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The [gradient](glossary.md#gradient) has one number for each value of the model. It says how fast the loss would
# rise if that value rose a little. [Backpropagation](glossary.md#backpropagation) computes it from the head down to
# the embedding. To lower the loss, we change the values in the opposite direction.
#
# ### B2 · Clipping
#
# Now and then a batch gives an unusually long gradient, and a single step along it could undo many good ones.
# [Clipping](glossary.md#gradient-clipping) sets a limit $c$. If the length of all gradients taken together, their
# *norm*, is above it, every one of them is scaled by the same factor, so the direction stays as it is:
#
# $$g \leftarrow g \cdot \min\!\left(1, \frac{c}{\lVert g \rVert}\right)$$
#
# Here $g$ stands for all 4,036,800 numbers taken as one long vector, and $c = 1$ is usual.


# %%
def clipped(gradients, limit=1.0):
    length = torch.stack([g.norm() for g in gradients]).norm().item()
    factor = min(1.0, limit / (length + 1e-6))
    return [g * factor for g in gradients], length


shorter, length = clipped(gradients)
print(f"norm before {length:.2f}, after {clipped(shorter)[1]:.2f}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ### B3 · AdamW and its two moments
#
# The simplest rule would be $w \leftarrow w - \eta\,g$ with a learning rate $\eta$. But the values of a transformer
# get gradients of very different sizes, so no single $\eta$ suits them all. *AdamW* therefore remembers two running
# averages for every value:
#
# $$m_t = \beta_1 m_{t-1} + (1-\beta_1)\,g_t \qquad\qquad v_t = \beta_2 v_{t-1} + (1-\beta_2)\,g_t^2$$
#
# The first moment $m$ is the average of the *gradient*: which way have we been going? The second moment $v$ is the
# average of the *squared* gradient: how large is it usually? With $\beta_1 = 0.9$ the first one looks back about 10
# steps, and with $\beta_2 = 0.999$ the second one about 1,000. Both start at zero and would be too small at first, so
# they are divided by $1-\beta^t$. Then comes the step:
#
# $$w \leftarrow (1 - \eta\lambda)\,w \;-\; \eta\,\frac{m_t / (1-\beta_1^t)}{\sqrt{v_t / (1-\beta_2^t)} + \varepsilon}$$
#
# All of $w$, $g$, $m$ and $v$ have the shape of the weight, so AdamW needs memory for two more copies of everything
# that is trained. $\lambda = 0.01$ is the *weight decay*: it pulls each value towards zero, independently of the
# gradient.


# %%
def adamw_(w, g, m, v, t, rate, decay=0.01):
    """One step of AdamW; w, m and v are changed in place."""
    m.mul_(0.9).add_(0.1 * g)
    v.mul_(0.999).add_(0.001 * g * g)
    first, second = m / (1 - 0.9**t), v / (1 - 0.999**t)
    w.mul_(1 - rate * decay)
    w.sub_(rate * first / (second.sqrt() + 1e-8))


# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** In step 1 the corrected moments are $g$ and $g^2$. How far does a value with a large gradient
# move, and how far does one with a small gradient? Below we try it on three values, whose gradients are 5, 0.01 and
# -0.0001.

# %%
w, g = torch.zeros(3), torch.tensor([5.0, 0.01, -0.0001])
adamw_(w, g, torch.zeros(3), torch.zeros(3), t=1, rate=0.001)
print([round(value, 5) for value in w.tolist()])
course.claim(
    "In step 1 each moves by the learning rate, whatever its gradient",
    torch.allclose(w, -0.001 * g.sign(), rtol=1e-3),
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The size of the gradient cancels, because $g / \sqrt{g^2}$ is $+1$ or $-1$. So with AdamW the learning rate is,
# roughly, the longest distance that a value moves in a step. This explains why learning rates are tuned for each
# strategy: they are distances, and not every part of a model may move equally far. It also makes the first steps
# risky. Nearly every value then moves the full distance, on the evidence of a single batch.

# %% [markdown] slideshow={"slide_type": "slide"}
# ### B4 · The learning rate of each step
#
# For that reason training begins with a *warm-up*: over the first steps, the rate rises in a straight line to its
# highest value. The lessons use 10% of the steps for it, but here, with only 20 steps, we take 20%. Then the rate
# falls along half a *cosine* wave towards zero, so that the last steps only make small corrections:
#
# $$\eta_t = \eta_{\max} \cdot \tfrac{1}{2}\bigl(1 + \cos(\pi\,s)\bigr)$$
#
# Here $s$ runs from 0 to 1: it is the share of the steps after the warm-up that are already done.


# %%
def rate_at(step, total, highest=1e-3, warmup=0.2):
    """Learning rate of a step; the first is step 0."""
    rising = round(warmup * total)
    if step < rising:
        return highest * (step + 1) / rising
    done = (step - rising) / (total - rising)
    return highest * (1 + math.cos(math.pi * done)) / 2


print(f"{[round(rate_at(step, 20), 5) for step in range(6)]} ...")

# %% [markdown] slideshow={"slide_type": "slide"}
# ### B5 · The training loop by hand
#
# With these functions the loop is short. We also write down the gradient and the moments of one single value, in
# order to look at them afterwards.


# %%
def train_by_hand(model, batches):
    weights, log = list(model.parameters()), []
    m, v = ([torch.zeros_like(w) for w in weights] for _ in range(2))
    for step, batch in enumerate(batches):
        loss = loss_of(model, batch)
        gradients, length = clipped(torch.autograd.grad(loss, weights))
        rate = rate_at(step, len(batches))
        with torch.no_grad():
            for w, g, first, second in zip(weights, gradients, m, v, strict=True):
                adamw_(w, g, first, second, step + 1, rate)
        one = [t[1][0, 0].item() for t in (gradients, m, v)]
        log.append([step + 1, loss.item(), length, rate, *one])
        if step % 5 == 4:
            print(f"step {step + 1}: loss {loss:.2f}")
    columns = "step loss gradient_norm learning_rate gradient first second"
    return pd.DataFrame(log, columns=columns.split())


# %% [markdown] slideshow={"slide_type": "subslide"}
# Now the same training twice, from the same weights: by hand, and with `tl.train`, which the lessons use from here
# on.

# %%
ours = tl.load_model("tiny").model
log = train_by_hand(ours, batches)

# %%
config = tl.TrainingConfig(
    learning_rate=1e-3, epochs=1, batch_size=4, warmup_fraction=0.2, weight_decay=0.01
)
theirs = tl.load_model("tiny").model
tl.apply_strategy(theirs, "full")
history = tl.train(theirs, blocks, config, progress=True).history


# %%
def apart(one, other):
    """The largest difference of two columns, as a share of the values."""
    return ((one - other).abs() / other).max()


columns = ["learning_rate", "gradient_norm", "loss"]
course.claim(
    "All 20 learning rates, gradient norms and losses equal those of tl.train to 1e-4",
    max(apart(log[name], history[name]) for name in columns) < 1e-4,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# So `tl.train` does nothing that you have not written yourself. Here are the rate, the length of the gradient before
# clipping, and the loss of some of the steps.

# %%
shown = log.set_index("step").loc[[1, 4, 8, 12, 16, 20], columns]
shown.round({"learning_rate": 5, "gradient_norm": 2, "loss": 2})

# %% [markdown] slideshow={"slide_type": "subslide"}
# With these settings every gradient is cut to length 1, from a norm of 3 to 4.5. With AdamW this matters little here.
# The factor is similar in all steps, between 1/3 and 1/4.5, and a factor that all steps share cancels between the two
# moments. Clipping matters when a single batch has a far longer gradient than its neighbours. The loss moves up and
# down because each step sees other text, and twenty steps are too few to see more than a slight fall.
#
# And here are the gradient and the moments of one value, a weight of the first query matrix.

# %%
moments = pd.DataFrame(
    {
        "gradient": log.gradient,
        "first": log["first"] / (1 - 0.9**log.step),
        "second": log.second / (1 - 0.999**log.step),
    }
)
distance = moments["first"] / moments.second**0.5
signs = "".join("+" if gradient > 0 else "-" for gradient in log.gradient)
print("sign of the gradient, step by step:", signs)
print("distance moved, in learning rates:")
print(" ".join(f"{moved:.2f}" for moved in distance.abs()))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The gradient of a single value often changes its sign from one batch to the next. The first moment averages this
# away and keeps what the batches agree on. The second moment changes slowly and gives the scale. The ratio of the
# first to the root of the second is the distance moved in units of the learning rate: 1 in the first step, which has
# only one gradient, then smaller, and near 0 where the gradients contradict one another.

# %% [markdown] slideshow={"slide_type": "slide"}
# ### B6 · The same in plain transformers and torch
#
# Outside this course you will see the same step written with the libraries' own parts. `labels=` makes the model
# compute the loss itself, and it shifts the labels by one inside, so you must not shift them too.

# %%
from transformers import AutoModelForCausalLM

plain = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3, weight_decay=0.01)
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: rate_at(step, 20, highest=1.0)
)
written = []
for batch in batches[:10]:
    loss = plain(input_ids=batch, labels=batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    written.append(loss.item())
print("plain:  ", [round(loss, 2) for loss in written[:5]])
print("by hand:", log.loss[:5].round(2).tolist())

# %% [markdown] slideshow={"slide_type": "subslide"}
# One detail often causes differences between programs. The scheduler that comes with transformers,
# `get_cosine_schedule_with_warmup`, starts its warm-up at zero, so its first step changes nothing. Ours starts at a
# quarter of the highest rate.

# %%
from transformers import get_cosine_schedule_with_warmup

other = get_cosine_schedule_with_warmup(torch.optim.AdamW(plain.parameters()), 4, 20)
print("its first learning rate:", other.get_last_lr()[0])

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Part C: packed documents
#
# `tl.pack` writes all documents one after another, `<|endoftext|>` before each, and cuts the stream into equal
# blocks. Nothing is padded, so no work is wasted. But a block now holds the end of one document and the beginning of
# the next, and the causal mask only forbids the future. So a document's tokens may look across the border, at text
# that has nothing to do with them.
#
# **Predict first.** Does that harm? We take the first 20 tokens of each of 65 documents and put the last 80 tokens of
# another document before them. How does their loss change?

# %%
torch.set_grad_enabled(False)
texts = [tokenizer(text)["input_ids"] for text in rust.validation]
starts = torch.tensor([text[:20] for text in texts])
ends = torch.tensor([text[-80:] for text in texts]).roll(1, 0)  # of the one before
border = torch.full((65, 1), tokenizer.eos_token_id)
packed = torch.cat([border, ends, border, starts], dim=1)
print(f"alone: {(65, 21)}   packed: {tuple(packed.shape)}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Here `[border]` stands for `<|endoftext|>`, and the scored tokens are `d1` to `d20`:
#
# ```text
# alone:   [border] d1 d2 ... d20
# packed:  [border] o1 o2 ... o80 [border] d1 d2 ... d20
# ```
#
# First: does attention look across the second border at all? We add up the weight that the tokens of the document put
# on the 80 tokens of the other one, over all blocks and heads.

# %%
_, looks = by_hand(packed)
across = torch.stack([w[:, :, 82:, 1:81].sum(-1).mean() for w in looks])
print("share of attention across the border, by block:")
print([f"{share:.0%}" for share in across])

# %% [markdown] slideshow={"slide_type": "subslide"}
# It does, but less than it could. If each token spread its weight evenly over everything it may look at, 87% would go
# across, because the first document is so much longer. Block 0 has the largest share, and it too stays below that.
#
# Now the loss. For comparison there are three more cases: the document's own text instead of another one, and both of
# them *without* the border token.


# %%
def loss_of_starts(*before, may_look=None):
    """Loss of each document's first 20 tokens, with something before them."""
    text = torch.cat([*before, starts], dim=1)
    logits = read(by_hand(text, may_look)[0][-1])[:, -21:-1]
    return F.cross_entropy(logits.mT, starts, reduction="none")


itself = torch.tensor([text[:80] for text in texts])
before = {
    "alone": (border,),
    "another document, border": (border, ends, border),
    "the same document, border": (border, itself, border),
    "another document, no border": (border, ends),
    "the same document, no border": (border, itself),
}
cases = {}
for name, texts_before in before.items():
    cases[name] = loss_of_starts(*texts_before)
    print(f"scored: {name}")

# %%
alone = cases.pop("alone")
first = {name: (case - alone)[:, 0].mean().item() for name, case in cases.items()}
pd.Series(first).round(1).to_frame("change for the first token (nats)")

# %% [markdown] slideshow={"slide_type": "subslide"}
# That is the very first token of the document. The next table has the mean of tokens 6 to 20, when the model has had a
# few tokens to find out what it is reading, with the half width of its 95% interval over documents.

# %%
later = pd.DataFrame(
    {name: (case - alone)[:, 5:].mean(1).tolist() for name, case in cases.items()}
)
change = later.mean()
pd.DataFrame({"change (nats)": change, "±": 1.96 * later.sem()}).round(2)

# %%
course.claim(
    "Copying saves over half a nat per token, but not across a border token",
    change["the same document, no border"] < -0.5
    and change["the same document, border"] > -0.2,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# As long as the border token stands between them, the text before a document hardly matters: on average the 20 losses
# change by only 0.03 nats, and in the table the other document even helps a little. Without the token the model
# expects the old text to go on, and the new beginning, whose first token has no space before it either, costs about 8
# nats more.
#
# The last row shows what the model *could* do. It has just read the same document, recognises it after a few tokens,
# and copies; this saves 0.9 nats per token. With a border token it hardly does so, although its attention may look
# there. So nothing in the architecture enforces the border; the model has learned it, presumably because in
# pretraining the text before `<|endoftext|>` hardly ever helped to predict what followed. A larger model may look
# back across the border more. A second copy of a document in the same block would then make its loss look too good.
#
# One can also forbid the view across the border, with a mask that lets each token see only its own document. Our
# `by_hand` takes such a mask.

# %%
owner = torch.tensor([0] * 81 + [1] * 21)  # the document of each token
may_look = torch.ones(102, 102, dtype=torch.bool).tril()
may_look &= owner[:, None] == owner[None, :]
masked = loss_of_starts(border, ends, border, may_look=may_look)
torch.testing.assert_close(masked, alone, rtol=0, atol=1e-4)  # as if it stood alone

# %% [markdown] slideshow={"slide_type": "subslide"}
# The document now starts at position 81 instead of 0, and its losses do not change, because with rotary embedding
# only distances count. The lessons use the plain causal mask, because here the difference is too small to matter. For
# pretraining on mixed documents, Zhao et al. (below) do report gains from the stricter mask.
#
# **Try it.** Run part B again with `highest=1e-2` in `rate_at` (and in `config`), once with warm-up and once with
# `warmup=0`. In which run does the loss rise earlier, and does the warm-up prevent the rise or only delay it?
# Remember that one run with one seed shows what can happen, and no rule.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A transformer keeps one vector for each token. Each block adds to it: attention brings in earlier tokens, and the
#   MLP works on each token alone. The head turns the last vector into probabilities, and the loss is minus the
#   logarithm of the one for the right token.
# - AdamW divides the average gradient by its typical size. So the learning rate limits a distance, a warm-up keeps
#   the first steps short, and every trained value needs memory for two more numbers.
# - The same vectors can be read at every depth. Predictions that need no context are there after the first block, and
#   those that need it appear in the higher blocks.
#
# ## Further reading
#
# - Vaswani et al., [Attention Is All You Need](https://arxiv.org/abs/1706.03762) (2017); the [Qwen2
#   report](https://arxiv.org/abs/2407.10671) (2024) for the architecture of this model.
# - Zhang and Sennrich, [RMSNorm](https://arxiv.org/abs/1910.07467) (2019); Su et al., [Rotary
#   embedding](https://arxiv.org/abs/2104.09864) (2021); Shazeer, [SwiGLU](https://arxiv.org/abs/2002.05202) (2020);
#   Ainslie et al., [Grouped-query attention](https://arxiv.org/abs/2305.13245) (2023).
# - Kingma and Ba, [Adam](https://arxiv.org/abs/1412.6980) (2014); Loshchilov and Hutter,
#   [AdamW](https://arxiv.org/abs/1711.05101) (2017).
# - Olsson et al., [Induction heads](https://arxiv.org/abs/2209.11895) (2022); Belrose et al., [Tuned
#   lens](https://arxiv.org/abs/2303.08112) (2023), which mends the bias of the logit lens.
# - Zhao et al., [The impact of sequence composition](https://arxiv.org/abs/2402.13991) (2024), on masks across
#   documents.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex02_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** Somebody multiplies the loss by 10, so that every gradient of the whole run is 10 times as large. Nothing is
# clipped, and AdamW's epsilon is too small to matter. How do the weights move?
#
# - **a** As before: both moments grow along, and the factor cancels.
# - **b** 10 times as far in every step.
# - **c** A hundredth as far, because the second moment is of the squared gradient.
# - **d** As before in the first step only; later, the averages differ.

# %%
course.quiz("quiz02")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 2.1** (first steps). A model gives the four tokens of a short text the probabilities 1/2, 1/4, 1/8 and 1/8.
# What is the perplexity of this text? Give at least two decimals.

# %%
import math

answer = None
# your code here
course.check("ex02_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 2.2** (apply it). Write causal attention for one head. `q`, `k` and `v` are tensors of the shape (tokens,
# d). Return the averaged values, of the same shape. A token may look at itself and at all tokens before it.

# %%
import torch


def causal_attention(q, k, v):
    """softmax(q kᵀ / sqrt(d) + mask) v, for one head."""
    # your code here


course.check("ex02_2", causal_attention)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 2.3** (think further). Write what keeps packed documents apart, for any number of them in one block.
# `owners` is a tensor with the number of the document that each token belongs to, such as `[0, 0, 0, 1, 1, 2]`.
# Documents stand one after another. Return two tensors. The first is the mask, of shape (tokens, tokens), True where
# the token of a row may look at the token of a column. The second holds the position of each token *in its own
# document*, from 0, as a model without rotary embedding would need it.

# %%
import torch


def keep_apart(owners):
    """Mask and positions for documents packed into one block."""
    # your code here


course.check("ex02_3", keep_apart)

# %% [markdown]
# Previous: [1 · What can this machine do?](01_first_fine_tuning.ipynb) ·
# Next: [3 · Data and a baseline to trust](03_baseline.ipynb)
