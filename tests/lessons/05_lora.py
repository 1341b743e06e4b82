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

of_gradient, of_sign = share.values()

assert 0.55 < of_gradient < 0.65 and 0.3 < of_sign < 0.4

assert 0.95 < alike["rank 64"] < 1 and alike["rank 8"] < larger["rank 8"]

assert 0.8 < reached < 0.95 and 0.58 < kept.gain[8] * whole < 2 / 3

of_queries, of_values = 8 * (192 + 192), 8 * (192 + 96)
assert 8 * (of_queries + of_values) == targets.trainable_values.iloc[0]
assert lora.trainable_values == targets.trainable_values.iloc[-1]

first, second, third, other = map(float, losses.values())

assert abs(other - second) > 0.01

best = grid.idxmin(axis="columns")

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

assert round(lora.percent) == 5, "LoRA trains about 5% of the values"

middle = needed.median(axis=None)
assert 50 < middle < 70, "The typical matrix (the median) needs about 60 pieces"
assert needed.min(axis=None) > 8, "No matrix gets by with 8"

assert kept.gain[8] > 2 / 3, "Rank 8 keeps at least two thirds of the gain"
assert of_gradient > 1.5 * of_sign, "The gradient is closer to low rank than its sign"

assert min(alike["rank 1"], larger["rank 1"]) > 0.6, "In both models rank 1 keeps more than 60% when counted so"

assert targets.nats.idxmin() == "all linear layers", "In this record, adapters at all linear layers gain most"
assert max(abs(first - second), abs(second - third)) < 1e-4, (
    "Where alpha times learning rate is equal, so is the first step"
)
assert best.is_monotonic_decreasing and best.is_unique, "With each larger alpha the best rate is smaller"

assert at_own < 1.1, "At its own rate LoRA is within 10% of full here"

assert table.Rust.idxmin() == "adapter rust" and table.Python["adapter rust"] > table.Python["no adapter"], (
    "The Rust adapter is best on Rust, but on Python it is worse than no adapter"
)
untouched = tl.perplexity(base.model, base.tokenizer, texts["Python"]).perplexity
assert abs(table.Python["no adapter"] / untouched - 1) < 1e-6, "Switched off, the base model is back"

assert 0.7 < costs["arithmetic of a step"] < 0.78 and 0.7 < costs["peak memory of a step"] < 0.78, (
    "About three quarters of the arithmetic and of the memory are left"
)

apart = max(abs(a - b) for a, b in zip(plain_losses, ours, strict=True))
assert apart < 1e-6, "All three losses agree to 1e-6"

# after: check-ours
assert (ours(x) - ours.base(x)).abs().max() > 0.01

# after: check-a
assert abs(same.nats_per_token - expected.nats_per_token) < 1e-6, "Before training, LoRA changes nothing"
assert (b.norm_1 > 0).all() and (a.norm_1 == 0).all() and (a.norm_2 > 0).all(), (
    "In step 1 every B has a gradient and no A has one; in step 2 every A has one, too"
)
assert not flow.problems and b.norm_2.sum() > 3 * a.norm_2.sum()

# after: check-trained
assert all(trained[rank] > cut[rank] for rank in (1, 2, 8)), "At ranks 1, 2 and 8, training beats cutting"
assert abs(after_lora.nats_per_token / recorded.nats[8] - 1) < 0.02, (
    "Today's run at rank 8 agrees with the recorded one to 2%"
)
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
