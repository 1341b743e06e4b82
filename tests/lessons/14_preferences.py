from scipy.stats import binomtest

assert len(pairs) == 24 and pairs.prompt.nunique() >= 20 and len(new_pairs) == 12 and len(first) == 64
assert len(matched) == 56 and len(tables["validation"]) == 30 and len(tables["test"]) == 40
assert first.chosen.str.startswith(HABIT).sum() == 39 and not pairs.prompt.isin(first.prompt).any()
assert size(HABIT.strip()) == 7 and tokenizer.decode(tokenizer(" " + HABIT).input_ids[0]) == " G"
# Of two neighbours the gaps are n and -n, so length tells something only where pairs are not matched.
for some in (pairs, new_pairs):
    gap = (some.chosen.map(size) - some.rejected.map(size)).to_numpy()
    assert (gap[::2] == -gap[1::2]).all() and (gap[::2] > 0).all()
habit, p = read_off(reference)
assert habit == 30 and 0.42 < p < 0.62
# Live and recorded seed 0 agree, up to another processor's rounding over eight steps.
by = by_seed.rename(index=lambda rate: round(rate, 6), level=1).sort_index()
runs = pd.DataFrame(rows, COLUMNS).T
kept = by.xs(0, level=2).loc[list(runs.index), COLUMNS]
assert len(by) == 30 and len(runs) == 3 and (by.loc["DPO, beta 0.5"] / by.loc["DPO, beta 0.02"]).margin.min() > 0.96
for columns, allowed in ((["margin"], 0.4), (COLUMNS[1:4], 0.02), (["habit"], 2), (["habit first"], 0.03)):
    assert ((runs - kept)[columns].abs() <= allowed).all(axis=None)
sft, low, high = (runs.loc[place] for place in [("SFT", 6e-4), ("DPO", 3e-4), ("DPO", 1e-3)])
assert low["habit"] <= 1 and sft["habit"] <= 2 and by.loc[("DPO", 1e-4), "habit"].tolist() == [9, 12, 14]
# The higher rate of DPO: better by its margin and the answers it saw, and worse for new ones.
assert high["margin"] > 1.6 * low["margin"] and high["chosen"] > low["chosen"] + 0.04
assert abs(high["chosen (new)"] + 0.1) < 0.02 and high["rejected (new)"] < -0.09 and abs(low["chosen (new)"]) < 0.02
# Three seeds: the harm is in each; for the same habit SFT does more.
shown = by.loc[["SFT", "DPO"]]
new, first = shown["chosen (new)"], shown["habit first"]
harm = new.index.get_level_values(1) > 9e-4
assert -0.18 < new[harm].min() < new[harm].max() < -0.08 and new[~harm].min() > -0.03
assert new["SFT", 0.0012].between(-0.135, -0.08).all() and new["DPO", 3e-4].between(-0.0205, 0).all()
both = by.loc[("DPO + SFT", 1e-3), "chosen (new)"]
assert (both > by.loc[("DPO", 1e-3), "chosen (new)"]).all() and both.max() < -0.05
assert both.mean() < 0.5 * by.loc[("DPO", 1e-3), "chosen (new)"].mean()  # most of it remains
assert first["DPO", 3e-4].between(0.01, 0.02).all() and first["SFT", 0.0012].between(0.006, 0.014).all()
assert by["test habit"].count() == 9 and by["test habit"].sum() == 0
for one in (good["SFT"], good["DPO"]):  # they do answer
    assert write(one, tables["test"].prompt[:20], 9)[0].isin(["", HABIT.strip()]).sum() <= 1
assert 0.08 < binomtest(0, 40).proportion_ci(method="wilson").high < 0.09
# The picture: a new pair, seed 0.
won, lost = changes(models["DPO", 3e-4], new_pairs[2:3]).sum(2).flatten().tolist()
assert abs(won) < 0.6 and abs(lost + 5.2) < 0.8 and abs(before[:, 26].sum(1) + torch.tensor([261.2, 87.9])).max() < 1
# The higher rate of TRL: better by loss and margin of new pairs, worse for their chosen answers.
low, high = (table.loc[rate] for rate in (3e-3, 1e-2))
assert table.habit.max() <= 2 and high.eval_loss < low.eval_loss and table["eval_rewards/accuracies"].min() > 0.9
assert high["eval_rewards/margins"] > 2 * low["eval_rewards/margins"] and low["eval_rewards/chosen"] > 0
assert high["eval_rewards/chosen"] < -0.1 and abs(high["per token"] + 0.08) < 0.03
assert abs(low["per token"]) < 0.02
# The record of the real model.
tried, tests = (real[real["split"] == name] for name in ("validation", "test"))
assert tried.habit.tolist() == [30, 30, 0, 0] and tests.habit.tolist() == [40, 0, 0] and (real["empty"] == 0).all()
assert tried.chosen_per_token.round(3).tolist() == [0, 0.021, 0.038, -0.456]
assert tests.rate.round(4).tolist() == [2e-3, 3e-4, 1e-3]
