assert round(100 * half) == 88 and round(100 * cut) == 67
table = arithmetic(paper, 0, True) - arithmetic(paper, 0, False)
assert round(100 * table / full) == 6 and round(100 * (half - cut)) == 21

assert qwen.trainable_values == 315_084_160 and round(qwen.percent, 2) == 63.78
assert qwen.components["embedding"].trainable_values == 151_936 * 896
assert 0.25 < 151_936 * 896 / qwen.total_values < 0.3
assert round(100 * left) == 67

assert found == list(range(24))

each = (work.loc[0] - work.loc[4]) / 4  # percent of a step that one block saves

by_depth = runs.groupby("frozen").perplexity.agg(["min", "max"])
assert (by_depth["max"] < score(tiny.model, rust.validation)).all()
apart = (by_depth["max"] - by_depth["min"]).max()
assert 1 < apart < 4 and memory.frozen[6] < 0.55 * memory.trained[0]
assert 2.5 < each.trained < 3.5 and 6.5 < each.frozen < 7.5

untouched = tiny.model.model.layers[0].mlp.up_proj.weight
assert plain.model.layers[0].mlp.up_proj.weight.equal(untouched)

whole, lower = by_rate["full"], by_rate["freeze_lower"]

assert abs(lower.rust["rate 0.001"] / lower.rust["rate 0.002"] - 1.02) < 0.01
assert best == {"full": "rate 0.001", "freeze_lower": "rate 0.002"}
assert whole.rust.min() < lower.rust.min()

assert 1.4 < lower_run.distance / full_run.distance < 1.8
assert between.rust < 1.03 * lower_run.rust
assert abs(between.general / full_run.general - 1) < 0.06
first = tuning[(tuning.strategy == "full") & (tuning.seed == 0)]
recorded = first[first.learning_rate == 1e-3].general_perplexity.item()
assert abs(full_run.general / recorded - 1) < 0.02
assert round(whole.general["rate 0.001"]) == 53 and round(recorded) == 54
done = [(1 + math.cos(math.pi * step / 15)) / 2 for step in range(15)]
assert abs(0.5 + 1 + sum(done) - 9.5) < 1e-6 and len(blocks[order].split(4)) == 17
assert math.isclose(math.sqrt(0.6), 0.77, abs_tol=5e-3)
assert by_depth["min"][6] > by_depth["max"][4] and by_depth["min"][4] > by_depth["max"][0], (
    "6 frozen blocks gain less than 4, and 4 less than none, with either seed"
)

assert furthest < 1e-4, "Four losses in plain transformers and tlkit: equal to 1e-4"
assert (lower.general < whole.general).all(), "At each of these rates freeze_lower forgets less than full"
assert lower.general[best["freeze_lower"]] > whole.general[best["full"]], (
    "Each at its own best rate, freeze_lower forgets more"
)

assert c.between(3.5, 4.5).all(), "c is near 4 in all four runs"
