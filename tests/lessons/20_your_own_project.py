import pytest

assert datasheet.documents.to_dict() == {"test": 35, "validation": 14, "train": 14}
assert datasheet.sources.to_dict() == {"test": 5, "validation": 2, "train": 2} and len(notes) == 140
assert leaks.sum() == 1 and sum(plan["shares"].values()) < 0.5 and 5.6 < before < 5.8
sizes = {name: sum(p.numel() for p in new_model(name).parameters() if p.requires_grad) for name in ("bitfit", "lora")}
assert sizes == {"bitfit": 3072, "lora": 72 * 3072}

assert best == {"bitfit": 0.03, "lora": 0.01}  # neither at the border of its grid
shared = tried.mean()[[("lora", 0.01), ("bitfit", 0.01), ("bitfit", 0.03)]]
assert np.allclose(shared, [4.97, 5.39, 5.36], atol=0.1) and tried["lora", 0.03].mean() > before + 1
assert m == 7 and abs(pilot.std() - 0.21) < 0.02 and plan["worthwhile"] == 0.1
assert np.allclose(means.mean(), np.log([223, 169, 334]), atol=0.06) and len(losses) == 35
assert len(means) == 3 and (means.lora < means.bitfit - 0.15).all() and abs(gain - 0.28) < 0.04
assert np.allclose(gains["± rows"].iloc[2:], [0.14, 0.08], atol=0.03)
assert np.allclose(gains.iloc[2:][["low", "high"]], [[0.13, 0.42], [0.19, 0.36]], atol=0.06)
assert (gains.low > [0.15, 0.3, 0.05, 0.1]).all()
assert decision == "take lora" and hashlib.sha256((folder / "plan.json").read_bytes()).hexdigest() == noted
ends = [(0.01, 0.4), (-0.02, 0.08), (-0.4, -0.01), (-0.05, 0.15), (0.001, 0.101), (float("nan"), float("nan"))]
assert [decide((a + b) / 2, a, b) for a, b in ends] == ["lora", "bitfit", "bitfit", None, None, None]
assert abs(4.3027 * (means.lora - means.bitfit).std() / 3**0.5 - gains["± seeds"].iloc[2]) < 1e-4

# The seal stops runs on other data or plans. The same code with the two other tasks, and with a chat template.
rows = data
for first, plan["template"] in [(1, "{prompt}"), (0, "{prompt}\nAnswer:\n")]:
    data = rows[first:]
    with pytest.raises(ValueError, match="now have"):
        trained("lora", 0.01, 0)
asked = {"prompt": "Does rice need salt {}?", "answer": "yes\nno", "source": "0"}
row, model = encoded(asked), new_model("full").train()
assert tokenizer.decode(row["labels"][row["labels"] != -100]) == "yes\nno<|endoftext|>"
assert tokenizer.decode(row["input_ids"][0]) == "<|endoftext|>Does rice need salt {}?\nAnswer:\nyes\nno<|endoftext|>"
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(20):
    model(**row).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
assert [wrong_answer(model.eval(), asked | {"answer": word}) for word in ("yes\nno", "yes")] == [0, 1]
tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
assert tokenizer.decode(prompt_ids("Hi")) == "<user>Hi\nAnswer:\n<assistant>" and prompt_ids("")[0] == end
