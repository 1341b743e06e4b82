assert vocabulary == 151_936 and len(published) == 11

assert true.iloc[2] > true.iloc[0]  # seven blocks did hurt on other text
assert true["adapted"] < 0.7 * true["untouched"]
assert broken["adapted"] > 20 * true["untouched"]
assert broken["adapted"] < 0.7 * broken["untouched"]

assert round(100 * real) == 58 and round(100 * read) == 5

assert round(guessing) == vocabulary == 151_936 < 250_072 < 387_789

assert (last.trainable_values, alone.trainable_values) == (29_865_088, 29_824_768)
assert left_over == 45 * 896 == 40_320 and 151_936 * 896 == 136_134_656

assert "39,424 values" in last.doubts[0] and 44 * 896 == 39_424

assert len(single) == 63

assert len(winners) == 3  # each of the three wins somewhere

assert round(arithmetic["last_layers"], 2) == 1.45
assert round(arithmetic["last_layers, norms frozen"], 2) == 2.15
assert round(steps["full"].backward / steps["full"].forward, 2) == 2
assert round(254.28 / 17.72, 1) == 14.3

assert [round(gigabytes, 1) for gigabytes in moved.values()] == [21.7, 5.0, 3.7]
assert [round(ratio, 1) for ratio in traffic.values()] == [1.0, 4.3, 5.9]

assert round(ratio, 1) == 3.2
assert round((values - alone.trainable_values) / 1e6) == 464

assert speed["times faster, measured"].max() < 5

assert round(bf16 / needed, 2) == 0.5 and round(tier / 2**20) == 262

assert {tensor.dtype for tensor in held.values()} == {torch.float32}
assert result.logits.dtype == torch.bfloat16

assert len(off) == 11

assert round(from_loss) == 7_108 and round(104_838.55 / from_loss) == 15

assert len(verdicts) == 25

assert true.iloc[3] < 1.5 and broken.iloc[3] > 1000, (
    "Text known by heart has a perplexity below 1.5, and reads above 1000"
)

assert tl.first_loss_warning(4.6157, math.log(254_801)), "The report is caught too"

size = tiny.model.config.vocab_size
drawn = [tl.mean_loss(tl.load_model("tiny", random_init=True, seed=seed).model, held_out[:8]) for seed in range(3)]
again = [tl.mean_loss(tl.load_model("tiny").model, held_out[:8]) for _ in range(2)]
assert all(math.exp(loss) > size for loss in drawn), (
    "With random weights, perplexity is above the vocabulary's size, with each seed"
)
assert again[0] == again[1], "The pretrained model, loaded twice, scores the same"
assert len({round(x, 4) for x in drawn}) == 3  # and it differs from seed to seed
assert again[0] < math.log(size)

random_model = tl.load_model("tiny", random_init=True).model
score = tl.perplexity(random_model, tiny.tokenizer, rust.validation[:8])
assert any("uniform" in warning for warning in score.warnings), "A perplexity worse than guessing carries a warning"

assert counted == others, "The other three counts are as published"

best = losses.mean().idxmin()
assert winners[best] < 3 / 4, "At least one block in four names another winner than the mean of all"

assert arithmetic["last_layers, norms frozen"] < ratio < traffic["last_layers, norms frozen"], (
    "The measured 3.2 lies between arithmetic and traffic"
)

assert speed["times less arithmetic"].max() < 3, "No strategy saves more than a factor of 3 in arithmetic"

assert all(abs(gap) < 0.1 for gap in off), "All 11 quotients agree with their rows"

# after: check-math
assert round(math.exp(4.6157)) == 101 and round(math.log(254_801), 1) == 12.4

# after: check-tl
assert tl.first_loss_warning(first_loss, ours) is None

# after: check-report
assert (tensors, report.total_tensors) == (3, 291)
assert (values, report.total_values) == (272_270_208, 630_167_424)
assert len(adapter) == 26 and len(without) == 290
assert sum(p.numel() for p in adapter) == 165_960_320

# after: check-report-2
assert (round(gradients, 2), round(weights, 2), round(2 * weights, 2)) == (
    1.09,
    2.52,
    5.04,
)
assert "no block is trainable" in report.doubts[0] and not intended.doubts

# after: check-tl-2
assert round(needed / 1e9, 1) == 9.0 and needed > 8 * 2**30
assert round(254.28 / 140, 1) == 1.8 and moved["full"] / 288 < 0.1
assert speedup_warning(14.3, steps["full"], steps["last_layers"])

# after: check-worse
assert len(worse) == 9, "9 of these 11 perplexities are above 151,936"

# after: check-names
few = tl.perplexity(tiny.model, tiny.tokenizer, [tiny.tokenizer.decode(single[0])])
from tlkit.evidence.statistics import rank_intervals

ranks = rank_intervals(tl.compare_pairs(one_seed), names).to_dict()
assert any("tokens" in warning for warning in few.warnings), "A score on 32 tokens warns that they are few"
assert set(ranks.values()) == {""}, "One seed gives no ranks"
