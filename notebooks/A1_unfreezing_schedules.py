# %% [markdown] slideshow={"slide_type": "slide"}
# # A1 · Unfreezing schedules
#
# *Must every layer learn from the first step, and at the same rate?*
#
# So far each part of the model was either trained or frozen for the whole run. There are choices in between. A layer
# can stay frozen at first and join later, or it can learn from the start at a lower rate than the layers above it. Both
# ideas became known through one paper of 2018, [ULMFiT](https://arxiv.org/abs/1801.06146) (*Universal Language Model
# Fine-tuning*), which made the fine-tuning of language models popular. Its model was a small recurrent network and not
# a transformer.
#
# **You will be able to**
#
# - read and write a schedule that says which layer learns in which step, and at what rate;
# - build both ideas in plain PyTorch, with the parameter groups of an optimizer;
# - say how the schedules change perplexity, forgetting and arithmetic, and why each needs a learning rate of its own;
# - write a strategy of your own and let the whole workbook use it.
#
# **You need** [lesson 7](21_freeze_lower_layers.ipynb) (frozen blocks) and [lesson 7](07_freezing.ipynb) (the cache
# for a frozen prefix). About 47 minutes.

# %% slideshow={"slide_type": "subslide"}
import math

import pandas as pd
import course
import tlkit as tl
from course.lessonA1 import pictures
import torch

