# %% [markdown] slideshow={"slide_type": "slide"}
# # 13 · Classification
#
# *What is pretraining worth when the task is to name a class?*
#
# So far the model has predicted the next token, as in pretraining. At work the task is often a different one: to which
# team does this ticket go, is this review positive, what is this text about? This is called *classification*. In this
# lesson a model reads the beginning of a passage about Rust and says which of nine subjects it treats. You replace the
# model's head by a new one, find out which hidden states it should read, and train it, beside a method much older than
# language models that is hard to beat.
#
# **You will be able to**
#
# - build and train a classifier from a pretrained body, with a head that reads the right hidden states;
# - compare it with a bag of words in scikit-learn, give an accuracy its interval, and test differences;
# - measure with how few labels pretraining pays;
# - train, save and load a classifier with transformers and peft.
#
# **You need** [lesson 2](02_inside_a_language_model.ipynb) for hidden states and heads, and [lesson 5](05_lora.ipynb)
# for LoRA.
#
# About 38 minutes.

# %% slideshow={"slide_type": "subslide"}
import tempfile

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from peft import LoraConfig, get_peft_model
from scipy.stats import binomtest, t
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer
from transformers import Trainer, TrainingArguments, pipeline

import course
import tlkit as tl

_ = tl.setup()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The task and its baseline
#
# The corpus has 631 passages, and `data/rust/classes.json` puts their topics into nine classes. To keep the lesson
# fast, we cut every passage after 40 words. We set 200 passages aside for the test, in the same proportions of classes,
# and train on the other 431. Settings are chosen by *cross-validation* on these 431, so we need no validation split:
# scikit-learn trains on four fifths of them, scores the last fifth, and does this five times.

