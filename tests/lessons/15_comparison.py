by_document_before = recorded.documents.query("strategy == 'zero-shot'").set_index("document")
untouched = by_document_before.nats / by_document_before.tokens
scored = np.exp(live.mean()).unstack().mean(axis=1)
assert scored["LoRA, 1e-3"] > scored["LoRA, 1e-2"] > scored["full, 1e-3"]
gone = (scored["LoRA, 1e-3"] - scored["LoRA, 1e-2"]) / (scored["LoRA, 1e-3"] - scored["full, 1e-3"])
assert 0.33 < gone < 0.5 and scored["LoRA, 1e-3"] > 0.85 * np.exp(untouched[:20].mean())
assert tl.recorded("rates").query("strategy in @seven").groupby("strategy").size().eq(16).all()

assert len(seven) == 7 and table.loc[seven, "Rust perplexity"].max() < 126.2
assert table.loc[tl.ZERO_SHOT, "Rust perplexity"] == 126.2 and round(table.loc[tl.CONTROL, "Rust perplexity"]) == 688
assert table.loc[["full", "freeze_embeddings", "freeze_lower", "lora", "qlora"], "Rust perplexity"].tolist() == [
    52.7, 56.5, 56.8, 62.5, 63.1
]  # fmt: skip
assert "- profile: real" in ["- " + line for line in recorded.provenance] and losses.shape == (40, 21)
for name in seven:
    assert stats.ttest_rel(untouched, by_document[name]).confidence_interval(1 - 0.05 / 7).low > 0

assert paired.low > 0 > unpaired.low, "Only the paired interval excludes zero"
assert round((by_document.freeze_embeddings - full).mean(), 2) == 0.07 and round(np.exp(0.07), 2) == 1.07
assert (p < 0.05).any(axis=1).mean() > 1 / 3

assert pairs.separated.sum() == 17 and len(pairs) == 21
apart = pairs.separated.to_dict()
left = {frozenset(pair) for pair, separated in apart.items() if not separated}
middle_three = ["freeze_embeddings", "freeze_lower", "last_layers"]
assert left == {frozenset(pair) for pair in [("lora", "qlora"), *combinations(middle_three, 2)]}
assert percent.loc[("lora", "qlora"), ["low", "high"]].round(1).tolist() == [-1.5, 3.5]
assert percent.loc[("freeze_embeddings", "freeze_lower"), ["low", "high"]].round(1).tolist() == [-6.8, 8.6]
assert percent.loc[("full", "lora"), ["low", "high"]].round(0).tolist() == [12, 25]
closed = intervals(losses, [("full", "lora")]).iloc[0]
narrow = intervals(losses, [("full", name) for name in seven if name != "full"]).loc[("full", "lora")]
wide = pairs.loc[("full", "lora")]
assert closed.high - closed.low < narrow.high - narrow.low < wide.high - wide.low

assert (table.loc[seven, "general perplexity"] > table.loc[tl.ZERO_SHOT, "general perplexity"]).all()
assert points["general perplexity"][seven].idxmin() == points["Rust perplexity"][seven].idxmax() == "bitfit"
assert points["general perplexity"].idxmax() == "freeze_lower"
ln = general
for other, sign in (("freeze_lower", 1), ("lora", -1)):
    low, high = stats.ttest_rel(ln[other], ln.full).confidence_interval(0.975)
    assert (low > 0) if sign > 0 else (high < 0)
assert scores.learning_rate["freeze_lower"] == 2 * scores.learning_rate["full"] == 2e-3
assert {path.name for path in folder.glob("pairs.*")} == {"pairs.csv", "pairs.png", "pairs.svg"}
again = pd.read_csv(folder / "pairs.csv", comment="#")
assert again.separated.sum() == 17
