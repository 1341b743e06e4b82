assert len(pairs) == 24 and longer == 12 and len(new_pairs) == 12 and len(first) == 64
assert len(tables["validation"]) == 30 and len(tables["test"]) == 40
assert first.completion.str.startswith(HABIT).sum() == 39
assert all(answer.count("`") % 2 == 0 for answer in [*pairs.chosen, *pairs.rejected])
assert len(tokenizer(" " + HABIT.strip()).input_ids) == 7
begin, empty = habits(reference, "validation")
assert 25 <= begin <= 29 and 0.42 < p[:, first_token].mean() < 0.6 and 25 <= (p.argmax(-1) == first_token).sum() <= 29

grid = pd.DataFrame(rows, columns=names)
before, low, middle, high, strong = (grid.iloc[row] for row in range(5))
assert middle["habit"] <= 1 and middle["empty"] <= before["empty"] + 1 <= 5
assert low["habit"] >= 4 and high["habit"] <= 1 and high["empty"] >= 23
assert 8 <= strong["empty"] <= high["empty"] - 6 and strong["habit"] <= 2
assert before["end first"] < 0.025 and 0.09 < middle["end first"] < 0.18 and 0.22 < high["end first"] < 0.38
assert min(low["accuracy"], middle["accuracy"], high["accuracy"]) > 0.9 and 4 < high["margin"] < 9
assert high["margin"] > max(middle["margin"], low["margin"]) and high["loss"] < min(middle["loss"], low["loss"])
scores = [tl.perplexity(model, tokenizer, general).perplexity for model in (reference, runs[4e-4, 0.1][0])]
assert abs(scores[1] / scores[0] - 1) < 0.01
norms = [norm for _, norm in runs[4e-4, 10.0][1]]
assert min(norms[:2]) > 100 and max(norms[2:]) < 1

assert tested["habit"].iloc[0] >= 36 and (tested["habit"][1:] == 0).all()
assert 2 <= tested["empty"].iloc[0] <= 6 and (tested["empty"][1:] <= tested["empty"].iloc[0] + 2).all()
drawn = [set(torch.randperm(12, generator=torch.Generator().manual_seed(seed))[:8].tolist()) for seed in range(3)]
assert min(len(drawn[a] & drawn[b]) for a, b in ((0, 1), (0, 2), (1, 2))) >= 4

assert 3 <= (won < 0).sum() <= 9 and (won > lost).all() and (won - lost).mean() > 2
assert abs(won[6] - 0.2) < 0.4 and abs(lost[6] + 4.1) < 0.8 and abs(new_pairs[BEFORE].loc[6] + [225.1, 66.9]).max() < 1
begin, empty = habits(loaded, "validation")
assert begin <= 3 and empty <= 4 and log["rewards/margins"].iloc[3] > 0.2 and log["rewards/accuracies"].iloc[0] <= 0.5
