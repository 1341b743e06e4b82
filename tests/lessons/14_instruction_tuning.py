assert len(examples) == 160 and len(asked) == 30
assert 40 < 100 * sum(not text.strip() for text in texts["untouched"]) / len(asked) < 47

right, wrong = table.loc["answers"], table.loc["end masked"]
assert table["stopped, %"]["untouched"] > 60 and 60 < right["stopped, %"] < 90
assert right["empty, %"] < 20 and right["refused, Rust, %"] < 10
assert 50 <= right["refused, other subject, %"] <= 90
assert 1.1 < wrong.perplexity / right.perplexity < 1.4

at_end = {name: 1 / perplexity(model, ends) for name, model in models.items()}
assert 10 * at_end["end masked"] < at_end["untouched"] < 0.1 * at_end["answers"]

before, after = chat.loc["zero-shot"], chat.loc["lora"]
assert (round(before.stopped, 3), round(after.stopped, 2)) == (0.125, 0.95)
assert 0.45 < after.perplexity / before.perplexity < 0.55 and 0.5 < after.answer_tokens / before.answer_tokens < 0.6
assert (round(before.in_form, 2), round(after.in_form, 2)) == (0.17, 0.65)
low, high = after.rust_accuracy_difference_low, after.rust_accuracy_difference_high
assert (round(100 * low), round(100 * high)) == (-4, 4)

zero = torch.zeros(4)
assert torch.allclose(dpo_loss(zero, zero), torch.tensor(2.0).log())
assert round(dpo_loss(torch.tensor([10.0]), torch.tensor([0.0])).item(), 2) == 0.31
assert abs(losses[0] - 0.693) < 0.001 and losses[-1] < 0.3
assert wider == 24 and 13 <= lower <= 19
assert round(after.rust_accuracy, 2) == 0.2 and ((won < 0) & (lost < 0)).sum() == lower
