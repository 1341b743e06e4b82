# %% [markdown] slideshow={"slide_type": "slide"}
# # 21 · Your own study
#
# *How do you get from your own text and your own question to an answer that others can check?*
#
# Twenty lessons have shown you one text, the one about Rust, and have told you what to measure. Now you bring a text
# and a question of your own, and you end with a report. This lesson goes the whole way once, with notes about cooking
# and the bundled model, so that you can see every station before you walk the way yourself.
#
# **You will be able to**
#
# - plan a study so that its runs can answer its question, and see beforehand what they cannot show;
# - carry it out from the first look at the text to a decision, which may be "cannot tell";
# - write a report in which every figure comes from the runs, and find the faults of a study from its record.
#
# **You need** [lesson 3](03_data_and_baseline.ipynb) for splits and leakage, [lesson 14](14_comparison.ipynb) for
# intervals, [lesson 15](15_autopsy.ipynb) for the six questions, and a strategy or two from lessons 4 to 11.
#
# About 22 minutes.

# %% slideshow={"slide_type": "subslide"}
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pandas as pd
from IPython.display import Markdown

import tlkit as tl

profile = tl.setup()
text = os.environ.get("TLKIT_CORPUS") or "kitchen"
base = tl.load_model()  # TLKIT_MODEL, or the bundled one
folder = Path(os.environ.get("TLKIT_STUDY") or tempfile.mkdtemp())
example = (text, base.name, profile.name) == ("kitchen", "tiny", "ci")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Go through the lesson once as it is. For your own study, start it again with a text, a model and a folder of your
# own. A text is a folder of .txt, .md or .jsonl files, and 300 paragraphs are a good size, for a reason that station 1
# shows. Without the variables the lesson uses its own example, and a folder that the system removes some day.
#
# ```
# TLKIT_CORPUS=my_texts/ TLKIT_STUDY=my_study/ python -m jupyterlab notebooks/21_your_own_study.ipynb
# ```
#
# Here is the whole way. Everything that is measured goes into one record, `study.json`. The report is made from this
# record, and so is the judgement of whoever grades it.

# %%
tl.study_path()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Before station 1: the question
#
# Write down what you want to know before you measure anything, and also what will count as an answer. Afterwards it is
# too late, because whoever has seen the results will find a question that they answer well.
#
# A plan has five parts. The *question* is one sentence. The *strategies* are what you compare. *Worthwhile* is the
# smallest difference of [perplexity](glossary.md#perplexity), in percent, that would change what you do. *May forget*
# is the price that you would pay: by how many percent perplexity on general text may rise. The *card* is the memory
# that training may use.

