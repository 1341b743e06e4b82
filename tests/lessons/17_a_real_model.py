assert round((lora.total_values - lora.trainable_values) / 4_036_800) == 33

assert blocks.shape == (36, 128) and len(run.history) == 18

assert len(asked) == 16

verdicts = wider.verdict["forgetting"]
assert verdicts.full == verdicts.last_layers == "same direction, stronger on tiny"
assert verdicts.lora == "same"
assert [round(value) for value in untouched] == [126, 74]
assert round(2e12 / 22e6 / 1e3) == 91

assert 48 < seven["time of a step, times the first"] < 52
assert 25 < seven["file in fp32, GB"] * 1e9 / 2**30 < 25.5

assert 4 * values < size < 1.02 * 4 * values
