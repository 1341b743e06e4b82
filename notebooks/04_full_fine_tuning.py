# %% [markdown] slideshow={"slide_type": "slide"}
# # 4 · Full fine-tuning
#
# *How do you train a whole model, at which learning rate, and when do you stop?*
#
# Full [fine-tuning](glossary.md#fine-tuning) is the plainest way to adapt a model: every parameter may move. Three
# decisions make it work or fail: the learning rate, when to stop, and what to measure.
#
# **You will be able to**
#
# - write a training loop in plain PyTorch;
# - search for a learning rate on validation text, see whether the search was wide enough, and score the result once;
# - stop a run early, keep its best weights, and say from paired differences whether stopping helped;
# - train with `Trainer`, save the model, load it, and measure what it has learned and what it has forgotten.
#
# **You need** a training step ([lesson 2](02_inside_a_language_model.ipynb)), and perplexity with its interval ([lesson
# 3](03_baseline.ipynb)).
#
# About 36 minutes.

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
# With [AdamW](glossary.md#adamw), the learning rate is roughly how far a parameter moves in one step. If it were
# constant, the first step would move every parameter by the whole rate (lesson 2), in a direction that a single batch
# has chosen. So the rate begins small and rises over the first tenth of the steps, the *warm-up*. Afterwards it falls
# along half a cosine, so that the last steps only make small corrections. The rate that people quote is the highest of
# the run, and `factor` returns the share of it that a step uses.


# %%
def factor(step, steps):
    warmup = max(1, round(0.1 * steps))
    if step < warmup:
        return (step + 1) / warmup
    return (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup))) / 2


# %% [markdown] slideshow={"slide_type": "slide"}
# ## The loop
#
# [Lesson 2](02_inside_a_language_model.ipynb) built a training step from nothing. Here its parts come from PyTorch, and
# two things are new.
#
# - One strange batch can have a gradient many times larger than the others and throw the model off. So a gradient whose
#   norm over all parameters exceeds 1 is [clipped](glossary.md#gradient-clipping): scaled down to the norm 1.
# - `model.train()` switches on what acts in training only, such as dropout, which sets random activations to zero, and
#   `model.eval()` switches it off. Our model has none, but with others a forgotten switch spoils the scores.
#
# After each step the loop calls `watch`, a function that you may pass to look at the model. We first try a guessed
# rate.


# %%
def train(model, batches, rate, watch=lambda step, model: None):
    adamw = torch.optim.AdamW(model.parameters(), rate, weight_decay=0.01, fused=True)
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
        watch(step, model)
    return losses


# %%
def batches_of(blocks, seed):  # the seed alone decides the order
    order = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(seed))
    return list(blocks[order].split(4))


