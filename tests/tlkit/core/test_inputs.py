"""What a student can hand in wrongly: corpora, models, devices, profiles. And the bundled corpus itself."""

import json
import re
import shutil
from collections import defaultdict

import pytest
import torch
from safetensors.torch import load_file, save_file

from tlkit import devices
from tlkit.corpus import DATA, SPLITS, load_corpus, pack
from tlkit.memory import track_memory
from tlkit.models import BUNDLED, load_model, meta_model
from tlkit.settings import setup

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


@pytest.mark.parametrize("suffix", ["txt", "md", "jsonl"])
def test_own_text_is_split_by_document_the_same_way_each_time(suffix, tmp_path, monkeypatch):
    texts = [f"Document number {n}." for n in range(40)]
    body = "\n".join(json.dumps({"text": t}) for t in texts) if suffix == "jsonl" else "\n\n".join(texts)
    (tmp_path / f"notes.{suffix}").write_text(body)
    corpus = load_corpus(tmp_path)
    monkeypatch.setenv("TLKIT_CORPUS", str(tmp_path / f"notes.{suffix}"))
    assert load_corpus().train == corpus.train
    assert [len(corpus.train), len(corpus.validation), len(corpus.test)] == [32, 4, 4]
    assert sorted(corpus.train + corpus.validation + corpus.test) == sorted(texts)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b'{"text": "x"}\nnot json\n', "a.jsonl, line 2: not JSON"),
        ("a.jsonl", b'{"texts": "x"}\n', "line 1: expected"),
        ("a.txt", b"caf\xe9 \xff", "not UTF-8"),
        ("a.pdf", b"", "expected a .txt, .md or .jsonl"),
        ("a.txt", b"One.\n\nTwo.", "2 documents; at least 10"),
    ],
)
def test_bad_corpora_are_named(name, content, said, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(said)):
        load_corpus(tmp_path / name)


def test_packing(tiny):
    blocks = pack(["One two three four five."] * 9, tiny.tokenizer, 8)
    text = tiny.tokenizer.decode(blocks.flatten())
    assert text.startswith("<|endoftext|>One two three four five.<|endoftext|>One") and blocks.shape[1] == 8
    for bad, said in ((([], 8), "empty"), ((["Short."], 64), "do not fill"), ((["Short."], 1), "at least 2")):
        with pytest.raises(ValueError, match=said):
            pack(bad[0], tiny.tokenizer, bad[1])


def test_the_bundled_model_comes_wholly_from_its_file(tiny):
    assert tiny.tensors_loaded == tiny.tensors_total == 98
    record = json.loads((BUNDLED / "training_record.json").read_text())
    import hashlib

    assert record["sha256"] == hashlib.sha256((BUNDLED / "model.safetensors").read_bytes()).hexdigest()
    one, two = (load_model("tiny", random_init=True, seed=seed).model.lm_head.weight for seed in (0, 1))
    assert not torch.equal(one, two)


def test_a_file_with_a_weight_missing_is_refused(tmp_path):
    folder = shutil.copytree(BUNDLED, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.3.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(RuntimeError, match=r"would stay random \(model.layers.3.mlp.up_proj.weight"):
        load_model(folder)


@pytest.mark.parametrize("fault", ["truncated", "no config", "no such folder"])
def test_what_is_not_a_model_is_one_clear_line(fault, tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    folder = shutil.copytree(BUNDLED, tmp_path / "model")
    if fault == "truncated":
        weights = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    elif fault == "no config":
        (folder / "config.json").unlink()
    else:
        folder = tmp_path / "nowhere"
    with pytest.raises(ValueError, match="bundled model needs no network") as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


def test_unknown_presets_profiles_and_devices_are_named(monkeypatch):
    with pytest.raises(ValueError, match="neither a preset nor a folder"):
        meta_model("no such model")
    with pytest.raises(ValueError, match="one of ci, real, laptop, gpu"):
        setup("turbo")
    with pytest.raises(ValueError, match="one of cuda"):
        devices.probe("tpu")
    monkeypatch.setattr(devices, "_is_present", lambda kind: kind == "cpu")
    with pytest.raises(RuntimeError, match="cuda: not present"):
        devices.probe("cuda")


def test_a_broken_driver_is_reported_and_the_cpu_used(monkeypatch):
    monkeypatch.delenv("TLKIT_DEVICE", raising=False)
    monkeypatch.setattr(devices, "_try_out", lambda kind: None if kind == "cpu" else "present but broken (planted)")
    device = devices.probe()
    assert device.kind == "cpu" and device.notes[0] == "cuda: present but broken (planted)"
    assert 0 < device.free_memory <= device.total_memory and device.cores >= 1


@pytest.mark.parametrize(
    ("file", "text", "limit"),
    [
        ("memory.max", "1048576\n", 1048576),
        ("memory.max", "max\n", None),
        ("memory/memory.limit_in_bytes", "9" * 19, None),
    ],
)
def test_container_limit(file, text, limit, tmp_path):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    assert devices.container_memory_limit(tmp_path) == limit


def test_track_memory_counts_exactly():
    model = torch.nn.Linear(10, 10, bias=False)
    with track_memory(model) as track:
        assert track.current == 400
        extra = torch.zeros(1000)
        view = extra[10:]  # shares the storage
        assert track.current == 4400
        del extra, view
        assert track.current == 400 and track.peak == 4400
