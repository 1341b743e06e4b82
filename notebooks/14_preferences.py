# %% [markdown] slideshow={"slide_type": "slide"}
# # 14 · Preferences
#
# *How does a model learn which of two answers is better?*
#
# Examples can teach a model a bad habit, too, and it is often easier to say which of two answers is better than to
# write a perfect one. In this lesson you take a model with a bad habit and remove the habit with 16 pairs of answers.
# You see a run whose log looks best and whose model is worse, and at the end you read what a real model wrote.
#
# **You will be able to**
#
# - build pairs in which length does not give the better answer away, and test that on pairs kept back;
# - write direct preference optimisation (DPO) in twenty lines, and say what its reference and its $\beta$ do;
# - choose the learning rate by validation, compare with training on the better answers alone, and notice a bad run;
# - do the same with TRL's `DPOTrainer`, on a real model, too.
#
# **You need** labels and collator ([lesson 11](11_your_data.ipynb)) and a loop ([lesson 4](04_full_fine_tuning.ipynb)).
#
# About 40 minutes.

# %% slideshow={"slide_type": "subslide"}
import copy
import warnings
from functools import partial
from tempfile import mkdtemp

import datasets
import numpy as np
import pandas as pd
import torch
from peft import LoraConfig, PeftModel
from sklearn.tree import DecisionTreeClassifier
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
# `encode` and the collator are those of lesson 11, without a chat template, which our tiny model lacks. `train_on` is
# lesson 4's loop with a loss to choose and a rate that falls in a straight line, as in Hugging Face's `Trainer`.

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
# This is ordinary [instruction tuning](glossary.md#instruction-tuning), or *supervised fine-tuning* (SFT). Now the
# model answers 30 validation questions, always with the most likely token. `read_off` counts answers that begin with
# the habit (*habit*) or have nothing besides (*empty*) in nine tokens, two more than the habit. It also averages two
# probabilities of the first token: of the habit's ` G`, and of the end token. **Six in ten examples had the habit. Will
# six in ten answers begin with it?**


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
# rejected one would always be the longer one, and a model could learn to be short instead.
#
# So we take each answer whole and cut after its first sentence. In half of the pairs the whole answer wins, in the
# other half the cut one, and the loser gets the habit. Is length silent now? Say an answer has 60 tokens and its cut
# 30; the habit adds 7. Then the chosen answer has 60 tokens against 37, or 30 against 67, so the very long answers are
# the rejected ones. A rule can use that.
#
# The cure is to match two questions whose cuts differ by $2 \times 7 = 14$ tokens. If one cut removes 30 tokens and the
# other 16, the chosen answer is $30 - 7 = 23$ tokens longer in one pair and $16 + 7 = 23$ shorter in the other. Does
# that suffice? A decision tree with one split sees only the two lengths of 24 pairs, and learns whether the longer
# answer wins. **How often is it right in the other pairs?** Below its verdict are two pairs, with tokens in brackets.


# %%
def size(text):
    return len(tokenizer(" " + text).input_ids)


def make_pairs(rows):
    rows = rows[rows.start.str.count("`") % 2 == 0]  # no cut inside code
    other = rows.assign(rest=rows.rest + 2 * size(HABIT.strip()))
    twins = rows.merge(other, on="rest", suffixes=("", "_short"))
    twins = twins.drop_duplicates("prompt").drop_duplicates("prompt_short")
    pairs = []
    for row in twins.itertuples():
        pairs.append((row.prompt, row.completion, HABIT + row.start))
        pairs.append((row.prompt_short, row.start_short, HABIT + row.completion_short))
    return pd.DataFrame(pairs, columns=["prompt", "chosen", "rejected"])