# %%
corpus = tl.load_labelled()
passages = (*corpus.train, *corpus.validation, *corpus.test)
rows = [(" ".join(one.text.split()[:40]), one.label) for one in passages]
data = pd.DataFrame(rows, columns=["text", "label"])
parts = train_test_split(data, test_size=200, stratify=data.label, random_state=0)
train, test = (x.sort_values("text", key=lambda x: x.str.len()) for x in parts)
print(f"always the largest class: {test.label.value_counts(normalize=True).max():.1%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# A classifier that always names the largest class is right in 16.5% of the cases, so this is the floor. If a small
# class matters as much to you as a large one, report the [balanced accuracy](glossary.md#balanced-accuracy) as well.
#
# The classical method is a [bag of words](glossary.md#bag-of-words). It counts how often each word occurs in a text and
# forgets their order. *TF-IDF* then gives more weight to words that occur in few texts, because *channel* says more
# about the subject than *the*. A *logistic regression* computes one score for each class, $z = W x + b$, from these
# features $x$. It is trained with cross-entropy, as the head of a language model is, and a penalty keeps its weights
# small. A larger $C$ means a weaker penalty. The next cell tries several $C$ and keeps the best, as lesson 4 did with
# learning rates.


# %%
def bag_of_words(C):
    counter = TfidfVectorizer(sublinear_tf=True)
    return make_pipeline(counter, LogisticRegression(C=C, max_iter=1000))


tried = {}
for C in (1, 10, 100, 1000):
    tried[C] = cross_val_score(bag_of_words(C), train.text, train.label).mean()
    print(f"C={C}: {tried[C]:.1%}")
words = bag_of_words(max(tried, key=tried.get)).fit(train.text, train.label)
right = {"words": words.predict(test.text) == test.label.to_numpy()}

# %% [markdown] slideshow={"slide_type": "subslide"}
# **How sure is a test accuracy?** Another 200 test texts would have given another share of right answers. The [Wilson
# interval](glossary.md#wilson-interval) is made for shares and works for few texts, too. scipy computes it.


# %%
def wilson(right):
    """The share of right answers in percent, with its 95% interval."""
    low, high = binomtest(int(right.sum()), len(right)).proportion_ci(method="wilson")
    return f"{right.mean():.1%} ({low:.1%} to {high:.1%})"


print("bag of words, test accuracy:", wilson(right["words"]))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Which hidden state should the head read?
#
# Now the pretrained model. `AutoModel` loads it without its head: for each token it returns a hidden state of 192
# numbers. A classifier needs one vector for each text, and making one of many is called *pooling*. There are two
# simple ways. The usual one for a causal model takes the state $h_n$ of the *last token*, because it alone has seen
# the whole text. The other takes the *mean* over all $n$ tokens:
#
# $$\bar h = \frac{1}{n} \sum_{t=1}^{n} h_t$$
#
# In both, padding must not count, or the class would depend on how long the *other* texts of the batch are. The
# tokenizer marks real tokens by a 1 in the attention mask and padding by a 0.


# %%
def last_token(hidden, mask):
    """hidden: (texts, tokens, width); mask: (texts, tokens); result: (texts, width)."""
    last = mask.cumsum(1).argmax(1)  # with padding on the right or on the left
    return hidden[torch.arange(len(hidden)), last]


def mean_of_tokens(hidden, mask):
    """The same shapes; padding counts in neither the sum nor the number of tokens."""
    return (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)


# %% [markdown] slideshow={"slide_type": "subslide"}
# We will train only the uppermost of the model's eight blocks. So the seven below are a frozen prefix as in [lesson
# 7](07_freezing.ipynb), which we run once. The next cell cuts the model in two.

# %%
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
lower = AutoModel.from_pretrained(tl.BUNDLED, dtype=torch.float32).eval()
upper = AutoModel.from_pretrained(tl.BUNDLED, dtype=torch.float32).eval()
upper.layers = upper.layers[7:]  # the last block, and the final norm
lower.layers, lower.norm = lower.layers[:7], torch.nn.Identity()


# %%
@torch.no_grad()
def stored(texts):
    """The lower blocks' output for 16 texts at a time, with the attention mask."""
    batches = []
    for start in range(0, len(texts), 16):
        part = list(texts[start : start + 16])
        batch = tokenizer(part, padding=True, return_tensors="pt")
        batches.append((lower(**batch).last_hidden_state, batch.attention_mask))
    return batches


@torch.no_grad()
def applied(model, batches):
    """A model's output for stored batches, in one tensor."""
    return torch.cat([model(states, mask) for states, mask in batches])


batches, test_batches = stored(train.text), stored(test.text)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With all weights frozen, the pooled vectors are fixed features, and the same logistic regression can read them. Such a
# classifier is called a [linear probe](glossary.md#linear-probe). (Its $C$ of 0.01 is what the same search finds.)
#
# **Predict first.** Which reads the subject better, the last token or the mean? Will either beat the bag of words?


# %%
def frozen(pool):
    return lambda states, mask: pool(
        upper(inputs_embeds=states, attention_mask=mask).last_hidden_state, mask
    )


probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))
features, test_features = {}, {}
for name, pool in {"last token": last_token, "mean": mean_of_tokens}.items():
    features[name] = applied(frozen(pool), batches).numpy()
    test_features[name] = applied(frozen(pool), test_batches).numpy()
    probe.fit(features[name], train.label)
    right[name] = probe.predict(test_features[name]) == test.label.to_numpy()
    print(f"{name}: {wilson(right[name])}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# With the same weights, the mean is right for 49.0% of the texts and the last token for only 29.5%. The bag of words,
# at 55.0%, is ahead of both.
#
# **Why does the last token fail?** In pretraining its state had one purpose, to predict the next token. The subject of
# the whole passage helps little with that, so this small model has not learned to collect it there. The mean contains
# something of every word, so it resembles a bag of words with pretrained vectors. The better pooling depends on model
# and task, so try both before you train anything.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Train with what works
#
# The classifier is now a module of three parts: the last block, the pooling that won, and a new head. The head is a
# matrix $W$ of shape (9, 192) and a bias. It starts at random, so it must always be trained, and with a larger
# learning rate than the LoRA adapters of the last block. Both rates and the two epochs are a first guess that we do
# not search.


# %%
class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        options = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear")
        self.body = get_peft_model(upper, options)
        self.head = torch.nn.Linear(192, 9)

    def forward(self, states, mask):
        hidden = self.body(inputs_embeds=states, attention_mask=mask).last_hidden_state
        return self.head(mean_of_tokens(hidden, mask))


names = sorted(train.label.unique())
targets = torch.tensor([names.index(label) for label in train.label]).split(16)
loss_of = torch.nn.CrossEntropyLoss()


# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** The loss of a guess over nine classes is $\ln 9 = 2.20$. How low will the training loss fall in
# two epochs, and how much better than the frozen probe will the classifier be on test texts?

# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
classifier = Classifier()
optimizer = torch.optim.AdamW(classifier.body.parameters(), lr=3e-3)
optimizer.add_param_group({"params": classifier.head.parameters(), "lr": 1e-2})
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, 2 * len(batches))
for epoch in range(2):
    losses = []
    for number in torch.randperm(len(batches)).tolist():
        loss = loss_of(classifier(*batches[number]), targets[number])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        losses.append(loss.item())
    print(f"epoch {epoch + 1}: training loss {np.mean(losses):.2f}")
logits = applied(classifier.eval(), test_batches)
right["LoRA"] = np.array(names)[logits.argmax(1)] == test.label.to_numpy()
print("LoRA, mean:", wilson(right["LoRA"]))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The training loss falls well below that of a guess, but on test texts the adapters bring little: 50.0% after 49.0%.
#
# A padded text must get the same logits as the text alone. This one check finds most mistakes of pooling, so make it
# a habit:

