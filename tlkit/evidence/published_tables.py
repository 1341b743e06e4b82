"""Tables as they are published: read from a file as they are written, or refused where a number may mean two things."""

import csv
import io
import math
import re
from collections.abc import Collection
from pathlib import Path

import pandas as pd

THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,]\d{3})+")  # such as 1,240, which may be 1240 or 1.24


def read_table(path: Path, numbers: Collection[str] = ()) -> pd.DataFrame:
    """Read a table from a CSV file as it is written: every field stays a text, so that 007 and None are names.

    Fields are separated by commas, semicolons or tabs: by what gives every line as many fields as the line of column
    names, finds the columns of numbers, and gives the most fields. Spaces around a field do not count, nor do lines
    without any content, nor comments that begin with "# " before the first line.

    Args:
        path: a text file in UTF-8.
        numbers: the columns of numbers, where they are there. Between semicolons a comma is their decimal point.

    Returns:
        A row for each line.

    Raises:
        ValueError: naming the file, and the line where one does not have as many fields as there are column names; or
            a number that may have a decimal comma or a mark for thousands.
        OSError: where the file cannot be read.
    """
    wanted = "expected a CSV file with a line of column names, as plain text in UTF-8 (not compressed)"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {wanted}; save a sheet of Excel as 'CSV UTF-8' ({error})") from None
    for sign, what in {r"\s*(\{|\[\s*[\[{])": "JSON", r"\s*\|": "a Markdown table"}.items():
        if re.match(sign, text):
            raise ValueError(f"{path}: begins as {what} does, {wanted}")
    mark, lines = _fields(path, text, numbers, wanted)
    if not lines:
        raise ValueError(f"{path}: is empty, {wanted}")
    header, *rows = (fields for _, fields in lines)
    for number, fields in lines:
        if len(fields) != len(header):
            raise ValueError(
                f"{path}: line {number} has {len(fields)} field{'s' * (len(fields) != 1)}, expected {len(header)}, one "
                "for each column name "
                f"(write decimals behind a point, quote a field that holds {mark!r}, and end no line with it)"
            )
    table = pd.DataFrame(rows, columns=header, dtype=str)
    for place in [place for place, column in enumerate(header) if mark == ";" and column in numbers]:
        column = table.iloc[:, place]
        with_comma = column[column.str.contains(",")]
        if len(with_comma) and with_comma.str.fullmatch(THOUSANDS.pattern).all():
            raise ValueError(
                f"{path}: {header[place]} is {with_comma.iloc[0]!r}, which may be a decimal comma or a mark for "
                "thousands: expected decimals behind a point, and thousands without a mark"
            )
        table.isetitem(place, column.str.replace(r"^([+-]?\d+),(\d+)", r"\1.\2", regex=True))
    return table


def _fields(path: Path, text: str, numbers: Collection[str], wanted: str) -> tuple[str, list[tuple[int, list[str]]]]:
    """By which mark a text is separated, and by that the number and the fields of each line with content."""
    first = re.match(r"(# .*\n|\s*\n)*(sep=(.)\s*\n)?", text)
    skipped, marks = first.group().count("\n"), first.group(3) or ",;\t"
    found, wrong = {}, None
    for mark in marks:
        reader = csv.reader(io.StringIO(text[first.end() :]), delimiter=mark, skipinitialspace=True, strict=True)
        try:
            lines = [(skipped + reader.line_num, [field.strip() for field in fields]) for fields in reader]
        except csv.Error as error:
            wrong = error
            continue
        found[mark] = [(number, fields) for number, fields in lines if any(fields)]
    if not found:
        raise ValueError(f"{path}: {wanted} ({wrong})")

    def fits(mark: str) -> tuple[bool, int, float]:
        lengths = [len(fields) for _, fields in found[mark]] or [math.inf]  # nothing but marks: the table is empty
        header = found[mark][0][1] if found[mark] else []
        return lengths[0] > 1 and set(lengths) == {lengths[0]}, len({*header} & {*numbers}), lengths[0]

    mark = max(found, key=fits)
    return mark, found[mark]
