on_8 = fits.set_index("strategy")["8 GB"]
assert on_8.drop("full").all() and 8.3 < fits.set_index("strategy").gib["full"] < 8.5
assert round(6_738_415_616 * 4 / 2**30) == 25
assert round(494_032_768 * 16 / 2**30, 1) == 7.4

assert (in_all, trained) == (630_167_424, 165_960_320)
assert round(rust_run / 1e9, 1) == 4.5

assert steps[0].estimate > 13.6 * 2**30 and first.name == "optimizer on the host"

assert wrong_by > 0.5, "That is more than half"

outside = watched[0]() is not None  # by now it should be gone
assert inside, "Inside the except block the activations are still in memory"
assert not outside, "After the except block they are gone"

tried = log.table[log.table.action == "training"]
assert len(tried) == 1 and tried.failed_in.iloc[0] == "", "Nothing failed"

assert distance(saving, at_once) <= 1e-5, (
    "Four rows at once or one at a time, the weights agree to one in a hundred thousand"
)
assert distance(at_once, weights_of(undisturbed)) <= 1e-5, "They agree with tlkit's weights just as well"

again = tl.estimate_memory("qwen2-0.5b", "last_layers").peak / 2**30
apart_by = abs(again / fits.set_index("strategy").gib["last_layers"] - 1)
assert apart_by < 0.01, "The record still holds, to one percent"
assert not on_8["full"], "The published model: full fine-tuning does not fit 8 GB"

assert all(recommend(card_, batch_size=1).estimate.peak <= 0.85 * card_.budget for card_ in devices)

# after: check-message
assert card.peak <= card.budget, "The budget was never exceeded"
assert message.startswith("CUDA out of memory. Tried to allo")

# after: check-tl
assert set(tl.LADDER) == every_rung - {"as planned"} and lower.micro_batch_size == 2

# after: check-result
losses_differ = (result.history.loss - reference.history.loss).abs().max()
assert losses_differ < 1e-4

# after: check-log-2
assert log.table.rung.iloc[-1] == "optimizer on the host"
values = sum(p.numel() for p in walked.parameters())
assert round(8 * values / 2**20) == 31 and round(16 * values / 2**20) == 62
failed = log.table.failed_in.tolist()
assert failed == ["forward pass"] * 3 + ["optimizer step"] * 3 + [""], (
    "Three attempts fail in the forward pass, then three in the optimizer step"
)

# after: check-log-2-2
assert result.history.step.tolist() == [1, 2, 3] and log.table.first_step.max() == 2, (
    "Every step was taken once, and step 2 is the one that failed"
)
assert difference <= 1e-5, "The weights are the same, to one in a hundred thousand"
