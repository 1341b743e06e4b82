assert [len(split) for split in (rust.train, rust.validation, rust.test)] == [503, 65, 63]

from scipy import stats

# The lesson's intervals are scipy's.
interval = stats.bootstrap(
    (baseline.nats, baseline.tokens),
    lambda n, t, axis: np.exp(n.sum(axis) / t.sum(axis)),
    paired=True,
    method="percentile",
    rng=np.random.default_rng(0),
).confidence_interval
assert abs(low / interval.low - 1) < 0.05 and abs(high / interval.high - 1) < 0.05
assert len(texts) == 40 and 132 < perplexity(baseline) < 134
assert 15 < (high - low) / 2 < 25
assert 1.2 < perplexity(short) / perplexity(baseline) < 1.3
ends = np.quantile(spread[1], [0.025, 0.975])
assert 60 < ends[0] < 80 and 280 < ends[1] < 350
width = {size: np.ptp(np.quantile(np.log(scores), [0.025, 0.975])) for size, scores in spread.items()}
assert 1.7 < width[10] / width[40] < 2.4

# In the order that the page prints.
assert list(ruler.values()) == sorted(ruler.values())
assert 37 < ruler["pretrained, Python"] < 40 and 4 * ruler["pretrained"] < ruler["token frequencies"]
assert vocabulary < ruler["random weights"] < 1.1 * vocabulary
assert counts.topk(300).values.sum() > 0.5 * counts.sum()
# Another seed moves them by 1; the first was 7,600 to 11,900.
first, *middle, last = (perplexity(score(broken, texts)) for broken, _ in incomplete)
assert vocabulary < first and 1.9 < last / ruler["pretrained"] < 2.2
assert 143 < min(middle) < 147 < 170 < max(middle) < 174 and 2 * max(*middle, last) < limit
assert [len(doubts(*incomplete[number], texts[:10], limit)) for number in (0, 2)] == [2, 1]
assert 254_801 > 151_936 == tl.architecture("qwen2-0.5b").vocab_size

assert leaked(held_out, rust.train) == [] and leaked(held_out, [almost]) == [passage]
assert after[0] < 8 and after[1] > before[1] and low < math.exp(one.sum() / baseline.tokens.sum()) < 119

# An interval over single tokens is too narrow.
stream = torch.tensor([token for text in texts for token in tokens_of(text)])
with torch.no_grad():
    logits = torch.cat([model(part[None]).logits[0] for part in stream[:-1].split(256)])
single = cross_entropy(logits, stream[1:], reduction="none").numpy()
drawn = np.random.default_rng(0).integers(len(single), size=(1000, len(single)))
narrow = np.exp(np.quantile(single[drawn].mean(axis=1), [0.025, 0.975]))
assert np.ptp(narrow) < 0.75 * (high - low)

# after: check-losses
assert 84.5 < mean.exp() < 85.5 and len(losses) == 170
surprise = dict(zip(pieces, shown.tolist(), strict=True))
assert max(surprise[piece] for piece in (",", "␣the", "␣and", "ved")) < 1.2
assert max(surprise, key=surprise.get) == "new"
assert {pieces[place] for place in shown.topk(9).indices} >= {":", "␣on", "new", "␣mo"}
assert shown.topk(8).values.sum() < shown.sum() / 2 < shown.topk(9).values.sum()
