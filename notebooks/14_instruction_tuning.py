# %% [markdown] slideshow={"slide_type": "slide"}
# # 14 · Instruction tuning
#
# *How does a model learn to answer, and to stop?*
#
# Our models have continued running text so far. Now we want to ask a question and get an answer. Technically little
# changes, because an answer is also a continuation. But three things have to be right: how question and answer become
# one text, which tokens the model learns from, and how it knows where to stop. You will get the third one wrong on
# purpose, and the training loss will not tell you. At the end you write direct preference optimisation (DPO).
#
# **You will be able to**
#
# - turn conversations into tokens and labels with a chat template, and train on the answers only;
# - find out whether a model stops, answers and refuses as it should, and why one does not stop;
# - write DPO in plain PyTorch, and say what it changes.
#
# **You need** [lesson 2](02_inside_a_language_model.ipynb) (tokens and the loss) and
# [lesson 4](04_full_fine_tuning.ipynb) (a training loop).
#
# About 35 minutes.

# %% slideshow={"slide_type": "subslide"}
import copy

import matplotlib.pyplot as plt
import pandas as pd
import torch
from torch.nn.functional import logsigmoid
from torch.optim.lr_scheduler import OneCycleLR
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

import course
import tlkit as tl
from course.lesson14.pictures import token_view

profile = tl.setup()
folder = tl.DATA / "answers"
train = pd.read_json(folder / "train.jsonl", lines=True)
held_out = pd.read_json(folder / "test.jsonl", lines=True)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The course comes with conversations that were written for it. Most ask about Rust. The others always get the same
# answer: *I only answer questions about Rust.* No topic is in two splits. To keep the lesson fast, we train on 160
# short ones and ask 30 questions of the test split, a third of each kind.

# %%
amounts = {"refuse": 36, "one_word": 60, "explain": 64}
train = pd.concat([train[train.form == f].head(n) for f, n in amounts.items()])
asked = pd.concat([held_out[held_out.form == f].head(10) for f in amounts])
for row in train.groupby("form").head(1).itertuples():
    print(f"[{row.form}] {row.prompt}\n    -> {row.completion}\n")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## From messages to one text
#
# A *chat template* is a small program, in the language Jinja, that turns the messages of a conversation into one text.
# It is stored with the tokenizer, because a chat model has learned to read exactly this form. Our tiny model has none,
# so we write a very plain one. In it `eos_token` stands for `<|endoftext|>`. This is a single token, the *end token*:
# generation stops when the model writes it.

# %%
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
tokenizer.chat_template = (
    "{% for message in messages %}"
    "{% if message.role == 'user' %}{{ 'Question: ' + message.content + '\nAnswer:' }}"
    "{% else %}{{ ' ' + message.content + eos_token }}{% endif %}{% endfor %}"
)


def as_text(question, answer=None):
    """A question with its answer, or up to where the answer begins."""
    said = [{"role": "user", "content": question}]
    if answer is not None:
        said.append({"role": "assistant", "content": answer})
    return tokenizer.apply_chat_template(
        said, tokenize=False, add_generation_prompt=answer is None
    )


print(as_text("Which keyword makes a variable mutable?", "mut"))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Real chat models mark the beginning and the end of each message with special tokens, such as `<|im_start|>` and
# `<|im_end|>` in SmolLM2-Instruct, where the second is the end token. **Always use the model's own template**, in
# training and in use. With another one you ask the model in a form that it has never read.
#
# ## The loss on the answer
#
# Let $x_1, \ldots, x_T$ be the tokens of a conversation and $A$ the set of places whose token the model learns to
# predict: the answer and its end token. The loss is the mean over these places,
#
# $$L = -\frac{1}{|A|} \sum_{t \in A} \log p(x_t \mid x_1, \ldots, x_{t-1}).$$
#
# The answer is predicted from the question, but the model is not trained to write questions. Over a batch, the mean is
# taken over all labels at once. Libraries describe $A$ by a list of *labels* as long as the list of tokens. It holds
# the token at the places in $A$ and $-100$ everywhere else, because PyTorch's cross-entropy ignores $-100$. The model
# shifts the labels by one itself.
#
# The next cell tokenises the part before the answer separately. Otherwise the tokenizer could join the end of the
# question and the beginning of the answer into one token, which the model would never see in use.


