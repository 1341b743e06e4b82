assert not comparison.failures and 3 * len(seven) + 1 == 22

assert (differences > 0).mean() > 0.75

assert round(100 * 0.05 / p.shape[1], 2) == 0.24
assert np.allclose(np.minimum(holm(pairs.p.to_numpy()), 1), pairs.p_adjusted)

forgotten = adapted_rows.general - adapted_rows.general_before

assert (forgotten > 0).all() and forgotten.idxmax() == "freeze_lower"

rates = tl.default_rates()

assert rates["full"] == 1e-3 and rates["freeze_lower"] == 2e-3
assert rates["bitfit"] == max(rates[name] for name in seven) and rates["full"] == min(rates.values())
general_means = tuning.groupby(["strategy", "learning_rate"]).general_perplexity.mean()
assert sorted(moved, key=moved.get) == sorted(moved, key=general_means.get)

is_full = sizes.strategy == "full"
worst_full = sizes[is_full].groupby("passages").validation_perplexity.max()
best_other = sizes[~is_full].groupby("passages").validation_perplexity.min()
assert (worst_full < best_other).all()

untouched = line.rust.iloc[0]
assert (means.loc[503] < untouched / 2).all()
by_label = mixing.set_index("label").general
assert by_label["0.1"] > start.general > by_label["0.25"]

may, may_not = " ".join(said.may), " ".join(said.may_not)
assert "longer training" in may_not and "another machine" in may_not
assert rates["lora"] > rates["full"], "LoRA's best rate is above full fine-tuning's"
assert min(same, key=same.get) != min(own, key=own.get), "The rate decides which of the two is ahead"

assert np.allclose(stats.ttest_rel(both.lora, both.full).confidence_interval(), (low, high)), (
    "scipy's paired test has the same interval"
)

alone = tl.compare_pairs(two).iloc[0]
library = sorted(abs(alone[["low", "high"]].astype(float)))
assert np.allclose(sorted(np.abs(hand)), library, rtol=1e-6), (
    "tl.compare_pairs gives the same interval for these two, to one millionth"
)

assert 0.9 < alarms.mean() < 1.2 and (alarms > 0).mean() > 1 / 3, (
    "Uncorrected, there is one false alarm a table, and a third have at least one"
)

assert table.loc["bitfit", "rank"] == "7", "bitfit is last, and differs from all others"
gained = adapted_rows.improvement_percent
assert gained.idxmin() == forgotten.idxmin() == "bitfit", "bitfit forgets least, but it also gains least"
at_one_rate = tuning[(tuning.learning_rate == 0.002) & (tuning.strategy != tl.CONTROL)]
most = at_one_rate.groupby("strategy").general_perplexity.mean().idxmax()
assert most == "full", "With a rate of 2e-3 for all, full forgets most"

assert moved["freeze_lower", 2e-3] > 1.2 * moved["full", 1e-3], (
    "freeze_lower at its own rate moves further than full at its own"
)

by_epochs = paths["epochs"].set_index("label")
assert by_epochs.general.is_monotonic_increasing, "Each further epoch makes the model forget more"
assert by_epochs.rust.idxmin() == "2" and by_epochs.rust["4"] > by_epochs.rust["2"], (
    "On Rust two epochs are best, and four are worse"
)
assert (means.loc[25] > untouched).all(), "25 passages leave all three worse than untouched"
few, many = means.index.isin([50, 100]), means.index >= 200
assert (means.lora < means.last_layers)[few].all() and (means.lora > means.last_layers)[many].all(), (
    "lora and last_layers cross between 100 and 200 passages"
)

assert all(name in said.may[0] for name in seven) and said.may[0].startswith("A lower"), (
    "All seven strategies may be said to lower the perplexity on Rust"
)

# after: check-means
assert tuning.groupby("strategy").size().eq(16).all()
assert tuning.learning_rate.nunique() == 8
assert [means[name].idxmin() for name in pair] == [0.001, 0.002]

# after: check-high
stored = runs.loc[("full", 0)]
assert abs(low / stored.perplexity_low - 1) < 0.01 and abs(high / stored.perplexity_high - 1) < 0.01, (
    "This is the interval in the table of runs, to one percent"
)
assert low < stored.perplexity < high

# after: check-stats
assert abs(library.low - (three.mean() - half)) < 1e-6, "The library's interval has the same low end"
assert round(t, 2) == 4.30 and round(stats.norm.ppf(0.975), 2) == 1.96

# after: check-tl
assert table.loc["full", "improvement_percent"] >= 25
assert table.loc[tl.CONTROL, "perplexity"] > 1.5 * adapted_rows.perplexity.max()
differ = pairs.set_index(["first", "second"]).separated
assert differ["full", "lora"] and not differ["lora", "qlora"]

# after: check-gain
loss = (half.general - start.general) / (end.general - start.general)
price = mixing.rust.iloc[-1] / mixing.rust.iloc[0] - 1
assert gain > 0.7 and loss < 0.25, "Halfway keeps over 70% of the gain and less than a quarter of the forgetting"
assert 0 < price < 0.1, "With half of it general text, Rust perplexity rises by less than a tenth"
if profile.name == "ci":  # other profiles train on more text
    assert 0.75 < gain < 0.9 and 0.05 < loss < 0.15
assert mixing.general.is_monotonic_decreasing
assert mixing.general.iloc[-1] < 0.95 * start.general

# after: check-rows
assert set(table.index) == rows, "Every strategy has its row"
