assert sum(-s for s in (-6, -8, -8, -6, -6)) == 34 and sum(s["total_size"] for s in example) >> 20 == 72

counted = [int((labels[rows] != -100).sum()) for rows in (slice(0, 2), slice(2, 4))]
assert counted == [126, 28] and counted[0] / counted[1] == 4.5
assert right < 1e-4 and wrong > 0.5
assert kept_with < kept / 10
assert watched[0]() is None, "After the except block the activations are gone"

failed, nothing = "forward or backward", ""
assert log["failed in"].tolist() == [nothing, failed, failed, nothing, nothing]
assert log["step"].tolist() == [1, 2, 2, 2, 3] and log["rows at once"].tolist() == [4, 4, 2, 1, 1]
parameters = sum(p.numel() for p in small.parameters())
assert small_card.peak <= 48 * 2**20 < 16 * parameters and difference < 1e-5 and round(8 * parameters / 2**20) == 31
assert small_log["failed in"].tolist() == [failed, failed, "optimizer step", nothing, nothing, nothing]
assert small_log["optimizer"].tolist() == ["AdamW"] * 3 + ["HostAdamW"] * 3
try:
    train(load(), tl.virtual_device(memory="36MiB"))
except torch.OutOfMemoryError as error:
    failed = str(error)
assert "36.00 MiB" in failed, "with one row there is nothing left to halve, and CUDA's message is raised"
assert HostAdamW([torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))]).copies[0].dtype == torch.float32
assert tried.groupby("rows", sort=False).max()["last step begun"].to_dict() == {4: 2, 3: 2, 2: 6}
assert table.GiB.round().tolist() == [113, 25, 13, 4]
left = table["left of 23.2 GiB"].tolist()
assert left[1] < 0 and 10 <= left[2] < 10.5 and 18.5 < left[3] < 19.5
assert round(32 * 2048 * 4096 * 2 / 2**30, 1) == 0.5 and round(2048 * 32_000 * 4 / 2**30, 2) == 0.24
