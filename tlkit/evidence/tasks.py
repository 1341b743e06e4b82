"""What a model is adapted to: going on with texts, answering questions, or telling classes of texts apart.

A task says how documents become what is trained on, how a model is scored on documents, and what else is measured. All
else is one and the same: strategies, rates, seeds, intervals, tables.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import pandas as pd
import torch

from tlkit.corpus import NAMED, SPLITS, Corpus, document_opening, load_corpus, pack
from tlkit.evaluation import PerplexityResult, perplexity
from tlkit.evidence.answering import answer
from tlkit.evidence.questions import spread_out
from tlkit.examples import Batch
from tlkit.examples.answers import answer_examples, short_enough
from tlkit.examples.conversations import load_conversations
from tlkit.examples.labelled import class_examples, class_names, load_labelled
from tlkit.examples.scores import class_logits, score_examples
from tlkit.jobs import Part
from tlkit.models.parts import longest_input
from tlkit.settings import Profile

LONGEST_ROW = 512  # tokens of a conversation or a text, where the model reads more
TEMPERATURE = 0.7  # of the sampled answers, beside the likeliest ones
DRAWS = 1000  # of texts, for the interval of balanced accuracy
Documents = Sequence[object]


class Reading(Protocol):
    """Settings that say what corpus is read, and how."""

    corpus: str | None
    text_column: str | None
    label_column: str | None
    ignore_keys: str | None


@dataclass(frozen=True)
class Measured:
    """What a task measures beside perplexity: figures by name, and a row for each answer that the model wrote."""

    figures: dict[str, float] = field(default_factory=dict)
    written: tuple[dict[str, object], ...] = ()


@dataclass(frozen=True)
class Task:
    """How one kind of documents is trained on and scored.

    Attributes:
        name: of `TASKS`.
        load: the corpus that settings name, by its name or path, with the columns or keys of its file.
        general: documents of another kind, by which forgetting is seen; none for a task that only the trained model
            can do.
        batch: of documents, a tokenizer, the tokens in a row and the classes, what is trained on.
        score: of a model, a tokenizer, documents, a window, the classes and the part of a job.
        measure: of the same without a window, with the profile, what else is to be known.
        longer: how many of documents are longer than a row; such a conversation is left out, and such a text with a
            class is cut. Running text is never too long.
        classes: the names of a corpus' classes; None where there are none.
        in_chat: whether a model is asked in its chat template, and used with it.
        row: tokens in a row of training, where nothing else is said; None for the longest that the model reads, up to
            `LONGEST_ROW`.
        strategies: that are compared where none are named.
    """

    name: str
    load: Callable[["Reading"], Corpus]
    general: Callable[[], Corpus]
    batch: Callable[..., Batch]
    score: Callable[..., PerplexityResult]
    measure: Callable[..., Measured] = lambda *_: Measured()
    longer: Callable[..., int] = lambda *_: 0
    classes: Callable[[Corpus], tuple[str, ...] | None] = lambda _: None
    in_chat: bool = False
    row: int | None = None
    strategies: tuple[str, ...] = ("classic",)

    def window(self, model: torch.nn.Module, context: int | None, stride: int | None) -> dict[str, int | None]:
        """What `score` is to be given for tokens that were asked for; answers and texts with classes are read whole."""
        if self.row is None and context is None:
            context = min(LONGEST_ROW, longest_input(model) or LONGEST_ROW)
        return {"context": context, "stride": stride}


def _columns(reading: Reading, *used: str) -> dict[str, object]:
    """How the rows of a file are read, where something is said; a column that the task does not read is refused."""
    given = {name: getattr(reading, name) for name in ("text_column", "label_column") if getattr(reading, name)}
    if unused := sorted(set(given) - set(used)):
        raise ValueError(f"--{unused[0].replace('_', '-')} {given[unused[0]]}: this task reads no such column")
    return given | {"ignore_keys": tuple(filter(None, (reading.ignore_keys or "").split(",")))}


def limited(whole: Corpus, profile: Profile, limit: int | None) -> Corpus:
    """What of a corpus is used: of a bundled one as much as the profile says, of a reader's own text all.

    Args:
        limit: documents of each split, where that is said.
    """
    if limit is not None:
        return whole.limited(limit, limit)
    return whole.limited(profile.train_passages, profile.test_passages) if whole.name in NAMED else whole


@dataclass(frozen=True)
class Account:
    """What became of the documents of a corpus; the numbers add up to `found`.

    `longer` of those that are used have more tokens than a `row`, and are left out of training or cut.
    """

    found: int
    duplicates: int
    empty: int
    beyond_limit: int
    train: int
    validation: int
    test: int
    longer: int
    row: int
    longer_are: str

    def __str__(self) -> str:
        reasons = (
            (self.duplicates, "there twice"),
            (self.empty, "empty"),
            (self.beyond_limit, "beyond the limit or the profile"),
        )
        out = ", ".join(f"{count:,} {reason}" for count, reason in reasons if count)
        used = f"{self.train:,} to train on, {self.validation:,} to choose by, {self.test:,} to score"
        long = f"; {self.longer:,} of these are longer than {self.row:,} tokens and are {self.longer_are}"
        return f"{self.found:,} documents found{': ' * bool(out)}{out}; used: {used}{long * bool(self.longer)}"


def account(task: Task, whole: Corpus, used: Corpus, tokenizer, row: int) -> Account:
    """Count what is used of a corpus by a task, where a row has so many tokens at most, and what is not."""
    sizes = {split: len(getattr(used, split)) for split in SPLITS}
    there = sum(len(getattr(whole, split)) for split in SPLITS)
    return Account(
        found=there + whole.duplicates + whole.empty,
        duplicates=whole.duplicates,
        empty=whole.empty,
        beyond_limit=there - sum(sizes.values()),
        longer=sum(task.longer(getattr(used, split), tokenizer, row) for split in SPLITS),
        row=row,
        longer_are="left out" if task.in_chat else "cut",
        **sizes,
    )


def opening_of(task: Task, tokenizer) -> dict[str, str]:
    """What opens each document that is scored, to be kept with the score; nothing for a task that scores no texts."""
    if task.name != "text":
        return {}
    return {"documents_open_with": "".join(tokenizer.convert_ids_to_tokens(document_opening(tokenizer)))}


def _text_score(model, tokenizer, documents: Documents, window: dict, classes: None, progress: Part):
    return perplexity(model, tokenizer, documents, progress=progress, **window)


def _answer_batch(documents: Documents, tokenizer, length: int, classes: None, learn: str = "answers") -> Batch:
    kept, long = short_enough(documents, tokenizer, length)
    if long:
        warnings.warn(
            f"{len(long)} of {len(documents)} conversations have more than {length} tokens and are left out, the first "
            f"of them {long[0].id!r}",
            stacklevel=2,
        )
    if documents and not kept:
        raise ValueError(f"all {len(documents)} conversations have more than {length} tokens: expected longer rows")
    return answer_examples(kept, tokenizer, learn=learn)


def _answer_score(model, tokenizer, documents: Documents, window: dict, classes: None, progress: Part):
    examples, rows = _answer_batch(documents, tokenizer, window["context"], None), window.get("batch_size", 8)
    return score_examples(model, examples, tokenizer=tokenizer, batch_size=rows, progress=progress)


def _answer_measure(
    model, tokenizer, documents: Documents, profile: Profile, classes: None, progress: Part
) -> Measured:
    """As many answers as the profile asks questions of each set, the likeliest ones and then sampled ones."""
    asked, figures, tables = spread_out(documents, profile.questions), {}, []
    for prefix, temperature in (("", 0.0), ("sampled_", TEMPERATURE)) if asked else ():
        progress.step(0, 0, f"answering {len(asked)} questions{', sampled' if prefix else ''}")
        answers = answer(model, tokenizer, asked, temperature=temperature)
        figures |= {f"{prefix}{name}": value for name, value in answers.summary().items()}
        tables.append(answers.table.assign(sampled=bool(prefix)))
    return Measured(figures, tuple(pd.concat(tables).to_dict("records")) if tables else ())


def _longer_texts(documents: Documents, tokenizer, row: int) -> int:
    ids = tokenizer([str(one) for one in documents], add_special_tokens=False, verbose=False)["input_ids"]
    return sum(len(one) > row for one in ids)


def _class_batch(documents: Documents, tokenizer, length: int, classes: tuple[str, ...]) -> Batch:
    return class_examples(documents, tokenizer, classes, length=length)


def _class_score(model, tokenizer, documents: Documents, window: dict, classes: tuple[str, ...], progress: Part):
    examples = _class_batch(documents, tokenizer, window["context"], classes)
    return score_examples(model, examples, batch_size=window.get("batch_size", 8), progress=progress)


def _class_measure(
    model, tokenizer, documents: Documents, profile: Profile, classes: tuple[str, ...], progress: Part
) -> Measured:
    examples = _class_batch(documents, tokenizer, LONGEST_ROW, classes)
    predicted = class_logits(model, examples, progress=progress).argmax(1)
    accuracy, low, high = balanced_accuracy(predicted, examples.labels)
    return Measured({"balanced_accuracy": accuracy, "balanced_accuracy_low": low, "balanced_accuracy_high": high})


def balanced_accuracy(predicted: torch.Tensor, labels: torch.Tensor) -> tuple[float, float, float]:
    """The mean over classes of the share of its texts that are put into it, and its 95% interval over texts.

    Texts are resampled within their class, so that no class is ever missing.

    Args:
        predicted: classes, shape (texts,).
        labels: the true ones.
    """
    generator = torch.Generator().manual_seed(0)
    means, drawn = [], torch.zeros(DRAWS, dtype=torch.float64)
    classes = labels.unique()
    for c in classes:
        right = (predicted[labels == c] == c).double()
        means.append(right.mean())
        chosen = torch.randint(len(right), (DRAWS, len(right)), generator=generator)
        drawn += right[chosen].mean(1) / len(classes)
    low, high = torch.quantile(drawn, torch.tensor([0.025, 0.975], dtype=drawn.dtype)).tolist()
    return float(torch.stack(means).mean()), low, high


TASKS = {
    "text": Task(
        name="text",
        load=lambda reading: load_corpus(reading.corpus, **_columns(reading, "text_column")),
        general=lambda: load_corpus("general"),
        batch=lambda documents, tokenizer, length, classes: pack(documents, tokenizer, length),
        score=_text_score,
        row=128,
    ),
    "answer": Task(
        name="answer",
        load=lambda reading: load_conversations(reading.corpus or "rust", **_columns(reading)),
        general=lambda: load_conversations("general"),
        batch=_answer_batch,
        score=_answer_score,
        measure=_answer_measure,
        longer=lambda documents, tokenizer, row: len(short_enough(documents, tokenizer, row)[1]),
        in_chat=True,
    ),
    "classify": Task(
        name="classify",
        load=lambda reading: load_labelled(
            reading.corpus or "rust", **_columns(reading, "text_column", "label_column")
        ),
        general=lambda: Corpus("none", (), (), ()),
        batch=_class_batch,
        score=_class_score,
        measure=_class_measure,
        longer=_longer_texts,
        classes=lambda corpus: class_names(corpus.train),
        strategies=("linear_probe", "classic"),
    ),
}
# The experiment beside "answer": the loss is on the questions too. What is scored is the same.
TASKS["conversation"] = replace(TASKS["answer"], name="conversation", batch=partial(_answer_batch, learn="everything"))
