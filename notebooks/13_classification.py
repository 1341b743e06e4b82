# %% [markdown] slideshow={"slide_type": "slide"}
# # 13 · Classification
#
# *What is pretraining worth when the task is to name a class?*
#
# So far the model has predicted the next token, as in pretraining. At work the task is often a different one: to
# which team does this ticket go, is this review positive, what is this text about? This is called *classification*.
# In this lesson a model reads the beginning of a passage about Rust and says which of nine subjects it treats. You
# replace the model's head by a new one, find out which hidden states this head should read, and train it. Beside it
# stands a method from long before language models, which is harder to beat than you may expect.
#
# **You will be able to**
#
# - build and train a classifier from a pretrained body, with a head that reads the right hidden states;
# - compare it with a bag of words in scikit-learn, and give every accuracy and every difference an interval;
# - say how accuracy grows with the number of labelled texts, and when pretraining helps.
#
# **You need** [lesson 2](02_inside_a_language_model.ipynb) for hidden states and heads, and
# [lesson 5](05_lora.ipynb) for LoRA.
#
# About 42 minutes.

# %% slideshow={"slide_type": "subslide"}
import copy
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from peft import LoraConfig, get_peft_model
from scipy.stats import binomtest, norm
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import course
import tlkit as tl

_ = tl.setup()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The task and its baseline
#
# The corpus has 631 passages, and `data/rust/classes.json` puts their topics into nine classes. To keep the lesson
# fast, we cut every passage after 40 words. We set 200 passages aside for the test, in the same proportions of
# classes, and train on the other 431. Settings such as the strength of a penalty are chosen by *cross-validation* on
# these 431, so we need no validation split: scikit-learn trains on four fifths of them, scores the last fifth, and
# does this five times.

# %%
corpus = tl.load_labelled()
passages = (*corpus.train, *corpus.validation, *corpus.test)
rows = [(" ".join(one.text.split()[:40]), one.label) for one in passages]
data = pd.DataFrame(rows, columns=["text", "label"])
parts = train_test_split(data, test_size=200, stratify=data.label, random_state=0)
train, test = (
    part.sort_values("text", key=lambda text: text.str.len()) for part in parts
)
counts = train.label.value_counts()
print(f"largest class: {counts.index[0]}, {counts.iloc[0]} of {len(train)} passages")
print(f"always the largest: {(test.label == counts.index[0]).mean():.1%} right")

# %% [markdown] slideshow={"slide_type": "subslide"}
# A classifier that always names the largest class is right in 16.5% of the cases, so this is the floor. (If a small
# class matters as much to you as a large one, report the [balanced accuracy](glossary.md#balanced-accuracy) as well.)
#
# The classical method is a [bag of words](glossary.md#bag-of-words). It counts how often each word occurs in a text
# and forgets their order. *TF-IDF* then gives more weight to words that occur in few texts, because *channel* says
# more about the subject than *the*. A *logistic regression* computes one score for each class, $z = W x + b$, from
# these features $x$. It is trained with cross-entropy, as the head of a language model is, and a penalty keeps its
# weights small. A larger $C$ means a weaker penalty.


# %%
def bag_of_words(C=30):
    return make_pipeline(
        TfidfVectorizer(sublinear_tf=True), LogisticRegression(C=C, max_iter=1000)
    )


for C in (1, 10, 30):
    scores = cross_val_score(bag_of_words(C), train.text, train.label)
    print(f"C={C:<3} cross-validation {scores.mean():.1%}")
