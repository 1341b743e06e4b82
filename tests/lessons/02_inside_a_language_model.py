assert model.num_parameters() == 4_036_800 == sum(g.numel() for g in gradients)
assert (len(tokenizer), ids.shape, logits.shape) == (4096, (1, 22), (1, 22, 4096))
assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
assert torch.equal(table[ids[0, 3]], table[ids[0, 14]]) and words[3] == words[14] == " argument"

assert text.tolist() == theirs.tolist(), "the same text by hand as with generate"

weight, probability = copying_without(0)
assert len(left) == 32 and min(left, key=lambda one: left[one][0]) == (2, 0)
assert abs(weight - 0.671) < 0.01 and abs(left[2, 0][0] - 0.544) < 0.01
# The prediction does not need that head: another one, which looks back as well, matters most.
assert abs(probability - 0.614) < 0.01 and abs(left[2, 0][1] - 0.630) < 0.01 and abs(left[7, 0][1] - 0.531) < 0.01
assert most == (3, 2) and abs(left[most][1] - 0.428) < 0.01
assert weights_of[3][0, 2, again].argmax() == again - 2

assert round(-math.log(0.5), 2) == 0.69 and round(-math.log(0.001), 1) == 6.9
assert round(losses.mean().exp().item(), 1) == 4.4
assert all(2.9 < losses[words.index(word) - 1] < 5 for word in (" first", " file", " directory"))
assert round(losses[-1].item(), 1) == 3.2 and tokenizer.decode(predicted[-1].argmax()) == " containing"
assert abs(predicted[-1].max() - 0.31) < 0.01

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
assert weights_of[7][0, 0, again].argmax() == after_first and words[after_first] == " is"
assert round(100 * weights_of[2][0, 0, after_first, after_first - 1].item()) == 98
back = torch.arange(22) - weights_of[2][0, 0].argmax(-1)
assert set(back[1:].tolist()) == {1, 2}
assert theirs.shape == (1, 22, 4096) or theirs.shape == text.shape
