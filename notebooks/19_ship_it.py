# %% [markdown] slideshow={"slide_type": "slide"}
# # 19 · Ship it
#
# *How does a tuned model become a service that others can rely on?*
#
# A notebook that answers well is not yet useful to a colleague. In this lesson you turn an adapter into a folder that
# any program can load, serve it over HTTP, and ask it as an application would. You also write a
# test that stops a broken release, a card that says what the model is for, and a log that shows when its work changes.
#
# **You will be able to**
#
# - merge an adapter, prove that nothing changed, and serve the result on your own machine;
# - choose a number format for a deployed model by memory, speed and quality;
# - write a regression test for a deployed model, and say how large a drop in quality it can see.
#
# **You need** [lesson 1](01_first_fine_tuning.ipynb), whose task we ship, [lesson 5](05_lora.ipynb) for merging, and
# [lesson 6](06_qlora.ipynb) for 4-bit weights.
#
# About 44 minutes.

# %% slideshow={"slide_type": "subslide"}
import inspect
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from openai import OpenAI
from scipy.stats import binom, binomtest
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

import course
import tlkit as tl
from course.lesson19.desk import desk_adapter
from course.lesson19.service import service

tl.setup()
work = Path(mkdtemp())  # everything that is shipped is written here

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A model worth shipping
#
# The job is that of lesson 1: a question comes in, and the model names one of three desks. It trains in seconds, so the
# whole way to a service can be run here.
#
# One thing is done differently. In lesson 1 a function of the notebook put the words `This is a question about` behind
# each question, but whoever calls the service does not have our notebook. So the words go into the
# [chat template](glossary.md#chat-template), which is saved with the tokenizer. A caller then sends nothing but the
# question, and training and service cannot use different words. `desk_adapter` contains lesson 1's training: 60 steps
# through 120 questions, with a LoRA adapter beside every linear layer.

# %%
DESKS = ["Python", "Rust", "other"]
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED, padding_side="left")
tokenizer.chat_template = "{{ messages[-1]['content'] }} This is a question about"
adapted, held_out = desk_adapter(tokenizer)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Merge it, and prove it
#
# A server could load the base model and the adapter. It is simpler to ship one ordinary model, so we
# [merge](glossary.md#merging) the adapter into the weights. Two checks belong to a merge. The merged model must give
# the same [logits](glossary.md#logit), and the model that is loaded from the saved folder must have the same weights.
#
# **Which of the two checks should hold exactly, and which only nearly?**

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
equal = sum(torch.equal(one, other) for one, other in pairs)
print(f"{equal} of {len(pairs)} tensors are equal after loading")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Merging computes $W + \frac{\alpha}{r} BA$ once, so sums are rounded in another order, and the logits agree only
# nearly. Saving and loading round nothing, so there every tensor must be equal. If you merge into weights of 16 bits,
# the sum is rounded to 16 bits, and the first check needs a wider limit.
#
# The folder is complete: weights, `config.json`, the tokenizer, and our template.
# With the ticket model of lesson 12 you do the same. Its base model brings a chat template, which you keep.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Never trust an answer
#
# A model may write anything, but the program that calls it needs one of three names. So each answer is parsed and
# validated, and an answer that is none of the three becomes `unknown`, which goes to a person. The parser looks at the
# last word only, because some versions of the server repeat the question before the answer. They look for the marks of
# Qwen's usual template, and ours has none.
#
# `answers` asks a model in memory, all questions in one batch, so that we know what the service should answer.


# %%
def messages(question):
    return [{"role": "user", "content": question}]


def desk_of(text):
    """The desk that an answer names, or "unknown"."""
    word = (text.split() or [""])[-1]
    return word if word in DESKS else "unknown"


def prepared(questions):
    chats = list(map(messages, questions))
    prompts = tokenizer.apply_chat_template(chats, tokenize=False)
    return tokenizer(prompts, padding=True, return_tensors="pt")


def answers(model, questions):
    batch = prepared(questions)
    written = model.generate(**batch, max_new_tokens=3, do_sample=False)
    ends = written[:, batch.input_ids.shape[1] :]
    return [desk_of(t) for t in tokenizer.batch_decode(ends, skip_special_tokens=True)]


