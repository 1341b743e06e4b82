assert [len(split) for split in (train, validation, test)] == [285, 74, 96]
assert not {t["crate"] for t in train} & {t["crate"] for t in test}
assert not {t["writer"] for t in train} & {t["writer"] for t in test}
assert test[4]["system"] is None and len(re.findall(r"\d+\.\d+\.\d", test[4]["report"])) == 3
low, high = wilson(48, 96)
assert (round(100 * low), round(100 * high), round(100 * wilson(0, 96)[1])) == (40, 60, 4)

assert list(rules["training"].mean().round(2)[["version", "exact"]]) == [0.79, 0.2]
assert list(rules["test"].mean().round(2)[["version", "exact"]]) == [0.55, 0.1]

# What the record says of its answers is what the page's own function says.
for row in scored.itertuples():
    assert {field: bool(getattr(row, field)) for field in ("valid", *columns)} == marks(row.answer, labels[row.Index])
counts = {name: part[["valid", *columns]].sum() for name, part in methods.items()}
assert counts["instruction"].valid == 0
assert counts["three examples"].valid == 87 and counts["three examples"].exact == 0
asked = [parse(text) for text in methods["three examples"].answer]
assert sum(answer.get("kind") == "feature request" for answer in asked) == 85
assert sum(answer.get("crate") == "toml" for answer in asked) == 40

tuned_counts = counts["fine-tuned"]
assert [tuned_counts[name] for name in ("valid", *columns)] == [96, 47, 62, 59, 55, 9]
assert rules["test"].exact.sum() == 10 and len(gaps) == 2
assert gaps[0][0] > 3 and -11 < gaps[1][0] < -8 and 5 < gaps[1][1] < 9
assert live.valid.sum() >= 20 and 8 <= live.crate.sum() <= 20  # 24 and 14 in fp32
assert live.kind.mean() < 0.45 < tuned_counts.kind / 96

given = {(key, f): (parsed[key].get(f), labels[key][f]) for key in parsed for f in ("version", "system")}
assert sum(value is None and true is not None for value, true in given.values()) == 20
assert sum(value is not None and true is None for value, true in given.values()) == 13
table = pd.crosstab(kinds["true kind"], kinds["answer"])
assert (table.loc["slow", "slow"], table.loc["slow"].sum()) == (12, 15)
assert (table.loc["feature request", "feature request"], table.loc["feature request"].sum()) == (3, 13)
copied = {
    key: all(
        value is None or str(value) in labels[key]["report"]
        for value in (given[key, f][0] for f in ("version", "system"))
    )
    for key in parsed
}
caught = [key for key, fine in copied.items() if not fine]
assert len(caught) == 17 and not any(tuned.loc[key, ["version", "system"]].all() for key in caught)
by_rule = {t["id"]: json.loads(rule(t["report"]))["kind"] for t in test}
agreed = [key for key in parsed if parsed[key]["kind"] == by_rule[key]]
assert len(agreed) == 43 and sum(by_rule[key] == labels[key]["kind"] for key in agreed) == 36
assert list(costs.loc[["shown 3", "lora"], "prompt_tokens"].round()) == [424, 154]
assert 400 < costs.train_seconds["lora"] < 450
