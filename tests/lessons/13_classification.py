assert (len(data), len(train), len(test), len(names)) == (631, 431, 200, 9)
assert (test.label == train.label.mode()[0]).mean() == 0.165
assert words[-1].C == 100 and probes["mean"][-1].C == probes["last token"][-1].C == 0.01


def validated(method, x):
    return cross_val_predict(method, x, train.label, cv=folds, method="predict_proba")


for name, expected in zip(features, (0.274, 0.457, 0.332), strict=True):
    assert abs(hits(validated(probes[name], features[name][:431]), train.label).mean() - expected) < 0.012, name
alone = validated(words, train.text)
assert abs(hits(alone, train.label).mean() - 0.496) < 0.012 and abs(hits(both, train.label).mean() - 0.506) < 0.012

score = {name: answers.mean() for name, answers in right.items()}
for name, share in (("bag of words", 0.55), ("probe", 0.49), ("both", 0.58)):
    assert abs(score[name] - share) <= 0.02, name
assert 0.02 <= score["fine-tuned"] - score["probe"] <= 0.07 and abs(score["words + fine-tuned"] - score["both"]) <= 0.02
left = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
numbered = torch.arange(4.0).repeat(2, 1)[:, :, None]
assert last_token(numbered, left).flatten().tolist() == [3, 3]
assert last_token(numbered, left.flip(1)).flatten().tolist() == [1, 3]
assert trainer.state.global_step == 27

for one, other in pairs[1:]:  # the first lies near the bound
    only_one, only_other = (right[one] & ~right[other]).sum(), (right[other] & ~right[one]).sum()
    assert (binomtest(only_one, only_one + only_other).pvalue < 0.05 / 3) == (other == "probe"), other
named = classes[tested["both"].argmax(1)]
recalls = [(named == name)[test.label == name].mean() for name in names]
assert abs(np.mean(recalls) - 0.54) < 0.01 and sorted(recalls)[1] < 0.3 < sorted(recalls)[2]
smart = test.label.to_numpy() == "smart pointers"
assert smart.sum() == 14 and wilson(right["both"][smart]) == "14.3% (4.0% to 39.9%)"
assert np.isin(named[smart], ["ownership and borrowing", "collections and text"]).sum() == 9

assert round(t.ppf(1 - 0.05 / 8, 9), 1) == 3.1
assert np.allclose(mean, [[6.1, 6.7], [3.0, 5.4]], atol=1)  # points; one fold may choose another C
assert (scores["words + random"] - scores["words"]).groupby("labels").mean().max() < 0.5

certain = both.max(1) >= 0.4
found = certain.mean(), good[certain].mean(), sure.mean(), right["both"][sure].mean()
assert np.allclose(found, (0.432, 0.661, 0.545, 0.734), atol=0.02)  # four texts of the test
lowest = next(at for at in sorted(both.max(1)) if good[both.max(1) >= at].mean() >= 0.65)
assert 0.385 < lowest < 0.393 and 0.45 < (both.max(1) >= lowest).mean() < 0.47  # 0.389 and 46% on the page
