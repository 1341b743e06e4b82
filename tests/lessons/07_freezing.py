assert costs["% of full"].round().tolist() == [100, 88, 67]
assert counted_flops(models["blocks+norms"]) == step_flops(models["blocks+norms"])  # the table has three more
assert (costs.formula == costs.counted).all()
assert [round(100 * step_flops(m) / step_flops(models["full"])) for m in top_only.values()] == [53, 76]
trained = {name: sum(p.numel() for p in one.parameters() if p.requires_grad) for name, one in models.items()}
assert record.trainable_parameters[list(models)].to_dict() == trained
assert trained["blocks+norms"] - trained["last_blocks"] == 13 * 192
rates = course.recorded("tiny/freezing/rates").replace("last_layers", "blocks+norms")
best = rates.loc[rates.groupby("strategy").validation_perplexity.idxmin()].set_index("strategy")
assert best.learning_rate.to_dict() == record.learning_rate[list(best.index)].to_dict() and len(best) == len(models)
assert table.memory.round()[["upper_half", "last_blocks", "blocks+norms"]].tolist() == [63, 46, 73]
scores = record.perplexity[list(models)]
assert (100 * scores / scores["full"] - 100).round().tolist() == [0, 5, 9, 15, 12]
assert (100 * scores / scores["upper_half"] - 100).round()["last_blocks":].tolist() == [5, 2]
runs = course.recorded("tiny/freezing/runs").query("seed >= 0 and strategy != 'freeze_embeddings'")
seeds = runs.pivot(index="seed", columns="strategy", values="perplexity")
assert (seeds.last_layers / seeds.upper_half).between(1.02, 1.03).all()
general = record.general[["zero-shot", "full", "upper_half", "freeze_lower"]].round()
assert round(record.perplexity["zero-shot"]) == 126 and general.tolist() == [36, 64, 53, 70]
half = table.join(record).loc[["full, half rate", "upper_half"]].round(1)
assert half.perplexity.tolist() == [57.0, 57.6] and half.general.round().tolist() == [46, 53]
assert record.learning_rate["full, half rate"] == record.learning_rate["full"] / 2
share = 100 * prices.div(prices["full"], axis=0)
assert [round(share[n]["FLOPs"]) for n in ("from the store", "last_blocks", "upper_half")] == [53, 53, 67]
assert round(4 * 896 / 1000, 1) == 3.6 and now < was - 0.3
assert share["last_blocks"]["time"] < 85  # half; times are noise beside other work
assert (unseen[:, 24:64] == end).any(1).sum() == 15 and away[end] < 1e-3 < away[:end].min()
