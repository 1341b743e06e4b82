assert with_bias == ["k_proj", "q_proj", "v_proj"]
assert layer.weight.numel() // layer.bias.numel() == 192

assert bitfit.trainable_values == 8 * (192 + 96 + 96) == 3_072
assert round(bitfit.percent, 2) == 0.08

assert len(names) > 100

outputs = 8 * (192 + 96 + 96 + 192 + 512 + 512 + 192)
assert counts["dora"] - counts["lora"] == outputs
assert counts["prompt_tuning"] == 16 * 192
assert counts["prefix_tuning"] == 16 * 8 * 2 * 96
assert counts["ia3"] == 8 * (192 + 96 + 512)
assert counts["ln_tuning"] == (2 * 8 + 1) * 192
assert round(counts["dora"] / counts["prompt_tuning"]) == 77

assert [prompt[0], *prompt[-4:]] == [134.9, 128.2, 127.6, 127.6, 128.7]
assert round(float(means["prefix_tuning", 1e-6]), 1) == 131.3

fewest = ["lora", "lora_fa", "oft", "vera", "ia3", "ln_tuning", "bitfit"]
assert table.trainable_values[fewest].is_monotonic_decreasing
assert table.perplexity[fewest].is_monotonic_increasing
assert table.trainable_values["prefix_tuning"] > table.trainable_values["vera"]
assert list(table.index[-2:]) == ["prefix_tuning", "prompt_tuning"]
windows = compared.table.set_index("strategy").context
assert windows["prompt_tuning"] == windows["prefix_tuning"] == 240
assert windows["lora"] == 256

assert round(100 * table.peak_memory_mb["dora"] / table.peak_memory_mb["lora"]) == 159
more = table.peak_memory_mb["dora"] - table.peak_memory_mb["lora"]
assert abs(more - 4 * 2 * 512 * 1792 * 8 / 1e6) < 1  # MB of Wx and BAx in 8 blocks
assert (general_beside_lora(among_family).high[three] < 0).all()
general_runs = among_family.groupby("strategy").general
assert general_runs.max()[three].max() < general_runs.min()["lora"]
behind = table.perplexity[three] - table.perplexity["lora"]
assert behind.round(1).min() == 1.4 and behind.round(1).max() == 2.6
assert table.general[three].round(1).tolist() == [46.7, 48.0, 48.5]
assert peaks.round().tolist() == [89, 85, 100]
assert round(table.peak_memory_mb["vera"]) == 119
assert round(counts["lora"] / counts["vera"]) == 12
assert round(table.perplexity["lora_fa"] - table.perplexity["lora"]) == 7

assert 0.66 < costs["BitFit: all biases"] < 0.74, "BitFit needs about 70%"
assert 0.38 < costs["biases of the last block"] < 0.46, "With the last block only, about 42%"

# after: check-losses
assert apart < 1e-6, "All three losses agree to 1e-6"
assert sum(p.numel() for p in trained) == 3_072 and losses[2] < losses[0]

# after: check-above
assert 0.3 < costs["forward pass alone"] < 0.4
head = base.model.get_output_embeddings().weight.numel()
assert [round(10 * part / 4_036_800) for part in (head, block)] == [2, 1]
assert round(100 * above) == 9

# after: check-after
assert best["full"] < best["lora"] < best["bitfit"]
assert 221_184 / bitfit.trainable_values == 72  # LoRA of rank 8, counted below
assert [round(gain[name]) for name in ("bitfit", "lora")] == [22, 49]
assert [round(float(value), 1) for value in said] == [133.0, 111.1, 84.2]
assert round(((nats[0] - nats[1]) / (nats[0] - nats[2])).item(), 2) == 0.39
assert after.perplexity < 0.9 * before.perplexity and rates["bitfit"] == 0.05
assert abs(after.perplexity / best["bitfit"] - 1) < 0.05

# after: check-above-2
assert best["lora_fa"] / best["lora_plus"] > 30
at_loras_rate = rates[rates.learning_rate == best["lora"]].groupby("strategy")
at_loras_rate = at_loras_rate.validation_perplexity.mean()
assert at_loras_rate["lora_plus"] > 3000
assert (best["rslora"], best["pissa"], best["lora_plus"]) == (0.00316, 0.00316, 0.001)
assert [round(higher.iloc[0]) for higher in above] == [139, 177]

# after: check-among
assert (len(among), among.separated.sum()) == (15, 2), (
    "But of the 15 pairs among LoRA and its five nearest variants, only 2 are"
)
spread = table.perplexity[like_lora]
assert spread.idxmin() == "dora" and spread.idxmax() == "lora_plus"
assert 1.05 < spread.max() / spread.min() < 1.06
decided = among[among.separated][["first", "second"]].to_numpy().tolist()
assert {frozenset(pair) for pair in decided} == {
    frozenset({"lora_plus", "lora"}),
    frozenset({"lora_plus", "dora"}),
}

# after: check-b
assert all(torch.allclose(h, W @ x + b, atol=1e-5) for h in by_hand.values()), (
    "All five start as the base layer, Wx + b"
)

# after: check-apart
assert len(losses) == 4 and apart < 1e-6, "Four steps, four equal losses"
