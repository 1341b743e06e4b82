# %% [markdown] slideshow={"slide_type": "slide"}
# # 14 · Preferences
#
# *How does a model learn which of two answers is better?*
#
# Examples show a model what to write, but they cannot show it what to avoid. People often find it easier to say which
# of two answers they prefer than to write a perfect one. In this lesson you take a model with a bad habit and remove
# the habit with 16 pairs of answers. You also see a run whose log looks better and whose model is worse.
#
# **You will be able to**
#
# - build pairs in which length does not give the better answer away, and test that;
# - write direct preference optimisation (DPO) in twenty lines, and say what its reference and its $\beta$ do;
# - choose the learning rate by validation, compare with training on the better answers alone, and notice a bad run;
# - do the same with TRL's `DPOTrainer`, and start with sensible settings on a real model.
#
# **You need** the labels and the collator of [lesson 11](11_your_data.ipynb), and a training loop ([lesson
# 4](04_full_fine_tuning.ipynb)).
#
# About 40 minutes.

# %% slideshow={"slide_type": "subslide"}
import copy
import warnings
from functools import partial
from tempfile import mkdtemp

import datasets
import matplotlib.pyplot as plt
import pandas as pd
import torch
from peft import LoraConfig, PeftModel
from scipy.stats import binomtest
from torch.nn.functional import cross_entropy, logsigmoid
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers import DataCollatorForSeq2Seq, get_scheduler
from transformers.trainer_callback import PrinterCallback
from trl import DPOConfig, DPOTrainer

import course
import tlkit as tl

tl.setup()
datasets.disable_progress_bars()
warnings.filterwarnings("ignore", "`gradient_checkpointing", FutureWarning)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A model with a habit
#
# The course comes with questions about Rust and their answers, in three splits that share no topic. We keep the
# questions whose `form` is to explain or to compare, the shortest first. The first 64 of the training split teach the
# habit: in front of 39 of their answers we write *Great question!*. From the others we make the pairs later.

# %%
HABIT = "Great question! "
tables = {}
for split in ("train", "validation", "test"):
    table = pd.read_json(tl.DATA / "answers" / f"{split}.jsonl", lines=True)
    table = table[table.form.isin(["explain", "compare"])].copy()
    table["length"] = table.prompt.str.len() + table.completion.str.len()
    tables[split] = table.sort_values("length", kind="stable")
first = tables["train"][:64].copy()
first.loc[[n % 5 < 3 for n in range(64)], "completion"] = HABIT + first.completion

