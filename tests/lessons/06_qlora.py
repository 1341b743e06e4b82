import numpy as np

assert torch.allclose(nf4, state.code, atol=1e-6), "These are the levels of bitsandbytes, to 1e-6"
assert len(nf4) == 16 and (nf4 < 0).sum() == 7 and (nf4 > 0).sum() == 8

small, small_int4, whole_nf4, twice = (100 * float(apart.mean().expm1()) for apart in cost.values())
assert max(small, small_int4) < 3 and whole_nf4 > small + 1
assert twice > 2 * small and twice - small_int4 > small_int4, "The second rounding costs more than the first"
between = cost["NF4, a scale for 64 weights"] - cost["int4, a scale for 64 weights"]
assert between.mean().abs() < 2 * between.std() / len(between) ** 0.5, "NF4 and int4 cannot be told apart here"

assert 0.08 < error < 0.1 and 0.82 < same < 0.92
assert 0.45 < less < 0.57

assert torch.allclose(theirs, nats(ours, held_out), atol=5e-3), "Quantised by hand and by the library: the same losses"

# Lesson 8 shows the intervals; the size of the difference is said here.
for name, least, most in (("tiny", 0, 2), ("smollm2-135m-instruct", 6.5, 7.5)):
    record = pd.read_csv(tl.DATA / "comparisons" / name / "documents.csv", comment="#")
    record["loss"] = record.nats / record.tokens
    record = record.query("strategy in ('lora', 'qlora')").pivot_table("loss", "document", "strategy")
    assert len(record) == 40 and least < 100 * np.expm1((record["qlora"] - record["lora"]).mean()) < most

left = sizes["left with 16 bits, %"].round()
assert round(sizes["left with fp32, %"]["qwen2-0.5b"]) == 74
assert left["qwen2-0.5b"] == 46 and left["llama2-7b"] == 29 and round(sizes["16 bits, GB"]["llama2-7b"], 1) == 13.5
for preset, least, most in (("qwen2-0.5b", 0.25, 0.29), ("llama2-7b", 0.035, 0.045)):
    whole = tl.meta_model(preset)
    linear = [part for part in whole.model.layers.modules() if isinstance(part, nn.Linear)]
    assert least < 1 - sum(part.weight.numel() for part in linear) / whole.num_parameters() < most, "not packed"
assert 80 < after.mean().exp() < 90, "As low as LoRA in lesson 5"

rise = {name: number / after.mean().exp().item() - 1 for name, number in score.items()}
assert moved["unpacked"] < 1e-3 and abs(rise["unpacked"]) < 1e-4, "The model that was trained"
assert moved["original"] > 1.5 and abs(rise["original"]) < 0.01 and moved["packed"] > 1
assert rise["packed"] > 0.005
assert round(4 * 221_184 / 1e6, 1) == 0.9, "Saved in fp32"
assert {p.dtype for p in trained} == {torch.float32}
assert model.get_base_model().model.layers[0].mlp.up_proj.weight.dtype == torch.uint8

# after: check-equal
assert int((bytes_by_hand != packed.flatten()).sum()) <= 2, "The bytes are those of bitsandbytes"
change = (coarse(scales) / scales - 1).abs()
assert change.mean() < 0.01, "It changes a scale by less than 1% on average"
