assert report.trainable_values == report.total_values == 4_036_800
assert 2 * 151_936 * 896 + 896 == 272_270_208
assert abs(moved[0] + 1e-3) < 1e-6 and abs(moved[1] - 1e-3) < 1e-6

assert len(batches) == 17
assert abs(losses.iloc[0] - before.nats_per_token) < 0.3
assert losses.tail(5).mean() < losses.head(5).mean()
assert tl.first_loss_warning(4.6, math.log(254_801))

assert len(ours) == 4
assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) < 1e-4

assert first.history.loss.tail(3).mean() < 0.3
assert curve.idxmin() < len(curve) / 2
assert recited > len(facts.train) / 2

plain, ends = table.validation["6 epochs"], table.validation
low = ["2 epochs", "rate 2e-4", "last_layers"]  # they have not learned the sentences either
assert (ends[low] < plain - 0.3).all() and (table.training[low] > 1).all()
assert abs(ends["dropout 0.1"] - plain) < 0.25  # which changes little
faster = "last_layers, rate 5e-3"
assert table.training[faster] < 0.3 and ends[faster] > plain
assert plain > untouched and table.training["early stopping"] > 1
gain = math.exp(untouched) - math.exp(stopped)
assert 0 < gain < 0.25 * math.exp(untouched)
assert len(first.history) == 42 and 42 * 1e-3 * 0.1 < 0.005
