"""What a model is adapted to: texts, answers or classes, and how documents of each are trained on and scored."""

import json
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from scipy.stats import binomtest

from tlkit.corpus import NAMED, SPLITS, Corpus, document_opening, load_corpus, pack
from tlkit.evaluation import WINDOW, PerplexityResult, class_logits, perplexity, score_examples
from tlkit.evidence.comparison_settings import DataSettings
from tlkit.examples import Batch, Examples
from tlkit.examples.conversations import Conversation, answer_examples, load_conversations, prompt_of, short_enough
from tlkit.examples.labelled import class_examples, class_names, load_labelled
from tlkit.jobs import Job
from tlkit.models import agreed_classes, continue_tokens
from tlkit.models.parts import longest_input
from tlkit.settings import Profile

LONGEST_ROW = 512  # tokens, where the model reads more
NEW_TOKENS = 96  # of an answer; one in a hundred of the bundled ones is longer
Documents = Sequence[object]
Classes = tuple[str, ...] | None  # of a classifier in its order; None for a language model
Window = dict[str, int]  # `context`, `stride` and perhaps `batch_size`


class Task:
    """How documents are trained on and scored, here running text."""

    name = "text"
    in_chat = False  # whether a model is asked in its chat template
    row = 128  # tokens in training, or fewer if the model reads fewer
    context = WINDOW  # likewise in scoring
    strategies = ("classic",)  # that are compared by default

    def load(self, settings: DataSettings) -> Corpus:
        return load_corpus(settings.corpus, **_reading(settings, "text_column"))

    def general(self) -> Corpus:
        """Documents that show forgetting; none where the untrained model lacks the task."""
        return load_corpus("general")

    def classes(self, corpus: Corpus) -> Classes:
        return None

    def batch(self, documents: Documents, tokenizer, length: int, classes: Classes) -> Batch:
        """Rows of at most `length` tokens."""
        return pack(documents, tokenizer, length)

    def longer(self, documents: Documents, tokenizer, row: int) -> int:
        """How many documents do not fit a row."""
        return 0

    def window(self, model: torch.nn.Module, context: int | None, stride: int | None) -> Window:
        """The window of `score`: as given, else as long as the task and the model allow."""
        context = context or min(self.context, longest_input(model) or self.context)
        return {"context": context, "stride": stride or context}

    def score(
        self, model, tokenizer, documents: Documents, window: Window, classes: Classes, progress: Job
    ) -> PerplexityResult:
        return perplexity(model, tokenizer, documents, progress=progress, **window)

    def measure(self, model, tokenizer, documents: Documents, classes: Classes, progress: Job) -> dict[str, float]:
        """Figures beside the score."""
        return {}


class AnswerTask(Task):
    """Conversations, of which answers or everything is learned, and answers are scored."""

    in_chat = True
    row = context = LONGEST_ROW

    def __init__(self, name: str, learn: str) -> None:
        self.name, self.learn = name, learn

    def load(self, settings: DataSettings) -> Corpus:
        return load_conversations(settings.corpus or "rust", **_reading(settings))

    def general(self) -> Corpus:
        return load_conversations("general")

    def batch(self, documents, tokenizer, length, classes) -> Examples:
        return _answers(documents, tokenizer, length, self.learn)

    def longer(self, documents, tokenizer, row) -> int:
        return len(short_enough(documents, tokenizer, row)[1])

    def score(self, model, tokenizer, documents, window, classes, progress) -> PerplexityResult:
        examples, rows = _answers(documents, tokenizer, window["context"]), window.get("batch_size", 8)
        return score_examples(model, examples, tokenizer=tokenizer, batch_size=rows, progress=progress)


def _answers(documents: Documents, tokenizer, length: int, learn: str = "answers") -> Examples:
    kept, long = short_enough(documents, tokenizer, length)
    if long:
        warnings.warn(
            f"{len(long)} of {len(documents)} conversations have more than {length} tokens and are left out, the first "
            f"{long[0].id!r}",
            stacklevel=2,
        )
    if documents and not kept:
        raise ValueError(f"all {len(documents)} conversations have more than {length} tokens: expected longer rows")
    return answer_examples(kept, tokenizer, learn=learn)


class ClassTask(Task):
    """Texts with classes, told apart by a classifier with a new head."""

    name = "classify"
    row = context = LONGEST_ROW
    strategies = ("linear_probe", "classic")

    def load(self, settings: DataSettings) -> Corpus:
        return load_labelled(settings.corpus or "rust", **_reading(settings, "text_column", "label_column"))

    def general(self) -> Corpus:
        return Corpus("none", (), (), ())

    def classes(self, corpus: Corpus) -> tuple[str, ...]:
        return class_names(corpus.train)

    def batch(self, documents, tokenizer, length, classes) -> Examples:
        return class_examples(documents, tokenizer, classes, length=length)

    def longer(self, documents, tokenizer, row) -> int:
        ids = tokenizer([str(one) for one in documents], add_special_tokens=False, verbose=False)["input_ids"]
        return sum(len(one) > row for one in ids)

    def score(self, model, tokenizer, documents, window, classes, progress) -> PerplexityResult:
        examples = self.batch(documents, tokenizer, window["context"], classes)
        return score_examples(model, examples, batch_size=window.get("batch_size", 8), progress=progress)

    def measure(self, model, tokenizer, documents, classes, progress) -> dict[str, float]:
        examples = self.batch(documents, tokenizer, LONGEST_ROW, classes)
        predicted = class_logits(model, examples, progress=progress).argmax(1)
        ends = ("balanced_accuracy", "balanced_accuracy_low", "balanced_accuracy_high")
        return dict(zip(ends, balanced_accuracy(predicted, examples.labels), strict=True))


