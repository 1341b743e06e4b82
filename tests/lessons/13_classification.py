assert (len(data), len(train), len(test), len(classes)) == (631, 431, 200, 9)
assert counting[-1].C == 100 and probe[-1].C == probes["last token"][-1].C == 0.01

whole = make_pipeline(TfidfVectorizer(sublinear_tf=True), clone(counting[-1]))
accuracy["words"] = searched(whole, train.text, (100,))[1]
parts = {name: float(right.strip("%")) / 100 for name, right in accuracy.items()}
for name, p in {"counting": counted, "combined": combined}.items():
    parts[name] = hits(p, labels).mean()
wanted = (0.274, 0.39, 0.473, 0.441, 0.448, 0.457, 0.499, 0.548, 0.557)
assert np.allclose(list(parts.values()), wanted, atol=0.012), parts
assert share.drop(0).idxmax() == (3, 0.003) and round(n * (share[3, 0.003] - share[0, 0])) == 11
assert round(n * share[3, 0.003]) == hits(of_model.loc[train.index].to_numpy(), labels).sum()

score = [answers.mean() for answers in right.values()]
assert np.allclose(score, [0.52, 0.505, 0.56], atol=np.array([0.02, 0.04, 0.04])), score
left, numbered = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]), torch.arange(4.0).repeat(2, 1)[:, :, None]
assert last_token(numbered, left).flatten().tolist() == [3, 3]
assert last_token(numbered, left.flip(1)).flatten().tolist() == [1, 3]
for other in ("counting", "fine-tuned"):
    change = 1 * right["combined"] - right[other]
    assert binomtest((change > 0).sum(), (change != 0).sum()).pvalue > 0.05 / 2, other
found = train.assign(right=named == labels).groupby("label").right.agg(["size", "sum"]).sort_values("size")
assert found["size"].tolist()[:4] == [29, 29, 30, 48] and found["sum"][:3].between(8, 11).all()
assert (found["sum"] / found["size"])[3:].min() > 0.45
assert wrong.nlargest(3, "p").text.str.contains("Mutex|Arc").sum() == 2 and wrong.p.nlargest(3).min() > 0.85
assert desk("Two threads wait for each other's lock.") == "concurrency"
lead, more = curve.average - curve.counting, curve.counting.diff()[1:]
assert np.allclose(lead, [2.6, 3.5, 2, 2.7], atol=0.6) and 6 < more.min() < more.max() < 9.5
assert np.allclose(curve.probe - curve.counting, [2.4, 0.7, -4.2, -4.6], atol=0.6)

shown = [*shares[0.41, "combined"], *shares[0.41, "counting"]]
assert np.allclose(shown, (0.599, 0.659, 0.638, 0.655), atol=0.02), shown
clear = tested["counting"].max(1) >= 0.41
for answers in (right["combined"][sure], right["counting"][clear]):
    low, high = binomtest(answers.sum(), len(answers)).proportion_ci(method="wilson")
    assert low < 0.65 < high and sure.sum() < clear.sum()
for p, threshold, decided in (combined, 0.403, 0.633), (counted, 0.403, 0.65):
    lowest = next(at for at in sorted(p.max(1)) if hits(p, labels)[p.max(1) >= at].mean() >= 0.65)
    assert abs(lowest - threshold) < 0.004 and abs((p.max(1) >= lowest).mean() - decided) < 0.01
