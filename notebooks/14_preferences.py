# %% [markdown] slideshow={"slide_type": "slide"}
# # 14 · Preferences
#
# *How does a model learn which of two answers is better?*
#
# Examples show a model what to write, but they cannot show it what to avoid. People often find it easier to say which
# of two answers they prefer than to write a perfect one. In this lesson you take a model with a bad habit and remove
# the habit with 16 pairs of answers. Then you do the same with a learning rate that is too high, and see why the usual
# numbers of such a training do not show the damage.
#
# **You will be able to**
#
# - build pairs whose better answer cannot be told by its length;
# - write direct preference optimisation (DPO) in thirty lines, and say what its reference and its $\beta$ do;
# - choose the settings by validation, and notice a run that went wrong;
# - do the same with TRL's `DPOTrainer`.
#
# **You need** the labels and the collator of [lesson 11](11_your_data.ipynb), and a training loop ([lesson
# 4](04_full_fine_tuning.ipynb)).
#
# About 36 minutes.

# %% slideshow={"slide_type": "subslide"}
import copy
import warnings
from tempfile import mkdtemp

import datasets
import matplotlib.pyplot as plt
import pandas as pd
import torch
from torch.nn.functional import logsigmoid
from torch.optim.lr_scheduler import OneCycleLR
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq
from transformers.trainer_callback import PrinterCallback
from trl import DPOConfig, DPOTrainer

import course
import tlkit as tl

tl.setup()
datasets.disable_progress_bars()
warnings.filterwarnings("ignore", "`gradient_checkpointing", FutureWarning)
general = tl.load_corpus("general")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A model with a habit
#
# The course comes with questions about Rust and their answers. No topic is in two splits. From the training split we
# take the 88 shortest that want an explanation or a comparison. The 24 shortest become pairs later. The model learns from
# the other 64, where somebody has written *Great question!* in front of six in ten answers.

# %%
HABIT = "Great question! "
tables = {}
for split in ("train", "validation", "test"):
    table = pd.read_json(tl.DATA / "answers" / f"{split}.jsonl", lines=True)
    table = table[table.form.isin(["explain", "compare"])].copy()
    sentences = table.completion.str.split(". ", regex=False)
    table["start"] = sentences.str[0].str.rstrip(".") + "."
    tables[split] = table
train = tables["train"]
length = train.prompt.str.len() + train.completion.str.len()
train = train.loc[length.sort_values(kind="stable").index]
short = train[train.completion.str.len() > train.start.str.len() + 40][:24]
first = train.drop(short.index)[:64].copy()
first["completion"] = [HABIT * (n % 5 < 3) + a for n, a in enumerate(first.completion)]
first.iloc[[0, 3]][["prompt", "completion"]]

# %% [markdown] slideshow={"slide_type": "subslide"}
# `encode` and the collator are those of lesson 11, with a plain form in place of a chat template, because our tiny model
# has none. `train_on` is the loop of lesson 4: it calls a function that turns some rows into a loss. The learning rate
# rises at first and then falls to zero.

# %%
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
collate = DataCollatorForSeq2Seq(tokenizer)


def as_prompt(question):
    return f"Question: {question}\nAnswer:"


def encode(question, answer):
    read = tokenizer(as_prompt(question)).input_ids
    learned = tokenizer(" " + answer + tokenizer.eos_token).input_ids
    return {"input_ids": read + learned, "labels": [-100] * len(read) + learned}


