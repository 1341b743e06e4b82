# %% [markdown] slideshow={"slide_type": "slide"}
# # 13 · Classification
#
# *What is pretraining worth when the task is to name a class?*
#
# At work the task is often *classification*: to which team does this ticket go, is this review positive? In this lesson
# a model reads the beginning of a passage about Rust and says which of nine subjects it treats. You find out which
# hidden states its new head should read, and compare it with an older method that is hard to beat.
#
# **You will be able to**
#
# - turn the hidden states of a pretrained model into features of a text, and choose the pooling by cross-validation;
# - train, save and load a classifier with transformers and peft;
# - compare a probe with a bag of words, test their difference, and measure with how few labels pretraining pays.
#
# **You need** [lesson 2](02_inside_a_language_model.ipynb) for hidden states, [lesson 5](05_lora.ipynb) for LoRA, and
# [lesson 12](12_a_real_task.ipynb) for the Wilson interval.
#
# About 37 minutes.

# %% slideshow={"slide_type": "subslide"}
import tempfile

import numpy as np
import pandas as pd
import torch
from peft import LoraConfig, get_peft_model
from scipy.stats import binomtest, t
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.model_selection import cross_val_predict, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.nn.functional import cross_entropy
from transformers import AutoModel, AutoTokenizer, Qwen2ForSequenceClassification
from transformers import Trainer, TrainingArguments
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.trainer_callback import PrinterCallback

import course
import tlkit as tl

_ = tl.setup()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The task and its baseline
#
# The corpus has 631 passages, and `data/rust/classes.json` puts their 48 topics into nine classes. To keep the lesson
# fast, we cut every passage after 40 words.

# %%
corpus = tl.load_labelled()
passages = (*corpus.train, *corpus.validation, *corpus.test)
rows = [(" ".join(one.text.split()[:40]), one.label) for one in passages]
data = pd.DataFrame(rows, columns=["text", "label"])
print(data.text[data.label == "concurrency"].iloc[0])
data.groupby("label").size()

# %% [markdown] slideshow={"slide_type": "subslide"}
# We set 200 passages aside for the test, in the same proportions of classes, and train on the other 431. Both parts
# have the same 48 topics; if you expect new ones, hold out whole topics ([lesson 11](11_your_data.ipynb)). Settings are
# chosen by *cross-validation*: scikit-learn cuts the 431 into five *folds*, scores each by a model trained on the other
# four, and takes the mean.

# %%
train, test = train_test_split(data, test_size=200, stratify=data.label, random_state=0)
folds = StratifiedKFold(5, shuffle=True, random_state=0)  # each with all classes
print(f"always the largest class: {test.label.value_counts(normalize=True).max():.1%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# This 16.5% is the floor that every classifier must beat.
#
# The classical method is a [bag of words](glossary.md#bag-of-words). It counts how often each word occurs in a text and
# forgets their order. *TF-IDF* then gives more weight to words that occur in few texts, because *channel* says more
# about the subject than *the*. From these features $x$, one for each word of the vocabulary, a *logistic regression*
# computes one score for each class, $z = W x + b$, where $W$ has shape (9, words) and $b$ (9). It is trained with
# cross-entropy, and a penalty keeps its weights small. A larger $C$ means a weaker penalty. The next cell tries several
# $C$ and fits the best on all 431.


# %%
def searched(method, x, grid):
    search = GridSearchCV(method, {"logisticregression__C": grid}, cv=folds)
    search.fit(x, train.label)
    print(grid, (100 * search.cv_results_["mean_test_score"]).round(1), "%")
    return search.best_estimator_


counter = TfidfVectorizer(sublinear_tf=True)  # counts on a logarithmic scale
words = make_pipeline(counter, LogisticRegression(max_iter=1000))
words = searched(words, train.text, (1, 10, 100, 1000))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Last token or mean?
#
# The best $C$ is 100, with 49.6%: three times the floor, from word counts alone. `AutoModel` loads the pretrained
# model without its head: for each token it returns a hidden state of 192 numbers. A classifier needs one vector for
# each text, and making one of many is called *pooling*. The usual way for a causal model takes the state of the *last
# token*, because it alone has seen the whole text. Another takes the *mean* of the states $h_t$ of all $n$ tokens:
#
# $$\bar h = \frac{1}{n} \sum_{t=1}^{n} h_t$$
#
# The hidden states have shape (texts, tokens, 192), the attention mask (texts, tokens), and the result (texts, 192).
# Padding, which the mask marks by a 0, must not count, or the class would depend on how long the *other* texts of the
# batch are.


# %%
def last_token(hidden, mask):
    last = mask.cumsum(1).argmax(1)  # argmax finds the first maximum: 1 1 0 gives 1 2 2
    return hidden[torch.arange(len(hidden)), last]


def mean_of_tokens(hidden, mask):
    return (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)


tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)


