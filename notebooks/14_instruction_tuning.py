# %% [markdown] slideshow={"slide_type": "slide"}
# # 14 · Instruction tuning
#
# *How does a model learn to answer, and to stop?*
#
# In most lessons so far, our models have continued running text. Many people fine-tune for another reason: they want
# to ask a question and get an answer. Technically little changes, because an answer is also a continuation. The model
# reads the question and then predicts one token after another. But three things have to be right: how the question
# and the answer are written as one text, which tokens the model learns from, and how it knows where to stop.
#
# **You will be able to**
#
# - turn questions and answers into tokens with a chat template, and say which tokens the model learns to predict;
# - recognise five common mistakes before the first training step, and say what each would lead to;
# - measure more than the loss: whether answers stop, whether they have the form that was asked for, and whether the
#   model refuses questions that it should answer;
# - write direct preference optimisation (DPO) in plain PyTorch, and say what it changes and what it costs.
#
# **You need** [lesson 2](02_inside_a_language_model.ipynb) (tokens and the loss) and
# [lesson 4](04_full_fine_tuning.ipynb) (a training run). About 77 minutes.

# %% slideshow={"slide_type": "subslide"}
import copy
import tempfile
from dataclasses import replace

import pandas as pd
import course
import tlkit as tl
from course.lesson14 import pictures, preferences
import torch

profile = tl.setup()
base = tl.load_model("tiny")
tokenizer = base.tokenizer
corpus = tl.load_conversations("rust")
train, too_long = tl.short_enough(corpus.train, tokenizer, 256)
examples = tl.answer_examples(train, tokenizer)
pictures.answer_picture(examples, row=5)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The picture shows one row of tokens: a question, its answer, and the padding (the widths are not to scale). A
# *label* is the token that the model should predict at a place. Only the answer and the token that marks its end have
# labels, so the loss is computed there and nowhere else. After the end comes *padding*: tokens without meaning that
# fill the row up to the length of the longest one. The 48 tokens in the title do not include it. The value $-100$ in
# the picture means "no label here"; a section below explains where it comes from.
#
# The workbook comes with 488 such conversations, which were written for this course. In 432 of them the user asks
# about Rust, on the same 48 topics as the passages of [lesson 3](03_baseline.ipynb). The answer explains,
# compares two things, repairs code, or is a single word. In the other 56 the user asks about something else, and the
# answer is always "I only answer questions about Rust." Training, validation and test are split by topic, so no topic
# is in two of them. The tiny model reads at most 256 tokens. The few longer conversations are left out of training,
# because shortening them would remove the ends of their answers. 329 training conversations remain.

# %%
parts = (corpus.train, corpus.validation, corpus.test)
forms = [conversation.form for part in parts for conversation in part]
topics = [{conversation.topic for conversation in part} for part in parts]
for form in ("one_word", "compare"):
    shown = next(asked for asked in train if asked.form == form)
    print(f"[{form}] {shown.messages[0][1]}\n   -> {shown.answer}\n")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## From messages to one text
#
# A *chat template* is a small program, in the template language Jinja, that turns the messages of a conversation into
# one text. It is stored with the tokenizer, because a chat model has learned to read exactly this form. Our tiny
# model was made to continue texts, so its tokenizer has no template. In that case the workbook uses a very plain one.
# The cell first prints the template, and then the text that the template makes from two messages:

# %%
messages = [
    {"role": "user", "content": "Which keyword makes a variable mutable?"},
    {"role": "assistant", "content": "mut"},
]
template = tl.template_of(tokenizer)
print(template.replace("}{", "}\n{"), end="\n\n")
text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False)
print(text)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The first branch of the template writes an answer and its end, the second writes a question, and the last writes any
# other message, for example a *system message* with general instructions. In the template, `eos_token` stands for
# `<|endoftext|>`. This is a single token, the *end token*, and generation stops when the model writes it.
#
# Chat models usually mark the beginning and the end of each message with special tokens. The template of
# SmolLM2-Instruct turns the same question into `<|im_start|>user`, a line break, the question and `<|im_end|>`. The
# answer follows after `<|im_start|>assistant` and a line break, and `<|im_end|>` is the end token. If the
# conversation has no system message, this template also writes a default one before the question.
#
# When the model is used, it is shown the text up to the point where the answer begins. In plain transformers,
# `apply_chat_template(messages, add_generation_prompt=True)` makes the tokens of this text, if the last message is
# the question. In this workbook, `tl.prompt_of` does the same. The tokens before an answer have to be the same in
# training and in use. That is why the workbook tokenises the part before the answer separately. If the whole text
# were tokenised in one piece, the tokenizer could join the last characters before the answer and the first characters
# of the answer into one token. In use the model would never see that token there, because its input ends before the
# answer begins.

