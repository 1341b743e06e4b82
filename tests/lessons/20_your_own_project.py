assert datasheet.documents.to_dict() == {"test": 49, "validation": 21, "train": 28}
assert datasheet.sources.to_dict() == {"test": 7, "validation": 3, "train": 4} and len(notes) == 140
assert copies.sum() == near.sum() == 0 and data.split.isna().mean() == 0.3
assert 5.6 < before.mean() < 5.9

assert best == {"full": 0.001, "lora": 0.01}
assert 0.06 < t * pilot.std() / 7 < 0.08 and plan["worthwhile"] == 0.05
assert 4.73 < means.full[range(3)].mean() < 4.83 and 4.81 < means.lora[range(3)].mean() < 4.91
assert abs(means.full["untouched"] - 5.8) < 0.05 and len(losses) == 49
assert 0.06 < difference < 0.11 and 0.005 < low < 0.04 and 0.05 < (high - low) / 2 < 0.09
widths = results.high - results.low
assert results.low.min() > 0 and widths.max() - widths.min() < 0.06
# The short interval is that of lesson 15, whose seeds' error comes from all strategies together.
by_seed = losses.mean().unstack()
alone = by_seed.sub(by_seed.mean(axis=1), axis=0)
alone = alone - alone.mean()
e_seeds = np.sqrt((alone**2).to_numpy().sum() / 2 * 2 / 3)
by_document = losses.T.groupby(level="strategy").mean().T
e_documents = (by_document.lora - by_document.full).std() / 7
assert abs(4.303 * np.hypot(e_documents, e_seeds) - (high - low) / 2) < 0.002
assert decision == "take full"
for low_end, high_end, verdict in [
    (-0.04, 0.01, "no difference worth having, take lora"),
    (0.01, 0.2, "take full"),
    (-0.2, -0.01, "take lora"),
    (-0.01, 0.2, "cannot tell"),
    (0.001, 0.051, "cannot tell"),  # sure, and too small to be worth having
    (float("nan"), float("nan"), "cannot tell"),
]:
    assert decide((low_end + high_end) / 2, low_end, high_end) == verdict

# The same code with the two other tasks: only the template and the score of the plan change.
asked = {"prompt": "Does rice need salt?", "answer": "yes", "source": "0"}
plan["template"] = "{prompt}\nAnswer:\n"
row = encoded(asked)
assert tokenizer.decode([one for one in row["labels"] if one != -100]) == "yes<|endoftext|>"
assert tokenizer.decode(row["input_ids"]) == "<|endoftext|>Does rice need salt?\nAnswer:\nyes<|endoftext|>"
long = encoded(asked | {"prompt": "salt " * 400})
assert len(long["input_ids"]) == 256 and long["labels"][-2:] == row["labels"][-2:]
model = new_model("full").train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(20):
    model(**collate([dict(row)])).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
data = pd.DataFrame({"answer": ["yes", "no"], "split": "train"})
assert [wrong_answer(model.eval(), asked | {"answer": word}) for word in ("yes", "no")] == [0, 1]
assert [wrong_class(model, asked | {"answer": word}) for word in ("yes", "no")] == [0, 1]

# after: check-seal
again = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
assert hashlib.sha256(json.dumps(again["plan"]).encode()).hexdigest() == again["sha256"] == plan_sha256
