# %% [markdown] slideshow={"slide_type": "slide"}
# # 19 · Ship it
#
# *How does a tuned model become a service that others can rely on?*
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
# About 32 minutes.

# %% slideshow={"slide_type": "subslide"}
import atexit
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from huggingface_hub import ModelCard, ModelCardData
from scipy.stats import binom, binomtest, chi2_contingency
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl
from course.lesson19.desk import desk_adapter, free_port

tl.setup()
work, log_folder = Path("desk-service"), Path("desk-logs")  # beside this notebook
log_folder.mkdir(exist_ok=True)
files = Path(course.__file__).parent / "lesson19/desk_service"
_ = shutil.copytree(files, work, dirs_exist_ok=True)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Start a server
#
# ![Base model and adapter become a folder; server, tests and your program with its log use it](images/ship.svg)
#
# `transformers serve` (`pip install "transformers[serving]"`) speaks the protocol of OpenAI's API, as llama.cpp, Ollama
# and vLLM do, so one client can talk to all. It needs some seconds, so we start it now. A request names a folder in
# `desk-service`, and the server loads that model.
#
# Only programs on this machine can reach 127.0.0.1. Leave it so, because the server asks for no password, and whoever
# reaches it can unload the model. Let others in through a proxy with a login, and only to `/v1/chat/completions` and
# `/health`.

# %%
port = free_port()  # at work a fixed one, such as 8000
command = [sys.executable, "-m", "transformers.cli.transformers", "serve"]
command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
# It downloads nothing, and writes any errors into server.log.
env = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1"}
with (log_folder / "server.log").open("w", encoding="utf-8") as log:
    server = subprocess.Popen(command, cwd=work, env=env, stdout=log, stderr=log)
_ = atexit.register(server.kill)  # if you stop before the end

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The model that we ship
#
# The job is that of lesson 1: a question comes in, and the model names one of three desks. (String counting had more
# right answers there, so at work we would ship that.) `desk_adapter` repeats that lesson's training of a LoRA adapter,
# with 120 questions in 60 steps.
#
# In lesson 1 a function added `This is a question about` to each question. Our callers do not have this function, so
# the words go into the [chat template](glossary.md#chat-template), which is saved with the tokenizer. The *response
# template* tells the server where the answer begins and ends.

# %%
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED, padding_side="left")
words = "This is a question about"
tokenizer.chat_template = "{{ messages[-1]['content'] }} " + words
tokenizer.response_template = {
    "start_anchor": words,  # the answer begins after these words
    "fields": {"content": {"close": tokenizer.eos_token}},  # and ends before this token
}
adapted, training, held_out = desk_adapter(tokenizer)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Merge it, and check it
#
# One model is simpler to ship than a base and an adapter, so we [merge](glossary.md#merging) the two. Then we check
# that the merged model gives the same [logits](glossary.md#logit) as before, and that the model loaded from the folder
# has the same weights. **Which should hold exactly, and which only nearly?**

# %%
batch = tokenizer(list(held_out.question[:8]), padding=True, return_tensors="pt")
with torch.no_grad():
    beside = adapted(**batch).logits
    merged = adapted.merge_and_unload(safe_merge=True)  # stops at inf or nan
    difference = (merged(**batch).logits - beside).abs().max().item()
course.claim("The merged model gives the adapter's logits to 1e-3", difference < 1e-3)
merged.save_pretrained(work / "desk")
tokenizer.save_pretrained(work / "desk")
loaded = AutoModelForCausalLM.from_pretrained(work / "desk", dtype=torch.float32)
pairs = zip(merged.parameters(), loaded.parameters(), strict=True)
equal = [torch.equal(*pair) for pair in pairs]
print(f"{sum(equal)} of {len(equal)} tensors are equal after loading")

# %% [markdown] slideshow={"slide_type": "slide"}
# The logits agree only nearly: merging computes $W + \frac{\alpha}{r} BA$ once, so sums are rounded in another order.
# Saving and loading round nothing, so the weights must be equal.
#
# ## Validate every answer
#
# A model can write anything, but its caller needs one of three names. So `desk_of` turns any other answer into
# `unknown`, and the caller can give the question to a person. Of `asking.py`, printed first, read only `desk_of` and
# `ask` for now. Then we ask the model in memory, to know which answers to expect of the server.

