assert len(board) == 63 and (board.seed == 0).all() and (board.steps == 5000).all()
right = board.test_accuracy * n
assert np.allclose(right, right.round(), atol=1e-6), "Every score is a whole number of 1,319 questions"
assert board.test_accuracy.is_monotonic_decreasing and (100 * p).round(1)[[0, 9]].tolist() == [52.6, 49.1]

from scipy.stats import binomtest

assert round(table.high.iloc[0] - table.low.iloc[0], 1) == 5.4 and round(100 * (p[0] - p[9]), 1) == 3.5
for place in (0, 59, 62):
    interval = binomtest(round(right[place]), n).proportion_ci(method="wilson")
    assert np.allclose(table[["low", "high"]].iloc[place], [100 * interval.low, 100 * interval.high], atol=1e-9)
assert (table.score[1:10] >= table.low.iloc[0]).sum() == 6

assert not intervals(ends, n, 1).separated.any() and not intervals(scores.head(10), n, 1).separated.any()
assert len(first_ten) == 45 and (every.separated.sum(), len(every), alone) == (1162, 1953, 1522)
assert not against.separated.iloc[:24].any() and against.separated.iloc[24:].all() and len(against) == 62

assert right.round()[[0, 9]].tolist() == [694, 648]
assert [round(row[1], 2) for row in rows] == [0, 0.3, 0.73, 0.85]
assert [row[2] > 0 for row in rows] == [False] + 3 * [True] and [row[3] > 0 for row in rows] == 3 * [False] + [True]
assert abs(rows[0][2] - intervals(ends, n, 1).low.iloc[0]) < 0.02 and round(z_all, 2) == 4.21

assert (june[["seed", "peft", "torch", "transformers"]].nunique() == 1).all()
assert ((same == 0).sum(), len(same), round(same.abs().max(), 1), round(one_run, 1)) == (4, 25, 1.7, 0.4)

first_places = {}
for deviation in (0.4, 1, 2):
    noise = np.random.default_rng(0).normal(0, 2**0.5 * deviation, (2000, len(p)))
    first_places[deviation] = ((100 * p + noise).argmax(axis=1) == 0).mean()
assert first_places[0.4] > 0.85 and 0.4 < first_places[1] < 0.5 and first_places[2] < 0.3

by_name = board.set_index("name")
assert default.sum() == 37 and default[:10].sum() == 7
assert by_name.learning_rate[list(chosen[0])].tolist() == [1e-3, 1e-4]
difference = every.difference[chosen].iloc[0]
assert round(difference, 1) == 8.7 and difference > 100 * (p[0] - p[24]) and every.separated[chosen].all()

shares = front.set_index("name").share
published = front[front.published].name.tolist()
between = "beft-target-v_proj miss-mini miss-default shira-lr_0.0003 lora-rank64-rslora"
assert published == ["tinylora-default", *between.split(), scores.index[0]]
assert shares["miss-default"] > 0.999 and shares["miss-mini"] > 0.99 and 0.4 < shares[scores.index[0]] < 0.5
assert (board.peak_memory_bytes < board.peak_memory_bytes[0]).sum() == 59
assert (100 * scores[published[:2]]).round().tolist() == [1, 32]
cheap = front.set_index("name").loc[["miss-default", scores.index[0]]]
assert cheap.GB.round(1).tolist() == [20.3, 25.6] and round(cheap.accuracy.iloc[0], 1) == 48.7

assert plan.round().astype(int)["rho = 0"].tolist() == [1297, 9811, 39244] and round(39244 / n) == 30
from tlkit.evidence.audit import seeds_needed as library

assert [seeds_needed(s) for s in (0.4, 1, 2)] == [library(1, s) for s in (0.4, 1, 2)] == [4, 17, 64]
assert round(factor, 1) == 2.8
assert round(stats.norm.sf(1.96 - factor), 2) == 0.8

assert audit.pairs.separated.sum() == 5 and len(audit.pairs) == 15
assert (audit.pairs.second[audit.pairs.separated] == "prompt").all() and audit.table["rank"].iloc[4] == "tied 1-5"
audit = tl.audit(board, "test_accuracy", n, name="name")
hand, theirs = every.separated.to_numpy(), audit.pairs.separated.to_numpy()
assert hand.sum() == (hand & theirs).sum() == theirs.sum() == 1162
assert np.allclose(100 * audit.table[["low", "high"]], table[["low", "high"]], atol=1e-9)
assert audit.table["rank"].iloc[0] == "tied 1-25"
assert audit.plan(0.01).needed.tolist()[:2] == [39242, 19621]
assert thirds.shape == (21, 21) and thirds.sum().sum() == 21 * 21