@torch.no_grad()
def pooled(model, texts):  # both poolings: one row of 192 numbers for each text
    last, mean = [], []
    for start in range(0, len(texts), 16):
        part = list(texts[start : start + 16])
        batch = tokenizer(part, padding=True, return_tensors="pt")
        hidden = model(**batch).last_hidden_state
        last.append(last_token(hidden, batch.attention_mask))
        mean.append(mean_of_tokens(hidden, batch.attention_mask))
    return torch.cat(last).numpy(), torch.cat(mean).numpy()


# %% [markdown] slideshow={"slide_type": "subslide"}
# The weights stay frozen, so the pooled vectors are fixed features, which the same logistic regression can read, now
# with a $W$ of shape (9, 192). This is called a [linear probe](glossary.md#linear-probe). `StandardScaler` first gives
# each of the 192 features mean 0 and standard deviation 1, so that the penalty treats them alike. These features are
# larger than TF-IDF's, so $C$ is smaller. A control shows what pretraining is worth: the mean of random token vectors,
# without any block (only the final norm stays).
#
# **Predict first.** Which reads the subject better, the last token or the mean? Will any beat the 49.6% above?

# %%
pretrained = AutoModel.from_pretrained(tl.BUNDLED, dtype=torch.float32).eval()
torch.manual_seed(0)
untrained = AutoModel.from_config(pretrained.config).eval()
untrained.layers = torch.nn.ModuleList()  # no blocks
texts = np.array([*train.text, *test.text])  # the first 431 are for training
features = {}
features["last token"], features["mean"] = pooled(pretrained, texts)
features["random vectors"] = pooled(untrained, texts)[1]

probes = {}
for name, x in features.items():
    print(name, end=" ")
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    probes[name] = searched(probe, x[:431], (0.001, 0.01, 0.1, 1))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The mean reads the subject in 45.7% of the texts and the last token in only 27.4%. Random vectors reach 33.2%, twice
# the floor, because their mean is still a bag of words, squeezed into 192 numbers. Twelve other draws stayed between 31
# and 38%, so against random vectors pretraining is worth 8 to 15 points. But the real bag of words leads without it.
#
# **Why does the last token fail?** Probably because its state is made to predict the next token, which depends more on
# the last few words than on the subject. We go on with the mean; with another model or task, try both.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Train, save and load
#
# transformers has a class for this task, here `Qwen2ForSequenceClassification`. Its new head, `score`, is a matrix $W$
# of shape (9, 192) without a bias, and reads the last token that is not padding. Our subclass reads the mean.


# %%
class MeanClassifier(Qwen2ForSequenceClassification):
    accepts_loss_kwargs = False  # our loss is already the mean of its batch

    def forward(self, input_ids=None, attention_mask=None, labels=None, **more):
        hidden = self.model(input_ids, attention_mask, **more).last_hidden_state
        logits = self.score(mean_of_tokens(hidden, attention_mask))
        loss = None if labels is None else cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


