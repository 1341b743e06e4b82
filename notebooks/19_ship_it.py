# %% [markdown] slideshow={"slide_type": "slide"}
# # 19 · Ship it
#
# *How does a tuned model become a service that others can rely on?*
#
# A notebook that answers well is of little use to a colleague. In this lesson you turn an adapter into a folder that
# any program can load, serve it over HTTP, and protect it by tests, a log and a card.
#
# **You will be able to**
#
# - merge an adapter, check the result, and serve it on your own machine;
# - write a regression test for a deployed model, and say how large a drop it can see;
# - choose a number format, keep a log, and say how many requests show a change in it.
#
# **You need** [lesson 1](01_first_fine_tuning.ipynb), whose task we ship, [lesson 5](05_lora.ipynb) for merging, and
# [lesson 6](06_qlora.ipynb) for 4-bit weights.
#
# About 38 minutes.

# %% slideshow={"slide_type": "subslide"}
import inspect
import json
import os
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from huggingface_hub import ModelCard, ModelCardData
from openai import OpenAI
from scipy.stats import binom, binomtest, chi2_contingency
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

import course
import tlkit as tl
from course.lesson19.desk import desk_adapter
from course.lesson19.service import service

tl.setup()
work = Path(mkdtemp())  # everything that we ship is written here

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The model that we ship
#
# The job is that of lesson 1: a question comes in, and the model names one of three desks. `desk_adapter` repeats
# lesson 1's training of a LoRA adapter, with 120 questions in 60 steps.
#
# In lesson 1 a function of the notebook added the words `This is a question about` to each question. A caller of the
# service does not have this function. So the words go into the [chat template](glossary.md#chat-template), which is
# saved with the tokenizer. A caller then sends nothing but the question, and training and service use the same words,
# as long as nobody edits the folder. (A chat model keeps its own template, as lesson 11 said. Ours came with none.)

# %%
DESKS = ["Python", "Rust", "other"]
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED, padding_side="left")
tokenizer.chat_template = "{{ messages[-1]['content'] }} This is a question about"
adapted, held_out = desk_adapter(tokenizer)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Merge it, and check it
#
# One ordinary model is simpler to ship than a base model and an adapter, so we [merge](glossary.md#merging) the two.
# Then we check two things: the merged model must give the same [logits](glossary.md#logit) as before, and the model
# that is loaded from the saved folder must have the same weights.
#
# **Which of the two should hold exactly, and which only nearly?**

# %%
# Any texts will do.
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

# %% [markdown] slideshow={"slide_type": "subslide"}
# Merging computes $W + \frac{\alpha}{r} BA$ once, so sums are rounded in another order, and the logits agree only
# nearly. Saving and loading round nothing, so every tensor must be equal.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Validate every answer
#
# The program that calls the model needs one of three names. So each answer is parsed and validated, and if it is none
# of the three, it becomes `unknown` and goes to a person. The server that we use sends the prompt back with the answer,
# so `desk_of` takes what follows the prompt.


# %%
def messages(question):
    return [{"role": "user", "content": question}]


def desk_of(text):
    """The desk that an answer names, or "unknown"."""
    word = text.rpartition("This is a question about")[2].strip()
    return word if word in DESKS else "unknown"


def prepared(questions):
    chats = [messages(question) for question in questions]
    prompts = tokenizer.apply_chat_template(chats, tokenize=False)
    return tokenizer(prompts, padding=True, return_tensors="pt")


def answers(model, questions):
    batch = prepared(questions)
    written = model.generate(**batch, max_new_tokens=3, do_sample=False)
    ends = written[:, batch.input_ids.shape[1] :]
    return [desk_of(t) for t in tokenizer.batch_decode(ends, skip_special_tokens=True)]


named = answers(loaded, held_out.question)
right = int((held_out.desk == named).sum())
low, high = binomtest(right, 75).proportion_ci(method="wilson")
score = f"{right} of 75 right: {right / 75:.0%} ({low:.0%} to {high:.0%})"
print(score)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The two `if`s of lesson 1 get 66 of the same 75. On five questions only the model is right and on two only the `if`s,
# which may be chance. But two `if`s cost nothing and can be read, so at work you would ship them. Here we practise.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How many questions does a test need?
#
# A [regression test](glossary.md#regression-test) stops a version that does something worse than the last one. A
# deployed model needs two. If only the template, the number format or the server changes, its answers should stay *the
# same*, so one test compares them with the answers at the release. A new model may answer differently. So the other
# test asks $n$ held-out questions and fails if fewer than $k$ answers are right.
#
# A model that gets 92% of *all* questions right will get fewer on some sets of 20. The number of right answers varies
# like the number of heads in $n$ throws of a coin that shows heads with 92%, which has a *binomial distribution*. We
# want an equally good model to fail on at most 2.5% of the sets. So we take `binom.ppf(0.025, n, 0.92)`: it returns the
# $k$ for which fewer than $k$ right answers happen in less than 2.5% of the sets, and fewer than $k + 1$ in more. For
# 20 questions this is 16. (Here we treat the measured 92% as exact.)
#
# **How low must the true accuracy fall before a test of 20 questions fails four times out of five?**

