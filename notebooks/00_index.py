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
# | **Part 1: Look inside** | | |
# | [1 · What can this machine do?](01_setup_and_devices.ipynb) | What can this machine do, and did the weights load? | 3 |
# | [3 · Data and a baseline to trust](03_data_and_baseline.ipynb) | What is measured before training, and how sure is it? | 4 |
# | **Part 2: Choose what to train** | | |
# | [4 · Full fine-tuning](04_full_fine_tuning.ipynb) | What does training everything gain, and what does it cost? | 6 |
# | [5 · Freeze the lower layers](05_freeze_lower_layers.ipynb) | Why does freezing half the blocks save so little? | 4 |
# | [6 · Freeze the embeddings](06_freeze_embeddings.ipynb) | What else is frozen when the head is tied? | 3 |
# | [7 · Train the last layers only](07_last_layers.ipynb) | What was in the published 29,865,088? | 4 |
# | [8 · LoRA and BitFit](08_lora.ipynb) | Why do few trainable values not mean little work? | 4 |
# | [9 · QLoRA](09_qlora.ipynb) | What do weights of 4 bits cost, what do they save, and when do they not pay? | 5 |
# | **Part 3: Make it fit** | | |
# | [12 · Anatomy of a training step](12_memory_anatomy.ipynb) | Where does every byte go? | 5 |
# | [13 · Out of memory](13_oom_fallback.ipynb) | Can training go on after it ran out of memory, without losing a step? | 15 |
# | **Part 4: Know what is true** | | |
# | [14 · The comparison](14_comparison.ipynb) | Which differences between strategies are real? | 20 |
# | [15 · The autopsy](15_autopsy.ipynb) | How can five reports, full of numbers, be wrong? | 6 |
# | **Part 5: For real** | | |
# | [20 · Scaling out](20_scaling_out.ipynb) | What do more cards and more machines change, and what do they leave as it is? | 5 |
#
# About 84 minutes in all, reading included; quiz and exercises come on top. The lessons build on one another, so
# take them in order the first time. Lessons 2, 10, 11, 16, 17, 18, 19 and 21 are still to be written.
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
