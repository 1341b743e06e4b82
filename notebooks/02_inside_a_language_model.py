# %% [markdown] slideshow={"slide_type": "slide"}
# # 2 · Inside a language model
#
# *How does text become a prediction, and what does one training step change?*
#
# You write a language model and its optimizer in plain torch, run it with real weights, and train it.
#
# **You will be able to**
#
# - follow a sentence through a transformer, from text to loss, and say what shape the tensors have;
# - write attention, a norm, an MLP and AdamW in a few lines each, equal to the library's;
# - say how far a parameter moves in one step of AdamW, and when it moves further than the learning rate.
#
# **You need** some Python and torch, matrix products, and [lesson 1](01_first_fine_tuning.ipynb). About 37 minutes.

# %% slideshow={"slide_type": "subslide"}
import copy
import math

import matplotlib.pyplot as plt
import torch
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl
from course.lesson02.pictures import transformer_block

tl.setup()
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
model = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
print(f"{model.num_parameters():,} parameters in {len(model.model.layers)} blocks")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Part A: the forward pass
#
# ### From text to vectors
#
# The [tokenizer](glossary.md#tokenizer) turns the text into *tokens*, numbers in a *vocabulary* of 4,096. Token 0,
# `<|endoftext|>`, says that a new text begins. We print it as `[end]`.

# %%
ids = tokenizer(
    "<|endoftext|>The first argument is the name of the file, "
    "and the second argument is the name of the directory.",
    return_tensors="pt",
).input_ids
words = ["[end]", *(tokenizer.decode([number]) for number in ids[0, 1:])]
print("|".join(words))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The *embedding* is a table with one row of 192 numbers for each token of the vocabulary, and to embed a text means to
# look up its rows. So far both occurrences of ` argument` have the same vector. The blocks add to each vector what its
# token learns from the tokens before it.

