import re

assert losses.notna().all().all() and (losses["plain mean"] - losses["one process"]).min() > 0.05 and len(losses) == 3
untrained, plain, one, saved = after.values()
assert abs(one - saved) < 1e-4  # one model, but for rounding
assert abs(untrained - one - 0.16) < 0.006 > abs(untrained - plain - 0.13)  # as two digits are rounded

_, now, twice = (speed[column] for column in speed)  # with 32,768 and with 65,536 tokens
assert (now >= 4).tolist() == [True, False, False, False] and now["100 Gbit/s"] < 1
assert (twice >= 4).tolist() == [True, True, True, False]
in_mb = re.findall(r"holds ([\d.]+) MB", ended.stdout)  # 12 bytes a parameter; the steps of AdamW are whole
assert in_mb == [f"{12 * whole.numel() / cards / 1e6:.1f}" for cards in (1, 2)]
assert 2 * 7 / 8 * 4 * 10 == 70 and 2 * 7 / 8 * 4 * 1.5 == 10.5  # MB with LoRA, GB without it
assert abs(400 / 989 - 0.4) < 0.01  # of an H100's bf16

total = seven.loc["GB on each card"]
assert total["DDP"] > 80 > total["ZeRO-1"] and total.round().tolist() == [108, 61, 37, 13]
assert abs(seven["DDP"]["optimizer state"] / total["DDP"] - 0.5) < 1e-9
assert [round(100 * 3 / (m + 3)) for m in (4, 16)] == [43, 16]

# after: check-shares
parts = [labels[k : k + 4, 1:].ne(-100).sum().item() for k in range(0, 24, 4)]  # DDP deals them in turn
assert parts == 3 * tokens == 3 * [156, 60] and 156 / 60 == 2.6 and float(off) > 0.5

# after: check-ring
assert whole.nbytes == 16_147_200 and sent == 24_220_800 == 2 * 3 / 4 * whole.nbytes
assert all(torch.equal(each, sums[0]) for each in sums)
