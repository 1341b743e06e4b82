# %% [markdown] slideshow={"slide_type": "slide"}
# # 20 · Your own project
#
# *How do you get from your own text and your own question to an answer that others can check?*
#
# Now you bring the text and the question, and you end with a report. This lesson is an empty project in plain code. You
# fill in the cells that are marked with `# YOURS`: the plan, the strategies, the documents, the hash of the plan, and
# the limits in the report. So that you can see it run, these cells hold a small example: notes about cooking, and the
# question whether LoRA or BitFit adapts the bundled model better to them.
#
# **You will be able to**
#
# - seal a plan, so that nobody, you included, can change it after the results;
# - split by source, remove leaks, and say before the final runs which difference they can show;
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
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl

tl.setup()
base = tl.BUNDLED  # or a folder, or a name on the hub

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The plan comes first
#
# Write down what you want to know before you measure anything, and also which number will decide. Once you have seen
# the results, it is easy to find a question that fits them.
#
# The entry `worthwhile` needs the most thought. It is the smallest difference that would change what you do. Suppose
# that we keep one adapter for each of many customers. LoRA trains 72 times as many parameters as
# [BitFit](glossary.md#bitfit), so its files are larger. We would accept that for 0.1 nats per token, about 10% of
# perplexity. The `shares` say how much goes into each split. (The example uses fewer than half of its notes, so that it
# runs quickly. In your plan, let the shares add up to 1.)