right = (held_out.desk == answers(loaded, held_out.question)).sum()
interval = binomtest(right, 75).proportion_ci(method="wilson")
print(f"{right} of 75 right: {right / 75:.0%}", end=" ")
print(f"({interval.low:.0%} to {interval.high:.0%})")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The [Wilson interval](glossary.md#wilson-interval) says which shares of right answers among *all* such questions fit
# with what we saw on 75. It is wide, and a test of a release has to live with that.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A test for every release
#
# Software has [regression tests](glossary.md#regression-test), which stop a new version that does something worse than
# the last one. A deployed model needs one too, because it changes in many ways: new weights, a new template, another
# number format, a new version of the server. The test asks $n$ held-out questions and fails if fewer than $k$ answers
# are right.
#
# How is $k$ chosen? A model that still answers 92% right will sometimes get a bad draw of questions. If $X$ is the
# number of right answers of such a model, $X$ has a binomial distribution, and `binom.ppf(0.025, n, 0.92)` is the
# largest $k$ with which a good model fails in at most 2.5% of draws.
#
# **The test asks 20 questions. How far must accuracy fall until the test fails in 80% of draws?**

# %%
share = right / 75
true = np.linspace(0.5, share, 500)  # accuracies that a worse model might have
rows, fails = [], {}
for n in (20, 75, 300, 1000):
    k = int(binom.ppf(0.025, n, share))
    fails[n] = binom.cdf(k - 1, n, true)  # how often fewer than k are right
    noticed = true[fails[n] >= 0.8].max()
    rows.append([n, k, f"{noticed:.0%}", f"{100 * (share - noticed):.0f} points"])
plan = pd.DataFrame(rows, columns=["questions", "k", "noticed at", "drop"])
plan

# %%
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for n, curve in fails.items():
    axes.plot(100 * true, 100 * curve, label=f"{n} questions")
axes.set(xlabel="true accuracy (%)", ylabel="test fails (% of draws)")
axes.set_title("Twenty questions notice a disaster; a drop of 5 points needs 300")
axes.legend(frameon=False)
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# With 20 questions the accuracy has to fall from 92% to below 70%. The chance of noticing a real drop is the test's
# [power](glossary.md#power), and it grows slowly: for half the drop you need about four times the questions. So use a
# short test at every start of the service, because it sees the faults that ruin everything, and a long one before a
# new model replaces the old. There, ask both models the *same* questions and count only those on which they differ,
# because such a [paired comparison](glossary.md#paired-difference) needs fewer.
#
# Here is the short test. These functions go into a file with `inspect.getsource`, which returns the text of a function,
# so that the file has exactly the code that you see. It needs only the address of a service and pytest, and you can
# take it along.


# %%
def ask(client, model, question):
    """The raw text that the service answers."""
    options = {"model": model, "max_tokens": 3, "temperature": 0}
    chat = client.chat.completions.create(messages=messages(question), **options)
    return chat.choices[0].message.content


def test_enough_answers_are_right():
    release = json.loads(Path(__file__).with_name("release.json").read_text())
    client = OpenAI(base_url=os.environ["DESK_URL"], api_key="none", timeout=60)
    right = 0
    for question, desk in release["questions"]:
        right += desk_of(ask(client, os.environ["DESK_MODEL"], question)) == desk
    if right < release["least"]:
        raise AssertionError(f"{right} of 20 right")


short = held_out.sample(20, random_state=0)
asked = short[["question", "desk"]].to_numpy().tolist()
release = json.dumps({"least": int(plan.k[0]), "questions": asked})
(work / "release.json").write_text(release)
head = (
    "import json\nimport os\nfrom pathlib import Path\n\nfrom openai import OpenAI\n\n"
)
functions = (messages, desk_of, ask, test_enough_answers_are_right)
test = head + f"DESKS = {DESKS}\n\n\n" + "\n\n".join(map(inspect.getsource, functions))
size = (work / "test_desk.py").write_text(test)

# %% [markdown] slideshow={"slide_type": "subslide"}
# We also need a release that is broken, to see that the test notices. A favourite fault is a template that was edited
# by hand. The second folder has the same weights, and its template has *one space more* at the end.

# %%
loaded.save_pretrained(work / "desk-2")
edited = AutoTokenizer.from_pretrained(work / "desk")
edited.chat_template += " "
files = edited.save_pretrained(work / "desk-2")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Serve it, and ask over HTTP
#
# `transformers serve` is a server for testing that comes with transformers
# (`pip install "transformers[serving]"`). It speaks the protocol of OpenAI's API, as llama.cpp, Ollama and vLLM do too,
# so one client can talk to all of them.
#
# In a terminal you start it with
#
# ```
# transformers serve --host 127.0.0.1 --port 8000
# ```
#
# `127.0.0.1` is the *loopback* address, which only programs on this machine can reach. `service` runs the same command
# on a free port, waits until it answers, and yields its address. Because it is used with `with`, the server is stopped
# at the end of the cell, even after an error.
#
# The server loads the model that a request names, so one process can serve both folders. We ask the 20 questions of
# the test and keep the time that each takes. Then pytest runs on each folder, as it would before a release.
#
# **Will one space too many cost a few answers, or most of them?**

# %%
os.environ |= {"HF_HUB_OFFLINE": "1", "NO_PROXY": "127.0.0.1"}
command = [sys.executable, "-m", "pytest", "--color=no", "-p", "no:cacheprovider"]
seconds, raw, tested = [], [], {}
with service(work) as url:
    client = OpenAI(base_url=url, api_key="none", timeout=60)
    ask(client, "desk", "warm up")  # the first request loads the model
    for question in short.question:
        began = time.perf_counter()
        raw.append(ask(client, "desk", question))
        seconds.append(time.perf_counter() - began)
    os.environ["DESK_URL"] = url
    for name in ("desk", "desk-2"):
        os.environ["DESK_MODEL"] = name
        run = [*command, work / "test_desk.py"]
        tested[name] = subprocess.run(run, capture_output=True, text=True)
    broken = ask(client, "desk-2", short.question.iloc[0])

same = [desk_of(text) for text in raw] == answers(loaded, short.question)
course.claim("Over HTTP it names the same desks as in memory", same)
for name, run in tested.items():
    why = [line for line in run.stdout.splitlines() if "AssertionError: " in line]
    print(name, "passed" if run.returncode == 0 else why[0].split(": ")[1])

# %% [markdown] slideshow={"slide_type": "subslide"}
# The test stops the second release, in which no answer is right. The cause is the tokenizer. In training the
# answer began with the token ` Rust`, which contains its space. If the prompt already ends with a space, the model
# stands at a place that no training text ever showed it. No error is raised, the weights are perfect, and only a test
# that asks the *served* model can see the fault.

# %% tags=["nbval-ignore-output"]
print("answered:", repr(raw[0]))
print("with one space more:", repr(broken))
ms = 1000 * np.array(seconds)
print(f"a request takes {np.median(ms):.0f} ms, the slowest of 20 {ms.max():.0f} ms")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Report the median and the slow end of the times (in production the 95th or 99th percentile), because a mean hides the
# requests that users complain about.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Which number format?
#
# The weights can be stored in [fp32](glossary.md#fp32), in [bf16](glossary.md#bf16), or in 4 bits with
# [NF4](glossary.md#nf4). The server has options for it: `--dtype bfloat16` and `--quantization bnb-4bit`. **Which is
# the smallest, which the fastest, and does quality suffer?**

# %%
nf4 = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
formats = {"fp32": (torch.float32, None), "bf16": (torch.bfloat16, None)}
formats["4 bits"] = (torch.float32, nf4)


def megabytes(model):
    """The size of all weights, and of the scales of those in 4 bits."""
    scales = [
        p.quant_state.absmax for p in model.parameters() if p.dtype == torch.uint8
    ]
    return sum(t.nbytes for t in [*model.parameters(), *scales]) / 1e6


# %% tags=["nbval-ignore-output"]
measured, some = {}, held_out[::3]  # 25 questions
for name, (dtype, config) in formats.items():
    options = {"dtype": dtype, "quantization_config": config}
    model = AutoModelForCausalLM.from_pretrained(work / "desk", **options)
    began = time.perf_counter()
    hits = (some.desk == answers(model, some.question)).sum()
    ms = 1000 * (time.perf_counter() - began) / len(some)
    measured[name] = {"MB": megabytes(model), "ms an answer": ms, "right of 25": hits}
pd.DataFrame(measured).T.round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# bf16 halves the weights exactly, from 16.1 to 8.1 MB. The 4 bits come to 5 MB and not to an eighth of fp32, because
# the embedding stays in fp32 and is a fifth of this small model. For 7 billion parameters the formats take about 28, 14
# and 4 GB.
#
# On 25 questions no format loses quality, though these are too few to see a small loss. But do not expect speed from
# fewer bits. 4-bit weights are unpacked before each product, and bf16 is fast only if the processor can multiply in it,
# so on many CPUs it is the slowest of the three. Measure on the machine that will run the service.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Other servers
#
# `transformers serve` handles few users at a time. For a laptop without Python one uses llama.cpp or Ollama, which need
# the model as one [GGUF](glossary.md#gguf) file. For many users on a GPU one uses vLLM, which can keep a base model in
# memory and pick an adapter for each request, so there you need not merge. These commands are **not run here**. They
# assume a merged model in `tickets/` and its adapter in `adapter/`, as lesson 12's ticket model gives them, because
# llama.cpp converts only tokenizers that it knows, and not the small one of this course.
#
# ```text
# # GGUF: convert, store in about 4.5 bits a weight, serve        (not run here)
# git clone https://github.com/ggml-org/llama.cpp
# pip install -r llama.cpp/requirements.txt
# python llama.cpp/convert_hf_to_gguf.py tickets --outfile tickets.gguf --outtype f16
# llama-quantize tickets.gguf tickets-q4.gguf Q4_K_M
# llama-server -m tickets-q4.gguf --host 127.0.0.1 --port 8080
#
# # Ollama: a file named Modelfile with the two lines             (not run here)
# #     FROM ./tickets-q4.gguf
# #     PARAMETER temperature 0
# ollama create tickets -f Modelfile
# ollama run tickets "tokio 1.40 hangs on Windows 11"
#
# # vLLM: one base model, adapters chosen by the request's model  (not run here)
# pip install vllm
# vllm serve HuggingFaceTB/SmolLM2-135M-Instruct --host 127.0.0.1 --port 8000 \
#     --enable-lora --max-lora-rank 8 --lora-modules tickets=./adapter
# ```
#
# All of them answer at `/v1/chat/completions`, so our test file guards them too: set `DESK_URL` and `DESK_MODEL`. For
# Ollama and llama.cpp check that the template has survived the conversion. You have seen what one space can do.
#
# By default none of these servers asks who is calling, so keep them on loopback until something in front checks that.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The model card
#
# A [model card](glossary.md#model-card) tells people who were not there what the model is for, what it was trained and
# tested on, and where it fails. It is the `README.md` of the folder. Its head is for programs, and the Hugging Face hub
# builds its pages from it. `ModelCard.load` reads the card back, as the hub would.

# %%
of = {"dataset_type": "desk-questions", "dataset_name": "75 held-out questions"}
score = {"metric_type": "accuracy", "metric_value": round(float(right) / 75, 3)}
result = EvalResult(task_type="text-classification", **of, **score)
data = ModelCardData(license="mit", model_name="desk", eval_results=[result])
text = f"""---
{data.to_yaml()}
---
**For:** sorting English questions to the desks {", ".join(DESKS)}.
**Not for:** other languages, or answers that nobody can correct.
**Data:** 120 questions, 40 a desk. **Method:** LoRA, 60 steps, merged in fp32.
**Tested:** {right} of 75 right ({interval.low:.0%} to {interval.high:.0%}).
**Fails:** on programming questions that show no code in backticks.
"""
ModelCard(text).save(work / "desk" / "README.md")
card = ModelCard.load(work / "desk" / "README.md")
print(card.data.model_name, card.data.eval_results[0].metric_value)
print(card.text.strip())

# %% [markdown] slideshow={"slide_type": "slide"}
# ## See when the work changes
#
# After the release nobody tells you the right answers, so you cannot log accuracy. Log numbers that need no answer key,
# and compare each week with the week of the release. If questions change, which is called
# [drift](glossary.md#drift), some of these numbers change too.
#
# Suppose that a new web form strips all backticks from the questions. The log has a line for each request: its length,
# the answer, whether the answer was usable, and the model's [confidence](glossary.md#confidence), the probability of
# the likeliest first token. (In a real service each line also has the date and the seconds.) **Which of these numbers
# will show the change?**


# %%
def log_of(questions):
    log = pd.DataFrame({"desk": answers(loaded, questions)})
    log["unknown"] = log.desk.eq("unknown")
    log["tokens"] = prepared(questions).attention_mask.sum(1)
    with torch.no_grad():
        last = loaded(**prepared(questions)).logits[:, -1]
    return log.assign(confidence=last.softmax(-1).amax(-1))


stripped = held_out.question.str.replace("`", "")
weeks, truth = {}, {}
for week, texts in {"release": held_out.question, "new form": stripped}.items():
    log = log_of(texts)
    means = log[["tokens", "unknown", "confidence"]].mean()
    weeks[week] = pd.concat([means, log.desk.value_counts(normalize=True)])
    truth[week] = int((held_out.desk == log.desk.to_numpy()).sum())
print(pd.DataFrame(weeks).round(2).to_string())
print("right of 75, which the service does not know:", truth)

# %%
more = weeks["new form"]["other"] - weeks["release"]["other"]
lost = truth["release"] - truth["new form"]
course.claim("Over 5 answers are lost, and 'other' gets more", min(lost, 75 * more) > 5)

# %% [markdown] slideshow={"slide_type": "subslide"}
# No answer is invalid and the model is nearly as confident as before, although it now sends ten questions more to the
# wrong desk. The log shows the change in the *shares of the answers*: the desk for everything else gets more. It is the
# shortcut of lesson 1, since backticks told the model that a question is about programming.
#
# On 75 questions a shift like this may be chance, but not on a week's thousands. A shift says that something has
# changed and not that the model is wrong, so the next step is to label 50 of the new questions by hand, count, and add
# them to the test.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Ship one folder: merged weights, tokenizer, template, card. Compare the logits after the merge and the weights after
#   loading.
# - Test the served model, because a fault in template, format or server leaves the weights intact. Choose the threshold
#   by the binomial distribution and say what the test cannot see: 20 questions notice only a drop of over 20 points.
# - Validate every answer, and log lengths, invalid answers, confidence and the shares of the answers.
#
# ## Further reading
#
# - Hugging Face, [serving with transformers](https://huggingface.co/docs/transformers/main/en/serving) and [model
#   cards](https://huggingface.co/docs/hub/model-cards)
# - Mitchell et al. 2019, [Model Cards for Model Reporting](https://arxiv.org/abs/1810.03993)
# - Kwon et al. 2023, [Efficient Memory Management for Large Language Model Serving with
#   PagedAttention](https://arxiv.org/abs/2309.06180), the idea behind vLLM
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
# **Exercise 19.1** (first steps). You want to serve a model of 1.5 billion parameters with NF4 weights. Of these, 0.2
# billion belong to the embedding and stay in bf16. All others take 4 bits each, and each block of 64 of them has a
# scale in fp32. How many GB (10^9 bytes) do weights and scales take?

# %%
answer = None
# your code here
course.check("ex19_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 19.2** (apply it). The ticket model of lesson 12 answers with JSON, for example `{"crate": "tokio",
# "version": "1.40.0", "system": null, "kind": "slow"}`. Write the parser that stands between the model and your
# program. It gets the text of an answer and the set of allowed kinds. Other text may stand before and behind the JSON
# object, but not between braces. Return a dict with exactly the four keys. Return an empty dict if there is no valid
# object, a key is missing, the kind is not allowed, the crate is not a string, or one of version and system is neither
# a string nor null.

# %%
import json


def read_ticket(text, kinds):
    """The four fields of a ticket, or an empty dict."""
    # your code here


course.check("ex19_2", read_ticket)

# %% [markdown]
# Previous: [18 · Scaling out](18_scaling_out.ipynb) ·
# Next: [20 · Your own project](20_your_own_project.ipynb)
