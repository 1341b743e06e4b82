assert risen["NF4", "a matrix"] > risen["NF4", "64"]

assert round(ratio_of_norms, 2) == 0.09 and 0.19 < single.mean() < 0.22
assert 0.09 < single.median() < 0.12

assert outputs.error.between(0.04, 0.12).all()

assert 0.82 < same < 0.92 and 0.45 < less < 0.6

assert table["qwen2-0.5b"] == 28 and table["llama2-7b"] == 2

assert not flow.problems

assert losses[-1] < losses[0]

assert torch.allclose(levels, packed.quant_state.code, atol=1e-6), "These are the levels of bitsandbytes, to 1e-6"

differing = int((two_in_a_byte != packed.data.flatten()).sum())
assert differing <= 2, "The bytes are those of bitsandbytes"

counts = torch.bucketize(scaled.flatten(), borders).bincount(minlength=16)
assert counts[7:10].sum() / counts.sum() > 1 / 3, (
    "The three int4 levels in the middle take more than a third of all weights"
)

assert max(risen["NF4", "64"], risen["int4", "64"]) < 3, "With blocks of 64, both kinds of levels cost less than 3%"
assert risen["int4", "a matrix"] > 10, "With one scale for a matrix, int4 costs more than 10%"

noise = torch.randn(1000, 192, generator=torch.Generator().manual_seed(0))
random_error = error_of(noise @ unpacked.T, noise @ original.T)
assert abs(random_error / error_of(unpacked, original) - 1) < 0.05, (
    "On random inputs the output is as wrong as the weights, within 5%"
)
assert torch.tensor(ratios).median() > 1.2, "Most layers stretch real inputs more than random ones"

assert left["qwen2-0.5b"] == 46, "qwen2-0.5b keeps 46% of its 16-bit size"
assert left["llama2-7b"] == 29, "llama2-7b keeps 29%"

assert steps["llama2-7b", "qlora"] < 0.85 * 8 * 2**30, "llama2-7b fits a card of 8 GB, with 15% left to the driver"

assert max(scores[name].perplexity for name in runs) < 0.75 * before.perplexity, (
    "Both adapt: perplexity falls by more than a quarter"
)

theirs = torch.tensor(losses)
assert torch.allclose(mine, theirs, rtol=1e-4), "All three losses agree to 1e-4"

assert {p.dtype for p in trained} == {torch.float32}  # adapters, in a model of bf16, too

# after: check-tl
from tlkit.quantization import logical_size

assert 2 * packed.numel() == logical_size(packed) == 192 * 192 == 36_864

# after: check-scales
changed = ((coarse_scales - scales.flatten()) / scales.flatten()).abs()
assert changed.mean() < 0.01, "It changes a scale by less than 1% on average"
