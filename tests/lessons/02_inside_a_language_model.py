assert model.num_parameters() == 4_036_800 == sum(g.numel() for g in gradients)
assert (len(tokenizer), ids.shape, logits.shape) == (4096, (1, 22), (1, 22, 4096))
assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
assert torch.equal(table[ids[0, 3]], table[ids[0, 14]]) and words[3] == words[14] == " argument"

generated = model.generate(ids[:, :9], max_new_tokens=8, do_sample=False)
assert text.tolist() == generated.tolist(), "the same text by hand as with generate"

costs = {(3, 2): 0.43, (7, 1): 0.45, (7, 0): 0.53, (2, 0): 0.63}
assert all(abs(removed[head][1] - p) < 0.01 for head, p in costs.items()) and len(removed) == 32
assert abs(removed[2, 0][0] - 0.544) < 0.01 and abs(removed[5, 3][0] - 0.56) < 0.01
assert worst[:2] == [(3, 2), (7, 1)] and worst[4] == (7, 0)
at_first = [copying_without()[2], *(removed[head][2] for head in [(7, 1), (3, 2), (7, 0)])]
assert [round(p, 2) for p in at_first] == [0.21, 0.05, 0.18, 0.22]

w, g = torch.zeros(3), torch.tensor([5.0, 0.01, -0.0001])
adamw_(w, g, torch.zeros(3), torch.zeros(3), t=1, rate=0.001)
assert torch.allclose(w, -0.001 * g.sign(), rtol=1e-3)
assert abs(rare.item() / 0.001 + 3.16) < 0.01 and abs(math.sqrt(0.001) - 1 / 30) < 0.002

# after: check-heads
after_first = words.index(" argument") + 1
again = words.index(" second") + 1
assert weights_of[7][0, 0, again].argmax() == after_first and words[after_first] == " is"
assert round(100 * weights_of[2][0, 0, after_first, after_first - 1].item()) == 98
back = torch.arange(22) - weights_of[2][0, 0].argmax(-1)
assert set(back[1:].tolist()) == {1, 2}
assert (weights_of[7][0, 0].argmax(-1) == 0).sum() == 15 and round(weights_of[5][0, 2, 14, 4].item(), 2) == 0.62
