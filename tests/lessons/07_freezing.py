assert costs["% of full"].round().tolist() == [100, 88, 67, 94]
whole = new_model()
start = whole(input_ids=held_out, labels=held_out).loss
whole.model.layers = whole.model.layers[:6] + top.model.layers  # the trained blocks in place of the last two
assert apart < 1e-4 and whole(input_ids=held_out, labels=held_out).loss < start - 0.25, "a whole model that learned"
assert round(step_flops(top) / flops["last_blocks"], 2) == 0.61

head = qwen.lm_head.weight.numel()
assert round(4 * 896 / 1000, 1) == 3.6

read = tokens[:-1].unique()
assert (from_lookup != 0).any(dim=1).nonzero().flatten().tolist() == read.tolist() and len(read) == 52
assert (from_head != 0).any(dim=1).sum() == len(E) == 4096
assert round(100 * E.numel() / sum(p.numel() for p in model.parameters())) == 19
assert round(100 - 100 * flops["freeze_embeddings"] / flops["full"]) == 6
assert not tl.meta_model("llama2-7b").config.tie_word_embeddings
assert tied > 0.8

assert head == 136_134_656 and 2 * block == 29_824_768 and rest == 45 * 896 == (2 * 22 + 1) * 896
assert rest / 29_865_088 < 0.0015
trained = {name: sum(p.numel() for p in one.parameters() if p.requires_grad) for name, one in models.items()}
assert record.trainable_values[list(models)].to_dict() == trained
frozen = [n for n in range(24) if any(f"layers.{k}" in f"model.layers.{n}.mlp" for k in range(12))]
assert frozen == list(range(24))
norms = flops["last_layers"] - flops["last_blocks"]
assert 0.45 < norms / (flops["full"] - flops["last_blocks"]) < 0.55

assert round(record.perplexity["zero-shot"]) == 126 and round(record.perplexity["full"]) == 53
ends = table[["perplexity, % above full", "from", "to"]].round()
assert ends.loc["last_blocks"].tolist() == [16, 13, 20] and len(table) == 6
assert ends.iloc[1:4, 0].between(7, 9).all() and (table["from"].drop("full") > 0).all()
assert 0.5 < flops["last_blocks"] / flops["full"] < 0.55
assert table["peak MB"]["last_blocks"] < 0.5 * table["peak MB"]["full"] < 0.8 * table["peak MB"]["last_layers"]
