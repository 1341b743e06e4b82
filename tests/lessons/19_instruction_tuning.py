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

# after: check-labels
assert torch.equal(labels, examples.labels)

# after: check-learned
assert int(learned.min()) == 2 and 110 < int(learned.max()) < 150

# after: check-first
assert said_about(lambda: tl.refuse_answers(first, tokenizer)) == "nothing"

# after: check-after
assert before.in_form < 0.2 and 0.6 < after.in_form < 0.7
assert after.refused_wrongly < 0.01 and after.general < 0.6 * before.general
assert [round(100 * end) for end in (low, high)] == [-4, 4]
assert [round(100 * end) for end in ends] == [0, 15] and after.one_word_right == 0
