# %% [markdown] slideshow={"slide_type": "slide"}
# # 13 · Another task
#
# *What is pretraining worth when the task is a different one?*
#
# So far we have adapted the model to new text, but its task has stayed the same: it predicts the next token, as in
# pretraining. Often, however, the task itself is different. In this lesson the model reads a passage about Rust and
# says which of nine subjects it is about. This task is called *classification*. The head that the model was
# pretrained with is of no use for it, because that head has one output for each token of the vocabulary and not one
# for each subject. We put a new head in its place, and then ask what the rest of the model contributes.
#
# **You will be able to**
#
# - put a classification head on a language model by hand, and read the class from the right token in a padded batch;
# - use a frozen model's hidden states as features, and choose the layer and the pooling on validation text;
# - judge a result by its balanced accuracy and the interval around it, and compare it with a baseline without any
#   pretraining.
#
# **You need** [lesson 2](02_inside_a_language_model.ipynb) for hidden states and heads, and
# [lesson 7](07_freezing.ipynb) for what a frozen part of a model saves. About 73 minutes.

# %% slideshow={"slide_type": "subslide"}
import tempfile

import pandas as pd
import torch

import course
import tlkit as tl
from course.lesson13 import pictures, probing

tl.setup()
rust = tl.load_labelled()
splits = {"train": rust.train, "validation": rust.validation, "test": rust.test}
classes = tl.class_names(rust.train)
base = tl.load_model("tiny")
texts = {
    name: tl.class_examples(documents, base.tokenizer, classes)
    for name, documents in splits.items()
}

# %%
two = ["A channel sends values to another thread.", "Each value has an owner."]
tokens = [[base.tokenizer.decode(i) for i in base.tokenizer(t).input_ids] for t in two]
pictures.class_head_picture(tl.meta_model("tiny", classes=9), tokens)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The embedding and the blocks are those of the pretrained model. They turn every token into a hidden state of 192
# numbers. Only the head is new: a matrix with one row for each class. It is applied to a single hidden state of each
# text, that of its last token. In a causal model a token sees only itself and the tokens before it, so the last token
# is the only one that has seen the whole text. The dotted boxes are padding, which makes the shorter texts of a batch
# as long as the longest.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The task
#
# Every passage of the corpus has one of 48 topics, such as `borrowing` or `channels`. The file
# `data/rust/classes.json` groups the topics into nine classes. The three splits are those of the earlier lessons.

# %%
sizes = pd.DataFrame(
    {
        name: pd.Series([text.label for text in part]).value_counts()
        for name, part in splits.items()
    }
)
sizes.loc[list(classes)]