# %%
table = model.get_input_embeddings().weight
x = table[ids]  # one text of 22 tokens, each a vector
print(f"table {tuple(table.shape)}, embedded text {tuple(x.shape)}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ### One block
#
# Our model is a small Qwen2 with eight equal blocks. In this picture of one, blue boxes hold parameters (the last
# number above each), and white boxes only compute.

# %%
transformer_block(model)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The thick line is the [residual stream](glossary.md#residual-stream): one vector of 192 numbers for each token, the
# token's [*hidden state*](glossary.md#hidden-state). Both branches read the stream and *add* to it. Only *attention*
# lets a token learn about others; the [*MLP*](glossary.md#mlp) works on each token alone.
#
# **The norm.** Additions tend to make the stream larger, but layers learn better if their input keeps its size. So
# [RMSNorm](glossary.md#rmsnorm) divides each vector $x$ by its root mean square, and multiplies its $d = 192$
# coordinates by learned factors $g$. The sign $\odot$ means coordinate by coordinate, and $\varepsilon = 10^{-6}$
# prevents a division by zero:
#
# $$\mathrm{norm}(x) = g \odot x \,\Big/ \sqrt{\tfrac{1}{d}\textstyle\sum_i x_i^2 + \varepsilon}$$


# %%
def norm(x, g):
    return g * x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


# %% [markdown] slideshow={"slide_type": "slide"}
# **Attention.** Three linear layers turn each token into a [*query*](glossary.md#query-key-and-value) (what it looks
# for), a *key* (what it can be found by) and a *value* (what it hands over). The dot product of a query with each key
# says how well the two fit. The [softmax](glossary.md#softmax) takes the exponentials of these scores and divides them
# by their sum. The resulting weights average the values:
#
# $$\mathrm{attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_h}} + M\right) V$$
#
# The model does this four times side by side, in four [*attention heads*](glossary.md#attention-head). In each, $Q$,
# $K$ and $V$ have the shape (tokens, $d_h$) with $d_h = 48$, and $\sqrt{d_h}$ keeps the scores from growing with this
# width. No token may read the one that it has to predict. So $M$, the [causal mask](glossary.md#causal-mask), is
# $-\infty$ for later tokens, whose weights become zero, and 0 for all others. Here are the weights of one head for the
# first four tokens, still without their positions:

# %%
part = model.model.layers[0].self_attn
normed = norm(x[0], model.model.layers[0].input_layernorm.weight)
q = F.linear(normed, part.q_proj.weight, part.q_proj.bias)[:4, :48].detach()
k = F.linear(normed, part.k_proj.weight, part.k_proj.bias)[:4, :48].detach()
scores = q @ k.T / math.sqrt(48)  # (4, 4): a row for each query
may_look = torch.ones(4, 4, dtype=torch.bool).tril()
print(scores.masked_fill(~may_look, -torch.inf).softmax(-1).numpy().round(2))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each row says where one token looks, and adds up to one. But the order of earlier tokens does not count yet: exchange
# two, and the average stays the same. [*Rotary embedding*](glossary.md#rotary-embedding) changes this: it rotates pairs
# of coordinates of queries and keys by an angle proportional to the position, each pair at its own speed.
#
# **Does a query at 5 then fit a key at 3 exactly as a query at 15 fits a key at 13?**


# %%
def rotate(x):
    """x: (…, tokens, 48); coordinate i is paired with coordinate i + 24."""
    position = torch.arange(x.shape[-2])[:, None]
    angle = position * 10_000 ** (-torch.arange(24) / 24)
    a, b = x.chunk(2, dim=-1)
    turned = (a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin())
    return torch.cat(turned, dim=-1)


query, key = rotate(q[1].expand(22, 48)), rotate(k[1].expand(22, 48))  # at 22 places
for i, j in [(5, 3), (15, 13), (15, 3)]:
    print(f"positions {i} and {j}: {query[i] @ key[j]:.3f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It does, because the dot product depends on the positions only through their *difference*. So a head can look for "two
# tokens back" anywhere.
#
# Keys and values have only two heads, each for two query heads ([*grouped-query
# attention*](glossary.md#grouped-query-attention)), which halves the memory they take in generation.


# %%
def attention(x, part):
    """x: (texts, tokens, 192). Also returns the weights of every head."""
    q, k, v = (  # each becomes (texts, heads, tokens, 48)
        F.linear(x, p.weight, p.bias).unflatten(-1, (-1, 48)).transpose(1, 2)
        for p in (part.q_proj, part.k_proj, part.v_proj)
    )
    q, k = rotate(q), rotate(k)
    k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))  # each serves two heads
    may_look = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    scores = q @ k.mT / math.sqrt(48)  # .mT transposes the last two dimensions
    weights = scores.masked_fill(~may_look, -torch.inf).softmax(-1)
    joined = (weights @ v).transpose(1, 2).flatten(2)  # the heads side by side again
    return F.linear(joined, part.o_proj.weight), weights


# %% [markdown] slideshow={"slide_type": "slide"}
# At work, the lines from `may_look` to `weights @ v` are one call, `F.scaled_dot_product_attention(q, k, v,
# is_causal=True)`.
#
# **The MLP**, here a [SwiGLU](glossary.md#swiglu), widens each vector from 192 to 512 numbers, lets a *gate* decide how
# much of each passes, and narrows it again. Without SiLU and the product, the three linear layers could do no more than
# a single one.
#
# $$\mathrm{mlp}(x) = W_{\text{down}}\,\bigl(\mathrm{SiLU}(W_{\text{gate}}\,x) \odot W_{\text{up}}\,x\bigr),
# \qquad \mathrm{SiLU}(z) = \frac{z}{1 + e^{-z}}$$


# %%
def mlp(x, part):
    gate = F.silu(F.linear(x, part.gate_proj.weight))
    return F.linear(gate * F.linear(x, part.up_proj.weight), part.down_proj.weight)


# %% [markdown] slideshow={"slide_type": "slide"}
# ### The whole model
#
# After the last block comes one more norm. Then the [head](glossary.md#head) compares each
# vector with 4,096 rows, one for each token of the vocabulary. The dot products are the [*logits*](glossary.md#logit),
# of shape (1, 22, 4096). Here the rows are those of the embedding table: the head is *tied* to it.


# %%
def forward(model, ids):
    """Logits, and the attention weights of every block."""
    table = model.get_input_embeddings().weight
    x, weights_of = table[ids], []
    for block in model.model.layers:
        normed = norm(x, block.input_layernorm.weight)
        change, weights = attention(normed, block.self_attn)
        x = x + change
        x = x + mlp(norm(x, block.post_attention_layernorm.weight), block.mlp)
        weights_of.append(weights)
    return norm(x, model.model.norm.weight) @ table.T, weights_of


with torch.no_grad():  # nothing is trained yet
    (logits, weights_of), expected = forward(model, ids), model(ids).logits
same = (logits - expected).abs().max() < 1e-4 * expected.abs().max()
course.claim("My forward pass gives the library's logits, to 1e-4", same)

# %% [markdown] slideshow={"slide_type": "subslide"}
# A softmax turns the logits at each position into probabilities of the next token. [Greedy
# decoding](glossary.md#greedy-decoding) *generates* text: append the likeliest token and ask again. Unlike our loop,
# the library's `generate` keeps the keys and values of earlier tokens, in a [*KV cache*](glossary.md#kv-cache).

# %%
text = ids[:, :9]  # up to "the name of the"
with torch.no_grad():
    for _ in range(8):
        likeliest = forward(model, text)[0][:, -1:].argmax(-1)
        text = torch.cat([text, likeliest], dim=1)
print(tokenizer.decode(text[0, 1:]))

# %% [markdown] slideshow={"slide_type": "slide"}
# ### What two heads look at
#
# The second half of our sentence repeats much of the first. Do heads 2.0 (block 2, head 0) and 7.0 help to copy it?
# Each row is a token, and it looks more at darker cells.

# %% tags=["check-heads"]
fig, panels = plt.subplots(1, 2, figsize=(10, 5.4), sharey=True, layout="constrained")
for panel, (block, head) in zip(panels, [(2, 0), (7, 0)], strict=True):
    panel.imshow(weights_of[block][0, head], cmap="Blues", vmin=0, vmax=1)
    panel.set(title=f"block {block}, head {head}", xlabel="token that it looks at")
    panel.set_xticks(range(22), words, rotation=90, fontsize=8)
panels[0].set_yticks(range(22), words, fontsize=8)
panels[0].set_ylabel("token that looks")
fig.suptitle("Left: 1 or 2 back. Right: mostly [end] or what followed a like token")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# A head that finds nothing often looks at [end]. In 7.0, on the right, the second ` argument` finds ` is`, which
# followed the first and comes next here, too. Such heads are called [*induction heads*](glossary.md#induction-head). To
# find that ` is`, 7.0 has to know that ` argument` precedes it, so some lower head has to write this into the vector of
# ` is`. The left head, 2.0, is a candidate: there ` is` gives ` argument` 98% of its weight.
#
# To test this explanation, we remove each of the 32 heads in turn, by setting the 48 columns of `o_proj` that read it
# to zero. Then we measure, at the second ` argument`, how much 7.0 still looks at ` is`, and how probable ` is` remains
# as the next token, also at the first ` argument`, where nothing can be copied. **Which head matters most for the
# prediction?**

# %%
after_first, again = words.index(" argument") + 1, words.index(" second") + 1


@torch.no_grad()
def copying_without(*heads):
    """The right head's weight on ' is', and how probable ' is' is at both arguments."""
    cut = copy.deepcopy(model)
    for block, head in heads:
        output = cut.model.layers[block].self_attn.o_proj.weight
        output[:, 48 * head : 48 * head + 48] = 0
    logits, weights_of = forward(cut, ids)
    p_is = logits[0].softmax(-1)[:, ids[0, after_first]]
    weight = weights_of[7][0, 0, again, after_first]
    return weight.item(), p_is[again].item(), p_is[after_first - 1].item()


removed = {(b, h): copying_without((b, h)) for b in range(8) for h in range(4)}
worst = sorted(removed, key=lambda head: removed[head][1])[:5]
report = "weight {:.2f}, probability {:.2f} (at the first argument {:.2f})"
print("with all heads:", report.format(*copying_without()))
for b, h in *worst, (2, 0):
    at = weights_of[b][0, h, again].argmax()  # the place where this head looks most
    looks = f"looks at {at},{words[at]}"
    print(f"without {b}.{h} ({looks}):", report.format(*removed[b, h]))

# %% [markdown] slideshow={"slide_type": "subslide"}
# It is 3.2, and 7.0 is only fifth. So the explanation holds only in part: without 2.0, the weight falls from 0.67 to
# 0.54, hardly further than without 5.3 (0.56), and ` is` does not become less probable. At the first ` argument`,
# removing 3.2 or 7.0 changes little, so these two seem to help with copying. But 7.1 matters there, too, so it seems to
# serve grammar: it looks at the subject's ` the`.
#
# Attention shows where a head looks, but only removing the head shows whether that matters.

# %% [markdown] slideshow={"slide_type": "slide"}
# ### The loss
#
# The loss of one token is minus the logarithm of the probability that the model gave it, in *nats*. The loss of a text
# is the mean over its $T$ predicted tokens, and [perplexity](glossary.md#perplexity) is its exponential:
#
# $$L = -\frac{1}{T}\sum_{t=1}^{T} \ln p(\text{token}_t \mid \text{tokens before}), \qquad \mathrm{perplexity} = e^{L}$$
#
# At a perplexity of 4, the model is as unsure as among 4 equally likely tokens. The output at one token is the
# prediction *for the next*, so 22 tokens give $T = 21$ losses. At work, [`F.cross_entropy`](glossary.md#cross-entropy)
# computes their mean if you shift the ids; a model given `labels=` shifts them itself.


# %%
def mean_loss(logits, ids):
    log_p = logits[:, :-1].log_softmax(-1)  # the last prediction has no answer here
    return -log_p.gather(-1, ids[:, 1:, None]).mean()


loss = mean_loss(logits, ids)
print(f"mean loss {loss:.2f} nats, perplexity {loss.exp():.2f}")
torch.testing.assert_close(loss, F.cross_entropy(logits[0, :-1], ids[0, 1:]))
torch.testing.assert_close(loss, model(ids, labels=ids).loss)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Part B: a training step
#
# ### Loss and gradient
#
# [`tl.pack`](glossary.md#packing) writes the documents about Rust one after another, with `[end]` before each, and cuts
# this text into pieces of 64 tokens. Four pieces, drawn with a [seed](glossary.md#seed), are a batch.
#
# The [gradient](glossary.md#gradient) of a batch's loss says for each parameter how fast the loss rises when this
# parameter rises. [Backpropagation](glossary.md#backpropagation) computes the whole gradient in one pass, from the
# loss down to the embedding.

# %%
rust = tl.load_corpus("rust")
pieces = tl.pack(rust.train, tokenizer, 64)
order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(0))
batches = pieces[order].split(4)[:20]
held_out = tl.pack(rust.validation, tokenizer, 64)[:16]  # from other documents
loss = mean_loss(forward(model, batches[0])[0], batches[0])
gradients = torch.autograd.grad(loss, list(model.parameters()))
print(f"loss {loss:.2f}, {sum(g.numel() for g in gradients):,} numbers in the gradient")

