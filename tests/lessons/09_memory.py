config = load().config
assert (d, m, L, V, a) == (
    config.hidden_size,
    config.intermediate_size,
    config.num_hidden_layers,
    config.vocab_size,
    config.num_attention_heads,
)
assert k == config.num_key_value_heads * d // a and N == 4_036_800
assert kept == 3782 and round(4 * kept / 1000) == 15 and round(4 * kept * L / 1000) == 121
assert round(kept * L / 1000) == 30

assert parameters == 494_032_768 and round(16 * parameters / 1e9, 1) == 7.9
assert [round(parameters * each / 1e9, 2) for each in (4, 8)] == [1.98, 3.95]
assert round(8 * GiB / 1e9, 2) == 8.59 and round(24e9 / GiB, 1) == 22.4
assert abs(calculated / traced - 1) < 0.01 and round(traced / 1e9, 1) == 9.0

lasting = recipes[["weights", "gradients", "optimizer"]].T
assert lasting["fp32"].tolist() == lasting["autocast"].tolist() == [4, 4, 8]
assert lasting["pure bf16"].tolist() == [2, 2, 4], "exactly half"
assert lasting["bf16, fp32 master"].tolist() == [2, 2, 12], "16 bytes, as in fp32"
assert recipes.activations["fp32"] == 4 * kept
assert recipes.activations["autocast"] < 0.9 * recipes.activations["fp32"]
assert recipes["moved, %"].drop("pure bf16").min() > 95 and recipes["moved, %"]["pure bf16"] < 50
bf16 = torch.tensor(0.07, dtype=torch.bfloat16)
assert bf16 + 1e-5 == bf16 and torch.finfo(torch.bfloat16).eps / 16 == 2**-11

assert sum(p.numel() for p in seven if not p.requires_grad) == 6_738_415_616
assert 12.5 < weights / GiB < 13 and 0.25 < adapters / GiB < 0.35
assert 0.7 < weights / peak < 0.8 and 16.5 < peak / GiB < 17.7 < 0.85 * 24e9 / GiB

# after: check-full
total = full[kinds].sum(axis=1)
peak_at = total.idxmax()
assert full.phase[peak_at] == "backward pass" and full.gradients[peak_at] == 0
assert set(kinds) == set(full.columns[1:])

# after: check-strategies
assert round(100 * peaks["last two blocks"] / peaks["all parameters"]) == 46
activations = {name: line.activations.max() for name, line in lines.items()}
assert 0.85 < activations["LoRA"] / activations["all parameters"] < 0.95
assert 0.2 < activations["last two blocks"] / activations["all parameters"] < 0.3

# after: check-published
total = published[kinds].sum(axis=1)
peak_at = total.idxmax()
assert published.phase[peak_at] == "backward pass" and published.activations[peak_at] < 1e6
three = 3 * 4 * 151_936 * 896  # the gradient of the embedding, three times
assert abs(published.temporary[peak_at] - three) < 1e5
assert (published.phase[peak_at:] == "backward pass").sum() < 100, "at its end"
