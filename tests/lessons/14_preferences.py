assert len(pairs) == 24 and longer == 12 and len(new_pairs) == 12 and len(first) == 64
assert len(tables["validation"]) == 30 and len(tables["test"]) == 40
assert first.completion.str.startswith(HABIT).sum() == 39

before, low, middle, high, strong = (grid.iloc[row] for row in range(5))
assert 24 <= before["habit"] <= 29 and middle["habit"] <= 2 and before["empty"] <= middle["empty"] <= 7
assert low["habit"] >= 4 and high["habit"] <= 1 and high["empty"] >= 18
assert strong["empty"] <= high["empty"] / 2 and strong["habit"] <= 2 and strong["reward accuracy"] < 1
assert before["end first"] < 0.04 and 0.09 < middle["end first"] < 0.19 and 0.22 < high["end first"] < 0.38
assert min(low["reward accuracy"], middle["reward accuracy"], high["reward accuracy"]) > 0.9
assert high["margin (nats)"] > 1.5 * middle["margin (nats)"] and high["margin (nats)"] == grid["margin (nats)"].max()
assert (abs(grid["general perplexity"] / before["general perplexity"] - 1) < 0.01).all()
assert sum(norm > 1 for _, norm in runs[4e-4, 1.0][1]) == 6
assert max(norm for _, norm in runs[4e-4, 10.0][1][2:]) < 1 < min(norm for _, norm in runs[4e-4, 10.0][1][:2])
assert runs[4e-4, 1.0][1][-1][0] < runs[2e-4, 1.0][1][-1][0] < 0.05

assert tested["habit"].iloc[0] > 30 and (tested["habit"][1:] == 0).all()
assert 2 <= tested["empty"].iloc[0] <= 6 and tested["empty"][1:].between(0, 11).all()
assert (abs(tested["general perplexity"][1:] / tested["general perplexity"].iloc[0] - 1) < 0.01).all()
assert round(100 * 1.96**2 / (40 + 1.96**2)) == 9  # Wilson's

assert 3 <= (won < 0).sum() <= 9 and (won > lost).all() and (won - lost).mean() > 2
assert abs(won[0] - 0.3) < 0.5 and abs(lost[0] + 3.2) < 0.8 and abs(new_pairs[BEFORE].loc[0] + [197.3, 81.4]).max() < 1
likely = reference(**as_batch(tables["validation"].prompt)).logits[:, -1].softmax(-1)
assert 0.36 < likely[:, tokenizer(" G").input_ids[0]].mean() < 0.45
begin, empty = habits(loaded, "validation")
assert begin <= 1 and empty <= 4 and log["rewards/margins"].iloc[3] > log["rewards/margins"].iloc[0]
