# %% [markdown] slideshow={"slide_type": "slide"}
# # 20 · Your own project
#
# *How do you get from your own text and your own question to an answer that others can check?*
#
# So far the course chose the text and the question. Now you bring both, and you end with a report. This lesson is an
# empty project in plain code, filled with a small example: 140 notes about cooking, and the question whether full
# fine-tuning or LoRA adapts the bundled model better to them. Run it once as it is. Then copy it, and put in your
# documents, your question and your limits. Most of the code can stay as it stands.
#
# **You will be able to**
#
# - write a plan that can be shown to be older than the results;
# - find leaks in your data, and say before the final runs which difference they can show;
# - decide by the plan, where "cannot tell" is a possible answer, and report what you did.
#
# **You need** [lesson 3](03_baseline.ipynb) for splits, [lesson 4](04_full_fine_tuning.ipynb) for the search for a
# learning rate, [lesson 5](05_lora.ipynb) for LoRA, and [lesson 15](15_comparison.ipynb) for the interval of a
# difference.
#
# About 44 minutes. Your own project takes two to four hours more.

# %% slideshow={"slide_type": "subslide"}
import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from peft import LoraConfig, get_peft_model
from scipy import stats
from torch.optim.lr_scheduler import LinearLR
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

import course
import tlkit as tl

tl.setup()
base = tl.BUNDLED  # or a folder, or a name on the hub
folder = Path("../results")
folder.mkdir(exist_ok=True)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The plan comes first
#
# Write down what you want to know before you measure anything, and also which number will decide. Once you have seen
# the results, it is easy to find a question that fits them.
#
# The entry `worthwhile` needs the most thought. It is the smallest difference that would change what you do. LoRA
# needs less memory, and its adapter is a small file, so here we would give it up only for 0.05 nats per token, which
# is about 5% of perplexity. The `shares` say how much of the material goes into each split. The test gets most of it,
# because the test decides, and the 30% that are left over stay unread and could serve a second study. (If you have
# little material, let the shares add up to 1.)