# %% [markdown] slideshow={"slide_type": "slide"}
# ### AdamW
#
# The simplest rule moves against the gradient, now called $g$: $w \leftarrow w - \eta\,g$, with a learning rate $\eta$.
# But if gradients have very different sizes, no single $\eta$ suits them all. So [*AdamW*](glossary.md#adamw) keeps two
# running averages for each parameter, its [moments](glossary.md#moments):
#
# $$m_t = \beta_1 m_{t-1} + (1-\beta_1)\,g_t \qquad\qquad v_t = \beta_2 v_{t-1} + (1-\beta_2)\,g_t^2$$
#
# The first, $m$, averages the gradient over about 10 steps ($\beta_1 = 0.9$): which way have we been going? The second,
# $v$, averages its square over about 1,000 ($\beta_2 = 0.999$): how large is it usually? Both start at zero, which the
# division by $1-\beta^t$ corrects in step $t$:
#
# $$w \leftarrow (1 - \eta\lambda)\,w \;-\; \eta\,\frac{m_t / (1-\beta_1^t)}{\sqrt{v_t / (1-\beta_2^t)} + \varepsilon}$$
#
# The [*weight decay*](glossary.md#weight-decay) $\lambda = 0.01$ pulls each parameter towards zero, and $\varepsilon$
# is now $10^{-8}$. $m$ and $v$ have the shape of $w$, so AdamW needs memory for two more copies of all it trains.


