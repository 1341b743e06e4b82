# %% [markdown] slideshow={"slide_type": "slide"}
# # 20 · Your own project
#
# *How do you get from your own text and your own question to an answer that others can check?*
#
# So far the course chose the text and the question. Now you bring both, and you end with a report. This lesson is an
# empty project in plain code. You fill in three cells, which are marked with `# YOURS`: the plan, the documents, and
# the limits in the report. The other cells stay as they are; a third strategy needs a line in `new_model` besides.
#
# So that you can see it run, the three cells hold a small example: notes about cooking, and the question whether full
# fine-tuning or LoRA adapts the bundled model better to them. Run it once as it is. Then copy the notebook and replace
# the example.
#
# **You will be able to**
#
# - write a plan, and prove later that it is older than the results;
# - find leaks in your data, and say before the final runs which difference they can show;
# - decide by the plan, where "cannot tell" is a possible answer, and report what you did.
#
# **You need** [lesson 3](03_baseline.ipynb) for splits, [lesson 4](04_full_fine_tuning.ipynb) for the search for a
# learning rate, [lesson 5](05_lora.ipynb) for LoRA, and [lesson 15](15_comparison.ipynb) for the interval of a
# difference.
#
# About 36 minutes. Your own project takes two to four hours more.

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
from transformers import AutoModelForCausalLM, AutoTokenizer

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
# The entry `worthwhile` needs the most thought. It is the smallest difference that would change what you do. LoRA needs
# less memory, and its adapter is a small file, so here we would give it up only for 0.05 nats per token, which is about
# 5% of perplexity. The `shares` say how much goes into each split. The test gets most, because it decides. (The example
# uses fewer than half of its notes, so that it runs quickly. In your plan, let the shares add up to 1.)

