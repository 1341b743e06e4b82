assert tables["full"].shape == (10, 8) and tables["gradual unfreezing"][:, 5].tolist() == [1.0] * 8 + [0.0] * 2
assert round(tables["discriminative rates"][-1, 0], 6) == 0.1 and 5000 < 2.6**9 < 5500
assert (changes > 0).all(axis=None), "every part moves in the end"

assert recorded.learning_rate[names].tolist() == [0.001, 0.00316, 0.00316]
assert recorded.general[names].round().tolist() == [64, 58, 53] and round(recorded.general_before["full"]) == 36
apart = pairs.set_index(["first", "second"])
assert not apart.separated["full", "discriminative_rates"]
assert 4 <= apart.difference.abs()["full", "gradual_unfreezing"] < 4.5 and apart.separated["full", "gradual_unfreezing"]
assert apart.separated.sum() == 2

rates = pd.read_csv(tl.DATA / "sweeps/tiny/rates.csv").query("strategy in @names")
means = rates.groupby(["strategy", "learning_rate"]).validation_perplexity.mean()
worse = (means.xs(0.001, level="learning_rate") - means.groupby("strategy").min()).round()
assert worse["gradual_unfreezing"] == 13 and worse["discriminative_rates"] == 17
assert means["full", 0.0005] > means["full", 0.001]
general = rates.groupby(["strategy", "learning_rate"]).general_perplexity.mean()
assert general["full", 0.0005] < general["full", 0.001]
seeds = pd.read_csv(folder / "runs.csv", comment="#").query("strategy in @names").groupby("strategy").general
assert seeds.max().drop("full").max() < seeds.min()["full"], "in every seed"
