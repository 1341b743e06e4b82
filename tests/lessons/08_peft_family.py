from tlkit.evidence.learning_rates import default_rates

assert biases == 8 * (192 + 96 + 96) == 3_072
assert round(100 * biases / 4_036_800, 2) == 0.08
assert {n.split(".")[-2] for n, _ in new_model().named_parameters() if n.endswith("bias")} == {
    "q_proj",
    "k_proj",
    "v_proj",
}
rates = default_rates()
assert rates["bitfit"] == 0.05 == 50 * rates["full"]
assert rates["ia3"] == rates["vera"] == 0.1 and rates["lora"] == rates["dora"] == 0.01
assert round(rates["rslora"], 3) == 0.003

# The quiz: the biases of the last block alone.
for name, parameter in model.named_parameters():
    parameter.requires_grad_(name.endswith(".bias") and ".layers.7." in name)
assert abs(flops(model) / flops(new_model()) - 0.43) < 0.03 and round(100 * share) == 69

assert not any("bias" in name for name, _ in llama.named_parameters()), "A Llama has no bias"

assert after_bitfit < 0.9 * before, "BitFit learns"
assert live.trained.tolist() == [3_072, 221_184, 235_520, 6_400] and 221_184 // 3_072 == 72
assert live.trained["IA3"] == 8 * (192 + 96 + 512)
assert (abs(live.untrained / before - 1) < 1e-5).all(), "All four start as the base model"
assert (live["after 12 steps"] < 0.9 * live.untrained).all()
arithmetic = live["arithmetic, % of full"]
assert arithmetic.between(64, 78).all() and arithmetic["IA3"] < 71 and 72 < arithmetic["LoRA"] < 77
assert untrained["prefix, peft's default"] > 1.4 * before and abs(untrained["prefix, zeros"] / before - 1) < 0.05

# Your turn, as it is written: VeRA with peft's default layers, then in all of them, then rsLoRA.
assert yours.trained.item() == 3_328 == 8 * (64 + 192 + 64 + 96)
assert {name.split(".")[-1] for name in get_peft_model(new_model(), LoraConfig(**causal)).targeted_module_names} == {
    "q_proj",
    "v_proj",
}
every = get_peft_model(new_model(), VeraConfig(r=64, target_modules="all-linear", **causal))
assert sum(p.numel() for p in every.parameters() if p.requires_grad) == 17_920
assert 100 * flops(every) / all_flops > arithmetic["LoRA"] + 10
assert LoraConfig(use_rslora=True, **lora).use_rslora

fewer = ["lora_fa", "oft", "vera", "ia3", "ln_tuning", "bitfit"]
assert list(worse) == ["lora_plus", *fewer, "prefix_tuning", "prompt_tuning"]
assert beside.loc["dora", ["low", "high"]].round(1).tolist() == [-2.7, 0.2]
assert round(beside.high["pissa"]) == 7
assert beside.low["qlora"] < 0 < beside.high["qlora"], "As lesson 6 says"
assert len(methods) == 13 and record.document.nunique() == 40

compared = tl.recorded_comparison("tiny", "all").table.set_index("strategy")
values = compared.trainable_values
assert values[fewer].is_monotonic_decreasing and beside.difference[fewer].is_monotonic_increasing
assert round(values["lora_fa"] / values["lora"], 1) == 0.5
assert values["prefix_tuning"] > values["vera"] and beside.difference["prefix_tuning"] > beside.difference["vera"]
others = ["full", "freeze_lower", "freeze_embeddings", "last_layers", "gradual_unfreezing", "discriminative_rates"]
assert compared.trainable_percent[others].min() > 20
assert values["lora_plus"] == values["lora"]
assert compared.peak_memory_mb["dora"] > 1.2 * compared.peak_memory_mb["lora"], "DoRA needs more memory"
settings = tl.recorded_comparison("tiny", "all").provenance
assert "train_documents: 200" in settings and "test_documents: 40" in settings and "seeds: 3" in settings

# The record of SmolLM2-135M.
folder = tl.DATA / "comparisons/smollm2-135m-instruct"
other = pd.concat([pd.read_csv(folder / part / "documents.csv", comment="#") for part in ("", "peft")])
other = other.drop_duplicates(["strategy", "seed", "document"])
there = beside_lora(other, [name for name in methods if name in set(other.strategy)])
assert not (there.high < 0).any()
assert list(there.index[there.low > 0]) == [
    "qlora",
    "lora_fa",
    "vera",
    "ia3",
    "ln_tuning",
    "prefix_tuning",
    "prompt_tuning",
]
