from scipy.stats import binomtest

assert len(pairs) == 24 and pairs.prompt.nunique() >= 20 and len(new_pairs) == 12 and len(first) == 64
assert len(matched) == 56 and len(tables["validation"]) == 30 and len(tables["test"]) == 40
assert first.chosen.str.startswith(HABIT).sum() == 39 and not pairs.prompt.isin(first.prompt).any()
assert all(answer.count("`") % 2 == 0 for answer in [*pairs.chosen, *pairs.rejected])
assert size(HABIT.strip()) == 7 and tokenizer.decode(tokenizer(" " + HABIT).input_ids[0]) == " G"
# Of two neighbours the gaps are n and -n, so length tells something only where pairs are not matched.
for table in (pairs, new_pairs):
    gap = (table.chosen.map(size) - table.rejected.map(size)).to_numpy()
    assert (gap[::2] == -gap[1::2]).all() and (gap[::2] > 0).all()
assert right_by_length(unmatched) == "64%" and right_by_length(matched) == "49%"
seen = pd.Series(read_off(reference), SEEN)
assert seen["habit"] == 30 and 0.42 < seen["habit first"] < 0.62 and seen["end first"] < 0.02
# Live and recorded seed 0 agree, up to another processor's rounding over eight steps.
by = by_seed.rename(index=lambda rate: round(rate, 6), level=1).sort_index()
kept = by.xs(0, level=2).loc[list(runs.index), COLUMNS]
assert len(by) == 30 and len(runs) == 4 and (by.loc["DPO, beta 0.5"] / by.loc["DPO, beta 0.02"]).margin.min() > 0.96
for columns, allowed in ((COLUMNS[1:5], 0.4), (["habit", "empty"], 2), (["loss", "habit first", "end first"], 0.03)):
    assert ((runs - kept)[columns].abs() <= allowed).all(axis=None)
sft, low, middle, high = (runs.loc[place] for place in [("SFT", 6e-4), ("DPO", 1e-4), ("DPO", 3e-4), ("DPO", 1e-3)])
assert max(middle["habit"], middle["empty"]) <= 1 and max(sft["habit"], sft["empty"]) <= 2 and 5 <= low["habit"] <= 14
# The highest rate of DPO: best by its loss, its margin and the answers it saw, and worst for new ones.
assert high["loss"] < min(middle["loss"], low["loss"])
assert high["margin"] > 1.6 * max(middle["margin"], low["margin"])
assert 19 < high["chosen"] < 26 and high["chosen"] > max(middle["chosen"], low["chosen"]) + 4
assert -6.5 < high["chosen (new)"] < -3.5 and high["rejected (new)"] < -4 and abs(middle["chosen (new)"]) < 1
# Three seeds: the harm is in each.
shown = by.loc[["SFT", "DPO"]]
new, first = shown["chosen (new)"], shown["habit first"]
harm = new.index.get_level_values(1) > 9e-4
assert -8.5 < new[harm].min() < new[harm].max() < -3.9 and new[~harm].min() > -1.5
assert first.loc["DPO", 3e-4].between(0.01, 0.02).all() and first.loc["SFT", 6e-4].between(0.025, 0.045).all()
assert (new.loc["DPO", 3e-4] > new.loc["SFT", 6e-4]).all()
assert by["test habit"].count() == 9 and by[["test habit", "test empty"]].sum().sum() == 0
assert write(models["DPO", 1e-3], some.prompt, limit=24)[0].str.contains("unsigned_unsigned|before the").any()
assert tested.loc["reference"]["habit"] == 40 and len(tested) == 3
for loss in LOSSES:
    assert (tested.loc[loss][["habit", "empty"]] <= 1).all() and tested.loc[loss]["end first"] < 0.11
assert 0.08 < binomtest(0, 40).proportion_ci(method="wilson").high < 0.09
# The picture: a new pair, seed 0.
before = log_probabilities(reference, new_pairs)[:, 2]
nats = [log_probabilities(one, new_pairs[2:3]) for one in (models["DPO", 3e-4], reference)]
won, lost = (nats[0] - nats[1]).flatten().tolist()
assert abs(won) < 0.6 and abs(lost + 5.2) < 0.8 and abs(before + torch.tensor([261.2, 87.9])).max() < 1
assert max(read_off(policy)[:2]) <= 2
assert log["rewards/margins"].iloc[3] > 0.15 and log["rewards/accuracies"].iloc[0] <= 0.5
# The record of the real model.
whole = pd.read_json(tl.DATA / "answers" / "preferences.jsonl", lines=True)
tried = whole[whole["split"] == "validation"].assign(rate=whole.rate.round(6)).set_index("rate")
assert tried.habit[3e-4] == 30 and tried.habit[1e-3] == 0 and (whole["empty"] == 0).all()
assert real.habit.tolist() == [40, 0] and (real.answers == 40).all() and real.habit_95.iloc[1][1] < 0.09
assert real.filter(like="nats").iloc[1].tolist() == [9.52, -2.18]
