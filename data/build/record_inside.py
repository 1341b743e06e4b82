"""Record what the bundled model does with the texts of the live demo's first panel, so that the panel is there at once.

    python data/build/record_inside.py

A test compares the record with what the model does.
"""

import json
from dataclasses import asdict

from course.demo.inside import RECORDED, TEXTS, look_inside, reader

DIGITS = 5  # more than a colour or a bar can show


def main() -> None:
    texts = {text: rounded(asdict(look_inside(*reader(), text))) for text in TEXTS}
    record = {"made by": "python data/build/record_inside.py", "model": "tiny", "texts": texts}
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def rounded(value: object) -> object:
    """The same with `DIGITS` digits in each number."""
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    main()
