# %% [markdown] slideshow={"slide_type": "slide"}
# # 14 · Preferences
#
# *How does a model learn which of two answers is better?*
#
# It is often easier to say which of two answers is better than to write a perfect one. Here you remove a model's bad
# habit with 16 pairs of answers, and see that the run with the best loss damages the model.
#
# **You will be able to**
#
# - build pairs in which length does not give the better answer away, and test that on pairs kept back;
# - write direct preference optimisation (DPO) in twenty lines, and say what its reference and its $\beta$ do;
# - choose the learning rate by validation and notice a bad run, in your own loop and with TRL's `DPOTrainer`.
#
# **You need** labels and collator ([lesson 11](11_your_data.ipynb)) and a loop ([lesson 4](04_full_fine_tuning.ipynb)).
#
# About 38 minutes.

# %% slideshow={"slide_type": "subslide"}
import copy

import datasets
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from peft import LoraConfig
from sklearn.model_selection import GroupShuffleSplit, cross_val_score
from sklearn.tree import DecisionTreeClassifier
from torch.nn.functional import cross_entropy, logsigmoid
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq
from transformers.trainer_callback import PrinterCallback
from trl import DPOConfig, DPOTrainer

import course
import tlkit as tl

tl.setup()
datasets.disable_progress_bars()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A model with a habit
#
# First we teach a bad habit. The course comes with questions about Rust and their answers, in three splits that share
# no topic. We keep those that explain or compare, the shortest first. In front of 39 of the first 64 training answers
# we write *Great question!*.

# %%
HABIT = "Great question! "
tables = {}
for split in ("train", "validation", "test"):
    table = pd.read_json(tl.DATA / "answers" / f"{split}.jsonl", lines=True)
    table = table[table.form.isin(["explain", "compare"])].copy()
    table["length"] = table.prompt.str.len() + table.completion.str.len()
    tables[split] = table.sort_values("length", kind="stable")
first = tables["train"][:64].rename(columns={"completion": "chosen"})
first.loc[[n % 5 < 3 for n in range(64)], "chosen"] = HABIT + first.chosen

