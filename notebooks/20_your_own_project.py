# %% [markdown] slideshow={"slide_type": "slide"}
# # 20 · Your own project
#
# *How do you get from your own text and your own question to an answer that others can check?*
#
# Now you bring the text and the question, and you end with a report. This lesson is an empty project in plain code. You
# fill in what is marked with `# YOURS`. So that it runs, these cells hold a small example: notes about cooking, and the
# question whether LoRA or [BitFit](08_peft_family.ipynb), which trains only the biases, adapts the bundled model better
# to them.
#
# **You will be able to**
#
# - seal a plan and its data, so that changing them after the results would be noticed;
# - split by source, remove leaks, and say before the final runs which difference they can show;
# - decide by the plan, where "cannot tell" is a possible answer, and report what you did.
#
# **You need** [lesson 3](03_baseline.ipynb) for splits, [lesson 4](04_full_fine_tuning.ipynb) for the search for a
# learning rate, [lesson 5](05_lora.ipynb) for LoRA, and [lesson 15](15_comparison.ipynb) for the interval of a
# difference.
#
# About 41 minutes.

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
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The plan comes first
#
# Before you measure anything, write down what you want to know and which number will decide. Once you have seen the
# results, it is easy to find a question that fits them.
#
# The entry `worthwhile` needs the most thought. It is the smallest difference that would change what you do. Suppose
# that we keep what is trained for each of many customers. LoRA trains 72 times as many parameters as BitFit, so it
# takes more room. That would be worth it if it lowered the loss by at least 0.1 nats per token, which is about 10% of
# perplexity. The `shares` say which part of the *sources* goes into each split.

