assert tables["full"].shape == (10, 8) and tables["gradual unfreezing"][:, 5].tolist() == [1.0] * 8 + [0.0] * 2
assert round(tables["discriminative rates"][-1, 0], 6) == 0.1
mistake = changes.pop("gradual, mistaken")
assert (changes > 0).all(axis=None), "every part moves in the end"
assert (changes.loc["embedding"].drop("full") < changes["full"]["embedding"] / 2).all()
assert (mistake[4:] > 0).sum() == 0 < mistake["block 7"] and round(mistake["block 3"], 1) == 0.0

assert recorded.learning_rate[names].tolist() == [0.001, 0.00316, 0.00316] and (recorded.seeds[names] == 3).all()
assert recorded.general[names].round().tolist() == [64, 58, 53] and round(recorded.general_before["full"]) == 36
assert "# - test_documents: 40\n" in file.read_text() and "# - against: full\n" in file.read_text()
assert 4 <= recorded.difference["gradual_unfreezing"] < 4.5
low, high = recorded.difference_low, recorded.difference_high
assert low["gradual_unfreezing"] > 0 > low["discriminative_rates"] and high["discriminative_rates"] > 0
seeds = course.recorded("tiny/all/runs").query("strategy in @names").groupby("strategy").general
assert seeds.max().drop("full").max() < seeds.min()["full"], "with every seed"
rates = pd.read_csv(tl.DATA / "sweeps/tiny/rates.csv").query("strategy in @names")
search = rates.pivot_table("validation_perplexity", "learning_rate", "strategy")
assert search.idxmin().to_dict() == dict(zip(names, [0.001, 0.00316, 0.00316], strict=True))
