# %% [markdown] slideshow={"slide_type": "slide"}
# # 12 · A real task
#
# *When is fine-tuning worth it?*
#
# People report problems with Rust crates in their own words, and a program needs four fields: crate, version, operating
# system and kind of problem. You will get them with a rule, by asking a model, by showing it examples, and by
# fine-tuning it. None is good enough alone, so at the end a rule and a tuned model both read each report, and a person
# checks where they differ.
#
# **You will be able to**
#
# - measure structured answers field by field, and say how sure a difference is;
# - tune a published model with peft and TRL, save its adapter, load another, and learn from the errors;
# - decide from numbers between a prompt, a rule and fine-tuning, and combine them.
#
# **You need** [lesson 11](11_your_data.ipynb) (labels and the chat template), [lesson 5](05_lora.ipynb) (LoRA) and the
# model SmolLM2-135M-Instruct, downloaded once in a terminal: `python -m tlkit fetch smollm2-135m-instruct` (93 MB,
# rounded to 4 bits).
#
# About 39 minutes.

# %% slideshow={"slide_type": "subslide"}
import json
import re

import datasets
import matplotlib.pyplot as plt
import pandas as pd
from peft import LoraConfig
from scipy.stats import binomtest
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
from trl import SFTConfig, SFTTrainer

import course
import tlkit as tl

tl.setup()
datasets.disable_progress_bars()
folder, splits = tl.DATA / "tickets", {}
for name in ("train", "validation", "test"):
    splits[name] = pd.read_json(folder / f"{name}.jsonl", lines=True).set_index("id")
train, validation, test = splits.values()
print(train.prompt["w06/t107"], train.completion["w06/t107"], sep="\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# One author invented the reports for this course, in 27 voices: 285 for training, 74 for validation and 96 for the test
# (`data/tickets/README.md`). No voice and no crate is in two splits, so in the test both are new to the model. The
# report above names three version numbers, of which only one is the answer, and no operating system, so `system` is
# `null`. The kind is one of six, and cannot be copied: crash, wrong result, compile error, slow, documentation, or
# feature request.
#
# ## Measure first
#
# A field is right if its value equals the label, `null` included, and an answer is an [exact
# match](glossary.md#exact-match) if all four are right. A missing field is wrong even if the label is `null`, because a
# program that reads it would stop with a `KeyError`. An answer is *valid* if it is a JSON object with all four fields.

# %%
FIELDS = ["crate", "version", "system", "kind"]
MARKS = ["valid", *FIELDS, "exact"]


def parse(text):
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError):
        return {}  # no JSON object


def scores(answers, reports):
    """Mark each answer: valid, each field right, all four right."""
    rows = []
    for answer, completion in zip(answers, reports.completion, strict=True):
        label = json.loads(completion)
        right = [field in answer and answer[field] == label[field] for field in FIELDS]
        rows.append([all(field in answer for field in FIELDS), *right, all(right)])
    return pd.DataFrame(rows, reports.index, MARKS)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## A rule, before any model
#
# Anything learned has to beat an hour of plain code. The version is a number with a dot in it, the system a name seen
# in training, and the kind comes from words such as *panic*. A team knows which crates it uses, so the rule has a list
# of them.

# %%
LISTED = {json.loads(label)["crate"] for label in pd.concat(splits).completion}
VERSION = re.compile(r"\d+\.\d[\w.-]*\w|\d+\.\d")
CRATE = re.compile(rf"\b([a-z][\w-]+)[`\"]?[ =:(-]*v?\"?({VERSION.pattern})", re.I)
named = train.completion.map(parse).str["system"].dropna().str.rstrip(" .0123456789")
SYSTEM = re.compile(rf"\b(?:{'|'.join(sorted(set(named))[::-1])})\b(?: \d+(?:\.\d+)*)?")
KINDS = {
    "crash": r"panic|segfault|overflow|abort|deadlock|\bhang|exit code",
    "compile error": r"error\[|compil|build|cannot find|trait",
    "slow": r"\bslow|seconds|memory|\bMB\b|\d ms|minutes|times as",
    "documentation": r"\bdocs?\b|documentation|README|guide|page|example",
    "feature request": r"please|would like|could|wish|feature|want"}  # fmt: skip

# %% [markdown] slideshow={"slide_type": "subslide"}
# Where a listed crate stands right before a version, the rule takes that pair. Otherwise it takes the first listed
# crate and the first version. **Which fields will the rule find less often in the test?**


