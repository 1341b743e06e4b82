assert costs["% of full"].round().tolist() == [100, 88, 67]
assert new_model().config.tie_word_embeddings and len(new_model().model.layers) == 8
head = qwen.lm_head.weight.numel()
assert head == 136_134_656 and rest == 45 * 896 == (2 * 22 + 1) * 896 and rest / 29_865_088 < 0.0015
record = course.recorded("tiny/freezing/comparison").set_index("strategy")
trained = {name: sum(p.numel() for p in one.parameters() if p.requires_grad) for name, one in models.items()}
assert record.trainable_values[list(models)].to_dict() == trained
assert round(record.perplexity["zero-shot"]) == 126 and round(record.perplexity["full"]) == 53
assert record.perplexity[list(models)].drop("full").between(55, 61.5).all()
assert round(100 * (8 + 88 * trained["freeze_lower"] / trained["full"]) / 96) == 63  # bytes, as lesson 16 counts
searched = course.recorded("tiny/freezing/rates")
best = searched.loc[searched.groupby("strategy").validation_perplexity.idxmin()].set_index("strategy").learning_rate
assert best.to_dict() == record.learning_rate[list(best.index)].to_dict()
peaks = (100 * table["peak MB"] / table["peak MB"]["full"]).round()[["upper_half", "last_blocks", "last_layers"]]
ends = 100 * np.expm1(mean[list(models)])
assert ends.round(1).tolist() == [0, 5.4, 9.3, 16.3, 11.8] and peaks.tolist() == [63, 46, 72]
assert round(100 * step_flops(top) / flops["full"]) == 32 and all(flops[n] == step_flops(m) for n, m in models.items())
assert (unseen == end).sum() == 51 and seen[0]["default"] == seen[1]["default"] == seen[2]["default"] == 0
assert seen[0]["one row"] == 51 and seen[3].idxmin() == "one row" and seen[0]["tied"] > 44
assert abs(seen[1]["one row"] - 12) < 5 and abs(seen[1]["tied"] - 3) < 3  # a close call may fall either way elsewhere
assert seen[2]["tied"] > 10 and runs["tied"].get_output_embeddings().weight.numel() == 4097 * 192 == 786_624
other = [report(tuned(1e-2, modules_to_save=["embed_tokens"], ensure_weight_tying=tie))[-1] for tie in (False, True)]
other.append(report(tuned(3e-3, trainable_token_indices=[end]))[-1])
assert (seen[3] < other).all() and after < before - 0.4
general = record.general[["zero-shot", "full", "freeze_lower", "upper_half", "last_blocks"]].round()
assert round(4 * 896 / 1000, 1) == 3.6 and general.tolist() == [36, 64, 70, 53, 48]
kept = record.loc[["upper_half", "last_layers", "last_blocks"]]
assert kept.general.max() < 64 and {*kept.learning_rate} == {0.00316, 0.005}
