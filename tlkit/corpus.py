"""Text in, blocks of token ids out: read files, split, tokenise, pack."""

import csv
import hashlib
import io
import json
import os
import random
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence

from tlkit.files import read_text
from tlkit.settings import DATA

SPLITS = ("train", "validation", "test")
NAMED = ("rust", "facts", "general", "kitchen")  # all other corpora are asked for by path
ROW_FILES = (".jsonl", ".json", ".csv", ".parquet")
TEXT_FILES, IN_FOLDERS = (".txt", ".md", *ROW_FILES), (".txt", ".md", ".jsonl")


@dataclass(frozen=True)
class Corpus:
    """Documents in three splits: texts, or objects whose `str` is one (conversations, texts with classes)."""

    name: str  # a bundled corpus, or a path
    train: tuple[str, ...]
    validation: tuple[str, ...]  # to choose settings with
    test: tuple[str, ...]  # to score once
    duplicates: int = 0  # left out because an earlier document has the same words
    empty: int = 0  # left out because there is no word in them

    def __post_init__(self):
        owner = {}
        for split in SPLITS:
            for document in getattr(self, split):
                words = single_spaced(str(document))
                if owner.setdefault(words, split) != split:
                    raise ValueError(f"{self.name}: {str(document)[:40]!r} is in {owner[words]} and in {split}")

    def limited(self, train: int | None = None, test: int | None = None) -> "Corpus":
        """The first documents of each split, of validation as many as of test."""
        return replace(self, train=self.train[:train], validation=self.validation[:test], test=self.test[:test])

    @property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for split in SPLITS:
            for document in getattr(self, split):
                digest.update((document if isinstance(document, str) else repr(document)).encode() + b"\0")
        return digest.hexdigest()


def load_corpus(
    name: str | Path | None = None, *, text_column: str = "text", ignore_keys: Collection[str] = ()
) -> Corpus:
    """Load a bundled corpus or the reader's own text.

    In .txt and .md a blank line ends a document; in .jsonl, .json, .csv and .parquet every row is one. Hidden files and
    folders, and links to folders, are left out of a folder.

    Args:
        name: `rust`, `facts`, `general`, `kitchen`, or the path of a file or folder. None: TLKIT_CORPUS, else `rust`.
        text_column: of files with rows.
        ignore_keys: other columns that may be there; all others are refused.

    Returns:
        What a bundled corpus or a folder has as train, validation and test; all else is split 80/10/10.
    """
    if name is None:
        name = os.environ.get("TLKIT_CORPUS") or "rust"
    if name in NAMED:
        folder, train = ("rust", "facts") if name == "facts" else (str(name), "train")
        files = [DATA / folder / f"{file}.jsonl" for file in (train, "validation", "test")]
        return Corpus(str(name), *(tuple(_read(file, "text", ("id", "topic", "source"))) for file in files))
    path = Path(name)
    if not str(name).strip() or not path.exists():
        raise FileNotFoundError(f"corpus {str(name)!r}: expected {', '.join(NAMED)}, or a path")
    return read_corpus(path, lambda file: _read(file, text_column, ignore_keys))


def read_corpus(path: Path, read: Callable[[Path], Iterable]) -> Corpus:
    """What `read` makes of a file or folder, repeats left out, split as `load_corpus` says."""
    there = sorted(path.iterdir()) if path.is_dir() else ()
    files = {file.stem: file for file in there if file.stem in SPLITS and file.suffix.lower() in ROW_FILES}
    if "train" in files:
        if missing := [split for split in SPLITS if split not in files]:
            raise ValueError(f"{path}: {files['train'].name} is there, {' and '.join(missing)} not")
        splits, repeats, empty = zip(*(_without_repeats(read(files[split])) for split in SPLITS), strict=True)
        return Corpus(str(path), *map(tuple, splits), duplicates=sum(repeats), empty=sum(empty))
    unique, repeats, empty = _without_repeats(read(path))
    if len(unique) < 10:
        raise ValueError(f"{path}: {len(unique)} documents, beside {repeats} that repeat them; at least 10 are needed")
    random.Random(0).shuffle(unique)
    tenth = len(unique) // 10
    splits = unique[2 * tenth :], unique[:tenth], unique[tenth : 2 * tenth]
    return Corpus(str(path), *map(tuple, splits), duplicates=repeats, empty=empty)


