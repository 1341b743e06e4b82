# %% [markdown] slideshow={"slide_type": "slide"}
# # 19 · Ship it
#
# *How does a tuned model become a service that others can rely on?*
#
# A notebook that answers well is of little use to a colleague. In this lesson you turn an adapter into a folder that
# you keep, serve it over HTTP, and add tests, a log and a card.
#
# **You will be able to**
#
# - save all that a service needs in one folder, serve it, and ask it over HTTP;
# - write a regression test for a deployed model, and say how large a drop it can see;
# - compare two releases in pairs, and see in a log that the questions have changed.
#
# **You need** [lesson 1](01_first_fine_tuning.ipynb), whose task we ship, [lesson 5](05_lora.ipynb) for merging, and
# [lesson 12](12_a_real_task.ipynb) for intervals.
#
# About 38 minutes.

# %% slideshow={"slide_type": "subslide"}
import inspect
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from huggingface_hub import ModelCard, ModelCardData
from openai import OpenAI
from scipy.stats import binom, binomtest, chi2_contingency
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl
from course.lesson19.desk import desk_adapter
from course.lesson19.service import service

tl.setup()
work = Path("desk-service")  # beside this notebook, and yours to keep
work.mkdir(exist_ok=True)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The model that we ship
#
# ![Base model and adapter become a folder; server, tests and your program with its log use it](images/ship.svg)
#
# The job is that of lesson 1: a question comes in, and the model names one of three desks. `desk_adapter` repeats
# lesson 1's training of a LoRA adapter, with 120 questions in 60 steps.
#
# In lesson 1 a function of the notebook added the words `This is a question about` to each question. A caller of the
# service does not have it. So the words go into the [chat template](glossary.md#chat-template), which is saved with the
# tokenizer, and the caller sends nothing but the question. The *response template* works in the other direction: it
# tells the server after which words the answer begins, and which token ends it.

# %%
DESKS = ["Python", "Rust", "other"]
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED, padding_side="left")
words, content = "This is a question about", {"close": tokenizer.eos_token}
tokenizer.chat_template = "{{ messages[-1]['content'] }} " + words
tokenizer.response_template = {"start_anchor": words, "fields": {"content": content}}
adapted, held_out = desk_adapter(tokenizer)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Merge it, and check it
#
# One model is simpler to ship than a base and an adapter, so we [merge](glossary.md#merging) the two. Then we check two
# things: the merged model must give the same [logits](glossary.md#logit) as before, and the model that is loaded from
# the saved folder must have the same weights. **Which of the two should hold exactly, and which only nearly?**

# %%
batch = tokenizer(list(held_out.question[:8]), padding=True, return_tensors="pt")
with torch.no_grad():
    beside = adapted(**batch).logits
    merged = adapted.merge_and_unload(safe_merge=True)  # stops at infinite weights
    apart = (merged(**batch).logits - beside).abs().max().item()
course.claim("The merged model gives the adapter's logits to 1e-3", apart < 1e-3)
merged.save_pretrained(work / "desk")
tokenizer.save_pretrained(work / "desk")
loaded = AutoModelForCausalLM.from_pretrained(work / "desk", dtype=torch.float32)
pairs = list(zip(merged.parameters(), loaded.parameters(), strict=True))
equal = sum(torch.equal(*pair) for pair in pairs)
print(f"{equal} of {len(pairs)} tensors are equal after loading")

# %% [markdown] slideshow={"slide_type": "slide"}
# Merging computes $W + \frac{\alpha}{r} BA$ once, so sums are rounded in another order, and the logits agree only
# nearly. Saving and loading round nothing, so every tensor must be equal.
#
# ## Validate every answer
#
# A model can write anything, but its caller needs one of three names. So `desk_of` looks at each answer, and if it is
# none of the three, it becomes `unknown` and goes to a person.


# %%
def messages(question):
    return [{"role": "user", "content": question}]


def desk_of(text):
    """The desk that an answer names, or "unknown"."""
    word = text.strip()
    return word if word in DESKS else "unknown"


def answers(model, questions):
    texts = tokenizer.apply_chat_template([*map(messages, questions)], tokenize=False)
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    written = model.generate(**batch, max_new_tokens=3, do_sample=False)
    ends = written[:, batch.input_ids.shape[1] :]
    return [desk_of(t) for t in tokenizer.batch_decode(ends, skip_special_tokens=True)]


