assert report.trainable_values == report.total_values == 4_036_800
assert 2 * 151_936 * 896 + 896 == 272_270_208

assert len(batches) == 17

assert losses.tail(5).mean() < losses.head(5).mean()

assert len(ours) == 4

# after: check-math
assert abs(ends["dropout 0.1"] - plain) < 0.25  # which changes little
faster = "last_layers, rate 5e-3"
assert table.training[faster] < 0.3 and ends[faster] > plain
assert plain > untouched and table.training["early stopping"] > 1
gain = math.exp(untouched) - math.exp(stopped)
assert 0 < gain < 0.25 * math.exp(untouched)
assert len(first.history) == 42 and 42 * 1e-3 * 0.1 < 0.005
