# %% [markdown] slideshow={"slide_type": "slide"}
# # 20 · Your own project
#
# *How do you get from your own text and your own question to an answer that others can check?*
#
# Now you bring the text and the question, and end with a report and a trained model. This lesson is a project in plain
# code: replace what is marked with `# YOURS`. Its example asks whether LoRA or [BitFit](08_peft_family.ipynb), which
# trains only biases, adapts the bundled model better to notes about cooking.
#
# **You will be able to**
#
# - seal a plan and its data, so that a run with any other plan or data stops;
# - split by source, remove leaks, and say before the final runs which difference they can show;
# - decide by the plan, where "cannot tell" is possible, report what you did, and load the winner.
#
# **You need** [lesson 3](03_baseline.ipynb) for splits, [lesson 4](04_full_fine_tuning.ipynb) for choosing a rate,
# [lesson 5](05_lora.ipynb) for LoRA, and [lesson 15](15_comparison.ipynb) for intervals.
#
# About 38 minutes.

# %% slideshow={"slide_type": "subslide"}
import hashlib
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from peft import LoraConfig, get_peft_model
from scipy import stats
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl

tl.setup()
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The plan comes first
#
# Before you measure anything, write down what you want to know and which number will decide. Once you have seen the
# results, it is easy to find a question that fits them. (We had seen ours, so this plan is an example.)
#
# `worthwhile` needs the most thought, because it is the smallest difference that would change what you do. Suppose that
# we store the trained parameters for each of many customers. LoRA has 72 times as many as BitFit. We would accept that
# if it lowered the loss by at least 0.1 nats per token, about 10% of perplexity.
#
# `shares` says which part of the *sources*, such as files or authors, goes into each split.

