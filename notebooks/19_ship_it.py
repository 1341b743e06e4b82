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
# - choose a number format, and log what shows a change after the release.
#
# **You need** [lesson 1](01_first_fine_tuning.ipynb), whose task we ship, [lesson 5](05_lora.ipynb) for merging, and
# [lesson 6](06_qlora.ipynb) for 4-bit weights.
#
# About 34 minutes.

# %% slideshow={"slide_type": "subslide"}
import inspect
import os
import re
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from huggingface_hub import ModelCard, ModelCardData
from openai import OpenAI
from scipy.stats import binom, binomtest
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
# The job is that of lesson 1: a question comes in, and the model names one of three desks. `desk_adapter` contains
# lesson 1's training, in which a LoRA adapter beside every linear layer learns from 120 questions in 60 steps.
#
# In lesson 1, though, a function of the notebook put the words `This is a question about` behind each question, but
# whoever calls the service does not have our notebook. So the words go into the [chat
# template](glossary.md#chat-template), which is saved with the tokenizer. A caller then sends nothing but the question,
# and training and service cannot use different words.

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
# of the three, it becomes `unknown` and goes to a person. At work, compare the whole answer. Our parser looks at the
# last word only, because for our model the server below returns the question together with the answer. (It would not do
# so if we had kept Qwen's own template.)
#
# `answers` runs the model in this notebook. The service must return the same later.


# %%
def messages(question):
    return [{"role": "user", "content": question}]


def desk_of(text):
    """The desk that an answer names, or "unknown"."""
    word = (text.split() or [""])[-1]
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