# %%
print((work / "asking.py").read_text("utf-8"))
sys.path.append(str(work))  # so that Python finds asking.py
from asking import DESKS, ask, connect, desk_for, desk_of


def answers(model, questions):
    chats = [[{"role": "user", "content": question}] for question in questions]
    texts = tokenizer.apply_chat_template(chats, tokenize=False)
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    written = model.generate(**batch, max_new_tokens=3, do_sample=False)
    ends = written[:, batch.input_ids.shape[1] :]
    return [desk_of(t) for t in tokenizer.batch_decode(ends, skip_special_tokens=True)]


named = answers(loaded, held_out.question)
right = int((held_out.desk == named).sum())
low, high = binomtest(right, 75).proportion_ci(method="wilson")
score = f"{right} of 75, {right / 75:.0%} (95% Wilson interval {low:.0%} to {high:.0%})"
print(score)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Ask over HTTP
#
# **Put a question of your own into `mine`.**

# %%
url = f"http://127.0.0.1:{port}/v1"
client = connect(url)
mine = "What does `import os` do?"
print(ask(client, "desk", mine), "|", mine)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How many questions does a test need?
#
# A [regression test](glossary.md#regression-test) stops a version that does something worse than the last one. *At
# every start* a service has the released model, so the first test wants the same answers as at the release. If they
# differ, something around the model has changed, such as template or server. *A new model* may answer differently. So
# the second test asks it $n$ held-out questions and fails if fewer than $k$ answers are right.
#
# Suppose that the accuracy is exactly our 92%. If we draw $n$ questions again and again, the number of right answers
# follows a *binomial distribution*. We choose the largest $k$ for which an unchanged model fails in less than 2.5% of
# the draws: `binom.ppf(0.025, n, 0.92)`, which is 64 for our 75 (in the chart, `64 of 75`). **How low must a new
# model's accuracy be before this test fails four times out of five? And with 20 questions?**

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
axes.set(xlabel="true accuracy (%)", ylabel="test fails (% of draws)", xlim=(49, 99))
axes.set_title("Twenty questions notice a disaster; a drop of 5 points needs 300")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# With 75 questions it must be at 81%, a drop of 11 points, and with 20 at 69%, a drop of 23. The chance of noticing a
# real drop is the test's [power](glossary.md#power). To see half the drop, you need about four times the questions.
#
# So a third test gets more from the same 75: it compares old and new model in pairs. [McNemar's
# test](glossary.md#mcnemars-test) of [lesson 13](13_classification.ipynb) looks only at the questions that just one of
# them gets right. A fair coin loses five and wins none in $0.5^5 = 3\%$ of cases. That is below 5%, so the test stops a
# new model at five lost and none won, or at seven lost and one won.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The tests, and two more releases
#
# | in `desk-service` | content |
# |---|---|
# | `asking.py` | the functions above; run by itself, it records the answers of a new release |
# | `release.json` | our 75 questions, their desks, and the release's answers, so far those in memory |
# | `test_desk.py` | the three tests; pytest passes them what the *fixture* `rows` returns |
#
# At work the server runs in this folder, for `desk` alone, and a second terminal tests it (Linux or macOS):
#
# ```text
# HF_HUB_OFFLINE=1 transformers serve desk --host 127.0.0.1 --port 8000
#
# export DESK_URL=http://127.0.0.1:8000/v1 DESK_MODEL=desk
# pytest test_desk.py -k every_start  # each time that the service starts
# ```
#
# A new model, say `desk-new`, is served on a second port and tested by `-k new_model`. If it passes, copy
# `release.json` into the folder `desk`, so that you can go back. Restart the server on port 8000 with `desk-new`, the
# name that your program must now ask for. Then `export DESK_MODEL=desk-new` and `python asking.py` record its answers.

# %%
known = held_out.assign(answer=named)[["question", "desk", "answer"]]
known.to_json(work / "release.json", orient="records")
print((work / "test_desk.py").read_text("utf-8"))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Then we make a broken release, `desk-2`. It has the same weights, but its template has *one space more* at the end.
# **Will this cost a few answers, or most of them?**


