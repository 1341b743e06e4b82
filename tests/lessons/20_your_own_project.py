assert datasheet.documents.to_dict() == {"test": 35, "validation": 14, "train": 14}
assert datasheet.sources.to_dict() == {"test": 5, "validation": 2, "train": 2} and len(notes) == 140
assert leaks.sum() == 0 and sum(plan["shares"].values()) < 0.5
assert 5.6 < before.mean() < 5.8
sizes = {name: sum(p.numel() for p in new_model(name).parameters() if p.requires_grad) for name in ("bitfit", "lora")}
assert sizes == {"bitfit": 3072, "lora": 221_184} == {"bitfit": 3072, "lora": 72 * 3072}

assert best == {"bitfit": 0.03, "lora": 0.01}  # neither at the border of its grid
assert 0.09 < stats.t.ppf(0.975, 19) * pilot.std() / 20**0.5 < 0.115 and plan["worthwhile"] == 0.1
assert abs(means.bitfit.mean() - 5.4) < 0.06 and abs(means.lora.mean() - 5.1) < 0.08 and len(losses) == 35
assert (abs(means.untouched - 5.8) < 0.05).all() and len(means) == 3 and (means.lora < means.bitfit - 0.15).all()
assert abs(difference + 0.28) < 0.04 and abs(low + 0.36) < 0.06 and abs(high + 0.19) < 0.06
assert (high - low) / 2 > stats.t.ppf(0.975, 34) * pilot.std() / 35**0.5
assert decision == "take lora"
for low_end, high_end, verdict in [
    (-0.08, 0.02, "no difference worth having, take bitfit"),
    (0.01, 0.4, "take bitfit"),
    (-0.4, -0.01, "take lora"),
    (-0.15, 0.05, "cannot tell"),
    (0.001, 0.101, "cannot tell"),  # sure, and too small to be worth having
    (float("nan"), float("nan"), "cannot tell"),
]:
    assert decide((low_end + high_end) / 2, low_end, high_end) == verdict
# The interval is that of lesson 15.
squares = [(t * e) ** 2 for t, e in [(2.0322, losses.lora.sub(losses.bitfit).mean(axis=1).std() / 35**0.5)]]
squares += [(4.3027 * (means.lora - means.bitfit).std() / 3**0.5) ** 2]
assert abs(sum(squares) ** 0.5 - (high - low) / 2) < 1e-4

# The same code with the two other tasks, and with a model that has a chat template.
asked = {"prompt": "Does rice need salt {}?", "answer": "yes", "source": "0"}
plan["template"] = "{prompt}\nAnswer:\n"
row = encoded(asked)
assert tokenizer.decode(row["labels"][row["labels"] != -100]) == "yes<|endoftext|>"
assert tokenizer.decode(row["input_ids"][0]) == "<|endoftext|>Does rice need salt {}?\nAnswer:\nyes<|endoftext|>"
model = new_model("full").train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(20):
    model(**row).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
assert [wrong_answer(model.eval(), asked | {"answer": word}) for word in ("yes", "no")] == [0, 1]
tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
assert tokenizer.decode(prompt_ids("Hi")) == "<user>Hi\nAnswer:\n<assistant>" and prompt_ids("")[0] == end

# after: check-seal
again = sealed.read_bytes()
assert hashlib.sha256(again).hexdigest() == plan_sha256 and json.loads(again) == plan
