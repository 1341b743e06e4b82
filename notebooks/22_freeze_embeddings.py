# %% [markdown] slideshow={"slide_type": "slide"}
# # 22 · Freeze the embeddings
#
# *What else is frozen when the head is tied?*
#
# The first layer of a language model is a table with one row of numbers for each token. In a model of less than a
# billion values this table often holds about a fifth of them or more, so it is tempting to freeze it: each token
# keeps its row, and the blocks learn to use the rows differently. But in most small models the same table is used a
# second time at the very top, where the next token is scored. If you freeze one use, you freeze the other.
#
# **You will be able to**
#
# - say what a token table does at both ends of a model, and write both uses in one line of torch each;
# - split the gradient of a tied table into the part of the lookup and the part of the head;
# - tell for any model what freezing its embeddings freezes and saves, and avoid a trap of `peft`.
#
# **You need** the parts of a model from [lesson 2](02_inside_a_language_model.ipynb), the training step of [lesson
# 4](04_full_fine_tuning.ipynb), and the strips from [lesson 7](21_freeze_lower_layers.ipynb) that show what is
# frozen.
#
# About 41 minutes.

# %% slideshow={"slide_type": "subslide"}
import warnings

import course
import tlkit as tl
from tlkit.evaluation import score_table
from course.lesson22 import pictures
import torch
from torch.nn import functional as F

profile = tl.setup()
rust = tl.load_corpus().limited(profile.train_passages, profile.test_passages)
tiny = tl.load_model("tiny")
blocks = tl.pack(rust.train, tiny.tokenizer, 128)
before = tl.perplexity(tiny.model, tiny.tokenizer, rust.validation)
written_before = tl.generate(tiny.model, tiny.tokenizer)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One table, used twice
#
# A tokenizer turns text into numbers, and each number names a row of the table $E$. The picture follows a short text
# upwards. At the bottom, one row is read for each token. At the top, the model has computed a *hidden state* for each
# token, and it multiplies this state by **every** row of a matrix: one product for each token of the vocabulary. These
# products are the [*logits*](glossary.md#logit), the scores of the next token. The layer that computes them is the
# *head*. (A wavy line stands for numbers that are left out.)

# %%
numbers = tiny.tokenizer("fn main() {").input_ids
pictures.table_uses(tiny.model, {n: tiny.tokenizer.decode([n]) for n in numbers})

# %% [markdown] slideshow={"slide_type": "subslide"}
# A head is [*tied*](glossary.md#tied-head) if its matrix is the embedding's own table. Here it is, so lookup and score
# use one matrix:
#
# $$X = E[t] \qquad\qquad Z = H\,E^{\top}$$
#
# | symbol | what it is | shape | here |
# | --- | --- | --- | --- |
# | $t$ | numbers of the $T$ tokens of a text | $(T)$ | 64 |
# | $E$ | the table: $V$ tokens, width $d$ | $(V, d)$ | 4,096 × 192 |
# | $X$ | the rows of these tokens, which enter block 0 | $(T, d)$ | 64 × 192 |
# | $H$ | hidden states that leave the final norm | $(T, d)$ | 64 × 192 |
# | $Z$ | logits | $(T, V)$ | 64 × 4,096 |
#
# Why would one table serve both ends? Tokens that mean similar things should enter the model with similar rows, and
# they should also get similar scores in the same place of a text. Tying, proposed in 2016 (and published in 2017, see
# the end), saves a whole matrix and made small models better; large models can afford two.
#
# Each use fits into a line of torch. A lookup is also a matrix product: a row of zeros with a single one in it (a
# *one-hot* vector) picks out one row of $E$. No library multiplies it out, because nearly all products would be with
# zero.

# %% tags=["check-tl"]
tokens = blocks[2][:64]  # (T,)
E = tiny.model.get_input_embeddings().weight.detach()  # (V, d)

with torch.no_grad():
    X = E[tokens]  # (T, d)
    H = tiny.model.model(inputs_embeds=X[None]).last_hidden_state[0]  # (T, d)
    Z = H @ E.T  # (T, V)
    logits = tiny.model(input_ids=tokens[None]).logits[0]
