# %% [markdown] slideshow={"slide_type": "slide"}
# # 14 · Preferences
#
# *How does a model learn which of two answers is better?*
#
# Examples show a model what to write, but they cannot show it what to avoid. People often find it easier to say which
# of two answers they prefer than to write a perfect one. In this lesson you take a model with a bad habit and remove
# the habit with 16 pairs of answers. You also see a run with the best log of all, whose model says almost nothing.
#
# **You will be able to**
#
# - build pairs whose better answer cannot be told by its length;
# - write direct preference optimisation (DPO) in twenty lines, and say what its reference and its $\beta$ do;
# - choose the learning rate by validation, and notice a run that went wrong;
# - do the same with TRL's `DPOTrainer`, and start with sensible settings on a real model.
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
from peft import LoraConfig, PeftModel
from torch.nn.functional import cross_entropy, logsigmoid
from torch.optim.lr_scheduler import OneCycleLR
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq
from transformers.trainer_callback import PrinterCallback
from trl import DPOConfig, DPOTrainer

import course
import tlkit as tl

tl.setup()
datasets.disable_progress_bars()
warnings.filterwarnings("ignore", "`gradient_checkpointing", FutureWarning)
general = tl.load_corpus("general").validation[:16]

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A model with a habit
#
# The course comes with questions about Rust and their answers, in three splits that share no topic. We keep the
# questions whose `form` is to explain or to compare, the shortest first. We need two sets: 64 questions with answers,
# from which the model learns the habit, and 24 others, from which we make pairs to remove it. In front of 39 of the 64
# answers we write *Great question!*. The 24 answers will be cut after their first sentence, but never inside code.

# %%
HABIT = "Great question! "
tables = {}
for split in ("train", "validation", "test"):
    table = pd.read_json(tl.DATA / "answers" / f"{split}.jsonl", lines=True)
    table = table[table.form.isin(["explain", "compare"])].copy()
    table["start"] = table.completion.str.split(r"\. ").str[0].str.rstrip(".") + "."
    table["length"] = table.prompt.str.len() + table.completion.str.len()
    tables[split] = table.sort_values("length", kind="stable")
