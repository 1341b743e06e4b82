assert 0.2 < kept_by["last_layers"] / kept_by["full"] < 0.3
assert percent["lora"] == 5 and percent["last_layers"] == 20
assert round(100 * peaks["last_layers"] / peaks["full"]) == 46

assert round(values * 16 / 1e9, 1) == 7.9

assert full.phase == "backward pass" and 8.9 < full.peak / 1e9 < 9.1

assert full.peak > 8 * 2**30
copies = by_hand["second and third embedding gradient"]
at_loss = in_gb[["activations", "logits and loss"]].round(2)
at_end = in_gb[["gradients", "second and third embedding gradient"]].round(2)
assert (at_loss.tolist(), at_end.tolist()) == ([1.32, 0.93], [1.98, 1.09])
assert round(in_gb["peak"], 1) == 9.0 and round((16 * values + copies) / 1e9, 1) == 9.0

assert [round(top) for top in tops[1:]] == [103, 102] and total[peak] // MiB == 213
assert 173 < tops[0] < 182

less = eight.peak - plans["8 rows (chunked loss)"].peak
assert 5 < less / 2**30 < 6.5
assert 1.05 < more < 1.2

assert precision["mixed precision"]["activations, MiB"] < precision["fp32"]["activations, MiB"]

assert len(recorded) == 56 and off.min() > -0.03 and off.max() < 0.1

assert (each_block == 4 * tokens * kept).all(), "Each block keeps exactly what the formula says"

assert (logits.nbytes, gradients, averages) == (4 * tokens * V, 4 * N, 8 * N), (
    "Logits, gradients and averages are exactly as calculated"
)

assert abs(by_hand["peak"] / full.peak - 1) < 0.04, "By hand and by tracing agree within 4%"
assert by_hand["at the end"] > by_hand["at the loss"], "The end of the backward pass needs more than the loss"

parts = sorted(eight.categories, key=eight.categories.get)
assert parts[-2:] == ["logits and loss", "activations"], (
    "With eight rows, activations are the largest part, logits and loss the second"
)

assert lasting["mixed precision"].tolist() == lasting["fp32"].tolist() == [4, 4, 8], (
    "Mixed precision needs 4 + 4 + 8 bytes a weight, as fp32 does"
)
assert lasting["pure bf16 state"].tolist() == [2, 2, 4], "A pure bf16 state needs exactly half: 2 + 2 + 4"

# after: check-by-hand
assert (d, m, L, V) == (
    config.hidden_size,
    config.intermediate_size,
    config.num_hidden_layers,
    config.vocab_size,
)
assert kept == 3782 and round(4 * kept * L / 1000) == 121
assert by_hand["activations"] > 16 * N

# after: check-eight
floor = ["weights", "gradients", "optimizer state"]
assert (one[floor] == eight[floor]).all() and (half[floor] == eight[floor]).all(), (
    "Weights, gradients and optimizer state stay the same"
)
assert all(abs(factor - 8) < 0.2 for factor in growth)
for kind in ("activations", "logits and loss"):
    assert abs(half[kind] / eight[kind] - 63 / 127) < 0.005

# after: check-full
assert full.gradients[peak] == 0, "At the peak there is no gradient of a weight yet"
assert end_of_backward < total[peak] / 3, "Two thirds of the peak are gone after the backward pass"
