# %% [markdown] slideshow={"slide_type": "slide"}
# # 12 · A real task
#
# *When is fine-tuning worth it?*
#
# People report problems with Rust crates in their own words, and a program needs four things from each report: the
# crate, its version, the operating system and the kind of problem. You will try four ways to get them: asking a model,
# showing it examples, a regular expression, and fine-tuning. All are measured on the same reports. At the end, a model
# that you have tuned in about a minute reads a report that you type in yourself.
#
# **You will be able to**
#
# - measure structured answers field by field, with an interval;
# - tune a published model for your task with peft and TRL, and know which errors it leaves;
# - decide from numbers between a prompt, a rule and fine-tuning.
#
# **You need** [lesson 11](11_your_data.ipynb) (labels and the chat template), [lesson 5](05_lora.ipynb) (LoRA) and the
# model SmolLM2-135M-Instruct on this machine. It is downloaded once (93 MB, or about 270 MB where the weights come from
# the model hub). In a terminal:
#
# ```
# python -m tlkit fetch smollm2-135m-instruct
# ```
#
# About 43 minutes.

# %% slideshow={"slide_type": "subslide"}
import json
import re
import tempfile

import datasets
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_callback import PrinterCallback
from trl import SFTConfig, SFTTrainer

import course
import tlkit as tl

tl.setup()
datasets.disable_progress_bars()
folder = tl.DATA / "tickets"
train, validation, test = (
    pd.read_json(folder / f"{split}.jsonl", lines=True).set_index("id")
    for split in ("train", "validation", "test")
)
for ticket in test.iloc[[4, 7]].itertuples():
    print(f"{ticket.prompt}\n -> {ticket.completion}\n")

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
    return {"valid": bool(answer), **right, "exact": all(right.values())}


def wilson(share, count, z=1.96):
    """The 95% interval of a share of `count` reports."""
    middle = (share + z**2 / count / 2) / (1 + z**2 / count)
    half = np.sqrt(share * (1 - share) / count + (z / count) ** 2 / 4)
    return middle - z * half / (1 + z**2 / count), middle + z * half / (1 + z**2 / count)