# %%
def rule(report):
    pairs = [(word.lower(), version) for word, version, *_ in CRATE.findall(report)]
    words = [word for word, _ in pairs] + re.findall(r"[a-z][\w-]*", report.lower())
    crate = next((word for word in words if word in LISTED), None)
    versions = [version for word, version in pairs if word == crate]
    version = next(iter(versions + VERSION.findall(report)), None)
    system = next(iter(SYSTEM.findall(report)), None)
    kind = next((k for k in KINDS if re.search(KINDS[k], report, re.I)), "wrong result")
    return {"crate": crate, "version": version, "system": system, "kind": kind}


by_split = {name: scores(map(rule, s.prompt), s).mean() for name, s in splits.items()}
pd.DataFrame(by_split).round(2).T

# %% [markdown] slideshow={"slide_type": "subslide"}
# It finds fewer versions, because a wrong one stands first more often in the test, and fewer systems, because nearly
# all of the 31 that it misses have new names. The list holds the crates of the test, so nearly all of them are found.
# All four fields are right in 36% of the test reports: **36% is the number to beat**.
#
# ## Ask the model
#
# An instruction-tuned model expects its [chat template](glossary.md#chat-template). The task goes into the system
# message, and examples become earlier turns of the conversation. `write` answers a batch of conversations, always with
# the likeliest token.

# %%
path = tl.fetched_folder("smollm2-135m-instruct")  # or the hub id of one you fetched
if path:
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(path, dtype="float32")


def conversation(report, task, shown=()):
    user = {"role": "user", "content": report}
    return [{"role": "system", "content": task}, *shown, user]


def write(model, conversations, limit=40, **more):
    options = {"add_generation_prompt": True, "padding": True, "return_dict": True}
    batch = tokenizer.apply_chat_template(conversations, return_tensors="pt", **options)
    rows = model.generate(**batch, max_new_tokens=limit, do_sample=False, **more)
    new_tokens = rows[:, batch["input_ids"].shape[1] :]
    return tokenizer.batch_decode(new_tokens, skip_special_tokens=True)


# %% tags=["nbval-ignore-output"]
TASK = ("Answer with JSON: crate, version, system (the operating system), kind (crash, "
        "wrong result, compile error, slow, documentation, feature request). "
        "null if not given.")  # fmt: skip
shown, report = [], test.prompt.iloc[0]
for name in ("w01/t074", "w01/t161", "w01/t049"):
    shown.append({"role": "user", "content": train.prompt[name]})
    shown.append({"role": "assistant", "content": train.completion[name]})
if path:
    print(f"report: {report}\n\nlast example: {shown[-1]['content']}\n")
    print("asked:", *write(model, [conversation(report, TASK)], 16))
    asked = [conversation(report, TASK, shown)]
    print("shown:", *write(model, asked, prompt_lookup_num_tokens=10))

# %% [markdown] slideshow={"slide_type": "subslide"}
# With the instruction alone the model chats about the report. With three training reports as examples it answers in
# their form, but with their values: crate and kind are those of the last example, version and system those of another.
# (`prompt_lookup_num_tokens` tries tokens of the prompt: the same answer, sooner.)
#
# The answers to all 96 test reports were recorded, with the instruction alone (`untouched`) and with examples. How many
# are right, in percent:

# %%
recorded = pd.read_csv(folder / "runs/answers.csv", keep_default_na=False)
recorded = recorded.merge(pd.read_csv(folder / "runs/runs.csv"), on="run")
recorded = recorded.merge(pd.concat(splits.values()), on="id").set_index("id")
recorded[MARKS] = scores(recorded.answer.map(parse), recorded)
prompted = recorded[recorded.steps == 0].groupby("method", sort=False)[MARKS].mean()
(100 * prompted).round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With five examples 96% of the answers are valid, but none has all four values right. *Constrained decoding* would make
# every answer valid: each step allows only tokens that keep the answer within a JSON schema (Outlines, XGrammar,
# `response_format`). It cannot make a value right.
#
# ## Fine-tune it
#
# A tuned model needs no long instruction, because the training data say what to do. So each row is a short system
# message, the report, and the answer. TRL's `SFTTrainer` does what you wrote by hand in [lesson
# 11](11_your_data.ipynb): it applies the chat template, builds the labels, and pads.
#
# Your run is short: the 18 shortest reports, one a step, with [adapters](glossary.md#adapter) in the upper 15 of the 30
# blocks only, below which backpropagation stops ([lesson 7](07_freezing.ipynb)).