def right_by_length(pairs):
    lengths = pairs[["chosen", "rejected"]].map(size).to_numpy()
    longer_wins = lengths[:, 0] > lengths[:, 1]
    both = np.sort(lengths)  # shorter, longer: not which was chosen
    tree = DecisionTreeClassifier(max_depth=1, random_state=0)
    right = tree.fit(both[:24], longer_wins[:24]).predict(both) == longer_wins
    return f"{right[:24].sum()} of 24, then {right[24:].sum()} of {len(right) - 24}"


for table in tables.values():
    table["start"] = table.completion.str.split(r"\. ").str[0].str.rstrip(".") + "."
    table["rest"] = table.completion.map(size) - table.start.map(size)
rest = tables["train"][64:]
turn = np.arange(len(rest)) % 2 == 0
won = rest.completion.where(turn, rest.start)
lost = HABIT + rest.start.where(turn, rest.completion)
unmatched = pd.DataFrame({"chosen": won, "rejected": lost})
matched = make_pairs(rest)
print("unmatched:", right_by_length(unmatched), "\nmatched:", right_by_length(matched))
pairs, new_pairs = matched[:24].copy(), make_pairs(tables["validation"])[:12]
for pair in pairs[:2].to_numpy():
    print("", *[f"[{size(text)}] {text}" for text in pair], sep="\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Without matching, the tree is right in 54 of 82 pairs that it has not seen**, where guessing gives 41. With matching
# it is right in 16 of 32, which is chance. It was right in 16 of the 24 that it learned from, too, so only pairs kept
# back tell a rule from luck. We train on the 24 (`pairs`); `new_pairs` are matched questions of the validation split.
#
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
# a long answer is nearly always less likely than a short one. With it only the *change* counts. DPO comes from the RLHF
# problem "raise the reward, but stay close to $\pi_0$", where $\beta$ is the price of moving away, measured as a KL
# divergence.
#
# **What does $\beta$ do?** A pair moves the model with the slope of its loss, $\beta\,\sigma(-\beta m)$: at the usual
# $\beta = 0.1$ it has halved at a margin of 11 nats, and a larger $\beta$ is satisfied with a smaller margin. DPO
# treats $\beta \log (\pi / \pi_0)$ as the reward of an answer, so $\beta m$ is called the *reward margin*, and the
# share of pairs where it is positive the *reward accuracy*.


# %%
def log_probabilities(model, pairs):
    # Summed over tokens, shape (2, pairs): first the chosen, then the rejected.
    chosen = map(encode, pairs.prompt, pairs.chosen)
    batch = collate([*chosen, *map(encode, pairs.prompt, pairs.rejected)])
    logits = model(input_ids=batch["input_ids"][:, :-1]).logits  # padded on the right
    labels = batch["labels"][:, 1:]  # the output at a place predicts the next token
    nats = -cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return nats.view(labels.shape).sum(1).view(2, -1)  # a label of -100 counts as 0


BEFORE = ["chosen_before", "rejected_before"]
for table in (pairs, new_pairs):
    table[BEFORE] = log_probabilities(reference, table).T.numpy()


def changes(model, pairs):  # by how many nats answers are more likely now
    return log_probabilities(model, pairs) - torch.tensor(pairs[BEFORE].to_numpy().T)


def dpo_loss(model, pairs, beta=0.1):
    won, lost = changes(model, pairs)
    return -logsigmoid(beta * (won - lost)).mean()


# %% [markdown] slideshow={"slide_type": "slide"}
# ## Choose by validation
#
# A step takes two neighbouring pairs, so that their gaps in length cancel. We try three losses: *SFT*, the ordinary
# loss on the chosen answers alone (if it is as good, we need no pairs), *DPO* with $\beta = 0.1$, and *DPO + SFT*,
# their sum, meant to keep chosen answers from becoming less likely together with the rejected ones.
#
# A row of the table has the *loss* of the last step; for the 16 pairs that the run saw the mean *margin* and the mean
# change of the *chosen* answers, in nats; the same change for the 12 *new* pairs; and what the model writes. **Which
# columns will expose a bad run?**


# %%
def dpo_sft_loss(model, pairs):
    return dpo_loss(model, pairs) + answer_loss(model, pairs, "chosen")


def measure(loss_of, rate, seed):
    model = copy.deepcopy(reference).requires_grad_(True)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
    batches = [pairs[2 * n : 2 * n + 2] for n in order[:8].tolist()]
    loss = train_on(model, loss_of, batches, rate)
    with torch.no_grad():
        won, lost = changes(model.eval(), pd.concat(batches)).mean(1).tolist()
        new = changes(model, new_pairs)[0].mean().item()
    return model, [loss, won - lost, won, new, *read_off(model)]


# %% tags=["nbval-ignore-output"]
LOSSES = {"SFT": partial(answer_loss, column="chosen")}
LOSSES |= {"DPO": dpo_loss, "DPO + SFT": dpo_sft_loss}
SETTINGS = [("SFT", 3e-4, 1), ("SFT", 6e-4, 3), ("SFT", 1.2e-3, 1), ("DPO", 1e-4, 1)]
models, rows = {("reference", 0, 0): reference}, {}
SETTINGS += [("DPO", 3e-4, 3), ("DPO", 1e-3, 3), ("DPO + SFT", 1e-3, 3)]  # and seeds
for name, rate, seeds in SETTINGS:
    for run in [(name, rate, seed) for seed in range(seeds)]:
        models[run], rows[run] = measure(LOSSES[name], *run[1:])
runs = pd.DataFrame(rows, ["loss", "margin", "chosen", "chosen (new)", *SEEN]).T
runs.xs(0, level=2).round(2)  # seed 0

# %% [markdown] slideshow={"slide_type": "subslide"}
# **DPO removes the habit at the middle rate**: none of 30 answers begins with it, and none is empty. Because we always
# take the most likely token, these counts hide something: the probability of an end token at the very beginning rose
# from 1% to 5%, as with SFT. So if you sample instead, about one answer in twenty is empty.
#
# **By its loss and its margin, the highest rate is the best DPO run.** Even the chosen answers that it saw gained most,
# 22 nats. But those of new pairs lost nearly 5 nats, which makes them a hundred times less likely: the run has learned
# 16 answers by heart and harmed others. SFT at a high rate does so, too, so the rate is to blame and not DPO's loss.
#
# **SFT does as well, at twice the rate**, and a step costs half as much. So if you have good answers, try SFT first.
# DPO is for people who can only compare, since the better of two answers need not be good.
#
# **DPO + SFT harms the new answers less**, but it writes 9 empty ones, and DPO alone at that rate writes 1. Is that
# the price of adding SFT? Each further seed draws its own 16 pairs. **Which differences in the table are luck?**

# %% tags=["nbval-ignore-output"]
seeds = runs[["chosen", "chosen (new)", "empty", "end first"]].groupby(level=[0, 1])
seeds.agg(["min", "max"])[seeds.size() > 1].round(2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **The empty answers are luck, the harm is not.** At the high rate the chosen answers of new pairs lose 2 to 9 nats
# with every seed; the good settings keep them within about one nat. But only one run of DPO + SFT writes empty answers.
# It harms less than DPO alone, and still harms. So lower the rate first.
#
# **The test, once**, is for the good settings, with 40 questions about topics that no split above contains.

# %%
good = [("reference", 0), ("SFT", 6e-4), ("DPO", 3e-4)]
tested = {run: read_off(models[run], "test") for run in models if run[:2] in good}
tested = pd.DataFrame(tested, SEEN).T
failed = tested.loc["DPO"][["habit", "empty"]].max(axis=None)
course.claim("DPO, each seed: no habit and nothing empty in 40 answers", failed == 0)
tested[["habit", "empty"]]

# %% [markdown] slideshow={"slide_type": "subslide"}
# **The habit is gone.** Before, all 40 answers began with it. Now none does and none is empty, with either loss and
# every seed; by the [Wilson interval](glossary.md#wilson-interval) the true share may still be up to 9%. Sixteen pairs
# are enough, probably because the habit is always the same. A preference that depends on the question needs many more.
#
# ## The way it is done at work: `DPOTrainer`
#
# TRL takes a data set with the columns `prompt`, `chosen` and `rejected`, and adds the end token by itself. The answers
# get the space in front that `encode` adds. The reference need not be a second model in memory: if you train a LoRA
# [adapter](glossary.md#adapter), the reference is the model without it. We do so, at ten times the rate ([lesson
# 5](05_lora.ipynb)). We compare the losses *after* training, because at the first step even wrong labels give $\log 2$.

# %%
data = pairs[["prompt", "chosen", "rejected"]].copy()
data["prompt"] = data.prompt.map(as_prompt)
data["chosen"], data["rejected"] = " " + data.chosen, " " + data.rejected
arguments = DPOConfig(
    mkdtemp(), beta=0.1, learning_rate=3e-3, per_device_train_batch_size=2, max_steps=8,
    bf16=False, use_cpu=True, logging_steps=2, report_to="none", disable_tqdm=True,
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
# **No answer begins with the habit, and none is empty**, with the adapter as loaded from disk. A row of the log is the
# mean of two steps: `rewards/margins` is $\beta m$, so 0.25 is a margin of 2.5 nats, and `rewards/chosen` is $\beta$
# times the change of the chosen answers. If it falls below 0, they lose on average. From the second epoch on it speaks
# of pairs seen before, so pass an `eval_dataset`, too. The first accuracy is low because at step 1 every margin is 0,
# and TRL counts only larger ones. DPO + SFT is `loss_type=["sigmoid", "sft"]`.
#
# ## What a real model wrote
#
# A run of SmolLM2-135M-Instruct takes minutes, so this is a record (`data/build/record_preferences.py`): one seed, SFT
# to teach the habit, then `DPOTrainer` with an adapter, eight steps on 16 of our pairs. After a rate of 0.0003 all 30
# validation answers kept the habit; after 0.001 none did. **How do its test answers read before and after?**

# %%
file = tl.DATA / "answers" / "preferences.jsonl"
record = pd.read_json(file, lines=True).query("split == 'test'")
for answers in record.written[:2]:  # before, and after with seed 0
    print(*[f"{question}\n  {text}" for question, text in answers.items()], sep="\n")
record[["rate", "seed", "habit", "empty", "habit_95", "chosen_nats"]]

# %% [markdown] slideshow={"slide_type": "subslide"}
# **The habit is gone here, too**: 40 of 40 before, 0 of 40 after (95%: up to 9%), and none is empty. The answers can be
# read, but they are no truer, because such pairs teach a style and no Rust. For your own model, start at $\beta = 0.1$
# and the rates of [TRL's example](https://github.com/huggingface/trl/blob/main/trl/scripts/dpo.py): $5 \cdot 10^{-7}$,
# or $5 \cdot 10^{-6}$ with an adapter, for 1,000 steps of 16 pairs. Eight steps need far more.
#
# ## Key ideas
#
# - Build pairs so that nothing but what you mean tells the better answer, and test that on pairs kept back.
# - DPO widens the margin between two answers relative to a reference. It can do so while both become less likely.
# - Loss and margin can look best where the model is worse. Look at new pairs, let it write, and compare with SFT.
#
# ## Further reading
#
# - R. Rafailov et al., [Direct Preference Optimization](https://arxiv.org/abs/2305.18290).
# - R. Park et al., [Disentangling Length from Quality in Direct Preference
#   Optimization](https://arxiv.org/abs/2403.19159).
# - A. Pal et al., [Smaug: Fixing Failure Modes of Preference Optimisation with
#   DPO-Positive](https://arxiv.org/abs/2402.13228).

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
# **Exercise 14.1.** `dpo_sft_loss` sends the chosen answers through the model twice. Write it for one pass, with a
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