# %%
plan = {
    "question": "Does full fine-tuning or LoRA teach tiny-qwen2 more about cooking?",
    "data": "140 notes in English, written for this course (CC BY 4.0), not private",
    "template": "{prompt}",
    "score": "nats_per_token",
    "shares": {"test": 0.35, "validation": 0.15, "train": 0.2},
    "rates": {"full": [3e-4, 1e-3, 3e-3], "lora": [3e-3, 1e-2, 3e-2]},
    "lora": {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"},
    "cheaper": "lora",
    "training": {"seeds": 3, "epochs": 1, "batch": 2, "most_tokens": 256},
    "worthwhile": 0.05,  # in the unit of the score
    "decides": "over documents",
    "rule": "inside ±worthwhile: cheaper; sure and at least it: better; else neither",
}

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Your documents
#
# Every task of this course fits into one table. A row has a `prompt`, which the model only reads; an `answer`, which it
# learns; and a `source`, which says where the row comes from, for example a file, an author or a customer. A plain
# text has an empty prompt. For a classification, the text is the prompt and the name of the class is the answer.
#
# The next cell reads the example. In its place, this reads a folder of `.txt` files in which a blank line separates the
# documents; the source is the file. (With fewer than about ten files, make each document its own source by
# `data["source"] = data.index`, and name this among the limits.)
#
# ```python
# rows = [
#     ("", " ".join(part.split()), file.name)
#     for file in sorted(Path("my_texts").rglob("*.txt"))
#     for part in file.read_text(encoding="utf-8-sig").split("\n\n")
#     if part.strip()
# ]
# data = pd.DataFrame(rows, columns=["prompt", "answer", "source"])
# ```
#
# And this reads a table, for example tickets with the columns `text` and `team`. If it has no column for the source,
# every row becomes a source of its own:
#
# ```python
# table = pd.read_csv("tickets.csv", dtype=str).dropna(subset=["text", "team"])
# data = pd.DataFrame({"prompt": table.text, "answer": table.team, "source": table.index})
# ```

# %%
files = sorted((tl.DATA / "kitchen").glob("*.jsonl"))
notes = pd.concat([pd.read_json(file, lines=True) for file in files]).sort_values("id")
data = pd.DataFrame({"prompt": "", "answer": notes.text, "source": notes.topic})

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Splits by source, and leaks
#
# Documents from one source resemble each other. If a source were in two splits, the test would be easier than new
# material is. So we split the *sources*, and every document follows its source. Here the sources are the twenty
# subjects of the notes, so the test is about subjects that were not in the training text.
#
# Then we remove two kinds of copies. An **exact copy** has the same words as an earlier document. A **near copy** shares
# eight words in a row with a document of a later split, and then we drop the one in the earlier split, so that the
# test remains as it is. (If this removes much, look at what the documents share. It may be a standard phrase such as a
# letter's closing line, and then you should delete the phrase and keep the documents. Documents of fewer than eight words
# are compared as a whole.)


# %%
def runs_of(words, n=8):
    return {tuple(words[i : i + n]) for i in range(max(1, len(words) - n + 1))}


text = data.prompt.where(data.prompt != "", data.answer)
data["words"] = text.str.lower().str.findall(r"\w+")
copies = data.words.str.join(" ").duplicated()
data = data[~copies].reset_index(drop=True)

sources = pd.Series(sorted(set(data.source))).sample(frac=1, random_state=0)
place = data.source.map({name: n / len(sources) for n, name in enumerate(sources)})
ends = np.cumsum([0, *plan["shares"].values()])
data["split"] = pd.cut(place, ends, right=False, labels=list(plan["shares"]))
if data.split.value_counts().min() == 0:
    raise ValueError("a split is empty: try data['source'] = data.index")

runs = data.words.map(runs_of)
near = pd.Series(False, index=data.index)
for split, later in {"train": ["validation", "test"], "validation": ["test"]}.items():
    held_out = set().union(*runs[data.split.isin(later)])
    near |= (data.split == split) & ~runs.map(held_out.isdisjoint)
data = data[~near]
print(f"removed: {copies.sum()} exact copies and {near.sum()} near copies")

# %% [markdown] slideshow={"slide_type": "subslide"}
# A [datasheet](glossary.md#datasheet) says what a reader has to know about the data. Some of it only you can write, so
# it stands in the plan: where the text comes from, who allows its use, and whether it contains anyone's private data.
# The rest can be counted.

# %%
tokenizer = AutoTokenizer.from_pretrained(base)
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
data["tokens"] = [len(tokenizer(text).input_ids) for text in data.prompt + data.answer]
groups = data.groupby("split", observed=True)
datasheet = groups.agg({"answer": "count", "source": "nunique", "tokens": "max"})
datasheet.columns = ["documents", "sources", "longest"]
datasheet

# %% [markdown] slideshow={"slide_type": "subslide"}
# If `longest` exceeds `most_tokens`, documents will be cut; change the plan now if that matters. For a classification,
# look at `data.groupby("split").answer.value_counts()` too.
#
# Now the plan is sealed. We store it with the date, and with two hashes: one of the data and one of the plan. A
# *hash* is a short number computed from a text, and it changes as soon as one letter of the text does. A date in a file
# of yours proves nothing to others, because you could edit it. **So commit the file and push it** (with `git add -f`,
# because this repository ignores `results/`), **or mail the hash to somebody, before you go on.**

# %% tags=["check-seal"]
rows = data[["prompt", "answer", "source", "split"]].to_csv(lineterminator="\n")
plan["data_sha256"] = hashlib.sha256(rows.encode()).hexdigest()
plan_sha256 = hashlib.sha256(json.dumps(plan).encode()).hexdigest()
date = pd.Timestamp.now("UTC").isoformat(timespec="minutes")
record = json.dumps({"date": date, "sha256": plan_sha256, "plan": plan}, indent=2)
(folder / "plan.json").write_text(record, encoding="utf-8")
print("plan", plan_sha256[:16])

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The score: the one place that differs between tasks
#
# `encoded` turns a document into tokens, with labels of -100 on the prompt, so that only the answer and its end token
# count. The three functions below score one document, and for all of them lower is better. The plan chooses one of
# them by its name.
#
# | task | prompt and answer | `template` | `score` |
# | --- | --- | --- | --- |
# | texts | nothing, and the text | `{prompt}` | `nats_per_token` |
# | answers | the question, and its answer | `Question: {prompt}\nAnswer:\n` | `wrong_answer` |
# | classes | the text, and the name of its class | `{prompt}\nClass:\n` | `wrong_class` |
#
# For the last two, a document scores 0 or 1, so a mean is the share of wrong answers, and `worthwhile` is 0.05 if five
# more right answers in a hundred matter to you. Everything after this cell stays as it is.

# %%
collate = DataCollatorForSeq2Seq(tokenizer)
training, end = plan["training"], tokenizer.eos_token_id


def ids_of(text):
    return tokenizer(text, add_special_tokens=False).input_ids


def encoded(document):
    most = training["most_tokens"]
    read = [end, *ids_of(plan["template"].format(prompt=document["prompt"]))]
    learned = [*ids_of(document["answer"]), end][: most - 1]
    read = read[-(most - len(learned)) :]  # a long prompt loses its beginning
    return {"input_ids": read + learned, "labels": [-100] * len(read) + learned}


def nats_per_token(model, document):
    return model(**collate([encoded(document)]).to(model.device)).loss.item()


def wrong_answer(model, document):
    # 0 if the model writes exactly this answer, else 1
    length = encoded(document)["labels"].count(-100)
    prompt = torch.tensor([encoded(document)["input_ids"][:length]]).to(model.device)
    limit = len(ids_of(document["answer"])) + 1  # a longer answer is wrong anyway
    written = model.generate(input_ids=prompt, max_new_tokens=limit, do_sample=False)
    answer = tokenizer.decode(written[0, length:], skip_special_tokens=True)
    return float(answer.strip() != document["answer"].strip())


def wrong_class(model, document):
    # 0 if the right class is the likeliest one, else 1
    nats = {}
    for name in sorted(set(data.answer)):
        loss = nats_per_token(model, document | {"answer": name})
        nats[name] = loss * (len(ids_of(name)) + 1)  # its tokens, and the end
    return float(min(nats, key=nats.get) != document["answer"])


score = torch.no_grad()(globals()[plan["score"]])

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The baseline
#
# First we measure the untouched model. This uses validation text, so that the test stays closed. (For classes or short
# answers, a simpler method belongs beside it, for example the bag of words of [lesson 13](13_classification.ipynb).)


# %%
def new_model(strategy):
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    if strategy == "lora":
        model = get_peft_model(model, LoraConfig(**plan["lora"]))
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


documents = {name: part.to_dict("records") for name, part in groups}


def scored(model, split):
    return np.array([score(model.eval(), document) for document in documents[split]])


before = scored(new_model("full"), "validation")
half = stats.t.ppf(0.975, len(before) - 1) * stats.sem(before)
print(f"untouched: {before.mean():.2f} ± {half:.2f} {plan['score']}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Tune each strategy
#
# The loop is that of [lesson 1](01_first_fine_tuning.ipynb). The seed decides the first values of the adapters and the
# order of the documents, and two strategies with the same seed read the same batches. Each strategy gets the same
# number of rates, scored on validation text. **Which rate will win for each of them?**


# %% tags=["nbval-ignore-output"]
def trained(strategy, rate, seed):
    torch.manual_seed(seed)
    model = new_model(strategy).train()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0)
    rows = list(map(encoded, documents["train"]))
    order, batches = torch.Generator().manual_seed(seed), []
    for _ in range(training["epochs"]):
        batches += torch.randperm(len(rows), generator=order).split(training["batch"])
    schedule = LinearLR(optimizer, 1, 0.05, len(batches))  # down to 5%
    for numbers in batches:
        batch = collate([dict(rows[number]) for number in numbers])
        model(**batch.to(model.device)).loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return model


tried = {}
for strategy, rates in plan["rates"].items():
    for rate in rates:
        tried[strategy, rate] = scored(trained(strategy, rate, 0), "validation")
tried = pd.DataFrame(tried)
best = {name: float(tried[name].mean().idxmin()) for name in plan["rates"]}
for strategy, rate in best.items():
    print(strategy, tried[strategy].mean().round(2).to_dict(), "best:", rate)
    if rate in (plan["rates"][strategy][0], plan["rates"][strategy][-1]):
        print("its best rate is at the border: extend the grid, and say so")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Which difference could this test show?
#
# The search was also a pilot run: it gives the losses of both strategies on the same validation notes. Their paired
# differences have a standard deviation $s$, and the interval over $n$ test documents will be about
#
# $$\pm\, t \sqrt{\frac{s^2}{n} + e_\text{seeds}^2}$$
#
# as in [lesson 15](15_comparison.ipynb). The pilot has one seed and does not know $e_\text{seeds}$, but it says about
# how wide the interval will be. With two strategies and three seeds there are $(2-1)(3-1) = 2$ degrees of freedom, so
# $t$ is 4.30. **How large must a difference be for 49 notes to show it?**

# %%
one, other = plan["rates"]
pilot = tried[other, best[other]] - tried[one, best[one]]
t = stats.t.ppf(0.975, training["seeds"] - 1)
print(f"about ± {t * pilot.std() / len(documents['test']) ** 0.5:.3f} on the test")

# %% [markdown] slideshow={"slide_type": "subslide"}
# So 49 notes can show a difference of about 0.07. This is more than the 0.05 of the plan, and it tells us two
# things before the final runs. A difference of 0.05 will probably end as "cannot tell". And the answer "no difference
# worth having" is out of reach, because an interval of this width does not fit between -0.05 and 0.05. There are three
# honest options: bring more documents and seeds, ask for a larger difference in a *new* plan, or go on and accept this
# limit. We go on.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The final runs
#
# Each strategy is trained with its best rate and three seeds, and now the test is opened, once. For a single pair, the
# function `intervals` of lesson 15 becomes as short as this: the error of the seeds is that of the differences seed by
# seed. If you compare more than two strategies, use the function of lesson 15, which corrects for the number of pairs.


# %% tags=["nbval-ignore-output"]
def interval(losses):
    # mean difference of the two strategies, and the ends of its 95% interval
    apart = losses[other] - losses[one]  # rows: documents, columns: seeds
    by_document, by_seed = apart.mean(axis=1), apart.mean()
    error = np.hypot(by_document.sem(), by_seed.sem())
    t = stats.t.ppf(0.975, min(apart.shape) - 1)
    return by_document.mean() + t * error * np.array([0, -1, 1])


losses = {}
for strategy, rate in best.items():
    for seed in range(training["seeds"]):
        losses[strategy, seed] = scored(trained(strategy, rate, seed), "test")
losses = pd.DataFrame(losses).rename_axis(columns=["strategy", "seed"])
means = losses.mean().unstack("strategy")
means.loc["untouched"] = scored(new_model("full"), "test").mean()
print(means.round(2))

by_source = losses.groupby([row["source"] for row in documents["test"]]).mean()
results = {"over documents": interval(losses), "over sources": interval(by_source)}
results = pd.DataFrame(results, ["difference", "low", "high"]).T.round(3)
results

# %% [markdown] slideshow={"slide_type": "subslide"}
# Both strategies learned a lot: the untouched model is at 5.8 nats per token, `full` ends near 4.78 and `lora` near
# 4.86. Their difference is about 0.09, and its interval excludes zero, although its lower end, near 0.02, is no longer a
# difference worth having. The pilot was right about the width.
#
# The second line takes one mean for each subject in place of single notes. If the notes of a subject resembled each
# other in their differences, the first interval would be too narrow, and the second would be the honest one. Here the
# two agree. Which of them decides stands in the plan.
#
# A mean hides what happened, so read the documents on which the two strategies differ most.

# %%
apart = (losses[other] - losses[one]).mean(axis=1)
for number in apart.abs().nlargest(3).index:
    print(f"{apart[number]:+.1f} | {documents['test'][number]['answer'][:70]}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Decide as planned
#
# The function below is the rule of the plan, and nothing else enters the decision. First we compute the hash again, as
# anybody can who has the file, to show that the plan has stayed the same since. An interval that lies within
# ±`worthwhile` is a result as well: whatever the difference is, it is too small to matter.


# %%
def decide(difference, low, high):
    if -plan["worthwhile"] < low and high < plan["worthwhile"]:
        return f"no difference worth having, take {plan['cheaper']}"
    if abs(difference) >= plan["worthwhile"] and (low > 0 or high < 0):
        return f"take {one if low > 0 else other}"
    return "cannot tell"


sealed = json.loads((folder / "plan.json").read_text(encoding="utf-8"))["plan"]
again = hashlib.sha256(json.dumps(sealed).encode()).hexdigest()
course.claim("The plan is the one that was sealed", again == plan_sha256)
difference, low, high = results.loc[plan["decides"]]
decision = decide(difference, low, high)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The report
#
# Every number is filled in from a variable, because a number that was typed by hand is wrong after the next run. Only
# the last section is written by you. Anyone who reads the report can compare the hash with the one that you published
# before the runs.

# %% tags=["nbval-ignore-output"]
report = f"""# {plan["question"]}
**Answer: {decision}.** {other} minus {one}: {difference:.2f} ({low:.2f} to {high:.2f})
{plan["score"]}, 95% over {len(losses)} documents and {len(losses[one].columns)} seeds.
## Plan
Sealed {date}, sha256 {plan_sha256}. Rule: {plan["rule"]} ({plan["worthwhile"]}).
## Data
{plan["data"]}. Removed: {copies.sum()} exact and {near.sum()} near copies.

{datasheet.to_markdown()}
## Numbers
Rates, chosen on validation text: {best}. Intervals, and means by seed:

{results.to_markdown()}

{means.round(2).to_markdown()}
## Limits
One small model, one epoch, subjects like these; forgetting was not measured.
"""
(folder / "report.md").write_text(report, encoding="utf-8")
print(report)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Now your project
#
# Copy this notebook, choose a question of your own, and go through it again. It should take an afternoon, most of
# which goes into the plan and the documents. Begin with 200 documents or more, from at least ten
# sources, a third of them for the test. Make a first pass with the bundled model, and then replace `tl.BUNDLED` by the
# name of a model from the Hub, with new rates. Before you hand in the report, go through this list:
#
# - [ ] The question names the model, the material and two strategies, and somebody else would understand it.
# - [ ] I can say why `worthwhile` has this value, and what I shall do for each outcome of the rule.
# - [ ] The data have an origin, a permission and no private information, or the datasheet says which.
# - [ ] The splits follow the sources, and I looked at the copies that were removed.
# - [ ] The hash of the plan was in somebody else's hands before the first run.
# - [ ] Both strategies had equally many rates, and no best rate lies at the border.
# - [ ] I knew from the pilot what the test could show, and the test was opened once.
# - [ ] The decision is the one that the rule gives, even if I had hoped for another.
# - [ ] I read ten outputs, or the ten documents with the largest differences, and the report says what I saw.
# - [ ] The limits name material, model and method, and everything that I changed after the plan was sealed.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - The question, the number that decides and the rule are sealed before anything runs.
# - Split by source, remove copies, and learn from a pilot which difference the test can show.
# - The rule decides, "cannot tell" included, and every number of the report comes from the runs.
#
# ## Further reading
#
# - [Gebru et al. 2021](https://arxiv.org/abs/1803.09010), Datasheets for Datasets.
# - [Card et al. 2020](https://arxiv.org/abs/2010.06595), With Little Power Comes Great Responsibility, on comparisons
#   that are too small to show anything.
# - [Nosek et al. 2018](https://doi.org/10.1073/pnas.1708274114), The preregistration revolution, on plans that come
#   before the data.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex20_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** Your study has an interval from -9% to +3% for `lora` against `full`, and your plan calls 5% worthwhile.
# What do you write?
#
# - **a** There is no difference between the two.
# - **b** `lora` is better by 3%, the middle of the interval.
# - **c** This study cannot tell; `lora` may be better by up to 9% or worse by up to 3%.
# - **d** Nothing yet: I check which documents are hard for `lora` and leave them out.

# %%
course.quiz("quiz20")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 20.1** (first steps). A pilot says that a test of 25 documents gives an interval of ±0.08 nats per token.
# You want ±0.02. How many documents does the test need then, if they are like these? (Count the documents only, and
# leave the seeds and $t$ as they are.)

# %%
answer = None
# your code here
course.check("ex20_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 20.2** (apply it). Write a function that finds the strategies whose learning rate was not found fairly. It
# gets a list of runs, each a tuple of strategy, learning rate, split and score, where a lower score is better and no
# rate was run twice. Return the set of all strategies for which at least one of three things is true: a run was scored
# on another split than `"validation"`; it had fewer runs than the strategy with the most; or its best rate is the
# lowest or the highest of those that were tried for it.


# %%
def not_tuned(runs):
    """The set of strategies whose rate was not found fairly."""
    # your code here


course.check("ex20_2", not_tuned)

# %% [markdown]
# Previous: [18 · Scaling out](18_scaling_out.ipynb) ·
# Next: [A1 · Unfreezing schedules](A1_unfreezing_schedules.ipynb)