def _without_repeats(documents: Iterable) -> tuple[list, int, int]:
    """Of documents with the same words the first; the number of repeats, and of those without a word."""
    documents, kept = list(documents), {}
    for document in documents:
        kept.setdefault(single_spaced(str(document)), document)
    kept.pop("", None)
    empty = sum(not str(document).strip() for document in documents)
    return list(kept.values()), len(documents) - empty - len(kept), empty


def pack(texts: Sequence[str], tokenizer, block_size: int) -> torch.Tensor:
    """Cut the `token_stream` of documents into blocks; a tail that fills none is left out.

    Returns:
        Token ids, shape (blocks, block_size).
    """
    if not texts:
        raise ValueError("no documents to pack: the corpus split is empty")
    stream, _ = token_stream(texts, tokenizer)
    if len(stream) < block_size:
        raise ValueError(f"{len(stream)} tokens do not fill one block of {block_size}")
    return stream[: len(stream) // block_size * block_size].view(-1, block_size)


def token_stream(texts: Sequence[str], tokenizer) -> tuple[torch.Tensor, torch.Tensor]:
    """Documents in one row of tokens, each behind its opening; and each token's document, by number."""
    if isinstance(texts, str):
        raise ValueError("one string was given: expected a list of documents")
    opening = document_opening(tokenizer)
    if not opening:
        raise ValueError("this tokenizer has no token to open a document with (bos or eos)")
    refuse_special_tokens(((f"document {number}", text) for number, text in enumerate(texts, 1)), tokenizer)
    encoded = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"] if texts else []
    ids = [token for tokens in encoded for token in (*opening, *tokens)]
    owners = [number for number, tokens in enumerate(encoded) for _ in range(len(opening) + len(tokens))]
    return torch.tensor(ids, dtype=torch.long), torch.tensor(owners, dtype=torch.long)


def padded(rows: Sequence[Sequence[int]], fill: int) -> torch.Tensor:
    """Rows of numbers as one tensor, filled up behind, shape (rows, longest)."""
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=fill)


def padding_token(tokenizer) -> int:
    """The tokenizer's own, else the end-of-text token."""
    return tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id


def text_opening(tokenizer) -> list[int]:
    """The tokens put before every text, such as Llama's `<s>`; most tokenizers put none."""
    plain, framed = tokenizer("text", add_special_tokens=False)["input_ids"], tokenizer("text")["input_ids"]
    return list(framed[: framed.index(plain[0])])


def document_opening(tokenizer) -> list[int]:
    """`text_opening`, which a model has learned to read, else the end token."""
    end = tokenizer.eos_token_id
    return text_opening(tokenizer) or ([] if end is None else [end])


def refuse_special_tokens(texts: Iterable[tuple[str, str]], tokenizer) -> None:
    """Refuse texts, given with names, in which the tokenizer would read a special token, such as an end."""
    # One that stands for unknown words alone is allowed: published corpora contain it.
    only_unknown = {tokenizer.unk_token} - {tokenizer.eos_token, tokenizer.bos_token, tokenizer.pad_token}
    special = [token for token in tokenizer.all_special_tokens if token not in only_unknown]
    for name, text in texts:
        if there := [token for token in special if token in text]:
            raise ValueError(f"{name} contains {there[0]!r}, a special token: expected text without it")