words = bag_of_words().fit(train.text, train.label)
right = {"bag of words": words.predict(test.text) == test.label.to_numpy()}
print(f"{len(words[0].vocabulary_):,} words")
print(f"test accuracy {right['bag of words'].mean():.1%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **How sure is this number?** With 200 test texts, other texts would have given another share. The *Wilson interval*
# answers for shares of right answers. If $p$ is the share and $n$ the number of texts, it is
#
# $$\frac{1}{1 + z^2/n} \left( p + \frac{z^2}{2n} \pm z \sqrt{\frac{p (1 - p)}{n} + \frac{z^2}{4 n^2}} \right),
# \qquad z = 1.96$$
#
# For large $n$ this is nearly $p \pm 1.96 \sqrt{p (1 - p) / n}$. The terms with $z^2$ pull it away from 0 and 1, so
# that it also works for few texts. scipy has it as a method of the binomial test.


# %%
def wilson(right):
    """The share of right answers in percent, with its 95% interval."""
    low, high = binomtest(int(right.sum()), len(right)).proportion_ci(method="wilson")
    return f"{right.mean():.1%} ({low:.1%} to {high:.1%})"


print("bag of words:", wilson(right["bag of words"]))

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
# In both, padding must not count. The tokenizer marks real tokens by a 1 in the attention mask and padding by a 0.
# The class would otherwise depend on how long the *other* texts of the batch are, and no error would tell you.


# %%
def last_token(hidden, mask):
    """hidden: (texts, tokens, width); mask: (texts, tokens); result: (texts, width)."""
    return hidden[torch.arange(len(hidden)), mask.sum(1) - 1]


def mean_of_tokens(hidden, mask):
    """The same shapes; padding counts in neither the sum nor the number of tokens."""
    return (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)


# %% [markdown] slideshow={"slide_type": "subslide"}
# We will train only the uppermost of the model's eight blocks. The seven blocks below stay frozen, so what they make
# of a text never changes. We compute it once and store it, and from then on an epoch costs an eighth of what it would
# cost otherwise. The next cell cuts the model in two. It also sorts the texts by length, so that the 16 texts of a
# batch need little padding.

# %%
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
lower = AutoModel.from_pretrained(tl.BUNDLED, dtype=torch.float32).eval()
upper = copy.deepcopy(lower)
upper.layers = upper.layers[7:]  # the last block, and the final norm
lower.layers, lower.norm = lower.layers[:7], torch.nn.Identity()


@torch.no_grad()
def stored(texts):
    """What the lower blocks make of 16 texts at a time, with the attention mask."""
    batches = []
    for start in range(0, len(texts), 16):
        part = list(texts[start : start + 16])
        batch = tokenizer(part, padding=True, return_tensors="pt")
        batches.append((lower(**batch).last_hidden_state, batch.attention_mask))
    return batches


@torch.no_grad()
def applied(model, batches):
    """What a model makes of stored batches, in one tensor."""
    return torch.cat([model(states, mask) for states, mask in batches])


batches, test_batches = stored(train.text), stored(test.text)
print("first batch:", tuple(batches[0][0].shape))

# %% [markdown] slideshow={"slide_type": "subslide"}
# With all weights frozen, the pooled vectors are fixed features, and the same logistic regression can read them. Such
# a classifier is called a [linear probe](glossary.md#linear-probe).
#
# **Predict first.** Which reads the subject better, the last token or the mean? Will either beat the bag of words?


# %%
def probe():
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.03, max_iter=1000))


def frozen(pool):
    return lambda states, mask: pool(
        upper(inputs_embeds=states, attention_mask=mask).last_hidden_state, mask
    )


features, test_features = {}, {}
for name, pool in {"last token": last_token, "mean": mean_of_tokens}.items():
    features[name] = applied(frozen(pool), batches).numpy()
    test_features[name] = applied(frozen(pool), test_batches).numpy()
    predicted = probe().fit(features[name], train.label).predict(test_features[name])
    right[f"frozen, {name}"] = predicted == test.label.to_numpy()
    print(f"{name}: {wilson(right[f'frozen, {name}'])}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# With the same weights and the same logistic regression, the mean is right for 48.5% of the texts and the last token
# for only 30.5%. The bag of words, at 54.5%, is ahead of both.
#
# **Why does the last token fail?** Its state had one purpose in pretraining, to predict the next token. The subject of
# the whole passage helps little with that, and so a small model has not learned to collect it there. The mean holds
# something of every word, and is in this respect a bag of words with pretrained vectors. In larger models the gap
# closes: of SmolLM2-135M, the last token reaches 60% and the mean 66% on the validation passages
# (`data/sweeps/smollm2-135m-instruct/classify/depth.csv`). So try both before you train anything.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Train with what works
#
# The classifier is now a module of three parts: the last block, the pooling that won, and a new head. The head is a
# matrix $W$ of shape (9, 192) and a bias, with random values at the start, so it must always be trained. The last
# block gets LoRA adapters. The head has the larger learning rate, because it starts from nothing.


# %%
class Classifier(torch.nn.Module):
    def __init__(self, pool, classes=9):
        super().__init__()
        options = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear")
        self.body, self.pool = get_peft_model(copy.deepcopy(upper), options), pool
        self.head = torch.nn.Linear(192, classes)

    def forward(self, states, mask):
        hidden = self.body(inputs_embeds=states, attention_mask=mask).last_hidden_state
        return self.head(self.pool(hidden, mask))


names = sorted(train.label.unique())
targets = torch.tensor([names.index(label) for label in train.label]).split(16)
loss_of = torch.nn.CrossEntropyLoss()


def trained(pool, epochs=3):
    """A classifier that has read the stored training texts; it prints its losses."""
    torch.manual_seed(0)
    model = Classifier(pool)
    optimizer = torch.optim.AdamW(model.body.parameters(), lr=3e-3)
    optimizer.add_param_group({"params": model.head.parameters(), "lr": 1e-2})
    linear = torch.optim.lr_scheduler.LinearLR
    schedule = linear(optimizer, 1.0, 0.0, total_iters=epochs * len(batches))
    for epoch in range(epochs):
        losses = []
        for number in torch.randperm(len(batches)).tolist():
            loss = loss_of(model(*batches[number]), targets[number])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1}: training loss {np.mean(losses):.2f}")
    return model.eval()


# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** The loss of a guess over nine classes is $\ln 9 = 2.20$. How low will the training loss fall in
# three epochs, and how much better than the frozen probe will the classifier be on test texts?

# %% tags=["nbval-ignore-output"]
classifier = trained(mean_of_tokens)
logits = applied(classifier, test_batches)
right["LoRA, mean"] = np.array(names)[logits.argmax(1)] == test.label.to_numpy()
for name, answers in right.items():
    print(f"{name:18} {wilson(answers)}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The training loss falls to half of a guess, but on test texts the adapters bring little: 51.0% after 48.5%. Longer
# training hardly changes this. The training loss then goes towards zero, because the classifier learns its 431 texts
# by heart, but new texts gain only little from that.
#
# A padded text must get the same logits as the text alone. This one check finds most mistakes of pooling, so make it
# a habit:

# %%
mask = test_batches[0][1]
row = mask.sum(1).argmin().item()  # the shortest text of the first batch
print(f"{mask[row].sum()} tokens of text, {(1 - mask[row]).sum()} of padding")
alone = applied(classifier, stored(test.text[row : row + 1]))
torch.testing.assert_close(alone[0], logits[row], atol=1e-4, rtol=0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# And this is what it was made for: a text of your own goes in, and a class comes out.


# %% tags=["nbval-ignore-output"]
def classify(text):
    """The class of a text, and the probability that the model gives it."""
    probabilities = applied(classifier, stored([text]))[0].softmax(0)
    return names[probabilities.argmax()], round(probabilities.max().item(), 2)


print(classify("A thread sends values through a channel, and another receives them."))
print(classify("The borrow checker rejects two mutable references to a value."))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Which differences are real?
#
# The intervals above overlap, but overlap is not a test, because all methods answered the *same* 200 texts. On most
# of them two methods are both right or both wrong, and these texts say nothing about their difference. Let $b$ be the
# number of texts that only the first gets right, and $c$ the number that only the second gets right. Then the
# difference is $(b - c)/n$, and its interval is about
#
# $$\frac{b - c}{n} \pm \frac{z}{n} \sqrt{b + c - \frac{(b - c)^2}{n}}$$
#
# For one pair $z$ is 1.96. We ask about three pairs, so each interval takes $1 - 0.05/3$ and not 95%, which makes $z$
# 2.39. [Lesson 15](15_comparison.ipynb) explains this correction.

# %% tags=["nbval-ignore-output"]
pairs = [
    ("frozen, mean", "frozen, last token"),
    ("LoRA, mean", "frozen, mean"),
    ("LoRA, mean", "bag of words"),
]
z = norm.ppf(1 - 0.05 / len(pairs) / 2)


def difference(one, other):
    """Percentage points by which the first is better, with the interval."""
    b, c, n = (one & ~other).sum(), (other & ~one).sum(), len(one)
    half = z * np.sqrt(b + c - (b - c) ** 2 / n)
    return np.array([b - c, b - c - half, b - c + half]) * 100 / n


for one, other in pairs:
    points, low, high = difference(right[one], right[other])
    print(f"{one} - {other}: {points:+.1f} points ({low:+.1f} to {high:+.1f})")

# %%
points, low, high = difference(right["frozen, mean"], right["frozen, last token"])
course.claim("Mean minus last token: the interval excludes zero", low > 0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Only the first interval excludes zero. The choice of the pooling is worth 18 points, more than anything that
# training did. The 2.5 points of the adapters may be chance, and so may the 3.5 points by which the bag of words is
# ahead of them.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How many labels?
#
# Labels cost money, so this is often the question that decides. The next cell trains the bag of words and the two
# probes on 32 to 431 labelled texts. For each smaller number it draws five different training sets, because with few
# texts it matters much which ones they are.
#
# **Predict first.** Where is pretraining worth most, with few labels or with many?

# %%
records, labels, indices = [], train.label.to_numpy(), np.arange(len(train))
for size, draw in product((32, 64, 128, 256), range(5)):
    options = {"train_size": size, "stratify": labels, "random_state": draw}
    chosen, _ = train_test_split(indices, **options)
    model = bag_of_words().fit(train.text.iloc[chosen], labels[chosen])
    records.append((size, "bag of words", model.score(test.text, test.label)))
    for name in features:
        model = probe().fit(features[name][chosen], labels[chosen])
        score = model.score(test_features[name], test.label)
        records.append((size, f"frozen, {name}", score))
records += [(431, name, answers.mean()) for name, answers in right.items()]
curve = pd.DataFrame(records, columns=["labels", "method", "accuracy"])
means = curve.pivot_table(index="labels", columns="method", values="accuracy") * 100

# %%
axes = means.plot(marker="o", logx=True, figsize=(8, 4.2))
axes.axhline(16.5, color="grey", linestyle="--")
axes.text(32, 17, "always the largest class", size="small")
axes.set_xticks(means.index, means.index, minor=False)
axes.minorticks_off()
axes.set_xlabel("labelled training texts (log scale)")
axes.set_ylabel("test accuracy (%), mean of five draws")
axes.set_title("Pretraining helps where labels are few, if the mean is read")
plt.show()

# %% [markdown] slideshow={"slide_type": "subslide"}
# With 32 and 64 labels the frozen mean is about five points above the bag of words, around 128 the lines cross, and
# with all labels the bag of words is at the top. **Why?** With few labelled texts, most words of a new text occur in
# none of them, and the bag of words cannot use such words. A pretrained model has similar vectors for related words,
# whether they were labelled or not. With more labels, the bag of words has seen the words that matter, and this
# advantage fades. The last token has no such advantage at any size.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The way it is done at work
#
# transformers has a class for this task, `AutoModelForSequenceClassification`. On a causal model its head, called
# `score`, reads the last token that is not padding. It finds this token by `pad_token_id`, which therefore has to be
# in the configuration. The next cell checks that it does what our `last_token` does.

# %%
usual = AutoModelForSequenceClassification.from_pretrained(
    tl.BUNDLED, num_labels=9, pad_token_id=tokenizer.pad_token_id, dtype=torch.float32
)
batch = tokenizer(list(test.text[:4]), padding=True, return_tensors="pt")
with torch.no_grad():
    theirs = usual.eval()(**batch).logits
    hidden = usual.model(**batch).last_hidden_state
    ours = usual.score(last_token(hidden, batch.attention_mask))
course.claim("It reads the last token", torch.allclose(ours, theirs, atol=1e-4))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Give it `id2label=dict(enumerate(names))`, too. Then the folder of the saved model knows the names of the classes,
# so nobody has to guess later what class 3 was. For LoRA on this class give `LoraConfig` the `task_type="SEQ_CLS"`:
# then peft also trains the head and saves it with the adapter.
#
# If you are free to choose the model, take an *encoder* such as ModernBERT. An encoder reads in both directions, so
# every token has seen the whole text, and it was pretrained to fill gaps and not to continue. For classification it
# is usually more accurate than a causal model of its size. The code is the same:
#
# ```python
# model = AutoModelForSequenceClassification.from_pretrained(
#     "answerdotai/ModernBERT-base", num_labels=9, id2label=dict(enumerate(names))
# )
# trainer = Trainer(model, TrainingArguments("out", learning_rate=5e-5, num_train_epochs=3),
#                   train_dataset=tokens, data_collator=DataCollatorWithPadding(tokenizer))
# ```
#
# One limit of this lesson is its size: the model has four million parameters and has never read about Rust. A larger
# model moves all curves but that of the bag of words. The order of work stays the same: first the bag of words, then
# a probe on frozen features, and fine-tuning only if the difference is worth its price.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A classifier is a pretrained body, a pooling and a small new head. Check the pooling first: here it was worth more
#   than all training.
# - Start with a bag of words: it costs a second, and a language model has to beat it. Pretraining helps most where
#   labels are few.
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
# - E. B. Wilson, [Probable inference, the law of succession, and statistical
#   inference](https://doi.org/10.1080/01621459.1927.10502953), 1927.

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
# **Exercise 13.1** (first steps). A help desk lets a classifier decide only if it is sure, and hands the other tickets
# to a person. Write a function that says what this would be worth. It gets `probabilities`, a tensor of shape (texts,
# classes), the true classes `labels`, a tensor of shape (texts,), and a `threshold`. The classifier decides a text if
# its largest probability is at least the threshold. Return two numbers: the share of the texts that it decides, and the
# share of these that it gets right. At least one text is decided.


# %%
def decided(probabilities, labels, threshold):
    """The share of texts that are decided, and the accuracy on them."""
    # your code here


course.check("ex13_1", decided)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 13.2** (apply it). You train only a head, for 50 epochs, on the features of a frozen model that are
# computed once and stored. The head itself costs next to nothing. Full fine-tuning of the same model takes 5 epochs,
# and its backward pass costs twice its forward pass. What percentage of the arithmetic of full fine-tuning does
# training the head need, including the computation of the features?

# %%
answer = None
# your code here
course.check("ex13_2", answer)

# %% [markdown]
# Previous: [12 · A real model](12_a_real_model.ipynb) ·
# Next: [14 · Instruction tuning](14_instruction_tuning.ipynb)
