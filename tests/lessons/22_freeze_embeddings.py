assert rows[1] == 4096
assert norms[answers].median() > 100 * norms[~answers].median()
assert rows[0] == 52 and 0 not in tokens
assert norms[300:1000].median() > 3 * norms[3000:4000].median()
assert (norms[95:257] < 3e-5).float().mean() > 0.9
assert ((level >= 95) & (level < 257)).float().mean() > 0.5

assert report.trainable_values == 4_036_800 - 4096 * 192 == 3_250_368
assert not tiny.model.get_output_embeddings().weight.requires_grad

assert round(100 - report.percent) == 19 and round(100 * saved / step.total) == 6
assert round(100 * unneeded) == 15

assert models["qwen2-0.5b"].total_values == 494_032_768
assert round(shares["qwen2-0.5b"]) == 28 and round(shares["llama2-7b"]) == 2

assert sum(p.numel() for p in trained) == again.trainable_values

assert rows[0] == len(tokens[:-1].unique()), "The lookup reaches only tokens of the text"

assert saved == 2 * blocks[:4].numel() * E.numel(), "One of three products with E is saved"


# after: check-tl
one_hot = F.one_hot(tokens, len(E)).float()  # (T, V)
assert torch.equal(one_hot @ E, X), "A lookup is a product with one-hot vectors"
assert Z.allclose(logits, atol=1e-4), "H times E transposed gives the model's logits"
from tlkit.models.parts import is_tied

assert is_tied(tiny.model)
assert E.shape == (4096, 192) and tokens.shape == (64,)

# after: check-Z
right = F.one_hot(tokens[1:], len(E))
assert to_Z[:-1].allclose((Z[:-1].softmax(dim=1) - right) / 63, atol=1e-7)

# after: check-tl-2
assert E.equal(untouched.get_output_embeddings().weight)
assert 0.35 < 1 - after.perplexity / before.perplexity < 0.45
tuning = tl.recorded("rates")
tuning = tuning[tuning.strategy == "freeze_embeddings"].groupby("learning_rate")
assert tuning.validation_perplexity.mean().idxmin() == 2e-3

# after: check-head
assert head.trainable_values == head.total_values == 65_536_000
assert table.trainable_values == 0
