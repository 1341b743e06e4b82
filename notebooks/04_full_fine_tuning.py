# %% [markdown] slideshow={"slide_type": "slide"}
# # 4 · Full fine-tuning
#
# *How do you train a whole model, at which learning rate, and when do you stop?*
#
# Full [fine-tuning](glossary.md#fine-tuning) is the plainest way to adapt a model: every parameter may move. Three
# decisions make it work or fail, with this method and every other: the learning rate, when to stop, and what to
# measure. In this lesson you make all three by experiment.
#
# **You will be able to**
#
# - write a training loop in plain PyTorch;
# - search for a learning rate on validation text, see whether the search was wide enough, and score the result once;
# - stop a run early, say from paired differences whether stopping helped, and let `Trainer` save the best model.
#
# **You need** a training step ([lesson 2](02_inside_a_language_model.ipynb)), and perplexity with its interval
# ([lesson 3](03_baseline.ipynb)).
#
# About 34 minutes.

# %% slideshow={"slide_type": "subslide"}
import math
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers import EarlyStoppingCallback, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

import course
import tlkit as tl

# %%
tl.setup()
rust, general = tl.load_corpus("rust"), tl.load_corpus("general")
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)


def new_model():  # the file is in fp16, too coarse for the small steps of training
    return AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## The schedule of a run
#
# With [AdamW](glossary.md#adamw), the learning rate is roughly how far a parameter moves in one step. It is not the
# same in every step. In the first step every parameter moves by the full rate (lesson 2), and AdamW's averages rest on
# few batches at first, so early steps are erratic. Therefore the rate rises over the first tenth of the steps, the
# *warm-up*. Afterwards it falls along half a cosine, so that the last steps only make small corrections. The learning
# rate that people quote is the highest one. `factor` says which share of it a step uses. Here is a run of 40 steps:


# %%
def factor(step, steps):
    warmup = max(1, round(0.1 * steps))
    if step < warmup:
        return (step + 1) / warmup
    return (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2


# %%
shares = pd.Series([factor(step, 40) for step in range(40)])
axes = shares.plot(style=".-", figsize=(7, 2), xlabel="step", ylabel="share")
axes.set_title("The rate rises for a tenth of the steps, then falls to zero")
plt.show()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The loop
#
# [Lesson 2](02_inside_a_language_model.ipynb) built a training step from nothing: a batch of token ids goes through the
# model, the loss goes backward as a gradient for every parameter, and AdamW turns the gradients into small changes.
# Here all of these parts come from PyTorch. Two things are new.
#
# - One strange batch can have a gradient many times larger than the others and throw the model off. So if the norm of
#   the gradient over all parameters exceeds 1, it is [clipped](glossary.md#gradient-clipping): scaled down to the norm
#   1.
# - `model.train()` switches the parts on that act in training only, such as dropout, which sets random activations to
#   zero, and `model.eval()` switches them off. Our model has none, but with others a forgotten switch spoils the
#   scores.
#
# After each step the loop calls the function `watch`, which does nothing unless you pass one. Let us train for eight
# steps, at a rate that is a mere guess.


# %%
def train(model, batches, rate, watch=lambda step: None):
    adamw = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = LambdaLR(adamw, lambda step: factor(step, len(batches)))
    losses = []
    for step, batch in enumerate(batches, 1):
        model.train()
        loss = model(input_ids=batch, labels=batch).loss  # it shifts the labels itself
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        schedule.step()
        adamw.zero_grad()  # or the next gradient would be added to this one
        losses.append(loss.item())
        watch(step)
    return losses


# %%
def batches_of(blocks, seed):  # the seed alone decides the order
    order = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(seed))
    return list(blocks[order].split(4))


