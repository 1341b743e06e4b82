# %% [markdown] slideshow={"slide_type": "slide"}
# # 11 · Your data
#
# *How do the files that people have become batches that a model can learn from?*
#
# At work you get an export, a spreadsheet and a colleague's JSON file. The model learns their mistakes without an error
# message. In this lesson you take four such files all the way to padded batches, plant the usual mistakes, and write
# the check that catches them.
#
# **You will be able to**
#
# - clean files of several formats so that the counts add up, and split them so that the test stays honest;
# - turn conversations into tokens, labels and padded batches, with a collator of your own;
# - find the usual faults in a batch before you train;
# - prepare a data set with the library `datasets`.
#
# **You need** [lesson 2](02_inside_a_language_model.ipynb) for tokens and the loss, [lesson
# 4](04_full_fine_tuning.ipynb) for training, and a little pandas.
#
# About 37 minutes.

# %% slideshow={"slide_type": "subslide"}
import json
from tempfile import mkdtemp

import datasets
import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

import course
import tlkit as tl
from course.lesson11.pictures import batch_picture, token_view

tl.setup()
datasets.disable_progress_bars()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Look at the files
#
# We want a model that reads a bug report about a Rust package (a *crate*) and answers with four fields in JSON. The
# examples come in four files: a bug tracker's CSV, a chat log, a set of instructions, and an export with one JSON
# object a line. We read the CSV as text (`dtype=str`), because pandas may turn the version 0.20 into the number 0.2.

# %%
folder = tl.DATA / "messy"
tracker = pd.read_csv(folder / "tracker.csv", dtype=str)
chat = pd.read_json(folder / "chat.json")
instructions = pd.read_json(folder / "instructions.json")
export = pd.read_json(folder / "export.jsonl", lines=True)
for table in (chat, instructions, export):
    print(table.iloc[0].to_dict(), "\n")
tracker.head(3)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The chat log is in *ShareGPT* format (`conversations` of `from` and `value`), and the instructions are in *Alpaca*
# format (`instruction`, `input`, `output`). Under different names, every row holds a writer, a report and an answer, so
# we bring all files into one table.
#
# Equal answers may differ in their spacing, so we parse each one and write it out again with `json.dumps`. The column
# `key` holds the words of each report with single spaces between them, for comparison.

# %%
fields = tracker[["crate", "version", "system", "kind"]]
# One JSON object a line, in which an empty field is null.
tracker["answer"] = fields.to_json(orient="records", lines=True).splitlines()
tracker.loc[tracker.kind.isna(), "answer"] = ""  # a report that nobody classified
chat["report"] = [turns[0]["value"] for turns in chat.conversations]
chat["answer"] = [turns[1]["value"] for turns in chat.conversations]
tables = {
    "tracker": tracker[["reporter", "report", "answer"]],
    "chat": chat[["user", "report", "answer"]],
    "instructions": instructions[["author", "input", "output"]],
    "export": export[["source", "prompt", "completion"]],
}
columns = ["writer", "report", "answer"]  # the same three names everywhere
renamed = [part.set_axis(columns, axis=1).assign(file=f) for f, part in tables.items()]
rows = pd.concat(renamed, ignore_index=True).fillna("")
rows["answer"] = [json.dumps(json.loads(a)) if a.strip() else "" for a in rows.answer]
rows["key"] = rows.report.str.split().str.join(" ")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Clean, and count
#
# Four kinds of rows have to go: those without an answer, copies, reports with two different answers, and reports that
# are far too long, because a whole batch is padded to its longest row. `without` drops the rows that the mask `faulty`
# marks, and notes how many. **Which kind will be the largest?**


# %%
steps = [("as read", 0, len(rows))]


def without(rows, faulty, why):
    steps.append((why, int(faulty.sum()), int((~faulty).sum())))
    return rows[~faulty].reset_index(drop=True)


