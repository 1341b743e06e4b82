import warnings

assert (len(data), len(train), len(test), len(names)) == (631, 431, 200, 9)
assert (test.label == train.label.mode()[0]).mean() == 0.165
assert words[-1].C == 100 and probes["mean"][-1].C == probes["last token"][-1].C == 0.01 and head[0].C == 0.1
for name, expected in zip(features, (0.274, 0.457, 0.332), strict=True):
    share = cross_val_score(probes[name], features[name][:431], train.label, cv=folds).mean()
    assert abs(share - expected) < 0.012, name
assert abs(cross_val_score(words, train.text, train.label, cv=folds).mean() - 0.496) < 0.012
for n in range(12):
    torch.manual_seed(n)
    untrained.embed_tokens.weight.data.normal_()
    x = pooled(untrained, train.text)[1]
    assert 0.31 < cross_val_score(probes["mean"], x, train.label, cv=folds).mean() < 0.38

score = {name: answers.mean() for name, answers in right.items()}
for name, share in (("bag of words", 0.55), ("last token", 0.295), ("mean", 0.49)):
    assert abs(score[name] - share) <= 0.02, name
assert abs(score["fine-tuned"] - 0.475) <= 0.03
left = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
numbered = torch.arange(4.0).repeat(2, 1)[:, :, None]
assert last_token(numbered, left).flatten().tolist() == [3, 3]
assert last_token(numbered, left.flip(1)).flatten().tolist() == [1, 3]
assert tokenizer(list(test.text[:16]), padding=True, return_tensors="pt").attention_mask[0].eq(0).sum() == 10

assert p < 0.001 and 0.16 < score["mean"] - score["last token"] < 0.23  # the last pair
for one, other in list(against.items())[:2]:
    only_one, only_other = (right[one] & ~right[other]).sum(), (right[other] & ~right[one]).sum()
    assert binomtest(only_one, only_one + only_other).pvalue > 0.05 / 3, one
assert wilson(right["bag of words"][truth == "smart pointers"]) == "28.6% (11.7% to 54.6%)"
for named in (words.predict(test.text), probes["mean"].predict(features["mean"][431:])):
    assert np.isin(named[truth == "smart pointers"], ["ownership and borrowing", "collections and text"]).sum() == 9

assert round(t.ppf(1 - 0.05 / 8, 9), 1) == 3.1
assert 5 < average[32] < 7 and (average - half)[32] > 1.7 and average[128] < 0
assert average.is_monotonic_decreasing and -4 < average[256] < -2 and abs((average + half)[256]) < 0.5


def draws(size):
    return [train_test_split(np.arange(631), train_size=size, stratify=labels, random_state=n) for n in range(10)]


warnings.simplefilter("ignore", UserWarning)  # among 32 labels a class may have two texts
inside = []  # C chosen on the 32 labels
for name, grid in (("mean", (0.001, 0.01, 0.1, 1)), ("bag of words", (1, 10, 100, 1000))):
    search, x = GridSearchCV(methods[name][0], {"logisticregression__C": grid}, cv=3), methods[name][1]
    inside.append(np.array([search.fit(x[c], labels[c]).score(x[o], labels[o]) for c, o in draws(32)]))
gain = inside[0] - inside[1]
width = half[32] / lead.std(axis=1)[32] * gain.std(ddof=1)
found = *map(np.mean, inside), gain.mean() - width, gain.mean() + width
assert np.allclose(found, (0.304, 0.231, -0.006, 0.151), atol=0.01)
words_of = words[0].build_analyzer()
for size, share in ((32, 0.38), (256, 0.13)):
    unseen = []
    for chosen, rest in draws(size):
        seen = {word for i in chosen for word in words_of(texts[i])}
        unseen += [word not in seen for i in rest for word in words_of(texts[i])]
    assert abs(np.mean(unseen) - share) < 0.005, size
certain = P.max(1) >= 0.6
found = certain.mean(), hits[certain].mean(), sure.mean(), right["bag of words"][sure].mean()
assert np.allclose(found, (0.28, 0.65, 0.375, 0.693), atol=0.02)  # four texts of the test

# after: check-rates
assert abs(before.mean() - 0.432) < 0.012
assert rate == 0.01 and abs(hits / len(train) - 0.425) < 0.03
