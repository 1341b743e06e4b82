# %% [markdown] slideshow={"slide_type": "slide"}
# # 15 · The comparison
#
# *Which differences between strategies are real?*
#
# Lessons 4 to 8 tried seven strategies, one at a time. If we put their scores in one table, some strategy is on top.
# But would it still be on top with another seed, or with other test documents? The scores alone cannot answer that.
# In this lesson we run all strategies under equal conditions, measure how much chance could have changed the scores,
# and claim only the differences that chance cannot explain.
#
# **You will be able to**
#
# - compute an interval for a score and for a difference, over documents and over seeds;
# - explain why differences are taken in pairs, and why many pairs need a correction;
# - read a comparison: what was gained, what was forgotten, and which strategies really differ.
#
# **You need** [lesson 3](03_baseline.ipynb) for perplexity and the bootstrap, [lesson
# 4](04_full_fine_tuning.ipynb) for forgetting, and the strategies of lessons 5 to
# [8](08_peft_family.ipynb).
#
# About 56 minutes.

# %% slideshow={"slide_type": "subslide"}
import os

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch.nn.functional import cross_entropy

import course
import tlkit as tl
from tlkit.reports.training_charts import sweep_chart
from course.lesson15 import interpolation, pictures

profile = tl.setup()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A fair start: the same tuning for all
#
# Each strategy gets the same treatment: eight learning rates, two seeds each, and the best rate is chosen on
# *validation* text. The test text stays closed until all choices have been made. Otherwise we would report the
# luckiest of many tries on that text, and the score would look better than it is.
#
# The record of this tuning comes with the workbook; `python data/build/record_sweeps.py rates rates.csv` makes it again
# in about ten minutes. It was made for the profile `ci`, which is 60 passages read once. More text or another model
# needs a search of its own. The chart shows four of the seven strategies, and leaves out rates at which training
# diverged.
#
# **Predict first.** With rates of their own, `full` is ahead of `freeze_embeddings` (a rate of 1e-3 is best for the
# first and 2e-3 for the second). Which of the two is ahead if both use 2e-3?

# %%
seven = tl.strategies_named(["classic"])  # those of lessons 4 to 8
tuning = tl.recorded("rates")
tuning = tuning[tuning.strategy.isin([*seven, tl.CONTROL])]
print("runs of each:", tuning.groupby("strategy").size().unique().tolist())
shown = ["full", "last_layers", "lora", "bitfit"]
near = tuning.strategy.isin(shown)
near &= tuning.validation_perplexity < 300  # above that, training diverged
sweep_chart(tuning[near], "learning_rate", "learning rate (log scale)")

# %% tags=["check-means"]
means = tuning.groupby(["strategy", "learning_rate"]).validation_perplexity.mean()
pair = ["full", "freeze_embeddings"]
same = {name: means[name][0.002] for name in pair}
own = {name: means[name].min() for name in pair}
print("lower with 2e-3 for both:", min(same, key=same.get))
print("lower with its own rate: ", min(own, key=own.get))

# %% [markdown] slideshow={"slide_type": "subslide"}
# With 2e-3 for both, `freeze_embeddings` is ahead, because the rate is its best one and too high for `full`. A strategy
# with a badly chosen learning rate loses to one with a good rate, and this says nothing about either strategy. So if
# all strategies had to use one rate, the choice of that rate could decide which of them wins.
#
# In the chart, the strategies with fewer trained weights have their minimum further to the right. This is an
# observation on one model, not a law.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The runs
#
# Every run starts from a freshly loaded model. The [seed](glossary.md#seed) decides the order of the batches and the
# first values of an adapter. Each strategy runs with three seeds, and all strategies use the same three.
#
# Two more rows belong in the table. The *baseline* (zero-shot) is the model before any training. The
# [control](glossary.md#control) is the same network with random weights, trained in the same way with its own tuned
# rate, so it shows what pretraining is worth.
#
# Seven strategies with three seeds, and one run of the control, make 22 runs. They take two to four minutes, so read
# on while they run. This cell also opens the Rust test text, for the first time in the course.
#
# **Predict first.** Order the strategies by perplexity on Rust text. Where will the control be?

# %% tags=["check-rows"]
comparison = tl.compare(profile=profile, progress=True)
table = comparison.table.set_index("strategy")
print(list(table.index))
rows = {*seven, tl.ZERO_SHOT, tl.CONTROL}