# %%
# YOURS: the question, the data, and what will decide
project = "kitchen"  # a new plan needs a new name
plan = {
    "question": "Does LoRA or BitFit teach tiny-qwen2 more about cooking?",
    "data": "140 notes in English, written for this course (CC BY 4.0), not private",
    "template": "{prompt}",
    "score": "nats_per_token",
    "shares": {"test": 0.25, "validation": 0.1, "train": 0.1},
    "rates": {"bitfit": [1e-2, 3e-2, 1e-1], "lora": [3e-3, 1e-2, 3e-2]},
    "lora": {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"},
    "epochs": 1,
    "seeds": 3,
    "worthwhile": 0.1,  # in the unit of the score
    "cheaper": "bitfit",
    "rule": "inside ±worthwhile: cheaper; without 0 and worthwhile: better; else open",
}

# %% [markdown] slideshow={"slide_type": "subslide"}
# The `rule` turns the 95% interval of the difference into a decision. It has three outcomes:
#
# - If the whole interval lies within ±`worthwhile`, we take the cheaper strategy.
# - If the interval excludes zero and the difference is at least `worthwhile`, we take the better strategy.
# - Otherwise the study cannot tell, and the report says so.
#
# A *strategy* is a function that gets the untouched model and returns what is to be trained. For another question, write
# one and add it to the dictionary, with its settings in the plan. The two that `rates` names are compared.

# %%
# YOURS: the strategies, by the names that the plan uses


def bitfit(model):
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    return model


def lora(model):
    return get_peft_model(model, LoraConfig(**plan["lora"]))


strategies = {"full": lambda model: model, "bitfit": bitfit, "lora": lora}
device = "cuda" if torch.cuda.is_available() else "cpu"


def new_model(strategy="full"):
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    return strategies[strategy](model).to(device)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## Your documents
#
# Every task of this course fits into one table. A row has a `prompt`, which the model only reads; an `answer`, which it
# learns; and a `source`, which says where the row comes from, for example a file, an author or a customer. The plan
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
# ## Splits by source
#
# If a source were in two splits, the test would be easier than new material is. So we split the *sources*, here the
# twenty subjects of the notes, and every document follows its source. We shuffle them: the first quarter goes to the
# test, the next tenth to validation, and the next tenth to training.

# %%
names = pd.Series(sorted(set(data.source))).sample(frac=1, random_state=0).tolist()
counts = [round(share * len(names)) for share in plan["shares"].values()]
splits = np.repeat(list(plan["shares"]), counts)  # test, test, …, validation, …
data["split"] = data.source.map(dict(zip(names, splits, strict=False)))
data = data.dropna(subset="split").reset_index(drop=True)

# %% [markdown] slideshow={"slide_type": "subslide"}
# ## Leaks
#
# Even so, two sources may contain the same document. So we compare all *runs* of eight words, as in [lesson
# 11](11_your_data.ipynb). We go through the splits from the test to training. A document that shares a run with an
# earlier split is removed, so that the test remains as it is.


# %%
def runs_of(words, n=8):
    return {tuple(words[i : i + n]) for i in range(max(1, len(words) - n + 1))}


text = data.prompt.where(data.prompt != "", data.answer)
runs = text.str.lower().str.findall(r"\w+").map(runs_of)
leaks, seen = pd.Series(False, data.index), set()
for split in plan["shares"]:
    part = runs[data.split == split]
    leaks[part.index] = ~part.map(seen.isdisjoint)
    seen.update(*part)
data = data[~leaks]
print(f"removed: {leaks.sum()} documents")

# %% [markdown] slideshow={"slide_type": "subslide"}
# If many of your documents go, look at what they share. It may be a standard phrase, such as a letter's closing line;
# then delete the phrase and keep the documents.
#
# A [datasheet](glossary.md#datasheet) says what a reader has to know about the data. The plan already names their
# origin and licence, and whether they are private. The rest can be counted.

# %%
groups = data.groupby("split")
datasheet = groups.agg(documents=("answer", "count"), sources=("source", "nunique"))
datasheet

# %% [markdown] slideshow={"slide_type": "subslide"}
# ## Seal the plan
#
# A report alone cannot show that its plan came before its results. For this we use a *hash*, a short number that is
# computed from a text and changes as soon as one letter of the text does. We put a hash of the data into the plan,
# store the plan in a file, and compute the hash of this file.
#
# As long as only you have the file, it proves nothing, because you could write it anew. So mail the hash to somebody,
# or commit and push the file (with `git add -f`, because this repository ignores `results/`). Then copy the hash into
# `noted`.
#
# The cell writes the file only once, refuses any other plan after that, and goes on only if the hash is the one that
# you noted. To see it work, change a number of the plan and run both cells again.

# %% tags=["check-seal"]
# YOURS: None at first, and the hash of your plan once somebody else has it
noted = "417307162aa7a8f428ed55d001cf99f933c122ec8c981b24885445e19ee37259"

rows = data[["prompt", "answer", "source", "split"]].to_csv(lineterminator="\n")
plan["data_sha256"] = hashlib.sha256(rows.encode()).hexdigest()
record = json.dumps(plan, indent=2).encode()
folder = Path("../results") / project
folder.mkdir(parents=True, exist_ok=True)
sealed = folder / "plan.json"
if not sealed.exists():
    sealed.write_bytes(record)
if sealed.read_bytes() != record:
    raise ValueError(f"{sealed} holds another plan; a new plan needs a new project")
plan_sha256 = hashlib.sha256(record).hexdigest()
if plan_sha256 != noted:
    raise ValueError(f"mail or push {plan_sha256}, and write it into `noted`")
print("plan", plan_sha256[:16])

# %% [markdown] slideshow={"slide_type": "slide"}
# ## From a document to a score
#
# `encoded` turns a document into tokens, with labels of -100 on the prompt, so that only the answer and its end token
# count. An end token also comes first, so that the first token of a plain text is predicted from something. If a model
# has a [chat template](glossary.md#chat-template), `prompt_ids` uses it.
#
# Two functions score one document, and for both lower is better. `nats_per_token` is the loss. `wrong_answer` lets the
# model write, and gives 0 if the text is exactly the right answer and 1 if not.

# %%
tokenizer = AutoTokenizer.from_pretrained(base)
end = tokenizer.eos_token_id


def ids_of(text):
    return tokenizer(text, add_special_tokens=False).input_ids


def prompt_ids(prompt):
    text = plan["template"].replace("{prompt}", prompt)
    if not (prompt and tokenizer.chat_template):
        return [end, *ids_of(text)]
    chat, options = [{"role": "user", "content": text}], {"add_generation_prompt": True}
    return ids_of(tokenizer.apply_chat_template(chat, tokenize=False, **options))


def encoded(document):
    read, learned = prompt_ids(document["prompt"]), [*ids_of(document["answer"]), end]
    row = {"input_ids": read + learned, "labels": [-100] * len(read) + learned}
    return {name: torch.tensor([ids], device=device) for name, ids in row.items()}


def nats_per_token(model, document):
    return model(**encoded(document)).loss.item()


def wrong_answer(model, document):
    prompt = torch.tensor([prompt_ids(document["prompt"])], device=device)
    limit = len(ids_of(document["answer"])) + 1  # a longer answer is wrong anyway
    written = model.generate(input_ids=prompt, max_new_tokens=limit, do_sample=False)
    answer = tokenizer.decode(written[0, prompt.shape[1] :], skip_special_tokens=True)
    return float(answer.strip() != document["answer"].strip())


score = {"nats_per_token": nats_per_token, "wrong_answer": wrong_answer}[plan["score"]]

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The baseline
#
# A strategy that does not beat the untouched model has taught nothing. We measure it on validation text, so that the
# test stays closed. For classes, the bag of words of [lesson 13](13_classification.ipynb) belongs beside it.

# %%
documents = {name: part.to_dict("records") for name, part in groups}


@torch.no_grad()
def scored(model, split):
    return np.array([score(model.eval(), document) for document in documents[split]])


before = pd.Series(scored(new_model(), "validation"))
half = stats.t.ppf(0.975, len(before) - 1) * before.sem()
print(f"untouched: {before.mean():.2f} ± {half:.2f} {plan['score']}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Tune each strategy
#
# The loop is that of [lesson 4](04_full_fine_tuning.ipynb), with one document in each step (for batches, take the
# collator of [lesson 11](11_your_data.ipynb)). The seed decides the first values of the adapters and the order of the
# documents. Each strategy gets the same number of rates, scored on validation text, because a strategy with more trials
# would have more chances to look good. **Which rate will win for each of them?**


# %% tags=["nbval-ignore-output"]
def trained(strategy, rate, seed):
    torch.manual_seed(seed)
    model = new_model(strategy).train()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0)
    train, shuffle = documents["train"], np.random.default_rng(seed).permutation
    order = [n for _ in range(plan["epochs"]) for n in shuffle(len(train))]
    for number in order:
        model(**encoded(train[number])).loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
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
# Both best rates have a worse neighbour on each side, so the grids are wide enough. (With 14 notes and one seed, a
# close neighbour may be as good. LoRA at 0.03 is not: it ends far above the untouched model, because that rate is too
# high.) If one of yours is the lowest or the highest of its grid, extend the grid, and say so in the report.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Which difference could this test show?
#
# The search was also a [pilot run](glossary.md#pilot-run), because it gives the losses of both strategies on the same
# validation notes. If their differences have the standard deviation $s$, then $n$ test documents give an interval of
# about
#
# $$\pm\, t_{n-1} \frac{s}{\sqrt n}$$
#
# This is the part of [lesson 15](15_comparison.ipynb)'s interval that comes from documents. The pilot ran one seed, so
# it says nothing about the part that comes from seeds, and the final interval will be wider. **How many documents does
# it take until the interval is ±0.1 wide?**

# %%
one, other = plan["rates"]
pilot = tried[other, best[other]] - tried[one, best[one]]
for n in (10, 20, 35, 70):
    print(f"{n} documents: ±{stats.t.ppf(0.975, n - 1) * pilot.std() / n**0.5:.2f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# About twenty documents give ±0.1. This test has 35, so it could even show that a difference is too small to matter,
# unless the seeds add much. If yours cannot, there are three honest options: bring more documents and seeds, ask for a
# larger difference in a *new* plan, or go on and accept this limit.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The final runs
#
# Each strategy is trained with its best rate and three seeds, and now the test is opened, once. The interval is that of
# lesson 15, with one error from the differences by document and one from the differences by seed. It takes the documents
# as independent, although those of one source are alike, so it is a little too narrow. For more than two strategies you
# also need a correction for the number of pairs, as `tl.compare_pairs` makes it.


# %% tags=["nbval-ignore-output"]
def interval(losses):
    apart = losses[other] - losses[one]  # rows: documents, columns: seeds
    reach = 0
    for means in (apart.mean(axis=1), apart.mean()):  # by document, by seed
        reach = np.hypot(reach, stats.t.ppf(0.975, len(means) - 1) * means.sem())
    return means.mean(), means.mean() - reach, means.mean() + reach


losses = {}
for strategy, rate in best.items():
    for seed in range(plan["seeds"]):
        losses[strategy, seed] = scored(trained(strategy, rate, seed), "test")
losses = pd.DataFrame(losses).rename_axis(columns=["strategy", "seed"])
means = losses.mean().unstack("strategy")
means["untouched"] = scored(new_model(), "test").mean()
print(means.round(2))
difference, low, high = interval(losses)
print(f"{other} minus {one}: {difference:.2f} ({low:.2f} to {high:.2f})")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Both strategies learned something, because they end near 5.4 and 5.1 nats per token and the untouched model stands at
# 5.8. LoRA is better with each seed, by 0.28 on average, with an interval from 0.19 to 0.36. It is a little wider than
# the pilot announced, because three seeds leave two degrees of freedom and $t = 4.3$.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Decide as planned
#
# The function below is the rule of the plan. The cell also hashes the stored file again and compares it with the hash
# that was noted before the runs; anybody who got your mail can do the same.


# %%
def decide(difference, low, high):
    if -plan["worthwhile"] < low and high < plan["worthwhile"]:
        return f"no difference worth having, take {plan['cheaper']}"
    if abs(difference) >= plan["worthwhile"] and (low > 0 or high < 0):
        return f"take {one if low > 0 else other}"
    return "cannot tell"


again = hashlib.sha256(sealed.read_bytes()).hexdigest()
course.claim(
    "The stored plan has the hash that was noted before the runs", again == noted
)
decision = decide(difference, low, high)
print(decision)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The interval excludes zero, and the difference is more than twice what we called worthwhile, so the rule takes LoRA
# although its file is larger. With an interval from -0.15 to 0.05, it would have been "cannot tell", and the next plan
# would need more seeds and notes.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The report
#
# Every number is filled in from a variable, because a number that was typed by hand is wrong after the next run. Only
# the limits are written by you.

# %% tags=["nbval-ignore-output"]
# YOURS: what was not measured, and what you would not conclude
limits = "One small model, one epoch, five sources; forgetting was not measured."

report = f"""# {plan["question"]}
**Answer: {decision}.** {other} minus {one}: {difference:.2f} ({low:.2f} to {high:.2f})
{plan["score"]} (lower is better), 95% over {len(losses)} documents
and {len(means)} seeds.
Plan: sha256 {plan_sha256}. Rule: {plan["rule"]} ({plan["worthwhile"]}).
Data: {plan["data"]}. Removed as leaks: {leaks.sum()}.

{datasheet.to_markdown()}

{means.round(2).to_markdown()}

Rates, chosen on validation text: {best}. Limits: {limits}
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
# **Exercise 20.1.** Write the function that plans your own study. `pilot` is a list of paired differences, one for each
# document of a pilot run, and `reach` is the half-width that the final interval shall have. Return the smallest number
# $n$ of test documents, from 2 up, for which $t_{n-1}\, s / \sqrt n$ is at most `reach`, where $s$ is the standard
# deviation of the differences in the pilot. (How much the seeds add is not known yet, so leave it out.)

# %%
import numpy as np
from scipy import stats


def documents_needed(pilot, reach):
    """The smallest number of test documents that gives such an interval."""
    # your code here


course.check("ex20_1", documents_needed)

# %% [markdown]
# Previous: [19 · Ship it](19_ship_it.ipynb) ·
# Next: [A1 · Unfreezing schedules](A1_unfreezing_schedules.ipynb)