# %%
true = np.linspace(0.5, right / 75, 500)  # accuracies that a worse model might have
least = {}
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for n in (20, 75, 300, 1000):
    least[n] = int(binom.ppf(0.025, n, right / 75))
    fails = binom.cdf(least[n] - 1, n, true)  # how often fewer than k are right
    axes.plot(100 * true, 100 * fails, label=f"{least[n]} of {n} must be right")
axes.axhline(80, color="gray", linestyle=":", label="four times out of five")
axes.set(xlabel="true accuracy (%)", ylabel="test fails (% of sets)")
axes.set_title("Twenty questions notice a disaster; a drop of 5 points needs 300")
axes.legend(frameon=False)
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# With 20 questions the curve reaches the dotted line only below 70%, so a drop from 92% to 80% usually passes. The
# chance of noticing a real drop is the test's [power](glossary.md#power), and it grows slowly: to see half the drop,
# you need about four times the questions.
#
# So run the short tests at every start of the service, because they see the faults that ruin the answers, and a long
# one before a new model replaces the old one. It needs fewer questions if you compare the answers of both models to the
# same ones [in pairs](glossary.md#paired-difference).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The tests, and a broken release
#
# pytest runs each function of a file whose name begins with `test`, and hands it what the *fixture* `served` returns.
# `inspect.getsource` copies the functions of this notebook into a file that the tests import. With pytest, the client
# `openai` and the address of a service, take both along. The 20 questions are drawn for each desk apart. Of 20 drawn
# from all, two would be about Python, and a model that fails on all of Python would pass.

# %%
release = held_out.assign(answer=named).groupby("desk").sample(7, random_state=0)[:20]
release[["question", "desk", "answer"]].to_json(work / "release.json", orient="records")


def ask(client, model, question):
    options = {"model": model, "max_tokens": 3, "temperature": 0}
    chat = client.chat.completions.create(messages=messages(question), **options)
    return chat.choices[0].message.content


functions = "\n".join(map(inspect.getsource, (messages, desk_of, ask)))
constants = f"DESKS, LEAST = {DESKS}, {least[20]}\n\n"
_ = (work / "asking.py").write_text(constants + functions, encoding="utf-8")
tests = files("course.lesson19").joinpath("desk_tests.py").read_text(encoding="utf-8")
_ = (work / "test_desk.py").write_text(tests, encoding="utf-8")
print(tests[tests.index("@pytest") :])

# %% [markdown] slideshow={"slide_type": "subslide"}
# The second folder, our broken release, has the same weights, but its template has *one space more* at the end.

# %%
loaded.save_pretrained(work / "desk-2")
edited = AutoTokenizer.from_pretrained(work / "desk")
edited.chat_template += " "
_ = edited.save_pretrained(work / "desk-2")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Serve it, and ask over HTTP
#
# `transformers serve` is a small server that comes with transformers (`pip install "transformers[serving]"`). It speaks
# the protocol of OpenAI's API, as llama.cpp, Ollama and vLLM do too, so one client can talk to all of them. In a
# terminal you would type this, and stop it with Ctrl+C:
#
# ```text
# transformers serve --host 127.0.0.1 --port 8000
# ```
#
# 127.0.0.1 is the *loopback* address, which only programs on this machine can reach. `service` starts the same command
# with `subprocess.Popen` on a free port, waits until the port can be reached, yields the address, and kills the server
# at the end of the `with` block. A request names the model, so one server serves both folders.
#
# `logged` writes a line of JSON for each request to a log. After the tests it sends the 75 held-out questions, and then
# the same as if a new web form stripped all backticks. We read this log later. **Will one space too many in the
# template cost a few answers, or most of them?**


# %%
def logged(client, question, path):
    desk = desk_of(ask(client, "desk", question))
    entry = {"time": time.time(), "question": question, "desk": desk}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


asked = {"release": held_out.question}
asked["new form"] = held_out.question.str.replace("`", "")
os.environ["NO_PROXY"] = "127.0.0.1"  # a proxy cannot reach this machine's loopback
command = [sys.executable, "-m", "pytest", "-q", "--color=no", "test_desk.py"]
tested, raw = {}, {}
with service(work) as url:
    client = OpenAI(base_url=url, api_key="none", timeout=60)
    for name in ("desk", "desk-2"):
        env = os.environ | {"DESK_URL": url, "DESK_MODEL": name}
        options = {"cwd": work, "env": env, "capture_output": True, "text": True}
        tested[name] = subprocess.run(command, **options).stdout.splitlines()[-1]
        raw[name] = [ask(client, name, question) for question in release.question]
    for week, questions in asked.items():
        for question in questions:
            logged(client, question, work / f"{week}.jsonl")

