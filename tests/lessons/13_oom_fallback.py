assert on_8.drop("full").all() and 8.3 < fits.set_index("strategy").gib["full"] < 8.5
assert round(6_738_415_616 * 4 / 2**30) == 25
assert round(494_032_768 * 16 / 2**30, 1) == 7.4

assert (in_all, trained) == (630_167_424, 165_960_320)
assert round(rust_run / 1e9, 1) == 4.5

assert steps[0].estimate > 13.6 * 2**30 and first.name == "optimizer on the host"

# after: check-message
assert message.startswith("CUDA out of memory. Tried to allo")

# after: check-tl
assert set(tl.LADDER) == every_rung - {"as planned"} and lower.micro_batch_size == 2

# after: check-log
assert log.table.rung.iloc[-1] == "optimizer on the host"
values = sum(p.numel() for p in walked.parameters())
assert round(8 * values / 2**20) == 31 and round(16 * values / 2**20) == 62

# after: check-result
losses_differ = (result.history.loss - reference.history.loss).abs().max()
assert losses_differ < 1e-4
