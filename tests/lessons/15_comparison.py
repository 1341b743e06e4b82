assert 160 < before < 162 and chosen.to_dict() == {"full": 1e-3, "LoRA": 1e-2}
assert (search.apply(lambda rates: rates.nsmallest(2).iloc[1] / rates.min()) > 1.02).all()
assert 0.15 < gain[1e-3] < 0.2 and 0.94 < gain[1e-2] < 0.98 and search.full[1e-2] > 300


def percents(*given):
    return 100 * np.expm1(interval(*given))


ours = [percents(x, "full", "LoRA")[1:] for x in (tested[tested.seed < 4], tested)]
assert np.allclose(ours, [[-8.3, 22.7], [-2.8, 11.6]], atol=0.5)
assert round(half_width([subtract(tested, "full", "LoRA").groupby("document").mean()], 0.95), 3) == 0.035
assert np.exp(tested.pivot_table("loss", "seed", "strategy")).agg(np.ptp).between(6.8, 8).all()


# For two strategies, and documents of equal length, this is tlkit's interval.
pair = tested.assign(nats=lambda x: 64 * x.loss, tokens=64)
(library,) = tl.compare_pairs(pair).itertuples()
ends = interval(tested, library.second, library.first)
middle = np.exp(pair.groupby("strategy").loss.mean().mean())
assert np.allclose([library.difference, library.low, library.high], 2 * middle * np.sinh(ends / 2), rtol=1e-3)

sweep = pd.read_csv(tl.DATA / "sweeps/tiny/rates.csv").query("strategy in @seven")
means = sweep.pivot_table("validation_perplexity", "learning_rate", "strategy")  # means of two seeds
assert means.shape == (8, 7) and means.notna().all(axis=None) and sweep.seed.nunique() == 2 and len(sweep) == 112
tuned = table["learning rate"][seven]
assert (means[seven].idxmin() == tuned).all()
assert round(tuned.bitfit / tuned.full) == 50 and round(tuned.lora / tuned.full) == 10

assert table.index.tolist()[7:] == [tl.ZERO_SHOT, tl.CONTROL]
assert table.loc[tl.ZERO_SHOT, "Rust perplexity"] == 126.2 and round(table.loc[tl.CONTROL, "Rust perplexity"]) == 688
finer = course.recorded("tiny/freezing/comparison").set_index("strategy").perplexity
assert round(finer["freeze_lower"], 1) == 55.5
assert table.loc[["full", "freeze_embeddings", "freeze_lower", "lora", "qlora"], "Rust perplexity"].tolist() == [
    52.7, 56.5, 56.8, 62.5, 63.1
]  # fmt: skip
assert {"profile: real", "train_documents: 200", "epochs: 1", "seeds: 3"} <= set(course.provenance("tiny").splitlines())

assert by_document.shape == (40, 7) and by_seed.shape == (3, 7) and paired.low > 0 > unpaired.low
assert round((by_document.freeze_embeddings - full).mean(), 2) == 0.07 and round(np.exp(0.07), 2) == 1.07
assert 0.4 < (p < 0.05).any(axis=1).mean() < 0.5 and (p < 0.05 / 21).any(axis=1).mean() < 0.05
assert [round(stats.t.ppf(1 - level / 2, 2), 1) for level in (0.05, 0.05 / 21, 0.05 / 6)] == [4.3, 20.5, 10.9]
assert np.allclose(stats.t.ppf([0.975, 0.975, 1 - 0.05 / 42], [2, 4, 4]), [2.48 * 3**0.5, 1.24 * 5**0.5, 6.85], 1e-2)
assert percents(losses, "full", "freeze_embeddings").round(1).tolist() == [7.3, 4.0, 10.7]
ends = pairs.set_index(["first", "second"])[["percent", "low", "high"]].round(1)
assert len(ends) == 21 and (pairs.percent > 0).all() and ends.loc[("full", seven[1])].tolist() == [7.3, -2.9, 18.5]
assert ends.loc[[("full", "lora"), ("lora", "qlora")]].round().values.tolist() == [[19, 7, 32], [1, -8, 10]]
assert ends.loc[("full", "freeze_lower")].tolist() == [8.0, 3.2, 13.0]
own = {(a, "bitfit") for a in seven[:-1]} | {("full", b) for b in seven[2:]}
told = pairs.set_index(["first", "second"]).verdict
assert {pair for pair in told.index if told[pair] == "separated"} == own and len(own) == 10
assert tl.compare_pairs(losses).separated.sum() == 15
assert all(interval(losses, "full", other, 1 - 0.05 / 6)[1] > 0 for other in seven[1:])
assert np.allclose([gap, gap - half, gap + half], [6.2, 2.9, 9.6], atol=0.05)
assert {path.name for path in folder.glob("pairs.*")} == {"pairs.csv", "pairs.png", "pairs.svg", "pairs.txt"}