# %%
for text in (rust.validation[0], rust.validation[1]):
    print(f"[{text.label}]\n{text.text[:180]} …\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The classes have unequal sizes: 84 training passages are about ownership and borrowing, but only 33 are about
# errors. Plain accuracy, the share of all texts that are classified correctly, would reward a classifier that prefers
# the large classes. *Balanced accuracy* gives every class the same weight: it is the mean, over the classes, of the
# share of each class's texts that are classified correctly.
#
# $$\text{BA} = \frac{1}{C} \sum_{c=1}^{C} \frac{\text{texts of class } c \text{ that are put into it}}{\text{texts of
# class } c}$$
#
# $C$ is the number of classes, here 9. A classifier that puts every text into the same class is always right in that
# class and always wrong in the eight others, so its balanced accuracy is 1/9, about 11%, whichever class it chooses.

# %% tags=["check-tl"]
labels = texts["test"].labels
largest = texts["train"].labels.mode().values
always_the_same = torch.full_like(labels, largest)
in_each = [(always_the_same == labels)[labels == c].double().mean() for c in range(9)]
print(f"plain accuracy:    {(always_the_same == labels).double().mean():.0%}")
print(f"balanced accuracy: {sum(in_each) / 9:.0%}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Without any pretraining
#
# Before we ask what pretraining is worth, we need to know how far we get without it. The classical method is a *bag
# of words*. Each word that occurs in at least two training passages becomes a feature, which means one of the numbers
# that describe a text. The feature is 1 if the word is in the text and 0 if it is not, divided by the square root of
# the number of such words in the text, so that long and short texts are comparable. The order of the words is lost.
#
# A *linear classifier* then computes $z = W x + b$, where $x$ is the vector of features with shape (features), $W$
# has the shape (classes, features) and $b$ the shape (classes). The classifier chooses the class $c$ with the largest
# $z_c$. $W$ and $b$ are fitted so that they minimize the cross-entropy on the training texts plus a penalty,
# $\frac{\lambda}{2} \lVert W \rVert^2$. The penalty keeps the weights small. It is needed because a classifier with
# more features than texts can learn all its texts by heart. `best_linear` first brings every feature to the same
# scale, because otherwise the penalty would weigh on small features more than on large ones. Then it tries five
# values of $\lambda$ and keeps the one that does best on validation text.

# %% tags=["check-words"]
words, others = probing.bag_of_words(rust.train, [*rust.validation, *rust.test])
bag = {"train": words, "validation": others[:65], "test": others[65:]}


def fitted(features, rows=503):
    """The best linear classifier on the first so many training texts."""
    train = features["train"][:rows], texts["train"].labels[:rows]
    return probing.best_linear(
        train, (features["validation"], texts["validation"].labels)
    )


def accuracy(features, linear, split):
    """Balanced accuracy of a linear classifier on one split."""
    found = linear.predict(features[split].double())
    return tl.balanced_accuracy(found, texts[split].labels)


by_words = fitted(bag)
print(f"{words.shape[1]:,} words")
print(f"bag of words on validation text: {accuracy(bag, by_words, 'validation'):.0%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The bag of words reaches 47%, more than four times the balanced accuracy of a classifier that always gives the same
# answer. This is not surprising, because a passage about channels tends to contain the word *channel*. The test texts
# stay untouched until all choices have been made.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The head by hand
#
# The new head has the same form as the linear classifier, without the bias. Its features are the hidden state of the
# last token:
#
# $$z = W h_n, \qquad p = \operatorname{softmax}(z), \qquad \text{loss} = -\ln p_y$$
#
# | symbol | what it is | shape |
# | --- | --- | --- |
# | $h_n$ | hidden state of the text's last token, after the final norm | (width), here 192 |
# | $W$ | the head, with random values at the start | (classes, width), here 9 × 192 |
# | $z$ | a [logit](glossary.md#logit) for each class | (classes) |
# | $p$ | the probability of each class; $p_y$ is that of the true class | (classes) |
# | $y$ | the true class | one number |
#
# In code, `causal.model` is the pretrained model without its head: the embedding, the blocks and the final norm. The
# only difficulty is to find the last token in a padded batch. `examples.texts` holds a 0 for each token of the text and
# a -1 for padding, so the text's length is the number of zeros.


# %%
def class_logits_by_hand(causal, W, examples):
    """Logits of each text, shape (texts, classes)."""
    hidden = causal.model(input_ids=examples.tokens).last_hidden_state
    lengths = (examples.texts >= 0).sum(1)
    rows = torch.arange(len(lengths))
    return hidden[rows, lengths - 1] @ W.T


few = texts["validation"][:8]
classifier = tl.load_model("tiny", classes=9).model
with torch.no_grad():
    by_hand = class_logits_by_hand(base.model, classifier.score.weight, few)
print(f"{type(classifier).__name__}, head of {tuple(classifier.score.weight.shape)}")
print(f"logits of 8 texts: {tuple(by_hand.shape)}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# `tl.load_model("tiny", classes=9)` loads the same weights into the model type that transformers has for this
# purpose, `AutoModelForSequenceClassification`. Its head is called `score` and has random values, and our function
# above used these values as its $W$. So our function and the model of transformers must give the same logits. A text
# must also get the same logits whether it is padded or read alone. This holds because the padding comes after the
# text, where the text's own tokens cannot see it.

# %% tags=["check-classifier"]
theirs = tl.class_logits(classifier, few)
each = [few[row : row + 1].trimmed() for row in range(8)]
alone = torch.cat([tl.class_logits(classifier, text) for text in each])
course.claim(
    "A padded text has the logits of the text alone",
    torch.allclose(alone, theirs, atol=1e-5),
)
lengths = (few.texts >= 0).sum(1)

# %% [markdown] slideshow={"slide_type": "subslide"}
# An untrained head knows nothing. Its mean loss on validation text is 2.5, a little worse than the $\ln 9 = 2.2$ of
# guessing all nine classes with equal probability, because random logits are sometimes confidently wrong.
#
# **Predict first.** A common mistake is to read the class from the last *column*, `hidden[:, -1]`. The rows of these
# eight texts are padded to the length of the longest validation text. For how many of the eight does the mistake
# change the logits?

# %%
with torch.no_grad():
    hidden = base.model.model(input_ids=few.tokens).last_hidden_state
mistaken = hidden[:, -1] @ classifier.score.weight.T
changed = (mistaken - by_hand).abs().amax(1) > 0.01
print(f"length of the rows: {few.shape[1]}, lengths of the texts: {lengths.tolist()}")
print(f"other logits: {int(changed.sum())} of 8 texts")

# %% tags=["check-classifier-2"]
shorter = few.trimmed()
with torch.no_grad():
    hidden = base.model.model(input_ids=shorter.tokens).last_hidden_state

# %% [markdown] slideshow={"slide_type": "subslide"}
# The mistake changes the logits of every text that is followed by padding, and here these are all eight. The wrong
# logits come from the hidden states of padding tokens, which have seen the text and then some meaningless tokens. The
# number of padding tokens depends on the longest text of the batch, so the class of a text would depend on the other
# texts in its batch. No error is raised, so the mistake is easy to overlook. You should therefore test for it, as
# above: a padded text must get the same logits as the text alone.
#
# transformers avoids the mistake by looking for the last token that is not the padding token. It has to know which
# one that is: without `pad_token_id` in the model's configuration it refuses batches of more than one text. In many
# models, as in ours, the end-of-text token also serves as padding. If a text *ends* with this token, the class would
# then be read one token too early. For this reason `tl.class_examples` refuses such texts.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Frozen features: a linear probe
#
# The bundled model was pretrained on the documentation of Python and of Python packages (`data/README.md`). It has
# read none of our passages and no text about Rust. So what can it contribute? The cheapest way to find out is not to
# train it at all. We compute the hidden states once, treat them as features and fit only a linear classifier on top.
# This is called a [linear probe](glossary.md#linear-probe). A linear probe is useful in itself as a classifier, but
# it also measures something about the model: if a linear classifier can find the subject in the hidden states of a
# layer, these states contain the subject in a simple form.
#
# Two choices have to be made. The first is the *layer*: the features can be taken from the embedding or after any
# block. The second is called *pooling*, which means making one vector of the hidden states of a text: we can take the
# hidden state of *the last token*, or *the mean* over all tokens of the text:
#
# $$\bar h = \frac{1}{n} \sum_{t=1}^{n} h_t$$
#
# Here $h_t$ is the hidden state of token $t$ and $n$ the number of tokens, without padding. As a control, we also
# compute the mean in a model of the same architecture with random weights.
#
# **Predict first.** Which will be better, the last token or the mean? And which depth: the embedding, a block in the
# middle, or the last block?

# %%
untrained = tl.load_model("tiny", random_init=True).model
layers = {
    "pretrained, mean": {},
    "pretrained, last token": {},
    "random weights, mean": {},
}
for split, part in texts.items():
    both = probing.layer_features(
        base.model, part, pool="both"
    )  # last token, then mean
    layers["pretrained, last token"][split] = both[..., :192]
    layers["pretrained, mean"][split] = both[..., 192:]
    layers["random weights, mean"][split] = probing.layer_features(
        untrained, part, pool="mean"
    )
probes, curves = {}, {}
for name, found in layers.items():
    at = [{split: layer[depth] for split, layer in found.items()} for depth in range(9)]
    probes[name] = [(features, fitted(features)) for features in at]
    curves[name] = [accuracy(*probe, "validation") for probe in probes[name]]
pictures.depth_chart(curves, classes=9)

# %% tags=["check-chance"]
highest = {name: values.index(max(values)) for name, values in curves.items()}
mean, last, chance = curves.values()
course.claim(
    "In the pretrained model the mean beats the last token at every depth",
    all(a > b for a, b in zip(mean, last, strict=True)),
)
ends = [str(document).rstrip()[-1] for document in rust.train]

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each point of the chart is one linear classifier, and a circle marks the best depth of each line. The mean is far
# better than the last token. Nearly every passage ends with a full stop, so the embedding of the last token says
# almost nothing about the passage, and its curve starts near 11%. Everything else that the last hidden state contains
# about the text was brought there by attention. A likely reason why this is so little is that in pretraining this
# hidden state only had to predict the next token, and the subject of the whole passage helps with that only a little.
#
# The mean, by contrast, contains information about the subject from the start, because the embedding of every token
# enters it. At the embedding it is a bag of tokens with pretrained vectors, and it reaches 50%.
#
# With depth the mean gains some 10 points: it reaches 60% after block 6 and 56% after the last block and the final
# norm. Layers in the middle, or shortly before the end, often give better features than the last one (Tenney et al.,
# below). The last layers have to prepare the logits of the next token, so information that does not help with that
# can be lost there. Our curve fits this explanation but does not prove it, because with 65 validation texts most of
# its ups and downs are noise.
#
# In the model with random weights the embedding is as good as the pretrained one on these texts, which the next
# section will examine. After that, depth does harm, because each block mixes the embeddings further and no training
# has taught the blocks to do so in a useful way.

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### One evaluation on test text
#
# For each line of the chart, the depth and the penalty were chosen together on validation text, as the best of 45
# combinations on only 65 texts. The best of 45 is partly lucky, so its validation score is likely to be too high. The
# test text has not been used for any choice. Now we use it once, for the chosen classifier of each line and for the
# bag of words.

# %%
candidates = {"bag of words": (bag, by_words)}
candidates |= {name: probes[name][depth] for name, depth in highest.items()}
rows = {}
for name, (features, linear) in candidates.items():
    predicted = linear.predict(features["test"].double())
    low, high = tl.balanced_interval(predicted, texts["test"].labels)
    test = tl.balanced_accuracy(predicted, texts["test"].labels)
    validation = accuracy(features, linear, "validation")
    rows[name] = {"validation": validation, "test": test, "low": low, "high": high}
scores = pd.DataFrame(rows).T
(100 * scores).round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# All numbers are percentages. The columns `low` and `high` are the ends of a 95% interval, which comes from
# resampling the test texts within each class. The interval is about 20 points wide, because there are only 63 test
# texts, between 4 and 9 in a class. In one of the smallest classes, a single text moves balanced accuracy by almost 3
# points.
#
# The pretrained mean reaches 59% on test text, almost as much as on validation text, and the bag of words reaches
# 46%. The last token is far below the mean, and these two intervals do not overlap.
#
# The intervals of the mean and the bag of words do overlap, but this does not settle the question. Both classifiers
# read the same 63 texts, so we can compare them text by text, as in [lesson 15](15_comparison.ipynb). The cell draws
# the test texts of each class anew, with repetition, and computes the difference of the two balanced accuracies each
# time.

# %% tags=["check-high"]
right = {}
for name in ("bag of words", "pretrained, mean"):
    features, linear = candidates[name]
    right[name] = linear.predict(features["test"].double()) == texts["test"].labels
apart = right["pretrained, mean"].double() - right["bag of words"].double()
members = [(texts["test"].labels == c).nonzero().flatten() for c in range(9)]
chance = torch.Generator().manual_seed(0)


def redrawn(places):
    """As many texts of one class, drawn with repetition."""
    return places[torch.randint(len(places), (len(places),), generator=chance)]


draws = [sum(apart[redrawn(m)].mean() for m in members) / 9 for _ in range(2000)]
ends = torch.stack(draws).quantile(torch.tensor([0.025, 0.975]).double())
low, high = (round(100 * end.item()) for end in ends)
only = {
    "the mean": int((apart == 1).sum()),
    "the bag of words": int((apart == -1).sum()),
}
print(f"difference: {100 * (scores.test.iloc[1] - scores.test.iloc[0]):.0f} points")
print(f"95% interval: {low} to {high} points")
print("right where the other is wrong:", only)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The mean is better by 13 points, and the interval begins close to zero. So pretraining seems to be worth something
# here, but with 63 texts it is hardly certain: each of the two classifiers is right about some texts that the other
# gets wrong.
#
# The random model shows why test text is needed. It reached 52% on validation text, more than the bag of words, but
# only 27% on test text. Its validation score was the luckiest of 45, with a penalty so small that the classifier had
# learned all of its 503 training texts by heart. Moreover, its weights are a *single draw* of random numbers. The
# next cell takes the depth that was best for this model, the embedding, repeats the measurement with four draws, and
# again chooses the penalty on validation text.

# %%
draws = []
for seed in range(4):
    drawn = tl.load_model("tiny", random_init=True, seed=seed).model
    vectors, features = drawn.get_input_embeddings().weight.detach(), {}
    for split, part in texts.items():
        real = (part.texts >= 0)[..., None]
        features[split] = (vectors[part.tokens] * real).sum(1) / real.sum(1)
    draws.append(accuracy(features, fitted(features), "test"))
print("random embeddings, test text:", " ".join(f"{draw:.0%}" for draw in draws))

# %% tags=["check-features"]
above = [100 * (scores.test["pretrained, mean"] - draw) for draw in draws]
features, linear = candidates["random weights, mean"]

# %% [markdown] slideshow={"slide_type": "subslide"}
# From draw to draw the random model reaches between 27% and 45%. Even random vectors differ from token to token, so
# their mean is a bag of tokens that is compressed into 192 numbers. The pretrained mean is 13 to 32 points above
# these draws, and 13 points above the bag of words. So what the model learned in pretraining seems to be worth
# something even if none of its weights is trained, but with 63 texts we cannot say how much.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Train more than the head
#
# The strategies of the earlier lessons also work on a classifier, with one additional rule: whatever a strategy
# selects, *the new head is always trained*, because its values are random and only training makes them useful. The
# strategy `linear_probe` trains the head and nothing else.

# %%
names = ("linear_probe", "last_layers", "lora", "full")
reports = {
    name: tl.apply_strategy(tl.load_model("tiny", classes=9).model, name)
    for name in names
}
for name, report in reports.items():
    head = report.components["head"].trainable_values
    print(f"{name:12} {report.trainable_values:>9,} values, head {head:,}")
print(tl.describe(reports["linear_probe"].model, "linear_probe"))

# %% [markdown] slideshow={"slide_type": "subslide"}
# A classifier also needs less memory than a language model of the same size. A language model computes logits over
# the whole vocabulary for every token, and keeps several copies of them for the loss and its gradient. A classifier
# computes nine numbers for each *text*. The estimate takes this into account, here for LoRA on a larger model:

# %%
shape = {"batch_size": 4, "sequence_length": 128}
need = {
    what: tl.estimate_memory("qwen2-0.5b", "lora", classes=count, **shape)
    for what, count in {"to go on with texts": None, "to classify": 9}.items()
}
for what, estimate in need.items():
    logits = tl.in_units(estimate.categories["logits and loss"])
    print(f"{what}: {tl.in_units(estimate.peak)}, of which logits and loss {logits}")

# %%
text, task = need.values()

# %% [markdown] slideshow={"slide_type": "subslide"}
# Qwen2 has a vocabulary of 151,936 tokens, so its logits and the loss take more than a fifth of the memory of a LoRA
# step. Classification saves most of this memory, and the rest of the step needs nearly the same as before.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Fine-tuning on few texts
#
# **Predict first.** `full` trains all four million values on 128 labelled passages, for two epochs. How well will it
# classify these 128 passages afterwards, and how well the validation passages? The learning rate comes from a record
# of earlier runs, which the next section describes.

# %%
rates = tl.recorded("rates", task="classify")
best = rates.loc[rates.groupby("strategy").validation_perplexity.idxmin()]
best = best.set_index("strategy").learning_rate
known = texts["train"][:128]
settings = tl.TrainingConfig(best["full"], epochs=2, batch_size=4)
run = tl.train(reports["full"].model, known, settings, progress=True)


def tuned_accuracy(examples):
    """Balanced accuracy of the fully fine-tuned classifier."""
    found = tl.class_logits(reports["full"].model, examples).argmax(1)
    return tl.balanced_accuracy(found, examples.labels)


on_known, on_new = tuned_accuracy(known), tuned_accuracy(texts["validation"])

# %% tags=["nbval-ignore-output"]
print(f"on the 128 training passages: {on_known:.0%}")
print(f"on validation passages:       {on_new:.0%}")

# %%
course.claim("On other passages it is hardly better than guessing", on_new < 0.22)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The classifier has learned many of its 128 passages by heart: its balanced accuracy on them is high, but on other
# passages it is hardly better than the 11% of a constant answer. Four million values can tell 128 passages apart in
# many ways that have nothing to do with the subject. Moreover, training first has to bring the subject into the last
# token, where the probe above found little of it, and it has only 128 labels for this. The training loss alone would
# not show the problem, because it only measures passages that the model is trained on. You should therefore also look
# at validation text after every epoch.

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### How many labelled texts?
#
# One run with one seed proves little. The record `data/sweeps/tiny/classify/passages.csv` has 60 runs: five
# strategies, trained on the first 8, 32, 128 or all 503 labelled passages, with three seeds each. *Random
# initialisation* trains all weights of a model that was never pretrained. Every run takes 126 steps with batches of
# 4, so a run with all 503 passages reads each of them once, but a run with 8 passages reads each of them 63 times.
# Each strategy has its own learning rate: eight rates were tried in one epoch over all passages with one seed, and
# the one with the lowest validation loss was kept. Two more lines are computed here without training the model: the
# bag of words, and the linear classifier on the pretrained mean after block 6. In the chart, small dots are single
# runs, and the lines connect their means.
#
# **Predict first.** How many labels does a strategy need before it rises clearly above 11%, the dashed line of the
# chart? With how many labels is the distance between `full` and random initialisation largest?

# %%
record = tl.recorded("passages", task="classify")
counted, behind_six = [], probes["pretrained, mean"][7][0]
for size in (8, 32, 128, 503):
    words, others = probing.bag_of_words(rust.train[:size], rust.validation)
    ways = {
        "bag of words": {"train": words, "validation": others},
        "pretrained mean, linear": behind_six,
    }
    for name, features in ways.items():
        found = accuracy(features, fitted(features, size), "validation")
        counted.append((name, size, found))
columns = ["strategy", "passages", "balanced_accuracy"]
lines = pd.concat([record[columns], pd.DataFrame(counted, columns=columns)])
pictures.examples_chart(lines, classes=9)

# %%
means = lines.groupby(["strategy", "passages"]).balanced_accuracy.mean().unstack()
(100 * means).round().astype(int)

# %% tags=["check-percent"]
tuned = means.loc[["linear_probe", "last_layers", "lora", "full"]]
course.claim(
    "Nothing that was fine-tuned reaches the classifier on the frozen mean",
    (tuned.max() < means.loc["pretrained mean, linear"]).all(),
)
percent = (100 * means).round().astype(int).T.to_dict("list")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **What pretraining is worth to fine-tuning.** With all 503 labels, `full` reaches 35% and `lora` 39%. The same
# network, trained from random weights, reaches 20% in as many steps. With fewer labels this distance shrinks, because
# no strategy learns much. You will often read the opposite, namely that pretraining matters most when there are few
# labels. This can only be true if the hidden state that the head reads already contains the subject, and the last
# token of our tiny model contains little of it. With 8 labels, which cover only five of the nine classes, little can
# be expected. With 32 and 128 labels `last_layers`, `lora` and `full` learn their texts by heart, and on other texts
# they stay behind the bag of words.
#
# **With few labels, pretraining helps the frozen mean.** With 32 labels the frozen mean reaches 46% and the bag of
# words 35%. At this size many words of a new passage occur in no training passage, so the bag of words cannot use
# them. The pretrained vectors of related words are similar, whether the words occur in the labelled passages or not.
# This is a likely reason, but the two numbers come from one fit each, scored on 65 texts, and with 128 labels the bag
# of words is level with the frozen mean.

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Fewer trained values?** With 128 labels the order of the means is `last_layers` (27%), `linear_probe` (24%),
# `lora` (22%), `full` (17%). One would expect that fewer trained values overfit less. It fits that `full`, which
# trains the most values, is last, but it does not fit that `last_layers`, which trains the second most, is first. The
# three seeds of `last_layers` alone range from 18% to 39%, so this order is not certain, and with all labels the
# order is different.
#
# **Why is `linear_probe` at 27%**, when the linear classifier on the same last tokens reached 41%? The strategy has
# the same features, but it takes only 126 steps with AdamW, on features of very different sizes. `best_linear` brings
# every feature to the same scale, and continues until the loss hardly changes. Part of the difference may also be
# luck, because the 41% was the best of 45 combinations and fell on test text. If you train only a head, compute the
# features once and fit the head until it converges. This is also much cheaper than sending every text through the
# model again in each epoch.
#
# All scores in the chart are probably a little too high, because the learning rates, the penalties and the block were
# chosen on the same validation texts.

# %% [markdown] slideshow={"slide_type": "subslide"}
# From the command line, the first of these commands trains one classifier and saves it. The second compares all
# strategies of lessons 4 to 8 on test text, with balanced accuracy and its interval as additional columns:
#
# ```
# python -m tlkit train --task classify --strategy last_layers --profile laptop
# python -m tlkit compare --task classify --profile laptop --output results/classes
# ```

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same in plain transformers
#
# Elsewhere you will meet this task as `AutoModelForSequenceClassification` with a `Trainer`. The `Trainer` needs a
# *data collator* that pads the texts of a batch to the length of the longest. Here `labels` holds one class number
# for each text. It does not hold the tokens themselves, as in language modelling, so nothing is shifted by one
# position. We give the `Trainer` the first four batches in the order in which `tl.train` reads them.

# %%
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback

tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)
order = torch.randperm(16, generator=torch.Generator().manual_seed(0))
rows = [
    {
        "input_ids": tokenizer(rust.train[n].text).input_ids,
        "labels": classes.index(rust.train[n].label),
    }
    for n in order
]
torch.manual_seed(0)  # of the new head's first values
plain = AutoModelForSequenceClassification.from_pretrained(
    tl.BUNDLED,
    num_labels=9,
    pad_token_id=tokenizer.pad_token_id,
    dtype=torch.float32,
)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=4, num_train_epochs=1,
        learning_rate=1e-3, lr_scheduler_type="constant", weight_decay=0.0,
        max_grad_norm=1.0, train_sampling_strategy="sequential", logging_steps=1,
        save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    collator = DataCollatorWithPadding(tokenizer)
    trainer = Trainer(plain, arguments, train_dataset=rows, data_collator=collator)
    trainer.pop_callback(PrinterCallback)  # which would print every record
    trainer.train()

# %% tags=["check-ours"]
theirs = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
same = tl.apply_strategy(tl.load_model("tiny", classes=9).model, "full").model
constant = tl.TrainingConfig(
    1e-3, batch_size=4, schedule="constant", warmup_fraction=0, weight_decay=0
)
ours = tl.train(same, texts["train"][:16], constant).history.loss
apart = max(abs(a - b) for a, b in zip(theirs, ours, strict=True))
course.claim("Trainer and tl.train: four losses equal to 1e-5", apart < 1e-5)

# %% [markdown] slideshow={"slide_type": "subslide"}
# For LoRA in plain peft, give `LoraConfig` the `task_type="SEQ_CLS"`. Then peft also trains the new head and saves it
# beside the adapter.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## On the real model
#
# Is the poor last token a property of our tiny model, or of pretraining in general? SmolLM2-135M-Instruct has 135
# million values and has read far more text. The head by hand works on it without a change. The next cell runs if you
# have [fetched](12_a_real_model.ipynb) the model, and otherwise says how to fetch it.

# %% tags=["nbval-ignore-output"]
NAME, apart = "smollm2-135m-instruct", 0.0
if tl.fetched(NAME):
    classifier = tl.load_model(NAME, classes=9)
    some = tl.class_examples(rust.validation[:4], classifier.tokenizer, classes)
    causal = tl.load_model(NAME).model
    with torch.no_grad():
        ours = class_logits_by_hand(causal, classifier.model.score.weight, some)
    theirs = tl.class_logits(classifier.model, some)
    apart = (ours.double() - theirs).abs().max().item()
    print(f"by hand and by transformers, logits differ by {apart:.0e} at most")
else:
    print(f"not here yet: python -m tlkit fetch {NAME}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Its features take some minutes to compute, so they were recorded, by `data/build/record_depth.py`. As above, each
# point is a linear classifier on features of 503 training passages, scored on validation text.
#
# **Predict first.** Will the mean beat the last token again? And will the gap be as wide?

# %%
depths = tl.recorded("depth", NAME, task="classify")
whole = depths[depths.passages == 503]
lines = {
    f"{weights}, {pool}": part.sort_values("depth").balanced_accuracy.tolist()
    for (weights, pool), part in whole.groupby(["weights", "pool"], sort=False)
}
pictures.depth_chart(lines, classes=9)

# %%
found = depths.dropna(subset="test").set_index(["weights", "pool"])
for (weights, pool), row in found.iterrows():
    print(
        f"{weights}, {pool}: test {row.test:.0%}, from {row.test_low:.0%} "
        f"to {row.test_high:.0%}"
    )

# %% tags=["check-percent-2"]
mean, last = lines["pretrained, mean"], lines["pretrained, last token"]
percent = {name: [round(100 * value) for value in line] for name, line in lines.items()}
tests = (100 * found.test).round().astype(int)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Here the poor last token does not carry over. Behind the first 22 blocks it stays below 40%. But in the last eight
# blocks it rises to 60%, and then it is nearly as good as the mean behind the same block (66%). On test text the two
# chosen classifiers reach 53% and 55%, with intervals that overlap almost completely. So in the larger model the last
# token does collect the subject of the passage, and the usual head relies on this.
#
# What does carry over is that the mean is good from the start. The mean of the *embeddings* alone reaches 71% on
# validation text. That is the best of 155 combinations of depth and penalty, and on test text this line falls to 55%.
# Random embeddings with the same tokenizer reach 50%, and 39% on test text.
#
# With 32 labelled passages the two chosen depths reach 44% and 40% on validation text, about as much as the mean of
# the tiny model. Both models were pretrained on other text, and the larger one by far on more. With so few labels and
# 65 validation passages, no difference between them can be seen.

# %% [markdown] slideshow={"slide_type": "subslide"}
# So far the larger model was frozen. What do the strategies make of it? These runs were recorded as well, with `compare
# --task classify`: 200 labelled passages, read once, three seeds, the usual head on the last token, and learning rates
# that were tuned on validation text for each model.
#
# **Predict first.** Which strategy will be ahead in the larger model: the head alone, the last blocks, LoRA, or all
# weights? And will it be the same as in the tiny model?

# %%
tuned = {
    model: tl.recorded_comparison(model, task="classify").table.set_index("strategy")
    for model in ("tiny", NAME)
}
for model, table in tuned.items():
    print(f"\n{model}: balanced accuracy on test text, with its interval")
    for strategy, row in table.drop(index=tl.ZERO_SHOT).iterrows():
        low, high = row.balanced_accuracy_low, row.balanced_accuracy_high
        print(f"{strategy:22}{row.balanced_accuracy:4.0%} ({low:.0%} to {high:.0%})")

# %%
tl.class_accuracy_chart(tuned[NAME].reset_index(), classes=9)

# %% tags=["check-tl-2"]
shares = {name: table.balanced_accuracy.astype(float) for name, table in tuned.items()}
percent = {name: (100 * one).round().astype(int) for name, one in shares.items()}
columns = ["balanced_accuracy_low", "balanced_accuracy_high"]
ends = {name: [table[end] for end in columns] for name, table in tuned.items()}

# %% [markdown] slideshow={"slide_type": "subslide"}
# In both models `last_layers` has the highest accuracy and full fine-tuning the lowest. But within each model all four
# intervals overlap, so this order may be chance. Between the models the difference is clear. The last blocks reach 49%
# in the larger one and 26% in the tiny one, and these two intervals do not even touch. Without pretraining both
# networks only guess (11%).
#
# None of these runs is above the linear classifier on the frozen last token (53% on test text). That one had 503
# labelled passages and was fitted until it changed no more, while here 200 passages were read once, in 50 steps. So
# before you fine-tune a classifier, fit a linear one on frozen features. It takes minutes, and then you know what
# fine-tuning has to beat.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A classifier is the pretrained model with a small new head, which reads the last token that is not padding. Check
#   that a padded text gets the same logits as the text alone.
# - Compare with a baseline that needs no pretraining, and give the interval: with 63 test texts it is some 20 points
#   wide. Choose layer, pooling and penalty on validation text, and use the test text once.
# - In this tiny model the subject is in the *mean* of the hidden states: 59% on test text with all weights frozen,
#   against 46% for a bag of words. The usual head reads the last token. Fine-tuning with this head reaches at most
#   39% on validation text, against 20% without pretraining. In the larger SmolLM2 the last token is nearly as good as
#   the mean, and the last blocks reach 49% on test text. So measure your own model before you choose.
#
# **An open experiment.** Let the head read the mean, and train the last two blocks together with it. Write a module
# that holds `base.model.model` and a `torch.nn.Linear(192, 9)`, and train it in the training loop of [lesson
# 4](04_full_fine_tuning.ipynb). Does it get above the 60% of the frozen mean on validation text, and how many labels
# does it need for that?
#
# **Further reading**
#
# - G. Alain and Y. Bengio, [Understanding intermediate layers using linear classifier
#   probes](https://arxiv.org/abs/1610.01644), 2016: probes as a measurement, layer by layer.
# - J. Howard and S. Ruder, [Universal Language Model Fine-tuning for Text
#   Classification](https://arxiv.org/abs/1801.06146), 2018: a pretrained model with 100 labelled texts against one
#   from scratch with many times more.
# - J. Devlin et al., [BERT](https://arxiv.org/abs/1810.04805), 2018: a new head on a model that reads in both
#   directions, and in its section 5.3 also frozen features from several layers.
# - I. Tenney, D. Das and E. Pavlick, [BERT Rediscovers the Classical NLP Pipeline](https://arxiv.org/abs/1905.05950),
#   2019: which layers contain which kind of linguistic information.
# - A. Kumar et al., [Fine-Tuning can Distort Pretrained Features and Underperform
#   Out-of-Distribution](https://arxiv.org/abs/2202.10054), 2022: a linear probe first, then fine-tuning.

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
# **Exercise 13.1** (first steps). A test set has 90 texts of one class and 10 of another. A classifier is right for 81
# of the 90 and for 2 of the 10. What is its balanced accuracy, in percent?

# %%
answer = None
# your code here
course.check("ex13_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 13.2** (apply it). Write a function that turns each text into one vector, the mean of its hidden states. It
# gets `hidden`, a tensor of shape (rows, tokens, width), and `lengths`, a tensor of shape (rows,) which says how many
# tokens of each row are text. The positions after them are padding and must not count. Return a tensor of shape (rows,
# width).


# %%
def mean_state(hidden, lengths):
    """The mean hidden state of each text, without its padding."""
    # your code here


course.check("ex13_2", mean_state)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 13.3** (think further). You train only a head, for 50 epochs, on the features of a frozen model that are
# computed once and stored. The head itself costs next to nothing. Full fine-tuning of the same model takes 5 epochs,
# and its backward pass costs twice its forward pass. What percentage of the arithmetic of full fine-tuning does
# training the head need, including the computation of the features?

# %%
answer = None
# your code here
course.check("ex13_3", answer)

# %% [markdown]
# Previous: [12 · A real model](12_a_real_model.ipynb) ·
# Next: [14 · Instruction tuning](14_instruction_tuning.ipynb)
