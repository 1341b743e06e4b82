"""Text in, blocks of token ids out: read, split by document, tokenise, pack."""

import hashlib
import json
import os
import random
import re
from dataclasses import dataclass
from pathlib import Path

import torch

from tlkit.settings import DATA

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Corpus:
    """Documents in three splits; no document is in two of them."""

    name: str
    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]

    def limited(self, train: int | None = None, test: int | None = None) -> "Corpus":
        """The first `train` training documents and the first `test` of each other split (None: all)."""
        return Corpus(self.name, self.train[:train], self.validation[:test], self.test[:test])

    @property
    def sha256(self) -> str:
        """Hash of every document in order, to name the data in an exported result."""
        digest = hashlib.sha256()
        for split in SPLITS:
            for text in getattr(self, split):
                digest.update(text.encode() + b"\0")
        return digest.hexdigest()


def load_corpus(name: str | None = None) -> Corpus:
    """Load `rust`, `facts`, `general`, or a path to .txt, .md or .jsonl (a file or a folder of them).

    Without a name, `TLKIT_CORPUS` decides, then `rust`. A reader's own text is split 80/10/10 by document,
    the same way every time. Raises FileNotFoundError or ValueError, naming the file and line.
    """
    name = str(name or os.environ.get("TLKIT_CORPUS") or "rust")
    if name == "rust":
        return Corpus("rust", *(tuple(_read_jsonl(DATA / "rust" / f"{split}.jsonl")) for split in SPLITS))
    if name == "facts":
        rust = load_corpus("rust")
        return Corpus("facts", tuple(_read_jsonl(DATA / "rust" / "facts.jsonl")), rust.validation, rust.test)
    if name == "general":
        texts = _python_reference()
        return Corpus("general", tuple(texts[285:]), tuple(texts[225:285]), tuple(texts[:225]))
    return _split(name, _read_path(Path(name)))


def pack(texts: tuple[str, ...] | list[str], tokenizer, block_size: int) -> torch.Tensor:
    """Join documents, each opened by the end-of-text token, and cut the stream into equal blocks.

    Returns token ids, shape (blocks, block_size); the tail that does not fill a block is left out.
    Raises ValueError when there is no text, or not enough for one block.
    """
    if block_size < 2:
        raise ValueError(f"block_size={block_size}: expected at least 2 tokens")
    if not texts:
        raise ValueError("no documents to pack: the corpus split is empty")
    stream, _ = token_stream(texts, tokenizer)
    if len(stream) < block_size:
        raise ValueError(
            f"{len(stream)} tokens do not fill one block of {block_size}: use a smaller block or more text"
        )
    return stream[: len(stream) // block_size * block_size].view(-1, block_size)


def token_stream(texts: tuple[str, ...] | list[str], tokenizer) -> tuple[torch.Tensor, torch.Tensor]:
    """All token ids in one row, and beside it the number of the document each token belongs to."""
    if tokenizer.eos_token_id is None:
        raise ValueError("this tokenizer has no end-of-text token to part documents with")
    ids, owners = [], []
    for number, tokens in enumerate(
        tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"] if texts else []
    ):
        ids += [tokenizer.eos_token_id, *tokens]
        owners += [number] * (len(tokens) + 1)
    return torch.tensor(ids, dtype=torch.long), torch.tensor(owners, dtype=torch.long)


def _python_reference() -> list[str]:
    """Prose paragraphs of Python's language reference, as every CPython carries it for `help()`."""
    from pydoc_data.topics import topics

    paragraphs = []
    for _, topic in sorted(topics.items()):
        for paragraph in re.split(r"\n\s*\n", topic):
            # Indented paragraphs are code or grammar, rows of symbols are headings and tables.
            text = " ".join(paragraph.split())
            if paragraph[:1] not in (" ", "*", "=", "-", "+", "|", "") and len(text) >= 150 and text[-1] in ".:":
                paragraphs.append(text)
    return list(dict.fromkeys(paragraphs))


def _read_jsonl(path: Path) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected a .jsonl file with a text in every line")
    texts = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error.msg})") from None
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise ValueError(f'{path}, line {number}: expected an object with a "text" of type string')
        texts.append(row["text"])
    return texts


def _read_path(path: Path) -> list[str]:
    readers = {".txt": _read_paragraphs, ".md": _read_paragraphs, ".jsonl": _read_jsonl}
    if not path.exists():
        raise FileNotFoundError(
            f"corpus {str(path)!r}: expected rust, facts, general, or a path to .txt, .md or .jsonl"
        )
    files = sorted(f for f in path.rglob("*") if f.suffix in readers) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"{path}: no .txt, .md or .jsonl file in this folder")
    texts = []
    for file in files:
        if file.suffix not in readers:
            raise ValueError(f"{file}: expected a .txt, .md or .jsonl file")
        texts += readers[file.suffix](file)
    return texts


def _read_paragraphs(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def _split(name: str, texts: list[str]) -> Corpus:
    texts = [text for text in texts if text.strip()]
    if len(texts) < 10:
        raise ValueError(f"{name}: {len(texts)} documents; at least 10 are needed for an 80/10/10 split")
    random.Random(0).shuffle(texts)
    tenth = len(texts) // 10
    return Corpus(name, tuple(texts[2 * tenth :]), tuple(texts[:tenth]), tuple(texts[tenth : 2 * tenth]))