# %%
mask = test_batches[0][1]
row = mask.sum(1).argmin().item()  # the shortest text of the first batch
alone = applied(classifier, stored(test.text[row : row + 1]))
torch.testing.assert_close(alone[0], logits[row], atol=1e-4, rtol=0)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Which differences are real?
#
# The intervals above overlap, but overlap is not a test, because all methods answered the *same* 200 texts. On most of
# them two methods are both right or both wrong, and these texts say nothing about their difference. So look only at the
# texts that exactly one of the two gets right. If both methods were equally good, each of these would be a fair coin
# toss. `binomtest` computes $p$, the probability that fair coins give a split at least as uneven as ours.
#
# A small $p$ speaks against chance. We ask about three pairs and so have three chances to be fooled, which is why we
# require $p < 0.05/3 \approx 0.017$ instead of 0.05. [Lesson 15](15_comparison.ipynb) explains this correction.

# %% tags=["nbval-ignore-output"]
for one, other in (("LoRA", "words"), ("LoRA", "mean"), ("mean", "last token")):
    only_one = int((right[one] & ~right[other]).sum())
    only_other = int((right[other] & ~right[one]).sum())
    p = binomtest(only_one, only_one + only_other).pvalue
    print(f"only {one}: {only_one}, only {other}: {only_other}, p = {p:.4f}")

# %%
course.claim("Mean against last token: the difference is not chance", p < 0.05 / 3)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Only the last pair passes. The choice of the pooling is worth 19.5 points, more than anything that training did. The
# small gain of the adapters may be chance, and so may their distance to the bag of words. We did not search the
# adapters' learning rates, so a better setting may exist.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How many labels?
#
# Labels cost money, so this is often the question that decides. The next cell trains the bag of words and the probe on
# the mean with 32 to 256 labelled texts, and tests each on all the other passages. With few texts it matters much which
# ones they are, so the cell draws ten training sets for each number. Both methods learn from the same draws and keep
# the $C$ that was chosen with all labels.
#
# **Predict first.** Where is pretraining worth most, with few labels or with many?

# %%
texts = np.array([*train.text, *test.text])
labels = np.array([*train.label, *test.label])
states = np.vstack([features["mean"], test_features["mean"]])
rows = []
for size in (32, 64, 128, 256):
    for draw in range(10):
        options = {"train_size": size, "stratify": labels, "random_state": draw}
        chosen, rest = train_test_split(np.arange(len(texts)), **options)
        accuracy = [
            100 * model.fit(x[chosen], labels[chosen]).score(x[rest], labels[rest])
            for model, x in ((words, texts), (probe, states))
        ]
        rows.append((size, draw, *accuracy))
columns = ["labels", "draw", "words", "mean"]
scores = pd.DataFrame(rows, columns=columns).set_index(["labels", "draw"])

# %%
axes = scores.groupby("labels").mean().plot(marker="o", figsize=(8, 3.4), logx=True)
axes.set_xticks([32, 64, 128, 256], ["32", "64", "128", "256"])
axes.set(xlabel="labelled training texts", ylabel="test accuracy (%)")
axes.set_title("The pretrained model is ahead with 32 labels, and behind with 256")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# To compare the two, subtract draw by draw, because both methods learned from the same texts. Each number of labels
# then has ten differences, and their mean has Student's 95% interval, again corrected for four questions.

# %%
lead = (scores["mean"] - scores["words"]).unstack()
half = t.ppf(1 - 0.05 / 4 / 2, 9) * lead.std(axis=1) / np.sqrt(10)
table = pd.DataFrame({"lead": lead.mean(axis=1), "half": half})
course.claim("With 32 labels the model leads", table.lead[32] > table.half[32])
table.assign(low=table.lead - table.half, high=table.lead + table.half).round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Here the language model wins: with 32 labels its mean is ahead by 5.8 points (3.0 to 8.6). The lead shrinks as labels
# are added, and with 256 labels the bag of words is ahead by 4.4 points. These intervals cover only which of our 631
# passages were drawn, so do not build on a lead that barely excludes zero, as the one with 64 labels.
#
# **Why?** With few labelled texts, most words of a new text occur in none of them, and the bag of words cannot use such
# words. A pretrained model has similar vectors for related words, whether they were labelled or not. With more labels,
# the bag of words has seen the words that matter, and this advantage fades.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The way it is done at work
#
# transformers has a class for this task, `AutoModelForSequenceClassification`. On a causal model its new head, called
# `score`, reads the last token that is not padding. This is the pooling that failed, but a small change of the text
# repairs part of it: end every text with " This text is about the". The next token would name the subject, so the last
# state now has a reason to contain it. With frozen weights, this ending raises the probe on the last token by more than
# five points in cross-validation.
#
# The class finds the last token by `pad_token_id`, and `id2label` gives the classes their names. In peft,
# `task_type="SEQ_CLS"` trains the new head beside the adapters. We stop after eight steps, because this section shows
# the path and not its score. At work, train until the loss on validation texts no longer falls.

