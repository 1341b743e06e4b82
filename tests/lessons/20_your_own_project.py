import pytest

assert datasheet.documents.to_dict() == {"test": 35, "validation": 14, "train": 14}
assert datasheet.sources.to_dict() == {"test": 5, "validation": 2, "train": 2} and len(notes) == 140
assert leaks.sum() == 1 and sum(plan["shares"].values()) < 0.5 and 5.6 < before < 5.8
sizes = {name: sum(p.numel() for p in new_model(name).parameters() if p.requires_grad) for name in ("bitfit", "lora")}
assert sizes == {"bitfit": 3072, "lora": 72 * 3072}

assert best == {"bitfit": 0.03, "lora": 0.01}  # neither at the border of its grid
shared = tried.mean()[[("lora", 0.01), ("bitfit", 0.01), ("bitfit", 0.03)]]
assert np.allclose(shared, [4.97, 5.39, 5.36], atol=0.1) and tried["lora", 0.03].mean() > before + 1
assert abs(pilot.std() - 0.21) < 0.02 and plan["worthwhile"] == 0.1
assert np.allclose(means.mean(), np.log([223, 169, 334]), atol=0.06) and len(scores) == 35 and len(gains) == 5
assert len(means) == 3 and (means.lora < means.bitfit - 0.15).all() and abs(gain - 0.28) < 0.04
assert abs(from_sources - 0.14) < 0.03 and from_sources > 2 * from_seeds and low > 0.05
assert np.allclose([low, high], [0.13, 0.42], atol=0.06)
assert decision == "take lora" and hashlib.sha256((folder / "plan.json").read_bytes()).hexdigest() == noted
ends = [(0.01, 0.4), (-0.02, 0.08), (-0.4, -0.01), (-0.05, 0.15), (0.001, 0.101), (float("nan"), float("nan"))]
assert [decide((a + b) / 2, a, b) for a, b in ends] == ["lora", "bitfit", "bitfit", None, None, None]
assert abs(4.3027 * (means.lora - means.bitfit).std() / 3**0.5 - from_seeds) < 1e-4

# The seal stops runs on other data or plans. The same code with another task.
rows = data
for first, plan["template"] in [(1, "{prompt}"), (0, "{prompt}\nAnswer:\n")]:
    data = rows[first:]
    with pytest.raises(ValueError, match="now have"):
        trained("lora", 0.01, 0)
row = encoded({"prompt": "Does rice need salt {}?", "answer": "yes\nno", "source": "0"})
assert tokenizer.decode(row["labels"][row["labels"] != -100]) == "yes\nno<|endoftext|>"
assert tokenizer.decode(row["input_ids"][0]) == "<|endoftext|>Does rice need salt {}?\nAnswer:\nyes\nno<|endoftext|>"
