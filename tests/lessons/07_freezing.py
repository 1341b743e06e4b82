assert costs["% of full"].round().tolist() == [100, 88, 67]
assert all(counted_flops(m) == step_flops(m) for m in models.values())
assert new_model().config.tie_word_embeddings and len(new_model().model.layers) == 8
head = qwen.lm_head.weight.numel()
assert head == 136_134_656 and rest == 45 * 896 == (2 * 22 + 1) * 896 and rest / 29_865_088 < 0.0015
record = course.recorded("tiny/freezing/comparison").set_index("strategy")
trained = {name: sum(p.numel() for p in one.parameters() if p.requires_grad) for name, one in models.items()}
assert record.trainable_values[list(models)].to_dict() == trained
searched = course.recorded("tiny/freezing/rates")
best = searched.loc[searched.groupby("strategy").validation_perplexity.idxmin()].set_index("strategy").learning_rate
assert best.to_dict() == record.learning_rate[list(best.index)].to_dict()
assert table.memory.round()[["upper_half", "last_blocks", "last_layers"]].tolist() == [63, 46, 73]
assert (100 * np.expm1(mean[list(models)])).round(1).tolist() == [0, 5.4, 9.3, 16.3, 11.8]
half, better = mean["full, half rate"] - mean["upper_half"], losses["upper_half"] - losses["last_layers"]
ends_of = better.mean() + 2.02 * better.sem() * np.array([-1, 0, 1])
assert half < 0 and (100 * np.expm1(ends_of)).round(1).tolist() == [-3.3, -2.2, -1.1]
assert record.learning_rate["full, half rate"] == record.learning_rate["full"] / 2 and len(held_out) == len(unseen)
general = record.general[["zero-shot", "full", "full, half rate", "upper_half"]].round()
assert round(record.perplexity["zero-shot"]) == 126 and general.tolist() == [36, 64, 46, 53]
share = 100 * prices.div(prices["full"], axis=0)
assert round(share["from the store"]["FLOPs"]) == 32 and round(4 * 896 / 1000, 1) == 3.6 and now < was - 0.4
assert share["from the store"]["time"] < 60 and table.time[["upper_half", "last_blocks"]].max() < 85  # FLOPs and 20
assert ends.sum() == 50 and not seen.loc["default"].any() and "merging" in str(caught[0].message)
assert seen.loc["every full stop"].tolist()[:2] == [50, 16] and seen["texts that end"]["real text"] == 15
repaired = seen.loc[["tied", "one row"]]  # 50 and 50 right, 11 and 7 false; a close call may fall either way elsewhere
assert repaired["right"].min() > 45 and repaired["false"].max() < 16 and repaired["texts that end"].min() > 3
assert runs["tied"].get_output_embeddings().weight.numel() == 4097 * 192 == 786_624