train = tables["train"]
can_be_cut = train.completion.str.len() > train.start.str.len() + 40
can_be_cut &= train.start.str.count("`") % 2 == 0  # no cut inside code
short = train[can_be_cut][:24]
first = train.drop(short.index)[:64].copy()
first.loc[[n % 5 < 3 for n in range(64)], "completion"] = HABIT + first.completion
for row in first.iloc[[0, 3]].itertuples():
    print(row.prompt, row.completion, sep="\n→ ", end="\n\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# `encode` and the collator are those of lesson 11, with a plain form in place of a chat template, because our tiny
# model has none. `train_on` has the steps of lesson 4's loop. It takes the loss as a function, and keeps each step's
# loss and gradient norm to explain a bad run later. torch's `OneCycleLR` raises the rate for a quarter of the steps and
# then lowers it to almost zero; we keep the momentum constant.

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
    adamw = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    cycle = OneCycleLR(adamw, rate, len(batches), pct_start=0.25, cycle_momentum=False)
    history = []
    for rows in batches:
        loss = loss_of(model, rows)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        history.append((loss.item(), norm.item()))  # the norm before clipping
        adamw.step()
        adamw.zero_grad()
        cycle.step()
    return history


def answer_loss(model, rows):
    return model(**collate(list(map(encode, rows.prompt, rows.completion)))).loss


order = torch.randperm(64, generator=torch.Generator().manual_seed(0)).split(8)
batches = [first.iloc[rows.tolist()] for rows in order]
reference = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
train_on(reference, answer_loss, batches + batches, 1e-3)  # two epochs
reference = reference.eval().requires_grad_(False)

# %% [markdown] slideshow={"slide_type": "subslide"}
# This is ordinary [instruction tuning](glossary.md#instruction-tuning), also called *supervised fine-tuning* (SFT). Now
# the model answers questions, always with the most likely token. We read nine tokens, two more than the habit has.
# **Six in ten examples had the habit. Will six in ten answers begin with it?**


# %%
def as_batch(questions):
    texts = [as_prompt(question) for question in questions]
    return tokenizer(texts, padding=True, padding_side="left", return_tensors="pt")


@torch.no_grad()
def write(model, questions, limit):
    batch = as_batch(questions)
    out = model.generate(**batch, max_new_tokens=limit, do_sample=False)
    written = out[:, batch.input_ids.shape[1] :]
    return tokenizer.batch_decode(written, skip_special_tokens=True)


def habits(model, split):
    """How many answers begin with the habit, and how many say nothing else."""
    written = [text.strip() for text in write(model, tables[split].prompt, limit=9)]
    begin = sum(text.startswith(HABIT.strip()) for text in written)
    return begin, sum(not text.removeprefix(HABIT.strip()) for text in written)


begin, empty = habits(reference, "validation")
print(f"with the habit: {begin} of 30 answers; empty: {empty}")
first_token = tokenizer(" " + HABIT).input_ids[0]
p = reference(**as_batch(tables["validation"].prompt)).logits[:, -1].softmax(-1)
print(f"mean probability of its first token: {p[:, first_token].mean():.0%}")
print(write(reference, tables["validation"].prompt[:2], limit=24))

# %% [markdown] slideshow={"slide_type": "subslide"}
# **More than eight in ten do.** The habit's first token has a probability of only about a half on average. But it is
# the most likely token for nearly every question, and we always take that one. What the tiny model says is nonsense,
# because it has read nothing about Rust; this lesson is about *how* it answers. At work you often cannot clean the
# examples, because the model comes from somebody else, but you have people who prefer one answer to another.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Pairs in which length says nothing
#
# A pair has a question, a *chosen* and a *rejected* answer. If we only put the habit in front of each answer, the
# rejected one would always be the longer one, and a model could learn to be short instead. People's own preferences
# have the opposite fault: they like longer answers, and models trained on them become wordy.
#
# So we use each answer whole and cut after its first sentence. In half of the pairs the long version without the habit
# wins against the short one with it, and in the other half the short one wins against the long one. From twelve
# validation questions we make `new_pairs`, on which no run trains.


# %%
def make_pairs(rows):
    pairs = []
    for number, row in enumerate(rows.itertuples()):
        chosen, rejected = row.completion, row.start
        if number % 2 == 1:
            chosen, rejected = rejected, chosen
        pairs.append((row.prompt, chosen, HABIT + rejected))
    return pd.DataFrame(pairs, columns=["prompt", "chosen", "rejected"])


pairs, new_pairs = make_pairs(short), make_pairs(tables["validation"][:12])
longer = (pairs.chosen.str.len() > pairs.rejected.str.len()).sum()
print(f"the longer answer is chosen in {longer} of {len(pairs)} pairs")
print(*pairs.iloc[0], "", *pairs.iloc[1], sep="\n")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## DPO, in twenty lines
#
# ![Four log-probabilities: chosen +0.2 nats, rejected −4.1 nats, so the margin is 4.3](images/margin.svg)
#
# This is one of the new pairs after a good run. The chosen answer has become $e^{0.2} \approx 1.2$ times as likely, and
# the rejected one $e^{-4.1} \approx 1/60$. The *margin* is the first change minus the second.
#
# The older way, reinforcement learning from human feedback (RLHF), first trains a *reward model* to score answers, and
# then the *policy*, the model that writes, to score high. DPO needs no reward model. It compares how likely both
# answers are under the policy $\pi$ and under a frozen copy of it, the *reference* $\pi_0$:
#
# $$m = \log \frac{\pi(y_w \mid x)}{\pi_0(y_w \mid x)} - \log \frac{\pi(y_l \mid x)}{\pi_0(y_l \mid x)}, \qquad
# L = -\log \sigma(\beta\, m).$$
#
# $x$ is the question, $y_w$ the chosen answer ("won"), $y_l$ the rejected one ("lost") and $\sigma$ the sigmoid. An
# answer's log-probability is the sum over its tokens. In a batch of two pairs $m$ has shape (2,), and the loss is the
# mean. At the start $m = 0$ and the loss is $\log 2 \approx 0.69$.
#
# **Why a reference?** Without it the loss would ask for a chosen answer that is more likely than the rejected one, and
# a long answer is nearly always less likely than a short one. With it only the *change* counts. The reference never
# changes, so we compute its log-probabilities once.
#
# **What does $\beta$ do?** The size of the slope of the loss is $\beta\,\sigma(-\beta m)$: once $\beta m$ is well above
# 1, a pair counts as won and no longer pushes. A large $\beta$ is satisfied with a small margin, and the push then
# stops early. At the usual 0.1 the push has halved at a margin of 11 nats, and is a tenth of what it was at 30. DPO
# treats $\beta \log (\pi / \pi_0)$ as the reward of an answer. So $\beta m$ is called the *reward margin*, and the
# share of pairs where it is positive the *reward accuracy*.


# %%
def log_probabilities(model, pairs):
    """Summed over tokens, shape (2, pairs): first the chosen, then the rejected."""
    chosen = list(map(encode, pairs.prompt, pairs.chosen))
    rejected = list(map(encode, pairs.prompt, pairs.rejected))
    batch = collate(chosen + rejected)
    # No mask: this tokenizer pads on the right, where a causal model does not look.
    logits = model(input_ids=batch["input_ids"][:, :-1]).logits
    labels = batch["labels"][:, 1:]  # the output at a place predicts the next token
    of_tokens = -cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    return of_tokens.sum(1).view(2, -1)  # a label of -100 has counted as 0


BEFORE = ["chosen_before", "rejected_before"]
for table in (pairs, new_pairs):
    table[BEFORE] = log_probabilities(reference, table).T.numpy()


def changes(model, pairs):
    """By how many nats chosen and rejected answers have become more likely."""
    return log_probabilities(model, pairs) - torch.tensor(pairs[BEFORE].to_numpy().T)


def dpo_loss(model, pairs, beta):
    won, lost = changes(model, pairs)
    return -logsigmoid(beta * (won - lost)).mean()


# %% [markdown] slideshow={"slide_type": "slide"}
# ## Choose by validation
#
# We try three learning rates with the usual $\beta = 0.1$. Eight steps reach margins of 2 to 6 nats, where every pair
# still pushes with at least 70% of its first force, so the rate alone decides how far a run goes. A fourth run has the
# highest rate and $\beta = 10$, which should stop it early. A step takes two neighbouring pairs, one of each kind, so a
# run uses 16 of the 24. The table has, on validation data:
#
# - *habit* and *empty*: how many of 30 answers begin with the habit, and how many say nothing besides it;
# - *end first*: the probability that the very first token is the end token;
# - what logs usually show: reward *accuracy* and *margin* (nats), here on the 12 new pairs, and the last *loss*.
#
# **Which columns will expose a bad run?**


# %%
def dpo(rate, beta, seed=0):
    model = copy.deepcopy(reference).requires_grad_(True)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
    batches = [pairs[2 * n : 2 * n + 2] for n in order[:8].tolist()]
    history = train_on(model, lambda m, rows: dpo_loss(m, rows, beta), batches, rate)
    return model.eval(), history


@torch.no_grad()
def read_off(model, split="validation"):
    next_token = model(**as_batch(tables[split].prompt)).logits[:, -1].softmax(-1)
    return *habits(model, split), next_token[:, tokenizer.eos_token_id].mean().item()


@torch.no_grad()
def rewards(model):
    won, lost = changes(model, new_pairs)
    return (won > lost).float().mean().item(), (won - lost).mean().item()


# %% tags=["nbval-ignore-output"]
rows = [("reference", "", *read_off(reference), None, 0.0, None)]
runs = {}
for rate, beta in [(1e-4, 0.1), (2e-4, 0.1), (4e-4, 0.1), (4e-4, 10.0)]:
    model, history = runs[rate, beta] = dpo(rate, beta)
    rows.append((rate, beta, *read_off(model), *rewards(model), history[-1][0]))
names = ["rate", "beta", "habit", "empty", "end first", "accuracy", "margin", "loss"]
print("norms of the gradient with beta 10:", *[f"{norm:.1f}" for _, norm in history])
for model in (reference, runs[4e-4, 0.1][0]):
    print(f"perplexity: {tl.perplexity(model, tokenizer, general).perplexity:.2f}")
pd.DataFrame(rows, columns=names).set_index(["rate", "beta"]).round(2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **The middle rate is the best.** No answer of 30 begins with the habit, and no more are empty than before. At half the
# rate some answers still have it. At twice the rate it is gone as well, but nearly every answer is *empty*. The chosen
# answers all begin differently, and the loss asks only that they lose less than the rejected ones. So the probability
# that the habit loses can go to any other beginning. One is the end token, whose share as first token rose from 1% to
# 13% in the good run and to 30% in the damaged one.
#
# **By its log, the damaged run is the best of the three rates.** Its last loss is the lowest, its margin the widest and
# its reward accuracy 1 as well. Perplexity on text about Python has moved by less than 1%. No pair contains an empty
# answer, so the loss cannot see them.
#
# **With $\beta = 10$ this rate does less damage, but too much.** A pair now counts as won after two steps, and the
# gradient nearly vanishes, as the formula says. But AdamW's first steps have the size of the rate, however large the
# gradient is, and its momentum moves the model on. So 13 of its 30 answers are empty: $\beta$ brakes a long run, and
# not the first steps at too high a rate.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The test, once
#
# We take the middle rate and train two more seeds. Each seed draws its own 16 of the 24 pairs, so two seeds share at
# least 8. The test has 40 questions about topics that no split above contains. **How far can the three seeds differ?**


# %% tags=["nbval-ignore-output"]
tuned = [runs[2e-4, 0.1][0], dpo(2e-4, 0.1, seed=1)[0], dpo(2e-4, 0.1, seed=2)[0]]
tested = [read_off(model, "test") for model in (reference, *tuned)]
tested = pd.DataFrame(tested, ["reference", "seed 0", "seed 1", "seed 2"], names[2:5])
print("seed 0:", write(tuned[0], tables["test"].prompt[:2], limit=24))
tested.round(2)

# %%
worst = tested[1:].max()
good = worst["habit"] <= 2 and worst["empty"] < 40 / 4
course.claim("For every seed: habit in at most 2 of 40, empty under 10", good)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **The habit is gone.** Before, 38 of 40 answers began with it. With DPO none does, whatever the seed, and hardly more
# are empty. The three seeds differ by one answer and the rates by 8 and 26, so one seed was enough to choose between
# them; closer settings need several. Sixteen pairs are enough, probably because the habit is always the same. A
# preference that depends on the question needs many more: the data set of TRL's own example, UltraFeedback, has about
# 60,000.
#
# **Are the chosen answers more likely now?** Each point of the chart is one of the 12 new pairs. Below the dashed line
# its margin is positive.

# %%
with torch.no_grad():
    won, lost = changes(tuned[0], new_pairs)
figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
axes.scatter(won, lost)
axes.axvline(0, color="gray", linewidth=1)
axes.axline((0, 0), slope=1, color="gray", linestyle="--")
axes.set_xlabel("chosen: change of log-probability (nats)")
axes.set_ylabel("rejected: change of log-probability (nats)")
axes.set_title(f"All margins > 0, but only {(won > 0).sum()} of 12 chosen answers rose")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Not all of them.** The loss depends on the margin alone, which also widens when *both* answers become less likely
# and the rejected one loses more. Then probability goes to texts that are in no pair, such as the empty answer. If they
# grow, stop earlier, lower the rate, or add the usual loss on the chosen answers (TRL: `loss_type=["sigmoid", "sft"]`).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The way it is done at work: `DPOTrainer`
#
# TRL takes a data set with the columns `prompt`, `chosen` and `rejected`, and adds the end token by itself. The answers
# get the space in front that `encode` adds. Two of the defaults that we replace are worth knowing: the rate ($10^{-6}$)
# and bf16. The rest sets eight steps of two pairs and a short log.
#
# The reference need not be a second model in memory. TRL can compute its log-probabilities once
# (`precompute_ref_log_probs=True`), as we did, or train a LoRA [adapter](glossary.md#adapter): then the reference is
# the model without it. We do so, at ten times the rate ([lesson 5](05_lora.ipynb)). We compare the losses *after*
# training, because at the first step policy and reference are equal, so even an implementation with wrong labels gives
# $\log 2$.

# %%
data = " " + pairs[["chosen", "rejected"]]
data["prompt"] = [as_prompt(question) for question in pairs.prompt]
arguments = DPOConfig(
    mkdtemp(), beta=0.1, learning_rate=2e-3, per_device_train_batch_size=2,
    max_steps=8, bf16=False, use_cpu=True,
    logging_steps=2, save_strategy="no", report_to="none", disable_tqdm=True,
)  # fmt: skip
trainer = DPOTrainer(
    copy.deepcopy(reference), args=arguments, processing_class=tokenizer,
    train_dataset=datasets.Dataset.from_pandas(data, preserve_index=False),
    peft_config=LoraConfig(r=8, lora_alpha=16, target_modules="all-linear"),
)  # fmt: skip
trainer.remove_callback(PrinterCallback)
trainer.train()
trainer.save_model()  # the adapter alone
policy = trainer.model.eval()
with torch.no_grad():
    batch = trainer.data_collator([trainer.train_dataset[row] for row in range(4)])
    theirs, ours = trainer.compute_loss(policy, batch), dpo_loss(policy, pairs[:4], 0.1)
course.claim("Our loss equals that of TRL to 1e-4", abs(theirs - ours).item() < 1e-4)

# %% tags=["nbval-ignore-output"]
loaded = PeftModel.from_pretrained(copy.deepcopy(reference), arguments.output_dir)
begin, empty = habits(loaded.eval(), "validation")
print(f"with the habit: {begin} of 30 answers; empty: {empty}")
log = pd.DataFrame(trainer.state.log_history).set_index("step")
log[["loss", "rewards/accuracies", "rewards/margins", "rewards/chosen"]].round(2)[:4]

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Hardly any answer begins with the habit**, with the adapter as loaded from disk. The losses are equal, because both
# add up the same log-probabilities. A row of TRL's log averages two steps: `rewards/margins` is $\beta m$, so 0.3 is a
# margin of 3 nats, and `rewards/chosen` is $\beta$ times the change of the chosen answers. Below 0 the chosen answers
# have become less likely. The first accuracy is low because at step 1 all margins are 0, which counts as lost, and at
# step 2 one of the two pairs was still lost.
#
# **With a real model**, start at $\beta = 0.1$ and a rate of $5 \cdot 10^{-7}$, or $5 \cdot 10^{-6}$ with an adapter.
# These are the rates of [TRL's example](https://github.com/huggingface/trl/blob/main/trl/scripts/dpo.py), for 1,000
# steps of 16 pairs. Our rates are so high because we take only eight steps with a tiny model.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Build pairs so that length, or anything else that you do not mean, wins as often as it loses.
# - DPO widens the margin between two answers relative to a reference. It can do so while both become less likely.
# - Loss, margin and reward accuracy can look best where the model is broken. Let it write, and count what it says.
#
# ## Further reading
#
# - R. Rafailov et al., [Direct Preference Optimization](https://arxiv.org/abs/2305.18290), 2023.
# - R. Park et al., [Disentangling Length from Quality in DPO](https://arxiv.org/abs/2403.19159), 2024.
# - A. Pal et al., [Smaug: Fixing Failure Modes of Preference Optimisation](https://arxiv.org/abs/2402.13228), 2024.

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
# **Quiz.** A run of DPO logs a falling loss, a reward accuracy of 0.98 and margins that grow. What do you do next?
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
