assert len(forms) == 488 and forms.count("refuse") == 56

assert tokenizer.chat_template is None

assert len(history) == 83 and at_the_end["end masked"] < 1.2 * at_the_end["answers"]

assert len(train) == 329 and 0.3 < table["empty"]["untouched"] < 0.8
assert len(questions) == 18 and table.stopped["untouched"] > 0.5
assert 1.05 < table.perplexity["end masked"] / table.perplexity["answers"] < 1.2

assert round(shares.min(), 2) in (0.52, 0.53) and round(shares.max(), 2) in (0.97, 0.98)
assert trained.refused_wrongly.filter(like="answers").min() > 0.08

assert len(ours) == 4

assert real_ways.drop(index="untouched").refused_wrongly.max() < 0.01

for one, other in zip(sample, library, strict=True):
    assert torch.allclose(one, other, rtol=1e-5)
at_start = dpo_loss(*sample, *sample)
assert torch.allclose(at_start, torch.full((4,), 2.0).log())
assert round(float(dpo_loss(torch.tensor(10.0), *[torch.tensor(0.0)] * 3)), 2) == 0.31

assert len(pairs.train) == 102 and abs(losses[0] - 0.693) < 0.001

assert all(topics[a].isdisjoint(topics[b]) for a, b in ((0, 1), (0, 2), (1, 2))), "No topic is in two splits"

assert 10 * stops["end masked"] < stops["untouched"] < stops["answers"], (
    "Masking the end has made the end token at least ten times less likely"
)

assert trained.refused_wrongly.filter(like="everything").max() < 0.02, (
    "Learning everything, fewer than 1 in 50 questions about Rust are refused"
)


theirs = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
apart = max(abs(a - b) for a, b in zip(theirs, ours, strict=True))
assert apart < 1e-5, "Trainer and tl.train: four losses equal to 1e-5"

moved = [sample[0] + 2.0, sample[1] - 3.0]  # so that the margin is not zero
margin = (moved[0] - library[0]) - (moved[1] - library[1])
assert torch.allclose(dpo_loss(*moved, *library), torch.log1p(torch.exp(-0.1 * margin))), (
    "The loss by hand is equation 7 of its paper"
)

won_change, lost_change = changes
wider, less_likely = won_change > lost_change, (won_change < 0).float().mean()
assert bool(wider.all()), "Every margin on the test pairs has widened"
assert less_likely > 0.5, "Most preferred answers are less likely now"
assert lengths[1] < lengths[0], "The answers have become shorter"
assert scores[1] > 1.05 * scores[0], "Perplexity on held-out answers has risen"

# after: check-pairs
assert not any(pairs.loc[(f"{name}, answers", f"{name}, everything")].separated for name in ("full", "lora"))
for learn, part in {"answers": 0.025, "everything": 0.051}.items():
    counts = (tl.answer_examples(train, tokenizer, learn=learn).labels != -100).sum(1)
    assert abs(counts[refusals].sum() / counts.sum() - part) < 0.001

# after: check-labels
assert apart < 1e-5, "Plain transformers computes the same loss from these labels"
assert torch.equal(labels, examples.labels)

# after: check-learned
assert abs(sum(rows) / 8 / loss.item() - 1) > 0.02, (
    "The mean of eight rows' means differs from the mean over all labels"
)
assert int(learned.min()) == 2 and 110 < int(learned.max()) < 150

# after: check-first
assert all(said_about(attempt) != "nothing" for attempt in mistakes.values()), "Each of the five is refused"
assert said_about(lambda: tl.refuse_answers(first, tokenizer)) == "nothing"

# after: check-after
assert 0.45 < after.perplexity / before.perplexity < 0.55, "The perplexity of held-out answers falls by about half"
assert before.stopped < 0.15 and after.stopped > 0.9, (
    "Answers within 96 tokens: before less than 15%, after more than 90%"
)
low, high = after.rust_accuracy_difference_low, after.rust_accuracy_difference_high
assert low < 0 < high, "No more questions about Rust are answered rightly"
assert before.in_form < 0.2 and 0.6 < after.in_form < 0.7
assert after.refused_wrongly < 0.01 and after.general < 0.6 * before.general
assert [round(100 * end) for end in (low, high)] == [-4, 4]
assert [round(100 * end) for end in ends] == [0, 15] and after.one_word_right == 0

# after: check-trained
assert table["empty"]["untouched"] > 0.2 and trained["empty"].max() == 0, (
    "The untouched model often says nothing, the trained ones always say something"
)
assert trained.perplexity.max() < 0.5 * table.perplexity["untouched"], (
    "Both at least halve the perplexity of held-out answers"
)

# after: check-apart
assert apart["packed"] < 1e-5, "Packed rows have the loss of padded rows"
assert apart["mixed"] > 1e-3, "Mixed rows have a different loss"

# after: check-pair
assert not pair.separated, "Neither way has a lower perplexity beyond the interval"
