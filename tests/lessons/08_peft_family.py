assert trained == 8 * (192 + 96 + 96) == 3_072
assert round(100 * trained / 4_036_800, 2) == 0.08
assert {n.split(".")[-2] for n, _ in load().named_parameters() if n.endswith("bias")} == {"q_proj", "k_proj", "v_proj"}
rates = tl.default_rates()
assert rates["bitfit"] == 0.05 == 50 * rates["full"]
assert rates["ia3"] == rates["vera"] == rates["prefix_tuning"] == 0.1

# The quiz: the biases of the last block alone.
for name, parameter in model.named_parameters():
    parameter.requires_grad_(name.endswith(".bias") and ".layers.7." in name)
assert abs(flops(model) / flops(load()) - 0.43) < 0.03 and abs(share - 2 / 3) < 0.05

assert not any("bias" in name for name, _ in llama.named_parameters()), "A Llama has no bias"

assert after_bitfit < 0.9 * before, "BitFit learns"
assert live.trained.tolist() == [3_072, 6_400, 64 * 28 * 10, 24_576, 24_576]
assert live.trained["IA3"] == 8 * (192 + 96 + 512)
untrained = live.untrained / before
assert untrained["prefix, peft's default"] > 1.4 and abs(untrained["prefix, zeros"] - 1) < 0.05
assert (abs(untrained[["IA3", "VeRA"]] - 1) < 1e-5).all(), "Both start as the base model"
assert (live["after 12 steps"].dropna() < live.untrained.drop("prefix, peft's default")).all()

assert list(worse) == ["lora_fa", "oft", "vera", "ia3", "ln_tuning", "bitfit", "prefix_tuning", "prompt_tuning"]
assert list(better) == ["dora"]
assert (100 * beside.loc["dora"]).round(1).tolist() == [-1.3, -2.4, -0.1]
assert round(student.ppf(1 - 0.05 / 26, 2)) == 16 and round(beside.difference["lora_plus"], 2) == 0.04
assert len(methods) == 13 and record.document.nunique() == 40

compared = tl.recorded_comparison("tiny", "all").table.set_index("strategy")
values = compared.trainable_values
fewest = ["lora_fa", "oft", "vera", "ia3", "ln_tuning", "bitfit"]
assert values[fewest].is_monotonic_decreasing and beside.difference[fewest].is_monotonic_increasing
assert round(values["lora_fa"] / values["lora"], 1) == 0.5
assert values["prefix_tuning"] > values["vera"] and beside.difference["prefix_tuning"] > beside.difference["vera"]
assert round(100 * compared.peak_memory_mb["dora"] / compared.peak_memory_mb["lora"]) == 159
settings = tl.recorded_comparison("tiny", "all").provenance
assert "train_documents: 200" in settings and "test_documents: 40" in settings and "seeds: 3" in settings

# The record of SmolLM2-135M.
folder = tl.DATA / "comparisons/smollm2-135m-instruct"
other = pd.concat([pd.read_csv(folder / part / "documents.csv", comment="#") for part in ("", "peft")])
other = other.drop_duplicates(["strategy", "seed", "document"])
there = beside_lora(other, [name for name in methods if name in set(other.strategy)])
assert not (there.high < 0).any()
assert set(there.index[there.low > 0]) == {"qlora", "ia3", "ln_tuning", "prompt_tuning", "prefix_tuning"}