# %%
def tested(name):
    """What pytest says at the end, without the seconds."""
    command = [sys.executable, "-m", "pytest", "-q", "--color=no"]
    env = os.environ | {"DESK_URL": url, "DESK_MODEL": name}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # none is needed, and some load slowly
    run = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True)
    return run.stdout.splitlines()[-1].partition(" in ")[0]


shutil.copytree(work / "desk", work / "desk-2", dirs_exist_ok=True)
template = work / "desk-2/chat_template.jinja"
template.write_text(tokenizer.chat_template + " ", encoding="utf-8")
verdicts = {name: tested(name) for name in ("desk", "desk-2")}
print(verdicts)
course.claim("Served, it answers as in memory", verdicts["desk"] == "3 passed")
broken = [ask(client, "desk-2", question) for question in held_out.question[::15]]
print("texts of desk-2:", broken)

# %% [markdown] slideshow={"slide_type": "slide"}
# It costs them all: the texts of `desk-2` are empty, and every test fails. In training, the answer began with a token
# that contains a space, such as ` Python`. Now the space at the end of the prompt is a token of its own, which the
# model never saw there, and it ends its text at once. No error is raised: without a test, your callers notice it first.
#
# The next release is to need less memory: each row of a matrix is rounded to seven values, for which 3 bits would be
# enough. We count in memory, as the answers are those of the server. **Would both tests for new models let it pass, and
# would you?**

# %%
with torch.no_grad():
    for matrix in (p for p in loaded.parameters() if p.dim() == 2):
        step = matrix.abs().amax(1, keepdim=True) / 3  # one for each row
        matrix.copy_((matrix / step).round() * step)  # from -3 to 3 steps
was, now = known.answer == known.desk, known.desk == answers(loaded, known.question)
lost, won = int((was & ~now).sum()), int((now & ~was).sum())
p = binomtest(lost, lost + won, alternative="greater").pvalue
print(f"{now.sum()} of 75 right, {lost} lost, {won} won, p = {p:.2f}")

# %% [markdown] slideshow={"slide_type": "slide"}
# Both would let it pass, but barely: 64 is the fewest allowed, and six lost to one won gives p = 0.06. If its true
# accuracy is the 85% that we see, the second test fails in only 42% of the draws, but with 300 questions in 94%. So ask
# 300 before you ship it.
#
# ## See when the questions change
#
# After the release nobody tells you the right answers, but your program can keep a log, one line of JSON for each
# request. (Questions can contain personal data, so decide who may read it.) `desk_for` of `asking.py` asks, logs, and
# answers `unknown` if the server fails. Suppose that a week later the 75 questions come through a new web form, which
# strips all backticks. **How many answers will the form change?**

# %%
path = log_folder / "web_form.jsonl"
path.unlink(missing_ok=True)  # of an earlier run of this cell
for question in known.question:
    desk_for(client, "desk", question.replace("`", ""), path)
log = pd.read_json(path, lines=True)
print(pd.crosstab(known.answer.rename("release"), log.desk.rename("web form")))
still_right = int((log.desk == known.desk).sum())
print(f"{still_right} of 75 right, and {right} at the release")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Twelve answers change, eight of them from Rust to `other`, and ten fewer are right. In training, 69 of the 80
# questions on Python and Rust had a backtick, and none of the 40 others, so a Rust question without one looks like
# `other`. All 18 Python questions with the word Python keep their desk.
#
# A real week brings new questions, so only *shares* can be compared: how often each desk is named, or how many
# questions have some feature, such as a backtick. A change of the questions is called [drift](glossary.md#drift). The
# p-value of `chi2_contingency` says how often two weeks with the same true shares differ at least this much. We raise
# an alarm below 0.01. **Do the desks raise it, or the backticks? And with four times as many questions?**