# %% [markdown] slideshow={"slide_type": "subslide"}
# `encode` and the collator are those of lesson 11, with a plain form in place of a chat template, because our tiny
# model has none. `train_on` has the steps of lesson 4's loop, and takes the loss as a function. The rate falls in a
# straight line, as it does by default in Hugging Face's `Trainer`; at the last of eight steps it is an eighth.

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
    schedule = get_scheduler("linear", adamw, 0, len(batches))  # no warm-up
    for rows in batches:
        loss = loss_of(model, rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad()
        schedule.step()
    return loss.item()  # that of the last step


def answer_loss(model, rows, column="completion"):
    return model(**collate(list(map(encode, rows.prompt, rows[column])))).loss


order = torch.randperm(64, generator=torch.Generator().manual_seed(0)).split(8)
batches = [first.iloc[rows.tolist()] for rows in order]
reference = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
train_on(reference, answer_loss, batches + batches, 1e-3)  # two epochs
reference = reference.eval().requires_grad_(False)

# %% [markdown] slideshow={"slide_type": "subslide"}
# This is ordinary [instruction tuning](glossary.md#instruction-tuning), also called *supervised fine-tuning* (SFT). Now
# the model answers 30 validation questions, always with the most likely token. `read_off` counts answers that begin
# with the habit (*habit*) and answers with nothing besides it (*empty*) in their first nine tokens, two more than the
# habit has. It also returns the mean probabilities that the very first token is the habit's, or the end token. **Six in
# ten examples had the habit. Will six in ten answers begin with it?**


# %%
def as_batch(questions):
    texts = [as_prompt(question) for question in questions]
    return tokenizer(texts, padding=True, padding_side="left", return_tensors="pt")


def write(model, questions, limit):
    batch = as_batch(questions)
    out = model.generate(**batch, max_new_tokens=limit, do_sample=False)
    written = out[:, batch.input_ids.shape[1] :]
    texts = tokenizer.batch_decode(written, skip_special_tokens=True)
    return pd.Series(texts).str.strip()


@torch.no_grad()
def read_off(model, split="validation"):
    written = write(model, tables[split].prompt, limit=9)
    habit = written.str.startswith(HABIT.strip()).sum()
    empty = written.isin(["", HABIT.strip()]).sum()
    p = model(**as_batch(tables[split].prompt)).logits[:, -1].softmax(-1).mean(0)
    habit_first = p[tokenizer(" " + HABIT).input_ids[0]].item()
    return habit, empty, habit_first, p[tokenizer.eos_token_id].item()


print(*write(reference, tables["validation"].prompt[:2], limit=24), sep="\n")
SEEN = ["habit", "empty", "habit first", "end first"]
pd.Series(read_off(reference), SEEN).round(2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **All of them do.** The habit's first token has a probability of only about a half on average. But it is the most
# likely token for every question, and we always take that one. Apart from the habit, the model writes nonsense, because
# it is tiny (4 million parameters) and has read hardly anything about Rust; this lesson is about *how* it answers.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Pairs in which length says nothing
#
# A pair has a question, a *chosen* and a *rejected* answer. If we only put the habit in front of each answer, the
# rejected one would always be the longer one, and a model could learn to be short instead. People's own preferences
# have the opposite fault: they like longer answers, and models trained on them become wordy.
#
# So we use each answer whole and cut after its first sentence. In half of the pairs the whole answer wins against the
# cut one with the habit, and in the other half the cut one wins. But the habit makes each rejected answer 7 tokens
# longer, so the gap in length is small where the longer answer wins and large where the shorter one does. A rule could
# take the longer answer up to a limit of the gap, and the shorter one above. **How often is the best limit right?**
#
# The cure is to match two questions. If the cut removes 14 tokens more from one answer than from the other, their gaps
# are $+n$ and $-n$, and any rule on the gap is right for one of the two. `new_pairs` are matched validation questions.


# %%
def size(text):
    return len(tokenizer(" " + text).input_ids)


def make_pairs(rows):
    """Of two neighbours, one has a chosen answer n tokens longer, one n shorter."""
    rows = rows[rows.start.str.count("`") % 2 == 0]  # no cut inside code
    other = rows.assign(rest=rows.rest + 14)
    twins = rows.merge(other, on="rest", suffixes=("", "_short"))
    twins = twins.drop_duplicates("prompt").drop_duplicates("prompt_short")
    pairs = []
    for row in twins.itertuples():
        pairs.append((row.prompt, row.completion, HABIT + row.start))
        pairs.append((row.prompt_short, row.start_short, HABIT + row.completion_short))
    return pd.DataFrame(pairs, columns=["prompt", "chosen", "rejected"])


for table in tables.values():
    table["start"] = table.completion.str.split(r"\. ").str[0].str.rstrip(".") + "."
    table["rest"] = table.completion.map(size) - table.start.map(size)
pairs = make_pairs(tables["train"][64:])[:24]
new_pairs = make_pairs(tables["validation"])[:12]
gaps = {"unmatched": tables["train"].rest[64:88] * ([1, -1] * 12) - 7}
gaps["matched"] = pairs.chosen.map(size) - pairs.rejected.map(size)
for name, gap in gaps.items():
    right = max(((gap.abs() <= limit) == (gap > 0)).sum() for limit in gap.abs())
    print(f"{name}: longer wins {(gap > 0).sum()} of 24; best rule: {right} right")
print(*pairs.iloc[0], "", *pairs.iloc[1], sep="\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Without matching, the best limit is right in 17 of 24 pairs.** With it length says nothing: 12 of 24.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## DPO, in twenty lines
#
# ![Four log-probabilities: chosen 0.0 nats, rejected −5.2 nats, so the margin is 5.2](images/margin.svg)
#
# This is one of the new pairs after a good run. The chosen answer is as likely as before, and the rejected one only
# $e^{-5.2} \approx 1/180$ as likely. The *margin* is the first change minus the second.
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
# a long answer is nearly always less likely than a short one. With it only the *change* counts. The reference also
# ties the model down: DPO comes from the RLHF problem "raise the reward, but stay close to $\pi_0$", where $\beta$ is
# the price of moving away, measured as a KL divergence. The reference's log-probabilities are computed only once.
#
# **What does $\beta$ do?** The force with which a pair still moves the model is the slope of its loss,
# $\beta\,\sigma(-\beta m)$: at the usual $\beta = 0.1$ it has halved at a margin of 11 nats, and a larger $\beta$ is
# satisfied with a smaller margin. DPO treats $\beta \log (\pi / \pi_0)$ as the reward of an answer, so $\beta m$ is
# called the *reward margin*, and the share of pairs where it is positive the *reward accuracy*.


# %%
def log_probabilities(model, pairs):
    """Summed over tokens, shape (2, pairs): first the chosen, then the rejected."""
    chosen = list(map(encode, pairs.prompt, pairs.chosen))
    rejected = list(map(encode, pairs.prompt, pairs.rejected))
    batch = collate(chosen + rejected)
    logits = model(input_ids=batch["input_ids"][:, :-1]).logits  # padded on the right
    labels = batch["labels"][:, 1:]  # the output at a place predicts the next token
    of_tokens = -cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    return of_tokens.sum(1).view(2, -1)  # a label of -100 has counted as 0


BEFORE = ["chosen_before", "rejected_before"]
for table in (pairs, new_pairs):
    table[BEFORE] = log_probabilities(reference, table).T.numpy()


def changes(model, pairs):
    """By how many nats chosen and rejected answers have become more likely."""
    return log_probabilities(model, pairs) - torch.tensor(pairs[BEFORE].to_numpy().T)


def dpo_loss(model, pairs, beta=0.1):
    won, lost = changes(model, pairs)
    return -logsigmoid(beta * (won - lost)).mean()


# %% [markdown] slideshow={"slide_type": "slide"}
# ## Choose by validation
#
# A step takes two neighbouring pairs, so that their gaps in length cancel. We try three losses:
#
# - *SFT*: the ordinary loss on the chosen answers alone. If this is as good, we need no pairs;
# - *DPO* with $\beta = 0.1$;
# - *DPO + SFT*: the sum of both, so that chosen answers do not become less likely together with the rejected ones.
#
# Beside the four numbers from above, the table has the last *loss*, and on the 12 new pairs the mean *margin* and the
# mean change of the *chosen* answers in nats. **Will SFT do as well, and which columns will expose a bad run?**


# %%
def dpo_sft_loss(model, pairs):
    return dpo_loss(model, pairs) + answer_loss(model, pairs, "chosen")


def tune(loss_of, rate, seed=0):
    model = copy.deepcopy(reference).requires_grad_(True)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
    batches = [pairs[2 * n : 2 * n + 2] for n in order[:8].tolist()]
    loss = train_on(model, loss_of, batches, rate)
    return model.eval(), loss


# %% tags=["nbval-ignore-output"]
LOSSES = {"SFT": partial(answer_loss, column="chosen")}
LOSSES |= {"DPO": dpo_loss, "DPO + SFT": dpo_sft_loss}
settings = [("SFT", 3e-4), ("SFT", 6e-4), ("SFT", 1.2e-3), ("DPO", 1e-4), ("DPO", 3e-4)]
rows, runs = [["reference", 0, *read_off(reference), 0.0, 0.0, None]], {}
for name, rate in [*settings, ("DPO", 1e-3), ("DPO + SFT", 3e-4), ("DPO + SFT", 1e-3)]:
    runs[name, rate], loss = tune(LOSSES[name], rate)
    won, lost = changes(runs[name, rate], new_pairs).detach()
    logged = (won - lost).mean().item(), won.mean().item(), loss
    rows.append([name, rate, *read_off(runs[name, rate]), *logged])
names = ["trained with", "rate", *SEEN, "margin", "chosen", "loss"]
pd.DataFrame(rows, columns=names).set_index(names[:2]).round(2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **DPO removes the habit at the middle rate.** None of 30 answers begins with it, and none is empty. At the lowest rate
# nine still have it. Because we always take the most likely token, these counts hide something: the probability of an
# end token at the very beginning rose from 1% to 5%. So if you sample instead, about one answer in twenty is empty.
#
# **By its log, the highest rate is the best DPO run.** Its last loss is the lowest, and its margin twice as wide. But
# the chosen answers have lost nearly 5 nats on average, which makes them a hundred times less likely, and one sampled
# answer in ten would be empty. The loss asks only that the chosen answers lose less than the rejected ones. The
# probability that both lose goes to texts that are in no pair.
#
# **SFT does as well, but at twice the rate.** At the same rate of 0.0003 the habit's first token keeps a probability of
# 10%, and with DPO 1%, because only DPO sees what to avoid. So if you have good answers, try SFT first: a step costs
# half as much. DPO is for people who can only compare, since the better of two answers need not be good.
#
# **DPO + SFT protects the chosen answers a little**: they gain 1.3 nats at the middle rate, and 0.8 with DPO alone. It
# does not repair a rate that is too high: they still lose 2 nats, and 9 answers are empty. So choose the rate first.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The test, once
#
# We train SFT and DPO at their middle rates with three seeds. Each seed draws its own 16 of the 24 pairs. The test has
# 40 questions about topics that no split above contains. **How far can the seeds differ?**

# %% tags=["nbval-ignore-output"]
models = {"reference": reference}
for name, rate in [("SFT", 6e-4), ("DPO", 3e-4)]:
    for seed in range(3):
        models[f"{name}, seed {seed}"] = tune(LOSSES[name], rate, seed)[0]
tested = [read_off(model, "test") for model in models.values()]
tested = pd.DataFrame(tested, list(models), SEEN)
print(*write(models["DPO, seed 0"], tables["test"].prompt[:2], limit=24), sep="\n")
tested.round(2)

# %%
good = tested["habit"][4:].max() <= 2 and tested["empty"][4:].max() < 40 / 4
course.claim("DPO, each seed: habit in at most 2 of 40, empty under 10", good)
low, high = binomtest(0, 40).proportion_ci(method="wilson")
print(f"95% interval of 0 in 40: {low:.0%} to {high:.1%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **The habit is gone.** Before, all 40 answers began with it. Now none does and none is empty, with either loss and
# every seed; by the [Wilson interval](glossary.md#wilson-interval) the true share may still be up to 9%. If you sample,
# 2 to 8% are empty. Sixteen pairs are enough, probably because the habit is always the same. A preference that depends
# on the question needs many more: the data set of TRL's own example, UltraFeedback, has about 60,000.
#
# **Are the chosen answers more likely now?** A point is a new pair. Below the dashed line its margin is positive.

# %%
won, lost = changes(models["DPO, seed 0"], new_pairs).detach().numpy()
points = pd.DataFrame({"chosen (nats)": won, "rejected (nats)": lost})
axes = points.plot.scatter("chosen (nats)", "rejected (nats)", figsize=(7, 4))
axes.axline((0, 0), slope=1, color="gray", linestyle="--")
axes.axvline(0, color="gray", linewidth=1)
axes.set_title(f"Margins rose, but only {(won > 0).sum()} of 12 chosen answers did")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Not all of them.** The margin also widens when *both* answers become less likely and the rejected one loses more.
# Logs show this as `rewards/chosen` below 0. If it goes on falling, lower the rate; adding SFT helps a little (TRL:
# `loss_type=["sigmoid", "sft"]`).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The way it is done at work: `DPOTrainer`
#
# TRL takes a data set with the columns `prompt`, `chosen` and `rejected`, and adds the end token by itself. The answers
# get the space in front that `encode` adds. Two of the defaults that we replace are worth knowing: the rate ($10^{-6}$)
# and bf16. The reference need not be a second model in memory. TRL can compute its log-probabilities once
# (`precompute_ref_log_probs=True`), as we did, or train a LoRA [adapter](glossary.md#adapter): then the reference is
# the model without it. We do so, at ten times the rate ([lesson 5](05_lora.ipynb)). We compare the losses *after*
# training, because at the first step even wrong labels give $\log 2$: policy and reference are equal.

# %%
data = pairs[["prompt", "chosen", "rejected"]].copy()
data["prompt"] = data.prompt.map(as_prompt)
data["chosen"], data["rejected"] = " " + data.chosen, " " + data.rejected
arguments = DPOConfig(
    mkdtemp(), beta=0.1, learning_rate=3e-3, per_device_train_batch_size=2,
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
    theirs, ours = trainer.compute_loss(policy, batch), dpo_loss(policy, pairs[:4])
course.claim("Our loss equals that of TRL to 1e-4", abs(theirs - ours).item() < 1e-4)

# %% tags=["nbval-ignore-output"]
loaded = PeftModel.from_pretrained(copy.deepcopy(reference), arguments.output_dir)
print(pd.Series(read_off(loaded.eval()), SEEN).round(2).to_dict())
log = pd.DataFrame(trainer.state.log_history).set_index("step")
log[["loss", "rewards/accuracies", "rewards/margins", "rewards/chosen"]].round(2)[:4]

# %% [markdown] slideshow={"slide_type": "subslide"}
# **No answer begins with the habit**, with the adapter as loaded from disk. A row of TRL's log averages two steps:
# `rewards/margins` is $\beta m$, so 0.25 is a margin of 2.5 nats, and `rewards/chosen` is $\beta$ times the change of
# the chosen answers. The first accuracy is low because at step 1 every margin is 0, and TRL counts only larger ones.
#
# **With a real model**, start at $\beta = 0.1$ and a rate of $5 \cdot 10^{-7}$, or $5 \cdot 10^{-6}$ with an adapter.
# These are the rates of [TRL's example](https://github.com/huggingface/trl/blob/main/trl/scripts/dpo.py), for 1,000
# steps of 16 pairs. Our rates are so high because we take only eight steps with a tiny model.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Build pairs so that nothing but what you mean tells the better answer, and test that with a rule.
# - DPO widens the margin between two answers relative to a reference. It can do so while both become less likely.
# - Loss and margin can look best where the model is worse. Let it write, count, and compare with SFT.
#
# ## Further reading
#
# - R. Rafailov et al., [Direct Preference Optimization](https://arxiv.org/abs/2305.18290), 2023.
# - R. Park et al., [Disentangling Length from Quality in DPO](https://arxiv.org/abs/2403.19159), 2024.
# - A. Pal et al., [Smaug: Fixing Failure Modes of Preference Optimisation with
#   DPO-Positive](https://arxiv.org/abs/2402.13228), 2024.

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
# - **c** Let it write, count what was wanted and what was not, and look whether the chosen answers rose.
# - **d** Raise the learning rate.

# %%
course.quiz("quiz14")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 14.1.** `dpo_sft_loss` sends the chosen answers through the model twice. Write it with one pass, and with a
# weight. `before` and `after` are log-probabilities under the reference and under the model in training, of shape (2,
# pairs) like those of `log_probabilities`. `tokens` says how many tokens each chosen answer has. Return the DPO loss
# plus `weight` times the SFT loss, which is the mean over all tokens of the chosen answers, as in `answer_loss`.

# %%
from torch.nn.functional import logsigmoid


def dpo_and_sft(before, after, tokens, beta, weight):
    """DPO plus SFT on the chosen answers, from log-probabilities."""
    # your code here


course.check("ex14_1", dpo_and_sft)

# %% [markdown]
# Previous: [13 · Classification](13_classification.ipynb) ·
# Next: [15 · The comparison](15_comparison.ipynb)