# %%
# YOURS: the question, the data, and what will decide
project = "cooking"  # a new plan needs a new name
plan = {
    "question": "Does LoRA or BitFit teach tiny-qwen2 more about cooking?",
    "model": "tiny-qwen2",  # the bundled one; or a folder, or a name on the Hub
    "data": "notes in English, written for this course (CC BY 4.0), not private",
    "template": "{prompt}",
    "score": "nats_per_token",
    # The example uses less than half, to be quick. In your plan they add up to 1.
    "shares": {"test": 0.25, "validation": 0.1, "train": 0.1},
    "rates": {"bitfit": [1e-2, 3e-2, 1e-1], "lora": [3e-3, 1e-2, 3e-2]},
    "lora": {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"},
    "epochs": 1,
    "seeds": 3,
    "worthwhile": 0.1,  # in the unit of the score
    "cheaper": "bitfit",
    "rule": "gain >= worthwhile and interval by source above 0: take the dearer; "
    "interval by source below worthwhile: take the cheaper; otherwise: cannot tell",
}

# %% [markdown] slideshow={"slide_type": "subslide"}
# The *gain* is the cheaper strategy's score minus the dearer one's. Lower scores are better, so a positive gain speaks
# for the dearer one. The `rule` turns the gain and its 95% interval into a decision, with three outcomes:
#
# - If the whole interval is above zero and the gain is at least `worthwhile`, we take the dearer strategy.
# - If the whole interval is below `worthwhile`, we take the cheaper one.
# - Otherwise the study cannot tell, and the report says so.
#
# A *strategy* is a function that gets the untouched model and returns what is to be trained. For another question,
# write one and add it to the dictionary, with its settings in the plan. The two that `rates` names are compared.

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


def new_model(strategy=None):
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    return (strategies[strategy](model) if strategy else model).to(device)


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
# | short answers | the question, and its answer | `Question: {prompt}\nAnswer:\n` | `wrong_answer` |
# | classes | the text, and the name of its class | `{prompt}\nClass:\n` | `wrong_answer` |
#
# Your documents may be a table, for example of tickets with the columns `text`, `team` and `customer`. Then replace the
# four lines of the next cell by these two. (Its last line copies a note into a second source, so that there is a leak.)
# Nothing is cut later, so split texts of more than a page into parts that keep their source.
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
data = pd.concat([data, data[data.source == "stock"][:1].assign(source="potatoes")])

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Splits by source
#
# If a source were in two splits, the test would be easier than new material is. So we split the *sources*, here the
# twenty subjects of the notes, and every document follows its source.

# %%
names = pd.Series(sorted(set(data.source))).sample(frac=1, random_state=0).tolist()
split_of, start = {}, 0
for split, share in plan["shares"].items():
    stop = start + max(2, round(share * len(names)))  # an interval takes two sources
    split_of |= dict.fromkeys(names[start:stop], split)
    start = stop
data["split"] = data.source.map(split_of)
data = data.dropna(subset="split").reset_index(drop=True)  # without unused sources

# %% [markdown] slideshow={"slide_type": "subslide"}
# ## Leaks
#
# Even so, two sources may contain the same document. [Lesson 11](11_your_data.ipynb) counted the n-grams of four words
# that two texts share. Here one shared n-gram of eight words is enough. We go through the splits from the test to
# training, and remove a document that shares one with an earlier split, so that the test remains as it is.


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
# That is the note which we had copied. If a standard phrase makes many of your documents go, delete the phrase and keep
# the documents.
#
# A [datasheet](glossary.md#datasheet) says what a reader has to know about the data. Write into the plan how the
# documents were collected and who allows their use. What they cannot show goes into the report's limits.

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
# A hash that only you hold proves nothing, because you could write another plan. So mail it to somebody, and the
# notebook with it, because the hash does not cover the code of strategies and scores.
#
# With a plan of your own, run the cell twice. The first time it writes the plan into a file, shows its hash and stops.
# Mail the hash, copy it into `noted`, and run the cell again. From then on it refuses any other plan. (To change the
# plan before that, delete its folder.)

# %% tags=["check-seal"]
# YOURS: None at first, and the hash of your plan once somebody else has it
noted = "c02181e064ee66c5172dfa940da233820dd87a1bb95ea9a1748b84a31d71da92"

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
    raise ValueError(f"mail {plan_sha256}, and write it into `noted`")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## From a document to a score
#
# `encoded` turns a document into tokens, with labels of -100 on the prompt, so that only the answer and its end token
# count. An end token also comes first, so that the first token of a plain text is predicted from something. If a model
# has a [chat template](glossary.md#chat-template), `prompt_ids` uses it.
#
# Two functions score one document, and for both lower is better. `nats_per_token` is the document's mean loss, so in
# the final mean short and long documents count alike. `wrong_answer` lets the model write, and gives 0 if it writes
# exactly the right answer and then its end token, and 1 if not.

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
    limit = len(ids_of(document["answer"])) + 1  # the answer and its end token
    written = model.generate(input_ids=prompt, max_new_tokens=limit, do_sample=False)
    answer = tokenizer.decode(written[0, prompt.shape[1] :], skip_special_tokens=True)
    return float(written[0, -1] != end or answer.strip() != document["answer"].strip())


# YOURS: to use another score, write its function above, and add it here
score = {"nats_per_token": nats_per_token, "wrong_answer": wrong_answer}[plan["score"]]

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The baseline
#
# A strategy that does not beat the untouched model has taught nothing. We measure it on validation text, so that the
# test stays closed.

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
# The loop is that of [lesson 15](15_comparison.ipynb) with clipping, and with one document in each step. The seed
# decides the first values of the adapters and the order of the documents. Each strategy gets the same number of rates,
# scored on validation text, because a strategy with more trials would have more chances to look good. **Which rate will
# win for each of them?**


# %% tags=["nbval-ignore-output"]
def trained(strategy, rate, seed):
    torch.manual_seed(seed)
    model = new_model(strategy).train()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0)
    train, shuffle = documents["train"], np.random.default_rng(seed).permutation
    for number in [n for _ in range(plan["epochs"]) for n in shuffle(len(train))]:
        model(**encoded(train[number])).loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model