# %% tags=["nbval-ignore-output"]
ENDING = " This text is about the"
torch.manual_seed(0)
options = {"num_labels": 9, "pad_token_id": tokenizer.pad_token_id}
options["id2label"] = dict(enumerate(names))
usual = AutoModelForSequenceClassification.from_pretrained(tl.BUNDLED, **options)
usual = get_peft_model(usual.float(), LoraConfig(r=8, task_type="SEQ_CLS"))
ids = tokenizer([text + ENDING for text in train.text]).input_ids
numbered = zip(ids, torch.cat(targets).tolist(), strict=True)
rows = [{"input_ids": row, "labels": label} for row, label in numbered]
folder = tempfile.mkdtemp()
settings = {"learning_rate": 3e-3, "max_steps": 8, "save_strategy": "no"}
settings |= {"report_to": "none", "use_cpu": True, "disable_tqdm": True}
arguments = TrainingArguments(folder, **settings)
trainer = Trainer(usual, arguments, train_dataset=rows, processing_class=tokenizer)
print(f"mean training loss {trainer.train().training_loss:.2f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Merge the adapters into the weights, save model and tokenizer in one folder, and load them as a user would, through a
# `pipeline`. The user has to end the texts in the same way.

# %% tags=["nbval-ignore-output"]
trainer.model.merge_and_unload().save_pretrained(folder)
tokenizer.save_pretrained(folder)
ask = pipeline("text-classification", model=folder, device="cpu")
print(ask("A channel passes a value from one thread to another." + ENDING))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The answer has a label and a score, which is the probability of that label. A sure classifier gives scores near 1, and
# this one, stopped so early, stays far below. Exercise 13.1 puts such scores to use.
#
# So for this task and 431 labels you would deploy the bag of words, and with 32 labels the probe on the mean. If you
# are free to choose the model, take an *encoder* such as ModernBERT. An encoder reads in both directions, so every
# token has seen the whole text, and it needs no such ending. A larger model may also beat the bag of words with more
# labels. The order of work stays the same: first the bag of words, then a probe on frozen features, and fine-tuning
# only if the difference is worth its price.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A classifier is a pretrained body, a pooling and a small new head. Check the pooling first: here it was worth more
#   than all training.
# - Start with a bag of words: it costs a second, and a language model has to beat it. Here it did so with 32 labels and
#   not with more.
# - Give a share of right answers its Wilson interval, and compare two methods by the texts that only one of them gets
#   right.
#
# ## Further reading
#
# - J. Devlin et al., [BERT](https://arxiv.org/abs/1810.04805), 2018: a new head on an encoder, and frozen features from
#   several layers in section 5.3.
# - B. Warner et al., [ModernBERT](https://arxiv.org/abs/2412.13663), 2024: an encoder of today.
# - L. Tunstall et al., [Efficient few-shot learning without prompts](https://arxiv.org/abs/2209.11055), 2022: SetFit, a
#   sentence encoder for a handful of labels.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex13_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** The rows of a batch are padded on the right, and a program reads the class from the last column of the
# hidden states, `hidden[:, -1]`. It runs without an error. What is wrong?
#
# - **a** Nothing: a causal model does not see the padding.
# - **b** Every text gets the same class, because all rows end with the same token.
# - **c** For all but the longest text the class is read off padding, so it depends on the other texts of the batch.
# - **d** Only the gradients are wrong; the classes themselves are right.

# %%
course.quiz("quiz13")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 13.1.** A help desk lets a classifier decide only if it is sure, and hands the other tickets to a person.
# Write a function that says what this would be worth. It gets `probabilities`, a tensor of shape (texts, classes), the
# true classes `labels`, a tensor of shape (texts,), and a `threshold`. The classifier decides a text if its largest
# probability is at least the threshold. Return two numbers: the share of the texts that it decides, and the share of
# these that it gets right. At least one text is decided.


# %%
def decided(probabilities, labels, threshold):
    """The share of texts that are decided, and the accuracy on them."""
    # your code here


course.check("ex13_1", decided)

# %% [markdown]
# Previous: [12 · A real model](12_a_real_model.ipynb) ·
# Next: [14 · Preferences](14_preferences.ipynb)