clean = without(rows, rows.answer == "", "no answer")
clean = without(clean, clean.duplicated(["key", "answer"]), "copy of another row")
clean = without(clean, clean.duplicated("key", keep=False), "two answers")  # both rows
length = clean.report.str.len()
clean = without(clean, length > 5 * length.median(), "far too long")
pd.DataFrame(steps, columns=["step", "dropped", "left"])

# %% [markdown] slideshow={"slide_type": "subslide"}
# Copies are the largest kind. Without `key` and `json.dumps` we would have found only three of the ten, because the
# others differ in a line end of Windows, a double space or the spacing of the JSON.
#
# Four reports had two answers, for example *crash* in one file and *slow* in another. Both rows would teach the model
# to guess. At work, have such reports labelled again.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Split by writer, not by row
#
# Some people sent a report again with a few more words. The cleaning kept both, because their keys differ. To find such
# pairs, we cut each report into its *n-grams*, here all groups of four consecutive words. For each pair of reports,
# `similar` is the number of n-grams that they share, divided by the number in the shorter report.


# %%
def ngrams(text, n=4):
    words = text.lower().split()
    return {tuple(words[at : at + n]) for at in range(max(1, len(words) - n + 1))}


sets = [ngrams(report) for report in clean.report]
similar = np.array([[len(a & b) / min(len(a), len(b)) for b in sets] for a in sets])
print(f"{(np.triu(similar, 1) > 0.5).sum()} pairs share over half of their n-grams")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The two reports of such a pair are *near-duplicates* with the same answer. If one is in training and the other in the
# test, the model can be right from memory. This is [leakage](glossary.md#leakage).
#
# In scikit-learn, `ShuffleSplit` draws single rows for the test, and `GroupShuffleSplit` whole groups, here writers.
# `leaking` counts the test rows that have a near-duplicate in training. **How many will leak if we draw 22 of the 88
# rows, and how many with two of the eight writers?**


# %%
def leaking(train_at, test_at):
    return (similar[np.ix_(test_at, train_at)] > 0.5).any(axis=1).sum()


by_row = list(ShuffleSplit(200, test_size=22, random_state=0).split(clean))
of_groups = GroupShuffleSplit(200, test_size=2, random_state=0)
by_writer = list(of_groups.split(clean, groups=clean.writer))
for name, draws in {"22 rows": by_row, "two writers": by_writer}.items():
    print(f"{name}: {np.mean([leaking(*d) for d in draws]):.1f} leak, mean of 200")

train_at, test_at = by_writer[0]
test_at = [at for n, at in enumerate(test_at) if not leaking(test_at[:n], [at])]
kept, held_out = next(of_groups.split(train_at, groups=clean.writer[train_at]))
train_at, validation_at = train_at[kept], train_at[held_out]

# %% [markdown] slideshow={"slide_type": "subslide"}
# Of 22 rows about nine leak, but with two writers none, because here each person repeats only their own reports. In
# your data, ask which rows belong together (those of one customer, one document, one day), and keep each such group on
# one side. Then run these lines on your split. For more than about 10,000 rows use MinHash, which skips most pairs.
#
# The last lines keep the first draw by writer, leave one report of each pair in its test (21 rows become 15), and set
# two other writers aside for validation. Six of the 15 crates in the test are also in training. If your users will
# write about new things, hold out the topic too, as [lesson 12](12_a_real_task.ipynb) does.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## From messages to one text
#
# Nearly all libraries take a conversation as a list of *messages*, each with a role and a content. Here the system
# message holds the task, the user's message the report, and the assistant's message the answer.

# %%
task = "Give crate, version, system and kind as JSON."


def messages_of(row):
    contents = {"system": task, "user": row.report, "assistant": row.answer}
    return [{"role": role, "content": text} for role, text in contents.items()]


clean["messages"] = [messages_of(row) for row in clean.itertuples()]

