assert (len(data), len(train), len(test), len(names)) == (631, 431, 200, 9)
assert (test.label == train.label.mode()[0]).mean() == 0.165
assert words[-1].C == 100 and probe[-1].C == probes["last token"][-1].C == 0.01


def validated(method, x):
    return cross_val_predict(method, x, train.label, cv=folds, method="predict_proba")


shares = {name: hits(validated(probes[name], given[:431]), train.label).mean() for name, given in features.items()}
shares["words"], shares["both"] = hits(validated(words, train.text), train.label).mean(), hits(both, train.label).mean()
wanted = (0.274, 0.39, 0.473, 0.441, 0.448, 0.457, 0.497, 0.513)
assert np.allclose(list(shares.values()), wanted, atol=0.012), shares
assert share.drop(0).idxmax() == (3, 0.003) and round(n * (share[3, 0.003] - share[0, 0])) == 11
assert recorded.right[recorded.epochs == 0].sum() == round(431 * shares["mean, 2 blocks"])

score = {name: answers.mean() for name, answers in right.items()}
for name, part in (("bag of words", 0.55), ("probe", 0.44), ("both", 0.555), ("fine-tuned", 0.505)):
    assert abs(score[name] - part) <= 0.02 + 0.02 * (name == "fine-tuned")
left = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
numbered = torch.arange(4.0).repeat(2, 1)[:, :, None]
assert last_token(numbered, left).flatten().tolist() == [3, 3]
assert last_token(numbered, left.flip(1)).flatten().tolist() == [1, 3]

for one, other in pairs[1:]:  # the first lies near the bound
    only_one, only_other = (right[one] & ~right[other]).sum(), (right[other] & ~right[one]).sum()
    assert (binomtest(only_one, only_one + only_other).pvalue < 0.05 / 3) == (other == "probe"), other
named = classes[tested["both"].argmax(1)]
recalls = [(named == name)[test.label == name].mean() for name in names]
assert abs(np.mean(recalls) - 0.51) < 0.015 and sorted(recalls)[1] < 0.2 < sorted(recalls)[2]
smart = test.label.to_numpy() == "smart pointers"
assert smart.sum() == 14 and wilson(right["both"][smart]) == "14.3% (4.0% to 39.9%)"
assert np.isin(named[smart], ["ownership and borrowing", "collections and text"]).sum() == 10

assert np.allclose(lead.mean(), [5.1, 6.0, 5.3, 3.5], atol=0.5) and lead.min()[256] > 0  # three texts of 599
assert ((curve["bag of words"][1:] - curve.both[:-1].to_numpy()) < 2.5).all()

certain = both.max(1) >= 0.45
found = certain.mean(), good[certain].mean(), sure.mean(), right["both"][sure].mean()
assert np.allclose(found, (0.33, 0.69, 0.385, 0.74), atol=0.02)  # four texts of the test
lowest = next(at for at in sorted(both.max(1)) if good[both.max(1) >= at].mean() >= 0.65)
assert 0.403 < lowest < 0.411 and 0.43 < (both.max(1) >= lowest).mean() < 0.45  # 0.407 and 44% on the page