# %%
TUNED = "Bug report to JSON."
reports = train.loc[train.prompt.str.len().sort_values().index[:18]]  # or all: train
prompts = [conversation(text, TUNED) for text in reports.prompt]
completions = [[{"role": "assistant", "content": text}] for text in reports.completion]
rows = datasets.Dataset.from_dict({"prompt": prompts, "completion": completions})
# On a GPU leave out use_cpu, bf16 and gradient_checkpointing. The long run took batches
# of 8, 288 steps, rate 1e-3, 29 steps of warmup, r=16, lora_alpha=32, all-linear.
arguments = SFTConfig("../results/my-adapter", per_device_train_batch_size=1,
    max_steps=18, learning_rate=4e-3, lr_scheduler_type="cosine", warmup_steps=2,
    logging_steps=3, save_strategy="no", report_to="none", disable_tqdm=True,
    use_cpu=True, bf16=False, gradient_checkpointing=False)  # fmt: skip
lora = LoraConfig(r=8, lora_alpha=16, target_modules=r".*layers\.(1[5-9]|2\d)\..*_proj")
if path:
    trainer = SFTTrainer(model, arguments, train_dataset=rows, peft_config=lora)
    trainer.remove_callback(PrinterCallback)
    batch = trainer.data_collator([trainer.train_dataset[0]])
    print("learned:", tokenizer.decode(batch["labels"][batch["labels"] != -100]))
    trainer.train()
    trainer.save_model()  # the adapter alone, without the base model
    print("loss, nats:", *pd.DataFrame(trainer.state.log_history).loss[:6].round(2))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Only the answer, its end token and a line break are learned, and the loss (the mean of three steps) falls to a fifth.
# Now your model answers the six shortest validation reports. **Will it get more right than the rule, and what has it
# learned?**

# %% tags=["nbval-ignore-output", "live"]
some = validation.loc[validation.prompt.str.len().sort_values().index[:6]]
asked = [conversation(report, TUNED) for report in some.prompt]
right = {"rule": scores(map(rule, some.prompt), some).sum()}
if path:
    texts = write(trainer.model.eval(), asked)
    print(*texts[:3], sep="\n")
    right["yours"] = scores(map(parse, texts), some).sum()
pd.DataFrame(right).T

# %% [markdown] slideshow={"slide_type": "slide"}
# It does not: in the stored run the rule has three reports right, and your adapter one. But all six answers have the
# right form, and three crates, three versions and two systems are right, where three examples in the prompt got 3 to 6%
# of each (in the test). The kind is not learned: one may be luck.
#
# Your adapter takes 5 MB, and `AutoPeftModelForCausalLM.from_pretrained("../results/my-adapter")` loads it later.
#
# ## A longer run, in your hands
#
# The course brings the adapter of a long run: `data/build/record_tickets.py` trained it on all 285 reports, read eight
# times. Half of the readings had another crate, version and system in report and answer (*data augmentation*). peft
# keeps several adapters on one base model, so load this one beside yours. Its 74 validation answers were recorded. If
# the rule finds a crate, it is nearly always the right one, so it replaces the model's. **Does this adapter then beat
# the rule?**


# %% tags=["nbval-ignore-output", "longer"]
def with_list(text, report):
    answer, crate = parse(text), rule(report)["crate"]  # the rule's, if it finds one
    return answer | {"crate": crate} if crate else answer


read = recorded.query("split == 'validation' and steps == 288 and device == 'one core'")
if path:
    trainer.model.load_adapter(folder / "adapter", "longer")
    trainer.model.set_adapter("longer")
answers = list(map(with_list, read.answer, read.prompt))
right, by_rule = scores(answers, read), scores(map(rule, read.prompt), read)
counts = pd.DataFrame({"rule": by_rule.sum(), "longer": right.sum()}).T
limits = [binomtest(n, len(read)).proportion_ci(method="wilson") for n in counts.exact]
counts["exact, %"] = [f"{100 * low:.0f} to {100 * high:.0f}" for low, high in limits]
counts

# %% [markdown] slideshow={"slide_type": "slide"}
# It does, by 52 reports to 35. The last column is the [Wilson interval](glossary.md#wilson-interval): how far a share
# may be off with only 74 reports.
#
# But the learning rate was chosen on these reports, and one run may be lucky. So three seeds of each method took 72
# steps (of two methods, also 288) and answered the 96 test reports, without the rule's crates. `min` and `max` are the
# worst and the best seed. **Will 72 steps of LoRA reach the rule's 36%?**