# %%
asked = train[5]
shown_in_use = tl.prompt_of(asked.question, tokenizer)
only_read = examples.tokens[5][: len(shown_in_use)]
course.claim(
    "Before the answer, training and use show the model the same tokens",
    only_read.tolist() == shown_in_use,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Before you train, it is worth looking at one example token by token. The view below shows the row from the first
# picture; its answer is the refusal. The model only reads the grey tokens and learns to predict the light blue ones.
# The dark blue one is the end token, which it learns to predict too. `·` stands for a space and `⏎` for a line break.

# %%
short = tl.answer_examples([asked], tokenizer)
pictures.token_view(short, tokenizer)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The loss on the answer
#
# Let $x_1, \ldots, x_T$ be the tokens of a row and $A$ the set of places that have a label: the answer's tokens and its
# end token. The loss is the mean negative log-probability of the tokens at these places,
#
# $$L = -\frac{1}{|A|} \sum_{t \in A} \log p(x_t \mid x_1, \ldots, x_{t-1}).$$
#
# The question is still used, because every token of the answer is predicted from all tokens before it. But the model
# is not trained to predict the question itself. Libraries describe the set $A$ by a tensor of labels. It contains the
# tokens at the places in $A$ and $-100$ everywhere else, because PyTorch's cross entropy ignores the label $-100$ by
# default. You do not have to shift the labels: they stand at the same places as the tokens, and the model itself
# compares its output at place $t - 1$ with the label at place $t$. The cell builds such labels by hand.
# `examples.texts` says for each token which text of its row it belongs to, and $-1$ there marks the padding.

# %% tags=["check-labels"]
labels = examples.tokens.clone()
for row, conversation in enumerate(train):
    labels[row, : len(tl.prompt_of(conversation.question, tokenizer))] = -100
labels[examples.texts == -1] = -100  # padding
learned = (labels != -100).sum(1)
with torch.no_grad():
    loss = base.model(input_ids=examples.tokens[:8], labels=labels[:8]).loss
apart = abs(loss.item() / tl.mean_loss(base.model, examples[:8]) - 1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The mean over a batch needs care: it has to be taken over all labels of the batch at once. The rows have between 2
# and about 130 labels. If we first took the mean of each row and then the mean of the rows, a token of a one-word
# answer would count up to 65 times as much as a token of a long answer. The same problem arises when a batch is split
# into micro-batches or over several processes, so `tl.train` adds up the losses of all labels in a step and divides
# once, by the number of these labels. The cell computes both means for the first eight rows. They differ because,
# among these rows, those with many labels tend to have a higher mean loss than those with few, and the mean over all
# labels gives the long rows more weight.

# %% tags=["check-learned"]
rows = [tl.mean_loss(base.model, examples[row : row + 1]) for row in range(8)]
print(f"mean over all labels: {loss.item():.2f} nats")
print(f"mean of eight rows' means: {sum(rows) / 8:.2f} nats")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Training with and without the end token
#
# We train two copies of the model on the training conversations, for one epoch at the same learning rate:
#
# - **answers**: the loss is on the answer and its end token, as above;
# - **end masked**: the same, but with a mistake that is easy to make. The padding token of our tokenizer *is* its end
#   token. So `labels[tokens == pad] = -100`, which is meant for the padding, also masks the end of every answer.
#
# **Predict first.** Which of the two models will have the lower perplexity on new answers, and by how much? Each will
# then answer 18 new questions. How many of its 18 answers will stop by themselves?

# %%
is_pad = examples.tokens == tokenizer.pad_token_id
without_end = replace(examples, labels=labels.masked_fill(is_pad, -100))
config = tl.TrainingConfig(2e-3, batch_size=4)
models, at_the_end = {"untouched": base.model}, {}
for name, part in {"answers": examples, "end masked": without_end}.items():
    model = tl.apply_strategy(tl.load_model("tiny").model, "full").model
    history = tl.train(model, part, config, progress=True).history
    models[name], at_the_end[name] = model, history.loss.tail(20).mean()

# %%
for name, loss in at_the_end.items():
    print(f"{name}: training loss of the last 20 steps {loss:.1f} nats")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Nothing in these two losses looks wrong. They are means over different labels, so they need not be equal, and without
# the end tokens the loss of *end masked* gives no hint of what is missing.

# %% [markdown] slideshow={"slide_type": "subslide"}
# The base model, called *untouched*, and the two trained models now answer 18 validation questions. They always write
# the most likely token (greedy decoding), and at most 64 tokens for an answer. The questions come from conversations
# of up to 192 tokens, because 64 more tokens then still fit into the 256 that the model reads. To save time, only
# every third of these conversations is used. The chart shows the share of answers that are still going on after a
# given number of tokens.

# %%
held_out, _ = tl.short_enough(corpus.validation, tokenizer, 192)
questions = held_out[::3]
answers = {
    name: tl.answer(model, tokenizer, questions, new_tokens=64)
    for name, model in models.items()
}
pictures.stopping_chart(answers, 64)

# %% [markdown]
# The line of *answers* first falls at 12 tokens. As the first picture shows, the refusal has exactly 12 tokens
# including its end token, so some of these short answers are probably refusals. The table adds more measures.
# *perplexity* is measured on the true answers of all validation conversations of up to 192 tokens, including their
# end tokens.
#
# The next two columns are shares of the answers that the models have just written: *stopped* counts those that end
# with the end token, and *empty* those without any text. *in_form* is the share of answers that have the form that
# was asked for, among the questions for which this can be checked. Three forms can be checked: a single word, code in
# a block, and an answer that begins with the refusal. *refused_wrongly* is the share of the questions about Rust that
# were refused. The last column is the mean number of tokens in an answer, including the end token.

# %% tags=["nbval-ignore-output"]
scored = tl.answer_examples(held_out, tokenizer)
table = pd.DataFrame({name: found.summary() for name, found in answers.items()}).T
table["perplexity"] = [tl.score_examples(m, scored).perplexity for m in models.values()]
shares = ["stopped", "empty", "in_form", "refused_wrongly"]
table[["perplexity", *shares, "answer_tokens"]].round(2)

# %% tags=["check-trained"]
trained = table.drop("untouched")
course.claim("With the end masked, no answer stops", table.stopped["end masked"] == 0)
course.claim(
    "With a label at the end, many answers stop by themselves",
    table.stopped["answers"] > 0.3,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The perplexity of the model with the masked end is only about a tenth above that of *answers*, although the end
# tokens are scored here and it was not trained on them. Yet not one of its 18 answers stops, while many of those of
# *answers* do, and most of those of the untouched model. So it was this training that removed the ability to stop. None
# of the labels was the end token, and a step that makes one token more likely makes the other tokens less likely.
# Therefore every step tended to lower the probability of the end token.
#
# This can be checked. The cell asks each model for the probability of the end token at the places where the true
# answers end.

# %%
end_token = tokenizer.eos_token_id
ends = scored.labels.masked_fill(scored.labels != end_token, -100)
only_ends = replace(scored, labels=ends)
stops = {
    name: torch.tensor(-tl.mean_loss(m, only_ends)).exp() for name, m in models.items()
}
for name, probability in stops.items():
    print(f"{name}: {probability:.5f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The numbers are geometric means over the answers. With labels at the ends, training has made the end token more
# likely at the right places. With the ends masked, it has made it far less likely than before any training.
#
# **The training loss cannot show this mistake**, because the tokens that it concerns are exactly the ones that the
# loss leaves out. So the mistake can go unnoticed until somebody uses the model.
#
# Many answers of the other trained model, *answers*, stop, but not all of them. A correct answer may be longer than
# 64 tokens, so an answer that reaches the limit is not always a failure. But a tiny model can also start to repeat
# itself, and then its answer does not end either.

# %% [markdown] slideshow={"slide_type": "subslide"}
# **A model that stops has not necessarily answered.** The untouched model stops most often of all, because in
# pretraining the same token separated the documents. But about half of its answers are empty, because the first token
# that it writes is the end token. So we also look at the text of the answers:

# %% tags=["nbval-ignore-output"]
written = {name: found.table.set_index("id") for name, found in answers.items()}
for conversation in (questions[0], next(q for q in questions if q.form == "refuse")):
    print("?", conversation.messages[0][1])
    for name in ("untouched", "answers", "end masked"):
        print(f"  {name}: {written[name].answer[conversation.id][:90]!r}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# In these samples, one epoch has taught the model what an answer looks like: a sentence with names from code for a
# question about Rust, and the refusal for a question about something else. But it has not taught this reliably. The
# column `in_form` shows that only a third of the answers that can be checked have the right form. For *end masked*
# this share says even less, because the check looks only at the beginning of a refusal. So a refusal counts even if
# the model repeats it until the limit. Also, only a few of the 18 questions can be checked in this way, so a single
# answer changes the share by many percentage points.
#
# What the answers say about Rust is nonsense. The tiny model has four million weights and read no text about Rust in
# pretraining, so it does not know what an `Rc` is, and one pass over 329 examples does not teach it. Zhou et al. (see
# *Further reading*) argue that this holds in general: most of the knowledge comes from pretraining, and instruction
# tuning mostly teaches a model to show what it knows in a useful form.
#
# Teaching a refusal brings a risk of its own. The refusal is the same sentence each time, so it is easy to learn, and
# a model may also give it as the answer to a question about Rust. The column `refused_wrongly` counts this. If you
# train a model to refuse, measure this share.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Learn the questions, too?
#
# There is another way to choose the labels: the model can learn *everything*, the questions as well as the answers,
# as in running text (`learn="everything"`). Two single runs could differ by chance alone. So we recorded runs of both
# ways with three seeds each, with full fine-tuning (`full`) and with LoRA (`lora`), and tuned the learning rate for
# each. Every run trained for one epoch on 200 training conversations and was scored on the answers of 40 test
# conversations (without the few that are too long for the tiny model).
#
# The models also answered these 40 questions, twice each. They answered once with greedy decoding, and once with
# *sampling* at temperature 0.7: each token is drawn at random from the model's probabilities, after these have been
# shifted somewhat towards the likely tokens. An answer had at most 96 tokens.
#
# **Predict first.** Which way gives the lower perplexity of the answers? And do sampled answers stop more often than
# greedy ones, or less often?


# %%
def both_ways(model):
    """A row for each strategy and way of learning, and all test documents."""
    rows, documents = {}, []
    for way, task in {"answers": "answer", "everything": "conversation"}.items():
        found = tl.recorded_comparison(model, task=task)
        for strategy, row in found.table.set_index("strategy").iterrows():
            if strategy == tl.ZERO_SHOT:
                rows["untouched"] = row
            elif strategy != tl.CONTROL:
                rows[f"{strategy}, {way}"] = row
        named = found.documents.strategy + f", {way}"
        documents.append(found.documents.assign(strategy=named))
    return pd.DataFrame(rows).T, pd.concat(documents)


measured, documents = both_ways("tiny")
columns = ["perplexity", "stopped", "sampled_stopped", "empty", "refused_wrongly"]
measured[columns].astype(float).round(2)

# %% tags=["check-pairs"]
pairs = tl.compare_pairs(documents[documents.strategy.isin(measured.index)])
pairs = pairs.set_index(["first", "second"])
for strategy in ("full", "lora"):
    pair = pairs.loc[(f"{strategy}, answers", f"{strategy}, everything")]
    print(f"{strategy}: {pair.difference:.1f}, from {pair.low:.1f} to {pair.high:.1f}")
trained = measured.drop("untouched")
course.claim(
    "The sampled answers stop more often than the greedy ones, in all four",
    (trained.sampled_stopped > trained.stopped).all(),
)
runs = tl.recorded_comparison("tiny", task="answer").runs
shares = runs[runs.strategy == "full"].stopped
refusals = torch.tensor([asked.form == "refuse" for asked in train])

# %% [markdown] slideshow={"slide_type": "subslide"}
# In the table, `stopped` is the share for greedy decoding. The perplexity of the untouched model is not the one of
# the first table, because these are test conversations. The two printed lines show the difference in perplexity,
# "answers" minus "everything", with 95% intervals over documents and seeds. The intervals are widened because several
# pairs of models are compared at once. Both intervals contain zero, so **these runs do not show which way is
# better**. A published comparison found that learning the instructions helps most when there are few examples, or
# when the instructions are long and the answers short (Shi et al., see *Further reading*). The better choice depends
# on your data, so try both.
#
# But the models do differ in how often they refuse. The models that learned only the answers wrongly refuse about one
# in ten questions about Rust or more, while those that learned everything refuse almost none. Why this is so, these
# runs do not show. One could think that the refusals make up a larger part of the labels when the questions have
# none, but it is the other way round: they are 2.5% of the labels of the answers, and 5.1% of all labels. Perhaps the
# questions, as labels, teach the model to tell the subjects apart.
#
# Sampled answers stop more often than greedy ones. A likely reason is that a small model easily falls into a loop:
# after a phrase that it has already repeated, the most likely continuation is the same phrase once more. Greedy
# decoding always takes this continuation and never reaches the end token, whereas sampling leaves the loop at some
# point. But these shares are uncertain: of the greedy answers of *full, answers*, between 52% and 98% stop, depending
# on the seed. So the single run above shows what a masked end does, but not how often a well-trained model stops.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Five mistakes, refused before the first step
#
# None of these mistakes raises an error by itself. Training runs to the end, and most of the mistakes only show in
# the finished model:
#
# - **a mask that hides everything**: every label of a row is $-100$, so nothing is learned from it. A batch without
#   any label has the loss 0/0, which PyTorch reports as `nan`;
# - **padding masked by its token**: the model never learns to stop, as above;
# - **a row cut too early**: the end of the answer is cut off, so long answers are learned without an end;
# - **a beginning written twice**: some models begin each text with a special token. If the template writes it and the
#   tokenizer adds it again, the model sees this token twice in training but only once in use (or the other way
#   round);
# - **a template without an end**: no answer has an end token, so the model never learns to stop.
#
# The workbook looks for these mistakes in the finished tokens and labels, so it can also find them in examples that
# another library has made. It names the first row or conversation in which it finds one. The cell makes each mistake
# on purpose. To imitate the fourth, it puts the first token of the row there a second time, as a tokenizer would that
# adds it again.


# %% tags=["check-first"]
def said_about(attempt):
    """The error message that an attempt leads to."""
    try:
        attempt()
    except ValueError as error:
        return str(error)
    return "nothing"


first = tl.answer_examples(train[:3], tokenizer)
nothing = replace(first, labels=torch.full_like(first.labels, -100))
by_token = first.labels.masked_fill(first.tokens == tokenizer.pad_token_id, -100)
beginning = (part[:1, :45] for part in (first.tokens, first.labels, first.texts))
cut = tl.Examples(*beginning)
opening = copy.deepcopy(tokenizer)
opening.add_special_tokens({"bos_token": "<s>"})
opening.chat_template = "{{ bos_token }}" + template
once = tl.answer_examples(train[:1], opening)
twice = tl.Examples(
    *(
        torch.cat([part[:, :1], part], 1)  # as a tokenizer does that adds it again
        for part in (once.tokens, once.labels, once.texts)
    )
)
no_end = copy.deepcopy(tokenizer)
no_end.chat_template = template.replace(" + eos_token", "")
mistakes = {
    "a mask that hides everything": lambda: tl.refuse_answers(nothing, tokenizer),
    "padding masked by its token": lambda: tl.refuse_answers(
        replace(first, labels=by_token), tokenizer
    ),
    "a row cut too early": lambda: tl.refuse_answers(cut, tokenizer),
    "a beginning written twice": lambda: tl.refuse_answers(twice, opening),
    "a template without an end": lambda: tl.answer_examples(train[:1], no_end),
}
for mistake, attempt in mistakes.items():
    print(f"{mistake}:\n    {said_about(attempt)}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Padded or packed
#
# Short conversations leave most of a padded row empty. *Packing* puts several conversations into one row instead. In
# such a row, a token must not attend to another conversation. Otherwise the model learns to answer while it reads
# unrelated questions and answers, which it will not see in use. Packed rows therefore get two things: position
# numbers that start again with each conversation, and an attention mask that hides the other conversations. For
# comparison, the *mixed* rows below hold the same conversations but have neither of the two.

# %% tags=["check-apart"]
shortest = [asked for asked in train if asked.form == "one_word"][:24]
layouts = {
    layout: tl.answer_examples(shortest, tokenizer, length=256, layout=layout)
    for layout in ("padded", "packed", "mixed")
}
for layout, part in layouts.items():
    print(f"{layout}: {len(part)} rows of 256 tokens")
loss = {layout: tl.mean_loss(base.model, part) for layout, part in layouts.items()}
apart = {layout: abs(value / loss["padded"] - 1) for layout, value in loss.items()}

# %% [markdown] slideshow={"slide_type": "subslide"}
# Not every architecture accepts such a mask. So before the workbook trains on packed rows, it lets the model read two
# texts in one row and then each of them alone, and compares the outputs. If the outputs differ, the workbook refuses
# to pack for this model, and you have to use padded rows.
#
# Padding at the end of a row needs no attention mask in a causal model, because a token attends only to itself and to
# the tokens before it, and all padding comes after. Its labels still have to be $-100$. Padding costs some
# computation, but less than the comparison of 24 rows with 6 suggests, because the workbook cuts each batch to the
# length of its longest row.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same in plain transformers
#
# With the `Trainer`, you make the labels yourself, and `DataCollatorForSeq2Seq` pads each batch: the tokens with the
# padding token, the labels with $-100$. The cells make four batches of the first training conversations, in the order
# in which `tl.train` would read them, and train at a constant learning rate and without weight decay. Our tokenizer
# adds no special tokens of its own. With one that does, pass `add_special_tokens=False` to it, because otherwise this
# function would make the fourth mistake above.


# %%
def plain_row(conversation):
    """Tokens and labels of one question and its answer."""
    said = [{"role": role, "content": text} for role, text in conversation.messages]
    render = {"chat_template": template, "tokenize": False}
    start = tokenizer.apply_chat_template(
        said[:1], add_generation_prompt=True, **render
    )
    whole = tokenizer.apply_chat_template(said, **render)
    only_read = tokenizer(start).input_ids
    learned = tokenizer(whole[len(start) :]).input_ids
    return {
        "input_ids": only_read + learned,
        "labels": [-100] * len(only_read) + learned,
    }


order = torch.randperm(16, generator=torch.Generator().manual_seed(0))
dataset = [plain_row(train[number]) for number in order]

# %%
from transformers import (
    AutoModelForCausalLM,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback

plain = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=4, num_train_epochs=1,
        learning_rate=2e-3, lr_scheduler_type="constant", weight_decay=0.0,
        max_grad_norm=1.0, train_sampling_strategy="sequential", logging_steps=1,
        save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    collator = DataCollatorForSeq2Seq(tokenizer)
    trainer = Trainer(plain, arguments, train_dataset=dataset, data_collator=collator)
    trainer.pop_callback(PrinterCallback)  # which would print every record
    trainer.train()

# %%
same = tl.apply_strategy(tl.load_model("tiny").model, "full").model
constant = tl.TrainingConfig(
    2e-3, batch_size=4, schedule="constant", warmup_fraction=0, weight_decay=0
)
ours = tl.train(same, examples[:16], constant).history.loss

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### On the command line, and in TRL
#
# On the command line, you can do the same with your own conversations. The second line compares full fine-tuning with
# LoRA on the answers, and the third does so with the loss on the questions, too:
#
# ```
# python -m tlkit train --task answer --corpus mine.jsonl --strategy lora --output out
# python -m tlkit compare --task answer --corpus mine.jsonl --strategies full,lora
# python -m tlkit compare --task conversation --corpus mine.jsonl --output results/whole
# python -m tlkit generate --chat --model out --prompt "What is a slice?"
# ```
#
# Many projects use the library TRL for instruction tuning. With TRL, the same training would look as follows. This
# code was not run here, and the learning rate is only a starting point that you would have to tune:
#
# ```python
# from trl import SFTConfig, SFTTrainer
#
# SFTTrainer(
#     model, train_dataset=dataset,             # rows of "prompt" and "completion"
#     args=SFTConfig(
#         completion_only_loss=True, packing=False, max_length=256,
#         learning_rate=2e-3, num_train_epochs=1, per_device_train_batch_size=4,
#     ),
# ).train()
# ```
#
# `completion_only_loss` is only for rows of "prompt" and "completion". For rows of "messages" the option is
# `assistant_only_loss=True`, and the chat template has to mark which tokens are the assistant's. Whichever you use,
# look at one batch from `trainer.get_train_dataloader()` before you train: `batch["labels"]` must contain the end
# token's id, and not $-100$, at the end of each answer. `max_length` cuts longer rows without a warning, and the end
# of the answer is lost with the rest.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## On the real model
#
# SmolLM2-135M-Instruct has been through instruction tuning already, with many more examples. If you have
# [fetched](12_a_real_model.ipynb) it, the next cell shows the tokens of one of our conversations in its own template,
# and asks the untouched model one question.

# %% tags=["nbval-ignore-output"]
NAME = "smollm2-135m-instruct"
if tl.fetched(NAME):
    real = tl.load_model(NAME)
    inside = tl.answer_examples([asked], real.tokenizer)
    print(real.tokenizer.decode(inside.tokens[0]))
    untouched = tl.answer(real.model, real.tokenizer, questions[:1], new_tokens=48)
    print("\n?", questions[0].messages[0][1], "\n ", untouched.table.answer[0])
else:
    print(f"not here yet: python -m tlkit fetch {NAME}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# What do our conversations change? The runs were recorded: LoRA on 200 training conversations, one epoch, three seeds,
# at a learning rate that was tuned on validation conversations. The columns are those of above; `general` is the
# perplexity of answers to questions about other subjects, and `rust_accuracy` and `general_accuracy` are the shares
# of right answers to the four-option questions of [lesson 12](12_a_real_model.ipynb), put as a chat message.
#
# **Predict first.** Which of these figures will change much, and which hardly at all? For example, will the model
# answer more questions about Rust correctly?

# %%
recorded = tl.recorded_comparison(NAME, task="answer")
chat = recorded.table.set_index("strategy").loc[[tl.ZERO_SHOT, "lora"]]
figures = ["perplexity", "general", "stopped", "sampled_stopped", "in_form"]
figures += ["refused_wrongly", "answer_tokens", "rust_accuracy", "general_accuracy"]
chat[figures].astype(float).round(3).T

# %%
said = recorded.written
said = said[~said.sampled & (said.seed == 0)].set_index(["strategy", "id"]).answer
for name in ("ownership-question-01", "enums-question-09", "slices-question-05"):
    print("?", next(c for c in corpus.test if c.id == name).messages[0][1])
    for strategy in (tl.ZERO_SHOT, "lora"):
        print(f"  {strategy}: {said[strategy, name][:150]!r}")

# %% tags=["check-after"]
before, after = chat.loc[tl.ZERO_SHOT], chat.loc["lora"]
ends = after.general_accuracy_difference_low, after.general_accuracy_difference_high

# %% [markdown] slideshow={"slide_type": "subslide"}
# **The form changes, and the knowledge does not.** The untouched model writes long answers. Only one in eight ends
# within 96 tokens, which does not mean that the others would never end. After 200 examples the answers are about half
# as long, nearly all of them stop, and two thirds have the form that was asked for, where it was less than a fifth.
# The perplexity of held-out answers halves, on general subjects too, because their style is the same.
#
# But the share of right answers about Rust stays what it was: the interval of its change goes from -4 to +4 points. Not
# one of the answers of one word is right in any of the runs. Read the samples: they have the tone, the length and the
# code block of a good answer, and say nothing true. Of the questions about other subjects a few more are answered
# rightly, but the interval of this change (0 to 15 points) all but touches zero. So a low loss and a good form are no
# evidence that a model knows what it says.
#
# Two things are different from the tiny model: hardly any question about Rust is refused, and sampled answers stop as
# often as greedy ones. What carries over is the procedure, with its template, labels, end tokens and masks.

# %% [markdown] slideshow={"slide_type": "subslide"}
# For this model we recorded the other choice of labels as well: LoRA that learns *everything*, the questions as well
# as the answers. Its learning rate is the one that was tuned for the answers alone, so this comparison favours them a
# little.

# %%
real_ways, real_documents = both_ways(NAME)
real_ways[columns].astype(float).round(2)

# %% tags=["check-pair"]
two = real_documents[real_documents.strategy.isin(real_ways.index.drop("untouched"))]
(pair,) = tl.compare_pairs(two).itertuples()
print(f"{pair.first} minus {pair.second}:")
print(f"{pair.difference:.1f}, from {pair.low:.1f} to {pair.high:.1f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Here, too, the interval contains zero, so these runs do not show which way is better, even though the learning rate
# was tuned for one of them only. The wrong refusals of the tiny model, which came with learning the answers alone, do
# not carry over: after either way this model refuses hardly any question about Rust.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Preferences, in thirty lines
#
# Examples show a model what to write, but not what to avoid. *Preference optimisation* therefore learns from pairs of
# answers to the same question, of which one is better. Here the better answer is short and right, and the other is
# long and vague:

# %%
pairs = preferences.load_preferences()
pair = pairs.train[0]
print(f"? {pair.prompt}\n\nwon:  {pair.chosen}\n\nlost: {pair.rejected}")

# %% [markdown]
# Earlier methods first train a *reward model*, a separate model that scores answers. Direct preference optimisation
# (DPO) does without it. It compares how likely both answers are under the model that is trained, $\pi$, and under a
# copy of it from before this training, the *reference* $\pi_0$:
#
# $$m = \left(\log \frac{\pi(y_w \mid x)}{\pi_0(y_w \mid x)}\right) -
# \left(\log \frac{\pi(y_l \mid x)}{\pi_0(y_l \mid x)}\right), \qquad L = -\log \sigma(\beta\, m).$$
#
# $x$ is the question, $y_w$ the preferred answer ("won") and $y_l$ the other one ("lost"). $\sigma$ is the sigmoid
# function. Each probability is that of the whole answer, so its logarithm is a sum over the answer's tokens and its
# end token. The first bracket says by how many nats the log-probability of the preferred answer has risen, the second
# says the same of the other answer, and the margin $m$ is the difference. At the start both models are the same, so
# $m = 0$ and the loss is $\log 2 \approx 0.69$. The loss falls as $m$ grows. $\beta$ sets how fast it falls: with
# $\beta = 0.1$, a margin of 10 nats brings it down to 0.31.


# %%
def answer_log_probability(model, part):
    """The summed log-probability of each row's answer; shape (rows,)."""
    log_p = model(input_ids=part.tokens[:, :-1]).logits.log_softmax(-1)
    labels = part.labels[:, 1:]  # the output at a place predicts the next token
    places = labels != -100
    chosen = log_p.gather(2, labels.clamp(min=0)[..., None])[..., 0]
    return (chosen * places).sum(1)


def dpo_loss(won, lost, won_before, lost_before, beta=0.1):
    """The loss of each pair."""
    margin = (won - won_before) - (lost - lost_before)
    return -torch.nn.functional.logsigmoid(beta * margin)


won, lost = preferences.preference_examples(pairs.train, tokenizer)
with torch.no_grad():
    sample = [answer_log_probability(base.model, part[:4]) for part in (won, lost)]
    library = [
        preferences.log_probabilities(base.model, part[:4]) for part in (won, lost)
    ]

# %% [markdown] slideshow={"slide_type": "subslide"}
# The reference is the model *answers* from above, and the loop trains a copy of it. One pass over the 102 pairs, 6 at
# a time, makes 17 steps. The log-probabilities of the reference never change, so they are computed once, before the
# loop.

# %%
reference = models["answers"].eval()
policy = copy.deepcopy(reference)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4, weight_decay=0.0)
with torch.no_grad():
    before = [
        torch.cat([answer_log_probability(reference, few) for few in part.split(17)])
        for part in (won, lost)
    ]
losses = []
order = torch.randperm(len(won), generator=torch.Generator().manual_seed(0))
for rows in order.split(6):
    now = [answer_log_probability(policy, part[rows]) for part in (won, lost)]
    loss = dpo_loss(*now, *(part[rows] for part in before)).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(
    "loss of the first and of the last steps:",
    *(f"{losses[n]:.2f}" for n in (0, -2, -1)),
)
course.claim("After one pass the loss is below 0.05", max(losses[-3:]) < 0.05)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** On 24 test pairs about other topics, will the preferred answers now be more likely than before?
# In the chart each point is a pair. If it lies left of the vertical line, its preferred answer has become less
# likely; if it lies below the horizontal line, the other answer has. On the dashed line both change by the same
# amount, and below it the margin has widened. The two axes have different scales, so this line looks flatter than
# 45 degrees.

# %%
with torch.no_grad():
    changes = [
        answer_log_probability(policy, part) - answer_log_probability(reference, part)
        for part in preferences.preference_examples(pairs.test, tokenizer)
    ]
pictures.preference_chart(*changes)

# %% tags=["nbval-ignore-output"]
after = tl.answer(policy, tokenizer, questions, new_tokens=64)
found = [written.summary() for written in (answers["answers"], after)]
scores = [tl.score_examples(model, scored).perplexity for model in (reference, policy)]
lengths = [summary["answer_tokens"] for summary in found]
empty = [summary["empty"] for summary in found]
print(f"mean tokens of an answer: {lengths[0]:.0f} before, {lengths[1]:.0f} after")
print(f"perplexity of held-out answers: {scores[0]:.0f} before, {scores[1]:.0f} after")
print(f"empty answers: {empty[0]:.0%} before, {empty[1]:.0%} after")
first = questions[0]
print("?", first.messages[0][1])
for when, written in {"before": answers["answers"], "after": after}.items():
    text = written.table.set_index("id").answer[first.id]
    print(f"  {when}: {text[:90]!r}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# After 17 steps the margins have also widened on topics that DPO was not trained on. But the chart shows how they
# widened. The loss depends only on the margin, and the margin also widens when both answers become less likely, as
# long as the worse one loses more. This happens to most of the pairs here. The answers that the model writes become a
# little shorter, as intended, although length alone does not say whether they are better or only say less. The
# perplexity on the held-out answers rises clearly, which was not intended.
#
# These pairs are also easy, because the two answers of a pair differ so much in length. A log-probability is a sum
# over tokens, so a small change at every token of a long answer adds up to many nats. The model may therefore have
# learned only to prefer short answers, and these numbers cannot distinguish that from preferring right ones. A larger
# $\beta$, fewer steps or a lower learning rate should keep the model closer to the reference; none of them is tried
# here.
#
# DPO also costs computation and memory. Every step processes two sequences for each pair: the question with the
# preferred answer, and the question with the other one. The reference has to process all of them once. If its
# log-probabilities are not stored beforehand, both models have to be in memory together. With LoRA the second copy is
# not needed, because the same model with its adapter switched off can serve as the reference. This only works if the
# adapter was new when DPO began. If the instruction tuning used an adapter too, merge that one first.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - The model's own chat template turns a conversation into one text, the same in training and in use. The loss is on
#   the answer and its end token. If the end token has no label, the model does not stop, and the training loss does
#   not show it.
# - Judge a model by several measures: the loss on true answers, and how many of its own answers stop, are empty, have
#   the right form, or refuse wrongly. In one epoch the tiny model begins to learn the form, but its answers about
#   Rust are nonsense.
# - DPO widens the margin between two answers. This can happen while both of them become less likely.
#
# **An open experiment.** How many examples does a model need until it stops by itself? Train the tiny model on the
# first 50, 100 and 200 training conversations, each time for the same number of steps and with two seeds. Measure the
# share that stops and the perplexity on validation conversations. Do both improve at the same number of examples?
#
# **Further reading**
#
# - L. Ouyang et al., [Training language models to follow instructions with human
#   feedback](https://arxiv.org/abs/2203.02155), 2022: instruction tuning, and preferences with a reward model.
# - C. Zhou et al., [LIMA: Less Is More for Alignment](https://arxiv.org/abs/2305.11206), 2023: a thousand good examples.
# - Z. Shi et al., [Instruction Tuning With Loss Over Instructions](https://arxiv.org/abs/2405.14394), 2024: when it
#   helps to learn the questions, too.
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
# **Exercise 14.1** (first steps). A batch has two rows. In the first, the question has 30 tokens and the answer 9; in
# the second, the question has 10 tokens and the answer 1. An end token follows each answer and is not counted in these
# numbers. The mean loss over the labels is 4.0 in the first row and 1.0 in the second. What is the loss of the batch,
# as it should be computed?

# %%
answer = None
# your code here
course.check("ex14_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 14.2** (apply it). Write a function that makes the labels of one row. It gets the row's token ids as a
# list, the number of tokens at the beginning that are only read, and the number of tokens of the whole conversation
# with its end token. Everything after these is padding. It returns a list as long as the row, with $-100$ where nothing
# is learned.


# %%
def labels_of(tokens, only_read, length):
    """The labels of one row."""
    # your code here


course.check("ex14_2", labels_of)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 14.3** (think further). In a run of DPO with $\beta = 0.1$, the log-probability of a preferred answer has
# changed from -20 to -26 nats, and that of the other answer of its pair from -60 to -96 nats. What is the loss of this
# pair now? Round it to three decimal places.

# %%
answer = None
# your code here
course.check("ex14_3", answer)

# %% [markdown]
# Previous: [13 · Classification](13_classification.ipynb) ·
# Next: [15 · The comparison](15_comparison.ipynb)
