assert not comparison.failures and 3 * len(seven) + 1 == 22

assert (differences > 0).mean() > 0.75

assert round(100 * 0.05 / p.shape[1], 2) == 0.24
assert np.allclose(np.minimum(holm(pairs.p.to_numpy()), 1), pairs.p_adjusted)

assert (forgotten > 0).all() and forgotten.idxmax() == "freeze_lower"

assert rates["full"] == 1e-3 and rates["freeze_lower"] == 2e-3
general_means = tuning.groupby(["strategy", "learning_rate"]).general_perplexity.mean()
assert sorted(moved, key=moved.get) == sorted(moved, key=general_means.get)

is_full = sizes.strategy == "full"
worst_full = sizes[is_full].groupby("passages").validation_perplexity.max()
best_other = sizes[~is_full].groupby("passages").validation_perplexity.min()
assert (worst_full < best_other).all()
assert (means.loc[503] < untouched / 2).all()

assert (forgets[tiny] - forgets[real]).idxmax() == "freeze_lower"
times = changes.loc["time"].verdict
assert set(times[times == "opposite"].index) == {"lora", "qlora"}

assert (by_size.last_layers > by_size.full).all()
by_label = mixing.set_index("label").general
assert by_label["0.1"] > start.general > by_label["0.25"]
assert rehearsed.general.round().tolist()[:2] == [27, 21]
assert rehearsed.Rust[0.1] / rehearsed.Rust[0] < 1.03

may, may_not = " ".join(said.may), " ".join(said.may_not)
assert "longer training" in may_not and "another machine" in may_not

# after: check-means
assert rates["bitfit"] == max(rates[name] for name in seven)
assert tuning.groupby("strategy").size().eq(16).all()
assert tuning.learning_rate.nunique() == 8
assert [rates[name] for name in shown] == sorted(rates[name] for name in shown)
assert [means[name].idxmin() for name in pair] == [0.001, 0.002]

# after: check-high
assert low < stored.perplexity < high

# after: check-stats
assert round(t, 2) == 4.30 and round(stats.norm.ppf(0.975), 2) == 1.96

# after: check-tl
assert table.loc["full", "improvement_percent"] >= 25
assert table.loc[tl.CONTROL, "perplexity"] > 1.5 * adapted_rows.perplexity.max()
differ = pairs.set_index(["first", "second"]).separated
assert differ["full", "lora"] and not differ["lora", "qlora"]
assert rates["full"] == min(rates.values())

# after: check-gain
if profile.name == "ci":  # other profiles train on more text
    assert 0.75 < gain < 0.9 and 0.05 < loss < 0.15
assert mixing.general.is_monotonic_decreasing
assert mixing.general.iloc[-1] < 0.95 * start.general

# after: check-name
tried = tl.recorded("rates", name).set_index(["strategy", "learning_rate"])[measured]
assert tried.loc[("lora", 1e-6)].round().tolist() == [84, 22]
assert often.lora.round(1).tolist() == [44.5, 39.7, 39.1, 76.1]
assert round(100 * (kept.lora[2] / kept.lora[1] - 1)) == 19
assert often.full[4].round() == 122
