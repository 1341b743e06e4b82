assert torch.allclose(nf4, state.code, atol=1e-6), "The levels of bitsandbytes"
assert len(nf4) == 16 and (nf4 < 0).sum() == 7 and (nf4 > 0).sum() == 8

assert [round(100 * float(part)) for part in error.values()] == [9, 10, 17, 14]
normal = torch.randn(4096, 64, generator=torch.Generator().manual_seed(0))
codes, scales = encode(normal, nf4, 64)
assert round(100 * float((nf4[codes] * scales - normal).norm() / normal.norm())) == 9, "Any normal weights"
small, *others = rise.values()
apart = [other - small for other in others] + [after["QLoRA"] - after["LoRA"], score["packed"]]
assert [bool(a.mean() > 2 * a.std() / 20**0.5) for a in apart] == [False, True, True, False, True], "Two SE"
assert all(a.mean() < min(0.03, 2 * a.std() / 20**0.5) for a in (small, others[0])), "Not more than nothing"
assert percent(small)[:5] == "+1.5%", "As QLoRA"
assert 0.005 < (after["QLoRA"] - after["LoRA"]).mean() < 0.015

rises = (100 * (search.qlora / search.lora - 1)).round(1)
assert [rises[1e-6], rises.iloc[-1]] == [27.4, 7.5] and [*search.idxmin()] == [0.00316] * 2 and len(search) == 6

for preset, least, most, gb in (("qwen2-0.5b", 0.25, 0.29, 1.0), ("llama2-7b", 0.035, 0.045, 13.5)):
    whole = tl.meta_model(preset)
    rest = 1 - sum(part.numel() for part in matrices(whole)) / whole.num_parameters()
    assert least < rest < most and round(2 * whole.num_parameters() / 1e9, 1) == gb, "not packed"

ends = {name: loss.mean() for name, loss in after.items()}
assert ends["QLoRA"].exp() < 100
assert same["unpacked"] > 0.999 and score["unpacked"].mean().abs() < 1e-4
assert all(0.83 < same[name] < 0.88 for name in ("original", "packed")), "One position in seven"
assert score["original"].mean().abs() < 0.01
assert abs(nats(ready, held_out[:4]) - after["QLoRA"][:4]).max() < 5e-3 and "Future" in tokenizer.decode(written[0])
assert 7 < track.peak / 11.3e6 < 9
held = merged["packed"].get_memory_footprint() / 1e6 + 0.9
assert 0.3 < held / 17 < 0.36 and 0.6 < held / (2 * base.num_parameters() / 1e6 + 0.9) < 0.7, "One and two thirds"
assert merged["packed"].training
assert all(p.is_cpu for whole in merged.values() for p in whole.parameters()), "No GPU"

# after: check-equal
assert int((bytes_by_hand != packed.flatten()).sum()) <= 2, "The bytes are those of bitsandbytes"
change = (coarse(scales) / scales - 1).abs()
assert change.mean() < 0.01, "A scale changes by less than 1%"