print("48 of 96: {:.0%} to {:.0%}".format(*wilson(0.5, 96)))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The [Wilson interval](glossary.md#wilson-interval) says how far a share may be off because only 96 reports were
# tested. Its half-width is 10 points in the middle, so this test cannot tell 50% from 55%. At 0 it still leaves room up
# to 4%.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A rule, before any model
#
# Anything learned has to beat what an hour of plain code gives. So here is an hour's work: the version is the first
# number with a dot in it, the crate is the word before a version, the system is one of a list of names, and the kind
# follows from words such as *panic* or *slow*. It was written while looking at the training reports. **On which field
# will it do best, and how much worse will it be on the test?**

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


def scores_of(texts, reports):
    """A row for each report: which fields of the text written for it are right."""
    rows = map(score, texts, reports.completion)
    return pd.DataFrame(rows, reports.index)


rules = {
    name: scores_of(map(rule, reports.prompt), reports)
    for name, reports in {"training": train, "test": test}.items()
}
pd.DataFrame({name: table.mean() for name, table in rules.items()}).round(2).T

# %% [markdown] slideshow={"slide_type": "subslide"}
# On the training reports the version is right in 79%, and all four fields in 20%. On the test this falls to 55% and
# 10%, because the new writers put other numbers first and use systems that are not on the list. A rule knows the people
# that its author has read. It still costs nothing and answers in a millisecond, so 10% is the number to beat.
#
# ## Ask the model
#
# An instruction-tuned model expects its [chat template](glossary.md#chat-template). We put the task into the system
# message, and examples, if there are any, as earlier turns of the conversation. `write` answers a batch of
# conversations greedily. The padding belongs on the left, because the model continues each row at its right end.

# %%
path = tl.fetched_folder("smollm2-135m-instruct")  # a hub id works here, too
tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
TASK = (
    "Answer with JSON: crate, version, system (the operating system), kind (crash, "
    "wrong result, compile error, slow, documentation, feature request). null if not "
    "given."
)


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


# %% tags=["nbval-ignore-output"]
report = validation.prompt.iloc[2]
examples = list(train.filter(regex="t074|t161|t049", axis=0).itertuples())
asked = [conversation(report, TASK), conversation(report, TASK, examples)]
print(report)
for text in write(model, asked):
    print("->", text)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With the instruction alone the model chats about the report, and with three examples it answers in their form. Look at
# where its values come from: TODO

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Fine-tune it
#
# A tuned model needs no long instruction, because the training data say what to do. So each row is a short system
# message, the report, and the answer. TRL's `SFTTrainer` applies the chat template, builds labels with -100 everywhere
# but in the answer, pads, and trains: it is what you wrote by hand in [lesson 11](11_your_data.ipynb).
#
# To keep the live run short, we train once on the 64 shortest reports, in 16 steps of four, and put
# [adapters](glossary.md#adapter) into the upper 15 of the 30 blocks only. Below the lowest adapter there is nothing to
# train, so backpropagation stops there ([lesson 7](07_freezing.ipynb)).

# %%
TUNED = "Bug report to JSON."
shortest = train.loc[train.prompt.str.len().sort_values().index[:64]]
rows = datasets.Dataset.from_list(
    [
        {
            "prompt": conversation(ticket.prompt, TUNED),
            "completion": [{"role": "assistant", "content": ticket.completion}],
        }
        for ticket in shortest.itertuples()
    ]
)
arguments = SFTConfig(
    tempfile.mkdtemp(), per_device_train_batch_size=4, max_steps=16, learning_rate=5e-3,
    lr_scheduler_type="cosine", warmup_steps=2, logging_steps=1, use_cpu=True, bf16=False,
    gradient_checkpointing=False, save_strategy="no", report_to="none", disable_tqdm=True,
)  # fmt: skip
upper = r".*layers\.(1[5-9]|2\d)\..*_proj"  # every linear layer of blocks 15 to 29
trainer = SFTTrainer(
    model,
    arguments,
    train_dataset=rows,
    processing_class=tokenizer,
    peft_config=LoraConfig(r=8, lora_alpha=16, target_modules=upper),
)
trainer.remove_callback(PrinterCallback)
trainer.model.print_trainable_parameters()
batch = trainer.data_collator([trainer.train_dataset[0]])
print("read:", tokenizer.decode(batch["input_ids"][0]))
print("learned:", tokenizer.decode(batch["labels"][0][batch["labels"][0] != -100]))

# %% tags=["nbval-ignore-output"]
trainer.train()
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
print("loss:", ", ".join(f"{loss:.2f}" for loss in losses))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Now it answers 24 validation reports, of all lengths, in one batch. **Which of the four fields will it have learned?**

# %% tags=["nbval-ignore-output"]
tuned = trainer.model.eval()
some = validation.iloc[::3][:24]
written = write(tuned, [conversation(report, TUNED) for report in some.prompt])
live = scores_of(written, some)
print("\n".join(written[:3]))
live.mean().round(2).to_frame("your model, 24 reports").T

# %% [markdown] slideshow={"slide_type": "slide"}
# ## All ways on the whole test
#
# The live run was short, so we compare recorded runs (`data/build/record_tickets.py`: TRL's labels, adapters of rank 16
# in all blocks, and each of the 285 reports read once). Rates were chosen by the loss on validation reports, and then
# every way answered the 96 test reports once.

# %%
runs = pd.read_csv(folder / "runs/runs.csv").set_index("run")
answers = pd.read_csv(folder / "runs/answers.csv").query("split == 'test'")
by_run = {
    name: scores_of(part.set_index("id").loc[test.index].answer, test)
    for name, part in answers.groupby("run")
}
main = runs.query("method == 'lora' and examples == 285 and steps == 36 and not renamed")
ways = {"instruction": by_run["untouched-0-0-0-0-test"], "rule": rules["test"]}
for count in (1, 3, 5):
    ways[f"{count} in the prompt"] = by_run[f"shown{count}-0-0-0-0-test"]
ways["fine-tuned"] = sum(by_run[name].astype(float) for name in main.index) / len(main)
shares = pd.DataFrame({name: table.mean() for name, table in ways.items()})
(100 * shares).round().astype(int)
