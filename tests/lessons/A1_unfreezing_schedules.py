assert tables["full"].shape == (10, 8) and tables["gradual unfreezing"][:, 5].tolist() == [1.0] * 8 + [0.0] * 2
assert round(tables["discriminative rates"][-1, 0], 6) == 0.1
mistake = changes.pop("gradual, mistaken")
assert (changes > 0).all(axis=None), "every part moves in the end"
assert changes.loc["block 0"].round(1).tolist() == [3.3, 0.7, 0.4]
assert (mistake[4:] > 0).sum() == 0 < mistake["block 7"] and round(mistake["block 3"], 1) == 0.0
assert (changes.idxmin() == "norm").all()

assert recorded.learning_rate[names].tolist() == points.validation_perplexity.unstack(0)[names].idxmin().tolist()
assert recorded.general[names].round().tolist() == [64, 57, 58, 53] and round(recorded.general_before["full"]) == 36
file = tl.DATA / "comparisons/tiny/all/comparison.csv"
assert "# - test_documents: 40\n" in file.read_text() and "# - against: full\n" in file.read_text()
assert 4 <= recorded.difference["gradual_unfreezing"] < 4.5
low, high = recorded.difference_low, recorded.difference_high
assert low["gradual_unfreezing"] > 0 > low["discriminative_rates"] and high["discriminative_rates"] > 0
seeds = course.recorded("tiny/all/runs").query("strategy in @names").groupby("strategy").general
assert seeds.max()["discriminative_rates"] < seeds.min().drop("discriminative_rates").min(), "with every seed"
best = points.groupby("strategy").apply(lambda of: of.loc[of.validation_perplexity.idxmin()]).loc[names].round()
assert best.to_numpy().tolist() == [[78, 53], [80, 55], [78, 49], [77, 48]]