# %%
def adamw_(w, g, m, v, t, rate, decay=0.01):
    """One step of AdamW; `_` says that it changes w, m and v in place."""
    m.mul_(0.9).add_(0.1 * g)
    v.mul_(0.999).add_(0.001 * g * g)
    first, second = m / (1 - 0.9**t), v / (1 - 0.999**t)
    w.mul_(1 - rate * decay)
    w.sub_(rate * first / (second.sqrt() + 1e-8))


# %% [markdown] slideshow={"slide_type": "subslide"}
# **How far does a parameter with a large gradient move in step 1, and how far one with a small gradient?** We try
# gradients of 5, 0.01 and -0.0001 in step 1, and then a parameter whose first gradient, 5, comes in step 10,000.

# %%
w, g = torch.zeros(3), torch.tensor([5.0, 0.01, -0.0001])
adamw_(w, g, torch.zeros(3), torch.zeros(3), t=1, rate=0.001)
print("moved in step 1, in learning rates:", (w / 0.001).numpy().round(2))
rare = torch.zeros(1)
adamw_(rare, g[:1], torch.zeros(1), torch.zeros(1), t=10_000, rate=0.001)
print(f"first gradient in step 10,000: {rare.item() / 0.001:.2f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# All three move equally far, by one learning rate. In step 1 the corrected moments are $g$ and $g^2$, and $g /
# \sqrt{g^2}$ is $+1$ or $-1$. So the learning rate is roughly a distance: a parameter moves by about one learning rate
# a step if the batches agree, and by less if they contradict one another.
#
# But the rate is no upper limit. If the first gradient comes after thousands of steps, $m$ becomes a tenth of this
# gradient, and $v$ a thousandth of its square. As $\sqrt{0.001}$ is about a thirtieth, the parameter moves by about
# three learning rates.

# %% [markdown] slideshow={"slide_type": "slide"}
# ### Ten steps by hand
#
# Our `forward`, `mean_loss` and `adamw_` train the model, and torch only differentiates.

# %%
by_hand = copy.deepcopy(model)
parameters = list(by_hand.parameters())
m, v = ([torch.zeros_like(w) for w in parameters] for _ in range(2))
my_losses = []
for step, batch in enumerate(batches[:10], start=1):
    loss = mean_loss(forward(by_hand, batch)[0], batch)
    gradients = torch.autograd.grad(loss, parameters)
    with torch.no_grad():
        for w, g, first, second in zip(parameters, gradients, m, v, strict=True):
            adamw_(w, g, first, second, step, rate=1e-3)
    my_losses.append(loss.item())
print([round(loss, 2) for loss in my_losses])
with torch.no_grad():
    for name, tested in {"before": model, "after": by_hand}.items():
        loss = mean_loss(forward(tested, held_out)[0], held_out)
        print(f"perplexity of unseen text {name}: {loss.exp():.0f}")

# %% [markdown] slideshow={"slide_type": "slide"}
# The loss does not fall in every step, because each step sees other text. But on unseen text the perplexity fell from
# 132 to 84.
#
# ### The same at work
#
# With the library's model and torch's optimizer, `backward` stores the gradients in `.grad`, and the optimizer keeps
# the moments. We start again from the same weights and take 20 steps. **Are the first ten losses yours, and does the
# model improve further?**

# %%
trained = copy.deepcopy(model)
optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3, weight_decay=0.01)
library_losses = []
for batch in batches:
    loss = trained(input_ids=batch, labels=batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    library_losses.append(loss.item())
prompt = tokenizer("<|endoftext|>In Rust, a `String`", return_tensors="pt")
for name, tested in {"before": model, "after": trained}.items():
    with torch.no_grad():
        loss = tested(input_ids=held_out, labels=held_out).loss
    written = tested.generate(**prompt, max_new_tokens=16, do_sample=False)
    print(f"{name}: perplexity {loss.exp():.0f}, {tokenizer.decode(written[0, 1:])}")
same = torch.allclose(torch.tensor(my_losses), torch.tensor(library_losses[:10]), 1e-3)
course.claim("My model and my AdamW give the library's ten losses, to 1e-3", same)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The first ten losses are the same, and on the unseen pieces the perplexity falls further, from 84 to 74. The sentence
# no longer speaks of Python's objects, but it says nothing true about Rust yet.
#
# ## Key ideas
#
# - A transformer keeps one vector for each token. Attention brings in earlier tokens, the MLP works on each alone, and
#   both add to it.
# - The loss is the mean of minus the logarithm of the next token's probability. Labels are shifted once.
# - AdamW divides the average gradient by its usual size, so a parameter moves by about one learning rate a step if the
#   batches agree.
#
# ## Further reading
#
# - Papers: [Attention Is All You Need](https://arxiv.org/abs/1706.03762), [Qwen2](https://arxiv.org/abs/2407.10671),
#   [AdamW](https://arxiv.org/abs/1711.05101), [induction heads](https://arxiv.org/abs/2209.11895)
# - Raschka, [Build a Large Language Model from Scratch](https://github.com/rasbt/LLMs-from-scratch), chapters 3-5

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex02_1", 1)`. After
# *Restart Kernel* run the next cell first.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** Somebody multiplies the loss by 10. Nothing is clipped, and AdamW's epsilon is too small to matter. How do
# the weights move?
#
# - **a** As before: both moments grow along, and the factor cancels.
# - **b** 10 times as far in every step.
# - **c** A hundredth as far, because the second moment is of the squared gradient.
# - **d** As before in the first step only; later, the averages differ.

# %%
course.quiz("quiz02")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 2.1.** In a batch, short texts are filled up with padding, which should not count. By convention its label
# is -100. Write the loss for that: `logits` has the shape (texts, tokens, vocabulary), and `labels` has (texts,
# tokens), not shifted yet. Return the mean loss of all predicted tokens that count.

# %%
import torch
from torch.nn import functional as F


def causal_loss(logits, labels):
    """Mean loss of the next tokens, leaving out labels of -100."""
    # your code here


course.check("ex02_1", causal_loss)

# %% [markdown]
# Previous: [1 · First fine-tuning](01_first_fine_tuning.ipynb) ·
# Next: [3 · A baseline to trust](03_baseline.ipynb)
