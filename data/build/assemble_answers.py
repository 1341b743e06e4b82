"""Put written questions and answers into splits, no topic in two of them.

    python data/build/assemble_answers.py drafts data/answers

The folder of drafts has `questions/*.jsonl` (topic, form, prompt, completion), and `refuse.jsonl` and `general.jsonl`
like the questions. Of the topics about Rust 8 are for tests, 6 for validation and the rest for training, drawn once by
a seed; so are 3 and 2 of the subjects of refusals.
"""

import json
import random
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

HELD_OUT = {"questions": (8, 6), "refuse": (3, 2)}  # topics for tests and for validation


def main() -> None:
    drafts, folder = map(Path, sys.argv[1:])
    questions = [row for path in sorted((drafts / "questions").glob("*.jsonl")) for row in read(path)]
    refusals = read(drafts / "refuse.jsonl")
    split_of = split_topics(questions, *HELD_OUT["questions"]) | split_topics(refusals, *HELD_OUT["refuse"])
    for split in ("train", "validation", "test"):
        chosen = [row for row in named([*questions, *refusals]) if split_of[row["topic"]] == split]
        random.Random(split).shuffle(chosen)
        write(folder / f"{split}.jsonl", chosen)
        print(f"{split}: {len(chosen)} questions of {len({row['topic'] for row in chosen})} topics")
    write(folder / "general.jsonl", named(read(drafts / "general.jsonl")))


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def write(path: Path, rows: Iterable[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def split_topics(rows: Iterable[dict], test: int, validation: int) -> dict[str, str]:
    topics = sorted({row["topic"] for row in rows})
    random.Random(7).shuffle(topics)
    splits = ["test"] * test + ["validation"] * validation
    return {topic: splits[place] if place < len(splits) else "train" for place, topic in enumerate(topics)}


def named(rows: Iterable[dict]) -> list[dict]:
    seen: Counter = Counter()
    found = []
    for row in rows:
        seen[row["topic"]] += 1
        found.append({"id": f"{row['topic']}-question-{seen[row['topic']]:02d}", **row})
    return found


if __name__ == "__main__":
    main()
