"""Texts with classes: read, and made into examples for a classifier."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from tlkit.corpus import SPLITS, Corpus, read_json_lines, split_documents
from tlkit.examples.batches import PADDING, Examples, padding_token
from tlkit.settings import DATA


@dataclass(frozen=True)
class Labelled:
    """A text and the name of its class."""

    text: str
    label: str

    def __str__(self) -> str:
        return self.text


def load_labelled(name: str | Path = "rust") -> Corpus:
    """Read texts with classes, and split them.

    Args:
        name: `rust` (the passages, whose 48 topics are grouped into 9 classes by `data/rust/classes.json`, in their
            own splits), or a path to a .jsonl file in UTF-8 whose lines are objects with "text" and "label", which is
            split 80/10/10.

    Returns:
        A corpus whose documents are `Labelled`.

    Raises:
        FileNotFoundError: where there is no such file.
        ValueError: naming file and line, for what is no text with a class; or where there are fewer than two classes,
            or a class of which no text is to train on.
    """
    if name == "rust":
        groups = json.loads((DATA / "rust" / "classes.json").read_text(encoding="utf-8"))
        label_of = {topic: label for label, topics in groups.items() for topic in topics}
        splits = ([(row["text"], label_of[row["topic"]]) for row in _rust(split)] for split in SPLITS)
        return Corpus("rust", *(tuple(Labelled(*pair) for pair in split) for split in splits))
    path = Path(name)
    if path.suffix.lower() != ".jsonl":
        raise ValueError(f"texts with classes {str(name)!r}: expected rust, or a path to a .jsonl file")
    corpus = split_documents(str(path), list(_read(path)))
    known = {document.label for document in corpus.train}
    if len(known) < 2:
        raise ValueError(f"{path}: {len(known)} classes in the training split: expected at least 2")
    for document in (*corpus.validation, *corpus.test):
        if document.label not in known:
            raise ValueError(
                f"{path}: class {document.label!r} has no text to train on: expected several of each class"
            )
    return corpus


def class_names(documents: Sequence[Labelled]) -> tuple[str, ...]:
    """The classes of texts in alphabetical order: the number of a class is its place there.

    Args:
        documents: of a training split.
    """
    return tuple(sorted({document.label for document in documents}))


def class_examples(documents: Sequence[Labelled], tokenizer, classes: Sequence[str], *, length: int = 256) -> Examples:
    """Make examples of texts with classes: a text in each row, padded behind its last token.

    Args:
        documents: the texts.
        tokenizer: of the model.
        classes: their names, in the order of their numbers.
        length: tokens in a row at most; of a longer text the beginning is read.

    Returns:
        The examples, in the order given.

    Raises:
        ValueError: for no texts, an unknown class, a text without a token, or one that ends with the padding token: a
            classifier reads the class off the last token that is none.
    """
    if not documents:
        raise ValueError("no texts to classify: the split is empty")
    number_of = {name: number for number, name in enumerate(classes)}
    padding = padding_token(tokenizer)
    texts = tokenizer([str(document) for document in documents], add_special_tokens=False, verbose=False)["input_ids"]
    rows = [ids[:length] for ids in texts]
    for document, ids in zip(documents, rows, strict=True):
        if document.label not in number_of:
            raise ValueError(f"{document.text[:40]!r}: class {document.label!r}: expected {', '.join(classes)}")
        if not ids:
            raise ValueError(f"{document.text[:40]!r}: this tokenizer makes no tokens of it")
        if ids[-1] == padding:
            raise ValueError(
                f"{document.text[-40:]!r}: the text ends with the padding token, so its end would be missed"
            )
    tokens = torch.full((len(rows), max(map(len, rows))), padding, dtype=torch.long)
    places = torch.full_like(tokens, PADDING)
    for number, ids in enumerate(rows):
        tokens[number, : len(ids)], places[number, : len(ids)] = torch.tensor(ids), 0
    return Examples(tokens, torch.tensor([number_of[document.label] for document in documents]), places)


def _rust(split: str) -> list[dict]:
    return [row for _, row in read_json_lines(DATA / "rust" / f"{split}.jsonl")]


def _read(path: Path) -> Iterator[Labelled]:
    for line, row in read_json_lines(path):
        text, label = row.get("text"), row.get("label")
        if not isinstance(text, str) or not isinstance(label, str) or not text.strip() or not label.strip():
            raise ValueError(f'{path}, line {line}: expected an object with "text" and "label", both texts')
        yield Labelled(text, label)