# %%
plan = tl.StudyPlan(
    question="Which adapts this model better to my text: full fine-tuning or LoRA?",
    strategies=("full", "lora"),
    worthwhile=5,
    may_forget=100,
    card="128MB",
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Station 1: the text
#
# `kitchen` is a corpus of 140 short notes about cooking that were written for this lesson, seven on each of twenty
# subjects. The bundled model was pretrained on the documentation of software, so it has read next to nothing about food.

# %%
corpus = tl.load_corpus(text)
print(corpus.train[0])

# %% [markdown] slideshow={"slide_type": "subslide"}
# A datasheet says how much there is in each [split](glossary.md#split), and whether a document has a copy in another
# one. `load_corpus` leaves out documents with the same words. The datasheet looks further. It counts a document as a
# copy if half of its runs of five words, or one run of twelve, are found in another document.

# %%
sheet = tl.datasheet(corpus, base.tokenizer)
sheet

# %% [markdown] slideshow={"slide_type": "subslide"}
# Would it have found a copy? We plant one. The test split below gets a training note whose first word is changed, so
# it is no exact duplicate, and `load_corpus` would have kept it.

# %%
planted = "Surely " + corpus.train[0].split(maxsplit=1)[1]
spoiled = replace(corpus, test=(planted, *corpus.test[1:]))
found = tl.datasheet(spoiled, base.tokenizer).copied["test in train"]
if example:
    tl.claim("The note with another first word is found", found == 1)
    assert not sheet.copies

# %% [markdown] slideshow={"slide_type": "subslide"}
# If your own text has copies, `tl.without_copies(text, "clean.jsonl")` writes it anew without them, and you use that
# file as your corpus.
#
# The second thing to know is what this test split can show *at all*. Two strategies are compared on the same
# documents, and documents differ. The fewer documents there are, the larger a difference has to be before it can be
# seen. The standard error of a mean difference over $n$ documents, with the spread $s$ of the losses over documents
# and the correlation $\rho$ between two strategies, is
#
# $$\text{error} = s \sqrt{\frac{2 \, (1 - \rho)}{n}}$$
#
# A difference of 2.8 such errors is found in four of five studies ([lesson 16](16_leaderboard.ipynb)). The spread
# comes from validation text, so the test split stays closed. The correlation cannot be known before anything is
# trained, so it is taken from the recorded comparison on Rust, where it is about 0.9.
#
# **Predict first.** There are 40 test notes of about 60 tokens each. From how many percent of perplexity on can a
# difference between two strategies be found?

# %%
tl.predict("p21_1")

# %%
documents = profile.limit(corpus)  # as many as the profile reads
before = tl.perplexity(base.model, base.tokenizer, documents.validation)
shown = tl.smallest_difference(sheet, before, documents=len(documents.test))
ten = tl.smallest_difference(sheet, before, documents=10)
if example:
    tl.claim(
        "Four times as many documents show half the difference, roughly",
        1.8 < ten / shown < 2.3,
    )
    assert len(documents.test) == 40 and 6 < shown < 11

# %%
tl.outcome("p21_1", shown)

# %% [markdown] slideshow={"slide_type": "subslide"}
# About 8%, which is more than the 5% that the plan calls worthwhile. So even before the first run we know that this
# study may well end with "cannot tell", although one strategy may be better by an amount that matters. There are three
# honest ways on: bring more test documents, ask for a larger difference, or go on and be ready for this answer. We go
# on.
#
# This is also the reason for 300 paragraphs of your own. A tenth of them becomes the test split, and `tlkit audit`
# refuses tables with fewer than 30 items. Below five test documents no difference can be shown at all.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Station 2: the baseline
#
# The [baseline](glossary.md#baseline) was already measured for station 1, on validation text. It comes with an interval,
# and with two checks that cost nothing: it must lie below the size of the vocabulary, and the loss of the first
# training step must agree with it.

# %% tags=["nbval-ignore-output"]
print(before)

# %%
vocabulary = base.model.config.vocab_size
assert before.low < before.perplexity < before.high < vocabulary
if example:
    tl.claim(
        "Cooking is at least twice as surprising to this model as Rust, which had 133",
        before.low > 2 * 133,
    )

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Station 3: the card
#
# Estimate what a step of each strategy needs *before* you run it ([lesson 12](12_memory_anatomy.ipynb)). A card is
# never all yours, so 15% of it is left free. If a strategy does not fit, `refuse_misfits` stops here and says so. Then
# you change the batch or the block for *all* strategies, or you leave that strategy out of the plan.

# %%
block, batch = 64, 4  # tokens in a block, blocks in a step
fits = tl.fit_to_card(plan, base.name, batch_size=batch, block_size=block)
tl.refuse_misfits(fits)
fits[["strategy", "estimated_mb", "allowed_mb", "fits"]].round(0)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Station 4: the same tuning for all
#
# Each strategy is given eight learning rates: six a decade apart, and two more around the best. All are judged on
# validation text. The [control](glossary.md#control), which starts from random weights, is tuned in the same way,
# because an untuned control makes pretraining look better than it is.
#
# For your own text, `compare` makes this search when you ask it to tune. It takes about three quarters of a minute for
# two strategies of the bundled model. For the notes about cooking the search is recorded: it ran on 23 November 2026
# with the same command, on two cores, and its record says with which versions.

# %%
settings = tl.ComparisonSettings(
    corpus=text, block_size=block, batch_size=batch, questions=4, tune=not example
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Station 5: the runs
#
# Now the test split is opened. `compare` runs each strategy with three [seeds](glossary.md#seed), and adds the
# untouched model and the control. Only the strategy differs between the runs. They have the same text, steps, batches,
# scoring window and seeds. The runs are kept in the folder as they end, so a study that was stopped goes on where it
# was.
#
# The order on Rust was clear ([lesson 14](14_comparison.ipynb)): `full` gained more than `lora`, and with the rates
# tuned for Rust it also forgot a little more.
#
# **Predict first.** The rates that are best for the notes turn out to be the same as on Rust, 0.001 for `full` and
# 0.01 for `lora`. Which of the two forgets more this time?

# %%
tl.predict("p21_2")

# %%
comparison = tl.compare(
    base.name,
    plan.strategies,
    profile=profile,
    settings=settings,
    output=folder / "runs",
    progress=True,
)
study = tl.study(plan, sheet, before, base.model, fits, comparison, folder / "runs")
assert not comparison.failures and len(study.runs) == 2 + 2 * profile.seeds

# %%
tl.perplexity_chart(comparison.table)

# %%
tl.difference_chart(study.compared, plan.worthwhile)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The second chart is the one that decides. The point is the difference between the two strategies, the line is its
# interval over documents and seeds, and the grey band holds the differences that the plan does not call worthwhile.
# The difference is larger than we could count on, and so it shows although the test is small.

# %%
if example:
    value, low, high = study.difference("full", "lora")
    tl.claim("full ends below lora, and the interval excludes zero", high < 0)
    gains = study.gains
    tl.claim("Both lower perplexity by more than half", (gains.high < -50).all())
    control = study.perplexities[tl.CONTROL]
    tl.claim(
        "The control, without pretraining, ends above the untouched model",
        control > study.perplexities[tl.ZERO_SHOT],
    )
    assert -25 < value < -8

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Station 6: what it costs
#
# The gain is half of the result. The other half is what the model has forgotten, what it can still answer, and what it
# took.

# %%
tl.forgetting_chart(comparison.table)

# %%
if example:
    forgot = study.forgetting["mean"]
    tl.claim(
        "lora forgets over 1.3 times as much as full on this text",
        forgot["lora"] > 1.3 * forgot["full"],
    )
    assert 40 < forgot["full"] < plan.may_forget < forgot["lora"]
    rates = {run.strategy: run.learning_rate for run in study.runs}
    assert (rates["full"], rates["lora"]) == (0.001, 0.01)

# %%
if example:
    seen = tl.outcome("p21_2", forgot.idxmax())
else:
    seen = "Your text has an answer of its own: see the chart."
seen

# %% [markdown] slideshow={"slide_type": "subslide"}
# The order has turned round: on this text `lora` gains less *and* forgets more. A result about one text is therefore no
# result about another, and this is the reason to make a study of your own at all.
#
# Why does it turn round? These runs do not say. They suggest an idea: fifteen steps are few, and LoRA begins with an
# adapter whose product is zero, so it needs a high rate to get anywhere in so few steps. Whether that is the reason
# could be tested by longer training. An explanation like this belongs into a report as what it is, an idea with the run
# that would test it.
#
# Four questions of each set were asked too. Four answers say nothing, and the interval in the report shows it. With a
# model that knows something, ask all of them (`questions=None`), or write some about your own text.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Station 7: the decision
#
# A decision has a verdict, "better", "equal" or "cannot tell", and a reason in your words.
#
# - **better** needs an interval that excludes zero, and the recommended strategy must keep to what the plan allows it
#   to forget.
# - **equal** needs more than an interval that includes zero. The whole interval must lie within what the plan calls not
#   worthwhile. If it is wider, you have not found a difference, but you have not shown that there is none either.
# - **cannot tell** is the honest verdict in all other cases. It is worth as many points as any other.
#
# In your words, figures are named and not typed: `$gain_full` becomes what was measured. `tl.figures(study)` lists all
# names.

# %%
decision = tl.Decision(
    verdict="better",
    strategy="full",
    than="lora",
    because="""Full fine-tuning lowered perplexity by $gain_full and LoRA by
    $gain_lora. The difference is $difference_full_lora (interval
    $difference_full_lora_interval). On general text full forgets $forgetting_full,
    within the $may_forget that I allow, and LoRA forgets $forgetting_lora.""",
    limits="""This is one small model, $steps_full steps and one text. With more
    steps LoRA may catch up; the run to do next is the same with four epochs.""",
)
study = study.decided(decision)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Station 8: the report
#
# `write_up` fills a template from the record and writes four files: `study.json`, the report as `report.md` and as one
# HTML page, and `table.csv`. The whole report of this example is in `data/studies/kitchen/report.md`. If the folder already holds a study with other runs on the same text, the new record says
# that the test split was opened again.

# %%
written = tl.write_up(study, folder / "study")
print([path.name for path in written])

# %% tags=["nbval-ignore-output"]
report = (folder / "study" / "report.md").read_text(encoding="utf-8")
parts = report.split("\n## ")
Markdown("## " + "\n## ".join([parts[1], *parts[6:8]]))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Before you hand it in, be your own reader. First, the six questions of [lesson 15](15_autopsy.ipynb), put to your own
# record:

# %% tags=["nbval-ignore-output"]
for asked in tl.six_questions(study):
    print(f"{asked.number}. {asked.question}\n   {asked.answer}")

# %%
tl.claim(
    "All six have an answer that a reader can be content with",
    all(asked.passed for asked in tl.six_questions(study)),
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Second, ask what a reader could tell from your table alone. This is the audit of lesson 16, and the command line has
# it too: `python -m tlkit audit table.csv --metric nats --items documents --deviation deviation --lower-is-better`.

# %% tags=["nbval-ignore-output"]
table = pd.read_csv(folder / "study" / "table.csv")
try:
    audit = tl.audit(
        table, "nats", "documents", deviation="deviation", lower_is_better=True
    )
    print("\n".join(audit.sentences()[:3]))
except ValueError as refused:
    print(f"The audit refuses this table: {refused}")

# %%
if example:
    pair = audit.pairs.iloc[0]
    unpaired = (pair.high - pair.low) / abs(pair.difference)
    _, low, high = study.difference("full", "lora")
    tl.claim(
        "For a reader of the table the interval is wider than for you",
        unpaired > 1.2 * (high - low) / abs(value),
    )
    assert {pair["first"], pair["second"]} == {"full", "lora"}

# %% [markdown] slideshow={"slide_type": "subslide"}
# A reader of the table does not know which document had which loss. They cannot take differences in pairs, so their
# interval is wider. If you want others to be sure, publish the scores of each document. `study.json` has them.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## How a study is judged
#
# This is the rubric. What a record can show is judged by rules, and the rest by a person who reads.

# %%
tl.rubric()

# %%
judgement = tl.judge_study(folder / "study")
if example:
    tl.claim("Nothing is wrong with this study that a record can show", judgement.sound)
judgement

# %% [markdown] slideshow={"slide_type": "subslide"}
# The rules compute everything anew from the scores of the documents, so it does not help to write another figure into
# the report. To see what they catch, we spoil the study in six ways, each of which happens in practice.


# %%
def with_runs(keep, **change):
    """The study with some of its runs, changed."""
    return replace(study, runs=[replace(r, **change) for r in study.runs if keep(r)])


def decide(verdict, strategy, than):
    chosen = replace(decision, verdict=verdict, strategy=strategy, than=than)
    return study.decided(chosen)


first, second = plan.strategies
three = [replace(run, nats=run.nats[:3]) for run in study.runs]
bad = {
    "tuned on the test split": replace(
        study, tried=[replace(one, split="test") for one in study.tried]
    ),
    "no control": with_runs(lambda run: run.strategy != tl.CONTROL),
    "an untuned rival": replace(
        study, tried=[one for one in study.tried if one.strategy != second]
    ),
    "one seed": with_runs(lambda run: run.seed == 0),
    "three test documents": replace(
        study, runs=three, document_tokens=study.document_tokens[:3]
    ),
    "no difference found, so none there": decide("equal", first, second),
}
judged = {fault: tl.judge_study(spoiled) for fault, spoiled in bad.items()}

# %% tags=["nbval-ignore-output"]
for fault, found in judged.items():
    print(f"{fault}: {found.reasons[0]}\n")

# %%
tl.claim("All six are caught", not any(found.sound for found in judged.values()))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A plan that names what would be worthwhile, and what may be forgotten, turns a result into an answer. Know before
#   the first run what your test can show.
# - Choose on validation text, with as many tries for each strategy and the control, and open the test split once. What
#   is compared must differ in the strategy alone.
# - A report is believed for its record: every figure comes from the runs, with its interval. "Cannot tell" is a result.
#
# ## Further reading
#
# - Gebru and others 2021, [Datasheets for Datasets](https://arxiv.org/abs/1803.09010).
# - Dodge and others 2019, [Show Your Work: Improved Reporting of Experimental
#   Results](https://arxiv.org/abs/1909.03004): a score means little without the tries that it took.
# - Card and others 2020, [With Little Power Comes Great Responsibility](https://arxiv.org/abs/2010.06595): what small
#   tests can show.
# - Lakens 2017, [Equivalence Tests](https://doi.org/10.1177/1948550617697177): how to show that two things are as good
#   as equal.
#
# **An open experiment.** It is the whole lesson: your text, your question, your folder. When `tl.judge_study` finds
# nothing more, hand in the folder with `study.json`, `report.md`, `report.html` and `table.csv`.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `tl.check` says what it looked at and, if the answer
# is not right yet, why. Stuck? Its card has hints to unfold, and `tl.hint("ex21_1", 1)` gives the first one, too. After
# *Restart Kernel* run the next cell first; then each exercise works by itself. What you have solved is kept in a file of
# your own, and the last cell lists it, with your guesses.

# %%
import tlkit as tl

# %% [markdown]
# **Quiz.** Your study has an interval from -9% to +3% for `lora` against `full`, and your plan calls 5% worthwhile.
# What do you write?
#
# - **a** There is no difference between the two.
# - **b** `lora` is better by 3%, the middle of the interval.
# - **c** This study cannot tell; `lora` may be better by up to 9% or worse by up to 3%.
# - **d** Nothing yet: I look which documents are hard for `lora` and leave them out.

# %%
tl.quiz("quiz21")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 21.1** (first steps). A test split of 25 documents shows a difference of 0.08 nats a token, in the sense of
# station 1. You want it to show 0.02 nats. How many documents does the test split need then, if they are like these?

# %%
answer = None
# your code here
tl.check("ex21_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 21.2** (apply it). Write a function that finds the strategies whose learning rate was not found fairly. It
# gets a list of runs, each a tuple of strategy, learning rate, split and score, where a lower score is better and no
# rate was run twice. Return the set of all strategies for which at least one of three things is true: a run was scored
# on another split than `"validation"`; it had fewer runs than the strategy with the most; or its best rate is the
# lowest or the highest of those that were tried for it.


# %%
def not_tuned(runs):
    """The set of strategies whose rate was not found fairly."""
    # your code here


tl.check("ex21_2", not_tuned)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 21.3** (think further). Write a function that decides. It gets the two ends of an interval for the
# difference of two perplexities in percent, the first strategy minus the second, and the smallest difference that is
# worthwhile. It returns
#
# - `"equal"` if the whole interval lies between -worthwhile and +worthwhile, whether it includes zero or not, because
#   then the difference does not matter;
# - `"first"` or `"second"`, whichever is better, if the interval is not like that and excludes zero;
# - `"cannot tell"` otherwise, also where there is no interval and both ends are nan.


# %%
def decide(low, high, worthwhile):
    """One of "equal", "first", "second" and "cannot tell"."""
    # your code here


tl.check("ex21_3", decide)

# %%
print(tl.guesses("21"))
tl.progress("21")

# %% [markdown]
# Previous: [20 · Scaling out](20_scaling_out.ipynb)
