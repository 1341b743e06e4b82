# %% [markdown] slideshow={"slide_type": "slide"}
# # 4 · Full fine-tuning
#
# *What does training everything gain, and what does it cost?*
#
# Full [fine-tuning](glossary.md#fine-tuning) is the plainest way to adapt a language model: every weight may move. But
# does the model stay as good on other text while it learns the new one? And what happens if there is very little to
# learn from? In this lesson you train such models and measure both, so that you can recognise the effects later in a
# run of your own.
#
# **You will be able to**
#
# - write the training loop of a language model in about 20 lines of PyTorch, and get the same losses from `Trainer`;
# - say in numbers what training changed on the new text and on other text;
# - recognise overfitting in two curves, and test whether a remedy really is one.
#
# **You need** the parts of a model from [lesson 2](02_inside_a_language_model.ipynb), and the baseline of
# [lesson 3](03_baseline.ipynb): perplexity, nats per token, and validation text.
#
# About 48 minutes.

# %% slideshow={"slide_type": "subslide"}
import math
import tempfile
from dataclasses import replace

import pandas as pd
import torch
from torch.nn import functional

import course
import tlkit as tl
from course.lesson04.pictures import overfitting_chart, run_chart

profile = tl.setup()
rust = tl.load_corpus().limited(profile.train_passages, profile.test_passages)
general = tl.load_corpus("general").validation[: profile.test_passages]
tiny = tl.load_model("tiny")
before = tl.perplexity(tiny.model, tiny.tokenizer, rust.validation)
general_before = tl.perplexity(tiny.model, tiny.tokenizer, general)
written_before = tl.generate(tiny.model, tiny.tokenizer)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What is trained
#
# The picture below shows the bundled model from the bottom (left) to the top (right): an *embedding*, which is a
# table with one row of numbers for each token, eight equal *blocks*, a norm, and the *head*, which scores every
# possible next token. In this model the head uses the same matrix as the embedding. Below each part you see how many
# of its values are trained, and a filled box means that all of them are.
#
# The arrow is [*backpropagation*](glossary.md#backpropagation). It starts at the loss, on the right, and carries the
# gradient down to the lowest trained part. With full fine-tuning it passes through everything. You will see this
# picture again in every lesson about a strategy, and the boxes will change.

# %%
report = tl.apply_strategy(tiny.model, "full")
tl.network_strip(report)

# %%
print(report)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The report counts *values* and *tensors*, and the two are easily confused. A tensor is a whole matrix or vector, so
# three tensors can hold millions of values. One published report wrote that "3 of 291 parameters" were trained. It had
# counted tensors: an embedding, a head and a norm, which together hold 272,270,208 values.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One training step
#
# Training repeats one step. (If you have read part B of [lesson 2](02_inside_a_language_model.ipynb), which builds
# AdamW from nothing, look at the picture and go on to *The loop by hand*.) The picture shows the step with the shapes
# of this model; start at the top left. The model reads a batch of 4 sequences of 128 tokens each. (The code calls
# such a sequence a *block* of text, which has nothing to do with the blocks of the model.) The *logits* are its
# scores for every possible next token.

# %%
tl.step_flow(batch_size=4, tokens=128, vocabulary=4096, values=4_036_800)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The loss is the mean surprise of the next token, in nats:
#
# $$L(\theta) = -\frac{1}{T} \sum_{t} \ln p_\theta(x_t \mid x_{<t})$$
#
# Here $\theta$ stands for all weights, a vector of 4,036,800 numbers, $x_t$ is the token at place $t$, $x_{<t}$ are
# the tokens before it in its sequence, and $p_\theta$ is the probability that the model gives to it. $T$ is the
# number of predicted tokens: 4 × 127, because nothing comes before the first token of a sequence. Backpropagation
# gives the gradient $g = \partial L / \partial \theta$, one number for each weight.
#
# The optimizer then moves the weights against the gradient. [AdamW](glossary.md#adamw) keeps two running averages,
# $m$ of the gradients and $v$ of the *squared* gradients. Both have the shape of $\theta$, and everything is computed
# weight by weight:
#
# $$m \leftarrow 0.9\, m + 0.1\, g \qquad v \leftarrow 0.999\, v + 0.001\, g^2 \qquad
# \theta \leftarrow \theta - \eta_s \left( \frac{\hat m}{\sqrt{\hat v} + \epsilon} + \lambda\, \theta \right)$$
#
# Both start at zero and are too small at first, so they are corrected: in step $s = 1, 2, \dots$ we take
# $\hat m = m/(1-0.9^s)$ and $\hat v = v/(1-0.999^s)$. The tiny $\epsilon$ prevents a division by zero, and
# $\lambda = 0.01$ is the *weight decay*, which pulls each weight towards zero. In the first step $\hat m = g$ and
# $\hat v = g^2$, so the fraction is 1 or -1, however small the gradient is. Later it stays near that size while the
# gradients of a weight agree. The learning rate $\eta_s$ of step $s$ therefore says how far a weight moves:

# %%
weight = torch.nn.Parameter(torch.tensor([0.5, 0.5]))
weight.grad = torch.tensor([30.0, -0.0003])  # a large gradient, and a tiny one
torch.optim.AdamW([weight], lr=1e-3, weight_decay=0.0).step()
moved = (weight.detach() - 0.5).tolist()
print("moved by", [round(change, 4) for change in moved])

# %% [markdown] slideshow={"slide_type": "subslide"}
# ## The schedule
#
# The learning rate is not the same in all steps. It rises over the first tenth of the steps (*warm-up*), because the
# two averages know little at first, and then falls towards zero along half a cosine, so that the last steps are small
# and the weights settle. As a factor between 0 and 1 that is:


# %%
def schedule_factor(step, steps, warmup):
    """What the learning rate is multiplied by; `step` counts from 0."""
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / (steps - warmup)
    return (1 + math.cos(math.pi * done)) / 2


# %% [markdown] slideshow={"slide_type": "slide"}
# ## The loop by hand
#
# A whole run needs a loop around these parts. Four of its lines do the work: forward, backward, optimizer step,
# schedule. Gradients are *clipped* before the step: if the length of the whole gradient is above 1, it is scaled down
# to 1, so that one strange batch cannot disturb the optimizer for long. The last token of each sequence has no
# successor to be compared with, so the loop does not feed it to the model.


# %%
def train_by_hand(model, batches, rate, steps, warmup, decay=0.01):
    weights = [p for p in model.parameters() if p.requires_grad]
    adamw = torch.optim.AdamW(weights, lr=rate, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        adamw, lambda step: schedule_factor(step, steps, warmup)
    )
    model.train()
    losses = []
    for batch in batches:
        logits = model(input_ids=batch[:, :-1]).logits  # forward: (4, 127, 4096)
        targets = batch[:, 1:]  # each token's successor: (4, 127)
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()  # a gradient for every weight that is trained
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        adamw.step()
        schedule.step()
        adamw.zero_grad()  # or the next gradient would be added to this one
        losses.append(loss.item())
    return losses


# %% [markdown] slideshow={"slide_type": "subslide"}
# Now run it. The text is packed into sequences and shuffled, and the order depends on the seed alone. One *epoch* is
# one pass over all of them, 17 steps here. To save time the loop takes the first six, with the rates of the whole run.
# A learning rate of 1e-3 suits this model of four million weights; for full fine-tuning of half a billion weights,
# people start near 2e-5.

# %%
blocks = tl.pack(rust.train, tiny.tokenizer, 128)
shuffled = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(0))
batches = blocks[shuffled].split(4)
warmup = round(0.1 * len(batches))
by_hand = tl.apply_strategy(tl.load_model("tiny").model, "full").model
hand_losses = train_by_hand(by_hand, batches[:6], 1e-3, len(batches), warmup)
print(len(batches), "steps, of which", warmup, "are warm-up")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same with tlkit
#
# `tl.train` is this loop with progress, validation, checkpoints and memory counting around it; read it in
# `tlkit/training.py`. It takes the settings as a `TrainingConfig`, and draws the same order from the same seed.
#
# **Predict first.** The first loss is measured before any weight has moved. The next cell prints what the same model
# scores on validation text, as in lesson 3. How close will the first loss come to it?

# %% tags=["nbval-ignore-output"]
print(f"{before.nats_per_token:.2f} nats per token, perplexity {before.perplexity:.1f}")

# %%
settings = tl.TrainingConfig(learning_rate=1e-3, epochs=1, batch_size=4)
result = tl.train(report.model, blocks, settings, progress=True)
run_chart(result, untouched=before.nats_per_token)