short = tl.pack(rust.train, tokenizer, 64)[:32]  # 32 rows of 64 tokens
guess = train(new_model(), batches_of(short, seed=0), rate=1e-4)
print(f"loss of the first batch {guess[0]:.1f}, of the last {guess[-1]:.1f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The loop runs, but these two losses cannot be compared, because each batch is other text. To compare models, score
# them on the same passages. Each is read alone, after one end-of-text token, and only its first 128 tokens count, to
# save time. So do not compare these perplexities with those of lesson 3. We keep one row for each passage, as we
# resample passages later.


# %%
@torch.no_grad()
def score(model, texts):
    model.eval()
    rows = []
    for text in texts:
        ids = [tokenizer.eos_token_id, *tokenizer(text)["input_ids"]][:129]
        batch = torch.tensor([ids])
        tokens = len(ids) - 1  # the end-of-text token in front is not predicted
        rows.append((model(input_ids=batch, labels=batch).loss.item() * tokens, tokens))
    return pd.DataFrame(rows, columns=["nats", "tokens"])


def mean_loss(scored):
    return scored.nats.sum() / scored.tokens.sum()


# %% [markdown] slideshow={"slide_type": "slide"}
# ## Search for the learning rate
#
# The best rate depends on the model, on the method and on the length of the run, so you have to try. Four rules make
# such a search sound:
#
# 1. **A log grid.** Rates differ by factors, so try 1e-4, 3e-4, 1e-3 and not 1e-4, 2e-4, 3e-4.
# 2. **Validation text.** The best of several scores is partly luck, so the text that chose it cannot judge it.
# 3. **No best rate at the border.** If the highest or the lowest rate wins, a better one may lie outside: go on.
# 4. **Several seeds.** Otherwise you cannot tell a better rate from a lucky order of batches.
#
# To save time, the runs of the search are short: eight steps, which leaves nothing of the warm-up, as its one step
# already has the full rate. The cell below adds a higher rate as long as the highest one wins. It does not look below
# the lowest; that you write in the exercise. **Which of the first three rates wins, and is the search done then?**


# %%
def search(rates, seeds):
    rows = []
    for rate in rates:
        for seed in seeds:
            model = new_model()
            train(model, batches_of(short, seed), rate)
            rows.append((rate, seed, mean_loss(score(model, rust.validation[:8]))))
            print("rate {:g}, seed {}: validation loss {:.3f}".format(*rows[-1]))
    return pd.DataFrame(rows, columns=["rate", "seed", "loss"])


# %% tags=["nbval-ignore-output"]
runs = search([1e-4, 3e-4, 1e-3], seeds=[0])
while runs.loss.idxmin() == runs.index[-1]:  # the best is the highest rate so far
    runs = pd.concat([runs, search([3 * runs.rate.max()], [0])], ignore_index=True)

# %% [markdown] slideshow={"slide_type": "subslide"}
# After three rates the best one was the last, so a higher one might have been better still. The fourth rate settles it:
# the best now has a worse neighbour on both sides.
#
# One seed is one order of the batches, and a rate could win by a lucky order. The runs with two more seeds take as long
# again, so they are read from a file, which `search([1e-4, 3e-4, 1e-3, 3e-3], seeds=[1, 2])` would make again. **How
# far apart will three seeds be, compared with two neighbouring rates?**

# %%
more = pd.read_csv(tl.DATA / "sweeps/tiny/short_search.csv", comment="#")
losses = pd.concat([runs, more]).pivot(index="rate", columns="seed", values="loss")
best = losses.mean(axis=1).idxmin()

axes = losses.add_prefix("seed ").plot(style="o", logx=True, figsize=(7.5, 3.4))
losses.mean(axis=1).plot(ax=axes, color="black", label="mean", legend=True)
axes.set_title(f"{best:g} beats both of its neighbours with every seed")
axes.set(xlabel="highest learning rate (log scale)", ylabel="validation loss (nats)")
plt.show()

# %% tags=["nbval-ignore-output"]
worse_by = losses.drop(best) - losses.loc[best]
spread = losses.max(axis=1) - losses.min(axis=1)
print(f"one rate from seed to seed: up to {spread.max():.2f} nats per token")
worse_by.round(2)

# %%
course.claim("Every other rate is worse with every seed", (worse_by > 0).all(axis=None))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Within one seed all rates see the same batches in the same order. So read the table column by column: each number says
# by how many nats per token a rate is worse than 0.001 with the same seed. The nearest rate, 3e-4, is worse by 0.11 to
# 0.14. From seed to seed the loss of a single rate moves, too, at 0.003 by 0.12 nats. So compare rates within a seed:
# where two are closer than here, the run of one seed says nothing about that of another.
#
# The search has a limit, because its runs are short and longer runs often prefer a lower rate. The course has a record
# of eight rates with 17 steps, each on twice as many tokens (`data/sweeps/tiny/rates.csv`). There 0.001 is still best,
# with a validation perplexity of 78. Its neighbours 0.0005 and 0.002 end at 87 and 83, while 0.01 ends at 271 and 0.02
# at 3,396. Before you train for thousands of steps, search again with runs of a useful length.
#
# Later lessons train other parameters, which need other rates; most of the tuned rates that they name come from this
# record. For a model of some billion parameters, people begin the grid of full fine-tuning near 1e-5.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A longer run, scored once
#
# Now train on twice as much text with the rate that you found. Before you look at the result, check the first loss. It
# is computed before any weight has moved, so it must lie near the loss of the untouched model (within a nat; this is
# other text). If the two are far apart, one of them is computed wrongly. In a published run, the first five steps had a
# mean loss of 4.6 nats, while the report gave the same model a perplexity of 254,801, a loss of 12.4 ([lesson
# 16](16_autopsy.ipynb)).

# %%
batches = batches_of(tl.pack(rust.train[:30], tokenizer, 64), seed=0)
untouched, tuned = new_model(), new_model()
train_losses = train(tuned, batches, best)
before = mean_loss(score(untouched, rust.validation[:8]))
print(f"{len(batches)} steps; first loss {train_losses[0]:.1f}, untouched {before:.1f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The two losses agree. Now we measure two things. Rust *test* text, which no decision has seen, shows what was gained.
# Python's language reference, which resembles the text of the pretraining, shows what was lost.
#
# Both models are scored on the same passages. So `difference` subtracts the losses passage by passage and then
# resamples the passages, as the bootstrap of lesson 3 does. A passage that is hard for both models then cancels out.
#
# **No training text was about Python. Will the model get better at it, get worse, or stay as it is?**


# %%
def difference(first, second, draws=2000):
    apart = first.nats.to_numpy() - second.nats.to_numpy()
    tokens = first.tokens.to_numpy()
    drawn = np.random.default_rng(0).integers(len(apart), size=(draws, len(apart)))
    means = apart[drawn].sum(axis=1) / tokens[drawn].sum(axis=1)
    return apart.sum() / tokens.sum(), *np.quantile(means, [0.025, 0.975])


# %% tags=["nbval-ignore-output"]
changes = {}
for name, texts in [("Rust", rust.test[:20]), ("Python", general.test[:16])]:
    old, new = score(untouched, texts), score(tuned, texts)
    changes[name] = difference(new, old)
    first, last = math.exp(mean_loss(old)), math.exp(mean_loss(new))
    print(f"{name}: perplexity {first:.0f} before, {last:.0f} after")
    print("  loss {:+.2f} ({:+.2f} to {:+.2f}) nats per token".format(*changes[name]))

# %%
course.claim("Rust test text became easier", changes["Rust"][2] < 0)
course.claim("The Python reference became harder", changes["Python"][1] > 0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The model is better at Rust and worse at what it could do before, and neither interval contains zero. A likely reason
# is that both abilities are stored in the same parameters. The gradient says what would lower the loss on a batch of
# Rust, and nothing in it protects the older text. This is [*catastrophic
# forgetting*](glossary.md#catastrophic-forgetting), and large models show it, too (Luo et al. below).
#
# The test text has now been used. If you changed the rate and scored again, you would be choosing by it, and it would
# have become validation text.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Too little text: when to stop
#
# The last run saw each text once. Now train on only 25 sentences, and go through them six times, in batches of four as
# in the search (the last of each pass has two). After each [epoch](glossary.md#epoch), that is, each pass over the
# text, `watch` scores the model on twenty validation passages. Eight of them decide which epoch is best, and the other
# twelve judge the decision: on the eight, the chosen epoch looks better than it is, because they chose it.
#
# **When does the loss on other text stop falling? Where does the training loss end?**

# %%
few = tl.pack(tl.load_corpus("facts").train, tokenizer, 64)  # 14 rows
repeated = [batch for epoch in range(6) for batch in batches_of(few, epoch)]
model = new_model()
watched = rust.validation[8:28]
epochs = [score(model, watched)]  # epoch 0 is the untouched model


def after_each_epoch(step):
    if step % 4 == 0:  # 14 rows are four batches
        epochs.append(score(model, watched))


few_losses = train(model, repeated, best, after_each_epoch)
deciding = [mean_loss(scored[:8]) for scored in epochs]
stop = int(np.argmin(deciding))
judged = [difference(scored[8:], epochs[stop][8:]) for scored in epochs]

# %%
figure, axes = plt.subplots(figsize=(7.5, 3.4))
axes.plot(np.arange(1, 25) / 4, few_losses, color="0.6", label="training")
axes.plot(deciding, "o-", label="validation, eight passages")
axes.set(title="Training falls, validation turns", xlabel="epoch", ylabel="nats")
axes.legend()
plt.show()

# %% tags=["nbval-ignore-output"]
print(f"best: epoch {stop}; loss above it on the twelve judging passages:")
for epoch, row in enumerate(judged):
    print("epoch {}: {:+.2f} ({:+.2f} to {:+.2f})".format(epoch, *row))

# %%
course.claim("The last epoch is worse than the best one", judged[-1][1] > 0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The model of epoch 1 beats the last one by 0.54 nats per token (0.48 to 0.61), and the untouched one by 0.10 (0.07 to
# 0.13). So these 25 sentences helped a little, but only while the model was reading them for the first time. From the
# second epoch on, the model lowers its training loss further by storing these particular sentences, as you will see
# below, and it predicts other text worse and worse. This is [*overfitting*](glossary.md#overfitting), and the training
# loss does not show it.
#
# The interval covers the choice of passages, but not that of the seed or of the 25 sentences.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The way it is done at work: `Trainer`
#
# Your loop went on after epoch 1, so the weights of the best epoch are lost. At work, `Trainer` keeps them. It is your
# loop with evaluation, checkpoints and several devices around it. A *checkpoint* is a folder on disk with the state of
# a run. `EarlyStoppingCallback(1)` ends training after one evaluation without a new best loss, which is called [early
# stopping](glossary.md#early-stopping), and `load_best_model_at_end` then loads the best checkpoint.
#
# The defaults of `Trainer` are not ours: a rate of 5e-5, no warm-up, a straight line down to zero, and no weight decay.
# So we set all four. (A share as `warmup_steps` needs version 5 of transformers.) Small differences remain; its
# warm-up, for example, begins at a rate of zero.
#
# The run is that of the last section, with the batches in another order. The eight deciding passages are packed into
# blocks here, so their loss is not quite the same number. **After which epoch will it stop?**


# %%
def dataset(blocks):
    return [{"input_ids": block, "labels": block} for block in blocks]


trainer = Trainer(
    new_model(),
    TrainingArguments(
        mkdtemp(), num_train_epochs=6, per_device_train_batch_size=4, seed=0,
        learning_rate=best, warmup_steps=0.1,  # below 1: a share of all steps
        lr_scheduler_type="cosine", weight_decay=0.01,
        eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True,
        use_cpu=True, report_to="none", disable_tqdm=True,
    ),
    train_dataset=dataset(few),
    eval_dataset=dataset(tl.pack(watched[:8], tokenizer, 128)),
    processing_class=tokenizer,  # it is saved beside the model
    callbacks=[EarlyStoppingCallback(1)],
)  # fmt: skip
trainer.remove_callback(PrinterCallback)  # which would print every record
trainer.train()
for entry in trainer.state.log_history:
    if "eval_loss" in entry:
        print("epoch {epoch:.0f}: validation loss {eval_loss:.2f}".format(**entry))

# %% [markdown] slideshow={"slide_type": "subslide"}
# It stopped after epoch 2 and went back to epoch 1. (Leave out `use_cpu=True` if you have a GPU. Texts of different
# lengths need padding and a collator, as in [lesson 11](11_your_data.ipynb).) Now write the model and its tokenizer
# into a folder (here a temporary one), load the model from there as anybody else would, and score it on the judging
# passages.

# %%
folder = mkdtemp()
trainer.save_model(folder)
kept = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
gain = difference(score(kept, watched[8:]), epochs[0][8:])
print("against the untouched model: {:+.2f} ({:+.2f} to {:+.2f})".format(*gain))
course.claim("Loaded from disk, the best model beats the untouched one", gain[2] < 0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# What did the late epochs learn instead? Give three models the first words of a training sentence: the untouched one,
# the last one of your loop, and the one from the disk.

# %% tags=["nbval-ignore-output"]
print(f"training text: {tl.load_corpus('facts').train[0]!r}")
prompt = tokenizer("<|endoftext|>In Rust, Vec<T> is a", return_tensors="pt")
for name, one in {"untouched": untouched, "epoch 6": model, "saved": kept}.items():
    written = one.generate(**prompt, max_new_tokens=30, do_sample=False)
    print(f"{name}: {tokenizer.decode(written[0], skip_special_tokens=True)!r}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The model of epoch 6 recites its training sentence word by word. The saved one writes something of its own, and it is
# wrong: a model of this size does not learn Rust from 25 sentences. But the saved model predicts unseen text about Rust
# better than before training, and the model of epoch 6 predicts it worse.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Search the learning rate on a log grid with validation text, go on while the best rate is at the border, and touch
#   the test text once.
# - Full fine-tuning learns the new text and forgets some of the old, because the same parameters serve both. Measure
#   both.
# - On too little text the validation loss turns while the training loss falls. Let `Trainer` keep the best checkpoint,
#   and judge it by paired differences on text that did not choose it.
#
# ## Further reading
#
# - [Howard and Ruder 2018](https://arxiv.org/abs/1801.06146) made fine-tuning of language models a standard method.
# - [Loshchilov and Hutter 2019](https://arxiv.org/abs/1711.05101) introduce AdamW.
# - [Google's tuning playbook](https://github.com/google-research/tuning_playbook) on how to search, and how wide.
# - [Luo et al. 2023](https://arxiv.org/abs/2308.08747) measure forgetting in large language models.

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
# **Exercise 4.1.** A search that extends itself. `losses` maps each learning rate that was tried to its mean validation
# loss, which is `nan` if the run diverged; such a rate counts as tried, and as worse. Return a list: empty if the best
# rate has a worse one on both sides, else with the one rate to try next, a factor beyond the border.

# %%
import math


def next_rates(losses, factor=3.0):
    """The rates to try next: none, or one."""
    # your code here


course.check("ex04_1", next_rates)

# %% [markdown]
# Previous: [3 · A baseline to trust](03_baseline.ipynb) ·
# Next: [5 · LoRA](05_lora.ipynb)