print("X", tuple(X.shape), " H", tuple(H.shape), " Z", tuple(Z.shape))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One table, two gradients
#
# A weight that is used twice gets a gradient from each use, and the two are added. That is the chain rule for a
# variable that appears twice. For the tied table:
#
# $$\frac{\partial L}{\partial E} \;=\; \underbrace{S^{\top}\,\frac{\partial L}{\partial X}}_{\text{lookup}}
# \;+\; \underbrace{\Bigl(\frac{\partial L}{\partial Z}\Bigr)^{\!\top} H}_{\text{head}}$$
#
# $L$ is the loss, and $S$, of shape $(T, V)$, has the one-hot vectors as rows, so that $X = S\,E$. Both terms have the
# shape of the table, $(V, d)$.
#
# The gradient of the logits has a short formula. Softmax turns the logits of one position into probabilities $p$, of
# shape $(V)$. Let $y$ be the one-hot vector of the right answer. The loss of the position is $-\log$ of the right
# answer's probability, and its derivative with respect to the logits is $p - y$. $L$ is the mean over the $T - 1$
# positions that predict a next token, so the gradient of $L$ is $(p - y) / (T - 1)$ at each of them. Through the head,
# row $v$ of the table therefore gets the sum of $(p_v - y_v)\,h / (T - 1)$ over these positions, where $h$, of shape
# $(d)$, is the hidden state of the position.
#
# **Predict first.** The text has 64 tokens, some of them equal, and the table has 4,096 rows. How many rows get a
# gradient from the lookup, and how many from the head?

# %% tags=["check-Z"]
X = E[tokens].requires_grad_()
H = tiny.model.model(inputs_embeds=X[None]).last_hidden_state[0]
Z = H @ E.T
loss = F.cross_entropy(Z[:-1], tokens[1:])  # each position is asked for the next token
to_X, to_Z = torch.autograd.grad(loss, [X, Z])

# S transposed, times to_X: the gradients of equal tokens are added up in one row.
from_lookup = torch.zeros_like(E).index_add_(0, tokens, to_X)
from_head = to_Z.T @ H.detach()

tiny.model(input_ids=tokens[None], labels=tokens[None]).loss.backward()
gradient = tiny.model.get_input_embeddings().weight.grad
course.claim(
    "The two parts add up to the gradient of autograd",
    gradient.allclose(from_lookup + from_head, atol=1e-5),
)
tiny.model.zero_grad()

# %%
rare = {"bytes outside printable ASCII": range(95, 257)}
pictures.row_gradients_chart(from_lookup, from_head, answers=tokens[1:], named=rare)

