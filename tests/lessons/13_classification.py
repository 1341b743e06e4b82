from transformers import AutoModelForSequenceClassification

assert len(data) == 631 and len(train) == 431 and len(test) == 200 and train.label.nunique() == 9
assert (test.label == train.label.mode()[0]).mean() == 0.165
from sklearn.model_selection import cross_val_score

assert words[-1].C == 100 and probes["mean"][-1].C == probes["last token"][-1].C == first[0].C == 0.01
for name, expected in (("last token", 0.299), ("mean", 0.443), ("random weights", 0.195)):
    share = cross_val_score(probes[name], features[name], train.label, cv=folds).mean()
    assert abs(share - expected) < 0.012, name
assert abs(cross_val_score(words, train.text, train.label, cv=folds).mean() - 0.497) < 0.012

score = {name: answers.mean() for name, answers in right.items()}
for name, share in (("bag of words", 0.55), ("last token", 0.295), ("mean", 0.49), ("before training", 0.47)):
    assert abs(score[name] - share) <= 0.02, name
assert abs(score["trained"] - 0.45) <= 0.03
left = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
numbered = torch.arange(4.0).repeat(2, 1)[:, :, None]
assert last_token(numbered, left).flatten().tolist() == [3, 3]
assert last_token(numbered, left.flip(1)).flatten().tolist() == [1, 3]
assert tokenizer(list(test.text[:16]), padding=True, return_tensors="pt").attention_mask.min() == 0

assert p < 0.001 and 0.16 < score["mean"] - score["last token"] < 0.23  # the last pair
for one, other in list(against.items())[:2]:
    only_one, only_other = (right[one] & ~right[other]).sum(), (right[other] & ~right[one]).sum()
    assert binomtest(only_one, only_one + only_other).pvalue > 0.05 / 3, one
larger = clone(probes["random weights"]).set_params(logisticregression__C=100)
assert abs(cross_val_score(larger, features["random weights"], train.label, cv=folds).mean() - 0.202) < 0.015
rates = pd.read_csv(tl.DATA / "sweeps/tiny/classify/rates.csv").groupby("strategy").balanced_accuracy.max()
assert rates[["linear_probe", "lora"]].round(2).tolist() == [0.29, 0.39]

assert round(t.ppf(1 - 0.05 / 8, 9), 1) == 3.1
assert 4.5 < mean[32] < 7 and (mean - half)[32] > 1
assert mean.is_monotonic_decreasing and -5.5 < mean[256] < -3.2 and (mean + half)[256] < 0
worth = (scores["pretrained"] - scores["random weights"]).groupby("labels").mean()
assert abs(worth[32] - 18) < 1.5 and abs(worth[256] - 28) < 1.5
words_of = words[0].build_analyzer()
for size, share in ((32, 0.39), (256, 0.14)):
    unseen = []
    for draw in range(10):
        options = {"train_size": size, "stratify": labels, "random_state": draw}
        chosen, rest = train_test_split(np.arange(len(texts)), **options)
        seen = {word for i in chosen for word in words_of(texts[i])}
        unseen += [word not in seen for i in rest for word in words_of(texts[i])]
    assert abs(np.mean(unseen) - share) < 0.01, (size, np.mean(unseen))
assert round(scores.groupby("labels").mean().loc[32, "pretrained"]) == 32
plain = AutoModelForSequenceClassification.from_pretrained(folder)
assert type(plain) is Qwen2ForSequenceClassification and torch.equal(plain.score.weight, kept.score.weight)
subjects = ["concurrency", "ownership and borrowing"]
assert words.predict(questions).tolist() == subjects
assert [kept.config.id2label[i] for i in number.tolist()] == [subjects[0], "tools and modules"]

# after: check-rates
from sklearn.model_selection import cross_val_score

assert abs(cross_val_score(first, features["mean"], train.label, cv=thirds).mean() - 0.429) < 0.012
assert rate == 0.01 and abs(hits / len(train) - 0.432) < 0.03 and 0.8 < loss < 2