profile = tl.setup()
rust = tl.load_corpus().limited(profile.train_passages, profile.test_passages)
general = tl.load_corpus("general").limited(test=profile.test_passages)
base = tl.load_model("tiny")
blocks = tl.pack(rust.train, base.tokenizer, 128)
steps = -(-len(blocks) // 4)  # of one epoch, with batches of 4 blocks; rounded up


def adapted(strategy, **options):
    """A fresh copy of the bundled model, trainable as a strategy says."""
    return tl.apply_strategy(tl.load_model("tiny").model, strategy, **options)


# %%
names = ("full", "gradual_unfreezing", "discriminative_rates")
reports = {name: adapted(name) for name in names}
pictures.schedule_chart(reports, tl.TrainingConfig(1e-3), steps)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each row is a part of the model, with the norm before the head on top and the embedding at the bottom, and each
# column is an optimizer step. Dark cells learn fast. The learning rate rises at the very start and then falls along a
# cosine, as is usual in this workbook, so all three panels become pale towards the right.
#
# - **full** gives every part the same rate in every step.
# - **gradual unfreezing** starts with the top of the model. After each quarter of the steps two or three more of the
#   ten parts join; block 0 and the embedding join last, together. The head has no row of its own here, because it is
#   the embedding, used a second time. So in our model the head stays frozen until the last phase, although it is the
#   very top.
# - **discriminative rates** trains every part in every step, but the lower a part is, the lower is its rate.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Why use a schedule?
#
# The lower layers of a pretrained model compute features that are useful for any text. ULMFiT put a new classifier on
# top of such a model. A new classifier is random, so the first gradients that come through it say little about the
# task. They would still change all the layers below and could damage what these had learned. With the lower layers
# frozen at first, or learning slowly, the new classifier can improve before the old layers move.
#
# We train the model to continue text, with the head that it was pretrained with. Nothing is random at the start, so
# this argument is weaker here. There is a second reason: layers that move less may lose less of what they knew, so a
# schedule may reduce *forgetting*. ULMFiT itself used discriminative rates also for continued training on text, which
# is our case. Whether either schedule helps has to be measured.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Two formulas
#
# Number the parts of the model from the top: $l = 0$ is the final norm (and an untied head), then come the blocks from
# the last to the first, and $l = L$ is the embedding. Our model has 8 blocks, so $L = 9$.
#
# *Discriminative rates* multiply the run's learning rate $\eta$ by a factor that shrinks by the same ratio from each
# part to the next:
#
# $$\eta_l = \eta \cdot \lambda^{\,l/L}$$
#
# The embedding gets $\lambda$ times the rate of the top; here $\lambda = 0.1$. ULMFiT divided the rate by 2.6 from each
# layer to the one below. Over the nine intervals between our ten parts, the embedding would get less than a
# five-thousandth of the rate, and in a deeper model even less. Here the ratio of the lowest rate to the highest is
# fixed instead, which works for any depth.
#
# *Gradual unfreezing* with $G$ phases trains part $l$ from step $\lfloor g_l\,T/G \rfloor$ on, where $T$ is the number
# of steps, which are counted from 0, and $g_l = \lfloor l\,G/(L+1) \rfloor$ is the phase in which the part begins. The
# first phase has the number 0, and here $G = 4$. ULMFiT itself unfroze one layer after each epoch. Phases that depend
# on the number of steps also work in a run of a single epoch. With $T = 17$ they begin in steps 0, 4, 8 and 12. (The
# picture above counts from 1, so there they are 1, 5, 9 and 13.)

# %%
factors = [0.1 ** (part / 9) for part in range(10)]
print("factors:", " ".join(f"{factor:.2f}" for factor in factors))
print("phases: ", " ".join(f"{part * 4 // 10:4d}" for part in range(10)))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## By hand, in plain transformers
#
# PyTorch's optimizers accept a list of *parameter groups*, each with settings of its own. One group for each part is
# all that discriminative rates need. For gradual unfreezing, the loop switches `requires_grad` on when the phase of a
# part begins. A frozen parameter has no gradient, and AdamW skips a parameter without one, so neither its averages nor
# weight decay change it.

# %%
from transformers import AutoModelForCausalLM


def train_by_hand(factors, begins, batches, rate=1e-3):
    """The losses of plain training in which part l waits for step begins[l]."""
    model = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
    body = model.model
    parts = [body.norm, *reversed(body.layers), body.embed_tokens]
    groups = [
        {"params": list(part.parameters()), "lr": rate * factor}
        for part, factor in zip(parts, factors, strict=True)
    ]
    optimizer, losses = torch.optim.AdamW(groups, weight_decay=0.01), []
    for step, batch in enumerate(batches):
        for part, begin in zip(parts, begins, strict=True):
            part.requires_grad_(step >= begin)
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


# %% [markdown] slideshow={"slide_type": "subslide"}
# The next cell trains eight steps by hand with each schedule, and eight steps with `tl.train`. Both read the same
# blocks in the same order.

# %%
order = torch.randperm(32, generator=torch.Generator().manual_seed(0))
batches = blocks[order].split(4)
by_hand = {
    "discriminative_rates": train_by_hand(factors, [0] * 10, batches),
    "gradual_unfreezing": train_by_hand(
        [1] * 10, [part * 4 // 10 * 2 for part in range(10)], batches
    ),
}
constant = tl.TrainingConfig(1e-3, batch_size=4, schedule="constant", warmup_fraction=0)
furthest = []
for name, losses in by_hand.items():
    history = tl.train(adapted(name).model, blocks[:32], constant).history
    pairs = zip(losses, history.loss, strict=True)
    furthest.append(max(abs(a / b - 1) for a, b in pairs))
course.claim(
    "With both schedules, eight steps give eight equal losses", max(furthest) < 1e-5
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# With the `Trainer` of transformers, pass the grouped optimizer as `optimizers=(optimizer, None)`, and switch
# `requires_grad` in the method `on_step_begin` of a `TrainerCallback`. A common mistake is to make the optimizer from
# the parameters that are trainable *at the start*, which is also what the `Trainer` does if it makes the optimizer
# itself. Parameters that are unfrozen later then receive gradients and never move, because the optimizer does not
# know them. So give it all parameters from the beginning, as above.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What do the schedules achieve?
#
# A schedule changes how much each weight moves in all, so its best learning rate differs from that of `full`. For
# every strategy in this workbook eight rates were tried, in runs of 17 steps with two seeds each, scored on
# validation text. Only the learning rate was tuned; $\lambda = 0.1$ and $G = 4$ were not. The table shows the three
# best rates of each strategy.

# %%
rates = tl.recorded("rates")
scores = ["validation_perplexity", "general_perplexity"]
best = (
    rates[rates.strategy.isin(names)]
    .groupby(["strategy", "learning_rate"])[scores]
    .mean()
    .reset_index()
    .sort_values("validation_perplexity")
    .groupby("strategy")
    .head(3)
    .sort_values(["strategy", "learning_rate"])
)
best.round({score: 1 for score in scores}).reset_index(drop=True)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The best rate of both schedules is about three times that of `full`. A likely reason is that most of their weights
# learn later or more slowly, and a higher rate makes up for it. Had we compared all three at the best rate of `full`,
# 0.001, gradual unfreezing would look 13 points worse than at its own best rate (90.9 against 77.6), and discriminative
# rates 17 points worse (94.0, which is not among its three best, against 77.3). [Lesson 5](05_lora.ipynb) showed the
# same mistake with LoRA.

# %% tags=["check-means"]
means = rates.groupby(["strategy", "learning_rate"]).validation_perplexity.mean()

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Predict first.** Each of the three is now trained at its own best rate, with three seeds and on more text (55
# steps), and scored on test text that was not used for tuning. Will the schedules reach the perplexity of `full`?
# Will they forget less of the general text? In the table, the two columns to the right of the perplexity are its 95%
# interval over the three seeds, and `general_before` is the perplexity on general text of the untouched model.

# %%
compared = tl.recorded_comparison("tiny", "all")
table = compared.table.set_index("strategy").loc[list(names)]
shown = ["perplexity", "perplexity_seeds_low", "perplexity_seeds_high"]
table[[*shown, "general_before", "general"]].round(1)

# %%
rows = compared.table[compared.table.strategy.isin([*names, tl.ZERO_SHOT])]
tl.forgetting_chart(rows)

# %% [markdown] slideshow={"slide_type": "subslide"}
# In the picture, the three trained models are close together from left to right (their gain on Rust) but far apart in
# height (what they forgot). The star at the right is the untouched model. The next table compares the three in pairs. A
# positive difference means that the first of the two has the higher perplexity on Rust. The interval from `low` to
# `high` takes in the spread over documents and over seeds, and it is corrected for the number of pairs, as in [lesson
# 8](08_peft_family.ipynb).

# %%
runs = compared.runs[compared.runs.strategy.isin(names)]
general_text = runs.groupby("strategy").general.agg(["min", "max"])
documents = compared.documents[compared.documents.strategy.isin(names)]
pairs = tl.compare_pairs(documents).set_index(["first", "second"])
pairs[["difference", "low", "high", "separated"]].round(2)

# %%
apart = pairs.separated
course.claim(
    "On Rust, discriminative rates and full cannot be told apart",
    not apart[("full", "discriminative_rates")],
)
course.claim(
    "On Rust, gradual unfreezing stays behind both",
    apart[("full", "gradual_unfreezing")]
    and (table.perplexity["gradual_unfreezing"] > 1.06 * table.perplexity).sum() == 2,
)
course.claim(
    "Every run of either schedule forgets less than any run of full",
    general_text["max"].drop("full").max() < general_text["min"]["full"],
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Between `full` and discriminative rates, the interval of the difference goes from −0.5 to 1.2 points. It includes
# zero, so a difference, if there is one, is small. But discriminative rates forget much less: the perplexity on general
# text rises from 36 to about 53, and to about 64 with `full`. All three seeds agree on this, although no interval of
# this difference was computed.
#
# Gradual unfreezing forgets less than `full`, too, but ends about 4 points higher on Rust. A likely reason is that the
# lower parts join late: blocks 1 to 3 are trained in the last half of the steps, and block 0 and the embedding in the
# last quarter, when the rate is already small. In the tuning runs, which are shorter and scored on other text, it was
# level with `full` (77.6 and 77.5), so do not expect the same gap everywhere. Its search was also coarser: in the first
# table, the rates beside its best one are a factor of 3.2 away, and those beside the best rate of `full` only a factor
# of 2.
#
# Do these differences come from the schedules, or from the rate at which each was compared? Each best rate was chosen
# for Rust alone. A lower rate gains less and forgets less, so every strategy has a whole line of choices. The next
# picture shows these lines, from the tuning runs, up to the best rate of each.

# %%
on_tiny = pictures.rate_paths("tiny", names, worst=100)
tl.tradeoff_chart(on_tiny)


# %%
def points_of(paths):
    """Perplexities on Rust and on general text, by strategy and rate."""
    return {
        (name, row.label): [round(row.rust, 1), round(row.general, 1)]
        for name, path in paths.items()
        for row in path.itertuples()
    }


points = points_of(on_tiny)
cosine = [1 + math.cos(math.pi * step / 55) for step in range(55)]  # the rate, twice

# %% [markdown] slideshow={"slide_type": "subslide"}
# The numbers at the points are learning rates. These are means of two seeds, on validation text. At nearly the same
# gain, general text ends at 53.2 with `full` (at the rate 0.001, 77.5 on Rust), at 47.8 with discriminative rates
# (77.3) and at 48.5 with gradual unfreezing (77.6). One rate lower, discriminative rates (84.7 and 43.1) are ahead of
# `full` (86.6 and 43.7) on both texts. So in these runs both schedules forget less at about the same gain. For
# discriminative rates this holds at two rates; for gradual unfreezing only one point can be compared.
#
# Neither of them lowers the peak of memory. In the comparison it is 136 MB for both, as for `full`, because in its last
# phase gradual unfreezing trains everything.

# %% [markdown] slideshow={"slide_type": "subslide"}
# Why less forgetting? Added up over the run, the embedding's learning rates come to about a third of those in `full`
# with discriminative rates, and to less than a tenth with gradual unfreezing, so it should move less. It is also the
# head of this model, and it is used for every text. This cannot be the whole reason: by this measure the embedding
# should move least with gradual unfreezing, which forgets more than discriminative rates. The explanation was not
# tested here, but it fits [lesson 7](22_freeze_embeddings.ipynb), where freezing the embedding alone lowers forgetting
# as well.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What a step computes
#
# In the first phase six of the eight blocks are frozen, so backpropagation stops early. The forward pass still runs
# through the whole model, in every step. But while blocks 0 to 5 are frozen, they return the same numbers for the same
# text each time. [Lesson 7](07_freezing.ipynb) kept such numbers in a cache. Here the frozen part shrinks from phase
# to phase, and the cache can serve every phase but the last.
#
# **Predict first.** Full fine-tuning is 100%. What does an average step of gradual unfreezing need without the cache,
# and what with it, if the cache has seen all of the text before? The next cell counts one step in each phase, and for
# the cache it subtracts the forward pass of the frozen blocks.

# %%
paper = tl.apply_strategy(tl.meta_model("tiny"), "gradual_unfreezing").model
batch = torch.zeros(4, 128, dtype=torch.long)
with tl.as_in_phase(paper, 0.75):  # the last phase, in which all is trained
    full = tl.count_flops(paper, batch)
head = 2 * batch.numel() * 192 * 4096  # a product of (tokens, width) and (width, words)
one_block = (full.forward - head) / 8
without, with_cache = [], []
for phase, frozen in enumerate((6, 4, 1, 0)):
    with tl.as_in_phase(paper, phase / 4):
        step = tl.count_flops(paper, batch)
    forward, backward = step.forward / full.total, step.backward / full.total
    skipped = frozen * one_block / full.total
    without.append((100 * forward, 100 * backward))
    with_cache.append((100 * (forward - skipped), 100 * backward))
for name, phases in (("without", without), ("with a filled", with_cache)):
    print(f"{name} cache: {sum(map(sum, phases)) / 4:.0f}% of full fine-tuning")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The savings are in the early phases. A step of the first one needs 53% without the cache, because the forward pass is
# whole, and 32% with it. From phase to phase more blocks are trained and fewer can be skipped, until the last phase
# costs as much as full fine-tuning. The cached figures are for text that the cache has seen before. The first reading
# of each text costs as much as without the cache. So if the text is read exactly once in each phase, the first phase
# needs 53% and not 32%, and the average is about 72% and not 67%.
#
# The next cell trains four epochs on 32 pieces of text with 128 tokens each, so each phase is one epoch and reads every
# piece once.

# %% tags=["nbval-ignore-output"]
few, four_epochs = blocks[:32], tl.TrainingConfig(3e-3, batch_size=4, epochs=4)
plain = tl.train(adapted("gradual_unfreezing").model, few, four_epochs).history
model = adapted("gradual_unfreezing").model
with tl.cached_prefix(model) as cache:
    cached = tl.train(model, few, four_epochs).history
    computed, reused = cache.rows_computed, cache.rows_reused
for name, history in {"without the cache": plain, "with it": cached}.items():
    seconds = history.groupby((history.step - 1) // 8).seconds.sum()
    print(f"{name:18}", " ".join(f"{value:5.2f} s" for value in seconds))

# %%
apart = (cached.loss / plain.loss - 1).abs().max()
course.claim("The same 32 losses", len(cached) == 32 and apart < 1e-5)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Each phase reads every piece of text only once, and yet two of them need less arithmetic with the cache. The second
# phase saves most, because four of the model's eight blocks are skipped. In the third phase it is only one, and the
# difference in time is no larger than those between the two runs in phases in which nothing is saved, so a single run
# cannot show it.
#
# While the first phase computes a piece of text, the cache keeps what comes out of blocks 5, 3 and 0, which are the
# last frozen ones of the three phases. So the second phase finds everything it needs, although it begins lower down.
# The frozen blocks are computed once for all phases together. The price is memory: three times the hidden states of the
# text, which is $3 \cdot 128 \cdot 192 \cdot 4$ bytes, about 0.3 MB, for each piece of 128 tokens here. If the text is
# read only once, in one epoch with all four phases in it, nothing is ever reused and the cache is of no use.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A strategy of your own
#
# Everything in this workbook that takes the name of a strategy looks it up in one list, and you can add to that list. A
# strategy is a function. It is given a model in which everything is frozen, and sets `requires_grad` for the parts that
# it trains. The line above it registers the function under a name.


# %%
@tl.strategy("every_other")
def every_other(model, first: int = 1):
    """Train every second block, and no other part."""
    for block in tl.find_blocks(model)[first::2]:
        block.requires_grad_(True)
    return model


last_four = adapted("last_layers", blocks=4, train_norms=False)
tl.network_strip(adapted("every_other"), last_four)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Both strips train four of eight blocks, so they have the same number of trained values. But the lowest trained block
# is block 1 in the first strip and block 4 in the second, and backpropagation has to go down to it. The new strategy
# has the same reports, checks, estimates and comparisons as the others:

# %%
shape = {"batch_size": 4, "sequence_length": 128}
for name, options in {
    "every_other": {},
    "last_layers": {"blocks": 12, "train_norms": False},
}.items():
    report = tl.apply_strategy(tl.meta_model("qwen2-0.5b"), name, **options)
    need = tl.estimate_memory("qwen2-0.5b", name, **shape, **options)
    print(f"{name:12} {report.trainable_values:>12,} values, {tl.in_units(need.peak)}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Both train 12 of the 24 blocks of this larger model, and the same number of values. But with `every_other`
# backpropagation goes down to block 1, so the activations of nearly all blocks have to be kept, and it needs more
# memory.

# %% [markdown] slideshow={"slide_type": "subslide"}
# If you save the function in a file of its own, say `mine.py`, with `import tlkit as tl` above its `@tl.strategy` line,
# you can include it in a comparison from the command line. The command first searches for its learning rate, with as
# many runs as every other strategy was given. Run it in the folder of the workbook; tables and charts go to `results/`:
#
# ```
# python -m tlkit compare --strategies last_layers,every_other --plugin mine.py
# ```
#
# To give some weights another rate or a later beginning, a strategy calls `tl.set_groups` with a list of
# `tl.ParameterGroup(names, rate=…, begins=…)`. Both schedules of this lesson are a dozen lines on top of that, in
# `tlkit/strategies/in_time.py`.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A schedule is a table of learning rates, with a row for each layer and a column for each step. A frozen layer does
#   not move, just as with a rate of zero, but its gradients need not be computed.
# - The optimizer's parameter groups set the rates, and `requires_grad` sets when a layer begins. Give the optimizer
#   every parameter that will ever be trained, also those that are still frozen.
# - A schedule needs a learning rate of its own. At the rate of `full` it looks worse than it is.
# - At their own best rate, discriminative rates reach the perplexity of `full` on our tiny model (52.4 and 52.7) and
#   forget less: general text ends at about 53 instead of 64. Gradual unfreezing needs 77% of the arithmetic of
#   `full`, or 67% with a filled cache, but ends about 4 points higher on Rust (56.8).
# - Compare methods at several rates before you say that one of them forgets less.
#
# **Further reading**
#
# - J. Howard and S. Ruder, [Universal Language Model Fine-tuning for Text
#   Classification](https://arxiv.org/abs/1801.06146), 2018: both ideas of this lesson.
# - A. Kumar et al., [Fine-Tuning can Distort Pretrained Features and Underperform
#   Out-of-Distribution](https://arxiv.org/abs/2202.10054), 2022: why training the head first can help.
# - K. Clark et al., [ELECTRA](https://arxiv.org/abs/2003.10555), 2020: rates that fall from layer to layer, as a
#   standard setting for fine-tuning.
# - Y. Liu, S. Agarwal and S. Venkataraman, [AutoFreeze](https://arxiv.org/abs/2102.01386), 2021: the opposite order,
#   freezing from the bottom while training, with a cache.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("exA1_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** You unfreeze a block after 100 steps by setting `requires_grad` to true, but its weights never change. The
# losses and gradients look normal. What is the most likely reason?
#
# - **a** The warm-up of the learning rate is over by then.
# - **b** The optimizer was made before, from the parameters that were trainable at that time.
# - **c** A block that was frozen once is left out of the backward pass for good.
# - **d** AdamW's averages of this block are still zero, so its first steps are zero, too.

# %%
course.quiz("quizA1")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise A1.1** (first steps). A model has 30 blocks and a tied head. Gradual unfreezing with 4 phases trains it for
# 200 steps, which are counted from 0. In which step is block 12 trained for the first time? Use the formula: part 0 is
# the final norm, part 1 is block 29, and the embedding is part 31.

# %%
answer = None
# your code here
course.check("exA1_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise A1.2** (apply it). Write a strategy: train the MLPs of the upper half of the blocks, and nothing else. In
# our model, that is `block.mlp` of blocks 4 to 7. With an odd number of blocks, the middle one belongs to the upper
# half. The function gets a model in which everything is frozen, and returns it.


# %%
def upper_mlps(model):
    """Train the MLPs of the upper half of the blocks."""
    # your code here


course.check("exA1_2", upper_mlps)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise A1.3** (think further). Take a deep model, in which embedding and head hardly count, and say that the
# backward pass of a trained block needs twice its forward pass. Gradual unfreezing has 4 phases of equal length, and
# each of them adds a quarter of the blocks. The text has been read before, so the cache holds everything it can. What
# percentage of the arithmetic of full fine-tuning remains, averaged over the four phases?

# %%
answer = None
# your code here
course.check("exA1_3", answer)

# %% [markdown]
# Previous: [22 · Freeze the embeddings](22_freeze_embeddings.ipynb)
