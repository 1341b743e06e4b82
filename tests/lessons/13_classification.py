assert len(data) == 631 and len(train) == 431 and len(test) == 200 and train.label.nunique() == 9
assert (test.label == train.label.mode()[0]).mean() == 0.165
assert max(tried, key=tried.get) == 100, "not at the border of its grid"
for name in ("last token", "mean"):
    by_c = {}
    for C in (0.001, 0.01, 0.1):
        found = make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=1000))
        by_c[C] = cross_val_score(found, features[name], train.label).mean()
    assert max(by_c, key=by_c.get) == 0.01, (name, by_c)
k, z2 = int(right["words"].sum()), 1.96**2
half = 1.96 * np.sqrt(k / 200 * (1 - k / 200) / 200 + z2 / (4 * 200**2)) / (1 + z2 / 200)
centre = (k / 200 + z2 / 400) / (1 + z2 / 200)
assert wilson(right["words"]).endswith(f"({centre - half:.1%} to {centre + half:.1%})")

score = {name: answers.mean() for name, answers in right.items()}
for name, share in (
    ("words", 0.55),
    ("last token", 0.295),
    ("mean", 0.49),
    ("LoRA", 0.51),
):
    assert abs(score[name] - share) <= 0.02, name
left = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
numbered = torch.arange(4.0).repeat(2, 1)[:, :, None]
assert last_token(numbered, left).flatten().tolist() == [3, 3]
assert last_token(numbered, left.flip(1)).flatten().tolist() == [1, 3]

assert p < 0.001 and 0.16 < score["mean"] - score["last token"] < 0.23
for one, other in (("LoRA", "words"), ("LoRA", "mean")):
    b, c = int((right[one] & ~right[other]).sum()), int((right[other] & ~right[one]).sum())
    assert binomtest(b, b + c).pvalue > 0.05 / 3 and abs(b - c) < 14

assert 4.5 < table.lead[32] < 7 and (table.lead - table.half)[32] > 1
assert table.lead.is_monotonic_decreasing and -5.5 < table.lead[256] < -3.2
assert (table.lead + table.half)[256] < 0

# The ending alone, on frozen weights: a probe on the last token gains from it.
whole = AutoModel.from_pretrained(tl.BUNDLED, dtype=torch.float32).eval()
inputs = [
    tokenizer(part, padding=True, return_tensors="pt")
    for part in ([text + ENDING for text in train.text[i : i + 16]] for i in range(0, 431, 16))
]
with torch.no_grad():
    ended = torch.cat([last_token(whole(**one).last_hidden_state, one.attention_mask) for one in inputs])
accuracy = [cross_val_score(probe, x, train.label).mean() for x in (features["last token"], ended.numpy())]
assert accuracy[1] - accuracy[0] > 0.05, accuracy
