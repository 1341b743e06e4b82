assert lora.trainable_values == 221_184

assert 192 * 512 == 98_304 and 8 * 512 + 192 * 8 == 5_632
assert [*layer.lora_A["default"].weight.shape] == [8, 512]
assert [*layer.lora_B["default"].weight.shape] == [192, 8]

assert len(change) == 56 and ((needed >= 30) & (needed <= 115)).to_numpy().mean() > 0.7
mlp = needed.index.isin(["gate_proj", "up_proj", "down_proj"])
assert 90 < needed[mlp].median(axis=None) < 120
assert ((needed[~mlp] > 20) & (needed[~mlp] < 80)).to_numpy().mean() > 0.8

assert kept.gain[1] > 0.4
assert kept["size"][1] < 0.12 and 0.7 < kept.gain[8] < 0.8 and kept.gain[64] > 0.92
assert 0.83 < whole < 0.87

assert 0.55 < of_gradient < 0.65 and 0.3 < of_sign < 0.4

assert 0.95 < alike["rank 64"] < 1 and alike["rank 8"] < larger["rank 8"]

assert 0.8 < reached < 0.95 and 0.58 < kept.gain[8] * whole < 2 / 3

of_queries, of_values = 8 * (192 + 192), 8 * (192 + 96)
assert 8 * (of_queries + of_values) == targets.trainable_values.iloc[0]
assert lora.trainable_values == targets.trainable_values.iloc[-1]

assert abs(other - second) > 0.01

assert [alpha * rate for alpha, rate in best.items()] == [0.16] * 3
assert grid.round(2).loc[64, 0.01] == 4.61 and grid.round(2).loc[16, 0.04] == 7.52

assert at_fulls > 1.5 and round(before.perplexity) == 133
quoted = means["lora", 1e-3], means["lora", 1e-2], means["full", 1e-3]
assert [round(value) for value in quoted] == [118, 84, 78]

assert abs(adapter_file / (4 * lora.trainable_values) - 1) < 0.05
assert abs(full_file / (4 * 4_036_800) - 1) < 0.05

assert costs["file on disk"] < 0.07 and costs["values trained"] < 0.06

assert round(12 * weights / 1e9) == 81 and round(2 * large.trainable_values / 1e6) == 40

assert plain_losses[2] < plain_losses[0]

assert round(steps[f"value, {small}"]) == 4 and round(steps[f"value, {real}"]) == -21

# after: check-ours
assert (ours(x) - ours.base(x)).abs().max() > 0.01

# after: check-a
assert not flow.problems and b.norm_2.sum() > 3 * a.norm_2.sum()

# after: check-trained
assert 0.6 < trained[1] < 0.7 and 0.9 < trained[32] < 1
assert recorded.rate.is_monotonic_decreasing
assert list(recorded.rate) == [0.02, 0.02, 0.01, 0.005] and len(runs) == 41
tried = usual.groupby("rank").rate.agg(["min", "max"])
assert all((tried["min"] < recorded.rate) & (recorded.rate < tried["max"]))
at_one_rate = runs.query("rate == 0.01 and alpha == 2 * rank").set_index("targets")
at_one_rate = at_one_rate.loc["all linear layers"].pivot(index="rank", columns="seed", values="nats")
assert all(at_one_rate.loc[32] > at_one_rate.loc[8])

# after: check-merged
assert sum(p.numel() for p in merged.parameters()) == 4_036_800