def rule(questions):  # the two `if`s of lesson 1
    rust = np.where(questions.str.contains("`"), "Rust", "other")
    return np.where(questions.str.contains("Python"), "Python", rust)


named, by_rule = answers(loaded, held_out.question), rule(held_out.question)
right = int((held_out.desk == named).sum())
low, high = binomtest(right, 75).proportion_ci(method="wilson")
score = f"{right} of 75, {right / 75:.0%} (95% Wilson interval {low:.0%} to {high:.0%})"
print(f"model: {score}\nrule:  {(held_out.desk == by_rule).sum()} of 75")

# %% [markdown] slideshow={"slide_type": "slide"}
# The two `if`s cost nothing, can be read, and are nearly as good. Whether the model is worth a service is still open.
#
# ## Serve it, and ask over HTTP
#
# `transformers serve` is a small server that comes with transformers (`pip install "transformers[serving]"`). It speaks
# the protocol of OpenAI's API, as llama.cpp, Ollama and vLLM do too, so one client can talk to all of them. In a
# terminal you start it like this:
#
# ```text
# cd desk-service
# transformers serve --host 127.0.0.1 --port 8000
# ```
#
# 127.0.0.1 is the *loopback* address, which only programs on this machine can reach. A request calls the model by the
# name of its folder, `desk`, so the server has to start in the folder above. `service` starts it there from Python, on
# the CPU and on a free port, and `running.close()` will stop it. **Put a question of your own into `mine`.**


# %%
def ask(client, model, question):
    options = {"model": model, "max_tokens": 3, "temperature": 0}
    chat = client.chat.completions.create(messages=messages(question), **options)
    return chat.choices[0].message.content


os.environ["NO_PROXY"] = "127.0.0.1"  # a proxy cannot reach this machine's loopback
running = ExitStack()
url = running.enter_context(service(work))
client = OpenAI(base_url=url, api_key="none", timeout=60)
mine = "What does `import os` do?"
print(ask(client, "desk", mine), "|", mine)

# %% [markdown] slideshow={"slide_type": "slide"}
# To serve it on another machine, copy `desk-service` there and install torch and `transformers[serving]` in the
# versions that you tested (`pip freeze` lists them). The server does not ask who is calling. So open it to other
# machines (`--host 0.0.0.0`) only behind a proxy with a login.
#
# ## How many questions does a test need?
#
# A [regression test](glossary.md#regression-test) stops a version that does something worse than the last one. A
# deployed model needs two. If only the template, the number format or the server changes, its answers should stay *the
# same*, so one test compares them with the answers at the release. A new model may answer differently. So the other
# test asks $n$ held-out questions and fails if fewer than $k$ answers are right.
#
# Each question is like a coin that shows heads with probability 0.92, so the number of right answers follows a
# *binomial distribution*, and an unchanged model will get fewer than 92% right in many sets of questions. We take the
# largest $k$ that it misses in less than 2.5% of the sets. This is `binom.ppf(0.025, n, 0.92)`, and for 20 questions it
# is 16. **How low must the true accuracy fall before such a test of 20 fails four times out of five?**

# %%
true = np.linspace(0.5, right / 75, 500)  # accuracies that a worse model might have
least = {}
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for n, x, y in ((20, 67, 60), (75, 77.3, 60), (300, 79.3, 90), (1000, 90, 92)):
    least[n] = int(binom.ppf(0.025, n, right / 75))
    fails = binom.cdf(least[n] - 1, n, true)  # how often fewer than k are right
    (line,) = axes.plot(100 * true, 100 * fails)
    axes.text(x, y, f"{least[n]} of {n}", color=line.get_color(), fontsize=9)
axes.axhline(80, color="gray", linestyle=":")
axes.set(xlabel="true accuracy (%)", ylabel="test fails (% of sets)", xlim=(49, 99))
axes.set_title("Twenty questions notice a disaster; a drop of 5 points needs 300")
plt.show()
print(f"a model of 88% misses 266 of 300 in {binom.cdf(265, 300, 0.88):.0%} of sets")

