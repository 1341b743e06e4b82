"""Rows of a reader's own files: JSON lines, JSON, CSV or Parquet. No key of a row is ever ignored without a word."""

import csv
import io
import json
from collections.abc import Collection, Iterator
from pathlib import Path

ROW_FILES = (".jsonl", ".json", ".csv", ".parquet")


def read_rows(path: Path, keys: Collection[str], ignore_keys: Collection[str] = ()) -> Iterator[tuple[str, dict]]:
    """Read the rows of a file, and refuse, naming file and row, those that say more than is used.

    Yields:
        Where the row is, such as "notes.csv, row 3", and its keys that are used. An empty field of a CSV file is "".
    """
    readers = {".jsonl": _read_json_lines, ".json": _read_json, ".csv": _read_csv, ".parquet": _read_parquet}
    if (suffix := path.suffix.lower()) not in readers:
        raise ValueError(f"{path}: expected a file of rows: {', '.join(readers)}")
    unit = "line" if suffix == ".jsonl" else "row"
    for number, row in readers[suffix](path):
        where = f"{path}, {unit} {number}"
        if not isinstance(row, dict):
            raise ValueError(f"{where}: expected an object, and it is {type(row).__name__}")
        refuse_unknown_keys(where, row, keys, ignore_keys)
        yield where, {key: value for key, value in row.items() if key in keys}


def refuse_unknown_keys(where: str, row: dict, keys: Collection[str], ignore_keys: Collection[str]) -> None:
    """Refuse an object that says more than is used.

    Raises:
        ValueError: naming place and keys.
    """
    unknown = sorted(map(str, set(row) - set(keys) - set(ignore_keys)))
    if unknown:
        raise ValueError(
            f"{where}: {', '.join(map(repr, unknown))} would not be used: expected only {', '.join(keys)}. If that is "
            f"meant, say --ignore-keys {','.join(unknown)} (from Python: ignore_keys={unknown})"
        )


def read_text(path: Path) -> str:
    """Read a file in UTF-8, with `\\n` for every line end; ValueError naming file and line where it is no such text."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, or not a file of text")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ValueError(f"{path}, line {line}: a zero byte, so no text in UTF-8; save it as UTF-8")
    return text


def _parsed(where: str, text: str) -> object:
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # half a character, which JSON can escape, is no text
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON ({getattr(error, 'msg', error)})") from None
    return value


def _read_json_lines(path: Path) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(read_text(path).split("\n"), 1):  # str.splitlines splits at U+2028 and others too
        line = line.lstrip("\ufeff")  # of files that were joined
        if line.strip():
            yield number, _parsed(f"{path}, line {number}", line)


def _read_json(path: Path) -> Iterator[tuple[int, object]]:
    rows = _parsed(str(path), read_text(path))
    if not isinstance(rows, list):
        raise ValueError(f"{path}: expected an array of objects, or a .jsonl file with an object on each line")
    yield from enumerate(rows, 1)


def _read_csv(path: Path) -> Iterator[tuple[int, dict]]:
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        for number, row in enumerate(reader, 1):
            if None in row or None in row.values():
                size = len(reader.fieldnames)
                raise ValueError(f"{path}, row {number}: expected {size} fields, as the first row has")
            yield number, row
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: not CSV ({error})") from None


def _read_parquet(path: Path) -> Iterator[tuple[int, dict]]:
    from pyarrow import ArrowException
    from pyarrow.parquet import read_table  # `datasets` would write a copy of the file to its cache first

    try:
        with path.open("rb") as file:
            yield from enumerate(read_table(file).to_pylist(), 1)
    except ArrowException as error:
        raise ValueError(f"{path}: not Parquet ({error})") from None
