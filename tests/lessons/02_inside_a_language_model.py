assert model.num_parameters() == 4_036_800 == sum(g.numel() for g in gradients)
assert (len(tokenizer), ids.shape, logits.shape) == (4096, (1, 22), (1, 22, 4096))
assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
assert torch.equal(table[ids[0, 3]], table[ids[0, 14]]) and words[3] == words[14] == " argument"

assert text.tolist() == theirs.tolist(), "the same text by hand as with generate"

assert most == (2, 0) and len(left) == 28
whole = looks[7][0, 0, again, after_first].item()
assert abs(whole - 0.671) < 0.01 and abs(left[most] - 0.544) < 0.01 and abs(left[6, 1] - whole) < 0.01

assert round(-math.log(0.5), 2) == 0.69 and round(-math.log(0.001), 1) == 6.9
assert round(math.exp(mean), 1) == 4.4
assert all(2.9 < losses[words.index(word) - 1] < 5 for word in (" first", " file", " directory"))
half = words.index(",")
assert losses[half:].mean() < losses[:half].mean()

assert abs(rare.item() / 0.001 + 3.16) < 0.01
assert abs(math.sqrt(0.001) - 1 / 30) < 0.002

assert length > 1, "the gradient is clipped"
with torch.no_grad():
    assert abs(loss_of(trained, held_out).item() - after) < 1e-5

# Part B has left part A's model as it was.
assert torch.equal(forward(ids)[0], logits) and copying_without(*most) == left[most]

# after: check-heads
after_first = words.index(" argument") + 1
again = words.index(" second") + 1
assert looks[7][0, 0, again].argmax() == after_first and words[after_first] == " is"
assert round(100 * looks[2][0, 0, after_first, after_first - 1].item()) == 98
assert looks[6][0, 1, after_first, after_first] > 0.9
assert looks[6][0, 1].diagonal(-1)[1:].mean() > looks[2][0, 0].diagonal(-1)[1:].mean() > 0.5
assert theirs.shape == (1, 22, 4096) or theirs.shape == text.shape
