"""Split written passages into train, validation and test, every topic in each.

    python data/build/assemble_rust.py drafts/*.jsonl data/rust

A draft line has `topic` and `text`. Of each topic a fifth (at least two passages) goes to validation and test; an odd
one to either in turn. That gives about 80/10/10, with every topic in every split.
"""

import json
import random
import sys
from collections import defaultdict
from pathlib import Path


def main() -> None:
    *drafts, folder = map(Path, sys.argv[1:])
    by_topic = defaultdict(list)
    for draft in drafts:
        for line in draft.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            by_topic[row["topic"]].append(row["text"])
    splits = {"train": [], "validation": [], "test": []}
    for number, (topic, texts) in enumerate(sorted(by_topic.items())):
        rows = [{"id": f"{topic}-{i:02d}", "topic": topic, "text": text} for i, text in enumerate(texts, 1)]
        random.Random(topic).shuffle(rows)
        held_out = max(2, round(len(rows) / 5))
        for_validation = (held_out + number % 2) // 2
        splits["validation"] += rows[:for_validation]
        splits["test"] += rows[for_validation:held_out]
        splits["train"] += rows[held_out:]
    for split, rows in splits.items():
        random.Random(split).shuffle(rows)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")
        print(f"{split}: {len(rows)} passages, {len({row['topic'] for row in rows})} topics")


if __name__ == "__main__":
    main()