right = int((held_out.desk == answers(loaded, held_out.question)).sum())
low, high = binomtest(right, 75).proportion_ci(method="wilson")
score = f"{right} of 75 right: {right / 75:.0%} ({low:.0%} to {high:.0%})"
print(score)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The [Wilson interval](glossary.md#wilson-interval) is wide because 75 questions are few. It also contains 66, which is
# how many the two `if`s of lesson 1 get right. So at work you would ship the two `if`s.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How many questions does a test need?
#
# A [regression test](glossary.md#regression-test) stops a version that does something worse than the last one. A
# deployed model needs two. If only the template, the number format or the server changes, its answers should stay *the
# same*, so one test compares them with the answers at the release. A new model may answer differently. So the other
# test asks $n$ held-out questions and fails if fewer than $k$ answers are right.
#
# A model that gets 92% of *all* questions right will get fewer on some sets of 20. We choose $k$ so that an equally
# good model fails on at most 2.5% of such sets. The number of right answers has a binomial distribution, so the largest
# such $k$ is `binom.ppf(0.025, n, 0.92)`. For 20 questions this is 16, because such a model gets fewer than 16 right in
# 2 of 100 sets. (This takes the 92% as exact.)
#
# **The test asks 20 questions. How far must the accuracy fall until it fails on 80% of such sets, or *draws*?**

# %%
true = np.linspace(0.5, right / 75, 500)  # accuracies that a worse model might have
least = {}
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for n in (20, 75, 300, 1000):
    least[n] = int(binom.ppf(0.025, n, right / 75))
    fails = binom.cdf(least[n] - 1, n, true)  # how often fewer than k are right
    axes.plot(100 * true, 100 * fails, label=f"{least[n]} of {n} must be right")
axes.axhline(80, color="gray", linestyle=":", label="80% of draws")
axes.set(xlabel="true accuracy (%)", ylabel="test fails (% of draws)")
axes.set_title("Twenty questions notice a disaster; a drop of 5 points needs 300")
axes.legend(frameon=False)
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# With 20 questions the curve reaches the dotted line only below 70%, so a drop from 92% to 80% usually passes. The
# chance of noticing a real drop is the test's [power](glossary.md#power), and it grows slowly: to see half the drop,
# you need about four times the questions.
#
# So run the short tests at every start of the service, because they see the faults that ruin the answers, and a long
# one before a new model replaces the old one. If both models get the *same* questions, you need fewer, because you can
# compare them [in pairs](glossary.md#paired-difference).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The tests, and a broken release
#
# The file with both tests needs the functions below, the 20 questions, the answers at the release and the threshold.
# `inspect.getsource` copies the functions, so the file has exactly what you see. With pytest, the client `openai` and
# the address of a service, you can take it along.

# %%
QUESTIONS = held_out.sample(20, random_state=0)[["question", "desk"]].values.tolist()
LEAST = least[20]
questions = [question for question, _ in QUESTIONS]
RECORDED = answers(loaded, questions)


def ask(client, model, question):
    options = {"model": model, "max_tokens": 3, "temperature": 0}
    chat = client.chat.completions.create(messages=messages(question), **options)
    return chat.choices[0].message.content


@cache  # both tests use the same answers
def served():
    client = OpenAI(base_url=os.environ["DESK_URL"], api_key="none", timeout=60)
    return [desk_of(ask(client, os.environ["DESK_MODEL"], q)) for q, _ in QUESTIONS]


def right_ones():
    pairs = zip(served(), QUESTIONS, strict=True)
    return sum(named == desk for named, (_, desk) in pairs)


tests = """
def test_same_answers_as_at_the_release(): assert served() == RECORDED
def test_enough_answers_are_right(): assert right_ones() >= LEAST
"""
# In an f-string, {DESKS = } writes the name and its value.
head = "import os\nfrom functools import cache\nfrom openai import OpenAI\n"
head += f"{DESKS = }\n{QUESTIONS = }\n{RECORDED = }\n{LEAST = }\n"
functions = (messages, desk_of, ask, served, right_ones)
text = head + "\n".join(map(inspect.getsource, functions)) + tests
size = (work / "test_desk.py").write_text(text, encoding="utf-8")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The second folder, our broken release, has the same weights, but its template has *one space more* at the end.

# %%
loaded.save_pretrained(work / "desk-2")
edited = AutoTokenizer.from_pretrained(work / "desk")
edited.chat_template += " "
files = edited.save_pretrained(work / "desk-2")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Serve it, and ask over HTTP
#
# `transformers serve` is a small server that comes with transformers (`pip install "transformers[serving]"`). It speaks
# the protocol of OpenAI's API, as llama.cpp, Ollama and vLLM do too, so one client can talk to all of them. Its command
# is `transformers serve --host 127.0.0.1 --port 8000`, where 127.0.0.1 is the *loopback* address, which only programs
# on this machine can reach.
#
# `service` runs the same command on a free port, waits until it can be reached, and yields its address. The server
# stops at the end of the `with` block. It loads the model that a request names, so it can serve both folders. We ask
# the 20 questions ourselves, and then pytest tests each folder.
#
# **Will one space too many cost a few answers, or most of them?**

# %%
os.environ["NO_PROXY"] = "127.0.0.1"  # a proxy cannot reach this machine's loopback
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # so that pytest starts faster
command = [sys.executable, "-m", "pytest", "--color=no", "test_desk.py"]
tested = {}
with service(work) as url:
    client = OpenAI(base_url=url, api_key="none", timeout=60)
    raw = [ask(client, "desk", question) for question in questions]
    broken = ask(client, "desk-2", questions[0])
    for name in ("desk", "desk-2"):
        env = os.environ | {"DESK_URL": url, "DESK_MODEL": name}
        options = {"cwd": work, "env": env, "capture_output": True, "text": True}
        tested[name] = subprocess.run(command, **options)

same = [desk_of(text) for text in raw] == RECORDED
course.claim("Over HTTP it names the same desks as in memory", same)
for name, run in tested.items():
    print(name, re.search(r"\d passed|assert \d+ >= \d+", run.stdout)[0], sep=": ")
print(f"desk ends with {raw[0][-22:]!r}, desk-2 with {broken[-16:]!r}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Both tests stop the second release, in which no answer is right. (The line above is from the second test.) In
# training, the answer began with a token that contains a space, such as ` Python`. Now the space at the end of the
# prompt is a token of its own, which the model never saw there. No error is raised and the weights are perfect, so only
# a test that goes through the shipped template sees the fault.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Which number format?
#
# Weights can be stored in [fp32](glossary.md#fp32), in [bf16](glossary.md#bf16), or in 4 bits with
# [NF4](glossary.md#nf4); the server's options are `--dtype bfloat16` and `--quantization bnb-4bit`. We ask one question
# at a time, without the server, and show the median and the slowest time. **Which format is the smallest, which the
# fastest, and does quality suffer?**

# %% tags=["nbval-ignore-output"]
nf4 = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
formats = {"fp32": {"dtype": torch.float32}, "bf16": {"dtype": torch.bfloat16}}
formats["4 bits"] = {"dtype": torch.float32, "quantization_config": nf4}
measured, some = {}, held_out[::5]  # 15 questions
for name, options in formats.items():
    model = AutoModelForCausalLM.from_pretrained(work / "desk", **options)
    hits, times = 0, []
    for row in some.itertuples():
        began = time.perf_counter()
        hits += answers(model, [row.question]) == [row.desk]
        times.append(1000 * (time.perf_counter() - began))
    row = {"MB": model.get_memory_footprint() / 1e6, "median ms": np.median(times)}
    measured[name] = row | {"slowest ms": max(times), "right of 15": hits}
pd.DataFrame(measured).T.round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# bf16 halves the weights. In 4 bits the model takes 5 MB, not 2 (an eighth of 16), because the embedding, a fifth of
# its parameters, stays in fp32. A model of 7 billion parameters takes about 28, 14 and 4 GB. Each format gets 13 of 15
# right here, but so few questions cannot show a small loss.
#
# In our run the largest format, fp32, was the fastest. 4-bit weights are unpacked before each product, and bf16 is fast
# only if the processor can multiply in it. So measure on the machine that will run the service.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Other servers
#
# Without Python, people use llama.cpp or Ollama, which need the model as one [GGUF](glossary.md#gguf) file. For many
# users on a GPU there is vLLM, which keeps a base model in memory and picks an adapter for each request, so nothing is
# merged. These commands are **not run here**. They serve the SmolLM2 that [lesson 12](12_a_real_task.ipynb) tunes live
# with rank 8, once you have saved it there: `trainer.save_model("adapter")`, and the merged model and tokenizer in
# `tickets`, as above.
#
# It was tuned with the system message `Bug report to JSON.`, so this is part of what you ship. Without it, SmolLM2's
# template puts in another one, which is the fault that you have just seen. Ollama adds it by `SYSTEM`; whoever asks the
# others has to send it.
#
# ```text
# # llama.cpp: convert, store in about 4.8 bits a weight, serve (needs cmake, a C++ compiler)
# git clone https://github.com/ggml-org/llama.cpp
# cmake -S llama.cpp -B llama.cpp/build && cmake --build llama.cpp/build --config Release
# pip install -r llama.cpp/requirements.txt
# python llama.cpp/convert_hf_to_gguf.py tickets --outfile tickets.gguf --outtype f16
# llama.cpp/build/bin/llama-quantize tickets.gguf tickets-q4.gguf Q4_K_M
# llama.cpp/build/bin/llama-server -m tickets-q4.gguf --host 127.0.0.1 --port 8080
#
# # Ollama: a file named Modelfile with these three lines
# #     FROM ./tickets-q4.gguf
# #     SYSTEM Bug report to JSON.
# #     PARAMETER temperature 0
# ollama create tickets -f Modelfile && ollama show tickets --template
# ollama run tickets "tokio 1.40 hangs on Windows 11"
#
# # vLLM: one base model, adapters chosen by the request's model
# pip install vllm
# vllm serve HuggingFaceTB/SmolLM2-135M-Instruct --host 127.0.0.1 --port 8000 \
#     --enable-lora --max-lora-rank 8 --lora-modules tickets=./adapter
# ```
#
# A test like ours guards them too, and shows whether the template has survived the conversion. By default none of them
# asks who is calling, so keep them on loopback until something in front of them does.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## See when the questions change
#
# After the release nobody tells you the right answers. So log numbers that need no answer key, and compare each week
# with the week of the release. If the questions change, which is called [drift](glossary.md#drift), some of these
# numbers change too.
#
# Suppose that a new web form strips all backticks from the questions. Our log has the answer to each request and the
# model's [confidence](glossary.md#confidence), the probability of the likeliest first token, which vLLM and llama.cpp
# return if you ask for `logprobs`. **Which of the two will show the change?**


# %%
def log_of(questions):
    with torch.no_grad():
        last = loaded(**prepared(questions)).logits[:, -1]
    likeliest = last.softmax(-1).amax(-1)
    return pd.DataFrame({"desk": answers(loaded, questions), "confidence": likeliest})


logs = {"release": log_of(held_out.question)}
logs["new form"] = log_of(held_out.question.str.replace("`", ""))
weeks = {name: log.desk.value_counts(normalize=True) for name, log in logs.items()}
weeks = pd.DataFrame(weeks)
weeks.loc["confidence"] = {name: log.confidence.mean() for name, log in logs.items()}
print(weeks.round(2).to_string())
truth = [int((held_out.desk == log.desk.values).sum()) for log in logs.values()]
print("right of 75, which the service does not know:", truth)

# %% [markdown] slideshow={"slide_type": "subslide"}
# No answer is `unknown` and the model is nearly as confident as before, although it now sends ten questions more to the
# wrong desk. The *shares of the answers* show the change best, because the desk for everything else gets more. For Rust
# this is the shortcut of lesson 1, where backticks told the model that a question is about Rust; but Python loses
# almost as many answers (4 against 6).
#
# Give the counts of both weeks to `scipy.stats.chi2_contingency`, and look closer when its p-value falls below, say,
# 0.01. In weeks of 75 questions this shift may still be chance (p is 0.25); with 250 a week p would be about 0.01. The
# test shows that something has changed, and not yet that the model is wrong. So label 50 of the new questions by hand,
# count the right answers, and add them to the regression test.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The model card
#
# A [model card](glossary.md#model-card) tells people who were not there what the model is for, what it was trained and
# tested on, and where it fails. It is the folder's `README.md`, and its head is for programs, such as the search of the
# Hugging Face hub. Choose a license that those of the base model and the data allow.

# %%
about = {"license": "mit", "language": "en", "model_name": "desk", "tags": ["lora"]}
data = ModelCardData(base_model="tiny-qwen2", **about)
text = f"""---
{data.to_yaml()}
---
- **For:** sorting English questions to the desks {", ".join(DESKS)}.
- **Not for:** other languages, or answers that nobody can correct.
- **Data and method:** 120 questions, LoRA, 60 steps, merged in fp32.
- **Tested:** on 75 held-out questions, {score}. Two `if`s get 66.
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
# - Validate every answer, and log what needs no answer key, above all the shares of the answers.
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
