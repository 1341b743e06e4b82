from peft import LNTuningConfig
from transformers import LlamaConfig, LlamaForCausalLM

from tlkit.evidence.learning_rates import best_rates, recorded_rates

assert biases == 8 * (192 + 96 + 96) == 3_072
assert round(100 * biases / 4_036_800, 2) == 0.08
having = {name.split(".")[-2] for name, _ in new_model().named_parameters() if name.endswith("bias")}
assert having == {"q_proj", "k_proj", "v_proj"}
rates = {name: rate.value for name, rate in best_rates(recorded_rates("tiny"))[0].items()}
assert rates["bitfit"] == 0.05
assert rates["ia3"] == rates["vera"] == 0.1 and rates["lora"] == rates["dora"] == 0.01

# The quiz: the biases of the last block alone.
for name, parameter in model.named_parameters():
    parameter.requires_grad_(name.endswith(".bias") and ".layers.7." in name)
assert abs(flops(model) / flops(new_model()) - 0.43) < 0.03 and round(100 * share) == 69

with torch.device("meta"):
    llama = LlamaForCausalLM(LlamaConfig())
assert not any("bias" in name for name, _ in llama.named_parameters()), "A Llama has no bias"

outs = [part.out_features for part in new_model().model.layers.modules() if isinstance(part, torch.nn.Linear)]
assert sum(outs) == 14_336 == 235_520 - 221_184
assert live.trained.tolist() == [3_072, 221_184, 235_520, 6_400] and 221_184 // 3_072 == 72
assert live.trained["IA3"] == 8 * (192 + 96 + 512)
assert (abs(live.untrained / before - 1) < 1e-5).all(), "All four start as the base model"
assert (live["after 6 steps"] < 0.95 * live.untrained).all()
arithmetic = live["FLOPs, % of full"]
assert arithmetic.round().tolist() == [69, 74, 76, 69]
yours = pd.DataFrame(rows, index=columns).T[4:]
assert yours.trained.tolist()[0] == 43_008 == 8 * 8 * (192 + 192 + 192 + 96)
adapted = get_peft_model(new_model(), LoraConfig(**causal))
assert {name.split(".")[-1] for name in adapted.targeted_module_names} == {"q_proj", "v_proj"}
assert len(adapted.targeted_module_names) == 16 and len(outs) == 56
trained, share, start, _, size = yours.loc["VeRA"]
assert abs(start / before - 1) < 1e-5 and trained == sum(outs) + 56 * 256 and round(share) == 175
assert round(size) == 128 and round(live["file, kB"]["LoRA"]) == 899 and round(size + 1.024 * 1_024) == 1_177
trained, share, start, end, size = yours.loc["LoRA, rank 1"]
assert trained == 27_648 and round(share) == 70 and size < 128 and end < yours["after 6 steps"]["VeRA"] < before
scales = get_peft_model(new_model(), LNTuningConfig(**causal)).get_nb_trainable_parameters()[0]
assert scales == 8 * 192 and counts["ln_tuning"] == 17 * 192
multiplied = get_peft_model(new_model(), IA3Config(**causal))
assert {name.split(".")[-1] for name in multiplied.targeted_module_names} == {"q_proj", "v_proj", "down_proj"}
assert multiplied.peft_config["default"].feedforward_modules == {"down_proj"}

worse = low > 0
four = ["ia3", "ln_tuning", "prefix_tuning", "prompt_tuning"]
assert list(low.index[worse.all(axis=1)]) == four
assert list(low.index[worse["bundled model"] & ~worse["SmolLM2-135M"]]) == ["lora_fa", "oft", "vera", "bitfit"]
assert list(low.index[worse["SmolLM2-135M"] & ~worse["bundled model"]]) == ["qlora"]
alone = [above_lora("tiny/all", questions=1), above_lora(smollm2, f"{smollm2}/peft", questions=1)]
assert alone[0].loc["dora", ["low", "high"]].round(1).tolist() == [-1.8, -0.7] and alone[0].low["lora_plus"] > 0
assert all(table.low["pissa"] > 0 for table in alone)
for table in beside.values():
    assert table.low[["dora", "rslora", "pissa", "lora_plus"]].max() < 0
assert [round(table.difference["ia3"]) for table in beside.values()] == [39, 15]
for number, freedom, t in [(13, 39, 3.1), (12, 39, 3.0), (13, 2, 16.1), (12, 2, 15.4)]:
    assert round(stats.t.ppf(1 - 0.05 / number / 2, freedom), 1) == t
assert len(both) == 13 and len(beside["SmolLM2-135M"]) == 12 and "bitfit" not in beside["SmolLM2-135M"].index

peak = course.recorded("tiny/all/comparison").set_index("strategy").peak_memory_mb
assert round(2 * 14_336 * 512 * 4 / 1e6) == round(peak["dora"] - peak["lora"]) == 59 and round(peak["lora"]) == 100
grids = pd.read_csv(tl.DATA / "sweeps/tiny/rates.csv", comment="#").groupby("strategy").learning_rate.unique()
assert set(grids["lora"]) == {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1}
assert {0.001, 0.00316, 0.01} < set(grids["lora_plus"]) and 0.005 not in grids["lora_plus"]
real = pd.read_csv(tl.DATA / "sweeps" / smollm2 / "rates.csv", comment="#").query("learning_rate == 1e-6")
real = real.groupby("strategy").validation_perplexity.mean()  # nothing has moved yet
assert round(real["prefix_tuning"] / real["lora"], 1) == 1.4
settings = course.provenance("tiny/all").splitlines()
assert "train_documents: 200" in settings and "test_documents: 40" in settings and "seeds: 3" in settings
real = [pd.read_csv(tl.DATA / "comparisons" / smollm2 / f"{part}comparison.csv", comment="#") for part in ("", "peft/")]
peak = pd.concat(real).set_index("strategy").peak_memory_mb
assert round(100 * peak["dora"] / peak["lora"]) == 143
