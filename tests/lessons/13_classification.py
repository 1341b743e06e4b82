assert len(data) == 631 and len(train) == 431 and len(test) == 200 and train.label.nunique() == 9
assert counts.index[0] == "ownership and borrowing" and (test.label == counts.index[0]).mean() == 0.165
k, z2 = int(right["bag of words"].sum()), 1.96**2
half = 1.96 * np.sqrt(k / 200 * (1 - k / 200) / 200 + z2 / (4 * 200**2)) / (1 + z2 / 200)
centre = (k / 200 + z2 / 400) / (1 + z2 / 200)
assert wilson(right["bag of words"]).endswith(f"({centre - half:.1%} to {centre + half:.1%})")

score = {name: answers.mean() for name, answers in right.items()}
assert len(classifier.head.weight) == 9 and upper.layers is not lower.layers
for name, share in (
    ("bag of words", 0.545),
    ("frozen, last token", 0.305),
    ("frozen, mean", 0.485),
    ("LoRA, mean", 0.51),
):
    assert abs(score[name] - share) <= 0.02, name

points, low, high = difference(right["frozen, mean"], right["frozen, last token"])
assert 15 < points < 21 and low > 0 and round(z, 2) == 2.39
for one, other in pairs[1:]:
    points, low, high = difference(right[one], right[other])
    assert low < 0 < high and abs(points) < 6
one, other = right["frozen, mean"], right["frozen, last token"]
b, c = int((one & ~other).sum()), int((other & ~one).sum())
assert binomtest(b, b + c).pvalue < 0.05 / 3  # the exact test of the same two counts

assert classify("A thread sends values through a channel, and another receives them.")[0] == "concurrency"

ahead = means["frozen, mean"] - means["bag of words"]
assert ahead.loc[[32, 64]].between(3, 8).all() and abs(ahead[128]) < 2 and (ahead.loc[[256, 431]] < 0).all()
assert (means["frozen, last token"] < means[["bag of words", "frozen, mean"]].min(axis=1)).all()

depths = tl.recorded("depth", "smollm2-135m-instruct", task="classify").query(
    "passages == 503 and weights == 'pretrained'"
)
last = depths[depths.depth == 30].set_index("pool").balanced_accuracy
assert (100 * last).round().to_dict() == {"last token": 60, "mean": 66}