# %% [markdown] slideshow={"slide_type": "subslide"}
# With 20 questions the curve reaches the dotted line only below 70%, and a drop to 80% passes in six of ten sets. The
# chance of noticing a real drop is the test's [power](glossary.md#power), and it grows slowly: to see half the drop,
# you need about four times the questions. A long test has another weakness, because we do not know the 92% exactly. The
# interval contains 88%, and a model that always had 88% fails "266 of 300" more often than not.
#
# So run the short tests at every start of the service, because they see the faults that ruin the answers. Before a new
# model replaces the old one, ask both the same questions and compare them [in pairs](glossary.md#paired-difference).
# Only those questions count that just one of the two gets right. If both are equally good, these are throws of a fair
# coin, and `binomtest` says how often it falls at least so unequally (the *p-value*). **Take the two `if`s for the old
# release and the model for the new one. Is the new one better?**


# %%
def in_pairs(old, new, desks):
    """How often only the old, only the new one is right, and the p-value."""
    lost = int(((old == desks) & (new != desks)).sum())
    won = int(((new == desks) & (old != desks)).sum())
    return lost, won, binomtest(won, max(1, lost + won)).pvalue


found = in_pairs(by_rule, np.array(named), held_out.desk)
print("only the rule {}, only the model {}, p-value {:.2f}".format(*found))

# %% [markdown] slideshow={"slide_type": "slide"}
# Seven fair coins fall at least so unequally in 45% of the cases, so these 75 questions cannot say which is better.
#
# ## The tests, and a broken release
#
# pytest runs each function whose name begins with `test`, and passes it what the *fixture* `served` returns. The cell
# writes three files: `test_desk.py`, which it prints, `asking.py` with three functions of this notebook, and
# `release.json` with 20 questions, their desks and our answers. Two environment variables, `DESK_URL` and `DESK_MODEL`,
# say whom to ask. With these files, pytest and `openai` you can test the service from any machine that reaches it.
#
# We draw seven questions from each desk and leave the last one out. Of 20 drawn from all 75, one desk might get very
# few, and a model that fails on this desk would pass.

# %%
release = held_out.assign(answer=named).groupby("desk").sample(7, random_state=0)[:20]
release[["question", "desk", "answer"]].to_json(work / "release.json", orient="records")
functions = "\n".join(map(inspect.getsource, (messages, desk_of, ask)))
constants = f"DESKS, LEAST = {DESKS}, {least[20]}\n\n"
_ = (work / "asking.py").write_text(constants + functions, encoding="utf-8")
tests = (Path(course.__file__).parent / "lesson19/desk_tests.py").read_text("utf-8")
_ = (work / "test_desk.py").write_text(tests, encoding="utf-8")
print(tests[tests.index("@pytest") :])

# %% [markdown] slideshow={"slide_type": "subslide"}
# Then we make a broken release. Its folder `desk-2` has the same weights, but its template has *one space more* at the
# end. The running server finds this folder, too. **Will one space cost a few answers, or most of them?**

# %%
loaded.save_pretrained(work / "desk-2")
edited = AutoTokenizer.from_pretrained(work / "desk")
edited.chat_template += " "
edited.save_pretrained(work / "desk-2")
command = [sys.executable, "-m", "pytest", "-q", "--color=no", "test_desk.py"]
for name in ("desk", "desk-2"):
    env = os.environ | {"DESK_URL": url, "DESK_MODEL": name}
    run = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True)
    print(f"{name}: {run.stdout.splitlines()[-1].split(' in ')[0]}")
broken = pd.Series([ask(client, "desk-2", question) for question in release.question])
print("texts of desk-2:", broken.value_counts().to_dict())

# %% [markdown] slideshow={"slide_type": "slide"}
# Both tests stop the second release, because all its 20 texts are empty. In training, the answer began with a token
# that contains a space, such as ` Python`. Now the space at the end of the prompt is a token of its own, which the
# model never saw there, and it ends the text at once. No error is raised and the weights are perfect. Without a test of
# the service you would notice it only after the release, when the answers become `unknown`.
#
# ## See when the questions change
#
# After the release nobody tells you the right answers, but your program can keep a log, one line of JSON for each
# request. (Questions can contain personal data, so decide who may read it.) In the week of the release we send the 75
# held-out questions. In the next week the same questions come through a new web form, which strips all backticks.
# **Which answers will change?**


# %%
def logged(question):
    began = time.perf_counter()
    text = ask(client, "desk", question)
    ms = 1000 * (time.perf_counter() - began)
    entry = {"time": time.time(), "model": "desk", "question": question, "text": text}
    return entry | {"desk": desk_of(text), "ms": ms}


