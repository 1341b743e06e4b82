assert tables["full"].shape == (10, 17) and (tables["gradual_unfreezing"][:, 9] > 0).tolist() == [1] * 8 + [0] * 2
assert len(left_out(model, mistaken)) == 74 and sum(1 for _ in model.parameters()) == 98
# To 0.1%, as other machines round otherwise. Before, general was 38.6.
assert np.allclose(yours, runs.loc["discriminative_rates", 3.16e-3, 0], rtol=1e-3)
assert [a.equal(b) for a, b in zip(before, after, strict=True)] == [0] * 5 + [1] * 5
rust_full, general_full = runs.loc["full", 1e-3, 0]
mine, general_mine = yours
assert abs(mine - rust_full) < 1 and (general_mine - 38.6) < 0.64 * (general_full - 38.6)
names = list(tables)
recorded = course.recorded("tiny/all/comparison").set_index("strategy").loc[names]
assert recorded.learning_rate.tolist() == points.validation_perplexity.unstack(0)[names].idxmin().tolist()
assert recorded.general.round().tolist() == [64, 58, 53] and round(recorded.general_before["full"]) == 36
assert 4 <= recorded.difference["gradual_unfreezing"] < 4.5
found = recorded[["difference_low", "difference_high"]].round(1)
assert found.loc["discriminative_rates"].tolist() == [-1.8, 1.2] and found.difference_low["gradual_unfreezing"] > 0
seeds = course.recorded("tiny/all/runs").query("strategy in @names").groupby("strategy").general
assert seeds.max()["discriminative_rates"] < seeds.min().drop("discriminative_rates").min()
best = points.groupby("strategy").apply(lambda of: of.loc[of.validation_perplexity.idxmin()]).loc[names].round()
assert best.to_numpy().tolist() == [[78, 53], [78, 49], [77, 48]]
assert list(points.loc["full"].index) == [5e-4, 1e-3]
assert points.loc[("lora", 0.01)].round().tolist() == [84, 50]
assert np.interp(84.2, *points.loc["full"][::-1].to_numpy().T) < 47
