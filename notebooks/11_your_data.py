# %% [markdown] slideshow={"slide_type": "slide"}
# # 11 · Your data
#
# *How do the files that people have become batches that a model can learn from?*
#
# Most of the work in fine-tuning happens before the first step. At work nobody hands you a clean data set. You get an
# export, a spreadsheet and a colleague's JSON file, and a mistake in any of them is learned without an error message.
# In this lesson you take four such files all the way to padded batches, plant the usual mistakes, and write the check
# that catches them.
#
# **You will be able to**
#
# - clean files of several formats so that the counts add up, and split them so that the test stays honest;
# - turn conversations into tokens, labels and padded batches, with a collator of your own;
# - find the four usual faults in any batch before you train, and prepare a data set with the library `datasets`.
#
# **You need** [lesson 2](02_inside_a_language_model.ipynb) for tokens and the loss, [lesson
# 4](04_full_fine_tuning.ipynb) for training, and a little pandas.
#
# About 44 minutes.

# %% slideshow={"slide_type": "subslide"}
import json
from tempfile import mkdtemp

import datasets
import numpy as np
import pandas as pd
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

import course
import tlkit as tl
from course.lesson11.pictures import batch_picture
from course.lesson14.pictures import token_view

tl.setup()
datasets.disable_progress_bars()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Look at the files
#
# We want a model that reads a bug report about a Rust package (a *crate*) and answers with four fields in JSON. Four
# people have collected examples, each in a format of their own: a bug tracker's CSV, a chat log, a set of instructions
# and an export with one JSON object a line. The reports were written for this course and then spoiled as such files
# usually are.
#
# We read the CSV as text (`dtype=str`), because pandas likes to turn a version such as 0.20 into the number 0.2.

# %%
folder = tl.DATA / "messy"
tracker = pd.read_csv(folder / "tracker.csv", dtype=str)
chat = pd.read_json(folder / "chat.json")
instructions = pd.read_json(folder / "instructions.json")
export = pd.read_json(folder / "export.jsonl", lines=True)
print(json.dumps(chat.conversations[1], indent=1))
tracker.head(3)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The chat log has the format that is called *ShareGPT* (`conversations` of `from` and `value`), the instructions have
# that of the *Alpaca* data set (`instruction`, `input`, `output`). You will meet both often. Each file has names of its
# own for its columns, but all of them hold a writer, a report and an answer, so we bring them into one table.
#
# The answers need one form as well: the tracker has columns for it, and the export writes its JSON without spaces. So
# every answer is read and written anew.

# %%
fields = tracker[["crate", "version", "system", "kind"]].astype(object)
fields = fields.where(fields.notna(), None).to_dict("records")  # None is JSON's null
tracker["answer"] = [json.dumps(one) if one["kind"] else "" for one in fields]
chat["report"] = [turns[0]["value"] for turns in chat.conversations]
chat["answer"] = [turns[1]["value"] for turns in chat.conversations]
tables = {
    "tracker": tracker[["reporter", "report", "answer"]],
    "chat": chat[["user", "report", "answer"]],
    "instructions": instructions[["author", "input", "output"]],
    "export": export[["source", "prompt", "completion"]],
}
columns = ["writer", "report", "answer"]
tables = [table.set_axis(columns, axis=1).assign(file=f) for f, table in tables.items()]
rows = pd.concat(tables, ignore_index=True).fillna("")
rows["answer"] = [json.dumps(json.loads(a)) if a.strip() else "" for a in rows.answer]
rows["key"] = rows.report.str.split().str.join(" ")  # the words, however spaced

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Clean, and count
#
# Four kinds of rows have to go: those without an answer, copies, reports with two different answers, and rows that are
# far too long. `without` drops some rows and counts them, so that every row is accounted for. **How many of the 113
# rows do you expect to be left?**


# %%
steps = [("as read", 0, len(rows))]


def without(rows, faulty, why):
    steps.append((why, int(faulty.sum()), int((~faulty).sum())))
    return rows[~faulty].reset_index(drop=True)


clean = without(rows, rows.answer == "", "no answer")
clean = without(clean, clean.duplicated(["key", "answer"]), "copy of another row")
doubtful = clean[clean.duplicated("key", keep=False)]
clean = without(clean, clean.duplicated("key", keep=False), "two answers")
length = clean.report.str.len()
clean = without(clean, length > 5 * length.median(), "far too long")
pd.DataFrame(steps, columns=["step", "dropped", "left"])

