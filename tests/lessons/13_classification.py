assert (len(data), len(train), len(test), len(names)) == (631, 431, 200, 9)
assert (test.label == train.label.mode()[0]).mean() == 0.165
assert words[-1].C == 100 and probes["mean"][-1].C == probes["last token"][-1].C == 0.01


def validated(method, x):
    return cross_val_predict(method, x, train.label, cv=folds, method="predict_proba")


for name, expected in zip(features, (0.274, 0.457, 0.332), strict=True):
    assert abs(hits(validated(probes[name], features[name][:431]), train.label).mean() - expected) < 0.012, name
alone = validated(words, train.text)
assert abs(hits(alone, train.label).mean() - 0.496) < 0.012 and abs(hits(P, train.label).mean() - 0.506) < 0.012
with_random = alone + validated(probes["random vectors"], features["random vectors"][:431])
assert abs(hits(with_random, train.label).mean() - 0.473) < 0.012

score = {name: answers.mean() for name, answers in right.items()}
for name, share in (("bag of words", 0.55), ("probe", 0.49), ("both", 0.58)):
    assert abs(score[name] - share) <= 0.02, name
assert 0.02 <= score["fine-tuned"] - score["probe"] <= 0.1  # another order of the texts: 5.5 points
left = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
numbered = torch.arange(4.0).repeat(2, 1)[:, :, None]
assert last_token(numbered, left).flatten().tolist() == [3, 3]
assert last_token(numbered, left.flip(1)).flatten().tolist() == [1, 3]
assert trainer.state.global_step == 54

for one, other in pairs[1:]:  # the first lies at the bound
    only_one, only_other = (right[one] & ~right[other]).sum(), (right[other] & ~right[one]).sum()
    assert (binomtest(only_one, only_one + only_other).pvalue < 0.05 / 3) == (other == "probe"), other
assert abs(recalls["both"].mean() - 0.54) < 0.01
smart = test.label.to_numpy() == "smart pointers"
assert smart.sum() == 14 and wilson(right["both"][smart]) == "14.3% (4.0% to 39.9%)"
for p in tested["bag of words"], from_folder:
    named = classes[p.argmax(1)][smart]
    assert np.isin(named, ["ownership and borrowing", "collections and text"]).sum() == 9

assert round(t.ppf(1 - 0.05 / 6, 9), 1) == 2.9
assert np.allclose(average, (6.1, 1.8, 3.0), atol=1) and ((average - half > 0) == [True, False, True]).all()
means = scores.groupby("labels").mean()
assert (means["both"] >= means.max(axis=1)).all()
assert ((means["probe"] > means["bag of words"]) == [True, False, False]).all()
words_of = words[0].build_analyzer()
for size, share in ((32, 0.38), (256, 0.13)):
    unseen = []
    for n in range(10):
        chosen, rest = train_test_split(np.arange(631), train_size=size, stratify=labels, random_state=n)
        seen = {word for i in chosen for word in words_of(texts[i])}
        unseen += [word not in seen for i in rest for word in words_of(texts[i])]
    assert abs(np.mean(unseen) - share) < 0.005, size
certain, certain_alone = P.max(1) >= 0.4, alone.max(1) >= 0.6
found = certain.mean(), hits(P, train.label)[certain].mean(), sure.mean(), right["both"][sure].mean()
assert np.allclose(found, (0.432, 0.661, 0.545, 0.734), atol=0.02)  # four texts of the test
assert np.allclose((certain_alone.mean(), hits(alone, train.label)[certain_alone].mean()), (0.283, 0.648), atol=0.02)