# %%
# YOURS: the question, the data, and what will decide
project = "cooking"  # a new plan needs a new name
plan = {
    "question": "Does LoRA or BitFit teach tiny-qwen2 more about cooking?",
    "model": "tiny-qwen2",  # the bundled one; or a folder, or a name on the Hub
    "data": "notes in English, written for this course (CC BY 4.0), not private",
    "template": "{prompt}",
    "score": "nats_per_token",
    "shares": {"test": 0.25, "validation": 0.2, "train": 0.15},  # yours add up to 1
    "rates": {"bitfit": [1e-2, 3e-2, 1e-1], "lora": [3e-3, 1e-2, 3e-2]},
    "lora": {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"},
    "epochs": 1,
    "seeds": 3,
    "worthwhile": 0.1,  # in the unit of the score
    "cheaper": "bitfit",
    "rule": "95% interval above 0 and gain >= worthwhile: take the dearer; interval "
    "below worthwhile: the cheaper; else cannot tell; neither if level with untouched",
}

# %% [markdown] slideshow={"slide_type": "subslide"}
# The *gain* is the cheaper strategy's score minus the dearer one's. Lower scores are better, so a positive gain speaks
# for the dearer one. The `rule` turns the gain and its 95% interval into a decision. At 0.01 to 0.19 it takes the
# dearer, perhaps for too little:
#
# ![Four intervals of the gain and their decisions: dearer, cheaper, cannot tell](images/rule.svg)
#
# A *strategy* is a function that gets the untouched model and returns the model to be trained. For another question,
# add one to `strategies`, with its settings in the plan. The two named in `rates` are compared.

# %%
# YOURS: the strategies, by the names that the plan uses


def bitfit(model):
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    return model


def lora(model):
    return get_peft_model(model, LoraConfig(**plan["lora"]))


strategies = {"full": lambda model: model, "bitfit": bitfit, "lora": lora}
base = tl.BUNDLED if plan["model"] == "tiny-qwen2" else plan["model"]


def new_model(strategy=None, path=base):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    return (strategies[strategy](model) if strategy else model).to(device)


# %% [markdown] slideshow={"slide_type": "slide"}
# ## Your documents
#
# Every task of this course except preferences fits into one table. A row has a `prompt`, which the model only reads; an
# `answer`, which it learns; and a `source`. The plan needs a template that fits the task, and for classes their names,
# as `classes`:
#
# | task | prompt and answer | `template` |
# | --- | --- | --- |
# | texts | nothing, and the text | `{prompt}` |
# | short answers | the question, and its answer | `Question: {prompt}\nAnswer:\n` |
# | classes | the text, and the name of its class | `{prompt}\nClass:\n` |
#
# The bundled model was built for 256 tokens, or about 140 words, and the code cuts nothing. So split longer documents
# into parts that keep their source. For tickets with the columns `text`, `team` and `customer`, the next cell becomes:
#
# ```python
# table = pd.read_csv("tickets.csv", usecols=["text", "team", "customer"], dtype=str).dropna()
# data = pd.DataFrame({"prompt": table.text, "answer": table.team, "source": table.customer})
# ```

# %%
# YOURS: a table with prompt, answer and source (our last line plants a leak)
files = sorted((tl.DATA / "kitchen").glob("*.jsonl"))
notes = pd.concat([pd.read_json(file, lines=True) for file in files]).sort_values("id")
notes = notes.groupby("topic").head(5)  # five of seven on each subject, to be quick
data = pd.DataFrame({"prompt": "", "answer": notes.text, "source": notes.topic})
data = pd.concat([data, data[data.source == "stock"][:1].assign(source="potatoes")])

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Splits by source
#
# Documents of one source resemble each other. If a source were in two splits, the test would be easier than new
# material is. So we split the *sources*, here the twenty subjects of the notes, and every document follows its source.

# %%
names = pd.Series(sorted(set(data.source))).sample(frac=1, random_state=0)
borders = np.cumsum([0, *plan["shares"].values()]) * len(names)
parts = pd.cut(range(len(names)), borders, right=False, labels=list(plan["shares"]))
data["split"] = data.source.map(dict(zip(names, parts, strict=True)))
data = data.dropna(subset="split").reset_index(drop=True)  # without unused sources

# %% [markdown] slideshow={"slide_type": "subslide"}
# ## Leaks
#
# Two sources may contain the same document. As in [lesson 3](03_baseline.ipynb), we remove a document that shares an
# n-gram, here of eight words, with an earlier split. The test comes first, so it stays as it is.


# %%
def ngrams_of(words, n=8):
    return {tuple(words[i : i + n]) for i in range(max(1, len(words) - n + 1))}


text = data.prompt.where(data.prompt != "", data.answer)
ngrams = text.str.lower().str.findall(r"\w+").map(ngrams_of)
leaks, seen = pd.Series(False, data.index), set()
for split in plan["shares"]:
    part = ngrams[data.split == split]
    leaks[part.index] = ~part.map(seen.isdisjoint)
    seen.update(*part)
data = data[~leaks]
print(f"removed: {leaks.sum()} documents")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Now count the rest for the [datasheet](glossary.md#datasheet).

# %%
datasheet = data.groupby("split").source.agg(documents="count", sources="nunique")
datasheet

# %% [markdown] slideshow={"slide_type": "subslide"}
# ## Seal the plan
#
# A report alone cannot show that its plan came before its results. So we compute a *hash* of the plan and the split
# documents: 64 characters, which change as soon as one letter does. A hash that only you hold proves nothing, so mail
# it to somebody. Send the notebook, too, because the hash does not cover the code.
#
# With a plan of your own, run the cell first with `noted = None`, so that it shows the hash and stops. Mail the hash,
# copy it into `noted`, and run the cell again. From then on every training run calls `check_seal`. To see it stop, run
# `plan["epochs"] = 2` and `check_seal()` in a new cell, and then set the epochs back to 1.

# %%
# YOURS: None at first, and the hash of your plan once somebody else has it
noted = "3968756c43319f0f19f66672411e158f905525929350e97d663969b19284cd3d"
documents = {name: part.to_dict("records") for name, part in data.groupby("split")}


def check_seal():
    record = json.dumps(plan | {"documents": documents}, indent=2).encode()
    current = hashlib.sha256(record).hexdigest()
    if current != noted:
        raise ValueError(f"`noted` is {noted}, but plan and data now have {current}")
    return record


folder = Path("../results") / project
folder.mkdir(parents=True, exist_ok=True)
print("sealed:", (folder / "plan.json").write_bytes(check_seal()), "bytes in plan.json")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## From a document to a score
#
# `encoded` turns a document into tokens, with labels of -100 on the prompt, so that only the answer and its end token
# count. An end token also comes first, so that the first token of a plain text is predicted from something.
#
# `nats_per_token` scores a document by its mean loss, so short and long documents count alike. `wrong_class` is for
# classes, whose names the plan then lists as `classes`. It tries each name as the answer and takes the one with the
# lowest summed loss, because a mean would favour long names. The score is 1 if that is wrong.

# %%
tokenizer = AutoTokenizer.from_pretrained(base)
end = tokenizer.eos_token_id


def ids_of(text):
    return tokenizer(text, add_special_tokens=False).input_ids


# YOURS: for a chat model, apply its chat template here
def prompt_ids(prompt):
    return [end, *ids_of(plan["template"].replace("{prompt}", prompt))]


def encoded(document):
    read, learned = prompt_ids(document["prompt"]), [*ids_of(document["answer"]), end]
    row = {"input_ids": read + learned, "labels": [-100] * len(read) + learned}
    return {name: torch.tensor([ids], device=device) for name, ids in row.items()}


# YOURS: the scores, by the names that the plan uses; lower is better
def nats_per_token(model, document):
    return model(**encoded(document)).loss.item()


def wrong_class(model, document):
    rows = {name: encoded(document | {"answer": name}) for name in plan["classes"]}
    nats = {n: model(**x).loss * (x["labels"] >= 0).sum() for n, x in rows.items()}
    return float(min(nats, key=nats.get) != document["answer"])


measures = {"nats_per_token": nats_per_token, "wrong_class": wrong_class}


# %% [markdown] slideshow={"slide_type": "slide"}
# ## The baseline
#
# A strategy that does not beat the untouched model has taught nothing, so we score this model first. The test stays
# closed until the final runs, so we measure on validation text. `scored` returns a mean for each source.


# %%
@torch.no_grad()
def scored(model, split):
    model.eval()
    values = [measures[plan["score"]](model, row) for row in documents[split]]
    return pd.Series(values).groupby([row["source"] for row in documents[split]]).mean()


print(f"untouched: {scored(new_model(), 'validation').mean():.2f} {plan['score']}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Tune each strategy
#
# The loop is that of [lesson 15](15_comparison.ipynb), with gradient clipping and one document in each step. Both
# strategies get the same number of rates, because a strategy with more trials has more chances to look good. **Which
# rate will win for each of them?**


# %% tags=["nbval-ignore-output"]
def trained(strategy, rate, seed):
    check_seal()
    torch.manual_seed(seed)
    model = new_model(strategy).train()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0, fused=True)
    train, generator = documents["train"], np.random.default_rng(seed)
    for _ in range(plan["epochs"]):
        for number in generator.permutation(len(train)):
            model(**encoded(train[number])).loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            optimizer.zero_grad()
    model.save_pretrained(folder / strategy)  # replaces that of the run before
    return model


pairs = [(name, rate) for name, rates in plan["rates"].items() for rate in rates]
tried = pd.DataFrame({pair: scored(trained(*pair, 0), "validation") for pair in pairs})
best = {name: float(tried[name].mean().idxmin()) for name in plan["rates"]}
print(tried.mean().round(2).to_string())

# %% [markdown] slideshow={"slide_type": "subslide"}
# BitFit does best with 0.03 and LoRA with 0.01. Give each strategy its own rate, because a common rate would decide the
# comparison: at 0.01 LoRA is better (4.87 against 5.32), but at 0.03 it is worse than no training, and BitFit wins
# (5.27 against 7.91).
#
# Both best rates have a worse neighbour on each side, so the grids are wide enough. If one of yours lies at the border,
# seal a new plan with one more rate for each strategy.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Which difference could this test show?
#
# With few sources the interval may be too wide for a decision. The search was also a [pilot
# run](glossary.md#pilot-run), which tells us beforehand: it gave the losses of both strategies on the same four
# validation sources. Let $s$ be the standard deviation of their differences, and $k$ the number of test sources. Then
# the interval will be about $\pm\, t_{k-1}\, s / \sqrt k$. **How many sources does it take until this is ±0.1, our
# `worthwhile`?**

# %%
cheap = plan["cheaper"]
dear = next(name for name in plan["rates"] if name != cheap)
pilot = tried[cheap, best[cheap]] - tried[dear, best[dear]]
for k in (3, 4, 5, 6, 10):
    print(f"{k} sources: ±{stats.t.ppf(0.975, k - 1) * pilot.std() / k**0.5:.2f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Six, so 24 sources in all if a quarter is for the test. But $s$ comes from only four sources, and the true one may be
# 0.57 to 3.7 times ours (95%). So four test sources may be enough, or nearly fifty needed.
#
# Our five give about ±0.11. The interval of a measured gain of 0.2 would then lie above zero. But we take BitFit only
# if the whole interval lies below 0.1, and for that LoRA would have to measure worse than BitFit. If your test cannot
# show enough, write a *new* plan while it is closed.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The final runs
#
# Each strategy is trained with its best rate and three new seeds, because seed 0 chose the rates. Then the test is
# opened, once, and the report counts how often. The interval is that of lesson 15, in which squares add, with sources
# in place of documents. **Will the sources or the seeds make the larger part of it?**


# %% tags=["nbval-ignore-output"]
def interval(gains):  # rows: sources, columns: seeds
    gain, by_source, by_seed = gains.mean().mean(), gains.mean(axis=1), gains.mean()
    parts = [stats.t.ppf(0.975, len(x) - 1) * x.sem() for x in (by_source, by_seed)]
    return gain, gain - np.hypot(*parts), gain + np.hypot(*parts), *parts


with (folder / "opened.txt").open("a") as file:
    print(pd.Timestamp.now(), noted, file=file)
scores, untouched = {}, scored(new_model(), "test")
for seed in range(1, plan["seeds"] + 1):
    for name in best:
        scores[name, seed] = scored(trained(name, best[name], seed), "test")
scores = pd.DataFrame(scores).rename_axis(columns=["strategy", "seed"])
gains = (scores[cheap] - scores[dear]).sort_values(1)  # for the chart
gain, low, high, from_sources, from_seeds = interval(gains)
means = scores.mean().unstack("strategy").assign(untouched=untouched.mean())
print(means.round(2))
print(f"gain of {dear}: {gain:.2f}, 95% interval {low:.2f} to {high:.2f}")
print(f"± {from_sources:.2f} from the sources, ± {from_seeds:.2f} from the seeds")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The sources give ±0.12, close to the pilot's ±0.11. So more sources would narrow the interval, but more seeds hardly
# would.

# %%
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.plot(gains, gains.index, "o", color="C0")
axes.errorbar(gain, "mean", xerr=high - gain, fmt="o", color="C1", capsize=4)
axes.axvspan(0, plan["worthwhile"], color="0.9")
axes.set_title(f"{dear} gains {gain:.2f} on average ({low:.2f} to {high:.2f})")
axes.set(xlabel=f"{plan['score']} gained (grey: too little)", ylabel="source")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# LoRA is better for each source with each seed (a dot). Both strategies learned: perplexity fell from 353 to 230 with
# BitFit and to 173 with LoRA. (173 is far from usable text: the comparison only says which method deserves more notes.)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Decide as planned
#
# `decide` is the rule of the plan, and its None means "cannot tell". If the interval of the winner's gain over the
# untouched model is not above 0, the decision is "neither".


# %%
def decide(gain, low, high, over):
    winner = cheap if high < plan["worthwhile"] else None
    if low > 0 and gain >= plan["worthwhile"]:
        winner = dear
    return "neither" if winner and over[winner] <= 0 else winner


check_seal()
over = {name: interval(scores[name].rsub(untouched, axis=0))[1] for name in best}
winner = decide(gain, low, high, over)
decision = f"take {winner}" if winner else "cannot tell"
print(f"Sealed plan: {decision} ({dear} over untouched: {over[dear]:.2f} or more)")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Every training run saved its model, so `results/cooking/lora` now holds the adapter of the last seed, which needs the
# base model, too. **Does the loaded model score as the tested one did?**

# %%
if winner in best:
    tokenizer.save_pretrained(folder / winner)
    saved = new_model(path=folder / winner)
    again, last = scored(saved, "test").mean(), means[winner].iloc[-1]
    course.claim("The saved model is the tested one", abs(again - last) < 0.01)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The report
#
# Every number comes from a variable, because one typed by hand is wrong after the next run.

# %% tags=["nbval-ignore-output"]
# YOURS: what was not measured, and what you would not conclude
limits = f"only {plan['model']}, {len(gains)} sources, one style; forgetting untested"

report = f"""# {plan["question"]}
**Answer: {decision}.** {dear} against {cheap}: {gain:.2f} ({low:.2f} to {high:.2f})
{plan["score"]} gained, 95% over {len(gains)} sources and {plan["seeds"]} seeds.
Rule: {plan["rule"]} ({plan["worthwhile"]} is worthwhile, {cheap} the cheaper).
Data: {plan["data"]}. Removed as leaks: {leaks.sum()}. Plan: sha256 {noted}.
Openings of the test: {(folder / "opened.txt").read_text().count(chr(10))}.

{datasheet.to_markdown()}

{means.round(2).to_markdown()}

Rates tried: {plan["rates"]}. Best on validation text: {best}.
Limits: {limits}
"""
(folder / "report.md").write_text(report, encoding="utf-8")
print(report)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Now your project
#
# 1. Copy this notebook, and take your own question and at least 200 documents from two dozen sources.
# 2. Make a first pass with the bundled model, but stop before *The final runs*, so that the test stays closed.
# 3. Write a new plan with a model from the Hub. A Llama or SmolLM2 has no biases for BitFit, so compare `lora` at 3e-4,
#    1e-3 and 3e-3 with `full` at a tenth of these rates, and call `lora` the cheaper.
# 4. Time one run, because the search and the final runs train twelve models.
# 5. For the final runs choose *Restart Kernel and Run All Cells*, because old cells leave traces.
#
# Then check:
#
# - [ ] The question names the model, the material, two strategies and a simple baseline, such as the largest class
#   (which you have to add).
# - [ ] I can say why `worthwhile` has this value, and what I will do for each outcome of the rule.
# - [ ] The plan names the origin of the data, the permission to use them, and any private information.
# - [ ] Somebody else had the hash before the first run.
# - [ ] No best rate lies at a border, and the test was opened once.

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
# - [Nosek et al. 2018](https://doi.org/10.1073/pnas.1708274114), The preregistration revolution.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex20_1", 1)`. After
# *Restart Kernel* run the next cell first.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** Your plan calls `lora` the cheaper, and 5% worthwhile. The gain of `full` has an interval from -3% to +9%.
# What do you write?
#
# - **a** There is no difference between the two.
# - **b** `full` is better by 3%, the middle of the interval.
# - **c** This study cannot tell; `full` may be better by up to 9% or worse by up to 3%.
# - **d** Nothing yet: I check which documents are hard for `full` and leave them out.

# %%
course.quiz("quiz20")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 20.1.** Write the end of any such study. `gains` are those of `dear` over `cheap`, one for each test
# source. Return the winner by the rule (`dear`, `cheap` or None), and a sentence that names it or says "cannot tell".
# It gives the gain and both ends of its 95% interval $\pm\, t_{n-1}\, s / \sqrt n$, with two decimals. Without a
# winner, it also says how many sources would have decided, had the gain and $s$ been the same.

# %%
import numpy as np
from scipy import stats


def conclusion(gains, worthwhile, cheap, dear):
    """The winner or None, and a sentence for the report."""
    # your code here


course.check("ex20_1", conclusion)

# %% [markdown]
# Previous: [19 · Ship it](19_ship_it.ipynb) ·
# Next: [A1 · Unfreezing schedules](A1_unfreezing_schedules.ipynb)
