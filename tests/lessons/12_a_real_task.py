from itertools import combinations
from pathlib import Path

from peft import AutoPeftModelForCausalLM, get_peft_model_state_dict

# The reports: sizes, that neither writers nor crates are in two splits, and what is harder in the test.
assert (len(train), len(validation), len(test)) == (285, 74, 96)
reports = pd.concat(splits, names=["split"]).reset_index()
for shared in (reports.id.str.split("/").str[0], reports.topic):
    assert (reports["split"].groupby(shared).nunique() == 1).all()
for rows, share in ((train, 62), (test, 38)):  # of reports with two versions, the first is right
    versions, labels = rows.prompt.str.findall(VERSION), rows.completion.map(parse).str["version"]
    assert round(100 * (versions.str[0] == labels)[versions.map(set).map(len) > 1].mean()) == share
seen, new = (set(reports.completion.map(parse).str["system"].dropna()) for reports in (train, test))
assert (len(new), len(seen & new)) == (59, 5)

# The rule.
assert [round(100 * by_split[name].exact) for name in splits] == [52, 47, 36]

# The recorded marks are those of this lesson's own function.
stored, runs = pd.read_csv(folder / "runs/answers.csv"), pd.read_csv(folder / "runs/runs.csv")
assert (stored[[*FIELDS, "exact"]].to_numpy() == recorded[[*FIELDS, "exact"]].to_numpy()).all()
assert (prompted.exact == 0).all() and round(100 * prompted.valid["shown 5"]) == 96 and prompted.valid["untouched"] == 0
cost = recorded[recorded.device == "one core"].groupby("method").answer_seconds.mean()
assert len(runs.weights_sha256.unique()) == 1 and round(cost["shown 3"], 1) == 3.7

# Methods and sizes; rates are those with the lowest validation loss, and none is at the end of what was tried.
searched = runs[(runs.asked == "validation") & (runs.seed == 0)]
for (method, steps), group in searched.groupby(["method", "steps"]):
    best = group.validation_loss.idxmin()
    assert group.rate.min() < group.rate[best] < group.rate.max()
    assert (final[(final.method == method) & (final.steps == steps)].rate == group.rate[best]).all()
assert (final.groupby("way").run.nunique() == 3).all()
table = final.pivot_table("exact", "id", "way").astype(float)
for one, steps, level in (("full", 72, True), ("qlora", 72, True), ("full", 288, True), ("last_layers", 72, False)):
    more_right = table[f"{one} {steps}"] - table[f"lora {steps}"]
    assert (abs(more_right.mean()) < 1.96 * more_right.sem()) == level

# The errors, on validation reports; amounts in training.
amount = r"\d ?(?:s|ms|seconds?|min|minutes?|hours?|GB|MB|KB|times)\b"
kinds = train[train.prompt.str.contains(amount)].completion.map(parse).str["kind"]
assert (len(kinds), (kinds == "slow").sum()) == (42, 31)
others = read[read.completion.map(parse).str["kind"] != "slow"]
called = others.answer.map(parse).str["kind"] == "slow"
assert called.groupby(others.prompt.str.contains(amount)).agg(["size", "sum"]).to_numpy().tolist() == [[57, 0], [6, 4]]

# Model and rule together: kind, or system and kind, are what helps the rule most.
assert [round(100 * way.mean()) for way in ways.values()] == [36, 53, 75, 49, 60, 80] and round(by_hand[-1], 1) == 1
assert [round(100 * right.assign(**{f: True}).all(axis=1).mean()) for f in FIELDS] == [51, 65, 60, 60]
assert [max(by_rule[list(r)].all(axis=1).sum() for r in combinations(FIELDS, n)) for n in (3, 2)] == [51, 72]

# The longer adapter.
assert round(read.train_seconds.iloc[0] / 60) == 74 and 1.5 < read.answer_seconds.iloc[0] < 1.6
_, marks = second_reader(given.answer, given.prompt)
differ, wrong = marks.to_numpy(), ~right.to_numpy()
shares = wrong[differ], differ[wrong], opened, ~correct[~opened]
assert [round(x.mean(), 2) for x in shares] == [0.39, 0.6, 0.68, 0.2]
for one, other, unit, least, most in (
    (ways["model"], "rule", test.index, -0.02, 0.02),
    (ways["model"], "rule", test.topic, -0.04, -0.005),  # whole crates are drawn
    (ways["model + look"], "rule + system + kind", test.index, -0.08, -0.02),
):
    parts = (one - ways[other]).groupby(unit).agg(["sum", "size"])
    sums = parts.sample(len(parts) * 4_000, replace=True, random_state=0).to_numpy().reshape(4_000, -1, 2).sum(1)
    assert least < pd.Series(sums[:, 0] / sums[:, 1]).quantile(0.05 / 6) < most
LISTED -= set(test.topic)
filled, marks = second_reader(given.answer, given.prompt)
right, by_rule = (scores(rows, given)[FIELDS] for rows in (filled, map(rule, given.prompt)))
shares = right, right | marks, by_rule, by_rule[FIELDS[2:]]
assert [round(100 * x.all(axis=1).mean()) for x in shares] == [38, 69, 0, 45]
assert round(marks.sum(axis=1).mean(), 1) == 1.9
LISTED |= set(test.topic)
assert "ggez" not in LISTED

# What was saved is what was trained.
again = AutoPeftModelForCausalLM.from_pretrained(arguments.output_dir, dtype="float32")
saved, tuned = map(get_peft_model_state_dict, (again, trainer.model))
assert all(saved[x].equal(tuned[x]) for x in tuned)
assert round((Path(arguments.output_dir) / "adapter_model.safetensors").stat().st_size / 1e6) == 5

# after: live
# The form is learned, and some of the copying; other machines round otherwise.
live = (100 * scores(map(parse, texts), some)).mean()
assert len(some) == 6 and live.valid >= 75 and live[FIELDS[:3]].mean() >= 10 and right["rule"].exact == 3
assert right["yours"].exact < 3

# after: longer
# It answers as recorded, but for rounding.
shortest = read.loc[read.prompt.str.len().idxmin()]
answered = [*conversation(shortest.prompt, TUNED), {"role": "assistant", "content": shortest.answer}]
ids = tokenizer.apply_chat_template(answered, return_tensors="pt", return_dict=True)["input_ids"][:, :-1]
same = trainer.model(ids).logits[0].argmax(-1)[-26:-1] == ids[0, -25:]
assert same.float().mean() > 0.9 and list(counts.exact) == [35, 52]
