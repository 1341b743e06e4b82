assert costs["% of full"].round().tolist() == [100, 88, 67]
assert new_model().config.tie_word_embeddings and len(new_model().model.layers) == 8

head = qwen.lm_head.weight.numel()
assert head == 136_134_656 and 2 * block == 29_824_768 and rest == 45 * 896 == (2 * 22 + 1) * 896
assert rest / 29_865_088 < 0.0015
record = course.recorded("tiny/freezing/comparison").set_index("strategy")
trained = {name: sum(p.numel() for p in one.parameters() if p.requires_grad) for name, one in models.items()}
assert record.trainable_values[list(models)].to_dict() == trained

assert round(record.perplexity["zero-shot"]) == 126 and round(record.perplexity["full"]) == 53
assert record.perplexity[list(models)].drop("full").between(56.5, 61.5).all()
assert all(flops[name] == step_flops(one) for name, one in models.items())
lora = course.recorded("tiny/comparison").set_index("strategy").loc["lora"]
assert round(lora.peak_memory_mb) == 100 and round(100 * lora.perplexity / record.perplexity["full"]) == 119
peaks = (100 * table["peak MB"] / table["peak MB"]["full"]).round()
assert peaks[["upper_half", "last_blocks", "last_layers"]].tolist() == [63, 46, 72]
ends = 100 * np.expm1(mean[list(models)])
assert ends.round(1).tolist() == [0, 8.0, 9.3, 16.3, 11.8] and ends["last_blocks"] < 19
assert round(100 * step_flops(top) / flops["full"]) == 32
assert (unseen == full_stop).sum() == 56 and tied[0] > 0.9 and abs(one_row[0] - 0.95) < 0.04 and one_row[1] < 0.03
assert slow[0] < 0.1 and tokenizer.decode(unseen[2, 18:24]) == " would be rejected;"
assert after < before - 0.25
general = record.general[["zero-shot", "full", "freeze_lower", "upper_half", "last_blocks"]].round()
assert general.tolist() == [36, 64, 88, 53, 48]
kept = record.loc[["upper_half", "last_layers", "last_blocks"]]
assert kept.general.max() < 64 and {*kept.learning_rate} == {0.00316, 0.005}
assert round(4 * 896 / 1000, 1) == 3.6