stripped = held_out.question.str.replace("`", "")
logs = {}
for week, questions in (("release", held_out.question), ("new form", stripped)):
    logs[week] = pd.DataFrame([logged(question) for question in questions])
    logs[week].to_json(work / f"log-{week}.jsonl", orient="records", lines=True)
running.close()  # the server stops
same = logs["release"].desk.tolist() == named
course.claim("Over HTTP it names the same 75 desks as in memory", same)

# %% [markdown] slideshow={"slide_type": "subslide"}
# If the questions change, which is called [drift](glossary.md#drift), the *shares of the answers* often change, too.
# `chi2_contingency` compares a week's counts with those of the release. Its p-value says how often weeks with the same
# shares differ at least this much by chance. We raise an alarm below 0.01, so on average one in about 100 weeks is a
# false alarm. This alarm has a power, too. So we draw 1,000 pairs of weeks with $n$ requests each from the shares of
# our two weeks. **Are 75 requests a week enough?**

# %%
weeks = {week: log.desk.value_counts() for week, log in logs.items()}
counts = pd.DataFrame(weeks).fillna(0).astype(int)  # empty would make the p-value NaN
print(f"{counts.to_string()}\np-value: {chi2_contingency(counts).pvalue:.2f}\n")
generator = np.random.default_rng(0)
for n in (75, 250, 380):
    alarms = 0
    for _ in range(1000):
        drawn = [generator.multinomial(n, counts[week] / 75) for week in counts]
        alarms += chi2_contingency(drawn).pvalue < 0.01
    print(f"{n} requests a week: the alarm rings in {alarms / 1000:.0%} of the draws")

# %% [markdown] slideshow={"slide_type": "subslide"}
# With 75 requests a week the alarm would rarely ring, with 380 in four of five weeks. A smaller shift than ours needs
# even more. So a small service compares months. An alarm says that something has changed, and not yet that the model is
# wrong. So label some of the logged questions by hand. Here we know the labels. **Which loses more, the model or the
# `if`s?**

# %%
for week, log in logs.items():
    by_model, by_rule = log.desk.to_numpy(), rule(log.question)
    hits = [int((desks == held_out.desk).sum()) for desks in (by_model, by_rule)]
    found = in_pairs(by_rule, by_model, held_out.desk)
    alone = "only the rule {}, only the model {}, p-value {:.2g}".format(*found)
    print(f"{week}: model {hits[0]}, rule {hits[1]} of 75 right; {alone}")

# %% [markdown] slideshow={"slide_type": "slide"}
# With the new form ten more questions go to the wrong desk, and no answer is `unknown`. Six answers fewer are Rust,
# four fewer Python, and ten more *other*, as if backticks were the model's sign of code. The `if`s lose 23, because a
# backtick is all that they know of Rust. Now 16 questions are right by the model alone, and none by the `if`s alone. So
# we ship the model not for its 69 against 66, but because it suffers less from such a change.
#
# ## Other servers
#
# Without Python, people use llama.cpp or Ollama, which need the model as one [GGUF](glossary.md#gguf) file. For many
# users on a GPU there is [vLLM](https://docs.vllm.ai/en/latest/features/lora.html), where each request picks an
# adapter. We take the SmolLM2 that lesson 12 tunes live. (What follows the conversion was not run here as printed.)
#
# ```text
# # in a new cell at the end of lesson 12
# trainer.save_model("adapter")
# trainer.model.merge_and_unload().save_pretrained("tickets")
# tokenizer.save_pretrained("tickets")
#
# # llama.cpp: the script is in its repository, the programs are on its release page
# pip install sentencepiece
# python llama.cpp/convert_hf_to_gguf.py tickets --outfile tickets.gguf --outtype f16
# llama-quantize tickets.gguf tickets-q4.gguf Q4_K_M  # 4 bits: test it first
# llama-server -m tickets.gguf --host 127.0.0.1 --port 8080
#
# # Ollama: a file named Modelfile with these three lines, and then a command
# FROM ./tickets.gguf
# SYSTEM Bug report to JSON.
# PARAMETER temperature 0
# ollama create tickets -f Modelfile && ollama run tickets "tokio 1.40 hangs on Windows 11"
#
# # vLLM: the folder of the base model (`path` in lesson 12), and adapters by name
# vllm serve FOLDER --host 127.0.0.1 --enable-lora --lora-modules tickets=adapter
# ```
#
# The system message is part of what you ship, because without it SmolLM2's template adds a different one. In Ollama the
# line `SYSTEM` adds it; with the others each request has to contain it. We recorded what llama.cpp answers to 24
# validation reports. **Does a missing system message change more answers, or 4 bits?**