# %%
weeks = {"release": known.assign(desk=known.answer), "web form": log}
both = pd.concat(weeks, names=["week"]).reset_index("week")
for seen in (both.desk, both.question.str.contains("`").rename("backtick")):
    counts = pd.crosstab(seen, both.week)
    p, p_of_four = (chi2_contingency(n * counts).pvalue for n in (1, 4))
    print(f"{counts}\np-value: {p:.2g}, with four times as many {p_of_four:.1g}\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# With 75 questions a week only the backticks raise it. With 300 the desks do, too. So watch the answers and a few
# features of the questions, such as length or language, but each adds a false alarm in about 100 weeks. An alarm does
# not say that the model is wrong, so label some questions by hand.
#
# ## Other servers
#
# For many users on a GPU there is [vLLM](https://docs.vllm.ai/en/latest/features/lora.html), where each request can
# pick its adapter. llama.cpp serves without Python, but needs one [GGUF](glossary.md#gguf) file (by
# `convert_hf_to_gguf.py` and `llama-quantize`), and refuses unknown tokenizers such as our small model's.
#
# We converted a SmolLM2 after 24 steps on lesson 12's reports. With 16 bits, its answers to 24 validation reports stay
# the same. With 4 bits or more (`Q4_K_M`), eight of the 41 right fields are lost, and none is won. So run your tests
# after each conversion.
#
# ## The model card
#
# A [model card](glossary.md#model-card), the folder's `README.md`, tells what the model is for, what it was trained and
# tested on, and where it fails. To publish a model, add a `license` that agrees with those of base model and data. Our
# questions are under CC BY 4.0, so the card names title, authors and license.

# %%
text = f"""---
{ModelCardData(model_name="desk", base_model="tiny-qwen2", language="en").to_yaml()}
---
- **For:** sorting English questions to the desks {", ".join(DESKS)}.
- **Not for:** other languages, more than 256 tokens, answers that nobody can correct.
- **Method:** LoRA, 60 steps, merged, on 120 questions of "Transfer learning, hands on"
  by the workbook's authors, CC BY 4.0 (https://creativecommons.org/licenses/by/4.0).
- **Tested:** on held-out questions {score}.
- **Weak:** without backticks {still_right} of 75.
- **License:** none yet, so do not pass it on.
"""
ModelCard(text).save(work / "desk" / "README.md")
print(ModelCard.load(work / "desk" / "README.md").content)
server.kill()
server.wait()
shutil.rmtree(work / "desk-2")  # nobody should be served this release
_ = (work / "requirements.txt").write_text(
    f"transformers[serving]=={version('transformers')}\npytest=={version('pytest')}\n"
)

# %% [markdown] slideshow={"slide_type": "slide"}
# To move all, copy `desk-service` and run `pip install -r requirements.txt` there. Your program imports `connect` and
# `desk_for` from `asking.py`.
#
# ## Key ideas
#
# - Ship one folder with merged weights, tokenizer, templates and card, and validate and log every answer.
# - Test the served model, because a fault in the template leaves the weights intact. Twenty questions notice only a
#   drop of over 20 points, and 75 one of 11.
# - A model is worth a server only where it beats the best simple method, or has to write. Watch its log: a new form
#   cost ten right answers without an error.
#
# ## Further reading
#
# - Mitchell et al. 2019, [Model Cards for Model Reporting](https://arxiv.org/abs/1810.03993)
# - Breck et al. 2017, [The ML Test Score](https://research.google/pubs/pub46555/)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, unfold the hints of its card, or run `course.hint("ex19_1", 1)`. After
# *Restart Kernel* run the next cell first.

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
# running and the new release to the same questions, and `desks` lists the right ones. Return the list of reasons to
# stop, empty if the release may go out:
#
# - `"unknown"`, if the new release gives this answer more often than the old one;
# - `"all"`, if it has clearly lost over all questions;
# - then, in the order of `sorted`, the desks at which it has clearly lost.
#
# Count the questions that only the old release gets right (`lost`) and only the new one (`won`). It has clearly lost if
# `binomtest(lost, lost + won, alternative="greater")` (one-sided: gains stop nothing) has a p-value below 0.05,
# divided by the number of tests: one for each desk and one for all. If both are 0, there is nothing to test. (With
# three desks, six lost to none still pass.)

# %%
from scipy.stats import binomtest


def reasons_to_stop(old, new, desks):
    """Why the new release must not go out; an empty list if it may."""
    # your code here


course.check("ex19_1", reasons_to_stop)

# %% [markdown]
# Previous: [18 · Scaling out](18_scaling_out.ipynb) ·
# Next: [20 · Your own project](20_your_own_project.ipynb)
