assert blocks_reached(alone.model) == [6, 7]
assert blocks_reached(with_norms.model) == list(range(8))

assert one_block == 14_912_384

assert published.trainable_values == 29_865_088 and two_blocks == 2 * one_block
assert norms == (22 * 2 + 1) * 896 == 40_320
assert 151_936 * 896 == 136_134_656 > 29_865_088  # the head alone

extra = with_norms.trainable_values - alone.trainable_values
assert [round(100 * part) for part in share.values()] == [56, 81, 100]
assert round(100 * (share["depth 2 with norms"] / share["depth 2"] - 1)) == 45
assert extra == 2496 and extra / alone.trainable_values < 1 / 300
assert round(alone.trainable_values, -3) == 813_000
assert round(with_norms.trainable_values, -3) == 815_000

spread = sweep.groupby("blocks").perplexity.agg(lambda both: both.max() - both.min())
assert sweep.arithmetic[0] < 50 and 0.8 < gained[1] < 0.88
assert reached[1] - reached[2] > spread.max()
assert abs(reached[2] - reached[4]) < spread[[2, 4]].max()

assert lower.between(1, 3).all() and without.seed.equals(with_all.seed)

# Older releases of transformers compute the angles of positions once more.
assert abs(first.total / anew.total - 1) < 1e-4
assert round(later.total / anew.total, 2) == 0.61

assert pair == 29_824_768
assert round((below + rest) / rest, 1) == 1.9 and round(2 * head / rest, 2) == 0.75

assert sum(p.numel() for p in trained) == again.trainable_values

norm = base.model.model.norm
x = torch.randn(5, 192)  # five tokens
normalised = x / (x.pow(2).mean(dim=1, keepdim=True) + norm.variance_epsilon).sqrt()
y = norm.weight * normalised
assert y.allclose(norm(x), atol=1e-6), "Two lines of torch are the model's norm"

assert same_rate["perplexity"] > reached[2] + 5, "With the rate of two blocks, eight blocks end above two"

difference = (losses["computed anew"] - losses["from the cache"]).abs()
assert (difference < 1e-6).all(), "The losses are the same, step by step"

assert all(abs(operations / by_formula["depth 8"] - share[name]) < 0.03 for name, operations in by_formula.items())
