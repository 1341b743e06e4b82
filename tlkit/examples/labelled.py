"""Texts with classes: read, and made into examples for a classifier."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from tlkit.corpus import SPLITS, Corpus, padded, padding_token, read_corpus, read_rows, single_spaced
from tlkit.examples import Examples
from tlkit.settings import DATA


@dataclass(frozen=True)
class Labelled:
    """A text and the name of its class."""

    text: str
    label: str

    def __str__(self) -> str:
        return self.text


def load_labelled(
    name: str | Path = "rust",
    *,
    text_column: str = "text",
    label_column: str = "label",
    ignore_keys: Collection[str] = (),
) -> Corpus:
    """Read texts with classes, and split them.

    Args:
        name: `rust` (the passages, their 48 topics grouped into 9 classes by `data/rust/classes.json`), or the path of
            a .jsonl, .json, .csv or .parquet file or of a folder with a train, a validation and a test file.
        label_column: texts or whole numbers.
        ignore_keys: other columns that may be there; all others are refused.
    """
    if name == "rust":
        groups = json.loads((DATA / "rust" / "classes.json").read_text(encoding="utf-8"))
        label_of = {topic: label for label, topics in groups.items() for topic in topics}
        rows = (read_rows(DATA / "rust" / f"{split}.jsonl", ("topic", "text"), ("id",)) for split in SPLITS)
        return Corpus("rust", *(tuple(Labelled(row["text"], label_of[row["topic"]]) for _, row in s) for s in rows))
    corpus = read_corpus(Path(name), lambda file: _read(file, text_column, label_column, ignore_keys))
    trained = class_names(corpus.train)
    if len(trained) < 2:
        raise ValueError(f"{name}: {len(trained)} classes in the training split: expected at least 2")
    if untrained := {*class_names((*corpus.validation, *corpus.test))} - {*trained}:
        raise ValueError(f"{name}: class {min(untrained)!r} has no text to train on: expected several of each class")
    return corpus


def class_names(documents: Sequence[Labelled]) -> tuple[str, ...]:
    """The classes of documents, in the order of the alphabet."""
    return tuple(sorted({document.label for document in documents}))


def class_examples(documents: Sequence[Labelled], tokenizer, classes: Sequence[str], *, length: int = 256) -> Examples:
    """Texts cut to `length` tokens, and each one's place in `classes`."""
    if not documents:
        raise ValueError("no texts to classify: the split is empty")
    padding = padding_token(tokenizer)
    texts = tokenizer([document.text for document in documents], add_special_tokens=False, verbose=False)["input_ids"]
    rows = [ids[:length] for ids in texts]
    for document, ids in zip(documents, rows, strict=True):
        if not ids or ids[-1] == padding:
            # A classifier reads the class off the last token that is no padding.
            raise ValueError(f"{document.text[-40:]!r}: expected a text that does not end with the padding token")
    labels = torch.tensor([classes.index(document.label) for document in documents])
    return Examples(padded(rows, padding), labels, padded([[1] * len(ids) for ids in rows], 0).bool())


def _read(path: Path, text_column: str, label_column: str, ignore_keys: Collection[str]) -> Iterator[Labelled]:
    labels: dict[str, tuple[str, str]] = {}
    for where, row in read_rows(path, (text_column, label_column), ignore_keys):
        text, label = row.get(text_column), row.get(label_column)
        label = str(label) if type(label) is int else label
        if not isinstance(text, str) or not isinstance(label, str) or not text.strip() or not label.strip():
            raise ValueError(f"{where}: expected {text_column!r} and {label_column!r}, neither of them empty")
        first, before = labels.setdefault(single_spaced(text), (label, where))
        if first != label:
            raise ValueError(f"{where}: the text of {before} is there again, with class {label!r} and not {first!r}")
        yield Labelled(text, label)