# %%
kinds = doubtful.answer.map(lambda answer: json.loads(answer)["kind"])
kinds.groupby(doubtful.key.str[:45]).agg(" or ".join).to_frame()

# %% [markdown] slideshow={"slide_type": "subslide"}
# If you compare the files as they are, you find only one of the ten copies. The other nine were hidden by a line end of
# Windows, a double space or JSON without spaces, so bring everything into one form first. The order of the steps
# matters, too. Copies go before contradictions, because a report that stands there twice with *one* answer is none. The
# long row is a log of 20 times the usual length.
#
# The four doubtful reports are not noise that you may throw away unread. People disagreed on them, so the rule behind
# the labels is unclear, and the model would learn a coin toss. Here we drop them. At work, show them to whoever owns
# the rule, write the rule down, and label them again.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Split by writer, not by row
#
# Some people sent the same report again, in another place and with a few more words. No two of these are equal, so they
# survived the cleaning. To find them, we compare the *runs* of four words that two reports share. `similar` holds for
# each pair which part of the shorter report's runs the other one has as well.


# %%
def runs(text, n=4):
    words = text.lower().split()
    return {tuple(words[at : at + n]) for at in range(len(words) - n + 1)}


sets = [runs(report) for report in clean.report]
similar = np.array([[len(a & b) / min(len(a), len(b)) for b in sets] for a in sets])
for place in np.argwhere(np.triu(similar, 1) > 0.5)[0]:
    print(f"{clean.file[place]}: {clean.report[place]}\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# If one of the two lands in training and the other in the test, the test asks what the model has already read. This is
# [leakage](glossary.md#leakage). To measure it, we score a "model" that learns nothing: it looks up the most similar
# report of the training part and copies its answer. We hold out a quarter of the data in two ways, 20 times each: 22
# rows drawn at random, or all rows of two writers. **How many answers will the look-up get exactly right?**


# %%
answers = clean.answer.to_numpy(dtype=object)


def look_up(test):
    # the share of test rows whose nearest training row has the very same answer, in %
    nearest = similar[np.ix_(test, ~test)].argmax(axis=1)
    return 100 * np.mean(answers[~test][nearest] == answers[test])


scores = []
for seed in range(20):
    draw = np.random.default_rng(seed)
    by_writer = clean.writer.isin(draw.permutation(sorted(set(clean.writer)))[:2])
    scores.append([look_up(draw.permutation(88) < 22), look_up(by_writer.to_numpy())])
scores = pd.DataFrame(scores, columns=["by row", "by writer"])
scores.agg(["min", "mean", "max"]).round()

# %%
course.claim("By writer, looking up gets nothing", scores["by writer"].max() == 0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# By row, a program that cannot read gets over a third of the test right on average, and more than half in the worst
# split. Whatever a real model scores there, you could not tell reading from remembering. By writer the look-up gets
# nothing, because people repeat themselves and not each other.
#
# So ask of your data which rows belong together (a customer, a document, a conversation, a day) and keep each such
# group on one side. The file is not the group here: the same people wrote in the tracker and in the chat. We hold out
# two writers for the rest of the lesson.

# %%
held_out = ["w03", "w10"]

# %% [markdown] slideshow={"slide_type": "slide"}
# ## From messages to one text
#
# Nearly all libraries take a conversation as a list of *messages*, each with a role and a content. The system message
# says what the job is, the user's is the report, and the assistant's is the answer that is learned.

# %%
task = "Give crate, version, system and kind as JSON."


def messages_of(row):
    contents = {"system": task, "user": row.report, "assistant": row.answer}
    return [{"role": role, "content": text} for role, text in contents.items()]


clean["messages"] = [messages_of(row) for row in clean.itertuples()]

# %% [markdown] slideshow={"slide_type": "subslide"}
# A model reads one text, though. The [chat template](glossary.md#chat-template) makes it: a small program in the
# language Jinja, stored with the tokenizer. Chat models come with theirs, and **you always use the model's own**. Our
# tiny model was never a chat model and has none, so we give it the simple form that Qwen and SmolLM2 use, which is
# called *ChatML*. It needs two new tokens. The [end token](glossary.md#end-token) `<|im_end|>` closes each message, and
# generation stops when the model writes it.

# %%
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
tokenizer.eos_token = "<|im_end|>"  # the padding token stays <|endoftext|>
tokenizer.chat_template = """{% for message in messages %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


def as_text(messages, **options):
    return tokenizer.apply_chat_template(messages, tokenize=False, **options)


print(as_text(clean.messages[1]))
print("---\n" + as_text(clean.messages[1][:2], add_generation_prompt=True))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Tokens and labels
#
# The model should learn to write the answer and to stop, but not to write bug reports. So it gets, beside the tokens, a
# list of *labels* of the same length: the token itself where it is to be learned and $-100$ elsewhere, which PyTorch's
# cross-entropy ignores. (The model shifts the labels by one itself.) This choice is called the [loss
# mask](glossary.md#loss-mask).
#
# `encode` tokenises the prompt exactly as the model will see it in use, and the answer apart from it, so that no token
# lies across the border. The template has already written all special tokens, so the tokenizer must not add any. It
# also writes a line break after the last end token, which nobody will ever ask for; we leave it off.


# %%
def encode(messages):
    prompt = as_text(messages[:-1], add_generation_prompt=True)
    whole = as_text(messages)
    answer = whole[len(prompt) :].removesuffix("\n")
    read = tokenizer(prompt, add_special_tokens=False).input_ids
    learned = tokenizer(answer, add_special_tokens=False).input_ids
    return {"input_ids": read + learned, "labels": [-100] * len(read) + learned}


examples = [encode(messages) for messages in clean.messages]
token_view(**examples[1], tokenizer=tokenizer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Look at one example like this before every training. The grey tokens are only read, the blue ones are learned, and the
# last of these must be the end token, which is dark. `·` stands for a space and `⏎` for a line break.
#
# ## Batches
#
# A batch is a rectangle, but the examples differ in length. A [collator](glossary.md#collator) pads them at the right
# end: the tokens with a padding token, the labels with $-100$. A third table, the [attention
# mask](glossary.md#attention-mask), has a 1 for each real token and a 0 for padding, so that no token attends to
# padding.


# %%
def collate(examples):
    longest = max(len(example["input_ids"]) for example in examples)
    batch = {"input_ids": [], "attention_mask": [], "labels": []}
    for example in examples:
        tokens, labels = example["input_ids"], example["labels"]
        room = longest - len(tokens)
        batch["input_ids"].append(tokens + [tokenizer.pad_token_id] * room)
        batch["attention_mask"].append([1] * len(tokens) + [0] * room)
        batch["labels"].append(labels + [-100] * room)
    return {name: torch.tensor(table) for name, table in batch.items()}


few = examples[:8]
batch = collate(few)
batch_picture(batch)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Libraries bring such a collator. In transformers it is called `DataCollatorForSeq2Seq`, though it serves our kind of
# model as well, and TRL, the library for training chat models, has one in its `SFTTrainer`.

# %%
for_seq2seq = DataCollatorForSeq2Seq(tokenizer)
for_chat = DataCollatorForLanguageModeling(pad_token_id=tokenizer.pad_token_id)
theirs = for_seq2seq([dict(example) for example in few]), for_chat(few)
same = all(torch.equal(batch[key], other[key]) for key in batch for other in theirs)
course.claim("Our batch equals those of transformers and TRL", same)

# %% [markdown] slideshow={"slide_type": "subslide"}
# ## What padding costs
#
# The model computes padding as if it were text and throws the result away. If our 88 examples come in random order, 19%
# of all places in batches of eight are padding, and if rows of similar length go together, 4%. (You write this count in
# exercise 11.1.) Trainers can group rows by length, and they can also *pack* several examples into one row of, say, 256
# tokens, which leaves 1% here. With packing, no example may see its neighbours in the row; TRL's `packing=True` takes
# care of that on GPUs. One extreme row costs more than all of this: beside the log of 20 times the usual length, the
# seven others in its batch would get more padding than our whole data set has tokens. So look at the longest rows
# first, and at the averages later.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Four faults, and the check that finds them
#
# Now we plant the faults that people report most, one line each:
#
# - **answer cut away**: a limit on the length cuts rows at the right end, where the answers are;
# - **end token masked**: the tokenizer has no padding token, somebody takes the end token for it and hides all padding
#   by `labels[input_ids == pad] = -100`. That hides the end of every answer, too;
# - **template twice**: a text to which the template was already applied goes through it again;
# - **padding learned**: the labels are a copy of the padded tokens.
#
# None of them raises an error. `check_batch` looks at each row of a batch as you would look at the token view, and
# names what is wrong. **Which of its four lines will find which fault?**

# %%
start, end = tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])


def check_batch(batch):
    ids, learned = batch["input_ids"], batch["labels"] != -100
    faults = {
        "no answer": ~learned.any(1),
        "no end token": ~(batch["labels"] == end).any(1),
        "not three messages": (ids == start).sum(1) != 3,
        "padding learned": (learned & (batch["attention_mask"] == 0)).any(1),
    }
    return [name for name, rows in faults.items() if rows.any()]


def end_masked(examples):
    batch = collate(examples)
    batch["labels"][batch["input_ids"] == end] = -100
    return batch


twice = [[m[0], m[1] | {"content": as_text(m[1:2])}, m[2]] for m in clean.messages[:8]]
planted = {
    "nothing": batch,
    "answer cut away": collate([{key: one[key][:64] for key in one} for one in few]),
    "end token masked": end_masked(few),
    "template twice": collate([encode(messages) for messages in twice]),
    "padding learned": batch | {"labels": batch["input_ids"]},
}
noticed = {name: check_batch(one) for name, one in planted.items()}
pd.Series(noticed, name="what check_batch says").to_frame()

# %%
faults = [bool(complaints) for complaints in noticed.values()]
course.claim("Each planted fault is found, and nothing else", faults == [0, 1, 1, 1, 1])

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The way it is done at work: `datasets`
#
# Tables in pandas are fine for a hundred rows. For more, people use the library `datasets`, which keeps the rows on
# disk and repeats a step only if its input or its code has changed. It reads JSON, CSV and Parquet files, and `map` and
# `filter` take the functions that you have written. **How many of the eight writers will `train_test_split` put on each
# side?**

# %%
work = mkdtemp()
file = f"{work}/clean.jsonl"
clean[["writer", "messages"]].to_json(file, orient="records", lines=True)
data = datasets.load_dataset("json", data_files=file, split="train", cache_dir=work)
halves = data.train_test_split(test_size=0.25, seed=0)
print("writers per side:", *(len(set(half["writer"])) for half in halves.values()))

encoded = data.map(lambda row: encode(row["messages"]), remove_columns=["messages"])
ready = datasets.DatasetDict(
    train=encoded.filter(lambda row: row["writer"] not in held_out),
    test=encoded.filter(lambda row: row["writer"] in held_out),
)
tokenizer.save_pretrained(f"{work}/ready/tokenizer")
ready.save_to_disk(f"{work}/ready")

# %% [markdown] slideshow={"slide_type": "subslide"}
# `train_test_split` splits by row, so it leaks; `filter` with your own rule does not. The folder `ready` now holds both
# splits as tokens and labels, 68 rows for training and 20 for the test, and beside them the tokenizer with its template
# and its two new tokens, because the numbers mean nothing without it. Any trainer can load it.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Train on it
#
# We load the folder and train the tiny model for 16 steps, twice: once with your collator, and once with the end token
# masked. The model needs rows for the two new tokens in its embedding, which `resize_token_embeddings` adds. **Will the
# losses tell you which run is the faulty one?**

# %%
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

train_rows = datasets.load_from_disk(f"{work}/ready")["train"]
settings = TrainingArguments(
    mkdtemp(), max_steps=16, per_device_train_batch_size=4, learning_rate=2e-3,
    logging_steps=1, save_strategy="no", report_to="none", use_cpu=True,
    lr_scheduler_type="constant", disable_tqdm=True,
)  # fmt: skip


def fine_tune(collator):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
    model.resize_token_embeddings(len(tokenizer))
    trainer = Trainer(model, settings, train_dataset=train_rows, data_collator=collator)
    trainer.remove_callback(PrinterCallback)  # which would print every record
    trainer.train()
    return model.eval(), [record["loss"] for record in trainer.state.log_history[:-1]]


tuned, losses = fine_tune(collate)

# %%
endless, its_losses = fine_tune(end_masked)

# %% tags=["nbval-ignore-output"]
pd.DataFrame({"your collator": losses, "end masked": its_losses}).T.round(1)

# %%
course.claim("The loss falls to less than half", losses[-1] < losses[0] / 2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Both fall alike, and nobody could tell which run is the faulty one. Now let both models answer eight reports by the
# writers that were held out. In generation the padding belongs on the left, because the model continues each row at its
# right end.

# %% tags=["check-answers"]
asked = clean.messages[clean.writer.isin(held_out)][:8]
prompts = [as_text(messages[:2], add_generation_prompt=True) for messages in asked]
given = tokenizer(prompts, padding=True, padding_side="left", return_tensors="pt")
stopped = {}
for name, model in {"your collator": tuned, "end masked": endless}.items():
    out = model.generate(**given, max_new_tokens=72, do_sample=False, eos_token_id=end)
    out = out[:, given.input_ids.shape[1] :]
    stopped[name] = int((out == end).any(1).sum())
    print(f"{name}: {stopped[name]} of 8 stop. The first: {tokenizer.decode(out[0])}\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# With your collator every answer stops, and each is JSON with the four fields, about reports whose writers the model
# has never met. With the end masked **no answer stops**: no label ever was the end token, and each step that made
# another token more likely made this one less likely. The loss cannot show it, because it leaves out exactly the tokens
# that are wrong. This is the best-known fault in fine-tuning chat models, and one line of `check_batch` finds it before
# the first step.
#
# The content is another matter. The tiny model has learned the form and puts in names that it has seen, which are
# mostly wrong. A larger model can get the content right, too, as [lesson 12](12_a_real_model.ipynb) shows. At work,
# TRL's `SFTTrainer` takes `messages` and does what you did here by hand; check a batch of its `get_train_dataloader()`
# all the same.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Bring all files into one form, then clean in a fixed order with counts that add up, and split by whoever or whatever
#   the rows have in common.
# - The template makes one text, labels of $-100$ keep the loss on the answer *and its end token*, and the collator pads
#   each of the three tables with its own value.
# - Faults in data raise no error and hardly show in the loss. Look at one example, and check a batch before you train.
#
# ## Further reading
#
# - [Chat templates](https://huggingface.co/docs/transformers/chat_templating) in the documentation of transformers
# - [Dataset formats](https://huggingface.co/docs/trl/dataset_formats) in that of TRL, and [its
#   trainer](https://huggingface.co/docs/trl/sft_trainer)
# - Lee et al. 2022, [Deduplicating Training Data Makes Language Models Better](https://arxiv.org/abs/2107.06499)
# - Kapoor and Narayanan 2023, [Leakage and the reproducibility crisis](https://doi.org/10.1016/j.patter.2023.100804):
#   which kinds of leakage papers suffer from

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex11_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** A tuned model writes a good answer, but then goes on with another one, until the limit. Its training loss
# was low. Which of these would have shown the reason before training?
#
# - **a** The loss on validation text.
# - **b** The number of rows after cleaning.
# - **c** The last label of each row in a batch.
# - **d** The share of padding in the batches.

# %%
course.quiz("quiz11")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 11.1** (first steps). How much padding would your data need? `lengths` lists the number of tokens of each
# row, and batches of `size` rows are taken in this order; the last one may have fewer. Each batch is padded to its own
# longest row. Return the share of all places that is padding, a number from 0 to 1. In the lesson it was 0.19 in random
# order; sort your lengths and see what becomes of it.


# %%
def padded_share(lengths, size):
    """The share of places in all batches together that is padding."""
    # your code here


course.check("ex11_1", padded_share)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 11.2** (apply it). A tool to take to your own data. `train` and `test` are lists of texts. Return the
# places in `test`, counted from 0, of all texts that share a run of `n` words with any training text. Words are
# separated by spaces, and capitals do not matter.


# %%
def leaks(train, test, n):
    """Places of the test texts that were partly read in training."""

    # your code here


course.check("ex11_2", leaks)

# %% [markdown]
# Previous: [10 · Out of memory](10_oom_fallback.ipynb) ·
# Next: [12 · A real model](12_a_real_model.ipynb)
