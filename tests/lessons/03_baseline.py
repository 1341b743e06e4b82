assert [len(split) for split in (rust.train, rust.validation, rust.test)] == [503, 65, 63]
assert round(loss.exp().item(), 3) == round(by_hand, 3)

from scipy import stats

# The function of the lesson is tl.perplexity, and its interval is scipy's.
interval = stats.bootstrap(
    (baseline.nats, baseline.tokens),
    lambda nats, tokens, axis: np.exp(nats.sum(axis=axis) / tokens.sum(axis=axis)),
    paired=True,
    n_resamples=1000,
    method="percentile",
    rng=np.random.default_rng(0),
).confidence_interval
library = tl.perplexity(model, tokenizer, texts)
assert math.isclose(library.perplexity, perplexity(baseline), rel_tol=1e-5)
assert np.allclose(library.document_nats, baseline.nats, rtol=1e-4)
assert abs(low / interval.low - 1) < 0.05 and abs(high / interval.high - 1) < 0.05
assert len(texts) == 40 and 132 < perplexity(baseline) < 134
assert 15 < (high - low) / 2 < 25
assert 1.2 < perplexity(short) / perplexity(baseline) < 1.3
ends = np.quantile(spread[1], [0.025, 0.975])
assert 60 < ends[0] < 80 and 280 < ends[1] < 350
width = {size: np.ptp(np.quantile(np.log(scores), [0.025, 0.975])) for size, scores in spread.items()}
assert 1.7 < width[10] / width[40] < 2.4

# From best to worst, in the order that the page prints.
assert list(ruler.values()) == sorted(ruler.values())
assert 1.05 < ruler["one block of eight random"] / ruler["pretrained"] < 1.4
assert 5 < vocabulary / ruler["token frequencies"] < 7
assert vocabulary < ruler["random weights"] < 1.1 * vocabulary
counted = torch.bincount(tokens_of(rust.train), minlength=vocabulary)
assert counted.topk(300).values.sum() > 0.5 * counted.sum()
assert [len(doubts(m, {"missing_keys": ()}, tokenizer, texts[:10])) for m in (model, untrained)] == [0, 1]
assert len(doubts(incomplete, report, tokenizer, texts[:10])) == 1
assert 254_801 > 151_936 == tl.architecture("qwen2-0.5b").vocab_size

assert leaked(held_out, rust.train) == [] and leaked(held_out, [almost]) == [passage]
assert after[0] < 8

# An interval over single tokens is too narrow.
stream = torch.tensor([t for text in texts for t in [tokenizer.eos_token_id, *tokenizer(text)["input_ids"]]])
single = []
for place in range(0, len(stream) - 1, 256):
    window = stream[place : place + 257]
    with torch.no_grad():
        single += cross_entropy(model(window[None, :-1]).logits[0], window[1:], reduction="none").tolist()
single = np.array(single)
tokens_drawn = np.random.default_rng(0).integers(len(single), size=(1000, len(single)))
narrow = np.exp(np.quantile(single[tokens_drawn].mean(axis=1), [0.025, 0.975]))
assert np.ptp(narrow) < 0.75 * (high - low)

# after: check-losses
assert 84.5 < by_hand < 85.5 and len(losses) == 170
surprise = dict(zip(pieces, shown.tolist(), strict=True))
assert max(surprise[piece] for piece in (",", "␣the", "␣and", "ved")) < 1.2
assert max(surprise, key=surprise.get) == "new" and surprise["␣mo"] > 5
assert shown.topk(8).values.sum() < shown.sum() / 2 < shown.topk(9).values.sum()
