assert costs["% of full"].round().tolist() == [100, 88, 67]
assert all(counted_flops(m) == step_flops(m) for m in models.values())
head = qwen.lm_head.weight.numel()
assert head == 136_134_656 and rest == 45 * 896 == (2 * 22 + 1) * 896 and rest / 29_865_088 < 0.0015
trained = {name: sum(p.numel() for p in one.parameters() if p.requires_grad) for name, one in models.items()}
assert record.trainable_values[list(models)].to_dict() == trained
best = rates.loc[rates.groupby("strategy").validation_perplexity.idxmin()].set_index("strategy")
assert best.learning_rate.to_dict() == record.learning_rate[list(best.index)].to_dict() and len(best) == len(models)
assert table.memory.round()[["upper_half", "last_blocks", "blocks+norms"]].tolist() == [63, 46, 73]
scores = record.perplexity[list(models)]
assert (100 * scores / scores["full"] - 100).round().tolist() == [0, 5, 9, 15, 12]
assert (100 * scores / scores["upper_half"] - 100).round()["last_blocks":].tolist() == [5, 2]
seeds = course.recorded("tiny/freezing/runs").query("strategy != 'freeze_embeddings'").groupby("strategy").perplexity
assert (seeds.max() / seeds.min()).max() < 1.02
general = record.general[["zero-shot", "full", "upper_half"]].round()
assert round(record.perplexity["zero-shot"]) == 126 and general.tolist() == [36, 64, 53]
points = rates.set_index(["strategy", "learning_rate"])
points.columns = ["x", "y"]
full, others = points.loc["full"][:0.001][::-1], points.drop("full")
assert (others.y > np.interp(others.x, full.x, full.y)).all(), "the line of full lies below"
pair = points.loc[[("full", 0.0005), ("upper_half", 0.00316)]].round(1)
assert pair.x.tolist() == [61.5, 61.5] and pair.y.round().tolist() == [49, 55]
share = 100 * prices.div(prices["full"], axis=0)
assert [round(share[n]["FLOPs"]) for n in ("from the store", "last_blocks", "upper_half")] == [53, 53, 67]
assert round(4 * 896 / 1000, 1) == 3.6 and now < was - 0.3
assert len(held_out) == len(unseen) == 16
assert share["from the store"]["time"] < 75 and table.time[["upper_half", "last_blocks"]].max() < 85  # FLOPs and 20
assert ends.sum() == 50 and not seen.loc["default"].any() and "merging" in str(caught[0].message)
assert seen.loc["every full stop"].tolist()[:2] == [50, 16] and seen["texts that end"]["real text"] == 15
row = seen.loc["one row"]  # 50 right, 7 false; a close call may fall either way elsewhere
assert row["right"] > 45 and row["false"] < 14 and row["texts that end"] > 5
tied = new_model()
tied.resize_token_embeddings(len(tokenizer))
options = LoraConfig(modules_to_save=["embed_tokens"], ensure_weight_tying=True)
head = get_peft_model(tied, options).get_output_embeddings().weight
assert head.numel() == 4097 * 192 == 786_624
