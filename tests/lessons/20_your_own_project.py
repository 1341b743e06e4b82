import pytest

assert datasheet.documents.to_dict() == {"test": 25, "validation": 20, "train": 15}
assert datasheet.sources.to_dict() == {"test": 5, "validation": 4, "train": 3} and len(notes) == 100
assert leaks.sum() == 1 and sum(plan["shares"].values()) < 0.61
sizes = {name: sum(p.numel() for p in new_model(name).parameters() if p.requires_grad) for name in ("bitfit", "lora")}
assert sizes == {"bitfit": 3072, "lora": 72 * 3072}

assert best == {"bitfit": 0.03, "lora": 0.01}  # neither at the border of its grid
assert np.allclose(tried.mean(), [5.32, 5.27, 5.43, 4.97, 4.87, 7.91], atol=[0.1] * 5 + [0.6])
# Six sources are the fewest that give ±0.1, and five give about ±0.11.
assert pilot.std() * 2.5706 / 6**0.5 < 0.1 < pilot.std() * 2.7764 / 5**0.5 < 0.125 and plan["worthwhile"] == 0.1
assert np.allclose((3 / stats.chi2.ppf([0.975, 0.025], 3)) ** 0.5, [0.57, 3.7], atol=0.05)
assert np.allclose(means.mean(), np.log([230, 173, 353]), atol=0.06) and len(scores) == len(gains) == 5
assert list(means.index) == [1, 2, 3] and (means.lora < means.bitfit - 0.15).all() and abs(gain - 0.28) < 0.04
assert abs(from_sources - 0.12) < 0.03 and from_sources > 2 * from_seeds and low > 0.1
assert np.allclose([low, high], [0.16, 0.41], atol=0.06)
assert decision == "take lora" and hashlib.sha256((folder / "plan.json").read_bytes()).hexdigest() == noted
ends = [(0.01, 0.19), (-0.02, 0.08), (-0.4, -0.01), (-0.05, 0.15), (0.001, 0.101), (float("nan"), float("nan"))]
assert [decide((a + b) / 2, a, b, over) for a, b in ends] == ["lora", "bitfit", "bitfit", None, None, None]
assert decide(0.2, 0.1, 0.3, over | {"lora": 0}) == "neither" and (gains > 0).all(axis=None)
assert abs(4.3027 * (means.lora - means.bitfit).std() / 3**0.5 - from_seeds) < 1e-4

# The seal stops runs on other documents or plans. The same code with another task.
rows = documents
for first, plan["template"] in [(1, "{prompt}"), (0, "{prompt}\nAnswer:\n")]:
    documents = rows | {"train": rows["train"][first:]}
    with pytest.raises(ValueError, match="now have"):
        trained("lora", 0.01, 0)
row = encoded({"prompt": "Does rice need salt {}?", "answer": "yes\nno", "source": "0"})
assert tokenizer.decode(row["labels"][row["labels"] != -100]) == "yes\nno<|endoftext|>"
assert tokenizer.decode(row["input_ids"][0]) == "<|endoftext|>Does rice need salt {}?\nAnswer:\nyes\nno<|endoftext|>"
# The likeliest class has the lowest sum over its tokens.
plan["classes"], one, model = ["yes", "no, never", "rice"], documents["test"][0], new_model()
rows = [encoded(one | {"answer": name}) for name in plan["classes"]]
pairs = [(model(**row).logits[0, :-1], row["labels"][0, 1:]) for row in rows]
costs = [torch.nn.functional.cross_entropy(*pair, reduction="sum") for pair in pairs]
marks = [wrong_class(model, one | {"answer": name}) for name in plan["classes"]]
assert marks == [float(cost > min(costs)) for cost in costs]
