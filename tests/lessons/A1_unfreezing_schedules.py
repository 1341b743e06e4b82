assert tables["full"].shape == (10, 8) and tables["gradual unfreezing"][:, 5].tolist() == [1.0] * 8 + [0.0] * 2
assert round(tables["discriminative rates"][-1, 0], 6) == 0.1 and 5000 < 2.6**9 < 5500
mistake = changes.pop("gradual, with the mistake")
assert (changes > 0).all(axis=None), "every part moves in the end"
assert (changes.loc["embedding"].drop("full") < changes["full"]["embedding"] / 2).all()
assert (mistake[4:] > 0).sum() == 0 < mistake["block 7"] and round(mistake["block 3"], 1) == 0.0
assert percent(vector(layer), frozen) > 5, "the second mistake was run last"

recorded = pd.read_csv(folder / "comparison.csv", comment="#").set_index("strategy")
assert recorded.learning_rate[names].tolist() == [0.001, 0.00316, 0.00316]
assert recorded.general[names].round().tolist() == [64, 58, 53] and round(recorded.general_before["full"]) == 36
apart = pairs.set_index(["first", "second"])
assert not apart.separated["full", "discriminative_rates"]
assert 4 <= apart.difference.abs()["full", "gradual_unfreezing"] < 4.5 and apart.separated["full", "gradual_unfreezing"]
assert apart.separated.sum() == 2

assert search.idxmin().to_dict() == dict(zip(names, [0.001, 0.00316, 0.00316], strict=True))
everything = pd.read_csv(tl.DATA / "sweeps/tiny/rates.csv").query("strategy in @names")
assert (everything.groupby("strategy").learning_rate.nunique()[names] == 8).all(), "both searches had eight rates"
worse = (search.loc[0.001] - search.min()).round()
assert worse["gradual_unfreezing"] == 13 and worse["discriminative_rates"] == 17
assert search["full"][0.0005] > search["full"][0.001]
general = rates.groupby(["strategy", "learning_rate"]).general_perplexity.mean()
assert general["full", 0.0005] < general["full", 0.001]
seeds = runs.groupby("strategy").general
assert seeds.max().drop("full").max() < seeds.min()["full"], "with every seed"
