import numpy as np

assert get_peft_model(new_model(), LoraConfig()).peft_config["default"].target_modules == {"q_proj", "v_proj"}

for name, told in (("tiny", [0.19, 0.16, 0.22]), ("smollm2-135m-instruct", [0.05, 0.02, 0.07])):
    record = pd.read_csv(tl.DATA / f"comparisons/{name}/documents.csv", comment="#")
    record = record.groupby(["strategy", "document"])[["nats", "tokens"]].mean()
    tokens = record.loc["full"].tokens.to_numpy()
    apart = (record.loc["lora"].nats - record.loc["full"].nats).to_numpy()
    drawn = np.random.default_rng(0).integers(40, size=(2000, 40))
    means = apart[drawn].sum(1) / tokens[drawn].sum(1)
    bounds = [apart.sum() / tokens.sum(), *np.quantile(means, [0.025, 0.975])]
    assert np.expm1(bounds).round(2).tolist() == told
seeds = pd.read_csv(tl.DATA / "comparisons/tiny/runs.csv", comment="#").pivot_table("perplexity", "seed", "strategy")
gains = np.log(scores["tiny"].perplexity["zero-shot"] / seeds).mean()
assert round(100 * gains.lora / gains.full) == round(reached) == 81
share, eight, rest = kept.loc[8]  # 29, 63, 54; elsewhere sums are rounded differently
assert share < 33 and 61 < eight < 65 and 52 < rest < 56 and 85 < kept["gain of first"][192] < 89
halved, usual, doubled = first_step.values()
assert abs(halved - usual) < 1e-4 and abs(doubled - usual) > 0.01
assert rates.idxmin(axis=1).tolist() == [0.000316, 0.00316] and round(rates.loc["lora", 1e-4]) == 70
tiny = pd.read_csv(tl.DATA / "sweeps/tiny/rates.csv", comment="#").query("strategy in ('full', 'lora')")
tiny = tiny.pivot_table("validation_perplexity", "strategy", "learning_rate").round()
assert tiny.min(axis=1).tolist() == [78, 84] and tiny.loc["lora", 0.001] == 118
assert tiny.idxmin(axis=1).tolist() == [0.001, 0.01]
search = pd.read_csv(tl.DATA / "sweeps/smollm2-135m-instruct/rates.csv", index_col=[1, 2]).filter(like="perplexity")
assert search.loc[[("full", 1e-4), ("lora", 0.00316)]].round().to_numpy().tolist() == [[40, 21], [40, 24]]
adapter = 32 * 8 * (4 * (4096 + 4096) + 3 * (4096 + 11008))  # A and B of rank 8 in Llama 2 7B
assert round(12 * 6.74) == 81 and round(2 * 6.74, 1) == 13.5 and [round(n * adapter / 1e6) for n in (4, 2)] == [80, 40]
assert of_run.exact["w20/x001"] and of_run.exact.sum() == 45 and len(of_run) == 96
assert round(adapter / 1e6) == 20 and round(12 * adapter / 1e9, 2) == 0.24
weights = 32 * (4 * 4096**2 + 3 * 4096 * 11008)  # two of its three products
assert 0.66 < (2 * weights + 3 * adapter) / (3 * weights) < 0.7

# after: check-start
fresh = inject(new_model())
fresh(input_ids=rows, labels=rows).loss.backward()
assert all(not part.A.grad.any() and part.B.grad.any() for part in lora_layers(fresh))

# after: check-switch
at = pd.DataFrame(table, ["Rust", "cooking"])
assert at.idxmin(axis=1).tolist() == ["adapter rust", "adapter kitchen"]
assert at["adapter kitchen"].Rust > 1.05 * at["no adapter"].Rust
assert at["adapter rust"].cooking < 0.9 * at["no adapter"].cooking
assert abs(at["no adapter"].Rust / float(before.mean().exp()) - 1) < 1e-5