short = tl.pack(rust.train, tokenizer, 64)[:32]  # 32 rows of 64 tokens
guess = train(new_model(), batches_of(short, seed=0)[:3], rate=1e-4)
print(f"loss of the first batch {guess[0]:.1f}, of the last {guess[-1]:.1f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The loop runs. That the loss rose says nothing, because every batch is different text. To compare models, score them
# on the same passages. Each passage is read alone, after one end-of-text token, and to save time only its first 128
# tokens count. Each row of the result holds a passage's summed loss, its tokens, and at how many of them the model's
# likeliest token was right.


# %%
@torch.no_grad()
def score(model, texts):
    model.eval()
    rows = []
    for text in texts:
        ids = [tokenizer.eos_token_id, *tokenizer(text)["input_ids"]][:129]
        batch = torch.tensor([ids])
        tokens = len(ids) - 1  # the end-of-text token in front is not predicted
        out = model(input_ids=batch, labels=batch)
        right = (out.logits[0, :-1].argmax(dim=-1) == batch[0, 1:]).sum().item()
        rows.append((out.loss.item() * tokens, tokens, right))
    return pd.DataFrame(rows, columns=["nats", "tokens", "right"])


# %%
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
# To save time, the runs have only eight steps, too few for a warm-up. The second cell adds a higher rate as long as the
# highest one wins. **Which of the first three rates wins, and is the search done then?**


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
# The highest of the three rates won, so a higher one might have been better. The fourth settles it: 0.001 now has a
# worse neighbour on both sides. But one seed may be luck. Runs with two more seeds are read from a file, which
# `search([1e-4, 3e-4, 1e-3, 3e-3], seeds=[1, 2])` would make again. **Will the seeds differ less than the two best
# rates?**

# %%
more = pd.read_csv(tl.DATA / "sweeps/tiny/short_search.csv", comment="#")
losses = pd.concat([runs, more]).pivot(index="rate", columns="seed", values="loss")
best = losses.mean(axis=1).idxmin()

axes = losses.add_prefix("seed ").plot(style="o", logx=True, figsize=(7.5, 3.4))
losses.mean(axis=1).plot(ax=axes, color="black", label="mean", legend=True)
axes.set_title(f"{best:g} beats both of its neighbours with every seed")
axes.set(xlabel="highest learning rate (log scale)", ylabel="loss (nats per token)")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# Yes. Within one seed all rates see the same batches in the same order, so compare points of one colour: 3e-4, the
# second-best rate, is worse than 0.001 by 0.11 to 0.14 nats per token. The three seeds differ by only 0.04 at 3e-4, and
# 0.06 at 0.001.
#
# Longer runs often prefer a lower rate, so search again with runs of a useful length. A recorded search, with one pass
# over the 60 passages used below, finds 0.001 again: a perplexity of 77.5, against 86.6 at half the rate and 83.0 at
# twice. For models of some billion parameters, people begin the grid near 1e-5.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## When to stop
#
# In the search each run saw its text once. If you have little text, can you repeat it? Go six times through only 25
# sentences about Rust. They fill 14 rows, so in batches of four an [epoch](glossary.md#epoch), or pass over the text,
# takes four steps.
#
# After each epoch `watch` scores the model on eight new validation passages. They decide which epoch is best, and `kept`
# receives a copy of its weights, because the next step changes them. Twelve others judge the choice, because an epoch
# looks too good on the eight that chose it. **After which epoch does the validation loss rise, and where does the
# training loss end?**

# %%
few = tl.pack(tl.load_corpus("facts").train, tokenizer, 64)  # 14 rows
repeated = [batch for epoch in range(6) for batch in batches_of(few, epoch)]
per_epoch = len(repeated) // 6  # steps
watched, judging = rust.validation[8:16], rust.validation[16:28]
untouched, model, kept = new_model(), new_model(), new_model()
deciding = [mean_loss(score(untouched, watched))]


# %%
def after_each_epoch(step, model):
    if step % per_epoch == 0:
        deciding.append(mean_loss(score(model, watched)))
        if deciding[-1] == min(deciding):  # the best so far
            kept.load_state_dict(model.state_dict())  # copies the weights


few_losses = train(model, repeated, best, after_each_epoch)

# %%
figure, axes = plt.subplots(figsize=(7.5, 3.4), layout="constrained")
axes.plot(np.arange(1, len(repeated) + 1) / per_epoch, few_losses, color="0.6")
axes.plot(deciding, "o-", color="#0072B2")
axes.annotate("validation text", (4, deciding[4] - 0.5), color="#0072B2")
axes.annotate("training text", (4, 0.8), color="0.4")
axes.set(xlabel="epoch", ylabel="loss (nats per token)", ylim=(0, 6))
axes.set_title("After epoch 1 the validation loss rises while the training loss falls")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# The validation loss rises after the first epoch, while the training loss averages 0.3 in the last. How much better is
# the best epoch? All models read the same passages, so `difference` subtracts their losses passage by passage, and what
# is hard for both cancels out. Then it resamples the passages, as the bootstrap of lesson 3 does.


# %%
def difference(first, second, column="nats", draws=2000):
    gaps = first[column].to_numpy() - second[column].to_numpy()
    tokens = first.tokens.to_numpy()
    drawn = np.random.default_rng(0).integers(len(gaps), size=(draws, len(gaps)))
    means = gaps[drawn].sum(axis=1) / tokens[drawn].sum(axis=1)
    return gaps.sum() / tokens.sum(), *np.quantile(means, [0.025, 0.975])


# %% tags=["nbval-ignore-output"]
stop, best_score = int(np.argmin(deciding)), score(kept, judging)
print(f"epoch {stop} is kept; compared with it on the judging passages,")
judged = {}
for name, other in [("no training", untouched), ("epoch 6", model)]:
    judged[name] = difference(score(other, judging), best_score)
    print("{} is worse by {:.2f} ({:.2f} to {:.2f})".format(name, *judged[name]))
sentence = tl.load_corpus("facts").train[0]
print(f"training text: {sentence!r}")
ids = tokenizer(tokenizer.eos_token + sentence[:20], return_tensors="pt")
written = model.generate(**ids, max_new_tokens=30, do_sample=False)[0]
print(f"epoch 6 writes: {tokenizer.decode(written, skip_special_tokens=True)!r}")

# %%
course.claim("The last epoch is worse than the best one", judged["epoch 6"][1] > 0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The model of epoch 1 beats the last one by 0.54 nats per token (0.48 to 0.61), and the untouched one by 0.10 (0.07 to
# 0.13). So these 25 sentences helped a little, but only on the first pass. From the second epoch on, the model lowers
# its training loss by storing these particular sentences: it recites one of them word for word. Meanwhile it predicts
# new text worse and worse. This is [*overfitting*](glossary.md#overfitting), and the training loss does not show it.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The way it is done at work: `Trainer`
#
# Now train on 60 passages with the rate 0.001, for at most three epochs. At work you leave this to `Trainer`: it is a
# loop like yours, with clipping, evaluation and checkpoints. A *checkpoint* is a folder on disk with the state of a
# run. It also holds AdamW's two averages, so it is three times as large as the model, and `save_total_limit=1` keeps
# only the best and the newest.
#
# `EarlyStoppingCallback(1)` ends training after one evaluation without a new best loss, which is called [early
# stopping](glossary.md#early-stopping). Then `load_best_model_at_end` loads the best checkpoint.
#
# The defaults of `Trainer` are not ours: a rate of 5e-5, no warm-up, a straight line down to zero, and no weight decay.
# So we set all four, and evaluate twice an epoch (34 steps). **When will it stop?**

# %%
many = tl.pack(rust.train[:60], tokenizer, 64)
eight = tl.pack(watched, tokenizer, 128)
trainer = Trainer(
    new_model(), TrainingArguments(
        mkdtemp(), num_train_epochs=3, per_device_train_batch_size=4, seed=0,
        learning_rate=best, warmup_steps=0.1,  # a share of all steps (transformers 5)
        lr_scheduler_type="cosine", weight_decay=0.01,
        eval_strategy="steps", eval_steps=17, save_steps=17, logging_steps=17,
        save_total_limit=1, load_best_model_at_end=True, eval_on_start=True,
        use_cpu=True, report_to="none", disable_tqdm=True, logging_first_step=True,
    ),
    train_dataset=[{"input_ids": row, "labels": row} for row in many],
    eval_dataset=[{"input_ids": row, "labels": row} for row in eight],
    callbacks=[EarlyStoppingCallback(1)], processing_class=tokenizer,  # saved, too
)  # fmt: skip
trainer.remove_callback(PrinterCallback)  # which would print every record
trainer.train()
log = pd.DataFrame(trainer.state.log_history[:-1])  # the last entry sums up the run
log.round(2).groupby("epoch")[["loss", "eval_loss"]].first().astype(object).fillna("")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It stopped after epoch 1.5, because the validation loss had risen, and went back to epoch 1. With a GPU, leave out
# `use_cpu=True`. For texts of different lengths see [lesson 11](11_your_data.ipynb).
#
# Epoch 1 ended a third of the way through the schedule, where the rate is still 86% of its highest. Once you know that
# one epoch is enough, plan the next run for one, so that its rate falls to zero.
#
# Before you believe a run, compare the two losses of the untouched weights: 4.9 on the first training batch, and 5.3 on
# validation text. Texts differ by some tenths of a nat, but a gap of a nat or more would point to an error.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Save it, load it, score it once
#
# Write the model and its tokenizer into a folder, and load the model as anybody else would. Then measure two things.
# Rust *test* text, which no decision has seen, shows what was gained. Python's language reference, which resembles the
# pretraining text, shows what was lost. **No training text was about Python. Will the model get better or worse at it,
# or neither?**

# %% tags=["nbval-ignore-output"]
folder = mkdtemp()
trainer.save_model(folder)
tuned = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
scores, changes = {}, {}
for name, texts in [("Rust", rust.test[:20]), ("Python", general.test[:16])]:
    old, new = scores[name] = score(untouched, texts), score(tuned, texts)
    changes[name] = difference(new, old)
    first, last = math.exp(mean_loss(old)), math.exp(mean_loss(new))
    print(f"{name}: perplexity {first:.0f} before, {last:.0f} after")
    print("  loss {:+.2f} ({:+.2f} to {:+.2f}) nats per token".format(*changes[name]))
    shares = [100 * scored.right.sum() / scored.tokens.sum() for scored in (old, new)]
    points = 100 * np.array(difference(new, old, "right"))
    print("  right next tokens: {:.1f}%, then {:.1f}%".format(*shares), end=": ")
    print("{:+.1f} points ({:+.1f} to {:+.1f})".format(*points))

# %%
course.claim("Rust test text became easier", changes["Rust"][2] < 0)
course.claim("The Python reference became harder", changes["Python"][1] > 0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# On Rust the perplexity is half of what it was, and the likeliest token is right 4 points more often. On Python it is
# right 7 points less often: the model got worse. The intervals cover the choice of passages, but not the seed.
#
# A likely reason is that both abilities are stored in the same parameters. The gradient lowers the loss on Rust, and
# nothing in it protects the older text. This is [*catastrophic forgetting*](glossary.md#catastrophic-forgetting), and
# large models show it, too (Luo et al.). One remedy is *replay*, which mixes old text into the new: see exercise 4.1.
#
# The test text has now been used. If you changed the rate and scored again, it would have become validation text. A
# lower rate forgets less, but also learns less. In the recorded search (half as many steps, scored as in lesson 3),
# Python's perplexity goes from 39 to 53 at the best rate. At half of it, only to 44, but Rust's ends 12% higher.
#
# These Rust passages have the largest, the median and the smallest gain. Each model reads them and guesses every next
# token. Tokens that only yours guessed right are marked «like this», those that only the untouched one guessed ~like
# this~. **What has your model learned?**


# %% tags=["nbval-ignore-output"]
@torch.no_grad()
def marked(text):
    ids = torch.tensor([[tokenizer.eos_token_id, *tokenizer(text)["input_ids"]][:80]])
    guesses = (either(ids).logits[0, :-1].argmax(-1) for either in (untouched, tuned))
    forms, shown = {0: "{}", 1: "«{}»", -1: "~{}~"}, ""
    for token, theirs, yours in zip(ids[0, 1:], *guesses, strict=True):
        gained = int(yours == token) - int(theirs == token)
        shown += forms[gained].format(tokenizer.decode(token))
    return shown


old, new = scores["Rust"]
ranked = ((old.nats - new.nats) / old.tokens).sort_values()  # gains, the smallest first
for name, place in [("largest", -1), ("median", 10), ("smallest", 0)]:
    text = rust.test[ranked.index[place]]
    print(f"{name} gain, {ranked.iloc[place]:.2f} nats per token: {marked(text)}\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It learned mostly the notation of Rust: it opens code with a backtick, and completes `Vec` in the first passage and
# `::` in the second. Plain words it gains (`Why does`) and loses: the last passage shows five gains and six losses.
#
# Such a model can suggest the next piece while you write: a quarter of its guesses are right, and a fifth of the
# untouched model's. But 60 passages teach it how Rust looks, not what is true of it.
#
# For your own text, replace `rust.train[:60]`, `watched` and `rust.test[:20]` by your lists of strings, search the rate
# again, and score the test list last.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Search the learning rate on a log grid with validation text, beyond the border if need be. Touch test text once.
# - Full fine-tuning learns the new text and forgets some of the old. Measure both.
# - When text is repeated, the validation loss rises while the training loss falls. Keep the best weights, in your own
#   loop or with `Trainer`, and judge them by paired differences on text that did not choose them.
#
# ## Further reading
#
# - [Howard and Ruder 2018](https://arxiv.org/abs/1801.06146) made fine-tuning of language models a standard method.
# - [Google's tuning playbook](https://github.com/google-research/tuning_playbook) on how to search.
# - [Luo et al. 2023](https://arxiv.org/abs/2308.08747) measure forgetting in large language models.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex04_1", 1)`. After
# *Restart Kernel* run the next cell first.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** After 20 epochs on 25 sentences the training loss is 0.1. What do you know about unseen text?
#
# - **a** The model now predicts all text better.
# - **b** Nothing, until unseen text is scored.
# - **c** The model is ruined for unseen text.

# %%
course.quiz("quiz04")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 4.1.** Replay. Rows of old text among the new ones can make a model forget less. `new` and `old` are
# tensors of training text, with 64 token ids in each row. Return a list of batches of four rows (the last may have
# fewer) that hold each row of `new` once, and so many different rows of `old` that these are the given `share` of all
# rows, as nearly as whole rows allow. The `seed` alone decides which old rows are drawn, and the order of all rows.
#
# If your batches are right, the check trains the bundled model on 24 rows of Rust, and on the same rows with 8 of
# Python's language reference (a share of 0.25). It prints the loss on validation text of both languages. **How much of
# the forgetting will these eight rows prevent, and will Rust gain less?**

# %%
import torch


def with_replay(new, old, share, seed):
    """Batches of all new rows and a share of old ones, in the order of the seed."""
    # your code here


course.check("ex04_1", with_replay)

# %% [markdown]
# Previous: [3 · A baseline to trust](03_baseline.ipynb) ·
# Next: [5 · LoRA](05_lora.ipynb)