# %% [markdown] slideshow={"slide_type": "subslide"}
# A head that starts at random can spoil the pretrained features (Kumar et al., below). So fit the head first, then
# train both: a logistic regression without bias has its shape, (9, 192), and `fine_tuned` copies the weights.
#
# LoRA goes into the last of the eight blocks. With `task_type="SEQ_CLS"`, peft trains the head beside the adapters. The
# seven blocks below are frozen, so we run them once and store what leaves them ([lesson 7](07_freezing.ipynb)). This
# saves over three quarters of a step, so we can try two learning rates, each in three folds. **Predict first.** How
# many points will one epoch add to the fitted head?

# %%
names = sorted(train.label.unique())
options = {"num_labels": 9, "id2label": dict(enumerate(names)), "dtype": torch.float32}
head = make_pipeline(LogisticRegression(max_iter=1000, fit_intercept=False))
head = searched(head, features["mean"][:431], (0.01, 0.1, 1))

batch = tokenizer(list(train.text), padding=True, return_tensors="pt")
with torch.no_grad():
    states = pretrained(**batch, output_hidden_states=True).hidden_states
stored = {"inputs_embeds": states[7], "attention_mask": batch.attention_mask}
stored["labels"] = torch.tensor([names.index(label) for label in train.label])

folder = tempfile.mkdtemp()
settings = {"per_device_train_batch_size": 16, "num_train_epochs": 1, "seed": 0}
settings |= {"use_cpu": True, "remove_unused_columns": False, "save_strategy": "no"}


def fine_tuned(chosen, rate):
    torch.manual_seed(0)
    model = MeanClassifier.from_pretrained(tl.BUNDLED, use_cache=False, **options)
    fitted = clone(head).fit(features["mean"][chosen], train.label.iloc[chosen])
    model.score.weight.data = torch.tensor(fitted[0].coef_, dtype=torch.float32)
    model.model.layers = model.model.layers[-1:]  # block 8 alone: it reads states[7]
    lora = LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16, target_modules=".*_proj")
    model = get_peft_model(model, lora)
    examples = [{name: x[i] for name, x in stored.items()} for i in chosen]
    args = TrainingArguments(folder, learning_rate=rate, disable_tqdm=True, **settings)
    trainer = Trainer(model, args, train_dataset=examples)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return model.eval()


