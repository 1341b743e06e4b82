from course.lesson17.checks import _separated
from tlkit.evidence.audit import seeds_needed as library

assert len(board) == 62 and (board.seed == 0).all() and (board.steps == 5000).all()
right = np.rint(n * p).astype(int)
assert np.allclose(right, n * p, atol=1e-6), "Every score is a whole number of 1,319 questions"
assert board.test_accuracy.is_monotonic_decreasing and (100 * p).round(1)[[0, 9]].tolist() == [52.6, 49.1]
assert (table.score[1:10] >= table.low.iloc[0]).tolist() == 6 * [True] + 3 * [False]

assert not intervals(pair, n, 1).separated.any() and not intervals(scores.head(10), n, 1).separated.any()
assert len(first_ten) == 45 and (every.separated.sum(), len(every)) == (1134, 1891)
assert not against.separated.iloc[:23].any() and against.separated.iloc[23:].all() and len(against) == 61

low, corrected = cases["low (m = 1)"], cases["low (m = 1891)"]
assert (low > 0).tolist() == [False] + 3 * [True] and (corrected > 0).tolist() == 3 * [False] + [True]
assert abs(low[0] - intervals(pair, n, 1).low.iloc[0]) < 1e-9

assert (june[["seed", "peft", "torch", "transformers"]].nunique() == 1).all()
assert ((same == 0).sum(), len(same), round(same.std() / 2**0.5, 1), round(same.std(), 2)) == (4, 25, 0.4, 0.58)
assert (len(newer), (newer < 0).sum(), round(newer.mean(), 2)) == (38, 36, -1.65)
april = (monthly["2026-07"] - monthly["2026-04"]).dropna()
assert len(april) == 12 and april.mean() > 0 and not set(april.index) & set(newer.index)
assert runs[runs.month.isin(["2026-01", "2026-04"])].torch.nunique() == 1
assert (versions.loc["2026-01"] != versions.loc["2026-07"]).all() and (runs.seed == 0).all()
assert (runs.groupby("month")[list(versions)].nunique() == 1).all(axis=None)
assert board.groupby(["peft", "torch", "transformers"]).size().tolist() == [62]

assert (board.learning_rate == 1e-4).sum() == 37
assert board.set_index("name").learning_rate[["ia3-lr_0.001", "ia3-default"]].tolist() == [1e-3, 1e-4]
row = every.loc["ia3-lr_0.001", "ia3-default"]
assert round(row.difference, 1) == 8.7 and row.difference > 100 * (p[0] - p[23]) and row.separated

stays, best = front.set_index("name")["stays"], scores.index[0]
assert stays["miss-default"] == 1 and front.name[front.published].iloc[-1] == best
place = stays.index.get_loc(best)
assert round(stays[best], 2) == 0.64
assert 6 <= ((drawn[:, :place] >= drawn[:, [place]]).mean(axis=0) > 0.01).sum() <= 8, "several cheaper rows"

assert plan.round().astype(int)["rho = 0"].tolist() == [1297, 2580, 39244] and round(39244 / n) == 30
assert [seeds_needed(s) for s in (0.4, 1, 2)] == [library(1, s) for s in (0.4, 1, 2)] == [4, 17, 64]
assert round(factor, 1) == 2.8 and round(stats.norm.sf(1.96 - factor), 2) == 0.8

assert (audit.pairs.separated.sum(), len(_separated(tests)), tests.shape) == (114, 122, (96, 27))
assert round(long.corr(short), 2) == 0.37 and round(100 * (long - short).mean(), 1) == 19.8
assert np.round([alone, paired], 1).tolist() == [13.4, 10.7]
e = 196 * long.sem(ddof=0), 196 * short.sem(ddof=0)
assert np.isclose(alone**2 - 2 * long.corr(short) * e[0] * e[1], paired**2)  # the lesson's formula
spread = totals.groupby(setting).accuracy.agg(["min", "max"])
assert round(100 * (spread["max"] - spread["min"]).max(), 1) == 8.3 and (setting.value_counts() == 3).all()
longest = [100 * totals.accuracy[setting == name] for name in ("lora-285-288-0.001", "full-285-288-0.0001")]
assert np.round(stats.ttest_ind(*longest).confidence_interval(), 1).tolist() == [-1.3, 9.6]
assert round(np.hypot(*(x.std() for x in longest)) / 2**0.5, 1) == 2.4 and seeds_needed(2.4, 4.2) == 7
small = pd.DataFrame({"name": ["a", "b"], "share": [4 / 500, 0]})
assert not tl.audit(small, "share", 500).pairs.separated.any()
audit = tl.audit(board, "test_accuracy", n, name="name")
assert (every.separated.to_numpy() == audit.pairs.separated.to_numpy()).all()
