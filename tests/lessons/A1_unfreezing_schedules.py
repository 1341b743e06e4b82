assert factors[0] == 1 and abs(factors[9] - 0.1) < 1e-12
assert [phase * 17 // 4 for phase in range(4)] == [0, 4, 8, 12]

close = pairs.loc[("full", "discriminative_rates")]
assert [round(close.low, 1), round(close.high, 1)] == [-0.5, 1.2]
assert table.perplexity.round(1).tolist() == [52.7, 56.8, 52.4]
assert table.general.round().tolist() == [64, 58, 53] and 2.6**9 > 5000
assert profile.name != "ci" or steps == 17

assert points["full", "0.001"] == [77.5, 53.2]
assert points["discriminative_rates", "0.00316"] == [77.3, 47.8]
assert points["gradual_unfreezing", "0.00316"] == [77.6, 48.5]
assert points["full", "0.0005"] == [86.6, 43.7]
assert points["discriminative_rates", "0.00178"] == [84.7, 43.1]
assert set(table.peak_memory_mb.round()) == {136}
late = sum(cosine[3 * 55 // 4 :]) / sum(cosine)
assert 0.07 < 3.16 * late < 0.1 and round(0.1 * 3.16, 1) == 0.3

first_reading = (sum(without[0]) + sum(map(sum, with_cache[1:]))) / 4
assert round(first_reading) == 72
assert [round(sum(costs)) for costs in with_cache] == [32, 53, 84, 100]

means = [sum(map(sum, costs)) / 4 for costs in (without, with_cache)]
assert [round(mean) for mean in means] == [77, 67], "On average 77% without the cache, and 67% with a filled one"

assert computed == 32, "32 pieces of text are computed, in the first phase"

assert reused == 64, "64 more come from the cache, in the second and the third"

# after: check-means
at_rate_of_full = means.xs(0.001, level="learning_rate")
worse = (at_rate_of_full - means.groupby("strategy").min())[list(names[1:])]
assert at_rate_of_full[list(names[1:])].round(1).tolist() == [90.9, 94.0]
assert worse.round().tolist() == [13, 17]
