# %% [markdown]
# # Transfer learning, hands on
#
# In this course you adapt a language model to a new subject. The model is small, but it was really pretrained, and the
# subject is the programming language Rust, about which it has read nothing. You do it by several methods, from training
# all of the model to LoRA and QLoRA, on the machine that you have. You should know Python and a little torch. You need
# no GPU, and a network only to install the course and to fetch the model of lesson 12.
#
# ![What each strategy gains on Rust against what it forgets, on two models](images/forgetting.png)
#
# The picture shows what the methods do to two models, the small one and one of 135 million parameters. All methods make
# both models better at Rust (further right), and all but LoRA on the larger one make them clearly worse at other text
# (further up). By the end you will be able to make such a picture for your own model and text, and to say which of its
# differences are real.
#
# The course also retraces a published experiment, in which Qwen2-0.5B, a model of half a billion parameters, was
# adapted to text about Rust. Its five reports contain mistakes that are easy to make, and easy to find once you know
# how. It used two programs, one written in Python and one in Rust. "The Python run" and "the Rust run" are named after
# the program; the text is about Rust in both.
#
# ## The lessons
#
# Each lesson asks one question, measures the answer, and explains what came out.
#
# | lesson | question | minutes |
# | --- | --- | --- |
# | **Part 1: First results** | | |
# | [1 · First fine-tuning](01_first_fine_tuning.ipynb) | Can I adapt a language model on this machine, and did its weights load? | 34 |
# | [2 · Inside a language model](02_inside_a_language_model.ipynb) | How does text become a prediction, and what does one training step change? | 37 |
# | [3 · A baseline to trust](03_baseline.ipynb) | How good is a model before training, and how sure is that number? | 33 |
# | **Part 2: What to train** | | |
# | [4 · Full fine-tuning](04_full_fine_tuning.ipynb) | How do you train a whole model, at which learning rate, and when do you stop? | 36 |
# | [5 · LoRA](05_lora.ipynb) | Can a small number of new parameters do the work of changing all the old ones? | 38 |
# | [6 · QLoRA](06_qlora.ipynb) | Can frozen weights be stored in 4 bits each, and what does the model lose by it? | 34 |
# | [7 · Freezing](07_freezing.ipynb) | What does freezing a part of a model save? | 35 |
# | [8 · The PEFT family](08_peft_family.ipynb) | Which of the many methods differ from LoRA at all, and when is another one the better choice? | 31 |
# | **Part 3: Make it fit** | | |
# | [9 · Anatomy of a training step](09_memory.ipynb) | Which bytes does a training step need, and at which moment? | 31 |
# | [10 · Out of memory](10_oom_fallback.ipynb) | Can training go on after it runs out of memory, without losing a step? | 35 |
# | **Part 4: Do the job** | | |
# | [11 · Your data](11_your_data.ipynb) | How do the files that people have become batches that a model can learn from? | 37 |
# | [12 · A real task](12_a_real_task.ipynb) | When is fine-tuning worth it? | 39 |
# | [13 · Classification](13_classification.ipynb) | What is pretraining worth when the task is to name a class? | 38 |
# | [14 · Preferences](14_preferences.ipynb) | How does a model learn which of two answers is better? | 38 |
# | **Part 5: Know what is true** | | |
# | [15 · The comparison](15_comparison.ipynb) | Which differences between strategies are real? | 32 |
# | [16 · The autopsy](16_autopsy.ipynb) | How can reports full of numbers be wrong, and how would you have noticed? | 32 |
# | [17 · The leaderboard](17_leaderboard.ipynb) | Which rows of a published leaderboard can be told apart, and what would it cost to know more? | 32 |
# | **Part 6: Beyond** | | |
# | [18 · Scaling out](18_scaling_out.ipynb) | How can several cards train one model, and what does it cost them to agree? | 37 |
# | [19 · Ship it](19_ship_it.ipynb) | How does a tuned model become a service that others can rely on? | 32 |
# | [20 · Your own project](20_your_own_project.ipynb) | How do you get from your own text and your own question to an answer that others can check? | 38 |
# | **Appendix** | | |
# | [A1 · Unfreezing schedules](A1_unfreezing_schedules.ipynb) | Must every layer learn from the first step, and at the same rate? | 21 |
#
# About 12 hours in all, with the exercises. The lessons build on one another, so take them in order the first time.
# The [glossary](glossary.md) explains the terms.
#
# ## How to work
#
# - **Work in a copy.** `make lab` opens one of each lesson, in `my_lessons`, that nobody has run yet. If you came here in
#   another way, begin each lesson with *Edit → Clear Outputs of All Cells*, because the recorded answers would spoil
#   your guesses.
# - **Run the cells from the top** with Shift+Enter. Where you meet a question in bold, answer it before you run the next
#   cell. A wrong guess that you made teaches you more than a right answer that you only read.
# - **Change something** and see what happens. Then choose *Kernel → Restart Kernel and Run All Cells*, because training
#   changes a model in place: a training cell that is run twice trains the same model twice. Your changes are saved in
#   your copy. To begin a lesson anew, delete its copy and start `make lab` again.
# - **The lessons check what they claim.** A line that begins with ✓ is a claim that was just tested on your machine. If a
#   claim does not hold there, the cell stops and says which one.
#
# ## Is everything here?
#
# The next cell looks for all parts that the lessons need.

# %% tags=["nbval-ignore-output"]
import course
from tlkit.cli import main

exit_code = main(["doctor"])

# %%
course.claim("Everything that the lessons need is here", exit_code == 0)

# %% [markdown]
# A line with [FAIL] says what is missing and how to get it. If something goes wrong later, `notebooks/troubleshooting.md`
# has a table of problems and their remedies.

# %% [markdown]
# Next: [1 · First fine-tuning](01_first_fine_tuning.ipynb)
