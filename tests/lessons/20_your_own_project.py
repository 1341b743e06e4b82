assert datasheet.documents.to_dict() == {"test": 35, "validation": 14, "train": 14}
assert datasheet.sources.to_dict() == {"test": 5, "validation": 2, "train": 2} and len(notes) == 140
assert leaks.sum() == 1 and sum(plan["shares"].values()) < 0.5
assert 5.6 < before.mean() < 5.8
sizes = {name: sum(p.numel() for p in new_model(name).parameters() if p.requires_grad) for name in ("bitfit", "lora")}
assert sizes == {"bitfit": 3072, "lora": 221_184} == {"bitfit": 3072, "lora": 72 * 3072}

assert best == {"bitfit": 0.03, "lora": 0.01}  # neither at the border of its grid
assert m == 7 and abs(pilot.std() - 0.21) < 0.02 and plan["worthwhile"] == 0.1
assert abs(means.bitfit.mean() - 5.4) < 0.06 and abs(means.lora.mean() - 5.1) < 0.08 and len(losses) == 35
assert len(means) == 3 and (means.lora < means.bitfit - 0.15).all() and abs(gain - 0.28) < 0.04
assert abs(gains.gain.iloc[2] - gain) < 1e-4
assert (gains.low > [0.2, 0.4, 0.1, 0.05]).all() and abs(gains["± texts"].iloc[2] - 0.07) < 0.03
assert np.allclose(gains.iloc[2:][["low", "high"]], [[0.19, 0.36], [0.13, 0.42]], atol=0.06)
assert f"{stats.t.ppf(0.975, 4):.2f}" == "2.78"
assert decision == "take lora" and (folder / "lora/adapter_config.json").exists()
ends = [(0.01, 0.4), (-0.02, 0.08), (-0.4, -0.01), (-0.05, 0.15), (0.001, 0.101), (float("nan"), float("nan"))]
verdicts = [decide((lower + upper) / 2, lower, upper) for lower, upper in ends]
assert verdicts == ["take lora", *2 * ["take bitfit"], *3 * ["cannot tell"]]
assert abs(4.3027 * (means.lora - means.bitfit).std() / 3**0.5 - gains["± seeds"].iloc[2]) < 1e-4

# The same code with the two other tasks, and with a model that has a chat template.
asked = {"prompt": "Does rice need salt {}?", "answer": "yes\nno", "source": "0"}
plan["template"] = "{prompt}\nAnswer:\n"
row = encoded(asked)
assert tokenizer.decode(row["labels"][row["labels"] != -100]) == "yes\nno<|endoftext|>"
assert tokenizer.decode(row["input_ids"][0]) == "<|endoftext|>Does rice need salt {}?\nAnswer:\nyes\nno<|endoftext|>"
model = new_model("full").train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(20):
    model(**row).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
assert [wrong_answer(model.eval(), asked | {"answer": word}) for word in ("yes\nno", "yes")] == [0, 1]
tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
assert tokenizer.decode(prompt_ids("Hi")) == "<user>Hi\nAnswer:\n<assistant>" and prompt_ids("")[0] == end

# after: check-seal
again = sealed.read_bytes()
assert hashlib.sha256(again).hexdigest() == plan_sha256 and json.loads(again) == plan