TASKS: dict[str, Task] = {
    task.name: task
    for task in (Task(), AnswerTask("answer", "answers"), ClassTask(), AnswerTask("conversation", "everything"))
}


def _reading(settings: DataSettings, *columns: str) -> dict[str, object]:
    named = {name: getattr(settings, name) for name in ("text_column", "label_column") if getattr(settings, name)}
    if unused := [name for name in named if name not in columns]:
        raise ValueError(f"--{unused[0].replace('_', '-')} {named[unused[0]]}: this task reads no such column")
    return named | {"ignore_keys": tuple(filter(None, (settings.ignore_keys or "").split(",")))}


@dataclass(frozen=True)
class TaskData:
    """A task's documents: all there are, those used, and the classes."""

    task: Task
    whole: Corpus
    used: Corpus
    classes: Classes

    @property
    def class_count(self) -> int | None:
        return None if self.classes is None else len(self.classes)

    def notes(self, tokenizer, row: int) -> dict[str, object]:
        """What became of the documents, and what opens each of running text."""
        whole, used = self.whole, {split: len(getattr(self.used, split)) for split in SPLITS}
        there = sum(len(getattr(whole, split)) for split in SPLITS)
        long = f"of these longer than {row} tokens and {'left out' if self.task.in_chat else 'cut'}"
        counts = {
            "documents found": there + whole.duplicates + whole.empty,
            "there twice": whole.duplicates,
            "empty": whole.empty,
            "beyond the limit or the profile": there - sum(used.values()),
            **used,
            long: sum(self.task.longer(getattr(self.used, split), tokenizer, row) for split in SPLITS),
        }
        notes = {"documents": Account(counts)}
        if self.task.name == "text":
            notes["documents_open_with"] = "".join(tokenizer.convert_ids_to_tokens(document_opening(tokenizer)))
        return notes


class Account(dict):
    """How many documents were found, used, and left out for which reason."""

    def __str__(self) -> str:
        return ", ".join(f"{count:,} {what}" for what, count in self.items() if count)


def load_documents(settings: DataSettings, profile: Profile, model: str | None = None) -> TaskData:
    """Read a task's corpus, and use as much as a limit allows, or the profile of a bundled one.

    Args:
        model: its order of classes goes before that of the texts.
    """
    task = TASKS[settings.task]
    whole = used = task.load(settings)
    if settings.limit is not None:
        used = whole.limited(settings.limit, settings.limit)
    elif whole.name in NAMED:
        used = whole.limited(profile.train_passages, profile.test_passages)
    return TaskData(task, whole, used, agreed_classes(model, task.classes(whole)))


def balanced_accuracy(predicted: torch.Tensor, labels: torch.Tensor) -> tuple[float, float, float]:
    """The mean over classes of the share that is predicted right, and its 95% interval over texts.

    Args:
        predicted: classes, shape (texts,), as are the labels.
    """
    right = [(predicted[labels == c] == c).double() for c in labels.unique()]
    mean = sum(float(of_class.mean()) for of_class in right) / len(right)
    variance = sum(float(of_class.var(correction=0)) / len(of_class) for of_class in right) / len(right) ** 2
    half = 1.96 * math.sqrt(variance)
    return mean, max(0.0, mean - half), min(1.0, mean + half)


def answer(model, tokenizer, conversations: Sequence[Conversation]) -> pd.DataFrame:
    """Let a model answer the last question of each conversation, by the likeliest tokens.

    Returns:
        A row for each: reference (the conversation's own answer), and answer.
    """
    prompts = [prompt_of(asked.messages[:-1], tokenizer) for asked in conversations]
    room = (longest_input(model) or math.inf) - max(map(len, prompts))
    written = continue_tokens(model, tokenizer, prompts, new_tokens=max(1, min(NEW_TOKENS, room)))
    references = [asked.answer for asked in conversations]
    return pd.DataFrame({"reference": references, "answer": [one.text.strip() for one in written]})


def exact_match(answers: pd.DataFrame, fields: Sequence[str] = ()) -> dict[str, float]:
    """How many answers are right to the letter.

    Args:
        fields: of JSON objects; an answer is right if each has the reference's value.

    Returns:
        The share `exact`, with its 95% Wilson interval (`exact_low`, `exact_high`); with fields also the share of
        `valid` objects, and that of each field.
    """
    table = pd.DataFrame([_matches(row.answer, row.reference, fields) for row in answers.itertuples()])
    interval = binomtest(int(table.exact.sum()), len(table)).proportion_ci(method="wilson")
    return table.mean().to_dict() | {"exact_low": interval.low, "exact_high": interval.high}


def refuse_references(conversations: Iterable[Conversation], fields: Sequence[str]) -> None:
    """Refuse answers that are no JSON objects with all `fields`."""
    for asked in conversations:
        if missing := [field for field in fields if field not in _object(asked.answer)]:
            raise ValueError(f"conversation {asked.id!r}: its answer is no JSON object with {missing[0]!r}")


def _matches(text: str, reference: str, fields: Sequence[str]) -> dict[str, bool]:
    if not fields:
        return {"exact": text.strip() == reference.strip()}
    given, wanted = _object(text), _object(reference)
    # As text: true is not 1.
    right = {name: name in given and json.dumps(given[name]) == json.dumps(wanted[name]) for name in fields}
    return {"valid": bool(given), **right, "exact": all(right.values())}


def _object(text: str) -> dict:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
