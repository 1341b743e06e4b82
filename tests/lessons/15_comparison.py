assert 170 < before < 172 and (after < before).all()
assert 0.13 < gain["LoRA, 1e-3"] < 0.25 and 0.75 < gain["LoRA, 1e-2"] < 0.9
own = intervals(live, [("full, 1e-3", "LoRA, 1e-2")]).iloc[0]
assert -5 < own.low < 3 and own.difference > 3 and round(stats.t.ppf(0.975, 2), 2) == 4.30
assert intervals(live, [("LoRA, 1e-2", "LoRA, 1e-3")]).low.iloc[0] > 2 and round(stats.t.ppf(0.975, 4), 2) == 2.78
searched = tl.recorded("rates").query("strategy in @seven").groupby("strategy").learning_rate
assert searched.size().eq(16).all() and searched.unique().map(sorted).map(tuple).nunique() == 1
assert (best[seven] == table.loc[seven, "learning rate"]).all()

assert len(seven) == 7 and table.index[7:].tolist() == [tl.ZERO_SHOT, tl.CONTROL]
assert table.loc[tl.ZERO_SHOT, "Rust perplexity"] == 126.2 and round(table.loc[tl.CONTROL, "Rust perplexity"]) == 688
assert table.loc[["full", "freeze_embeddings", "freeze_lower", "lora", "qlora"], "Rust perplexity"].tolist() == [
    52.7, 56.5, 56.8, 62.5, 63.1
]  # fmt: skip
assert {"profile: real", "train_documents: 200", "epochs: 1", "seeds: 3"} <= set(recorded.provenance)
assert losses.shape == (40, 21)

assert paired.low > 0 > unpaired.low, "Only the paired interval excludes zero"
assert round((by_document.freeze_embeddings - full).mean(), 2) == 0.07 and round(np.exp(0.07), 2) == 1.07
rest = by_hand.sub(by_hand.mean(axis=1), axis=0)
assert rest.round(2).to_numpy().tolist() == [[0.03, -0.02, -0.01], [0.01, -0.01, 0], [0.02, 0, -0.02]]
assert (rest - rest.mean()).round(2).abs().to_numpy().tolist() == [[0.01, 0.01, 0], [0.01, 0, 0.01], [0, 0.01, 0.01]]
assert round(rest.mean()[0], 2) == 0.02 and round(seed_spread(by_hand)[0], 3) == 0.012
assert seed_spread(by_hand)[1] == 4 and seed_spread(losses.mean().unstack())[1] == 12
assert 0.4 < (p < 0.05).any(axis=1).mean() < 0.5

assert pairs.separated.sum() == 17 and len(pairs) == 21
left = {frozenset(pair) for pair, separated in pairs.separated.items() if not separated}
middle_three = ["freeze_embeddings", "freeze_lower", "last_layers"]
assert left == {frozenset(pair) for pair in [("lora", "qlora"), *combinations(middle_three, 2)]}
assert pairs.loc[("lora", "qlora"), ["low", "high"]].astype(float).round(1).tolist() == [-1.5, 3.5]
assert pairs.loc[("freeze_embeddings", "freeze_lower"), ["low", "high"]].astype(float).round(1).tolist() == [-6.8, 8.6]
assert pairs.loc[("full", "lora"), ["low", "high"]].astype(float).round(0).tolist() == [12, 25]
assert pairs.loc[("lora", "bitfit"), "low"] > 0
closed = intervals(losses, [("full", "lora")]).iloc[0]
narrow = intervals(losses, [("full", name) for name in seven if name != "full"]).loc[("full", "lora")]
wide = pairs.loc[("full", "lora")]
assert closed.high - closed.low < narrow.high - narrow.low < wide.high - wide.low
careful = tl.compare_pairs(documents).query("not separated")
more = {frozenset(pair) for pair in careful[["first", "second"]].to_numpy().tolist()} - left
assert more == {frozenset(("last_layers", "lora")), frozenset(("last_layers", "qlora"))} and len(careful) == 6

assert (table.loc[seven, "general perplexity"] > table.loc[tl.ZERO_SHOT, "general perplexity"]).all()
assert table["general perplexity"][seven].idxmin() == table["Rust perplexity"][seven].idxmax() == "bitfit"
assert {path.name for path in folder.glob("pairs.*")} == {"pairs.csv", "pairs.png", "pairs.svg", "pairs.txt"}
assert pd.read_csv(folder / "pairs.csv").separated.sum() == 17