def train_on(model, loss_of, batches, rate):
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    schedule = OneCycleLR(optimizer, rate, total_steps=len(batches), pct_start=0.25)
    for rows in batches:
        loss = loss_of(model, rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return loss.item()


def answer_loss(model, rows):
    return model(**collate(list(map(encode, rows.prompt, rows.completion)))).loss


order = torch.randperm(64, generator=torch.Generator().manual_seed(0)).split(8)
reference = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
train_on(
    reference, answer_loss, [first.iloc[rows.tolist()] for rows in order * 2], 1e-3
)
reference = reference.eval().requires_grad_(False)

# %% [markdown] slideshow={"slide_type": "subslide"}
# This is ordinary [instruction tuning](glossary.md#instruction-tuning), also called *supervised fine-tuning* (SFT). Now
# the model answers questions, always with the most likely token. **Six in ten examples had the habit. Will six in ten
# answers begin with it?**


# %%
@torch.no_grad()
def write(model, questions, limit):
    texts = [as_prompt(question) for question in questions]
    batch = tokenizer(texts, padding=True, padding_side="left", return_tensors="pt")
    out = model.generate(**batch, max_new_tokens=limit, do_sample=False)
    written = out[:, batch.input_ids.shape[1] :]
    return tokenizer.batch_decode(written, skip_special_tokens=True)


def habits(model, split):
    """How many answers begin with the habit, and how many say nothing else."""
    written = [text.strip() for text in write(model, tables[split].prompt, limit=12)]
    begin = sum(text.startswith(HABIT.strip()) for text in written)
    return begin, sum(not text.removeprefix(HABIT.strip()) for text in written)


print("with the habit, and without an answer:", *habits(reference, "validation"))
print(write(reference, tables["validation"].prompt[:2], limit=24))

# %% [markdown] slideshow={"slide_type": "subslide"}
# **More than eight in ten do.** Where the habit is the most likely beginning the model always writes it, so it shows the
# habit more often than its examples did. What it says about Rust is nonsense, because the tiny model has read nothing
# about Rust; this lesson is about *how* it answers. You could clean the examples and train again. At work you often
# cannot, because the model comes from somebody else, and all you have are people who prefer one answer to another.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Pairs in which length says nothing
#
# A pair has a question, a *chosen* and a *rejected* answer. If we only put the habit in front of each answer, the
# rejected one would always be the longer one, and a model could learn to be short instead. People's own preferences
# have the opposite fault: they like longer answers, and models trained on them become wordy.
#
# So we cut every answer after its first sentence, too. In half of the pairs the long version without the habit wins
# against the short one with it, and in the other half the short one wins against the long one.


# %%
def make_pairs(rows):
    pairs = []
    for number, row in enumerate(rows.itertuples()):
        chosen, rejected = [row.completion, row.start][:: 1 - 2 * (number % 2)]
        pairs.append((row.prompt, chosen, HABIT + rejected))
    return pd.DataFrame(pairs, columns=["prompt", "chosen", "rejected"])


pairs, new_pairs = make_pairs(short), make_pairs(tables["validation"][:12])
longer = (pairs.chosen.str.len() > pairs.rejected.str.len()).sum()
print(f"the longer answer is chosen in {longer} of {len(pairs)} pairs")
print(*pairs.iloc[1], sep="\n")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## DPO, in thirty lines
#
# Direct preference optimisation compares how likely both answers are under the model in training, $\pi$, and under a
# frozen copy of it from before, the *reference* $\pi_0$:
#
# $$m = \log \frac{\pi(y_w \mid x)}{\pi_0(y_w \mid x)} - \log \frac{\pi(y_l \mid x)}{\pi_0(y_l \mid x)}, \qquad
# L = -\log \sigma(\beta\, m).$$
#
# $x$ is the question, $y_w$ the chosen answer ("won"), $y_l$ the rejected one ("lost") and $\sigma$ the sigmoid
# function. An answer's log-probability is the sum over its tokens, one number for each answer. So for a batch of two
# pairs each of the two logarithms, the *margin* $m$ and the loss before its mean have shape (2,). The margin says by how
# many nats the chosen answer has risen more than the rejected one. At the start $m = 0$ and the loss is $\log 2 \approx
# 0.69$.
#
# **Why a reference?** Without it the loss would ask for a chosen answer that is more likely than the rejected one, and a
# long answer is nearly always less likely than a short one. With it only the *change* counts.
#
# **What does $\beta$ do?** The slope of the loss is $\beta\,\sigma(-\beta m)$: once $\beta m$ is well above 1, a pair no
# longer pushes. So a large $\beta$ is satisfied with a small change, and the model stays near the reference. $\beta m$
# is called the *reward margin*, and the share of pairs in which it is positive the *reward accuracy*.


# %%
def log_probabilities(model, batch):
    """The summed log-probability of each answer, shape (rows,)."""
    log_p = model(input_ids=batch["input_ids"][:, :-1]).logits.log_softmax(-1)
    labels = batch["labels"][:, 1:]  # the output at a place predicts the next token
    of_tokens = log_p.gather(2, labels.clamp(min=0)[..., None])[..., 0]
    return (of_tokens * (labels != -100)).sum(1)


def encode_pairs(pairs):
    """The batch of all chosen answers, followed by all rejected ones."""
    chosen = map(encode, pairs.prompt, pairs.chosen)
    return collate([*chosen, *map(encode, pairs.prompt, pairs.rejected)])


def changes(model, pairs):
    """By how many nats chosen and rejected answers have become more likely."""
    batch = encode_pairs(pairs)
    now, before = (log_probabilities(one, batch) for one in (model, reference))
    return (now - before).chunk(2)


def dpo_loss(model, pairs, beta):
    won, lost = changes(model, pairs)
    return -logsigmoid(beta * (won - lost)).mean()


# %% [markdown] slideshow={"slide_type": "slide"}
# ## Choose by validation
#
# Three settings are open: the learning rate, $\beta$ and the number of steps. We begin with a middle setting, two pairs
# in a step, and change one at a time. For each run we let the model write and count the answers with the habit and those
# that say nothing at all. We also measure perplexity on *general* text about Python, which our pairs have nothing to do
# with, and the reward accuracy and margin on 12 new pairs. Everything comes from validation data. **Which of these
# columns will tell a good run from a bad one?**


# %%
def dpo(rate, beta, steps, seed=0):
    model = copy.deepcopy(reference).requires_grad_(True)
    order = torch.randperm(24, generator=torch.Generator().manual_seed(seed))
    batches = [pairs.iloc[rows.tolist()] for rows in order.split(2)][:steps]
    last = train_on(model, lambda m, rows: dpo_loss(m, rows, beta), batches, rate)
    return model.eval(), last


def read_off(model, split="validation"):
    text = getattr(general, split)[:16]
    return *habits(model, split), tl.perplexity(model, tokenizer, text).perplexity


@torch.no_grad()
def rewards(model):
    margin = torch.sub(*changes(model, new_pairs))
    return (margin > 0).float().mean().item(), margin.mean().item()


# %% tags=["nbval-ignore-output"]
columns = ["habit", "empty", "general perplexity", "reward accuracy", "margin (nats)"]
grid = {("reference", "", ""): read_off(reference) + rewards(reference)}
one_rate = [(2e-4, 1.0, 6), (2e-4, 1.0, 8), (2e-4, 1.0, 12), (2e-4, 0.1, 8)]
for rate, beta, steps in [*one_rate, (1e-4, 1.0, 8), (4e-4, 1.0, 8)]:
    model = dpo(rate, beta, steps)[0]
    grid[rate, beta, steps] = read_off(model) + rewards(model)
grid = pd.DataFrame(grid, columns).T.rename_axis(["rate", "beta", "steps"])
grid.round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **The middle setting is the best**: no habit in 30 answers, hardly an empty one, and the same perplexity as before.
# With a lower rate or fewer steps more than a third of the answers still have the habit. With a higher rate or more
# steps the habit is gone as well, but about 20 of 30 answers are *empty*. The pairs only say what is worse. The
# probability that the habit loses goes to other beginnings, and among these the end token is one of the likeliest.
#
# **Only the text shows this.** Reward accuracy is near 1 in every run, the margin grows with the damage, and general
# perplexity hardly moves. $\beta$ makes no difference here, because AdamW divides each gradient by its usual size, so
# a factor before the loss cancels. It begins to matter as soon as $\beta m$ is large enough for pairs to stop pushing.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The test, once
#
# Now we train with this setting and three seeds, each with other pairs in another order, and look at the test for the
# first time: 40 questions about topics that no split above contains, and other general text. **How far can the three
# seeds differ?**


# %% tags=["nbval-ignore-output"]
tuned = [dpo(2e-4, 1.0, 8, seed)[0] for seed in range(3)]
tested = [read_off(model, "test") for model in (reference, *tuned)]
tested = pd.DataFrame(tested, ["reference", "seed 0", "seed 1", "seed 2"], columns[:3])
tested.round(1)

# %%
worst, before = tested[1:].max(), tested.loc["reference"]
course.claim(
    "DPO removes the habit, and general perplexity stays within 2%",
    worst.habit <= 4 and worst.iloc[2] < 1.02 * before.iloc[2],
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **It does what it should.** With the reference more than 30 of 40 answers begin with the habit, and with DPO none does,
# for each of the three seeds. The 95% Wilson interval of 0 in 40 reaches up to 9%. Not more answers are empty than
# before, and general perplexity has changed by less than 1%. Sixteen pairs are enough because the habit is the same in
# all of them. A preference that depends on the question needs many more. The facts in the answers are no better, as no
# pair was about them.
#
# **Are the chosen answers more likely now?** Each point of the chart is a new pair, and below the dashed line its margin
# is positive.

# %%
with torch.no_grad():
    won, lost = changes(tuned[0], new_pairs)
figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
axes.scatter(won, lost)
axes.axvline(0, color="gray", linewidth=1)
axes.axline((0, 0), slope=1, color="gray", linestyle="--")
axes.set(xlabel="chosen: change of log-probability (nats)", ylabel="rejected (nats)")
axes.set_title("Rejected answers lose much more than chosen ones change")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Only about half of them are**, though all twelve margins are positive. The loss depends on the margin alone, which also
# widens when *both* answers become less likely and the rejected one loses more. So some probability goes to texts that
# are in no pair, such as the empty answer. If this grows in your training, stop earlier, lower the rate, or add the
# usual loss on the chosen answers (in TRL `loss_type=["sigmoid", "sft"]`).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A rate that is too high
#
# Now the mistake: the same setting with a learning rate ten times as high. **What will the loss be at the end, and what
# will the model write?**

# %% tags=["nbval-ignore-output"]
broken, last = dpo(2e-3, 1.0, 8)
wrecked = pd.Series(read_off(broken) + rewards(broken), columns)
print(f"loss at the last step: {last:.3f}", wrecked.round(1).to_string(), sep="\n")
for name, model in {"DPO": tuned[0], "rate too high": broken}.items():
    print(f"{name}: {write(model, tables['test'].prompt[3:5], 24)}")

# %%
course.claim(
    "With the rate too high the margin is the widest, and the model says nothing",
    wrecked["margin (nats)"] > grid["margin (nats)"].max() and wrecked["empty"] >= 20,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **The training looks better than ever.** The loss is near 0, and the margin is more than four times as wide as in the
# good run. But nearly all answers to the validation questions are empty, and general perplexity is about a quarter
# higher. Once the loss is near 0 the pairs say nothing more about what is good, so nothing brings the model back.
# Therefore trust no number that compares two given answers, until you have read what the model itself writes.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The way it is done at work: `DPOTrainer`
#
# TRL takes a data set with the columns `prompt`, `chosen` and `rejected`, adds the end token by itself and does the rest.
# Note its defaults: a rate of $10^{-6}$, which is meant for large models, and bf16, which we switch off to compare. We
# train our reference with it and compare its loss with ours. We do this *after* training, because at the first step
# every implementation, right or wrong, gives $\log 2$.

# %%
rows = {"prompt": list(map(as_prompt, pairs.prompt))}
rows |= {side: list(" " + pairs[side]) for side in ("chosen", "rejected")}
arguments = DPOConfig(
    mkdtemp(), beta=1.0, learning_rate=2e-4, per_device_train_batch_size=2,
    max_steps=8, bf16=False, gradient_checkpointing=False, use_cpu=True,
    logging_strategy="no", save_strategy="no", report_to="none", disable_tqdm=True,
)  # fmt: skip
copies = [copy.deepcopy(reference).requires_grad_(True) for _ in range(2)]
given = {
    "train_dataset": datasets.Dataset.from_dict(rows),
    "processing_class": tokenizer,
}
trainer = DPOTrainer(copies[0], copies[1], arguments, **given)
trainer.remove_callback(PrinterCallback)
trainer.train()
with torch.no_grad():
    batch = trainer.data_collator([trainer.train_dataset[row] for row in range(4)])
    theirs = trainer.compute_loss(trainer.model, batch)
    ours = dpo_loss(trainer.model.eval(), pairs[:4], beta=1.0)
course.claim("Our loss equals that of TRL to 1e-5", abs(theirs - ours).item() < 1e-5)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The two losses are equal, because both add up the same log-probabilities. At work keep this path, with your validation
# questions around it. A reference costs the memory of a second model. If you pass `peft_config=LoraConfig(...)` and no
# `ref_model`, TRL trains a new [adapter](glossary.md#adapter), and the model with the adapter switched off is the
# reference. With `precompute_ref_log_probs=True` it computes the log-probabilities of the reference once and drops it.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Build pairs so that length, or anything else that you do not mean, wins as often as it loses.
# - DPO widens the margin between two answers relative to a reference. It can do so while both become less likely.
# - Loss, reward accuracy and margin look best where the model is broken. Let it write, and measure perplexity elsewhere.
#
# ## Further reading
#
# - R. Rafailov et al., [Direct Preference Optimization](https://arxiv.org/abs/2305.18290), 2023.
# - R. Park et al., [Disentangling Length from Quality in DPO](https://arxiv.org/abs/2403.19159), 2024.
# - A. Pal et al., [Smaug: Fixing Failure Modes of Preference Optimisation](https://arxiv.org/abs/2402.13228), 2024: why
#   preferred answers can become less likely.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex14_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** A run of DPO logs a loss near 0, a reward accuracy of 0.98 and margins that still grow. What do you do next?
#
# - **a** Use the model: all three numbers are good.
# - **b** Train longer, because the margins still grow.
# - **c** Let it write, count what was wanted and what was not, and measure perplexity on other text.
# - **d** Raise the learning rate.

# %%
course.quiz("quiz14")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 14.1.** A tool to take to your own pairs. `pairs` is a list of tuples `(prompt, chosen, rejected)`. Return
# a list in which the longer answer is chosen as often as it is rejected. Length is counted in words, and pairs whose
# answers are equally long all stay. Of the kind that there is too much of, drop the last ones. Keep the order.


# %%
def balanced(pairs):
    """Pairs in which the longer answer wins as often as it loses."""
    # your code here


course.check("ex14_1", balanced)

# %% [markdown]
# Previous: [13 · Classification](13_classification.ipynb) ·
# Next: [15 · The comparison](15_comparison.ipynb)
