"""The bundled texts and model are what their records say; a broken driver, and memory that is counted exactly."""

import json
import re
from collections import defaultdict

import torch

from tlkit import devices
from tlkit.corpus import DATA, SPLITS, load_corpus
from tlkit.memory import track_memory
from tlkit.models import BUNDLED, load_model

ROWS = {
    split: [json.loads(line) for line in (DATA / "rust" / f"{split}.jsonl").read_text().splitlines()]
    for split in SPLITS
}


def ngrams(text: str, size: int) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


def test_rust_passages_have_the_stated_form():
    rows = [row for split in SPLITS for row in ROWS[split]]
    assert len({row["id"] for row in rows}) == len(rows)
    assert all(40 <= len(row["text"].split()) <= 110 for row in rows)
    topics = {row["topic"] for row in rows}
    assert all({row["topic"] for row in ROWS[split]} == topics for split in SPLITS)
    assert 0.07 < len(ROWS["test"]) / len(rows) < 0.13 and 0.07 < len(ROWS["validation"]) / len(rows) < 0.13
    assert len(load_corpus("facts").train) == 25


def test_rust_passages_do_not_repeat_one_another():
    rows = [(split, row["text"]) for split in SPLITS for row in ROWS[split]]
    shared = defaultdict(int)
    owners = defaultdict(list)
    for number, (_, text) in enumerate(rows):
        for gram in ngrams(text, 8):
            for other in owners[gram]:
                shared[other, number] += 1
            owners[gram].append(number)
    assert max(shared.values(), default=0) <= 1
    twelve = {split: set().union(*(ngrams(row["text"], 12) for row in ROWS[split])) for split in SPLITS}
    assert not twelve["train"] & twelve["test"] and not twelve["train"] & twelve["validation"]
    assert not twelve["validation"] & twelve["test"]


def test_the_bundled_model_comes_wholly_from_its_file(tiny):
    assert tiny.tensors_loaded == tiny.tensors_total == 98
    record = json.loads((BUNDLED / "training_record.json").read_text())
    import hashlib

    assert record["sha256"] == hashlib.sha256((BUNDLED / "model.safetensors").read_bytes()).hexdigest()
    one, two = (load_model("tiny", random_init=True, seed=seed).model.lm_head.weight for seed in (0, 1))
    assert not torch.equal(one, two)


def test_a_broken_driver_is_reported_and_the_cpu_used(monkeypatch):
    monkeypatch.delenv("TLKIT_DEVICE", raising=False)
    monkeypatch.setattr(devices, "_try_out", lambda kind: None if kind == "cpu" else "present but broken (planted)")
    device = devices.probe()
    assert device.kind == "cpu" and device.notes[0] == "cuda: present but broken (planted)"
    assert 0 < device.free_memory <= device.total_memory and device.cores >= 1


def test_track_memory_counts_exactly():
    model = torch.nn.Linear(10, 10, bias=False)
    with track_memory(model) as track:
        assert track.current == 400
        extra = torch.zeros(1000)
        view = extra[10:]  # shares the storage
        assert track.current == 4400
        del extra, view
        assert track.current == 400 and track.peak == 4400
