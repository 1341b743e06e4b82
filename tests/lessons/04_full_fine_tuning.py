assert factor(0, 20) == 0.5 and factor(2, 20) == 1.0 and factor(19, 20) < 0.01
assert runs.rate.tolist() == grid[:4] and best == 1e-3 and len(batches_of(short, 0)) == 8
assert losses.shape == (4, 3)
spread = (losses.max(axis=1) - losses.min(axis=1)).max()
assert 0.055 < spread < 0.085, "up to 0.07"
assert 0.12 < losses.mean(axis=1)[lower] - losses.mean(axis=1)[best] < 0.16
assert (losses.idxmin() == best).all(), "each seed chooses the same rate"
step_down = losses.mean(axis=1)
assert step_down[lower] - step_down[best] < step_down[higher] - step_down[best]

assert record.learning_rate.nunique() == 8 and record.seed.nunique() == 2

assert abs(train_losses[0] - before) < 0.4 and abs(math.log(254_801) - 12.4) < 0.1
assert table.after["Rust, test"] < table.before["Rust, test"]
assert max(abs(a - b) for a, b in zip(theirs, train_losses[:3], strict=True)) < 1e-4

assert len(few) == 7 and len(repeated) == 35 and len(tl.load_corpus("facts").train) == 25

assert stop == 1
assert abs(change[-1] - 0.58) < 0.05 and abs(low[-1] - 0.54) < 0.05 and abs(high[-1] - 0.62) < 0.05
assert abs(change[0] - 0.07) < 0.02 and low[0] > 0 and (low[2:] > 0).all()
assert np.mean(few_losses[-7:]) < 0.5
