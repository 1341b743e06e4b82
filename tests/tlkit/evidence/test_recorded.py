"""Recorded comparisons are read as they were written."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tlkit.evidence.recorded import recorded_comparison
from tlkit.names import ZERO_SHOT

CHANGES = {"full": -0.7, "lora": -0.6, "dora": -0.6}  # nats per token


def planted(changes: dict[str, float], spread: float = 0.01) -> pd.DataFrame:
    """Documents of a comparison in which every effect is known: 40 of them, three seeds, one run untouched."""
    draw = np.random.default_rng(0)
    base, tokens, rows = draw.normal(4.5, 0.2, 40), draw.integers(50, 150, 40), []
    for name, change in {ZERO_SHOT: 0.0, **changes}.items():
        for seed in range(1 if name == ZERO_SHOT else 3):
            noise = 0.0 if name == ZERO_SHOT else draw.normal(0, spread, 40) + draw.normal(0, spread)
            nats = (base + change + noise) * tokens
            rows += [
                (name, seed, place, nat, count) for place, (nat, count) in enumerate(zip(nats, tokens, strict=True))
            ]
    return pd.DataFrame(rows, columns=["strategy", "seed", "document", "nats", "tokens"])


def record(folder: Path, model: str, documents: pd.DataFrame) -> None:
    """Write the files of a comparison as `compare` does."""
    (folder / model).mkdir(parents=True)
    table = pd.DataFrame({"strategy": list(CHANGES), "note": "#1 of two"})
    for name in ("comparison", "runs", "documents", "answers"):
        comment = f"# - model: {model}\n# - command: python -m tlkit compare\n# - date: 2026-11-22\n"
        rows = table if name == "comparison" else documents
        (folder / model / f"{name}.csv").write_text(comment + rows.to_csv(index=False), encoding="utf-8")


def test_a_recorded_comparison_is_read_as_it_was_written(tmp_path):
    record(tmp_path, "small", planted(CHANGES))
    found = recorded_comparison("small", folder=tmp_path)
    pd.testing.assert_frame_equal(found.documents, planted(CHANGES))
    assert found.provenance == ("model: small", "command: python -m tlkit compare", "date: 2026-11-22")
    assert found.table.note.tolist() == 3 * ["#1 of two"]
    with pytest.raises(ValueError, match="no comparison is recorded in other: there are small"):
        recorded_comparison("other", folder=tmp_path)


def test_a_comparison_of_another_task_lies_below_its_model_with_what_was_written(tmp_path):
    record(tmp_path, "small", planted(CHANGES))
    record(tmp_path / "small", "answer", planted({"full": -0.1}))
    written = pd.DataFrame({"strategy": ["full", "full"], "answer": ["None", '# a\nb, "c"'], "stopped": [True, False]})
    (tmp_path / "small" / "answer" / "written.csv").write_text("# - model: small\n" + written.to_csv(index=False))
    found = recorded_comparison("small", task="answer", folder=tmp_path)
    pd.testing.assert_frame_equal(found.written, written)
    plain = recorded_comparison("small", folder=tmp_path)
    assert plain.written.empty and not plain.documents.equals(found.documents)
    with pytest.raises(ValueError, match="recorded in small/classify: there are small, small/answer"):
        recorded_comparison("small", task="classify", folder=tmp_path)