# %%
# YOURS: the question, the data, and what will decide
plan = {
    "question": "Does full fine-tuning or LoRA teach tiny-qwen2 more about cooking?",
    "data": "140 notes in English, written for this course (CC BY 4.0), not private",
    "template": "{prompt}",
    "score": "nats_per_token",
    "shares": {"test": 0.25, "validation": 0.1, "train": 0.1},
    "rates": {"full": [3e-4, 1e-3, 3e-3], "lora": [3e-3, 1e-2, 3e-2]},
    "lora": {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"},
    "most_tokens": 256,  # longer documents are left out
    "epochs": 1,
    "seeds": 3,
    "worthwhile": 0.05,  # in the unit of the score
    "cheaper": "lora",
    "rule": "interval inside ±worthwhile: cheaper; interval without 0 and "
    "difference at least worthwhile: better; else cannot tell",
}

# %% [markdown] slideshow={"slide_type": "subslide"}
# The `rule` turns the 95% interval of the difference into a decision. It has three outcomes:
#
# - If the whole interval lies within ±`worthwhile`, the difference is too small to matter, and we take the cheaper
#   strategy.
# - If the interval excludes zero and the difference is at least `worthwhile`, we take the better strategy.
# - Otherwise the question stays open: the study cannot tell, and the report says so.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Your documents
#
# Every task of this course fits into one table. A row has a `prompt`, which the model only reads; an `answer`, which it
# learns; and a `source`, which says where the row comes from, for example a file, an author or a customer. A plain text
# has an empty prompt. For a classification, the text is the prompt and the name of the class is the answer. The plan
# needs a template and a score that fit the task:
#
# | task | prompt and answer | `template` | `score` |
# | --- | --- | --- | --- |
# | texts | nothing, and the text | `{prompt}` | `nats_per_token` |
# | answers | the question, and its answer | `Question: {prompt}\nAnswer:\n` | `wrong_answer` |
# | classes | the text, and the name of its class | `{prompt}\nClass:\n` | `wrong_answer` |
#
# Your documents may be a table, for example of tickets with the columns `text`, `team` and `customer`. Then these two
# lines take the place of the example:
#
# ```python
# table = pd.read_csv("tickets.csv", dtype=str).dropna()
# data = pd.DataFrame({"prompt": table.text, "answer": table.team, "source": table.customer})
# ```

# %%
# YOURS: a table with the columns prompt, answer and source
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
# For this the sources are shuffled and put in a row, and the shares cut the row into the splits. Sources beyond the
# last share get no split and are not used.
#
# Even so, two sources may contain the same document. So we compare all *runs* of eight words, as in [lesson
# 11](11_your_data.ipynb). If a document outside the test shares a run with the test, we remove that document, so that
# the test remains as it is.


# %%
def runs_of(words, n=8):
    return {tuple(words[i : i + n]) for i in range(max(1, len(words) - n + 1))}


text = data.prompt.where(data.prompt != "", data.answer)
data["words"] = text.str.lower().str.findall(r"\w+")

sources = pd.Series(sorted(set(data.source))).sample(frac=1, random_state=0)
place = data.source.map({name: n / len(sources) for n, name in enumerate(sources)})
ends = np.cumsum([0, *plan["shares"].values()])
data["split"] = pd.cut(place, ends, right=False, labels=list(plan["shares"]))

runs = data.words.map(runs_of)
in_test = set().union(*runs[data.split == "test"])
leaks = (data.split != "test") & ~runs.map(in_test.isdisjoint)
data = data[~leaks]
print(f"removed: {leaks.sum()} documents")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The example is clean, but your own material may not be. If many documents go, look at what they share. It may be a
# standard phrase, such as a letter's closing line; then delete the phrase and keep the documents.
#
# A [datasheet](glossary.md#datasheet) says what a reader has to know about the data. The plan already names their
# origin and licence, and whether they are private. The rest can be counted.

# %%
tokenizer = AutoTokenizer.from_pretrained(base)
data["tokens"] = [len(tokenizer(text).input_ids) for text in data.prompt + data.answer]
data = data[data.tokens <= plan["most_tokens"]]
groups = data.groupby("split", observed=True)
datasheet = groups.agg(documents=("answer", "count"), sources=("source", "nunique"))
datasheet

# %% [markdown] slideshow={"slide_type": "subslide"}
# ## Seal the plan
#
# A report alone cannot show that its plan came before its results. For this we use a *hash*, a short number that is
# computed from a text and changes as soon as one letter of the text does. We put a hash of the data into the plan,
# compute the hash of the plan, and store everything in a file.
#
# As long as only you have the file, it proves nothing, because you could write it anew. **So in your project, before
# you go on, commit and push the file** (with `git add -f`, because this repository ignores `results/`), **or mail the
# hash to somebody.**

# %% tags=["check-seal"]
rows = data[["prompt", "answer", "source", "split"]].to_csv(lineterminator="\n")
plan["data_sha256"] = hashlib.sha256(rows.encode()).hexdigest()
plan_sha256 = hashlib.sha256(json.dumps(plan).encode()).hexdigest()
record = json.dumps({"sha256": plan_sha256, "plan": plan}, indent=2)
(folder / "plan.json").write_text(record, encoding="utf-8")
print("plan", plan_sha256[:16])

# %% [markdown] slideshow={"slide_type": "slide"}
# ## From a document to a score
#
# `encoded` turns a document into tokens, with labels of -100 on the prompt, so that only the answer and its end token
# count. Two functions score one document, and for both of them lower is better. `nats_per_token` is the loss.
# `wrong_answer` lets the model write, and gives 0 if the text is exactly the right answer and 1 if not, so its mean is
# the share of wrong answers.

# %%
end = tokenizer.eos_token_id


def ids_of(text):
    return tokenizer(text, add_special_tokens=False).input_ids


def encoded(document, device="cpu"):
    read = [end, *ids_of(plan["template"].format(prompt=document["prompt"]))]
    learned = [*ids_of(document["answer"]), end]
    row = {"input_ids": read + learned, "labels": [-100] * len(read) + learned}
    return {name: torch.tensor([ids], device=device) for name, ids in row.items()}


def nats_per_token(model, document):
    return model(**encoded(document, model.device)).loss.item()


def wrong_answer(model, document):
    row = encoded(document, model.device)
    prompt = row["input_ids"][row["labels"] == -100][None]
    limit = len(ids_of(document["answer"])) + 1  # a longer answer is wrong anyway
    written = model.generate(input_ids=prompt, max_new_tokens=limit, do_sample=False)
    answer = tokenizer.decode(written[0, prompt.shape[1] :], skip_special_tokens=True)
    return float(answer.strip() != document["answer"].strip())


scores = {"nats_per_token": nats_per_token, "wrong_answer": wrong_answer}
score = torch.no_grad()(scores[plan["score"]])  # scoring needs no gradients

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The baseline
#
# First we measure the untouched model, because a strategy that does not beat it has taught nothing. We use validation
# text, so that the test stays closed. For classes, the bag of words of [lesson 13](13_classification.ipynb) belongs
# beside it.


# %%
def new_model(strategy):
    if strategy not in ("full", "lora"):
        raise ValueError(
            f"new_model does not know {strategy!r}: write down what it trains"
        )
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
# The loop is that of [lesson 4](04_full_fine_tuning.ipynb), with one document in each step. The seed decides the first
# values of the adapters and the order of the documents. Each strategy gets the same number of rates, scored on
# validation text, because a strategy with more trials would have more chances to look good. **Which rate will win for
# each of them?**


# %% tags=["nbval-ignore-output"]
def trained(strategy, rate, seed):
    torch.manual_seed(seed)
    model = new_model(strategy).train()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0)
    train, shuffle = documents["train"], np.random.default_rng(seed).permutation
    order = [n for _ in range(plan["epochs"]) for n in shuffle(len(train))]
    schedule = LinearLR(optimizer, 1, 0.05, len(order))  # down to 5%
    for number in order:
        model(**encoded(train[number], model.device)).loss.backward()
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
print(tried.mean().round(2).to_string())

