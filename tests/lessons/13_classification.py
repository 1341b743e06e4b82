assert (len(data), len(train), len(test), len(names)) == (631, 431, 200, 9)
assert counting[-1].C == 100 and probe[-1].C == probes["last token"][-1].C == 0.01


whole = make_pipeline(TfidfVectorizer(sublinear_tf=True), counting[-1])
words = cross_val_predict(whole, train.text, train.label, cv=folds, method="predict_proba")
parts = {name: float(right.strip("%")) / 100 for name, right in accuracy.items()}
for name, p in {"words": words, "counting": counted, "combined": combined}.items():
    parts[name] = hits(p, labels).mean()
wanted = (0.274, 0.39, 0.473, 0.441, 0.448, 0.457, 0.499, 0.548, 0.557)
assert np.allclose(list(parts.values()), wanted, atol=0.012), parts
assert share.drop(0).idxmax() == (3, 0.003) and round(n * (share[3, 0.003] - share[0, 0])) == 11
assert round(n * share[3, 0.003]) == hits(of_model.loc[train.index].to_numpy(), labels).sum()

score = {name: answers.mean() for name, answers in right.items()}
for name, part in (("counting", 0.52), ("probe", 0.44), ("combined", 0.56), ("fine-tuned", 0.505)):
    assert abs(score[name] - part) <= 0.02 + 0.02 * (name in ("combined", "fine-tuned"))
left = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
numbered = torch.arange(4.0).repeat(2, 1)[:, :, None]
assert last_token(numbered, left).flatten().tolist() == [3, 3]
assert last_token(numbered, left.flip(1)).flatten().tolist() == [1, 3]

for one, other in pairs[1:]:  # the first lies near the bound
    only_one, only_other = (right[one] & ~right[other]).sum(), (right[other] & ~right[one]).sum()
    assert binomtest(only_one, only_one + only_other).pvalue > 0.05 / 3, other
recalls = test.assign(right=right["combined"]).groupby("label").right
assert abs(recalls.mean().mean() - 0.52) < 0.03 and sorted(recalls.mean())[1] < 0.2 < sorted(recalls.mean())[2]
assert (named[test.label == "smart pointers"] == "ownership and borrowing").sum() > 6

lead, more = curve.average - curve.counting, curve.counting.diff()[1:]
assert np.allclose(lead, [2.6, 3.5, 2, 2.7], atol=0.6) and 6 < more.min() < more.max() < 9.5
assert np.allclose(curve.probe - curve.counting, [2.4, 0.7, -4.2, -4.6], atol=0.6)

found = [*shares[0.41, "combined"], *shares[0.41, "counting"], sure.mean(), right["combined"][sure].mean()]
clear = tested["counting"].max(1) >= 0.41
found += [clear.mean(), right["counting"][clear].mean()]
wanted = (0.599, 0.659, 0.638, 0.655, 0.59, 0.686, 0.68, 0.625)
assert np.allclose(found, wanted, atol=0.025), found  # five texts of the test
for p, threshold, decided in (combined, 0.403, 0.633), (counted, 0.403, 0.65):
    lowest = next(at for at in sorted(p.max(1)) if hits(p, labels)[p.max(1) >= at].mean() >= 0.65)
    assert abs(lowest - threshold) < 0.004 and abs((p.max(1) >= lowest).mean() - decided) < 0.01
