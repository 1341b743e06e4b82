assert len(pairs) == 24 and pairs.prompt.nunique() >= 20 and len(new_pairs) == 12 and len(first) == 64
assert len(tables["validation"]) == 30 and len(tables["test"]) == 40
assert first.completion.str.startswith(HABIT).sum() == 39 and not pairs.prompt.isin(first.prompt).any()
assert all(answer.count("`") % 2 == 0 for answer in [*pairs.chosen, *pairs.rejected])
assert size(HABIT.strip()) == 7

# Of two neighbours the gaps are n and -n, so no rule on the gap is right more than once; without matching one is.
for table in (pairs, new_pairs):
    gap = (table.chosen.map(size) - table.rejected.map(size)).to_numpy()
    assert (gap[::2] == -gap[1::2]).all() and (gap[::2] > 0).all()
right = {name: max(((g.abs() <= limit) == (g > 0)).sum() for limit in g.abs()) for name, g in gaps.items()}
assert right["matched"] == 12 and right["unmatched"] == 17
schedule_of = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=1.0)
schedule = get_scheduler("linear", schedule_of, 0, 8)
shares = []
for _ in range(8):
    shares.append(schedule.get_last_lr()[0])
    schedule_of.step()
    schedule.step()
assert shares[0] == 1 and shares[-1] == 1 / 8

seen = pd.Series(read_off(reference), SEEN)
assert seen["habit"] == 30 and 0.42 < seen["habit first"] < 0.62 and seen["end first"] < 0.02

grid = pd.DataFrame(rows, columns=names).set_index(names[:2])
places = [("SFT", 6e-4), ("DPO", 1e-4), ("DPO", 3e-4), ("DPO", 1e-3), ("DPO + SFT", 3e-4), ("DPO + SFT", 1e-3)]
sft, low, middle, high, both, both_high = (grid.loc[place] for place in places)
assert middle["habit"] <= 1 and middle["empty"] <= 1 and sft["habit"] <= 2 and sft["empty"] <= 2
assert 5 <= low["habit"] <= 14 and 0.03 < middle["end first"] < 0.08
# The highest rate of DPO: better by its log, and worse in what it does to the chosen answers and at the beginning.
assert high["loss"] < min(middle["loss"], low["loss"]) and high["margin"] > 1.6 * max(middle["margin"], low["margin"])
assert -6.5 < high["chosen"] < -3 and middle["chosen"] > 0 and 0.06 < high["end first"] < 0.16
assert 0.06 < grid.loc[("SFT", 3e-4), "habit first"] < 0.15 and middle["habit first"] < 0.03
assert both["chosen"] > middle["chosen"] + 0.2 and high["chosen"] < both_high["chosen"] < -1 and both_high["empty"] >= 4

assert tested["habit"].iloc[0] == 40 and (tested["habit"][1:] <= 1).all() and (tested["empty"][1:] <= 1).all()
assert tested["end first"][1:].min() > 0.01 and tested["end first"][1:].max() < 0.11
assert 0.08 < binomtest(0, 40).proportion_ci(method="wilson").high < 0.09

assert 6 <= (won > 0).sum() <= 10 and (won > lost).sum() >= 11 and 4 < (won - lost).mean() < 7
assert abs(won[2]) < 0.6 and abs(lost[2] + 5.2) < 0.8 and abs(new_pairs[BEFORE].loc[2] + [261.2, 87.9]).max() < 1
loaded_seen = read_off(loaded)
assert loaded_seen[0] <= 2 and loaded_seen[1] <= 2
assert log["rewards/margins"].iloc[3] > 0.15 and log["rewards/accuracies"].iloc[0] <= 0.5
