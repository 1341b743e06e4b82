assert datasheet.documents.to_dict() == {"test": 35, "validation": 14, "train": 14}
assert datasheet.sources.to_dict() == {"test": 5, "validation": 2, "train": 2} and len(notes) == 140
assert leaks.sum() == 0 and sum(plan["shares"].values()) < 0.5
assert 5.6 < before.mean() < 5.8

assert best == {"full": 0.001, "lora": 0.01}  # neither at the border of its grid
assert 0.055 < expected < 0.065 and plan["worthwhile"] == 0.05
assert means[["full", "lora"]].stack().between(5.0, 5.25).all() and len(losses) == 35
assert (abs(means.untouched - 5.8) < 0.05).all() and len(means) == 3
apart = means.lora - means.full
assert apart[0] < -0.02 and apart[[1, 2]].min() > 0.005
assert abs(difference - 0.01) < 0.015 and abs(low + 0.13) < 0.04 and abs(high - 0.16) < 0.04
assert (high - low) / 2 > 2 * expected and [round(stats.t.ppf(0.975, n - 1), 2) for n in (3, 10)] == [4.3, 2.26]
# The short interval is that of lesson 15, whose seeds' error comes from all strategies together.
by_seed = losses.mean().unstack()
alone = by_seed.sub(by_seed.mean(axis=1), axis=0)
alone = alone - alone.mean()
e_seeds = np.sqrt((alone**2).to_numpy().sum() / 2 * 2 / 3)
by_document = losses.T.groupby(level="strategy").mean().T
e_documents = (by_document.lora - by_document.full).std() / 35**0.5
assert abs(4.303 * np.hypot(e_documents, e_seeds) - (high - low) / 2) < 0.002
assert decision == "cannot tell"
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
assert tokenizer.decode(row["labels"][row["labels"] != -100]) == "yes<|endoftext|>"
assert tokenizer.decode(row["input_ids"][0]) == "<|endoftext|>Does rice need salt?\nAnswer:\nyes<|endoftext|>"
model = new_model("full").train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(20):
    model(**row).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
assert [wrong_answer(model.eval(), asked | {"answer": word}) for word in ("yes", "no")] == [0, 1]

# after: check-seal
again = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
assert hashlib.sha256(json.dumps(again["plan"]).encode()).hexdigest() == again["sha256"] == plan_sha256