grid, begin = dict(plan["rates"]), pd.Timestamp.now()
pairs = [(name, rate) for name, rates in grid.items() for rate in rates]
tried = pd.DataFrame({pair: scored(trained(*pair, 0), "validation") for pair in pairs})
print(f"{len(pairs)} runs took {(pd.Timestamp.now() - begin).seconds} s")
best = {name: float(tried[name].mean().idxmin()) for name in grid}
print(tried.mean().round(2).to_string())

# %% [markdown] slideshow={"slide_type": "subslide"}
# At 0.03 LoRA is worse than no training at all, so there BitFit would win, but LoRA at 0.01. Both best rates have a
# worse neighbour on each side, so the grids are wide enough. If one of yours is the lowest or the highest of its grid,
# do not touch the plan. Add the same number of rates for both strategies to `grid` below its first line, for example
# `grid["lora"] = [*grid["lora"], 0.1]`, and run the cell again.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Which difference could this test show?
#
# The search was also a [pilot run](glossary.md#pilot-run), because it gives the losses of both strategies on the same
# validation notes. Let $s$ be the standard deviation of their differences, here a rough one from two sources. The test
# has $k$ sources with $m$ documents each, and its decision rests on one average for each source. If the documents were
# independent, the interval would be
#
# $$\pm\, t_{k-1} \frac{s}{\sqrt{k m}}$$
#
# If those of one source were as alike as copies, it would be $\pm\, t_{k-1}\, s / \sqrt k$, because only the sources
# would count. The truth lies between, and the seeds add a part that a pilot with one seed cannot show. **How many
# sources does it take until even the wider interval is ±0.1?**

