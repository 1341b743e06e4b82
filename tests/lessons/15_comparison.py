assert 181 < before < 184 and (after < before).all()
assert 0.13 < gain["LoRA, 1e-3"] < 0.25 and 0.75 < gain["LoRA, 1e-2"] < 0.9
assert interval(tested, "full, 1e-3", "LoRA, 1e-2")[1] > 0 and interval(tested, "LoRA, 1e-2", "LoRA, 1e-3")[1] > 5
# For two strategies, and documents of equal length, this is the library's interval.
pair = tested[tested.strategy != "LoRA, 1e-3"].assign(nats=lambda x: 63 * x.loss, tokens=63)
(library,) = tl.compare_pairs(pair).itertuples()
ends = np.log1p(interval(tested, library.second, library.first) / 100)
middle = np.exp(pair.groupby("strategy").loss.mean().mean())
assert np.allclose([library.difference, library.low, library.high], 2 * middle * np.sinh(ends / 2), rtol=1e-3)

searched = pd.read_csv(tl.DATA / "sweeps/tiny/rates.csv").query("strategy in @seven").groupby("strategy").learning_rate
assert searched.size().eq(16).all() and searched.unique().map(sorted).map(tuple).nunique() == 1
assert (best[seven] == table.loc[seven, "learning rate"]).all() and round(best.bitfit / best.full) == 50

assert table.index.tolist() == [*seven, tl.ZERO_SHOT, tl.CONTROL]
assert table.loc[tl.ZERO_SHOT, "Rust perplexity"] == 126.2 and round(table.loc[tl.CONTROL, "Rust perplexity"]) == 688
assert table.loc[["full", "freeze_embeddings", "freeze_lower", "lora", "qlora"], "Rust perplexity"].tolist() == [
    52.7, 56.5, 56.8, 62.5, 63.1
]  # fmt: skip
assert {"profile: real", "train_documents: 200", "epochs: 1", "seeds: 3"} <= set(course.provenance("tiny").splitlines())
general = table["general perplexity"][seven]
assert (general > table.loc[tl.ZERO_SHOT, "general perplexity"]).all()

assert by_document.shape == (40, 7) and by_seed.shape == (3, 7)
assert paired.low > 0 > unpaired.low
assert round((by_document.freeze_embeddings - full).mean(), 2) == 0.07 and round(np.exp(0.07), 2) == 1.07
assert 0.4 < (p < 0.05).any(axis=1).mean() < 0.5
assert [round(stats.t.ppf(1 - level / 2, 2), 1) for level in (0.05, 0.05 / 21, 0.05 / 6)] == [4.3, 20.5, 10.9]
assert [round(stats.t.ppf(1 - 0.05 / 42, seeds - 1), 1) for seeds in (4, 5)] == [9.6, 6.8]
assert means.bitfit[[0.02, 0.05, 0.1]].round().tolist() == [111, 111, 113]

from tlkit.evidence.statistics import over_seeds

by_run = documents.groupby(["strategy", "seed"])[["nats", "tokens"]].sum()
freedom = over_seeds((by_run.nats / by_run.tokens).unstack().loc[seven].to_numpy(), (0, 1))[1]
assert round(freedom) == 3 and 9 < stats.t.ppf(1 - 0.05 / 42, freedom) < 10
assert len(apart) == 10 and yours["full", "freeze_embeddings"].round(1).tolist() == [7.3, -2.9, 18.5]
assert interval(losses, "full", "freeze_embeddings").round(1).tolist() == [7.3, 4.0, 10.7]

assert pairs.separated.sum() == 15 and len(pairs) == 21
separated = {frozenset(pair) for pair in pairs.loc[pairs.separated, ["first", "second"]].to_numpy().tolist()}
borrowed = {("full", "freeze_embeddings"), *((a, b) for a in seven[1:3] for b in ("lora", "qlora"))}
assert separated - set(map(frozenset, apart)) == set(map(frozenset, borrowed))
assert yours["lora", "qlora"].round()[1:].tolist() == [-8, 10]
left = {frozenset(pair) for pair in pairs.loc[~pairs.separated, ["first", "second"]].to_numpy().tolist()}
middle_three = ["freeze_embeddings", "freeze_lower", "last_layers"]
close = [("lora", "qlora"), ("last_layers", "lora"), ("last_layers", "qlora"), *combinations(middle_three, 2)]
assert left == {frozenset(pair) for pair in close}
ends = pairs.set_index(["first", "second"])[["difference", "low", "high"]].astype(float).round(1)
assert ends.loc[("qlora", "lora")].tolist() == [0.6, -2.8, 4.1]
assert ends.loc[("lora", "full")].tolist() == [9.8, 5.9, 13.7]
assert ends.difference[[("freeze_lower", "full"), ("freeze_embeddings", "full")]].tolist() == [4.1, 3.8]
assert ends.difference["bitfit"].agg(["size", "min", "max"]).tolist() == [6, 35.9, 46.3]
reach = 200 * np.sinh(np.arcsinh(ends.loc[("qlora", "lora"), ["low", "high"]] / 2 / 62.8))
assert reach.round().tolist() == [-4, 7]
assert {path.name for path in folder.glob("pairs.*")} == {"pairs.csv", "pairs.png", "pairs.svg", "pairs.txt"}