# %% [markdown] slideshow={"slide_type": "subslide"}
# Both best rates have a neighbour on each side that is worse, so the grids are wide enough. If one of yours is the
# lowest or the highest of its grid, extend the grid, and say so in the report.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Which difference could this test show?
#
# The search was also a [pilot run](glossary.md#pilot-run), because it gives the losses of both strategies on the same
# validation notes. The wider their differences vary from note to note, the wider the final interval will be. If these
# differences have the standard deviation $s$, the difference of the means over $n$ test documents will be known to
# about
#
# $$\pm\, t \sqrt{\frac{s^2}{n} + e_\text{seeds}^2}$$
#
# as in [lesson 15](15_comparison.ipynb), where $e_\text{seeds}$ is the standard error that comes from the seeds. The
# pilot has one seed and does not know it, so we leave it out and get a lower bound. With two strategies and three seeds
# there are $(2-1)(3-1) = 2$ degrees of freedom, so $t$ is 4.30. **How large must a difference be for 35 notes to show
# it?**

# %%
one, other = plan["rates"]
pilot = tried[other, best[other]] - tried[one, best[one]]
t = stats.t.ppf(0.975, plan["seeds"] - 1)
expected = t * pilot.std() / len(documents["test"]) ** 0.5
print(f"about ±{expected:.2f} on {len(documents['test'])} test documents")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The documents alone give an interval of about ±0.06. It will not fit between -0.05 and 0.05, so the answer "too small
# to matter" is out of reach, and a difference of 0.05 will end as "cannot tell". There are three honest options: bring
# more documents and seeds, ask for a larger difference in a *new* plan, or go on and accept this limit. We go on.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The final runs
#
# Each strategy is trained with its best rate and three seeds, and now the test is opened, once. For a single pair, the
# function `intervals` of lesson 15 becomes as short as this: one error comes from the differences document by document,
# the other from the differences seed by seed. For more than two strategies, use the function of lesson 15, which
# corrects for the number of pairs.


# %% tags=["nbval-ignore-output"]
def interval(losses):
    # mean difference of the two strategies, and the ends of its 95% interval
    apart = losses[other] - losses[one]  # rows: documents, columns: seeds
    by_document, by_seed = apart.mean(axis=1), apart.mean()
    reach = t * np.hypot(by_document.sem(), by_seed.sem())
    return by_seed.mean(), by_seed.mean() - reach, by_seed.mean() + reach


losses = {}
for strategy, rate in best.items():
    for seed in range(plan["seeds"]):
        losses[strategy, seed] = scored(trained(strategy, rate, seed), "test")