# %%
trial = pd.read_csv(tl.DATA / "tickets/runs/gguf.csv", keep_default_na=False)
for way in ("f16", "f16, no system message", "Q4_K_M"):
    kept = (trial[way] == trial.transformers).sum()
    print(f"{way}: {kept} of 24 answers are those of transformers")

# %% [markdown] slideshow={"slide_type": "slide"}
# The conversion itself changes nothing, but 4 bits and the missing message change most answers. `Q4_K_M` shrinks 271 MB
# to 105, but 33 of 96 fields are right instead of 41. In pairs 24 reports show this drop: eight fields are lost
# and none is won (p-value 0.008). So test after each conversion. (Lesson 12's rule gets 62, so this model is for
# practice.)
#
# ## The model card
#
# A [model card](glossary.md#model-card) tells people who were not there what the model is for, what it was trained and
# tested on, and where it fails. It is the folder's `README.md`, and its head is for the search of the Hugging Face hub.
# Before you publish a model, add a `license` that those of base model and data allow. Our questions are under CC BY
# 4.0, so name their source. Our base model states no license.

# %%
text = f"""---
{ModelCardData(model_name="desk", base_model="tiny-qwen2", language="en").to_yaml()}
---
- **For:** sorting English questions to the desks {", ".join(DESKS)}.
- **Not for:** other languages, or answers that nobody can correct.
- **Data and method:** 120 questions of a course (CC BY 4.0), LoRA, 60 steps, merged.
- **Tested:** on held-out questions, right are {score}.
  A rule (the word Python, else a backtick for Rust) gets 66.
- **Weak:** without backticks around code {hits[0]} of 75 are right (rule: {hits[1]}).
- **License:** none yet, so do not pass it on.
"""
ModelCard(text).save(work / "desk" / "README.md")
print(ModelCard.load(work / "desk" / "README.md").content)
for folder in (work, work / "desk"):
    print(f"{folder.as_posix()}:", *sorted(p.name for p in folder.glob("[!._]*")))

# %% [markdown] slideshow={"slide_type": "slide"}
# This is what you keep: the folder `desk` to serve, and `test_desk.py`, `asking.py` and `release.json` to test it.
#
# ## Key ideas
#
# - Ship one folder with merged weights, tokenizer, templates and card, and check it after merging and after loading.
# - Test the served model, because a fault in the template leaves the weights intact. Twenty questions notice only a
#   drop of over 20 points, so compare two releases in pairs, on the same questions.
# - Validate every answer and log it. The shares of the answers need no answer key, but a few hundred requests.
#
# ## Further reading
#
# - Mitchell et al. 2019, [Model Cards for Model Reporting](https://arxiv.org/abs/1810.03993)
# - Breck et al. 2017, [The ML Test Score](https://research.google/pubs/pub46555/): 28 tests for models in production

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex19_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** A regression test asks 20 questions and needs 16 right answers. The old release had 18 right, and the new
# one has 16, so the test passes. What do you know?
#
# - **a** The new release is worse: its accuracy is 10 points lower.
# - **b** The new release is as good as the old one.
# - **c** The answers are not ruined. A drop of 10 points, or even of 20, may be there.
# - **d** The threshold is too low. It should be 18, the result of the old release.

# %%
course.quiz("quiz19")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 19.1.** Write the last gate before a release goes out. `old` and `new` are lists with the answers of the
# running and the new release to the same questions, and `desks` is a list of the right ones. Return a list of the
# reasons to stop, which is empty if the release may go out:
#
# - `"unknown"`, if the new release gives this answer more often than the old one;
# - then, in the order of `sorted`, the desks at which it has clearly lost. Among a desk's questions, count those that
#   only the old release gets right, and those that only the new one does. The new one has lost if fair coins give the
#   old one so many or more with a probability (`binomtest` with `alternative="greater"`) below 0.05, divided by the
#   number of desks, because each is one more chance to err.

# %%
from scipy.stats import binomtest


def reasons_to_stop(old, new, desks):
    """Why the new release must not go out; an empty list if it may."""
    # your code here


course.check("ex19_1", reasons_to_stop)

# %% [markdown]
# Previous: [18 · Scaling out](18_scaling_out.ipynb) ·
# Next: [20 · Your own project](20_your_own_project.ipynb)