def _read(path: Path, text_column: str, ignore_keys: Collection[str]) -> Iterator[str]:
    # A folder's other files, such as settings.json, are often no texts.
    kinds, files = (IN_FOLDERS, _files_below(path)) if path.is_dir() else (TEXT_FILES, [path])
    read = [file for file in files if file.suffix.lower() in kinds]
    if not read:
        raise ValueError(f"{path}: expected {', '.join(TEXT_FILES)}, or a folder with {', '.join(IN_FOLDERS)} in it")
    for file in read:
        if file.suffix.lower() not in ROW_FILES:
            yield from (paragraph.strip("\n") for paragraph in re.split(r"\n\s*\n", read_text(file)))
            continue
        for where, row in read_rows(file, (text_column,), ignore_keys):
            if not isinstance(row.get(text_column), str):
                raise ValueError(f"{where}: expected a text as {text_column!r}")
            yield row[text_column]


def _files_below(folder: Path) -> list[Path]:
    """All files that are not hidden; a subfolder that may not be read is an error."""

    def stop(error: OSError) -> None:
        raise error

    files = []
    for here, folders, names in os.walk(folder, onerror=stop):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(here, name) for name in names if not name.startswith(".")]
    return sorted(files)


def single_spaced(text: str) -> str:
    """The words of a text, by which documents are compared."""
    return " ".join(text.split())


def read_rows(path: Path, keys: Collection[str], ignore_keys: Collection[str] = ()) -> Iterator[tuple[str, dict]]:
    """Where each row is, such as "notes.csv, row 3", and its keys that are used; others are refused."""
    if path.suffix.lower() not in ROW_FILES:
        raise ValueError(f"{path}: expected a file of rows: {', '.join(ROW_FILES)}")
    for where, row in _rows(path):
        if not isinstance(row, dict):
            raise ValueError(f"{where}: expected an object, not {type(row).__name__}")
        refuse_unknown_keys(where, row, keys, ignore_keys)
        yield where, {key: value for key, value in row.items() if key in keys}


def refuse_unknown_keys(where: str, row: dict, keys: Collection[str], ignore_keys: Collection[str]) -> None:
    """Refuse a row with keys that would not be used, unless they are to be ignored."""
    if unknown := sorted(map(str, set(row) - set(keys) - set(ignore_keys))):
        raise ValueError(
            f"{where}: {', '.join(map(repr, unknown))} would not be used: expected only {', '.join(keys)}, or "
            f"--ignore-keys {','.join(unknown)} (in Python ignore_keys={unknown})"
        )


def _parsed(where: str, text: str) -> object:
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # JSON can escape half a character
        return value
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON ({error})") from None


def _rows(path: Path) -> Iterator[tuple[str, object]]:
    kind = path.suffix.lower()
    if kind == ".jsonl":
        for number, line in enumerate(read_text(path).split("\n"), 1):  # str.splitlines splits at U+2028, too
            where, line = f"{path}, line {number}", line.lstrip("\ufeff")  # of files that were joined
            if line.strip():
                yield where, _parsed(where, line)
        return
    rows = _csv_rows(path) if kind == ".csv" else _parquet_rows(path) if kind == ".parquet" else None
    if rows is None and not isinstance(rows := _parsed(str(path), read_text(path)), list):
        raise ValueError(f"{path}: expected an array of objects")
    yield from ((f"{path}, row {number}", row) for number, row in enumerate(rows, 1))


def _csv_rows(path: Path) -> list[dict]:
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: not CSV ({error})") from None
    if uneven := [number for number, row in enumerate(rows, 1) if None in row or None in row.values()]:
        raise ValueError(f"{path}, row {uneven[0]}: expected {len(reader.fieldnames)} fields")
    return rows


def _parquet_rows(path: Path) -> list[dict]:
    from pyarrow import ArrowException
    from pyarrow.parquet import read_table  # `datasets` would write a copy of the file to its cache first

    try:
        with path.open("rb") as file:
            return read_table(file).to_pylist()
    except ArrowException as error:
        raise ValueError(f"{path}: not Parquet ({error})") from None
