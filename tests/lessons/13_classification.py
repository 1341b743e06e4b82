assert (len(data), len(train), len(test), len(names)) == (631, 431, 200, 9)
assert (test.label == train.label.mode()[0]).mean() == 0.165
assert words[-1].C == 100 and probe[-1].C == probes["last token"][-1].C == 0.01


def validated(method, x):
    return cross_val_predict(method, x, train.label, cv=folds, method="predict_proba")


parts = {name: hits(validated(probes[name], given[:431]), labels).mean() for name, given in features.items()}
parts["words"], parts["combined"] = hits(counted, labels).mean(), hits(combined, labels).mean()
wanted = (0.274, 0.39, 0.473, 0.441, 0.448, 0.457, 0.497, 0.527)
assert np.allclose(list(parts.values()), wanted, atol=0.012), parts
assert share.drop(0).idxmax() == (3, 0.003) and round(n * (share[3, 0.003] - share[0, 0])) == 11
assert recorded.right[recorded.epochs == 0].sum() == round(431 * parts["mean, 2 blocks"])
assert round(n * share[3, 0.003]) == hits(of_model.loc[train.index].to_numpy(), labels).sum()

score = {name: answers.mean() for name, answers in right.items()}
for name, part in (("words", 0.55), ("probe", 0.44), ("combined", 0.545), ("fine-tuned", 0.505)):
    assert abs(score[name] - part) <= 0.02 + 0.02 * (name in ("combined", "fine-tuned"))
left = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
numbered = torch.arange(4.0).repeat(2, 1)[:, :, None]
assert last_token(numbered, left).flatten().tolist() == [3, 3]
assert last_token(numbered, left.flip(1)).flatten().tolist() == [1, 3]

for one, other in pairs[1:]:  # the first lies near the bound
    only_one, only_other = (right[one] & ~right[other]).sum(), (right[other] & ~right[one]).sum()
    assert binomtest(only_one, only_one + only_other).pvalue > 0.05 / 3, other
recalls = test.assign(right=right["combined"]).groupby("label").right
assert abs(recalls.mean().mean() - 0.49) < 0.03 and sorted(recalls.mean())[1] < 0.2 < sorted(recalls.mean())[2]
assert recalls.size()["smart pointers"] == 14 and recalls.size()["unsafe code and macros"] == 13
smart = named[test.label == "smart pointers"]
assert np.isin(smart, ["ownership and borrowing", "collections and text"]).sum() >= 10

lead = curve.average - curve["bag of words"]
assert np.allclose(lead, [3.4, 6.6, 5.2, 5.2], atol=0.6) and 3 < lead.min() < lead.max() < 7
assert ((curve["bag of words"][1:] - curve.average[:-1].to_numpy()) < 3).all()

found = [*shares[0.45, "combined"], *shares[0.6, "words"], sure.mean(), right["combined"][sure].mean()]
assert np.allclose(found, (0.473, 0.667, 0.283, 0.648, 0.52, 0.673), atol=0.025)  # five texts of the test
certain = tested["words"].max(1) >= 0.6
assert abs(certain.mean() - 0.375) < 0.02 and abs(right["words"][certain].mean() - 0.693) < 0.03
lowest = next(at for at in sorted(combined.max(1)) if hits(combined, labels)[combined.max(1) >= at].mean() >= 0.65)
assert 0.435 < lowest < 0.443 and abs((combined.max(1) >= lowest).mean() - 0.5) < 0.01
