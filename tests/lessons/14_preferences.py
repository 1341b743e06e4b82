assert len(pairs) == 24 and longer == 12 and len(new_pairs) == 12 and len(first) == 64
assert len(tables["validation"]) == 30 and len(tables["test"]) == 40

before, middle = grid.loc["reference"].iloc[0], grid.loc[2e-4, 1.0, 8]
assert 24 <= before["habit"] <= 29 and middle["habit"] <= 2 and middle["empty"] <= 3
assert all(grid.loc[setting, "habit"] >= 8 for setting in ((2e-4, 1.0, 6), (1e-4, 1.0, 8)))
assert all(grid.loc[setting, "empty"] >= 12 for setting in ((2e-4, 1.0, 12), (4e-4, 1.0, 8)))
assert (grid["reward accuracy"][1:] > 0.8).all()
assert (abs(grid["general perplexity"] / before["general perplexity"] - 1) < 0.02).all()

assert tested["habit"].iloc[0] > 30 and (tested["habit"][1:] == 0).all()
assert (tested["empty"][1:] <= tested["empty"].iloc[0] + 2).all()
assert (abs(tested["general perplexity"][1:] / tested["general perplexity"].iloc[0] - 1) < 0.01).all()
assert round(100 * 1.96**2 / (40 + 1.96**2)) == 9  # the upper end of Wilson's interval for 0 of 40

assert 3 <= (won < 0).sum() <= 9 and (won > lost).all() and (won - lost).mean() > 2
assert last < 0.1
assert wrecked["margin (nats)"] > 4 * middle["margin (nats)"]
assert 1.1 < wrecked["general perplexity"] / before["general perplexity"] < 1.5
