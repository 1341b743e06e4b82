assert sizes.sum().tolist() == [503, 65, 63] and len(classes) == 9
assert sizes.train.max() == 84 and sizes.train.min() == 33
assert sizes.test.min() == 4 and sizes.test.max() == 9
longest = (texts["train"].texts >= 0).sum(1)
assert longest.max() == 222 and round(longest.float().mean().item()) == 138

assert scores.low["pretrained, mean"] < scores.high["bag of words"]
assert (100 * scores.test).round().astype(int).tolist() == [46, 59, 31, 27]
assert (100 * (scores.high - scores.low)).between(18, 24).all()

assert all(r.components["head"].trainable_values == 9 * 192 for r in reports.values())
assert reports["linear_probe"].trainable_values == 1728

assert text.categories["logits and loss"] > 0.2 * text.peak
assert task.categories["logits and loss"] < 1e6 and task.peak < 0.85 * text.peak

assert apart < 1e-3

assert scores.low["pretrained, mean"] > scores.high["pretrained, last token"], (
    "The interval of the pretrained mean lies above that of the last token"
)

assert max(draws) < scores.test["pretrained, mean"], "All four are below the pretrained mean"

assert on_known > 0.5, "It puts more than half of the passages that it was trained on into their class"

assert ends["tiny"][1].last_layers < ends[NAME][0].last_layers, (
    "Last blocks: better in the larger model, beyond both intervals"
)

# after: check-tl
assert sum(in_each) / 9 == tl.balanced_accuracy(always_the_same, labels)

# after: check-words
assert words.shape == (503, 2315)
assert round(100 * accuracy(bag, by_words, "validation")) == 47

# after: check-classifier
assert torch.allclose(by_hand.double(), theirs, atol=1e-5), "By hand and by transformers: the same logits, to 1e-5"
start = tl.score_examples(classifier, texts["validation"]).nats_per_token
assert round(start, 1) == 2.5 and round(torch.tensor(9.0).log().item(), 1) == 2.2

# after: check-classifier-2
assert torch.equal(changed, lengths < few.shape[1])
least = (mistaken - by_hand)[changed].abs().amax(1).min() / by_hand.std()
beside = hidden[:, -1] @ classifier.score.weight.T
assert few.shape[1] > shorter.shape[1] and int(changed.sum()) == 8
assert (beside - mistaken).abs().amax(1).max() > 0.01 and least > 0.1

# after: check-chance
assert min(mean) > 0.45 and highest["pretrained, mean"] == 7 and round(100 * mean[7]) == 60
assert round(100 * mean[8]) == 56
assert round(100 * last[8]) == 41 and highest["pretrained, last token"] == 8
assert last[0] < 0.15 and round(100 * mean[0]) == 50
assert sum(end == "." for end in ends) > 0.98 * 503
assert round(100 * chance[0]) == 52 and chance[8] < 0.2

# after: check-high
assert -6 < low < 6 and 20 < high < 32 and min(only.values()) > 3

# after: check-features
assert [round(100 * draw) for draw in draws] == [27, 37, 45, 32]
assert [round(min(above)), round(max(above))] == [13, 32]
assert round(100 * (scores.test["pretrained, mean"] - scores.test.iloc[0])) == 13
assert accuracy(features, linear, "train") == 1 and linear.penalty == 1e-4
assert highest["random weights, mean"] == 0 and len(mean) * 5 == 45
assert 100 / 9 / 4 < 2.8

# after: check-percent
assert tuned[8].max() < 0.15, "With 8 labels, no trained strategy gets above 15%, on average over the seeds"
assert (means.loc["full"] - means.loc["random initialisation"]).idxmax() == 503, (
    "full is furthest ahead of random initialisation with all labels"
)
assert percent["pretrained mean, linear"] == [23, 46, 50, 60]
assert percent["bag of words"] == [12, 35, 52, 47]
assert percent["last_layers"] == [13, 18, 27, 38] and percent["lora"][3] == 39
assert percent["full"] == [14, 15, 17, 35] and percent["linear_probe"][3] == 27
assert percent["random initialisation"] == [11, 9, 14, 20]
heart = record[record.strategy.isin(["last_layers", "lora", "full"])]
assert heart[heart.passages < 503].training_loss.max() < 0.15
assert (record.groupby(["strategy", "passages"]).size() == 3).all() and len(record) == 60
assert (rates.groupby("strategy").size() == 8).all()
assert len({text.label for text in rust.train[:8]}) == 5
spread = record[(record.strategy == "last_layers") & (record.passages == 128)]
seeds = spread.balanced_accuracy
assert [round(100 * seeds.min()), round(100 * seeds.max())] == [18, 39]

# after: check-ours
assert len(ours) == 4

# after: check-percent-2
assert len(mean) == 31 and max(last) == last[-1] and mean.index(max(mean)) == 1
assert max(last[:23]) < 0.4 < last[23]
assert percent["pretrained, last token"][0] == 13 and percent["random, mean"][0] == 50
assert percent["pretrained, mean"][0] == 71 and percent["pretrained, mean"][30] == 66
assert [percent["pretrained, last token"][n] for n in (20, 30)] == [35, 60]
assert tests["pretrained", "mean"] == 55 and tests["pretrained", "last token"] == 53
assert tests["random", "mean"] == 39
fewer = depths[depths.passages == 32].set_index(["weights", "pool"]).balanced_accuracy
assert [round(100 * fewer["pretrained", pool]) for pool in ("mean", "last token")] == [
    44,
    40,
]

# after: check-tl-2
strategies = ["linear_probe", "last_layers", "lora", "full"]
assert all(s[strategies].idxmax() == "last_layers" for s in shares.values())
assert all(s[strategies].idxmin() == "full" for s in shares.values())
assert percent["tiny"].last_layers == 26 and percent[NAME].last_layers == 49
assert all(one[tl.CONTROL] == 11 for one in percent.values())
for low, high in ends.values():
    assert low[strategies].max() < high[strategies].min()
assert max(percent[NAME][strategies]) < tests["pretrained", "last token"]