# %%
losses = result.history.loss
furthest = max(abs(a - b) for a, b in zip(hand_losses, losses[:6], strict=True))
course.claim("Loop by hand and tl.train: six losses equal to 1e-4", furthest < 1e-4)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The two loops do the same work, so their losses agree. They need not agree to the last digit, because float32 keeps
# only about seven digits, and two programs that add up in another order round differently.
#
# Each light dot is the loss of one batch. Every batch is other text, some of it easier, so the dots jump. The line
# averages up to five of them. Its first points average fewer than five, so a rise there may only reflect which
# batches came first.
#
# The first dot lies about 0.2 nats below the dashed line. It should lie near it, because the weights are the same and
# so is the kind of text. `tl.first_loss_warning` makes this comparison, which costs nothing and catches real
# mistakes. In a published run the training began at a loss of 4.6, but the baseline of the same model was reported as
# a perplexity of 254,801, which is a loss of 12.4. The baseline was wrong. The model shifts the labels by one place
# itself, so that each token is compared with the next one. The evaluation had shifted them already, so it scored the
# token after the next ([lesson 16](16_autopsy.ipynb) repeats the mistake).

# %%
print(tl.first_loss_warning(4.6, math.log(254_801)))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same with transformers' `Trainer`
#
# Outside this course you will often meet `Trainer`. It takes the same settings under other names, and a model that
# `from_pretrained` has loaded from a folder or from the hub. `labels` are the inputs themselves, because the model
# shifts them. We give it the first four batches in our order and ask it not to shuffle.
#
# Two settings are switched off, because `Trainer` understands them a little differently. It counts the warm-up from
# zero, so the rate of its first step is 0 and that step changes nothing. It also exempts biases and norms from weight
# decay. Because of such details, two libraries seldom give the same losses with the same settings.

# %%
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

four = blocks[shuffled][:16]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=4, num_train_epochs=1,
        learning_rate=1e-3, lr_scheduler_type="cosine", warmup_steps=0,
        weight_decay=0.0, max_grad_norm=1.0, logging_steps=1,
        train_sampling_strategy="sequential", save_strategy="no",
        report_to="none", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(
        AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype="float32"),
        arguments,
        train_dataset=[{"input_ids": block, "labels": block} for block in four],
    )
    trainer.pop_callback(PrinterCallback)  # which would print every record
    trainer.train()

# %%
theirs = [record["loss"] for record in trainer.state.log_history if "loss" in record]
again = tl.load_model("tiny").model
ours = train_by_hand(again, four.split(4), 1e-3, steps=4, warmup=0, decay=0.0)
print("Trainer:", [round(loss, 2) for loss in theirs])
print("by hand:", [round(loss, 2) for loss in ours])

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Two texts, before and after
#
# The loss above is that of the training text. What counts is text that the model has not trained on. Two scores are
# taken before and after: perplexity on Rust validation text, which is like the text that the model was trained on,
# and perplexity on Python's language reference, which resembles the text that it was pretrained on.
#
# **Predict first.** Nothing in the training was about the Python reference. By how much will its perplexity change, and
# which way?

# %%
after = tl.perplexity(report.model, tiny.tokenizer, rust.validation)
general_after = tl.perplexity(report.model, tiny.tokenizer, general)

# %% tags=["nbval-ignore-output"]
scores = tl.score_table(
    {
        "Rust, before": before,
        "Rust, after": after,
        "Python reference, before": general_before,
        "Python reference, after": general_after,
    }
)
scores.round(2)

# %%
tl.perplexity_chart(scores)

