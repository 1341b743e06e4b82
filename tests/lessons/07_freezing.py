assert costs["% of full"].round().tolist() == [100, 88, 67, 94]
assert apart < 1e-4 and perplexity(whole) < 0.75 * before
assert round(step_flops(top) / flops["last_blocks"], 2) == 0.61

one, head, below = block, qwen.lm_head.weight.numel(), 22 * block
rest_of_step = 3 * 2 * one + 2 * head
assert round(2 * head / rest_of_step, 2) == 0.75 and round((below + rest_of_step) / rest_of_step, 1) == 1.9
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
assert record.trainable_values.to_dict() == trained
frozen = [n for n in range(24) if any(f"layers.{k}" in f"model.layers.{n}.mlp" for k in range(12))]
assert frozen == list(range(24))
norms = flops["last_layers"] - flops["last_blocks"]
assert 0.45 < norms / (flops["full"] - flops["last_blocks"]) < 0.55

start = recorded.table.set_index("strategy").loc["zero-shot"]
assert round(start.perplexity) == 126 and round(start.general) == 36
assert round(table.Rust["full"]) == 53 and round(table.Rust["last_blocks"]) == 61
assert (table.Rust.drop("full") > table.Rust["full"]).all() and len(table) == 6
assert 0.5 < flops["last_blocks"] / flops["full"] < 0.55
assert table["peak MB"]["last_blocks"] < 0.5 * table["peak MB"]["full"] < 0.8 * table["peak MB"]["last_layers"]
assert table.general.idxmax() == "freeze_lower"
assert record.learning_rate["freeze_lower"] == 2 * record.learning_rate["full"] == 2e-3
live = reached.T[1]
assert round(live["before"]) == 44 and abs(live["full"] - 100) < 10
assert abs(live["freeze_lower"] - 85) < 9 and abs(live["freeze_embeddings"] - 64) < 6
assert round(all_blocks / step_flops(qwen), 1) == 1.9
one_matrix = new_model().requires_grad_(False)
one_matrix.model.layers[6].mlp.down_proj.requires_grad_(True)
assert 1 < step_flops(one_matrix) / counted_flops(one_matrix) < 1.1, "it may count a gradient too many"
