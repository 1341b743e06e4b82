from itertools import combinations

from course.lesson17.checks import _separated
from tlkit.evidence.audit import seeds_needed as library

assert len(board) == 63 and (board.seed == 0).all() and (board.steps == 5000).all()
right = np.rint(n * p).astype(int)
assert np.allclose(right, n * p, atol=1e-6), "Every score is a whole number of 1,319 questions"
assert board.test_accuracy.is_monotonic_decreasing and (100 * p).round(1)[[0, 9]].tolist() == [52.6, 49.1]
assert (table.score[1:10] >= table.low.iloc[0]).tolist() == 6 * [True] + 3 * [False]

assert not intervals(pair, n, 1).separated.any() and not intervals(scores.head(10), n, 1).separated.any()
assert len(first_ten) == 45 and (every.separated.sum(), len(every), alone) == (1162, 1953, 1522)
assert not against.separated.iloc[:24].any() and against.separated.iloc[24:].all() and len(against) == 62

assert right[[0, 9]].tolist() == [694, 648]
low = cases["low (m = 1)"]
assert (low > 0).tolist() == [False] + 3 * [True] and (cases["low (m = 1953)"] > 0).tolist() == 3 * [False] + [True]
assert abs(low[0] - intervals(pair, n, 1).low.iloc[0]) < 0.02
differences = np.repeat([1, -1, 0], [253, 207, n - 460])
assert abs(low[1] - 100 * (46 / n - 1.96 * differences.std() / n**0.5)) < 1e-3

assert (june[["seed", "peft", "torch", "transformers"]].nunique() == 1).all()
assert ((same == 0).sum(), len(same), round(same.std() / 2**0.5, 1), round(same.std(), 2)) == (4, 25, 0.4, 0.58)
assert newer.count().tolist() == [26, 38, 12] and fell.tolist() == [13, 36, 3]
assert newer.mean().round(2).tolist() == [0.09, -1.65, 0.25]
assert runs.groupby("month").gsm8k.first()[["2025-06", "2026-01", "2026-07"]].nunique() == 3
assert (board.groupby(["peft", "torch", "transformers"]).size().tolist(), board.transformers[20]) == ([62, 1], "5.15.0")

assert (board.learning_rate == 1e-4).sum() == 37
assert board.set_index("name").learning_rate[["ia3-lr_0.001", "ia3-default"]].tolist() == [1e-3, 1e-4]
row = every.loc["ia3-lr_0.001", "ia3-default"]
assert round(row.difference, 1) == 8.7 and row.difference > 100 * (p[0] - p[24]) and row.separated

stays, best = front.set_index("name")["stays"], scores.index[0]
assert stays["miss-default"] == 1 and front.name[front.published].iloc[-1] == best
alone = on_front(accuracy + np.sqrt(accuracy * (1 - accuracy) / n) * own).mean(axis=0)  # rho = 0
place = stays.index.get_loc(best)
assert (round(stays[best], 2), round(alone[place], 2)) == (0.62, 0.45)
assert 6 <= ((drawn[:, :place] >= drawn[:, [place]]).mean(axis=0) > 0.01).sum() <= 8, "several cheaper rows"

assert plan.round().astype(int)["rho = 0"].tolist() == [1297, 2580, 39244] and round(39244 / n) == 30
assert [seeds_needed(s) for s in (0.4, 1, 2)] == [library(1, s) for s in (0.4, 1, 2)] == [4, 17, 64]
assert round(factor, 1) == 2.8 and round(stats.norm.sf(1.96 - factor), 2) == 0.8

assert (audit.pairs.separated.sum(), audit.table["rank"].iloc[0], tests.shape) == (114, "tied 1-18", (96, 27))
splits = [np.bincount(tests[a] - tests[b] + 1, minlength=3)[[0, 2]] for a, b in combinations(tests, 2)]
exact = sum(stats.binomtest(b, b + c).pvalue < 0.05 / 351 for b, c in splits if b + c)  # McNemar's
assert (len(_separated(tests)), exact) == (136, 122)
small = pd.DataFrame({"name": ["a", "b"], "share": [4 / 500, 0]})
assert not tl.audit(small, "share", 500).pairs.separated.any()
audit = tl.audit(board, "test_accuracy", n, name="name")
assert (every.separated.to_numpy() == audit.pairs.separated.to_numpy()).all()
