assert tables["full"].shape == (10, 8) and tables["gradual unfreezing"][:, 5].tolist() == [1.0] * 8 + [0.0] * 2
assert round(tables["discriminative rates"][-1, 0], 6) == 0.1
mistake = changes.pop("gradual, mistaken")
assert (changes > 0).all(axis=None), "every part moves in the end"
assert (changes.loc["embedding"].drop("full") < changes["full"]["embedding"] / 2).all()
assert (mistake[4:] > 0).sum() == 0 < mistake["block 7"] and round(mistake["block 3"], 1) == 0.0

recorded = pd.read_csv(folder / "comparison.csv", comment="#").set_index("strategy")
assert recorded.learning_rate[names].tolist() == [0.001, 0.00316, 0.00316]
assert recorded.general[names].round().tolist() == [64, 58, 53] and round(recorded.general_before["full"]) == 36
assert (result.Python[names] - recorded.general[names]).abs().max() < 0.1
assert documents.document.nunique() == 40 and runs.seed.nunique() == 3
apart = pairs.set_index(["first", "second"])
assert not apart.separated["full", "discriminative_rates"]
assert 4 <= apart.difference.abs()["full", "gradual_unfreezing"] < 4.5 and apart.separated["full", "gradual_unfreezing"]
assert apart.separated.sum() == 2
low, high = result["above full, from"], result["to"]
assert low["gradual_unfreezing"] > 0 > low["discriminative_rates"] and high["discriminative_rates"] > 0
seeds = runs.groupby("strategy").general
assert seeds.max().drop("full").max() < seeds.min()["full"], "with every seed"
rates = pd.read_csv(tl.DATA / "sweeps/tiny/rates.csv").query("strategy in @names")
search = rates.pivot_table("validation_perplexity", "learning_rate", "strategy")
assert search.idxmin().to_dict() == dict(zip(names, [0.001, 0.00316, 0.00316], strict=True))