# %% [markdown] slideshow={"slide_type": "subslide"}
# `encode` and the collator are lesson 11's without the chat template, which our tiny model lacks. `train_on` is lesson
# 4's loop, but it takes the loss as an argument, and its rate falls linearly.

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
    schedule = torch.optim.lr_scheduler.LinearLR(adamw, 1.0, 0.0, len(batches))
    for rows in batches:
        loss = loss_of(model, rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad()
        schedule.step()


def answer_loss(model, rows):
    return model(**collate(list(map(encode, rows.prompt, rows.chosen)))).loss


order = torch.randperm(64, generator=torch.Generator().manual_seed(0)).split(8)
batches = [first.iloc[rows.tolist()] for rows in order]
reference = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
train_on(reference, answer_loss, batches + batches, 1e-3)  # two epochs
reference = reference.eval().requires_grad_(False)

# %% [markdown] slideshow={"slide_type": "subslide"}
# This is ordinary [instruction tuning](glossary.md#instruction-tuning), or *supervised fine-tuning* (SFT). Now the
# model answers 30 validation questions, always with the most likely token. *habit* counts answers that begin with the
# habit's seven tokens, and *habit first* is the mean probability of its first token, ` G`. **Six in ten examples had
# the habit. Will six in ten answers begin with it?**


# %%
def write(model, questions, limit):
    texts = [as_prompt(question) for question in questions]
    batch = tokenizer(texts, padding=True, padding_side="left", return_tensors="pt")
    options = {"output_logits": True, "return_dict_in_generate": True}
    out = model.generate(**batch, max_new_tokens=limit, do_sample=False, **options)
    written = out.sequences[:, batch.input_ids.shape[1] :]
    texts = tokenizer.batch_decode(written, skip_special_tokens=True)
    return pd.Series(texts).str.strip(), out.logits[0].softmax(-1)  # of the first token


@torch.no_grad()
def read_off(model, split="validation"):
    written, p = write(model, tables[split].prompt, limit=7)
    habit = int(written.str.startswith(HABIT.strip()).sum())
    return habit, p[:, tokenizer(" " + HABIT).input_ids[0]].mean().item()


print(*write(reference, tables["validation"].prompt[:2], limit=24)[0], sep="\n")
print("habit {}, habit first {:.2f}".format(*read_off(reference)))

# %% [markdown] slideshow={"slide_type": "subslide"}
# **All of them do.** The habit's first token has a probability of about a half on average, but for every question it is
# the most likely token. The rest is nonsense, because the model is tiny, so judge only how answers begin.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Pairs in which length says nothing
#
# A pair has a question, a *chosen* and a *rejected* answer. If the rejected one were the chosen one with the habit in
# front, it would always be longer, and a model could learn to be short instead.
#
# So each answer comes whole and cut after its first sentence. In half of the pairs the whole answer is chosen, in the
# others the cut one, and the rejected one gets the habit. But the habit makes whole answers longer, too, so the longest
# answers are still rejected ones. The cure is to match two questions, *twins*, whose cuts differ by twice the habit's 7
# tokens:
#
# cut removes | chosen | rejected | the chosen answer is
# ---|---|---|---
# 30 tokens | whole | habit + cut | 30 − 7 = 23 longer
# 16 tokens | cut | habit + whole | 16 + 7 = 23 shorter
#
# **Does length still tell?** A decision tree with one split reads the two lengths of a pair and says whether the longer
# answer wins. It learns from 24 pairs and judges the others, in 50 draws. Twins stay together, and no question is in
# both parts.


# %%
def size(text):
    return len(tokenizer(" " + text).input_ids)


def make_pairs(rows):
    rows = rows[rows.start.str.count("`") % 2 == 0]  # no cut inside code
    shifted = rows.assign(removed=rows.removed + 2 * size(HABIT.strip()))
    twins = rows.merge(shifted, on="removed", suffixes=("", "_twin"))
    twins = twins.drop_duplicates("prompt").drop_duplicates("prompt_twin")
    pairs = []
    for row in twins.itertuples():
        pairs.append((row.prompt, row.completion, HABIT + row.start))
        pairs.append((row.prompt_twin, row.start_twin, HABIT + row.completion_twin))
    return pd.DataFrame(pairs, columns=["prompt", "chosen", "rejected"])


def right_by_length(pairs):
    longer = pairs.chosen.map(size) > pairs.rejected.map(size)  # does it win?
    lengths = np.sort(pairs[["chosen", "rejected"]].map(size))  # shorter, then longer
    twins, asked = np.arange(len(pairs)) // 2, pairs.prompt.to_numpy()
    draws = GroupShuffleSplit(50, train_size=12, random_state=0).split  # whole twins
    cv = [(a, b[~np.isin(asked[b], asked[a])]) for a, b in draws(lengths, None, twins)]
    tree = DecisionTreeClassifier(max_depth=1, random_state=0)
    right = cross_val_score(tree, lengths, longer, cv=cv)
    return f"{right.mean():.0%} ± {right.std():.0%}"


for table in tables.values():
    table["start"] = table.completion.str.split(r"\. ").str[0].str.rstrip(".") + "."
    table["removed"] = table.completion.map(size) - table.start.map(size)  # tokens
later = tables["train"][64:]
even = np.arange(len(later)) % 2 == 0
unmatched = later[["prompt"]].assign(chosen=later.completion.where(even, later.start))
unmatched["rejected"] = HABIT + later.start.where(even, later.completion)
matched = make_pairs(later)
print(f"unmatched {right_by_length(unmatched)}, matched {right_by_length(matched)}")
both = pd.concat([matched[:24], make_pairs(tables["validation"])], ignore_index=True)
pairs, new_pairs = both[:24], both[24:36]
print(*[f"{k} ({size(t)} tokens): {t}" for k, t in pairs.iloc[0].items()], sep="\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Without matching, length alone finds the better answer in 64% of the other pairs, and with it in 49%, like a coin**
# (± spread of the draws). A run trains on 16 of the first 24 (`pairs`); `new_pairs` are for validation.
#
# ## DPO, in twenty lines
#
# The older way, reinforcement learning from human feedback (RLHF), first trains a *reward model* to score answers, and
# then the *policy*, the model that writes, to score high. DPO needs none: it compares how likely both answers are under
# the policy $\pi$ and under its frozen copy, the *reference* $\pi_0$:
#
# $$m = \log \frac{\pi(y_w \mid x)}{\pi_0(y_w \mid x)} - \log \frac{\pi(y_l \mid x)}{\pi_0(y_l \mid x)}, \qquad
# L = -\log \sigma(\beta\, m).$$
#
# $x$ is the question, $y_w$ the chosen answer ("won"), $y_l$ the rejected one ("lost") and $\sigma$ the sigmoid. An
# answer's log-probability is the sum over its tokens, and a batch's loss the mean over its pairs. At the start the two
# models are equal, so $m = 0$ and the loss is $\log 2 \approx 0.69$.
#
# Here is the *margin* $m$ of one validation pair after the run that we shall choose. Its chosen answer is as likely as
# before, and the rejected one only $e^{-5.2} \approx 1/180$ as likely.
#
# ![Four log-probabilities: chosen 0.0 nats, rejected −5.2 nats, so the margin is 5.2](images/margin.svg)
#
# **Why a reference?** Without it the loss would ask for a chosen answer that is more likely than the rejected one, and
# a long answer is nearly always less likely than a short one. With a reference, only the *change* counts.
#
# **What does $\beta$ do?** A pair pulls with the slope of its loss, $\beta\,\sigma(-\beta m)$: $\beta / 2$ at first,
# and little once $\beta m$ is large. So a larger $\beta$ is satisfied with a smaller margin and keeps the model closer
# to $\pi_0$; 0.1 is usual, but in a run as short as ours $\beta$ hardly matters. Tools log $\beta \log (\pi / \pi_0)$
# as an answer's reward, $\beta m$ as the *reward margin*, and the share of pairs above 0 as the *reward accuracy*.


# %%
def log_probabilities(model, pairs):  # axes: chosen or rejected, pairs, tokens
    chosen = map(encode, pairs.prompt, pairs.chosen)
    batch = collate([*chosen, *map(encode, pairs.prompt, pairs.rejected)])
    logits = model(input_ids=batch["input_ids"][:, :-1]).logits  # padded on the right
    labels = batch["labels"][:, 1:]  # the output at a place predicts the next token
    nats = -cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    answers = [row[keep] for row, keep in zip(nats, labels != -100, strict=True)]
    return pad_sequence(answers, batch_first=True).view(2, len(pairs), -1)  # by zeros


before = log_probabilities(reference, both[:36])  # once for all


def changes(model, pairs):  # by how many nats each token is more likely now
    now = log_probabilities(model, pairs)
    return now - before[:, list(pairs.index), : now.shape[2]]


def dpo_loss(model, pairs, beta=0.1):
    won, lost = changes(model, pairs).sum(2)  # whole answers
    return -logsigmoid(beta * (won - lost)).mean()


# %% [markdown] slideshow={"slide_type": "slide"}
# ## Choose by validation
#
# A step takes a pair and its twin, so that their gaps in length cancel. We compare DPO with SFT on the chosen answers,
# because if that is as good, we need no pairs. We read off
#
# - *margin*, the mean of the run's 16 pairs; the wider it is, the lower is the loss;
# - *chosen*, by how much their chosen answers became more likely;
# - *chosen (new)* and *rejected (new)*, the same for 12 validation pairs.
#
# The last three are nats per token after the first, which must change when the habit goes. **Which column exposes a bad
# run?**


# %%
def per_token(change):  # its mean after the first token: chosen, rejected
    later = change[:, :, 1:]
    return later.sum((1, 2)) / (later != 0).sum((1, 2))  # padding is 0


def measure(loss_of, rate, seed):
    model = copy.deepcopy(reference).requires_grad_(True)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
    batches = [pairs[2 * n : 2 * n + 2] for n in order[:8].tolist()]
    train_on(model, loss_of, batches, rate)
    model.eval().requires_grad_(False)
    seen, new = changes(model, pd.concat(batches)), changes(model, new_pairs)
    values = [(seen[0] - seen[1]).sum(1).mean(), per_token(seen)[0], *per_token(new)]
    return model, [*map(float, values), *read_off(model)]


COLUMNS = ["margin", "chosen", "chosen (new)", "rejected (new)", "habit", "habit first"]
LOSSES = {"SFT": answer_loss, "DPO": dpo_loss}

# %% tags=["nbval-ignore-output"]
models, rows = {}, {}
for run in [("SFT", 6e-4), ("DPO", 3e-4), ("DPO", 1e-3)]:
    models[run], rows[run] = measure(LOSSES[run[0]], run[1], seed=0)
    print(*run, *write(models[run], tables["validation"].prompt[:1], 24)[0], sep=" | ")
pd.DataFrame(rows, COLUMNS).T.round(3)

# %% [markdown] slideshow={"slide_type": "subslide"}
# ***chosen (new)* does.** The answers do not: they have lost the habit, and all are nonsense. By its margin, the higher
# rate is the better run of DPO, and its own chosen answers gained more. But on new pairs *both* answers became less
# likely. The chosen ones lost 0.10 nats a token, so their perplexity rose by 11%. The lower rate of DPO, and SFT,
# remove the habit at no such cost.
#
# **Is the harm luck, or DPO's fault?** Here is a record of three seeds, each with another 16 of the 24 pairs
# (`data/build/record_preference_seeds.py`), with more rates and with the sum of both losses. Small dots are seeds,
# large ones their means.

# %%
by_seed = pd.read_csv(tl.DATA / "answers" / "preference_seeds.csv", index_col=[0, 1, 2])
side = {"SFT": 2 * [(8, -5)], "DPO": 2 * [(-66, 0)], "DPO + SFT": [(-60, 22), (-98, 0)]}
figure, axes = plt.subplots(figsize=(7.5, 4), layout="constrained")
for n, (method, offsets) in enumerate(side.items()):
    seeds = by_seed.loc[method, ["habit first", "chosen (new)"]]
    mean = seeds.groupby("rate").mean()
    axes.semilogx(*seeds.to_numpy().T, ".", color=f"C{n}", alpha=0.5)
    axes.plot(*mean.to_numpy().T, "o-", color=f"C{n}")
    for (rate, dot), at in zip(mean[-2:].iterrows(), offsets, strict=True):
        axes.annotate(f"{method} {rate:g}", dot, at, "data", "offset points", c=f"C{n}")
axes.set(xlabel="habit first (probability)", ylabel="chosen (new), nats/token")
axes.set_title("Upper left is best: for as little habit, DPO does less harm")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# **It is neither**: at the highest rates, SFT's too, every seed harms new answers.
#
# **But for about the same *habit first*, DPO does less harm.** On average, SFT at 0.0012 leaves 1.0% and takes 0.11
# nats a token from new answers; DPO at 0.0003 leaves 1.7% and takes 0.01. With the SFT loss added, most of the harm at
# 0.001 remains, so a lower rate is the cure. But at 0.0001 (upper right), 9 to 14 of 30 answers keep the habit.
#
# If you have good answers, try SFT first: at 0.0006 no answer has the habit either, and new ones lose 0.02 nats a
# token. A step of DPO costs two to three times as much. Take DPO if you can only compare.
#
# **The test, once**, has 40 questions about other topics.

# %%
good = {"reference": reference, "SFT": models["SFT", 6e-4], "DPO": models["DPO", 3e-4]}
{name: read_off(model, "test")[0] for name, model in good.items()}

# %% [markdown] slideshow={"slide_type": "subslide"}
# **The habit is gone**, with both losses and with the record's two other seeds. By the [Wilson
# interval](glossary.md#wilson-interval), up to 9% of answers may still have it.
#
# ## The way it is done at work: `DPOTrainer`
#
# TRL takes a data set with the columns `prompt`, `chosen` and `rejected`, adds the end token and shuffles, so twins
# part. The reference need not be a second model in memory: if you train a LoRA [adapter](glossary.md#adapter), the
# reference is the model without it. We do so at two rates, the lower of them ten times our good one, as LoRA needs
# ([lesson 5](05_lora.ipynb)). We compare TRL's loss with ours *after* training, because at the first step even wrong
# labels give $\log 2$.


# %%
def as_data(pairs):
    rows = [[as_prompt(x), " " + won, " " + lost] for x, won, lost in pairs.to_numpy()]
    return datasets.Dataset.from_pandas(pd.DataFrame(rows, columns=pairs.columns))


lora = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear")
kept, scores = {}, {}
for rate in (3e-3, 1e-2):
    arguments = DPOConfig("../results", beta=0.1, learning_rate=rate, max_steps=8,
        per_device_train_batch_size=2, gradient_checkpointing=False, bf16=False,
        use_cpu=True, save_strategy="no", report_to=[], disable_tqdm=True)  # fmt: skip
    trainer = DPOTrainer(copy.deepcopy(reference), args=arguments,
        train_dataset=as_data(pairs), eval_dataset=as_data(new_pairs),
        processing_class=tokenizer, peft_config=lora)  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    scores[rate] = trainer.evaluate()
    policy = kept[rate] = trainer.model.requires_grad_(False)
batch = trainer.data_collator([trainer.train_dataset[row] for row in range(2)])
loss, ours = trainer.compute_loss(policy, batch), dpo_loss(policy, pairs[:2])
course.claim("Our loss equals that of TRL to 1e-5", abs(loss - ours).item() < 1e-5)

# %% tags=["nbval-ignore-output"]
table = pd.DataFrame(scores).T.filter(regex="eval_(loss|rewards/(acc|mar|cho))")
table["per token"] = [per_token(changes(p, new_pairs))[0].item() for p in kept.values()]
table["habit"] = [read_off(policy)[0] for policy in kept.values()]
kept[3e-3].merge_and_unload().save_pretrained("../results/no_habit")
_ = tokenizer.save_pretrained("../results/no_habit")
table.round(2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Both rates remove the habit, and the higher one has the better loss and margin, even on new pairs**, because
# rejected answers fall further than chosen ones. Only the change of the chosen answers exposes the harm.
# `eval_rewards/chosen`, $\beta$ times their change, shows it here, but it counts the first token, whose gain can hide a
# loss. So *per token* says more: −0.08 nats at the higher rate, about 0 at the lower. In long runs log the reward with
# `eval_strategy="steps"`.
#
# ## What a real model wrote
#
# Here is a record of SmolLM2-135M-Instruct (`data/build/record_preferences.py`): SFT on 32 first sentences with the
# habit, then 24 steps of `DPOTrainer` with an adapter on 48 pairs, at three rates. The last three columns (the same in
# test rows) are changes of the chosen validation answers: in the first token, in all later ones, and per later token.
# **Which rate would you keep, and would counting the habit have told you?**

# %%
real = pd.read_json(tl.DATA / "answers" / "preferences.jsonl", lines=True)
print(*real.written[1], sep="\n")  # two test questions, and what each model answers
for run in real.dropna(subset="written").itertuples():
    print(f"{run.trained_with[:3]} at {run.rate:g}:", *run.written.values(), sep="\n  ")
columns = ["habit", "chosen_first_nats", "chosen_later_nats", "chosen_per_token"]
real[2:].set_index(["split", "rate"])[columns]  # after DPO

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Keep 0.0003.** No answer has the habit, and new chosen answers became more likely after their first token, too. At
# 0.0001 every answer still has it. At 0.001 the count is as good as at 0.0003, but this run has ruined the model: new
# chosen answers lost 0.46 nats a token, and it writes *to a, and, and, and*. So **counting the habit tells the good run
# from the weak one, and the change of chosen answers, or reading, from the ruined one.** (This is one seed. What the
# answers say about Rust is still wrong: the pairs teach only how not to begin.)
#
# **At work**, collect pairs from use: what your model wrote is *rejected*, and a person's correction is *chosen*. Run
# `right_by_length` on them first. Start at $\beta = 0.1$ and the rates of [TRL's
# example](https://github.com/huggingface/trl/blob/main/trl/scripts/dpo.py): $5 \cdot 10^{-7}$, or $5 \cdot 10^{-6}$
# with an adapter, for 1,000 steps of 16 pairs. Then check *per token*, and read ten new answers.
#
# ## Key ideas
#
# - Build pairs so that nothing but what you mean tells the better answer, and test that on pairs kept back.
# - DPO widens the margin between two answers relative to a reference. It can do so while both become less likely.
# - Loss and margin look best in the bad run, even on new pairs. See how *new chosen* answers change, in nats per token.
#
# ## Further reading
#
# - R. Rafailov et al., [Direct Preference Optimization](https://arxiv.org/abs/2305.18290).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex14_1", 1)`. After
# *Restart Kernel* run the next cell first.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** A run of DPO logs a falling loss, a reward accuracy of 0.98 and margins that grow. What do you do next?
#
# - **a** Use the model: all three numbers are good.
# - **b** Train longer, because the margins still grow.
# - **c** Let it write and count, and look whether chosen answers that it has not seen became less likely.
# - **d** Raise the learning rate.

# %%
course.quiz("quiz14")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 14.1.** To keep chosen answers from becoming less likely, people add the SFT loss to that of DPO (in TRL by
# `loss_type=["sigmoid", "sft"]`). Write this sum. `before` and `after` are log-probabilities under the reference and
# under the model in training, of shape (2, pairs): chosen answers, then rejected ones. `tokens` says how many tokens
# each chosen answer has. Return the DPO loss plus `weight` times the SFT loss, which is the mean over all tokens of the
# chosen answers, as in `answer_loss`.

# %%
from torch.nn.functional import logsigmoid


def dpo_and_sft(before, after, tokens, beta, weight):
    """DPO plus SFT on the chosen answers, from log-probabilities."""
    # your code here


course.check("ex14_1", dpo_and_sft)

# %% [markdown]
# Previous: [13 · Classification](13_classification.ipynb) ·
# Next: [15 · The comparison](15_comparison.ipynb)
