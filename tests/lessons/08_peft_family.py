from transformers import LlamaConfig, LlamaForCausalLM

from tlkit.evidence.learning_rates import best_rates, recorded_rates
from tlkit.strategies.methods import METHODS, lora_plus

assert biases == 8 * (192 + 96 + 96) == 3_072 and round(100 * biases / 4_036_800, 2) == 0.08
having = {name.split(".")[-2] for name, _ in new_model().named_parameters() if name.endswith("bias")}
assert having == {"q_proj", "k_proj", "v_proj"}
rates = {name: rate.value for name, rate in best_rates(recorded_rates("tiny"))[0].items()}
assert rates["lora"] == rates["dora"] == 0.01 and rates["bitfit"] == 0.05

# The quiz: the biases of the last block alone.
for name, parameter in model.named_parameters():
    parameter.requires_grad_(name.endswith(".bias") and ".layers.7." in name)
assert abs(flops(model) / all_flops - 0.425) < 0.005 and round(100 * share) == 69

with torch.device("meta"):
    llama = LlamaForCausalLM(LlamaConfig())
assert "bias" not in str([*llama.state_dict()])

outs = [part.out_features for part in new_model().model.layers.modules() if hasattr(part, "out_features")]
assert sum(outs) == 14_336 == 235_520 - 221_184
rank_1 = 8 * (2 * (192 + 192) + 2 * (192 + 96) + 3 * (192 + 512))
assert 8 * rank_1 == 221_184 and 221_184 // 3_072 == 72
first = perplexity(new_model())
assert round(first) == 120 and [*live.iloc[:, 0].round()] == [69, 74, 77, 70, 69]
assert [*live.iloc[3:, 1].round()] == [93, 99] and [*live.iloc[3:, 2].round()] == [125, 28]
assert 12.3 < live["file, kB"].iloc[0] < 16
fit(slow := adapt("LoRA, rank 1"), 0.01)
assert live.perplexity["LoRA, rank 1"] < perplexity(slow)
layers, trained, changes, starts = zip(*audits.values(), strict=True)
assert layers == (len(outs), 16, 56, 24, 0, 0) and changes[:2] == (0, 0) and max(changes[2:4]) < 1e-3
assert trained == (221_184, 8 * 8 * (192 + 192 + 192 + 96), 235_520, 8 * (192 + 96 + 512), 24_576, 24_576)
assert starts[0] == starts[1] == first and round(starts[4], -1) == 190
assert 0.97 < starts[5] / first < 1 and 7 < changes[5] < 8.5 < changes[4]
adapted = get_peft_model(new_model(), LoraConfig(**causal))
assert {name[-6:] for name in adapted.targeted_module_names} == {"q_proj", "v_proj"}
all_methods = course.recorded("tiny/all/comparison").set_index("strategy")
assert all_methods.trainable_parameters["vera"] == sum(outs) + 56 * 64 and lora_plus.__defaults__ == (16,)
assert METHODS["oft"].options["block"] == 16
ia3 = get_peft_model(new_model(), IA3Config(**causal))
assert {name.split(".")[-1] for name in ia3.targeted_module_names} == {"q_proj", "v_proj", "down_proj"}
assert ia3.active_peft_config.feedforward_modules == {"down_proj"}

both = pd.concat(tables, axis=1).sort_values(("bundled model", "difference"))
worse = both.xs("low", axis=1, level=1) > 0
assert [*worse.index[worse.all(axis=1)]] == ["ia3", "ln_tuning", "prefix_tuning", "prompt_tuning"]
assert [*worse.index[worse["bundled model"] & ~worse["SmolLM2-135M"]]] == ["lora_fa", "oft", "vera", "bitfit"]
assert [*worse.index[worse["SmolLM2-135M"] & ~worse["bundled model"]]] == ["qlora"]
assert [round(stats.t.ppf(1 - 0.025 / n, k), 1) for k in (39, 2) for n in (13, 12, 1)] == [3.1, 3, 2, 16.1, 15.4, 4.3]
assert tables["SmolLM2-135M"].loc["rslora", ["low", "high"]].round(1).tolist() == [-12.5, 14.4]
by_size = both["bundled model"].drop("prefix_tuning").loc["lora_fa":]
assert all_methods.trainable_parameters[by_size.index].is_monotonic_decreasing
assert both.xs("difference", axis=1, level=1).loc["lora_fa":].corr("spearman").iloc[0, 1] > 0.9
assert [*both.index[both.isna().any(axis=1)]] == ["bitfit"] and len(both) == 13
losses = course.recorded("tiny/all/documents").eval("loss = nats / tokens").set_index(["strategy", "document", "seed"])
dora = (losses.loss["dora"] - losses.loss["lora"]).unstack()
mean, errors = dora.mean().mean(), np.array([dora.mean(axis=1).sem(), dora.mean().sem()])
assert np.round([mean, *errors], 4).tolist() == [-0.0127, 0.0019, 0.0009]
assert np.round(errors * (2.02, 4.3), 4).tolist() == [0.0038, 0.0038] and round(100 * np.expm1(mean), 1) == -1.3
half = np.hypot(*errors * (2.02, 4.3))
assert round(half, 4) == 0.0054 and -0.02 < mean - half < -0.01 < mean + half < 0  # 0.7% to 1.8%; exercise 8.1

peak = all_methods.peak_memory_mb
assert round(2 * 14_336 * 512 * 4 / 1e6) == round(peak["dora"] - peak["lora"]) == 59
assert [round(peak[m]) for m in ("lora", "dora")] == [100, 159]
assert -(-len(tl.pack(rust.train[:200], tokenizer, 128)) // 4) == 55
grids = recorded_rates("tiny").groupby("strategy").learning_rate.unique()
above = [min(rate for rate in grids[m] if rate > rates[m]) / rates[m] for m in both.index]
assert round(min(above), 1) == 2 and max(above) == 10
real = recorded_rates(smollm2)
assert {*real.seed} == {0}
real = real.query("learning_rate == 1e-6").groupby("strategy").validation_perplexity.mean()
assert round(real["prefix_tuning"] / real["lora"], 1) == 1.4
assert {"train_documents: 200", "test_documents: 40", "seeds: 3"} <= {*course.provenance("tiny/all").splitlines()}
real = pd.concat(course.recorded(f"{smollm2}{part}/comparison") for part in ("", "/peft")).set_index("strategy")
assert -(-round((real.tokens_per_second * real.seconds).min() / 127) // 4) == 44
assert [round(real.perplexity_before["lora"]), *real.perplexity[["lora", "ia3"]].round()] == [88, 42, 48]
assert [round(real.file_bytes[m] / n / 1e5, 1) for m, n in (("ia3", 1), ("lora", 8), ("lora", 1))] == [2.4, 12.3, 98.2]
assert [round(real.peak_memory_mb[m] / real.peak_memory_mb["lora"], 2) for m in five[1:4]] == [1.43, 0.75, 0.88]
assert costs.loc["qlora", ["low", "high"]].round().tolist() == [5, 10] and round(peak["dora"] / peak["lora"], 2) == 1.59
assert round(all_methods.seconds["dora"] / all_methods.seconds["lora"], 1) == 1.4