# %%
final = recorded.query("split == 'test' and examples == 285 and device != 'one core'")
final = final.assign(way=final.method + " " + final.steps.astype(str))
seeds = final.groupby(["way", "run"]).exact.mean().groupby("way").agg(["min", "max"])
(100 * final.groupby("way", sort=False)[MARKS].mean().join(seeds)).round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# No: the best seed has 35% right. `lora 72` has each field right in 66 to 77% of the reports, but all four in only 32%,
# because one wrong field spoils an answer. With four times as many steps it is 44%. Training all parameters (`full`)
# and `qlora` are about level with `lora`; training only the last eight blocks (`last_layers`) is not.
#
# ## Read the errors
#
# We read the longer adapter's errors on validation reports, because whoever reads those of the test will soon tune for
# them. **What do the four reports have in common that it wrongly calls `slow`?**

# %%
own = scores(read.answer.map(parse), read)  # without the rule's crates
print("wrong, of 74:", (~own[FIELDS]).sum().to_dict())
print("of these, right by the rule:", (by_rule[FIELDS] & ~own[FIELDS]).sum().to_dict())
print("", *read.prompt[read.answer.str.contains('"slow"') & ~right.kind], sep="\n\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each names an amount: 24 times, 0.4 s, 2 minutes, 2 GB. In training, 31 of the 42 reports with such an amount are
# `slow`, so the model seems to have learned a short cut. Of the validation reports that are not `slow`, it calls four
# of the six with an amount `slow`, and none of the 57 without. So label more reports that name an amount and complain
# of something else.
#
# The model's own crates are wrong most often. The rule has 19 of these 20 right. It also has 7 of the 9 wrong versions
# and systems right: the two err on different reports.
#
# ## Put them together
#
# So let the rule be a second reader: a person opens only the reports on which model and rule differ, and sets the
# marked fields right. Try it on three new reports, chosen to end differently. The list lacks the first crate. **Which
# fields will be marked?**


# %%
def second_reader(texts, reports):
    """The model's forms, and True for each field that the rule reads otherwise."""
    forms = list(map(with_list, texts, reports))
    pairs = zip(forms, map(rule, reports), strict=True)
    marks = [[form.get(x) != ruled[x] for x in FIELDS] for form, ruled in pairs]
    return forms, pd.DataFrame(marks, reports.index, FIELDS)


# %%
news = """ggez 0.9.3 on KDE neon 6: it takes eleven seconds until the window is drawn.
Could rusqlite 0.31.0 keep prepared statements? Making them anew takes us 40 s.
Since we went from notify 6.1.0 to 6.1.1 it panics on Fedora 41.""".splitlines()
asked = [conversation(new, TUNED) for new in news]
texts = write(trainer.model, asked) if path else ["{}"] * 3  # the rule alone
forms, marks = second_reader(texts, pd.Series(news))
for n, new in enumerate(news):
    form = pd.DataFrame({"model": forms[n], "rule": rule(new)}, FIELDS).fillna("")
    form["look"] = ["<-" * mark for mark in marks.loc[n]]
    print(new, form, "", sep="\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# In the first report the model has read a crate and a system that the rule does not know, so the person only confirms
# them. In the second `could` is no wish: by our labelling rules a measured cost is `slow` (here the short cut helps).
# In the third both took the old version, so nothing is marked: it stays wrong.
#
# Now the 96 test reports, as answered by three seeds. **How many of the unopened reports are wrong?**

# %%
given = final[final.way == "lora 288"]  # answers of three seeds
forms, marks = second_reader(given.answer, given.prompt)
right = scores(forms, given)[FIELDS]
corrected = right | marks  # a person sets the marked fields right
opened, correct = marks.any(axis=1), corrected.all(axis=1)
pd.crosstab(opened.rename("opened"), correct.rename("right"), normalize=True).round(3)

# %% [markdown] slideshow={"slide_type": "subslide"}
# A fifth: 32% of the reports stay unopened, and 7% of all are unopened and wrong, like the third above. A field on
# which both err alike is not marked, so opened reports can stay wrong.
#
# In the chart, `+ look` means that the person sets the marked fields right. For comparison, the person types the kind
# of every report (`+ kind`), and for the rule also the system, the two fields that help it most. **How many fields by
# hand does the model save?**

# %%
by_rule = scores(map(rule, test.prompt), test)[FIELDS]
fields = {"rule": by_rule, "rule + kind": by_rule.assign(kind=True),  # typed by hand
    "rule + system + kind": by_rule.assign(system=True, kind=True),
    "model": right, "model + kind": right.assign(kind=True),
    "model + look": corrected}  # fmt: skip
ways = {way: f.all(axis=1).groupby("id").mean() for way, f in fields.items()}
by_hand = [0, 1, 2, 0, 1, marks.sum(axis=1).mean()]
figure, axes = plt.subplots(figsize=(7.5, 4), layout="constrained")
for way, x in zip(ways, by_hand, strict=True):
    y, side = 100 * ways[way].mean(), "left" if x else "right"
    color = "C0" if "rule" in way else "C1"
    axes.plot(x, y, "o", color=color)
    axes.text(x, y, f"  {way}: {y:.0f}%  ", va="center", ha=side, color=color)
axes.set(xlabel="fields by hand", ylabel="right (%)", xlim=(-0.7, 3.3), xticks=range(3),
    title="One field by hand: 80% right if model and rule differ on it")  # fmt: skip
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# About one a report: with it, and a person who never errs, 80% are right; the rule alone needs two for 75%.
#
# If it is always the same field, at most 65% end right. The differences show *which* field may be wrong. In 61% of
# these the model was right.
#
# Would other reports give the same order? As in [lesson 4](04_full_fine_tuning.ipynb) we draw 96 reports with
# replacement, 4,000 times. Three intervals have three chances to be wrong, so each gets a third of the 5%
# ([Bonferroni](glossary.md#bonferroni-correction)).

# %%
pairs = [("model", "rule"), ("model + look", "rule + system + kind")]
for first, second in [*pairs, ("model + look", "rule + kind")]:
    gap = 100 * (ways[first] - ways[second])
    drawn = gap.sample(384_000, replace=True, random_state=0).to_numpy().reshape(-1, 96)
    low, high = pd.Series(drawn.mean(1)).quantile([0.05 / 6, 1 - 0.05 / 6])
    print(f"{first} - {second}: {gap.mean():.0f} points ({low:.0f} to {high:.0f})")
course.claim("With a person, model and rule beat the rule", low > 0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Without a person the lead over the rule may be chance, because the interval begins at zero, and below it if we draw
# whole crates. With one field by hand each, the lead is larger than chance; with two, the rule is about level.
#
# If you build `LISTED` without the test's crates, the rule has no report right. The model has 38%, and 69% with 1.9
# fields by hand. With crate and version by hand, the rule has 45%.
#
# ## Prompt, tune, or neither?
#
# Tuning took 74 minutes of one core and, which costs more, 359 labelled reports. This pays if many reports come and a
# person checks the marked fields.
#
# - **Prompt first**, with the largest model you may use. It needs labels only for a test set. But each request carries
#   its examples: with three it takes 3.7 seconds of one core, our adapter 1.6.
# - **Write a rule** where a field has a fixed form, or you have a list of its values. Keep it when you tune.
# - **Tune** if the task is narrow, comes often, has a few hundred labelled examples, and the prompt is not good enough,
#   too slow, or must not leave the company.
# - **Do neither** while two people label the same reports differently, because then the task is not defined.
#
# ## Key ideas
#
# - Measure every way on the same held-out reports, by field and with intervals.
# - To a model this small, examples in a prompt teach the form. Fine-tuning also teaches where to look for the values.
# - Model and rule err in different ways. A person who looks where they differ finds 60% of the model's wrong fields.
#
# ## Further reading
#
# - B. Willard and R. Louf, [Efficient Guided Generation for Large Language Models](https://arxiv.org/abs/2307.09702),
#   2023: how constrained decoding works

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex12_1", 1)`. After
# *Restart Kernel* run the next cell first.

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
# **Exercise 12.1.** Version and system are copied from the report, so code can see without a label that a value is
# wrong if it does not stand there. `answer` is a dictionary with the four fields. Return a list with the names of the
# fields (`"version"`, `"system"`) whose value does not stand in `report`, letter by letter. `null` needs no source.
# Beware of parts: `1.4` does *not* stand in a report that says `1.40.0`, `1.4.2` or `0.1.4`, but it does in "I use
# v1.4." at the end of a sentence.

# %%
import re


def unsupported(answer, report):
    """The copied fields whose value has no source in the report."""
    # your code here


course.check("ex12_1", unsupported)

# %% [markdown]
# Previous: [11 · Your data](11_your_data.ipynb) ·
# Next: [13 · Classification](13_classification.ipynb)