# %%
rows = [int((part != 0).any(dim=1).sum()) for part in (from_lookup, from_head)]
print("rows with a gradient from the lookup:", rows[0], "- from the head:", rows[1])
answers = torch.zeros(4096, dtype=torch.bool)
answers[tokens[1:]] = True
norms = from_head.norm(dim=1)
level = (norms < 2e-5).nonzero().flatten()
course.claim(
    "Of the tokens with a gradient below 2e-5, not one in 20 is in our Rust text",
    len(level) > 100 and torch.isin(level, blocks).float().mean() < 0.05,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The lookup read 52 different rows (the last token is only predicted, so its row does not count), and no other row
# can affect the loss through the lookup. The head compared every hidden state with all 4,096 rows. Softmax gives
# every token some probability, so $p_v - y_v$ is never zero. Even the row of a token that does not occur in your text
# moves in full fine-tuning: its $p_v$ is too high, so it is pushed away from the hidden states of your text. AdamW
# divides by the size of the gradient, so even a tiny one counts ([lesson 4](04_full_fine_tuning.ipynb)).
#
# In the right panel, the dark dots are the tokens that were right answers, where $y_v = 1$. Their gradients are more
# than a hundred times as long as a typical one. The cloud falls to the right because the tokenizer numbered frequent
# tokens first, and frequent tokens get more probability. The level line near $10^{-5}$ consists of tokens that hardly
# ever occur, so the model gives them next to no probability. More than half of these tokens stand in the pale band, so
# the cloud has a gap there: tokens 95 to 256 are single bytes, and English text and code use few of them apart from the
# space and the newline.
#
# One detail can surprise you. PyTorch leaves the row of the padding token out of the *lookup's* gradient
# (`padding_idx`), and in the bundled model the end of a document has the same number 0. That row learns from the head
# only. The 64 tokens above were chosen without it.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Freeze it
#
# `freeze_embeddings` trains everything but the table. In PyTorch that is a switch: a tensor whose `requires_grad` is
# False gets no gradient, and the optimizer is not given it. Because the head is the same tensor, it is frozen as well.

# %%
full = tl.apply_strategy(tl.load_model("tiny").model, "full")
report = tl.apply_strategy(tiny.model, "freeze_embeddings")
tl.network_strip(full, report)

# %%
print(report)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The head is hatched, not plain: it is frozen, but the gradient of the loss can reach the blocks only through it. The
# gradient $\partial L / \partial H = (\partial L / \partial Z)\,E$ is still computed; only the two terms of $\partial
# L / \partial E$ are left out. The arrow is hardly shorter: block 0 is trained, so backpropagation still runs through
# every block.
#
# In arithmetic this saves little, as [lesson 7](21_freeze_lower_layers.ipynb) has shown: a step of full fine-tuning
# goes through the head three times (the forward pass, the gradient with respect to $H$, and the gradient with respect
# to $E$), and only the last of them is left out. The lookup needs no arithmetic. But what is saved in memory?
#
# **Predict first.** The *training state* of a trained value is four numbers: the value itself, its gradient and the two
# averages of AdamW. A fifth of the values is frozen now. What share of the training state is saved?

# %%
step, frozen_step = (tl.count_flops(one.model, blocks[:4]) for one in (full, report))
saved = step.total - frozen_step.total
print(f"of the values frozen:    {100 - report.percent:.0f}%")
print(f"of the arithmetic saved: {saved / step.total:.0%}")
unneeded = 3 * E.numel() / (4 * report.total_values)
size = 3 * 4 * E.numel() / 1e6
print(f"of the training state:   {unneeded:.0%}, {size:.1f} MB in fp32")

# %% [markdown] slideshow={"slide_type": "subslide"}
# A frozen value still has to be stored, so it saves three of its four numbers: its gradient and the two averages.
# Three quarters of the 19% that are frozen make about 15% of the whole training state. The saving in arithmetic is only
# 6%, because two of the three products with $E$ remain and the blocks are all trained.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Train the rest
#
# The rows that score the next token cannot move now. The learning rate is 2e-3, because that did best for this strategy
# when lesson 15 tuned the rates.
#
# **Predict first.** By how many percent will perplexity on Rust fall?

# %%
settings = tl.TrainingConfig(learning_rate=2e-3, epochs=profile.epochs, batch_size=4)
result = tl.train(report.model, blocks, settings, progress=True)
after = tl.perplexity(report.model, tiny.tokenizer, rust.validation)

# %% tags=["nbval-ignore-output"]
scores = score_table({"Rust, before": before, "Rust, after": after})
scores.round(2)

# %%
tl.perplexity_chart(scores)

# %% tags=["check-tl-2"]
untouched = tl.load_model("tiny").model
unseen = tl.pack(rust.validation, tiny.tokenizer, 128)[:8]
losses = []
with torch.no_grad():
    for model in (untouched, report.model):
        H = model.model(input_ids=unseen).last_hidden_state  # (8, T, d)
        Z = H @ E.T  # the same E for both
        losses.append(F.cross_entropy(Z[:, :-1].flatten(0, 1), unseen[:, 1:].flatten()))
course.claim(
    "With the same E the loss is lower by over 0.2", losses[1] < losses[0] - 0.2
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Perplexity falls by about 40%. The last cell shows how: it multiplies the hidden states of the untouched model and
# those of the trained one by the same table. The second loss is lower, although $E$ is the same. $Z = H E^{\top}$ has
# two factors, and the blocks have learned to compute another $H$: with it, the tokens that follow in Rust text get
# higher probabilities.
#
# Is this better or worse than training the table as well? One run with one seed cannot say. [Lesson
# 15](15_comparison.ipynb) compares all strategies over several seeds.
#
# The sentences that the model writes show the change, too. The model is too small to write good prose, but more of its
# words now come from texts about Rust:

# %% tags=["nbval-ignore-output"]
for old, new in zip(
    written_before, tl.generate(report.model, tiny.tokenizer), strict=True
):
    print("before:", old)
    print("after: ", new, "\n")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How large the table is elsewhere
#
# The size of the table depends on the vocabulary and the width, not on the number of blocks. So its share is large in a
# small model with a large vocabulary, and small in a large model.
#
# **Predict first.** Qwen2-0.5B has 151,936 tokens, a width of 896 and 494,032,768 values. What share is its table?

# %%
names = ["tiny", "smollm2-135m", "qwen2-0.5b", "tinyllama-1.1b", "llama2-7b"]
models = {name: tl.describe(tl.meta_model(name)) for name in names}

# %%
shares = {
    name: 100 * one.components["embedding"].total_values / one.total_values
    for name, one in models.items()
}
print({name: round(share, 1) for name, share in shares.items()})

# %% [markdown] slideshow={"slide_type": "subslide"}
# Qwen2-0.5B spends 28% of its values on the table. Llama-2-7B spends 2% and can afford a second matrix for its head.
# In such an *untied* model the two can be frozen separately, and `freeze_embeddings` still trains the head:

# %%
untied = tl.apply_strategy(tl.meta_model("tinyllama-1.1b"), "freeze_embeddings")
tl.network_strip(untied)

# %% tags=["check-head"]
head, table = untied.components["head"], untied.components["embedding"]
print(f"trained in the head: {head.trainable_values:,}")
print(f"trained in the embedding: {table.trainable_values:,}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The same name, `freeze_embeddings`, therefore means two different things. Before you say what was frozen, ask whether
# the head is tied (`model.config.tie_word_embeddings`), and count. One of the published programs is an example: it gave
# Qwen2-0.5B, a tied model, a head of its own, so it trained two tables where the model has one (lesson 4).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same in plain transformers
#
# Outside this course the strategy is one line: switch off `requires_grad` for the embedding and give the optimizer
# what is left. The loop below is the one of lesson 4, clipping included, but with a constant learning rate. Its
# losses agree with those of `tl.train` to one part in a hundred thousand.

# %%
from transformers import AutoModelForCausalLM

plain = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
plain.get_input_embeddings().requires_grad_(False)
trained = [p for p in plain.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.01)
order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
by_hand = []
for batch in blocks[order].split(4):
    loss = plain(input_ids=batch, labels=batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    by_hand.append(loss.item())

# %%
again = tl.apply_strategy(tl.load_model("tiny").model, "freeze_embeddings")
constant = tl.TrainingConfig(1e-3, batch_size=4, schedule="constant", warmup_fraction=0)
history = tl.train(again.model, blocks[:20], constant).history
apart = max(abs(a / b - 1) for a, b in zip(by_hand, history.loss, strict=True))
course.claim("Five steps, five equal losses", len(by_hand) == 5 and apart < 1e-5)

# %% [markdown] slideshow={"slide_type": "subslide"}
# ## A trap in peft
#
# Sometimes you want the opposite: you add new tokens to the vocabulary, so you train an adapter *and* the embeddings.
# An adapter such as LoRA trains small matrices beside frozen ones ([lesson 5](05_lora.ipynb)). The option
# `modules_to_save` of peft trains whole layers beside these matrices, and it works on a copy of each such layer.
#
# **Predict first.** What becomes of a tied head when the embedding is replaced by a copy?

# %%
from peft import LoraConfig, get_peft_model


def adapted(**options):
    """The bundled model with LoRA, after one training step, and its two tables."""
    model = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
    config = LoraConfig(
        target_modules=["q_proj", "v_proj"],
        modules_to_save=["embed_tokens"],
        **options,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft's: more about it below
        model = get_peft_model(model, config)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    model(input_ids=blocks[:4], labels=blocks[:4]).loss.backward()
    optimizer.step()
    return model.get_input_embeddings().weight, model.get_output_embeddings().weight


# %%
embedding, head = adapted()
changed = {"embedding": not embedding.equal(E), "head": not head.equal(E)}
print("trained by default:", changed)
embedding, head = adapted(ensure_weight_tying=True)
course.claim(
    "With ensure_weight_tying the two are one tensor, which was trained",
    embedding is head and not head.equal(E),
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# peft copies the embedding, trains the copy, and leaves the head with the old table. The model is no longer tied: a
# new token is read with a trained row, but scored with an untrained one. Training does not fail. peft only prints a
# warning about merging the adapter (we switched it off above), which is easy to overlook in a log.
# `ensure_weight_tying=True` keeps the two uses together.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A token table is read row by row at the bottom. In a tied model it is also multiplied whole at the top, so there is
#   one matrix and freezing the embedding freezes the head.
# - Its gradient is a sum: the lookup reaches the rows of tokens in the batch, the head reaches every row.
# - Backpropagation still has to pass through a frozen head. Freezing 19% of the values saved 6% of the arithmetic.
#
# **Further reading**
#
# - O. Press and L. Wolf, [Using the Output Embedding to Improve Language Models](https://arxiv.org/abs/1608.05859),
#   2017: weight tying, and which of the two gradients dominates.
# - H. Inan, K. Khosravi and R. Socher, [Tying Word Vectors and Word Classifiers](https://arxiv.org/abs/1611.01462),
#   2017: the same idea, argued from the loss.
# - M. Artetxe, S. Ruder and D. Yogatama, [On the Cross-lingual Transferability of Monolingual
#   Representations](https://arxiv.org/abs/1910.11856), 2020: the opposite strategy, where only the embeddings are
#   trained for a new language.
# - Tied layers in peft: [huggingface/peft issue 2777](https://github.com/huggingface/peft/issues/2777).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex22_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** The head of the bundled model was frozen with its embedding. Perplexity on Rust fell all the same. How can a
# head that did not move score the next token differently?
#
# - **a** It did move a little: weight decay shrinks frozen weights, too.
# - **b** The bias of the head was trained.
# - **c** The blocks compute other hidden states, and the same table gives those other scores.
# - **d** Only the rows of tokens that are not in the training text stayed frozen.

# %%
course.quiz("quiz22")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 22.1** (first steps). Qwen2-1.5B has 1,543,714,304 values. Its vocabulary has 151,936 tokens, its width is
# 1,536, and its head is tied. What percentage of its values does `freeze_embeddings` freeze? And what percentage would
# it be if the same model had a head of its own, not tied? Give both numbers, in percent.

# %%
answer = None  # (percent with the tied head, percent with a head of its own)
# your code here
course.check("ex22_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 22.2** (apply it). Write a function that takes a model to which some strategy was applied, and returns True
# if its head is trained, else False. It must be right for tied and for untied models.


# %%
def head_trains(model):
    """True where the next training step would change the head."""
    # your code here


course.check("ex22_2", head_trains)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 22.3** (think further). You want to freeze the embedding of a *tied* model and train its head. That takes
# two tables. Write a function that takes a tied model, gives its head a table of its own, and returns the model. Before
# training, the model must compute exactly the same logits as before. Training the head must not change the embedding.
# And `model.tie_weights()`, which transformers calls when it loads a model or changes its vocabulary, must leave the
# head its own table.

# %%
from torch import nn


def own_head(model):
    """The same model, its head no longer tied to the embedding."""
    # your code here


course.check("ex22_3", own_head)

# %% [markdown]
# Previous: [21 · Freeze the lower layers](21_freeze_lower_layers.ipynb) ·
# Next: [A1 · Unfreezing schedules](A1_unfreezing_schedules.ipynb)