# %%
course.claim(
    "Rust perplexity fell by at least 25%",
    after.perplexity < 0.75 * before.perplexity,
)
course.claim(
    "Perplexity on the Python reference rose",
    general_after.perplexity > general_before.perplexity,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The model got better at Rust and worse at what it could do before. This is called [*catastrophic
# forgetting*](glossary.md#catastrophic-forgetting). It happens because both abilities are stored in the same weights.
# The gradient says what would lower the loss on this batch of Rust, and nothing in it speaks for the older text, so a
# weight that served both is moved to where Rust needs it. The lines in the chart are 95% intervals over documents, as
# in lesson 3. Those of the Python reference overlap, but both scores are of the same documents, so what counts is the
# difference in each document ([lesson 15](15_comparison.ipynb)).
#
# What does the model write now? The same beginnings, before and after:

# %% tags=["nbval-ignore-output"]
for old, new in zip(
    written_before, tl.generate(report.model, tiny.tokenizer), strict=True
):
    print("before:", old)
    print("after: ", new, "\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The first two texts now sound like Rust's lints and release notes; the third still speaks of a database. They come
# from a model of four million weights after 17 steps, so read them for vocabulary and tone, not for truth. All
# numbers in this section come from one run.
#
# How much is forgotten depends on the model, on the strategy and on the length of the training. Large models forget,
# too (Luo et al. below).
#
# ## Try other settings
#
# Begin with *full* and another learning rate; later lessons explain the other strategies. You can stop a run at any
# time; the model as trained so far is kept in `lab.state.model`.

# %%
lab = course.TrainingLab()
lab

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Too little text, too often
#
# One published experiment trained on 25 sentences, twenty times. Do the same here with small batches, so that six
# times are enough, and score six sequences of validation text after each epoch. The untouched model is scored first,
# as epoch 0; on these six it has 4.78 nats and not 4.89.
#
# **Predict first.** Where will the training loss end? Where will the validation loss?

# %%
facts = tl.load_corpus("facts")
few = tl.pack(facts.train, tiny.tokenizer, 128)
unseen = tl.pack(rust.validation, tiny.tokenizer, 128)[:6]
print(len(facts.train), "sentences,", few.numel(), "tokens")
untouched = tl.mean_loss(tl.load_model("tiny").model, unseen)
overfitted = tl.apply_strategy(tl.load_model("tiny").model, "full")
settings = tl.TrainingConfig(
    learning_rate=1e-3, epochs=6, batch_size=1, evaluate_every=len(few)
)
first = tl.train(overfitted.model, few, settings, validation=unseen, progress=True)
runs = {"6 epochs": first}
overfitting_chart(runs, untouched=untouched)

# %%
curve = first.validation.validation_loss
course.claim("At the end it is above the untouched model's", curve.iloc[-1] > untouched)

# %% [markdown] slideshow={"slide_type": "subslide"}
# In the first epoch every sentence is new, so the training loss says how hard each of them is. They are Rust text and
# teach something about Rust in general, so the validation loss falls. From the second epoch on the model sees each
# sentence again. The training loss drops at once and goes on towards zero, while the validation loss turns up and
# passes the level of the untouched model. This is [*overfitting*](glossary.md#overfitting): the model lowers its loss
# by storing these particular sentences, and the weights that store them no longer suit other text.
#
# What does such a model write? Give it the first five words of each sentence.

# %%
beginnings = [" ".join(fact.split()[:5]) for fact in facts.train]
endings = [
    fact[len(start) :].strip()
    for start, fact in zip(beginnings, facts.train, strict=True)
]
written = tl.generate(overfitted.model, tiny.tokenizer, beginnings)
recited = sum(
    ending[:30] in text for ending, text in zip(endings, written, strict=True)
)

# %% tags=["nbval-ignore-output"]
print(recited, "of", len(facts.train))
for start, text in list(zip(beginnings, written, strict=True))[:3]:
    print(f"{start} | {text.removeprefix(start)}\n")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Remedies, one at a time
#
# The published reports recommend several remedies together, and then nobody can say which one helped. Here each is
# tried alone: stop early, train for fewer epochs, *dropout* (a tenth of the attention is set to zero at random in each
# training step), a fifth of the learning rate, and training only the last two blocks of the model (`last_layers`,
# [lesson 7](07_freezing.ipynb)). The last one runs twice, with two learning rates.
#
# **Predict first.** Which of them will end with the lowest validation loss?


# %%
def attempt(name, strategy="full", dropout=0.0, **changes):
    model = tl.apply_strategy(tl.load_model("tiny").model, strategy).model
    for block in tl.find_blocks(model):
        block.self_attn.attention_dropout = dropout
    config = replace(settings, **changes)
    runs[name] = tl.train(model, few, config, validation=unseen, progress=True)


attempt("early stopping", patience=2)
attempt("2 epochs", epochs=2)
attempt("dropout 0.1", dropout=0.1)

# %%
attempt("rate 2e-4", learning_rate=2e-4)
attempt("last_layers", strategy="last_layers")
attempt("last_layers, rate 5e-3", strategy="last_layers", learning_rate=5e-3)

# %%
overfitting_chart(runs, untouched=untouched)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The grey curve in each panel is the first run. A low validation loss can also mean that the model has hardly learned
# the sentences yet, so each panel says where its training loss ends, and the table puts the two losses side by side.
# (Early stopping brings back the weights of the ringed point. Its training loss of 4.38 was measured as each sentence
# was read for the first time; the same weights score about 1.8 at the next step, the first of the second epoch.)

# %%
ends = {name: run.validation.validation_loss.iloc[-1] for name, run in runs.items()}
learned = {name: run.history.loss.tail(3).mean() for name, run in runs.items()}
table = pd.DataFrame({"training": learned, "validation": ends})
early = runs["early stopping"]
best = early.validation.loc[early.validation.validation_loss.idxmin()]
stopped, step = best.validation_loss, int(best.step)
table.loc["early stopping"] = early.history.loss[:step].tail(3).mean(), stopped

# %% tags=["nbval-ignore-output"]
print(f"untouched: validation {untouched:.2f} nats per token")
table.round(2)

# %%
course.claim(
    "Early stopping ends lowest", table.validation.idxmin() == "early stopping"
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **The runs that end low have one thing in common:** their training loss is still above one nat. Early stopping,
# fewer epochs, a lower rate, and `last_layers` with a rate that is too low for it all end before the sentences are
# fully stored. The model learns first what these sentences share with other text about Rust, and such a run stores
# less of the rest. Early stopping ends lowest because it watches the validation loss and stops there on purpose. It
# was chosen by the very text that scores it, so part of its lead may be luck; a fair comparison needs other text. A
# little dropout changed little. Even at best, 25 sentences lower the perplexity by about 14%.
#
# **More weight decay**, which is often recommended, **cannot do much here.** With $\lambda = 0.1$ each step shrinks a
# weight by the learning rate times 0.1, at most a ten-thousandth. In 42 steps that is less than half a percent.
#
# **Training fewer weights was not the reason.** `last_layers` ends much lower than `full` at the same rate, but so does
# `full` itself with a fifth of the rate. `last_layers` only looked better because that learning rate was too low for so
# few weights. With 5e-3 it learns the sentences as well as `full` and ends higher. That does not show that
# `last_layers` is worse either, because 5e-3 was tuned for other data (60 passages of Rust, read once), and each curve
# is one run with one seed. The runs do show that a strategy has to be judged together with its learning rate, and at
# the same training loss.
#
# None of these remedies replaces having more text. [Lesson 15](15_comparison.ipynb) shows what more text does.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A training step is forward, loss, backward, optimizer step and schedule. Compare its first loss with the baseline
#   before you trust anything else.
# - Full fine-tuning adapts well and forgets, because the same weights serve old and new text. Measure both.
# - On too little text a model recites it. Watch validation loss, stop in time, and compare remedies at equal training
#   loss.
#
# **Further reading.**
# [Howard and Ruder 2018](https://arxiv.org/abs/1801.06146) made fine-tuning of language models a standard method.
# [Gururangan et al. 2020](https://arxiv.org/abs/2004.10964) measure what further training on text of one field gains.
# [Loshchilov and Hutter 2019](https://arxiv.org/abs/1711.05101) introduce AdamW.
# [Luo et al. 2023](https://arxiv.org/abs/2308.08747) measure forgetting in large language models, and
# [Carlini et al. 2023](https://arxiv.org/abs/2202.07646) how much text such models memorise.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex04_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** After 20 epochs on 25 sentences the training loss is 0.1. What do you know about other text?
#
# - **a** The model now predicts all text better.
# - **b** Nothing, until other text is scored.
# - **c** The model is ruined for other text.

# %%
course.quiz("quiz04")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 4.1** (first steps). A training run reports a first loss of 3.1 nats per token. What is its perplexity?

# %%
import math

answer = None
# your code here
course.check("ex04_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 4.2** (apply it). This lesson measured a gain and a cost. Write a function that gives both in percent: by
# how much perplexity on Rust fell (the gain), and by how much perplexity on general text rose (the cost).


# %%
def gain_and_cost(before, after, general_before, general_after):
    """Both in percent of what was there before."""
    # your code here


course.check("ex04_2", gain_and_cost)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 4.3** (think further). Early stopping ends training after `patience` evaluations in a row without a new
# best loss, and brings the best weights back. Which evaluation do these weights come from? The first one has the number
# 0.


# %%
def best_evaluation(validation_losses, patience):
    """The place of the weights that early stopping brings back."""
    # your code here


course.check("ex04_3", best_evaluation)

# %% [markdown]
# Previous: [3 · Data and a baseline to trust](03_baseline.ipynb) ·
# Next: [5 · LoRA](05_lora.ipynb)