# %% tags=["nbval-ignore-output"]
columns = ["strategy", "trainable values", "learning rate"]
columns += ["perplexity", "over documents", "over seeds"]
tl.readable(comparison.table)[columns]

# %%
tl.perplexity_chart(comparison.table)

# %% [markdown] slideshow={"slide_type": "subslide"}
# All strategies end below the untouched model (zero-shot), and the control stays far above it. So on this amount of
# text, pretraining is worth more than any choice of strategy.
#
# Among the strategies, the order is less clear. The horizontal lines are intervals, and those of six strategies
# overlap. Does that mean that these six do not differ? To answer, we have to know what such an interval says and what
# it does not say. This takes four steps, and the last one explains the word "separated" in the chart's title.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Step 1: other documents
#
# The score of a model is its perplexity on 40 test documents, and other documents would have given another score. We
# cannot collect new ones, but the 40 that we have show how much documents vary.
#
# The [bootstrap](glossary.md#bootstrap) of [lesson 3](03_baseline.ipynb) uses this variation. It draws 40
# documents out of the 40 with replacement, so that some come twice and others not at all, and computes the score of
# this draw. After a thousand draws, the range of the middle 95% of the scores is the interval.
#
# The table `comparison.documents` has a row for each document and run. For document $d$ it holds the sum of the token
# losses in nats, $\ell_d$, and the number of tokens, $n_d$. Let $D$ be the documents of one draw. Its perplexity is
#
# $$\exp\Big( \sum_{d \in D} \ell_d \Big/ \sum_{d \in D} n_d \Big)$$

# %%
documents = comparison.documents
run = documents[(documents.strategy == "full") & (documents.seed == 0)]
nats, tokens = torch.tensor(run.nats.values), torch.tensor(run.tokens.values)

chance = torch.Generator().manual_seed(0)
drawn = torch.randint(len(nats), (1000, len(nats)), generator=chance)  # 1000 draws
scores = torch.exp(nats[drawn].sum(1) / tokens[drawn].sum(1))
low, high = torch.quantile(scores, torch.tensor([0.025, 0.975], dtype=scores.dtype))

# %% tags=["check-high"]
runs = comparison.runs.set_index(["strategy", "seed"])

# %% [markdown] slideshow={"slide_type": "subslide"}
# Lesson 3 said that we have to draw documents and not single tokens, because the tokens of one document are
# correlated: an unfamiliar subject makes hundreds of them hard at once. How much does it matter? To see it we need
# the loss of each token. We take the untouched model and the first 250 tokens of each validation document, so the
# perplexities below are not those of the table.

# %%
base = tl.load_model("tiny")
rust = tl.load_corpus("rust").limited(profile.train_passages, profile.test_passages)
losses = []
with torch.no_grad():
    for text in rust.validation:
        ids = base.tokenizer(text, return_tensors="pt").input_ids[:, :250]
        logits = base.model(input_ids=ids[:, :-1]).logits[0]
        losses.append(cross_entropy(logits, ids[0, 1:], reduction="none").double())
sums = torch.stack([part.sum() for part in losses])
counts = torch.tensor([len(part) for part in losses])
every_token = torch.cat(losses)

# %% slideshow={"slide_type": "subslide"}
chance = torch.Generator().manual_seed(0)
some_documents = torch.randint(len(sums), (1000, len(sums)), generator=chance)
by_document = torch.exp(sums[some_documents].sum(1) / counts[some_documents].sum(1))
some = len(every_token)
by_token = torch.stack(
    [
        every_token[torch.randint(some, (some,), generator=chance)].mean().exp()
        for _ in range(1000)
    ]
)
draws = {"documents": by_document.numpy(), "tokens": by_token.numpy()}
pictures.bootstrap_chart(draws)

