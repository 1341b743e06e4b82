assert round(total / 4_036_800) == 33 and round(trainable / total, 3) == 0.018
assert blocks.shape == (16, 64) and len(losses) == 8 and blocks.numel() == 1024

assert change["Rust"][0] < -15 and change["Rust"][2] < -5
assert change["general"][1] < 0 < change["general"][2]

assert (recorded.loc[["full", "last_layers", "lora"], "perplexity"] < 0.55 * recorded.perplexity["zero-shot"]).all()
assert recorded.general["lora"] < recorded.general[["full", "last_layers"]].min()
assert recorded.rust_accuracy[chosen].max() < 0.25
assert round(shown["saved, MB"]["lora"]) == 10 and round(shown["saved, MB"]["full"]) == 538
assert 9 < shown.learning_rate["lora"] / shown.learning_rate["full"] < 11

assert 4 * trainable < size < 1.02 * 4 * trainable
assert (round(recorded.general["zero-shot"], 1), round(recorded.general["lora"], 1)) == (26.5, 27.9)
assert (after["Rust"] < before["Rust"]).all()
assert all(9 < rates[name].lora / rates[name].full < 11 for name in models)
assert (rates[models[1]] < rates[models[0]])[["full", "last_layers", "lora"]].all()
