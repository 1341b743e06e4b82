import os

import numpy as np
import pandas as pd

assert torch.allclose(nf4, state.code, atol=1e-6), "The levels of bitsandbytes"
assert len(nf4) == 16 and (nf4 < 0).sum() == 7 and (nf4 > 0).sum() == 8

assert [round(100 * float(part)) for part in error.values()] == [9, 10, 17, 14]
assert 0.001 < (exact.bfloat16() - exact).norm() / exact.norm() < 0.0025, "0.2%"
small, *others = rise.values()
apart = [other - small for other in others] + [after["QLoRA"] - after["LoRA"]]
assert [bool(a.mean() > 2 * a.std() / 20**0.5) for a in apart] == [False, True, True, False], "Two standard errors"
assert all(a.mean() < min(0.03, 2 * a.std() / 20**0.5) for a in (small, others[0])), "Not more than nothing"
assert 0.82 < same < 0.92 and 0.45 < (moves < 0).float().mean() < 0.57 and moves.mean().abs() < moves.abs().mean() / 10
assert torch.allclose(theirs - before, small, atol=5e-3), "By hand and by the library: the same losses"

for name, percent in (("tiny", 1), ("smollm2-135m-instruct", 7)):
    record = pd.read_csv(tl.DATA / "comparisons" / name / "documents.csv", comment="#")
    record = record.assign(loss=record.nats / record.tokens).pivot_table("loss", "document", "strategy")
    assert len(record) == 40 and round(100 * np.expm1((record["qlora"] - record["lora"]).mean())) == percent

for preset, least, most, gb, left in (("qwen2-0.5b", 0.25, 0.29, 1.0, 46), ("llama2-7b", 0.035, 0.045, 13.5, 29)):
    whole = tl.meta_model(preset)
    rest = 1 - sum(part.numel() for part in matrices(whole)) / whole.num_parameters()
    assert least < rest < most and round(2 * whole.num_parameters() / 1e9, 1) == gb, "not packed"
    assert round(100 * (4.127 / 16 * (1 - rest) + rest)) == left
assert round(100 * rest * (2 - 4.127 / 16)) == 7, "Points that embedding and head add in fp32"

ends = {name: loss.mean() for name, loss in after.items()}
assert abs(ends["QLoRA"] - ends["LoRA, your rounding"]) < 5e-3 and ends["QLoRA"].exp() < 90
assert cpu["QLoRA"] > cpu["LoRA"]
change = {name: float(number.log() - ends["QLoRA"]) for name, number in score.items()}
assert alike["unpacked"] > 0.999 and abs(change["unpacked"]) < 1e-4, "The model that was trained"
assert all(0.87 < alike[name] < 0.91 for name in ("original", "packed")), "One position in nine"
assert abs(change["original"]) < 0.01 and change["packed"] > 0.005
assert abs(nats(ready, held_out).mean() - ends["QLoRA"]) < 1e-3
assert round(os.path.getsize(f"{folder}/merged/model.safetensors") / 1e6, 1) == 8.1
assert 0.3 < (merged["packed"].get_memory_footprint() / 1e6 + 0.9) / 17 < 0.36, "A third"
assert round(sum(p.nbytes for p in trained) / 1e6, 1) == 0.9 and merged["packed"].training

# after: check-equal
assert int((bytes_by_hand != packed.flatten()).sum()) <= 2, "The bytes are those of bitsandbytes"
change = (coarse(scales) / scales - 1).abs()
assert change.mean() < 0.01, "A scale changes by less than 1%"