# %%
def encode(question, answer):
    """Tokens and labels of one question and its answer."""
    start, whole = as_text(question), as_text(question, answer)
    read = tokenizer(start, add_special_tokens=False).input_ids
    learned = tokenizer(whole[len(start) :], add_special_tokens=False).input_ids
    return {"input_ids": read + learned, "labels": [-100] * len(read) + learned}


examples = list(map(encode, train.prompt, train.completion))
token_view(**examples[-1], tokenizer=tokenizer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Look at one example like this before every training. The grey tokens are only read, the blue ones are learned, and the
# dark one is the end token, which must be learned too. `·` stands for a space and `⏎` for a line break.
#
# Conversations differ in length, so a batch needs *padding*: tokens without meaning that fill each row up to the
# longest one. `DataCollatorForSeq2Seq` pads the tokens with the padding token and the labels with $-100$.
#
# ## Training, once right and once with a mistake
#
# Our tokenizer has no padding token of its own and uses its end token, as many do. So
# `labels[input_ids == pad_token_id] = -100`, which is meant for the padding, also hides **the end of every answer**.
# `DataCollatorForLanguageModeling` contains such a line. We train two copies of the model for one epoch: *answers* with
# the right labels, and *end masked* with this mistake.
#
# **Predict first.** Will the training loss show the mistake? Will the perplexity on new answers?

# %%
collate = DataCollatorForSeq2Seq(tokenizer)
untouched = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)


def step(model, optimizer, loss):
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def tune(mask_end=False):
    """One epoch, eight conversations in a step; the model and its losses."""
    model, losses = copy.deepcopy(untouched), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0))
    schedule = OneCycleLR(optimizer, 2e-3, total_steps=20, pct_start=0.1)
    for rows in order.split(8):
        batch = collate([dict(examples[row]) for row in rows])
        if mask_end:
            batch["labels"][batch["input_ids"] == tokenizer.pad_token_id] = -100
        loss = model(**batch).loss
        step(model, optimizer, loss)
        schedule.step()
        losses.append(loss.item())
    return model.eval(), losses


models = {"untouched": untouched.eval()}
for name, mask_end in {"answers": False, "end masked": True}.items():
    models[name], losses = tune(mask_end)
    last = sum(losses[-5:]) / 5
    print(f"{name}: {losses[0]:.1f} nats at first, {last:.1f} in the last 5 steps")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Nothing in these losses looks wrong. Now the three models answer the 30 test questions, all in one batch. In
# generation the padding belongs on the *left*, because the model continues each row at its right end. The models always
# write the most likely token (*greedy decoding*), at most 28 tokens.


# %%
@torch.no_grad()
def write(model, prompts, limit=28):
    """The tokens that a model answers, shape (prompts, tokens)."""
    texts = [as_text(prompt) for prompt in prompts]
    batch = tokenizer(texts, padding=True, padding_side="left", return_tensors="pt")
    written = model.generate(**batch, max_new_tokens=limit, do_sample=False)
    return written[:, batch.input_ids.shape[1] :]


@torch.no_grad()
def perplexity(model, rows):
    """Over all labels of some rows at once."""
    nats, labels = 0.0, 0
    for start in range(0, len(rows), 12):
        batch = collate([dict(row) for row in rows[start : start + 12]])
        count = (batch["labels"][:, 1:] != -100).sum()
        nats, labels = nats + model(**batch).loss * count, labels + count
    return (nats / labels).exp().item()


true_answers = list(map(encode, asked.prompt, asked.completion))
texts, rows = {}, {}
about_rust = (asked.form != "refuse").to_numpy()
for name, model in models.items():
    tokens = write(model, asked.prompt)
    texts[name] = tokenizer.batch_decode(tokens, skip_special_tokens=True)
    stopped = (tokens == tokenizer.eos_token_id).any(1).double()
    refused = pd.Series(texts[name]).str.contains("only answer questions about Rust")
    rows[name] = {
        "perplexity": perplexity(model, true_answers),
        "stopped, %": 100 * stopped.mean().item(),
        "empty, %": 100 * sum(not text.strip() for text in texts[name]) / len(asked),
        "refused, other subject, %": 100 * refused[~about_rust].mean(),
        "refused, Rust, %": 100 * refused[about_rust].mean(),
    }
table = pd.DataFrame(rows).T
table.round(1)