losses = pd.DataFrame(losses).rename_axis(columns=["strategy", "seed"])
means = losses.mean().unstack("strategy")
means["untouched"] = scored(new_model("full"), "test").mean()
print(means.round(2))
difference, low, high = interval(losses)
print(f"{other} minus {one}: {difference:.2f} ({low:.2f} to {high:.2f})")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Both strategies learned something, because they end near 5.1 nats per token and the untouched model stands at 5.8.
# Their difference is 0.01, with an interval from -0.13 to 0.16, more than twice as wide as the pilot's lower bound. The
# seeds are the reason: `lora` is better with seed 0 and `full` with the other two. With only fourteen steps, the order
# of the notes matters. More seeds would help most, because with ten of each $t$ alone would fall from 4.30 to 2.26.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Decide as planned
#
# The function below is the rule of the plan, and nothing else enters the decision. The cell also computes the hash of
# the stored plan again, as anybody who has the file can, to show that the plan has stayed the same.


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
decision = decide(difference, low, high)
print(decision)

# %% [markdown] slideshow={"slide_type": "subslide"}
# "Cannot tell" does not mean that the two are equal. The interval contains differences of 0.1 in both directions, and
# either of them would be worthwhile. The next plan needs more seeds and more notes.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The report
#
# Every number is filled in from a variable, because a number that was typed by hand is wrong after the next run. Only
# the limits are written by you.

# %% tags=["nbval-ignore-output"]
# YOURS: what was not measured, and what you would not conclude
limits = "One small model, one epoch, subjects like these; forgetting was not measured."

report = f"""# {plan["question"]}
**Answer: {decision}.** {other} minus {one}: {difference:.2f} ({low:.2f} to {high:.2f})
{plan["score"]}, 95% over {len(losses)} documents and {len(means)} seeds.
## Plan
Sealed, sha256 {plan_sha256}. Rule: {plan["rule"]} ({plan["worthwhile"]}).
## Data
{plan["data"]}. Removed as leaks: {leaks.sum()}.

{datasheet.to_markdown()}
## Numbers
Rates, chosen on validation text: {best}. Means by seed:

{means.round(2).to_markdown()}
## Limits
{limits}
"""
(folder / "report.md").write_text(report, encoding="utf-8")
print(report)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Now your project
#
# Copy this notebook and go through it again with a question of your own, and with 200 documents or more, from at least
# ten sources. Make a first pass with the bundled model, and then replace `tl.BUNDLED` by the name of a model from the
# Hub, with new rates. Before you hand in the report, go through this list:
#
# - [ ] The question names the model, the material and two strategies, and somebody else would understand it.
# - [ ] I can say why `worthwhile` has this value, and what I shall do for each outcome of the rule.
# - [ ] The plan names the origin of the data, the permission to use them, and any private information.
# - [ ] The hash of the plan was in somebody else's hands before the first run.
# - [ ] No best rate lies at the border of its grid, and the test was opened once.
# - [ ] The decision is the one that the rule gives, even if I had hoped for another.
# - [ ] The limits name material, model and method, and everything that I changed after the plan was sealed.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - The question, the number that decides and the rule are sealed before anything runs.
# - Split by source and remove leaks. A pilot tells you beforehand which difference the test can show.
# - The rule decides, "cannot tell" included, and every number of the report comes from the runs.
#
# ## Further reading
#
# - [Gebru et al. 2021](https://arxiv.org/abs/1803.09010), Datasheets for Datasets.
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
# **Exercise 20.1.** Write a function that finds the strategies whose learning rate was not found fairly. It gets a list
# of runs, each a tuple of strategy, learning rate, split and score, where a lower score is better and no rate was run
# twice. Return the set of all strategies for which at least one of three things is true: a run was scored on another
# split than `"validation"`; it had fewer runs than the strategy with the most; or its best rate is the lowest or the
# highest of those that were tried for it.


# %%
def not_tuned(runs):
    """The set of strategies whose rate was not found fairly."""
    # your code here


course.check("ex20_1", not_tuned)

# %% [markdown]
# Previous: [19 · Ship it](19_ship_it.ipynb) ·
# Next: [A1 · Unfreezing schedules](A1_unfreezing_schedules.ipynb)
