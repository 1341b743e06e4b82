import math
import shutil

assert len(training) == 120 and not set(training.question) & set(held_out.question)
assert held_out.desk.value_counts().to_dict() == {"Python": 25, "Rust": 25, "other": 25}

# Before: two `if`s, and how answers are made. The answers end the rows, and are what is counted.
assert (held_out.question.map(rule) == held_out.desk).sum() == 66
assert [len(tokenizer(f" {name}")["input_ids"]) for name in ("Python", "Rust")] == [1, 2]
coded = encode(["Why?", "Why does it not compile?"], ["Rust", "other"])
kept = [tokenizer.decode(row[row >= 0]) for row in coded["labels"]]
assert kept == [" Rust<|endoftext|>", " other<|endoftext|>"]
assert len(tokenizer) == model.config.vocab_size == 4096

# What was trained, and in how many steps.
trained = sum(weights.numel() for weights in adapted.parameters() if weights.requires_grad)
assert len(losses) == 2 * len(broken_losses) == 60 and round(100 * trained / adapted.num_parameters()) == 5
assert losses[-1] < 1 < broken_losses[-1] and sum(broken_losses[-5:]) > 2 * sum(losses[25:30])
assert min(losses[0], broken_losses[0]) > 8 and losses[5] < 1 and abs(broken_losses[5] - 7.5) < 0.4
assert [round(-math.log(p), 1) for p in (0.5, 1 / 4096)] == [0.7, 8.3]
assert now.groupby(held_out.desk).sum().min() >= 12  # the fault is not that one desk gets all

# The short cut: code in backticks belongs to programming.
programming = training.desk.ne("other")
in_code = training.question.str.contains("`")
assert in_code[programming].mean() > 0.75 and not in_code[~programming].any()

assert set(record.question) == set(held_out.question) and len(record) == 75
assert (record.after == record.desk).sum() == 73
assert 33 < 134_515_008 / sum(tensor.numel() for tensor in saved.values()) < 34  # SmolLM2 by this model

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
