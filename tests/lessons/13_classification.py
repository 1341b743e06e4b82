from transformers import AutoModelForSequenceClassification

assert (len(data), len(train), len(test), len(names)) == (631, 431, 200, 9)
assert (test.label == train.label.mode()[0]).mean() == 0.165
from sklearn.model_selection import cross_val_score

assert words[-1].C == 100 and probes["mean"][-1].C == probes["last token"][-1].C == 0.01 and first[0].C == 0.1
for name, expected in zip(features, (0.274, 0.457, 0.39, 0.332), strict=True):
    share = cross_val_score(probes[name], features[name], train.label, cv=folds).mean()
    assert abs(share - expected) < 0.012, name
assert abs(cross_val_score(words, train.text, train.label, cv=folds).mean() - 0.496) < 0.012
for n in range(5):
    torch.manual_seed(n)
    untrained.embed_tokens.weight.data.normal_()
    x = pooled(untrained, train.text)[1]
    assert 0.3 < cross_val_score(probes["mean"], x, train.label, cv=folds).mean() < 0.37

score = {name: answers.mean() for name, answers in right.items()}
for name, share in (("bag of words", 0.55), ("last token", 0.295), ("mean", 0.49), ("before training", 0.475)):
    assert abs(score[name] - share) <= 0.02, name
assert abs(score["trained"] - 0.475) <= 0.03
left = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
numbered = torch.arange(4.0).repeat(2, 1)[:, :, None]
assert last_token(numbered, left).flatten().tolist() == [3, 3]
assert last_token(numbered, left.flip(1)).flatten().tolist() == [1, 3]
assert tokenizer(list(test.text[:16]), padding=True, return_tensors="pt").attention_mask[0].eq(0).sum() == 10

assert p < 0.001 and 0.16 < score["mean"] - score["last token"] < 0.23  # the last pair
for one, other in list(against.items())[:2]:
    only_one, only_other = (right[one] & ~right[other]).sum(), (right[other] & ~right[one]).sum()
    assert binomtest(only_one, only_one + only_other).pvalue > 0.05 / 3, one
rates = pd.read_csv(tl.DATA / "sweeps/tiny/classify/rates.csv").sort_values("balanced_accuracy")
best = rates.groupby("strategy").last().filter(like="balanced").round(2)
assert best.loc[["linear_probe", "lora"]].values.tolist() == [[0.29, 0.21, 0.37], [0.39, 0.31, 0.48]]

assert round(t.ppf(1 - 0.05 / 8, 9), 1) == 3.1
assert 5 < average[32] < 7 and (average - half)[32] > 1.7 and average[128] < 0
assert average.is_monotonic_decreasing and -4 < average[256] < -2 and abs((average + half)[256]) < 0.5
means = scores.groupby("labels").mean()
worth = means["mean"] - means["random vectors"]
assert abs(worth[32] - 11) < 1 and abs(worth[256] - 11) < 1
words_of = words[0].build_analyzer()
for size, share in ((32, 0.38), (256, 0.13)):
    unseen = []
    for draw in range(10):
        options = {"train_size": size, "stratify": labels, "random_state": draw}
        chosen, rest = train_test_split(np.arange(len(texts)), **options)
        seen = {word for i in chosen for word in words_of(texts[i])}
        unseen += [word not in seen for i in rest for word in words_of(texts[i])]
    assert abs(np.mean(unseen) - share) < 0.005, size
assert means.loc[32, ["mean", "token vectors"]].round().tolist() == [32, 23]
plain = AutoModelForSequenceClassification.from_pretrained(folder)
assert type(plain) is Qwen2ForSequenceClassification and torch.equal(plain.score.weight, kept.score.weight)
subjects = ["concurrency", "ownership and borrowing"]
assert words.predict(requests).tolist() == subjects
assert [kept.config.id2label[i] for i in number.tolist()] == [subjects[0], "tools and modules"]

# after: check-rates
from sklearn.model_selection import cross_val_score

assert abs(cross_val_score(first, features["mean"], train.label, cv=thirds).mean() - 0.432) < 0.012
assert rate == 0.01 and abs(hits / len(train) - 0.425) < 0.03