# %%
cheap = plan["cheaper"]
(dear,) = set(plan["rates"]) - {cheap}
pilot = tried[cheap, best[cheap]] - tried[dear, best[dear]]
m = datasheet.documents["test"] / datasheet.sources["test"]
for k in (5, 10, 20, 40):
    wide = stats.t.ppf(0.975, k - 1) * pilot.std() / k**0.5
    print(f"{k} sources: between ±{wide / m**0.5:.2f} and ±{wide:.2f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# About twenty sources are enough even then. With our five the interval may be ±0.26. So this test can show a large
# gain, but hardly that the gain is below 0.1. If yours cannot show what you need, bring more sources and seeds, ask for
# a larger difference in a *new* plan, or accept this limit.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The final runs
#
# Each strategy is trained with its best rate and three seeds, and now the test is opened, once. The interval is that of
# lesson 15, with one part from the differences by document and one from those by seed. But the documents of one source
# are alike, so the last row averages those of each source first, and this row decides. **How much wider will its
# interval be?**


# %% tags=["nbval-ignore-output"]
def interval(apart):  # rows: documents or sources, columns: seeds
    parts = {}
    for name, means in (("texts", apart.mean(axis=1)), ("seeds", apart.mean())):
        parts[f"± {name}"] = stats.t.ppf(0.975, len(means) - 1) * means.sem()
    gain, half = means.mean(), sum(part**2 for part in parts.values()) ** 0.5
    return {"gain": gain, "low": gain - half, "high": gain + half} | parts


finals = [(name, seed) for name in best for seed in range(plan["seeds"])]
tests = {(name, n): scored(trained(name, best[name], n), "test") for name, n in finals}
losses = pd.DataFrame(tests).rename_axis(columns=["strategy", "seed"])
untouched = scored(new_model(), "test")
gained = {name: losses[name].rsub(untouched, axis=0) for name in best}
gains = {f"{name} against untouched": interval(gain) for name, gain in gained.items()}
apart = losses[cheap] - losses[dear]
gains[f"{dear} against {cheap}"] = interval(apart)
sources = [document["source"] for document in documents["test"]]
gains["by source (decides)"] = interval(apart.groupby(sources).mean())
means, gains = losses.mean().unstack("strategy"), pd.DataFrame(gains).T
print(f"untouched: {untouched.mean():.2f}\n{means.round(2)}")
gains.round(2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Both strategies learned something: their gains over the untouched model have intervals (by document) far above zero.
# LoRA is better than BitFit with each seed, by 0.28 on average. By document, the interval reaches from 0.19 to 0.36. By
# source, it reaches from 0.13 to 0.42, because only five averages are left, with $t = 2.78$ in place of 2.03, and
# because notes on one subject are alike. That is ±0.14, within the ±0.10 to ±0.26 that the pilot had announced.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Decide as planned
#
# The function below is the rule of the plan. The cell reads the plan from the file again, compares its hash with the
# one that you noted, and decides. Then it trains the winner again and saves it, with seed 0, because to pick the seed
# with the best test score would be to pick luck.


# %%
def decide(gain, low, high):
    if low > 0 and gain >= plan["worthwhile"]:
        return f"take {dear}"
    return f"take {cheap}" if high < plan["worthwhile"] else "cannot tell"


stored = sealed.read_bytes()
again, plan = hashlib.sha256(stored).hexdigest(), json.loads(stored)
gain, low, high = gains.loc["by source (decides)", ["gain", "low", "high"]]
decision = decide(gain, low, high)
course.claim(f"The stored plan is the sealed one. It says: {decision}", again == noted)
winner = decision.removeprefix("take ")
if winner in best:
    trained(winner, best[winner], 0).save_pretrained(folder / winner)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The whole interval is above zero, and the gain is more than twice what we called worthwhile, so the rule takes LoRA.
# The adapter is in `results/cooking/lora`. Load it with `PeftModel.from_pretrained`, merge it, and go on as in [lesson
# 19](19_ship_it.ipynb). (If BitFit wins, the whole model is saved.)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The report
#
# Every number is filled in from a variable, because a number typed by hand is wrong after the next run.

# %% tags=["nbval-ignore-output"]
# YOURS: what was not measured, and what you would not conclude
limits = f"Only {plan['model']}, epochs: {plan['epochs']}; forgetting was not measured."

report = f"""# {plan["question"]}
**Answer: {decision}.** {dear} against {cheap}: {gain:.2f} ({low:.2f} to {high:.2f})
{plan["score"]} gained, 95% over {len(set(sources))} sources and {len(means)} seeds.
Rule: {plan["rule"]} ({plan["worthwhile"]} is worthwhile, {cheap} the cheaper).
Data: {plan["data"]}. Removed as leaks: {leaks.sum()}. Plan: sha256 {again}.

{datasheet.to_markdown()}

{gains.round(2).to_markdown()}

Rates{" (changed after the seal)" * (grid != plan["rates"])}: {grid}.
Best on validation text: {best}. Limits: {limits}
"""
(folder / "report.md").write_text(report, encoding="utf-8")
print(report)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Now your project
#
# Copy this notebook and go through it again with a question of your own, and with 200 documents or more, from as many
# sources as you can get. Make a first pass with the bundled model, but stop before *The final runs*, so that the test
# stays closed. Then write a new plan with a model from the Hub and new rates. A Llama or SmolLM2 has no biases for
# BitFit to train, so compare `lora` (from 1e-4, 3e-4 and 1e-3) with `full` (at a tenth of that) there. Time one run
# first: there are thirteen. Check before you hand in the report:
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
# - [Nosek et al. 2018](https://doi.org/10.1073/pnas.1708274114), The preregistration revolution.

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
# **Exercise 20.1.** Write the function that plans your own study. `pilot` is a list of paired differences, one for each
# *source* of a pilot run, and `reach` is the half-width that the final interval shall have. Return the smallest number
# $n$ of test sources, from 2 up, for which $t_{n-1}\, s / \sqrt n$ is at most `reach`, where $s$ is the standard
# deviation of the differences in the pilot. (How much the seeds add is not known yet, so leave it out.)

# %%
import numpy as np
from scipy import stats


def sources_needed(pilot, reach):
    """The smallest number of test sources that gives such an interval."""
    # your code here


course.check("ex20_1", sources_needed)

# %% [markdown]
# Previous: [19 · Ship it](19_ship_it.ipynb) ·
# Next: [A1 · Unfreezing schedules](A1_unfreezing_schedules.ipynb)