# %%
spread = {name: np.std(values) for name, values in draws.items()}
course.claim(
    "Drawing documents gives a spread at least 1.3 times as large",
    spread["documents"] > 1.3 * spread["tokens"],
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# So an interval from single tokens would look more certain than it is. Hundreds of correlated tokens tell us less
# than hundreds of independent ones would.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Step 2: other seeds
#
# The interval over documents takes the trained model as it is. But with another seed the same strategy would have
# given another model, so there is a second kind of chance, and for it we have only three values of each strategy.
#
# Three values are too few for a bootstrap, because they can be drawn in only ten different ways (if the order does
# not count). *Student's interval* is made for few values. It assumes that the scores of many seeds would follow a
# normal distribution, which three values cannot confirm. For $n$ values with mean $\bar x$ and standard deviation
# $s$ (dividing by $n - 1$), it is
#
# $$\bar x \pm t \, \frac{s}{\sqrt{n}}$$
#
# The factor $t$ accounts for our poor knowledge of $s$. At 95% it is 1.96 for very many values and 4.30 for three.

# %% tags=["check-stats"]
three = runs.loc["full"].perplexity
t = stats.t.ppf(0.975, len(three) - 1)
half = t * three.std() / len(three) ** 0.5
print(f"t for three seeds: {t:.2f}")
library = tl.seed_intervals(comparison.runs).loc["full"]

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Step 3: differences in pairs
#
# Two strategies are scored on the *same* documents. A hard document raises the loss of both. This common part makes
# each of the two intervals wide, but it cancels in the [difference](glossary.md#paired-difference), document by
# document. With the same seed, two strategies also see the same batches in the same order, so a part of the effect of
# the seed cancels as well.
#
# The picture compares `lora` with `full`. Each grey line on the left is a document. The lines start at very different
# heights, but they are nearly parallel: on most documents `lora` has a slightly higher loss. On the right, the
# *unpaired* interval treats the two columns as different documents. The *paired* interval uses the 40 differences.

# %%
by_strategy = documents.assign(loss=documents.nats / documents.tokens).pivot_table(
    index="document", columns="strategy", values="loss"
)
both = by_strategy[["lora", "full"]]  # means over three seeds, nats per token
pictures.pairing_chart(both, "nats per token of a document")

# %%
differences = both.lora - both.full
n = len(differences)
half = stats.t.ppf(0.975, n - 1) * differences.std() / n**0.5
low, high = differences.mean() - half, differences.mean() + half
unpaired = stats.ttest_ind(both.lora, both.full, equal_var=False)
wide_low, wide_high = unpaired.confidence_interval()
course.claim(
    "The unpaired interval includes zero, and the paired one excludes it",
    wide_low < 0 < wide_high and low > 0,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# If the paired interval excludes zero, the choice of documents is an unlikely explanation of the difference. It is a
# mistake to look instead at whether the two separate intervals overlap, because both contain the variation between
# documents, which the two strategies share.
#
# Now we take both kinds of chance together. Let $\delta$ be the difference of two strategies in nats per token,
# averaged over the three seeds. Its *standard error* is the standard deviation that $\delta$ would have if we
# repeated everything many times. One part, $e_\text{doc}$, comes from documents, the other, $e_\text{seed}$, from
# seeds. We take the two as independent, so their squares add up; once each has its factor $t$, this holds only
# approximately:
#
# $$\delta \pm \sqrt{(t_\text{doc} \, e_\text{doc})^2 + (t_\text{seed} \, e_\text{seed})^2}$$
#
# Each part has its own factor $t$, because one is known from 40 documents and the other from only three seeds.
# Documents differ in length, and this changes two things in the code below. It computes $e_\text{doc}$ by the
# *jackknife*: leave out one document, compute the difference from the other 39, do this for each of the 40, and take
# the spread of these 40 results times $\sqrt{39}$. And a few long documents count for more than the rest, so for
# $t_\text{doc}$ there are effectively only $(\sum n_d)^2 / \sum n_d^2$ documents.
#
# The library reports differences in perplexity. Let $P$ be the geometric mean of two perplexities that are $\delta$
# nats per token apart. Then they are $P e^{\delta/2}$ and $P e^{-\delta/2}$, so their difference is
# $2 P \sinh(\delta / 2)$, which is close to $P \, \delta$ for a small $\delta$.


# %%
def interval_by_hand(one, other):
    """Difference in nats per token, with the interval over documents and seeds."""
    nats = documents.pivot(
        index="document", columns=["strategy", "seed"], values="nats"
    )
    apart = (nats[one] - nats[other]).to_numpy()  # shape (documents, seeds)
    sizes = run.set_index("document").tokens.loc[nats.index].to_numpy()
    mean = apart.mean(axis=1)  # over seeds
    without = (mean.sum() - mean) / (sizes.sum() - sizes)  # each document in turn
    e_doc = np.sqrt((len(mean) - 1) * without.var())
    t_doc = stats.t.ppf(0.975, sizes.sum() ** 2 / (sizes**2).sum() - 1)
    by_seed = apart.sum(axis=0) / sizes.sum()
    e_seed = by_seed.std(ddof=1) / len(by_seed) ** 0.5
    t_seed = stats.t.ppf(0.975, len(by_seed) - 1)
    return by_seed.mean(), np.hypot(t_doc * e_doc, t_seed * e_seed)


# %%
delta, half = interval_by_hand("lora", "full")
two = documents[documents.strategy.isin(["lora", "full"])]
per_token = two.groupby("strategy").nats.sum() / two.groupby("strategy").tokens.sum()
middle = 2 * np.exp(per_token.mean())  # from nats to perplexity
hand = [middle * np.sinh(end / 2) for end in (delta - half, delta + half)]

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Step 4: many pairs
#
# Seven strategies make $7 \cdot 6 / 2 = 21$ pairs. If there is no difference, an interval at 95% still excludes zero
# in 5% of all cases. So if *none* of the seven strategies differed from another, we should expect
# $21 \cdot 0.05 \approx 1$ *false alarm*, which is a pair that is called different although it is not. This is the
# problem of [multiple comparisons](glossary.md#multiple-comparisons).
#
# *Holm's correction* keeps the chance of one or more false alarms in the whole table at or below 5%. It works with p
# values. A p of 0.03 means that the interval at 97% would just touch zero, so p is below 0.05 if the interval at 95%
# excludes zero. The smallest of $m$ p values had $m$ chances to be small, so it is multiplied by $m$, the next one by
# $m - 1$ and so on. A corrected value must not be smaller than one before it, so each takes the largest product so
# far. If $p_{(k)}$ is the $k$-th smallest of the $m$ values, its corrected value is
#
# $$\tilde p_{(k)} = \max_{j \le k} \; (m - j + 1) \, p_{(j)}$$
#
# To see that it works we invent 2000 tables of seven strategies that are equal by construction: each has random
# scores on 40 documents.


# %%
def holm(p):
    """Corrected p values, in the order given; the last axis holds the pairs."""
    order = np.argsort(p, axis=-1)
    factors = np.arange(p.shape[-1], 0, -1)  # m, m - 1, …, 1
    ordered = np.maximum.accumulate(np.take_along_axis(p, order, -1) * factors, axis=-1)
    corrected = np.empty_like(p)
    np.put_along_axis(corrected, order, ordered, axis=-1)
    return corrected


equal = np.random.default_rng(0).normal(size=(2000, 7, 40))
first, second = np.triu_indices(7, k=1)
p = stats.ttest_rel(equal[:, first], equal[:, second], axis=-1).pvalue
alarms, corrected = (p < 0.05).sum(axis=1), (holm(p) < 0.05).sum(axis=1)

# %%
print(f"pairs: {p.shape[1]}")
course.claim(
    "With Holm's correction, at most 5% of the tables do", (corrected > 0).mean() < 0.05
)
pairs = comparison.pairs  # corrected in the same way

# %% [markdown] slideshow={"slide_type": "subslide"}
# The interval of a pair follows the correction. Instead of 95% it is at $100\% - 5\% \cdot p / \tilde p$, so it
# excludes zero exactly if the corrected p value is below 0.05. For the smallest of 21 p values the second term is
# $5\% / 21$, which is 0.24%, so this interval is at 99.76%.
#
# `tl.compare_pairs` combines steps 2 to 4. It adds one refinement: three seeds of one pair say little about how much
# a seed matters, so it estimates this from all strategies together.

# %%
tl.pairs_chart(pairs)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each of the 21 cells is one pair: how far the row's perplexity lies above the column's, with the corrected interval.
# The pairs in orange differ after the correction, and they are called *separated*. For `lora` and `full` this means
# that chance is an unlikely explanation of the difference of step 3. For `lora` and `qlora` and the other white
# cells, these 40 documents and three seeds are not enough to tell. White does not mean equal.
#
# The *ranks* follow from these 21 decisions. A strategy has a rank of its own if it is separated from all the others,
# as `bitfit` is. Otherwise it is tied: "tied 2-6" means that one strategy is shown to be better and one to be worse,
# so only the ranks from 2 to 6 are left. More seeds would make the intervals narrower, but the part that comes from
# the documents would stay.

# %% tags=["nbval-ignore-output"]
table.loc[seven, ["perplexity", "rank"]].round(2)

# %% tags=["check-tl"]
adapted_rows = table.loc[seven]
baseline = table.loc[tl.ZERO_SHOT, "perplexity"]
worst_seed = comparison.runs.groupby("strategy").perplexity.max()
course.claim(
    "Every strategy beats zero-shot, with every seed",
    (worst_seed[seven] < baseline).all(),
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# What does a run cost? The chart shows the seconds of training and the peak memory of all tensors. Memory is counted,
# so it is the same on every machine. Seconds are measured, and they depend on what else the machine does. `full` and
# the control do the same arithmetic, so if one of these two bars is longer, this is only noise, and it tells you how
# far to trust the others.

# %%
tl.cost_chart(comparison.table)

# %% [markdown] slideshow={"slide_type": "subslide"}
# `bitfit` needs the least memory, because it keeps hardly any gradients and optimizer state. The rest is weights and
# activations. `lora` too keeps few gradients and little optimizer state, but its adapters need the inputs of their
# layers for their gradients.

# %%
if os.environ.get("TLKIT_RESULTS"):  # a folder for all tables and charts as files
    tl.export(comparison, os.environ["TLKIT_RESULTS"])

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What was forgotten
#
# So far we asked only what was gained on Rust. Training also changes what the model could do before, and if it gets
# worse at that, we speak of [forgetting](glossary.md#catastrophic-forgetting). *General* text here is Python's language
# reference, which is close to the text of pretraining. Lower is better on both axes, so the best corner is at the
# bottom left.
#
# [Lesson 7](21_freeze_lower_layers.ipynb) named the strategy that forgets most. Which was it, and why?

# %%
tl.forgetting_chart(comparison.table)

# %% [markdown] slideshow={"slide_type": "subslide"}
# It is `freeze_lower` again, and not `full`, which may change every weight. If all use the rate 2e-3, `full` does
# forget most. But the rates were tuned for Rust, and in our grid of rates the best one is 1e-3 for `full` and 2e-3 for
# `freeze_lower`. An AdamW step moves each trained weight by about the learning rate, so `freeze_lower` takes steps of
# twice the size.
#
# We measure how far the weights move, as a share of their length. With all weights in one vector, $W_0$ before
# training and $W$ after it, this is
#
# $$\frac{\lVert W - W_0 \rVert}{\lVert W_0 \rVert}$$

# %%
blocks = tl.pack(rust.train, base.tokenizer, 128)
before = dict(base.model.named_parameters())


def length(tensors):
    """The length of all values as one vector."""
    return sum(float(tensor.detach().pow(2).sum()) for tensor in tensors) ** 0.5


trained, moved = {}, {}
for name, rate in (("full", 1e-3), ("freeze_lower", 2e-3), ("full", 2e-3)):
    model = tl.load_with_strategy(name)[0].model
    tl.train(model, blocks, tl.TrainingConfig(rate, batch_size=4), progress=True)
    changes = [weight - before[key] for key, weight in model.named_parameters()]
    trained[name, rate] = model
    moved[name, rate] = length(changes) / length(before.values())

# %%
for (name, rate), share in moved.items():
    print(f"{name:12} at {rate:g}: about {share:.0%}")
course.claim(
    "At the same rate, full moves further",
    moved["full", 2e-3] > moved["freeze_lower", 2e-3],
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# In the record of the tuning, these three settings have the same order in perplexity on general text: the further the
# weights move, the more is forgotten. But this is an observation on three settings of one small model, and the rate
# is not the whole explanation: `freeze_embeddings` also uses 2e-3 and forgets only about half as much as
# `freeze_lower`. The grid of rates matters too. With a finer grid the two best rates might be closer, and the order
# could change.
#
# The trade-off does not depend on the strategy alone: the learning rate and the number of epochs change it too. The
# chart shows this for `full`. Here and in the next section, scores are on validation text. At each point is the
# learning rate (with one epoch) or the number of epochs.

# %%
paths = {}
for name, by in (("rates", "learning_rate"), ("epochs", "epochs")):
    part = tl.recorded(name).query("strategy == 'full' and validation_perplexity < 130")
    scores = part.groupby(by)[["validation_perplexity", "general_perplexity"]].mean()
    path = scores.reset_index().set_axis(["label", "rust", "general"], axis=1)
    path["label"] = path.label.map("{:g}".format)
    paths[by.replace("_", " ")] = path
tl.tradeoff_chart(paths)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Two remedies
#
# **Go back part of the way.** Take the weights $W_0$ of the base model and the trained weights $W$ and use a mixture,
# $(1 - s) \, W_0 + s \, W$, with a share $s$ between 0 and 1. No training is needed.
#
# **Predict first.** We take `full` from above and go half of the way, $s = 0.5$. What share of the gain is kept, and
# what share of the forgetting is left?

# %%
general = tl.load_corpus("general").limited(test=profile.test_passages)
rows = []
for share in (0, 0.25, 0.5, 0.75, 1):
    model = interpolation.interpolate(base.model, trained["full", 1e-3], share)
    scores = [
        tl.perplexity(model, base.tokenizer, texts).perplexity
        for texts in (rust.validation, general.validation)
    ]
    rows.append((f"{share:g}", *scores))
    print(f"share {share:g} scored")
line = pd.DataFrame(rows, columns=["label", "rust", "general"])

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Rehearse.** Mix some general text into the Rust text during training. This costs training time, and it needs text
# of that kind. In the chart, the number at each point is the share $s$ of the adapted weights, or the share of general
# text in the training, which the record has from 0 to one half:

# %%
by_share = tl.recorded("general").groupby("general_share")
mixing = by_share[["validation_perplexity", "general_perplexity"]].mean()
mixing = mixing.reset_index().set_axis(["label", "rust", "general"], axis=1)
mixing["label"] = mixing.label.map("{:g}".format)
tl.tradeoff_chart(
    {
        "going back part of the way": line,
        "rehearsal": mixing,
    }
)

# %% tags=["check-gain"]
half = line.set_index("label").loc["0.5"]
start, end = line.iloc[0], line.iloc[-1]
gain = (start.rust - half.rust) / (start.rust - end.rust)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Halfway, about a tenth of the forgetting is left and four fifths of the gain are kept. Going back part of the way
# works because the two texts react differently to the same change of the weights. Near the base weights Rust improves
# quickly and general text hardly suffers. The last part of the way brings little on Rust and does most of the damage.
#
# Rehearsal does even better here. With half of the text general, the model is better on general text than before,
# because it has also trained on other text of this kind. In practice you may not have such text, and then the mixture
# of weights is left.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Is less more?
#
# The published reports that [lesson 16](16_autopsy.ipynb) examines say that with little text the strategy with the
# fewest trained weights wins. In our comparison the order is roughly the opposite, as the next chart shows: fewer
# trained values go with a higher perplexity. "Untouched" is the zero-shot baseline.

# %%
tl.parameters_chart(comparison.table)

# %% [markdown] slideshow={"slide_type": "subslide"}
# But this was one amount of text. So we give three strategies between 25 and all 503 passages. The number of steps is
# always 120, which means that a small text is read more often.
#
# **Predict first.** Where do the lines cross?

# %%
sizes = tl.recorded("passages")
sweep_chart(sizes, "passages", "passages of Rust text (log scale); 120 steps each")

# %%
means = sizes.pivot_table(
    index="passages", columns="strategy", values="validation_perplexity"
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The line of `full` crosses no other: with the same number of steps and a tuned rate, training everything is ahead at
# every size. The other two do cross. `lora`, which trains fewer weights, is ahead of `last_layers` at 50 and 100
# passages, where the reports have a point, and behind it from 200 on. With 25 and with 50 passages all three read the
# text so often that they overfit, and they end worse than the untouched model (about 133 on this text). From 25 to
# 503 passages every line falls by far more than the lines are apart, so the amount of text matters more than the
# choice of the strategy.
#
# This picture has two limits. The rates were tuned once, for 60 passages and one epoch, and not for each size. And
# all runs take 120 steps, although stopping early might help with the small texts. So the picture refutes the general
# rule, not every single case.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What may be said
#
# A report should say what its numbers support, and also what they leave open. `tl.conclusions` makes such sentences
# from the intervals of the comparison above. It calls a difference found only if the interval of that difference
# excludes zero. The command `python -m tlkit compare` prints the same sentences, and the page `comparison.html` that
# it writes begins with the table and these sentences.
#
# There are two lists, of what may be concluded and of what may not.
#
# **Predict first.** Which statements about `full` and about the four-option questions will be in the second list?

# %% tags=["nbval-ignore-output"]
said = tl.conclusions(comparison)
print(said)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The second list is longer than most reports would like. Read it before you quote a number from the first. Whatever
# the intervals say, its last two sentences always remain: one model, one collection of texts and one amount of training
# do not speak for others, and seconds depend on the machine.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Two kinds of chance affect a score: which documents were tested, and which seed was used. The unit that is
#   resampled is the document, because tokens in one document are correlated.
# - Compare strategies in pairs, on the same documents and seeds. If the interval of the difference excludes zero,
#   chance is an unlikely explanation of it. With many pairs, correct for their number.
# - A table needs a baseline, a control, equal tuning and intervals, and it needs a second column for what was
#   forgotten.
#
# ## Further reading
#
# - Efron and Tibshirani 1993, [An Introduction to the Bootstrap](https://doi.org/10.1201/9780429246593).
# - Holm 1979, [A simple sequentially rejective multiple test procedure](https://www.jstor.org/stable/4615733).
# - Miller 2024, [Adding error bars to evals](https://arxiv.org/abs/2411.00640): paired differences and clustered
#   errors for language models.
# - Bouthillier and others 2021, [Accounting for variance in machine learning
#   benchmarks](https://arxiv.org/abs/2103.03098): what a seed changes.
# - Wortsman and others 2022, [Robust fine-tuning of zero-shot models](https://arxiv.org/abs/2109.01903): going back
#   part of the way.
#
# **An open experiment.** Do five seeds separate `last_layers` and `lora`? Name the two strategies in `tl.compare`,
# pass `settings=tl.ComparisonSettings(seeds=5)`, and look at `pairs`. Do the same with `seeds=3`, for a fair start: a
# single pair needs no correction, so its interval is narrower than in the table of 21 pairs anyway. Before you run
# it, write down how much narrower you expect the interval to be, and which of its two parts more seeds can shrink.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex15_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** Two strategies were trained with three seeds each. Over documents, one scores 66 to 79 and the other 69 to
# 83. Seed by seed, the second is 2.9 to 4.9 above the first. All are intervals at 95%. Do the two differ?
#
# - **a** No: the first two intervals overlap.
# - **b** Not yet: more seeds must make those two narrower, until they no longer overlap.
# - **c** Yes, on these documents: the interval of the difference excludes zero.
# - **d** Yes, and on any text about Rust: the interval of the difference excludes zero.

# %%
course.quiz("quiz15")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 15.1** (first steps). Ten strategies are compared in every pair, each pair by an interval at 95% without
# correction. Suppose that in truth no strategy is better than another. How many pairs do you expect to be called
# different all the same? An expected number is a mean, which need not be whole, so do not round.

# %%
answer = None
# your code here
course.check("ex15_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 15.2** (apply it). Write a function for the paired interval over seeds. `runs` is a table with one row for
# each run, in no particular order. Its columns are `strategy`, `seed` and `perplexity`, and it may contain other
# strategies too. Return the low and the high end of Student's 95% interval for the mean of `one` minus `other`, taken
# seed by seed.

# %%
import math
from scipy import stats


def interval_of_difference(runs, one, other):
    """Low and high end of the 95% interval."""
    # your code here


course.check("ex15_2", interval_of_difference)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 15.3** (think further). Somebody tuned several strategies and scored every run on validation text and on
# test text. `record` has one row for each run, with the columns `strategy`, `learning_rate`, `seed`,
# `validation_perplexity` and `test_perplexity`. Each rate was run with the same seeds, and a run that diverged has
# infinity in both scores. One of the two scores may not be used for choosing. Return what belongs in a fair table: a
# dict from each strategy to one test perplexity, which is a mean over seeds.


# %%
def fair_scores(record):
    """Each strategy's mean test perplexity, at the rate chosen fairly."""
    # your code here


course.check("ex15_3", fair_scores)

# %% [markdown]
# Previous: [14 · Instruction tuning](14_instruction_tuning.ipynb) ·
# Next: [16 · The autopsy](16_autopsy.ipynb)
