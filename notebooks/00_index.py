# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Transfer learning, hands on
#
# A small language model, really pretrained, is adapted to text about Rust: in several ways, on the machine you have.
# Each lesson asks one question, lets you predict the answer, and then measures it.
#
# The workbook goes over a published experiment: five reports that adapt Qwen2-0.5B, a model of half a billion values, to
# text about Rust. Some of its programs are written in Python, some in Rust. "The Python run" and "the Rust run" are named
# after the program; the text is about Rust in both.
#
# | lesson | question | minutes |
# | --- | --- | --- |
# | [1 · What can this machine do?](01_setup_and_devices.ipynb) | What can this machine do, and did the weights load? | 3 |
# | [2 · Data and a baseline to trust](02_data_and_baseline.ipynb) | What is measured before training, and how sure is it? | 4 |
# | [3 · Full fine-tuning](03_full_fine_tuning.ipynb) | What does training everything gain, and what does it cost? | 6 |
# | [4 · Freeze the lower layers](04_freeze_lower_layers.ipynb) | Why does freezing half the blocks save so little? | 4 |
# | [5 · Freeze the embeddings](05_freeze_embeddings.ipynb) | What else is frozen when the head is tied? | 3 |
# | [6 · Train the last layers only](06_last_layers.ipynb) | What was in the published 29,865,088? | 4 |
# | [7 · LoRA and BitFit](07_lora_and_bitfit.ipynb) | Why do few trainable values not mean little work? | 4 |
# | [8 · QLoRA](08_qlora.ipynb) | What do weights of 4 bits cost, what do they save, and when do they not pay? | 5 |
# | [9 · Anatomy of a training step](09_memory_anatomy.ipynb) | Where does every byte go? | 5 |
# | [10 · Out of memory](10_oom_fallback.ipynb) | Can training go on after it ran out of memory, without losing a step? | 6 |
# | [11 · The comparison](11_comparison.ipynb) | Which differences between strategies are real? | 8 |
# | [12 · The autopsy](12_autopsy.ipynb) | How can five reports, full of numbers, be wrong? | 6 |
# | [13 · Scaling out](13_scaling_out.ipynb) | What do more cards and more machines change, and what do they leave as it is? | 5 |
#
# About 63 minutes in all, reading included; quiz and exercises come on top. This page is made from the lessons;
# they build on one another, so take them in order the first time.
#
# ## How to work
#
# - **In each lesson, first *Edit → Clear Outputs of All Cells***: they come with recorded answers, which would spoil the
#   guess.
# - **Run the cells from the top**, with Shift+Enter. Where a cell says *Predict first*, write your guess down before you
#   run the next one. A wrong guess that you wrote down is worth more than a right answer that you read.
# - **Change something**, then *Kernel → Restart Kernel and Run All Cells*: training changes a model in place, so a cell
#   run twice trains twice. Model and data are only read. The lesson itself is saved as you change it: keep a copy if you
#   want the recorded answers back.
# - **What a lesson claims is checked.** A line that begins with ✓ is a claim that held just now, on your machine. Where
#   one does not hold, its cell fails and says which.
# - Lessons are sized for two CPU cores. For more data and more epochs set `TLKIT_PROFILE` before you start JupyterLab:
#   `TLKIT_PROFILE=laptop make lab`, or on Windows `set TLKIT_PROFILE=laptop` (in PowerShell
#   `$env:TLKIT_PROFILE = "laptop"`) and then the command of the README.
#
# ## Is everything here?

# %% tags=["nbval-ignore-output"]
import tlkit as tl
from tlkit.cli import main

exit_code = main(["doctor"])

# %%
tl.claim("Everything that the lessons need is here", exit_code == 0)

# %% [markdown]
# A line with [FAIL] says what is missing. The README has a table of what can go wrong and what to do.
#
# Next: [1 · What can this machine do?](01_setup_and_devices.ipynb)
