assert sum(-s for s in (-6, -8, -8, -6, -6)) == 34 and sum(s["total_size"] for s in example) >> 20 == 72

counted = [int((labels[rows] != -100).sum()) for rows in (slice(0, 2), slice(2, 4))]
assert counted == [126, 28] and counted[0] / counted[1] == 4.5
assert right < 1e-4 and wrong > 0.5
assert kept_with < kept / 10
assert apart(*updated) < 1e-6, "AdamW on the host makes the same weights"
assert watched[0]() is None, "After the except block the activations are gone"

assert log["forward and backward"].tolist() == ["done", "out of memory", "out of memory", "done", "done"]
assert log["step"].tolist() == [1, 2, 2, 2, 3] and log["rows at once"].tolist() == [4, 4, 2, 1, 1]
assert apart(flat(recovered.parameters()), flat(undisturbed.parameters())) < 1e-5

parameters = sum(p.numel() for p in walked.parameters())
assert round(8 * parameters / 2**20) == 31
failed = attempts.table.failed_in.tolist()
assert failed == ["forward pass", "forward pass", "optimizer step", "optimizer step", ""]
assert attempts.table.rung.iloc[-1] == "optimizer on the host" and card.peak <= 48 * 2**20
assert difference < 1e-5 and result.history.tokens.eq(4 * 63).all()

assert tried[0] == (4, 1) and tried[-1] == (2, 6) and [step for _, step in tried].count(1) >= 2

assert weights == 6_738_415_616 and adapter == 2 * 19_988_480
assert table.GiB.round().tolist() == [100, 38, 13, 4]
left = table["left of 23.2 GiB"].tolist()
assert left[1] < 0 and 10 <= left[2] < 10.5 and 18.5 < left[3] < 19.5
assert round(32 * 2048 * 4096 * 2 / 2**30, 1) == 0.5 and round(2048 * 32_000 * 4 / 2**30, 2) == 0.24
