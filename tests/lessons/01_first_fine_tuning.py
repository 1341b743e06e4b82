assert len(training) == 120 and not set(training.question) & set(held_out.question)
assert held_out.desk.value_counts().to_dict() == {"Python": 25, "Rust": 25, "other": 25}
assert len(tokenizer) == model.config.vocab_size == 4096

# What was trained, and in how many steps.
trained = sum(weights.numel() for weights in adapted.parameters() if weights.requires_grad)
assert len(losses) == 2 * len(broken_losses) == 60 and round(100 * trained / adapted.num_parameters()) == 5
assert fallen > 1 and losses[-1] < 1 < broken_losses[-1]
assert now.groupby(held_out.desk).sum().min() >= 12  # the fault is not that one desk gets all

# The short cut: code in backticks belongs to programming.
programming = training.desk.ne("other")
in_code = training.question.str.contains("`")
assert in_code[programming].mean() > 0.75 and not in_code[~programming].any()

assert set(record.question) == set(held_out.question) and len(record) == 75
assert (record.before == record.desk).sum() == 0 and (record.after == record.desk).sum() == 73
assert 33 < 134_515_008 / sum(tensor.numel() for tensor in saved.values()) < 34  # SmolLM2 by this model

assert torch.finfo(torch.float16).max == 65_504
assert round(needed["qwen2-0.5b"], 1) == 7.9

assert len(saved) == 98 and len(missing) == 99 and from_file(base) == 98
assert {tensor.dtype for tensor in saved.values()} == {torch.float16}
with tempfile.TemporaryDirectory() as compiled:
    shutil.copytree(tl.BUNDLED, compiled, dirs_exist_ok=True)
    save_file(renamed, Path(compiled) / "model.safetensors", {"format": "pt"})
    try:
        tl.load_model(compiled)
        refused = False
    except RuntimeError:
        refused = True
assert refused
