import math
import shutil

import pytest

assert len(training) == 120 and not set(training.question) & set(held_out.question)
assert held_out.desk.value_counts().to_dict() == {"Python": 25, "Rust": 25, "other": 25}

# The three methods, here and on other splits.
assert table.loc[0].tolist() == [66, 72] and set(now) == {"Python", "Rust", "other"}
assert table.mean().tolist() == [65.6, 69.6]  # scikit-learn alone, so the same everywhere
recorded = [69, 67, 69, 62, 62, 64, 61, 65, 66, 62]  # of the model, on one core; the first is the lesson's
assert round(sum(recorded) / 10) == 65 and (min(recorded), max(recorded)) == (61, 69) and len(table) == 10
assert abs(right.sum() - recorded[0]) <= 2
assert named == ["Python", "other", "other"]

# How answers are made: they end the rows, and are what is counted.
assert [len(tokenizer(f" {name}")["input_ids"]) for name in ("Python", "Rust")] == [1, 2]
coded = encode(["Why?", "Why does it not compile?"], ["Rust", "other"])
kept = [tokenizer.decode(row[row >= 0]) for row in coded["labels"]]
assert kept == [" Rust<|endoftext|>", " other<|endoftext|>"]
assert len(tokenizer) == model.config.vocab_size == 4096

# What was trained, and in how many steps.
trained = sum(weights.numel() for weights in adapted.parameters() if weights.requires_grad)
assert len(losses) == 3 * len(broken_losses) == 60
assert 4 * trained < 1e6  # the bytes of the adapter's file
assert losses[-1] < 1 < broken_losses[-1] and sum(broken_losses[-5:]) > 2 * sum(losses[25:30])
assert min(losses[0], broken_losses[0]) > 8 and losses[5] < 1 and abs(broken_losses[5] - 7.4) < 0.2
assert [round(-math.log(p), 1) for p in (0.5, 1 / 4096)] == [0.7, 8.3]
assert right.groupby(held_out.desk).sum().min() >= 18  # 22 here: no desk gets all
assert (answers(broken) == held_out.desk).sum() < 10
with torch.no_grad():  # a random head prefers no token, even after training
    assert broken(**encode(["Why?"], ["Rust"])).logits.softmax(-1).max() < 0.015

# The two `if`s: most questions of a desk have its sign.
for desk, sign in (("Python", "Python"), ("Rust", "`")):
    assert questions.question[questions.desk == desk].str.contains(sign).mean() > 0.6

named = pd.read_csv(tl.DATA / "tickets/runs/answers.csv", index_col="run").crate.filter(regex="^lora.*-288.*test-cuda")
assert len(named) == 3 * 96 and round(100 * named.mean()) == 74  # lesson 12 holds that no crate is in two splits

record = pd.read_json(tl.DATA / "questions/desks_smollm2.jsonl", lines=True)
assert set(record.question) == set(held_out.question) and len(record) == 75
assert (record.after == record.desk).sum() == 73

assert not missing and not unexpected and len(same) == sum(same) == len(saved) == 98  # repaired, and before it:
missing, unexpected = tries["broken"][1]["missing_keys"], tries["broken"][1]["unexpected_keys"]
assert set(missing) - set(saved) == {"lm_head.weight"} and len(missing) == 99 and set(unexpected) == set(renamed)
assert {tensor.dtype for tensor in saved.values()} == {torch.float16}
with tempfile.TemporaryDirectory() as place:
    copy = shutil.copytree(tl.BUNDLED, f"{place}/copy")
    save_file(renamed, f"{copy}/model.safetensors", {"format": "pt"})
    with pytest.raises(RuntimeError):
        tl.load_model(copy)
