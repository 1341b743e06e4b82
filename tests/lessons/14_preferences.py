from scipy.stats import binomtest

assert len(pairs) == 24 and pairs.prompt.nunique() >= 20 and len(new_pairs) == 12 and len(first) == 64
assert len(tables["validation"]) == 30 and len(tables["test"]) == 40
assert first.completion.str.startswith(HABIT).sum() == 39 and not pairs.prompt.isin(first.prompt).any()
assert all(answer.count("`") % 2 == 0 for answer in [*pairs.chosen, *pairs.rejected])
assert size(HABIT.strip()) == 7 and tokenizer.decode(tokenizer(" " + HABIT).input_ids[0]) == " G"

# Of two neighbours the gaps are n and -n. A tree with one split, learned from 24 pairs, is right where it has not
# looked only if the pairs are not matched: 54 of 82 are beyond luck (one-sided 1 in 100 at most), 16 of 32 are half.
for table in (pairs, new_pairs):
    gap = (table.chosen.map(size) - table.rejected.map(size)).to_numpy()
    assert (gap[::2] == -gap[1::2]).all() and (gap[::2] > 0).all()
assert right_by_length(unmatched) == "20 of 24, then 54 of 82" and right_by_length(matched) == "16 of 24, then 16 of 32"
assert binomtest(54, 82, alternative="greater").pvalue < 0.01

seen = pd.Series(read_off(reference), SEEN)
assert seen["habit"] == 30 and 0.42 < seen["habit first"] < 0.62 and seen["end first"] < 0.02

grid = runs.xs(0, level=2)
places = [("SFT", 3e-4), ("SFT", 6e-4), ("SFT", 1.2e-3), ("DPO", 1e-4), ("DPO", 3e-4), ("DPO", 1e-3)]
sft_low, sft, sft_high, low, middle, high = (grid.loc[place] for place in places)
both = grid.loc["DPO + SFT", 1e-3]
assert middle["habit"] <= 1 and middle["empty"] <= 1 and sft["habit"] <= 2 and sft["empty"] <= 2
assert 5 <= low["habit"] <= 14 and 1 <= sft_low["habit"] <= 6
assert 0.03 < middle["end first"] < 0.08 and 0.03 < sft["end first"] < 0.08
# The highest rate of DPO: best by its loss, its margin and the answers it saw, and worst for new ones. So with SFT.
assert high["loss"] < min(middle["loss"], low["loss"]) and high["margin"] > 1.6 * max(middle["margin"], low["margin"])
assert 19 < high["chosen"] < 26 and high["chosen"] > max(middle["chosen"], low["chosen"]) + 4
assert -6.5 < high["chosen (new)"] < -3 and abs(middle["chosen (new)"]) < 1.5
assert sft_high["chosen"] > sft["chosen"] > 30 and abs(sft["chosen (new)"]) < 1.2
assert -6 < sft_high["chosen (new)"] < -2.5
assert both["chosen (new)"] > high["chosen (new)"] + 0.8 and 4 <= both["empty"] <= 15 and high["empty"] <= 3

# Three seeds: the harm is in each, the empty answers are not.
new, empty = runs.sort_index()["chosen (new)"], runs.sort_index()["empty"]
assert new.loc["DPO", 1e-3].between(-11, -3.5).all() and new.loc["DPO + SFT", 1e-3].between(-8, -1.2).all()
assert (new.loc["DPO + SFT", 1e-3] > new.loc["DPO", 1e-3]).all()
assert new.loc["DPO", 3e-4].abs().max() < 1.5 and new.loc["SFT", 6e-4].abs().max() < 2
assert (empty.loc["DPO + SFT", 1e-3] >= 4).sum() == 1 and empty.loc["DPO + SFT", 1e-3].median() <= 1

assert tested.loc["reference"]["habit"].item() == 40 and len(tested) == 7
for loss in ("SFT", "DPO"):
    assert (tested.loc[loss][["habit", "empty"]] <= 1).all(axis=None) and tested.loc[loss]["end first"].max() < 0.11
assert 0.08 < binomtest(0, 40).proportion_ci(method="wilson").high < 0.09

# The picture: a new pair of the run with seed 0.
won, lost = changes(models["DPO", 3e-4, 0], new_pairs).detach().numpy()
assert abs(won[2]) < 0.6 and abs(lost[2] + 5.2) < 0.8 and abs(new_pairs[BEFORE].loc[2] + [261.2, 87.9]).max() < 1
loaded_seen = read_off(loaded)
assert loaded_seen[0] <= 2 and loaded_seen[1] <= 2
assert log["rewards/margins"].iloc[3] > 0.15 and log["rewards/accuracies"].iloc[0] <= 0.5

# The record of the real model: which rate was chosen, and what is said of it.
whole = pd.read_json(file, lines=True)
tried = whole[whole["split"] == "validation"].assign(rate=whole.rate.round(6)).set_index("rate")
assert tried.habit[3e-4] == 30 and tried.habit[1e-3] == 0 and (whole["empty"] == 0).all()
assert record.habit.tolist() == [40, 0] and (record.answers == 40).all() and record.habit_95.iloc[1][1] < 0.09
