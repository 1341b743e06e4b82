assert risen["NF4", "a matrix"] > risen["NF4", "64"]

assert round(ratio_of_norms, 2) == 0.09 and 0.19 < single.mean() < 0.22
assert 0.09 < single.median() < 0.12

assert outputs.error.between(0.04, 0.12).all()

assert 0.82 < same < 0.92 and 0.45 < less < 0.6

assert table["qwen2-0.5b"] == 28 and table["llama2-7b"] == 2

assert not flow.problems

assert losses[-1] < losses[0]

times = changes.loc["time"].loc[["lora", "qlora"], "value, smollm2-135m-instruct"]
assert times.round().tolist() == [-21, -13]

# after: check-tl
assert 2 * packed.numel() == tl.logical_size(packed) == 192 * 192 == 36_864