logs = {week: pd.read_json(work / f"{week}.jsonl", lines=True) for week in asked}
same = logs["release"].desk.tolist() == named
course.claim("Over HTTP it names the same 75 desks as in memory", same)
for name, texts in raw.items():
    desks = pd.Series(map(desk_of, texts)).value_counts().to_dict()
    print(f"{name}: {tested[name].split(' in ')[0]}, {desks}, …{texts[0][-25:]!r}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Both tests stop the second release: not one of its 20 answers is a desk. In training, the answer began with a token
# that contains a space, such as ` Python`. Now the space at the end of the prompt is a token of its own, which the
# model never saw there, and mostly it ends the text at once. No error is raised and the weights are perfect, so only a
# test that goes through the shipped template sees the fault.
#
# The texts contain the question, because the server looks for the line that opens the assistant's message in Qwen's
# template. Ours has no such line, so it takes the whole text for the answer.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Which number format?
#
# Weights can be stored in [fp32](glossary.md#fp32), in [bf16](glossary.md#bf16), or in 4 bits with
# [NF4](glossary.md#nf4); the server's options are `--dtype bfloat16` and `--quantization bnb-4bit`. The answers should
# not change, which is a case for the first of our tests. We ask one question at a time, without the server. **Which
# format is the smallest, which the fastest, and does any answer change?**

# %% tags=["nbval-ignore-output"]
double = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
nf4 = BitsAndBytesConfig(load_in_4bit=True, **double)
formats = {"fp32": {"dtype": torch.float32}, "bf16": {"dtype": torch.bfloat16}}
formats["4 bits"] = {"dtype": torch.float32, "quantization_config": nf4}
measured = {}
for name, options in formats.items():
    model = AutoModelForCausalLM.from_pretrained(work / "desk", **options)
    same, times = 0, []
    for row in release.itertuples():
        began = time.perf_counter()
        same += answers(model, [row.question]) == [row.answer]
        times.append(1000 * (time.perf_counter() - began))
    row = {"MB": model.get_memory_footprint() / 1e6, "median ms": np.median(times)}
    measured[name] = row | {"same of 20": same}
pd.DataFrame(measured).T.round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# bf16 halves the weights. In 4 bits the model takes 5 MB, not 2 (an eighth of 16), because the embedding, a fifth of
# its parameters, stays in fp32. In bf16 the 20 answers stay the same, and 4 bits change one, which was close to the
# border. The first test would stop this release, so look at that answer before you ship it.
#
# In our run the largest format, fp32, was the fastest, because 4-bit weights are unpacked before each product, and our
# processor has no instructions for bf16. So measure on the machine that will run the service.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Other servers
#
# The commands are not run here. Without Python, people use llama.cpp or Ollama, which need
# the model as one [GGUF](glossary.md#gguf) file. For many users on a GPU there is
# [vLLM](https://docs.vllm.ai/en/latest/features/lora.html), where each request picks an adapter.
#
# We take the SmolLM2 that [lesson 12](12_a_real_task.ipynb) tunes live. Its system message `Bug report to JSON.` is
# part of what you ship, because without it SmolLM2's template adds a different one. In Ollama the line `SYSTEM` adds
# it; with the others each request has to contain it.
#
# ```text
# # at the end of lesson 12
# trainer.model.merge_and_unload().save_pretrained("tickets")
# tokenizer.save_pretrained("tickets")
#
# # llama.cpp: the script is in its repository, the programs are on its release page
# pip install gguf sentencepiece
# python convert_hf_to_gguf.py tickets --outfile tickets.gguf --outtype f16
# llama-quantize tickets.gguf tickets-q4.gguf Q4_K_M
# llama-server -m tickets-q4.gguf --host 127.0.0.1 --port 8080
#
# # Ollama: a file named Modelfile with the first three lines
# FROM ./tickets-q4.gguf
# SYSTEM Bug report to JSON.
# PARAMETER temperature 0
# ollama create tickets -f Modelfile && ollama run tickets "tokio 1.40 hangs on Windows 11"
#
# # vLLM: the base model, and adapters by name
# vllm serve HuggingFaceTB/SmolLM2-135M-Instruct --host 127.0.0.1 \
#   --enable-lora --lora-modules tickets=adapter
# ```
#
# We tried llama.cpp on 24 validation reports. `tickets.gguf` gives the same 24 answers as transformers, but only 4 of
# them without the system message. `Q4_K_M` shrinks 271 MB to 105, or 6.2 bits a weight. (Larger models get 4.8; most
# rows of this one are no multiple of 256.) Only 8 answers stay the same, and 34 of 96 fields are right instead of 41.
# So run your tests after each conversion.
#
# By default none of these servers asks who is calling, so keep them on loopback until something in front of them does
# .

# %% [markdown] slideshow={"slide_type": "slide"}
# ## See when the questions change
#
# After the release nobody tells you the right answers. But if the questions change, which is called
# [drift](glossary.md#drift), the *shares of the answers* often change too. `chi2_contingency` compares a week's counts
# with those of the week of the release. Its *p-value* says how often weeks with the same shares would differ at least
# this much by chance. We raise an alarm below 0.01, so there is one false alarm in about 100 weeks.
#
# This alarm is a test, and has a power, too. So we take the shares of our two weeks, draw 1,000 pairs of weeks with $n$
# requests each, and count the alarms. **Are 75 requests a week enough?**

# %%
weeks = {week: log.desk.value_counts() for week, log in logs.items()}
counts = pd.DataFrame(weeks).fillna(0).astype(int)  # empty would make the p-value NaN
print(f"{counts.to_string()}\np-value: {chi2_contingency(counts).pvalue:.2f}\n")
generator = np.random.default_rng(0)
for n in (75, 250, 380):
    draws = generator.multinomial(n, counts.T / 75, (1000, 2))  # shares of both weeks
    rings = np.mean([chi2_contingency(draw).pvalue < 0.01 for draw in draws])
    print(f"{n} requests a week: the alarm rings in {rings:.0%} of the draws")
truth = [int((held_out.desk == log.desk.values).sum()) for log in logs.values()]
print("right of 75, which the service does not know:", truth)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The new form sends ten questions more to the wrong desk, and no answer is `unknown`. Rust loses six answers, because
# in lesson 1 the model learned that backticks mean Rust, and Python four, as 17 of its 25 questions had them, too. With
# 75 requests a week you would rarely notice it, with 380 in four of five weeks. So a small service compares months.
#
# An alarm says that something has changed, and not yet that the model is wrong. So label 50 of the logged questions by
# hand, count the right answers, and add them to the regression test. (The model's
# [confidence](glossary.md#confidence), which vLLM and llama.cpp return with `logprobs`, hardly moves: 0.86 to 0.84.)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The model card
#
# A [model card](glossary.md#model-card) tells people who were not there what the model is for, what it was trained and
# tested on, and where it fails. It is the folder's `README.md`, and its head is for the search of the Hugging Face hub
# (where our base model is not). Choose a license that those of the base model and the data allow.

# %%
about = {"license": "mit", "language": "en", "model_name": "desk", "tags": ["lora"]}
data = ModelCardData(base_model="tiny-qwen2", **about)
text = f"""---
{data.to_yaml()}
---
- **For:** sorting English questions to the desks {", ".join(DESKS)}.
- **Not for:** other languages, or answers that nobody can correct.
- **Data and method:** 120 questions, LoRA, 60 steps, merged in fp32.
- **Tested:** on held-out questions, {score}.
  A rule (the word Python, else a backtick for Rust) gets 66.
- **Weak:** without backticks around code {truth[1]} of the 75 are right.
"""
ModelCard(text).save(work / "desk" / "README.md")
print(ModelCard.load(work / "desk" / "README.md").content)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Ship one folder with merged weights, tokenizer, template and card. Compare the logits after the merge and the
#   weights after loading.
# - Test the served model, because a fault in the template leaves the weights intact. Twenty questions notice only a
#   drop of over 20 points.
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
# - **c** Nothing is badly broken. A drop of several points may be there, and this test could not see it.
# - **d** The threshold is too low. It should be 18, the result of the old release.

# %%
course.quiz("quiz19")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 19.1.** A model that reads support tickets answers with JSON, for example `{"crate": "tokio", "version":
# "1.40.0", "system": null, "kind": "slow"}`. Write the parser that stands between the model and your program. It gets
# the text of an answer and a list of the allowed kinds. Other text may stand before and behind the JSON object, but
# that text contains no braces. Return a dict with exactly these four keys. Return an empty dict if
#
# - there is no valid JSON object, or one of the four keys is missing;
# - the kind is not one of those allowed;
# - the crate is not a string, or one of version and system is neither a string nor null.

# %%
import json


def read_ticket(text, kinds):
    """The four fields of a ticket, or an empty dict."""
    # your code here


course.check("ex19_1", read_ticket)

# %% [markdown]
# Previous: [18 · Scaling out](18_scaling_out.ipynb) ·
# Next: [20 · Your own project](20_your_own_project.ipynb)
