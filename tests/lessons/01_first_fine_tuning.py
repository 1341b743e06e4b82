import math
import shutil

assert len(training) == 120 and not set(training.question) & set(held_out.question)
assert held_out.desk.value_counts().to_dict() == {"Python": 25, "Rust": 25, "other": 25}

# The three methods: the model lies between the others (69 here; rounding may move an answer or two).
counted = (counting.predict(held_out.question) == held_out.desk).sum()
assert (by_rule == held_out.desk).sum() == 66 < right.sum() < counted == 72
assert abs(right.sum() - 69) <= 2 and set(now) == {"Python", "Rust", "other"}
sent = now[~right & held_out.desk.eq("Python")]  # in our run three, all with code and without the word
assert sent.eq("Rust").sum() in (2, 3, 4) and not held_out.question[sent.index].str.contains("Python").any()
assert held_out.question[sent.index].str.contains("`").all() and named[-1] == "other"

# How answers are made: they end the rows, and are what is counted.
assert [len(tokenizer(f" {name}")["input_ids"]) for name in ("Python", "Rust")] == [1, 2]
coded = encode(["Why?", "Why does it not compile?"], ["Rust", "other"])
kept = [tokenizer.decode(row[row >= 0]) for row in coded["labels"]]
assert kept == [" Rust<|endoftext|>", " other<|endoftext|>"]
assert len(tokenizer) == model.config.vocab_size == 4096

# What was trained, and in how many steps.
trained = sum(weights.numel() for weights in adapted.parameters() if weights.requires_grad)
assert len(losses) == 2 * len(broken_losses) == 60
assert 4 * trained < 1e6  # the bytes of the adapter's file
assert losses[-1] < 1 < broken_losses[-1] and sum(broken_losses[-5:]) > 2 * sum(losses[25:30])
assert min(losses[0], broken_losses[0]) > 8 and losses[5] < 1 and abs(broken_losses[5] - 7.5) < 0.4
assert [round(-math.log(p), 1) for p in (0.5, 1 / 4096)] == [0.7, 8.3]
assert right.groupby(held_out.desk).sum().min() >= 18  # 22 here: no desk gets all; the claim asks for 13

# The two `if`s: most questions of a desk have its sign.
for desk, sign in (("Python", "Python"), ("Rust", "`")):
    assert questions.question[questions.desk == desk].str.contains(sign).mean() > 0.6

record = pd.read_json(tl.DATA / "questions/desks_smollm2.jsonl", lines=True)
assert set(record.question) == set(held_out.question) and len(record) == 75
assert (record.after == record.desk).sum() == 73 == counted + 1
assert 33 < 134_515_008 / sum(tensor.numel() for tensor in saved.values()) < 34  # SmolLM2 by this model

assert same == {"intact": 98, "broken": 0} and len(saved) == 98 and set(missing) - set(saved) == {"lm_head.weight"}
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
