"""Step 1: read English prose out of Debian's documentation packages.

    apt-get download python3.11-doc postgresql-doc-15 sqlite3-doc
    for package in *.deb; do dpkg -x "$package" unpacked; done
    python data/build/extract.py unpacked build-work

Writes `train.jsonl` and `heldout.jsonl` (one paragraph a line: source, page, text) and
`extract.json`, which records how many paragraphs each rule dropped.
"""

import argparse
import json
import random
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from pydoc_data import topics

SOURCES = {
    "python": ("usr/share/doc/python3.11/html", ("whatsnew/changelog", "license", "genindex", "bugs")),
    "postgresql": ("usr/share/doc/postgresql-doc-15/html", ("release-", "bookindex", "biblio", "errcodes")),
    "sqlite": (
        "usr/share/doc/sqlite3",
        ("releaselog/", "requirements", "matrix/", "changes", "chronology", "oldnews", "news", "doc_", "syntax/"),
    ),
}
HELD_OUT = 1500
SEED = 20

BLOCK_TAGS = set(
    [
        "p",
        "li",
        "dd",
        "dt",
        "div",
        "td",
        "th",
        "tr",
        "ul",
        "ol",
        "dl",
        "table",
        "blockquote",
        "section",
        "pre",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "body",
    ]
)
SKIPPED_TAGS = {"pre", "script", "style", "head", "title", "dt", "h1", "h2", "h3", "h4", "h5", "h6", "nav"}
CODE_TAGS = {"code", "tt", "samp", "kbd"}
TYPOGRAPHY = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", "…": "...", "¶": None})


class Paragraphs(HTMLParser):
    """Cuts a page at block tags; inline code becomes `code`, as in Markdown."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.text: list[str] = []
        self.skipping = 0
        self.code_depth = 0

    def cut(self) -> None:
        text = re.sub(r"\s+", " ", "".join(self.text).translate(TYPOGRAPHY)).strip()
        if text:
            self.found.append(text.replace("``", ""))
        self.text = []
        self.code_depth = 0

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag in BLOCK_TAGS:
            self.cut()
        if tag in SKIPPED_TAGS:
            self.skipping += 1
        if tag in CODE_TAGS and not self.skipping:
            self.code_depth += 1
            if self.code_depth == 1:
                self.text.append("`")

    def handle_endtag(self, tag: str) -> None:
        if tag in BLOCK_TAGS:
            self.cut()
        if tag in SKIPPED_TAGS:
            self.skipping = max(0, self.skipping - 1)
        if tag in CODE_TAGS and self.code_depth:
            self.code_depth -= 1
            if self.code_depth == 0:
                self.text.append("`")

    def handle_data(self, data: str) -> None:
        if not self.skipping:
            self.text.append(data)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def ngrams(text: str, size: int) -> set[tuple[str, ...]]:
    found = words(text)
    return {tuple(found[i : i + size]) for i in range(len(found) - size + 1)}


def reason_to_drop(text: str, seen: set[str], forbidden: set[tuple[str, ...]]) -> str | None:
    """Name the rule that drops this paragraph, or None to keep it."""
    if len(text) < 60 or len(words(text)) < 9:
        return "short"
    if text[-1] not in ".:!?)`":
        return "not a sentence"
    if sum(c.isalpha() or c == " " for c in text) < 0.80 * len(text):
        return "mostly symbols"
    if sum(ord(c) > 127 for c in text) > 0.02 * len(text):
        return "not English"
    if re.search(r"\b[Rr]ust\b|\bbpo-\d|\bgh-\d{4}|^\(Contributed by", text):
        return "about Rust, or a change log"
    key = re.sub(r"\d+", "0", " ".join(words(text)))
    if key in seen:
        return "repeated"
    seen.add(key)
    if ngrams(text, 12) & forbidden:
        return "shares 12 words with pydoc_data.topics"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("unpacked", type=Path)
    parser.add_argument("work", type=Path)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)

    # The general-text corpus of the workbook must stay unseen.
    forbidden = set().union(*(ngrams(text, 12) for text in topics.topics.values()))
    kept, dropped, seen = [], Counter(), set()
    for source, (folder, boilerplate) in SOURCES.items():
        root = arguments.unpacked / folder
        if not root.is_dir():
            raise SystemExit(f"{root} is missing: unpack the packages there first")
        for page in filter(Path.is_file, sorted(root.rglob("*.html"))):
            name = page.relative_to(root).with_suffix("").as_posix()
            if name.startswith(boilerplate):
                dropped["boilerplate page"] += 1
                continue
            reader = Paragraphs()
            reader.feed(page.read_text(encoding="utf-8", errors="replace"))
            reader.cut()
            for text in reader.found:
                reason = reason_to_drop(text, seen, forbidden)
                if reason:
                    dropped[reason] += 1
                else:
                    kept.append({"source": source, "page": name, "text": text})

    random.Random(SEED).shuffle(kept)
    splits = {"heldout": kept[:HELD_OUT], "train": kept[HELD_OUT:]}
    for split, rows in splits.items():
        with open(arguments.work / f"{split}.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    summary = {
        "paragraphs": {split: len(rows) for split, rows in splits.items()},
        "characters": {split: sum(len(row["text"]) for row in rows) for split, rows in splits.items()},
        "by_source": Counter(row["source"] for row in kept),
        "dropped": dropped,
        "seed": SEED,
    }
    (arguments.work / "extract.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(json.dumps(summary, indent=2))


if __name__ == "__main__":
    main()
