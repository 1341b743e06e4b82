assert (board.steps == 5000).all() and board.test_accuracy.is_monotonic_decreasing

assert round(100 * error[0], 2) == 1.37 and round(196 * error[0], 1) == 2.7
assert round(2 * 1.96 * error[0] / (p[0] - p[9]), 1) == 1.5

assert told_apart.sum() == 1194 and (p_values < 0.05).sum() == 1522

assert round(ten.pairs.p.min(), 2) == 0.07
assert round(100 * error_of_pair[8], 1) == 1.9 and round(100 * difference[8], 1) == 3.5

june = runs[runs.created < "2025-07"]
assert (june[["seed", "peft", "torch", "transformers"]].nunique() == 1).all()
assert june.peft.iloc[0] == "0.15.2.dev0"
assert round(100 * one_run, 1) == 0.4 and round(100 * largest, 1) == 1.7
assert round(100 * (newer.after - newer.before).mean(), 1) == -1.6

shared = (board.learning_rate == 1e-4).sum(), board.learning_rate.nunique()
assert shared == (37, 12) and rows.separated["ia3-lr_0.001", "ia3-default"]
of_rslora = rows.loc["lora-rank64-rslora", "lora-rank64"]
assert round(of_rslora.p, 3) == 0.043 and round(of_rslora.p_adjusted, 2) == 1

assert (board.forgetting[1:] < board.forgetting[0]).sum() == 52
assert round(100 * shares.share[0]) == 47

assert (fronts > 1).sum() == 6
assert (100 * shown.accuracy).round(1).tolist() == [48.7, 45.5, 52.6]
assert shown.memory.round(1).tolist()[::2] == [20.3, 25.6]
assert shown.megabytes.round(1).tolist()[1:] == [2.5, 835.1]
assert shown.share.iloc[0] == 1

right = board.test_accuracy * questions
assert np.allclose(right, right.round(), atol=1e-6), "Every score is a whole number of 1,319 questions"
assert len(board) == 63 and (board.seed == 0).all(), "All 63 experiments have seed 0"

half = 1.96 * error[:50]  # scores far from 0
table = audit.table.head(50)
assert np.allclose(table.low, p[:50] - half, atol=0.001) and np.allclose(table.high, p[:50] + half, atol=0.001), (
    "Wilson's intervals agree with the formula to a tenth of a point, down to place 50"
)

assert np.array_equal(told_apart, audit.pairs.separated) and np.allclose(audit.pairs.p, p_values, atol=1e-12), (
    "tl.audit finds the same pairs, with the same p values"
)

assert (ten.pairs.p > 0.05).all(), "None is, even without the correction"

assert (audit.separated, audit.undecided, audit.out_of_reach) == (1194, 647, 112), (
    "112 of the 1,953 pairs are out of reach of these questions"
)

assert (len(change), (change == 0).sum()) == (25, 4), "Only 4 of 25 scores are the same in the second run"

assert (
    not rows.separated["lora-rank64-rslora", "lora-rank64"] and not rows.separated["lora-rank32", "lora-rank32-dora"]
), "Of the three pairs, only the first is told apart"

assert np.allclose(shares.share.to_numpy()[by_cost], on_front.mean(axis=0)), "The library counts the same shares"
assert 0.40 < shares.share[0] < 0.55, "The most accurate row is on this front in 40 to 55%"

separated_at = {
    rho: tl.audit(board.head(10), "test_accuracy", questions, correlation=rho) for rho in (0, 0.3, 0.5, 0.7)
}
assert [(rho, (one.pairs.p < 0.05).sum(), one.separated) for rho, one in separated_at.items()] == [
    (0, 0, 0),
    (0.3, 1, 0),
    (0.5, 3, 0),
    (0.7, 7, 1),
]
assert 0.2 < stays < 0.26  # with the largest deviation

# after: check-np
assert np.allclose(audit.table.error, error)

# after: check-first
assert audit.table["rank"][0] == "tied 1-25" and first.separated.iloc[24:].all()
assert not first.separated.iloc[:24].any()

# after: check-np-2
from tlkit.evidence.audit import items_needed, seeds_needed

assert items_needed(0.01, 0.5) == int(np.ceil(by_hand)) and 39_000 < by_hand < 39_500

# after: check-tl
detectable = [round(100 * value, 1) for value in audit.detectable.values()]
assert detectable == [5.5, 9.8] and seeds_needed(0.01, 0.01) == 17
assert [round(value) for value in (minutes, *hours)] == [19, 11, 24]
names = audit.table.name
thirds = audit.pairs["first"].isin(names[:21]) & audit.pairs["second"].isin(names[-21:])
assert thirds.sum() == 21 * 21 and audit.pairs.separated[thirds].all()