# %% tags=["check-rates", "nbval-ignore-output"]
thirds = StratifiedKFold(3, shuffle=True, random_state=0)
before = cross_val_score(head, features["mean"][:431], train.label, cv=thirds)
print(f"fitted head: {before.mean():.1%}")
for rate in (1e-3, 1e-2):
    hits = 0
    for fit, held in thirds.split(train, train.label):
        model = fine_tuned(fit, rate)
        z = model(**{name: x[held] for name, x in stored.items()}).logits
        hits += (z.argmax(1) == stored["labels"][held]).sum().item()
    print(f"rate {rate}: {hits / 431:.1%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Neither rate gains a point over the fitted head, and a point is only four texts. So one epoch in one block adds
# nothing measurable. More blocks, epochs or texts may gain more.
#
# Now train on all 431 texts at the better rate, merge the adapters, and put the trained block and head into a whole
# model. Save it with its tokenizer, and load it with `MeanClassifier`: `AutoModelForSequenceClassification` would load
# the same files but read the last token. The first test text has ten tokens of padding in its batch. Alone it has none
# and must get the same logits, or the pooling reads padding.

# %%
top = fine_tuned(np.arange(431), 1e-3).merge_and_unload()
whole = MeanClassifier.from_pretrained(tl.BUNDLED, **options)
whole.model.layers[-1], whole.score = top.model.layers[0], top.score
whole.save_pretrained(folder)
tokenizer.save_pretrained(folder)
kept = MeanClassifier.from_pretrained(folder).eval()


@torch.no_grad()
def logits_of(texts):
    return kept(**tokenizer(list(texts), padding=True, return_tensors="pt")).logits


logits = torch.cat([logits_of(test.text[i : i + 16]) for i in range(0, 200, 16)])
torch.testing.assert_close(logits_of(test.text[:1])[0], logits[0], atol=1e-4, rtol=0)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Which differences are real?
#
# Everything is chosen, so now we score the test texts, with [Wilson intervals](glossary.md#wilson-interval). *Mean* and
# *last token* are the probes.


# %% tags=["nbval-ignore-output"]
def wilson(answers):
    low, high = binomtest(answers.sum(), len(answers)).proportion_ci(method="wilson")
    return f"{answers.mean():.1%} ({low:.1%} to {high:.1%})"


truth = test.label.to_numpy()
right = {"bag of words": words.predict(test.text) == truth}
for name in ("last token", "mean"):
    right[name] = probes[name].predict(features[name][431:]) == truth
right["fine-tuned"] = np.array(names)[logits.argmax(1)] == truth
for name, hits in right.items():
    print(f"{name}: {wilson(hits)}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Overlapping intervals prove nothing here: all methods answered the *same* 200 texts. So look only at the texts
# that exactly one of two methods gets right. If both were equally good, each of these would be a fair coin toss.
# `binomtest` computes $p$, the probability that fair coins give a split at least as uneven as ours ([McNemar's exact
# test](glossary.md#mcnemars-test)). We ask three questions, so we require $p < 0.05/3 \approx 0.017$ ([Bonferroni's
# correction](glossary.md#bonferroni-correction)).

# %% tags=["nbval-ignore-output"]
against = {"fine-tuned": "mean", "bag of words": "mean", "mean": "last token"}
for one, other in against.items():
    only_one = (right[one] & ~right[other]).sum()
    only_other = (right[other] & ~right[one]).sum()
    p = binomtest(only_one, only_one + only_other).pvalue
    print(f"{one} against {other}: {only_one} to {only_other}, p = {p:.2g}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Only the last pair passes: the mean is 19.5 points ahead of the last token. The fine-tuned model is no better than the
# probe, and the six points between bag of words and probe may be chance.
#
# One accuracy hides the weak classes. The *recall* of a class is the share of its texts that are named rightly. (The
# mean of all nine is the [balanced accuracy](glossary.md#balanced-accuracy).)

# %%
recalls = pd.DataFrame(right)[["bag of words", "mean"]].groupby(truth).mean()
recalls.assign(texts=test.label.value_counts()).round(2).sort_values("bag of words")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Both methods are poor at *smart pointers* and *unsafe code and macros*. Few labels alone do not explain it: *errors*
# has as few, and the bag of words gets 46% there. Of the 14 texts on smart pointers, each method puts nine into
# *ownership and borrowing* or *collections and text*, which overlap with it. So read these texts, then label more or
# merge classes. But the counts are small: 4 right of 14 means 12 to 55%.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How many labels?
#
# Labels cost money. The next cell trains the bag of words and the probe on 32 to 256 labelled texts, ten draws of each
# size, and tests both on all others. **Predict first.** Against the bag of words, is pretraining worth more
# with few labels or with many?

# %%
labels = np.array([*train.label, *test.label])
methods = {"bag of words": (words, texts), "mean": (probes["mean"], features["mean"])}
scores = {}
for size in (32, 64, 128, 256):
    for draw in range(10):
        split = {"train_size": size, "stratify": labels, "random_state": draw}
        chosen, rest = train_test_split(np.arange(len(texts)), **split)
        for name, (method, x) in methods.items():
            fitted = clone(method).fit(x[chosen], labels[chosen])
            scores[size, draw, name] = 100 * fitted.score(x[rest], labels[rest])
scores = pd.Series(scores).unstack().rename_axis(["labels", "draw"])

# %%
curves = scores.groupby("labels").mean().rename(index=str)
axes = curves.plot(marker="o", figsize=(8, 3.6))
axes.set(xlabel="labelled training texts", ylabel="test accuracy (%)", ylim=(0, 55))
_ = axes.set_title("With more labels the bag of words catches up")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Compare the two draw by draw, because both learned from the same texts. The interval is the mean difference ± 3.1
# standard errors. This factor, Student's $t$, is 3.1 and not 1.96, because we have only ten draws and ask four
# questions. For other passages the interval is wider.

# %%
lead = (scores["mean"] - scores["bag of words"]).unstack()
half = t.ppf(1 - 0.05 / 4 / 2, 9) * lead.std(axis=1) / np.sqrt(10)
average = lead.mean(axis=1)
course.claim("The lead shrinks with more labels", average.is_monotonic_decreasing)
pd.DataFrame({"lead": average, "from": average - half, "to": average + half}).round(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With 32 labels the probe is ahead by 6.1 points. With 128 no lead is left, and with 256 the bag of words is ahead by
# 2.9, but the interval reaches zero. However, both $C$ were chosen on 431 labels. If each is chosen on the 32 alone,
# the probe has 30% and the bag of words 23%: this lead of seven points (−1 to 15) is only probable.
#
# **Why does the lead shrink?** With 32 labels, about 38% of the words of a new text occur in no labelled text, so the
# bag of words cannot use them; with 256 it is 13%.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Decide the sure ones
#
# With 431 labels we keep the bag of words, which costs almost nothing. At 55% it cannot work alone. But it can decide a
# text if its largest probability reaches a *threshold*, and hand the others to a person. Cross-validation shows what
# this is worth. **Predict first.** How many of the texts from 0.6 on are right?

# %%
P = cross_val_predict(words, train.text, train.label, cv=folds, method="predict_proba")
hits = words.classes_[P.argmax(1)] == train.label
for threshold in (0, 0.4, 0.5, 0.6, 0.7, 0.8):
    sure = P.max(1) >= threshold
    print(f"from {threshold}: decides {sure.mean():.0%}, right {hits[sure].mean():.0%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# From 0.6 on it decides 28% and gets 65% of these right. We choose 0.6, and try it on the test texts.

# %%
sure = words.predict_proba(test.text).max(1) >= 0.6
print(f"decides {sure.mean():.1%}, right {wilson(right['bag of words'][sure])}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It decides 37.5%, not 28%, partly because more labels make it surer, and 69% of these are right, against 55% overall.
# No threshold above gives 90%. More labels may help, but some passages fit two classes. A larger model or an
# [encoder](glossary.md#encoder) such as [ModernBERT](https://arxiv.org/abs/2412.13663) may do better. First try the bag
# of words, then a probe, then fine-tuning.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A classifier is a pretrained body, a pooling and a small new head. Choose the pooling first, by cross-validation:
#   it was worth 18 points here.
# - Random vectors show what pretraining is worth, here 8 to 15 points. A bag of words, which costs seconds, shows
#   whether you need it: here probably with 32 labels, and not with 256.
# - Give an accuracy its Wilson interval, and compare two methods by the texts that only one of them gets right.
#
# ## Further reading
#
# - A. Kumar et al., [Fine-tuning can distort pretrained features](https://arxiv.org/abs/2202.10054), 2022.

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
# **Exercise 13.1.** Write the function that chooses such a threshold. It gets `probabilities`, a tensor of shape
# (texts, classes), the true classes `labels`, of shape (texts,), and the share `wanted` of right answers. Try the
# largest probability of each text as a threshold: a text is decided if its own is at least as high. Return the lowest
# threshold at which at least `wanted` of the decided texts are right. In our cases there is one.


# %%
def lowest_threshold(probabilities, labels, wanted):
    """The lowest threshold from which on the wanted share of decided texts is right."""
    # your code here


course.check("ex13_1", lowest_threshold)

# %% [markdown]
# Previous: [12 · A real task](12_a_real_task.ipynb) ·
# Next: [14 · Preferences](14_preferences.ipynb)