# %%
course.claim(
    "With the end masked no answer stops; with right labels more than half do",
    table["stopped, %"]["end masked"] == 0 and table["stopped, %"]["answers"] > 50,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **A model that stops has not necessarily answered.** The untouched model stops as often as *answers*, because in
# pretraining the end token separated documents, but 43% of its answers are empty: the end token is the first that it
# writes. With the right labels, 73% of the answers stop, 10% are empty, and the model refuses 7 of 10 questions about
# other subjects and none of the 20 about Rust. With the end masked it has learned nearly the same, by perplexity (49
# against 40) and by refusals, but **not one of its answers stops**.
#
# Even perplexity hardly shows the mistake, because an end is one token of many. So we look at the end token alone, at
# the places where the true answers end:

# %%
ends = [
    {**row, "labels": [-100] * (len(row["labels"]) - 1) + row["labels"][-1:]}
    for row in true_answers
]
for name, model in models.items():
    print(f"{name}: {1 / perplexity(model, ends):.5f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# These are geometric means of its probability. Right labels have raised it, and the mistake has lowered it far below
# that of the untouched model. No label was the end token, and a step that makes one token more likely makes all others
# less likely. So nearly every step pushed the end token down. **The training loss cannot show this**, because it leaves
# out exactly the tokens that are wrong. Ask the trained model a few questions, and print the labels of one batch before
# you train.

# %%
for number in (0, 11, 24):
    print("?", asked.prompt.iloc[number])
    for name in texts:
        print(f"   {name}: {texts[name][number][:80]!r}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The two trained models write what looks like an answer: the refusal, or a sentence with names from code. What they say
# about Rust is nonsense, because the tiny model read nothing about Rust in pretraining, and 160 examples do not change
# that. It also falls into loops.
#
# A refusal is always the same sentence, so it is quickly learned and easily overdone. If you train a model to refuse,
# always measure how often it refuses what it should answer.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## On a model that knows more
#
# We recorded the same with SmolLM2-135M-Instruct: LoRA on 200 conversations, one epoch, three seeds, 40 test questions
# and answers of up to 96 tokens. **Predict first**: which of these numbers change?

# %%
recorded = tl.recorded_comparison("smollm2-135m-instruct", task="answer")
chat = recorded.table.set_index("strategy")
shown = ["perplexity", "stopped", "answer_tokens", "in_form", "rust_accuracy"]
chat.loc[["zero-shot", "lora"], shown].astype(float).T.round(2)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **The form changes, and the knowledge does not.** Only one in eight of the untouched model's answers ends within 96
# tokens. After 200 examples 95% do, they are about half as long, and 65% instead of 17% have the form that was asked
# for: one word, code in a block, or the refusal. Perplexity halves. But `rust_accuracy`, the share of right answers to
# 384 questions about Rust with four options, stays at 20%, no better than guessing: its change lies between -4 and +4
# points. Most of what a model knows comes from pretraining, and instruction tuning teaches it how to show it.
#
# At work, the library TRL runs this loop for you (not run here):
#
# ```python
# from trl import SFTConfig, SFTTrainer
#
# arguments = SFTConfig(completion_only_loss=True, max_length=1024, learning_rate=2e-4)
# SFTTrainer(model, args=arguments, train_dataset=dataset).train()
# ```
#
# `dataset` has the columns "prompt" and "completion". `max_length` cuts longer rows, and with them the ends of their
# answers, without a warning. So look at a batch of `trainer.get_train_dataloader()` here, too.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Preferences, in thirty lines
#
# Examples show a model what to write, but not what to avoid. *Preference optimisation* learns from pairs of answers to
# one question, of which one is better. Here the better one is short and right, and the other is long and vague.

# %%
pairs = pd.read_json(folder / "preferences.jsonl", lines=True).set_index("split")
first = pairs.loc["train"].iloc[0]
print(f"? {first.prompt}\n\nwon:  {first.chosen}\n\nlost: {first.rejected}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Direct preference optimisation compares how likely both answers are under the model in training, $\pi$, and under a
# frozen copy of it from before, the *reference* $\pi_0$:
#
# $$m = \log \frac{\pi(y_w \mid x)}{\pi_0(y_w \mid x)} - \log \frac{\pi(y_l \mid x)}{\pi_0(y_l \mid x)}, \qquad
# L = -\log \sigma(\beta\, m).$$
#
# $x$ is the question, $y_w$ the preferred answer ("won"), $y_l$ the other one ("lost") and $\sigma$ the sigmoid
# function. An answer's log-probability is the sum over its tokens, so the *margin* $m$ says by how many nats the
# preferred answer has risen more than the other. At the start $m = 0$ and the loss is $\log 2 \approx 0.69$. It falls
# as $m$ grows, and $\beta$ sets how fast: with $\beta = 0.1$, a margin of 10 nats brings it down to 0.31.


# %%
def log_probability(model, batch):
    """The summed log-probability of each answer, shape (rows,)."""
    log_p = model(input_ids=batch["input_ids"][:, :-1]).logits.log_softmax(-1)
    labels = batch["labels"][:, 1:]  # the output at a place predicts the next token
    chosen = log_p.gather(2, labels.clamp(min=0)[..., None])[..., 0]
    return (chosen * (labels != -100)).sum(1)


def changes(model, reference, few):
    """By how many nats the answers that won and lost have become more likely."""
    both = []
    for answers in (few.chosen, few.rejected):
        batch = collate(list(map(encode, few.prompt, answers)))
        with torch.no_grad():
            before = log_probability(reference, batch)
        both.append(log_probability(model, batch) - before)
    return both


def dpo_loss(won, lost, beta=0.1):
    """The mean loss of some pairs."""
    return -logsigmoid(beta * (won - lost)).mean()


reference = models["answers"]
policy, losses = copy.deepcopy(reference), []
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4, weight_decay=0.0)
for start in range(0, 36, 6):
    few = pairs.loc["train"].iloc[start : start + 6]
    loss = dpo_loss(*changes(policy, reference, few))
    step(policy, optimizer, loss)
    losses.append(loss.item())
print("loss, step by step:", *(f"{loss:.2f}" for loss in losses))

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** On 24 pairs about other topics, will the preferred answers now be more likely than before? Each
# point of the chart is a pair; below the dashed line its margin has widened.

# %%
with torch.no_grad():
    won, lost = changes(policy, reference, pairs.loc["test"])
figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
axes.scatter(won, lost)
axes.axvline(0, color="gray", linewidth=1)
axes.axline((0, 0), slope=1, color="gray", linestyle="--")
axes.set(xlabel="preferred: change of log-probability (nats)", ylabel="other (nats)")
wider, lower = (won > lost).sum(), (won < 0).sum()
axes.set_title(f"{wider} of 24 margins widen; {lower} good answers are less likely now")
plt.show()

# %%
course.claim(
    "DPO widens nearly every margin, though most good answers become less likely",
    wider >= 22 and lower > 12,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# After six steps the margin has widened for all 24 pairs, though their topics are new. But the loss depends on the
# margin alone, which also widens when **both answers become less likely** and the worse one loses more. That has
# happened to 16 of the 24 pairs.
#
# The two answers of a pair differ much in length, and a sum over more tokens moves more, so this model may only have
# learned to prefer short answers. DPO also costs memory: two sequences for each pair, and a second model. With LoRA the
# second one is not needed, because the model with its adapter switched off is the reference, if the adapter was new.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - The model's own chat template turns a conversation into one text, and labels of -100 keep the loss on the answer.
# - The end token needs a label. Without it the model never stops, and the training loss does not show it.
# - DPO widens the margin between two answers. It can do so while both become less likely.
#
# ## Further reading
#
# - C. Zhou et al., [LIMA: Less Is More for Alignment](https://arxiv.org/abs/2305.11206), 2023: a thousand good examples.
# - R. Rafailov et al., [Direct Preference Optimization](https://arxiv.org/abs/2305.18290), 2023.
# - A. Pal et al., [Smaug: Fixing Failure Modes of Preference Optimisation](https://arxiv.org/abs/2402.13228), 2024: why
#   preferred answers can become less likely.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex14_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** A fine-tuned chat model writes a good answer, but then goes on with a question of its own, answers that, and
# so on until the limit. The training loss was low. What is the most likely reason?
#
# - **a** The learning rate was too high.
# - **b** The end token of the answers carried no label.
# - **c** The model was trained for too few epochs.
# - **d** The answers in the training data are too long.

# %%
course.quiz("quiz14")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 14.1.** Write a function that makes the labels of one row. It gets the row's token ids as a list, the
# number of tokens at the beginning that are only read, and the number of tokens of the whole conversation with its end
# token. Everything after these is padding. It returns a list as long as the row, with $-100$ where nothing is learned.


# %%
def labels_of(tokens, only_read, length):
    """The labels of one row."""
    # your code here


course.check("ex14_1", labels_of)

# %% [markdown]
# Previous: [13 · Classification](13_classification.ipynb) ·
# Next: [15 · The comparison](15_comparison.ipynb)
