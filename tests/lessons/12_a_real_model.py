assert round((lora.total_values - lora.trainable_values) / 4_036_800) == 33

assert blocks.shape == (36, 128) and len(run.history) == 18

assert len(asked) == 16
assert round(2e12 / 22e6 / 1e3) == 91

assert 48 < seven["time of a step, times the first"] < 52
assert 25 < seven["file in fp32, GB"] * 1e9 / 2**30 < 25.5

assert 4 * values < size < 1.02 * 4 * values

assert (round(lora.percent, 1), round(tiny_lora.percent, 1)) == (1.8, 5.2), (
    "The adapter is 1.8% of the real model's values, and 5.2% of the tiny one's"
)

assert all(changes[name].perplexity < -0.25 for name in changes), (
    "On Rust, the perplexity of both models falls by more than a quarter"
)

furthest = max(abs(one - other) for one, other in zip(ours, theirs, strict=True))
assert furthest < 1e-4, "Both report the same losses, step by step, to 0.0001"
assert theirs[2] < theirs[1] < theirs[0], "and they fall"

assert change.low < 0 < change.high, "16 questions cannot tell the two models apart"

rates = start["135 million"]
assert all(9 < start[size].lora / start[size].full < 11 for size in start.columns[:2]), (
    "On both models, LoRA's best rate is about ten times that of full"
)
assert (rates < start["4 million values"]).all(), "and the larger model's rates are lower"

adapted = recorded.drop(["zero-shot", "random initialisation", "bitfit"])
assert set(adapted.perplexity.nsmallest(2).index) == {"full", "freeze_embeddings"}
assert (adapted.general.idxmin(), adapted.perplexity.idxmax()) == ("lora", "last_layers")

assert torch.allclose(again, trained, atol=1e-4), "The loaded model computes the same"