# %% [markdown] slideshow={"slide_type": "subslide"}
# A model reads one text, though. It is written by the [chat template](glossary.md#chat-template), a small program in
# the language Jinja that is stored with the tokenizer. Chat models come with theirs, and **you always use the model's
# own**. Our tiny model has none, so we give it *ChatML*, the simple form that Qwen and SmolLM2 use. It needs two new
# tokens: `<|im_start|>` opens each message, and the [end token](glossary.md#end-token) `<|im_end|>` closes it.
# Generation stops when the model writes the end token.
#
# In use, the model gets a *prompt*, which is the conversation before the answer. With `add_generation_prompt` the
# template also opens the assistant's message, so that the model goes on with the answer.

# %%
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
tokenizer.eos_token = "<|im_end|>"  # is learned; the padding <|endoftext|> is not
# In Jinja, {% … %} is a statement, {{ … }} writes text, and - cuts the space before.
tokenizer.chat_template = """{% for message in messages %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


def as_text(messages, **options):
    return tokenizer.apply_chat_template(messages, tokenize=False, **options)


print(as_text(clean.messages[1]))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Tokens and labels
#
# The model should learn to write the answer and to stop, but not to write bug reports. So it gets, beside the tokens, a
# list of *labels* of the same length. If a token is to be learned, its label is the token itself. Otherwise the label
# is $-100$, which PyTorch's cross-entropy ignores. This choice is called the [loss mask](glossary.md#loss-mask). The
# labels need not be shifted by one position, because the model does that itself.
#
# In use the model reads the prompt alone, so no token may span prompt and answer. `encode` therefore tokenises the two
# separately. The template has written all special tokens, so the tokenizer adds none.


# %%
def encode(messages):
    prompt = as_text(messages[:-1], add_generation_prompt=True)
    whole = as_text(messages)
    answer = whole[len(prompt) :].removesuffix("\n")  # the end token comes last
    read = tokenizer(prompt, add_special_tokens=False).input_ids
    learned = tokenizer(answer, add_special_tokens=False).input_ids
    return {"input_ids": read + learned, "labels": [-100] * len(read) + learned}


examples = [encode(messages) for messages in clean.messages]
token_view(**examples[1], tokenizer=tokenizer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Grey tokens are only read; blue ones are learned. The dark one is the end token, which must be learned, too.
#
# ## Batches
#
# A batch is a rectangle, but the examples differ in length. A [collator](glossary.md#collator) pads them at the right
# end: the tokens with a padding token, the labels with $-100$. A third table, the [attention
# mask](glossary.md#attention-mask), has a 1 for each real token and a 0 for padding, which no token may attend to.


# %%
def collate(examples):
    longest = max(len(example["input_ids"]) for example in examples)
    batch = {"input_ids": [], "attention_mask": [], "labels": []}
    for example in examples:
        tokens, labels = example["input_ids"], example["labels"]
        missing = longest - len(tokens)
        batch["input_ids"].append(tokens + [tokenizer.pad_token_id] * missing)
        batch["attention_mask"].append([1] * len(tokens) + [0] * missing)
        batch["labels"].append(labels + [-100] * missing)
    return {name: torch.tensor(table) for name, table in batch.items()}


few = examples[:8]
batch = collate(few)
batch_picture(batch)

# %% [markdown] slideshow={"slide_type": "subslide"}
# White positions are padding and cost computing time, so put rows of similar length into one batch: `Trainer` does it
# with `train_sampling_strategy="group_by_length"`.
#
# In transformers this collator is called `DataCollatorForSeq2Seq`. TRL, a library for training chat models, has one
# that makes the same batch.

# %%
for_seq2seq = DataCollatorForSeq2Seq(tokenizer)
library_batch = for_seq2seq(few)
torch.testing.assert_close(dict(library_batch), batch)

# %% [markdown] slideshow={"slide_type": "subslide"}
# ## Four faults, and the check that finds them
#
# People often report these faults:
#
# - **answer cut**: a limit on the length cuts long rows at the right end, where the answer is;
# - **end token masked**: many tokenizers pad with the end token. A collator that masks every padding token, such as
#   transformers' `DataCollatorForLanguageModeling`, then masks the real end of each answer too;
# - **template twice**: a text that already went through the template goes through it again;
# - **all learned**: the labels are a copy of the padded tokens, so the model learns to write bug reports and padding.
#
# None of them raises an error. So `check_batch` decodes the labels of each row and compares the text with the answer
# and its end token. It also counts the tokens that open a message, because each conversation has three messages.

# %%
start, end = tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])


def learned(batch):
    return [tokenizer.decode(row[row != -100]) for row in batch["labels"]]


def check_batch(batch, answers):
    faults = []
    if learned(batch) != [answer + tokenizer.eos_token for answer in answers]:
        faults.append("learns something else")
    if ((batch["input_ids"] == start).sum(dim=1) != 3).any():
        faults.append("not three messages")
    return faults


# %% [markdown] slideshow={"slide_type": "subslide"}
# We plant each fault in the batch above. The `limit` is ten tokens below the longest row, so it cuts only this row. The
# table shows how the row's learned part begins and ends. **Which fault will the comparison with the answer miss?**


# %%
def end_masked(examples):
    batch = collate(examples)
    batch["labels"][batch["input_ids"] == end] = -100
    return batch


twice = [[s, u | {"content": as_text([u])}, a] for s, u, a in clean.messages[:8]]
limit = batch["input_ids"].shape[1] - 10
planted = {
    "nothing": batch,
    "answer cut": collate([{k: ids[:limit] for k, ids in row.items()} for row in few]),
    "end token masked": end_masked(few),
    "template twice": collate([encode(messages) for messages in twice]),
    "all learned": batch | {"labels": batch["input_ids"]},
}
noticed = {name: check_batch(case, clean.answer[:8]) for name, case in planted.items()}
longest = batch["attention_mask"].sum(dim=1).argmax()
parts = [learned(case)[longest] for case in planted.values()]
course.claim("Each planted fault is found", all(list(noticed.values())[1:]))
table = pd.Series(noticed, name="what check_batch says").to_frame()
table.assign(learned=[f"{part[:12]} … {part[-24:]}" for part in parts])

# %% [markdown] slideshow={"slide_type": "subslide"}
# It misses `template twice`, because it changes the report and leaves the labels right. The count of messages finds it.
# Neither part of the check notices a wrong answer, or the template of another model.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The way it is done at work: `datasets`
#
# The library `datasets` reads rows from disk when they are needed. Its `map` takes your `encode`, and `select` your
# split. (Its `train_test_split` draws single rows, so it leaks.) We save the tokenizer too, because without it the
# token ids mean nothing.

# %%
data = datasets.Dataset.from_pandas(clean[["writer", "messages"]])
encoded = data.map(lambda row: encode(row["messages"]), remove_columns=["messages"])
places = {"train": train_at, "validation": validation_at, "test": test_at}
splits = {name: encoded.select(at) for name, at in places.items()}
work = mkdtemp()
datasets.DatasetDict(splits).save_to_disk(work)
tokenizer.save_pretrained(f"{work}/tokenizer")
stored = datasets.load_from_disk(work)
stored

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Train on it
#
# We train the tiny model twice: once with your collator, and once with the end token masked. To save time, each run
# reads the 23 shortest rows once, one a step. `resize_token_embeddings` adds embeddings for the two new tokens (LoRA
# would leave them untrained). A `DataLoader` takes your collator as `collate_fn`, and `Trainer` as `data_collator`.
# **Will the loss tell you which run is the faulty one?**


# %%
def fine_tune(rows, collator):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
    model.resize_token_embeddings(len(tokenizer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(rows, batch_size=1, shuffle=True, collate_fn=collator)
    losses = []
    for batch in loader:
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return model.eval(), losses


# %% tags=["nbval-ignore-output"]
short = stored["train"].filter(lambda row: len(row["input_ids"]) < 150)
tuned, losses = fine_tune(short, collate)
endless, masked_losses = fine_tune(short, end_masked)
means = np.mean(losses[-5:]), np.mean(masked_losses[-5:])
print("last five losses: {:.2f}, {:.2f}".format(*means))

# %% [markdown] slideshow={"slide_type": "subslide"}
# It will not: both runs end at about the same loss. Now both models answer eight reports of the test. Generation pads
# on the left, because the model continues each row at its right end, and must be told the new end token. **How many of
# the answers will stop?**

# %% tags=["nbval-ignore-output"]
asked = clean.iloc[test_at[:8]]
prompts = [as_text(m[:2], add_generation_prompt=True) for m in asked.messages]
padded = {"add_special_tokens": False, "padding": True, "padding_side": "left"}
given = tokenizer(prompts, **padded, return_tensors="pt")
answers = {"label": list(asked.answer)}
for name, model in {"your collator": tuned, "end token masked": endless}.items():
    out = model.generate(**given, max_new_tokens=72, do_sample=False, eos_token_id=end)
    out = out[:, given.input_ids.shape[1] :]
    print(f"{name}: {(out == end).any(1).sum()} of 8 answers stop")
    answers[name] = tokenizer.batch_decode(out, skip_special_tokens=True)
for name, texts in answers.items():
    print(f"\n{name}, for the first two reports:", *texts[:2], sep="\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# With your collator every answer stops. With the end token masked **no answer stops**: training makes the labels more
# likely at the cost of all other tokens, and the end token was never a label. The loss cannot show this fault, because
# it does not count masked tokens.
#
# Most of the 32 fields are wrong, because in 23 steps the tiny model has learned only the form. [Lesson
# 12](12_a_real_task.ipynb) takes a larger model. At work, TRL's `SFTTrainer` builds the labels, and the columns of your
# rows decide what is learned:
#
# | a row holds | TRL learns | to set |
# | --- | --- | --- |
# | `prompt`, `completion`: lists of messages | the answer, its end token, a line break | nothing |
# | `messages` | everything, questions too | `assistant_only_loss=True` (an error unless the template marks `{% generation %}` or TRL knows it) |
# | any of these, over 1,024 tokens | a cut answer | a higher `max_length` |
#
# Before you train, print the labels of one batch from `trainer.get_train_dataloader()`.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Bring all files into one form, clean with counts that add up, and split by groups of rows that belong together.
# - The template makes one text, and labels of $-100$ keep the loss on the answer *and its end token*.
# - Faults in data raise no error and hardly show in the loss. Look at one example, and check a batch before you train.
#
# ## Further reading
#
# - [Chat templates](https://huggingface.co/docs/transformers/chat_templating) in the documentation of transformers
# - [Dataset formats](https://huggingface.co/docs/trl/dataset_formats) in that of TRL
# - Lee et al. 2022, [Deduplicating Training Data Makes Language Models Better](https://arxiv.org/abs/2107.06499)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex11_1", 1)`. After
# *Restart Kernel* run the next cell first.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** A tuned model writes a good answer, but then goes on with another one, until the limit. Its training loss
# was low. Which of these would have shown the reason before training?
#
# - **a** The loss on validation text.
# - **b** The number of rows after cleaning.
# - **c** The last label of each row that is not -100.
# - **d** The share of padding in the batches.

# %%
course.quiz("quiz11")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 11.1.** Write `encode` for conversations of several turns, so that every answer of the assistant is learned
# with its end token, and nothing else is. The chat template may be any that leaves earlier messages as they are. As in
# `encode`, what is read and what is learned are tokenised one by one, and nothing follows the last end token.


# %%
def labelled(tokenizer, messages):
    """Tokens and labels, in which each answer is learned."""

    # your code here


course.check("ex11_1", labelled)

# %% [markdown]
# Previous: [10 · Out of memory](10_oom_fallback.ipynb) ·
# Next: [12 · A real task](12_a_real_task.ipynb)
