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
